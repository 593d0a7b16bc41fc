//! The snapshots of containers, and everything that is known of one.

use super::ContainerHost;
use super::create::VolumeSaved;
use super::diff::MASKED;
use super::find::{FoundContainer, FoundContainers, FoundSnapshot, typed};
use super::image::SNAPSHOT_LABEL;
use crate::catalog::references::is_damage;
use crate::error::{Error, error_chain};
use crate::handle::Containers;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use stasis_model::container::capture::NotCaptured;
use stasis_model::container::mount::ContainerMount;
use stasis_model::container::trigger::SnapshotTrigger;
use stasis_model::format::manifest::{
    CapturedVolume, ContainerManifest, Indexed, SaveReason, SnapshotManifest, VolumeManifest,
};
use stasis_model::id::{ContainerSubject, Label, SnapshotId, TenantId};
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_store::documents::containers::restorations;
use std::collections::{BTreeMap, BTreeSet};

/// Whether a container can be made of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContainerSnapshotStatus {
    /// Its image is on the engine, or its layers are in the store.
    Complete,
    /// Its image is gone, and the store has not its layers.
    Broken,
    /// Its image is on another engine than the one that was asked.
    Elsewhere,
    /// The engine that should have its image does not answer.
    Unknown,
}

stasis_model::display_as_serialized!(ContainerSnapshotStatus);

/// One snapshot of a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ContainerSnapshotRow {
    /// Which.
    pub snapshot_id: SnapshotId,
    /// Of which subject, as it is typed.
    pub subject: String,
    /// What the container was called.
    pub container_name: String,
    /// Its whole id.
    pub container_id: String,
    /// The image that was made of it.
    pub image: String,
    /// What its own image was called.
    pub original_image: String,
    /// What made somebody save it.
    pub trigger: SnapshotTrigger,
    /// What the save was made for: `before-restore` is what a restore replaced.
    pub reason: SaveReason,
    /// Words of the user's.
    pub description: Label,
    /// The run of an agent that it belongs to.
    pub run_id: Option<Label>,
    /// What the agent was about to do, or had done.
    pub action_context: Option<Label>,
    /// When it was made.
    pub created_at: String,
    /// The same in milliseconds.
    pub created_at_ms: u64,
    /// Whether a container can be made of it.
    pub status: ContainerSnapshotStatus,
    /// The bytes of its volumes, and those of its image that the container's own image does not have.
    pub size_bytes: u64,
    /// Labels.
    pub labels: BTreeMap<String, Label>,
    /// Whether any engine can run it.
    pub portable: bool,
    /// Whether it is kept whatever the limits say.
    pub pinned: bool,
    /// Whether `latest` means it.
    pub is_latest: bool,
    /// The snapshot before it.
    pub parent: Option<SnapshotId>,
}

/// The snapshots of containers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ContainerSnapshots {
    /// One row for each, the newest first.
    pub items: Vec<ContainerSnapshotRow>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Why the engine could not be asked for images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_error: Option<String>,
}

/// A container that was made of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RestorationRow {
    /// Its whole id.
    pub container_id: String,
    /// What it was called then.
    pub container_name: String,
    /// When.
    pub at: String,
}

/// Everything that is known of a snapshot of a container. Values of the environment are not in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ContainerSnapshotShown {
    /// What a list has of it.
    #[serde(flatten)]
    pub row: ContainerSnapshotRow,
    /// The id of its image.
    pub image_id: String,
    /// How many bytes all layers of that have.
    pub image_bytes: u64,
    /// How many those are.
    pub image_layers: u64,
    /// What the container did.
    pub container_status: String,
    /// `Config`, with masked values of the environment.
    pub config: Value,
    /// `HostConfig`.
    pub host_config: Value,
    /// `NetworkSettings.Networks`.
    pub networks: Value,
    /// Everything that was mounted in it.
    pub mounts: Vec<ContainerMount>,
    /// What of that is in the snapshot.
    pub volumes: Vec<VolumeSaved>,
    /// What is not.
    pub not_captured: Vec<NotCaptured>,
    /// The containers that were made of it.
    pub restorations: Vec<RestorationRow>,
}

/// Which images an engine has of the snapshots of this store.
pub(super) enum KnownImages {
    /// Those, by what they are called, of the engine with these digits.
    Of {
        digits: String,
        names: BTreeSet<String>,
        ids: BTreeSet<String>,
    },
    /// It does not answer.
    Unknown(String),
}

