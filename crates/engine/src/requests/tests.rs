//! Requests with one key that race, whose doers die or are only stopped, and whose store answers late.

use super::*;
use crate::open::{Engine, LocalDirs, StoreLocation};
use crate::rigged::{Rigged, Turn};
use crate::system::SystemRng;
use serde_json::json;
use stasis_model::digest::RequestDigest;
use stasis_model::format::request::{KEPT, RENEWED_WITHIN};
use stasis_model::time::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Goes on when it is told to.
#[derive(Debug, Default)]
struct TestClock(AtomicU64);

impl TestClock {
    fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + self.0.load(Ordering::Relaxed))
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Two servers of one store.
struct World {
    bucket: Arc<Rigged>,
    clock: Arc<TestClock>,
    one: Engine,
    other: Engine,
}

impl World {
    fn new() -> Self {
        let (bucket, clock) = (Arc::new(Rigged::default()), Arc::new(TestClock::default()));
        let server = || {
            let nowhere = LocalDirs {
                cache: None,
                state: None,
            };
            let rng = Arc::new(SystemRng);
            Engine::over(
                bucket.clone(),
                StoreLocation::Memory,
                nowhere,
                clock.clone(),
                rng,
            )
        };
        Self {
            one: server(),
            other: server(),
            bucket,
            clock,
        }
    }

    async fn shown(&self, id: RequestId) -> RequestRow {
        let shown = self.other.requests().show(&acme(), id).await.unwrap();
        shown.unwrap()
    }
}

fn acme() -> TenantId {
    "acme".parse().unwrap()
}

fn key(text: &str) -> IdempotencyKey {
    text.parse().unwrap()
}

fn made(what: &str) -> RequestMade {
    RequestMade {
        tenant: acme(),
        route: "rollback".parse().unwrap(),
        scope: TokenScope::Write,
        by: "token:1".parse().unwrap(),
        request_sha256: RequestDigest::of(what.as_bytes()),
    }
}

fn done(answer: Value) -> RequestEnd {
    RequestEnd::Done {
        answer: Some(answer),
        generation: Some(Generation(7)),
    }
}

/// The one that is to be done, which it must be.
fn new(begun: BegunRequest) -> RunningRequest {
    match begun {
        BegunRequest::New(running, _) => running,
        other => panic!("{other:?}"),
    }
}

