#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use super::*;
use crate::fs::facilities::{self, Support};
use rustix::fs::{CWD, Mode, RenameFlags, XattrFlags};
use stasis_model::failure::ErrorKind;
use stasis_model::tree::{Entry, FileTime};
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

/// A directory of its own, removed even where its directories may not be written in.
struct Home(TempDir);

impl Home {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let path = CString::new(self.path().as_os_str().as_bytes()).unwrap();
        let _ = crate::fs::remove::tree(CWD, &path);
    }
}

/// A place with a `source` that has nothing in it yet.
fn place() -> (Home, PathBuf, PathBuf) {
    let home = Home(tempfile::tempdir().unwrap());
    let (source, target) = (home.path().join("source"), home.path().join("target"));
    std::fs::create_dir(&source).unwrap();
    (home, source, target)
}

fn entries(root: &Path) -> Vec<Entry> {
    let root = RootDir::open(root, Mounts::Stay).unwrap();
    walk::list(&root, &WalkSettings::default()).unwrap().0
}

fn names(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// One of everything that a clone keeps.
fn init_source(source: &Path) {
    let at = |name: &str| source.join(name);
    std::fs::create_dir_all(at("deep/er")).unwrap();
    std::fs::create_dir(at("empty")).unwrap();
    std::fs::write(at("deep/er/file"), "some bytes").unwrap();
    std::fs::write(at("deep/nothing"), "").unwrap();
    std::fs::write(at("script"), "#!/bin/sh\n").unwrap();
    std::fs::hard_link(at("script"), at("deep/er/again")).unwrap();
    std::fs::hard_link(at("script"), at("zzz")).unwrap();
    symlink("nowhere/at all", at("dangling")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("/etc", at("deep/absolute")).unwrap();
    let odd = [b"new\nline".as_slice(), b"\xff\xfe", b"-rf", &[b'n'; 255]];
    for name in odd {
        std::fs::write(source.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let attribute = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
    };
    attribute(&at("script"), "user.note", b"kept \0 whole");
    attribute(&at("script"), "user.big", &[7; 1000]);
    attribute(&at("empty"), "user.dir", b"too");
    for (name, mode) in [
        ("script", 0o755),
        ("deep/nothing", 0o400),
        ("deep/er", 0o555),
        ("empty", 0o1777),
    ] {
        std::fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(at("deep/er/file"), Some(12_345), Some(54_321)).unwrap();
        std::os::unix::fs::lchown(at("loop"), Some(3_000_000_000), Some(7)).unwrap();
        std::fs::set_permissions(at("zzz"), Permissions::from_mode(0o4755)).unwrap();
    }
    let old = UNIX_EPOCH - Duration::new(86_400 * 365, 123_456_789);
    let new = UNIX_EPOCH + Duration::new(1_700_000_000, 987_654_321);
    for (name, time) in [
        ("deep/nothing", old),
        ("deep/er", old),
        ("deep", new),
        ("empty", old),
    ] {
        File::open(at(name)).unwrap().set_modified(time).unwrap();
    }
    let seconds = FileTime::default();
    let wanted = stasis_model::tree::Metadata {
        modified: FileTime {
            nanos: 5,
            ..seconds
        },
        ..metadata::Seen::from(&rustix::fs::lstat(at("dangling")).unwrap()).metadata()
    };
    metadata::give_link(
        CWD,
        &CString::new(at("dangling").as_os_str().as_bytes()).unwrap(),
        &wanted,
        metadata::Rights::Own,
    )
    .unwrap();
}

#[test]
fn a_clone_is_the_same_tree_to_the_last_nanosecond() {
    let (home, source, target) = place();
    init_source(&source);

    let report = clone(&source, &target, &CloneSettings::default()).unwrap();

    let (before, after) = (entries(&source), entries(&target));
    assert_eq!(after, before);
    let root = |path: &Path| metadata::Seen::from(&rustix::fs::lstat(path).unwrap()).metadata();
    assert_eq!(root(&target), root(&source));
    let inode = |name: &str| std::fs::metadata(target.join(name)).unwrap().ino();
    assert_eq!(
        (inode("zzz"), inode("script")),
        (inode("deep/er/again"), inode("zzz"))
    );
    assert_eq!(
        std::fs::read(target.join("deep/er/file")).unwrap(),
        b"some bytes"
    );
    assert_eq!(
        (
            report.files,
            report.hard_links,
            report.symlinks,
            report.directories
        ),
        (7, 2, 3, 3)
    );
    assert_eq!(report.bytes, report.bytes_shared + report.bytes_copied);
    assert_eq!(report.walk.skipped_count + report.walk.vanished_count, 0);
    assert_eq!(names(home.path()), ["source", "target"]);
}

#[test]
fn a_hole_of_a_gibibyte_stays_one() {
    let (_home, source, target) = place();
    let file = File::create(source.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"middle", 500 << 20).unwrap();
    file.set_len(1 << 30).unwrap();

    let report = clone(&source, &target, &CloneSettings::default()).unwrap();

    let (before, after) = (
        file.metadata().unwrap(),
        std::fs::metadata(target.join("sparse")).unwrap(),
    );
    assert_eq!(after.len(), 1 << 30);
    assert!(
        after.blocks() <= before.blocks() + 16,
        "{} blocks",
        after.blocks()
    );
    assert!(report.bytes_copied < 1 << 20);
    let mut middle = [0; 6];
    let copy = File::open(target.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&copy, &mut middle, 500 << 20).unwrap();
    assert_eq!(&middle, b"middle");
}

#[test]
fn what_cannot_be_cloned_is_refused_by_name() {
    let (home, source, target) = place();
    let link = home.path().join("link");
    symlink(&source, &link).unwrap();
    std::fs::create_dir(source.join("inner")).unwrap();
    let settings = CloneSettings::default();
    let refused = |from: &Path, to: &Path| clone(from, to, &settings).unwrap_err();

    let with_slash = home.path().join("link/");
    assert!(matches!(
        refused(&link, &target),
        CloneError::SourceIsSymlink(_)
    ));
    assert!(matches!(
        refused(&with_slash, &target),
        CloneError::SourceIsSymlink(_)
    ));
    assert!(matches!(
        refused(Path::new("/"), &target),
        CloneError::SourceIsEverything
    ));
    assert!(matches!(
        refused(&source, &source),
        CloneError::Overlap { .. }
    ));
    assert!(matches!(
        refused(&source, &source.join("inner/new")),
        CloneError::Overlap { .. }
    ));
    assert!(matches!(
        refused(&source.join("inner"), &source),
        CloneError::Overlap { .. }
    ));
    assert!(matches!(refused(&source, &link), CloneError::Exists(_)));
    assert!(matches!(
        refused(&source, &home.path().join("..")),
        CloneError::Nameless(_)
    ));
    assert!(matches!(
        refused(&home.path().join("no"), &target),
        CloneError::Failed(failure) if failure.op() == OPEN_DIRECTORY && failure.kind() == ErrorKind::NotFound
    ));
    assert!(matches!(
        refused(&source, &home.path().join("no/where")),
        CloneError::Failed(_)
    ));

    std::fs::create_dir(&target).unwrap();
    assert!(matches!(refused(&source, &target), CloneError::Exists(_)));
    assert_eq!(names(home.path()), ["link", "source", "target"]);
}

#[test]
fn a_clone_that_fails_or_is_stopped_leaves_nothing() {
    let (home, source, target) = place();
    init_source(&source);
    let mut deep = source.clone();
    for _ in 0..30 {
        deep.push("deeper");
        std::fs::create_dir(&deep).unwrap();
    }
    let mut shallow = CloneSettings::default();
    shallow.walk.deepest = 20;
    let stopped = CloneSettings::default();
    stopped.walk.cancel.store(true, Ordering::Relaxed);

    let too_deep = clone(&source, &target, &shallow).unwrap_err();
    let cancelled = clone(&source, &target, &stopped).unwrap_err();

    assert!(matches!(
        too_deep,
        CloneError::Walk(WalkError::TooDeep { .. })
    ));
    assert!(matches!(cancelled, CloneError::Walk(WalkError::Cancelled)));
    assert_eq!(names(home.path()), ["source"]);
}

#[test]
fn what_a_dead_clone_left_is_removed_and_what_a_live_one_holds_is_not() {
    let (home, source, target) = place();
    init_source(&source);
    let left = |suffix: &str| {
        let left = home.path().join(format!(".target.stasis-tmp-{suffix}"));
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("half"), "a fil").unwrap();
        left
    };
    let own = std::process::id().to_string();
    let (dead, live, journalled) = (left(&own), left("7-1"), left("in-8"));
    let tree_with_a_journal = left("9");
    std::fs::write(tree_with_a_journal.join("journal"), "dear diary").unwrap();
    let not_ours = left("8-notes");
    std::fs::write(journalled.join("journal"), "").unwrap();
    let lock = File::open(&live).unwrap();
    lock.try_lock().unwrap();

    let _ = clone(&source, &target, &CloneSettings::default()).unwrap();

    assert_eq!(entries(&target), entries(&source));
    assert!(!dead.exists() && !tree_with_a_journal.exists());
    assert_eq!(names(&live), ["half"]);
    assert_eq!(names(&journalled), ["half", "journal"]);
    assert_eq!(names(&not_ours), ["half"]);
}

#[test]
fn without_reflinks_a_clone_that_may_not_copy_is_refused() {
    let (home, source, target) = place();
    std::fs::write(source.join("file"), "bytes").unwrap();
    let settings = CloneSettings {
        fallback: Fallback::Refuse,
        ..CloneSettings::default()
    };

    let cloned = clone(&source, &target, &settings);

    if facilities::examine(home.path()).unwrap().reflinks == Support::Yes {
        assert_eq!(cloned.unwrap().bytes_shared, 5);
        return;
    }
    let refused = cloned.unwrap_err();
    assert!(
        matches!(refused, CloneError::CannotShare { .. }),
        "{refused}"
    );
    assert_eq!(names(home.path()), ["source"]);
}

#[test]
fn pipes_are_reported_and_left_out() {
    let (_home, source, target) = place();
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(CWD, source.join("pipe"), kind, Mode::RWXU, 0).unwrap();

    let report = clone(&source, &target, &CloneSettings::default()).unwrap();

    assert_eq!(report.walk.skipped[0].reason, walk::WalkSkip::Fifo);
    assert!(names(&target).is_empty());
}

#[test]
fn a_directory_swapped_for_a_link_during_a_clone_brings_nothing_from_outside() {
    let (home, source, _) = place();
    let outside = home.path().join("outside");
    std::fs::create_dir_all(outside.join("inner")).unwrap();
    std::fs::write(outside.join("inner/canary"), "secret").unwrap();
    let (inside, decoy) = (source.join("dir"), source.join("link"));
    std::fs::create_dir_all(inside.join("inner")).unwrap();
    std::fs::write(inside.join("inner/honest"), "honest").unwrap();
    symlink(&outside, &decoy).unwrap();
    let is_done = AtomicBool::new(false);
    let mut clones = 0;

    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10_000 {
                rustix::fs::renameat_with(CWD, &inside, CWD, &decoy, RenameFlags::EXCHANGE)
                    .unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        while !is_done.load(Ordering::Relaxed) {
            clones += 1;
            let target = home.path().join(format!("clone-{clones}"));
            let _ = clone(&source, &target, &CloneSettings::default()).unwrap();
            let copied = entries(&target);
            assert!(
                !copied
                    .iter()
                    .any(|entry| entry.path.to_string().contains("canary"))
            );
        }
    });

    assert!(clones > 0);
}

#[test]
fn a_file_that_becomes_a_pipe_or_another_file_meanwhile_is_that_file_or_left_out() {
    let (home, source, target) = place();
    let at = |name: &str| source.join(name);
    let made = std::process::Command::new("mkfifo")
        .arg(at("pipe"))
        .status();
    assert!(made.unwrap().success());
    std::fs::write(at("one"), "one").unwrap();
    std::fs::write(at("other"), "another").unwrap();

    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for name in ["one", "pipe", "other"].iter().cycle().take(3000) {
                let temp = home.path().join("temp");
                std::fs::hard_link(at(name), &temp).unwrap();
                std::fs::rename(&temp, at("moving")).unwrap();
                std::fs::remove_file(at("moving")).unwrap();
                if *name != "pipe" {
                    std::fs::copy(at(name), &temp).unwrap();
                    std::fs::rename(&temp, at("moving")).unwrap();
                }
            }
        });
        while !mover.is_finished() {
            let report = clone(&source, &target, &CloneSettings::default()).unwrap();
            let found = std::fs::symlink_metadata(target.join("moving"));
            if found.is_ok_and(|found| found.is_file()) {
                let content = std::fs::read(target.join("moving")).unwrap();
                assert!([&b"one"[..], b"another"].contains(&&*content), "{report:?}");
            } else {
                assert!(!target.join("moving").exists(), "{report:?}");
            }
            std::fs::remove_dir_all(&target).unwrap();
        }
    });
}

#[test]
fn a_clone_counts_what_a_survey_of_its_source_announced() {
    let (_home, source, target) = place();
    init_source(&source);
    // Longer than one stretch of a copy, with a hole.
    let large = File::create(source.join("large")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&large, &vec![7; 20 << 20], 4 << 20).unwrap();
    let settings = CloneSettings::default();
    let root = RootDir::open(&source, Mounts::Stay).unwrap();
    let survey = crate::tree::survey::survey(&root, &settings.walk, &settings.progress).unwrap();

    let report = clone(&source, &target, &settings).unwrap();

    let reached = settings.progress.reached();
    assert_eq!((report.files, report.bytes), (survey.files, survey.bytes));
    assert_eq!(
        (reached.files, reached.bytes),
        (reached.files_expected, reached.bytes_expected)
    );
    assert_eq!(reached.bytes, report.bytes);
}
