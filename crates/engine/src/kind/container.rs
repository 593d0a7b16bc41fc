//! Containers of a Docker engine, with their volumes.
//!
//! **A snapshot** is an image on the engine, made by a commit, and a tree in the store: the values of the environment, and the volumes.
//! What is said of the container stands in the snapshot's manifest ([`stasis_model::format::manifest::ContainerManifest`]).
//!
//! *Always true:* a snapshot is listed once its image and all of its volumes are whole; a container that ran runs again within the time
//! that it may stand still, whatever happens to us; and what somebody else made on the engine is never removed.

mod capture;
mod cleanup;
mod create;
mod detached;
mod diff;
mod export;
mod exported;
mod fill;
mod find;
mod helper_mount;
mod image;
mod import;
mod layers;
mod left_over;
mod limits;
mod list;
mod lock;
mod made;
mod names;
mod own_files;
mod ports;
mod publish;
mod remove;
mod replace;
mod replace_journal;
mod replaceable;
mod restore;
mod restore_request;
mod sizes;
mod stats;
mod still;
mod take_back;
mod through;
mod unasked;
mod validate;
mod volume_tar;
mod volumes;
mod whole;

pub use cleanup::{CleanupContainers, ContainersCleaned, RemovedSnapshot};
pub use create::{ContainerSaved, CreateSnapshot, UnsoundDatabase, VolumeSaved};
pub use detached::{ContainerSaveBegun, DetachedNote};
pub use diff::{ContainerDiff, ImageDifference, SettingDifference, VolumeDifference};
pub use export::{ContainerExported, ExportContainer, ExportLayout};
pub use import::{ContainerImported, ImportContainer};
pub(crate) use list::ContainerSubjectRow;
pub use list::{
    ContainerSnapshotRow, ContainerSnapshotShown, ContainerSnapshotStatus, ContainerSnapshots,
    RestorationRow,
};
pub(in crate::kind) use lock::{ContainerLock, lock_in};
pub use ports::{PortChoice, PublishedPort};
pub use remove::ContainerSnapshotsDeleted;
pub use restore_request::{
    ContainerRestored, MountChoice, NetworkChoice, RestoreContainer, RestoreMode, VolumeRestored,
};
pub use stasis_model::container::capture::{CaptureWishes, NotCaptured, NotCapturedBecause};
pub use stasis_model::container::trigger::SnapshotTrigger;
pub use stasis_model::policy::retention::AgeCountBytes;
pub use stasis_quiesce::docker::{ContainerHealth, Docker};
pub use stasis_quiesce::freeze::MAX_FREEZE;
pub use stats::{ContainerStats, ContainersStats};
pub use unasked::AutosavedContainer;
pub(crate) use unasked::UnaskedSnapshot;
pub use validate::{ContainerValidated, MountValidated, validate};

use crate::error::{Error, ErrorKind};
use crate::handle::Containers;
use crate::open::Engine;
use stasis_model::container::subject::engine_digits;
use stasis_model::failure::Failure;
use stasis_model::id::{ContainerSubject, OpId, TenantId};
use stasis_quiesce::docker::{ContainerFacts, DockerEngine};
use stasis_store::layout::ChunkRoot;

/// Which engine, and whose snapshots.
#[derive(Clone, Debug)]
pub struct ContainerHost {
    /// How the engine is reached.
    pub docker: Docker,
    /// Whose snapshots.
    pub tenant: TenantId,
}

/// An engine that answers.
#[derive(Clone, Debug)]
pub(crate) struct SeenEngine {
    pub(crate) docker: Docker,
    pub(crate) engine: DockerEngine,
    /// What tells it from others.
    pub(crate) digits: String,
}

impl ContainerHost {
    /// Looks at the engine.
    pub(crate) async fn look(&self) -> Result<SeenEngine, Error> {
        let engine = self.docker.engine().await?;
        Ok(SeenEngine {
            docker: self.docker.clone(),
            digits: engine_digits(&engine.id),
            engine,
        })
    }
}

impl ContainerHost {
    /// What a container is called that somebody names by its id, or the beginning of it; others are called as they are typed.
    pub(crate) async fn name_of(&self, typed: Option<&str>) -> Option<String> {
        let typed = typed?;
        let is_id = (12..=64).contains(&typed.len())
            && typed
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let found = if is_id {
            self.docker.container(typed).await.ok().flatten()
        } else {
            None
        };
        Some(found.map_or_else(|| typed.to_owned(), |facts| facts.name))
    }
}

impl SeenEngine {
    /// A container that must be there.
    pub(crate) async fn container(&self, name: &str) -> Result<ContainerFacts, Error> {
        let found = self.docker.container(name).await?;
        found.ok_or_else(|| absent(&self.docker, name))
    }
}

/// What a command needs to find the snapshots of a tenant that nobody takes for granted.
pub fn tenant_option(tenant: &TenantId) -> String {
    if tenant.is_default() {
        return String::new();
    }
    format!(" --tenant {tenant}")
}

/// Says that there is no such container.
fn absent(docker: &Docker, container: &str) -> Error {
    let host = docker.host().display();
    let said = format!("the Docker engine at {host} has no container `{container}`");
    let hint = "`docker ps --all` lists those that there are";
    Failure::of(ErrorKind::NotFound, said)
        .with_hint(hint)
        .into()
}

impl Containers<'_> {
    /// The engine of one container's snapshots.
    fn of(self, tenant: &TenantId, subject: &ContainerSubject) -> Engine {
        self.engine.rooted(ChunkRoot::container(tenant, subject))
    }

    /// What tells the images of this store's snapshots from those of other stores: the pool that the tenant has in it. None before
    /// the first snapshot.
    async fn pool(self, tenant: &TenantId) -> Result<Option<OpId>, Error> {
        let pool = self.engine.rooted(ChunkRoot::pool(tenant));
        let repo = pool.dirs().root().repo().await?;
        Ok(repo.map(|repo| repo.op_id))
    }
}

/// A failure of something that only this kind does.
fn failure(kind: ErrorKind, said: impl Into<String>) -> Failure {
    Failure::of(kind, said.into())
}
