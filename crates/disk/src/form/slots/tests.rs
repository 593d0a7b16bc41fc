#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use super::*;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::workspace::{CheckpointOrigin, next_auto, next_manual, next_sequence};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

mod chunked;

use Reverted::{Deleted, Restored, Unchanged};

/// Later than anything that a test makes: everything is old enough to be remembered.
const LATER: Timestamp = Timestamp::from_millis(10_000_000_000_000);

struct World {
    home: TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self {
            home: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(world.live()).unwrap();
        world
    }

    fn live(&self) -> PathBuf {
        self.home.path().join("workspace")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.live().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        std::fs::write(self.at(name), content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap()
    }

    /// A pool that copies where nothing can be shared.
    fn pool(&self, budget: u64) -> Pool {
        let settings = PoolSettings {
            fallback: Fallback::Copy,
            ..PoolSettings::new(Budget::of_bytes(budget))
        };
        Pool::open(self.home.path(), settings).unwrap()
    }

    fn root(&self) -> RootDir {
        RootDir::open(&self.live(), Mounts::Stay).unwrap()
    }

    fn manifest(&self) -> Manifest {
        list(&self.root(), &self.home.path().join("stats"), LATER)
    }
}

fn list(root: &RootDir, stats: &Path, now: Timestamp) -> Manifest {
    let mut cache = StatCache::open(stats, now);
    let listed = manifest(root, &mut cache, &WalkSettings::default()).unwrap();
    cache.save().unwrap();
    listed.0
}

fn auto(pool: &Pool, slot: u32) -> Result<Created, SlotError> {
    make(pool, Slot::new(slot), CheckpointOrigin::Auto)
}

fn make(pool: &Pool, slot: Slot, origin: CheckpointOrigin) -> Result<Created, SlotError> {
    let sequence = next_sequence(&pool.list().unwrap());
    let at = Timestamp::from_millis(1000 * sequence);
    let metadata = SlotMetadata::new(slot, origin, at, sequence);
    let workspace = pool.path().parent().unwrap().join("workspace");
    pool.create(&CheckpointSource::of(&workspace), metadata)
}

fn with_system<'a>(workspace: &'a Path, system: &'a Path) -> CheckpointSource<'a> {
    CheckpointSource {
        system: Some(system),
        ..CheckpointSource::of(workspace)
    }
}

fn path(text: &str) -> EntryPath {
    EntryPath::parse(text.as_bytes()).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_checkpoint_is_a_whole_tree_with_the_metadata_of_the_contract() {
    let world = World::new();
    world.write("deep/file", "content");
    world.write("empty", "");
    let system = world.home.path().join("image.raw");
    std::fs::write(&system, "a system").unwrap();
    let pool = world.pool(1 << 30);
    let metadata = SlotMetadata {
        name: Some("first".parse().unwrap()),
        ..SlotMetadata::new(Slot::new(10), CheckpointOrigin::Manual, LATER, 1)
    };

    let created = pool.create(&with_system(&world.live(), &system), metadata);

    let created = created.unwrap();
    assert_eq!(pool.metadata(Slot::new(10)).unwrap(), created.metadata);
    assert_eq!(
        (created.metadata.files_count, created.metadata.bytes),
        (2, 7)
    );
    assert!(created.metadata.complete && created.replaced.is_none());
    let slot = world.home.path().join("auto_snapshots/10");
    assert_eq!(names(&slot), ["metadata.json", "system", "workspace"]);
    assert_eq!(
        std::fs::read(slot.join("system/image.raw")).unwrap(),
        b"a system"
    );
    let kept = list(&pool.tree(Slot::new(10)).unwrap(), &world.at("../s"), LATER);
    assert_eq!(kept, world.manifest());
    assert_eq!(names(pool.path()), [".lock", "10"]);
}

#[test]
fn an_automatic_one_is_replaced_and_a_manual_one_never() {
    let world = World::new();
    let pool = world.pool(1 << 30);
    world.write("file", "one");
    let _ = auto(&pool, 0).unwrap();
    let _ = make(&pool, Slot::new(11), CheckpointOrigin::Manual).unwrap();
    world.write("file", "two");

    let replaced = auto(&pool, 0).unwrap().replaced;
    let refused = auto(&pool, 11).unwrap_err();
    let manual = make(&pool, Slot::new(0), CheckpointOrigin::Manual).unwrap_err();

    assert_eq!(replaced.map(|old| old.sequence), Some(1));
    assert!(matches!(refused, SlotError::Occupied(_)), "{refused}");
    assert!(matches!(manual, SlotError::Occupied(_)), "{manual}");
    let read = |slot: u32| std::fs::read(pool.path_of(Slot::new(slot)).join("file")).unwrap();
    assert_eq!((read(0), read(11)), (b"two".to_vec(), b"one".to_vec()));
    assert_eq!(names(pool.path()), [".lock", "0", "11"]);
}

#[test]
fn a_slot_that_nobody_understands_is_told_and_neither_used_nor_overwritten() {
    let world = World::new();
    world.write("file", "one");
    let pool = world.pool(1 << 30);
    for slot in 0..4 {
        let _ = auto(&pool, slot).unwrap();
    }
    let at = |way: &str| pool.path().join(way);
    std::fs::write(at("0/metadata.json"), "{").unwrap();
    std::fs::rename(at("1/workspace"), at("1/elsewhere")).unwrap();
    std::fs::copy(at("3/metadata.json"), at("2/metadata.json")).unwrap();
    std::fs::write(at("4"), "a file").unwrap();
    symlink(at("3"), at("5")).unwrap();
    std::fs::create_dir(at("06")).unwrap();

    let found = pool.list().unwrap();
    let slots = found
        .iter()
        .map(|one| (one.slot().index(), one.known().is_some()));
    let slots: Vec<(u32, bool)> = slots.collect();

    let expected = [
        (0, false),
        (1, false),
        (2, false),
        (3, true),
        (4, false),
        (5, false),
    ];
    assert_eq!(slots, expected);
    for slot in [0, 1, 2, 4, 5] {
        let refused = auto(&pool, slot).unwrap_err();
        assert!(matches!(refused, SlotError::Unreadable { .. }), "{refused}");
        assert!(pool.tree(Slot::new(slot)).is_err());
    }
    for slot in [0, 4, 5] {
        pool.delete(Slot::new(slot)).unwrap();
    }
    assert_eq!(names(pool.path()), [".lock", "06", "1", "2", "3"]);
    assert!(at("3/workspace/file").exists(), "the link was not followed");
}

#[test]
fn what_the_dead_left_is_removed_and_what_the_living_make_is_not() {
    let world = World::new();
    let pool = world.pool(1 << 30);
    let at = |name: &str| pool.path().join(name);
    std::fs::create_dir_all(at(".3.stasis-tmp-99/workspace/deep")).unwrap();
    std::fs::create_dir_all(at(".3.stasis-tmp-99-1")).unwrap();
    std::fs::create_dir_all(at(".x.stasis-tmp-99")).unwrap();
    std::fs::create_dir_all(at(".7.stasis-tmp-98")).unwrap();
    let living = File::open(at(".7.stasis-tmp-98")).unwrap();
    living.lock().unwrap();

    let _ = world.pool(1 << 30);

    let left = [".7.stasis-tmp-98", ".lock", ".x.stasis-tmp-99"];
    assert_eq!(names(pool.path()), left);
}

#[test]
fn deleting_takes_one_away_and_says_when_there_is_none() {
    let world = World::new();
    world.write("file", "one");
    let pool = world.pool(1 << 30);
    let _ = auto(&pool, 0).unwrap();

    pool.delete(Slot::new(0)).unwrap();
    let again = pool.delete(Slot::new(0)).unwrap_err();

    assert!(matches!(again, SlotError::Empty(_)));
    assert_eq!(names(pool.path()), [".lock"]);
}

#[test]
fn a_checkpoint_that_cannot_be_made_leaves_the_old_one() {
    let world = World::new();
    world.write("file", "one");
    let pool = world.pool(1 << 30);
    let _ = auto(&pool, 0).unwrap();
    let metadata = SlotMetadata::new(Slot::new(0), CheckpointOrigin::Auto, LATER, 9);

    let missing = pool.create(
        &CheckpointSource::of(&world.at("nowhere")),
        metadata.clone(),
    );
    let system = pool.create(
        &with_system(&world.live(), &world.at("nowhere")),
        metadata.clone(),
    );
    let inside = pool.create(&CheckpointSource::of(world.home.path()), metadata);

    assert!(missing.is_err() && system.is_err() && inside.is_err());
    assert_eq!(pool.metadata(Slot::new(0)).unwrap().sequence, 1);
    assert_eq!(names(pool.path()), [".lock", "0"]);
}

#[test]
fn the_oldest_automatic_ones_go_for_a_new_one_and_a_manual_one_never() {
    let world = World::new();
    let pool = world.pool(5 << 20);
    let _ = make(&pool, Slot::new(10), CheckpointOrigin::Manual).unwrap();
    for slot in 0..4 {
        std::fs::write(world.at("file"), vec![slot; 1 << 20]).unwrap();
        let _ = auto(&pool, slot.into()).unwrap();
    }
    std::fs::write(world.at("file"), vec![9; 3 << 20]).unwrap();

    let created = make(&pool, Slot::new(11), CheckpointOrigin::Manual).unwrap();
    std::fs::write(world.at("file"), vec![9; 6 << 20]).unwrap();
    let refused = auto(&pool, 0).unwrap_err();

    assert!(!created.evicted.is_empty());
    assert_eq!(created.evicted[0], Slot::new(0));
    assert!(pool.metadata(Slot::new(3)).is_ok(), "the newest stays");
    assert!(matches!(refused, SlotError::OverBudget(_)), "{refused}");
    assert!(
        pool.metadata(Slot::new(3)).is_ok(),
        "a refusal takes nothing"
    );
    assert!(pool.metadata(Slot::new(10)).is_ok());
    assert!(pool.usage().unwrap().held <= 5 << 20);
}

#[test]
fn many_random_checkpoints_never_pass_the_budget() {
    let world = World::new();
    let (budget, settings) = (
        3 << 20,
        stasis_model::workspace::Settings::new(4, 3, 1).unwrap(),
    );
    let pool = world.pool(budget);
    let rounds = std::env::var("STASIS_CHECKPOINTS").map_or(120, |count| count.parse().unwrap());
    let (mut chance, mut made) = (0x9E37_79B9_7F4A_7C15_u64, 0);
    let mut next = |below: u64| {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        chance % below
    };
    for _ in 0..rounds {
        let size = usize::try_from(next(600 << 10)).unwrap();
        let file = world.at(&format!("file-{}", next(4)));
        std::fs::write(file, vec![7; size]).unwrap();
        let found = pool.list().unwrap();
        let (slot, origin) = match next(8) {
            0 if !found.is_empty() => {
                let which = usize::try_from(next(found.len() as u64)).unwrap();
                pool.delete(found[which].slot()).unwrap();
                continue;
            }
            1 => (
                next_manual(&settings, &found, None),
                CheckpointOrigin::Manual,
            ),
            _ => (next_auto(&settings, &found), CheckpointOrigin::Auto),
        };
        let created = slot.map(|slot| make(&pool, slot, origin));
        made += u32::from(created.is_ok_and(|created| created.is_ok()));
        let usage = pool.usage().unwrap();
        assert!(usage.held <= budget, "{usage:?}");
    }
    assert!(made > rounds / 4, "{made} of {rounds}");
}

#[test]
fn a_touch_is_no_change_and_an_edit_of_the_same_length_is() {
    let world = World::new();
    for name in ["touched", "edited", "gone", "turned", "mode"] {
        world.write(name, name);
    }
    symlink("here", world.at("link")).unwrap();
    let before = world.manifest();
    let time = std::fs::metadata(world.at("edited")).unwrap().modified();
    std::thread::sleep(Duration::from_millis(20));
    let touch = |name: &str, time| {
        let file = File::options().write(true).open(world.at(name)).unwrap();
        file.set_modified(time).unwrap();
    };
    touch("touched", std::time::UNIX_EPOCH);
    world.write("edited", "EDITED");
    touch("edited", time.unwrap());
    std::fs::remove_file(world.at("gone")).unwrap();
    std::fs::remove_file(world.at("turned")).unwrap();
    std::fs::create_dir(world.at("turned")).unwrap();
    std::fs::remove_file(world.at("link")).unwrap();
    symlink("there", world.at("link")).unwrap();
    std::fs::set_permissions(world.at("mode"), PermissionsExt::from_mode(0o600)).unwrap();
    world.write("turned/new", "");

    let after = world.manifest();

    let found: Vec<(String, ChangeKind)> = before
        .diff(&after)
        .into_iter()
        .map(|(path, change)| (path.to_string(), change))
        .collect();
    let expected = [
        ("edited", ChangeKind::Content),
        ("gone", ChangeKind::Removed),
        ("link", ChangeKind::Content),
        ("mode", ChangeKind::Metadata),
        ("turned", ChangeKind::Kind),
        ("turned/new", ChangeKind::Added),
    ];
    assert_eq!(
        found,
        expected.map(|(path, change)| (path.to_owned(), change))
    );
    assert_ne!(before.hash(), after.hash());
    assert_eq!(Manifest::from_bytes(&after.to_bytes()), Some(after.clone()));
    assert_eq!(Manifest::from_bytes(&after.to_bytes()[..90]), None);
}

#[test]
fn what_is_remembered_is_not_read_and_what_is_young_is_not_remembered() {
    let world = World::new();
    world.write("file", "content");
    let (root, stats) = (world.root(), world.home.path().join("stats"));
    let seen = std::fs::metadata(world.at("file")).unwrap();
    let made = u64::try_from(seen.ctime()).unwrap() * 1000;
    let remembered = |now: u64| {
        let mut cache =
            StatCache::open(&world.home.path().join("none"), Timestamp::from_millis(now));
        let _ = manifest(&root, &mut cache, &WalkSettings::default()).unwrap();
        cache.len()
    };
    let first = list(&root, &stats, LATER);
    // As if the content had changed in a way that nobody can see: only somebody who reads it would.
    let mut bytes = std::fs::read(&stats).unwrap();
    let digest = 8 + 48;
    bytes[digest] ^= 1;
    let torn = bytes.clone();
    let end = bytes.len() - 32;
    let sum = blake3::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(sum.as_bytes());

    std::fs::write(&stats, &bytes).unwrap();
    let believed = list(&root, &stats, LATER);
    std::fs::write(&stats, &torn).unwrap();
    let read_again = list(&root, &stats, LATER);

    assert_ne!(believed, first);
    assert_eq!(read_again, first);
    assert_eq!((remembered(made + 1_900), remembered(made + 4_000)), (0, 1));
}

#[test]
fn what_a_checkpoint_contains_is_recorded_with_its_hash_and_only_for_itself() {
    let world = World::new();
    world.write("file", "one");
    let pool = world.pool(1 << 30);
    let old = auto(&pool, 0).unwrap().metadata;
    let contents = world.manifest();

    let recorded = pool.record(&old, &contents).unwrap();
    let read = pool.recorded(&recorded);
    world.write("file", "two");
    let new = auto(&pool, 0).unwrap().metadata;
    let refused = pool.record(&old, &contents).unwrap_err();

    assert_eq!(recorded.hash, Some(contents.hash()));
    assert_eq!(read, Some(contents));
    assert!(matches!(refused, SlotError::Replaced(_)), "{refused}");
    assert_eq!(pool.recorded(&new), None);
}

/// A workspace of which there is a checkpoint.
fn saved(furnish: impl Fn(&World)) -> (World, Pool) {
    let world = World::new();
    furnish(&world);
    let pool = world.pool(1 << 30);
    let _ = auto(&pool, 0).unwrap();
    (world, pool)
}

/// What became of one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reverted {
    Restored,
    Deleted,
    Unchanged,
}

/// Makes one entry what it is in a tree, in place.
fn revert(live: &Path, tree: &RootDir, path: &EntryPath) -> Result<Reverted, SlotError> {
    let settings = WalkSettings::default();
    let was = portion(tree, path, &settings)?;
    let root = RootDir::open(live, Mounts::Stay).unwrap();
    if was == portion(&root, path, &settings)? {
        return Ok(Unchanged);
    }
    let mut settings = WorkspaceRestore::new(crate::tree::restore::RestoreOrigin {
        at: Timestamp::default(),
        from: "a checkpoint".to_owned(),
    });
    settings.limits.only = Some(path.clone());
    let _ = restore_in_place(tree, live, &|_| false, settings)?;
    Ok(if was.is_empty() { Deleted } else { Restored })
}

fn back(world: &World, pool: &Pool, name: &[u8]) -> Result<Reverted, SlotError> {
    let tree = pool.tree(Slot::new(0)).unwrap();
    revert(&world.live(), &tree, &EntryPath::parse(name).unwrap())
}

#[test]
fn a_file_gets_back_its_bytes_its_mode_and_its_time() {
    let (world, pool) = saved(|world| {
        world.write("deep/file", "before");
        world.write("empty", "");
        let file = File::options()
            .write(true)
            .open(world.at("deep/file"))
            .unwrap();
        file.set_permissions(PermissionsExt::from_mode(0o640))
            .unwrap();
        let time = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        file.set_modified(time).unwrap();
    });
    let before = std::fs::metadata(world.at("deep/file")).unwrap();
    std::fs::set_permissions(world.at("deep/file"), PermissionsExt::from_mode(0o755)).unwrap();
    world.write("deep/file", "edited");
    world.write("empty", "not any more");
    world.write("new", "file");

    let reverted = [
        "deep/file",
        "empty",
        "new",
        "deep/file",
        "nowhere",
        "empty/below",
    ];
    let reverted = reverted.map(|name| back(&world, &pool, name.as_bytes()).unwrap());

    let expected = [Restored, Restored, Deleted, Unchanged, Unchanged, Unchanged];
    assert_eq!(reverted, expected);
    let after = std::fs::metadata(world.at("deep/file")).unwrap();
    assert_eq!(world.read("deep/file"), "before");
    let look = |seen: &std::fs::Metadata| (seen.mode(), seen.mtime(), seen.mtime_nsec());
    assert_eq!(look(&after), look(&before));
    assert_eq!(world.read("empty"), "");
    assert_eq!(names(&world.live()), ["deep", "empty"]);
    assert_eq!(names(&world.at("deep")), ["file"]);
}

#[test]
fn links_come_back_as_they_were_and_are_never_followed() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("canary"), "alive").unwrap();
    let (world, pool) = saved(|world| {
        symlink("nowhere at all", world.at("broken")).unwrap();
        symlink(outside.path(), world.at("absolute")).unwrap();
        symlink("loop", world.at("loop")).unwrap();
        world.write("became-link", "a file");
    });
    for name in ["broken", "absolute", "loop", "became-link"] {
        std::fs::remove_file(world.at(name)).unwrap();
    }
    world.write("broken", "a file");
    std::fs::create_dir(world.at("absolute")).unwrap();
    world.write("absolute/canary", "theirs");
    symlink(outside.path().join("canary"), world.at("became-link")).unwrap();
    symlink(outside.path(), world.at("new-link")).unwrap();

    for name in ["broken", "absolute", "loop", "became-link", "new-link"] {
        let reverted = back(&world, &pool, name.as_bytes()).unwrap();
        assert_ne!(reverted, Reverted::Unchanged, "{name}");
    }
    let behind = back(&world, &pool, b"absolute/canary").unwrap();

    let target = |name: &str| std::fs::read_link(world.at(name)).unwrap();
    assert_eq!(target("broken"), Path::new("nowhere at all"));
    assert_eq!(target("absolute"), outside.path());
    assert_eq!(target("loop"), Path::new("loop"));
    assert_eq!(world.read("became-link"), "a file");
    assert!(!world.at("new-link").is_symlink());
    assert_eq!(behind, Reverted::Unchanged);
    assert_eq!(
        std::fs::read(outside.path().join("canary")).unwrap(),
        b"alive"
    );
    assert_eq!(names(outside.path()), ["canary"]);
    assert_eq!(
        names(&world.live()),
        ["absolute", "became-link", "broken", "loop"]
    );
}

