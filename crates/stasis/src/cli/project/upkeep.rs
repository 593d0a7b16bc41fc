//! `stasis project init`, `label`, `delete`, `verify`, `gc`, `duplicate`, `upgrade` and `autosave`

use super::{ProjectSelector, labels, restore, save};
use crate::cli::ask::{self, NOTHING_CHANGED};
use crate::cli::byte_size::size;
use crate::cli::keep::KeepPeriodArgs;
use crate::cli::output::{plural, printable, short};
use crate::cli::progress::{Doing, cancel_on_signals, watched};
use crate::cli::{CliContext, collected};
use crate::report::Exit;
use clap::{Args, ValueEnum};
use stasis_engine::error::Error;
use stasis_engine::gc::RepoGcVerdict;
use stasis_engine::kind::project::{
    self, Project, ProjectError, ProjectGc, ProjectInit, ProjectUpgraded,
};
use stasis_engine::model::id::ProjectId;
use stasis_engine::model::policy::retention::{KeepPeriods, Repository};
use stasis_engine::model::project::Layout;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, Args)]
pub(in crate::cli) struct ProjectInitArgs {
    /// What the project is called [default: the name that its history has in the store]
    #[arg(long)]
    id: Option<ProjectId>,
    /// Where the application's data lies
    #[arg(long, default_value = "in-place")]
    layout: LayoutArg,
    /// Only print what would be written
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LayoutArg {
    /// Where it is: the whole directory is saved
    InPlace,
    /// In state/current/, with the snapshots beside it in state/
    State,
}

impl From<LayoutArg> for Layout {
    fn from(layout: LayoutArg) -> Self {
        match layout {
            LayoutArg::InPlace => Self::InPlace,
            LayoutArg::State => Self::State,
        }
    }
}

impl ProjectInitArgs {
    pub(in crate::cli) async fn run(
        self,
        context: &CliContext,
        which: &ProjectSelector,
    ) -> anyhow::Result<()> {
        let is_dry = self.dry_run;
        if matches!(self.layout, LayoutArg::State) && !is_dry {
            ensure_no_history(context, which).await?;
        }
        let command = ProjectInit {
            id: self.id,
            layout: self.layout.into(),
            dry_run: is_dry,
            state: context.environment.local_dirs.state.clone(),
        };
        let made = project::init(&which.project, command).await?;
        context.output.result(&made, |made| {
            if is_dry {
                return made.text.trim_end().to_owned();
            }
            let found = made.found.iter();
            let found: Vec<String> = found
                .map(|one| format!("\nfound {}", printable(&one.words)))
                .collect();
            let found = found.concat();
            let file = printable(&made.file);
            format!("wrote {file}; read it, then run: stasis project save{found}")
        })
    }
}

/// Refuses to hide what was saved of a directory as it lies.
async fn ensure_no_history(context: &CliContext, which: &ProjectSelector) -> anyhow::Result<()> {
    // A store that is not there, or cannot be read, has no history that anybody could see.
    let Ok(project) = which.look(context).await else {
        return Ok(());
    };
    let snapshots = project.list().await.unwrap_or_default().len();
    if snapshots == 0 || project.home().declared.is_some() {
        return Ok(());
    }
    let dir = project.home().dir.clone();
    Err(Error::from(ProjectError::HidesHistory { dir, snapshots }).into())
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ProjectGcArgs {
    /// Keep this many of the newest. With this or another --keep option, only these options count [default: what `retention` in the
    /// project's file says, else 100]
    #[arg(long, visible_alias = "keep-last", value_name = "N")]
    pub(in crate::cli) keep: Option<u64>,
    #[command(flatten)]
    pub(in crate::cli) periods: KeepPeriodArgs,
    /// Do not ask before snapshots are deleted
    #[arg(long, short)]
    pub(in crate::cli) yes: bool,
    /// Only show what would be deleted, and why
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
}

impl ProjectGcArgs {
    /// What is asked for here, if anything is.
    fn policy(&self) -> Option<Repository> {
        let periods = self.periods.given();
        let is_asked = self.keep.is_some() || !periods.is_empty();
        is_asked.then(|| Repository {
            keep_last: self.keep,
            periods: KeepPeriods::default().with(&periods),
            ..Repository::default()
        })
    }

    pub(in crate::cli) async fn run(
        self,
        context: &CliContext,
        which: &ProjectSelector,
    ) -> anyhow::Result<Exit> {
        let project = which.look(context).await?;
        let progress = Arc::default();
        let mut command = ProjectGc {
            keep: self.policy(),
            dry_run: self.dry_run,
            progress: Arc::clone(&progress),
            ..ProjectGc::default()
        };
        if !self.yes && !self.dry_run && ask::is_interactive(context) {
            let look = ProjectGc {
                dry_run: true,
                ..command.clone()
            };
            let shown = Box::pin(project.gc(look)).await?.collected;
            let Some(agreed) = collected::agreed(context, &shown, going_label)? else {
                context.output.say(NOTHING_CHANGED);
                return Ok(Exit::Cancelled);
            };
            command.agreed = Some(agreed);
        }
        let work = Box::pin(project.gc(command));
        let doing = Doing::new("collecting", "snapshots");
        let collected = watched(context.output, doing, progress, work).await?;
        context.output.result(&collected, |all| {
            let text = collected::text(&all.collected, going_label);
            text + &restore::databases_kept(&all.databases_kept)
        })?;
        Ok(Exit::Done)
    }
}

fn going_label(verdict: &RepoGcVerdict) -> String {
    short(&verdict.snapshot_id)
}

pub(in crate::cli) async fn pin(
    context: &CliContext,
    project: &Project,
    snapshot: &SnapshotRef,
    pinned: bool,
) -> anyhow::Result<()> {
    let row = project.pin(snapshot, pinned).await?;
    let words = if pinned { "is pinned" } else { "is not pinned" };
    context
        .output
        .result(&row, |row| format!("{} {words}", short(&row.snapshot_id)))
}

pub(in crate::cli) async fn label(
    context: &CliContext,
    project: &Project,
    snapshot: &SnapshotRef,
    label: &str,
) -> anyhow::Result<()> {
    let typed = labels(&[label.to_owned()])?;
    let (key, value) = typed.first_key_value().expect("one was parsed");
    let value = (!value.as_str().is_empty()).then_some(value);
    let row = project.label(snapshot, key, value).await?;
    context.output.result(&row, |row| {
        let labels = row.labels.iter();
        let labels: Vec<String> = labels
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let id = short(&row.snapshot_id);
        format!("{id} {}", printable(&labels.join(", ")))
    })
}

pub(in crate::cli) async fn delete(
    context: &CliContext,
    project: &Project,
    snapshot: &SnapshotRef,
) -> anyhow::Result<()> {
    let gone = project.delete(snapshot).await?;
    context.output.result(&gone, |gone| {
        let ids: Vec<String> = gone.forgotten.iter().map(short).collect();
        format!("{} is gone; `stasis gc` removes its bytes", ids.join(", "))
    })
}

pub(in crate::cli) async fn verify(
    context: &CliContext,
    project: &Project,
    snapshot: &SnapshotRef,
) -> anyhow::Result<Exit> {
    let progress = Arc::default();
    let work = Box::pin(project.verify(snapshot, Arc::clone(&progress)));
    let verified = watched(context.output, "verifying", progress, work).await?;
    context.output.result(&verified, |done| {
        if done.damaged.is_empty() {
            return format!(
                "OK: {} restores cleanly ({}, {}; {} passed integrity_check)",
                short(&done.snapshot_id),
                plural(done.files, "file"),
                size(done.bytes),
                plural(done.databases, "database")
            );
        }
        let damaged = done
            .damaged
            .iter()
            .map(|path| format!("\n  {}", printable(path)));
        let damaged: String = damaged.collect();
        format!(
            "DAMAGED: {} restores, but these databases failed integrity_check:{damaged}",
            short(&done.snapshot_id)
        )
    })?;
    Ok(if verified.damaged.is_empty() {
        Exit::Done
    } else {
        Exit::Corrupt
    })
}

pub(in crate::cli) async fn duplicate(
    context: &CliContext,
    project: &Project,
    snapshot: &SnapshotRef,
    dir: &Path,
    id: &ProjectId,
) -> anyhow::Result<()> {
    let progress = Arc::default();
    let work = Box::pin(project.duplicate(snapshot, dir, id, Arc::clone(&progress)));
    let made = watched(context.output, "duplicating", progress, work).await?;
    context.output.result(&made, |made| {
        let dir = printable(&made.dir);
        format!(
            "{} is in {dir}, with the state of {}",
            made.duplicate, made.snapshot_id
        )
    })
}

pub(in crate::cli) async fn upgrade(
    context: &CliContext,
    project: &Project,
    command: &[OsString],
) -> anyhow::Result<Exit> {
    let cancel = cancel_on_signals()?;
    let done = Box::pin(project.upgrade(command, &cancel)).await?;
    context.output.warn(&done.warnings);
    context.output.result(&done, |done: &ProjectUpgraded| {
        let before = &done.safety_snapshot_id;
        match &done.because {
            None => format!("{} is upgraded; what it was is {before}", done.project),
            Some(because) => format!(
                "{} is what it was ({before}), because {}{}",
                done.project,
                printable(because),
                restore::databases_kept(&done.databases_kept)
            ),
        }
    })?;
    Ok(if done.rolled_back {
        Exit::Failed
    } else {
        Exit::Done
    })
}

#[derive(Debug, Args)]
pub(in crate::cli) struct AutosaveArgs {
    /// Save this many seconds after the last change [default: `debounce_s` of the project's file, else 30]
    #[arg(long, value_name = "SECONDS")]
    debounce: Option<u64>,
}

impl AutosaveArgs {
    pub(in crate::cli) async fn run(
        self,
        context: &CliContext,
        which: &ProjectSelector,
    ) -> anyhow::Result<Exit> {
        let project = which.open(context).await?;
        let cancel = cancel_on_signals()?;
        let report = |saved: &project::ProjectSaved| save::report_line(context, saved);
        let mut failed = Ok(());
        project
            .autosave(self.debounce, cancel, |saved| match saved {
                Ok(saved) if saved.saved.published => {
                    failed = report(saved);
                    failed.is_ok()
                }
                Ok(_) => true,
                Err(error) => {
                    let words = stasis_engine::error::error_chain(error);
                    context
                        .output
                        .say(&format!("warning: not saved: {}", printable(&words)));
                    true
                }
            })
            .await?;
        failed?;
        Ok(Exit::Done)
    }
}
