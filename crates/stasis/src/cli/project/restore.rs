//! `stasis project restore`

use super::ProjectSelector;
use crate::cli::change::ChangeArgs;
use crate::cli::directory::{entry_path, named, stayed};
use crate::cli::output::{plural, printable, short};
use crate::cli::plan::{self, ADD, BRING_BACK, CHANGE, DELETE, PlanAct, PlanLine};
use crate::cli::progress::{cancel_on_signals, watched};
use crate::cli::{CliContext, ask, workspace};
use crate::report::Exit;
use anyhow::{bail, ensure};
use clap::Args;
use stasis_engine::address::{CONTAINER_PREFIX, SESSION_PREFIX, shell_word};
use stasis_engine::diff::DifferenceCount;
use stasis_engine::kind::project::{KeptDatabase, Project, ProjectRestore, ProjectRestored};
use stasis_engine::kind::workspace::{
    MaterializeCheckpoint, RestoreWorkspace, RevertPath, RunMode, Workspace,
};
use stasis_engine::model::id::VolumeName;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::tree::diff::ChangeKind;
use stasis_engine::model::workspace::CheckpointRef;
use stasis_engine::restore::InPlaceChanges;
use stasis_engine::warning::Warning;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// What an undo leaves as it is.
const SINCE: &str = "changed since, and left as they are";

/// How to get back what saves leave out by now.
const BY_PATH: &str = " (--path brings one back)";

#[derive(Debug, Args)]
pub(in crate::cli) struct ProjectRestoreArgs {
    /// `latest`, an id or the beginning of one, or a label
    snapshot: SnapshotRef,
    /// Only this volume; may be given more than once
    #[arg(long, value_name = "VOLUME")]
    volume: Vec<VolumeName>,
    /// Roll back to the safety snapshot if a program is unhealthy afterwards
    #[arg(long)]
    auto_undo: bool,
    #[command(flatten)]
    how: RestoreOptions,
}

/// How a directory is restored, whatever it is.
#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreOptions {
    /// Do not save the current state first
    #[arg(long)]
    no_safety: bool,
    /// Only this entry: from where you stand in the directory, else from its top; may be given more than once
    #[arg(long, value_name = "PATH")]
    path: Vec<OsString>,
    #[command(flatten)]
    change: ChangeArgs,
    /// Restore to this directory, which must not exist; nothing else is touched
    #[arg(long, value_name = "DIR", conflicts_with_all = ["except", "keep_git"])]
    to: Option<PathBuf>,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
}

impl ProjectRestoreArgs {
    pub(in crate::cli) async fn run(
        self,
        context: &CliContext,
        which: &ProjectSelector,
    ) -> anyhow::Result<Exit> {
        let project = which.look(context).await?;
        let command = ProjectRestore {
            volumes: self.volume,
            auto_undo: self.auto_undo,
            ..ProjectRestore::new(self.snapshot)
        };
        self.how.restore(context, &project, command).await
    }
}

impl RestoreOptions {
    /// Restores a snapshot of the store; where somebody is there to answer who has not agreed, it is shown first and asked for.
    pub(in crate::cli) async fn restore(
        self,
        context: &CliContext,
        project: &Project,
        command: ProjectRestore,
    ) -> anyhow::Result<Exit> {
        let progress = Arc::default();
        let paths = self.path.iter().map(|path| entry_path(Some(path)));
        let mut command = ProjectRestore {
            safety: !self.no_safety,
            paths: paths.collect::<Result<_, _>>()?,
            except: self.change.except_from_top()?,
            to: self.to,
            dry_run: self.dry_run,
            progress: Arc::clone(&progress),
            ..command
        };
        let is_in_place = command.to.is_none() && !command.dry_run;
        if is_in_place && !self.change.yes && ask::is_interactive(context) {
            let look = ProjectRestore {
                dry_run: true,
                ..command.clone()
            };
            let shown = Box::pin(project.restore(look)).await?;
            context.output.insist(&would(&shown));
            if !shown.changes.is_empty() && !ask::is_yes("Continue?")? {
                context.output.say(ask::NOTHING_CHANGED);
                return Ok(Exit::Cancelled);
            }
            command.agreed = Some(shown.changes);
        }
        // Only now: at a question, Ctrl-C ends us as it ends every program.
        command.cancel = cancel_on_signals()?;
        let work = Box::pin(project.restore(command));
        let restored = watched(context.output, "restoring", progress, work).await?;
        context.output.warn(&restored.warnings);
        let directory = project.home().dir.display().to_string();
        let text = |restored: &ProjectRestored| restored_text(restored, &directory);
        context.output.result(&restored, text)?;
        let is_ill = |warning: &Warning| matches!(warning, Warning::NotWell { .. });
        let in_place = restored.in_place.as_ref();
        Ok(if restored.warnings.iter().any(is_ill) {
            Exit::Failed
        } else if in_place.is_some_and(|changes| !changes.not_permitted.is_empty()) {
            Exit::Incomplete
        } else {
            Exit::Done
        })
    }
}

