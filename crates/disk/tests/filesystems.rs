//! Clones on real filesystems: xfs and btrfs on loop devices, and what is mounted inside a tree.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use stasis_disk::form::slots::{Manifest, StatCache, manifest, manifest_of_clone};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::clone::{CloneError, CloneSettings, Fallback, Method, SourceSurvey, clone};
use stasis_disk::tree::walk::{self, WalkError, WalkSettings, WalkSkip};
use stasis_model::time::Timestamp;
use stasis_model::tree::Entry;
use stasis_testkit::mounted_image::MountedImage;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An image of half a gigabyte, or a tmpfs.
fn mounted(filesystem: &str) -> Option<MountedImage> {
    MountedImage::new(filesystem, 512 << 20)
}

fn refusing() -> CloneSettings {
    CloneSettings {
        fallback: Fallback::Refuse,
        ..CloneSettings::default()
    }
}

/// Several files, one of them large and one sparse; returns how long they are together.
fn furnish(source: &Path) -> u64 {
    fs::create_dir_all(source.join("deep/er")).unwrap();
    fs::write(source.join("small"), "a few bytes").unwrap();
    fs::write(source.join("deep/empty"), "").unwrap();
    fs::write(source.join("deep/er/large"), vec![7; 20 << 20]).unwrap();
    fs::hard_link(source.join("small"), source.join("deep/again")).unwrap();
    let sparse = File::create(source.join("sparse")).unwrap();
    sparse.write_all_at(b"end", (1 << 30) - 3).unwrap();
    11 + (20 << 20) + (1 << 30)
}

