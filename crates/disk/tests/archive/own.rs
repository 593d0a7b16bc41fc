//! What our own archives promise: the same bytes, cuts that stay where they are, nothing read that is not needed.

use crate::differential::{extract, settings};
use crate::seed::Seed;
use crate::tree::{Taste, assert_restored, grow};
use stasis_disk::form::archive::{
    Archive, ArchiveError, AssembleTarget, CreateSettings, ReadSettings, TarStretch, assemble,
    create, nameless,
};
use stasis_disk::tree::walk::WalkSkip;
use stasis_model::digest::ArchiveDigest;
use stasis_model::shared_range::SharedRanges;
use stasis_model::tree::EntryPath;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn path(name: &str) -> EntryPath {
    EntryPath::parse(name.as_bytes()).unwrap()
}

fn opened(archive: &Path) -> Arc<Archive> {
    Arc::new(Archive::open(archive).unwrap())
}

fn names(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A tree of small and large files.
fn forest(root: &Path, seed: &mut Seed) {
    for directory in 0..20 {
        let directory = root.join(format!("d{directory:02}"));
        std::fs::create_dir_all(&directory).unwrap();
        for file in 0..30 {
            let length = usize::try_from(seed.below(40_000)).unwrap();
            std::fs::write(directory.join(format!("f{file:02}")), seed.bytes(length)).unwrap();
        }
    }
    for large in 0..4 {
        let bytes = seed.bytes(2_000_000 + 300_000 * large);
        std::fs::write(root.join(format!("d1{large}/large")), bytes).unwrap();
    }
}

#[test]
fn the_same_tree_gives_the_same_bytes_with_any_number_of_threads_and_any_base() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    forest(&at("tree"), &mut Seed::new(1));
    grow(&at("tree/odd"), &mut Seed::new(2), Taste::All);

    let first = create(&at("tree"), &at("1"), &settings(1)).unwrap();
    let stored = std::fs::read(at("1")).unwrap();
    assert_eq!(first.archive_sha256, ArchiveDigest::of(&stored));
    assert_eq!(first.stored_bytes, stored.len() as u64);
    for threads in [1, 2, 7] {
        let again = create(&at("tree"), &at("again"), &settings(threads)).unwrap();
        assert_eq!(
            std::fs::read(at("again")).unwrap(),
            stored,
            "{threads} threads"
        );
        assert_eq!(again, first);
        let with_base = CreateSettings {
            base: Some(opened(&at("1"))),
            ..settings(threads)
        };
        let again = create(&at("tree"), &at("again"), &with_base).unwrap();
        assert_eq!(
            std::fs::read(at("again")).unwrap(),
            stored,
            "{threads} threads"
        );
        assert_eq!(again.frames_reused, again.frames);
    }
    let verified = Archive::open(&at("1"))
        .unwrap()
        .verify(&ReadSettings::default());
    let verified = verified.unwrap();
    assert_eq!(verified.tree_digest, Some(first.tree_digest));
    assert_eq!(verified.archive_sha256, first.archive_sha256);
    assert_eq!(verified.frames, Some(first.frames));
}

type Change = fn(&Path);

/// What is said to be shared is the same in both files.
pub(crate) fn assert_shared(shared: &SharedRanges, new: &[u8], base: &[u8]) {
    for range in shared.as_slice() {
        let part = |start: u64| {
            let end = usize::try_from(start + range.length).unwrap();
            usize::try_from(start).unwrap()..end
        };
        assert!(new[part(range.at)] == base[part(range.from)], "{range:?}");
    }
}

