//! What is mounted in a container.

use bollard::models::{HostConfig, MountPoint};
use serde::{Deserialize, Serialize};

/// What a mount is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

impl ContainerMount {
    fn of(point: MountPoint) -> Self {
        let volume = point.name.filter(|name| !name.is_empty());
        let anonymous = volume.as_deref().is_some_and(is_anonymous);
        Self {
            kind: match point.typ.as_deref() {
                Some("volume") if anonymous => ContainerMountKind::AnonymousVolume,
                Some("volume") => ContainerMountKind::NamedVolume,
                Some("bind") => ContainerMountKind::Bind,
                Some("tmpfs") => ContainerMountKind::Tmpfs,
                _ => ContainerMountKind::Other,
            },
            volume,
            source: point.source.unwrap_or_default(),
            destination: point.destination.unwrap_or_default(),
            writable: point.rw.unwrap_or(true),
            driver: point.driver.filter(|driver| !driver.is_empty()),
        }
    }
}

/// All mounts, by their place in the container. The engine lists some of those that are memory only in the configuration.
pub(super) fn mounts(points: Vec<MountPoint>, host: &HostConfig) -> Vec<ContainerMount> {
    let mut all: Vec<ContainerMount> = points.into_iter().map(ContainerMount::of).collect();
    for (destination, options) in host.tmpfs.iter().flatten() {
        if !all.iter().any(|mount| mount.destination == *destination) {
            all.push(ContainerMount {
                kind: ContainerMountKind::Tmpfs,
                volume: None,
                source: String::new(),
                destination: destination.clone(),
                writable: !options.split(',').any(|option| option == "ro"),
                driver: None,
            });
        }
    }
    all.sort_by(|one, other| one.destination.cmp(&other.destination));
    all
}

/// The engine gives 64 random hexadecimal digits to a volume that nobody named.
fn is_anonymous(name: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.len() == 64 && name.bytes().all(digit)
}
