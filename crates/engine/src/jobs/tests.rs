//! Jobs on three hosts that share a store, on a clock that the tests move.

mod background;
mod containers;
mod given_up;
mod losses;
mod projects;
mod proofs;
mod reaping;
mod workspaces;

use super::background::WorkThreads;
use super::scheduler::RunningJobs;
use super::turn::{Ending, JobReport, JobRunner, JobTurn};
use super::{JobHost, JobPlan, JobRow, JobSettings, JobThreads, TurnOrder};
use crate::check::Spawn;
use crate::error::{Error, ErrorKind};
use crate::job_lease::JobLease;
use crate::kind::session::SessionHost;
use crate::open::{Engine, LocalDirs, StoreLocation};
use crate::rigged::{Asked, Rigged, Road, Turn};
use crate::system::SystemRng;
use bytes::Bytes;
use stasis_model::failure::Kinded as _;
use stasis_model::format::job::{JobLane, JobName, JobOutcome, JobRecord, JobRun};
use stasis_model::format::lease::{Holder, LockState};
use stasis_model::id::{Epoch, OpId};
use stasis_model::rng::Rng as _;
use stasis_model::time::{Clock, Timestamp};
use stasis_quiesce::docker::Docker;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::Bucket;
use stasis_store::documents::jobs;
use stasis_store::layout::Key;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

const EVERY: Duration = Duration::from_mins(5);
const TTL: Duration = Duration::from_mins(2);
const LIMIT: Duration = Duration::from_mins(30);
const LANE: JobLane = JobLane {
    name: JobName::LockReap,
    place: None,
};

/// The time of the tests' runtime, the same for all hosts.
#[derive(Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).plus(self.uptime())
    }

    fn uptime(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A store, and hosts on it.
struct World {
    home: TempDir,
    objects: Arc<MemoryBucket>,
    clock: Arc<TokioClock>,
}

/// One host.
struct Server {
    bucket: Arc<Rigged>,
    engine: Engine,
    host: JobHost,
    ending: watch::Sender<Ending>,
    /// Whether its processes stand still, as after SIGSTOP.
    stopped: watch::Sender<bool>,
}

impl World {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            objects: Arc::default(),
            clock: Arc::new(TokioClock(Instant::now())),
        }
    }

    fn server(&self, name: &str) -> Server {
        let bucket = Arc::new(Rigged::along(self.objects.clone(), Road::default()));
        let place = |what: &str| Some(self.home.path().join(name).join(what));
        let local_dirs = LocalDirs {
            cache: place("cache"),
            state: place("state"),
        };
        let location = StoreLocation::Memory;
        let (clock, rng) = (self.clock.clone(), Arc::new(SystemRng));
        let engine = Engine::over(bucket.clone(), location, local_dirs, clock, rng);
        let host = JobHost {
            sessions: SessionHost {
                name: name.parse().unwrap(),
                by: format!("{name} (process 1)").parse().unwrap(),
                state: place("state"),
                docker: Docker::default(),
            },
            docker: None,
            check: Spawn {
                program: "/bin/false".into(),
                arguments: Vec::new(),
            },
            workspaces: None,
            projects: Vec::new(),
            tried: TurnOrder::default(),
            containers: Vec::new(),
        };
        Server {
            bucket,
            engine,
            host,
            ending: watch::Sender::new(Ending::Not),
            stopped: watch::Sender::new(false),
        }
    }
}

impl Server {
    fn runner(&self) -> JobRunner {
        JobRunner {
            engine: self.engine.clone(),
            lane: LANE,
            place: None,
            plan: JobPlan {
                every: EVERY,
                limit: LIMIT,
                lease_ttl: TTL,
            },
            host: Arc::new(self.host.clone()),
            threads: Arc::new(WorkThreads::Shared),
            ending: self.ending.subscribe(),
        }
    }

