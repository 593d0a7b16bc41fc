//! `jobs/<name>/last.json`: what the last run of a job of the service did, and which jobs there are.

use crate::digest::StoreDigest;
use crate::format::document::Document;
use crate::format::lease::Fence;
use crate::id::{Label, OpId};
use crate::invalid::Invalid;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// Work that servers do without being asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobName {
    /// Frees leases whose holders are presumed dead.
    LockReap,
    /// Puts idle sessions of a host to sleep.
    SessionReap,
    /// Keeps the limits on snapshots of containers of a Docker engine.
    ContainerCleanup,
    /// Makes snapshots of containers of a Docker engine.
    ContainerSnapshot,
    /// Removes what no snapshot needs any more.
    Gc,
    /// Restores a few snapshots into a scratch place, and checks them.
    Proof,
    /// Makes checkpoints of the workspaces of a host.
    WorkspaceCheckpoint,
    /// Saves projects of a host.
    ProjectAutosave,
}

crate::display_as_serialized!(JobName);

impl FromStr for JobName {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let all = Self::ALL.map(|job| job.to_string()).join(", ");
        let found = Self::ALL.into_iter().find(|job| job.to_string() == text);
        found.ok_or_else(|| Invalid::new(format!("a job is one of {all}")))
    }
}

impl JobName {
    /// Every job.
    pub const ALL: [Self; 8] = [
        Self::LockReap,
        Self::SessionReap,
        Self::ContainerCleanup,
        Self::ContainerSnapshot,
        Self::Gc,
        Self::Proof,
        Self::WorkspaceCheckpoint,
        Self::ProjectAutosave,
    ];

    /// What it is called in keys.
    pub fn key_part(self) -> &'static str {
        match self {
            Self::LockReap => "lock-reap",
            Self::SessionReap => "session-reap",
            Self::ContainerCleanup => "container-cleanup",
            Self::ContainerSnapshot => "container-snapshot",
            Self::Gc => "gc",
            Self::Proof => "proof",
            Self::WorkspaceCheckpoint => "workspace-checkpoint",
            Self::ProjectAutosave => "project-autosave",
        }
    }

    /// Which one is called so in keys.
    pub fn from_key_part(part: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|job| job.key_part() == part)
    }

    /// Whether it is done at each host or engine for itself, because what it looks after is there and not in the store.
    pub fn is_of_a_place(self) -> bool {
        match self {
            Self::SessionReap
            | Self::ContainerCleanup
            | Self::ContainerSnapshot
            | Self::WorkspaceCheckpoint
            | Self::ProjectAutosave => true,
            Self::LockReap | Self::Gc | Self::Proof => false,
        }
    }

    /// How often it begins where nobody says it.
    pub fn usual_interval(self) -> Duration {
        match self {
            Self::LockReap | Self::WorkspaceCheckpoint | Self::ContainerSnapshot => 5 * MINUTE,
            Self::SessionReap => MINUTE,
            Self::ContainerCleanup | Self::ProjectAutosave => HOUR,
            Self::Gc => 24 * HOUR,
            Self::Proof => 6 * HOUR,
        }
    }

    /// How long a run takes at most; one that takes longer is stuck.
    pub fn usual_limit(self) -> Duration {
        match self {
            Self::LockReap => 10 * MINUTE,
            Self::SessionReap | Self::ContainerCleanup | Self::WorkspaceCheckpoint => HOUR,
            Self::Gc => 12 * HOUR,
            Self::Proof | Self::ProjectAutosave | Self::ContainerSnapshot => 3 * HOUR,
        }
    }
}

/// Where a job is done that is done at several places: in keys the digest of a host's name, or of the id of a Docker engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobPlace(StoreDigest);

impl JobPlace {
    /// The place of that name.
    pub fn of(name: &str) -> Self {
        Self(StoreDigest::of(name.as_bytes()))
    }
}

impl std::fmt::Display for JobPlace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

impl FromStr for JobPlace {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        text.parse().map(Self)
    }
}

/// A job, at one place if it is done at several: what runs on one server at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobLane {
    /// Which job.
    pub name: JobName,
    /// Where; none for what is done once for the whole store.
    pub place: Option<JobPlace>,
}

