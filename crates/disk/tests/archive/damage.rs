//! One flipped bit anywhere, or an end anywhere: the archive is refused, or the tree is the same.

use crate::differential::settings;
use crate::tree::facts;
use stasis_disk::form::archive::{Archive, ArchiveError, ReadSettings, create};
use stasis_disk::tree::write::{TreeWriter, WriteSettings};
use std::fs::File;
use std::num::NonZeroUsize;
use std::path::Path;

/// A small tree with one of everything.
fn small(root: &Path) {
    std::fs::create_dir_all(root.join("directory")).unwrap();
    std::fs::write(root.join("directory/file"), "some bytes").unwrap();
    std::fs::hard_link(root.join("directory/file"), root.join("twin")).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("link")).unwrap();
}

fn alone() -> ReadSettings {
    ReadSettings {
        workers: NonZeroUsize::MIN,
        ..ReadSettings::default()
    }
}

/// Reads a damaged archive in every way; says whether it was refused.
fn is_refused(archive: &Path, home: &Path) -> bool {
    let read = |home: &Path| {
        let opened = Archive::open(archive)?;
        let verified = opened.verify(&alone());
        let into = home.join("into");
        let _ = std::fs::remove_dir_all(&into);
        std::fs::create_dir(&into).unwrap();
        let root = File::open(&into).unwrap().into();
        let writer = TreeWriter::new(root, WriteSettings::default()).unwrap();
        let root = opened.extract(&writer, &alone());
        let extracted = root.and_then(|root| Ok(writer.finish(root.as_ref())?));
        let _ = verified?;
        let _ = extracted?;
        Ok::<_, ArchiveError>(())
    };
    read(home).is_err()
}

#[test]
fn a_flipped_bit_anywhere_is_noticed_or_harmless() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    small(&at("tree"));
    let _ = create(&at("tree"), &at("archive"), &settings(1)).unwrap();
    let whole = std::fs::read(at("archive")).unwrap();
    let tree = facts(&at("tree"));
    assert!(!is_refused(&at("archive"), home.path()));
    let mut harmless = 0;

    for at_byte in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at_byte] ^= 1 << (at_byte % 8);
        std::fs::write(at("flipped"), &flipped).unwrap();
        if !is_refused(&at("flipped"), home.path()) {
            harmless += 1;
            assert_eq!(facts(&at("into")), tree, "byte {at_byte}");
        }
    }

    // Without the mark in its last bytes it is still a .tar.zst, which other tars read too.
    assert!(
        harmless <= 8,
        "{harmless} of {} bytes are not checked",
        whole.len()
    );
}

#[test]
fn an_archive_that_ends_early_is_refused_wherever_it_ends() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    small(&at("tree"));
    let _ = create(&at("tree"), &at("archive"), &settings(1)).unwrap();
    let whole = std::fs::read(at("archive")).unwrap();
    let tree = facts(&at("tree"));
    let stored = u32::from_le_bytes(whole[whole.len() - 48..][..4].try_into().unwrap()) as usize;
    let index = whole.len() - 48 - stored - 8;

    for length in 0..whole.len() {
        std::fs::write(at("cut"), &whole[..length]).unwrap();
        let is_refused = is_refused(&at("cut"), home.path());
        // Without its index, and nothing else missing, it is a whole .tar.zst.
        assert_eq!(
            is_refused,
            length != index,
            "{length} of {} bytes",
            whole.len()
        );
        if !is_refused {
            assert_eq!(facts(&at("into")), tree);
        }
    }

    for extra in [&[0][..], &[0; 512], &whole] {
        std::fs::write(at("long"), [&whole, extra].concat()).unwrap();
        assert!(
            is_refused(&at("long"), home.path()),
            "{} more bytes",
            extra.len()
        );
    }
}
