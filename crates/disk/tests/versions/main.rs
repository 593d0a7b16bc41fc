//! Checkpoints as lists of file versions, on real filesystems, and killed at every call that changes anything.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

mod held;
mod own_list;
mod references;

use stasis_disk::form::chunked::ChunkError;
use stasis_disk::form::slots::{
    CheckedContent, CheckedSlot, CheckpointSource, Created, Manifest, Pool, PoolSettings, Return,
    SlotError, StatCache, VERSIONS, manifest,
};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::restore::RestoreChanges;
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::digest::FileDigest;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{Budget, CheckpointOrigin, Occupant, Slot, SlotForm, SlotMetadata};
use stasis_testkit::mounted_image::MountedImage;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Later than anything that a test makes: everything is old enough to be cached.
const LATER: u64 = 10_000_000_000_000;

fn pool_of(session: &Path, budget: u64) -> Pool {
    Pool::open(session, PoolSettings::new(Budget::of_bytes(budget))).unwrap()
}

fn pool(session: &Path) -> Pool {
    pool_of(session, 1 << 30)
}

fn auto(pool: &Pool, slot: u32, sequence: u64) -> Result<Created, SlotError> {
    let at = Timestamp::from_millis(LATER + sequence * 1000);
    let metadata = SlotMetadata::new(Slot::new(slot), CheckpointOrigin::Auto, at, sequence);
    let workspace = pool.path().parent().unwrap().join("workspace");
    pool.create(&CheckpointSource::of(&workspace), metadata)
}

fn list(tree: &Path) -> Manifest {
    let root = RootDir::open(tree, Mounts::Stay).unwrap();
    let mut nothing = StatCache::open(Path::new(""), Timestamp::default());
    manifest(&root, &mut nothing, &WalkSettings::default())
        .unwrap()
        .0
}

fn names(directory: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// The names of versions that a session must have: those that its checkpoints name.
fn wanted(pool: &Pool) -> BTreeSet<String> {
    let mut wanted = BTreeSet::new();
    for one in pool.list().unwrap() {
        let slot = pool.path().join(one.slot().index().to_string());
        let Ok(bytes) = fs::read(slot.join(VERSIONS)) else {
            continue;
        };
        let rows = bytes[8..bytes.len() - 32].chunks(40);
        let digests = rows.map(|row| FileDigest::from_document(row[..32].try_into().unwrap()));
        wanted.extend(digests.map(|digest| digest.to_string()));
    }
    wanted
}

/// Looks at every version: all that are needed are there, nothing else is, and each holds what it is called for.
fn check_versions(session: &Path, pool: &Pool, when: &str) {
    let there = names(&session.join("objects"));
    assert_eq!(there, wanted(pool), "{when}");
    for name in there {
        let bytes = fs::read(session.join("objects").join(&name)).unwrap();
        assert_eq!(FileDigest::of(&bytes).to_string(), name, "{when}");
    }
}

fn on_each(filesystems: &[&str], test: impl Fn(&Path)) {
    for filesystem in filesystems {
        let Some(mounted) = MountedImage::new(filesystem, 512 << 20) else {
            continue;
        };
        let session = mounted.root();
        fs::create_dir_all(session.join("workspace/deep")).unwrap();
        test(&session);
    }
}

fn check(pool: &Pool, of: &SlotMetadata) -> CheckedSlot {
    let workspace = pool.path().parent().unwrap().join("workspace");
    let checked = pool.check(of, &workspace, &mut CheckedContent::default());
    checked.unwrap()
}

fn restored(pool: &Pool, of: &SlotMetadata, workspace: &Path) {
    let _ = try_restored(pool, of, workspace).unwrap();
}

fn try_restored(
    pool: &Pool,
    of: &SlotMetadata,
    workspace: &Path,
) -> Result<RestoreChanges, SlotError> {
    let live = list(workspace);
    let back = Return {
        workspace,
        live: &live,
        only: None,
        beside: &[],
        except: &[],
        at: Timestamp::from_millis(LATER),
        label: "a test",
    };
    pool.restore_in_place(of, back)
}

#[test]
fn each_version_of_a_file_is_cloned_once_and_goes_with_the_last_checkpoint_that_has_it() {
    on_each(&["xfs", "btrfs"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("same"), "stays").unwrap();
        fs::write(workspace.join("deep/file"), "one").unwrap();
        fs::write(workspace.join("twin"), "stays").unwrap();
        fs::write(workspace.join("empty"), "").unwrap();
        let pool = pool(session);

        let first = auto(&pool, 0, 1).unwrap();
        fs::write(workspace.join("deep/file"), "two").unwrap();
        fs::rename(workspace.join("same"), workspace.join("renamed")).unwrap();
        let second = auto(&pool, 1, 2).unwrap();
        let both = names(&session.join("objects")).len();
        check_versions(session, &pool, "two checkpoints");
        pool.delete(Slot::new(0)).unwrap();
        check_versions(session, &pool, "one deleted");
        fs::write(workspace.join("deep/file"), "three").unwrap();
        let third = auto(&pool, 1, 3).unwrap();

        assert_eq!(first.metadata.form, SlotForm::Versions);
        assert!(first.metadata.hash.is_some());
        assert_eq!(both, 3, "`stays`, `one` and `two`");
        assert!(second.replaced.is_none() && third.replaced.is_some());
        check_versions(session, &pool, "one replaced");
        assert_eq!(pool.contents(&third.metadata).unwrap(), list(&workspace));
    });
}