#[test]
fn a_change_moves_no_cut_far_away_and_a_base_gives_the_same_bytes_as_none() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    forest(&at("tree"), &mut Seed::new(3));
    let first = create(&at("tree"), &at("base"), &settings(2)).unwrap();
    let with_base = CreateSettings {
        base: Some(opened(&at("base"))),
        ..settings(2)
    };
    let changes: [(&str, u64, Change); 6] = [
        ("an inserted file", 3, |tree| {
            std::fs::write(tree.join("d05/a new one"), [7; 5000]).unwrap();
        }),
        ("a removed file", 3, |tree| {
            std::fs::remove_file(tree.join("d07/f20")).unwrap();
        }),
        ("a longer file", 3, |tree| {
            std::fs::write(tree.join("d02/f05"), vec![8; 90_000]).unwrap();
        }),
        ("a page of a large file", 4, |tree| {
            let file = File::options().write(true).open(tree.join("d11/large"));
            file.unwrap().write_all_at(&[9; 4096], 1_000_000).unwrap();
        }),
        ("a longer large file", 4, |tree| {
            let file = File::options().append(true).open(tree.join("d12/large"));
            std::io::Write::write_all(&mut file.unwrap(), &vec![1; 700_000]).unwrap();
        }),
        ("a touched large file", 3, |tree| {
            let file = File::open(tree.join("d13/large")).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
            file.set_modified(time).unwrap();
        }),
    ];
    let mut allowed = 0;

    for (what, most, change) in changes {
        change(&at("tree"));
        // The directory's own time changes with it, in the frame that has its header; changes add up.
        allowed += most;
        let new = create(&at("tree"), &at("new"), &with_base).unwrap();
        let fresh = create(&at("tree"), &at("fresh"), &settings(2)).unwrap();

        let dirty = new.frames - new.frames_reused;
        assert!(
            dirty <= allowed + 2,
            "{what}: {dirty} of {} frames",
            new.frames
        );
        assert_eq!(
            std::fs::read(at("new")).unwrap(),
            std::fs::read(at("fresh")).unwrap(),
            "{what}"
        );
        assert_ne!(fresh.tree_digest, first.tree_digest, "{what}");
        let base = std::fs::read(at("base")).unwrap();
        assert_shared(&new.shared, &std::fs::read(at("new")).unwrap(), &base);
        assert!(new.shared.bytes() >= new.bytes_reused, "{what}");
        // Between two changes everything is one range.
        let ranges = new.shared.as_slice().len() as u64;
        assert!(ranges <= dirty + 1, "{what}: {ranges} ranges");
        assert_eq!(fresh.shared.bytes(), 0, "{what}");
    }
}

#[test]
fn frames_of_another_encoder_are_not_used_and_a_base_that_is_none_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    forest(&at("tree"), &mut Seed::new(4));
    let level_4 = CreateSettings {
        level: 4,
        ..settings(2)
    };
    let _ = create(&at("tree"), &at("base"), &level_4).unwrap();
    let with_base = |name: &str| CreateSettings {
        base: Some(opened(&at(name))),
        ..settings(2)
    };

    let other = create(&at("tree"), &at("new"), &with_base("base")).unwrap();
    std::fs::write(at("plain"), [0; 5000]).unwrap();
    let plain = create(&at("tree"), &at("newer"), &with_base("plain")).unwrap_err();
    let absent = Archive::open(&at("absent")).unwrap_err();

    assert_eq!(other.frames_reused, 0);
    assert!(matches!(plain, ArchiveError::NotFramed(_)), "{plain}");
    assert!(matches!(&absent, ArchiveError::Failed(failure) if failure.op() == "open"));
    assert_eq!(names(home.path()), ["base", "new", "plain", "tree"]);
}

#[test]
fn a_base_that_has_decayed_does_no_harm() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    forest(&at("tree"), &mut Seed::new(5));
    let _ = create(&at("tree"), &at("base"), &settings(2)).unwrap();
    let mut decayed = std::fs::read(at("base")).unwrap();
    let whole = decayed.clone();
    for byte in decayed.iter_mut().take(3_000_000).step_by(500_000) {
        *byte ^= 1;
    }
    std::fs::write(at("decayed"), decayed).unwrap();
    let with_base = CreateSettings {
        base: Some(opened(&at("decayed"))),
        ..settings(2)
    };

    let new = create(&at("tree"), &at("new"), &with_base).unwrap();

    // Some of the six lie in one frame.
    let spoiled = new.frames - new.frames_reused;
    assert!((2..=6).contains(&spoiled), "{new:?}");
    assert!(new.frames_reused > 0, "{new:?}");
    assert_eq!(std::fs::read(at("new")).unwrap(), whole);
}

#[test]
fn a_huge_hole_costs_little_and_stays_one() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir(at("tree")).unwrap();
    let file = File::create(at("tree/sparse")).unwrap();
    file.write_all_at(b"beginning", 0).unwrap();
    file.write_all_at(b"middle", 300 << 20).unwrap();
    file.set_len(700 << 20).unwrap();

    let report = create(&at("tree"), &at("archive"), &settings(2)).unwrap();
    let _ = extract(&at("archive"), &at("back")).unwrap();

    assert_eq!(report.bytes, 700 << 20);
    assert!(report.stored_bytes < 400_000, "{}", report.stored_bytes);
    let back = std::fs::metadata(at("back/sparse")).unwrap();
    assert_eq!(back.len(), 700 << 20);
    assert!(back.blocks() < 500, "{} blocks", back.blocks());
    let mut middle = [0; 6];
    let copy = File::open(at("back/sparse")).unwrap();
    copy.read_exact_at(&mut middle, 300 << 20).unwrap();
    assert_eq!(&middle, b"middle");
}

