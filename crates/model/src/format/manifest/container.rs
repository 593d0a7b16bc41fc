//! What a snapshot says of the container that it is of.
//!
//! The values of environment variables are not in here: they may be secrets, and lie in a file of the tree that only its owner reads.

use crate::container::capture::NotCaptured;
use crate::container::mount::{ContainerMount, ContainerMountKind};
use crate::container::status::ContainerStatus;
use crate::container::trigger::SnapshotTrigger;
use crate::id::Label;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The file of the tree that has the values of environment variables, as a list of `NAME=VALUE`.
pub const ENVIRONMENT_FILE: &str = "environment.json";
/// The directory of the tree in which volumes lie, by name.
pub const VOLUMES: &str = "volumes";
/// The same of directories of the engine's host.
pub const BINDS: &str = "binds";

/// A container, as far as it is not in its tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerManifest {
    /// The engine, by the digits that tell it from others.
    pub engine: String,
    /// Its whole id.
    pub container_id: String,
    /// What it was called.
    pub container_name: String,
    /// What it did.
    pub container_status: ContainerStatus,
    /// What made somebody take the snapshot.
    pub trigger: SnapshotTrigger,
    /// Words of the user's.
    #[serde(default)]
    pub description: Label,
    /// The run of an agent that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Label>,
    /// What the agent was about to do, or had done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_context: Option<Label>,
    /// The image that was made of it.
    pub image: SnapshotImage,
    /// What its own image was called when it was made.
    pub original_image: String,
    /// The id of that.
    pub original_image_id: String,
    /// `Config`, without the environment.
    pub config: Value,
    /// `HostConfig`.
    pub host_config: Value,
    /// `NetworkSettings.Networks`.
    pub networks: Value,
    /// The names of its environment variables; their values are in [`ENVIRONMENT_FILE`].
    #[serde(default)]
    pub environment: Vec<String>,
    /// Everything that was mounted in it.
    #[serde(default)]
    pub mounts: Vec<ContainerMount>,
    /// What of that is in the tree.
    #[serde(default)]
    pub volumes: Vec<CapturedVolume>,
    /// What is not in the snapshot.
    #[serde(default)]
    pub not_captured: Vec<NotCaptured>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// The image that a snapshot has of a container's own files.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotImage {
    /// What it is called.
    pub name: String,
    /// Its id.
    pub id: String,
    /// The digests of its layers, the lowest first.
    pub layers: Vec<String>,
    /// How many bytes all of them have.
    pub size_bytes: u64,
    /// How many of them the container's own image does not have.
    pub own_bytes: u64,
    /// Whether the store has its layers, too, so that any engine can run it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_portable: bool,
}

/// A volume, or a directory of the engine's host, that is in the tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CapturedVolume {
    /// The name of the volume; of a bind, the path on the engine's host.
    pub name: String,
    /// What it is.
    pub kind: ContainerMountKind,
    /// Where it lies in the tree.
    pub path: String,
    /// What keeps it.
    pub driver: String,
    /// How.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Where it was mounted in the container.
    pub destinations: Vec<String>,
}

/// What is known of a container before its snapshot is made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "as in the manifest")]
pub struct NewContainerManifest {
    pub engine: String,
    pub container_id: String,
    pub container_name: String,
    pub container_status: ContainerStatus,
    pub original_image: String,
    pub original_image_id: String,
    pub config: Value,
    pub host_config: Value,
    pub networks: Value,
    pub mounts: Vec<ContainerMount>,
    pub volumes: Vec<CapturedVolume>,
    pub not_captured: Vec<NotCaptured>,
}

/// A container's environment, as `Config` has it.
pub type Environment = Vec<String>;

impl ContainerManifest {
    /// What is said of a container whose image is still to be made, and its environment, which is kept elsewhere.
    pub fn new(facts: NewContainerManifest) -> (Self, Environment) {
        let mut config = facts.config;
        let environment = config.as_object_mut().and_then(|all| all.remove("Env"));
        let environment: Environment =
            serde_json::from_value(environment.unwrap_or_default()).unwrap_or_default();
        let name = |variable: &String| {
            let name = variable.split('=').next();
            name.unwrap_or_default().to_owned()
        };
        let manifest = Self {
            engine: facts.engine,
            container_id: facts.container_id,
            container_name: facts.container_name,
            container_status: facts.container_status,
            trigger: SnapshotTrigger::default(),
            description: Label::default(),
            run_id: None,
            action_context: None,
            image: SnapshotImage::default(),
            original_image: facts.original_image,
            original_image_id: facts.original_image_id,
            config,
            host_config: facts.host_config,
            networks: facts.networks,
            environment: environment.iter().map(name).collect(),
            mounts: facts.mounts,
            volumes: facts.volumes,
            not_captured: facts.not_captured,
            extra: Map::new(),
        };
        (manifest, environment)
    }

    /// `Config` as it was, with its environment.
    pub fn whole_config(&self, environment: &Environment) -> Value {
        let mut config = self.config.clone();
        if let Some(config) = config.as_object_mut() {
            config.insert("Env".to_owned(), environment.clone().into());
        }
        config
    }
}

/// Where a volume lies in the tree.
pub fn volume_path(volume: &str) -> String {
    format!("{VOLUMES}/{volume}")
}

/// Where a directory of the host lies in the tree, by its place in the container.
pub fn bind_path(destination: &str) -> String {
    let name = destination.trim_matches('/').replace('%', "%25");
    format!("{BINDS}/{}", name.replace('/', "%2F"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts() -> NewContainerManifest {
        NewContainerManifest {
            engine: "0123456789ab".to_owned(),
            container_id: "c0".to_owned(),
            container_name: "web".to_owned(),
            container_status: ContainerStatus::Running,
            original_image: "nginx".to_owned(),
            original_image_id: "sha256:1".to_owned(),
            config: json!({"Env": ["A=secret=1", "B="], "Cmd": ["run"]}),
            host_config: json!({}),
            networks: json!({}),
            mounts: Vec::new(),
            volumes: Vec::new(),
            not_captured: Vec::new(),
        }
    }

    #[test]
    fn values_of_the_environment_are_kept_apart_and_come_back() {
        let (manifest, environment) = ContainerManifest::new(facts());

        let stored = serde_json::to_string(&manifest).unwrap();
        assert!(!stored.contains("secret"), "{stored}");
        assert_eq!(manifest.environment, ["A", "B"]);
        assert_eq!(manifest.whole_config(&environment), facts().config);
        let read: ContainerManifest = serde_json::from_str(&stored).unwrap();
        assert_eq!(read, manifest);
    }

    #[test]
    fn two_places_never_meet_in_one_path() {
        let places = ["/srv/www", "/srv%2Fwww", "/srv", "/srv/"];
        let paths = places.map(bind_path);
        assert_eq!(paths[0], "binds/srv%2Fwww");
        assert_eq!(paths[1], "binds/srv%252Fwww");
        assert_eq!(paths[2], paths[3]);
    }
}