#[test]
fn an_unchanged_checkpoint_makes_two_inodes_and_holds_next_to_nothing() {
    on_each(&["xfs", "btrfs", "ext4"], |session| {
        let workspace = session.join("workspace");
        for number in 0..300 {
            let name = format!("deep/{number}");
            fs::write(workspace.join(name), number.to_string().repeat(2000)).unwrap();
        }
        let pool = pool_of(session, 4 << 20);
        let inodes = || -> BTreeSet<u64> {
            let mut find = Command::new("find");
            let found = find.arg(session).args(["-printf", "%i\n"]).output();
            let found = String::from_utf8(found.unwrap().stdout).unwrap();
            found.lines().map(|line| line.parse().unwrap()).collect()
        };
        let first = auto(&pool, 0, 1).unwrap();
        let held = pool.usage().unwrap().held;
        let before = inodes();

        let second = auto(&pool, 1, 2).unwrap();
        let third = auto(&pool, 2, 3).unwrap();

        let new = inodes().difference(&before).count();
        assert_eq!(new, 4, "a directory and a document for each of the two");
        let grown = pool.usage().unwrap().held - held;
        assert!(grown <= 2 * 8192, "{grown}");
        let most = pool.held_at_most().unwrap();
        assert!(most.bytes >= held && most.bytes <= 4 << 20, "{most:?}");
        assert_eq!(first.metadata.hash, third.metadata.hash);
        pool.delete(Slot::new(0)).unwrap();
        assert_eq!(pool.contents(&second.metadata).unwrap(), list(&workspace));
        assert_eq!(second.evicted, []);
    });
}

#[test]
fn a_tree_comes_back_with_its_links_holes_modes_and_times() {
    on_each(&["xfs", "btrfs"], |session| {
        let workspace = session.join("workspace");
        let at = |name: &str| workspace.join(name);
        fs::write(at("first"), "linked").unwrap();
        fs::hard_link(at("first"), at("deep/second")).unwrap();
        symlink("first", at("link")).unwrap();
        fs::write(at("script"), "#!/bin/sh").unwrap();
        fs::set_permissions(at("script"), fs::Permissions::from_mode(0o750)).unwrap();
        let sparse = File::create(at("sparse")).unwrap();
        sparse.set_len(32 << 20).unwrap();
        sparse.write_all_at(b"end", (32 << 20) - 3).unwrap();
        let pool = pool_of(session, 8 << 20);
        let made = auto(&pool, 0, 1).unwrap().metadata;
        let (was, links) = (list(&workspace), at("first").metadata().unwrap().ino());
        let time = at("script").metadata().unwrap().modified().unwrap();

        fs::write(at("script"), "changed").unwrap();
        fs::remove_file(at("sparse")).unwrap();
        fs::write(at("new"), "new").unwrap();
        restored(&pool, &made, &workspace);
        let fork = session.join("fork");
        let forked = pool.fork(&made, &fork).unwrap();

        assert_eq!(list(&workspace), was);
        assert_eq!(list(&fork), was);
        assert_eq!(forked.bytes_copied, 0);
        assert_eq!(at("script").metadata().unwrap().modified().unwrap(), time);
        assert!(at("sparse").metadata().unwrap().blocks() < 1 << 11);
        let inode = |path: PathBuf| path.metadata().unwrap().ino();
        assert_eq!(inode(at("first")), inode(at("deep/second")));
        assert_eq!(inode(at("first")), links, "what was right stays as it is");
        assert_eq!(inode(fork.join("first")), inode(fork.join("deep/second")));
        let path = EntryPath::parse(b"script").unwrap();
        let read = pool.file(&made, &path, 4).unwrap();
        assert_eq!(read.unwrap(), b"#!/b");
    });
}

#[test]
fn what_cannot_be_cloned_is_stored_in_chunks_and_counted() {
    on_each(&["btrfs"], |session| {
        let workspace = session.join("workspace");
        let fixed = workspace.join("deep/fixed");
        File::create(&fixed).unwrap();
        let mut chattr = Command::new("chattr");
        assert!(chattr.arg("+C").arg(&fixed).status().unwrap().success());
        fs::write(&fixed, "is never cloned".repeat(1000)).unwrap();
        fs::write(workspace.join("usual"), "is cloned").unwrap();
        let pool = pool(session);

        let made = auto(&pool, 0, 1).unwrap().metadata;
        let was = list(&workspace);
        fs::write(&fixed, "changed").unwrap();
        restored(&pool, &made, &workspace);

        assert_eq!(names(&session.join("objects")).len(), 1);
        assert_eq!(list(&workspace), was);
    });
}

#[test]
fn a_missing_version_is_no_reason_to_refuse_anything_else() {
    on_each(&["xfs"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("lost"), "lost").unwrap();
        fs::write(workspace.join("kept"), "kept").unwrap();
        let pool = pool_of(session, 1);
        let made = auto(&pool, 0, 1);
        assert!(matches!(made, Err(SlotError::OverBudget(_))), "{made:?}");
        assert_eq!(names(&session.join("objects")).len(), 0);
        let pool = pool_of(session, 1 << 20);
        let made = auto(&pool, 0, 1).unwrap().metadata;
        let lost = FileDigest::of(b"lost").to_string();
        fs::remove_file(session.join("objects").join(lost)).unwrap();

        let usage = pool.usage().unwrap();
        fs::write(workspace.join("lost"), "other").unwrap();
        let damaged = check(&pool, &made);
        let path = EntryPath::parse(b"lost").unwrap();
        let read = pool.file(&made, &path, 10);
        let fork = pool.fork(&made, &session.join("fork"));
        let next = auto(&pool, 1, 2);

        assert!(usage.held > 0);
        assert_eq!(damaged.lost, [EntryPath::parse(b"lost").unwrap()]);
        assert!(read.is_err() && fork.is_err());
        assert!(!session.join("fork").exists());
        assert!(next.is_ok(), "{next:?}");
    });
}

#[test]
fn nothing_is_swept_while_a_checkpoint_cannot_say_what_it_needs() {
    on_each(&["xfs"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("file"), "one").unwrap();
        let pool = pool(session);
        let _ = auto(&pool, 0, 1).unwrap();
        fs::write(workspace.join("file"), "two").unwrap();
        let _ = auto(&pool, 1, 2).unwrap();
        let torn = pool.path().join("0").join(VERSIONS);
        fs::write(&torn, "torn").unwrap();

        pool.delete(Slot::new(1)).unwrap();
        let while_torn = names(&session.join("objects")).len();
        pool.delete(Slot::new(0)).unwrap();

        assert_eq!(while_torn, 2);
        assert_eq!(names(&session.join("objects")).len(), 0);
    });
}

