//! Rounds of a tally: what is counted, and what a round asks the store for.

use super::*;
use crate::open::{Engine, LocalDirs};
use crate::rigged::Rigged;
use crate::system::SystemRng;
use stasis_model::id::OpId;
use stasis_model::rng::Rng;
use stasis_model::time::Clock;
use stasis_store::location::StoreLocation;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Noon.
const START: u64 = 1_800_014_400_000;

/// Goes on when a test says so.
#[derive(Debug)]
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

struct World {
    bucket: Arc<Rigged>,
    clock: Arc<SetClock>,
    engine: Engine,
}

impl World {
    fn new() -> Self {
        let bucket = Arc::new(Rigged::default());
        let clock = Arc::new(SetClock(AtomicU64::new(START)));
        let dirs = LocalDirs {
            cache: None,
            state: None,
        };
        let engine = Engine::over(
            bucket.clone(),
            StoreLocation::Memory,
            dirs,
            clock.clone(),
            Arc::new(SystemRng),
        );
        Self {
            bucket,
            clock,
            engine,
        }
    }

    fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.clock.0.fetch_add(by, Ordering::Relaxed);
    }

    fn tally(&self) -> EventTally {
        EventTally::new(self.clock.now())
    }

    async fn happens(&self, tenant: &str, kind: EventKind, at: Timestamp) {
        let id: OpId = SystemRng.op_id();
        let event = AuditEvent::new(id, kind, Severity::Warning, at, Label::nobody());
        let tenant = tenant.parse().unwrap();
        events::record(&*self.bucket, &tenant, &event)
            .await
            .unwrap();
    }

    async fn round(&self, tally: &mut EventTally) -> Vec<String> {
        self.bucket.requests();
        self.engine.events().tally(tally).await.unwrap();
        self.bucket.requests()
    }
}

fn count(tally: &EventTally, kind: EventKind) -> Option<u64> {
    tally.counts.get(&(kind, Severity::Warning)).copied()
}

#[tokio::test]
async fn events_since_the_start_are_counted_once_whoever_they_are_of() {
    let world = World::new();
    let (now, second) = (world.clock.now(), Duration::from_secs(1));
    world
        .happens("acme", EventKind::Rollback, now.minus(second))
        .await;
    world.happens("acme", EventKind::Rollback, now).await;
    world.happens("other", EventKind::Rollback, now).await;
    world.happens("acme", EventKind::LockLost, now).await;
    let mut tally = world.tally();

    world.round(&mut tally).await;
    world
        .happens("acme", EventKind::Rollback, now.plus(second))
        .await;
    let requests = world.round(&mut tally).await;

    assert!(tally.is_complete());
    assert_eq!(count(&tally, EventKind::Rollback), Some(3));
    assert_eq!(count(&tally, EventKind::LockLost), Some(1));
    assert_eq!(count(&tally, EventKind::Delete), None, "no zeros");
    // One listing for each tenant, and the one event that is new.
    assert_eq!(requests.len(), 3, "{requests:?}");
}

#[tokio::test]
async fn days_that_are_over_are_not_listed_and_midnight_loses_nothing() {
    let world = World::new();
    let day = Duration::from_hours(24);
    let mut tally = world.tally();
    world
        .happens("acme", EventKind::Rollback, world.clock.now())
        .await;
    world.round(&mut tally).await;

    world.advance(day);
    // A writer whose clock is behind.
    let late = world.clock.now().minus(Duration::from_hours(13));
    world.happens("acme", EventKind::Rollback, late).await;
    world
        .happens("acme", EventKind::Rollback, world.clock.now())
        .await;
    world.round(&mut tally).await;

    assert_eq!(count(&tally, EventKind::Rollback), Some(3));
    world.advance(day * 3);
    world.round(&mut tally).await;
    assert_eq!(tally.seen, BTreeSet::new(), "nothing is kept for ever");
    assert_eq!(count(&tally, EventKind::Rollback), Some(3));
}

#[tokio::test]
async fn a_round_asks_for_so_much_and_the_next_one_goes_on() {
    let world = World::new();
    let now = world.clock.now();
    let all = READS + READS / 2;
    for _ in 0..all {
        world.happens("acme", EventKind::LockReaped, now).await;
    }
    world.happens("zeta", EventKind::Rollback, now).await;
    let mut tally = world.tally();

    let first = world.round(&mut tally).await;
    assert!(first.len() <= READS + 8, "{}", first.len());
    assert!(!tally.is_complete());
    assert_eq!(count(&tally, EventKind::LockReaped), Some(READS as u64));
    world.round(&mut tally).await;

    assert!(tally.is_complete());
    assert_eq!(count(&tally, EventKind::LockReaped), Some(all as u64));
    assert_eq!(count(&tally, EventKind::Rollback), Some(1));
}

#[tokio::test]
async fn a_tenant_whose_first_event_comes_later_is_found() {
    let world = World::new();
    let now = world.clock.now();
    let mut tally = world.tally();
    world.round(&mut tally).await;
    world.happens("late", EventKind::Rollback, now).await;

    for _ in 0..DISCOVERY {
        world.round(&mut tally).await;
    }

    assert_eq!(count(&tally, EventKind::Rollback), Some(1));
}
