//! Copies of lineages, as they lie in a store.

use bytes::Bytes;
use stasis_model::digest::{ArchiveDigest, ManifestDigest};
use stasis_model::failure::ErrorKind;
use stasis_model::format::document;
use stasis_model::format::pointer::{Active, Pointer, PointerMark};
use stasis_model::id::{Epoch, Generation, Lineage, OpId};
use stasis_model::time::Timestamp;
use stasis_store::backend::file::FileBucket;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::Bucket;
use stasis_store::copying::copy;
use stasis_store::layout::{self, Key, Prefix};
use std::sync::Arc;

fn lineage() -> Lineage {
    "t/p@131".parse().unwrap()
}

fn key(name: &str) -> Key {
    Key::from_listing(&format!("snapshots/t/p/131/{name}")).unwrap()
}

fn large() -> Bytes {
    Bytes::from(vec![7; 20 << 20])
}

fn op_id(number: u8) -> OpId {
    OpId::from_random([number; 16])
}

/// A pointer to an archive that was written `generation` times, at last by an operation of that number.
fn latest(generation: u8, archive: Option<ArchiveDigest>) -> Pointer {
    let active = archive.map(|archive| Active {
        archive,
        manifest: ManifestDigest::of(b"{}"),
        archive_key: layout::archive(&lineage(), archive).to_string(),
        manifest_key: layout::manifest(&lineage(), archive).to_string(),
    });
    let now = Timestamp::from_millis(1_800_000_000_000);
    let mut pointer = Pointer::rebuilt(active, Epoch(1), op_id(generation), now);
    pointer.generation = Generation(generation.into());
    pointer
}

fn render(pointer: &Pointer) -> Bytes {
    document::render(pointer).into()
}

fn names(archive: &Bytes) -> (Key, Key) {
    let digest = ArchiveDigest::of(archive);
    (
        layout::archive(&lineage(), digest),
        layout::manifest(&lineage(), digest),
    )
}

async fn add(bucket: &dyn Bucket, archive: Bytes) {
    let (at, manifest) = names(&archive);
    bucket.put(&at, archive).await.unwrap();
    bucket.put(&manifest, "{}".into()).await.unwrap();
}

fn empty() -> Arc<dyn Bucket> {
    Arc::new(MemoryBucket::new())
}

/// A lineage with two snapshots, beside another one.
async fn source() -> Arc<dyn Bucket> {
    let bucket = empty();
    add(&*bucket, large()).await;
    add(&*bucket, "small".into()).await;
    let pointer = latest(1, Some(ArchiveDigest::of(&large())));
    bucket
        .put(&key("latest.json"), render(&pointer))
        .await
        .unwrap();
    bucket.put(&key("lock.json"), "{}".into()).await.unwrap();
    let other = Key::from_listing("snapshots/t/other/131/latest.json").unwrap();
    bucket.put(&other, "{}".into()).await.unwrap();
    bucket
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
    let back = empty();

    let copied = copy(&from, &directory, &lineage()).await.unwrap();
    copy(&directory, &back, &lineage()).await.unwrap();

    assert_eq!((copied.objects, copied.objects_there), (5, 0));
    assert_eq!((copied.manifests, copied.manifests_there), (2, 0));
    let mut wanted = everything(&*from).await;
    wanted.retain(|(key, _)| !key.ends_with("lock.json") && !key.contains("/other/"));
    assert_eq!(everything(&*back).await, wanted);
}

#[tokio::test]
async fn a_second_copy_takes_only_what_is_new() {
    let (from, to) = (source().await, empty());
    copy(&from, &to, &lineage()).await.unwrap();
    add(&*from, "new".into()).await;
    let mut pointer = latest(2, Some(ArchiveDigest::of(b"new")));
    pointer.recent.extend(latest(1, None).recent);
    from.put(&key("latest.json"), render(&pointer))
        .await
        .unwrap();

    let copied = copy(&from, &to, &lineage()).await.unwrap();

    assert_eq!((copied.objects, copied.manifests), (3, 1));
    assert_eq!((copied.objects_there, copied.manifests_there), (4, 2));
    let there = to.get(&key("latest.json"), 10_000).await.unwrap().unwrap();
    assert_eq!(there.body, render(&pointer));
}

#[tokio::test]
async fn an_archive_that_is_not_what_its_name_says_is_not_copied() {
    for (whole, wrong) in [(large(), 3), (Bytes::from("small"), 1)] {
        let (from, to) = (source().await, empty());
        let (archive, _) = names(&whole);
        let mut bytes = whole.to_vec();
        bytes[wrong] ^= 1;
        from.put(&archive, bytes.into()).await.unwrap();

        let refused = copy(&from, &to, &lineage()).await.unwrap_err();

        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        assert!(refused.to_string().contains(archive.as_str()), "{refused}");
        assert!(!to.exists(&archive).await.unwrap());
        assert!(!to.exists(&key("latest.json")).await.unwrap());
    }
}

#[tokio::test]
async fn a_pointer_that_cannot_be_read_is_not_copied() {
    let (from, to) = (source().await, empty());
    from.put(&key("latest.json"), "{}".into()).await.unwrap();

    let refused = copy(&from, &to, &lineage()).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    assert_eq!(everything(&*to).await, []);
}

/// Whether a pointer here takes the place of one there, in a target that has nothing else but what is named.
async fn is_replaced(here: &Pointer, there: &Pointer, besides: &[&str]) -> bool {
    let (from, to) = (source().await, empty());
    from.put(&key("latest.json"), render(here)).await.unwrap();
    to.put(&key("latest.json"), render(there)).await.unwrap();
    for name in besides {
        to.put(&key(name), "{}".into()).await.unwrap();
    }
    let copied = copy(&from, &to, &lineage()).await;
    let now = to.get(&key("latest.json"), 10_000).await.unwrap().unwrap();
    match &copied {
        Ok(_) => assert_eq!(now.body, render(here)),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
            assert_eq!(now.body, render(there));
            assert_eq!(everything(&*to).await.len(), 1 + besides.len());
        }
    }
    copied.is_ok()
}

#[tokio::test]
async fn a_pointer_is_replaced_only_by_one_that_went_on_from_it() {
    let known = Some(ArchiveDigest::of(&large()));
    let (early, late) = (latest(3, known), latest(40, known));
    let other = latest(3, Some(ArchiveDigest::of(b"only there")));
    let mut pinned = latest(3, known);
    pinned.pins.push(PointerMark {
        sha256: ArchiveDigest::of(b"small"),
        at_ms: Timestamp::from_millis(1),
    });
    let mut ahead = latest(3, known);
    ahead.fence.epoch = Epoch(99);

    assert!(is_replaced(&late, &early, &[]).await);
    assert!(is_replaced(&late, &latest(3, None), &[]).await);
    assert!(!is_replaced(&early, &late, &[]).await, "it is newer");
    assert!(!is_replaced(&late, &other, &[]).await, "it leads elsewhere");
    assert!(!is_replaced(&late, &pinned, &[]).await, "a pin would go");
    assert!(!is_replaced(&late, &ahead, &[]).await, "its fence is ahead");
    assert!(
        !is_replaced(&late, &early, &["lock.json"]).await,
        "somebody worked there"
    );
    let mut remembering = late.clone();
    remembering.recent.extend(early.recent.clone());
    assert!(is_replaced(&remembering, &early, &["lock.json"]).await);
}
