//! What the verbs of a workspace answer: the fields are what every surface shows.
//!
//! Paths are written as [`EntryPath`](stasis_model::tree::EntryPath) displays them: lossless and safe to print.

use crate::clone::LeftOut;
use crate::restore::LeftAloneEntry;
use crate::result::EntryType;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::display_as_serialized;
use stasis_model::filesystem::Filesystem;
use stasis_model::format::manifest::StoredAs;
use stasis_model::workspace::{AgentEventKind, CheckpointOrigin, Slot, SlotForm, SlotMetadata};

/// A checkpoint, as it is listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CheckpointRow {
    /// `cp-3`
    pub checkpoint: String,
    /// Its absolute slot.
    pub slot: u32,
    /// Which pool it is in.
    pub origin: CheckpointOrigin,
    /// What somebody called it.
    pub name: Option<String>,
    /// BLAKE3 of the manifest of its contents, when it has been computed.
    pub hash: Option<String>,
    /// When it was made.
    pub timestamp: String,
    /// The same, in milliseconds since 1970.
    pub epoch_millis: u64,
    /// The same, as people say it: `3 min ago`.
    pub age: String,
    /// How many regular files it has.
    pub files_count: u64,
    /// How long they are together.
    pub bytes: u64,
    /// How its bytes are kept.
    pub form: SlotForm,
    /// Whether everything that was there is in it.
    pub complete: bool,
    /// Who asked for it: `cli`, `mcp`, `watch`, `hook` or `serve`.
    pub made_by: Option<String>,
    /// What agents were about to do while the tree was this one: first what it was made for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agent_events: Vec<AgentEventRow>,
    /// The SQLite databases in it; as many as are listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<DatabaseRow>,
    /// What was there and is not in it, because it could not be read; as many as are listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// How many those are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out_count: Option<u64>,
    /// The file events since the checkpoint before it, as far as anybody watched.
    pub events: EventCounts,
    /// What differs from the checkpoint before it, in numbers; only when changes were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes_summary: Option<ChangesSummary>,
    /// What differs from the checkpoint before it; only when changes were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Vec<PathChange>>,
}

/// What one checkpoint takes of the disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CheckpointUse {
    /// `cp-3`
    pub checkpoint: String,
    /// What somebody called it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was made.
    pub timestamp: String,
    /// The same in milliseconds.
    pub timestamp_ms: u64,
    /// How long its files are together.
    pub bytes: u64,
    /// What it needs of the disk, alone or with others.
    pub bytes_held: u64,
    /// What no other checkpoint needs: so much is free without it.
    pub bytes_freed: u64,
}

/// What all checkpoints of a workspace take of the disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CheckpointsUse {
    /// Each of them, the oldest first.
    pub items: Vec<CheckpointUse>,
    /// What they take together, with what can be undone.
    pub bytes_held: u64,
    /// What only the undos need of that.
    pub bytes_of_undos: u64,
}

/// A SQLite database in a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DatabaseRow {
    /// Where it is; in the system of a workspace, after `system:`.
    pub path: String,
    /// In what state it is in the checkpoint.
    pub stored_as: StoredAs,
    /// Why it could not be made consistent; nothing where nothing went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl DatabaseRow {
    pub(super) fn of(made: &SlotMetadata) -> Vec<Self> {
        let databases = made.databases.iter().map(|one| Self {
            path: one.path.clone(),
            stored_as: one.state,
            why: one.why.clone(),
        });
        databases.collect()
    }

    /// Whether a user could expect more of it.
    pub fn is_wanting(&self) -> bool {
        self.why.is_some()
    }
}

/// What an agent was about to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct AgentEventRow {
    /// What kind of act.
    pub event: AgentEventKind,
    /// The agent: `claude-code`.
    pub agent: String,
    /// The agent's own id of the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The number of the prompt, counted in this workspace; of a command or an edit, that of the prompt it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<u64>,
    /// The agent's own id of that prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The first line of the prompt or the command, or the path of an edit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// When.
    pub timestamp: String,
    /// The same in milliseconds.
    pub timestamp_ms: u64,
    /// How long after that the checkpoint was complete, if the agent did not wait for it: what it did meanwhile may be in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u64>,
}

