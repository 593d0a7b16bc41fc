//! Makes a project what it was.
//!
//! 1. take the lock; find the snapshot, which must be this project's
//! 2. stop the programs, but not the servers through which databases are restored
//! 3. save what is there now: the way back
//! 4. stage beside `current/`; compare the digest of the whole; check every database in it
//! 5. swap the tree, then the databases that live in servers; write in the index that the state derives from that snapshot
//! 6. start the programs again; see that they are well; if not, go back when that was asked for
//!
//! *Always true:* an error before 5 leaves `current/` as it was, and starts again what was stopped. A crash leaves the old
//! tree or the new one, whole.

mod databases;

use super::save::ProjectSave;
use super::services::{HookRun, Moment};
use super::{Declared, Project, ProjectError};
use crate::bridge;
use crate::error::{Error, whole};
use crate::repo::{Difference, Placement, RepoRestore, StagedSnapshot};
use crate::warning::Warning;
use serde::Serialize;
use stasis_disk::check::{self, CheckSettings};
use stasis_disk::progress::Progress;
use stasis_disk::restore::{self, Origin, Piece};
use stasis_disk::skeleton::{self, Skeleton};
use stasis_model::id::{ProjectId, ServiceName, SnapshotId, VolumeName};
use stasis_model::manifest::{Consistency, Reason};
use stasis_model::operation::Change;
use stasis_model::tree::EntryPath;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How many damaged databases are named.
const NAMED: usize = 5;