/// What can be said of a restore that is not of a directory.
pub(in crate::cli) struct RestoreElsewhere {
    pub(in crate::cli) to: Option<PathBuf>,
    pub(in crate::cli) dry_run: bool,
    /// Whether nobody is asked.
    pub(in crate::cli) yes: bool,
}

impl RestoreOptions {
    /// The entries that are restored, as they were typed.
    pub(in crate::cli) fn paths(&mut self) -> impl Iterator<Item = &mut OsString> {
        self.path.iter_mut()
    }

    pub(in crate::cli) fn change(&mut self) -> &mut ChangeArgs {
        &mut self.change
    }

    /// Whether the directory itself is changed.
    pub(in crate::cli) fn is_in_place(&self) -> bool {
        self.is_here() && !self.dry_run
    }

    /// Whether the directory itself is meant, and no new one.
    pub(in crate::cli) fn is_here(&self) -> bool {
        self.to.is_none()
    }

    /// The same for a profile, which comes back as a whole.
    pub(in crate::cli) fn of_profile(self) -> anyhow::Result<RestoreElsewhere> {
        let is_whole = self.path.is_empty() && self.change.is_whole();
        ensure!(
            is_whole && !self.no_safety,
            "a profile comes back as a whole: leave out --path, --except, --no-safety and --keep-git"
        );
        Ok(RestoreElsewhere {
            to: self.to,
            dry_run: self.dry_run,
            yes: self.change.yes,
        })
    }

    /// The same for a container: whether it is only shown, and whether nobody is asked.
    pub(in crate::cli) fn of_container(&self) -> anyhow::Result<(bool, bool)> {
        let is_whole = self.path.is_empty() && self.change.is_whole();
        ensure!(
            is_whole && !self.no_safety,
            "a container comes back as a whole: leave out --path, --except, --no-safety and --keep-git"
        );
        Ok((self.dry_run, self.change.yes))
    }

    /// Restores a checkpoint of this machine: all of it, one entry, or to another directory.
    pub(in crate::cli) async fn restore_checkpoint(
        self,
        context: &CliContext,
        of: &Workspace,
        checkpoint: CheckpointRef,
    ) -> anyhow::Result<Exit> {
        let run = if self.dry_run {
            RunMode::Dry
        } else {
            RunMode::Real
        };
        // As of a snapshot in the store: from the top of what was saved.
        let entry = |path: &OsString| entry_path(Some(path));
        match (&self.to, &*self.path) {
            (Some(to), []) => {
                let command = MaterializeCheckpoint {
                    checkpoint,
                    directory: to.clone(),
                    run,
                };
                workspace::materialize(context, of, command).await?;
                Ok(Exit::Done)
            }
            (Some(_), _) => bail!(
                "a checkpoint goes to another directory as a whole: leave out --path, or use `stasis cat` for one file"
            ),
            (None, []) => {
                let command = RestoreWorkspace {
                    checkpoint,
                    except: self.change.except_from_top()?,
                    no_undo: self.no_safety,
                    agreed: self.change.yes,
                    confirm: None,
                    run,
                };
                workspace::restore(context, of, command).await
            }
            (None, [path]) => {
                ensure!(
                    self.change.is_whole(),
                    "--path of a checkpoint goes with neither --except nor --keep-git"
                );
                let command = RevertPath {
                    path: entry(path)?,
                    checkpoint: Some(checkpoint),
                    no_undo: self.no_safety,
                    confirm: None,
                    run,
                };
                workspace::revert(context, of, command).await?;
                Ok(Exit::Done)
            }
            (None, _) => bail!(
                "of a checkpoint, one --path at a time is restored, each with an undo of its own"
            ),
        }
    }
}