#[test]
fn a_checkpoint_after_one_that_cannot_say_what_it_needs_says_it_itself() {
    for damage in [Some("torn"), None] {
        on_each(&["xfs"], |session| {
            let workspace = session.join("workspace");
            fs::write(workspace.join("file"), "one").unwrap();
            let pool = pool(session);
            let _ = auto(&pool, 0, 1).unwrap();
            let versions = pool.path().join("0").join(VERSIONS);
            match damage {
                Some(bytes) => fs::write(&versions, bytes).unwrap(),
                None => fs::remove_file(&versions).unwrap(),
            }

            let next = auto(&pool, 1, 2).unwrap().metadata;
            pool.delete(Slot::new(0)).unwrap();

            let _ = pool.fork(&next, &session.join("fork")).unwrap();
            let held = fs::read_to_string(session.join("fork/file")).unwrap();
            assert_eq!(held, "one", "{damage:?}");
            check_versions(session, &pool, "after the damaged one is gone");
        });
    }
}

#[test]
fn a_version_that_rotted_is_replaced_when_its_file_is_read_again() {
    on_each(&["xfs"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("file"), "sound").unwrap();
        let pool = pool(session);
        let first = auto(&pool, 0, 1).unwrap().metadata;
        let object = FileDigest::of(b"sound").to_string();
        fs::write(session.join("objects").join(object), "rotten").unwrap();
        let file = File::options()
            .append(true)
            .open(workspace.join("file"))
            .unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();

        let next = auto(&pool, 1, 2).unwrap().metadata;

        let _ = pool.fork(&next, &session.join("fork")).unwrap();
        let held = fs::read_to_string(session.join("fork/file")).unwrap();
        assert_eq!(held, "sound");
        assert_eq!(check(&pool, &first), CheckedSlot::default());
    });
}

/// Where a version of a text lies.
fn object(session: &Path, text: &str) -> PathBuf {
    let name = FileDigest::of(text.as_bytes()).to_string();
    session.join("objects").join(name)
}

/// The path of the file that a checkpoint is said to have lost.
fn lost_file<T: std::fmt::Debug>(refused: Result<T, SlotError>, of: &SlotMetadata) -> String {
    match refused {
        Err(SlotError::Damaged {
            slot,
            source: ChunkError::LostVersion { path, .. },
        }) if slot == of.slot => path.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_check_takes_lost_versions_again_from_the_live_tree() {
    on_each(&["xfs", "btrfs"], |session| {
        let workspace = session.join("workspace");
        for name in ["missing", "rotten", "gone"] {
            fs::write(workspace.join(name), name).unwrap();
        }
        let pool = pool(session);
        let made = auto(&pool, 0, 1).unwrap().metadata;
        fs::write(workspace.join("gone"), "edited").unwrap();
        fs::remove_file(object(session, "missing")).unwrap();
        fs::remove_file(object(session, "gone")).unwrap();
        fs::write(object(session, "rotten"), "ROTTEN").unwrap();

        let first = check(&pool, &made);
        let second = check(&pool, &made);
        fs::write(workspace.join("gone"), "gone").unwrap();
        let third = check(&pool, &made);

        let paths = |all: &[&str]| -> Vec<EntryPath> {
            let all = all.iter().map(|one| EntryPath::parse(one.as_bytes()));
            all.map(Result::unwrap).collect()
        };
        assert_eq!(first.healed, paths(&["missing", "rotten"]));
        assert_eq!(first.lost, paths(&["gone"]));
        assert_eq!((second.healed, second.lost), (paths(&[]), paths(&["gone"])));
        assert_eq!((third.healed, third.lost), (paths(&["gone"]), paths(&[])));
        check_versions(session, &pool, "healed");
    });
}

#[test]
fn nothing_is_made_of_a_version_that_is_not_what_it_was() {
    on_each(&["xfs", "btrfs"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("deep/file"), "sound").unwrap();
        fs::write(workspace.join("other"), "other").unwrap();
        let pool = pool(session);
        let made = auto(&pool, 0, 1).unwrap().metadata;
        fs::write(workspace.join("deep/file"), "edited").unwrap();
        fs::write(workspace.join("other"), "edited").unwrap();
        let before = (list(&workspace), names(&workspace), names(session));
        let back = || try_restored(&pool, &made, &workspace);
        let fork = || pool.fork(&made, &session.join("fork"));

        for rotten in ["longer than it was", "", "SOUND"] {
            fs::write(object(session, "sound"), rotten).unwrap();
            assert_eq!(lost_file(back(), &made), "deep/file", "{rotten}");
            if rotten.len() != 5 {
                assert_eq!(lost_file(fork(), &made), "deep/file", "{rotten}");
            }
            let written = pool.materialize(&made, &session.join("out"));
            assert_eq!(lost_file(written, &made), "deep/file", "{rotten}");
        }
        // Of the same length, it is found by a check, and set aside.
        assert_eq!(check(&pool, &made).lost.len(), 1);
        assert_eq!(lost_file(fork(), &made), "deep/file");
        let after = (list(&workspace), names(&workspace), names(session));
        assert_eq!(after, before);
        fs::write(workspace.join("deep/file"), "sound").unwrap();
        let _ = auto(&pool, 1, 2).unwrap();
        let _ = fork().unwrap();
        let held = fs::read_to_string(session.join("fork/deep/file")).unwrap();
        assert_eq!(held, "sound");
        pool.delete(Slot::new(0)).unwrap();
        pool.delete(Slot::new(1)).unwrap();
        assert_eq!(names(&session.join("objects")).len(), 0);
    });
}

#[test]
fn a_changed_checkpoint_holds_again_what_is_missing() {
    on_each(&["xfs", "btrfs"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("lost"), "lost").unwrap();
        fs::write(workspace.join("edited"), "one").unwrap();
        let pool = pool(session);
        let first = auto(&pool, 0, 1).unwrap().metadata;
        fs::remove_file(object(session, "lost")).unwrap();
        fs::write(workspace.join("edited"), "two").unwrap();

        let next = auto(&pool, 1, 2).unwrap().metadata;

        check_versions(session, &pool, "made again");
        assert_eq!(check(&pool, &first), CheckedSlot::default());
        assert_eq!(check(&pool, &next), CheckedSlot::default());
    });
}