impl JobLane {
    /// A job that is done once for the whole store.
    pub fn of_store(name: JobName) -> Self {
        Self { name, place: None }
    }

    /// A job as it is done at one place.
    pub fn at(name: JobName, place: &str) -> Self {
        let place = Some(JobPlace::of(place));
        Self { name, place }
    }
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobOutcome {
    /// It did everything.
    Done,
    /// It did what it could, and something should be looked at.
    Incomplete,
    /// It failed.
    Failed,
    /// It was not over after its time limit, and was given up.
    Stuck,
    /// Its server was asked to end: whoever comes next goes on.
    HandedBack,
    /// Its server was not heard of for so long that the lease was over: whoever comes next goes on.
    LeaseLost,
}

crate::display_as_serialized!(JobOutcome);

impl JobOutcome {
    /// Whether the run came to an end of its own; after another one the job is due at once.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::HandedBack | Self::LeaseLost)
    }
}

/// The document `last.json` of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobRecord {
    version: u64,
    /// Which job.
    pub job: JobName,
    /// At which host or engine, by name, if it is done at each for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Label>,
    /// The host whose server ran it.
    pub host: Label,
    /// When the run began, by the store's clock.
    pub began_at_ms: Timestamp,
    /// When it ended.
    pub ended_at_ms: Timestamp,
    /// How long it took, by a clock that cannot be set.
    pub took_ms: u64,
    /// How often whoever ran it runs it.
    pub every_ms: u64,
    /// How it ended.
    pub outcome: JobOutcome,
    /// What it did, in numbers.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
    /// What went wrong, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The lease under which it ran.
    pub fence: Fence,
    /// The operation that wrote these bytes.
    pub op_id: OpId,
    /// What a newer build writes.
    #[serde(flatten)]
    pub(crate) extra: Map<String, Value>,
}

impl Document for JobRecord {
    const NAME: &'static str = "the record of a job";
}

/// A run that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobRun {
    /// At which host or engine, by name, if it is done at each for itself.
    pub place: Option<Label>,
    /// The host whose server ran it.
    pub host: Label,
    /// When it began and when it ended, by the store's clock.
    pub began_and_ended: (Timestamp, Timestamp),
    /// How long it took.
    pub took: Duration,
    /// How often it begins.
    pub every: Duration,
    /// How it ended.
    pub outcome: JobOutcome,
    /// What it did.
    pub counts: BTreeMap<String, u64>,
    /// What went wrong.
    pub message: Option<String>,
}

impl JobRecord {
    /// The record of a run that had the lease `fence`.
    pub fn new(job: JobName, run: JobRun, fence: Fence, op_id: OpId) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            version: Self::VERSION,
            job,
            place: run.place,
            host: run.host,
            began_at_ms: run.began_and_ended.0,
            ended_at_ms: run.began_and_ended.1,
            took_ms: millis(run.took),
            every_ms: millis(run.every),
            outcome: run.outcome,
            counts: run.counts,
            message: run.message,
            fence,
            op_id,
            extra: Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_known_by_its_names_and_begins_as_often_as_the_guide_says() {
        let guide = [
            (JobName::LockReap, 5, 10),
            (JobName::SessionReap, 1, 60),
            (JobName::ContainerCleanup, 60, 60),
            (JobName::ContainerSnapshot, 5, 180),
            (JobName::Gc, 24 * 60, 12 * 60),
            (JobName::Proof, 6 * 60, 180),
            (JobName::WorkspaceCheckpoint, 5, 60),
            (JobName::ProjectAutosave, 60, 180),
        ];
        assert_eq!(guide.map(|(job, ..)| job), JobName::ALL);
        for (job, every, limit) in guide {
            assert_eq!(job.usual_interval(), every * MINUTE, "{job}");
            assert_eq!(job.usual_limit(), limit * MINUTE, "{job}");
            assert_eq!(job.to_string().parse(), Ok(job));
            assert_eq!(JobName::from_key_part(job.key_part()), Some(job));
            assert_eq!(job.key_part().replace('-', "_"), job.to_string());
        }
        assert!("reap".parse::<JobName>().is_err());
    }
}
