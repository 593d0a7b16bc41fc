//! What a stream promises.

use super::ContractScratch;
use crate::bucket::{Bucket, ByteStream};
use bytes::Bytes;
use futures_util::{StreamExt, stream};

fn streamed(pieces: Vec<std::io::Result<Bytes>>) -> ByteStream {
    stream::iter(pieces).boxed()
}

/// What is streamed in uneven pieces is stored byte for byte, over whatever was there.
pub async fn a_large_stream_arrives_unchanged(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    let key = scratch.key("large");
    let size = 20 * 1024 * 1024 + 7;
    let whole: Bytes = (0..size)
        .map(|i: u32| i.wrapping_mul(i).to_le_bytes()[1])
        .collect();
    bucket.put(&key, "old".into()).await.expect("a put");

    let pieces = whole
        .chunks(1_234_567)
        .map(|piece| Ok(whole.slice_ref(piece)));
    let stored = bucket.put_stream(&key, streamed(pieces.collect())).await;

    assert_eq!(stored.expect("a stored stream"), u64::from(size));
    assert!(scratch.object(&key).await.body == whole, "the bytes differ");
    let tail = bucket
        .get_range(&key, u64::from(size) - 5..u64::from(size) + 5)
        .await;
    assert_eq!(
        tail.expect("a range").expect("an object"),
        whole[whole.len() - 5..]
    );
    for (name, small) in [("small", "a few bytes"), ("none", "")] {
        let key = scratch.key(name);
        let stored = bucket
            .put_stream(&key, streamed(vec![Ok(small.into())]))
            .await;
        assert_eq!(stored.expect("a stored stream"), small.len() as u64);
        assert_eq!(scratch.object(&key).await.body, small);
    }
    scratch.remove().await;
}

/// A stream that ends in an error leaves what was there.
pub async fn a_stream_that_breaks_stores_nothing(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    let (kept, new) = (scratch.key("kept"), scratch.key("new"));
    bucket.put(&kept, "old".into()).await.expect("a put");

    for key in [&kept, &new] {
        let pieces = vec![
            Ok(Bytes::from(vec![7; 9 * 1024 * 1024])),
            Err(std::io::Error::other("the disk went away")),
        ];
        let failed = bucket.put_stream(key, streamed(pieces)).await;
        assert!(failed.is_err());
    }

    assert_eq!(scratch.object(&kept).await.body, "old");
    assert_eq!(bucket.get(&new, 9).await.expect("a get"), None);
    scratch.remove().await;
}
