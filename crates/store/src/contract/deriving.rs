//! What an object promises that is made of parts of another one.

use super::ContractScratch;
use crate::bucket::{Bucket, ByteStream, CopySource, DerivedObject};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use stasis_model::shared_range::{SharedRange, SharedRanges};
use std::ops::Range;

const MIB: usize = 1 << 20;

/// Two versions of one file, and what they share.
#[derive(Clone, Debug)]
pub struct TwoVersions {
    /// The one that is stored.
    pub older: Bytes,
    /// The one that is to be.
    pub newer: Bytes,
    /// What they share.
    pub ranges: SharedRanges,
}

impl TwoVersions {
    /// Files of `size` MiB. In the newer one 200 KiB at its half are others and 3 KiB longer, and so is its end.
    pub fn new(size: usize) -> Self {
        let noise = |seed: u32, length: usize| -> Vec<u8> {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_le_bytes()[3]
            };
            (0..length).map(|_| next()).collect()
        };
        let older = noise(1, size * MIB);
        let (half, kept_end) = (size * MIB / 2, size * MIB - 50_000);
        let behind = half + 200 * 1024;
        let changed = noise(2, 203 * 1024);
        let end = noise(3, 60_000);
        let newer = [&older[..half], &changed, &older[behind..kept_end], &end].concat();
        let at = half + changed.len();
        let range = |at: usize, from: usize, length: usize| SharedRange {
            at: at as u64,
            from: from as u64,
            length: length as u64,
        };
        let ranges = [range(0, 0, half), range(at, behind, kept_end - behind)];
        Self {
            older: older.into(),
            newer: newer.into(),
            ranges: ranges.into_iter().collect(),
        }
    }

    /// How the newer one is read.
    pub fn read(&self) -> impl Fn(Range<u64>) -> ByteStream + Send + Sync + '_ {
        |range| {
            let at = |offset: u64| usize::try_from(offset).expect("a small file");
            let part = self.newer.slice(at(range.start)..at(range.end));
            let pieces: Vec<_> = part
                .chunks(MIB)
                .map(|piece| Ok(part.slice_ref(piece)))
                .collect();
            stream::iter(pieces).boxed()
        }
    }

    /// Everything of the older one, to be stored.
    pub fn older_stream(&self) -> ByteStream {
        stream::iter([Ok(self.older.clone())]).boxed()
    }
}

/// What is copied from another object and what is sent become the bytes that were meant; a store that cannot copy says so
/// and stores nothing.
pub async fn an_object_made_of_parts_of_another_is_what_was_meant(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    let (older, newer) = (scratch.key("older"), scratch.key("newer"));
    let versions = TwoVersions::new(24);
    let stored = bucket.put_stream(&older, versions.older_stream()).await;
    stored.expect("a stored stream");
    let read = versions.read();
    let object = DerivedObject {
        size: versions.newer.len() as u64,
        read: &read,
        source: CopySource {
            key: &older,
            size: versions.older.len() as u64,
            ranges: &versions.ranges,
        },
    };

    let derived = bucket.put_derived(&newer, &object).await;

    match derived.expect("a store that answers") {
        Some(sent) => {
            assert!(sent < 6 << 20, "{sent} bytes were sent");
            let stored = scratch.object(&newer).await;
            assert!(stored.body == versions.newer, "the bytes differ");
        }
        None => assert_eq!(bucket.head(&newer).await.expect("a look"), None),
    }
    let kept = scratch.object(&older).await;
    assert!(kept.body == versions.older, "the source was changed");
    scratch.remove().await;
}

/// Nothing is made of a source that is missing, has another size, or other bytes than it should have.
pub async fn nothing_is_made_of_a_source_that_is_another(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
    let (older, newer) = (scratch.key("older"), scratch.key("newer"));
    let versions = TwoVersions::new(24);
    let mut rotten = versions.older.to_vec();
    rotten[3 * MIB] ^= 1;
    let longer = [&versions.older[..], b"x"].concat();
    let read = versions.read();
    let object = DerivedObject {
        size: versions.newer.len() as u64,
        read: &read,
        source: CopySource {
            key: &older,
            size: versions.older.len() as u64,
            ranges: &versions.ranges,
        },
    };

    for there in [None, Some(longer), Some(rotten)] {
        if let Some(there) = there {
            let there = stream::iter([Ok(Bytes::from(there))]).boxed();
            let stored = bucket.put_stream(&older, there).await;
            stored.expect("a stored stream");
        }
        let derived = bucket.put_derived(&newer, &object).await;
        assert_eq!(derived.expect("a store that answers"), None);
        assert_eq!(bucket.head(&newer).await.expect("a look"), None);
    }
    scratch.remove().await;
}
