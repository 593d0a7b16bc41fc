//! `metadata.json`: what is known of a checkpoint.

use super::{AgentEvent, CheckpointName, Slot};
use crate::digest::{FileDigest, WorkspaceDigest};
use crate::format::manifest::StoredAs;
use crate::invalid::{Invalid, InvalidPart};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// More bytes than this are not read.
pub const LARGEST_METADATA: usize = 64 << 10;

/// Who made a checkpoint, and so which pool it is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CheckpointOrigin {
    /// The timer.
    Auto,
    /// A user.
    Manual,
    /// Whatever is about to change the live tree: it is in no pool, and takes that change back.
    Undo,
    /// A coding agent, before it began to work on a prompt.
    Prompt,
    /// A coding agent, before it ran a command or changed files.
    Command,
}

impl CheckpointOrigin {
    /// Whether they are made without being asked for: none is made while nothing changes, and they go when room is needed.
    pub fn is_automatic(self) -> bool {
        matches!(self, Self::Auto | Self::Prompt | Self::Command)
    }

    /// Whether it is one of the pools of agents.
    pub fn is_agents(self) -> bool {
        matches!(self, Self::Prompt | Self::Command)
    }
}

/// How the bytes of a checkpoint are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SlotForm {
    /// As directories that share their bytes with the workspace, where the filesystem can: the snapshot of a subvolume, a copy, or
    /// what a change took out.
    #[default]
    Clone,
    /// As chunks that all checkpoints of a session share.
    Chunked,
    /// As clones of single files, which all checkpoints of a session share: one for each version that a file had.
    Versions,
}

impl SlotForm {
    /// Whether it is a list of files whose bytes lie elsewhere in the session.
    pub fn is_list(self) -> bool {
        matches!(self, Self::Chunked | Self::Versions)
    }
}

crate::display_as_serialized!(CheckpointOrigin, SlotForm);

/// What an undo checkpoint takes back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UndoNote {
    /// `revert`, `restore` or `undo`.
    pub act: String,
    /// The entry that was changed, as paths are displayed; nothing for the whole tree.
    pub path: Option<String>,
    /// The directories above it that were not there before, as paths are displayed, the topmost first.
    #[serde(default)]
    pub made: Vec<String>,
    /// Where the new state came from: `cp-3`, or `u-4`.
    pub from: String,
    /// The number of the first one, if one undo took several changes back and left this after that: they are taken back together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u32>,
    /// Whether it is not recorded yet that it was done.
    #[serde(default)]
    pub pending: bool,
}

/// What the path of a database begins with that is in the system of a workspace.
pub const OF_SYSTEM: &str = "system:";

/// No more databases than this are listed in the metadata of a checkpoint.
pub const MOST_DATABASES: usize = 64;

/// And no more bytes of their paths: everything must be read again.
const MOST_DATABASE_BYTES: usize = LARGEST_METADATA / 4;

/// And no more bytes of the paths that are not in it.
const MOST_LEFT_OUT_BYTES: usize = LARGEST_METADATA / 8;

/// A SQLite database in a checkpoint, which holds its files as they were.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SlotDatabase {
    /// Where it is, as paths are displayed; in the system that belongs to a workspace, after `system:`.
    pub path: String,
    /// How its files fit together.
    pub state: StoredAs,
    /// Why they could not be made to fit, for users; nothing where nothing went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl SlotDatabase {
    /// The same database, in the system that belongs to a workspace.
    #[must_use]
    pub fn of_system(self) -> Self {
        let path = format!("{OF_SYSTEM}{}", self.path);
        Self { path, ..self }
    }

    /// As many as are listed: first those that must be reported.
    pub fn listed(mut all: Vec<Self>) -> Vec<Self> {
        let order = |one: &Self| (one.why.is_none(), one.state == StoredAs::Consistent);
        all.sort_by(|one, other| {
            let by_path = || one.path.cmp(&other.path);
            order(one).cmp(&order(other)).then_with(by_path)
        });
        all.truncate(MOST_DATABASES);
        let mut room = MOST_DATABASE_BYTES;
        all.retain(|one| {
            let bytes = one.path.len() + one.why.as_ref().map_or(0, String::len);
            let is_fit = bytes <= room;
            room = room.saturating_sub(bytes);
            is_fit
        });
        all
    }
}

