//! What other tars write is read, and what is honest but odd is too.

use crate::differential::{extract, run};
use crate::raw::{Block, Raw};
use crate::seed::{Seed, cases};
use crate::tree::{Taste, assert_equal, facts, grow, restorable};
use stasis_disk::form::archive::{Archive, ArchiveError, ReadSettings};
use stasis_model::tree::{Entry, EntryKind, FileTime};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

fn entries(archive: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    let listed = Archive::open(archive)
        .unwrap()
        .list(&ReadSettings::default(), |entry| {
            entries.push(entry.clone());
            Ok::<_, ArchiveError>(())
        });
    listed.unwrap();
    entries
}

/// How others are asked to archive a tree.
const OTHERS: [&[&str]; 8] = [
    &["tar", "--format=posix", "--xattrs", "--zstd", "-cf"],
    &["tar", "--format=posix", "--xattrs", "--sort=none", "-czf"],
    &["tar", "--format=posix", "--xattrs", "-cf"],
    &["tar", "--format=posix", "--xattrs", "-Scf"],
    &["tar", "--format=gnu", "-cf"],
    &["bsdtar", "--format=pax", "--zstd", "-cf"],
    &["bsdtar", "--format=pax", "-czf"],
    &["bsdtar", "--format=gnutar", "--no-read-sparse", "-cf"],
];

#[test]
fn what_gnu_tar_and_bsdtar_archive_comes_back_from_us() {
    for case in 0..cases(21) {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        grow(&at("tree"), &mut Seed::new(1000 + case), Taste::Bsd);
        let other = OTHERS[usize::try_from(case).unwrap() % OTHERS.len()];
        archived(other, &at("archive"), &at("tree"));

        let _ = extract(&at("archive"), &at("back")).unwrap();

        let (mut tree, mut back) = (restorable(&at("tree")), facts(&at("back")));
        let keeps_all = other
            .iter()
            .any(|argument| argument.ends_with("posix") || argument.ends_with("pax"));
        if !keeps_all {
            // The older format has whole seconds, of 33 bits if bsdtar writes it, and no attributes.
            for (entry, _) in tree.iter_mut().chain(&mut back) {
                let seconds = entry.metadata.modified.seconds.clamp(0, (1 << 33) - 1);
                entry.metadata.modified = FileTime { seconds, nanos: 0 };
                entry.attributes.clear();
            }
        }
        assert_equal(&tree, &back, &format!("case {case}, {other:?}"));
        let _ = Archive::open(&at("archive"))
            .unwrap()
            .verify(&ReadSettings::default())
            .unwrap();
    }
}

/// Lets another tar archive a directory.
fn archived(other: &[&str], archive: &Path, tree: &Path) {
    let mut command = Command::new(other[0]);
    command.args(&other[1..]).arg(archive).arg("-C").arg(tree);
    run(command.arg(".").env("LC_ALL", "C.UTF-8"));
}

#[test]
fn a_sparse_file_that_another_tar_stored_without_its_holes_has_them_again() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir(at("tree")).unwrap();
    let file = File::create(at("tree/sparse")).unwrap();
    for place in [0, 5 << 20, (5 << 20) + 8192, 90 << 20] {
        file.write_all_at(b"data", place).unwrap();
    }
    file.set_len(100 << 20).unwrap();
    let empty = File::create(at("tree/only a hole")).unwrap();
    empty.set_len(10 << 20).unwrap();
    let others: [&[&str]; 2] = [
        &["tar", "--format=posix", "--zstd", "-Scf"],
        &["bsdtar", "--format=pax", "-cf"],
    ];

    for (number, other) in others.iter().enumerate() {
        archived(other, &at("archive"), &at("tree"));
        let back = at(&number.to_string());
        let _ = extract(&at("archive"), &back).unwrap();
        let archive = Archive::open(&at("archive")).unwrap();
        let _ = archive.verify(&ReadSettings::default()).unwrap();
        let path = stasis_model::tree::EntryPath::parse(b"sparse").unwrap();
        let mut read = Vec::new();
        archive
            .cat(&path, &mut read, &ReadSettings::default())
            .unwrap();

        assert_equal(
            &restorable(&at("tree")),
            &facts(&back),
            &format!("{other:?}"),
        );
        assert!(read == std::fs::read(at("tree/sparse")).unwrap());
        let blocks = std::fs::metadata(back.join("sparse")).unwrap().blocks();
        assert!(blocks < 1000, "{other:?}: {blocks} blocks");
    }
}

#[test]
fn a_sparse_file_in_the_old_way_of_gnu_tar_is_refused_with_advice() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir(at("tree")).unwrap();
    let file = File::create(at("tree/sparse")).unwrap();
    file.set_len(10 << 20).unwrap();
    archived(
        &["tar", "--format=gnu", "-Scf"],
        &at("archive"),
        &at("tree"),
    );

    let archive = Archive::open(&at("archive")).unwrap();
    let refused = archive.verify(&ReadSettings::default()).unwrap_err();

    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("--format=posix"), "{why}");
}