#[test]
fn an_unchanged_checkpoint_holds_again_what_is_missing() {
    on_each(&["xfs", "btrfs"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("lost"), "lost").unwrap();
        fs::write(workspace.join("same"), "same").unwrap();
        let pool = pool(session);
        let first = auto(&pool, 0, 1).unwrap().metadata;
        fs::remove_file(object(session, "lost")).unwrap();
        let had_all = pool.has_all(&first).unwrap();

        let next = auto(&pool, 1, 2).unwrap().metadata;

        check_versions(session, &pool, "made again");
        assert!(!had_all && pool.has_all(&first).unwrap());
        assert_eq!(check(&pool, &next), CheckedSlot::default());
    });
}

#[test]
fn a_checkpoint_that_lacks_something_is_no_reason_to_make_none() {
    on_each(&["xfs", "btrfs", "ext4"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("lost"), "lost").unwrap();
        let pool = pool(session);
        let first = auto(&pool, 0, 1).unwrap().metadata;
        let held = if first.form == SlotForm::Versions {
            object(session, "lost")
        } else {
            let chunks = session.join("chunks");
            let all = names(&chunks).into_iter().map(|name| chunks.join(name));
            all.max_by_key(|path| path.metadata().unwrap().len())
                .unwrap()
        };
        let is_known = |one: &SlotMetadata, sequence: u64| {
            let at = Timestamp::from_millis(LATER + sequence * 1000);
            let slot = Slot::new(u32::try_from(sequence).unwrap());
            let metadata = SlotMetadata::new(slot, CheckpointOrigin::Auto, at, sequence);
            let source = CheckpointSource::of(&workspace);
            let is_known = |hash: &_| one.hash.as_ref() == Some(hash) && pool.has_all(one).unwrap();
            let made = pool.create_if_new(&source, metadata, &is_known);
            made.unwrap().is_none()
        };

        let before = is_known(&first, 2);
        fs::remove_file(held).unwrap();
        let without = is_known(&first, 3);

        let next = pool.metadata(Slot::new(3)).unwrap();
        assert!(before && !without && is_known(&next, 4));
        assert_eq!(check(&pool, &next), CheckedSlot::default());
        let _ = pool.fork(&next, &session.join("fork")).unwrap();
        assert_eq!(list(&session.join("fork")), list(&workspace));
    });
}

#[test]
fn a_check_leaves_what_an_interrupted_checkpoint_wrote() {
    on_each(&["xfs"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("file"), "lost").unwrap();
        let pool = pool(session);
        let made = auto(&pool, 0, 1).unwrap().metadata;
        let left = session.join("chunks/.incoming.stasis-tmp-4194305");
        fs::create_dir(&left).unwrap();
        fs::remove_file(object(session, "lost")).unwrap();

        let checked = check(&pool, &made);

        assert_eq!(checked.healed.len(), 1);
        assert!(left.exists());
        assert!(
            !names(&session.join("chunks"))
                .iter()
                .any(|name| name.contains("healing"))
        );
    });
}

#[test]
fn what_was_set_aside_goes_with_the_last_checkpoint_that_names_it() {
    on_each(&["xfs"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("file"), "sound").unwrap();
        let pool = pool(session);
        let made = auto(&pool, 0, 1).unwrap().metadata;
        fs::write(workspace.join("file"), "edited").unwrap();
        fs::write(object(session, "sound"), "SOUND").unwrap();
        let lost = check(&pool, &made).lost.len();
        let aside = format!("damaged-{}", FileDigest::of(b"sound"));
        let was_aside = names(&session.join("objects")).contains(&aside);

        let _ = auto(&pool, 0, 2).unwrap();

        assert!(lost == 1 && was_aside);
        check_versions(session, &pool, "replaced");
    });
}

#[test]
fn a_list_that_is_torn_before_its_end_is_not_taken_for_another_one() {
    on_each(&["xfs"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("file"), "text").unwrap();
        let pool = pool(session);
        let first = auto(&pool, 0, 1).unwrap().metadata;
        let second = auto(&pool, 1, 2).unwrap().metadata;
        let path = pool.path().join("0").join(VERSIONS);
        let mut torn = fs::read(&path).unwrap();
        torn[20] ^= 1;
        fs::remove_file(&path).unwrap();
        fs::write(&path, torn).unwrap();

        let problems = [&second, &first].map(|one| pool.problem(one));

        assert_eq!(problems[0], None);
        assert!(
            problems[1]
                .as_ref()
                .is_some_and(|why| why.contains(VERSIONS))
        );
    });
}

