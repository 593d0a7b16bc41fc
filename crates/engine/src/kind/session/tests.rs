//! Sessions over a bucket that fails when it is told to, and what they ask of it.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make the directories that they save"
)]

use super::*;
use crate::open::{LocalDirs, StoreLocation};
use crate::rigged::{Rigged, Turn};
use crate::system::SystemRng;
use stasis_model::session::document::SessionState;
use stasis_model::time::Clock;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

/// A clock that stands still unless it is set forward.
#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Hand {
    fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.0.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + self.0.load(Ordering::Relaxed))
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

struct World {
    home: TempDir,
    bucket: Arc<Rigged>,
    clock: Arc<Hand>,
    engine: Engine,
    host: SessionHost,
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (bucket, clock) = (Arc::new(Rigged::default()), Arc::new(Hand::default()));
        let place = |name: &str| Some(home.path().join(name));
        let local_dirs = LocalDirs {
            cache: place("cache"),
            state: place("state"),
        };
        let engine = Engine::over(
            bucket.clone(),
            StoreLocation::Memory,
            local_dirs,
            clock.clone(),
            Arc::new(SystemRng),
        );
        let host = SessionHost {
            name: "one".parse().unwrap(),
            by: "one (process 1)".parse().unwrap(),
            state: place("state"),
            docker: stasis_quiesce::docker::Docker::default(),
        };
        Self {
            home,
            bucket,
            clock,
            engine,
            host,
        }
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.home.path().join("ws").join(name)
    }

    async fn register(&self, name: &str) -> SessionRef {
        let dir = self.dir(name);
        fs::create_dir_all(dir.join("outputs")).unwrap();
        write(&dir, "one");
        let session: SessionRef = format!("acme/{name}").parse().unwrap();
        let new = RegisterSession {
            session: session.clone(),
            dir,
            roots: None,
            sandbox: None,
            idle_timeout: Some(Duration::from_secs(10)),
        };
        self.engine
            .sessions()
            .register(&self.host, new)
            .await
            .unwrap();
        session
    }

    async fn state(&self, session: &SessionRef) -> SessionState {
        self.engine.sessions().read(session).await.unwrap().state
    }

    async fn reap(&self) -> Result<ReapedSessions, Error> {
        let command = ReapSessions::default();
        self.engine.sessions().reap(&self.host, &command).await
    }

    async fn snapshot(&self, session: &SessionRef) -> Result<SessionCaptured, Error> {
        let how = SnapshotSession::default();
        let sessions = self.engine.sessions();
        sessions.snapshot(&self.host, session, &how).await
    }

    /// The manifests that are there.
    async fn manifests(&self, session: &SessionRef) -> usize {
        let root = self.engine.sessions().of(session).dirs().root();
        root.manifest_ids().await.unwrap().len()
    }
}

fn write(dir: &Path, text: &str) {
    fs::write(dir.join("outputs/file"), text).unwrap();
}

/// A count that `scripts/full` asks for.
fn asked_for(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Either the heartbeat is heard and the sandbox stays, or it is refused and the session sleeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_heartbeat_and_a_reaper_that_race_exactly_one_wins() {
    let world = Arc::new(World::new());
    let session = world.register("42").await;
    let mut heard = 0;
    let rounds = asked_for("STASIS_HEARTBEATS").unwrap_or(200);
    for round in 0..rounds {
        world.clock.pass(Duration::from_secs(11));
        let (beats, beaten) = (world.clone(), session.clone());
        let beat = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(round % 50 * 200)).await;
            beats
                .engine
                .sessions()
                .heartbeat(&beats.host, &beaten)
                .await
                .is_ok()
        });
        let reaped = world.reap().await.unwrap();
        let was_heard = beat.await.unwrap();

        let sleeps = world.state(&session).await == SessionState::Sleeping;
        assert_ne!(was_heard, sleeps, "round {round}: {reaped:?}");
        heard += u64::from(was_heard);
        if sleeps {
            let wake = WakeSession::new(session.clone());
            let woken = Box::pin(world.engine.sessions().wake(&world.host, &wake)).await;
            assert_eq!(woken.unwrap().outcome, WakeOutcome::Restored);
        }
    }
    assert!(
        (1..rounds).contains(&heard),
        "only one side ever won: {heard}"
    );
}

#[tokio::test]
async fn a_snapshot_that_could_not_be_removed_goes_with_the_next_one() {
    let world = World::new();
    let session = world.register("42").await;
    let first = world.snapshot(&session).await.unwrap();
    write(&world.dir("42"), "two");
    let old = format!("{}.json", first.snapshot_id.unwrap());
    world.bucket.decide(move |asked| {
        if asked.writes(&old) {
            Turn::Fail
        } else {
            Turn::Work
        }
    });
    let _second = world.snapshot(&session).await.unwrap();
    assert_eq!(world.manifests(&session).await, 2);
    world.bucket.mend();

    write(&world.dir("42"), "three");
    let _third = world.snapshot(&session).await.unwrap();

    assert_eq!(world.manifests(&session).await, 1);
    let root = world.engine.sessions().of(&session).dirs().root();
    let index = root.index().await.unwrap().unwrap().value;
    assert!(index.tombstones.is_empty(), "{:?}", index.tombstones);
}

