//! Checkpoints in chunks, and what takes changes back.

use super::*;
use stasis_model::format::manifest::FileList;
use stasis_model::workspace::{Settings, UndoNote};
use std::collections::BTreeMap;

/// A pool that keeps chunks where nothing can be shared; in these tests nothing ever can, because the workspace is not asked.
fn chunking(world: &World, budget: u64) -> Pool {
    Pool::open(
        world.home.path(),
        PoolSettings::new(Budget::of_bytes(budget)),
    )
    .unwrap()
}

/// Whether this filesystem shares; then these tests are about clones, and `tests/slots.rs` has the others.
fn shares(world: &World) -> bool {
    measure::is_shared(&world.live(), world.home.path()).unwrap()
}

fn size_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum()
}

fn put_back(
    world: &World,
    pool: &Pool,
    of: &SlotMetadata,
    live: &Manifest,
) -> Result<crate::tree::restore::RestoreChanges, SlotError> {
    let back = Return {
        beside: &[],
        workspace: &world.live(),
        live,
        only: None,
        except: &[],
        at: Timestamp::default(),
        label: "",
    };
    pool.restore_in_place(of, back)
}

#[test]
fn a_checkpoint_in_chunks_holds_the_whole_tree_and_comes_back_in_place() {
    let world = World::new();
    if shares(&world) {
        return;
    }
    world.write("deep/file", "content");
    world.write("run", "#!");
    std::fs::set_permissions(world.at("run"), std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink("nowhere", world.at("link")).unwrap();
    std::fs::hard_link(world.at("run"), world.at("run2")).unwrap();
    let pool = chunking(&world, 1 << 30);
    let before = world.manifest();

    let made = make(&pool, Slot::new(10), CheckpointOrigin::Manual).unwrap();
    world.write("deep/file", "CONTENT");
    world.write("added/file", "new");
    std::fs::remove_file(world.at("link")).unwrap();
    let live = world.manifest();
    let inode = std::fs::metadata(world.live()).unwrap().ino();
    let _ = put_back(&world, &pool, &made.metadata, &live).unwrap();

    assert_eq!(
        made.metadata.form,
        stasis_model::workspace::SlotForm::Chunked
    );
    assert_eq!(made.metadata.hash, Some(before.hash()));
    assert_eq!(pool.contents(&made.metadata).unwrap(), before);
    assert_eq!(world.manifest(), before);
    assert_eq!(std::fs::metadata(world.live()).unwrap().ino(), inode);
    assert!(names(&pool.path().join("10")).contains(&"workspace.json".to_owned()));
}

#[test]
fn what_did_not_change_is_stored_once_and_swept_when_nobody_needs_it() {
    let world = World::new();
    if shares(&world) {
        return;
    }
    let noise: String = (0..200_000_u32)
        .map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 26))
        .collect();
    world.write("large", &noise);
    let pool = chunking(&world, 1 << 30);
    let chunks = world.home.path().join("chunks");

    let first = auto(&pool, 0).unwrap();
    let after_first = size_of(&chunks);
    world.write("small", "a little");
    let _ = auto(&pool, 1).unwrap();
    let after_second = size_of(&chunks);
    pool.delete(Slot::new(0)).unwrap();
    let second_only = pool
        .contents(&pool.metadata(Slot::new(1)).unwrap())
        .unwrap();
    let view = pool
        .view(&pool.metadata(Slot::new(1)).unwrap(), &[path("large")])
        .unwrap();
    let again = read_file(view.tree(), &path("large"), 1 << 20)
        .unwrap()
        .unwrap();
    drop(view);
    pool.delete(Slot::new(1)).unwrap();

    assert!(
        after_second - after_first < after_first / 10,
        "{after_first} {after_second}"
    );
    assert_eq!(second_only, world.manifest());
    assert_eq!(again, noise.as_bytes());
    assert_eq!(size_of(&chunks), 0);
    assert_ne!(first.metadata.hash, None);
    assert_eq!(names(pool.path()), [".lock"]);
}

