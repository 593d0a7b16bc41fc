//! What is mounted in a container, as the engine says it.

use bollard::models::{HostConfig, MountPoint};
pub use stasis_model::container::mount::{ContainerMount, ContainerMountKind};

fn mount(point: MountPoint) -> ContainerMount {
    let volume = point.name.filter(|name| !name.is_empty());
    let anonymous = volume.as_deref().is_some_and(is_anonymous);
    ContainerMount {
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

/// All mounts, by their place in the container. The engine lists some of those that are memory only in the configuration.
pub(super) fn mounts(points: Vec<MountPoint>, host: &HostConfig) -> Vec<ContainerMount> {
    let mut all: Vec<ContainerMount> = points.into_iter().map(mount).collect();
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