#[test]
fn the_next_checkpoint_stores_chunks_again_that_are_missing_or_were_found_rotten() {
    on_each(&["ext4"], |session| {
        let workspace = session.join("workspace");
        for number in 0..40_u8 {
            let digests = (0..50).map(|part| FileDigest::of(&[number, part]).to_string());
            let text: String = digests.collect();
            fs::write(workspace.join(number.to_string()), text).unwrap();
        }
        let pool = pool(session);
        let made = auto(&pool, 0, 1).unwrap().metadata;
        // The chunks by their length: that of the list is short, that of the contents is long.
        let chunks = || {
            let all = names(&session.join("chunks")).into_iter();
            let all = all.map(|name| session.join("chunks").join(name));
            let mut all: Vec<PathBuf> = all.collect();
            all.sort_by_key(|path| path.metadata().unwrap().len());
            all
        };
        let rot = |path: &PathBuf| {
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(path, bytes).unwrap();
        };

        fs::remove_file(chunks().last().unwrap()).unwrap();
        let after_loss = auto(&pool, 1, 2).unwrap().metadata;
        let is_whole = check(&pool, &after_loss).lost.is_empty();
        rot(chunks().last().unwrap());
        // Where no live file gives it back.
        let nothing = session.join("nothing");
        fs::create_dir(&nothing).unwrap();
        let found = pool.check(&made, &nothing, &mut CheckedContent::default());
        let found = found.unwrap().lost.len();
        let _ = auto(&pool, 2, 3).unwrap();
        rot(&chunks()[0]);
        let unlisted = pool.check(&made, &workspace, &mut CheckedContent::default());
        let _ = auto(&pool, 3, 4).unwrap();

        assert!(is_whole && unlisted.is_err());
        assert_eq!(found, 40);
        for one in pool.list().unwrap() {
            let one = one.known().unwrap();
            assert_eq!(check(&pool, one), CheckedSlot::default(), "{}", one.slot);
        }
    });
}

#[test]
fn a_torn_or_missing_document_is_not_handed_down() {
    let documents = ["chunks", VERSIONS, "manifest", "workspace.json"];
    for (document, is_torn) in documents.map(|one| [(one, true), (one, false)]).concat() {
        on_each(&["xfs", "ext4"], |session| {
            let when = format!("{document}, torn: {is_torn}");
            let workspace = session.join("workspace");
            for number in 0..40 {
                fs::write(workspace.join(number.to_string()), number.to_string()).unwrap();
            }
            let pool = pool(session);
            let first = auto(&pool, 0, 1).unwrap().metadata;
            let path = pool.path().join("0").join(document);
            if !path.exists() {
                return;
            }
            let mut torn = fs::read(&path).unwrap();
            torn.truncate(torn.len() / 2);
            if is_torn {
                fs::write(&path, torn).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }

            let problem = pool.problem(&first);
            let next = auto(&pool, 1, 2).unwrap().metadata;
            let last = auto(&pool, 2, 3).unwrap().metadata;

            assert!(problem.unwrap().contains(document), "{when}");
            for one in [&next, &last] {
                assert_eq!(pool.problem(one), None, "{when}");
                assert_eq!(check(&pool, one), CheckedSlot::default(), "{when}");
                assert_eq!(pool.contents(one).unwrap(), list(&workspace), "{when}");
            }
            pool.delete(Slot::new(0)).unwrap();
            let _ = pool.fork(&last, &session.join("fork")).unwrap();
            assert_eq!(list(&session.join("fork")), list(&workspace), "{when}");
        });
    }
}

#[test]
fn a_checkpoint_after_one_without_metadata_is_whole() {
    on_each(&["xfs", "ext4"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("file"), "text").unwrap();
        let pool = pool(session);
        let _ = auto(&pool, 0, 1).unwrap();
        fs::write(pool.path().join("0/metadata.json"), "{").unwrap();

        let next = auto(&pool, 1, 2).unwrap().metadata;

        assert!(pool.list().unwrap()[0].known().is_none());
        assert_eq!(check(&pool, &next), CheckedSlot::default());
    });
}

#[test]
fn a_young_file_is_read_again_but_not_cloned_again() {
    on_each(&["xfs", "btrfs"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("young"), "young").unwrap();
        let pool = pool(session);
        // As if every file had been written after the checkpoint was begun.
        let young = |slot: u32, sequence: u64| {
            let at = Timestamp::from_millis(sequence * 1000);
            let origin = CheckpointOrigin::Auto;
            let metadata = SlotMetadata::new(Slot::new(slot), origin, at, sequence);
            let made = pool.create(&CheckpointSource::of(&workspace), metadata);
            made.unwrap().metadata
        };
        young(0, 1);
        let held = object(session, "young").metadata().unwrap().ino();

        let same = young(1, 2);
        let held_then = object(session, "young").metadata().unwrap().ino();
        fs::write(workspace.join("young"), "later").unwrap();
        let edited = young(2, 3);

        assert_eq!(held_then, held);
        assert_eq!(check(&pool, &same), CheckedSlot::default());
        assert_eq!(pool.contents(&edited).unwrap(), list(&workspace));
        check_versions(session, &pool, "edited");
    });
}

#[test]
fn a_checkpoint_that_was_replaced_is_not_called_damaged() {
    on_each(&["xfs", "ext4"], |session| {
        let workspace = session.join("workspace");
        fs::write(workspace.join("file"), "one").unwrap();
        let pool = pool(session);
        let first = auto(&pool, 0, 1).unwrap().metadata;
        fs::write(workspace.join("file"), "two").unwrap();
        let _ = auto(&pool, 0, 2).unwrap();

        let replaced = pool.check(&first, &workspace, &mut CheckedContent::default());
        pool.delete(Slot::new(0)).unwrap();
        let deleted = pool.check(&first, &workspace, &mut CheckedContent::default());

        assert!(
            matches!(replaced, Err(SlotError::Replaced(_))),
            "{replaced:?}"
        );
        assert!(matches!(deleted, Err(SlotError::Empty(_))), "{deleted:?}");
    });
}

const SESSION: &str = "STASIS_TEST_VERSIONS_SESSION";
const VERB: &str = "STASIS_TEST_VERSIONS_VERB";
/// Calls that change something.
const CALLS: [&str; 13] = [
    "write",
    "ioctl",
    "copy_file_range",
    "fsync",
    "syncfs",
    "linkat",
    "rename",
    "renameat",
    "renameat2",
    "unlinkat",
    "mkdirat",
    "ftruncate",
    "utimensat",
];