/// Says what an undo did.
pub(in crate::cli) fn say_undone(
    context: &CliContext,
    project: &Project,
    undone: &ProjectRestored,
) -> anyhow::Result<Exit> {
    context.output.warn(&undone.warnings);
    let directory = project.home().dir.display().to_string();
    let text = |undone: &ProjectRestored| {
        if undone.dry_run {
            return would_undo(undone);
        }
        let words = restored_text(undone, &directory);
        let words = words.replacen("Restored ", "Undid the last restore: restored ", 1);
        words.replacen("Nothing to do: ", "Nothing to undo: ", 1)
    };
    context.output.result(undone, text)?;
    Ok(Exit::Done)
}

fn restored_text(restored: &ProjectRestored, directory: &str) -> String {
    if restored.dry_run {
        return would(restored);
    }
    let (target, id) = (printable(&restored.target), short(&restored.snapshot_id));
    let took = format!("{} ms", restored.elapsed_ms);
    let checked = match restored.databases {
        0 => String::new(),
        count => format!(", {} passed integrity_check", plural(count, "database")),
    };
    let part = if restored.is_part {
        "the named part of "
    } else {
        ""
    };
    let what = if restored.undone {
        format!("Undid the restore of {}", restored.project)
    } else {
        format!("Restored {part}{target} to {id}{}", but_for(restored))
    };
    if restored.is_unchanged() {
        let stayed = restored.in_place.as_ref().map(|all| stayed(all, BY_PATH));
        let stayed = stayed.unwrap_or_default();
        let but_for = but_for(restored);
        let latest = if restored.is_latest_now() {
            "; `latest` means it now"
        } else {
            ""
        };
        return format!(
            "Nothing to do: {part}{target} is {id} already{but_for}{checked}{latest} ({took}){stayed}"
        );
    }
    let in_place = restored.in_place.as_ref().filter(|_| !restored.undone);
    let changed = in_place.map(|changes| counts_text(restored, changes));
    let mut words = format!("{what}{}{checked} ({took})", changed.unwrap_or_default());
    words += &way_back(restored, directory);
    words += &named(SINCE, &restored.changed_since);
    if let Some(subject) = &restored.copy_of {
        words += &copy_text(subject, &restored.target);
    }
    if let Some(changes) = &restored.in_place {
        words += &stayed(changes, BY_PATH);
        if let Some(backup) = &changes.backup {
            words += "\nwhat was replaced is kept for 7 days in ";
            words += &printable(backup);
        }
    }
    for one in &restored.set_aside {
        let (path, kept_at) = (printable(&one.path), printable(&one.kept_at));
        words += "\nin no snapshot, but kept with what was replaced: ";
        words += &[&path, " (now ", &kept_at, ")"].concat();
    }
    words + &databases_kept(&restored.databases_kept)
}

/// How to go on with what was written elsewhere.
fn copy_text(subject: &str, target: &str) -> String {
    if let Some(session) = subject.strip_prefix(SESSION_PREFIX) {
        let tenant = session.split('/').next().unwrap_or_default();
        return format!(
            "\nIt is a copy. Go on with the session here with:\n  stasis session wake {session} --dir DIR\nor begin another one with:\n  stasis session fork {session} {tenant}/NEW"
        );
    }
    if let Some(container) = subject.strip_prefix(CONTAINER_PREFIX) {
        return format!(
            "\nIt has the volumes and the environment. Make a container of the snapshot with: stasis container restore latest {container}"
        );
    }
    let target = printable(&shell_word(target));
    format!("\nIt is a copy. Go on with it here with: stasis link {target} {subject}")
}