/// Writes a tar and lists it.
fn listed(home: &Path, tar: &[u8]) -> Vec<Entry> {
    let archive = home.join("archive");
    std::fs::write(&archive, tar).unwrap();
    entries(&archive)
}

/// One of every oddity.
fn odd_tar(long: &[u8]) -> Vec<u8> {
    let mut large_id = Block::new(b'0', b"large id");
    large_id.uid = vec![0x80, 0, 0, 0, 0xee, 0x6b, 0x28, 0];
    let mut before_1970 = Block::new(b'0', b"old");
    before_1970.mtime = vec![0xff; 12];
    let mut contiguous = Block::new(b'7', b"contiguous");
    contiguous.magic = vec![0; 8];
    let mut label = Block::new(b'V', b"label");
    label.magic = b"ustar  \0".to_vec();
    Raw::new()
        .block(&label)
        .global(&[(b"comment", b"a commit"), (b"mtime", b"77.5")])
        .directory(".")
        .file("././a", b"")
        .block(&large_id)
        .pax(&[
            (b"mtime", b"-1.25"),
            (b"atime", b"1"),
            (b"LIBARCHIVE.creationtime", b"2"),
        ])
        .file("pax", b"")
        .gnu_long(b'K', long)
        .gnu_long(b'L', long)
        .symlink("cut", "cut")
        .block(&contiguous)
        .block(&Block::new(0, b"old file"))
        .block(&Block::new(0, b"old directory///"))
        .block(&before_1970)
        .pax(&[
            (b"SCHILY.xattr.user.a", b"\0="),
            (b"SCHILY.xattr.security.b", b"c"),
        ])
        .file("attributes", b"")
        .bytes(&[0; 10_240])
        .0
}

#[test]
fn honest_oddities_of_other_tars_are_understood() {
    let home = tempfile::tempdir().unwrap();
    let long = [b'n'; 200];

    let entries = listed(home.path(), &odd_tar(&long));

    let names: Vec<String> = entries.iter().map(|entry| entry.path.to_string()).collect();
    let long = String::from_utf8(long.to_vec()).unwrap();
    let expected = [
        ".",
        "a",
        "large id",
        "pax",
        &long,
        "contiguous",
        "old file",
        "old directory",
        "old",
        "attributes",
    ];
    assert_eq!(names, expected);
    assert_eq!(entries[2].metadata.uid, 4_000_000_000);
    let (time, default) = (entries[3].metadata.modified, entries[1].metadata.modified);
    assert_eq!(
        time,
        FileTime {
            seconds: -2,
            nanos: 750_000_000
        }
    );
    assert_eq!(
        default,
        FileTime {
            seconds: 77,
            nanos: 500_000_000
        }
    );
    assert!(matches!(&entries[4].kind, EntryKind::Symlink { target } if target.len() == 200));
    assert_eq!(entries[7].kind, EntryKind::Directory);
    // What no tree keeps is there too, so that whoever writes the tree counts it.
    let attributes = entries[9].attributes.iter();
    let attributes: Vec<_> = attributes.map(|one| (&*one.name, &*one.value)).collect();
    let expected: [(&[u8], &[u8]); 2] = [(b"security.b", b"c"), (b"user.a", b"\0=")];
    assert_eq!(attributes, expected);
}

#[test]
fn a_gzip_of_several_members_and_a_zstd_of_several_frames_are_one_tar() {
    let home = tempfile::tempdir().unwrap();
    let tar = Raw::new().file("a", b"content").file("b", &[7; 5000]).end();
    let halves = [&tar[..700], &tar[700..]];
    let gzip = halves.map(|half| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(half).unwrap();
        encoder.finish().unwrap()
    });
    let zstd = halves.map(|half| zstd::encode_all(half, 1).unwrap());
    let skip = [0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];

    assert_eq!(listed(home.path(), &gzip.concat()).len(), 2);
    assert_eq!(
        listed(
            home.path(),
            &[&skip[..], &zstd[0], &skip, &zstd[1]].concat()
        )
        .len(),
        2
    );
}

#[test]
fn a_symbolic_link_may_lead_anywhere_and_is_kept_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let tar = Raw::new()
        .directory("./")
        .symlink("absolute", "/etc/passwd")
        .symlink("loop", "loop")
        .symlink("up", "../../../..")
        .end();
    std::fs::write(home.path().join("archive"), tar).unwrap();

    let _ = extract(&home.path().join("archive"), &home.path().join("back")).unwrap();

    let target = |name: &str| std::fs::read_link(home.path().join("back").join(name)).unwrap();
    assert_eq!(target("absolute"), Path::new("/etc/passwd"));
    assert_eq!(target("loop"), Path::new("loop"));
    assert_eq!(target("up"), Path::new("../../../.."));
}
