//! A line that many share, on a clock that the tests move.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::{Bucket, ByteStream, Swap};
use stasis_store::layout::{self, ChunkRoot, Key};
use stasis_store::paced::{Bandwidth, Paced};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// A bucket at the end of a line of a thousand bytes a second.
fn paced() -> Paced<MemoryBucket> {
    let line = Bandwidth::new(NonZeroU64::new(1_000).unwrap());
    Paced::new(MemoryBucket::new(), Arc::new(line))
}

fn content(number: usize) -> Key {
    let chunks = ChunkRoot::pool(&"acme".parse().unwrap()).pool_prefix();
    let key = Key::from_listing(&format!("{chunks}chunks/{number}")).unwrap();
    assert_eq!(layout::role(&key), layout::Role::Content);
    key
}

fn bytes(length: usize) -> Bytes {
    vec![7; length].into()
}

/// How long something takes, in tenths of a second.
async fn tenths<T>(work: impl Future<Output = T>) -> u128 {
    let began = Instant::now();
    work.await;
    (began.elapsed().as_millis() + 50) / 100
}

#[tokio::test(start_paused = true)]
async fn content_that_is_written_is_no_more_than_the_line_has() {
    let bucket = paced();

    let took = tenths(async {
        for number in 0..10 {
            bucket.put(&content(number), bytes(500)).await.unwrap();
        }
    });

    // Five thousand bytes, of which a thousand were saved up.
    assert_eq!(took.await, 40);
    // Another second, and half of what it saved up is used by one more.
    sleep(SECOND).await;
    assert_eq!(tenths(bucket.put(&content(10), bytes(500))).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_was_idle_for_long_has_saved_up_one_second_and_no_more() {
    let bucket = paced();
    bucket.put(&content(0), bytes(10)).await.unwrap();
    sleep(SECOND * 3600).await;

    assert_eq!(tenths(bucket.put(&content(0), bytes(3_000))).await, 20);
}

#[tokio::test(start_paused = true)]
async fn content_that_is_read_staged_or_streamed_takes_its_turn_as_well() {
    let bucket = paced();
    bucket.put(&content(0), bytes(1_000)).await.unwrap();
    let batch = stasis_model::id::OpId::from_random([1; 16]);

    assert_eq!(tenths(bucket.get(&content(0), 9_999)).await, 10);
    assert_eq!(tenths(bucket.get_range(&content(0), 0..400)).await, 4);
    assert_eq!(
        tenths(bucket.stage(batch, &content(1), bytes(300))).await,
        3
    );
    let pieces = stream::iter([Ok(bytes(700)), Ok(bytes(800))]);
    let pieces: ByteStream = pieces.boxed();
    assert_eq!(tenths(bucket.put_stream(&content(2), pieces)).await, 15);
    assert_eq!(tenths(bucket.create(&content(3), bytes(200))).await, 2);
    let stored = bucket.get(&content(2), 9_999).await.unwrap().unwrap();
    assert_eq!(stored.body.len(), 1_500);
}

#[tokio::test(start_paused = true)]
async fn documents_never_wait_and_content_waits_for_them() {
    let bucket = paced();
    let document = layout::policy(&"acme".parse().unwrap());
    bucket.put(&content(0), bytes(1_000)).await.unwrap();
    // A queue of ten seconds.
    let (first, second) = (content(1), content(2));
    let mut queue = Box::pin(bucket.put(&first, bytes(10_000)));
    tokio::select! {
        biased;
        _ = &mut queue => panic!("nobody waited"),
        () = sleep(Duration::ZERO) => {}
    }

    let create = tenths(async {
        let created = bucket.create(&document, bytes(2_000)).await.unwrap();
        let Swap::Won(version) = created else {
            panic!("nobody else writes here")
        };
        let swapped = bucket.swap(&document, &version, bytes(2_000)).await;
        assert!(matches!(swapped, Ok(Swap::Won(_))));
        let read = bucket.get(&document, 9_999).await.unwrap();
        assert_eq!(read.unwrap().body.len(), 2_000);
    });

    assert_eq!(create.await, 0);
    let after = tenths(bucket.put(&second, bytes(1_000)));
    let (queued, after) = tokio::join!(tenths(queue), after);
    assert_eq!((queued, after), (100, 170));
}

#[tokio::test(start_paused = true)]
async fn all_who_share_a_line_share_what_it_has() {
    let line = Arc::new(Bandwidth::new(NonZeroU64::new(1_000).unwrap()));
    let (one, two) = (
        Paced::new(MemoryBucket::new(), line.clone()),
        Paced::new(MemoryBucket::new(), line),
    );
    let fill = async |bucket: &Paced<MemoryBucket>| {
        for number in 0..5 {
            bucket.put(&content(number), bytes(1_000)).await.unwrap();
        }
    };

    let took = tenths(async { tokio::join!(fill(&one), fill(&two)) });

    assert_eq!(took.await, 90);
}