#[test]
fn the_archive_itself_is_left_out_of_it() {
    let home = tempfile::tempdir().unwrap();
    let tree = home.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), "bytes").unwrap();
    std::fs::write(tree.join("a.tar.zst"), "an older one").unwrap();

    let report = create(&tree, &tree.join("a.tar.zst"), &settings(1)).unwrap();

    assert_eq!(report.files, 1);
    let reasons: Vec<WalkSkip> = report.walk.skipped.iter().map(|left| left.reason).collect();
    assert_eq!(reasons, [WalkSkip::OwnTarget; 2]);
    assert_eq!(names(&tree), ["a.tar.zst", "file"]);
}

#[test]
fn a_failure_or_a_request_to_stop_leaves_what_was_there() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    forest(&at("tree"), &mut Seed::new(6));
    std::fs::write(at("archive"), "an older one").unwrap();
    let stopped = settings(2);
    stopped.walk.cancel.store(true, Ordering::Relaxed);
    let mut shallow = settings(2);
    shallow.walk.deepest = 0;

    let cancelled = create(&at("tree"), &at("archive"), &stopped).unwrap_err();
    let too_deep = create(&at("tree"), &at("archive"), &shallow).unwrap_err();
    let no_source = create(&at("no"), &at("archive"), &settings(2)).unwrap_err();
    let no_place = create(&at("tree"), &at("no/archive"), &settings(2)).unwrap_err();
    let directory = create(&at("tree"), &at("tree/d00"), &settings(2)).unwrap_err();

    assert!(
        matches!(cancelled, ArchiveError::Cancelled),
        "{cancelled:?}"
    );
    assert!(matches!(too_deep, ArchiveError::Walk(_)));
    assert!(matches!(no_source, ArchiveError::Failed(_)));
    assert!(matches!(no_place, ArchiveError::Failed(_)));
    assert!(matches!(directory, ArchiveError::Failed(_)));
    assert_eq!(std::fs::read(at("archive")).unwrap(), b"an older one");
    assert_eq!(names(home.path()), ["archive", "tree"]);
    assert_eq!(names(&at("tree")).len(), 20);
}

#[test]
fn one_file_is_read_without_the_others() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    forest(&at("tree"), &mut Seed::new(7));
    std::fs::hard_link(at("tree/d03/f03"), at("tree/d09/twin")).unwrap();
    let _ = create(&at("tree"), &at("archive"), &settings(2)).unwrap();
    // Everything but the index and the middle of the file is destroyed.
    let whole = std::fs::read(at("archive")).unwrap();
    let archive = Archive::open(&at("archive")).unwrap();
    let read = |archive: &Archive, name: &str| {
        let mut bytes = Vec::new();
        let read = archive.cat(&path(name), &mut bytes, &ReadSettings::default());
        read.map(|length| {
            assert_eq!(length, bytes.len() as u64);
            bytes
        })
    };
    for name in ["d00/f00", "d03/f03", "d12/large", "d19/f29"] {
        assert_eq!(
            read(&archive, name).unwrap(),
            std::fs::read(at("tree").join(name)).unwrap()
        );
    }
    assert_eq!(
        read(&archive, "d09/twin").unwrap(),
        std::fs::read(at("tree/d03/f03")).unwrap()
    );
    let absent = read(&archive, "d05/zzz").unwrap_err();
    assert!(matches!(absent, ArchiveError::NoSuchEntry { .. }));
    assert!(matches!(
        read(&archive, "d05").unwrap_err(),
        ArchiveError::NotAFile(_)
    ));

    let mut damaged = whole;
    damaged[..1_000_000].fill(0);
    std::fs::write(at("damaged"), &damaged).unwrap();
    let archive = Archive::open(&at("damaged")).unwrap();
    assert_eq!(
        read(&archive, "d19/f29").unwrap(),
        std::fs::read(at("tree/d19/f29")).unwrap()
    );
    assert!(read(&archive, "d00/f00").is_err());
}

#[test]
fn a_read_only_file_keeps_its_attributes() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir(at("tree")).unwrap();
    std::fs::write(at("tree/closed"), "read only").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(at("tree/closed"), "user.note", b"kept", flags).unwrap();
    let closed = std::fs::Permissions::from_mode(0o400);
    std::fs::set_permissions(at("tree/closed"), closed).unwrap();
    let _ = create(&at("tree"), &at("archive"), &settings(2)).unwrap();

    let _ = extract(&at("archive"), &at("back")).unwrap();

    assert_restored(&at("tree"), &at("back"), "a read-only file");
}

