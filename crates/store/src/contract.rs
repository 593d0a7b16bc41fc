//! The suite that every implementation of [`Bucket`] must pass.
//!
//! Each function is one promise of the port and panics when it is broken. They share nothing: each works in a scratch
//! space of its own and removes it at the end.

mod batches;
mod conditions;
mod deriving;
mod listing;
mod reading;
mod streaming;

pub use batches::*;
pub use conditions::*;
pub use deriving::*;
pub use listing::*;
pub use reading::*;
pub use streaming::*;

use crate::bucket::{Bucket, Object, Swap};
use crate::layout::{Key, Prefix};
use stasis_model::format::document::Version;
use stasis_model::id::OpId;
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
    a_beginning_of_names_lists_those_and_no_others(bucket).await;
    a_batch_is_there_once_it_is_committed(bucket).await;
    a_batch_that_was_abandoned_disturbs_nothing(bucket).await;
    a_large_stream_arrives_unchanged(bucket).await;
    a_stream_that_breaks_stores_nothing(bucket).await;
    an_object_made_of_parts_of_another_is_what_was_meant(bucket).await;
    nothing_is_made_of_a_source_that_is_another(bucket).await;
}

/// A place of its own for one promise.
struct ContractScratch<'a> {
    bucket: &'a dyn Bucket,
    prefix: Prefix,
}

impl<'a> ContractScratch<'a> {
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