#[test]
fn a_sweep_leaves_everything_while_a_checkpoint_cannot_say_what_it_needs() {
    let world = World::new();
    if shares(&world) {
        return;
    }
    world.write("file", "content");
    let pool = chunking(&world, 1 << 30);
    let _ = auto(&pool, 0).unwrap();
    let _ = auto(&pool, 1).unwrap();
    std::fs::write(pool.path().join("0/chunks"), "torn").unwrap();
    let before = size_of(&world.home.path().join("chunks"));

    pool.delete(Slot::new(1)).unwrap();

    assert_eq!(size_of(&world.home.path().join("chunks")), before);
}

#[test]
fn a_chunk_that_is_damaged_is_an_error_and_nothing_is_put_back() {
    let world = World::new();
    if shares(&world) {
        return;
    }
    world.write("file", "content");
    let pool = chunking(&world, 1 << 30);
    let made = auto(&pool, 0).unwrap();
    world.write("file", "edited!");
    for name in names(&world.home.path().join("chunks")) {
        let chunk = world.home.path().join("chunks").join(name);
        let mut bytes = std::fs::read(&chunk).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&chunk, bytes).unwrap();
    }

    let live = world.manifest();
    let refused = put_back(&world, &pool, &made.metadata, &live);

    assert!(refused.is_err());
    assert_eq!(world.read("file"), "edited!");
}

/// Noise that no two seeds share, and that does not compress to nothing.
fn noise(seed: u32, length: u32) -> String {
    let letter = |n: u32| {
        char::from(b'a' + (n.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 24) as u8 % 26)
    };
    (0..length).map(letter).collect()
}

/// Takes away, or spoils, every chunk that files lie in; says how many.
fn spoil_contents(world: &World, pool: &Pool, of: &SlotMetadata, delete: bool) -> usize {
    let document = packed::document(&pool.home_of(of), of).unwrap();
    // Then no chunk is part of it.
    assert!(matches!(document.list(), Ok(FileList::Inline(_))));
    let chunks = world.home.path().join("chunks");
    let others: Vec<_> = { names(&chunks).into_iter() }
        .map(|name| chunks.join(name))
        .collect();
    for path in &others {
        if delete {
            std::fs::remove_file(path).unwrap();
        } else {
            let mut bytes = std::fs::read(path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(path, bytes).unwrap();
        }
    }
    others.len()
}

#[test]
fn lost_and_rotten_chunks_are_put_together_again_from_the_live_files() {
    for delete in [true, false] {
        let world = World::new();
        if shares(&world) {
            return;
        }
        world.write("large", &noise(1, 5_000_000));
        for number in 0..20 {
            world.write(&format!("small/{number}"), &noise(number + 2, 500));
        }
        let pool = chunking(&world, 1 << 30);
        let made = auto(&pool, 0).unwrap().metadata;
        let before = world.manifest();
        let spoilt = spoil_contents(&world, &pool, &made, delete);
        assert!(spoilt > 1, "the large file and the small ones lie apart");

        let checked = pool.check(&made, &world.live(), &mut CheckedContent::default());
        let again = pool.check(&made, &world.live(), &mut CheckedContent::default());

        let checked = checked.unwrap();
        assert_eq!(checked.lost, Vec::<EntryPath>::new());
        assert_eq!(checked.healed.len(), 21);
        assert_eq!(again.unwrap(), CheckedSlot::default());
        // Fingerprints are not made of what is in a file: those that are rotten are set aside.
        let kept = names(&world.home.path().join("chunks"));
        let aside = kept.iter().filter(|name| name.contains("damaged"));
        assert_eq!(aside.count(), usize::from(!delete), "{kept:?}");
        world.write("large", "other");
        let live = world.manifest();
        let _ = put_back(&world, &pool, &made, &live).unwrap();
        assert_eq!(world.manifest(), before);
    }
}

#[test]
fn rotten_fingerprints_make_no_file_lost_and_are_stored_anew() {
    let world = World::new();
    if shares(&world) {
        return;
    }
    let large = noise(1, 5_000_000);
    world.write("large", &large);
    let pool = chunking(&world, 1 << 30);
    let made = auto(&pool, 0).unwrap().metadata;
    let fingerprints = |of: &SlotMetadata| {
        let document = packed::document(&pool.home_of(of), of).unwrap();
        let Ok(FileList::Inline(rows)) = document.list() else {
            panic!("a list of one file");
        };
        let content = rows.iter().find_map(|row| row.content.clone()).unwrap();
        let name = content.pieces[0].chunk.name.digest().to_string();
        world.home.path().join("chunks").join(name)
    };
    let rotten = fingerprints(&made);
    let mut bytes = std::fs::read(&rotten).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&rotten, bytes).unwrap();

    let checked = pool.check(&made, &world.live(), &mut CheckedContent::default());
    assert_eq!(checked.unwrap(), CheckedSlot::default());
    assert!(!rotten.exists());
    let next = auto(&pool, 1).unwrap().metadata;

    assert!(fingerprints(&next).exists());
    world.write("large", "other");
    let live = world.manifest();
    let _ = put_back(&world, &pool, &made, &live).unwrap();
    assert_eq!(world.read("large"), large);
}