/// What a process does that is going to be killed.
#[test]
fn child() {
    let (Some(session), Ok(verb)) = (std::env::var_os(SESSION), std::env::var(VERB)) else {
        return;
    };
    let pool = pool(Path::new(&session));
    let done = match verb.as_str() {
        "create" => auto(&pool, 0, 3).is_ok(),
        "same" => auto(&pool, 1, 3).is_ok(),
        "check" => are_healed(&pool),
        "lossy" => has_lost_one(&pool),
        "fork" => fork_is_refused(&pool),
        "young" => is_made_young(&pool),
        _ => pool.delete(Slot::new(0)).is_ok(),
    };
    std::process::exit(i32::from(!done));
}

/// Makes a checkpoint as if every file had been written after it was begun; says whether it was made.
fn is_made_young(pool: &Pool) -> bool {
    let count = pool.list().unwrap().len() as u64;
    let (slot, at) = (
        Slot::new(count.try_into().unwrap()),
        Timestamp::from_millis((count + 1) * 1000),
    );
    let metadata = SlotMetadata::new(slot, CheckpointOrigin::Auto, at, count + 1);
    let workspace = pool.path().parent().unwrap().join("workspace");
    pool.create(&CheckpointSource::of(&workspace), metadata)
        .is_ok()
}

/// Checks all checkpoints; says whether nothing is lost any more.
fn are_healed(pool: &Pool) -> bool {
    let workspace = pool.path().parent().unwrap().join("workspace");
    let all = pool.list().unwrap();
    let mut checked = CheckedContent::default();
    // One that nobody can read is not known to be whole.
    all.iter().all(|one| {
        let found = one.known();
        let found = found.map(|one| pool.check(one, &workspace, &mut checked));
        found.is_some_and(|found| found.is_ok_and(|found| found.lost.is_empty()))
    })
}

/// Checks the first checkpoint; says whether one file of it was found lost, and why it could not be taken again.
fn has_lost_one(pool: &Pool) -> bool {
    let workspace = pool.path().parent().unwrap().join("workspace");
    let first = pool.metadata(Slot::new(0)).unwrap();
    let found = pool.check(&first, &workspace, &mut CheckedContent::default());
    found.is_ok_and(|found| found.lost.len() == 1 && found.problem.is_some())
}

/// Forks the first checkpoint; says whether that was refused because it is gone.
fn fork_is_refused(pool: &Pool) -> bool {
    let home = pool.path().parent().unwrap();
    let first = pool.metadata(Slot::new(0)).unwrap();
    fs::write(home.join("begun"), "").unwrap();
    let forked = pool.fork(&first, &home.join("fork"));
    matches!(forked, Err(SlotError::Replaced(_) | SlotError::Empty(_)))
}

/// Does something while another process forks the first checkpoint, and waits when it opens what is named.
fn while_forking(home: &Path, waits_at: &Path, meanwhile: impl FnOnce() + Send) -> Option<bool> {
    let at = waits_at.to_str().unwrap();
    let arguments = ["-P", at, "-e", "inject=openat:delay_enter=3s"];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun_at = std::time::Instant::now();
            while !home.join("begun").exists() && begun_at.elapsed().as_secs() < 60 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            std::thread::sleep(std::time::Duration::from_millis(500));
            meanwhile();
        });
        run(home, "fork", &arguments).map(|status| status.success())
    })
}

#[test]
fn a_fork_is_never_of_the_checkpoint_that_took_the_slot_meanwhile() {
    on_each(&["xfs", "ext4"], |session| {
        furnish(session);
        let document = session.join("auto_snapshots/0/workspace.json");

        let is_refused = while_forking(session, &document, || {
            let _ = auto(&pool(session), 0, 3).unwrap();
        });

        assert!(is_refused.is_none_or(|is_refused| is_refused));
        assert!(!session.join("fork").exists());
    });
}

#[test]
fn a_checkpoint_that_went_while_it_was_forked_is_not_called_damaged() {
    on_each(&["xfs"], |session| {
        furnish(session);

        let is_refused = while_forking(session, &session.join("objects"), || {
            pool(session).delete(Slot::new(0)).unwrap();
        });

        assert!(is_refused.is_none_or(|is_refused| is_refused));
    });
}

#[test]
fn what_cannot_be_read_is_set_aside_and_what_cannot_be_healed_is_said() {
    on_each(&["xfs"], |session| {
        furnish(session);
        let (same, first) = (object(session, "same"), object(session, "first"));
        let at = first.to_str().unwrap();
        let unreadable = run(
            session,
            "check",
            &["-P", at, "-e", "inject=pread64:error=EIO"],
        );
        let aside = format!("damaged-{}", FileDigest::of(b"first"));
        let is_aside = names(&session.join("objects")).contains(&aside);
        let Some(unreadable) = unreadable else {
            return;
        };
        fs::rename(session.join("objects").join(aside), &first).unwrap();
        fs::remove_file(&same).unwrap();

        let inject = "inject=ioctl:error=ENOSPC";
        let lossy = run(session, "lossy", &["-e", "trace=ioctl", "-e", inject]);

        assert!(!unreadable.success() && is_aside);
        assert!(lossy.unwrap().success());
        let log = fs::read_to_string(session.join("log")).unwrap();
        assert!(log.contains("FICLONE"), "{log}");
    });
}

#[test]
fn a_check_heals_before_it_takes_the_lock_and_sets_aside_durably() {
    on_each(&["xfs"], |session| {
        furnish(session);
        fs::remove_file(object(session, "same")).unwrap();
        fs::write(object(session, "first"), "FIRST").unwrap();
        let trace = "trace=ioctl,flock,syncfs,fsync,renameat";
        let status = run(session, "check", &["-y", "-e", trace]);
        let Some(status) = status else {
            return;
        };
        let log = fs::read_to_string(session.join("log")).unwrap();
        let cloned = log.lines().position(|line| line.contains("FICLONE"));
        let synced = log.lines().position(|line| line.contains("syncfs("));
        let last = |text: &str| {
            let mut lines = log.lines().collect::<Vec<_>>().into_iter();
            lines.rposition(|line| line.contains(text))
        };
        let (locked, aside) = (last("auto_snapshots/.lock"), last("damaged-"));
        let is_held = |line: &&str| line.contains(" fsync(") && line.contains("/objects>");
        let mut after = log.lines().skip(aside.unwrap());

        assert_eq!(status.code(), Some(1), "one is lost");
        assert!(cloned.unwrap() < synced.unwrap(), "{log}");
        assert!(synced.unwrap() < locked.unwrap(), "{log}");
        assert!(locked.unwrap() < aside.unwrap(), "{log}");
        assert!(after.any(|line| is_held(&line)), "{log}");
    });
}