    /// Each request takes up to three seconds, and none is sent while the host stands still.
    fn slow_down(&self) {
        let stopped = self.stopped.clone();
        self.bucket.rig(move |_| {
            let mut stopped = stopped.subscribe();
            Box::pin(async move {
                sleep(Duration::from_millis(below(3_000))).await;
                let _ = stopped.wait_for(|stopped| !stopped).await;
                Turn::Work
            })
        });
    }

    async fn row(&self, name: JobName) -> JobRow {
        let list = self.engine.jobs().list(&settings(LIMIT)).await.unwrap();
        list.items.into_iter().find(|row| row.name == name).unwrap()
    }

    fn start(&self, limit: Duration) -> RunningJobs {
        self.engine
            .jobs()
            .start(self.host.clone(), &settings(limit))
    }
}

fn below(bound: u64) -> u64 {
    stasis_model::rng::Rng::below(&SystemRng, bound)
}

fn settings(limit: Duration) -> JobSettings {
    let plan = JobPlan {
        every: EVERY,
        limit,
        lease_ttl: TTL,
    };
    let plans = JobName::ALL.map(|name| (name, plan));
    JobSettings {
        plans: plans.into(),
        // Their clock is the one that the tests move.
        threads: JobThreads::Shared,
        ..JobSettings::default()
    }
}

/// What all runs of all hosts changed, in order.
#[derive(Clone, Default)]
struct Changes(Arc<Mutex<Vec<(OpId, Instant)>>>);

const STEPS: usize = 4;

impl Changes {
    /// A job that changes something, step by step, as long as the lease is its own.
    async fn work(
        self,
        lease: Arc<JobLease>,
        stopped: watch::Sender<bool>,
    ) -> Result<JobReport, Error> {
        for _ in 0..STEPS {
            let mut stopped = stopped.subscribe();
            let _ = stopped.wait_for(|stopped| !stopped).await;
            lease.ensure_held()?;
            let change = (lease.fence().op_id, Instant::now());
            self.0.lock().unwrap().push(change);
            sleep(Duration::from_millis(below(1_000))).await;
        }
        Ok(JobReport::default())
    }

    /// The runs that came to their end, by when they began; no two of all runs may overlap.
    fn whole(&self) -> Vec<Instant> {
        let all = self.0.lock().unwrap().clone();
        let mut runs: Vec<(OpId, Instant, usize)> = Vec::new();
        for (run, at) in all {
            match runs.last_mut() {
                Some((last, _, steps)) if *last == run => *steps += 1,
                _ => {
                    let is_new = runs.iter().all(|(before, ..)| *before != run);
                    assert!(is_new, "a run went on after another one had begun");
                    runs.push((run, at, 1));
                }
            }
        }
        let whole = runs.into_iter().filter(|(.., steps)| *steps == STEPS);
        whole.map(|(_, began, _)| began).collect()
    }
}

/// One is killed in the midst of a run, one stands still past the end of its lease, and the work is done once each time.
#[tokio::test(start_paused = true)]
async fn three_servers_do_the_work_once_whatever_becomes_of_them() {
    let world = World::new();
    let (servers, changes) = (
        ["one", "two", "three"].map(|name| world.server(name)),
        Changes::default(),
    );
    let began = Instant::now();
    let mut loops = Vec::new();
    for server in &servers {
        server.slow_down();
        let (runner, changes, stopped) = (server.runner(), changes.clone(), server.stopped.clone());
        loops.push(tokio::spawn(async move {
            loop {
                let (changes, stopped) = (changes.clone(), stopped.clone());
                // A request of a host that stood still may fail; the next turn goes on.
                let _ = runner.turn(|lease| changes.work(lease, stopped)).await;
                sleep(Duration::from_millis(below(2_000))).await;
            }
        }));
    }
    let steps = || changes.0.lock().unwrap().len();
    let holder = async || {
        let lock = jobs::lock(&*world.objects, LANE).await.unwrap().unwrap();
        let at = servers
            .iter()
            .position(|one| one.host.sessions.name == lock.holder.host);
        at.unwrap()
    };

    // Whoever runs next after an hour is killed in the midst of it; whoever runs after another hour stands still there.
    for (hour, is_killed) in [(1, true), (2, false)] {
        sleep((began + Duration::from_hours(hour)).saturating_duration_since(Instant::now())).await;
        let before = steps();
        while steps() == before {
            sleep(Duration::from_millis(10)).await;
        }
        let at = holder().await;
        if is_killed {
            loops[at].abort();
        } else {
            servers[at].stopped.send_replace(true);
            sleep(TTL * 3).await;
            servers[at].stopped.send_replace(false);
        }
    }
    sleep((began + Duration::from_hours(4)).saturating_duration_since(Instant::now())).await;

    let whole = changes.whole();
    for pair in whole.windows(2) {
        let gap = pair[1] - pair[0];
        // A run begins when its lease was taken, and its first change is a moment later.
        assert!(gap + Duration::from_secs(15) >= EVERY, "{gap:?}");
        assert!(gap <= EVERY + TTL + Duration::from_mins(1), "{gap:?}");
    }
    assert!(whole.len() >= 40, "{}", whole.len());
    for one in loops {
        one.abort();
    }
}

