//! What a conditional write promises, and a delete to it.

use super::{ContractScratch, won};
use crate::bucket::{Bucket, Object, Swap};
use crate::layout::Key;
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::HashSet;

/// `create` never replaces.
pub async fn a_second_create_is_lost_and_changes_nothing(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
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
    let scratch = ContractScratch::on(bucket);

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
    let scratch = ContractScratch::on(bucket);
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
    let scratch = ContractScratch::on(bucket);
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
    let scratch = ContractScratch::on(bucket);
    let (there, missing) = (scratch.key("there"), scratch.key("missing"));
    let version = scratch.created(&there, "x").await;

    let swap = bucket.swap(&missing, &version, "y".into()).await;

    assert_eq!(swap.expect("an answer"), Swap::Lost);
    assert_eq!(bucket.get(&missing, 9).await.expect("a get"), None);
    scratch.remove().await;
}

/// Different bytes have different versions, whichever way they were written.
pub async fn every_write_has_a_version_of_its_own(bucket: &dyn Bucket) {
    let scratch = ContractScratch::on(bucket);
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
    let scratch = ContractScratch::on(bucket);
    let key = scratch.key("counter");
    scratch.created(&key, "[0,0,0,0,0,0,0,0]").await;

    let writers = (0..8).map(|writer| increment(&scratch, &key, writer, 25));
    join_all(writers).await;

    let object = scratch.object(&key).await;
    assert_eq!(tally_in(&object), [25; 8]);
    scratch.remove().await;
}

/// Adds to one writer's place, which tells whether a lost answer was a lost write: nobody else adds to it.
async fn increment(scratch: &ContractScratch<'_>, key: &Key, writer: usize, times: u32) {
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
    let scratch = ContractScratch::on(bucket);
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
