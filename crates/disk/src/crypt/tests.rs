use super::*;
use stasis_model::digest::TreeDigest;
use stasis_model::format::document::{parse, render};
use stasis_model::format::key::{KeyDocument, NONCE, WRAPPED, WrappedKey};
use stasis_model::id::Lineage;
use stasis_model::id::OpId;
use stasis_model::time::Timestamp;
use std::fmt::Write;

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn tenant_key() -> TenantKey {
    TenantKey::parse(HEX.as_bytes()).unwrap()
}

fn another_tenant_key() -> TenantKey {
    TenantKey::parse("ab".repeat(32).as_bytes()).unwrap()
}

fn lineage(name: &str) -> KeyOwner {
    let lineage: Lineage = name.parse().unwrap();
    lineage.into()
}

fn data_key(of: &str) -> DataKey {
    DataKey::from_random(&mut [0x42; KEY], lineage(of))
}

fn document() -> KeyDocument {
    let (op_id, now) = (OpId::from_random([1; 16]), Timestamp::from_millis(5));
    tenant_key().first_document(&data_key("acme/ada@131"), [2; NONCE], op_id, now)
}

/// The same wrapping with one field replaced.
fn with(nonce: [u8; NONCE], wrapped: [u8; WRAPPED]) -> KeyDocument {
    let key = WrappedKey::new(tenant_key().id(), nonce, wrapped);
    document().rewrapped(key, OpId::default())
}

fn closed(of: &str, kind: Kind, plain: &[u8]) -> (PieceId, Vec<u8>) {
    let mut piece = plain.to_vec();
    let id = data_key(of).pieces().close(kind, None, &mut piece);
    (id, piece)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

#[test]
fn a_key_has_the_same_id_in_every_spelling() {
    let spellings = [
        HEX.to_owned(),
        format!("{HEX}\n"),
        format!("{HEX}\r\n"),
        HEX.to_uppercase(),
        BASE64.to_owned(),
        format!("{BASE64}\n"),
    ];
    for text in spellings {
        let parsed = TenantKey::parse(text.as_bytes()).unwrap();
        let read = TenantKey::read(text.as_bytes()).unwrap();
        assert_eq!(parsed.id(), tenant_key().id(), "{text:?}");
        assert_eq!(read.id(), tenant_key().id(), "{text:?}");
    }
    assert_ne!(another_tenant_key().id(), tenant_key().id());
}

#[test]
fn what_is_no_key_is_refused_and_not_repeated() {
    let secret = "hunter2";
    let texts = [
        String::new(),
        "\n".to_owned(),
        secret.to_owned(),
        format!("{HEX}00"),
        format!("{HEX}\n\n"),
        format!(" {HEX}"),
        HEX.replace("1f", "+f"),
        HEX.replace("1f", "1g"),
        BASE64.replace("8=", "9="),
        BASE64.replace("8=", "8A"),
        BASE64.replace("8=", "=="),
        BASE64.replace('H', "-"),
        HEX.repeat(1000),
    ];
    for text in texts {
        for refused in [
            TenantKey::parse(text.as_bytes()).unwrap_err(),
            TenantKey::read(text.as_bytes()).unwrap_err(),
        ] {
            let said = format!("{refused} {refused:?}");
            assert!(matches!(refused, KeyError::NoKey), "{text:?}");
            assert!(!said.contains(secret) && !said.contains("0a0b"));
        }
    }
}

#[test]
fn keys_never_show_themselves() {
    let shown = format!(
        "{:?} {:?} {:?}",
        tenant_key(),
        data_key("acme/ada@131"),
        data_key("acme/ada@131").pieces()
    );

    let id = tenant_key().id();
    let expected = format!("TenantKey({id}) DataKey(of acme/ada@131) Pieces(of acme/ada@131)");
    assert_eq!(shown, expected);
}

#[test]
fn random_bytes_are_cleared_once_they_are_a_key() {
    let mut random = [7; KEY];

    let _ = DataKey::from_random(&mut random, lineage("acme/ada@131"));

    assert_eq!(random, [0; KEY]);
}

#[test]
fn a_wrapped_data_key_comes_back_through_its_document() {
    let read: KeyDocument = parse(&render(&document())).unwrap();

    let key = tenant_key()
        .unwrap(&read, &lineage("acme/ada@131"))
        .unwrap();

    assert_eq!(key.secret(), &[0x42; KEY]);
    assert_eq!(key.owner(), &lineage("acme/ada@131"));
    assert!(!read.key.bytes().windows(8).any(|part| part == [0x42; 8]));
}

#[test]
fn another_tenants_key_is_told_which_one_is_needed() {
    let refused = another_tenant_key()
        .unwrap(&document(), &lineage("acme/ada@131"))
        .unwrap_err();

    let (needed, was) = (tenant_key().id(), another_tenant_key().id());
    let is_named = matches!(&refused, KeyError::WrongKey { expected, given, .. }
        if *expected == needed && *given == was);
    assert!(is_named, "{refused:?}");
}

#[test]
fn a_document_that_was_changed_or_moved_does_not_open() {
    let here = lineage("acme/ada@131");
    let unwrap = |document: &KeyDocument| tenant_key().unwrap(document, &here).unwrap_err();
    let mut moved = document();
    moved.owner = lineage("acme/eve@131");
    let (nonce, wrapped) = (*document().key.nonce(), *document().key.bytes());

    assert!(matches!(unwrap(&moved), KeyError::OtherOwner { .. }));
    let theirs = tenant_key().unwrap(&moved, &moved.owner).unwrap_err();
    assert!(matches!(theirs, KeyError::Damaged(_)), "{theirs:?}");
    let mut renamed = document();
    renamed.key.key_id = another_tenant_key().id();
    let forged = another_tenant_key().unwrap(&renamed, &here).unwrap_err();
    assert!(matches!(forged, KeyError::Damaged(_)), "{forged:?}");
    for bit in 0..8 * NONCE {
        let mut flipped = nonce;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(
            unwrap(&with(flipped, wrapped)),
            KeyError::Damaged(_)
        ));
    }
    for bit in 0..8 * WRAPPED {
        let mut flipped = wrapped;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(
            unwrap(&with(nonce, flipped)),
            KeyError::Damaged(_)
        ));
    }
}