/// A prompt that can be gone back to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct PromptRow {
    /// Its number, counted in this workspace.
    pub prompt: u64,
    /// The checkpoint that holds the tree as it was before it: `cp-100`.
    pub checkpoint: String,
    /// The agent: `claude-code`.
    pub agent: String,
    /// The agent's own id of the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The agent's own id of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// Its first line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// When.
    pub timestamp: String,
    /// The same in milliseconds.
    pub timestamp_ms: u64,
    /// The same, as people say it.
    pub age: String,
    /// How many commands and edits of it are known.
    pub commands: u64,
    /// How long after it its checkpoint was complete, if the agent did not wait for it: what it did meanwhile may be in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u64>,
}

/// How many file events there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct EventCounts {
    /// Files that came.
    pub created: u64,
    /// Files that changed.
    pub modified: u64,
    /// Files that went.
    pub deleted: u64,
    /// Files that were brought back from a checkpoint.
    pub restored: u64,
}

/// Differences in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ChangesSummary {
    /// Entries that came.
    pub created: u64,
    /// Entries that changed.
    pub edited: u64,
    /// Entries that went.
    pub deleted: u64,
    /// All of them.
    pub total: u64,
}

/// What became of one entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct PathChange {
    /// Which.
    pub path: String,
    /// Against the checkpoint.
    pub op: ChangeOp,
    /// What it is, or was if it is gone.
    pub kind: EntryType,
    /// How long the file is; `None` for what is no file, or gone.
    pub size: Option<u64>,
    /// Whether it is, or was, a symbolic link.
    pub is_symlink: bool,
    /// The checkpoint it differs from.
    pub checkpoint: String,
    /// How old that is.
    pub checkpoint_age: String,
    /// Which pool that is in.
    pub checkpoint_origin: CheckpointOrigin,
    /// What that is called.
    pub checkpoint_name: Option<String>,
}

/// Something in a slot that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UnreadableSlot {
    /// `cp-3`
    pub checkpoint: String,
    /// What is wrong with it.
    pub why: String,
}

/// All checkpoints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Checkpoints {
    /// The newest first.
    #[serde(rename = "items")]
    pub snapshots: Vec<CheckpointRow>,
    /// What is in slots and cannot be used; it is never overwritten.
    pub unreadable: Vec<UnreadableSlot>,
    /// How many automatic ones there are at most.
    pub auto_max: u32,
    /// How many manual ones there are at most.
    pub manual_max: u32,
    /// How many more manual ones there can be.
    pub manual_available: u32,
    /// What a user should know of checkpoints that take too long for hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_warning: Option<String>,
}

/// A commit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct GitCommit {
    /// Its short id.
    pub id: String,
    /// The first line of its message.
    pub subject: String,
}

/// What happened to the Git repository of a workspace since a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct GitChange {
    /// `.git`
    pub path: String,
    /// The branch that is checked out.
    pub branch: Option<String>,
    /// How many commits it has that it did not have then; nothing where nobody can tell.
    pub commits: Option<u64>,
    /// How many entries differ in it.
    pub entries: u64,
}

/// What a plan does to the Git repository of a workspace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct GitPlan {
    /// `.git`
    pub path: String,
    /// The branch that is checked out now.
    pub branch: Option<String>,
    /// The branch that will be.
    pub branch_then: Option<String>,
    /// What moves: `HEAD`, `refs`, `index`.
    pub moves: Vec<&'static str>,
    /// How many commits leave the branch that is checked out; nothing where nobody can tell.
    pub commits_leaving: Option<u64>,
    /// The newest of those, at most five.
    pub commits: Vec<GitCommit>,
    /// How many entries change in it.
    pub entries: u64,
}

impl GitPlan {
    /// Whether commits leave, as far as anybody can tell.
    pub fn takes_commits(&self) -> bool {
        self.commits_leaving != Some(0)
    }
}

/// What differs from the checkpoints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct WorkspaceChanges {
    /// Each entry that differs.
    #[serde(rename = "items")]
    pub changes: Vec<PathChange>,
    /// How many there are of each kind.
    pub summary: ChangesSummary,
    /// What happened to the Git repository, which is one of the entries above unless its own were asked for.
    pub git: Option<GitChange>,
    /// The checkpoints that were compared with, the newest first.
    pub compared_with: Vec<String>,
    /// Entries that could not be read, and so were not compared.
    pub not_compared: Vec<String>,
}