#[test]
fn no_checkpoint_is_made_while_nobody_can_say_which_versions_are_there() {
    on_each(&["xfs"], |session| {
        furnish(session);
        let objects = session.join("objects");
        let at = objects.to_str().unwrap();
        let inject = "inject=getdents64:error=EIO";

        let made = run(session, "same", &["-P", at, "-e", inject]);

        assert!(made.is_none_or(|made| !made.success()));
        assert_eq!(pool(session).metadata(Slot::new(1)).unwrap().sequence, 2);
    });
}

/// A session with two checkpoints, and a workspace that is not what the first holds.
fn furnish(home: &Path) {
    let at = |name: &str| home.join("workspace").join(name);
    fs::create_dir_all(at("deep")).unwrap();
    fs::write(at("same"), "same").unwrap();
    fs::write(at("deep/file"), "first").unwrap();
    let pool = pool(home);
    let _ = auto(&pool, 0, 1).unwrap();
    fs::write(at("deep/file"), "second").unwrap();
    fs::write(at("more"), "more").unwrap();
    let _ = auto(&pool, 1, 2).unwrap();
}

fn run(home: &Path, verb: &str, arguments: &[&str]) -> Option<ExitStatus> {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(home.join("log"));
    command
        .args(arguments)
        .arg(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--test-threads=1", "-q"]);
    command.env(SESSION, home).env(VERB, verb);
    match command.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) => Some(status),
        Err(error) => {
            let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
            assert!(!needed, "strace is not there ({error}): run scripts/test");
            println!("skipped: strace is not there");
            None
        }
    }
}

/// Lets a fault happen at the first call of each kind, at the second, and so on, and looks at what is left.
fn at_every_call(filesystem: &str, verb: &str, faults: &[&str]) {
    at_each_of(&CALLS, filesystem, verb, faults);
}

fn at_each_of(calls: &[&str], filesystem: &str, verb: &str, faults: &[&str]) {
    let Some(mounted) = MountedImage::new(filesystem, 512 << 20) else {
        return;
    };
    let home = |number: usize| {
        let home = mounted.root().join(number.to_string());
        fs::create_dir(&home).unwrap();
        furnish(&home);
        if verb == "create" {
            fs::write(home.join("workspace/deep/file"), "third").unwrap();
        }
        if verb == "check" {
            fs::remove_file(object(&home, "same")).unwrap();
            fs::write(object(&home, "more"), "MORE").unwrap();
        }
        home
    };
    let trace = format!("trace={}", calls.join(","));
    let first = home(0);
    let Some(status) = run(&first, verb, &["-e", &trace]) else {
        return;
    };
    assert!(status.success());
    let log = fs::read_to_string(first.join("log")).unwrap();
    let mut runs = 0;
    for call in calls {
        let is_it = |line: &&str| line.contains(&format!(" {call}("));
        for when in 1..=log.lines().filter(is_it).count() {
            for fault in faults {
                runs += 1;
                let home = home(runs);
                let inject = format!("inject={call}:{fault}:when={when}");
                let trace = format!("trace={call}");
                let status = run(&home, verb, &["-e", &trace, "-e", &inject]).unwrap();
                look_at(
                    &home,
                    verb,
                    &format!("{filesystem} {inject}"),
                    status.code(),
                );
                fs::remove_dir_all(&home).unwrap();
            }
        }
    }
    println!("{filesystem}: `{verb}` survived {runs} faults");
    assert!(runs >= 10);
}

fn look_at(home: &Path, verb: &str, when: &str, code: Option<i32>) {
    let pool = pool(home);
    let found = pool.list().unwrap();
    let known: Vec<&SlotMetadata> = found.iter().filter_map(Occupant::known).collect();
    assert_eq!(known.len(), found.len(), "{when}: {found:?}");
    let left = names(pool.path());
    let is_own = |name: &String| [".lock", "0", "1"].contains(&name.as_str());
    assert!(left.iter().all(is_own), "{when}: {left:?}");
    if verb == "check" {
        // What it says it did, it did.
        if code == Some(0) {
            check_versions(home, &pool, when);
        }
        assert!(are_healed(&pool), "{when}");
    }
    for one in &known {
        // Every one of them is whole, to the last byte.
        let out = home.join("out");
        let _ = pool
            .fork(one, &out)
            .unwrap_or_else(|error| panic!("{when}: {error:?}"));
        let contents = pool.contents(one).unwrap();
        assert_eq!(list(&out), contents, "{when}");
        assert_eq!(Some(contents.hash()), one.hash, "{when}");
        fs::remove_dir_all(&out).unwrap();
    }
    check_versions(home, &pool, when);
    let slots: Vec<(u32, u64)> = known
        .iter()
        .map(|one| (one.slot.index(), one.sequence))
        .collect();
    let allowed: [&[(u32, u64)]; 2] = match verb {
        "create" => [&[(0, 1), (1, 2)], &[(0, 3), (1, 2)]],
        "same" => [&[(0, 1), (1, 2)], &[(0, 1), (1, 3)]],
        "check" => [&[(0, 1), (1, 2)], &[(0, 1), (1, 2)]],
        _ => [&[(0, 1), (1, 2)], &[(1, 2)]],
    };
    assert!(allowed.contains(&&*slots), "{when}: {slots:?}");
    match code {
        Some(0) => assert_eq!(slots, allowed[1], "{when}"),
        Some(1) if verb != "delete" => assert_eq!(slots, allowed[0], "{when}"),
        _ => {}
    }
    let again = match verb {
        "create" => auto(&pool, 0, 4).map(drop),
        "same" => auto(&pool, 1, 4).map(drop),
        _ => pool.delete(Slot::new(1)),
    };
    again.unwrap_or_else(|error| panic!("{when}: {error:?}"));
    check_versions(home, &pool, when);
}

