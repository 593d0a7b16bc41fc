//! How a container is saved, and what is said of it then.

use super::capture::{CaptureRequest, not_saved};
use super::cleanup::RemovedSnapshot;
use super::limits::Going;
use super::replace::is_aside;
use super::take_back::{Forward, TakenBack};
use super::{ContainerHost, SeenEngine, failure};
use crate::error::{Error, ErrorKind};
use crate::handle::Containers;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::container::capture::{CaptureWishes, NotCaptured};
use stasis_model::container::mount::ContainerMountKind;
use stasis_model::container::trigger::SnapshotTrigger;
use stasis_model::digest::TreeDigest;
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::{Label, SnapshotId, TenantId};
use stasis_model::policy::retention::AgeCountBytes;
use stasis_quiesce::freeze::MAX_FREEZE;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How a container is saved.
#[derive(Clone, Debug)]
pub struct CreateSnapshot {
    /// Its name, or the beginning of its id.
    pub container: String,
    /// What makes somebody save it.
    pub trigger: SnapshotTrigger,
    /// Words of the user's.
    pub description: Label,
    /// The run of an agent that it belongs to.
    pub run_id: Option<Label>,
    /// What the agent is about to do, or has done.
    pub action_context: Option<Label>,
    /// Labels of the snapshot.
    pub labels: BTreeMap<String, Label>,
    /// What is saved that is not by itself.
    pub wishes: CaptureWishes,
    /// Whether it is an error if something that is mounted is not saved.
    pub strict: bool,
    /// Whether the store gets the layers of the image, too, so that any engine can run it.
    pub portable: bool,
    /// For how long it may stand still.
    pub max_freeze: Duration,
    /// What the snapshot is called, if that is known already.
    pub snapshot_id: Option<SnapshotId>,
    /// How many snapshots there may be, how old, and how large; all stay if nobody says that.
    pub limits: Option<AgeCountBytes>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

impl CreateSnapshot {
    /// A snapshot of a container with nothing special about it.
    pub fn new(container: impl Into<String>) -> Self {
        Self {
            container: container.into(),
            trigger: SnapshotTrigger::Manual,
            description: Label::nobody(),
            run_id: None,
            action_context: None,
            labels: BTreeMap::new(),
            wishes: CaptureWishes::default(),
            strict: false,
            portable: false,
            max_freeze: MAX_FREEZE,
            snapshot_id: None,
            limits: None,
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }
}

/// A container that was saved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was not captured is said only here"]
pub struct ContainerSaved {
    /// The snapshot.
    pub snapshot_id: SnapshotId,
    /// The subject, as it is typed.
    pub subject: String,
    /// Whose it is.
    pub tenant: TenantId,
    /// What the container is called.
    pub container_name: String,
    /// Its whole id.
    pub container_id: String,
    /// What made somebody save it.
    pub trigger: SnapshotTrigger,
    /// The image that was made of it.
    pub image: String,
    /// How many bytes of that its own image does not have.
    pub image_bytes: u64,
    /// Whether the store has the layers of the image, too.
    pub portable: bool,
    /// Files in its volumes.
    pub files: u64,
    /// How long they are.
    pub bytes: u64,
    /// Bytes that had to be stored for them.
    pub bytes_stored: u64,
    /// For how long it stood still.
    pub frozen_ms: u64,
    /// Its volumes.
    pub volumes: Vec<VolumeSaved>,
    /// SQLite databases in them that are stored as one committed state, checked.
    pub databases: u64,
    /// Those that are not.
    pub unsound_databases: Vec<UnsoundDatabase>,
    /// What of it is in no snapshot.
    pub not_captured: Vec<NotCaptured>,
    /// Older snapshots that went because of the limits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<RemovedSnapshot>,
    /// What the caller should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// A volume that is in a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct VolumeSaved {
    /// The name of the volume; of a bind, the path on the engine's host.
    pub name: String,
    /// What it is.
    pub kind: ContainerMountKind,
    /// What keeps it.
    pub driver: String,
    /// How.
    pub options: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Where it was mounted in the container.
    pub mount_paths: Vec<String>,
    /// Where it lies in the snapshot.
    pub path: String,
    /// The length of its files.
    pub bytes: u64,
    /// What its tree is.
    pub digest: TreeDigest,
}

/// A database of which no committed state could be stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UnsoundDatabase {
    /// Where in the snapshot.
    pub path: String,
    /// Why.
    pub reason: String,
}

impl Containers<'_> {
    /// Saves a container.
    #[tracing::instrument(skip_all, err(level = "info"), fields(container = %how.container))]
    pub async fn create(
        self,
        host: &ContainerHost,
        how: &CreateSnapshot,
    ) -> Result<ContainerSaved, Error> {
        self.store().ensure_trusted().await?;
        let seen = host.look().await?;
        if seen.docker.container(&how.container).await?.is_none() {
            self.take_back_named(host, &seen, &how.container).await?;
        }
        let saved = self.save_named((host, &seen), how, SaveReason::Manual);
        let mut saved = Box::pin(saved).await?.ok_or_else(not_saved)?;
        if let Some(limits) = &how.limits {
            let room = self.make_room((host, &seen), (limits, Going::All), &mut saved);
            Box::pin(room).await;
        }
        Ok(saved)
    }

    /// Saves a container that is there. Nothing comes of an automatic save that adds nothing.
    pub(super) async fn save_named(
        self,
        (host, seen): (&ContainerHost, &SeenEngine),
        how: &CreateSnapshot,
        reason: SaveReason,
    ) -> Result<Option<ContainerSaved>, Error> {
        let facts = seen.container(&how.container).await?;
        // Under that name nobody would look for its snapshots.
        if reason == SaveReason::Autosave && is_aside(&facts) {
            let said = format!("another container is taking the place of `{}`", facts.name);
            return Err(failure(ErrorKind::Conflict, said).into());
        }
        let _lock = self.lock(seen, &facts.name, "saved").await?;
        // It may have changed until it was ours.
        let facts = seen.container(&facts.id).await?;
        let name = facts.name.clone();
        let back = Box::pin(self.take_back(host, seen, &name, Forward::IfItWorks));
        let facts = match back.await? {
            TakenBack::Nothing => facts,
            TakenBack::Back | TakenBack::Forward(_) | TakenBack::Gone(..) => {
                seen.container(&name).await?
            }
        };
        let saved = self.capture_unless_same(CaptureRequest {
            host,
            seen,
            facts: &facts,
            how,
            reason,
            was: &facts.status,
            first: None,
        });
        Box::pin(saved).await
    }
}
