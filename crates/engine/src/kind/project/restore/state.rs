//! The state of a project is restored where it is; the programs that it belongs to stand.
//!
//! A plain directory stays the same directory: whoever is in it stays in it. One that is gone comes back.

use super::command::{ProjectRestore, ProjectRestored, SetAsideEntry};
use super::databases::{self, StagedDatabase, SwapFailed, SwappedDatabase};
use super::plan::{CaptureScope, ProjectPlan};
use super::replaced;
use crate::bridge;
use crate::diff::DifferenceCount;
use crate::error::{Error, PlaceError, ProjectError, error_chain};
use crate::kind::project::save::{ProjectSave, ProjectSaved};
use crate::kind::project::{Declared, Project, or_cancelled};
use crate::restore::{InPlaceChanges, Placement, RepoRestore, RestoreKind, StagedSnapshot};
use crate::result::{Moment, SkipReason};
use stasis_disk::check::{self, CheckSettings};
use stasis_disk::tree::restore::{
    self, OpenBackup, PlacedTree, RestoreChanges, RestoreOrigin, Returned,
};
use stasis_disk::tree::walk;
use stasis_model::format::manifest::SaveReason;
use stasis_model::tree::EntryPath;
use std::path::Path;

/// How many damaged databases are named.
const NAMED: usize = 5;

/// A project whose state is restored.
pub(super) struct StateRestore<'a> {
    pub(super) project: &'a Project,
    pub(super) command: &'a ProjectRestore,
    pub(super) plan: &'a ProjectPlan,
    pub(super) result: &'a mut ProjectRestored,
}

/// Everything that takes the place of what is there, written and verified beside it.
pub(super) struct StagedState {
    /// The tree; none if only databases in servers are replaced.
    files: Option<StagedSnapshot>,
    servers: Vec<StagedDatabase>,
}

