//! `stasis save`, `stasis restore` and `stasis undo`

use super::words::{NoSnapshot, OneSnapshot, TypedWords};
use crate::cli::change::ChangeArgs;
use crate::cli::profile::everyday as profile;
use crate::cli::progress::{cancel_on_signals, watched};
use crate::cli::project::{ProjectSelector, restore, save};
use crate::cli::{CliContext, ask, container, session, workspace};
use crate::report::Exit;
use anyhow::ensure;
use clap::Args;
use stasis_engine::kind::container::RestoreContainer;
use stasis_engine::kind::directory::{DirPlace, DirSnapshot, EntryIn, LastChange};
use stasis_engine::kind::project::{Project, ProjectRestore, RestoreRecord, UndoRestore};
use stasis_engine::kind::workspace::{RunMode, UndoChange};
use stasis_engine::model::format::manifest::SaveReason;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::workspace::CheckpointRef;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;

/// `stasis save`
#[derive(Debug, Args)]
pub(in crate::cli) struct SaveArgs {
    #[command(flatten)]
    which: NoSnapshot,
    #[command(flatten)]
    how: save::SaveOptions,
}

impl SaveArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = self.which.read(context)?;
        if let Some(profile) = typed.profile() {
            return Err(profile::not_saved_so(profile));
        }
        if let Some(container) = typed.container() {
            let host = container::default_host(context);
            let mut create = container::usual_save(context, &host, container).await?;
            create.labels = self.how.labels()?;
            let message = create.labels.remove(save::MESSAGE);
            create.description = message.unwrap_or_default();
            return container::save(context, &host, create).await;
        }
        typed.ensure_no_session("say `stasis session snapshot")?;
        let dir = typed.place(context).await?;
        let project = ProjectSelector::of(&dir).open(context).await?;
        self.how.save(context, &project, SaveReason::Manual).await
    }
}

/// `stasis restore`
#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreArgs {
    #[command(flatten)]
    which: OneSnapshot,
    #[command(flatten)]
    how: restore::RestoreOptions,
}

impl RestoreArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let typed = self.which.read(context)?;
        if let Some(profile) = typed.profile() {
            let chosen = typed.snapshots.first();
            let how = self.how.of_profile()?;
            let agreed = how.yes;
            return profile::restore(context, profile, chosen, how, agreed).await;
        }
        if let Some(container) = typed.container().filter(|_| self.how.is_here()) {
            let (dry_run, yes) = self.how.of_container()?;
            ensure!(!dry_run, "`stasis container show` says what a snapshot has");
            let host = container::default_host(context);
            let restore = RestoreContainer {
                container: Some(container.to_owned()),
                ..RestoreContainer::new(typed.snapshot())
            };
            return container::restore(context, &host, restore, yes).await;
        }
        if self.how.is_here() {
            typed.ensure_no_session(
                "name a new directory with --to, or bring it back with `stasis session wake",
            )?;
        }
        let (made, is_in_place) = (
            self.makes_again(context, &typed).await?,
            self.how.is_in_place(),
        );
        let restored = self.restore(context, &typed).await;
        if let Some(made) = made.filter(|_| restored.is_err() || !is_in_place) {
            DirPlace::unmake(&made).await;
        }
        restored
    }

    /// A directory that is gone is made again for a checkpoint of it.
    async fn makes_again(
        &self,
        context: &CliContext,
        typed: &TypedWords,
    ) -> anyhow::Result<Option<PathBuf>> {
        let is_checkpoint = matches!(typed.snapshot(), SnapshotRef::Checkpoint(_));
        let Ok(host) = context.environment.host_env() else {
            return Ok(None);
        };
        let dir = typed.dir()?;
        let is_made = is_checkpoint && DirPlace::make_again(&dir, &host).await?;
        Ok(is_made.then_some(dir))
    }

    async fn restore(mut self, context: &CliContext, typed: &TypedWords) -> anyhow::Result<Exit> {
        let directory = typed.directory(context).await?;
        let wanted = typed.snapshot();
        let of = typed.located(context, &directory, &wanted).await?;
        for path in self.how.paths() {
            let entry = typed.entry(&directory, path, EntryIn::Snapshot(&of));
            *path = OsString::from_vec(entry.await?.as_bytes().to_vec());
        }
        let within = EntryIn::SnapshotOrNow(&of);
        let change = self.how.change();
        typed.read_excepted(&directory, change, within).await?;
        if let DirSnapshot::Checkpoint(slot) = of {
            let (of, checkpoint) = (directory.workspace()?, CheckpointRef::Slot(slot));
            return self.how.restore_checkpoint(context, of, checkpoint).await;
        }
        let command = ProjectRestore::new(typed.snapshot());
        self.how
            .restore(context, directory.project()?, command)
            .await
    }
}

