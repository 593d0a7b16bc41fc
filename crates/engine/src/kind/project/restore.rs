//! Makes a project what it was.
//!
//! 1. take the lock; find the snapshot, which must be this project's; check every argument against it
//! 2. stop the programs, but not the servers through which databases are restored
//! 3. restore the state as every restore does ([`StateRestore`]): what is there now is saved first, and what cannot be saved is
//!    only noted; every database that was staged is checked; those that live in servers are swapped before the files;
//!    `latest` means that snapshot if all of it was restored
//! 4. start the programs again; see that they are well; if not, go back when that was asked for
//!
//! *Always true:* an error before the swap leaves everything as it was, and starts again what was stopped. A crash leaves the old
//! tree, or a journal by which the next command makes it the new one, whole ([`Project::recover_restore`]). Nothing that was
//! there is lost: it is in the safety snapshot, or for a week as it was beside the directory (`replaced`).

mod command;
mod databases;
mod plan;
mod record;
mod replaced;
mod since;
mod state;
#[cfg(test)]
mod tests;

pub use command::{KeptDatabase, ProjectRestore, ProjectRestored, SetAsideEntry};
pub use record::{RestoreRecord, UndoRestore};

use plan::{CaptureScope, ProjectPlan};
use state::StateRestore;

use super::compare::difference;
use super::{Declared, Project};
use crate::bridge;
use crate::catalog::ListedEntry;
use crate::diff::TreeDifference;
use crate::error::{Error, ErrorKind, PlaceError, error_chain};
use crate::restore::{RepoRestore, carry_out, recover};
use crate::result::Moment;
use crate::warning::Warning;
use stasis_disk::fs::root_dir::{Mounts, RootDir, in_place_of};
use stasis_disk::tree::restore;
use stasis_model::failure::Failure;
use stasis_model::id::{ServiceName, SnapshotId};
use stasis_model::protocol::operation::IndexOperation;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use std::path::{Path, PathBuf};

/// What is where entries come to lie that were asked for.
#[derive(Default)]
struct PathsBefore {
    /// Those where nothing is: no snapshot of before has them either.
    new: Vec<String>,
    /// What the others take the place of.
    replaced: Vec<String>,
    /// Of the new ones, the topmost directory that has to be made for each.
    topmost: Vec<String>,
}

/// The topmost directory above an entry that is not there, or the entry itself.
fn topmost_missing(live: &RootDir, path: &EntryPath) -> EntryPath {
    let mut missing = path.clone();
    while let Some((above, _)) = missing.split_last() {
        if above.is_root() || live.directory(above.as_bytes()).is_ok() {
            break;
        }
        missing = above;
    }
    missing
}

impl Project {
    /// Restores the project.
    #[tracing::instrument(skip_all, err(level = "info"), fields(project = %self.home.id, wanted = %command.wanted))]
    pub async fn restore(&self, command: ProjectRestore) -> Result<ProjectRestored, Error> {
        if command.is_elsewhere() {
            return Box::pin(self.restore_locked(command)).await;
        }
        self.ensure_not_renamed().await?;
        let _lock = self.exclusive("restore").await?;
        self.start_what_was_left().await?;
        let restored = self.restore_recorded(command, None).await?;
        if self.home.declared.is_none() {
            // One that was gone is another directory now. The state is what it should be, whatever becomes of that.
            if let Err(error) = self.renew().await {
                let error = error_chain(&error);
                tracing::warn!(error, "could not note which directory was restored");
            }
        }
        Ok(restored)
    }

    /// Restores the project, which is ours alone if anything of it is touched.
    pub(super) async fn restore_locked(
        &self,
        command: ProjectRestore,
    ) -> Result<ProjectRestored, Error> {
        let started = self.engine.clock.uptime();
        let index = self.index().await?;
        let id = self.find(&index, &command.wanted).await?;
        let plan = self.plan_restore(&command, &index, &id).await?;
        let mut result = self.about(&command, &plan);
        result.seen.clone_from(&index.active);
        if !command.is_elsewhere() {
            let before = self.before_restore(&plan).await;
            result.record_paths = [&*before.topmost, &*before.replaced].concat();
            (result.new_paths, result.undo_paths) = (before.new, before.replaced);
        }
        if let Some(agreed) = command.agreed.as_ref().filter(|_| !command.dry_run) {
            self.ensure_agreed(&plan, agreed).await?;
        }
        if command.dry_run {
            result.changes = match &command.to {
                Some(to) => self.would_write(&plan, to).await?,
                None => self.would_change_here(&plan, &mut result).await?,
            };
        } else if let Some(to) = &command.to {
            let restore = RepoRestore {
                only: plan.only.clone(),
                owner: command.owner,
                ..self.repo_restore_of(&command, &id, to)
            };
            let written = self.engine.dirs().restore(restore).await?;
            result.written = Some((written.files, written.bytes));
            let is_nowhere_else = self.note_copy(to).await;
            // A session goes on as such, and never as a directory: what lies elsewhere is always a copy.
            let is_copy = is_nowhere_else || self.home.is_elsewhere();
            result.copy_of = is_copy.then(|| self.home.subject());
        } else {
            match &self.home.declared {
                None => self.restore_state(&command, &plan, &mut result).await?,
                Some(declared) => {
                    Box::pin(self.restore_declared(declared, &command, &plan, &mut result)).await?;
                }
            }
        }
        if result.is_unchanged() {
            // Nothing was replaced, so that there is nothing to go back to.
            let safety = result.safety_snapshot_id.take();
            if let Some(safety) = safety.filter(|_| result.is_safety_new) {
                self.drop_safety(safety).await;
            }
        }
        result.elapsed_ms = self.engine.dirs().elapsed_ms(started);
        Ok(result)
    }