/// The seven fields of the contract, and ours after them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SlotMetadata {
    /// Absolute index.
    pub slot: Slot,
    /// When, as users read it: ISO 8601.
    pub timestamp: String,
    /// When, in whole seconds since 1970.
    pub epoch_secs: u64,
    /// When, in milliseconds since 1970.
    pub epoch_millis: u64,
    /// Who made it.
    pub origin: CheckpointOrigin,
    /// The name a user gave it.
    pub name: Option<CheckpointName>,
    /// BLAKE3 of the manifest of its contents, when it has been computed.
    pub hash: Option<WorkspaceDigest>,
    /// Counts the checkpoints of a workspace: what came later has more, whatever the clock said.
    #[serde(default)]
    pub sequence: u64,
    /// Whether everything that was there is in it; what was left out is reported when it is made.
    #[serde(default = "yes")]
    pub complete: bool,
    /// How many regular files it has.
    #[serde(default)]
    pub files_count: u64,
    /// How long they are together.
    #[serde(default)]
    pub bytes: u64,
    /// More than this it cannot hold on the disk, with everything that is in it; nothing where that is unknown.
    #[serde(default)]
    pub bytes_at_most: Option<u64>,
    /// How its bytes are kept.
    #[serde(default)]
    pub form: SlotForm,
    /// BLAKE3 of its `workspace.json`, if it is a list: any other one is not its own. What was made before that was kept has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_digest: Option<FileDigest>,
    /// That of its `system.json`, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_digest: Option<FileDigest>,
    /// Who asked for it, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    /// What it takes back, if it is an undo checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<UndoNote>,
    /// What agents were about to do while the tree was this one: first what it was made for, then what found it unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_events: Vec<AgentEvent>,
    /// The SQLite databases in it, as far as they are listed; what was made before they were looked for has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<SlotDatabase>,
    /// What was there and is not in it, because it could not be read, as paths are displayed; as many as are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// How many those are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out_count: u64,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl SlotMetadata {
    /// What is known of a checkpoint before it is made.
    pub fn new(slot: Slot, origin: CheckpointOrigin, at: Timestamp, sequence: u64) -> Self {
        Self {
            slot,
            timestamp: at.to_string(),
            epoch_secs: at.millis() / 1000,
            epoch_millis: at.millis(),
            origin,
            name: None,
            hash: None,
            sequence,
            complete: true,
            files_count: 0,
            bytes: 0,
            bytes_at_most: None,
            form: SlotForm::default(),
            workspace_digest: None,
            system_digest: None,
            made_by: None,
            undo: None,
            agent_events: Vec::new(),
            databases: Vec::new(),
            left_out: Vec::new(),
            left_out_count: 0,
        }
    }

    /// The same, with what is not in it: `count` entries, of which these are known by name.
    #[must_use]
    pub fn without(mut self, known: impl Iterator<Item = String>, count: u64) -> Self {
        let mut room = MOST_LEFT_OUT_BYTES;
        let is_fit = |path: &String| {
            let is_fit = path.len() <= room;
            room = room.saturating_sub(path.len());
            is_fit
        };
        self.left_out = known.take_while(is_fit).collect();
        self.left_out_count = count;
        self
    }

    /// Reads the document that was found in the directory of `slot`.
    pub fn parse(slot: Slot, bytes: &[u8]) -> Result<Self, Invalid> {
        if bytes.len() > LARGEST_METADATA {
            let found = bytes.len();
            return Err(Invalid::new(format!(
                "the metadata of {slot} is {found} bytes large; more than {LARGEST_METADATA} are never read"
            )));
        }
        let read: Self = serde_json::from_slice(bytes).invalid(format!(
            "the metadata of {slot} is not what such a document says"
        ))?;
        if read.slot != slot {
            let says = read.slot;
            return Err(Invalid::new(format!(
                "the metadata of {slot} says that it is that of {says}"
            )));
        }
        if read.epoch_secs != read.epoch_millis / 1000 {
            return Err(Invalid::new(format!(
                "the metadata of {slot} says two different times"
            )));
        }
        Ok(read)
    }

    /// The document.
    pub fn to_json(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("plain fields are always JSON");
        bytes.push(b'\n');
        bytes
    }

    /// What came later is larger.
    pub fn age_key(&self) -> (u64, u64, Slot) {
        (self.sequence, self.epoch_millis, self.slot)
    }

    /// Whether a newer one of the timer may take its place.
    pub fn may_go(&self) -> bool {
        self.origin == CheckpointOrigin::Auto && self.name.is_none()
    }

    /// Whether both are about one checkpoint, whatever was found out about it since.
    pub fn is_same_checkpoint(&self, other: &Self) -> bool {
        self.age_key() == other.age_key() && self.origin == other.origin && self.name == other.name
    }
}

/// What is in a slot.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are a few dozen at most, and nearly all are known"
)]
pub enum Occupant {
    /// A checkpoint.
    Known(SlotMetadata),
    /// Something of which nothing can be said: it is never used and never overwritten.
    Unreadable {
        /// Where.
        slot: Slot,
        /// Why.
        why: String,
    },
}

impl Occupant {
    /// Where it is.
    pub fn slot(&self) -> Slot {
        match self {
            Self::Known(metadata) => metadata.slot,
            Self::Unreadable { slot, .. } => *slot,
        }
    }

    /// The checkpoint, if it is one.
    pub fn known(&self) -> Option<&SlotMetadata> {
        match self {
            Self::Known(metadata) => Some(metadata),
            Self::Unreadable { .. } => None,
        }
    }
}
