//! Tools that make, remove or go back to checkpoints.

use super::super::call::Served;
use super::super::failure::CallFailure;
use super::parameters::{
    Confirm, DryRun, EntryText, ExceptPaths, checkpoint, confirmed, name, optional_checkpoint, run,
    undo_number,
};
use super::{CallAnswer, Effect, SnapshotTool};
use schemars::JsonSchema;
use serde::Deserialize;
use stasis_engine::kind::workspace::{
    Checkpointed, CompactCheckpoints, Compacted, CreateCheckpoint, DeletedCheckpoint, Maker,
    RestoreWorkspace, RestoredWorkspace, RevertPath, RevertedPath, UndoChange, UndoneChange,
};
use stasis_engine::model::workspace::{CheckpointOrigin, CheckpointRef};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateTool {
    /// A short name that no other checkpoint has; not `cp-…`
    name: Option<String>,
    dry_run: Option<DryRun>,
}

impl SnapshotTool for CreateTool {
    const NAME: &'static str = "snapshots_create";
    const TITLE: &'static str = "Create a checkpoint";
    const EFFECT: Effect = Effect::Adds;
    const DESCRIPTION: &'static str = "Keeps the whole workspace as it is now as a checkpoint, which stays until it is deleted. Use it before risky or \
         sweeping changes. Takes little room and changes no file. The number of checkpoints is limited; a full pool is an error.";
    type Answer = Checkpointed;

    async fn call(self, served: &Served) -> CallAnswer {
        let command = CreateCheckpoint {
            name: name(self.name.as_deref())?,
            pool: CheckpointOrigin::Manual,
            maker: Maker::Mcp,
            call: None,
            run: run(self.dry_run),
        };
        Ok(served.plain(&served.workspace.create(command).await?))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RevertTool {
    path: EntryText,
    /// Where to take it from: `cp-N` or its name
    checkpoint: Option<String>,
    dry_run: Option<DryRun>,
    confirm: Option<Confirm>,
}

impl SnapshotTool for RevertTool {
    const NAME: &'static str = "snapshots_revert";
    const TITLE: &'static str = "Revert a path";
    const EFFECT: Effect = Effect::Replaces;
    const DESCRIPTION: &'static str = "Makes one file, link or directory what it was in a checkpoint: content, mode and time; what did not exist then is deleted. \
         Without a checkpoint: from the newest one that holds the path and differs. Use snapshots_diff first. The answer's `undo` \
         is taken back by snapshots_undo. Deleting more than 20 files needs dry_run first, then confirm.";
    type Answer = RevertedPath;

    async fn call(self, served: &Served) -> CallAnswer {
        let command = RevertPath {
            no_undo: false,
            path: served.entry(&self.path.0)?,
            checkpoint: optional_checkpoint(self.checkpoint.as_deref())?,
            confirm: confirmed(self.confirm),
            run: run(self.dry_run),
        };
        Ok(served.plain(&served.workspace.revert(command).await?))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RestoreTool {
    /// What to go back to: `cp-N` or its name
    checkpoint: String,
    except: Option<ExceptPaths>,
    dry_run: Option<DryRun>,
    confirm: Option<Confirm>,
}

impl SnapshotTool for RestoreTool {
    const NAME: &'static str = "snapshots_restore";
    const TITLE: &'static str = "Restore the workspace";
    const EFFECT: Effect = Effect::ReplacesOnce;
    const DESCRIPTION: &'static str = "Makes the whole workspace what it was in a checkpoint, and deletes what was added since. Use it when much went wrong; for \
         single paths use snapshots_revert. Call with dry_run first; deleting more than 20 files needs its digest as confirm. What is \
         there now is kept: snapshots_undo brings it back.";
    type Answer = RestoredWorkspace;

    async fn call(self, served: &Served) -> CallAnswer {
        let command = RestoreWorkspace {
            no_undo: false,
            checkpoint: checkpoint(&self.checkpoint)?,
            except: served.entries(&self.except.unwrap_or_default().0)?,
            agreed: false,
            confirm: confirmed(self.confirm),
            run: run(self.dry_run),
        };
        Ok(served.plain(&served.workspace.restore(command).await?))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteTool {
    /// Which one: `cp-N` or its name
    checkpoint: String,
    dry_run: Option<DryRun>,
}

impl SnapshotTool for DeleteTool {
    const NAME: &'static str = "snapshots_delete";
    const TITLE: &'static str = "Delete a checkpoint";
    const EFFECT: Effect = Effect::ReplacesOnce;
    const DESCRIPTION: &'static str = "Deletes a manual checkpoint that was made through these tools, to free its place. It cannot be undone; no file of the \
         workspace changes. Checkpoints that the user or the timer made are refused.";
    type Answer = DeletedCheckpoint;

    async fn call(self, served: &Served) -> CallAnswer {
        let checkpoint = checkpoint(&self.checkpoint)?;
        let deleted = served
            .workspace
            .delete(checkpoint, run(self.dry_run))
            .await?;
        Ok(served.plain(&deleted))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompactTool {
    /// At least two checkpoints: `cp-N` or names
    #[schemars(extend("minItems" = 2))]
    checkpoints: Vec<String>,
    /// What the result is called
    name: Option<String>,
    dry_run: Option<DryRun>,
}

impl SnapshotTool for CompactTool {
    const NAME: &'static str = "snapshots_compact";
    const TITLE: &'static str = "Merge checkpoints";
    const EFFECT: Effect = Effect::Replaces;
    const DESCRIPTION: &'static str = "Makes one manual checkpoint of several: the newest state of them is kept, and what was deleted in it stays deleted. The \
         others go after that succeeded, which cannot be undone. Use it to free places. Only checkpoints made through these tools.";
    type Answer = Compacted;

    async fn call(self, served: &Served) -> CallAnswer {
        let checkpoints: Result<Vec<CheckpointRef>, CallFailure> = self
            .checkpoints
            .iter()
            .map(|text| checkpoint(text))
            .collect();
        let command = CompactCheckpoints {
            checkpoints: checkpoints?,
            name: name(self.name.as_deref())?,
            run: run(self.dry_run),
        };
        Ok(served.plain(&served.workspace.compact(command).await?))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UndoTool {
    /// `u-N`, as a revert or restore answered it; else the last
    undo: Option<String>,
    except: Option<ExceptPaths>,
    dry_run: Option<DryRun>,
    confirm: Option<Confirm>,
}

impl SnapshotTool for UndoTool {
    const NAME: &'static str = "snapshots_undo";
    const TITLE: &'static str = "Undo a revert or restore";
    const EFFECT: Effect = Effect::Replaces;
    const DESCRIPTION: &'static str = "Takes back the last revert, restore or undo, or the one whose `undo` value is given: what was there before is there again. \
         The answer's `redo` takes the undo back in turn. Deleting more than 20 files needs dry_run first, then confirm.";
    type Answer = UndoneChange;

    async fn call(self, served: &Served) -> CallAnswer {
        let command = UndoChange {
            which: self.undo.as_deref().map(undo_number).transpose()?,
            except: served.entries(&self.except.unwrap_or_default().0)?,
            agreed: false,
            confirm: confirmed(self.confirm),
            run: run(self.dry_run),
        };
        Ok(served.plain(&served.workspace.undo(command).await?))
    }
}
