use super::*;
use crate::chunk_name::GcEpoch;
use crate::digest::ChunkDigest;
use crate::time::Timestamp;

fn names(count: u32) -> BTreeSet<ChunkName> {
    let name = |number: u32| {
        let digest = ChunkDigest::of(&number.to_le_bytes());
        ChunkName::new(digest, GcEpoch::from_number(number % 3))
    };
    (0..count).map(name).collect()
}

fn manifest() -> SnapshotManifest {
    let (op_id, at) = (OpId::from_random([7; 16]), Timestamp::from_millis(5));
    let name = "notes".parse().unwrap();
    SnapshotManifest::new(name, "one".parse().unwrap(), op_id, at)
}

fn document(count: u32) -> EncryptedManifest {
    let references = ManifestReferences::new(&names(count));
    let id = PieceDigest::from_document([9; 32]);
    EncryptedManifest::of(&manifest(), references).with_contents(id, b"encrypted")
}

#[test]
fn both_kinds_come_back_as_what_they_are() {
    let plain = StoredManifest::Plain(Box::new(manifest()));
    let encrypted = StoredManifest::Encrypted(Box::new(document(3)));

    for stored in [plain, encrypted] {
        assert_eq!(StoredManifest::parse(&stored.render()).unwrap(), stored);
        assert_eq!(*stored.snapshot_id(), manifest().snapshot_id);
        assert_eq!(stored.op_id(), manifest().op_id);
    }
    assert_eq!(document(3).contents().unwrap(), b"encrypted");
}

#[test]
fn what_an_older_build_reads_of_it_is_refused_there() {
    let rendered = StoredManifest::Encrypted(Box::new(document(3))).render();

    let read = document::parse::<SnapshotManifest>(&rendered);

    assert!(read.is_err(), "{read:?}");
}

#[test]
fn a_list_is_believed_only_if_it_is_the_one_that_is_named() {
    let (few, many) = (document(64).references, document(65).references);

    assert_eq!(few.inline().unwrap().len(), 64);
    assert!(!few.is_beside() && many.is_beside());
    assert!(many.inline().is_err());
    let rows = to_rows(&names(65));
    assert_eq!(many.read(&rows).unwrap().len(), 65);
    assert!(many.read(&rows[NAME_ROW..]).is_err(), "one was dropped");
    assert!(many.read(&rows[..rows.len() - 1]).is_err());
    let mut swapped = names(66);
    swapped.pop_first();
    assert_eq!(swapped.len(), 65);
    assert!(many.read(&to_rows(&swapped)).is_err(), "one was swapped");
    let mut twice = rows.clone();
    twice.extend_from_slice(&rows[rows.len() - NAME_ROW..]);
    let forged = ManifestReferences {
        count: 66,
        sha256: ReferencesDigest::of(&twice),
        names: None,
    };
    assert!(forged.read(&twice).is_err(), "one is there twice");
    let counted = ManifestReferences { count: 1, ..many };
    assert!(counted.read(&rows).is_err());
}

#[test]
fn a_feature_of_a_later_build_is_refused() {
    let mut later = document(1);
    assert!(later.check().is_ok());

    later.incompat.push("colours".to_owned());

    let refused = later.check().unwrap_err();
    assert!(refused.to_string().contains("`colours`"), "{refused}");
}