    /// Lets go of what was saved before a restore that then had nothing to change: a list would say that there was one.
    async fn drop_safety(&self, safety: SnapshotId) {
        let (dirs, root) = (self.engine.dirs(), self.engine.dirs().root());
        let operation = IndexOperation::Forget;
        if let Err(error) = dirs.forget_of(&root, &[safety], operation).await {
            let error = error_chain(&error);
            tracing::warn!(
                error,
                "what was saved before a restore that changed nothing stays"
            );
        }
    }

    /// What is where the entries come to lie that were asked for.
    async fn before_restore(&self, plan: &ProjectPlan) -> PathsBefore {
        let (live, source) = (self.live(), plan.source.clone());
        bridge::blocking(move || {
            let live = RootDir::open(&live, Mounts::Stay);
            let mut before = PathsBefore::default();
            for path in &source.asked {
                let is_file = source.files.contains(path);
                let there = match &live {
                    Ok(live) if is_file => in_place_of(live, path),
                    _ => Ok(Some(path.clone())),
                };
                // What cannot be looked at is not new.
                if let Some(there) = there.unwrap_or_else(|_| Some(path.clone())) {
                    before.replaced.push(there.to_string());
                } else {
                    before.new.push(path.to_string());
                    let made = live.as_ref().ok().map(|live| topmost_missing(live, path));
                    before.topmost.extend(made.map(|made| made.to_string()));
                }
            }
            before.replaced.sort_unstable();
            before.replaced.dedup();
            before
        })
        .await
    }

    /// What a restore would change in the live directory, as it is reported; whether it would be refused is a warning.
    async fn would_change_here(
        &self,
        plan: &ProjectPlan,
        result: &mut ProjectRestored,
    ) -> Result<Vec<TreeDifference>, Error> {
        let changes = self.would_change(plan).await?;
        let changes = self.may_change(changes).await;
        let is_open = self.ensure_none_open(plan, &changes.0).await;
        let (changes, is_ours) = changes;
        if let Err(error) = is_open.and(is_ours) {
            result.warnings.push(Warning::WouldBeRefused {
                reason: error_chain(&error),
            });
        }
        let changes = changes.into_iter();
        let changes = changes.map(|(path, change)| difference(&path, change));
        Ok(changes.collect())
    }

    /// What a restore would write to a directory of its own: all that is wanted of the snapshot. Refused like the restore itself where
    /// something is there.
    async fn would_write(
        &self,
        plan: &ProjectPlan,
        to: &Path,
    ) -> Result<Vec<TreeDifference>, Error> {
        let (target, wanted) = (to.to_owned(), plan.clone());
        bridge::blocking(move || restore::ensure_free(&target)).await?;
        let is_wanted = move |_: &ListedEntry, path: &EntryPath| wanted.is_wanted(path);
        let entries = self.entries_that(&plan.source.snapshot, is_wanted).await?;
        let entries = entries.into_iter().map(|entry| TreeDifference {
            path: entry.path,
            change: ChangeKind::Removed,
        });
        Ok(entries.collect())
    }

    /// What a restore would change, in the order of paths.
    async fn would_change(
        &self,
        plan: &ProjectPlan,
    ) -> Result<Vec<(EntryPath, ChangeKind)>, Error> {
        let mut scope = self.home.declared.as_ref();
        let mut scope = scope
            .take()
            .map(|declared| CaptureScope::of(declared, plan));
        let compared = loop {
            let declared = scope.as_ref().map(|scope| &scope.declared);
            match (
                self.compared_as(declared, &plan.source.snapshot, &plan.only)
                    .await,
                &mut scope,
            ) {
                (Ok(compared), _) => break compared,
                // What cannot be captured is compared as it lies there.
                (Err(error), Some(scope)) => scope.without(error)?,
                (Err(error), None) => return Err(error),
            }
        };
        let wanted = compared
            .into_iter()
            .filter(|(path, _)| plan.is_wanted(path));
        Ok(wanted.collect())
    }