/// How many entries a restore changed, in the words of its plan.
fn counts_text(restored: &ProjectRestored, changes: &InPlaceChanges) -> String {
    let known = restored
        .counted
        .filter(|counted| *counted != DifferenceCount::default());
    let counts = match known {
        Some(known) => [
            (CHANGE, known.changed),
            (BRING_BACK, known.added),
            (DELETE, known.removed),
        ],
        None => [
            (CHANGE, changes.placed),
            (BRING_BACK, 0),
            (DELETE, changes.removed),
        ],
    };
    match &*plan::did(&counts, "entry") {
        "" => ": only permissions or times changed".to_owned(),
        did => format!(": {did}"),
    }
}

/// What takes back that which was restored, and nothing else.
fn way_back(restored: &ProjectRestored, directory: &str) -> String {
    let Some(safety) = &restored.safety_snapshot_id else {
        return String::new();
    };
    let (directory, safety) = (printable(&shell_word(directory)), short(safety));
    if restored.can_be_undone {
        return format!("\nUndo with: stasis undo {directory}\nwhat was there before is {safety}");
    }
    // What no snapshot has is named after this, with where it is.
    format!(
        "\nwhat was there before is {safety}, as far as it could be saved: stasis restore {directory} {safety}"
    )
}

/// What was left as it is because somebody asked for that.
fn but_for(restored: &ProjectRestored) -> String {
    let mut all: Vec<_> = restored.except.iter().map(|path| printable(path)).collect();
    let has_others = restored.in_place.as_ref().is_some_and(|changes| {
        !(changes.left_alone.is_empty() && changes.not_permitted.is_empty())
    });
    all.extend(has_others.then(|| "what is named below".to_owned()));
    match &*all {
        [] => String::new(),
        all => format!(", but for {}", all.join(" and ")),
    }
}

/// Databases on servers that restores left, a line for each.
pub(in crate::cli) fn databases_kept(all: &[KeptDatabase]) -> String {
    let line = |one: &KeptDatabase| {
        let (volume, database) = (&one.volume, printable(&one.database));
        if one.removed {
            return format!("\nremoved the old database {database} of volume {volume}");
        }
        format!(
            "\nkept the database {database} of volume {volume}, replaced {}; a restore or gc removes it after 7 days",
            one.since
        )
    };
    all.iter().map(line).collect()
}

/// What a restore will do.
pub(in crate::cli) fn would(restored: &ProjectRestored) -> String {
    let mut doing = format!("Restoring {}", short(&restored.snapshot_id));
    if restored.is_elsewhere {
        doing = [&doing, " to ", &printable(&restored.target)].concat();
    }
    planned(restored, &doing)
}

/// What an undo of a restore will do.
pub(in crate::cli) fn would_undo(restored: &ProjectRestored) -> String {
    planned(restored, "Undoing the last restore")
}

fn planned(restored: &ProjectRestored, doing: &str) -> String {
    let changes = &restored.changes;
    if changes.is_empty() && restored.is_elsewhere {
        return format!("{doing} will write an empty directory");
    }
    if changes.is_empty() {
        let (id, since) = (short(&restored.snapshot_id), &restored.changed_since);
        return format!("Nothing would change: it is {id}") + &named(SINCE, since);
    }
    // What was added since the snapshot goes, and so on.
    let act = |change: ChangeKind| match change {
        ChangeKind::Added => DELETE,
        _ if restored.is_elsewhere => ADD,
        ChangeKind::Removed => BRING_BACK,
        _ => CHANGE,
    };
    let count = |wanted: PlanAct| {
        let acts = changes.iter().map(|one| act(one.change));
        (wanted, acts.filter(|act| *act == wanted).count() as u64)
    };
    let counts = [CHANGE, ADD, BRING_BACK, DELETE].map(count);
    let what = format!("{doing} will {}", plan::will(&counts, "entry"));
    let things = changes
        .iter()
        .map(|one| PlanLine::new(act(one.change), &one.path));
    let text = plan::with_lines(&what, things.collect(), changes.len() as u64);
    text + &named(SINCE, &restored.changed_since)
}
