//! `stasis check`, `pin`, `forget` and `gc`

use super::words::{NoSnapshot, OneSnapshot, TypedWords};
use crate::cli::byte_size::size;
use crate::cli::damage::DamageHints;
use crate::cli::first_checkpoint::is_no_workspace;
use crate::cli::output::{plural, short};
use crate::cli::plan::{self, DELETE, PlanLine};
use crate::cli::profile::everyday as profile;
use crate::cli::progress::{Doing, watched};
use crate::cli::project::{ProjectSelector, is_absent, upkeep};
use crate::cli::repo::{self, RepoCheckArgs};
use crate::cli::{CliContext, ask, container, workspace};
use crate::report::Exit;
use crate::system::SystemClock;
use anyhow::bail;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::check::RepoChecked;
use stasis_engine::error::{Error, ErrorKind};
use stasis_engine::kind::directory::{DirSnapshot, Directory};
use stasis_engine::kind::workspace::{CheckedWorkspace, DeletedCheckpoint, RunMode, Workspace};
use stasis_engine::model::failure::Failure;
use stasis_engine::model::id::{ProfileRef, SnapshotId};
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::time::{Clock as _, Timestamp};
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
        // A session, a container, and a directory of another host lie nowhere here.
        let lies_here = !typed.is_nowhere() && !dir.as_os_str().is_empty();
        let workspace = if lies_here {
            checked_workspace(context, &dir).await.map(Some)
        } else {
            Ok(None)
        };
        let workspace = match workspace {
            Err(error) if is_no_workspace(&error) => None,
            checked => checked?,
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
        typed.ensure_no_session("exactly one snapshot is kept, which needs no pin; another session can begin with it: `stasis session fork")?;
        let directory = typed.directory(context).await?;
        let id = match typed
            .located(context, &directory, &typed.snapshot())
            .await?
        {
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
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Only show what would go
    #[arg(long)]
    dry_run: bool,
}

/// What is forgotten, or would be.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct ForgetResult {
    forgotten: Vec<String>,
    dry_run: bool,
    /// Whether the last restore cannot be taken back without one of them.
    ends_undo: bool,
    /// What a plan says of each.
    #[serde(skip)]
    details: Vec<String>,
}

impl ForgetArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = TypedWords::read(context, &self.words, usize::MAX)?;
        if typed.snapshots.is_empty() {
            bail!("name the snapshot that is to be forgotten; `stasis log` lists them");
        }
        let is_asked = !self.yes && !self.dry_run && ask::is_interactive(context);
        if let Some(profile) = typed.profile() {
            return self
                .forget_of_profile(context, profile, &typed, is_asked)
                .await;
        }
        if let Some(of) = typed.container() {
            let host = container::default_host(context);
            let which = (&typed.snapshots[..], Some(of));
            let how = (self.dry_run, self.yes);
            return container::delete_snapshots(context, &host, which, how).await;
        }
        typed.ensure_no_session("the one snapshot goes with `stasis session delete-snapshot")?;
        let directory = typed.directory(context).await?;
        let going = GoingSnapshots::find(&directory, &typed.snapshots).await?;
        let shown = going.shown().await?;
        if self.dry_run {
            context.output.result(&shown, ForgetResult::text)?;
            return Ok(Exit::Done);
        }
        if is_asked && !is_agreed(context, &shown)? {
            return Ok(Exit::Cancelled);
        }
        going.forget().await?;
        if shown.ends_undo {
            context
                .output
                .say("warning: `stasis undo` of the last restore needs what was forgotten");
        }
        let done = ForgetResult {
            dry_run: false,
            ..shown
        };
        context.output.result(&done, ForgetResult::text)?;
        Ok(Exit::Done)
    }

    async fn forget_of_profile(
        &self,
        context: &CliContext,
        profile: &ProfileRef,
        typed: &TypedWords,
        is_asked: bool,
    ) -> anyhow::Result<Exit> {
        let mut wanted = typed.snapshots.clone();
        if is_asked {
            let forgotten = profile::forget(context, profile, &wanted, true).await?;
            // What `latest~2` means by then may be another one: what was shown is what goes.
            let ids = forgotten.iter().map(|id| SnapshotRef::Text(id.clone()));
            wanted = ids.collect();
            if !is_agreed(context, &ForgetResult::of(forgotten, true))? {
                return Ok(Exit::Cancelled);
            }
        }
        let forgotten = profile::forget(context, profile, &wanted, self.dry_run).await?;
        let result = ForgetResult::of(forgotten, self.dry_run);
        context.output.result(&result, ForgetResult::text)?;
        Ok(Exit::Done)
    }
}

/// Shows what would go, and asks.
fn is_agreed(context: &CliContext, shown: &ForgetResult) -> anyhow::Result<bool> {
    context.output.insist(&shown.text());
    let is_yes = ask::is_yes("Continue?")?;
    if !is_yes {
        context.output.say(ask::NOTHING_CHANGED);
    }
    Ok(is_yes)
}

/// Snapshots of a directory that somebody named, each found before anything goes.
struct GoingSnapshots<'a> {
    directory: &'a Directory,
    stored: Vec<SnapshotId>,
    here: Vec<DeletedCheckpoint>,
}