#[test]
fn of_two_equal_files_the_one_that_stayed_gives_the_chunk_back() {
    let world = World::new();
    if shares(&world) {
        return;
    }
    let text = noise(3, 700);
    world.write("a", &text);
    world.write("b", &text);
    let pool = chunking(&world, 1 << 30);
    let made = auto(&pool, 0).unwrap().metadata;
    spoil_contents(&world, &pool, &made, true);
    world.write("a", &noise(4, 700));

    let checked = pool.check(&made, &world.live(), &mut CheckedContent::default());

    let checked = checked.unwrap();
    assert!(checked.lost.is_empty(), "{checked:?}");
    assert_eq!(checked.healed.len(), 2);
}

#[test]
fn a_chunk_of_which_the_live_tree_lacks_a_part_stays_lost_and_its_files_are_named() {
    let world = World::new();
    if shares(&world) {
        return;
    }
    for name in ["a", "b", "c"] {
        world.write(name, &noise(u32::from(name.as_bytes()[0]), 700));
    }
    let large = noise(1, 5_000_000);
    world.write("large", &large);
    let pool = chunking(&world, 1 << 30);
    let made = auto(&pool, 0).unwrap().metadata;
    spoil_contents(&world, &pool, &made, true);
    world.write("b", &noise(9, 700));
    // What was appended to still has all that it had.
    world.write("large", &(large + "more"));

    let checked = pool.check(&made, &world.live(), &mut CheckedContent::default());

    let checked = checked.unwrap();
    let named = |paths: &[EntryPath]| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(named(&checked.lost), ["a", "b", "c"]);
    assert_eq!(named(&checked.healed), ["large"]);
}

#[test]
fn what_came_out_is_kept_for_whoever_wants_it_back_and_counts() {
    let world = World::new();
    world.write("deep/file", "then");
    let pool = world.pool(1 << 30);
    let made = auto(&pool, 0).unwrap().metadata;
    let before = pool.usage().unwrap().held;
    world.write("deep/file", &"now ".repeat(10_000));
    let note = UndoNote {
        act: "revert".to_owned(),
        path: Some("deep/file".to_owned()),
        made: Vec::new(),
        from: "cp-0".to_owned(),
        since: None,
        pending: true,
    };
    let at = Timestamp::from_millis(1000);
    let mut metadata = SlotMetadata::new(Slot::new(1), CheckpointOrigin::Undo, at, 1);
    metadata.undo = Some(note.clone());

    let undo = pool.begin_undo(metadata).unwrap();
    let back = Return {
        beside: &[],
        workspace: &world.live(),
        live: &world.manifest(),
        only: Some(&path("deep/file")),
        except: &[],
        at,
        label: &pool.label_of(&undo),
    };
    let changes = pool.restore_in_place(&made, back).unwrap();
    let nothing_yet = pool.backup_of(&undo);
    // As if the process had been killed here.
    pool.settle_undos(&world.live()).unwrap();

    assert_eq!(world.read("deep/file"), "then");
    assert_eq!(nothing_yet, None);
    assert!(!changes.backup.unwrap().exists(), "it is in the session");
    let kept = pool.backup_of(&undo).unwrap().join("tree/deep/file");
    assert!(
        std::fs::read_to_string(kept)
            .unwrap()
            .starts_with("now now")
    );
    let known = pool.undo(1).unwrap().undo.unwrap();
    assert_eq!((known.pending, known.act), (false, note.act));
    assert_eq!(pool.list().unwrap().len(), 1, "it is in no pool");
    assert!(pool.usage().unwrap().held > before + 40_000);
    pool.delete_undo(1).unwrap();
    assert_eq!(pool.usage().unwrap().held, before);
}

