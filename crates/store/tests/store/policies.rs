use crate::scripted_bucket::{ScriptedBucket, Turn};
use crate::support::SeededChance;
use Turn::{ApplySilently, Fail, Lose, Vanish, Work};
use stasis_model::failure::{ErrorKind, Failure};
use stasis_model::id::{OpId, TenantId};
use stasis_model::policy::tenant::TenantPolicy;
use stasis_model::rng::Rng;
use stasis_store::bucket::Bucket;
use stasis_store::documents::policies;
use stasis_store::layout;

fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

fn op_id() -> OpId {
    SeededChance::new(11).op_id()
}

/// Sets the grace to 90 seconds.
async fn set(bucket: &dyn Bucket) -> Result<TenantPolicy, Failure> {
    let settings = [("grace_s".to_owned(), "90".to_owned())];
    policies::set(bucket, &tenant(), &settings, op_id()).await
}

fn is_unknown(outcome: &Result<TenantPolicy, Failure>) -> bool {
    let ours = format!("`{}`", op_id());
    matches!(outcome, Err(failure) if failure.kind() == ErrorKind::Unknown && failure.to_string().contains(&ours))
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_answer_was_lost_is_found_by_reading() {
    let bucket = ScriptedBucket::with([], [ApplySilently]);

    let policy = set(&bucket).await.unwrap();

    assert_eq!((policy.grace_s, policy.generation.0), (90, 1));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_vanished_is_made_again() {
    let bucket = ScriptedBucket::with([], [Vanish, Lose]);

    assert_eq!(set(&bucket).await.unwrap().grace_s, 90);
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_answer_no_failure_says_that_nothing_was_changed() {
    let read_fails = ScriptedBucket::with([Work, Fail], [ApplySilently]);
    assert!(is_unknown(&set(&read_fails).await));
    let applied = policies::policy(&read_fails.inner, &tenant())
        .await
        .unwrap();
    assert_eq!(applied.grace_s, 90);

    let write_fails = ScriptedBucket::with([], [Vanish, Fail]);
    assert!(is_unknown(&set(&write_fails).await));

    let always_lost_afterwards = ScriptedBucket::with([], [Vanish, Lose, Lose, Lose, Lose]);
    assert!(is_unknown(&set(&always_lost_afterwards).await));

    let always_silent = ScriptedBucket::with([], [Vanish; 5]);
    assert!(is_unknown(&set(&always_silent).await));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_policy_after_a_lost_answer_leaves_it_unknown() {
    let bucket = ScriptedBucket::with([], [Vanish]);
    let key = layout::policy(&tenant());

    let spoil = async {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        bucket.put(&key, "{".into()).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(set(&bucket), spoil);

    assert!(is_unknown(&outcome), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_is_settled_too() {
    let bucket = ScriptedBucket::with([], [Lose, Lose, Lose, Lose, ApplySilently]);

    assert_eq!(set(&bucket).await.unwrap().grace_s, 90);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_always_comes_second_is_contended_and_not_applied() {
    let bucket = ScriptedBucket::with([], [Lose; 5]);

    let outcome = set(&bucket).await;

    let contended = outcome.unwrap_err();
    assert_eq!(contended.kind(), ErrorKind::Retry, "{contended}");
    let key = layout::policy(&tenant());
    assert_eq!(bucket.inner.head(&key).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn failures_before_any_doubt_mean_not_applied() {
    let unread = ScriptedBucket::with([Fail], []);
    let failed = set(&unread).await.unwrap_err();
    assert_eq!(failed.op(), "read the policy of tenant");
    assert_eq!(failed.kind(), ErrorKind::Unreachable);

    let unwritten = ScriptedBucket::with([], [Lose, Fail]);
    let failed = set(&unwritten).await.unwrap_err();
    assert_eq!(failed.op(), "write the policy of tenant");
    assert_eq!(failed.kind(), ErrorKind::Unreachable);
}