/// What a project becomes, and how.
#[derive(Clone, Debug)]
pub struct ProjectRestore {
    /// `latest`, an id or the beginning of one, or a label.
    pub wanted: String,
    /// Whether what is there now is saved first.
    pub safety: bool,
    /// Only these volumes.
    pub volumes: Vec<VolumeName>,
    /// Only these entries, as they are called in the snapshot.
    pub paths: Vec<EntryPath>,
    /// To another directory, which must not be there; nothing else is touched.
    pub to: Option<PathBuf>,
    /// Only say what would change.
    pub dry_run: bool,
    /// Whether the safety snapshot comes back when a program is not well.
    pub auto_undo: bool,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

impl ProjectRestore {
    /// A restore of everything, with a safety snapshot.
    pub fn new(wanted: impl Into<String>) -> Self {
        Self {
            wanted: wanted.into(),
            safety: true,
            volumes: Vec::new(),
            paths: Vec::new(),
            to: None,
            dry_run: false,
            auto_undo: false,
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }

    /// The entries that are wanted; none when everything is.
    fn only(&self) -> Vec<EntryPath> {
        let volumes = self.volumes.iter();
        let volumes = volumes.map(|name| {
            let at = format!("volumes/{name}");
            EntryPath::parse(at.as_bytes()).expect("it is made of names")
        });
        volumes.chain(self.paths.iter().cloned()).collect()
    }
}

/// A project that was restored, or would be.
#[derive(Clone, Debug, Serialize)]
#[must_use = "whether it is well is said only here"]
pub struct ProjectRestored {
    /// Which project.
    pub project: ProjectId,
    /// What it is now.
    pub snapshot_id: SnapshotId,
    /// Where it is.
    pub target: String,
    /// Whether nothing was really done.
    pub dry_run: bool,
    /// What would change, or nothing if it was done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Difference>,
    /// What was there before: the way back.
    pub safety_snapshot_id: Option<SnapshotId>,
    /// Whether that came back, because a program was not well.
    pub undone: bool,
    /// Programs that were stopped and started again.
    pub restarted: Vec<ServiceName>,
    /// What was run before and after.
    pub hooks: Vec<HookRun>,
    /// How many databases were checked and found sound.
    pub databases: u64,
    /// How long it took.
    pub elapsed_ms: u64,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Project {
    /// Restores the project.
    #[tracing::instrument(skip_all, err(level = "info"), fields(project = %self.home.id, wanted = %command.wanted))]
    pub async fn restore(&self, command: ProjectRestore) -> Result<ProjectRestored, Error> {
        let started = self.engine.clock.uptime();
        let _lock = self.exclusive("restore").await?;
        let id = self.resolve(&self.index().await?, &command.wanted)?;
        let mut told = self.about(&command, &id);
        if command.dry_run {
            let changes = self.compared_with_now(&id).await?;
            let only = command.only();
            let is_wanted = |path: &str| {
                let is_in = |one: &EntryPath| {
                    let rest = path.strip_prefix(one.to_string().as_str());
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                only.is_empty() || only.iter().any(is_in)
            };
            told.changes = changes;
            told.changes.retain(|change| is_wanted(&change.path));
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

    fn about(&self, command: &ProjectRestore, id: &SnapshotId) -> ProjectRestored {
        let current = self.home.declared.as_ref().map(Declared::current);
        let target = command.to.clone().or(current);
        let target = target.unwrap_or_else(|| self.home.dir.clone());
        ProjectRestored {
            project: self.home.id.clone(),
            snapshot_id: id.clone(),
            target: target.display().to_string(),
            dry_run: command.dry_run,
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
        let snapshot = saved.saved.snapshot_id;
        if !saved.saved.published {
            told.warnings.push(Warning::SafetyUnchanged {
                snapshot: snapshot.to_string(),
            });
        }
        told.safety_snapshot_id = Some(snapshot);
        Ok(())
    }

    /// A plain directory stays the same directory: whoever is in it stays in it.
    async fn restore_plain(
        &self,
        command: &ProjectRestore,
        id: &SnapshotId,
        told: &mut ProjectRestored,
    ) -> Result<(), Error> {
        self.safety(command, told).await?;
        if command.only().is_empty() {
            let restore = RepoRestore {
                placement: Placement::InPlace,
                ..self.repo_restore_of(command, id, &self.home.dir)
            };
            let _ = self.engine.repo_restore(restore).await?;
            return self.adopt(id).await;
        }
        let above = self.home.dir.parent().unwrap_or(&self.home.dir);
        self.pieces(command, id, (above, &self.home.dir)).await
    }

    async fn restore_declared(
        &self,
        declared: &Declared,
        command: &ProjectRestore,
        id: &SnapshotId,
        told: &mut ProjectRestored,
    ) -> Result<(), Error> {
        let servers: Vec<&ServiceName> = declared.config.servers().collect();
        let all = declared.config.services.keys();
        let others = all.filter(|name| !servers.contains(name)).cloned();
        told.restarted = self.stop_those(declared, others.collect()).await?;
        let restored = self.replace(declared, command, id, told).await;
        let started = self.start_those(declared, &told.restarted).await;
        restored?;
        if let Err(error) = started {
            return Box::pin(self.not_well(declared, command, told, error)).await;
        }
        let after = self
            .run_hooks(declared, Moment::PostRestore, "restore")
            .await;
        let well = match after {
            Ok(runs) => {
                told.hooks.extend(runs);
                self.healthy(declared).await
            }
            Err(error) => Err(error),
        };
        match well {
            Ok(()) => Ok(()),
            Err(error) => Box::pin(self.not_well(declared, command, told, error)).await,
        }
    }

    /// Safety, staging, checks, swap; the programs stand.
    async fn replace(
        &self,
        declared: &Declared,
        command: &ProjectRestore,
        id: &SnapshotId,
        told: &mut ProjectRestored,
    ) -> Result<(), Error> {
        self.safety(command, told).await?;
        let before = self
            .run_hooks(declared, Moment::PreRestore, "restore")
            .await?;
        told.hooks.extend(before);
        let current = declared.current();
        if !command.only().is_empty() {
            let place = declared.state.join(".stasis");
            return self.pieces(command, id, (&place, &current)).await;
        }
        let restore = RepoRestore {
            placement: Placement::Replace,
            ..self.repo_restore_of(command, id, &current)
        };
        let (_, staged) = self.engine.repo_stage(restore, id).await?;
        let staged = self.checked(staged, id, told).await?;
        let servers = self.stage_databases(declared, &staged.path()).await?;
        if !servers.is_empty() {
            self.mark_restore(declared, Some(id)).await?;
        }
        let origin = Origin {
            at: self.engine.clock.now(),
            from: format!("snapshot {id} of {}", self.home.id),
        };
        let back = (current.clone(), origin.clone());
        let swapped = bridge::blocking(move || staged.swap(&origin).map(|_| ())).await;
        if let Err(error) = swapped {
            databases::discard(servers).await;
            self.mark_restore(declared, None).await?;
            return Err(error);
        }
        let servers = match databases::swap(servers).await {
            Ok(servers) => servers,
            Err(error) => {
                let (current, origin) = back;
                bridge::blocking(move || restore::undo(&current, &origin)).await?;
                self.mark_restore(declared, None).await?;
                return Err(error);
            }
        };
        self.adopt(id).await?;
        self.mark_restore(declared, None).await?;
        if told.safety_snapshot_id.is_some() {
            // The safety snapshot has what was there.
            databases::drop_kept(servers).await;
            let _ = bridge::blocking(move || restore::forget(&current)).await;
        }
        Ok(())
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

    /// Puts single entries in their places: all of them, or none.
    async fn pieces(
        &self,
        command: &ProjectRestore,
        id: &SnapshotId,
        (place, root): (&Path, &Path),
    ) -> Result<(), Error> {
        let made = place.to_owned();
        let scratch = bridge::blocking(move || {
            let looks = skeleton::look_at(made.parent().unwrap_or(&made))?.metadata();
            Skeleton::make(&made, looks)
        });
        let scratch = scratch.await?;
        let only = command.only();
        let restore = RepoRestore {
            only: only.clone(),
            ..self.repo_restore_of(command, id, &scratch.root().join("tree"))
        };
        let _ = self.engine.repo_restore(restore).await?;
        let tree = scratch.root().join("tree");
        let servers = match &self.home.declared {
            Some(declared) => self.stage_databases(declared, &tree).await?,
            None => Vec::new(),
        };
        let is_in_server = |path: &EntryPath| {
            let volumes = self
                .home
                .declared
                .iter()
                .flat_map(|one| &one.config.volumes);
            let mut servers = volumes.filter(|(_, one)| one.consistency == Consistency::Postgres);
            servers.any(|(name, _)| path.to_string() == format!("volumes/{name}"))
        };
        let root = root.to_owned();
        let files: Vec<EntryPath> = only
            .into_iter()
            .filter(|path| !is_in_server(path))
            .collect();
        let put = bridge::blocking(move || put_pieces(&tree, &root, &files));
        let pieces = match put.await {
            Ok(pieces) => pieces,
            Err(error) => {
                databases::discard(servers).await;
                return Err(error);
            }
        };
        let swapped = databases::swap(servers).await;
        bridge::blocking(move || {
            let put_back = || pieces.iter().rev().try_for_each(Piece::put_back);
            let kept = match swapped {
                Ok(servers) => Ok(servers),
                Err(error) => {
                    put_back()?;
                    Err(error)
                }
            };
            drop(scratch);
            kept.map(drop)
        })
        .await
    }

    /// Writes in the index that the state derives from a snapshot.
    pub(super) async fn adopt(&self, id: &SnapshotId) -> Result<(), Error> {
        let (root, op_id) = (self.engine.repo_root(), self.engine.chance.op_id());
        let seen = self.index().await?.subject(&self.name()).active;
        let changed = root
            .change(op_id, |index| index.adopt(id, seen.as_ref(), op_id))
            .await;
        self.engine.known(Change::Restore, changed).await?;
        Ok(())
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

fn entry_at(root: &Path, path: &EntryPath) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    root.join(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

/// Puts single entries in their places: all of them, or none.
fn put_pieces(from: &Path, to: &Path, paths: &[EntryPath]) -> Result<Vec<Piece>, Error> {
    let mut done: Vec<Piece> = Vec::new();
    for path in paths {
        match Piece::put(&entry_at(from, path), &entry_at(to, path)) {
            Ok(piece) => done.push(piece),
            Err(error) => {
                done.iter().rev().try_for_each(Piece::put_back)?;
                return Err(error.into());
            }
        }
    }
    Ok(done)
}