    /// Refuses what nobody agreed to.
    async fn ensure_agreed(
        &self,
        plan: &ProjectPlan,
        agreed: &[TreeDifference],
    ) -> Result<(), Error> {
        let changes = self.would_change(plan).await?;
        let (changes, _) = self.may_change(changes).await;
        let now = changes
            .iter()
            .map(|(path, change)| difference(path, *change));
        if now.eq(agreed.iter().cloned()) {
            return Ok(());
        }
        let said = "something else would change by now than what was shown";
        let failure = Failure::of(ErrorKind::Retry, said);
        Err(failure.with_hint("nothing was changed; look again").into())
    }

    /// What of that this user may change: what is only live and may not be moved is left alone, anything else refuses the restore.
    async fn may_change(
        &self,
        differing: Vec<(EntryPath, ChangeKind)>,
    ) -> (Vec<(EntryPath, ChangeKind)>, Result<(), Error>) {
        let live = self.live();
        bridge::blocking(move || {
            let Ok(live) = RootDir::open(&live, Mounts::Stay) else {
                return (differing, Ok(()));
            };
            let mut permissions = restore::Permissions::new(&live);
            let may_move = |one: &(EntryPath, ChangeKind)| match one.1 {
                ChangeKind::Metadata => permissions.is_own(&one.0),
                _ => permissions.may_move(&one.0),
            };
            let (ours, others): (Vec<_>, Vec<_>) = differing.into_iter().partition(may_move);
            let others = others.into_iter();
            let others = others
                .filter(|(_, change)| !matches!(change, ChangeKind::Added | ChangeKind::Metadata));
            let others: Vec<EntryPath> = others.map(|(path, _)| path).collect();
            let is_ours = if others.is_empty() {
                Ok(())
            } else {
                Err(PlaceError::NotOurs(others).into())
            };
            (ours, is_ours)
        })
        .await
    }

    /// Whether programs have databases of a plain directory open, as far as that can be seen; programs of a project are stopped
    /// first.
    async fn has_open_databases(&self, plan: &ProjectPlan) -> bool {
        let (dir, plan) = (self.home.dir.clone(), plan.clone());
        bridge::blocking(move || {
            let open = restore::open_databases_in(&dir);
            open.iter().any(|path| plan.is_wanted(path))
        })
        .await
    }

    /// Refuses to exchange a database of a plain directory under a program.
    async fn ensure_none_open(
        &self,
        plan: &ProjectPlan,
        differing: &[(EntryPath, ChangeKind)],
    ) -> Result<(), Error> {
        if self.home.declared.is_some() || !self.home.dir.is_dir() {
            return Ok(());
        }
        let (dir, plan) = (self.home.dir.clone(), plan.clone());
        let differing: Vec<EntryPath> = differing.iter().map(|(path, _)| path.clone()).collect();
        bridge::blocking(move || {
            let wanted = differing.iter().filter(|path| plan.is_wanted(path));
            Ok(restore::ensure_none_open(&dir, wanted)?)
        })
        .await
    }

    fn about(&self, command: &ProjectRestore, plan: &ProjectPlan) -> ProjectRestored {
        let current = self.home.declared.as_ref().map(Declared::current);
        let target = command.to.clone().or(current);
        let target = target.unwrap_or_else(|| self.home.dir.clone());
        ProjectRestored {
            project: self.home.id.clone(),
            snapshot_id: plan.source.snapshot.clone(),
            target: target.display().to_string(),
            dry_run: command.dry_run,
            is_elsewhere: command.to.is_some(),
            written: None,
            is_part: !plan.is_whole() || plan.source.is_of_part,
            paths: plan.source.asked.iter().map(ToString::to_string).collect(),
            new_paths: Vec::new(),
            undo_paths: Vec::new(),
            copy_of: None,
            except: command.except.iter().map(ToString::to_string).collect(),
            changed_since: command.untouched.iter().map(ToString::to_string).collect(),
            can_be_undone: false,
            has_servers: !plan.source.servers.is_empty(),
            seen: None,
            moved_latest: false,
            latest_move: None,
            record_paths: Vec::new(),
            in_place: None,
            counted: None,
            changes: Vec::new(),
            safety_snapshot_id: None,
            is_safety_new: false,
            set_aside: Vec::new(),
            not_saved: Vec::new(),
            databases_kept: Vec::new(),
            undone: false,
            restarted: Vec::new(),
            hooks: Vec::new(),
            databases: 0,
            elapsed_ms: 0,
            warnings: self.engine.clock_warnings(),
        }
    }