/// What differs in one entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct PathDiff {
    /// Which.
    pub path: String,
    /// The checkpoint it is compared with.
    pub checkpoint: String,
    /// What became of it since.
    pub status: PathStatus,
    /// What was compared.
    pub kind: DiffKind,
    /// A unified diff, where both sides are text, or links.
    pub unified: Option<String>,
    /// Whether the unified diff was cut because it is too long.
    pub truncated: bool,
    /// What it was in the checkpoint.
    pub before: Option<DiffSide>,
    /// What it is now.
    pub after: Option<DiffSide>,
    /// What differs in a directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<PathChange>,
}

/// One side of a difference.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct DiffSide {
    /// What it is on this side.
    pub kind: EntryType,
    /// How long the file is.
    pub size: Option<u64>,
    /// Permissions in octal, without those of links.
    pub mode: Option<String>,
    /// BLAKE3 of the content of a file.
    pub digest: Option<String>,
    /// What stands for the extended attributes of its user; nothing where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<String>,
}

/// A checkpoint that was made, or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was left out, and what had to go, is said only here"]
pub struct Checkpointed {
    /// Whether there is a new one.
    pub created: bool,
    /// `cp-3`: the new one, or with `created: false` the one that is all that is needed.
    pub checkpoint: String,
    /// Its absolute slot.
    pub slot: u32,
    /// Which pool it is in.
    pub origin: CheckpointOrigin,
    /// What it is called.
    pub name: Option<String>,
    /// BLAKE3 of the manifest of its contents.
    pub hash: Option<String>,
    /// How many more manual ones there can be.
    pub available: u32,
    /// How many regular files it has.
    pub files_count: u64,
    /// How long they are together.
    pub bytes: u64,
    /// How checkpoints are kept.
    pub form: SessionForm,
    /// Why there is no new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Automatic checkpoints that went because of the budget.
    pub evicted: Vec<String>,
    /// Checkpoints of agents that were thinned out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub thinned: Vec<String>,
    /// Entries that vanished, changed, or could not be read; the first thousand.
    pub left_out: Vec<LeftOut>,
    /// How many those are.
    pub left_out_count: u64,
    /// The SQLite databases in it; as many as are listed, first those that could not be made consistent.
    pub databases: Vec<DatabaseRow>,
    /// Whether it was only shown what would be done.
    pub dry_run: bool,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// What a revert or a restore does to the live tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ChangePlan {
    /// Entries that come back.
    pub creates: u64,
    /// Entries that become what they were.
    pub replaces: u64,
    /// Entries that go, because they did not exist then.
    pub deletes: u64,
    /// Files and links among those that go.
    pub deletes_files: u64,
    /// The first hundred, each with what is done to it: what comes back is `created`, what goes is `deleted`.
    pub sample: Vec<PathChange>,
    /// Whether there are more than those.
    pub sample_is_cut: bool,
    /// What is done to the Git repository, which counts as one entry.
    pub git: Option<GitPlan>,
    /// What an agent must give back before more than 20 files are deleted: it stands for what the tree becomes and what is deleted
    /// for it, not for what others write meanwhile.
    pub digest: String,
}

/// An entry that was reverted, or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RevertedPath {
    /// Whether anything was changed.
    pub reverted: bool,
    /// Which entry.
    pub path: String,
    /// What the revert does to it.
    pub action: RevertAction,
    /// From which checkpoint.
    pub checkpoint: String,
    /// What takes it back: `u-4`.
    pub undo: Option<String>,
    /// Entries that others changed while this was done: what they wrote is in the undo checkpoint, or still in the workspace.
    pub changed_meanwhile: Vec<String>,
    /// What can be undone no longer, because it is too old or over the budget.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undo_forgotten: Vec<ForgottenUndo>,
    /// What was, or would be, done.
    pub plan: ChangePlan,
    /// Whether it was only shown what would be done.
    pub dry_run: bool,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// An undo checkpoint that is gone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ForgottenUndo {
    /// `u-4`
    pub undo: String,
    /// Its age, or the room it took.
    pub why: ForgetReason,
}

