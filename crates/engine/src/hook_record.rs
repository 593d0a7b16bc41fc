//! What an agent's hook did last on this host, so that `hook show`, `status` and `doctor` can say whether it works.
//!
//! Hooks must be silent towards their agents, so this is the only place where a user sees that they fail. Each agent has
//! one file for its last run anywhere, and one for each workspace:
//!
//! 1. a run begins: the agent's file says `unfinished`
//! 2. a run ends: the agent's file and the workspace's file say how
//!
//! A run that was killed between 1 and 2 is known by an `unfinished` whose process is gone, or that is older than any run takes.
//! What fails before its workspace is known stands in the agent's file only; who asks about a workspace is told of it by its directory. Files are replaced
//! whole and without a sync: a hook runs before every command, and a lost note costs nothing but the note. Two runs that
//! end at once leave one of the two notes. On a full disk the note is written over the one before it, where it fits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_disk::fs::atomic_write::{replace_unsynced, write_over};
use stasis_disk::fs::free_space;
use stasis_model::digest::ChunkDigest;
use stasis_model::time::{Clock, Timestamp};
use stasis_quiesce::process::{Process, ProcessId};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// No run takes as long as this, also not one that goes on in the background; one that did not end by then was killed.
const LONGEST_RUN: Duration = Duration::from_mins(31);
/// The most bytes of a message that are kept.
const LONGEST_MESSAGE: usize = 2_000;

/// How one run of a hook ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum HookOutcome {
    /// A checkpoint was made.
    Made {
        /// Its name, `cp-N`.
        checkpoint: String,
        /// What was there and is not in it, because it could not be read: the first few, and how many more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_out: Option<String>,
    },
    /// Nothing had changed since the last checkpoint.
    Unchanged,
    /// The directory is in no workspace.
    NoWorkspace,
    /// No checkpoint was made.
    Failed {
        /// Why, with all causes.
        message: String,
    },
    /// It has not ended, or was killed.
    Unfinished,
}

/// Who runs a hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trigger {
    /// The agent, before it does something.
    #[default]
    Agent,
    /// A user, with `stasis hook test`.
    Test,
}

/// The process that a run is, while it lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct HookProcess {
    pid: u32,
    /// In clock ticks after boot.
    started: u64,
}

impl HookProcess {
    fn this() -> Option<Self> {
        let process = Process::open(std::process::id()).ok()??;
        let identity = process.identity();
        Some(Self {
            pid: identity.pid(),
            started: identity.started(),
        })
    }

    /// Whether it has ended, as far as can be told.
    fn is_gone(self) -> bool {
        let identity = ProcessId::new(self.pid, self.started);
        matches!(Process::reopen(identity), Ok(None))
    }
}

/// One run of a hook.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct HookRun {
    /// When it began.
    pub at: Timestamp,
    /// The directory that the agent named.
    pub directory: String,
    /// The workspace's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: HookOutcome,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// Whether `stasis hook test` ran it, and no agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub test: bool,
    /// The process, of a run that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<HookProcess>,
}

impl HookRun {
    /// Why no checkpoint was made, if that is so.
    pub fn failure(&self, now: Timestamp) -> Option<&str> {
        match &self.outcome {
            HookOutcome::Failed { message } => Some(message),
            HookOutcome::Unfinished if self.process.is_some_and(HookProcess::is_gone) => {
                Some("it was killed before it ended")
            }
            HookOutcome::Unfinished if now.since(self.at) > LONGEST_RUN => {
                Some("it was killed before it ended, or is still at work")
            }
            _ => None,
        }
    }
}

/// The last runs of an agent's hook, anywhere or in one workspace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct HookRecord {
    /// The last run.
    pub last: HookRun,
    /// The last run that failed or was killed; also a `last` that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<HookRun>,
    /// The last run that made a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_checkpoint: Option<HookRun>,
}