impl RestoreKind for StateRestore<'_> {
    type Kept = ();
    type Staged = StagedState;
    type Swapped = Vec<SwappedDatabase>;
    type Restored = ();

    async fn guard(&mut self) -> Result<(), Error> {
        let project = self.project;
        if let Some(declared) = &project.home.declared {
            return check_target(declared).await;
        }
        if project.has_open_databases(self.plan).await {
            // Refused before anything is saved.
            let differing = project.would_change(self.plan).await?;
            project.ensure_none_open(self.plan, &differing).await?;
        }
        Ok(())
    }

    /// Saves what is there now. What cannot be saved is noted, to be set aside.
    async fn keep(&mut self) -> Result<(), Error> {
        let project = self.project;
        // Half a restore is nothing to go back to; the one before it has made a snapshot.
        let is_worth_it = self.command.safety
            && project.half_restored().await.is_none()
            && project.live().is_dir();
        if is_worth_it {
            let saved = self.safety_save().await?;
            self.note_safety(&saved);
        }
        if let Some(declared) = &project.home.declared {
            let hooks = project.run_hooks(declared, Moment::PreRestore, "restore");
            let before = or_cancelled(&self.command.cancel, hooks).await??;
            self.result.hooks.extend(before);
        }
        Ok(())
    }

    /// Nothing has to be done where a save has just found what the snapshot has: the same files, and databases that hold the same.
    async fn nothing_to_do(&mut self, (): &()) -> Result<Option<Vec<SwappedDatabase>>, Error> {
        let (project, plan, result) = (self.project, self.plan, &mut *self.result);
        let Some(safety) = &result.safety_snapshot_id else {
            return Ok(None);
        };
        // Whoever takes back what was restored by its name may have to remove what no save sees.
        let is_named = self.command.takes_back && !plan.is_whole();
        if is_named || !result.not_saved.is_empty() || !plan.source.servers.is_empty() {
            return Ok(None);
        }
        let (now, then) = (
            project.wanted(safety),
            project.wanted(&plan.source.snapshot),
        );
        let wanted = plan.clone();
        let dirs = project.engine.dirs();
        let count = dirs.count(&now, &then, move |path| wanted.is_wanted(path));
        let count = count.await?;
        result.counted = Some(count);
        if count != DifferenceCount::default() {
            return Ok(None);
        }
        result.in_place = Some(InPlaceChanges::nothing());
        Ok(Some(Vec::new()))
    }

    async fn stage(&mut self) -> Result<StagedState, Error> {
        let (project, command, plan) = (self.project, self.command, self.plan);
        let servers = match &project.home.declared {
            Some(declared) => project.stage_dumps(declared, command, plan).await?,
            None => Vec::new(),
        };
        if !plan.has_files() {
            let files = None;
            return Ok(StagedState { files, servers });
        }
        match self.stage_files().await {
            Ok(staged) => Ok(StagedState {
                files: Some(staged),
                servers,
            }),
            Err(error) => {
                databases::discard(servers).await;
                Err(error)
            }
        }
    }

    /// Swaps the servers' databases, then the tree; what cannot be done is undone.
    async fn swap(&mut self, staged: StagedState, (): &()) -> Result<Vec<SwappedDatabase>, Error> {
        let StagedState { files, servers } = staged;
        let project = self.project;
        if let Err(error) = project.begin_record().await {
            databases::discard(servers).await;
            return Err(error);
        }
        let is_marked = !servers.is_empty();
        let snapshot = &self.plan.source.snapshot;
        if is_marked && let Err(error) = project.mark_restore(Some(snapshot)).await {
            databases::discard(servers).await;
            return Err(error);
        }
        let servers = match databases::swap(servers).await {
            Ok(servers) => servers,
            // What became of it is not known: the mark stays, and nothing is saved until it was done again.
            Err(SwapFailed::Unknown(error)) => return Err(error),
            Err(SwapFailed::Undone(error)) => {
                project.mark_restore(None).await?;
                return Err(error);
            }
        };
        if let Some(files) = files
            && let Err(error) = self.place(files).await
        {
            if matches!(error, Error::Restore(PlaceError::HalfDone { .. })) {
                // The mark stays until the journal has been followed to its end.
                return Err(error);
            }
            databases::swap_back(servers).await?;
            project.mark_restore(None).await?;
            return Err(error);
        }
        if is_marked {
            project.mark_restore(None).await?;
        }
        Ok(servers)
    }

    async fn settle(self, swapped: Vec<SwappedDatabase>, (): ()) -> Result<(), Error> {
        let (project, result) = (self.project, self.result);
        let is_partial = result.in_place.as_ref().is_some_and(|all| all.is_partial);
        if self.plan.is_all() && !is_partial && self.command.becomes_latest {
            let (chosen, seen) = (Some(&self.plan.source.snapshot), result.seen.clone());
            result.moved_latest = project.adopt(chosen, seen.as_ref(), result).await;
        }
        let Some(declared) = &project.home.declared else {
            return Ok(());
        };
        let is_saved = |one: &SwappedDatabase| {
            let at = declared.config.place_of(&one.volume);
            let mut failed = result.not_saved.iter();
            result.safety_snapshot_id.is_some() && !failed.any(|(path, _)| *path == at)
        };
        // Of those that the safety snapshot has, nothing else need be kept.
        let (saved, _): (Vec<_>, Vec<_>) = swapped.into_iter().partition(is_saved);
        databases::drop_backup(saved).await;
        let servers = &self.plan.source.servers;
        result.databases_kept = project.kept_databases(declared, servers).await;
        Ok(())
    }
}

