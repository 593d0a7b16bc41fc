//! Checkpoints that a server makes, of real directories.

#![expect(
    clippy::disallowed_methods,
    reason = "tests write what checkpoints are made of"
)]

use super::proofs::run;
use super::{Server, World};
use crate::error::{Error, ErrorKind};
use crate::jobs::turn::JobReport;
use crate::jobs::workspaces::note;
use crate::kind::workspace::unasked::giving_way;
use crate::kind::workspace::{CheckpointRow, HostEnv, InitWorkspace, Workspace};
use crate::system::SystemClock;
use stasis_disk::fs::lock_file::{LockAttempt, LockFile};
use stasis_model::failure::Failure;
use stasis_model::format::job::{JobName, JobOutcome, JobRecord};
use stasis_model::time::{Clock, Timestamp};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A clock by which whoever waits has waited long.
#[derive(Debug, Default)]
struct LeapingClock(AtomicU64);

impl Clock for LeapingClock {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn uptime(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(30, Ordering::Relaxed))
    }
}

/// A host whose workspaces are looked after.
struct Host {
    world: World,
    server: Server,
    env: HostEnv,
}

impl Host {
    fn new() -> Self {
        let world = World::new();
        let mut server = world.server("one");
        let env = HostEnv {
            state: world.home.path().join("state"),
            home: None,
            clock: Arc::new(SystemClock),
        };
        server.host.workspaces = Some(env.clone());
        Self { world, server, env }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.world.home.path().join(name)
    }

    /// A directory that is a workspace, with one file.
    async fn workspace(&self, name: &str) -> Workspace {
        let directory = self.at(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("plan"), "one").unwrap();
        let init = InitWorkspace {
            directory: directory.clone(),
            session: None,
            system: None,
            budget: None,
        };
        Workspace::init(init, &self.env).await.unwrap();
        Workspace::find(&directory, &self.env).await.unwrap()
    }

    fn session(&self, directory: &Path) -> PathBuf {
        let all = crate::kind::workspace::workspaces(&self.env.state);
        let found = all
            .iter()
            .find(|row| Path::new(&row.workspace) == directory);
        PathBuf::from(&found.unwrap().session)
    }

    async fn run(&self) -> JobRecord {
        run(&self.server, JobName::WorkspaceCheckpoint).await
    }
}

fn hold(path: &Path) -> LockFile {
    match LockFile::take(path, "a test").unwrap() {
        LockAttempt::Taken(lock) => lock,
        LockAttempt::Held(by) => panic!("{by}"),
    }
}

async fn checkpoints(workspace: &Workspace) -> Vec<CheckpointRow> {
    workspace.list(false).await.unwrap().snapshots
}

fn count(record: &JobRecord, name: &str) -> u64 {
    record.counts.get(name).copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_workspace_that_changed_has_a_checkpoint_and_no_other_one_takes_anything() {
    let host = Host::new();
    let (shop, till) = (host.workspace("shop").await, host.workspace("till").await);

    let first = host.run().await;
    assert_eq!(first.outcome, JobOutcome::Done, "{first:?}");
    assert_eq!(first.place.as_ref().unwrap().as_str(), "one");
    assert_eq!((count(&first, "scanned"), count(&first, "made")), (2, 2));
    let before = fs::read_dir(host.session(till.directory()).join("auto_snapshots"));
    let before = before.unwrap().count();
    fs::write(shop.directory().join("plan"), "two and more").unwrap();
    let second = host.run().await;

    assert_eq!(
        (count(&second, "made"), count(&second, "unchanged")),
        (1, 1)
    );
    let rows = checkpoints(&shop).await;
    assert_eq!(rows.len(), 2);
    assert!(
        rows.iter()
            .all(|row| row.made_by.as_deref() == Some("serve"))
    );
    assert_eq!(checkpoints(&till).await.len(), 1);
    let after = fs::read_dir(host.session(till.directory()).join("auto_snapshots"));
    assert_eq!(after.unwrap().count(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_watch_or_somebody_else_is_at_it_and_where_none_are_wanted_none_is_made() {
    let mut host = Host::new();
    let (watched, off, busy, gone) = (
        host.workspace("watched").await,
        host.workspace("off").await,
        host.workspace("busy").await,
        host.workspace("gone").await,
    );
    let watch = hold(&host.session(watched.directory()).join("watch.lock"));
    off.set_hooks(false).await.unwrap();
    let session = hold(&host.session(busy.directory()).join("session.lock"));
    fs::remove_dir_all(gone.directory()).unwrap();
    let clock = Arc::new(LeapingClock::default());
    let env = host.env.clone();
    host.server.host.workspaces = Some(HostEnv { clock, ..env });

    let left = host.run().await;

    assert_eq!(left.outcome, JobOutcome::Done, "{left:?}");
    for word in ["watched", "off", "busy", "gone"] {
        assert_eq!(count(&left, word), 1, "{word}: {left:?}");
    }
    assert_eq!(count(&left, "made"), 0);
    drop((watch, session));
    let made = host.run().await;
    assert_eq!((count(&made, "made"), count(&made, "off")), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_that_cannot_be_read_is_said_and_the_others_have_theirs() {
    let host = Host::new();
    let (bad, good) = (host.workspace("bad").await, host.workspace("good").await);
    let config = host.session(bad.directory()).join("config.toml");
    fs::write(config, "nonsense").unwrap();

    let record = host.run().await;

    assert_eq!(record.outcome, JobOutcome::Incomplete, "{record:?}");
    let said = record.message.unwrap();
    assert!(said.contains("config.toml"), "{said}");
    assert_eq!(record.counts["made"], 1);
    assert_eq!(checkpoints(&good).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checkpoint_before_a_prompt_comes_first() {
    let host = Host::new();
    let shop = host.workspace("shop").await;
    let hook_lock = host.session(shop.directory()).join("hook.lock");

    let hook = hold(&hook_lock);
    let left = host.run().await;
    assert_eq!(count(&left, "busy"), 1, "{left:?}");
    drop(hook);

    // One that comes meanwhile is not kept waiting.
    let cancel = AtomicBool::new(false);
    let making = async {
        let hook = hold(&hook_lock);
        while !cancel.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(hook);
    };
    let ((), gave_way) = giving_way(&shop, &cancel, making).await;
    assert!(gave_way);
    assert_eq!(count(&host.run().await, "made"), 1);
}

#[test]
fn a_disk_that_does_not_answer_ends_no_other_checkpoint() {
    let failed = |kind| Err(Error::from(Failure::of(kind, "it does not answer")));
    let mut report = JobReport::default();

    note(&mut report, "/mnt/shop", failed(ErrorKind::Unreachable)).unwrap();

    assert_eq!(report.problems, ["/mnt/shop: it does not answer"]);
    let fenced = note(&mut report, "/srv/till", failed(ErrorKind::Fenced));
    assert_eq!(fenced.unwrap_err().kind(), ErrorKind::Fenced);
}