fn record_of(lease: &JobLease, host: &str, now: Timestamp) -> JobRecord {
    let run = JobRun {
        place: None,
        host: host.parse().unwrap(),
        began_and_ended: (now, now),
        took: Duration::ZERO,
        every: EVERY,
        outcome: JobOutcome::Done,
        counts: BTreeMap::new(),
        message: None,
    };
    JobRecord::new(LANE.name, run, lease.fence(), SystemRng.op_id())
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_stopped_past_its_lease_changes_nothing_and_hides_no_newer_record() {
    let world = World::new();
    let (one, three) = (world.server("one"), world.server("three"));
    let take = async |server: &Server| {
        let holder = Holder {
            run_id: "run".parse().unwrap(),
            host: server.host.sessions.name.clone(),
            host_run_id: "1".parse().unwrap(),
        };
        let taken = server.engine.take_job(LANE, (&holder, Epoch(0)), TTL).await;
        taken.unwrap()
    };
    let late = take(&one).await;
    late.ensure_held().unwrap();

    sleep(TTL + Duration::from_secs(1)).await;
    let newer = take(&three).await;
    let record = record_of(&newer, "three", world.clock.now());
    newer.record(&record).await.unwrap();

    assert_eq!(late.ensure_held().unwrap_err().kind(), ErrorKind::Fenced);
    let refused = late
        .record(&record_of(&late, "one", world.clock.now()))
        .await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Fenced);
    assert!(late.keep_while(sleep(TTL)).await.is_none());
    late.release().await;
    let last = jobs::last(&*world.objects, LANE).await.unwrap().unwrap();
    assert_eq!(last.host.as_str(), "three");
    let lock = jobs::lock(&*world.objects, LANE).await.unwrap().unwrap();
    assert!(
        lock.is_live(world.clock.now()),
        "the newer lease is as it was"
    );
}

#[tokio::test(start_paused = true)]
async fn a_holder_whom_the_store_does_not_answer_gives_up_before_others_take_over() {
    let world = World::new();
    let one = world.server("one");
    let began = Instant::now();
    let runner = one.runner();
    let turn = runner.turn(|_| async {
        sleep(LIMIT / 2).await;
        Ok(JobReport::default())
    });
    let lost = async {
        sleep(Duration::from_secs(1)).await;
        one.bucket.rig(|_| Box::pin(std::future::pending()));
        let lock = jobs::lock(&*world.objects, LANE).await.unwrap().unwrap();
        sleep(lock.expires_at.since(world.clock.now())).await;
        one.bucket.mend();
    };

    let (turn, ()) = tokio::join!(turn, lost);

    let Ok(JobTurn::Ran(record, None)) = turn else {
        panic!("{turn:?}")
    };
    assert_eq!(record.outcome, JobOutcome::LeaseLost);
    assert!(began.elapsed() < TTL + Duration::from_secs(10));
}

