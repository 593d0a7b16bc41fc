//! `stasis workspace`, and the contract's short `stasis snapshots`

mod back;
mod checkpoint;
mod compare;
mod fork;
mod keep;
mod look;
mod rewind;

pub(super) use back::{ForgottenUndos, restore, revert, undo, undo_number};
pub(super) use checkpoint::{checked, checked_text, materialize};
pub(super) use compare::{ComparedArgs, patch_text, say_gaps, stat_text};
pub(super) use fork::ForkArgs;
pub(super) use keep::{Initiated, StatusShown, warn_of_hooks, warn_unreadable};
pub(super) use look::{checkpoint_text, event_text};
pub(super) use rewind::{RewindArgs, Rewound};

use super::everyday::LogArgs;
use super::output::printable;
use super::{CliContext, envelope};
use crate::report::Exit;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use stasis_engine::kind::workspace::{self, RunMode};
use stasis_engine::model::tree::EntryPath;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct WorkspaceArgs {
    #[command(flatten)]
    which: WorkspaceSelector,
    #[command(subcommand)]
    command: WorkspaceCommand,
}

/// Which workspace.
#[derive(Debug, Args, Clone)]
struct WorkspaceSelector {
    /// The workspace [default: the one that the current directory lies in]
    #[arg(long, global = true, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

/// Whether anything is done.
#[derive(Debug, Args, Clone, Copy)]
struct DryRunArgs {
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Subcommand)]
enum WorkspaceCommand {
    /// Make a directory a workspace; nothing is put into it
    Init(keep::WorkspaceInitArgs),
    /// Make automatic checkpoints and record what happens to files; runs until interrupted
    Watch(keep::WorkspaceWatchArgs),
    /// Make a checkpoint
    Create(checkpoint::WorkspaceCreateArgs),
    /// List the checkpoints, the newest first
    List(look::WorkspaceListArgs),
    /// Show what differs from the checkpoints
    Changes(look::WorkspaceChangesArgs),
    /// Show what differs in a file or directory, or in the whole tree
    Diff(look::WorkspaceDiffArgs),
    /// Restore a file or directory from a checkpoint; leaves an undo
    Revert(back::WorkspaceRevertArgs),
    /// Restore the whole workspace to a checkpoint, without what was added since; leaves an undo
    Restore(back::WorkspaceRestoreArgs),
    /// Show the versions of a file or directory in all checkpoints
    History(look::WorkspaceHistoryArgs),
    /// Delete a checkpoint
    Delete(checkpoint::WorkspaceDeleteArgs),
    /// Merge several checkpoints into one: the newest state wins
    Compact(checkpoint::WorkspaceCompactArgs),
    /// The same as `stasis fork --from CP --to DIR --count N`
    Fork(fork::WorkspaceForkArgs),
    /// Write a checkpoint out as a plain directory
    Materialize(checkpoint::WorkspaceMaterializeArgs),
    /// Undo the last revert, restore or undo
    Undo(back::WorkspaceUndoArgs),
    /// Read every checkpoint and name those that are damaged
    Check,
    /// Show the workspace's settings, space, watcher and undos
    Status,
}

impl WorkspaceArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let Self { which, command } = self;
        match command {
            WorkspaceCommand::Init(init) => init.run(context, &which).await?,
            WorkspaceCommand::Watch(watch) => watch.run(context, &which).await?,
            WorkspaceCommand::Create(create) => return create.run(context, &which).await,
            WorkspaceCommand::List(list) => list.run(context, &which).await?,
            WorkspaceCommand::Changes(changes) => changes.run(context, &which).await?,
            WorkspaceCommand::Diff(diff) => return diff.run(context, &which).await,
            WorkspaceCommand::Revert(revert) => revert.run(context, &which).await?,
            WorkspaceCommand::Restore(restore) => return restore.run(context, &which).await,
            WorkspaceCommand::History(history) => history.run(context, &which).await?,
            WorkspaceCommand::Delete(delete) => delete.run(context, &which).await?,
            WorkspaceCommand::Compact(compact) => compact.run(context, &which).await?,
            WorkspaceCommand::Fork(fork) => return fork.run(context, &which).await,
            WorkspaceCommand::Materialize(materialize) => materialize.run(context, &which).await?,
            WorkspaceCommand::Undo(undo) => return undo.run(context, &which).await,
            WorkspaceCommand::Check => return checkpoint::check(context, &which).await,
            WorkspaceCommand::Status => keep::status(context, &which).await?,
        }
        Ok(Exit::Done)
    }
}

