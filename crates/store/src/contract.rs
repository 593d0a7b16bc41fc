//! The suite that every implementation of [`Bucket`] must pass.
//!
//! Each function is one promise of the port and panics when it is broken. They share nothing: each works in a scratch
//! space of its own and removes it at the end.

use crate::bucket::{Bucket, BucketErrorKind, ByteStream, Object, Swap};
use crate::layout::{Key, Prefix};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use stasis_model::document::Version;
use stasis_model::id::OpId;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// Runs the whole suite.
pub async fn all(bucket: &dyn Bucket) {
    a_missing_object_is_none(bucket).await;
    a_read_sees_what_was_written(bucket).await;
    a_get_over_its_limit_is_too_large(bucket).await;
    a_range_stops_at_the_end_of_the_object(bucket).await;
    a_second_create_is_lost_and_changes_nothing(bucket).await;
    only_one_of_racing_creates_wins(bucket).await;
    a_swap_that_won_returns_the_version_for_the_next(bucket).await;
    a_stale_swap_is_lost_and_changes_nothing(bucket).await;
    a_swap_of_a_missing_object_is_lost_and_creates_nothing(bucket).await;
    every_write_has_a_version_of_its_own(bucket).await;
    concurrent_increments_lose_nothing(bucket).await;
    a_delete_can_be_repeated_and_makes_room_for_a_create(bucket).await;
    a_listing_sees_every_write_in_byte_order(bucket).await;
    pages_of_a_listing_have_no_gaps(bucket).await;
    a_prefix_does_not_match_its_siblings(bucket).await;
    a_large_stream_arrives_unchanged(bucket).await;
    a_stream_that_breaks_stores_nothing(bucket).await;
}

/// A place of its own for one promise.
struct Scratch<'a> {
    bucket: &'a dyn Bucket,
    prefix: Prefix,
}

impl<'a> Scratch<'a> {
    fn on(bucket: &'a dyn Bucket) -> Self {
        let mut bytes = [0; 16];
        for half in bytes.chunks_mut(8) {
            // Every `RandomState` has keys of its own: enough to be alone in a store that others test too.
            half.copy_from_slice(&RandomState::new().hash_one(0).to_le_bytes());
        }
        let prefix = Prefix::probe_scratch(OpId::from_random(bytes));
        Self { bucket, prefix }
    }

    fn key(&self, name: &str) -> Key {
        Key::from_listing(&format!("{}{name}", self.prefix)).expect("names in this file are keys")
    }

    async fn object(&self, key: &Key) -> Object {
        let found = self
            .bucket
            .get(key, u64::MAX)
            .await
            .expect("a readable store");
        found.expect("an object that was written")
    }

    async fn created(&self, key: &Key, body: &'static str) -> Version {
        let swap = self.bucket.create(key, body.into()).await;
        won(swap.expect("a writable store"))
    }

    async fn names(&self, after: Option<&Key>, limit: usize) -> Vec<String> {
        let listed = self.bucket.list(&self.prefix, after, limit).await;
        let name = |key: &Key| key.as_str()[self.prefix.as_str().len()..].to_owned();
        let listed = listed.expect("a store that can be listed");
        listed.iter().map(|row| name(&row.key)).collect()
    }

    async fn remove(self) {
        let listed = self.bucket.list(&self.prefix, None, usize::MAX).await;
        for row in listed.expect("a store that can be listed") {
            let deleted = self.bucket.delete(&row.key).await;
            deleted.expect("an object that can be deleted");
        }
        assert!(self.names(None, usize::MAX).await.is_empty());
    }
}

fn won(swap: Swap) -> Version {
    match swap {
        Swap::Won(version) => version,
        other => panic!("a swap without rivals must win, not be {other:?}"),
    }
}

fn streamed(pieces: Vec<std::io::Result<Bytes>>) -> ByteStream {
    stream::iter(pieces).boxed()
}

/// A missing object is `None`, however one asks for it.
pub async fn a_missing_object_is_none(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
    let key = scratch.key("nothing/here");

    assert_eq!(bucket.get(&key, 10).await.expect("an answer"), None);
    assert_eq!(bucket.get_range(&key, 0..5).await.expect("an answer"), None);
    assert_eq!(bucket.get_range(&key, 3..3).await.expect("an answer"), None);
    assert_eq!(bucket.head(&key).await.expect("an answer"), None);
    assert!(scratch.names(None, 10).await.is_empty());
}

