//! Archives that version 1 of the format wrote once: they must be readable for ever, and the one whose frames are cut as today written
//! again as it is.

use crate::differential::extract;
use stasis_disk::form::archive::{Archive, CreateSettings, ReadSettings, create, encoder_id};
use stasis_model::tree::EntryPath;

/// Its frames have a quarter of a mebibyte, as they first had.
const ARCHIVE: &[u8] = include_bytes!("golden/v1.tar.zst");
/// The same tree with a larger file.
const WRITTEN: &[u8] = include_bytes!("golden/v1-frames-of-1-mib.tar.zst");

#[test]
fn an_archive_of_the_first_version_is_read_for_ever() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("v1.tar.zst");
    std::fs::write(&file, ARCHIVE).unwrap();
    let archive = Archive::open(&file).unwrap();
    let mut large = Vec::new();

    let verified = archive.verify(&ReadSettings::default()).unwrap();
    let path = EntryPath::parse(b"large").unwrap();
    archive
        .cat(&path, &mut large, &ReadSettings::default())
        .unwrap();

    assert_eq!(
        verified.archive_sha256.to_string(),
        "ce0d95c73c13323f67492cc12420dafffa91adb12aa279bf1902d3bbc8bf8077"
    );
    assert_eq!(
        verified.tree_digest.unwrap().to_string(),
        "00379210b29dbcf6cffd1e03e174a520bd181388d264b164f5445c18dd06867c"
    );
    assert_eq!((verified.entries, verified.files), (10, 4));
    assert!(large == b"golden ".repeat(60_000));
}

#[test]
fn the_same_tree_is_still_written_as_the_same_bytes() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    std::fs::write(at("v1.tar.zst"), WRITTEN).unwrap();
    let archive = Archive::open(&at("v1.tar.zst")).unwrap();
    let verified = archive.verify(&ReadSettings::default()).unwrap();
    assert_eq!(
        verified.archive_sha256.to_string(),
        "6cc71a315873ce41268b694c4dd23f6e56c90c3523d4c3c0ca0c783c6077964e"
    );
    // A zstd that writes other bytes has another id: then this file is to be made anew.
    assert_eq!(archive.summary().unwrap().encoder_id, encoder_id(9));
    // Only root gives files away.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let _ = extract(&at("v1.tar.zst"), &at("tree")).unwrap();

    let _ = create(&at("tree"), &at("again"), &CreateSettings::default()).unwrap();

    assert!(std::fs::read(at("again")).unwrap() == WRITTEN);
}