#[test]
fn a_subvolume_that_cannot_be_snapshotted_is_held_in_versions() {
    let Some(mounted) = MountedImage::new("btrfs", 512 << 20) else {
        return;
    };
    let home = |name: &str| {
        let home = mounted.root().join(name);
        fs::create_dir(&home).unwrap();
        let mut btrfs = Command::new("btrfs");
        btrfs.args(["-q", "subvolume", "create"]);
        let made = btrfs.arg(home.join("workspace")).status();
        assert!(made.unwrap().success());
        fs::write(home.join("workspace/file"), "text").unwrap();
        home
    };
    let first = home("first");
    let Some(status) = run(&first, "create", &["-e", "trace=ioctl"]) else {
        return;
    };
    assert!(status.success());
    let log = fs::read_to_string(first.join("log")).unwrap();
    let calls: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(" ioctl("))
        .collect();
    let taken = calls.iter().position(|line| line.contains("SNAP_CREATE"));
    let inject = format!("inject=ioctl:error=EPERM:when={}", taken.unwrap() + 1);
    let second = home("second");

    let status = run(&second, "create", &["-e", "trace=ioctl", "-e", &inject]);

    assert!(status.unwrap().success());
    let form = |home: &Path| pool(home).metadata(Slot::new(0)).unwrap().form;
    assert_eq!(form(&first), SlotForm::Clone);
    assert_eq!(form(&second), SlotForm::Versions);
    check_versions(&second, &pool(&second), "not snapshotted");
}

const FAULTS: [&str; 3] = ["signal=KILL", "error=ENOSPC", "error=EIO"];

#[test]
fn a_checkpoint_on_xfs_survives_every_fault() {
    at_every_call("xfs", "create", &FAULTS);
}

#[test]
fn a_checkpoint_on_btrfs_survives_every_fault() {
    at_every_call("btrfs", "create", &FAULTS);
}

#[test]
fn a_checkpoint_on_ext4_survives_every_fault() {
    at_every_call("ext4", "create", &FAULTS);
}

#[test]
fn an_unchanged_checkpoint_survives_every_fault() {
    at_every_call("xfs", "same", &FAULTS);
}

#[test]
fn a_check_that_heals_survives_every_fault() {
    at_every_call("xfs", "check", &FAULTS);
}

#[test]
fn a_check_survives_what_it_cannot_read() {
    at_each_of(&["pread64", "openat"], "xfs", "check", &["error=EIO"]);
}

#[test]
fn a_deletion_survives_every_fault() {
    at_every_call("xfs", "delete", &FAULTS);
}

#[test]
fn a_young_file_that_was_written_since_is_read_only_where_it_is_cloned() {
    on_each(&["xfs"], |session| {
        let file = session.join("workspace/young");
        fs::write(&file, "young").unwrap();
        let Some(first) = run(session, "young", &["-e", "trace=none"]) else {
            return;
        };
        let reads = |when: &str| {
            let at = file.to_str().unwrap();
            let status = run(session, "young", &["-P", at, "-e", "trace=pread64"]);
            assert!(status.unwrap().success(), "{when}");
            let log = fs::read_to_string(session.join("log")).unwrap();
            log.lines().filter(|line| line.contains("pread64(")).count()
        };

        let same = reads("nothing written");
        fs::write(&file, "later").unwrap();
        let written = reads("written");
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        fs::write(&file, "other").unwrap();
        let times = fs::FileTimes::new().set_modified(modified);
        let opened = File::options().write(true).open(&file).unwrap();
        opened.set_times(times).unwrap();
        let disguised = reads("written, and the time set back");

        assert!(first.success());
        // What it begins with, and all of it up to its end; once, and then what it begins with when it is cloned.
        assert_eq!((same, written, disguised), (3, 1, 4));
        for text in ["later", "other"] {
            let held = fs::read(object(session, text)).unwrap();
            assert_eq!(held, text.as_bytes());
        }
    });
}

#[test]
fn what_was_set_aside_is_named_and_counted() {
    on_each(&["xfs", "ext4"], |session| {
        furnish(session);
        let pool = pool(session);
        fs::write(session.join("workspace/deep/file"), "edited").unwrap();
        let first = pool.metadata(Slot::new(0)).unwrap();
        let (held, aside) = (
            pool.held_at_most().unwrap().bytes,
            pool.damaged_aside().unwrap(),
        );
        let rotten = if first.form == SlotForm::Versions {
            fs::write(object(session, "first"), "FIRST").unwrap();
            format!("objects/damaged-{}", FileDigest::of(b"first"))
        } else {
            let chunks = session.join("chunks");
            let all = names(&chunks).into_iter();
            let name = all.max_by_key(|name| chunks.join(name).metadata().unwrap().len());
            let name = name.unwrap();
            fs::write(chunks.join(&name), "rotten").unwrap();
            format!("chunks/damaged-{name}")
        };

        for one in pool.list().unwrap() {
            let _ = check(&pool, one.known().unwrap());
        }
        let found = pool.damaged_aside().unwrap();
        let now = pool.held_at_most().unwrap().bytes;

        assert_eq!(aside, []);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, session.join(rotten));
        assert!(found[0].bytes >= 4096);
        // Of a chunk that is not there any more nothing else counts.
        let expected = if first.form == SlotForm::Versions {
            held + found[0].bytes
        } else {
            now
        };
        assert_eq!(now, expected);
    });
}