/// A subject whose document nobody reads to its end.
async fn hang_session_reap(world: &World, server: &Server) {
    let key = Key::from_listing("subjects/acme/session/42/session.json").unwrap();
    let body = Bytes::from_static(b"{}");
    world.objects.put(&key, body).await.unwrap();
    server.bucket.rig(|asked: Asked| {
        Box::pin(async move {
            if asked.reads("session.json") {
                std::future::pending::<()>().await;
            }
            Turn::Work
        })
    });
}

#[tokio::test(start_paused = true)]
async fn a_job_that_hangs_is_shown_as_stuck_and_keeps_no_other_waiting() {
    let world = World::new();
    let server = world.server("one");
    hang_session_reap(&world, &server).await;
    let limit = Duration::from_mins(12);
    let running = server.start(limit);

    sleep(Duration::from_mins(11)).await;
    let hanging = server.row(JobName::SessionReap).await;
    assert_eq!(hanging.running.as_ref().unwrap().host.as_str(), "one");
    assert!(!hanging.stuck && hanging.outcome.is_none());
    for name in [JobName::LockReap, JobName::Gc, JobName::Proof] {
        let row = server.row(name).await;
        assert_eq!(row.outcome, Some(JobOutcome::Done), "{row:?}");
        let ago = world.clock.now().since(row.last_began_at_ms.unwrap());
        assert!(
            ago < EVERY + Duration::from_secs(30),
            "{name} waits: {ago:?}"
        );
    }

    sleep(Duration::from_mins(2)).await;
    let stuck = server.row(JobName::SessionReap).await;
    assert!(stuck.stuck, "{stuck:?}");
    assert_eq!(stuck.place.as_ref().unwrap().as_str(), "one");
    assert!(stuck.message.unwrap().contains("not over after 720 s"));
    // Its time has come again since, and it is tried once more.
    assert_eq!(stuck.running.unwrap().host.as_str(), "one");
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_finishes_what_it_can_and_gives_the_rest_back() {
    let world = World::new();
    let (one, two) = (world.server("one"), world.server("two"));
    hang_session_reap(&world, &one).await;
    let running = one.start(LIMIT);
    sleep(Duration::from_secs(10)).await;

    let began = Instant::now();
    running.end(Duration::from_secs(9)).await;

    assert!(
        began.elapsed() < Duration::from_secs(18),
        "{:?}",
        began.elapsed()
    );
    let row = two.row(JobName::SessionReap).await;
    assert_eq!(row.outcome, Some(JobOutcome::HandedBack));
    assert!(
        row.running.is_none() && row.next_due_at.is_none() && !row.stuck,
        "{row:?}"
    );
    for lane in jobs::lanes(&*world.objects).await.unwrap() {
        let lock = jobs::lock(&*world.objects, lane).await.unwrap().unwrap();
        assert_eq!(lock.state, LockState::Free, "{lane:?}");
    }

    // One that ends in time is waited for.
    let runner = two.runner();
    sleep(EVERY).await;
    let work = runner.turn(|_| async {
        sleep(Duration::from_secs(5)).await;
        Ok(JobReport::default())
    });
    two.ending.send_replace(Ending::Soon);
    let Ok(JobTurn::Ran(record, None)) = work.await else {
        panic!()
    };
    assert_eq!(record.outcome, JobOutcome::Done);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_or_panics_is_written_down_and_due_an_interval_later() {
    let world = World::new();
    let server = world.server("one");

    let panicking = server.runner().turn(|_| async { panic!("no") }).await;

    let Ok(JobTurn::Ran(record, None)) = panicking else {
        panic!()
    };
    assert_eq!(record.outcome, JobOutcome::Failed);
    let again = server
        .runner()
        .turn(|_| async { Ok(JobReport::default()) })
        .await;
    assert!(matches!(again, Ok(JobTurn::NotDue(_))), "{again:?}");
    sleep(EVERY).await;
    let again = server
        .runner()
        .turn(|_| async { Ok(JobReport::default()) })
        .await;
    assert!(matches!(again, Ok(JobTurn::Ran(..))), "{again:?}");
}
