//! An application with its databases: a directory that is saved and restored as one.
//!
//! A [`Home`] says what the project is; [`Project`] joins it with the store in which its snapshots lie. A directory without
//! a `stasis.toml` is a project too: plain files, whose snapshots lie in a store elsewhere and nothing in the directory.
//!
//! *Always true:* one save, restore, start or stop of a project at a time, on its host (`lock`); whoever comes second is told at
//! once who is there, unless that is a save that nobody asked for, which gives way. `current/` is never changed by a save, and by a restore only when everything that takes its place
//! has been verified.

mod autosave;
mod browse;
mod capture;
mod compare;
mod dotenv;
mod home;
mod init;
pub(crate) mod known;
mod lock;
mod losses;
pub(crate) mod namesakes;
mod restore;
mod row_counts;
pub(crate) mod same_databases;
mod save;
mod services;
mod snapshots;
mod unasked;
mod upgrade;

pub use crate::error::ProjectError;
pub use crate::result::{Moment, ProjectSnapshot, ServiceHookRun};
pub use browse::{SnapshotUse, SubjectUse};
pub use compare::ProjectDiff;
pub(crate) use home::SessionHome;
pub use home::{Declared, FILE, Home};
pub use init::{FindingKind, ProjectFinding, ProjectInit, ProjectMade, init};
pub(crate) use known::KnownDirs;
pub use restore::{
    KeptDatabase, ProjectRestore, ProjectRestored, RestoreRecord, SetAsideEntry, UndoRestore,
};
pub use row_counts::{TableDiff, UncountedDatabase};
pub use save::{MESSAGE_LABEL, ProjectSave, ProjectSaved, ProjectStep, StepTaken};
pub use services::{ServiceState, ServiceStatus};
pub use snapshots::{ProjectCollected, ProjectGc, ProjectStatus, ProjectVerified};

pub use stasis_quiesce::service::launch;
pub(crate) use unasked::UnaskedSave;
pub use unasked::{AutosavedProject, ServiceUse};
pub use upgrade::{ProjectDuplicated, ProjectUpgraded};

use crate::bridge;
use crate::check;
use crate::error::{Error, ErrorKind};
use crate::open::Engine;
use crate::system::typed_at;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::{SnapshotIndex, StoredManifest};
use stasis_model::id::{SnapshotId, SubjectName, TenantId};
use stasis_model::snapshot_ref::{SnapshotRef, Unresolved};
use stasis_quiesce::watchdog;
use stasis_store::layout::ChunkRoot;
use stasis_store::location::StoreLocation;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a project needs of the program that it runs in.
#[derive(Clone, Debug)]
pub struct Host {
    /// Variables that the project's file may name.
    pub variables: BTreeMap<String, String>,
    /// How the process that opens databases is started.
    pub check: check::Spawn,
    /// How the process that lets paused programs run again is started.
    pub watchdog: watchdog::HelperCommand,
}

/// A project and the store of its snapshots.
#[derive(Clone, Debug)]
pub struct Project {
    pub(crate) engine: Engine,
    pub(crate) home: Home,
    pub(crate) host: Host,
}

impl Engine {
    /// A project with its snapshots in this store, which was opened where [`Home::own_store`] says or elsewhere.
    pub fn project(&self, home: Home, tenant: &TenantId, host: Host) -> Project {
        let is_own = home
            .own_store()
            .is_some_and(|own| StoreLocation::File(own) == *self.location());
        let root = if is_own {
            ChunkRoot::state()
        } else {
            ChunkRoot::project(tenant, &home.id)
        };
        let home = home.hosted(self.local_dirs.state.as_deref());
        Project {
            engine: self.rooted(root),
            home,
            host,
        }
    }
}

impl Project {
    /// What it is.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Which store its snapshots are in.
    pub fn location(&self) -> &StoreLocation {
        self.engine.location()
    }

    /// What it is called as a subject.
    pub(crate) fn name(&self) -> SubjectName {
        let name = self.home.id.as_str().parse();
        name.expect("the names of projects and of chains follow one rule")
    }

    /// Where things of ours lie that are not snapshots: in the state directory, else on this host.
    fn own_place(&self) -> Option<PathBuf> {
        if let Some(declared) = &self.home.declared {
            return Some(declared.state.join(".stasis"));
        }
        // A directory may have the same name.
        if self.home.is_elsewhere() {
            return None;
        }
        let state = self.engine.local_dirs.state.as_ref()?;
        Some(state.join("projects").join(self.home.id.as_str()))
    }

    /// Makes the place for its snapshots, if it is not there yet, and remembers which directory this is.
    pub(crate) async fn ensure_root(&self) -> Result<(), Error> {
        self.remember().await?;
        self.engine.dirs().ensure_pool().await
    }
}