#[test]
fn an_undo_checkpoint_of_a_change_that_was_never_made_goes() {
    let world = World::new();
    let pool = world.pool(1 << 30);
    let at = Timestamp::from_millis(1000);
    let metadata = SlotMetadata::new(Slot::new(1), CheckpointOrigin::Undo, at, 1);
    let _ = pool.begin_undo(metadata).unwrap();

    pool.settle_undos(&world.live()).unwrap();

    assert!(pool.undos().unwrap().is_empty());
}

#[test]
fn a_manual_checkpoint_takes_the_place_of_the_one_that_is_named_and_of_no_other() {
    let world = World::new();
    world.write("file", "old");
    let pool = world.pool(1 << 30);
    let settings = Settings::new(1, 1, 60).unwrap();
    let old = make(
        &pool,
        next_manual(&settings, &[], None).unwrap(),
        CheckpointOrigin::Manual,
    )
    .unwrap();
    world.write("file", "new");
    let ring = auto(&pool, 0).unwrap();
    let metadata = SlotMetadata {
        slot: old.metadata.slot,
        origin: CheckpointOrigin::Manual,
        ..ring.metadata.clone()
    };

    let refused = pool.copy(&ring.metadata, metadata.clone(), Some(&ring.metadata));
    let copied = pool
        .copy(&ring.metadata, metadata, Some(&old.metadata))
        .unwrap();

    assert!(matches!(refused, Err(SlotError::Occupied(_))));
    assert_eq!(copied.replaced.map(|one| one.slot), Some(old.metadata.slot));
    let view = pool
        .view(&pool.metadata(old.metadata.slot).unwrap(), &[])
        .unwrap();
    assert_eq!(
        read_file(view.tree(), &path("file"), 100).unwrap().unwrap(),
        b"new"
    );
}

