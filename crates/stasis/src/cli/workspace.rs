//! `stasis workspace`, and the contract's short `stasis snapshots`

mod back;
mod checkpoint;
mod keep;
mod look;
mod rewind;

pub(super) use rewind::Rewind;

use super::output::{OutputLost, printable};
use super::{Cli, Context};
use crate::report::Exit;
use anyhow::Context as _;
use clap::{Args, CommandFactory, Subcommand};
use stasis_engine::kind::workspace::{self, RunMode};
use stasis_engine::model::tree::EntryPath;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Workspace {
    #[command(flatten)]
    which: Which,
    #[command(subcommand)]
    command: Command,
}

/// Which workspace.
#[derive(Debug, Args, Clone)]
struct Which {
    /// The workspace [default: the one that the current directory lies in]
    #[arg(long, global = true, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

/// Whether anything is done.
#[derive(Debug, Args, Clone, Copy)]
struct Dry {
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a directory a workspace; nothing is put into it
    Init(keep::Init),
    /// Make automatic checkpoints and record what happens to files; runs until it is interrupted
    Watch(keep::Watch),
    /// Make a checkpoint
    Create(checkpoint::Create),
    /// List the checkpoints, the newest first
    List(look::List),
    /// Show what differs from the checkpoints
    Changes(look::Changes),
    /// Show what differs in a file or directory
    Diff(look::Diff),
    /// Make a file or directory what it was; what is there now is kept
    Revert(back::Revert),
    /// Make the whole workspace what it was, without what was added since; what is there now is kept
    Restore(back::Restore),
    /// Show a file or directory through all checkpoints
    History(look::History),
    /// Delete a checkpoint
    Delete(checkpoint::Delete),
    /// Make one checkpoint of several: the newest state wins
    Compact(checkpoint::Compact),
    /// Make new directories from a checkpoint
    Fork(checkpoint::Fork),
    /// Take back the last revert, restore or undo
    Undo(back::Undo),
    /// Show how the workspace is kept, and what can be undone
    Status,
}

impl Workspace {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let Self { which, command } = self;
        match command {
            Command::Init(init) => init.run(context, &which).await?,
            Command::Watch(watch) => watch.run(context, &which).await?,
            Command::Create(create) => return create.run(context, &which).await,
            Command::List(list) => list.run(context, &which).await?,
            Command::Changes(changes) => changes.run(context, &which).await?,
            Command::Diff(diff) => diff.run(context, &which).await?,
            Command::Revert(revert) => revert.run(context, &which).await?,
            Command::Restore(restore) => return restore.run(context, &which).await,
            Command::History(history) => history.run(context, &which).await?,
            Command::Delete(delete) => delete.run(context, &which).await?,
            Command::Compact(compact) => compact.run(context, &which).await?,
            Command::Fork(fork) => fork.run(context, &which).await?,
            Command::Undo(undo) => return undo.run(context, &which).await,
            Command::Status => keep::status(context, &which).await?,
        }
        Ok(Exit::Done)
    }
}

/// The contract's own spelling; without a command it says what there is.
#[derive(Debug, Args)]
pub(super) struct Snapshots {
    #[command(flatten)]
    which: Which,
    #[command(subcommand)]
    command: Option<Short>,
}

#[derive(Debug, Subcommand)]
enum Short {
    /// The same as `workspace create`
    Create(checkpoint::Create),
    /// The same as `workspace list`
    List(look::List),
    /// The same as `workspace changes`
    Changes(look::Changes),
    /// The same as `workspace revert`
    Revert(back::Revert),
    /// The same as `workspace history`
    History(look::History),
    /// The same as `workspace delete`
    Delete(checkpoint::Delete),
    /// The same as `workspace compact`
    Compact(checkpoint::Compact),
}

impl Snapshots {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let command = match self.command {
            None => return usage(),
            Some(Short::Create(create)) => Command::Create(create),
            Some(Short::List(list)) => Command::List(list),
            Some(Short::Changes(changes)) => Command::Changes(changes),
            Some(Short::Revert(revert)) => Command::Revert(revert),
            Some(Short::History(history)) => Command::History(history),
            Some(Short::Delete(delete)) => Command::Delete(delete),
            Some(Short::Compact(compact)) => Command::Compact(compact),
        };
        let which = self.which;
        Workspace { which, command }.run(context).await
    }
}

fn usage() -> anyhow::Result<Exit> {
    let mut program = Cli::command();
    program.build();
    let snapshots = program.find_subcommand_mut("snapshots");
    let help = snapshots.expect("it is a command of ours").render_help();
    write!(std::io::stdout(), "{help}").map_err(OutputLost)?;
    Ok(Exit::Done)
}

impl Which {
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
    async fn open(&self, context: &Context) -> anyhow::Result<workspace::Workspace> {
        let here = here()?;
        let directory = self
            .workspace
            .as_ref()
            .map_or(here.clone(), |directory| here.join(directory));
        Ok(workspace::Workspace::find(&directory, &context.environment.host_env()?).await?)
    }
}

impl Dry {
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
fn called(checkpoint: &str, name: Option<&str>) -> String {
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
