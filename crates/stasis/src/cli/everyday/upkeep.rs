//! `stasis check`, `pin`, `forget` and `gc`

use super::words::{NoSnapshot, OneSnapshot, TypedWords, located};
use crate::cli::damage::DamageHints;
use crate::cli::first_checkpoint::is_no_workspace;
use crate::cli::output::short;
use crate::cli::profile::everyday as profile;
use crate::cli::progress::{Doing, watched};
use crate::cli::project::{ProjectSelector, is_absent, upkeep};
use crate::cli::repo::{self, RepoCheckArgs};
use crate::cli::{CliContext, workspace};
use crate::report::Exit;
use anyhow::bail;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::check::RepoChecked;
use stasis_engine::kind::directory::DirSnapshot;
use stasis_engine::kind::workspace::{CheckedWorkspace, RunMode, Workspace};
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::workspace::{CheckpointRef, Slot};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `stasis check`
#[derive(Debug, Args)]
pub(in crate::cli) struct CheckArgs {
    #[command(flatten)]
    which: NoSnapshot,
    /// The whole store, instead of one directory
    #[arg(long, conflicts_with = "subject")]
    all: bool,
    #[command(flatten)]
    how: RepoCheckArgs,
}

/// What a check of a directory found: of its snapshots in the store, and of its checkpoints here.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct CheckedDirectory {
    #[serde(flatten)]
    snapshots: Option<RepoChecked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<CheckedWorkspace>,
}

impl CheckArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        if self.all {
            return self.how.run(context, None).await;
        }
        let typed = self.which.read(context)?;
        if let Some(profile) = typed.profile() {
            return profile::check(context, profile, self.how.read_data).await;
        }
        let checked = checked_snapshots(context, &typed, self.how.read_data).await;
        let (dir, snapshots) = match checked {
            Ok((dir, snapshots)) => (dir, Ok(snapshots)),
            Err(error) => (typed.dir()?, Err(error)),
        };
        let workspace = match checked_workspace(context, &dir).await {
            Err(error) if is_no_workspace(&error) => None,
            checked => Some(checked?),
        };
        let snapshots = match snapshots {
            // A workspace need not be saved: then there are only its checkpoints.
            Err(error) if workspace.is_some() && is_absent(&error) => None,
            snapshots => Some(snapshots?),
        };
        let checked = CheckedDirectory {
            snapshots,
            workspace,
        };
        context.output.result(&checked, CheckedDirectory::text)?;
        Ok(if checked.is_whole() {
            Exit::Done
        } else {
            Exit::Corrupt
        })
    }
}

/// Checks the snapshots of a directory in the store; says which directory that is.
async fn checked_snapshots(
    context: &CliContext,
    typed: &TypedWords,
    read_data: bool,
) -> anyhow::Result<(PathBuf, RepoChecked)> {
    let project = typed.look(context).await?;
    let progress = Arc::default();
    let check = Box::pin(project.check(read_data, Arc::clone(&progress)));
    let doing = Doing::new("checking", "snapshots");
    let checked = watched(context.output, doing, progress, check).await?;
    Ok((project.home().dir.clone(), checked))
}

async fn checked_workspace(context: &CliContext, dir: &Path) -> anyhow::Result<CheckedWorkspace> {
    let dir = std::path::absolute(dir)?;
    let workspace = Workspace::find(&dir, &context.environment.host_env()?).await?;
    workspace::checked(context, &workspace).await
}

impl CheckedDirectory {
    fn is_whole(&self) -> bool {
        let snapshots = self.snapshots.as_ref();
        let workspace = self.workspace.as_ref();
        snapshots.is_none_or(|checked| checked.damage.is_empty())
            && workspace.is_none_or(|checked| checked.damaged.is_empty())
    }

    fn text(&self) -> String {
        let snapshots = self.snapshots.as_ref().map(|checked| {
            let hints = DamageHints {
                store: None,
                has_marked: checked.marked,
            };
            repo::checked_text(checked, &hints)
        });
        let workspace = self.workspace.as_ref().map(workspace::checked_text);
        let both = snapshots.into_iter().chain(workspace);
        both.collect::<Vec<_>>().join("\n")
    }
}

/// `stasis pin`
#[derive(Debug, Args)]
pub(in crate::cli) struct PinArgs {
    #[command(flatten)]
    which: OneSnapshot,
    /// Remove the pin
    #[arg(long)]
    off: bool,
}

