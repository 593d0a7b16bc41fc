//! Containers as they are: described, listed, and compared with their image.

use super::client::Docker;
use super::error::{CallError, present};
use super::mount::{ContainerMount, mounts};
use super::pausing::check_container_name;
use bollard::models::{ChangeType, ContainerInspectResponse, ContainerSummary};
use bollard::query_parameters::ListContainersOptionsBuilder;
use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use stasis_model::container::status::ContainerStatus;
use stasis_model::failure::{ErrorKind, Failure};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

/// A container, with all that is needed to make the same one again.
///
/// The three configurations are as the engine gives them, less what API 1.53 does not know any more (`KernelMemory`).
/// Environment values can be secrets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ContainerFacts {
    /// Its whole id, which is never used again.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it does.
    pub status: ContainerStatus,
    /// When it was made, as the engine writes it.
    pub created: String,
    /// When it was last started, as the engine writes it.
    pub started: String,
    /// Its first process on the engine's host, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How it ended, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The id of its image.
    pub image_id: String,
    /// What the image was called when it was made.
    pub image: String,
    /// `Config`: environment, command, entrypoint, user, working directory, labels, health check.
    pub config: Value,
    /// `HostConfig`: ports, restart policy, binds, capabilities, resources.
    pub host_config: Value,
    /// `NetworkSettings.Networks`.
    pub networks: Value,
    /// `NetworkSettings.Ports`: the ports of the host that it has, while it runs.
    #[serde(default)]
    pub ports: Value,
    /// What is mounted in it, by destination.
    pub mounts: Vec<ContainerMount>,
    /// Where everything lies on the engine's host that it wrote outside of its mounts, if the engine says that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_files: Option<PathBuf>,
}

impl ContainerFacts {
    /// How long it says that it may take to end.
    pub fn stop_timeout(&self) -> Option<Duration> {
        let seconds = self.config["StopTimeout"].as_u64();
        seconds.map(Duration::from_secs)
    }

    fn of(found: ContainerInspectResponse) -> Result<Self, CallError> {
        let strange = |_| Failure::of(ErrorKind::Bug, "the engine's answer cannot be written down");
        let state = found.state.unwrap_or_default();
        let host = found.host_config.unwrap_or_default();
        let config = found.config.unwrap_or_default();
        let status = state.status.map(|status| status.to_string());
        let status = ContainerStatus::of(&status.unwrap_or_default());
        let pid = state.pid.and_then(|pid| u32::try_from(pid).ok());
        let (networks, ports) = found
            .network_settings
            .map_or((None, None), |settings| (settings.networks, settings.ports));
        let name = found.name.unwrap_or_default();
        let layers = found.graph_driver.map(|driver| driver.data);
        let own_files = layers.and_then(|mut data| data.remove("UpperDir"));
        Ok(Self {
            own_files: own_files.map(PathBuf::from),
            id: found.id.unwrap_or_default(),
            name: name.trim_start_matches('/').to_owned(),
            created: found.created.unwrap_or_default(),
            started: state.started_at.unwrap_or_default(),
            pid: pid.filter(|pid| *pid > 0),
            exit_code: state
                .exit_code
                .filter(|_| status == ContainerStatus::Exited),
            status,
            image_id: found.image.unwrap_or_default(),
            image: config.image.clone().unwrap_or_default(),
            config: serde_json::to_value(&config).map_err(strange)?,
            mounts: mounts(found.mounts.unwrap_or_default(), &host),
            host_config: serde_json::to_value(&host).map_err(strange)?,
            networks: serde_json::to_value(networks.unwrap_or_default()).map_err(strange)?,
            ports: serde_json::to_value(ports.unwrap_or_default()).map_err(strange)?,
        })
    }
}

/// A container in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say what they mean")]
pub struct ListedContainer {
    pub id: String,
    pub name: String,
    pub status: ContainerStatus,
    pub image_id: String,
    pub labels: BTreeMap<String, String>,
}

impl ListedContainer {
    fn of(listed: ContainerSummary) -> Self {
        let name = listed.names.unwrap_or_default().into_iter().next();
        let state = listed.state.map(|state| state.to_string());
        Self {
            id: listed.id.unwrap_or_default(),
            name: name.unwrap_or_default().trim_start_matches('/').to_owned(),
            status: ContainerStatus::of(&state.unwrap_or_default()),
            image_id: listed.image_id.unwrap_or_default(),
            labels: listed.labels.unwrap_or_default().into_iter().collect(),
        }
    }
}

/// How a path of a container differs from its image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum ContainerFileChangeKind {
    Modified,
    Added,
    Deleted,
}

/// A path of a container that differs from its image, as `docker diff` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say what they mean")]
pub struct ContainerFileChange {
    pub path: String,
    pub kind: ContainerFileChangeKind,
}

/// The filter for what has a label: `name`, or `name=value`.
pub(super) fn labelled(label: &str) -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_owned(), vec![label.to_owned()])])
}

impl Docker {
    /// Describes a container by its name or id, or `None` when the engine knows none.
    pub async fn container(&self, name: &str) -> Result<Option<ContainerFacts>, Failure> {
        self.ask("inspect container", name, async |client| {
            check_container_name(name)?;
            let found = present(client.inspect_container(name, None).await)?;
            found.map(ContainerFacts::of).transpose()
        })
        .await
    }

    /// Lists the containers, also those that do not run, with a label: `name`, or `name=value`.
    pub async fn containers_labelled(&self, label: &str) -> Result<Vec<ListedContainer>, Failure> {
        self.ask("list the containers with label", label, async |client| {
            let options = ListContainersOptionsBuilder::new()
                .all(true)
                .filters(&labelled(label));
            let listed = client.list_containers(Some(options.build())).await?;
            Ok(listed.into_iter().map(ListedContainer::of).collect())
        })
        .await
    }

    /// Lists the containers that run, or stand still.
    pub async fn running_containers(&self) -> Result<Vec<ListedContainer>, Failure> {
        self.ask(
            "list the containers of",
            self.host().display(),
            async |client| {
                let options = ListContainersOptionsBuilder::new().all(false);
                let listed = client.list_containers(Some(options.build())).await?;
                Ok(listed.into_iter().map(ListedContainer::of).collect())
            },
        )
        .await
    }

    /// Lists the containers that have a volume, whether they run or not.
    pub async fn containers_with_volume(
        &self,
        volume: &str,
    ) -> Result<Vec<ListedContainer>, Failure> {
        self.ask("list the containers with volume", volume, async |client| {
            let filter = HashMap::from([("volume".to_owned(), vec![volume.to_owned()])]);
            let options = ListContainersOptionsBuilder::new()
                .all(true)
                .filters(&filter);
            let listed = client.list_containers(Some(options.build())).await?;
            Ok(listed.into_iter().map(ListedContainer::of).collect())
        })
        .await
    }

    /// Lists what differs in a container from its image; volumes are not looked at.
    pub async fn changes(&self, container: &str) -> Result<Vec<ContainerFileChange>, Failure> {
        self.work("list the changes in container", container, async |client| {
            check_container_name(container)?;
            let changes = client.container_changes(container).await?;
            let changes = changes.unwrap_or_default().into_iter();
            Ok(changes
                .map(|change| ContainerFileChange {
                    path: change.path,
                    kind: match change.kind {
                        ChangeType::_0 => ContainerFileChangeKind::Modified,
                        ChangeType::_1 => ContainerFileChangeKind::Added,
                        ChangeType::_2 => ContainerFileChangeKind::Deleted,
                    },
                })
                .collect())
        })
        .await
    }
}