    fn repo_restore_of(
        &self,
        command: &ProjectRestore,
        id: &SnapshotId,
        target: &Path,
    ) -> RepoRestore {
        RepoRestore {
            owner: true,
            cancel: command.cancel.clone(),
            progress: command.progress.clone(),
            ..RepoRestore::new(self.wanted(id), target)
        }
    }

    /// The live directory.
    pub(crate) fn live(&self) -> PathBuf {
        let current = self.home.declared.as_ref().map(Declared::current);
        current.unwrap_or_else(|| self.home.dir.clone())
    }

    /// Brings to its end what a restore that died had begun to put in its place.
    pub(super) async fn recover_restore(&self) -> Result<(), Error> {
        let live = self.live();
        let was_begun = bridge::blocking(move || Ok::<_, Error>(live.is_dir() && recover(&live)?));
        if was_begun.await? {
            // The databases had been swapped before: now the files are those of the same snapshot.
            self.mark_restore(None).await?;
        }
        Ok(())
    }

    /// Restores the tree and the databases, where the programs stand or there are none.
    async fn restore_state(
        &self,
        command: &ProjectRestore,
        plan: &ProjectPlan,
        result: &mut ProjectRestored,
    ) -> Result<(), Error> {
        carry_out(StateRestore {
            project: self,
            command,
            plan,
            result,
        })
        .await
    }

    async fn restore_declared(
        &self,
        declared: &Declared,
        command: &ProjectRestore,
        plan: &ProjectPlan,
        result: &mut ProjectRestored,
    ) -> Result<(), Error> {
        let servers: Vec<ServiceName> = declared.config.servers().cloned().collect();
        let all = declared.config.services.keys();
        let others = all.filter(|name| !servers.contains(name)).cloned();
        let others: Vec<ServiceName> = others.collect();
        self.remember_stopped(declared, &self.running(declared).await)
            .await?;
        result.restarted = self.stop_those(declared, others).await?;
        let restored = self.restore_state(command, plan, result).await;
        let started = self.start_those(declared, &result.restarted).await;
        self.remember_stopped(declared, &[]).await?;
        restored?;
        let well = match started {
            Ok(()) => self.well_again(declared, result, &servers).await,
            Err(error) => Err(error),
        };
        match well {
            Ok(()) => Ok(()),
            Err(error) => Box::pin(self.not_well(declared, command, result, error)).await,
        }
    }

    /// Runs what is to be run afterwards, and asks whoever ran before whether they are well.
    async fn well_again(
        &self,
        declared: &Declared,
        result: &mut ProjectRestored,
        servers: &[ServiceName],
    ) -> Result<(), Error> {
        let after = self
            .run_hooks(declared, Moment::PostRestore, "restore")
            .await?;
        result.hooks.extend(after);
        let asked: Vec<ServiceName> = [&*result.restarted, servers].concat();
        self.healthy(declared, &asked).await
    }

    /// Writes into the index what `latest` means, and says whether it does. The state is what it should be, whatever becomes of that.
    async fn adopt(
        &self,
        chosen: Option<&SnapshotId>,
        seen: Option<&SnapshotId>,
        result: &mut ProjectRestored,
    ) -> bool {
        let root = self.engine.dirs().root();
        let adopted = self.engine.dirs().adopt(&root, chosen, seen).await;
        if let Err(error) = &adopted {
            result.warnings.push(Warning::NotAdopted {
                reason: error_chain(error),
            });
        }
        adopted.is_ok()
    }

    /// The restored state is in place, and a program is not well: goes back, or offers to.
    async fn not_well(
        &self,
        declared: &Declared,
        command: &ProjectRestore,
        result: &mut ProjectRestored,
        error: Error,
    ) -> Result<(), Error> {
        let safety = result.safety_snapshot_id.clone();
        let safety = safety.filter(|_| command.auto_undo);
        result.warnings.push(Warning::NotWell {
            reason: error_chain(&error),
            undone_to: safety.clone(),
        });
        let Some(safety) = safety else {
            return Ok(());
        };
        let back = ProjectRestore {
            safety: false,
            auto_undo: false,
            becomes_latest: false,
            except: command.except.clone(),
            ..ProjectRestore::new(safety.to_string())
        };
        let index = self.index().await?;
        let plan = self.plan_restore(&back, &index, &safety).await?;
        let mut again = self.about(&back, &plan);
        Box::pin(self.restore_declared(declared, &back, &plan, &mut again)).await?;
        result.undone = true;
        result.warnings.extend(again.warnings);
        if !result.is_part && result.except.is_empty() {
            // What was chosen is taken back, too: the state derives from what it derived from before.
            let (restored, before) = (result.snapshot_id.clone(), result.seen.clone());
            self.adopt(before.as_ref(), Some(&restored), result).await;
        }
        Ok(())
    }
}