#[test]
fn a_directory_that_became_a_file_comes_back_and_the_other_way_round() {
    let (world, pool) = saved(|world| {
        world.write("directory/deep/file", "one");
        world.write("file", "two");
        world.write("same/file", "three");
        std::fs::create_dir(world.at("empty")).unwrap();
        std::fs::set_permissions(world.at("directory/deep"), PermissionsExt::from_mode(0o750))
            .unwrap();
    });
    let before = world.manifest();
    std::fs::remove_dir_all(world.at("directory")).unwrap();
    world.write("directory", "a file now");
    std::fs::remove_file(world.at("file")).unwrap();
    world.write("file/with/things", "in it");
    world.write("empty/not", "any more");
    world.write("added/deep/file", "new");

    let in_the_way = back(&world, &pool, b"directory/deep/file").unwrap_err();
    let names_back = ["directory", "file", "empty", "added", "same"];
    let reverted = names_back.map(|name| back(&world, &pool, name.as_bytes()).unwrap());

    let in_the_way = in_the_way.to_string();
    assert!(
        in_the_way.contains("`directory` is in the way"),
        "{in_the_way}"
    );
    assert_eq!(reverted, [Restored, Restored, Restored, Deleted, Unchanged]);
    assert_eq!(before.diff(&world.manifest()), []);
}

