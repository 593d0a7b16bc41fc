//! `stasis repo restore`

use super::RepoSnapshotArgs;
use crate::cli::CliContext;
use crate::cli::directory::{entry_path, stayed};
use crate::cli::output::{Measured, printable};
use crate::cli::progress::{cancel_on_signals, watched};
use crate::report::Exit;
use clap::Args;
use stasis_engine::restore::{Placement, RepoRestore, RepoRestored};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag that people type"
)]
pub(super) struct RepoRestoreArgs {
    #[command(flatten)]
    which: RepoSnapshotArgs,
    /// Where to: nothing, or an empty directory, may be there
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Replace the existing directory; the old one is kept beside it
    #[arg(long, conflicts_with = "in_place")]
    replace: bool,
    /// Change the existing directory in place: only what differs is written
    #[arg(long)]
    in_place: bool,
    /// Do not save the current state before --in-place changes it: there is no undo then
    #[arg(long, requires = "in_place")]
    no_save_before: bool,
    /// Only this entry and what is in it; may be given more than once
    #[arg(long, value_name = "PATH", conflicts_with_all = ["in_place", "replace"])]
    path: Vec<OsString>,
    /// Leave this entry of the directory as it is, with everything in it; may be given more than once
    #[arg(long, value_name = "PATH", requires = "in_place")]
    except: Vec<OsString>,
    /// Restore owners, setuid and setgid too (root only)
    #[arg(long)]
    owner: bool,
}

impl RepoRestoreArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        repo: Option<&str>,
    ) -> anyhow::Result<Exit> {
        let progress = Arc::default();
        let paths = |all: &[OsString]| {
            let all = all.iter().map(|path| entry_path(Some(path)));
            all.collect::<anyhow::Result<_>>()
        };
        let command = RepoRestore {
            placement: match (self.replace, self.in_place) {
                (true, _) => Placement::Replace,
                (_, true) => Placement::InPlace,
                _ => Placement::New,
            },
            only: paths(&self.path)?,
            except: paths(&self.except)?,
            owner: self.owner,
            save_before: !self.no_save_before,
            cancel: cancel_on_signals()?,
            progress: Arc::clone(&progress),
            ..RepoRestore::new(self.which.into(), self.target)
        };
        let engine = context.repo_engine(repo, false).await?;
        let restored = watched(
            context.output,
            "restoring",
            progress,
            Box::pin(engine.dirs().restore(command)),
        )
        .await?;
        if let Some(before) = &restored.before {
            context.output.warn(&before.warnings);
        }
        for line in warnings(&restored) {
            context.output.say(&format!("warning: {line}"));
        }
        let changes = restored.changes.as_ref();
        let is_whole = changes.is_none_or(|changes| changes.not_permitted.is_empty());
        context
            .output
            .result(&Measured::new(restored), |one| text(&one.result))?;
        Ok(if is_whole {
            Exit::Done
        } else {
            Exit::Incomplete
        })
    }
}

fn text(restored: &RepoRestored) -> String {
    let kept = restored
        .kept
        .as_ref()
        .map(|kept| format!("; the old tree is kept in {}", printable(kept)));
    let changes = restored.changes.as_ref().map(|changes| {
        format!(
            "; {} entries put in place, {} removed, {} untouched",
            changes.placed, changes.removed, changes.untouched
        )
    });
    let mut lines = String::new();
    if let Some(changes) = &restored.changes {
        lines += &stayed(changes, "");
    }
    let before = restored.before.as_ref();
    let before = before.map(|before| {
        format!(
            "; what was there is snapshot {} of {}",
            before.snapshot_id, before.name
        )
    });
    format!(
        "restored {} to {}: {} files, {} bytes, {} of them reused{}{}{}; {} ms{lines}",
        restored.snapshot_id,
        printable(&restored.target),
        restored.files,
        restored.bytes,
        restored.bytes_reused,
        kept.unwrap_or_default(),
        changes.unwrap_or_default(),
        before.unwrap_or_default(),
        restored.elapsed_ms
    )
}

fn warnings(restored: &RepoRestored) -> Vec<String> {
    let counts = [
        (
            restored.owners_not_kept,
            "entries have another owner than in the snapshot: only root, with --owner, gives them",
        ),
        (
            restored.privileges_not_kept,
            "entries lost setuid or setgid: only root, with --owner, gives them",
        ),
        (
            restored.attributes_not_kept,
            "attributes could not be given",
        ),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
}