fn before(begun: BegunRequest) -> RequestRow {
    match begun {
        BegunRequest::Before(row) => *row,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn of_two_that_race_with_one_key_one_is_done_and_both_get_its_answer() {
    for round in 0..50 {
        let world = World::new();
        let counted = AtomicUsize::new(0);
        let ask = async |engine: &Engine| {
            let key = key("k");
            let begun = engine.requests().begin(Some(&key), made("a"));
            match begun.await.unwrap() {
                BegunRequest::New(running, _) => {
                    tokio::task::yield_now().await;
                    let number = counted.fetch_add(1, Ordering::Relaxed);
                    let end = done(json!({ "number": number }));
                    engine
                        .requests()
                        .end(&running, end, Reached::default())
                        .await
                        .unwrap();
                    running.id
                }
                begun => before(begun).operation_id,
            }
        };

        let (a, b) = tokio::join!(ask(&world.one), ask(&world.other));

        assert_eq!((a, counted.into_inner()), (b, 1), "round {round}");
        let row = world.shown(a).await;
        assert_eq!(row.state, RequestState::Done);
        assert_eq!(row.answer, Some(json!({ "number": 0 })));
        assert_eq!(row.generation, Some(Generation(7)));
    }
}

#[tokio::test]
async fn another_request_with_the_same_key_is_told_and_another_tenants_is_its_own() {
    let world = World::new();
    let begin = async |made: RequestMade| {
        let begun = world.one.requests().begin(Some(&key("k")), made).await;
        begun.unwrap()
    };
    let first = new(begin(made("a")).await);

    assert!(matches!(begin(made("b")).await, BegunRequest::Other));
    let elsewhere = RequestMade {
        tenant: "other".parse().unwrap(),
        ..made("b")
    };
    let other = new(begin(elsewhere).await);
    assert_ne!(first.id, other.id);
    let nobody = world.one.requests().show(&acme(), other.id).await;
    assert_eq!(nobody.unwrap(), None);
}

#[tokio::test]
async fn a_doer_that_dies_leaves_an_interrupted_request_that_nobody_does_again() {
    let world = World::new();
    let begun = world
        .one
        .requests()
        .begin(Some(&key("k")), made("a"))
        .await
        .unwrap();
    let running = new(begun);
    world.clock.advance(RENEWED_WITHIN);
    assert_eq!(world.shown(running.id).await.state, RequestState::Running);
    let reached = Reached {
        files: 3,
        ..Reached::default()
    };
    world.one.requests().renew(&running, reached).await.unwrap();
    world.clock.advance(RENEWED_WITHIN);
    let row = world.shown(running.id).await;
    assert_eq!((row.state, row.progress.files), (RequestState::Running, 3));

    world.clock.advance(Duration::from_millis(1));

    assert_eq!(
        world.shown(running.id).await.state,
        RequestState::Interrupted
    );
    let again = world
        .other
        .requests()
        .begin(Some(&key("k")), made("a"))
        .await;
    assert_eq!(before(again.unwrap()).state, RequestState::Interrupted);
    // It was only stopped: what it did is done.
    let end = done(json!({}));
    world
        .one
        .requests()
        .end(&running, end, Reached::default())
        .await
        .unwrap();
    assert_eq!(world.shown(running.id).await.state, RequestState::Done);
}

#[tokio::test]
async fn what_did_nothing_is_done_under_its_key_and_its_first_doer_has_no_say_any_more() {
    let world = World::new();
    let requests = world.one.requests();
    let begin = async || requests.begin(Some(&key("k")), made("a")).await.unwrap();
    let failed = |may_begin_again| RequestEnd::Failed {
        problem: json!({ "code": "retry" }),
        may_begin_again,
    };
    let first = new(begin().await);
    requests
        .end(&first, failed(true), Reached::default())
        .await
        .unwrap();

    let second = new(begin().await);

    assert_eq!(first.id, second.id);
    assert!(requests.renew(&first, Reached::default()).await.is_err());
    assert!(
        requests
            .end(&first, failed(false), Reached::default())
            .await
            .is_err()
    );
    assert_eq!(world.shown(first.id).await.state, RequestState::Running);
    requests
        .end(&second, failed(false), Reached::default())
        .await
        .unwrap();
    let row = before(begin().await);
    assert_eq!(row.state, RequestState::Failed);
    assert_eq!(row.problem, Some(json!({ "code": "retry" })));
}

#[tokio::test]
async fn an_answer_of_the_store_that_is_lost_makes_no_second_request() {
    let world = World::new();
    let left = Arc::new(AtomicUsize::new(1));
    let count = left.clone();
    world.bucket.decide(move |asked| {
        let is_first = asked.writes(".json")
            && count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                == Ok(1);
        if is_first {
            Turn::ApplySilently
        } else {
            Turn::Work
        }
    });

    let begun = world.one.requests().begin(Some(&key("k")), made("a")).await;

    let running = new(begun.unwrap());
    world.bucket.mend();
    assert_eq!(left.load(Ordering::Relaxed), 0);
    let again = world
        .other
        .requests()
        .begin(Some(&key("k")), made("a"))
        .await;
    assert_eq!(before(again.unwrap()).operation_id, running.id);
}

#[tokio::test]
async fn the_newest_are_listed_first_and_old_ones_are_swept_a_few_at_a_time() {
    let world = World::new();
    let requests = world.one.requests();
    let mut all = Vec::new();
    for number in 0..SWEPT + 6 {
        let begun = requests.begin(None, made("a")).await.unwrap();
        let running = new(begun);
        if number % 2 == 0 {
            requests
                .end(&running, done(json!({})), Reached::default())
                .await
                .unwrap();
        }
        all.insert(0, running.id);
        world.clock.advance(Duration::from_millis(1));
    }
    let listed = requests.list(&acme()).await.unwrap();
    let ids: Vec<RequestId> = listed.items.iter().map(|row| row.operation_id).collect();
    assert_eq!(ids, all);

    world.clock.advance(KEPT + RENEWED_WITHIN);
    let young = new(requests.begin(None, made("a")).await.unwrap());
    let first = requests.sweep(&acme(), None).await.unwrap();
    assert!(first.removed >= SWEPT - 1 && first.next.is_some());
    let second = requests.sweep(&acme(), first.next).await.unwrap();

    assert_eq!(first.removed + second.removed, all.len());
    assert_eq!(second.next, None);
    let left = requests.list(&acme()).await.unwrap().items;
    let left: Vec<RequestId> = left.iter().map(|row| row.operation_id).collect();
    assert_eq!(left, [young.id]);
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_kept_and_a_damaged_record_hides_no_other() {
    let world = World::new();
    let requests = world.one.requests();
    let running = new(requests.begin(None, made("a")).await.unwrap());
    let long = json!("x".repeat(stasis_model::format::request::LONGEST_ANSWER));
    requests
        .end(&running, done(long), Reached::default())
        .await
        .unwrap();
    let damaged = new(requests.begin(None, made("b")).await.unwrap());
    let place = stasis_store::layout::request(&acme(), damaged.id);
    world.one.bucket.put(&place, "{".into()).await.unwrap();

    let list = requests.list(&acme()).await.unwrap();

    assert_eq!(list.unreadable, [damaged.id]);
    assert_eq!(list.items[0].state, RequestState::Done);
    assert_eq!(list.items[0].answer, None);
}