#[test]
fn chunks_of_what_is_replaced_count_when_they_are_needed_again() {
    let world = World::new();
    if shares(&world) {
        return;
    }
    let noise = |seed: u64| -> String {
        let mut dice = Dice(seed);
        (0..60_000)
            .map(|_| char::from(b'!' + u8::try_from(dice.below(90)).unwrap()))
            .collect()
    };
    world.write("one", &noise(1));
    let budget = 90_000;
    let pool = chunking(&world, budget);
    let first = auto(&pool, 0).unwrap();
    world.write("two", &noise(2));

    let refused = auto(&pool, 0).unwrap_err();

    assert!(
        matches!(refused, SlotError::OverBudget(over) if over.needed > over.budget),
        "{refused}"
    );
    assert!(pool.usage().unwrap().held <= budget);
    assert_eq!(
        pool.metadata(Slot::new(0)).unwrap().sequence,
        first.metadata.sequence
    );
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// How many bytes lie in the session directory, the live tree aside.
fn on_disk(pool: &Pool) -> u64 {
    pool.usage().unwrap().held
}

fn random_checkpoints(pool: &Pool, world: &World, (budget, count): (u64, u64)) {
    let settings = Settings::new(4, 3, 60).unwrap();
    let mut dice = Dice(7);
    let (mut made, mut refused) = (0, 0);
    for _ in 0..count {
        let file = format!("f{}", dice.below(6));
        let noise: String = (0..dice.below(6_000))
            .map(|_| char::from(b'!' + u8::try_from(dice.below(90)).unwrap()))
            .collect();
        world.write(&file, &noise);
        let occupants = pool.list().unwrap();
        let kind = dice.below(12);
        let slot = match kind {
            0 => next_manual(&settings, &occupants, None),
            _ => next_auto(&settings, &occupants),
        };
        let Ok(slot) = slot else {
            let manual = occupants
                .iter()
                .find(|one| one.known().unwrap().origin == CheckpointOrigin::Manual);
            pool.delete(manual.unwrap().slot()).unwrap();
            continue;
        };
        let origin = if kind == 0 {
            CheckpointOrigin::Manual
        } else {
            CheckpointOrigin::Auto
        };
        match make(pool, slot, origin) {
            Ok(_) => made += 1,
            Err(SlotError::OverBudget(over)) => {
                assert!(over.needed > over.budget);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        let held = on_disk(pool);
        assert!(held <= budget, "{held} after {made} checkpoints");
    }
    assert!(made > count / 4, "{made} made, {refused} refused");
    assert!(refused > 0, "the budget was never reached");
}

#[test]
fn no_random_checkpoint_in_chunks_ever_passes_the_budget() {
    let world = World::new();
    if shares(&world) {
        return;
    }
    let budget = 210_000;
    random_checkpoints(&chunking(&world, budget), &world, (budget, 500));
}

#[test]
fn no_random_copy_ever_passes_the_budget() {
    let world = World::new();
    let budget = 150_000;
    random_checkpoints(&world.pool(budget), &world, (budget, 2_000));
}

#[test]
#[ignore = "ten thousand of each: scripts/full runs it"]
fn ten_thousand_random_checkpoints_never_pass_the_budget() {
    for (budget, is_chunked) in [(210_000, true), (150_000, false)] {
        let world = World::new();
        let pool = if is_chunked {
            chunking(&world, budget)
        } else {
            world.pool(budget)
        };
        random_checkpoints(&pool, &world, (budget, 10_000));
    }
}

#[test]
fn what_an_interrupted_checkpoint_stored_serves_the_next_one_if_it_is_whole() {
    let world = World::new();
    if shares(&world) {
        return;
    }
    let mut dice = Dice(5);
    let mut noise = || -> String {
        let letter = |_| char::from(b'!' + u8::try_from(dice.below(90)).unwrap());
        (0..3_000_000).map(letter).collect()
    };
    for name in ["a", "b", "c"] {
        world.write(name, &noise());
    }
    let pool = chunking(&world, 1 << 30);
    let chunks = world.home.path().join("chunks");
    let inodes = |directory: &Path| -> BTreeMap<String, u64> {
        let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
        let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
        files
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, entry.metadata().unwrap().ino())
            })
            .collect()
    };
    // As a killed process leaves it: everything under temporary names, one torn, one that is not what it says.
    let _ = auto(&pool, 0).unwrap();
    let stored = inodes(&chunks);
    pool.slots.remove(Slot::new(0), &|_| Ok(())).unwrap();
    let _ = std::fs::remove_file(world.home.path().join("remembered"));
    let left = chunks.join(".incoming.stasis-tmp-1");
    std::fs::create_dir(&left).unwrap();
    for name in stored.keys() {
        std::fs::rename(chunks.join(name), left.join(name)).unwrap();
    }
    let bad: Vec<&String> = stored.keys().take(2).collect();
    let torn = std::fs::read(left.join(bad[0])).unwrap();
    std::fs::write(left.join(bad[0]), &torn[..torn.len() / 2]).unwrap();
    std::fs::copy(left.join(stored.keys().last().unwrap()), left.join(bad[1])).unwrap();

    let made = auto(&pool, 0).unwrap();

    let now = inodes(&chunks);
    assert!(stored.len() > 5, "{stored:?}");
    assert_eq!(
        stored.keys().collect::<Vec<_>>(),
        now.keys().collect::<Vec<_>>()
    );
    let reused = stored.iter().filter(|(name, inode)| now[*name] == **inode);
    // The lists of files are small, and may be written again.
    let expected = stored.len() - bad.len() - 1;
    assert!(reused.count() >= expected, "{stored:?}\n{now:?}");
    assert!(!left.exists());
    std::fs::remove_file(world.at("b")).unwrap();
    let live = world.manifest();
    let _ = put_back(&world, &pool, &made.metadata, &live).unwrap();
    assert_eq!(made.metadata.hash, Some(world.manifest().hash()));
}

#[test]
fn a_cancelled_checkpoint_leaves_what_it_wrote_and_a_deletion_clears_it_away() {
    let world = World::new();
    if shares(&world) {
        return;
    }
    let pool = chunking(&world, 1 << 30);
    world.write("a", "something");
    let made = auto(&pool, 0).unwrap();
    let chunks = world.home.path().join("chunks");
    let left = || {
        let all = names(&chunks).into_iter();
        all.filter(|name| name.starts_with(".incoming")).count()
    };

    pool.chunks.incoming(&|| u64::MAX).unwrap().leave();
    assert_eq!(left(), 1);
    drop(pool.chunks.incoming(&|| u64::MAX).unwrap());
    assert_eq!(left(), 0);
    pool.chunks.incoming(&|| u64::MAX).unwrap().leave();
    pool.delete(made.metadata.slot).unwrap();
    assert_eq!(left(), 0);
}
