//! `stasis save`, `restore`, `log` and `diff`: a directory, every day

use super::{ProjectSelector, restore, save, show};
use crate::cli::CliContext;
use crate::report::Exit;
use clap::Args;
use stasis_engine::kind::project::ProjectRestore;
use stasis_engine::model::format::manifest::SaveReason;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use std::path::PathBuf;

/// `stasis save`
#[derive(Debug, Args)]
pub(in crate::cli) struct SaveArgs {
    /// The directory
    dir: PathBuf,
    #[command(flatten)]
    how: save::SaveOptions,
}

impl SaveArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let project = ProjectSelector::of(&self.dir).open(context).await?;
        self.how.save(context, &project, SaveReason::Manual).await
    }
}

/// `stasis restore`
#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreArgs {
    /// The directory, or `dir:NAME` as `stasis list` shows it (on another machine: with --to)
    dir: PathBuf,
    /// `latest`, an id or the beginning of one, or a label
    #[arg(default_value = "latest")]
    snapshot: SnapshotRef,
    #[command(flatten)]
    how: restore::RestoreOptions,
}

impl RestoreArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let project = ProjectSelector::of(&self.dir).look(context).await?;
        let command = ProjectRestore::new(self.snapshot);
        self.how.restore(context, &project, command).await
    }
}

/// `stasis log`
#[derive(Debug, Args)]
pub(in crate::cli) struct LogArgs {
    /// The directory, or `dir:NAME` as `stasis list` shows it
    dir: PathBuf,
}

impl LogArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let project = ProjectSelector::of(&self.dir).look(context).await?;
        show::list(context, &project).await?;
        Ok(Exit::Done)
    }
}

/// `stasis diff`
#[derive(Debug, Args)]
pub(in crate::cli) struct DiffArgs {
    /// The directory, or `dir:NAME` as `stasis list` shows it
    dir: PathBuf,
    /// The older snapshot
    #[arg(default_value = "latest")]
    before: SnapshotRef,
    /// The newer one; without it, what is there now
    after: Option<SnapshotRef>,
}

impl DiffArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let project = ProjectSelector::of(&self.dir).look(context).await?;
        show::diff(context, &project, &self.before, self.after.as_ref()).await?;
        Ok(Exit::Done)
    }
}
