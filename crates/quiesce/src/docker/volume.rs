//! Volumes.

use super::client::Docker;
use super::container::labelled;
use super::error::present;
use super::pausing::check_container_name;
use bollard::models::{Volume, VolumeCreateRequest};
use bollard::query_parameters::{ListVolumesOptionsBuilder, RemoveVolumeOptionsBuilder};
use serde::{Deserialize, Serialize};
use stasis_model::failure::Failure;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A volume as it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DockerVolume {
    /// Its name.
    pub name: String,
    /// What keeps it, as in `local`.
    pub driver: String,
    /// What the driver was told.
    pub options: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Where its files are on the engine's host, if the driver says so.
    pub mountpoint: PathBuf,
    /// When it was made, as the engine writes it.
    pub created: String,
}

impl DockerVolume {
    fn of(volume: Volume) -> Self {
        Self {
            name: volume.name,
            driver: volume.driver,
            options: volume.options.into_iter().collect(),
            labels: volume.labels.into_iter().collect(),
            mountpoint: volume.mountpoint.into(),
            created: volume.created_at.unwrap_or_default(),
        }
    }
}

/// A volume to be made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeCreation {
    /// Its name.
    pub name: String,
    /// What keeps it; `local` if it is empty.
    pub driver: String,
    /// What the driver is told.
    pub options: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl VolumeCreation {
    /// An empty volume of the local driver.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }
}

impl Docker {
    /// Describes a volume, or `None` when the engine knows none.
    pub async fn volume(&self, name: &str) -> Result<Option<DockerVolume>, Failure> {
        self.ask("inspect volume", name, async |client| {
            check_container_name(name)?;
            let found = present(client.inspect_volume(name).await)?;
            Ok(found.map(DockerVolume::of))
        })
        .await
    }

    /// Lists the volumes with a label: `name`, or `name=value`.
    pub async fn volumes_labelled(&self, label: &str) -> Result<Vec<DockerVolume>, Failure> {
        self.ask("list the volumes with label", label, async |client| {
            let options = ListVolumesOptionsBuilder::new().filters(&labelled(label));
            let listed = client.list_volumes(Some(options.build())).await?;
            let volumes = listed.volumes.unwrap_or_default().into_iter();
            Ok(volumes.map(DockerVolume::of).collect())
        })
        .await
    }

    /// Makes a volume.
    ///
    /// The engine returns a volume of that name if there is one, whatever its options are: whoever needs an empty one looks
    /// before with [`Docker::volume`], and compares what this returns with what it asked for.
    pub async fn create_volume(&self, wanted: &VolumeCreation) -> Result<DockerVolume, Failure> {
        self.ask("create volume", &wanted.name, async |client| {
            check_container_name(&wanted.name)?;
            let local = || "local".to_owned();
            let driver = Some(wanted.driver.clone()).filter(|driver| !driver.is_empty());
            let request = VolumeCreateRequest {
                name: Some(wanted.name.clone()),
                driver: Some(driver.unwrap_or_else(local)),
                driver_opts: Some(wanted.options.clone().into_iter().collect()),
                labels: Some(wanted.labels.clone().into_iter().collect()),
                cluster_volume_spec: None,
            };
            Ok(DockerVolume::of(client.create_volume(request).await?))
        })
        .await
    }

    /// Removes a volume with its files; says whether there was one. One that a container uses is a conflict.
    pub async fn remove_volume(&self, name: &str) -> Result<bool, Failure> {
        self.work("remove volume", name, async |client| {
            check_container_name(name)?;
            let options = RemoveVolumeOptionsBuilder::new().force(false).build();
            Ok(present(client.remove_volume(name, Some(options)).await)?.is_some())
        })
        .await
    }
}
