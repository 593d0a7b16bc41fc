//! What a read promises.

use super::ContractScratch;
use crate::bucket::{Bucket, BucketErrorKind};
use bytes::Bytes;

/// A missing object is `None`, however one asks for it.
pub async fn a_missing_object_is_none(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    let key = scratch.key("nothing/here");

    assert_eq!(bucket.get(&key, 10).await.expect("an answer"), None);
    assert_eq!(bucket.get_range(&key, 0..5).await.expect("an answer"), None);
    assert_eq!(bucket.get_range(&key, 3..3).await.expect("an answer"), None);
    assert_eq!(bucket.head(&key).await.expect("an answer"), None);
    assert!(scratch.names(None, 10).await.is_empty());
}

/// Reads see every write that was acknowledged before they began.
pub async fn a_read_sees_what_was_written(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    let key = scratch.key("read");

    for round in 0..10 {
        let body = Bytes::from(format!("round {round}"));
        bucket.put(&key, body.clone()).await.expect("a put");

        let object = scratch.object(&key).await;
        assert_eq!(object.body, body);
        let head = bucket.head(&key).await.expect("a head").expect("an object");
        assert_eq!(
            (head.size, head.version),
            (body.len() as u64, object.version)
        );
    }
    let empty = scratch.key("empty");
    bucket.put(&empty, Bytes::new()).await.expect("a put");
    assert_eq!(scratch.object(&empty).await.body, Bytes::new());
    scratch.remove().await;
}

/// An object larger than the limit is an error, one as large as the limit is not.
pub async fn a_get_over_its_limit_is_too_large(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    let key = scratch.key("ten");
    bucket.put(&key, "0123456789".into()).await.expect("a put");

    let refused = bucket.get(&key, 9).await.expect_err("one byte too many");
    let whole = bucket.get(&key, 10).await.expect("a get");

    assert_eq!(refused.kind, BucketErrorKind::TooLarge);
    assert_eq!(whole.expect("an object").body, "0123456789");
    scratch.remove().await;
}

/// A range is cut at the end of the object, and is empty beyond it.
pub async fn a_range_stops_at_the_end_of_the_object(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    let (key, empty) = (scratch.key("ten"), scratch.key("empty"));
    bucket.put(&key, "0123456789".into()).await.expect("a put");
    bucket.put(&empty, Bytes::new()).await.expect("a put");

    for (range, part) in [
        (0..10, "0123456789"),
        (2..5, "234"),
        (8..99, "89"),
        (9..u64::from(u32::MAX), "9"),
        (10..12, ""),
        (50..60, ""),
        (4..4, ""),
    ] {
        let read = bucket.get_range(&key, range.clone()).await;
        let read = read.expect("a range").expect("an object");
        assert_eq!(read, part, "{range:?}");
    }
    let read = bucket.get_range(&empty, 0..5).await.expect("a range");
    assert_eq!(read, Some(Bytes::new()));
    scratch.remove().await;
}
