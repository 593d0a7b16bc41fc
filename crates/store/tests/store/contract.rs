use crate::support::{SeededChance, store_under_test};
use stasis_store::backend::file::FileBucket;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::{Bucket, BucketErrorKind};
use stasis_store::contract;
use stasis_store::layout::{self, Prefix};
use stasis_store::retry::{RetrySettings, Retrying};
use std::sync::Arc;

#[tokio::test]
async fn memory_keeps_the_contract() {
    contract::all(&MemoryBucket::new()).await;
}

#[tokio::test]
async fn a_directory_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("store");

    contract::all(&FileBucket::open(root).await.unwrap()).await;
}

#[tokio::test]
async fn a_retrying_bucket_keeps_the_contract() {
    let chance = Arc::new(SeededChance::new(7));
    let settings = RetrySettings::default();

    contract::all(&Retrying::new(MemoryBucket::new(), chance, settings)).await;
}

#[tokio::test]
async fn a_shared_bucket_keeps_the_contract() {
    contract::all(&Arc::new(MemoryBucket::new())).await;
}

#[tokio::test]
async fn an_s3_store_keeps_the_contract() {
    if let Some(bucket) = store_under_test("contract") {
        contract::all(&bucket).await;
    }
}

#[tokio::test]
async fn a_bucket_that_does_not_exist_is_absent_and_not_empty() {
    use crate::support::{bucket_at, location_under_test};
    let Some(location) = location_under_test("STASIS_TEST_S3", "an S3 server") else {
        return;
    };
    let bucket = bucket_at(stasis_store::location::S3Location {
        bucket: "no-such-bucket-anywhere".to_owned(),
        ..location
    });
    let key = layout::probe_result();

    let read = bucket.get(&key, 9).await.unwrap_err();
    let head = bucket.head(&key).await.unwrap_err();
    let listed = bucket.list(&Prefix::everything(), None, 9).await;

    assert_eq!(read.kind, BucketErrorKind::Absent, "{read:?}");
    assert_eq!(head.kind, BucketErrorKind::Absent, "{head:?}");
    assert_eq!(listed.unwrap_err().kind, BucketErrorKind::Absent);
}
