//! What is mounted in a container.

use crate::display_as_serialized;
use serde::{Deserialize, Serialize};

/// What a mount is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ContainerMountKind {
    /// A volume that somebody named.
    NamedVolume,
    /// A volume that the engine named, because the image or the container wants one.
    AnonymousVolume,
    /// A path of the engine's host.
    Bind,
    /// Memory.
    Tmpfs,
    /// Anything else, say a volume of a cluster.
    Other,
}

/// One mount of a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContainerMount {
    /// What it is.
    pub kind: ContainerMountKind,
    /// The name of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The path on the engine's host; empty for memory.
    pub source: String,
    /// The path in the container.
    pub destination: String,
    /// Whether the container may write there.
    pub writable: bool,
    /// What keeps the volume, as in `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

display_as_serialized!(ContainerMountKind);