impl StateRestore<'_> {
    async fn safety_save(&mut self) -> Result<ProjectSaved, Error> {
        let project = self.project;
        let save = ProjectSave {
            allow_shrink: true,
            cancel: self.command.cancel.clone(),
            ..ProjectSave::new(SaveReason::BeforeRestore)
        };
        let Some(declared) = &project.home.declared else {
            return project.save_as(None, save).await;
        };
        let mut scope = CaptureScope::of(declared, self.plan);
        loop {
            let save = ProjectSave {
                excludes: scope.excludes.clone(),
                is_part: !scope.excludes.is_empty(),
                ..save.clone()
            };
            match project.save_as(Some(&scope.declared), save).await {
                Ok(saved) => {
                    let failed = scope.failed.into_iter();
                    let failed = failed.map(|(name, why)| (declared.config.place_of(&name), why));
                    self.result.not_saved.extend(failed);
                    return Ok(saved);
                }
                Err(error) => scope.without(error)?,
            }
        }
    }

    fn note_safety(&mut self, saved: &ProjectSaved) {
        let result = &mut *self.result;
        result.warnings.extend(saved.left_copy().cloned());
        let saved = &saved.saved;
        for one in &saved.left_out_entries {
            // What may not be read is there, and would be gone after a restore.
            if one.reason == SkipReason::Unreadable
                && let Ok(path) = one.path.parse::<EntryPath>()
            {
                result.not_saved.push((path, one.words.clone()));
            }
        }
        result.safety_snapshot_id = Some(saved.snapshot_id.clone());
        result.is_safety_new = saved.published;
    }

    /// Stages the tree beside; of a declared project, checks its databases and takes the dumps out of it.
    async fn stage_files(&mut self) -> Result<StagedSnapshot, Error> {
        let (project, plan) = (self.project, self.plan);
        let id = &plan.source.snapshot;
        let restore = RepoRestore {
            placement: Placement::InPlace,
            only: plan.source.files.clone(),
            may_be_missing: self.command.takes_back,
            except: plan.except.clone(),
            ..project.repo_restore_of(self.command, id, &project.live())
        };
        let staged = project.engine.dirs().stage(restore, id).await?;
        let Some(declared) = &project.home.declared else {
            return Ok(staged);
        };
        let staged = self.checked(staged).await?;
        let dumps = declared.dumps();
        bridge::blocking(move || {
            for dump in dumps {
                staged.remove(&dump)?;
            }
            Ok(staged)
        })
        .await
    }

    /// Checks every database of a staged tree.
    async fn checked(&mut self, staged: StagedSnapshot) -> Result<StagedSnapshot, Error> {
        let scratch = self.project.engine.spool().await?;
        let spawn = self.project.host.check.clone();
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
            let snapshot = self.plan.source.snapshot.clone();
            return Err(ProjectError::Integrity {
                snapshot,
                databases,
            }
            .into());
        }
        self.result.databases = report.databases.len() as u64;
        Ok(staged)
    }

    /// Puts what was staged into the live directory, and says where that is now which no snapshot has.
    async fn place(&mut self, staged: StagedSnapshot) -> Result<(), Error> {
        let (project, id) = (self.project, &self.plan.source.snapshot);
        let origin = RestoreOrigin {
            at: project.engine.clock.now(),
            from: format!("snapshot {id} of {}", project.home.id),
        };
        let not_saved = self.result.not_saved.clone();
        let index = project.index().await?;
        let root = project.engine.dirs().root();
        let patterns = project
            .engine
            .dirs()
            .patterns_now(&root, &index, &project.live())
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
        (self.result.in_place, self.result.set_aside) = placed.await?;
        self.drop_saved_backup().await;
        Ok(())
    }

    /// Removes what came out, if the safety snapshot has all of it. A backup that stays needlessly does no harm.
    async fn drop_saved_backup(&mut self) {
        let result = &mut *self.result;
        let Some(in_place) = &mut result.in_place else {
            return;
        };
        let is_all_saved = result.set_aside.is_empty() && in_place.changed_meanwhile.is_empty();
        let (Some(backup), Some(safety), true) =
            (&in_place.backup, &result.safety_snapshot_id, is_all_saved)
        else {
            return;
        };
        match replaced::drop_if_saved(self.project, Path::new(backup), safety).await {
            Ok(true) => in_place.backup = None,
            Ok(false) => {}
            Err(error) => {
                let error = error_chain(&error);
                tracing::debug!(
                    error,
                    backup,
                    "what was replaced stays beside the directory"
                );
            }
        }
    }
}

/// What a restore would move away is refused before anything is done.
async fn check_target(declared: &Declared) -> Result<(), Error> {
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

/// Those of the entries that no snapshot has which a restore replaced, and where they are kept.
fn came_out(
    backup: &Path,
    not_saved: &[(EntryPath, String)],
    patterns: &[String],
) -> Vec<SetAsideEntry> {
    if not_saved.is_empty() && patterns.is_empty() {
        return Vec::new();
    }
    let returned = OpenBackup::open(backup).map(|opened| opened.returned().collect::<Vec<_>>());
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
