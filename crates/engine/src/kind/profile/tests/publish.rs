//! Archive and manifest are stored, and then the pointer cannot be moved, or nobody knows whether it was.

use super::World;
use super::rigged::{Asked, Turn};
use crate::error::{Error, ErrorKind, LineageError};
use crate::kind::profile::capture::SaveOutcome;
use crate::kind::profile::run::{RunOutcome, outcome_of};
use stasis_model::id::OpId;
use stasis_model::protocol::operation::OperationFate;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than any lease, and than anybody waits for its holder to come back.
const LONG: Duration = Duration::from_hours(1);

/// Nothing gets through from the publish on; of the publish itself becomes `turn`.
fn outage_from_the_publish(turn: Turn) -> impl Fn(&Asked) -> Turn + Send + Sync + 'static {
    let is_out = AtomicBool::new(false);
    move |asked| {
        if is_out.load(Ordering::SeqCst) {
            return Turn::Fail;
        }
        let now = asked.publishes();
        is_out.store(now, Ordering::SeqCst);
        if now { turn } else { Turn::Work }
    }
}

fn op_id_of(error: &Error) -> OpId {
    match error {
        Error::Lineage(error) => match &**error {
            LineageError::Unknown(record) => record.op_id,
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_at_the_publish_is_upload_failed_the_pointer_stays_and_the_next_save_is_whole() {
    let world = World::new();
    let first = world.saved("first").await;
    world.change("second");
    world.bucket.decide(outage_from_the_publish(Turn::Fail));

    let failed = world.save().await.unwrap_err();

    assert_eq!(failed.kind(), ErrorKind::Unreachable, "{failed}");
    assert_eq!(outcome_of(&failed), RunOutcome::UploadFailed);
    assert_eq!(world.pointer().await.active_archive(), Some(first));
    assert_eq!(world.nothing_dangles().await, 2, "stored, and unpublished");
    world.bucket.mend();
    world.later(LONG);
    let again = world.save().await.unwrap();
    assert_eq!(again.outcome, SaveOutcome::Captured);
    assert_eq!(again.predecessor_sha256, Some(first));
    assert_eq!(world.pointer().await.active_archive(), Some(again.sha256));
    assert_eq!(world.nothing_dangles().await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_publish_that_is_lost_on_its_way_is_unknown_and_the_next_save_settles_it() {
    let world = World::new();
    let first = world.saved("first").await;
    world.change("second");
    world.bucket.decide(outage_from_the_publish(Turn::Vanish));

    let unknown = world.save().await.unwrap_err();

    assert_eq!(unknown.kind(), ErrorKind::Unknown, "{unknown}");
    assert_eq!(outcome_of(&unknown), RunOutcome::Unknown);
    assert_eq!(world.pointer().await.active_archive(), Some(first));
    world.bucket.mend();
    let op_id = op_id_of(&unknown);
    let fate = world
        .engine
        .operations()
        .show(op_id, false)
        .await
        .unwrap()
        .fate;
    assert_eq!(fate, OperationFate::Unknown, "it may yet arrive");
    world.later(LONG);
    let again = world.save().await.unwrap();
    assert_eq!(again.outcome, SaveOutcome::Captured);
    assert_eq!(again.predecessor_sha256, Some(first));
    assert_eq!(world.nothing_dangles().await, 2);
    let fate = world
        .engine
        .operations()
        .show(op_id, false)
        .await
        .unwrap()
        .fate;
    assert_eq!(fate, OperationFate::NotApplied);
}

#[tokio::test(start_paused = true)]
async fn a_publish_that_was_made_and_never_answered_is_unknown_until_somebody_can_look() {
    let world = World::new();
    world.saved("first").await;
    world.change("second");
    world
        .bucket
        .decide(outage_from_the_publish(Turn::ApplySilently));

    let unknown = world.save().await.unwrap_err();

    assert_eq!(outcome_of(&unknown), RunOutcome::Unknown, "{unknown}");
    world.bucket.mend();
    let fate = world
        .engine
        .operations()
        .show(op_id_of(&unknown), false)
        .await;
    assert_eq!(fate.unwrap().fate, OperationFate::Applied);
    assert_eq!(world.restored(&world.elsewhere()).await, "second");
    assert_eq!(world.nothing_dangles().await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_publish_whose_answer_alone_is_lost_is_a_captured_snapshot() {
    for turn in [Turn::ApplySilently, Turn::Vanish] {
        let world = World::new();
        let first = world.saved("first").await;
        world.change("second");
        let once = AtomicBool::new(true);
        world.bucket.decide(move |asked| {
            let is_it = asked.publishes() && once.swap(false, Ordering::SeqCst);
            if is_it { turn } else { Turn::Work }
        });

        let saved = world.save().await.unwrap();

        assert_eq!(saved.outcome, SaveOutcome::Captured, "{turn:?}");
        assert_eq!(saved.predecessor_sha256, Some(first));
        assert_eq!(world.pointer().await.active_archive(), Some(saved.sha256));
        assert_eq!(world.nothing_dangles().await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_taken_away_just_before_the_publish_is_lock_lost_and_nothing_moves() {
    let world = Arc::new(World::new());
    let first = world.saved("first").await;
    world.change("second");
    let (operator, once) = (world.clone(), AtomicBool::new(true));
    world.bucket.rig(move |asked| {
        let operator = operator.clone();
        let is_it = asked.publishes() && once.swap(false, Ordering::SeqCst);
        Box::pin(async move {
            if is_it {
                operator.unlock().await;
            }
            Turn::Work
        })
    });

    let lost = world.save().await.unwrap_err();

    world.bucket.mend();
    assert_eq!(lost.kind(), ErrorKind::Fenced, "{lost}");
    assert_eq!(outcome_of(&lost), RunOutcome::LockLost);
    assert_eq!(world.pointer().await.active_archive(), Some(first));
    assert_eq!(world.nothing_dangles().await, 2);
    let again = world.save().await.unwrap();
    assert_eq!(again.predecessor_sha256, Some(first));
    assert_eq!(world.pointer().await.active_archive(), Some(again.sha256));
}

#[tokio::test(start_paused = true)]
async fn a_publish_that_was_made_before_the_lease_was_taken_away_is_not_called_lost() {
    let world = Arc::new(World::new());
    world.saved("first").await;
    world.change("second");
    let (operator, applied) = (world.clone(), Arc::new(AtomicBool::new(false)));
    world.bucket.rig(move |asked| {
        let (operator, applied) = (operator.clone(), applied.clone());
        Box::pin(async move {
            if asked.publishes() {
                applied.store(true, Ordering::SeqCst);
                return Turn::ApplySilently;
            }
            // We ask what became of it, and an operator was faster.
            if asked.reads("latest.json") && applied.swap(false, Ordering::SeqCst) {
                operator.unlock().await;
            }
            Turn::Work
        })
    });

    let saved = world.save().await.unwrap();

    world.bucket.mend();
    assert_eq!(saved.outcome, SaveOutcome::Captured);
    assert_eq!(world.pointer().await.active_archive(), Some(saved.sha256));
    assert_eq!(world.nothing_dangles().await, 2);
}
