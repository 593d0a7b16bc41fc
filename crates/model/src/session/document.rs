//! `session.json`: where a session stands, and what is known of its sandbox.

use crate::digest::TreeDigest;
use crate::format::document::Document;
use crate::id::{Generation, Label, OpId, SandboxName, SessionRef, SnapshotId};
use crate::session::roots::SessionRoots;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// How many recent writers are recorded.
pub(super) const RECENT: usize = 16;
/// After how long without a heartbeat a session is idle, unless it says otherwise.
pub const IDLE_TIMEOUT: Duration = Duration::from_hours(1);

/// Where a session stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// It is being woken.
    Provisioning,
    /// Its sandbox runs.
    Running,
    /// Its sandbox is gone, and everything is in its snapshot.
    Sleeping,
    /// Its sandbox is gone, and what was done since its last snapshot is lost.
    Terminated,
    /// It was to be woken, and could not be.
    Failed,
}

impl SessionState {
    /// Whether something may run that belongs to it.
    pub fn has_sandbox(self) -> bool {
        matches!(self, Self::Provisioning | Self::Running)
    }
}

/// What is being done to a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionAct {
    /// Its sandbox is about to be terminated.
    Sleep,
    /// Its workspace comes back, and its sandbox is started.
    Wake,
}

/// Who is doing it. Nobody else does anything until it is over, or has expired.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionClaim {
    /// Counts what was done to the session: an attempt that was superseded changes nothing.
    pub attempt: u64,
    /// What.
    pub act: SessionAct,
    /// Who.
    pub by: Label,
    /// Since when.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    /// Until when it is certainly done by nobody else.
    #[serde(rename = "expires_at_ms")]
    pub expires_at: Timestamp,
}

/// What kind of trouble a session has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionTrouble {
    /// It could not be saved; its sandbox stays up.
    SnapshotFailed,
    /// It could not be saved, and its sandbox does not answer: that was terminated.
    Unreachable,
    /// Its sandbox could not be terminated.
    TerminateFailed,
    /// It could not be woken.
    WakeFailed,
}

/// The trouble a session has.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionProblem {
    /// Of which kind.
    pub trouble: SessionTrouble,
    /// What was said.
    pub message: Label,
    /// When.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
}

/// The snapshot that a session is woken from: durable, published, read back and found right.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DurableSnapshot {
    /// Which.
    pub snapshot_id: SnapshotId,
    /// What the tree is.
    pub state_digest: TreeDigest,
    /// The length of all files.
    pub bytes: u64,
    /// How many entries it has.
    pub entries: u64,
    /// When the workspace was last known to be this.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
}

/// Where a session's workspace lies.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionPlace {
    /// On which host.
    pub host: Label,
    /// The directory there.
    pub dir: String,
}

/// What runs a session, possibly together with others.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sandbox {
    /// What it is called: sessions of one tenant and one host that say the same name share it.
    pub name: SandboxName,
    /// What it is.
    pub driver: SandboxDriver,
    /// What starts, asks and ends it instead, where that is a command.
    #[serde(default)]
    pub commands: SandboxCommands,
}

impl Sandbox {
    /// Whether it is only a name until it is started.
    pub fn is_not_started(&self) -> bool {
        matches!(self.driver, SandboxDriver::Process { pid: 0, .. })
    }

    /// Whether it can be started from nothing: by a command, or because it is a container.
    pub fn starts(&self) -> bool {
        self.commands.start.is_some() || matches!(self.driver, SandboxDriver::Docker { .. })
    }

    /// Whether nobody could start it again: the process that it was is gone, and no command starts another one.
    pub fn cannot_start(&self) -> bool {
        let is_process = matches!(self.driver, SandboxDriver::Process { .. });
        is_process && self.commands.start.is_none()
    }
}

/// What a sandbox is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum SandboxDriver {
    /// A process with its children.
    Process {
        /// Its number.
        pid: u32,
        /// When it was started, in ticks of its host's clock since that was: numbers are used again.
        started: u64,
        /// Which life of its host that was.
        boot: Label,
        /// What everything that it starts has in its environment, where we started it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<Label>,
    },
    /// A container of a Docker engine.
    Docker {
        /// How the engine is reached from its host.
        engine: String,
        /// The whole id of the container, which is never used again.
        container: String,
        /// What it was called.
        name: String,
    },
    /// Whatever commands reach.
    Command,
}

impl SandboxDriver {
    /// Whether it is the same one when it is started again: a process is another one then.
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Command | Self::Docker { .. })
    }
}