#[test]
fn directories_above_are_made_again_as_they_were() {
    let (world, pool) = saved(|world| {
        world.write("a/b/c/file", "one");
        world.write("a/b/other", "two");
        std::fs::set_permissions(world.at("a/b"), PermissionsExt::from_mode(0o711)).unwrap();
    });
    std::fs::remove_dir_all(world.at("a")).unwrap();

    let reverted = back(&world, &pool, b"a/b/c/file").unwrap();

    assert_eq!(reverted, Reverted::Restored);
    assert_eq!(world.read("a/b/c/file"), "one");
    assert_eq!(
        std::fs::metadata(world.at("a/b")).unwrap().mode() & 0o777,
        0o711
    );
    assert_eq!(names(&world.at("a/b")), ["c"]);
}

#[test]
fn odd_names_come_back() {
    let odd = [
        b"new\nline".as_slice(),
        b"\xff\xfe",
        b"-rf",
        b"a b",
        &[b'n'; 255],
        b"\\x41",
    ];
    let (world, pool) = saved(|world| {
        for name in odd {
            std::fs::write(world.live().join(OsStr::from_bytes(name)), "before").unwrap();
        }
    });
    for name in odd {
        std::fs::write(world.live().join(OsStr::from_bytes(name)), "after!").unwrap();
    }

    for name in odd {
        assert_eq!(back(&world, &pool, name).unwrap(), Reverted::Restored);
        let read = std::fs::read(world.live().join(OsStr::from_bytes(name))).unwrap();
        assert_eq!(read, b"before");
    }
    assert_eq!(names(&world.live()).len(), odd.len());
}

