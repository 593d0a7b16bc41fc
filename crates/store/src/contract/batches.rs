//! Promises about objects that become durable together.

use super::ContractScratch;
use crate::bucket::Bucket;
use stasis_model::id::OpId;

/// Every object of a committed batch can be read, whether its name was there or not.
pub async fn a_batch_is_there_once_it_is_committed(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    let keys: Vec<_> = (0..40)
        .map(|number| scratch.key(&format!("{}/object-{number}", number % 7)))
        .collect();
    scratch.created(&keys[3], "the same bytes").await;
    let batch = OpId::from_random([7; 16]);

    for key in &keys {
        let staged = bucket.stage(batch, key, "the same bytes".into()).await;
        staged.expect("a writable store");
    }
    bucket.commit(batch).await.expect("a writable store");

    for key in &keys {
        assert_eq!(&scratch.object(key).await.body[..], b"the same bytes");
        assert!(bucket.exists(key).await.expect("a readable store"));
    }
    let missing = scratch.key("0/missing");
    assert!(!bucket.exists(&missing).await.expect("a readable store"));
    bucket
        .commit(batch)
        .await
        .expect("nothing is left to commit");
    scratch.remove().await;
}

/// What was abandoned may be there or not; what was there before stays readable, and the batch can begin anew.
pub async fn a_batch_that_was_abandoned_disturbs_nothing(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    let (old, new) = (scratch.key("old"), scratch.key("new"));
    scratch.created(&old, "bytes").await;
    let batch = OpId::from_random([9; 16]);

    let staged = bucket.stage(batch, &new, "bytes".into()).await;
    staged.expect("a writable store");
    bucket.abandon(batch).await;

    assert_eq!(&scratch.object(&old).await.body[..], b"bytes");
    let staged = bucket.stage(batch, &new, "bytes".into()).await;
    staged.expect("a writable store");
    bucket.commit(batch).await.expect("a writable store");
    assert_eq!(&scratch.object(&new).await.body[..], b"bytes");
    scratch.remove().await;
}
