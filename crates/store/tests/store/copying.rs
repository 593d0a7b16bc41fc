//! Copies of whole stores.

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

fn index(generation: u64, op_id: &str, recent: &[&str]) -> Bytes {
    let value = serde_json::json!({ "generation": generation, "op_id": op_id, "recent": recent });
    value.to_string().into()
}

async fn source() -> Arc<dyn Bucket> {
    let bucket = MemoryBucket::new();
    let large = Bytes::from(vec![7; 20 << 20]);
    bucket.put(&key("chunks/ab/large"), large).await.unwrap();
    bucket
        .put(&key("chunks/cd/small"), "small".into())
        .await
        .unwrap();
    bucket
        .put(&key("snapshots/one.json"), "{}".into())
        .await
        .unwrap();
    bucket
        .put(&key("index.json"), index(1, "a", &["a"]))
        .await
        .unwrap();
    bucket
        .put(&key("snapshots/t/p/131/lock.json"), "{}".into())
        .await
        .unwrap();
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
async fn a_store_is_copied_to_a_directory_and_back_without_its_leases() {
    let (from, scratch) = (source().await, tempfile::tempdir().unwrap());
    let directory: Arc<dyn Bucket> = Arc::new(
        FileBucket::open(scratch.path().join("store"))
            .await
            .unwrap(),
    );
    let back: Arc<dyn Bucket> = Arc::new(MemoryBucket::new());

    let copied = copy(&from, &directory).await.unwrap();
    copy(&directory, &back).await.unwrap();

    assert_eq!((copied.objects, copied.objects_there), (4, 0));
    let mut wanted = everything(&*from).await;
    wanted.retain(|(key, _)| !key.ends_with("lock.json"));
    assert_eq!(everything(&*back).await, wanted);
}

#[tokio::test]
async fn a_second_copy_takes_only_what_is_new() {
    let (from, to) = (
        source().await,
        Arc::new(MemoryBucket::new()) as Arc<dyn Bucket>,
    );
    copy(&from, &to).await.unwrap();
    from.put(&key("chunks/ef/new"), "new".into()).await.unwrap();
    from.put(&key("index.json"), index(2, "b", &["a", "b"]))
        .await
        .unwrap();

    let copied = copy(&from, &to).await.unwrap();

    assert_eq!((copied.objects, copied.objects_there), (2, 3));
    let there = to.get(&key("index.json"), 1000).await.unwrap().unwrap();
    assert_eq!(there.body, index(2, "b", &["a", "b"]));
}

#[tokio::test]
async fn a_target_that_went_its_own_way_is_not_touched() {
    let (from, to) = (
        source().await,
        Arc::new(MemoryBucket::new()) as Arc<dyn Bucket>,
    );
    let other = index(1, "x", &["x"]);
    assert!(matches!(
        to.create(&key("index.json"), other.clone()).await.unwrap(),
        Swap::Won(_)
    ));

    let refused = copy(&from, &to).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Diverged, "{refused}");
    assert_eq!(everything(&*to).await, [("index.json".to_owned(), other)]);
}

fn repository(generation: u64, ids: &[&str]) -> Bytes {
    let snapshots: Vec<_> = ids
        .iter()
        .map(|id| serde_json::json!({ "id": id }))
        .collect();
    let value = serde_json::json!({ "generation": generation, "op_id": generation, "snapshots": snapshots, "recent": [] });
    value.to_string().into()
}

#[tokio::test]
async fn a_snapshot_that_only_the_target_has_is_never_dropped() {
    let (from, to) = (
        source().await,
        Arc::new(MemoryBucket::new()) as Arc<dyn Bucket>,
    );
    let precious = repository(3, &["one", "precious"]);
    to.put(&key("index.json"), precious.clone()).await.unwrap();
    from.put(&key("index.json"), repository(40, &["one", "two"]))
        .await
        .unwrap();

    let refused = copy(&from, &to).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Diverged, "{refused}");
    assert_eq!(
        everything(&*to).await,
        [("index.json".to_owned(), precious)]
    );

    from.put(
        &key("index.json"),
        repository(41, &["one", "precious", "two"]),
    )
    .await
    .unwrap();
    copy(&from, &to).await.unwrap();
}