/// `stasis undo`
#[derive(Debug, Args)]
pub(in crate::cli) struct UndoArgs {
    /// The directory [default: the one you are in]; and what is undone, as `stasis log` lists it: u-4 [default: the last restore,
    /// rewind, revert or undo]
    #[arg(value_name = "SUBJECT|u-N", num_args = 0..=2)]
    words: Vec<OsString>,
    #[command(flatten)]
    change: ChangeArgs,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
}

impl UndoArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let is_undo = |word: &&OsString| {
            let number = word.to_str().map(workspace::undo_number);
            number.is_some_and(|number| number.is_ok())
        };
        let undo = self.words.last().filter(is_undo);
        let words = &self.words[..self.words.len() - usize::from(undo.is_some())];
        ensure!(
            words.len() <= 1,
            "name one directory, and after it at most one undo, as in `u-4`"
        );
        let mut typed = TypedWords::read(context, words, 0)?;
        let (profile, session) = (typed.profile(), typed.session());
        ensure!(
            profile.is_none() && !typed.is_nowhere() || undo.is_none() && self.change.is_whole(),
            "of a profile or a container the last restore, and of a session the last wake, is undone as a whole: leave out u-N, --except and --keep-git"
        );
        if let Some(of) = typed.container() {
            return container::undo(context, of, (self.dry_run, self.change.yes)).await;
        }
        if let Some(profile) = profile {
            return profile::undo(context, profile, self.dry_run, self.change.yes).await;
        }
        if let Some(of) = session {
            return session::undo(context, of, (self.dry_run, self.change.yes)).await;
        }
        if undo.is_some() {
            // What a workspace takes back needs no store.
            typed.snapshots.push(SnapshotRef::Checkpoint(0));
        }
        let number = undo.and_then(|word| word.to_str()?.strip_prefix("u-")?.parse().ok());
        self.undo_directory(context, &typed, number).await
    }

    /// Takes back what was done last to a directory, or the change of that number.
    async fn undo_directory(
        mut self,
        context: &CliContext,
        typed: &TypedWords,
        number: Option<u32>,
    ) -> anyhow::Result<Exit> {
        let directory = typed.directory(context).await?;
        let last = match number {
            Some(_) => None,
            None => directory.last_change().await?,
        };
        let before = match &last {
            Some(LastChange::Restore(record)) => record.before().cloned(),
            _ => None,
        };
        let before = before.map(DirSnapshot::Stored);
        let within = match (number, &last) {
            (None, Some(LastChange::Restore(_))) => before.as_ref().map(EntryIn::SnapshotOrNow),
            // There is nothing to undo, which is said below.
            (None, None | Some(LastChange::Final)) => None,
            (number, _) => Some(EntryIn::UndoOrNow(number)),
        };
        if let Some(within) = within {
            typed
                .read_excepted(&directory, &mut self.change, within)
                .await?;
        }
        match (number, last) {
            (None, Some(LastChange::Final)) => Err(anyhow::anyhow!(
                "what was done last to the workspace was done without an undo; `stasis log` lists what there is"
            )),
            (None, Some(LastChange::Restore(record))) => {
                self.undo_restore(context, directory.project()?, Some(&record))
                    .await
            }
            (None, None) if directory.workspace().is_err() => {
                // It says that there is none, and what helps.
                self.undo_restore(context, directory.project()?, None).await
            }
            (number, _) => {
                let workspace = directory.workspace()?;
                let command = UndoChange {
                    which: number,
                    except: self.change.except_from_top()?,
                    agreed: self.change.yes,
                    confirm: None,
                    run: if self.dry_run {
                        RunMode::Dry
                    } else {
                        RunMode::Real
                    },
                };
                workspace::undo(context, workspace, command).await
            }
        }
    }

    /// Takes back a restore from the store; where somebody is there to answer, it is shown first and asked for.
    async fn undo_restore(
        self,
        context: &CliContext,
        project: &Project,
        record: Option<&RestoreRecord>,
    ) -> anyhow::Result<Exit> {
        let progress = Arc::default();
        let mut command = UndoRestore {
            dry_run: self.dry_run,
            except: self.change.except_from_top()?,
            cancel: Arc::default(),
            progress: Arc::clone(&progress),
            agreed: None,
        };
        if !self.change.yes && !self.dry_run && ask::is_interactive(context) {
            let look = UndoRestore {
                dry_run: true,
                ..command.clone()
            };
            let shown = Box::pin(project.undo_restore(record, look)).await?;
            context.output.insist(&restore::would_undo(&shown));
            if !shown.changes.is_empty() && !ask::is_yes("Continue?")? {
                context.output.say(ask::NOTHING_CHANGED);
                return Ok(Exit::Cancelled);
            }
            command.agreed = Some(shown.changes);
        }
        // Only now: at a question, Ctrl-C ends us as it ends every program.
        command.cancel = cancel_on_signals()?;
        let work = Box::pin(project.undo_restore(record, command));
        let undone = watched(context.output, "undoing", progress, work).await?;
        restore::say_undone(context, project, &undone)
    }
}
