use super::*;
use crate::format::document::{BadDocument, parse, render};

const DOCUMENT: &str = r#"{
  "version": 1,
  "op_id": "01010101-0101-4101-8101-010101010101",
  "generation": 1,
  "algorithm": "hkdf-sha256+aes-256-gcm",
  "key_id": "00ff00ff00ff00ff",
  "nonce": "AgICAgICAgICAgIC",
  "wrapped": "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMD",
  "lineage": "acme/ada@131",
  "created_at_ms": 5
}
"#;

fn key(nonce: u8) -> WrappedKey {
    let id = "00ff00ff00ff00ff".parse().unwrap();
    WrappedKey::new(id, [nonce; NONCE], [3; WRAPPED])
}

fn document() -> KeyDocument {
    let lineage: Lineage = "acme/ada@131".parse().unwrap();
    let op_id = OpId::from_random([1; 16]);
    KeyDocument::first(lineage.into(), key(2), op_id, Timestamp::from_millis(5))
}

#[test]
fn the_document_is_spelled_as_documented_and_read_back() {
    let rendered = render(&document());

    assert_eq!(String::from_utf8(rendered).unwrap(), DOCUMENT);
    assert_eq!(
        parse::<KeyDocument>(DOCUMENT.as_bytes()).unwrap(),
        document()
    );
}

#[test]
fn a_rewrapped_document_is_one_write_later_and_keeps_what_it_does_not_know() {
    let text = DOCUMENT.replace("\"lineage\"", "\"note\": \"kept\",\n  \"lineage\"");
    let before: KeyDocument = parse(text.as_bytes()).unwrap();

    let after = before.rewrapped(key(9), OpId::from_random([7; 16]));

    assert_eq!(after.generation, Generation(2));
    assert_eq!(after.created_at, before.created_at);
    assert_eq!(after.key, key(9));
    assert!(String::from_utf8_lossy(&render(&after)).contains("\"kept\""));
}

#[test]
fn a_document_that_says_something_else_is_refused() {
    let edits = [
        ("hkdf-sha256+aes-256-gcm", "rot13"),
        ("00ff00ff00ff00ff", "00FF00FF00FF00FF"),
        ("00ff00ff00ff00ff", "+0ff00ff00ff00ff"),
        ("00ff00ff00ff00ff", "ff"),
        ("AgICAgICAgICAgIC", "AgICAgICAgICAgI"),
        ("AgICAgICAgICAgIC", "AgICAgICAgICAgICAg=="),
        ("AwMDAwMDAwMD", "AwMDAwMD"),
        ("acme/ada@131", "acme/../ada@131"),
        ("\"op_id\"", "\"other\""),
    ];
    for (from, to) in edits {
        let changed = DOCUMENT.replacen(from, to, 1);
        let refused = parse::<KeyDocument>(changed.as_bytes()).unwrap_err();
        assert!(matches!(refused, BadDocument::Invalid { .. }), "{to}");
    }
    for version in ["0", "2"] {
        let changed = DOCUMENT.replace("\"version\": 1", &format!("\"version\": {version}"));
        let refused = parse::<KeyDocument>(changed.as_bytes()).unwrap_err();
        assert!(matches!(refused, BadDocument::Version { .. }), "{version}");
    }
}

#[test]
fn the_key_of_a_pool_says_whose_it_is_and_no_owner_is_spelled_like_another() {
    for (pool, spelled) in [
        (PoolId::Tenant("acme".parse().unwrap()), "pools/acme"),
        (PoolId::State, "state"),
    ] {
        let text = DOCUMENT.replace(
            "\"lineage\": \"acme/ada@131\"",
            &format!("\"pool\": \"{spelled}\""),
        );
        let read: KeyDocument = parse(text.as_bytes()).unwrap();
        assert_eq!(read.owner, KeyOwner::Pool(pool));
        assert_eq!(read.owner.to_string(), spelled);
        assert_eq!(String::from_utf8(render(&read)).unwrap(), text);
    }
    for none in ["", "acme", "pools/", "pools/a/b", "pools/..", "State"] {
        assert!(PoolId::try_from(none.to_owned()).is_err(), "{none}");
    }
    let neither = DOCUMENT.replace("\"lineage\"", "\"nobody\"");
    assert!(parse::<KeyDocument>(neither.as_bytes()).is_err());
}
