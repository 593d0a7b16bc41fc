//! Makes a project what it was.
//!
//! 1. take the lock; find the snapshot, which must be this project's; check every argument against it
//! 2. stop the programs, but not the servers through which databases are restored
//! 3. save what is there now: the way back. What cannot be saved is only noted
//! 4. stage what differs; compare the digest of the whole; check every database in it
//! 5. swap the databases that live in servers; put what differs in its place, by a journal, keeping what comes out; make
//!    `latest` mean that snapshot if all of it was restored
//! 6. start the programs again; see that they are well; if not, go back when that was asked for
//!
//! *Always true:* an error before 5 leaves everything as it was, and starts again what was stopped. A crash leaves the old
//! tree, or a journal by which the next command makes it the new one, whole ([`Project::recover_restore`]). Nothing that was
//! there is lost: it is in the safety snapshot, and for a week as it was beside the directory.

mod command;
mod databases;
mod plan;
mod scope;

pub use command::{KeptDatabase, ProjectRestore, ProjectRestored, SetAsideEntry};

use databases::SwapFailed;
use plan::RestorePlan;
use scope::CaptureScope;

use super::compare::difference;
use super::rows::Moment;
use super::save::{ProjectSave, ProjectSaved};
use super::{Declared, Project, ProjectError, or_cancelled};
use crate::bridge;
use crate::error::{Error, PlaceError, error_chain};
use crate::restore::{InPlaceChanges, Placement, RepoRestore, StagedSnapshot};
use crate::result::SkipReason;
use crate::warning::Warning;
use stasis_disk::check::{self, CheckSettings};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::restore::{self, PlacedTree, RestoreChanges, RestoreOrigin, Returned};
use stasis_disk::tree::walk;
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::{ServiceName, SnapshotId};
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use std::path::{Path, PathBuf};

/// Everything that takes the place of what is there, written and verified beside it.
struct StagedState {
    /// The tree; none if only databases in servers are replaced.
    files: Option<StagedSnapshot>,
    servers: Vec<databases::StagedDatabase>,
}

/// How many damaged databases are named.
const NAMED: usize = 5;

impl Project {
    /// Restores the project.
    #[tracing::instrument(skip_all, err(level = "info"), fields(project = %self.home.id, wanted = %command.wanted))]
    pub async fn restore(&self, command: ProjectRestore) -> Result<ProjectRestored, Error> {
        if command.is_elsewhere() {
            return self.restore_locked(command).await;
        }
        let _lock = self.exclusive("restore").await?;
        self.start_what_was_left().await?;
        self.restore_locked(command).await
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
        result.seen = index.subject(&self.name()).active;
        if command.dry_run {
            let changes = self.would_change(&plan).await?;
            let changes = self.may_change(changes).await;
            let is_open = self.ensure_none_open(&plan, &changes.0).await;
            let (changes, is_ours) = changes;
            if let Err(error) = is_open.and(is_ours) {
                result.warnings.push(Warning::WouldBeRefused {
                    reason: error_chain(&error),
                });
            }
            result.changes = changes
                .into_iter()
                .map(|(path, change)| difference(&path, change))
                .collect();
        } else if let Some(to) = &command.to {
            let restore = RepoRestore {
                only: plan.only.clone(),
                ..self.repo_restore_of(&command, &id, to)
            };
            let _ = self.engine.dirs().restore(restore).await?;
        } else {
            match &self.home.declared {
                None => self.restore_plain(&command, &plan, &mut result).await?,
                Some(declared) => {
                    Box::pin(self.restore_declared(declared, &command, &plan, &mut result)).await?;
                }
            }
        }
        if result.is_unchanged() {
            let is_beside = |one: &Warning| matches!(one, Warning::SafetyUnchanged { .. });
            result.warnings.retain(|one| !is_beside(one));
        }
        result.elapsed_ms = self.engine.dirs().elapsed_ms(started);
        Ok(result)
    }