impl KnownImages {
    /// Asks an engine. That it does not answer is no reason to list nothing.
    pub(super) async fn ask(host: &ContainerHost) -> Self {
        let asked = async {
            let seen = host.look().await?;
            let images = seen.docker.images_labelled(SNAPSHOT_LABEL).await?;
            Ok::<_, Error>((seen.digits, images))
        };
        match asked.await {
            Ok((digits, images)) => Self::Of {
                digits,
                ids: images.iter().map(|one| one.id.clone()).collect(),
                names: images.into_iter().flat_map(|one| one.tags).collect(),
            },
            Err(error) => Self::Unknown(error_chain(&error)),
        }
    }

    fn status(&self, of: &ContainerManifest) -> ContainerSnapshotStatus {
        if of.image.is_portable {
            return ContainerSnapshotStatus::Complete;
        }
        match self {
            Self::Of { digits, .. } if *digits != of.engine => ContainerSnapshotStatus::Elsewhere,
            Self::Of { names, ids, .. }
                if names.contains(&of.image.name) || ids.contains(&of.image.id) =>
            {
                ContainerSnapshotStatus::Complete
            }
            Self::Of { .. } => ContainerSnapshotStatus::Broken,
            Self::Unknown(_) => ContainerSnapshotStatus::Unknown,
        }
    }

    fn error(&self) -> Option<String> {
        match self {
            Self::Unknown(why) => Some(why.clone()),
            Self::Of { .. } => None,
        }
    }
}

impl VolumeSaved {
    /// A volume as its snapshot has it.
    pub(super) fn new(one: &CapturedVolume, measured: &VolumeManifest) -> Self {
        Self {
            name: one.name.clone(),
            kind: one.kind,
            driver: one.driver.clone(),
            options: masked(&one.options),
            labels: one.labels.clone(),
            mount_paths: one.destinations.clone(),
            path: one.path.clone(),
            bytes: measured.size,
            digest: measured.digest,
        }
    }
}

/// Options of a volume without passwords: those of a network file system stand among them.
fn masked(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mask = |part: &str| match part.split_once('=') {
        Some((name, _)) if name.to_lowercase().contains("pass") => format!("{name}={MASKED}"),
        _ => part.to_owned(),
    };
    let rows = options.iter().map(|(name, value)| {
        let parts: Vec<String> = value.split(',').map(mask).collect();
        let is_secret = name.to_lowercase().contains("pass");
        let value = if is_secret {
            MASKED.to_owned()
        } else {
            parts.join(",")
        };
        (name.clone(), value)
    });
    rows.collect()
}

/// The volumes of a snapshot, as far as it has them.
pub(super) fn volumes_of(
    manifest: &SnapshotManifest,
    container: &ContainerManifest,
) -> Vec<VolumeSaved> {
    let rows = container.volumes.iter().filter_map(|one| {
        let measured = manifest.volume_manifests.get(&one.path)?;
        Some(VolumeSaved::new(one, measured))
    });
    rows.collect()
}

