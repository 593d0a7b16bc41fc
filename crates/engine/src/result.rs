//! Closed sets that results of several kinds have in common, and rows that results and errors have in common.

mod project;

pub(crate) use project::reason_word;
pub use project::{Moment, ProjectSnapshot, ServiceHookRun};

use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::check::{DatabaseKind, Recovered, Verdict};
use stasis_disk::tree::clone::Method;
use stasis_disk::tree::walk::WalkSkip;
use stasis_model::display_as_serialized;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryKind;

/// What an entry of a tree is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum EntryType {
    File,
    Directory,
    Symlink,
    HardLink,
    Fifo,
}

impl From<&EntryKind> for EntryType {
    fn from(kind: &EntryKind) -> Self {
        match kind {
            EntryKind::File { .. } => Self::File,
            EntryKind::Directory => Self::Directory,
            EntryKind::Symlink { .. } => Self::Symlink,
            EntryKind::HardLink { .. } => Self::HardLink,
            _ => Self::Fifo,
        }
    }
}

/// How a directory came to have its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CopyMethod {
    /// As a snapshot of a btrfs subvolume.
    Subvolume,
    /// File by file, sharing extents; what could not be shared was copied.
    Reflink,
    /// File by file; nothing could be shared.
    Copy,
    /// Written from stored chunks.
    Chunks,
}

impl From<Method> for CopyMethod {
    fn from(method: Method) -> Self {
        match method {
            Method::Subvolume => Self::Subvolume,
            Method::Reflink => Self::Reflink,
            _ => Self::Copy,
        }
    }
}

/// How a restored directory took its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlacedAs {
    /// Nothing was there.
    New,
    /// It was exchanged with what was there, which is kept beside it.
    Replaced,
    /// The directory stayed; its entries changed.
    InPlace,
}

/// Why an entry is not in a copy of its tree, or not to be trusted in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum SkipReason {
    Vanished,
    Replaced,
    Changed,
    Unreadable,
    Fifo,
    Socket,
    Device,
    OtherFilesystem,
    OwnTarget,
    Inconsistent,
    TooLarge,
}

impl From<WalkSkip> for SkipReason {
    fn from(reason: WalkSkip) -> Self {
        match reason {
            WalkSkip::Vanished => Self::Vanished,
            WalkSkip::Replaced => Self::Replaced,
            WalkSkip::Changed => Self::Changed,
            WalkSkip::Unreadable => Self::Unreadable,
            WalkSkip::Fifo => Self::Fifo,
            WalkSkip::Socket => Self::Socket,
            WalkSkip::Device => Self::Device,
            WalkSkip::OtherFilesystem => Self::OtherFilesystem,
            WalkSkip::OwnTarget => Self::OwnTarget,
            WalkSkip::Inconsistent => Self::Inconsistent,
            WalkSkip::TooLarge => Self::TooLarge,
        }
    }
}

/// What kind of database was checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum DatabaseEngine {
    Sqlite,
    LevelDb,
}

impl From<DatabaseKind> for DatabaseEngine {
    fn from(kind: DatabaseKind) -> Self {
        match kind {
            DatabaseKind::LevelDb => Self::LevelDb,
            _ => Self::Sqlite,
        }
    }
}

/// What a check found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseVerdict {
    /// Nothing wrong was found.
    Sound,
    /// Something wrong was found.
    Damaged,
    /// The file only looks like one.
    NotADatabase,
    /// The check took too long.
    TimedOut,
    /// It is larger than what is checked.
    Limit,
    /// It changed during the check.
    Changed,
    /// The check itself failed.
    Unable,
}

impl From<&Verdict> for DatabaseVerdict {
    fn from(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Sound { .. } => Self::Sound,
            Verdict::Damaged { .. } => Self::Damaged,
            Verdict::NotADatabase => Self::NotADatabase,
            Verdict::TimedOut => Self::TimedOut,
            Verdict::Limit { .. } => Self::Limit,
            Verdict::Changed => Self::Changed,
            Verdict::Unable { .. } => Self::Unable,
        }
    }
}

/// What was replayed or cut off before a database was checked, as its own program would.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseRecovery {
    /// A rollback journal of SQLite.
    Journal,
    /// A write-ahead log of SQLite.
    Wal,
    /// The torn end of a LevelDB log.
    TornTail,
}

impl DatabaseRecovery {
    pub(crate) fn of(recovered: Recovered) -> Option<Self> {
        match recovered {
            Recovered::Journal => Some(Self::Journal),
            Recovered::Wal => Some(Self::Wal),
            Recovered::TornTail => Some(Self::TornTail),
            _ => None,
        }
    }
}

display_as_serialized!(
    EntryType,
    CopyMethod,
    PlacedAs,
    SkipReason,
    DatabaseEngine,
    DatabaseVerdict,
    DatabaseRecovery,
);

/// A snapshot that can be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrowsedSnapshot {
    /// Names it, and no other of the subject, ever.
    pub id: String,
    /// What it is called besides; only checkpoints have such a name, which another one has later.
    pub name: Option<String>,
    /// When it was made.
    pub at: Timestamp,
    /// The values of its labels.
    pub labels: Vec<String>,
    /// Whether it is kept whatever a policy says.
    pub pinned: bool,
    /// Whether it is what `latest` means.
    pub latest: bool,
}