/// The contract's own spelling; without a command it is what other tools call `log`.
#[derive(Debug, Args)]
pub(super) struct SnapshotsArgs {
    #[command(flatten)]
    which: WorkspaceSelector,
    #[command(flatten)]
    log: LogArgs,
    #[command(subcommand)]
    command: Option<SnapshotsCommand>,
}

#[derive(Debug, Subcommand)]
enum SnapshotsCommand {
    /// The same as `workspace create`
    Create(checkpoint::WorkspaceCreateArgs),
    /// The same as `workspace list`
    List(look::WorkspaceListArgs),
    /// The same as `workspace changes`
    Changes(look::WorkspaceChangesArgs),
    /// The same as `workspace revert`
    Revert(back::WorkspaceRevertArgs),
    /// The same as `workspace history`
    History(look::WorkspaceHistoryArgs),
    /// The same as `workspace delete`
    Delete(checkpoint::WorkspaceDeleteArgs),
    /// The same as `workspace compact`
    Compact(checkpoint::WorkspaceCompactArgs),
}

impl SnapshotsArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let command = match self.command {
            None => {
                anyhow::ensure!(
                    self.which.workspace.is_none(),
                    "--workspace goes with a command: `stasis snapshots list --workspace DIR`; `stasis snapshots DIR` is `stasis log DIR`"
                );
                return self.log.run(context).await;
            }
            Some(SnapshotsCommand::Create(create)) => WorkspaceCommand::Create(create),
            Some(SnapshotsCommand::List(list)) => WorkspaceCommand::List(list),
            Some(SnapshotsCommand::Changes(changes)) => WorkspaceCommand::Changes(changes),
            Some(SnapshotsCommand::Revert(revert)) => WorkspaceCommand::Revert(revert),
            Some(SnapshotsCommand::History(history)) => WorkspaceCommand::History(history),
            Some(SnapshotsCommand::Delete(delete)) => WorkspaceCommand::Delete(delete),
            Some(SnapshotsCommand::Compact(compact)) => WorkspaceCommand::Compact(compact),
        };
        let which = self.which;
        WorkspaceArgs { which, command }.run(context).await
    }
}

impl WorkspaceSelector {
    /// The one that is named by itself, if any; nobody knows what is meant by two.
    fn or(&self, directory: Option<PathBuf>) -> anyhow::Result<Self> {
        anyhow::ensure!(
            self.workspace.is_none() || directory.is_none(),
            "the workspace is named twice: leave out --workspace"
        );
        let workspace = directory.or_else(|| self.workspace.clone());
        Ok(Self { workspace })
    }

    /// The workspace that is meant.
    async fn open(&self, context: &CliContext) -> anyhow::Result<workspace::Workspace> {
        let here = here()?;
        let directory = self
            .workspace
            .as_ref()
            .map_or(here.clone(), |directory| here.join(directory));
        let host = context.environment.host_env()?;
        let found = workspace::Workspace::find(&directory, &host).await?;
        envelope::about(found.directory().display().to_string());
        Ok(found)
    }
}

impl DryRunArgs {
    fn how(self) -> RunMode {
        if self.dry_run {
            RunMode::Dry
        } else {
            RunMode::Real
        }
    }
}

/// The entry that somebody means by what they typed here.
fn entry(workspace: &workspace::Workspace, typed: &OsStr) -> anyhow::Result<EntryPath> {
    Ok(workspace.entry(typed.as_bytes(), &here()?)?)
}

fn here() -> anyhow::Result<PathBuf> {
    std::env::current_dir().context("the current directory cannot be found")
}

/// A checkpoint as people read it: `cp-3`, or `cp-12 (before the migration)`.
fn checkpoint_label(checkpoint: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{checkpoint} ({})", printable(name)),
        None => checkpoint.to_owned(),
    }
}

/// Numbers with what they count, without those that are nothing.
fn counted(numbers: &[(u64, &str)]) -> String {
    let counts = numbers.iter().filter(|(number, _)| *number > 0);
    let counts: Vec<String> = counts
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    counts.join(", ")
}