#[test]
fn what_wraps_is_bound_to_version_lineage_and_key() {
    let (_, bound) = tenant_key().wrapping(&lineage("acme/ada@131"));

    let id = tenant_key().id().to_string();
    let expected = [
        &b"\x13\0\0\0stasis tenant key 1\x08\0\0\0\x01\0\0\0\0\0\0\0"[..],
        b"\x0c\0\0\0acme/ada@131\x10\0\0\0",
        id.as_bytes(),
    ];
    assert_eq!(bound, expected.concat());
}

#[test]
fn a_rewrapped_document_opens_with_the_new_key_only() {
    let (old, new, here) = (tenant_key(), another_tenant_key(), lineage("acme/ada@131"));

    let after = old
        .rewrap(&document(), &new, [3; NONCE], OpId::from_random([9; 16]))
        .unwrap();

    assert_eq!(after.generation, document().generation.next());
    let key = new.unwrap(&after, &here).unwrap();
    assert_eq!(key.secret(), &[0x42; KEY], "the data key stays");
    let refused = old.unwrap(&after, &here).unwrap_err();
    assert!(matches!(refused, KeyError::WrongKey { .. }));
    let nothing = new.rewrap(&document(), &old, [3; NONCE], OpId::default());
    assert!(matches!(nothing, Err(KeyError::WrongKey { .. })));
}