impl<'a> GoingSnapshots<'a> {
    /// Finds all of them, and that each may go.
    async fn find(directory: &'a Directory, wanted: &[SnapshotRef]) -> anyhow::Result<Self> {
        let (mut stored, mut slots): (Vec<_>, Vec<Slot>) = (Vec::new(), Vec::new());
        for snapshot in wanted {
            match directory.locate(snapshot).await? {
                DirSnapshot::Stored(id) if !stored.contains(&id) => stored.push(id),
                DirSnapshot::Checkpoint(slot) if !slots.contains(&slot) => slots.push(slot),
                _ => {}
            }
        }
        if !stored.is_empty() {
            directory.project()?.forget(&stored, RunMode::Dry).await?;
        }
        let mut here = Vec::new();
        for slot in slots {
            let checkpoint = CheckpointRef::Slot(slot);
            let workspace = directory.workspace()?;
            here.push(workspace.delete(checkpoint, RunMode::Dry).await?);
        }
        Ok(Self {
            directory,
            stored,
            here,
        })
    }

    /// What a plan says of them.
    async fn shown(&self) -> anyhow::Result<ForgetResult> {
        let rows = match &*self.stored {
            [] => Vec::new(),
            _ => self.directory.project()?.list().await?,
        };
        let needed = match &*self.stored {
            [] => Vec::new(),
            _ => self.directory.project()?.needed_for_undo().await?,
        };
        let now = SystemClock.now();
        let mut details = Vec::new();
        for id in &self.stored {
            let row = rows.iter().find(|row| row.snapshot_id == *id);
            details.push(row.map_or_else(String::new, |row| {
                let age = Timestamp::from_millis(row.timestamp_ms).age(now);
                let entries = plural(row.entries, "entry");
                let undo = if needed.contains(id) {
                    "; undo of the last restore needs it"
                } else {
                    ""
                };
                format!("{age}, {entries}, {}{undo}", size(row.bytes))
            }));
        }
        let names = self.here.iter().map(|one| one.name.clone());
        details.extend(names.map(Option::unwrap_or_default));
        let stored = self.stored.iter().map(ToString::to_string);
        let here = self.here.iter().map(|one| one.checkpoint.clone());
        Ok(ForgetResult {
            forgotten: stored.chain(here).collect(),
            dry_run: true,
            ends_undo: self.stored.iter().any(|id| needed.contains(id)),
            details,
        })
    }

    /// Lets go of what was found, or of nothing where that is another one by now.
    async fn forget(self) -> anyhow::Result<()> {
        if !self.here.is_empty() {
            let workspace = self.directory.workspace()?;
            workspace.ensure_still(&self.here).await?;
        }
        if !self.stored.is_empty() {
            let project = self.directory.project()?;
            project.forget(&self.stored, RunMode::Real).await?;
        }
        for one in &self.here {
            self.directory.workspace()?.delete_shown(one).await?;
        }
        Ok(())
    }
}

impl ForgetResult {
    fn of(forgotten: Vec<String>, dry_run: bool) -> Self {
        Self {
            forgotten,
            dry_run,
            ends_undo: false,
            details: Vec::new(),
        }
    }

    fn text(&self) -> String {
        let is_here = |name: &String| SnapshotRef::from(&**name).is_spelt_out();
        if !self.dry_run {
            let names: Vec<String> = self.forgotten.iter().map(short).collect();
            let rest = if self.forgotten.iter().all(is_here) {
                ""
            } else {
                "; `stasis gc` frees the bytes in the store"
            };
            return format!("Forgot {}{rest}", names.join(", "));
        }
        let here = self.forgotten.iter().filter(|name| is_here(name)).count() as u64;
        let all = self.forgotten.len() as u64;
        let counts = [(all - here, "snapshot"), (here, "checkpoint")];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, noun)| plural(*count, noun)).collect();
        let what = format!("Forgetting will {} {}", DELETE.will, counts.join(" and "));
        let details = self.details.iter().map(String::as_str);
        let details = details.chain(std::iter::repeat(""));
        let things = self.forgotten.iter().zip(details).map(|(name, detail)| {
            let thing = format!("{}  {detail}", short(name));
            PlanLine::new(DELETE, thing.trim_end())
        });
        plan::with_lines(&what, things.collect(), all)
    }
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
        if typed.container().is_some() {
            bail!(
                "the snapshots of containers are kept within limits for all of them: say `stasis container cleanup`"
            );
        }
        let dir = typed.place(context).await?;
        let collected = self.how.run(context, &ProjectSelector::of(&dir)).await;
        match collected {
            Err(error) if typed.is_here() && is_absent(&error) => Err(nothing_here(&error)),
            collected => collected,
        }
    }
}

/// Says to somebody who stands in a directory that was never saved what else can be collected.
fn nothing_here(error: &anyhow::Error) -> anyhow::Error {
    let hint = "name the subject: `stasis gc dir:NAME`, `stasis gc profile:NAME` or `stasis gc session:TENANT/SESSION`; `stasis list` shows all. One frees what nothing of its tenant needs any more";
    let failure = Failure::of(ErrorKind::NotFound, error.to_string());
    Error::from(failure.with_hint(hint)).into()
}