impl Containers<'_> {
    /// The snapshots of a tenant's containers, or of one of them.
    pub async fn list(
        self,
        host: &ContainerHost,
        container: Option<&str>,
    ) -> Result<ContainerSnapshots, Error> {
        let images = KnownImages::ask(host).await;
        let container = host.name_of(container).await;
        let all = match container.as_deref() {
            Some(name) => {
                let here = images.digits();
                FoundContainers {
                    readable: vec![self.called(&host.tenant, name, here).await?],
                    unreadable: Vec::new(),
                }
            }
            None => self.found(Some(&host.tenant)).await?,
        };
        let mut listed = ContainerSnapshots {
            items: Vec::new(),
            unreadable: all.unreadable_lines(),
            engine_error: images.error(),
        };
        for one in &all.readable {
            for indexed in one.index.finished() {
                match one.row(indexed, &images).await {
                    Ok(row) => listed.items.push(row),
                    Err(error) if is_damage(&error) => {
                        let why = error_chain(&error);
                        listed.unreadable.push(format!("{}: {why}", indexed.id));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        listed
            .items
            .sort_by_key(|one| std::cmp::Reverse(one.created_at_ms));
        Ok(listed)
    }

    /// Everything that is known of one snapshot.
    pub async fn show(
        self,
        host: &ContainerHost,
        wanted: &SnapshotRef,
        container: Option<&str>,
    ) -> Result<ContainerSnapshotShown, Error> {
        let tenant = &host.tenant;
        let images = KnownImages::ask(host).await;
        let here = images.digits();
        let container = host.name_of(container).await;
        let of = container.as_deref();
        let found = self.snapshot(tenant, wanted, of, here).await?;
        Ok(found.shown(&images, self.restorations_of(&found).await?))
    }

    /// The containers that were made of a snapshot.
    pub(super) async fn restorations_of(
        self,
        found: &FoundSnapshot,
    ) -> Result<Vec<RestorationRow>, Error> {
        let root = found.of.root();
        let made = restorations(&*self.bucket, root.layout(), &found.id).await?;
        let rows = made.into_iter().map(|one| RestorationRow {
            container_id: one.container_id,
            container_name: one.container_name,
            at: one.at_ms.to_string(),
        });
        Ok(rows.collect())
    }

    /// The containers of which a tenant, or anybody, has snapshots, with their indexes.
    pub(crate) async fn subjects(
        self,
        named: Vec<(TenantId, ContainerSubject)>,
    ) -> Result<Vec<ContainerSubjectRow>, Error> {
        let all = self.found_of(named).await?;
        let readable = all.readable.into_iter().map(|one| ContainerSubjectRow {
            subject: typed(&one.subject),
            tenant: one.tenant,
            snapshots: one.index.finished().count() as u64,
            bytes: one.index.finished().map(|one| one.bytes).sum(),
            newest: one.index.finished().max_by_key(|one| one.at_ms).cloned(),
            engine: one.engine,
            error: None,
        });
        let unreadable = all.unreadable.into_iter().map(|one| ContainerSubjectRow {
            subject: typed(&one.subject),
            tenant: one.tenant,
            snapshots: 0,
            bytes: 0,
            newest: None,
            engine: one.engine,
            error: Some(one.error),
        });
        Ok(readable.chain(unreadable).collect())
    }
}

/// A container of which there are snapshots, for a list of all subjects.
pub(crate) struct ContainerSubjectRow {
    pub(crate) subject: String,
    pub(crate) tenant: TenantId,
    pub(crate) snapshots: u64,
    /// The length of all files of all of them.
    pub(crate) bytes: u64,
    pub(crate) newest: Option<Indexed>,
    pub(crate) engine: crate::open::Engine,
    /// Why nothing else of it is known.
    pub(crate) error: Option<Error>,
}

impl KnownImages {
    /// The engine that was asked, if it answered.
    pub(super) fn digits(&self) -> Option<&str> {
        match self {
            Self::Of { digits, .. } => Some(digits),
            Self::Unknown(_) => None,
        }
    }
}

impl FoundContainer {
    pub(super) async fn row(
        &self,
        indexed: &Indexed,
        images: &KnownImages,
    ) -> Result<ContainerSnapshotRow, Error> {
        let opened = self.open(&indexed.id).await?;
        let Some(container) = &opened.manifest.container else {
            return Err(Error::LostManifest(indexed.id.clone()));
        };
        Ok(self.row_of(indexed, &opened.manifest, container, images))
    }

    fn row_of(
        &self,
        indexed: &Indexed,
        manifest: &SnapshotManifest,
        container: &ContainerManifest,
        images: &KnownImages,
    ) -> ContainerSnapshotRow {
        let volumes = volumes_of(manifest, container);
        let bytes: u64 = volumes.iter().map(|one| one.bytes).sum();
        ContainerSnapshotRow {
            snapshot_id: indexed.id.clone(),
            subject: typed(&self.subject),
            container_name: container.container_name.clone(),
            container_id: container.container_id.clone(),
            image: container.image.name.clone(),
            original_image: container.original_image.clone(),
            trigger: container.trigger,
            reason: indexed.reason,
            description: container.description.clone(),
            run_id: container.run_id.clone(),
            action_context: container.action_context.clone(),
            created_at: indexed.at_ms.to_string(),
            created_at_ms: indexed.at_ms.millis(),
            status: images.status(container),
            size_bytes: bytes + container.image.own_bytes,
            labels: indexed.labels.clone(),
            portable: container.image.is_portable,
            pinned: indexed.pinned,
            is_latest: self.index.is_active(&indexed.id),
            parent: manifest.parent_snapshot_id.clone(),
        }
    }
}

impl FoundSnapshot {
    pub(super) fn shown(
        &self,
        images: &KnownImages,
        restorations: Vec<RestorationRow>,
    ) -> ContainerSnapshotShown {
        let (container, manifest) = (&self.container, &self.opened.manifest);
        let indexed = self.of.index.find(&self.id).cloned();
        let indexed = indexed.unwrap_or_else(|| {
            let digest = stasis_model::digest::ManifestDigest::of(b"");
            Indexed::new(manifest, digest)
        });
        let masked = container.environment.iter();
        let masked = masked.map(|name| format!("{name}=********")).collect();
        ContainerSnapshotShown {
            row: self.of.row_of(&indexed, manifest, container, images),
            image_id: container.image.id.clone(),
            image_bytes: container.image.size_bytes,
            image_layers: container.image.layers.len() as u64,
            container_status: container.container_status.to_string(),
            config: container.whole_config(&masked),
            host_config: container.host_config.clone(),
            networks: container.networks.clone(),
            mounts: container.mounts.clone(),
            volumes: volumes_of(manifest, container),
            not_captured: container.not_captured.clone(),
            restorations,
        }
    }
}