/// Gives the next revert something to do, by descriptor too.
fn spoil(root: &RootDir, round: usize) {
    use rustix::fs::{AtFlags, Mode, OFlags};
    let Ok(directory) = root.directory(b"deep") else {
        return;
    };
    let _ = rustix::fs::unlinkat(&directory, "file", AtFlags::empty());
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let _ = rustix::fs::openat(&directory, "made", flags, Mode::RWXU);
    if round % 8 == 2 {
        let _ = crate::fs::remove::tree(&directory, c"gone");
    }
}

#[test]
fn whoever_swaps_directories_for_links_during_a_revert_gets_nothing_outside() {
    let outside = tempfile::tempdir().unwrap();
    for name in ["file", "made", "gone/deep/file"] {
        let at = outside.path().join(name);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, "outside").unwrap();
    }
    let (world, pool) = saved(|world| {
        world.write("deep/file", "inside");
        world.write("deep/gone/deep/file", "inside");
    });
    world.write("deep/made", "later");
    let before = list(
        &RootDir::open(outside.path(), Mounts::Stay).unwrap(),
        &world.at("../s"),
        LATER,
    );
    let (inside, decoy) = (world.at("deep"), world.home.path().join("decoy"));
    symlink(outside.path(), &decoy).unwrap();
    let wanted = std::env::var("STASIS_SWAPS").map_or(3_000, |count| count.parse().unwrap());
    let (is_done, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let (tree, root) = (pool.tree(Slot::new(0)).unwrap(), world.root());
    let (mut done, mut round) = (0_u32, 0_usize);

    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (here, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
            while !is_done.load(Ordering::Relaxed) || swaps.load(Ordering::Relaxed) % 2 == 1 {
                let swapped = rustix::fs::renameat_with(here, &inside, here, &decoy, flags);
                let swaps = swaps.fetch_add(swapped.is_ok().into(), Ordering::Relaxed);
                // The directory stays a little longer than the link, so that some reverts get through.
                let pause = if swaps % 2 == 1 { 40 } else { 4 };
                std::thread::sleep(Duration::from_micros(pause));
            }
        });
        while swaps.load(Ordering::Relaxed) < wanted || (done < 20 && round < 1_000_000) {
            let names = ["deep/file", "deep/made", "deep/gone", "deep/gone/deep/file"];
            // It may fail; it may not reach outside.
            let name = path(names[round % names.len()]);
            let reverted = revert(&world.live(), &tree, &name);
            done += u32::from(reverted.is_ok_and(|what| what != Reverted::Unchanged));
            spoil(&root, round);
            round += 1;
        }
        is_done.store(true, Ordering::Relaxed);
    });

    let after = list(
        &RootDir::open(outside.path(), Mounts::Stay).unwrap(),
        &world.at("../s"),
        LATER,
    );
    assert_eq!(before.diff(&after), []);
    assert!(done >= 20, "{done} of {round}");
    let swaps = swaps.into_inner();
    println!("{done} of {round} reverts did something during {swaps} swaps");
    for found in world.manifest().entries() {
        if found.path.to_string().ends_with("deep/file") {
            let ManifestKind::File { digest, .. } = found.what else {
                continue;
            };
            let inside = stasis_model::digest::FileDigest::of(b"inside");
            assert_eq!(digest, inside, "{}", found.path);
        }
    }
}