fn list(root: &Path) -> Vec<Entry> {
    let root = RootDir::open(root, Mounts::Stay).unwrap();
    walk::list(&root, &WalkSettings::default()).unwrap().0
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn every_byte_is_shared(filesystem: &str) {
    let Some(mounted) = mounted(filesystem) else {
        return;
    };
    let (source, target) = (mounted.root().join("source"), mounted.root().join("target"));
    let bytes = furnish(&source);
    let used = |path: &Path| rustix::fs::statvfs(path).unwrap().f_bfree;
    rustix::fs::syncfs(File::open(&source).unwrap()).unwrap();
    let (before, block) = (used(&source), rustix::fs::statvfs(&source).unwrap().f_bsize);

    let report = clone(&source, &target, &refusing()).unwrap();

    assert_eq!((report.bytes_shared, report.bytes_copied), (bytes, 0));
    assert_eq!((report.files, report.hard_links), (4, 1));
    let spent = before.saturating_sub(used(&source)) * block;
    assert!(
        spent < 8 << 20,
        "{spent} bytes were spent on sharing {bytes}"
    );
    assert_eq!(report.method, Method::Reflink);
    assert_eq!(list(&target), list(&source));
    assert_eq!(
        fs::read(target.join("deep/er/large")).unwrap(),
        vec![7; 20 << 20]
    );
    assert!(fs::metadata(target.join("sparse")).unwrap().blocks() < 1000);
    fs::write(target.join("small"), "changed").unwrap();
    assert_eq!(fs::read(source.join("small")).unwrap(), b"a few bytes");
}

#[test]
fn on_xfs_every_byte_is_shared() {
    every_byte_is_shared("xfs");
}

#[test]
fn on_btrfs_every_byte_is_shared() {
    every_byte_is_shared("btrfs");
}

#[test]
fn on_ext4_and_tmpfs_a_clone_that_may_not_copy_is_refused() {
    for filesystem in ["ext4", "tmpfs"] {
        let Some(mounted) = mounted(filesystem) else {
            continue;
        };
        let (source, target) = (mounted.root().join("source"), mounted.root().join("target"));
        let bytes = furnish(&source);

        let refused = clone(&source, &target, &refusing()).unwrap_err();
        let left = fs::read_dir(mounted.root()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        let copied = clone(&source, &target, &CloneSettings::default()).unwrap();

        assert!(
            matches!(refused, CloneError::CannotShare { .. }),
            "{refused}"
        );
        let expected = ["lost+found", "source"];
        assert!(
            left.iter()
                .all(|name| expected.iter().any(|one| name == one)),
            "{left:?}"
        );
        assert_eq!((copied.bytes, copied.bytes_shared), (bytes, 0));
        assert_eq!(copied.method, Method::Copy);
        assert!(copied.bytes_copied < 22 << 20, "{}", copied.bytes_copied);
    }
}

#[test]
fn between_two_filesystems_bytes_are_copied() {
    let Some(mounted) = mounted("tmpfs") else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("source");
    let bytes = furnish(&source);

    let report = clone(
        &source,
        &mounted.root().join("target"),
        &CloneSettings::default(),
    )
    .unwrap();

    assert_eq!((report.bytes, report.bytes_shared), (bytes, 0));
    let copied = fs::read(mounted.root().join("target/deep/er/large")).unwrap();
    assert_eq!(copied, vec![7; 20 << 20]);
}

#[test]
fn what_is_mounted_in_a_tree_is_crossed_only_when_asked_for() {
    let Some(mounted) = mounted("tmpfs") else {
        return;
    };
    fs::write(mounted.root().join("inside"), "elsewhere").unwrap();
    let source = mounted.home();
    let list = |mounts| {
        let root = RootDir::open(source, mounts).unwrap();
        walk::list(&root, &WalkSettings::default()).unwrap()
    };

    let (stayed, report) = list(Mounts::Stay);
    let (crossed, _) = list(Mounts::Cross);

    assert!(stayed.is_empty(), "{stayed:?}");
    assert_eq!(report.skipped[0].reason, WalkSkip::OtherFilesystem);
    let crossed: Vec<_> = crossed.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(crossed, ["mounted", "mounted/inside"]);
}

fn call(program: &str, arguments: &[&str], on: &Path) {
    let output = Command::new(program).args(arguments).arg(on).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}");
}

/// A btrfs with a furnished subvolume `source`, the place of a `target`, and how long the files are.
fn subvolume() -> Option<(MountedImage, PathBuf, PathBuf, u64)> {
    let mounted = mounted("btrfs")?;
    let (source, target) = (mounted.root().join("source"), mounted.root().join("target"));
    call("btrfs", &["subvolume", "create"], &source);
    let bytes = furnish(&source);
    Some((mounted, source, target, bytes))
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[test]
fn a_btrfs_subvolume_is_cloned_by_a_snapshot_of_it() {
    let Some((mounted, source, target, bytes)) = subvolume() else {
        return;
    };
    let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();

    let report = clone(&source, &target, &refusing()).unwrap();

    assert_eq!(report.method, Method::Subvolume);
    assert_eq!((report.files, report.hard_links), (4, 1));
    assert_eq!((report.directories, report.bytes), (2, bytes));
    assert_eq!((report.bytes_shared, report.bytes_copied), (bytes, 0));
    assert_eq!((inode(&target), time(&target)), (256, time(&source)));
    assert_eq!(list(&target), list(&source));
    fs::write(target.join("small"), "changed").unwrap();
    assert_eq!(fs::read(source.join("small")).unwrap(), b"a few bytes");
    assert_eq!(names(&mounted.root()), ["source", "target"]);
}

#[test]
fn a_snapshot_that_nobody_looks_at_is_whole_and_says_that_nothing_was_counted() {
    let Some((mounted, source, target, _)) = subvolume() else {
        return;
    };
    let uncounted = CloneSettings {
        survey: SourceSurvey::Skip,
        ..refusing()
    };
    call("mkfifo", &[], &source.join("deep/pipe"));

    let report = clone(&source, &target, &uncounted).unwrap();
    let file_by_file = mounted.root().join("plain");
    fs::create_dir(&file_by_file).unwrap();
    let counted = clone(&file_by_file, &mounted.root().join("other"), &uncounted).unwrap();
    call("btrfs", &["subvolume", "create"], &source.join("nested"));
    fs::write(source.join("nested/file"), "in another subvolume").unwrap();
    let nested = clone(&source, &mounted.root().join("third"), &uncounted).unwrap();

    assert_eq!(
        (report.method, report.survey),
        (Method::Subvolume, SourceSurvey::Skip)
    );
    assert_eq!((report.files, report.bytes, report.walk.files), (0, 0, 0));
    assert_eq!(
        names(&target.join("deep")),
        ["again", "empty", "er", "pipe"]
    );
    assert_eq!(fs::read(target.join("small")).unwrap(), b"a few bytes");
    assert_eq!(
        (counted.method, counted.survey),
        (Method::Reflink, SourceSurvey::Count)
    );
    assert_eq!(
        (nested.method, nested.survey),
        (Method::Reflink, SourceSurvey::Count)
    );
    assert!(nested.files >= 5);
}

#[test]
fn a_read_only_subvolume_has_a_writable_clone() {
    let Some((_mounted, source, target, _)) = subvolume() else {
        return;
    };
    let made_read_only = Command::new("btrfs")
        .args(["property", "set", "-ts"])
        .arg(&source)
        .args(["ro", "true"])
        .status();
    assert!(made_read_only.unwrap().success());

    let report = clone(&source, &target, &refusing()).unwrap();

    assert_eq!(report.method, Method::Subvolume);
    assert!(fs::write(source.join("new"), "").is_err());
    fs::write(target.join("new"), "bytes").unwrap();
}

#[test]
fn a_subvolume_with_others_in_it_is_cloned_with_them() {
    let Some((mounted, source, target, _)) = subvolume() else {
        return;
    };
    call(
        "btrfs",
        &["subvolume", "create"],
        &source.join("deep/nested"),
    );
    fs::write(source.join("deep/nested/file"), "inside").unwrap();

    let report = clone(&source, &target, &refusing()).unwrap();

    assert_eq!((report.method, report.files), (Method::Reflink, 5));
    let inside = fs::read(target.join("deep/nested/file")).unwrap();
    assert_eq!(inside, b"inside");
    assert_eq!(list(&target), list(&source));
    assert_eq!(names(&mounted.root()), ["source", "target"]);
}

#[test]
fn a_snapshot_of_a_snapshot_still_shows_where_a_subvolume_was() {
    let Some((mounted, source, target, _)) = subvolume() else {
        return;
    };
    call("btrfs", &["subvolume", "create"], &source.join("nested"));
    let middle = mounted.root().join("middle");
    let made = Command::new("btrfs")
        .args(["subvolume", "snapshot"])
        .args([&source, &middle])
        .output();
    assert!(made.unwrap().status.success());

    let report = clone(&middle, &target, &refusing()).unwrap();

    assert_eq!(report.method, Method::Reflink);
    assert_eq!(names(&mounted.root()), ["middle", "source", "target"]);
    assert_ne!(inode(&target.join("nested")), 2, "an ordinary directory");
}

#[test]
fn what_a_clone_never_has_is_taken_out_of_a_snapshot_and_reported() {
    let Some((_mounted, source, target, bytes)) = subvolume() else {
        return;
    };
    call("mkfifo", &[], &source.join("deep/pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(source.join("deep/socket")).unwrap();
    let time = |path: &Path| fs::metadata(path.join("deep")).unwrap().modified().unwrap();

    let report = clone(&source, &target, &refusing()).unwrap();

    assert_eq!(report.method, Method::Subvolume);
    assert_eq!((report.files, report.bytes), (4, bytes));
    let skipped = report.walk.skipped.iter();
    let skipped: Vec<_> = skipped
        .map(|one| (one.path.to_string(), one.reason))
        .collect();
    let expected = [
        ("deep/pipe", WalkSkip::Fifo),
        ("deep/socket", WalkSkip::Socket),
    ];
    assert_eq!(
        skipped,
        expected.map(|(path, reason)| (path.to_owned(), reason))
    );
    assert_eq!(names(&target.join("deep")), ["again", "empty", "er"]);
    assert_eq!(time(&target), time(&source));
}

#[test]
fn more_pipes_than_a_report_lists_are_left_out_file_by_file() {
    let Some((mounted, source, target, bytes)) = subvolume() else {
        return;
    };
    let pipes = (0..=walk::LONGEST_LIST).map(|number| source.join(format!("pipe{number}")));
    let made = Command::new("mkfifo").args(pipes).status().unwrap();
    assert!(made.success());

    let report = clone(&source, &target, &refusing()).unwrap();

    assert_eq!((report.method, report.bytes), (Method::Reflink, bytes));
    assert_eq!(report.walk.skipped_count, 1001);
    assert_eq!(names(&target), ["deep", "small", "sparse"]);
    assert_eq!(names(&mounted.root()), ["source", "target"]);
}

#[test]
fn what_is_excluded_or_mounted_in_a_subvolume_is_left_out_of_its_clone() {
    let Some((_mounted, source, target, _)) = subvolume() else {
        return;
    };
    let mut excluding = refusing();
    excluding.walk.excludes = vec!["deep/".to_owned()];
    fs::create_dir(source.join("mount point")).unwrap();
    fs::write(source.join("mount point/hidden"), "by the mount").unwrap();

    let excluded = clone(&source, &target, &excluding).unwrap();
    call(
        "mount",
        &["-t", "tmpfs", "stasis-test"],
        &source.join("mount point"),
    );
    let again = target.with_file_name("again");
    let mounted = clone(&source, &again, &refusing());
    call("umount", &[], &source.join("mount point"));

    assert_eq!(
        (excluded.method, excluded.walk.excluded),
        (Method::Reflink, 1)
    );
    assert_eq!(names(&target), ["mount point", "small", "sparse"]);
    let mounted = mounted.unwrap();
    assert_eq!(mounted.method, Method::Reflink);
    assert_eq!(mounted.walk.skipped[0].reason, WalkSkip::OtherFilesystem);
    assert_eq!(names(&again), ["deep", "small", "sparse"]);
}

#[test]
fn a_cancelled_clone_of_a_subvolume_leaves_nothing() {
    let Some((mounted, source, target, _)) = subvolume() else {
        return;
    };
    let mut cancelled = refusing();
    cancelled.walk.cancel = Arc::new(AtomicBool::new(true));

    let refused = clone(&source, &target, &cancelled).unwrap_err();

    let is_cancelled = matches!(refused, CloneError::Walk(WalkError::Cancelled));
    assert!(is_cancelled, "{refused}");
    assert_eq!(names(&mounted.root()), ["source"]);
}

#[test]
fn a_subvolume_cloned_to_another_filesystem_is_copied() {
    let Some((_mounted, source, _, bytes)) = subvolume() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("target");

    let report = clone(&source, &target, &CloneSettings::default()).unwrap();

    assert_eq!((report.method, report.bytes), (Method::Copy, bytes));
    assert_eq!(list(&target), list(&source));
}

/// Later than anything that a test makes: everything is old enough to be remembered.
const LATER: Timestamp = Timestamp::from_millis(10_000_000_000_000);

/// Changes a byte of a file and makes it look as if nobody had.
fn change_unseen(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"X", 0).unwrap();
    file.set_modified(time).unwrap();
}

fn a_clone_is_listed_by_what_is_known_of_its_source(source: &Path, target: &Path) {
    fs::remove_file(source.join("sparse")).unwrap(); // a gigabyte of nothing to read
    let open = |path: &Path| RootDir::open(path, Mounts::Stay).unwrap();
    let (live, settings) = (open(source), WalkSettings::default());
    let mut cache = StatCache::open(&target.with_file_name("stats"), LATER);
    let (first, _) = manifest(&live, &mut cache, &settings).unwrap();
    let mut of_clone = |tree: &Path| -> Manifest {
        let listed = manifest_of_clone(&open(tree), &live, &mut cache, LATER, &settings);
        listed.unwrap().0
    };

    let _ = clone(source, target, &refusing()).unwrap();
    let same = of_clone(target);
    // Nobody reads it: what no longer is in it is still listed.
    change_unseen(&target.join("deep/er/large"));
    let unread = of_clone(target);
    std::thread::sleep(std::time::Duration::from_millis(20));
    change_unseen(&source.join("small"));
    let again = target.with_file_name("again");
    let _ = clone(source, &again, &refusing()).unwrap();
    let changed = of_clone(&again);

    assert_eq!((&same, &unread), (&first, &first));
    let found = first.diff(&changed);
    let names: Vec<String> = found.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(names, ["deep/again", "small"]);
    let mut nothing = StatCache::open(Path::new(""), LATER);
    assert_eq!(
        manifest(&open(&again), &mut nothing, &settings).unwrap().0,
        changed
    );
}

#[test]
fn on_xfs_a_clone_is_listed_by_what_is_known_of_its_source() {
    let Some(mounted) = mounted("xfs") else {
        return;
    };
    let (source, target) = (mounted.root().join("source"), mounted.root().join("target"));
    furnish(&source);
    a_clone_is_listed_by_what_is_known_of_its_source(&source, &target);
}

#[test]
fn a_snapshot_is_listed_by_what_is_known_of_its_source() {
    let Some((_mounted, source, target, _)) = subvolume() else {
        return;
    };
    a_clone_is_listed_by_what_is_known_of_its_source(&source, &target);
}
