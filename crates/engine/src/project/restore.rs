//! Makes a project what it was.
//!
//! 1. take the lock; find the snapshot, which must be this project's
//! 2. stop the programs, but not the servers through which databases are restored
//! 3. save what is there now: the way back
//! 4. stage beside `current/`; compare the digest of the whole; check every database in it
//! 5. swap the databases that live in servers, then the tree; write in the index that the state derives from that snapshot
//! 6. start the programs again; see that they are well; if not, go back when that was asked for
//!
//! *Always true:* an error before 5 leaves `current/` as it was, and starts again what was stopped. A crash leaves the old
//! tree or the new one, whole.

mod command;
mod databases;

pub use command::{ProjectRestore, ProjectRestored};

use databases::SwapFailed;

use super::save::ProjectSave;
use super::services::Moment;
use super::{Declared, Project, ProjectError, or_cancelled};
use crate::bridge;
use crate::error::{Error, whole};
use crate::repo::{Difference, Placement, RepoRestore, StagedSnapshot};
use crate::warning::Warning;
use stasis_disk::check::{self, CheckSettings};
use stasis_disk::restore::{self, Origin};
use stasis_model::id::{ServiceName, SnapshotId};
use stasis_model::manifest::Reason;
use stasis_model::operation::Change;
use stasis_model::tree::EntryPath;
use std::path::Path;

/// How many damaged databases are named.
const NAMED: usize = 5;

impl Project {
    /// Restores the project.
    #[tracing::instrument(skip_all, err(level = "info"), fields(project = %self.home.id, wanted = %command.wanted))]
    pub async fn restore(&self, command: ProjectRestore) -> Result<ProjectRestored, Error> {
        let _lock = self.exclusive("restore").await?;
        self.start_what_was_left().await?;
        self.restore_locked(command).await
    }

    /// Restores the project, which is ours alone.
    pub(super) async fn restore_locked(
        &self,
        command: ProjectRestore,
    ) -> Result<ProjectRestored, Error> {
        let started = self.engine.clock.uptime();
        let index = self.index().await?;
        let id = self.find(&index, &command.wanted).await?;
        let mut told = self.about(&command, &id);
        told.seen = index.subject(&self.name()).active;
        if command.dry_run {
            told.changes = self.would_change(&command, &id).await?;
        } else if let Some(to) = &command.to {
            let restore = RepoRestore {
                only: command.only(),
                ..self.repo_restore_of(&command, &id, to)
            };
            let _ = self.engine.repo_restore(restore).await?;
        } else {
            match &self.home.declared {
                None => self.restore_plain(&command, &id, &mut told).await?,
                Some(declared) => {
                    Box::pin(self.restore_declared(declared, &command, &id, &mut told)).await?;
                }
            }
        }
        told.elapsed_ms = self.engine.elapsed_ms(started);
        Ok(told)
    }