    /// What a restore would change, in the order of paths.
    async fn would_change(
        &self,
        plan: &RestorePlan,
    ) -> Result<Vec<(EntryPath, ChangeKind)>, Error> {
        let mut scope = self.home.declared.as_ref();
        let mut scope = scope
            .take()
            .map(|declared| CaptureScope::of(declared, plan));
        let compared = loop {
            let declared = scope.as_ref().map(|scope| &scope.declared);
            match (
                self.compared_as(declared, &plan.snapshot, &plan.only).await,
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
    async fn has_open_databases(&self, plan: &RestorePlan) -> bool {
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
        plan: &RestorePlan,
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

    fn about(&self, command: &ProjectRestore, plan: &RestorePlan) -> ProjectRestored {
        let current = self.home.declared.as_ref().map(Declared::current);
        let target = command.to.clone().or(current);
        let target = target.unwrap_or_else(|| self.home.dir.clone());
        ProjectRestored {
            project: self.home.id.clone(),
            snapshot_id: plan.snapshot.clone(),
            target: target.display().to_string(),
            dry_run: command.dry_run,
            is_part: !plan.is_whole() || plan.is_of_part,
            except: plan.except.iter().map(ToString::to_string).collect(),
            has_servers: !plan.servers.is_empty(),
            seen: None,
            in_place: None,
            changes: Vec::new(),
            safety_snapshot_id: None,
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

    /// Saves what is there now. What cannot be saved is noted, to be set aside.
    async fn safety(
        &self,
        command: &ProjectRestore,
        plan: &RestorePlan,
        result: &mut ProjectRestored,
    ) -> Result<(), Error> {
        // Half a restore is nothing to go back to; the one before it has made a snapshot.
        if !command.safety || self.half_restored().await.is_some() || !self.live().is_dir() {
            return Ok(());
        }
        let ProjectSaved { saved, .. } = self.safety_save(command, plan, result).await?;
        let lost = saved
            .left_out_entries
            .iter()
            .filter(|one| is_lost(one.reason));
        for one in lost {
            if let Ok(path) = one.path.parse::<EntryPath>() {
                result.not_saved.push((path, one.words.clone()));
            }
        }
        let snapshot = saved.snapshot_id;
        if !saved.published {
            result.warnings.push(Warning::SafetyUnchanged {
                snapshot: snapshot.to_string(),
            });
        }
        result.safety_snapshot_id = Some(snapshot);
        Ok(())
    }

    async fn safety_save(
        &self,
        command: &ProjectRestore,
        plan: &RestorePlan,
        result: &mut ProjectRestored,
    ) -> Result<ProjectSaved, Error> {
        let save = ProjectSave {
            allow_shrink: true,
            cancel: command.cancel.clone(),
            ..ProjectSave::new(SaveReason::BeforeRestore)
        };
        let Some(declared) = &self.home.declared else {
            return self.save_as(None, save).await;
        };
        let mut scope = CaptureScope::of(declared, plan);
        loop {
            let save = ProjectSave {
                excludes: scope.excludes.clone(),
                is_part: !scope.excludes.is_empty(),
                ..save.clone()
            };
            match self.save_as(Some(&scope.declared), save).await {
                Ok(saved) => {
                    let failed = scope.failed.into_iter();
                    result
                        .not_saved
                        .extend(failed.map(|(name, why)| (declared.config.place_of(&name), why)));
                    return Ok(saved);
                }
                Err(error) => scope.without(error)?,
            }
        }
    }

    /// The live directory.
    fn live(&self) -> PathBuf {
        let current = self.home.declared.as_ref().map(Declared::current);
        current.unwrap_or_else(|| self.home.dir.clone())
    }

    /// Brings to its end what a restore that died had begun to put in its place.
    pub(super) async fn recover_restore(&self) -> Result<(), Error> {
        let live = self.live();
        let finished = bridge::blocking(move || {
            if !live.is_dir() {
                return Ok(Vec::new());
            }
            restore::recovered(&live)
        });
        let finished = finished.await?;
        finished.iter().for_each(crate::restore::tell_finished);
        if !finished.is_empty()
            && let Some(declared) = &self.home.declared
        {
            // The databases had been swapped before: now the files are those of the same snapshot.
            self.mark_restore(declared, None).await?;
        }
        Ok(())
    }

    /// A plain directory stays the same directory: whoever is in it stays in it. One that is gone comes back.
    async fn restore_plain(
        &self,
        command: &ProjectRestore,
        plan: &RestorePlan,
        result: &mut ProjectRestored,
    ) -> Result<(), Error> {
        if self.has_open_databases(plan).await {
            // Refused before anything is saved.
            let differing = self.would_change(plan).await?;
            self.ensure_none_open(plan, &differing).await?;
        }
        self.safety(command, plan, result).await?;
        let restore = RepoRestore {
            placement: Placement::InPlace,
            only: plan.only.clone(),
            except: plan.except.clone(),
            ..self.repo_restore_of(command, &plan.snapshot, &self.home.dir)
        };
        let (_, staged) = self.engine.dirs().stage(restore, &plan.snapshot).await?;
        self.place(staged, plan, result).await?;
        self.choose(command, plan, result).await;
        Ok(())
    }

    /// Puts what was staged into the live directory, and says where that is now which no snapshot has.
    async fn place(
        &self,
        staged: StagedSnapshot,
        plan: &RestorePlan,
        result: &mut ProjectRestored,
    ) -> Result<(), Error> {
        let origin = RestoreOrigin {
            at: self.engine.clock.now(),
            from: format!("snapshot {} of {}", plan.snapshot, self.home.id),
        };
        let not_saved = result.not_saved.clone();
        let index = self.index().await?;
        let engine = &self.engine;
        let patterns = engine
            .dirs()
            .patterns_now(&index, &self.name(), &self.live())
            .await?;
        let placed = bridge::blocking(move || {
            let (_, restored) = staged.swap(&origin)?;
            let kept = match &restored.placed {
                PlacedTree::InPlace(RestoreChanges {
                    backup: Some(backup),
                    ..
                }) => came_out(backup, &not_saved, &patterns),
                _ => Vec::new(),
            };
            Ok::<_, Error>((InPlaceChanges::of(&restored.placed), kept))
        });
        (result.in_place, result.set_aside) = placed.await?;
        Ok(())
    }

    async fn restore_declared(
        &self,
        declared: &Declared,
        command: &ProjectRestore,
        plan: &RestorePlan,
        result: &mut ProjectRestored,
    ) -> Result<(), Error> {
        let servers: Vec<ServiceName> = declared.config.servers().cloned().collect();
        let all = declared.config.services.keys();
        let others = all.filter(|name| !servers.contains(name)).cloned();
        let others: Vec<ServiceName> = others.collect();
        self.remember_stopped(declared, &self.running(declared).await)
            .await?;
        result.restarted = self.stop_those(declared, others).await?;
        let restored = self.replace(declared, command, plan, result).await;
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

    /// Safety, staging, checks, swap; the programs stand.
    async fn replace(
        &self,
        declared: &Declared,
        command: &ProjectRestore,
        plan: &RestorePlan,
        result: &mut ProjectRestored,
    ) -> Result<(), Error> {
        self.check_target(declared).await?;
        self.safety(command, plan, result).await?;
        let hooks = self.run_hooks(declared, Moment::PreRestore, "restore");
        let before = or_cancelled(&command.cancel, hooks).await??;
        result.hooks.extend(before);
        let (id, current) = (&plan.snapshot, declared.current());
        let servers = self.stage_dumps(declared, command, plan).await?;
        let files = if plan.has_files() {
            let restore = RepoRestore {
                placement: Placement::InPlace,
                only: plan.files.clone(),
                except: plan.except.clone(),
                ..self.repo_restore_of(command, id, &current)
            };
            match self.staged(restore, declared, id, result).await {
                Ok(staged) => Some(staged),
                Err(error) => {
                    databases::discard(servers).await;
                    return Err(error);
                }
            }
        } else {
            None
        };
        let swapped = self
            .swap(declared, StagedState { files, servers }, plan, result)
            .await?;
        self.choose(command, plan, result).await;
        let is_saved = |one: &databases::SwappedDatabase| {
            let at = declared.config.place_of(&one.volume);
            let mut failed = result.not_saved.iter();
            result.safety_snapshot_id.is_some() && !failed.any(|(path, _)| *path == at)
        };
        // Of those that the safety snapshot has, nothing else need be kept.
        let (saved, _): (Vec<_>, Vec<_>) = swapped.into_iter().partition(is_saved);
        databases::drop_backup(saved).await;
        result.databases_kept = self.kept_databases(declared, &plan.servers).await;
        Ok(())
    }

    /// Stages the tree beside, checks its databases, and takes the dumps out of it.
    async fn staged(
        &self,
        restore: RepoRestore,
        declared: &Declared,
        id: &SnapshotId,
        result: &mut ProjectRestored,
    ) -> Result<StagedSnapshot, Error> {
        let (_, staged) = self.engine.dirs().stage(restore, id).await?;
        let staged = self.checked(staged, id, result).await?;
        let dumps = declared.dumps();
        bridge::blocking(move || {
            for dump in dumps {
                staged.remove(&dump)?;
            }
            Ok(staged)
        })
        .await
    }

    /// Swaps the servers' databases, then the tree; what cannot be done is undone.
    async fn swap(
        &self,
        declared: &Declared,
        staged: StagedState,
        plan: &RestorePlan,
        result: &mut ProjectRestored,
    ) -> Result<Vec<databases::SwappedDatabase>, Error> {
        let StagedState { files, servers } = staged;
        let is_marked = !servers.is_empty();
        let snapshot = &plan.snapshot;
        if is_marked && let Err(error) = self.mark_restore(declared, Some(snapshot)).await {
            databases::discard(servers).await;
            return Err(error);
        }
        let servers = match databases::swap(servers).await {
            Ok(servers) => servers,
            // What became of it is not known: the mark stays, and nothing is saved until it was done again.
            Err(SwapFailed::Unknown(error)) => return Err(error),
            Err(SwapFailed::Undone(error)) => {
                self.mark_restore(declared, None).await?;
                return Err(error);
            }
        };
        if let Some(files) = files
            && let Err(error) = self.place(files, plan, result).await
        {
            if matches!(error, Error::Restore(PlaceError::HalfDone { .. })) {
                // The mark stays until the journal has been followed to its end.
                return Err(error);
            }
            databases::swap_back(servers).await?;
            self.mark_restore(declared, None).await?;
            return Err(error);
        }
        if is_marked {
            self.mark_restore(declared, None).await?;
        }
        Ok(servers)
    }

    /// What a restore would move away is refused before anything is done.
    async fn check_target(&self, declared: &Declared) -> Result<(), Error> {
        let (current, servers) = (declared.current(), declared.server_directories());
        bridge::blocking(move || {
            for (volume, directory) in servers {
                let is_empty = match std::fs::read_dir(&directory) {
                    Ok(mut entries) => entries.next().is_none(),
                    Err(error) => error.kind() == std::io::ErrorKind::NotFound,
                };
                if !is_empty {
                    return Err(ProjectError::ServerData { volume, directory }.into());
                }
            }
            if !current.is_dir() {
                return Ok(());
            }
            match restore::mounts_in(&current)?.into_iter().next() {
                Some(mount) => Err(ProjectError::Mounted(current.join(mount)).into()),
                None => Ok(()),
            }
        })
        .await
    }

    /// Checks every database of a staged tree.
    async fn checked(
        &self,
        staged: StagedSnapshot,
        id: &SnapshotId,
        result: &mut ProjectRestored,
    ) -> Result<StagedSnapshot, Error> {
        let scratch = self.engine.profiles().spool().await?;
        let spawn = self.host.check.clone();
        let checked = bridge::blocking(move || {
            let settings = CheckSettings::new(scratch);
            let report = check::tree(staged.tree(), &settings, &spawn)?;
            Ok::<_, Error>((staged, report))
        });
        let (staged, report) = checked.await?;
        let damaged = report
            .databases
            .iter()
            .filter(|one| one.verdict.is_damaged());
        let mut databases: Vec<String> = damaged.map(|one| one.path.to_string()).collect();
        if !databases.is_empty() {
            let more = databases.len().saturating_sub(NAMED);
            databases.truncate(NAMED);
            if more > 0 {
                databases.push(format!("and {more} more"));
            }
            let snapshot = id.clone();
            return Err(ProjectError::Integrity {
                snapshot,
                databases,
            }
            .into());
        }
        result.databases = report.databases.len() as u64;
        Ok(staged)
    }

    /// Makes `latest` mean what was restored, if that was everything.
    async fn choose(
        &self,
        command: &ProjectRestore,
        plan: &RestorePlan,
        result: &mut ProjectRestored,
    ) {
        let is_partial = result.in_place.as_ref().is_some_and(|all| all.is_partial);
        let is_all = plan.is_whole() && plan.except.is_empty() && !plan.is_of_part && !is_partial;
        if is_all && command.becomes_latest {
            let seen = result.seen.clone();
            self.adopt(Some(&plan.snapshot), seen.as_ref(), result)
                .await;
        }
    }

    /// Writes into the index what `latest` means. The state is what it should be, whatever becomes of that.
    async fn adopt(
        &self,
        chosen: Option<&SnapshotId>,
        seen: Option<&SnapshotId>,
        result: &mut ProjectRestored,
    ) {
        let name = self.name();
        let adopted = self.engine.dirs().adopt(&name, chosen, seen).await;
        if let Err(error) = adopted {
            result.warnings.push(Warning::NotAdopted {
                reason: error_chain(&error),
            });
        }
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
        self.restore_declared(declared, &back, &plan, &mut again)
            .await?;
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

/// Those of the entries that no snapshot has which a restore replaced, and where they are kept.
fn came_out(
    backup: &Path,
    not_saved: &[(EntryPath, String)],
    patterns: &[String],
) -> Vec<SetAsideEntry> {
    if not_saved.is_empty() && patterns.is_empty() {
        return Vec::new();
    }
    let returned = restore::returned(backup).map(|(all, _)| all);
    let returned = returned.unwrap_or_else(|error| {
        tracing::warn!(%error, backup = %backup.display(), "what was replaced is kept, but could not be listed");
        Vec::new()
    });
    let is_out = |path: &EntryPath| {
        returned.iter().any(|one| match one {
            Returned::Back(out) => out.is_within(path) || path.is_within(out),
            _ => false,
        })
    };
    let is_ignored = walk::matcher(patterns).ok();
    let ignored = returned.iter().filter_map(|one| match one {
        Returned::Back(path) if is_ignored.as_ref().is_some_and(|is| is(path, false)) => {
            Some((path, "saves leave it out"))
        }
        _ => None,
    });
    let out = not_saved.iter().filter(|(path, _)| is_out(path));
    let out = out.map(|(path, reason)| (path, reason.as_str()));
    out.chain(ignored)
        .map(|(path, reason)| SetAsideEntry {
            path: path.to_string(),
            kept_at: restore::place_in(backup, path).display().to_string(),
            reason: reason.to_owned(),
        })
        .collect()
}

/// Whether an entry that a save left out is there, and would be gone after a restore.
fn is_lost(reason: SkipReason) -> bool {
    reason == SkipReason::Unreadable
}