/// What a checkpoint holds that is excluded from checkpoints by now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ExcludedNow {
    /// How many entries.
    pub entries: u64,
    /// The outermost of them, at most ten.
    pub paths: Vec<String>,
}

/// A workspace that was restored, or not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RestoredWorkspace {
    /// Whether anything was changed.
    pub restored: bool,
    /// From which checkpoint.
    pub checkpoint: String,
    /// What takes it back: `u-4`.
    pub undo: Option<String>,
    /// Entries that others changed while this was done: what they wrote is in the undo checkpoint, or still in the workspace.
    pub changed_meanwhile: Vec<String>,
    /// What can be undone no longer, because it is too old or over the budget.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undo_forgotten: Vec<ForgottenUndo>,
    /// Entries that were left as they are though nobody asked for that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<LeftAloneEntry>,
    /// What was left as it is because it is excluded from checkpoints by now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded_now: Option<ExcludedNow>,
    /// What was, or would be, done.
    pub plan: ChangePlan,
    /// Entries that are the same as before, with the same inodes.
    pub untouched: u64,
    /// Whether it was only shown what would be done.
    pub dry_run: bool,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// What is known of one entry through all checkpoints.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PathHistory {
    /// Which.
    pub path: String,
    /// What it is now; nothing when it is not there.
    pub current_kind: Option<EntryType>,
    /// How long the file is now.
    pub current_size: Option<u64>,
    /// Whether it holds what it holds in the newest checkpoint.
    pub current_status: VersionStatus,
    /// The newest first.
    #[serde(rename = "items")]
    pub versions: Vec<PathVersion>,
}

/// An entry in one checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PathVersion {
    /// `cp-3`
    pub checkpoint: String,
    /// Which pool it is in.
    pub origin: CheckpointOrigin,
    /// What somebody called it.
    pub name: Option<String>,
    /// How old it is.
    pub age: String,
    /// When it was made.
    pub timestamp: String,
    /// The same in milliseconds.
    pub timestamp_ms: u64,
    /// How long the file is in it.
    pub size: Option<u64>,
    /// Against the checkpoint before it.
    pub status: VersionStatus,
}

/// What tells a checkpoint from a later one in the same slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CheckpointIdentity {
    pub(super) slot: Slot,
    /// When it was made, and as which; none if it cannot be read.
    made: Option<(u64, u64)>,
}

impl CheckpointIdentity {
    /// Of what cannot be read.
    pub(super) fn unreadable(slot: Slot) -> Self {
        Self { slot, made: None }
    }
}

impl From<&SlotMetadata> for CheckpointIdentity {
    fn from(of: &SlotMetadata) -> Self {
        Self {
            slot: of.slot,
            made: Some((of.epoch_millis, of.sequence)),
        }
    }
}

/// A checkpoint that was deleted, or would be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DeletedCheckpoint {
    /// Whether it is gone.
    pub deleted: bool,
    /// Which.
    pub checkpoint: String,
    /// What it was called.
    pub name: Option<String>,
    /// Whether it was only shown what would be done.
    pub dry_run: bool,
    #[serde(skip)]
    pub(super) seen: CheckpointIdentity,
}

/// Checkpoints that became one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Compacted {
    /// Whether they did.
    pub compacted: bool,
    /// The one that is left.
    pub checkpoint: String,
    /// What it is called.
    pub name: Option<String>,
    /// BLAKE3 of the manifest of its contents.
    pub hash: Option<String>,
    /// How many became one.
    pub merged_count: usize,
    /// Those that are gone.
    pub deleted_checkpoints: Vec<String>,
    /// How many regular files it has.
    pub files_count: u64,
    /// Whether it was only shown what would be done.
    pub dry_run: bool,
}

/// A revert, a restore or an undo that was taken back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UndoneChange {
    /// Whether anything was changed.
    pub undone: bool,
    /// Which undo checkpoint was used: `u-4`.
    pub undo: String,
    /// What was taken back: `revert`, `restore`, `undo` or `promotion`.
    pub act: String,
    /// Of which entry; nothing for the whole tree.
    pub path: Option<String>,
    /// What takes this back again: `u-5`.
    pub redo: Option<String>,
    /// Entries that others changed while this was done: what they wrote is in the undo checkpoint, or still in the workspace.
    pub changed_meanwhile: Vec<String>,
    /// What can be undone no longer, because it is too old or over the budget.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undo_forgotten: Vec<ForgottenUndo>,
    /// Entries that were left as they are though nobody asked for that; what would have come back there is still kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<LeftAloneEntry>,
    /// What was, or would be, done.
    pub plan: ChangePlan,
    /// Whether it was only shown what would be done.
    pub dry_run: bool,
}

