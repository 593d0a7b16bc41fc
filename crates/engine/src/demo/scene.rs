//! What a demo reports: one scene after the other, each with its numbers and with what was verified.

use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::display_as_serialized;
use std::fmt::Display;

/// Something that was claimed, and what was found when it was read back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DemoCheck {
    /// In words.
    pub claim: String,
    /// What has to be found.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// Whether they are the same.
    pub holds: bool,
}

impl DemoCheck {
    pub(super) fn new(claim: &str, expected: impl Display, found: impl Display) -> Self {
        let (expected, found) = (expected.to_string(), found.to_string());
        Self {
            claim: claim.to_owned(),
            holds: expected == found,
            expected,
            found,
        }
    }
}

/// One thing that was done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DemoScene {
    /// What it is about, with its numbers.
    #[serde(flatten)]
    pub facts: SceneFacts,
    /// What was claimed, and what was found.
    pub checks: Vec<DemoCheck>,
    /// How long the scene took, with everything that was read back.
    pub took_us: u64,
}

impl DemoScene {
    /// What did not hold.
    pub fn failed(&self) -> impl Iterator<Item = &DemoCheck> {
        self.checks.iter().filter(|check| !check.holds)
    }
}

/// What a scene is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(tag = "scene", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SceneFacts {
    /// A directory with work in it becomes a workspace.
    Shop(ShopFacts),
    /// An agent deletes it.
    Accident(AccidentFacts),
    /// It comes back.
    Rewind(RewindFacts),
    /// Many checkpoints.
    Checkpoints(CheckpointsFacts),
    /// Three forks, of which one is promoted.
    Race(RaceFacts),
    /// The promotion is undone, and the undo too.
    Undo(UndoFacts),
    /// An application with a database in a PostgreSQL server.
    Postgres(PostgresFacts),
    /// A browser profile on two hosts.
    Browser(BrowserFacts),
    /// A session that sleeps on one host and wakes on another.
    Session(SessionFacts),
    /// A container with a volume.
    Container(DemoContainerFacts),
    /// What this machine, or this build, cannot show.
    Skipped(SkippedFacts),
}

/// The shop before anything happens to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ShopFacts {
    /// Files, without those in `.git`.
    pub files: u64,
    /// All bytes of the directory.
    pub bytes: u64,
    /// Rows in the table of orders.
    pub orders: u64,
    /// Files that are in no commit as they are now; nothing where there is no Git.
    pub uncommitted: Option<u64>,
    /// The first checkpoint: `cp-0`.
    pub checkpoint: String,
    /// How long that took.
    pub checkpoint_us: u64,
}

/// What the agent left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AccidentFacts {
    /// What the agent was asked.
    pub prompt: String,
    /// What it ran.
    pub command: String,
    /// How long the checkpoint before the prompt took.
    pub checkpoint_us: u64,
    /// Files before.
    pub files_before: u64,
    /// Files that are left.
    pub files_left: u64,
    /// Files that Git could bring back as they were; nothing where there is no Git.
    pub in_git: Option<u64>,
    /// Whether the database is still there.
    pub has_database: bool,
}

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RewindFacts {
    /// From which checkpoint.
    pub checkpoint: String,
    /// Files that are there and hold what they held.
    pub files: u64,
    /// Orders that are in the database.
    pub orders: u64,
    /// What SQLite says of the database.
    pub integrity: String,
    /// How long the restore took, until everything was on the disk.
    pub restore_us: u64,
}

/// What many checkpoints cost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CheckpointsFacts {
    /// How many were made.
    pub checkpoints: u64,
    /// How long one took: the median.
    pub median_us: u64,
    /// What copies of the directory would take: the bytes of each of them together.
    pub copies_bytes: u64,
    /// What these checkpoints added to the disk.
    pub added_bytes: u64,
    /// What all checkpoints take of it, the first one too.
    pub held_bytes: u64,
    /// The one of them that was written out and compared.
    pub compared: String,
}

/// A fork of the race.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Racer {
    /// The name of the fork.
    pub fork: String,
    /// What was tried in it.
    pub idea: String,
    /// How long the report takes in it: the median.
    pub report_ns: u64,
}

/// Three forks and a winner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RaceFacts {
    /// How long it took to make them.
    pub fork_us: u64,
    /// Each with its time.
    pub racers: Vec<Racer>,
    /// How long the report took before.
    pub report_ns_before: u64,
    /// The fastest.
    pub winner: String,
    /// How long the report takes in the workspace now.
    pub report_ns_after: u64,
    /// How long the promotion took.
    pub promote_us: u64,
}

/// An undo, and the undo of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UndoFacts {
    /// How long the first took.
    pub undo_us: u64,
    /// How long the second took.
    pub redo_us: u64,
}

/// A database in a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PostgresFacts {
    /// The server's version.
    pub version: String,
    /// Rows in the table of orders, before and after.
    pub orders: u64,
    /// How long the save took.
    pub save_us: u64,
    /// How long the restore took.
    pub restore_us: u64,
}

/// A cookie on two hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct BrowserFacts {
    /// The browser's major version.
    pub major: u32,
    /// Files of the profile.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is in the store of them.
    pub archive_bytes: u64,
    /// How long the load on the second host took.
    pub load_us: u64,
}

/// A session on two hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionFacts {
    /// Files of its workspace.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long it took to save it and to end its sandbox.
    pub sleep_us: u64,
    /// How long the wake on the second host took.
    pub wake_us: u64,
}

/// A container that is replaced by what it was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DemoContainerFacts {
    /// The bytes of its volume.
    pub bytes: u64,
    /// For how long it stood still to be saved.
    pub frozen_ms: u64,
    /// How long the save took.
    pub save_us: u64,
    /// How long it took until what it was ran again.
    pub restore_us: u64,
}

/// A part of the demo.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DemoPart {
    /// `git`, which the agent calls.
    Git,
    /// A PostgreSQL server.
    Postgres,
    /// A Chromium.
    Browser,
    /// A container.
    Container,
    /// A session: a sandbox that sleeps and wakes.
    Session,
}

display_as_serialized!(DemoPart);

/// Something that was not shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SkippedFacts {
    /// What.
    pub part: DemoPart,
    /// Why.
    pub why: String,
}
