//! Copies of lineages, as they lie in a store.

use bytes::Bytes;
use stasis_model::failure::ErrorKind;
use stasis_store::backend::file::FileBucket;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::{Bucket, Swap};
use stasis_store::copying::copy;
use stasis_store::layout::{Key, Prefix};
use std::sync::Arc;

fn key(text: &str) -> Key {
    Key::from_listing(text).unwrap()
}

const LATEST: &str = "snapshots/t/p/131/latest.json";

fn prefix() -> Prefix {
    Prefix::lineage(&"t/p@131".parse().unwrap())
}

fn latest(generation: u64, op_id: &str, recent: &[&str]) -> Bytes {
    let recent: Vec<_> = recent
        .iter()
        .map(|op_id| serde_json::json!({ "op_id": op_id }))
        .collect();
    let value = serde_json::json!({ "generation": generation, "op_id": op_id, "recent": recent });
    value.to_string().into()
}

/// A pointer that remembers none of its writers.
fn old(generation: u64, active: &str, pins: &[&str]) -> Bytes {
    let value = serde_json::json!({
        "generation": generation,
        "op_id": generation.to_string(),
        "active_sha256": active,
        "fence": { "epoch": generation },
        "pins": pins,
        "recent": [],
    });
    value.to_string().into()
}

async fn source() -> Arc<dyn Bucket> {
    let bucket = MemoryBucket::new();
    let large = Bytes::from(vec![7; 20 << 20]);
    for (name, body) in [
        ("snapshots/t/p/131/profile-abcdefabcdef.tar.zst", large),
        (
            "snapshots/t/p/131/profile-012345012345.tar.zst",
            "small".into(),
        ),
        (
            "snapshots/t/p/131/profile-abcdefabcdef.manifest.json",
            "{}".into(),
        ),
        (LATEST, latest(1, "a", &["a"])),
        ("snapshots/t/p/131/lock.json", "{}".into()),
        ("snapshots/t/other/131/latest.json", "{}".into()),
    ] {
        bucket.put(&key(name), body).await.unwrap();
    }
    Arc::new(bucket)
}

async fn everything(bucket: &dyn Bucket) -> Vec<(String, Bytes)> {
    let mut all = Vec::new();
    for row in bucket
        .list(&Prefix::everything(), None, usize::MAX)
        .await
        .unwrap()
    {
        let object = bucket.get(&row.key, u64::MAX).await.unwrap().unwrap();
        all.push((row.key.to_string(), object.body));
    }
    all
}

#[tokio::test]
async fn a_lineage_is_copied_to_a_directory_and_back_without_its_leases() {
    let (from, scratch) = (source().await, tempfile::tempdir().unwrap());
    let directory: Arc<dyn Bucket> = Arc::new(
        FileBucket::open(scratch.path().join("store"))
            .await
            .unwrap(),
    );
    let back: Arc<dyn Bucket> = Arc::new(MemoryBucket::new());

    let copied = copy(&from, &directory, &prefix()).await.unwrap();
    copy(&directory, &back, &prefix()).await.unwrap();

    assert_eq!((copied.objects, copied.objects_there), (4, 0));
    let mut wanted = everything(&*from).await;
    wanted.retain(|(key, _)| !key.ends_with("lock.json") && !key.contains("/other/"));
    assert_eq!(everything(&*back).await, wanted);
}

#[tokio::test]
async fn a_second_copy_takes_only_what_is_new() {
    let (from, to) = (
        source().await,
        Arc::new(MemoryBucket::new()) as Arc<dyn Bucket>,
    );
    copy(&from, &to, &prefix()).await.unwrap();
    let new = key("snapshots/t/p/131/profile-999999999999.tar.zst");
    from.put(&new, "new".into()).await.unwrap();
    from.put(&key(LATEST), latest(2, "b", &["a", "b"]))
        .await
        .unwrap();

    let copied = copy(&from, &to, &prefix()).await.unwrap();

    assert_eq!((copied.objects, copied.objects_there), (2, 3));
    let there = to.get(&key(LATEST), 1000).await.unwrap().unwrap();
    assert_eq!(there.body, latest(2, "b", &["a", "b"]));
}

#[tokio::test]
async fn a_target_that_went_its_own_way_is_not_touched() {
    let (from, to) = (
        source().await,
        Arc::new(MemoryBucket::new()) as Arc<dyn Bucket>,
    );
    let other = latest(1, "x", &["x"]);
    assert!(matches!(
        to.create(&key(LATEST), other.clone()).await.unwrap(),
        Swap::Won(_)
    ));

    let refused = copy(&from, &to, &prefix()).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Diverged, "{refused}");
    assert_eq!(everything(&*to).await, [(LATEST.to_owned(), other)]);
}

#[tokio::test]
async fn a_pointer_that_was_copied_long_ago_is_replaced_only_by_one_that_knows_what_it_leads_to() {
    let (from, to) = (
        source().await,
        Arc::new(MemoryBucket::new()) as Arc<dyn Bucket>,
    );
    let active = "abcdefabcdef0000";
    let is_replaced = async |here: Bytes, there: Bytes| {
        from.put(&key(LATEST), here.clone()).await.unwrap();
        to.put(&key(LATEST), there.clone()).await.unwrap();
        let copied = copy(&from, &to, &prefix()).await;
        let now = to.get(&key(LATEST), 1000).await.unwrap().unwrap();
        assert_eq!(now.body, if copied.is_ok() { here } else { there });
        copied.is_ok()
    };

    assert!(is_replaced(old(40, active, &["x"]), old(3, active, &["x"])).await);
    assert!(is_replaced(old(40, active, &[]), old(3, "", &[])).await);
    assert!(!is_replaced(old(40, active, &[]), old(3, "fedcbafedcba0000", &[])).await);
    assert!(!is_replaced(old(40, active, &[]), old(3, active, &["own"])).await);
    assert!(!is_replaced(old(3, active, &[]), old(40, active, &[])).await);
}