/// An undo checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UndoRow {
    /// `u-4`
    pub undo: String,
    /// What it takes back: `revert`, `restore`, `undo` or `promotion`.
    pub act: String,
    /// Of which entry; nothing for the whole tree.
    pub path: Option<String>,
    /// Which checkpoint that act used.
    pub checkpoint: String,
    /// When.
    pub timestamp: String,
    /// The same, in milliseconds since 1970.
    pub epoch_millis: u64,
    /// The same, as people say it.
    pub age: String,
}

/// A workspace of this host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct WorkspaceRow {
    /// The directory; where it was, if it is gone.
    pub workspace: String,
    /// Whether it is there.
    pub is_there: bool,
    /// The workspace that it is a fork of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork_of: Option<String>,
    /// Where its checkpoints and events are kept.
    pub session: String,
    /// How many checkpoints it has.
    pub checkpoints: u64,
    /// Whether hooks of agents make no checkpoints there, because somebody said so.
    pub hooks_off: bool,
}

/// A workspace that was made known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct WorkspaceMade {
    /// The directory.
    pub workspace: String,
    /// Where its checkpoints and events are kept.
    pub session: String,
    /// How checkpoints are kept.
    pub form: SessionForm,
    /// The filesystem of the session directory.
    pub filesystem: Filesystem,
    /// The most bytes that all checkpoints hold together.
    pub budget_bytes: u64,
    /// What would make it better.
    pub hints: Vec<String>,
    /// Whether it was known before.
    pub existed: bool,
}

/// What a look at every byte of the checkpoints found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CheckedWorkspace {
    /// How many were looked at.
    pub checkpoints: u64,
    /// How many undo checkpoints were, whose entries must be there and readable.
    pub undos: u64,
    /// Those that are damaged.
    pub damaged: Vec<CheckedCheckpoint>,
    /// The first files that were lost and are kept again, because the workspace still has them as they were.
    pub healed: Vec<String>,
    /// How many those are.
    pub healed_count: u64,
}

/// A checkpoint that is damaged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct CheckedCheckpoint {
    /// `cp-3`
    pub checkpoint: String,
    /// What somebody called it.
    pub name: Option<String>,
    /// Why it cannot be read at all; where files are named, why those could not be taken again.
    pub problem: Option<String>,
    /// The first files that cannot be given back as they were.
    pub files: Vec<String>,
    /// How many those are.
    pub files_count: u64,
}

/// How a workspace is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct WorkspaceStatus {
    /// The directory.
    pub workspace: String,
    /// Where its checkpoints and events are kept.
    pub session: String,
    /// How checkpoints are kept.
    pub form: SessionForm,
    /// How many automatic ones there are at most.
    pub auto_max: u32,
    /// How many manual ones there are at most.
    pub manual_max: u32,
    /// Seconds between two automatic ones.
    pub auto_interval: u64,
    /// How many automatic ones there are.
    pub auto_count: u32,
    /// How many manual ones there are.
    pub manual_count: u32,
    /// How many there are that agents' prompts began with.
    pub prompt_count: u32,
    /// How many others there are of agents.
    pub command_count: u32,
    /// How many more manual ones there can be.
    pub manual_available: u32,
    /// What all checkpoints hold on the disk, or at most hold.
    pub held_bytes: u64,
    /// Whether they hold exactly that; otherwise it is more than they hold, because versions of one file share bytes.
    pub held_is_exact: bool,
    /// What they may hold.
    pub budget_bytes: u64,
    /// The checkpoint that is being made for a hook right now: by which process, since when.
    pub hook_at_work: Option<String>,
    /// What a user should know of checkpoints that take too long for hooks.
    pub hook_warning: Option<String>,
    /// Who watches it: process and since when; nothing when nobody does.
    pub watched_by: Option<String>,
    /// The newest checkpoint.
    pub newest: Option<String>,
    /// When the newest one was made.
    pub newest_at: Option<String>,
    /// The same in milliseconds.
    pub newest_at_ms: Option<u64>,
    /// What checks found damaged and set aside, the first of them by name: it takes room until the last checkpoint goes that names it.
    pub set_aside: Vec<String>,
    /// How many those are.
    pub set_aside_count: u64,
    /// What they take of the disk; counted in `held_bytes`.
    pub set_aside_bytes: u64,
    /// When an automatic one was last found not to be needed.
    pub last_skipped: Option<String>,
    /// How many forks of it are known.
    pub forks: u64,
    /// What can be undone, the newest first.
    pub undo: Vec<UndoRow>,
    /// The number of the last file event.
    pub last_event_id: i64,
    /// Whether an interrupted restore was brought to its end just now.
    pub finished_restore: bool,
    /// What is in slots and cannot be used.
    pub unreadable: Vec<UnreadableSlot>,
}