impl PinArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = self.which.read(context)?;
        if let Some(profile) = typed.profile() {
            return profile::pin(context, profile, &typed.snapshot(), !self.off).await;
        }
        let directory = typed.directory(context).await?;
        let id = match located(&directory, &typed.snapshot()).await? {
            DirSnapshot::Stored(id) => SnapshotRef::Text(id.to_string()),
            DirSnapshot::Checkpoint(slot) => bail!(
                "{slot} is a checkpoint of this machine, and checkpoints are not pinned: `stasis workspace create NAME` makes one that stays, `stasis save` keeps the state in the store"
            ),
        };
        upkeep::pin(context, directory.project()?, &id, !self.off).await?;
        Ok(Exit::Done)
    }
}

/// `stasis forget`
#[derive(Debug, Args)]
pub(in crate::cli) struct ForgetArgs {
    /// The directory [default: the one you are in] or `dir:NAME`; and the snapshots: an id or the beginning of one, a label, a time,
    /// `latest~2`, or a checkpoint (cp-3)
    #[arg(value_name = "SUBJECT|SNAPSHOT", num_args = 1.., required = true)]
    words: Vec<OsString>,
    /// Only show what would go
    #[arg(long)]
    dry_run: bool,
}

/// What is forgotten, or would be.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct Forgotten {
    forgotten: Vec<String>,
    dry_run: bool,
}

impl ForgetArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = TypedWords::read(context, &self.words, usize::MAX)?;
        if typed.snapshots.is_empty() {
            bail!("name the snapshot that is to be forgotten; `stasis log` lists them");
        }
        if let Some(profile) = typed.profile() {
            let forgotten =
                profile::forget(context, profile, &typed.snapshots, self.dry_run).await?;
            let dry_run = self.dry_run;
            let result = Forgotten { forgotten, dry_run };
            context.output.result(&result, forgotten_text)?;
            return Ok(Exit::Done);
        }
        let directory = typed.directory(context).await?;
        // All or nothing is found before anything goes.
        let (mut stored, mut here): (Vec<_>, Vec<Slot>) = (Vec::new(), Vec::new());
        for snapshot in &typed.snapshots {
            match located(&directory, snapshot).await? {
                DirSnapshot::Stored(id) if !stored.contains(&id) => stored.push(id),
                DirSnapshot::Checkpoint(slot) if !here.contains(&slot) => here.push(slot),
                _ => {}
            }
        }
        let run = if self.dry_run {
            RunMode::Dry
        } else {
            RunMode::Real
        };
        let mut forgotten = Vec::new();
        if !stored.is_empty() {
            let project = directory.project()?;
            forgotten.extend(stored.iter().map(ToString::to_string));
            project.forget(&stored, run).await?;
        }
        for slot in here {
            let checkpoint = CheckpointRef::Slot(slot);
            let gone = directory.workspace()?.delete(checkpoint, run).await?;
            forgotten.push(gone.checkpoint);
        }
        let dry_run = self.dry_run;
        let result = Forgotten { forgotten, dry_run };
        context.output.result(&result, forgotten_text)?;
        Ok(Exit::Done)
    }
}

fn forgotten_text(result: &Forgotten) -> String {
    let names: Vec<String> = result.forgotten.iter().map(short).collect();
    let names = names.join(", ");
    if result.dry_run {
        return format!("would forget {names}");
    }
    let is_here = |name: &String| SnapshotRef::from(&**name).is_spelt_out();
    let rest = if result.forgotten.iter().all(is_here) {
        ""
    } else {
        "; `stasis gc` frees the bytes in the store"
    };
    format!("forgot {names}{rest}")
}

/// `stasis gc`
#[derive(Debug, Args)]
pub(in crate::cli) struct GcArgs {
    #[command(flatten)]
    which: NoSnapshot,
    #[command(flatten)]
    how: upkeep::ProjectGcArgs,
}

impl GcArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = self.which.read(context)?;
        if let Some(profile) = typed.profile() {
            return profile::gc(context, profile, self.how).await;
        }
        let dir = typed.place(context).await?;
        self.how.run(context, &ProjectSelector::of(&dir)).await?;
        Ok(Exit::Done)
    }
}