/// Whatever write is lost, or applied without an answer: there is a snapshot to wake from, and the next reap leaves one.
#[tokio::test]
async fn a_reap_whose_answers_are_lost_loses_nothing() {
    for turn in [Turn::Fail, Turn::ApplySilently, Turn::Vanish] {
        for at in 0..14 {
            let world = World::new();
            let session = world.register("42").await;
            let _first = world.snapshot(&session).await.unwrap();
            write(&world.dir("42"), "two");
            world.clock.pass(Duration::from_secs(11));
            let writes = AtomicU64::new(0);
            world.bucket.decide(move |asked| {
                let is_write = asked.writes("");
                let number = writes.fetch_add(u64::from(is_write), Ordering::Relaxed);
                if is_write && number == at {
                    turn
                } else {
                    Turn::Work
                }
            });

            let first = world.reap().await;
            world.bucket.mend();
            let context = format!("{turn:?} of write {at}: {first:?}");
            assert!(world.manifests(&session).await >= 1, "{context}");
            world.clock.pass(Duration::from_mins(3));
            let _ = world.reap().await.unwrap();
            assert_eq!(
                world.state(&session).await,
                SessionState::Sleeping,
                "{context}"
            );
            assert_eq!(world.manifests(&session).await, 1, "{context}");
            fs::remove_dir_all(world.dir("42")).unwrap();
            let wake = WakeSession::new(session.clone());
            let woken = Box::pin(world.engine.sessions().wake(&world.host, &wake))
                .await
                .unwrap();
            assert_eq!(woken.outcome, WakeOutcome::Restored, "{context}");
            let text = fs::read_to_string(world.dir("42").join("outputs/file")).unwrap();
            assert_eq!(text, "two", "{context}");
        }
    }
}

#[tokio::test]
async fn every_answer_about_a_session_may_be_lost() {
    let world = World::new();
    let session = world.register("42").await;
    world.clock.pass(Duration::from_secs(11));
    world.bucket.decide(|asked| {
        if asked.writes("session.json") || asked.writes("lock.json") {
            Turn::ApplySilently
        } else {
            Turn::Work
        }
    });

    let reaped = world.reap().await.unwrap();
    assert_eq!(
        reaped.items[0].slept.state,
        SleptState::Sleeping,
        "{reaped:?}"
    );
    fs::remove_dir_all(world.dir("42")).unwrap();
    let wake = WakeSession::new(session.clone());
    let woken = Box::pin(world.engine.sessions().wake(&world.host, &wake)).await;

    assert_eq!(woken.unwrap().outcome, WakeOutcome::Restored);
    assert_eq!(world.state(&session).await, SessionState::Running);
    world
        .engine
        .sessions()
        .heartbeat(&world.host, &session)
        .await
        .unwrap();
}

/// What a reap asks of the store for each of so many sessions that are idle and unchanged, and for each that sleeps.
async fn asked_for_each(count: usize) -> (f64, f64, u64) {
    let world = World::new();
    let mut all = Vec::new();
    for number in 0..count {
        let session = world.register(&format!("s{number}")).await;
        let _saved = world.snapshot(&session).await.unwrap();
        all.push(session);
    }
    let stored = world.engine.sessions();
    let bytes = async || {
        let everything = stasis_store::layout::Prefix::everything();
        let listed = stored
            .bucket
            .list(&everything, None, usize::MAX)
            .await
            .unwrap();
        let chunks = listed
            .iter()
            .filter(|row| row.key.as_str().contains("/chunks/"));
        chunks.map(|row| row.size).sum::<u64>()
    };
    let before = bytes().await;
    world.clock.pass(Duration::from_secs(11));
    world.bucket.requests();
    let _ = world.reap().await.unwrap();
    let idle = world.bucket.requests().len();
    let _ = world.reap().await.unwrap();
    let asleep = world.bucket.requests().len();
    for session in &all {
        assert_eq!(world.state(session).await, SessionState::Sleeping);
    }
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let each = |requests: usize| requests as f64 / count as f64;
    (each(idle), each(asleep), bytes().await - before)
}

#[tokio::test]
async fn what_a_session_costs_does_not_grow_with_their_number_and_unchanged_ones_store_nothing() {
    let most = asked_for("STASIS_SESSIONS").and_then(|most| usize::try_from(most).ok());
    let most = most.unwrap_or(200);
    let (few, asleep_few, stored_few) = asked_for_each(most / 20).await;
    let (many, asleep_many, stored_many) = asked_for_each(most).await;

    assert!(many <= few && many <= 18.0, "{few} {many}");
    assert!(
        asleep_many <= asleep_few && asleep_many <= 2.0,
        "{asleep_few} {asleep_many}"
    );
    assert_eq!((stored_few, stored_many), (0, 0));
}

#[tokio::test]
async fn a_session_of_a_tenant_that_may_have_no_more_is_saved_again_and_another_is_not() {
    let world = World::new();
    let (one, other) = (world.register("one").await, world.register("other").await);
    let settings = [("quotas.max_snapshots".to_owned(), "1".to_owned())];
    let (tenants, nobody) = (world.engine.tenants(), Label::nobody());
    let set = tenants.set_policy("acme".parse().unwrap(), &settings, &nobody);
    set.await.unwrap();
    let _ = world.snapshot(&one).await.unwrap();

    write(&world.dir("one"), "two");
    let again = world.snapshot(&one).await.unwrap();
    let refused = world.snapshot(&other).await.unwrap_err();

    assert!(!again.unchanged);
    assert_eq!(world.manifests(&one).await, 1);
    assert_eq!(refused.kind(), ErrorKind::Limit, "{refused:?}");
    assert_eq!(world.manifests(&other).await, 0);
}
