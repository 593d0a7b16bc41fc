//! How a container is made of a snapshot, and what is said of it then.

use super::fill::Filling;
use super::ports::PortChoice;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::digest::TreeDigest;
use stasis_model::id::{SnapshotId, TenantId};
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_quiesce::docker::ContainerHealth;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a container that is replaced may take to end, if it does not say so itself.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a container is made beside the one that there is, or instead of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RestoreMode {
    /// Beside it, with a name and volumes of its own.
    #[default]
    New,
    /// Instead of it, with its name and its volumes.
    Replace,
}

/// What becomes of mounts that are in no snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MountChoice {
    /// They are mounted as before.
    #[default]
    Keep,
    /// They are left out.
    Drop,
}

/// What becomes of networks that are not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NetworkChoice {
    /// They are named, and nothing is made.
    #[default]
    Refuse,
    /// They are made.
    Make,
}

/// How a container is made of a snapshot.
#[derive(Clone, Debug)]
pub struct RestoreContainer {
    /// Which snapshot.
    pub snapshot: SnapshotRef,
    /// Of which container, where that is not clear.
    pub container: Option<String>,
    /// Beside the container, or instead of it.
    pub mode: RestoreMode,
    /// What it is called.
    pub name: Option<String>,
    /// Variables that are added or replaced.
    pub environment: BTreeMap<String, String>,
    /// Ports.
    pub ports: PortChoice,
    /// Mounts that are in no snapshot.
    pub mounts: MountChoice,
    /// Networks that are not there.
    pub networks: NetworkChoice,
    /// Whether it is not started though the one that was saved ran.
    pub no_start: bool,
    /// Whether it is only said what would be done.
    pub dry_run: bool,
    /// When it is said to work, where it takes the place of another one.
    pub health: ContainerHealth,
    /// How long the other one may take to end; as long as it says itself, or ten seconds, if nothing is said.
    pub stop_timeout: Option<Duration>,
    /// For how long the other one may stand still.
    pub max_freeze: Duration,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

impl RestoreContainer {
    /// A new container of a snapshot with nothing special about it.
    pub fn new(snapshot: SnapshotRef) -> Self {
        Self {
            snapshot,
            container: None,
            mode: RestoreMode::New,
            name: None,
            environment: BTreeMap::new(),
            ports: PortChoice::AsBefore,
            mounts: MountChoice::Keep,
            networks: NetworkChoice::Refuse,
            no_start: false,
            dry_run: false,
            health: ContainerHealth::default(),
            stop_timeout: None,
            max_freeze: super::MAX_FREEZE,
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }

    pub(super) fn filling(&self) -> Filling {
        Filling {
            cancel: self.cancel.clone(),
            progress: self.progress.clone(),
        }
    }
}

/// A container that was made of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was not restored is said only here"]
pub struct ContainerRestored {
    /// Of which snapshot.
    pub snapshot_id: SnapshotId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Beside the container that was saved, or instead of it.
    pub mode: RestoreMode,
    /// Whether this only says what would be done.
    pub dry_run: bool,
    /// What it is called.
    pub container_name: String,
    /// Its whole id; empty as long as there is none.
    pub container_id: String,
    /// Whether it runs.
    pub started: bool,
    /// Its image.
    pub image: String,
    /// Its volumes.
    pub volumes: Vec<VolumeRestored>,
    /// What was mounted when it was saved and is not what it was then: it is in no snapshot.
    pub not_restored: Vec<String>,
    /// The ports of the host that it has, by its own.
    pub ports: BTreeMap<String, Vec<String>>,
    /// The snapshot of what was replaced: the way back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safety_snapshot_id: Option<SnapshotId>,
    /// What the caller should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// A volume that is what it was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct VolumeRestored {
    /// What it is called.
    pub name: String,
    /// What the one that was saved was called.
    pub from: String,
    /// Where it is mounted.
    pub mount_paths: Vec<String>,
    /// The length of its files.
    pub bytes: u64,
    /// What its tree is: it was compared after it was written.
    pub digest: TreeDigest,
}
