//! What the verbs about forks answer.

use super::answers::{ChangeOp, ChangePlan, ChangesSummary, ExcludedNow, ForgottenUndo};
use crate::error::WorkspaceError;
use crate::restore::LeftAloneEntry;
use crate::result::CopyMethod;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::display_as_serialized;
use stasis_model::workspace::ForkName;

/// Forks that were made, or would be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ForkedWorkspace {
    /// Whether they were.
    pub forked: bool,
    /// From which checkpoint.
    pub checkpoint: String,
    /// What each is called.
    pub names: Vec<String>,
    /// The directories, in the same order.
    pub directories: Vec<String>,
    /// How their bytes came.
    pub method: CopyMethod,
    /// How many regular files each has.
    pub files: u64,
    /// How long they are together.
    pub bytes: u64,
    /// Whether it was only shown what would be done.
    pub dry_run: bool,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// A checkpoint that was written out as a plain directory, or would be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct MaterializedCheckpoint {
    /// Whether it was.
    pub materialized: bool,
    /// Which checkpoint.
    pub checkpoint: String,
    /// The directory.
    pub directory: String,
    /// How its bytes came.
    pub method: CopyMethod,
    /// How many regular files it has.
    pub files: u64,
    /// How long they are together.
    pub bytes: u64,
    /// Whether it was only shown what would be done.
    pub dry_run: bool,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// Whether a fork is where it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForkStatus {
    /// It is there, under its name or another one.
    Ready,
    /// Nothing lies at its path any more.
    Gone,
    /// Another directory lies at its path.
    Replaced,
}

display_as_serialized!(ForkStatus);

/// A fork, as it is listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ForkRow {
    /// What it is called.
    pub name: String,
    /// Where it is, or was.
    pub directory: String,
    /// Whether it is there.
    pub status: ForkStatus,
    /// The checkpoint that it was made from: `cp-100`.
    pub checkpoint: String,
    /// What that was called.
    pub checkpoint_name: Option<String>,
    /// Whether that checkpoint is still there.
    pub checkpoint_is_kept: bool,
    /// When it was made.
    pub timestamp: String,
    /// The same in milliseconds.
    pub timestamp_ms: u64,
    /// The same, as people say it.
    pub age: String,
    /// Who made it: `cli` or `mcp`.
    pub made_by: String,
    /// What differs in it from that checkpoint; the Git repository counts as one entry.
    pub changes: Option<ChangesSummary>,
    /// Whether it holds what the workspace holds, but for the index of a Git repository, which is written anew by looking at it.
    pub is_workspace: bool,
    /// What it takes of the disk that it does not share with the checkpoint.
    pub own_bytes: u64,
    /// How many checkpoints it has of its own.
    pub checkpoints: u64,
}

/// The forks of a workspace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Forks {
    /// The oldest first.
    #[serde(rename = "items")]
    pub forks: Vec<ForkRow>,
    /// What they take together that they do not share.
    pub own_bytes: u64,
    /// What the checkpoints of the workspace hold, at most.
    pub held_bytes: u64,
    /// What checkpoints and forks may hold together.
    pub budget_bytes: u64,
}

/// An entry that changed in the workspace since a fork was made, and that a promotion overwrites.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct OverwrittenEntry {
    /// Which.
    pub path: String,
    /// What became of it in the workspace since then.
    pub op: ChangeOp,
    /// Whether the fork changed it too.
    pub changed_in_fork: bool,
}

/// A fork that became the workspace, or would.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PromotedFork {
    /// Whether anything was changed.
    pub promoted: bool,
    /// Which fork.
    pub fork: String,
    /// Where that is.
    pub directory: String,
    /// The checkpoint of the workspace as it was before: `cp-101`.
    pub checkpoint_before: Option<String>,
    /// The checkpoint of what the fork was: `cp-102`.
    pub checkpoint: Option<String>,
    /// What takes it back: `u-4`.
    pub undo: Option<String>,
    /// What changed in the workspace since the fork was made, and is overwritten; the first hundred.
    pub overwrites: Vec<OverwrittenEntry>,
    /// How many those are.
    pub overwrites_count: u64,
    /// How many such entries are left as they are, because that was asked for.
    pub kept_own: u64,
    /// Entries that others changed while this was done: what they wrote is in the undo checkpoint, or still in the workspace.
    pub changed_meanwhile: Vec<String>,
    /// What can be undone no longer, because it is too old or over the budget.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undo_forgotten: Vec<ForgottenUndo>,
    /// Entries that were left as they are though nobody asked for that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<LeftAloneEntry>,
    /// What was left as it is because it is excluded from checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded_now: Option<ExcludedNow>,
    /// What was, or would be, done.
    pub plan: ChangePlan,
    /// Whether it was only shown what would be done.
    pub dry_run: bool,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// A fork that was removed, or would be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RemovedFork {
    /// Whether it is gone.
    pub removed: bool,
    /// Which fork.
    pub fork: String,
    /// Where it is, or was.
    pub directory: String,
    /// Whether its directory was there; otherwise it is only forgotten.
    pub status: ForkStatus,
    /// How many files and links go.
    pub files: u64,
    /// What it takes of the disk that it does not share with its checkpoint.
    pub own_bytes: u64,
    /// How many checkpoints of its own go.
    pub checkpoints: u64,
    /// Files and links that were made or changed in it, and are neither in the workspace nor in a checkpoint of that; the first hundred.
    pub only_here: Vec<String>,
    /// How many those are.
    pub only_here_count: u64,
    /// Commits that no branch of the workspace leads to; nothing where nobody can tell.
    pub commits_only_here: Option<u64>,
    /// What is in it and excluded from checkpoints, so that nobody looked at it; the first ten.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    /// Stands for what goes: given back, work goes that is nowhere else.
    pub digest: String,
    /// Whether it was only shown what would be done.
    pub dry_run: bool,
}

impl RemovedFork {
    /// Whether work goes that is nowhere else, as far as anybody can tell.
    pub fn loses_work(&self) -> bool {
        self.only_here_count > 0 || self.commits_only_here != Some(0) || self.loses_more()
    }

    /// Whether something goes that nobody looked into: its own checkpoints, and what is excluded from them. Of one that is not there
    /// nothing goes.
    fn loses_more(&self) -> bool {
        self.status == ForkStatus::Ready && (self.checkpoints > 0 || !self.excluded.is_empty())
    }

    /// Refuses if work goes that is nowhere else.
    pub(super) fn ensure_nothing_lost(&self, name: &ForkName) -> Result<(), WorkspaceError> {
        let name = name.clone();
        if self.only_here_count > 0 || self.commits_only_here != Some(0) {
            return Err(WorkspaceError::ForkHasWork {
                name,
                files: self.only_here_count,
                commits: self.commits_only_here,
                paths: self.only_here.iter().take(3).cloned().collect(),
            });
        }
        if self.loses_more() {
            return Err(WorkspaceError::ForkHasMore {
                name,
                checkpoints: self.checkpoints,
                excluded: self.excluded.clone(),
            });
        }
        Ok(())
    }
}