/// Reads see every write that was acknowledged before they began.
pub async fn a_read_sees_what_was_written(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
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
    let scratch = Scratch::on(bucket);
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
    let scratch = Scratch::on(bucket);
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

/// `create` never replaces.
pub async fn a_second_create_is_lost_and_changes_nothing(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
    let key = scratch.key("once");
    let version = scratch.created(&key, "first").await;

    let second = bucket
        .create(&key, "second".into())
        .await
        .expect("an answer");

    assert_eq!(second, Swap::Lost);
    let object = scratch.object(&key).await;
    assert_eq!((object.body, object.version), ("first".into(), version));
    scratch.remove().await;
}

/// Of several creates at once exactly one wins, and what it wrote stays.
pub async fn only_one_of_racing_creates_wins(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);

    for round in 0..3 {
        let key = scratch.key(&format!("race-{round}"));
        let racers = (0..8).map(|racer: u8| bucket.create(&key, vec![racer; 32].into()));
        let swaps = join_all(racers).await;

        let object = scratch.object(&key).await;
        let winner = usize::from(object.body[0]);
        for (racer, swap) in swaps.into_iter().enumerate() {
            match swap.expect("an answer") {
                Swap::Won(version) => {
                    assert_eq!((racer, version), (winner, object.version.clone()));
                }
                Swap::Lost => assert_ne!(racer, winner),
                Swap::Unknown => {}
            }
        }
    }
    scratch.remove().await;
}

/// The version a swap returns is the one the next swap must name.
pub async fn a_swap_that_won_returns_the_version_for_the_next(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
    let key = scratch.key("chain");
    let mut version = scratch.created(&key, "0").await;

    for round in 1..6 {
        let body = Bytes::from(round.to_string());
        let swap = bucket.swap(&key, &version, body.clone()).await;
        version = won(swap.expect("an answer"));

        let object = scratch.object(&key).await;
        assert_eq!((object.body, &object.version), (body, &version));
    }
    scratch.remove().await;
}

/// A swap that names an older version is lost, and the newer bytes stay.
pub async fn a_stale_swap_is_lost_and_changes_nothing(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
    let key = scratch.key("stale");
    let old = scratch.created(&key, "old").await;
    let new = bucket.swap(&key, &old, "new".into()).await;
    let new = won(new.expect("an answer"));

    let stale = bucket.swap(&key, &old, "late".into()).await;

    assert_eq!(stale.expect("an answer"), Swap::Lost);
    let object = scratch.object(&key).await;
    assert_eq!((object.body, object.version), ("new".into(), new));
    scratch.remove().await;
}

/// A swap never creates.
pub async fn a_swap_of_a_missing_object_is_lost_and_creates_nothing(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
    let (there, missing) = (scratch.key("there"), scratch.key("missing"));
    let version = scratch.created(&there, "x").await;

    let swap = bucket.swap(&missing, &version, "y".into()).await;

    assert_eq!(swap.expect("an answer"), Swap::Lost);
    assert_eq!(bucket.get(&missing, 9).await.expect("a get"), None);
    scratch.remove().await;
}

/// Different bytes have different versions, whichever way they were written.
pub async fn every_write_has_a_version_of_its_own(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
    let key = scratch.key("versions");
    let mut seen = HashSet::from([scratch.created(&key, "write 0").await]);

    for write in 1..8 {
        let body = Bytes::from(format!("write {write}"));
        let version = if write % 2 == 0 {
            bucket.put(&key, body).await.expect("a put");
            scratch.object(&key).await.version
        } else {
            let current = scratch.object(&key).await.version;
            won(bucket.swap(&key, &current, body).await.expect("an answer"))
        };
        assert!(seen.insert(version), "a version was used twice");
    }
    scratch.remove().await;
}

/// Eight writers that each add 25 by read and swap add 200.
pub async fn concurrent_increments_lose_nothing(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
    let key = scratch.key("counter");
    scratch.created(&key, "[0,0,0,0,0,0,0,0]").await;

    let writers = (0..8).map(|writer| increment(&scratch, &key, writer, 25));
    join_all(writers).await;

    let object = scratch.object(&key).await;
    assert_eq!(tally_in(&object), [25; 8]);
    scratch.remove().await;
}

