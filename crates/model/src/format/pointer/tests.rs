use super::*;
use crate::format::document::{self, BadDocument};
use serde_json::json;

fn seeded() -> Value {
    json!({
        "version": 1,
        "active_sha256_prefix": "ba7816bf8f01",
        "active_archive_key": "snapshots/acme/alice/131/profile-ba7816bf8f01.tar.zst",
        "active_manifest_key": "snapshots/acme/alice/131/profile-ba7816bf8f01.manifest.json",
        "flipped_at_ms": 1_733_456_515_000_u64,
        "flipped_from_sha256_prefix": "8d9e7f6a5b4c",
        "active_sha256": ArchiveDigest::of(b"abc"),
        "active_manifest_sha256": ManifestDigest::of(b"manifest"),
        "from_the_future": {"kept": true},
    })
}

fn parsed(value: &Value) -> Result<Pointer, BadDocument> {
    document::parse(value.to_string().as_bytes())
}

#[test]
fn fields_we_do_not_know_survive_a_rewrite() {
    let pointer = parsed(&seeded()).unwrap();

    let next = pointer.successor(
        OpId::default(),
        PointerAct::Acquire,
        None,
        Timestamp::from_millis(9),
    );
    let written: Value = serde_json::from_slice(&document::render(&next)).unwrap();

    assert_eq!(written["from_the_future"], json!({"kept": true}));
    assert_eq!(written["active_sha256_prefix"], "ba7816bf8f01");
    assert_eq!(written["flipped_from_sha256_prefix"], "8d9e7f6a5b4c");
    assert_eq!(written["generation"], 1);
}

#[test]
fn version_0_and_unknown_versions_are_refused() {
    for version in [json!(0), json!(2), json!(-1), json!("1"), json!(null)] {
        let mut value = seeded();
        value["version"] = version.clone();
        assert!(parsed(&value).is_err(), "{version}");
    }
}

#[test]
fn a_pointer_that_contradicts_itself_is_refused() {
    let changes = [
        ("active_sha256_prefix", json!("000000000000")),
        ("active_sha256_prefix", json!("")),
        ("active_sha256", json!("")),
        ("active_manifest_sha256", json!("zz")),
        ("active_archive_key", json!("")),
        ("generation", json!(-3)),
    ];
    for (name, wrong) in changes {
        let mut value = seeded();
        value[name] = wrong.clone();
        assert!(
            matches!(parsed(&value), Err(BadDocument::Invalid { .. })),
            "{name} {wrong}"
        );
    }
}

#[test]
fn damaged_documents_are_refused_before_they_cost_anything() {
    let good = document::render(&parsed(&seeded()).unwrap());
    let huge = vec![b' '; document::SIZE_LIMIT + 1];

    assert!(matches!(
        document::parse::<Pointer>(&huge),
        Err(BadDocument::TooLarge { .. })
    ));
    for end in 0..good.len() - 2 {
        assert!(
            document::parse::<Pointer>(&good[..end]).is_err(),
            "cut at {end}"
        );
    }
    let nested = "[".repeat(100_000);
    assert!(document::parse::<Pointer>(nested.as_bytes()).is_err());
}

#[test]
fn the_last_sixteen_writes_are_remembered_and_their_range_is_known() {
    let mut pointer = Pointer::empty();
    for n in 0..20_u8 {
        pointer = pointer.successor(
            OpId::from_random([n; 16]),
            PointerAct::Pin,
            None,
            Timestamp::default(),
        );
    }

    assert_eq!(pointer.recent.len(), RECENT_LIMIT);
    assert!(
        pointer.remembers(OpId::from_random([4; 16]))
            && !pointer.remembers(OpId::from_random([3; 16]))
    );
    assert!(pointer.covers(Generation(5)) && pointer.covers(Generation(20)));
    assert!(!pointer.covers(Generation(4)), "forgotten");
    assert!(!pointer.covers(Generation(21)), "not yet written");
}
