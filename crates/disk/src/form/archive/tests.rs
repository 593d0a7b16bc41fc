#![expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]

use super::source::disturbance;
use super::*;
use crate::tree::walk::WalkSkip;
use std::fs::File;
use std::os::unix::fs::FileExt;

fn settings() -> CreateSettings {
    CreateSettings {
        level: 1,
        workers: NonZeroUsize::MIN,
        ..CreateSettings::default()
    }
}

/// A tree with a file of the given length between two others.
fn place(length: usize) -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let tree = home.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for name in ["a", "c"] {
        std::fs::write(tree.join(name), name.repeat(3000)).unwrap();
    }
    std::fs::write(tree.join("b"), vec![1; length]).unwrap();
    (home, tree)
}

/// Lets `act` happen to the file `b` the first `times` that it is opened.
fn disturb(tree: &Path, mut times: usize, mut act: impl FnMut(&File, u64) + 'static) {
    let tree = tree.to_owned();
    disturbance::expect(move |path| {
        if path.as_bytes() == b"b" && times > 0 {
            times -= 1;
            let file = File::options().write(true).open(tree.join("b")).unwrap();
            act(&file, times as u64);
        }
    });
}

fn content(archive: &Path, name: &str) -> Option<Vec<u8>> {
    let (path, mut bytes) = (EntryPath::parse(name.as_bytes()).unwrap(), Vec::new());
    let archive = Archive::open(archive).unwrap();
    let _ = archive.verify(&ReadSettings::default()).unwrap();
    match archive.cat(&path, &mut bytes, &ReadSettings::default()) {
        Ok(_) => Some(bytes),
        Err(ArchiveError::NoSuchEntry { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

const SMALL: usize = 5000;
const LARGE: usize = 3_000_000;

#[test]
fn a_file_that_changes_once_is_read_again_and_is_right() {
    for length in [SMALL, LARGE] {
        let (home, tree) = place(length);
        let (archive, fresh) = (home.path().join("archive"), home.path().join("fresh"));
        disturb(&tree, 2, |file, round| {
            file.set_len(100 + round).unwrap();
            file.write_all_at(b"changed", 0).unwrap();
            file.set_len(900_000 + round).unwrap();
        });

        let report = create(&tree, &archive, &settings()).unwrap();
        let again = create(&tree, &fresh, &settings()).unwrap();

        assert_eq!(report.walk.skipped_count, 0);
        assert_eq!(report.archive_sha256, again.archive_sha256);
        assert_eq!(
            report.tar_bytes, again.tar_bytes,
            "nothing is left of the attempts"
        );
        assert_eq!(
            std::fs::read(archive).unwrap(),
            std::fs::read(&fresh).unwrap()
        );
        let now = std::fs::read(tree.join("b")).unwrap();
        assert_eq!(content(&fresh, "b").unwrap(), now);
    }
}

#[test]
fn a_file_that_changes_each_time_is_archived_as_last_read_and_reported() {
    for length in [SMALL, LARGE] {
        let (home, tree) = place(length);
        let archive = home.path().join("archive");
        disturb(&tree, 3, |file, round| {
            file.write_all_at(&[7; 3], round).unwrap();
        });

        let report = create(&tree, &archive, &settings()).unwrap();

        assert_eq!(report.walk.skipped_count, 1);
        assert_eq!(report.walk.skipped[0].reason, WalkSkip::Changed);
        assert_eq!(report.files, 3);
        assert_eq!(content(&archive, "b").unwrap().len(), length);
        assert_eq!(content(&archive, "c").unwrap(), b"c".repeat(3000));
    }
}

#[test]
fn a_file_that_shrinks_each_time_is_never_filled_up() {
    for (length, is_kept) in [(SMALL, true), (LARGE, false)] {
        let (home, tree) = place(length);
        let archive = home.path().join("archive");
        let mut left = length as u64;
        disturb(&tree, 3, move |file, _| {
            left = left * 3 / 4;
            file.set_len(left).unwrap();
        });

        let report = create(&tree, &archive, &settings()).unwrap();

        assert_eq!(report.walk.skipped[0].reason, WalkSkip::Changed);
        let archived = content(&archive, "b");
        assert_eq!(archived.is_some(), is_kept);
        if let Some(archived) = archived {
            assert_eq!(archived, std::fs::read(tree.join("b")).unwrap());
        }
        assert_eq!(content(&archive, "c").unwrap(), b"c".repeat(3000));
    }
}

#[test]
fn a_strict_archive_fails_when_a_file_changes_each_time_and_leaves_nothing() {
    for length in [SMALL, LARGE] {
        let (home, tree) = place(length);
        disturb(&tree, 3, |file, round| {
            file.write_all_at(&[7; 3], round).unwrap();
        });
        let mut strict = settings();
        strict.walk.strict = true;

        let refused = create(&tree, &home.path().join("archive"), &strict).unwrap_err();

        let is_refused = matches!(
            refused,
            ArchiveError::Walk(WalkError::Incomplete {
                reason: WalkSkip::Changed,
                ..
            })
        );
        assert!(is_refused, "{refused:?}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_verification_counts_every_stored_byte_once() {
    let (home, tree) = place(LARGE);
    let at = |name: &str| home.path().join(name);
    let _ = create(&tree, &at("framed"), &settings()).unwrap();
    let file = std::fs::read(at("framed")).unwrap();
    let tar = zstd::decode_all(&*file).unwrap();
    // One that is not ours: no index, and bytes behind its end.
    std::fs::write(at("plain"), [&*tar, &[0; 4097]].concat()).unwrap();

    for name in ["framed", "plain"] {
        let settings = ReadSettings::default();
        let archive = Archive::open(&at(name)).unwrap();
        let _ = archive.verify(&settings).unwrap();

        let (length, reached) = (
            at(name).metadata().unwrap().len(),
            settings.progress.reached(),
        );
        assert_eq!(
            (reached.bytes, reached.bytes_expected),
            (length, length),
            "{name}"
        );
    }
}