/// Adds to one writer's place, which tells whether a lost answer was a lost write: nobody else adds to it.
async fn increment(scratch: &Scratch<'_>, key: &Key, writer: usize, times: u32) {
    let mut reached = 0;
    while reached < times {
        let object = scratch.object(key).await;
        let mut tally = tally_in(&object);
        assert!(tally[writer] >= reached, "an increment was lost");
        reached = tally[writer];
        if reached == times {
            return;
        }
        tally[writer] += 1;
        tokio::task::yield_now().await;
        let next = serde_json::to_vec(&tally).expect("numbers are JSON");
        let swap = scratch.bucket.swap(key, &object.version, next.into()).await;
        if let Swap::Won(_) = swap.expect("an answer") {
            reached += 1;
        }
    }
}

fn tally_in(object: &Object) -> [u32; 8] {
    serde_json::from_slice(&object.body).expect("a tally that we wrote")
}

/// Deleting twice is fine, and a deleted key can be created again.
pub async fn a_delete_can_be_repeated_and_makes_room_for_a_create(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
    let (key, sibling) = (scratch.key("deep/down/gone"), scratch.key("deep/stays"));
    let old = scratch.created(&key, "first").await;
    scratch.created(&sibling, "here").await;

    bucket.delete(&key).await.expect("a delete");
    bucket.delete(&key).await.expect("a delete of nothing");

    assert_eq!(bucket.get(&key, 9).await.expect("a get"), None);
    let late = bucket.swap(&key, &old, "late".into()).await;
    assert_eq!(late.expect("an answer"), Swap::Lost);
    scratch.created(&key, "second").await;
    assert_eq!(
        scratch.names(None, 9).await,
        ["deep/down/gone", "deep/stays"]
    );
    scratch.remove().await;
}

/// In byte order, which is not the order of a walk that goes into `a` before it looks at `a-b`.
const NAMES: [&str; 8] = [
    "a!z",
    "a-b",
    "a/b-c/d",
    "a/b/c.json",
    "a0",
    "b",
    "c/~",
    "é/x",
];

async fn with_names(scratch: &Scratch<'_>) {
    for name in NAMES.iter().rev() {
        let body = Bytes::from_static(name.as_bytes());
        let put = scratch.bucket.put(&scratch.key(name), body).await;
        put.expect("a put");
    }
}

/// A listing has every acknowledged write, with its size, in byte order.
pub async fn a_listing_sees_every_write_in_byte_order(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
    with_names(&scratch).await;

    assert_eq!(scratch.names(None, 100).await, NAMES);
    for row in bucket
        .list(&scratch.prefix, None, 100)
        .await
        .expect("a list")
    {
        let name = &row.key.as_str()[scratch.prefix.as_str().len()..];
        assert_eq!(row.size, name.len() as u64);
    }
    assert!(scratch.names(None, 0).await.is_empty());
    scratch.remove().await;
}

/// Pages of any size, each after the last key of the one before, are the whole listing once.
pub async fn pages_of_a_listing_have_no_gaps(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
    with_names(&scratch).await;

    for limit in [1, 2, 3, 5] {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = scratch.names(after.as_ref(), limit).await;
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = Some(scratch.key(last));
            all.extend(page);
        }
        assert_eq!(all, NAMES, "pages of {limit}");
    }
    let beyond = scratch.key("a/b/a");
    let rest = scratch.names(Some(&beyond), 2).await;
    assert_eq!(
        rest,
        ["a/b/c.json", "a0"],
        "after a key that does not exist"
    );
    scratch.remove().await;
}

/// A prefix is a directory, not a beginning of names.
pub async fn a_prefix_does_not_match_its_siblings(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
    let inside = scratch.key("inside");
    let stem = scratch.prefix.as_str().trim_end_matches('/');
    let sibling = |tail| Key::from_listing(&format!("{stem}{tail}")).expect("a key");
    let outside = [sibling("b"), sibling("-b/x"), sibling("0/inside")];
    for key in outside.iter().chain([&inside]) {
        bucket.put(key, "x".into()).await.expect("a put");
    }

    assert_eq!(scratch.names(None, 9).await, ["inside"]);
    for key in &outside {
        assert_eq!(scratch.object(key).await.body, "x");
        bucket.delete(key).await.expect("a delete");
    }
    scratch.remove().await;
}

/// What is streamed in uneven pieces is stored byte for byte, over whatever was there.
pub async fn a_large_stream_arrives_unchanged(bucket: &dyn Bucket) {
    let scratch = Scratch::on(bucket);
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
    let scratch = Scratch::on(bucket);
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