impl HookRecord {
    /// Reads what an agent's hook did last, anywhere or in one workspace; `None` if it never ran, or nobody can tell.
    pub fn read(state: &Path, agent: &str, workspace: Option<&Path>) -> Option<Self> {
        let bytes = std::fs::read(file(state, agent, workspace)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Reads what an agent's hook did last in the workspace at `root`: also a run there that failed, or was killed, before
    /// it knew in which workspace it was.
    pub fn read_in(state: &Path, agent: &str, root: &Path, now: Timestamp) -> Option<Self> {
        let mut found = Self::read(state, agent, Some(root));
        let anywhere = Self::read(state, agent, None)?;
        let is_here = |run: &HookRun| {
            let directory = Path::new(&run.directory);
            let real = directory.canonicalize();
            run.workspace.is_none()
                && run.failure(now).is_some()
                && (directory.starts_with(root) || real.is_ok_and(|real| real.starts_with(root)))
        };
        let strays = anywhere.last_failure.into_iter().chain([anywhere.last]);
        for run in strays.filter(is_here) {
            if found.as_ref().is_none_or(|found| found.last.at < run.at) {
                found = Some(Self::followed_by(found, run, now));
            }
        }
        found
    }

    /// Whether the newest run failed.
    pub fn is_failing(&self, now: Timestamp) -> bool {
        self.last.failure(now).is_some()
    }

    fn followed_by(previous: Option<Self>, run: HookRun, now: Timestamp) -> Self {
        let (mut last_failure, mut last_checkpoint) = (None, None);
        if let Some(previous) = previous {
            let killed = previous.last.outcome == HookOutcome::Unfinished
                && previous.last.failure(now).is_some();
            last_failure = previous.last_failure;
            last_checkpoint = previous.last_checkpoint;
            if killed {
                last_failure = Some(previous.last);
            }
        }
        match run.outcome {
            _ if run.failure(now).is_some() => last_failure = Some(run.clone()),
            HookOutcome::Made { .. } => last_checkpoint = Some(run.clone()),
            _ => {}
        }
        Self {
            last: run,
            last_failure,
            last_checkpoint,
        }
    }
}

/// Writes down what one run of a hook does. What cannot be written is left unwritten: a hook has no one to tell.
#[derive(Clone, Debug)]
pub struct HookRecorder {
    /// The state directory of this host; without one nothing is recorded.
    state: Option<PathBuf>,
    agent: String,
    directory: PathBuf,
    trigger: Trigger,
    began: Timestamp,
    began_uptime: Duration,
    clock: Arc<dyn Clock>,
}

impl HookRecorder {
    /// Notes that a run began, in the directory that the agent named.
    pub fn begin(
        state: Option<PathBuf>,
        agent: &str,
        directory: &Path,
        trigger: Trigger,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let recorder = Self {
            state,
            agent: agent.to_owned(),
            directory: directory.to_owned(),
            trigger,
            began: clock.now(),
            began_uptime: clock.uptime(),
            clock,
        };
        recorder.write(None, &recorder.run(None, HookOutcome::Unfinished));
        recorder
    }

    /// Notes how the run ended for one workspace, or that there was none.
    pub fn end(&self, workspace: Option<&Path>, outcome: HookOutcome) {
        let run = self.run(workspace, shortened(outcome));
        self.write(None, &run);
        if workspace.is_some() {
            self.write(workspace, &run);
        }
    }

    fn run(&self, workspace: Option<&Path>, outcome: HookOutcome) -> HookRun {
        let took = self.clock.uptime().saturating_sub(self.began_uptime);
        HookRun {
            at: self.began,
            directory: self.directory.display().to_string(),
            workspace: workspace.map(|workspace| workspace.display().to_string()),
            process: match outcome {
                HookOutcome::Unfinished => HookProcess::this(),
                _ => None,
            },
            outcome,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            test: self.trigger == Trigger::Test,
        }
    }

    fn write(&self, workspace: Option<&Path>, run: &HookRun) {
        let Some(state) = &self.state else {
            return;
        };
        let previous = HookRecord::read(state, &self.agent, workspace);
        let record = HookRecord::followed_by(previous, run.clone(), self.clock.now());
        let path = file(state, &self.agent, workspace);
        let bytes =
            serde_json::to_vec(&record).expect("plain structs of text and numbers are always JSON");
        let written = replace_unsynced(&path, &bytes).or_else(|error| {
            // On a full disk hooks fail, and that is just when somebody asks why.
            if free_space::is_want_of_room(&error) {
                return write_over(&path, &bytes);
            }
            Err(error)
        });
        if let Err(error) = written {
            let error = crate::error::error_chain(&error);
            tracing::debug!(error, "the run of the hook was not recorded");
        }
    }
}

fn shortened(outcome: HookOutcome) -> HookOutcome {
    match outcome {
        HookOutcome::Failed { mut message } => {
            let end = message.floor_char_boundary(LONGEST_MESSAGE);
            message.truncate(end);
            HookOutcome::Failed { message }
        }
        other => other,
    }
}

fn file(state: &Path, agent: &str, workspace: Option<&Path>) -> PathBuf {
    let name = match workspace {
        None => format!("{agent}.json"),
        Some(workspace) => {
            let digest = ChunkDigest::of(workspace.as_os_str().as_bytes()).to_string();
            let digest = digest.get(..16).unwrap_or(&digest);
            format!("{agent}-{digest}.json")
        }
    };
    state.join("hooks").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct HandClock(Mutex<u64>);

    impl HandClock {
        fn advance(&self, seconds: u64) {
            *self.0.lock().unwrap() += seconds * 1000;
        }
    }

    impl Clock for HandClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(*self.0.lock().unwrap())
        }

        fn uptime(&self) -> Duration {
            Duration::from_millis(*self.0.lock().unwrap())
        }
    }

    struct Host {
        state: tempfile::TempDir,
        clock: Arc<HandClock>,
    }

    impl Host {
        fn new() -> Self {
            let (state, clock) = (tempfile::tempdir().unwrap(), Arc::default());
            Self { state, clock }
        }