/// The same pool for somebody who watches.
fn watched(pool: &Pool) -> Pool {
    let settings = PoolSettings {
        progress: Arc::default(),
        ..pool.settings().clone()
    };
    pool.again(settings).unwrap()
}

/// What was announced was done, and how much that was.
fn counted(pool: &Pool) -> (u64, u64) {
    let reached = pool.settings().progress.reached();
    let done = (reached.files, reached.bytes);
    assert_eq!(
        done,
        (reached.files_expected, reached.bytes_expected),
        "{reached:?}"
    );
    done
}

#[test]
fn what_is_done_with_a_checkpoint_is_announced_and_counted_whatever_its_form() {
    let world = World::new();
    world.write("deep/file", "content");
    world.write("large", &"0123456789".repeat(100_000));
    world.write("same", "same");
    std::fs::hard_link(world.at("same"), world.at("again")).unwrap();
    let in_chunks = PoolSettings::new(Budget::of_bytes(1 << 30));
    let as_list = Pool::open(world.home.path(), in_chunks).unwrap();
    let as_tree = world.pool(1 << 30);
    for (slot, pool) in [(10, as_list), (11, as_tree)] {
        let made = make(&pool, Slot::new(slot), CheckpointOrigin::Manual).unwrap();
        let before = world.manifest();
        world.write("deep/file", "another content");
        world.write("added", "new");
        let live = world.manifest();

        let restoring = watched(&pool);
        let back = Return {
            workspace: &world.live(),
            live: &live,
            only: None,
            beside: &[],
            except: &[],
            at: Timestamp::default(),
            label: "",
        };
        let _ = restoring.restore_in_place(&made.metadata, back).unwrap();
        let forking = watched(&pool);
        let target = world.home.path().join(format!("fork-{slot}"));
        let _ = forking.fork(&made.metadata, &target).unwrap();
        let writing = watched(&pool);
        let target = world.home.path().join(format!("plain-{slot}"));
        let _ = writing.materialize(&made.metadata, &target).unwrap();
        let checking = watched(&pool);
        let mut content = checking.begin_check().unwrap();
        let found = checking.check(&made.metadata, &world.live(), &mut content);
        content.finish();

        assert_eq!(world.manifest(), before, "{slot}");
        assert_eq!(found.unwrap(), CheckedSlot::default());
        for pool in [&restoring, &forking, &writing] {
            let (files, bytes) = counted(pool);
            assert!(files >= 3 && bytes >= 1_000_011, "{slot}: {files}, {bytes}");
        }
        assert!(counted(&checking).0 > 0, "{slot}");
        pool.delete(Slot::new(slot)).unwrap();
    }
}