/// A workspace that is none any more, or would be none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RemovedWorkspace {
    /// The directory, which was not touched.
    pub workspace: String,
    /// Where its checkpoints were.
    pub session: String,
    /// How many those were.
    pub checkpoints: u64,
    /// What they held at most.
    pub bytes: u64,
    /// What is in the session directory and stays, because it is not ours: files of others, and `config.toml` where the user chose the
    /// directory.
    pub left: Vec<String>,
    /// Whether it was only shown what would be done.
    pub dry_run: bool,
}

/// What a watch did, when it ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Watched {
    /// Automatic checkpoints that were made.
    pub checkpoints: u64,
    /// Those that were not needed.
    pub skipped: u64,
    /// File events that were recorded.
    pub events: u64,
    /// Times in which signs were missed; what was missed was found by looking at everything.
    pub gaps: u64,
}

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum ChangeOp {
    Created,
    Modified,
    Deleted,
}

/// What became of an entry that was asked for by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum PathStatus {
    Created,
    Modified,
    Deleted,
    Unchanged,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffKind {
    /// Two texts, line by line.
    Text,
    /// Files of which one is no text, or too long.
    Binary,
    /// Where two links lead.
    Symlink,
    /// What is in two directories.
    Directory,
    /// Nothing: it became another type of entry.
    Mixed,
}

/// What a revert did to its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RevertAction {
    /// It holds what it held then.
    Restored,
    /// It did not exist then.
    Deleted,
    /// It held that already.
    Unchanged,
}

/// Why an undo checkpoint is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum ForgetReason {
    Old,
    Budget,
}

/// An entry in one checkpoint, against the checkpoint before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum VersionStatus {
    New,
    Modified,
    Unchanged,
    Deleted,
    /// Neither has it.
    Absent,
}

/// How the checkpoints of a session are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionForm {
    /// As clones of single files, or snapshots of the whole, which share their bytes with the workspace.
    Clone,
    /// As compressed chunks.
    Chunked,
    /// As full copies, because that was asked for.
    Copy,
}

impl From<SlotForm> for SessionForm {
    fn from(form: SlotForm) -> Self {
        match form {
            SlotForm::Clone | SlotForm::Versions => Self::Clone,
            SlotForm::Chunked => Self::Chunked,
        }
    }
}

display_as_serialized!(
    ChangeOp,
    PathStatus,
    DiffKind,
    RevertAction,
    ForgetReason,
    VersionStatus,
    SessionForm,
);

/// A fork in the timeline of a workspace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ForkMark {
    /// What it is called.
    pub name: String,
    /// Where it was made, or was seen last.
    pub directory: String,
    /// The checkpoint that it was made from: `cp-100`.
    pub from: String,
    /// Whether it is there.
    pub is_there: bool,
    /// When it was made.
    #[serde(skip)]
    pub(crate) made_ms: u64,
}

/// A time in which changes of a workspace were not seen as they happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct GapMark {
    /// Why: `overflow`, `watch_limit`, `unreadable`, `failed`, or `resumed` where nobody watched.
    pub why: String,
    /// How many changes were found only afterwards.
    pub missed: u64,
    /// When it was over.
    #[serde(skip)]
    pub(crate) seen_ms: u64,
}