#[test]
fn a_piece_opens_as_what_it_is_and_as_nothing_else() {
    let here = data_key("acme/ada@131").pieces();
    let (id, piece) = closed("acme/ada@131", Kind::Frame, b"some bytes");
    let open = |pieces: &Pieces, kind, id: &PieceId| {
        let mut opened = piece.clone();
        pieces.open(kind, None, id, &mut opened).map(|()| opened)
    };

    assert_eq!(open(&here, Kind::Frame, &id).unwrap(), b"some bytes");
    assert_eq!(open(&here, Kind::Index, &id), Err(pieces::Broken));
    let elsewhere = data_key("acme/eve@131").pieces();
    assert_eq!(open(&elsewhere, Kind::Frame, &id), Err(pieces::Broken));
    let other = DataKey::from_random(&mut [0x43; KEY], lineage("acme/ada@131"));
    assert_eq!(open(&other.pieces(), Kind::Frame, &id), Err(pieces::Broken));
    let (other_id, _) = closed("acme/ada@131", Kind::Frame, b"other byte");
    assert_eq!(open(&here, Kind::Frame, &other_id), Err(pieces::Broken));
    for bit in 0..8 * piece.len() {
        let mut flipped = piece.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            here.open(Kind::Frame, None, &id, &mut flipped),
            Err(pieces::Broken)
        );
    }
    for length in 0..piece.len() {
        let mut cut = piece[..length].to_vec();
        assert_eq!(
            here.open(Kind::Frame, None, &id, &mut cut),
            Err(pieces::Broken)
        );
    }
}

#[test]
fn the_same_piece_has_the_same_bytes_and_no_two_share_a_key_stream() {
    let of = "acme/ada@131";
    let (one, other) = ([0x11; 64], [0x22; 64]);
    let all = [
        closed(of, Kind::Frame, &one),
        closed(of, Kind::Frame, &other),
        closed(of, Kind::Index, &one),
        closed("acme/eve@131", Kind::Frame, &one),
    ];
    let plain = [one, other, one, one];

    assert_eq!(closed(of, Kind::Frame, &one), all[0]);
    let stream = |at: usize| {
        let bytes = all[at].1.iter().zip(&plain[at]);
        bytes.map(|(a, b)| a ^ b).collect::<Vec<u8>>()
    };
    for a in 0..all.len() {
        for b in 0..a {
            assert_ne!(all[a].0, all[b].0, "ids of {a} and {b}");
            assert_ne!(stream(a), stream(b), "key streams of {a} and {b}");
        }
    }
}

#[test]
fn a_veiled_digest_is_the_same_only_for_the_same_tree_of_the_same_lineage() {
    let tree = |byte| TreeDigest::from_document([byte; 32]);
    let veiled = data_key("acme/ada@131").veil(&tree(1));
    let other_key = DataKey::from_random(&mut [0x43; KEY], lineage("acme/ada@131"));

    assert_eq!(data_key("acme/ada@131").veil(&tree(1)), veiled);
    assert_ne!(veiled, tree(1));
    assert_ne!(data_key("acme/ada@131").veil(&tree(2)), veiled);
    assert_ne!(data_key("acme/eve@131").veil(&tree(1)), veiled);
    assert_ne!(other_key.veil(&tree(1)), veiled);
}

/// Computed by another implementation from the words in `docs/formats.md`.
#[test]
fn keys_and_pieces_are_what_they_were() {
    let (id, piece) = closed("acme/ada@131", Kind::Frame, b"some bytes");
    let veiled = data_key("acme/ada@131").veil(&TreeDigest::from_document([1; 32]));

    assert_eq!(tenant_key().id().to_string(), "51ff5a10ab458f6e");
    assert_eq!(
        hex(document().key.bytes()),
        "d9465a1a94a8b7f52ed1a25ed87467f69fd7d32a86799063d2e2a7a5486f76a92b46864e24c6726e7b6b66026710063f"
    );
    assert_eq!(
        hex(id.as_bytes()),
        "cb06b0ca1f83bd328c959aaae8ea43ba72987cd7cff8001123e83e452d7b6332"
    );
    assert_eq!(
        hex(&piece),
        "6b9f89719c563bee06058c7a32da4330f6eb2ff275c46d18d1f8"
    );
    assert_eq!(
        veiled.to_string(),
        "07c262ab34f99ebe662bdec9b8e481a713078598320e32b6c219300a501560ef"
    );
}