/// Shell commands that act on a sandbox.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SandboxCommands {
    /// Starts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Ends with 0 if it is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// Ends it; once more does no harm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminate: Option<String>,
}

impl SandboxCommands {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The document `session.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionDocument {
    pub(super) version: u64,
    /// Which session.
    pub session: SessionRef,
    /// Counts the writes.
    pub generation: Generation,
    /// The operation that wrote these bytes.
    pub op_id: OpId,
    /// Where it stands.
    pub state: SessionState,
    /// How often something was done to it.
    pub attempt: u64,
    /// Who is doing something to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<SessionClaim>,
    /// Where its workspace lies; after it went to sleep, where that lay.
    pub place: SessionPlace,
    /// What of its workspace is saved.
    pub roots: SessionRoots,
    /// What runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// After how long without a heartbeat it is idle.
    pub idle_timeout_ms: u64,
    /// When it was registered, or woken.
    #[serde(rename = "registered_at_ms")]
    pub registered_at: Timestamp,
    /// When it was last said to be in use.
    #[serde(rename = "heartbeat_at_ms")]
    pub heartbeat_at: Timestamp,
    /// What it is woken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<DurableSnapshot>,
    /// Whether snapshots may be left that this one replaced: whoever comes next removes them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_prune: bool,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<SessionProblem>,
    /// The session whose snapshot it began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<SessionRef>,
    /// Since when it is deleted, if it is.
    #[serde(
        rename = "deleted_at_ms",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub deleted_at: Option<Timestamp>,
    /// The last operations that wrote it, the newest last: how a lost answer is settled.
    #[serde(default)]
    pub recent: Vec<OpId>,
    #[serde(flatten)]
    pub(super) extra: Map<String, Value>,
}

impl Document for SessionDocument {
    const NAME: &'static str = "session.json";
}

impl SessionDocument {
    /// The same session in another sandbox, or in none.
    #[must_use = "the document is not changed in place"]
    pub fn running_in(&self, sandbox: Option<Sandbox>) -> Self {
        Self {
            sandbox,
            ..self.clone()
        }
    }

    /// What its sandbox is, whatever it is called and whoever asks: sessions with the same are ended together. A process or a container is
    /// itself under any name, for any tenant; what commands reach is what a tenant's name on a host and one command that ends it mean; what was not started
    /// is nobody else's.
    pub fn sandbox_identity(&self) -> Option<String> {
        let sandbox = self.sandbox.as_ref()?;
        let name = || {
            format!(
                "{}, {}, {}",
                self.session.tenant, self.place.host, sandbox.name
            )
        };
        Some(match &sandbox.driver {
            SandboxDriver::Process { pid: 0, .. } => format!("not started, {}", name()),
            SandboxDriver::Process {
                pid,
                started,
                boot,
                mark: _,
            } => format!("process {pid}, {started}, {boot}"),
            SandboxDriver::Docker { container, .. } => format!("container {container}"),
            SandboxDriver::Command => {
                let end = sandbox.commands.terminate.as_deref().unwrap_or_default();
                format!("commands, {}, {end}", name())
            }
        })
    }

    /// Whether it lies where another state of it does, and the same is saved of it and runs it.
    pub fn runs_as(&self, other: &Self) -> bool {
        self.place == other.place && self.roots == other.roots && self.sandbox == other.sandbox
    }

    /// Whether it is another session that runs in the sandbox of this one.
    pub fn is_run_beside(&self, one: &Self) -> bool {
        self.session != one.session
            && self.is_alive()
            && self.state == SessionState::Running
            && self.sandbox.is_some()
            && self.sandbox_identity() == one.sandbox_identity()
    }

    /// Since when nobody has said that it is in use.
    pub fn idle_since(&self) -> Timestamp {
        self.heartbeat_at.max(self.registered_at)
    }

    /// Whether nobody has said so for as long as it allows.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        now.since(self.idle_since()) >= Duration::from_millis(self.idle_timeout_ms)
    }

    /// Whether an operation wrote it, as far back as it records them.
    pub fn remembers(&self, op_id: OpId) -> bool {
        self.recent.contains(&op_id)
    }

    /// Who is doing something to it that has not expired.
    pub fn claimed(&self, now: Timestamp) -> Option<&SessionClaim> {
        self.claim.as_ref().filter(|claim| now < claim.expires_at)
    }

    /// Whether it is there, and not deleted.
    pub fn is_alive(&self) -> bool {
        self.deleted_at.is_none()
    }
}
