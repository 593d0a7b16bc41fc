use crate::scripted_bucket::ScriptedBucket;
use crate::support::{SeededChance, store_under_test};
use async_trait::async_trait;
use futures_util::TryStreamExt;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::memory::InMemory;
use object_store::{ListResult, ObjectMeta, ObjectStore};
use stasis_model::id::OpId;
use stasis_store::backend::file::FileBucket;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::backend::object_store::{Cloud, ObjectBucket, TransferSettings};
use stasis_store::bucket::{Bucket, BucketErrorKind, Listed, objects};
use stasis_store::contract;
use stasis_store::layout::{self, Prefix};
use stasis_store::paced::{Bandwidth, Paced};
use stasis_store::retry::{RetrySettings, Retrying};
use std::num::NonZeroU64;
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
    let rng = Arc::new(SeededChance::new(7));
    let settings = RetrySettings::default();

    contract::all(&Retrying::new(MemoryBucket::new(), rng, settings)).await;
}

#[tokio::test]
async fn a_paced_bucket_keeps_the_contract() {
    let line = Bandwidth::new(NonZeroU64::MAX);

    contract::all(&Paced::new(MemoryBucket::new(), Arc::new(line))).await;
}

#[tokio::test]
async fn a_shared_bucket_keeps_the_contract() {
    contract::all(&Arc::new(MemoryBucket::new())).await;
}

/// The library's memory store by the trait that it lacks: one page has everything.
#[derive(Debug)]
struct OnePage(Arc<InMemory>);

#[async_trait]
impl PaginatedListStore for OnePage {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        _options: PaginatedListOptions,
    ) -> object_store::Result<PaginatedListResult> {
        let mut objects: Vec<ObjectMeta> = self.0.list(None).try_collect().await?;
        objects.retain(|object| {
            object
                .location
                .as_ref()
                .starts_with(prefix.unwrap_or_default())
        });
        // No order that anybody may rely on.
        objects.reverse();
        Ok(PaginatedListResult {
            result: ListResult {
                common_prefixes: Vec::new(),
                objects,
                extensions: http::Extensions::new(),
            },
            page_token: None,
        })
    }
}

/// Another cloud is an adapter, and this is a whole one.
fn adapter_of_memory(prefix: &str) -> ObjectBucket {
    let store = Arc::new(InMemory::new());
    let cloud = Cloud {
        objects: store.clone(),
        uploads: store.clone(),
        copies: None,
        pages: Arc::new(OnePage(store)),
        prefix: prefix.to_owned(),
        label: "InMemory".to_owned(),
        witness: None,
    };
    ObjectBucket::new(cloud, TransferSettings::default())
}

#[tokio::test]
async fn a_store_of_the_library_that_is_not_s3_keeps_the_contract() {
    contract::all(&adapter_of_memory("")).await;
    contract::all(&adapter_of_memory("beneath/a/prefix")).await;
}

#[tokio::test]
async fn every_page_of_a_listing_is_read_once() {
    let bucket = ScriptedBucket::default();
    for number in 0..2500_u128 {
        let key = layout::operation(OpId::from_random(number.to_be_bytes()));
        bucket.put(&key, "x".into()).await.unwrap();
    }
    let prefix = Prefix::everything();

    let rows: Vec<Listed> = objects(&bucket, &prefix).try_collect().await.unwrap();

    assert_eq!(rows.len(), 2500);
    assert_eq!(bucket.listings(), 3);
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
    let bucket = bucket_at(&stasis_store::location::S3Location {
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