#[test]
fn a_part_of_an_archive_is_extracted_alone() {
    use stasis_disk::tree::write::{TreeWriter, WriteSettings};
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    forest(&at("tree"), &mut Seed::new(8));
    std::fs::create_dir_all(at("tree/d11.x/inner")).unwrap();
    let _ = create(&at("tree"), &at("archive"), &settings(2)).unwrap();
    let part = |name: &str, into: &str| {
        std::fs::create_dir(at(into)).unwrap();
        let root = File::open(at(into)).unwrap().into();
        let writer = TreeWriter::new(root, WriteSettings::default()).unwrap();
        let archive = Archive::open(&at("archive")).unwrap();
        let root = archive.extract_one(&path(name), &writer, &ReadSettings::default())?;
        Ok::<_, ArchiveError>(writer.finish(root.as_ref()).unwrap())
    };

    let _ = part("d11", "directory").unwrap();
    let _ = part("d12/large", "file").unwrap();
    let absent = part("d11/f99", "absent").unwrap_err();

    assert_restored(&at("tree/d11"), &at("directory/d11"), "a directory");
    assert_eq!(names(&at("directory")), ["d11"]);
    let root = crate::tree::root_metadata;
    assert_eq!(root(&at("directory")), root(&at("tree")));
    assert_eq!(root(&at("file/d12")), root(&at("tree/d12")));
    assert_eq!(names(&at("file/d12")), ["large"]);
    let (was, is) = (at("tree/d12/large"), at("file/d12/large"));
    assert!(std::fs::read(was).unwrap() == std::fs::read(is).unwrap());
    assert!(matches!(absent, ArchiveError::NoSuchEntry { .. }));
}

#[test]
fn an_archive_is_brought_here_without_what_an_older_one_has() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    forest(&at("tree"), &mut Seed::new(6));
    let old = create(&at("tree"), &at("old"), &settings(2)).unwrap();
    std::fs::write(at("tree/d05/f10"), vec![1; 70_000]).unwrap();
    let new = create(&at("tree"), &at("new"), &settings(2)).unwrap();
    let mut decayed = std::fs::read(at("old")).unwrap();
    decayed[2_000_000] ^= 1;
    std::fs::write(at("decayed"), decayed).unwrap();
    let go_on = AtomicBool::new(false);
    let bring = |base: Option<&str>| {
        let base = base.map(|name| opened(&at(name)));
        let file = nameless(home.path()).unwrap();
        let place = AssembleTarget {
            file: &file,
            path: home.path(),
        };
        let brought = assemble(&opened(&at("new")), base.as_deref(), place, &go_on).unwrap();
        let mut bytes = vec![0; usize::try_from(brought.stored_bytes).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(
            bytes == std::fs::read(at("new")).unwrap(),
            "other bytes came"
        );
        brought.bytes_fetched
    };

    let (all, some, more) = (bring(None), bring(Some("old")), bring(Some("decayed")));

    assert_eq!(all, new.stored_bytes);
    assert!(
        some < old.stored_bytes / 10,
        "{some} of {}",
        new.stored_bytes
    );
    assert!(some < more && more < all, "{some} {more} {all}");
    let names = names(home.path());
    assert_eq!(names, ["decayed", "new", "old", "tree"], "nothing else");
}

#[test]
fn any_range_of_a_file_is_read_from_the_frames_that_it_lies_in() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    forest(&at("tree"), &mut Seed::new(8));
    std::fs::write(at("tree/nothing"), "").unwrap();
    let sparse = File::create(at("tree/sparse")).unwrap();
    sparse.set_len(5_000_000).unwrap();
    sparse.write_all_at(b"island", 2_500_000).unwrap();
    let _ = create(&at("tree"), &at("archive"), &settings(2)).unwrap();
    let archive = Archive::open(&at("archive")).unwrap();
    let settings = ReadSettings::default();

    for name in ["d00/f00", "d12/large", "d19/f29", "nothing", "sparse"] {
        let stretches = archive.stretches(&path(name), &settings).unwrap();
        let mut bytes = Vec::new();
        for stretch in &stretches {
            match *stretch {
                TarStretch::Hole(length) => {
                    bytes.resize(bytes.len() + usize::try_from(length).unwrap(), 0);
                }
                TarStretch::Stored {
                    frame,
                    offset,
                    length,
                } => {
                    let (from, until) = (offset as usize, (offset + length) as usize);
                    bytes.extend_from_slice(&archive.frame(frame).unwrap()[from..until]);
                }
            }
        }
        let is_same = bytes == std::fs::read(at("tree").join(name)).unwrap();
        assert!(is_same, "{name}: {stretches:?}");
    }
    let large = archive.stretches(&path("d12/large"), &settings).unwrap();
    assert!(large.len() > 1, "it lies in several frames");
    let absent = archive.stretches(&path("d05/zzz"), &settings).unwrap_err();
    assert!(matches!(absent, ArchiveError::NoSuchEntry { .. }));
    let directory = archive.stretches(&path("d05"), &settings).unwrap_err();
    assert!(matches!(directory, ArchiveError::NotAFile(_)));
}