    async fn would_change(
        &self,
        command: &ProjectRestore,
        id: &SnapshotId,
    ) -> Result<Vec<Difference>, Error> {
        let only: Vec<String> = command.only().iter().map(ToString::to_string).collect();
        let is_in = |path: &str, one: &String| {
            let rest = path.strip_prefix(one.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut changes = self.compared_with_now(id).await?;
        changes.retain(|change| only.is_empty() || only.iter().any(|one| is_in(&change.path, one)));
        Ok(changes)
    }

    fn about(&self, command: &ProjectRestore, id: &SnapshotId) -> ProjectRestored {
        let current = self.home.declared.as_ref().map(Declared::current);
        let target = command.to.clone().or(current);
        let target = target.unwrap_or_else(|| self.home.dir.clone());
        ProjectRestored {
            project: self.home.id.clone(),
            snapshot_id: id.clone(),
            target: target.display().to_string(),
            dry_run: command.dry_run,
            is_part: !command.only().is_empty(),
            seen: None,
            changes: Vec::new(),
            safety_snapshot_id: None,
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

    /// Saves what is there now.
    async fn safety(
        &self,
        command: &ProjectRestore,
        told: &mut ProjectRestored,
    ) -> Result<(), Error> {
        // Half a restore is nothing to go back to; the one before it has made a snapshot.
        if !command.safety || self.half_restored().await.is_some() {
            return Ok(());
        }
        let save = ProjectSave {
            allow_shrink: true,
            cancel: command.cancel.clone(),
            ..ProjectSave::new(Reason::BeforeRestore)
        };
        let saved = self.save_locked(save).await?;
        let mut lost = saved
            .saved
            .left_out_entries
            .iter()
            .filter(|one| is_lost(one.reason));
        if let Some(first) = lost.next() {
            return Err(ProjectError::SafetyIncomplete {
                project: self.home.id.clone(),
                entries: lost.count() + 1,
                first: first.path.clone(),
            }
            .into());
        }
        told.seen = Some(saved.saved.snapshot_id.clone());
        let snapshot = saved.saved.snapshot_id;
        if !saved.saved.published {
            told.warnings.push(Warning::SafetyUnchanged {
                snapshot: snapshot.to_string(),
            });
        }
        told.safety_snapshot_id = Some(snapshot);
        Ok(())
    }

    /// A plain directory stays the same directory: whoever is in it stays in it. One that is gone comes back.
    async fn restore_plain(
        &self,
        command: &ProjectRestore,
        id: &SnapshotId,
        told: &mut ProjectRestored,
    ) -> Result<(), Error> {
        let is_there = self.home.dir.is_dir();
        if is_there {
            self.safety(command, told).await?;
        }
        let restore = RepoRestore {
            placement: Placement::InPlace,
            only: command.only(),
            ..self.repo_restore_of(command, id, &self.home.dir)
        };
        let _ = self.engine.repo_restore(restore).await?;
        if command.only().is_empty() {
            self.adopt(id, told).await;
        }
        Ok(())
    }

    async fn restore_declared(
        &self,
        declared: &Declared,
        command: &ProjectRestore,
        id: &SnapshotId,
        told: &mut ProjectRestored,
    ) -> Result<(), Error> {
        let servers: Vec<ServiceName> = declared.config.servers().cloned().collect();
        let all = declared.config.services.keys();
        let others = all.filter(|name| !servers.contains(name)).cloned();
        let others: Vec<ServiceName> = others.collect();
        self.remember_stopped(declared, &self.running(declared).await)
            .await?;
        told.restarted = self.stop_those(declared, others).await?;
        let restored = self.replace(declared, command, id, told).await;
        let started = self.start_those(declared, &told.restarted).await;
        self.remember_stopped(declared, &[]).await?;
        restored?;
        let well = match started {
            Ok(()) => self.well_again(declared, told, &servers).await,
            Err(error) => Err(error),
        };
        match well {
            Ok(()) => Ok(()),
            Err(error) => Box::pin(self.not_well(declared, command, told, error)).await,
        }
    }

    /// Runs what is to be run afterwards, and asks whoever ran before whether they are well.
    async fn well_again(
        &self,
        declared: &Declared,
        told: &mut ProjectRestored,
        servers: &[ServiceName],
    ) -> Result<(), Error> {
        let after = self
            .run_hooks(declared, Moment::PostRestore, "restore")
            .await?;
        told.hooks.extend(after);
        let asked: Vec<ServiceName> = [&*told.restarted, servers].concat();
        self.healthy(declared, &asked).await
    }

    /// Safety, staging, checks, swap; the programs stand.
    async fn replace(
        &self,
        declared: &Declared,
        command: &ProjectRestore,
        id: &SnapshotId,
        told: &mut ProjectRestored,
    ) -> Result<(), Error> {
        self.nothing_in_the_way(declared).await?;
        self.safety(command, told).await?;
        let hooks = self.run_hooks(declared, Moment::PreRestore, "restore");
        let before = or_cancelled(&command.cancel, hooks).await??;
        told.hooks.extend(before);
        let only = command.only();
        let (is_whole, current) = (only.is_empty(), declared.current());
        let in_server = |path: &EntryPath| declared.is_in_server(path);
        let (of_servers, files): (Vec<EntryPath>, Vec<EntryPath>) =
            only.into_iter().partition(in_server);
        let dumps = (is_whole || !of_servers.is_empty()).then_some(of_servers);
        let servers = match dumps {
            Some(dumps) => self.stage_dumps(declared, (command, id), dumps).await?,
            None => Vec::new(),
        };
        let staged = if is_whole || !files.is_empty() {
            let placement = if is_whole {
                Placement::Replace
            } else {
                Placement::InPlace
            };
            let restore = RepoRestore {
                placement,
                only: files,
                ..self.repo_restore_of(command, id, &current)
            };
            match self.staged(restore, (declared, id), told).await {
                Ok(staged) => Some(staged),
                Err(error) => {
                    databases::discard(servers).await;
                    return Err(error);
                }
            }
        } else {
            None
        };
        let swap = Swap {
            staged,
            servers,
            snapshot: id,
        };
        let swapped = self.swap(declared, swap).await?;
        if is_whole {
            self.adopt(id, told).await;
        }
        if told.safety_snapshot_id.is_some() {
            // The safety snapshot has what was there.
            databases::drop_kept(swapped).await;
            let _ = bridge::blocking(move || restore::forget(&current)).await;
        }
        Ok(())
    }

    /// Stages the tree beside, checks its databases, and takes the dumps out of it.
    async fn staged(
        &self,
        restore: RepoRestore,
        (declared, id): (&Declared, &SnapshotId),
        told: &mut ProjectRestored,
    ) -> Result<StagedSnapshot, Error> {
        let (_, staged) = self.engine.repo_stage(restore, id).await?;
        let staged = self.checked(staged, id, told).await?;
        let dumps = declared.dumps();
        bridge::blocking(move || {
            for dump in dumps {
                staged.take_away(&dump)?;
            }
            Ok(staged)
        })
        .await
    }

    /// Swaps the servers' databases, then the tree; what cannot be done is undone.
    async fn swap(
        &self,
        declared: &Declared,
        swap: Swap<'_>,
    ) -> Result<Vec<databases::SwappedDatabase>, Error> {
        let Swap {
            staged,
            servers,
            snapshot,
        } = swap;
        let is_marked = !servers.is_empty();
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
        let origin = Origin {
            at: self.engine.clock.now(),
            from: format!("snapshot {snapshot} of {}", self.home.id),
        };
        if let Some(staged) = staged {
            let placed = bridge::blocking(move || staged.swap(&origin).map(|_| ())).await;
            if let Err(error) = placed {
                databases::swap_back(servers).await?;
                self.mark_restore(declared, None).await?;
                return Err(error);
            }
        }
        if is_marked {
            self.mark_restore(declared, None).await?;
        }
        Ok(servers)
    }

    /// What a restore would move away is refused before anything is done.
    async fn nothing_in_the_way(&self, declared: &Declared) -> Result<(), Error> {
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
        told: &mut ProjectRestored,
    ) -> Result<StagedSnapshot, Error> {
        let scratch = self.engine.profile_spool().await?;
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
        told.databases = report.databases.len() as u64;
        Ok(staged)
    }

    /// Writes in the index that the state derives from a snapshot. The state is what it should be, whatever becomes of that.
    async fn adopt(&self, id: &SnapshotId, told: &mut ProjectRestored) {
        let (root, op_id) = (self.engine.repo_root(), self.engine.chance.op_id());
        let seen = told.seen.clone();
        let changed = root
            .change(op_id, |index| index.adopt(id, seen.as_ref(), op_id))
            .await;
        if let Err(error) = self.engine.known(Change::Restore, changed).await {
            told.warnings.push(Warning::NotAdopted {
                reason: whole(&error),
            });
        }
    }

    /// The restored state is in place, and a program is not well: goes back, or offers to.
    async fn not_well(
        &self,
        declared: &Declared,
        command: &ProjectRestore,
        told: &mut ProjectRestored,
        error: Error,
    ) -> Result<(), Error> {
        let safety = told.safety_snapshot_id.clone();
        let Some(safety) = safety.filter(|_| command.auto_undo) else {
            told.warnings.push(Warning::NotWell {
                reason: whole(&error),
            });
            return Ok(());
        };
        let back = ProjectRestore {
            safety: false,
            auto_undo: false,
            ..ProjectRestore::new(safety.to_string())
        };
        let mut again = self.about(&back, &safety);
        self.restore_declared(declared, &back, &safety, &mut again)
            .await?;
        told.undone = true;
        told.warnings.push(Warning::NotWell {
            reason: whole(&error),
        });
        told.warnings.extend(again.warnings);
        Ok(())
    }
}

/// What takes the place of what.
struct Swap<'a> {
    staged: Option<StagedSnapshot>,
    servers: Vec<databases::StagedDatabase>,
    snapshot: &'a SnapshotId,
}

/// Whether an entry that a save left out is there, and would be gone after a restore.
fn is_lost(reason: &str) -> bool {
    reason == "unreadable"
}
