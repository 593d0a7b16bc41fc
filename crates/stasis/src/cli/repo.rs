//! `stasis repo`

mod restore;
mod retire;
mod save;
mod show;
mod upkeep;

pub(super) use upkeep::{RepoCheckArgs, checked_text};

use super::CliContext;
use super::output::printable;
use crate::report::Exit;
use clap::{Args, Subcommand};
use stasis_engine::catalog::SnapshotSelector;
use stasis_engine::model::id::{SnapshotId, SubjectName};
use stasis_engine::model::snapshot_ref::SnapshotRef;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct RepoArgs {
    /// The repository: the same as --store
    #[arg(long, global = true, value_name = "PATH|URL")]
    repo: Option<String>,
    #[command(subcommand)]
    command: RepoCommand,
}

#[derive(Debug, Subcommand)]
enum RepoCommand {
    /// Make a repository
    Init,
    /// Save a directory
    Save(save::RepoSaveArgs),
    /// Restore a snapshot to a directory
    Restore(restore::RepoRestoreArgs),
    /// Put back the directory that `restore --replace` replaced; doing it again undoes that
    Undo {
        /// Where it was restored to
        #[arg(value_name = "DIR")]
        target: PathBuf,
    },
    /// List snapshots
    Snapshots {
        /// Only those saved under this name
        #[arg(long)]
        name: Option<SubjectName>,
    },
    /// List the entries of a snapshot
    Ls {
        #[command(flatten)]
        which: RepoSnapshotArgs,
        /// Only this entry and what is in it
        path: Option<OsString>,
    },
    /// Write the content of one file to standard output
    Cat {
        #[command(flatten)]
        which: RepoSnapshotArgs,
        /// Which file
        path: OsString,
    },
    /// Show what differs between two snapshots
    Diff {
        /// The older one: an id, the beginning of one, or `latest`
        before: SnapshotRef,
        /// The newer one
        after: SnapshotRef,
        /// Only snapshots saved under this name count as `latest`
        #[arg(long)]
        name: Option<SubjectName>,
    },
    /// Check that all data is present and undamaged
    Check(upkeep::RepoCheckArgs),
    /// Forget snapshots by the options given, and reclaim space
    Gc(upkeep::RepoGcArgs),
    /// Forget snapshots now; the next gc removes their bytes
    Forget(retire::RepoForgetArgs),
    /// Forget all snapshots of a name; the next gc removes their bytes
    ///
    /// Refused while one of them is pinned. The name may be used again.
    Retire(retire::RepoRetireArgs),
    /// Keep a snapshot whatever the policy says
    Pin {
        /// Its id, in full
        snapshot: SnapshotId,
    },
    /// Remove a pin
    Unpin {
        /// Its id, in full
        snapshot: SnapshotId,
    },
    /// Show how large the repository is, and why
    Stats,
}

/// Which snapshot is meant.
#[derive(Debug, Args)]
struct RepoSnapshotArgs {
    /// An id, the beginning of one, or `latest`
    snapshot: SnapshotRef,
    /// Look only among those saved under this name
    #[arg(long)]
    name: Option<SubjectName>,
}

impl From<RepoSnapshotArgs> for SnapshotSelector {
    fn from(which: RepoSnapshotArgs) -> Self {
        Self {
            snapshot: which.snapshot,
            name: which.name,
        }
    }
}

impl RepoArgs {
    /// The repository that is named, if one is.
    pub(super) fn named(&self) -> Option<&str> {
        self.repo.as_deref()
    }

    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let repo = self.repo.as_deref();
        match self.command {
            RepoCommand::Init => {
                let made = context.repo_engine(repo, true).await?.dirs().init().await?;
                context
                    .output
                    .result(&made, |made| format!("made a repository in {}", made.repo))?;
            }
            RepoCommand::Save(save) => return save.run(context, repo).await,
            RepoCommand::Restore(restore) => return Box::pin(restore.run(context, repo)).await,
            RepoCommand::Undo { target } => {
                let undone = stasis_engine::undo::undo(target, &crate::system::SystemClock).await?;
                context.output.result(&undone, |undone| {
                    let (target, kept) = (printable(&undone.target), printable(&undone.kept));
                    format!("put back {target}; what it replaces is kept in {kept}")
                })?;
            }
            RepoCommand::Check(check) => return check.run(context, repo).await,
            RepoCommand::Gc(gc) => return gc.run(context, repo).await,
            RepoCommand::Forget(forget) => forget.run(context, repo).await?,
            RepoCommand::Retire(retire) => retire.run(context, repo).await?,
            RepoCommand::Pin { snapshot } => pin(context, repo, &snapshot, true).await?,
            RepoCommand::Unpin { snapshot } => pin(context, repo, &snapshot, false).await?,
            RepoCommand::Snapshots { name } => {
                show::snapshots(context, repo, name.as_ref()).await?;
            }
            RepoCommand::Ls { which, path } => {
                show::ls(context, repo, which, path.as_ref()).await?;
            }
            RepoCommand::Cat { which, path } => show::cat(context, repo, which, &path).await?,
            RepoCommand::Diff {
                before,
                after,
                name,
            } => {
                let wanted = |snapshot: SnapshotRef| SnapshotSelector {
                    snapshot,
                    name: name.clone(),
                };
                show::diff(context, repo, &wanted(before), &wanted(after)).await?;
            }
            RepoCommand::Stats => show::stats(context, repo).await?,
        }
        Ok(Exit::Done)
    }
}

async fn pin(
    context: &CliContext,
    repo: Option<&str>,
    id: &SnapshotId,
    pinned: bool,
) -> anyhow::Result<()> {
    let row = context
        .repo_engine(repo, false)
        .await?
        .dirs()
        .pin(id, pinned)
        .await?;
    let words = if pinned { "is pinned" } else { "is not pinned" };
    context
        .output
        .result(&row, |row| format!("{} {words}", row.snapshot_id))
}
