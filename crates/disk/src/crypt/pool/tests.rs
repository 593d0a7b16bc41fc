use super::*;
use crate::crypt::{DataKey, KeyError, TenantKey};
use crate::form::chunked::ChunkCodec;
use stasis_model::digest::ReferencesDigest;
use stasis_model::format::key::{KeyDocument, PoolId};
use stasis_model::id::{Epoch, Incarnation, Lineage};
use stasis_model::protocol::gc::{ChunkName, GcEpoch};
use stasis_model::time::Timestamp;
use std::fmt::Write;
use std::sync::Arc;

const SUBJECT: &str = "subjects/acme/dir/notes/";
/// `end\n` as a plain pool stores it.
const PACKED: &[u8] = b"STCK\x01\0\0\0\x04\0\0\0end\n";

fn owner(tenant: &str) -> KeyOwner {
    PoolId::Tenant(tenant.parse().unwrap()).into()
}

fn cipher_of(secret: u8, tenant: &str) -> PoolCipher {
    DataKey::from_random(&mut [secret; KEY], owner(tenant)).pool()
}

fn cipher() -> PoolCipher {
    cipher_of(0x42, "acme")
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

fn manifest() -> SnapshotManifest {
    let (op_id, at) = (OpId::from_random([7; 16]), Timestamp::from_millis(5));
    let name = "notes".parse().unwrap();
    let mut manifest = SnapshotManifest::new(name, "one".parse().unwrap(), op_id, at);
    manifest.excludes = vec!["secret-of-the-house".to_owned()];
    manifest
}

fn names() -> Names {
    let name = |text: &[u8]| ChunkName::new(ChunkDigest::of(text), GcEpoch::FIRST);
    Names::from([name(b"one"), name(b"two")])
}

/// Computed by another implementation from the words in `docs/encryption.md`.
#[test]
fn names_chunks_and_checks_are_what_they_were() {
    let digest = cipher().digest(b"end\n");

    assert_eq!(
        digest.to_string(),
        "b72b75277345b3c963795a531fe234253b212898859a38dfef19b17fb7eae48a"
    );
    assert_eq!(
        hex(&cipher().close_chunk(digest, PACKED.to_vec())),
        "53544345010000000bdb2b0a01013b350160bc4d42a32f35b3490787e7cbf56331cdeb80021398b5\
         d92cdbd7ba18ce79ecfc0640bce59e3b4fd90f509d6f0eebe5e3099d7ad3279c"
    );
    assert_eq!(
        cipher().check(OpId::from_random([7; 16])).to_string(),
        "9c704f0f1f90049f215f1b44c361828e5349d10f0fcca0420e3ee29723425a17"
    );
    let tenant = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let tenant = TenantKey::parse(tenant.as_bytes()).unwrap();
    let key = DataKey::from_random(&mut [0x42; KEY], owner("acme"));
    assert_eq!(
        hex(tenant.wrap(&key, [2; 12]).bytes()),
        "229451b834ee5da3375a47ab1b7c3f6fdfb33ab2732a7069d950f13802a9ec0e\
         7fed1d22f6d95e86e38a8653a6c1a817"
    );
}

#[test]
fn the_key_of_a_pool_opens_no_other_pool_and_no_lineage() {
    let tenant = TenantKey::parse(&[b'a'; 64]).unwrap();
    let key = DataKey::from_random(&mut [7; KEY], owner("acme"));
    let (op_id, now) = (OpId::from_random([1; 16]), Timestamp::from_millis(5));
    let document: KeyDocument = tenant.first_document(&key, [2; 12], op_id, now);
    let lineage: Lineage = "acme/ada@131".parse().unwrap();

    assert!(tenant.unwrap(&document, &owner("acme")).is_ok());
    for other in [owner("eve"), PoolId::State.into(), lineage.into()] {
        let refused = tenant.unwrap(&document, &other).unwrap_err();
        assert!(matches!(refused, KeyError::OtherOwner { .. }));
        let mut moved = document.clone();
        moved.owner = other.clone();
        let refused = tenant.unwrap(&moved, &other).unwrap_err();
        assert!(matches!(refused, KeyError::Damaged(_)), "{refused:?}");
    }
}

#[test]
fn a_chunk_opens_under_its_own_name_in_its_own_pool_and_whole_only() {
    let (here, digest) = (cipher(), cipher().digest(b"end\n"));
    let stored = here.close_chunk(digest, PACKED.to_vec());

    assert_eq!(here.open_chunk(digest, &stored).unwrap(), PACKED);
    assert!(
        !stored
            .windows(4)
            .any(|part| part == b"end\n" || part == b"STCK")
    );
    let other = here.digest(b"other");
    assert!(here.open_chunk(other, &stored).is_err(), "swapped");
    assert!(cipher_of(0x43, "acme").open_chunk(digest, &stored).is_err());
    assert!(cipher_of(0x42, "eve").open_chunk(digest, &stored).is_err());
    assert!(here.open_chunk(digest, PACKED).is_err(), "not encrypted");
    for bit in 0..8 * stored.len() {
        let mut flipped = stored.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(here.open_chunk(digest, &flipped).is_err(), "bit {bit}");
    }
    for length in 0..stored.len() {
        assert!(here.open_chunk(digest, &stored[..length]).is_err());
    }
}

#[test]
fn two_payloads_of_one_chunk_never_share_a_key_stream() {
    let (here, digest) = (cipher(), cipher().digest(b"end\n"));
    let other = [PACKED, b"another compressor"].concat();
    let (one, two) = (
        here.close_chunk(digest, PACKED.to_vec()),
        here.close_chunk(digest, other.clone()),
    );
    let stream = |stored: &[u8], plain: &[u8]| {
        let bytes = stored[40..].iter().zip(plain);
        bytes
            .map(|(a, b)| a ^ b)
            .take(PACKED.len())
            .collect::<Vec<u8>>()
    };

    assert_ne!(stream(&one, PACKED), stream(&two, &other));
    assert_eq!(here.open_chunk(digest, &two).unwrap(), other);
    assert_eq!(here.close_chunk(digest, PACKED.to_vec()), one);
}

#[test]
fn an_honest_tag_over_other_bytes_is_not_the_chunk_that_is_named() {
    let cipher = Arc::new(cipher());
    let name = ChunkName::new(cipher.digest(b"wanted"), GcEpoch::FIRST);
    let stored = cipher.close_chunk(name.digest(), PACKED.to_vec());
    let codec = ChunkCodec::Encrypted(cipher);

    let refused = codec.open(&name, &stored).unwrap_err();

    assert!(format!("{refused:?}").contains("named for"), "{refused:?}");
    assert!(ChunkCodec::Plain.open(&name, &stored).is_err());
}

#[test]
fn a_manifest_comes_back_and_tells_nothing_before() {
    let closed = cipher().close_manifest(SUBJECT, &manifest(), &names());

    let opened = cipher().open_manifest(SUBJECT, &closed).unwrap();
    assert_eq!(opened, manifest());
    let shown = String::from_utf8(document::render(&closed)).unwrap();
    assert!(!shown.contains("house") && !shown.contains("notes"));
    let length = closed.contents().unwrap().len();
    assert_eq!(length % STEP, 16, "padded, and a tag");
    assert_eq!(closed.references.inline().unwrap().len(), 2);
}

#[test]
fn whatever_is_changed_beside_an_encrypted_manifest_is_noticed() {
    let closed = cipher().close_manifest(SUBJECT, &manifest(), &names());
    let refused = |what: &str, changed: EncryptedManifest| {
        let opened = cipher().open_manifest(SUBJECT, &changed);
        assert!(opened.is_err(), "{what}");
    };
    let with = |change: &dyn Fn(&mut EncryptedManifest)| {
        let mut changed = closed.clone();
        change(&mut changed);
        changed
    };
    let mut fewer = names();
    fewer.pop_first();

    refused(
        "dropped reference",
        with(&|one| one.references = ManifestReferences::new(&fewer)),
    );
    refused("count", with(&|one| one.references.count += 1));
    let digest = ReferencesDigest::of(b"");
    refused(
        "digest of references",
        with(&|one| one.references.sha256 = digest),
    );
    refused(
        "snapshot",
        with(&|one| one.snapshot_id = "two".parse().unwrap()),
    );
    refused("lease", with(&|one| one.lease_epoch = Epoch(9)));
    refused("save", with(&|one| one.op_id = OpId::from_random([9; 16])));
    let life = Incarnation::new(OpId::from_random([9; 16]));
    refused("life", with(&|one| one.incarnation = life));
    refused(
        "feature",
        with(&|one| one.incompat.push("encryption".to_owned())),
    );
    refused(
        "unknown feature",
        with(&|one| one.incompat.push("x".to_owned())),
    );
    let moved = cipher().open_manifest("subjects/acme/dir/other/", &closed);
    assert!(moved.is_err(), "another subject's");
    assert!(
        cipher_of(0x42, "eve")
            .open_manifest(SUBJECT, &closed)
            .is_err()
    );
    assert!(
        cipher_of(0x43, "acme")
            .open_manifest(SUBJECT, &closed)
            .is_err()
    );
}

#[test]
fn the_order_of_fields_and_fields_of_others_do_not_matter() {
    let closed = cipher().close_manifest(SUBJECT, &manifest(), &names());
    let text = String::from_utf8(document::render(&closed)).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let at = |field: &str| lines.iter().position(|line| line.contains(field)).unwrap();
    let (one, other) = (at("\"snapshotId\""), at("\"opId\""));
    lines.swap(one, other);
    lines.insert(1, "\"later\": [1],");

    let read: EncryptedManifest = document::parse(lines.join("\n").as_bytes()).unwrap();

    assert_eq!(cipher().open_manifest(SUBJECT, &read).unwrap(), manifest());
}

#[test]
fn a_check_fits_one_key_and_one_repository_only() {
    let (one, two) = (OpId::from_random([1; 16]), OpId::from_random([2; 16]));

    assert_eq!(cipher().check(one), cipher().check(one));
    assert_ne!(cipher().check(one), cipher().check(two));
    assert_ne!(cipher().check(one), cipher_of(0x43, "acme").check(one));
    assert_eq!(format!("{:?}", cipher()), "PoolCipher(of pools/acme)");
}

/// A manifest that is closed as somebody would who has the key: what is shown and what is encrypted need not fit.
fn closed_as(shown: EncryptedManifest, manifest: &SnapshotManifest) -> EncryptedManifest {
    let (here, mut contents) = (cipher(), document::render(manifest));
    let place = place(SUBJECT, &shown);
    let id = here
        .pieces
        .close(Kind::Manifest, Some(&place), &mut contents);
    shown.with_contents(PieceDigest::from_document(*id.as_bytes()), &contents)
}

/// Spelled from the words in `docs/encryption.md`.
#[test]
fn everything_in_the_clear_is_bound_to_a_manifest_in_one_spelling() {
    let mut manifest = manifest();
    manifest.incarnation = Incarnation::new(OpId::from_random([8; 16]));
    manifest.lease_epoch = Epoch(3);
    let shown = EncryptedManifest::of(&manifest, ManifestReferences::new(&names()));
    let field = |bytes: &[u8]| {
        let length = u32::try_from(bytes.len()).unwrap();
        [&length.to_le_bytes()[..], bytes].concat()
    };
    let rows = stasis_model::chunk_name::to_rows(&names());

    let spelled = [
        field(&1_u64.to_le_bytes()),
        field(&field(b"encryption")),
        field(b"subjects/acme/dir/notes/"),
        field(b"one"),
        field(manifest.incarnation.to_string().as_bytes()),
        field(&3_u64.to_le_bytes()),
        field(b"07070707-0707-4707-8707-070707070707"),
        field(&2_u64.to_le_bytes()),
        field(ReferencesDigest::of(&rows).as_bytes()),
    ];

    assert_eq!(place(SUBJECT, &shown), spelled.concat());
}

#[test]
fn an_honest_tag_over_another_manifest_is_refused() {
    let shown = EncryptedManifest::of(&manifest(), ManifestReferences::new(&names()));
    let mut other = manifest();
    other.lease_epoch = Epoch(9);

    let fits = cipher().open_manifest(SUBJECT, &closed_as(shown.clone(), &manifest()));
    let refused = cipher().open_manifest(SUBJECT, &closed_as(shown, &other));

    assert_eq!(fits.unwrap(), manifest());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("another snapshot"), "{refused}");
}

#[test]
fn a_manifest_with_a_feature_of_a_later_build_is_refused_though_it_opens() {
    let mut shown = EncryptedManifest::of(&manifest(), ManifestReferences::new(&names()));
    shown.incompat.push("later".to_owned());

    let refused = cipher().open_manifest(SUBJECT, &closed_as(shown, &manifest()));

    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("`later`"), "{refused}");
}

#[test]
fn a_plain_chunk_with_the_right_name_is_refused_in_an_encrypted_pool() {
    let cipher = Arc::new(cipher());
    let name = ChunkName::new(cipher.digest(b"end\n"), GcEpoch::FIRST);
    let stored = cipher.close_chunk(name.digest(), PACKED.to_vec());
    let codec = ChunkCodec::Encrypted(cipher);

    assert_eq!(codec.open(&name, &stored).unwrap(), b"end\n");
    assert!(codec.open(&name, PACKED).is_err());
}