impl Project {
    /// Remembers on this host that the directory is this subject, before anything is saved under its id: a save that was not
    /// remembered would be followed by one of another subject.
    async fn remember(&self) -> Result<(), Error> {
        let state = self.engine.local_dirs.state.as_deref();
        let Some(state) = state.filter(|_| !self.engine.chunk_root.is_alone()) else {
            return Ok(());
        };
        // Whoever saves a directory that is gone is told so; the one that was moved stays what it is.
        if !self.home.dir.exists() {
            return Ok(());
        }
        let (known, id) = (KnownDirs::new(state), self.home.id.clone());
        let dir = self.home.dir.clone();
        let other = bridge::blocking(move || known.remember(&id, &dir)).await?;
        // What its file says is what a declared one is, whatever it was before.
        if let Some(other) = other.filter(|_| self.home.declared.is_none()) {
            let said = format!("another process has just saved this directory as `dir:{other}`");
            let hint = "nothing was saved; run it again";
            let failure = Failure::of(ErrorKind::Retry, said);
            return Err(failure.with_hint(hint).into());
        }
        Ok(())
    }

    /// Notes which directory lies at its path, once it was restored there.
    async fn renew(&self) -> Result<(), Error> {
        let state = self.engine.local_dirs.state.as_deref();
        let Some(state) = state.filter(|_| !self.engine.chunk_root.is_alone()) else {
            return Ok(());
        };
        let (known, id) = (KnownDirs::new(state), self.home.id.clone());
        let dir = self.home.dir.clone();
        Ok(bridge::blocking(move || known.renew(&id, &dir)).await?)
    }
}

/// How often somebody who wants to stop is heard.
const TICK: std::time::Duration = std::time::Duration::from_millis(100);

/// Does async work until it is done, or until somebody wants to stop: then it is dropped.
async fn or_cancelled<T>(
    cancel: &std::sync::atomic::AtomicBool,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            () = tokio::time::sleep(TICK) => {
                if cancel.load(std::sync::atomic::Ordering::Relaxed) {
                    return Err(ProjectError::Cancelled.into());
                }
            }
        }
    }
}

/// For how long something that somebody wants to stop may end by itself.
const LAST_MOMENTS: std::time::Duration = std::time::Duration::from_secs(5);

/// Does async work that hears of it itself when somebody wants to stop, and then does away with what it made; if it does not end soon, as
/// on a line that is slow, it is dropped where it stands.
async fn or_dropped<T>(
    cancel: &std::sync::atomic::AtomicBool,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    tokio::pin!(work);
    let mut left = LAST_MOMENTS;
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            () = tokio::time::sleep(TICK) => {
                if cancel.load(std::sync::atomic::Ordering::Relaxed) {
                    left = left.saturating_sub(TICK);
                }
                if left.is_zero() {
                    return Err(ProjectError::Cancelled.into());
                }
            }
        }
    }
}

/// Which snapshot somebody means.
impl Project {
    /// The index of its snapshots; empty before the first save.
    async fn index(&self) -> Result<SnapshotIndex, Error> {
        self.ensure_known().await?;
        let index = self.engine.dirs().index_to_look().await?;
        if let Some(at) = index.deleted_at_ms {
            let said = format!("`{}` was deleted at {at}", self.home.subject());
            let failure = Failure::of(ErrorKind::NotFound, said);
            return Err(failure.with_hint("the next save begins it anew").into());
        }
        Ok(index)
    }

    /// Finds the snapshot that a user means: see [`SnapshotIndex::resolve`].
    fn resolve(&self, index: &SnapshotIndex, wanted: &SnapshotRef) -> Result<SnapshotId, Error> {
        let project = self.home.called();
        match index.resolve(wanted, typed_at(&*self.engine.clock)) {
            Ok(one) => Ok(one.id.clone()),
            Err(Unresolved::Ambiguous(fits)) => Err(Error::Ambiguous {
                wanted: wanted.to_string(),
                count: fits.len(),
            }),
            Err(Unresolved::NoLatest) => {
                let snapshots = snapshots::rows(index).rev().collect();
                Err(ProjectError::NoLatest { project, snapshots }.into())
            }
            Err(Unresolved::Absent) => {
                let wanted = wanted.to_string();
                Err(ProjectError::NoSnapshot { project, wanted }.into())
            }
        }
    }

    /// The same, for somebody who must not be told "there is none" by a damaged index.
    async fn find(&self, index: &SnapshotIndex, wanted: &SnapshotRef) -> Result<SnapshotId, Error> {
        let found = self.resolve(index, wanted);
        let is_none = matches!(&found, Err(Error::Project(error)) if matches!(**error, ProjectError::NoSnapshot { .. }));
        if !is_none {
            return found;
        }
        let wanted = wanted.text();
        let stored = self.engine.dirs().root().manifest_ids().await?;
        let is_lost = |id: &SnapshotId| {
            id.as_str().starts_with(&*wanted) && !index.tombstones.contains_key(id)
        };
        for id in stored.into_iter().filter(is_lost) {
            let stored = self.engine.dirs().root().manifest(&id).await;
            // What a save had stored before it was over is no snapshot.
            if !matches!(stored, Ok(Some((StoredManifest::Provisional(_), _)))) {
                return Err(Error::LostManifest(id));
            }
        }
        found
    }
}