        fn begin(&self, directory: &str) -> HookRecorder {
            let state = Some(self.state.path().to_owned());
            let directory = Path::new(directory);
            HookRecorder::begin(
                state,
                "codex",
                directory,
                Trigger::Agent,
                self.clock.clone(),
            )
        }

        fn read(&self, workspace: Option<&str>) -> Option<HookRecord> {
            HookRecord::read(self.state.path(), "codex", workspace.map(Path::new))
        }
    }

    fn failed(message: &str) -> HookOutcome {
        let message = message.to_owned();
        HookOutcome::Failed { message }
    }

    #[test]
    fn a_run_is_known_anywhere_and_in_its_own_workspace_only() {
        let host = Host::new();
        assert_eq!(host.read(None), None);

        let recorder = host.begin("/w/src");
        host.clock.advance(2);
        recorder.end(Some(Path::new("/w")), HookOutcome::Unchanged);

        let anywhere = host.read(None).unwrap();
        assert_eq!(anywhere.last.directory, "/w/src");
        assert_eq!(anywhere.last.workspace.as_deref(), Some("/w"));
        assert_eq!(anywhere.last.took_ms, 2_000);
        assert_eq!(host.read(Some("/w")), Some(anywhere));
        assert_eq!(host.read(Some("/other")), None);
    }

    #[test]
    fn the_last_failure_and_the_last_checkpoint_outlive_later_runs() {
        let host = Host::new();
        let workspace = Some(Path::new("/w"));
        let checkpoint = "cp-3".to_owned();

        host.begin("/w").end(workspace, failed("no room"));
        host.clock.advance(1);
        host.begin("/w").end(
            workspace,
            HookOutcome::Made {
                checkpoint,
                left_out: None,
            },
        );
        host.clock.advance(1);
        host.begin("/w").end(workspace, HookOutcome::Unchanged);

        let record = host.read(Some("/w")).unwrap();
        assert_eq!(record.last.outcome, HookOutcome::Unchanged);
        assert_eq!(record.last_failure.unwrap().outcome, failed("no room"));
        assert_eq!(record.last_checkpoint.unwrap().at.millis(), 1_000);
    }

    #[test]
    fn a_run_that_was_killed_is_a_failure_once_no_run_takes_that_long() {
        let host = Host::new();
        let _killed = host.begin("/w");

        let record = host.read(None).unwrap();
        assert!(!record.is_failing(host.clock.now()), "it may still run");
        host.clock.advance(32 * 60);
        assert!(record.is_failing(host.clock.now()));
        host.begin("/w").end(None, HookOutcome::NoWorkspace);

        let record = host.read(None).unwrap();
        assert!(!record.is_failing(host.clock.now()));
        assert_eq!(
            record.last_failure.unwrap().outcome,
            HookOutcome::Unfinished
        );
    }

    #[test]
    fn a_failure_before_the_workspace_is_known_is_seen_from_the_workspace_and_from_no_other() {
        let host = Host::new();
        let now = || host.clock.now();
        let read =
            |root: &str| HookRecord::read_in(host.state.path(), "codex", Path::new(root), now());
        host.begin("/w")
            .end(Some(Path::new("/w")), HookOutcome::Unchanged);
        host.clock.advance(1);
        host.begin("/w/src").end(None, failed("no configuration"));

        let record = read("/w").unwrap();
        assert!(record.is_failing(now()), "{record:?}");
        assert_eq!(
            record.last_failure.unwrap().outcome,
            failed("no configuration")
        );
        assert_eq!(read("/other"), None);
        assert_eq!(read("/w/src/deeper"), None);
        // The agent works elsewhere, which hides nothing.
        host.clock.advance(1);
        host.begin("/other")
            .end(Some(Path::new("/other")), HookOutcome::Unchanged);
        assert!(read("/w").unwrap().is_failing(now()));
        host.clock.advance(1);
        host.begin("/w")
            .end(Some(Path::new("/w")), HookOutcome::Unchanged);
        let record = read("/w").unwrap();
        assert!(!record.is_failing(now()), "{record:?}");
    }

    #[test]
    fn a_run_whose_process_is_gone_was_killed_whatever_its_age() {
        let host = Host::new();
        let _running = host.begin("/w");
        let mut run = host.read(None).unwrap().last;
        assert_eq!(run.failure(host.clock.now()), None, "this process runs");

        let started = run.process.unwrap().started + 1;
        run.process = run
            .process
            .map(|process| HookProcess { started, ..process });

        let why = run.failure(host.clock.now());
        assert_eq!(why, Some("it was killed before it ended"));
    }

    #[test]
    fn a_host_that_cannot_keep_records_runs_hooks_all_the_same() {
        let clock = Arc::new(HandClock::default());
        let nowhere = Some(PathBuf::from("/proc/no/place"));
        for state in [None, nowhere] {
            let (directory, trigger) = (Path::new("/w"), Trigger::Agent);
            let recorder = HookRecorder::begin(state, "codex", directory, trigger, clock.clone());
            recorder.end(None, failed(&"ü".repeat(5_000)));
        }
    }
}
