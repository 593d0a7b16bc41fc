//! What of a container goes with it, and what not: pure rules.

use super::mount::{ContainerMount, ContainerMountKind};
use crate::display_as_serialized;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What somebody wants saved that is not by itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CaptureWishes {
    /// Places in the container whose bind mounts are saved, too.
    pub binds: BTreeSet<String>,
    /// Whether volumes that nobody named are saved.
    pub anonymous: bool,
}

/// Why something of a container is in no snapshot of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NotCapturedBecause {
    /// It is a directory of the engine's host, which others use, too.
    Bind,
    /// It is a volume that nobody named.
    Anonymous,
    /// It is memory.
    Memory,
    /// The kernel makes it anew.
    Kernel,
    /// It is a socket, which whoever listens at it makes anew.
    Socket,
    /// It is a device.
    Device,
    /// It is something that cannot be read from outside.
    Unknown,
}

display_as_serialized!(NotCapturedBecause);

/// Something of a container that is in no snapshot of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct NotCaptured {
    /// A path in the container, or `processes`.
    pub what: String,
    /// Why.
    pub because: NotCapturedBecause,
    /// What saves it all the same, where something does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
}

impl NotCaptured {
    fn new(what: impl Into<String>, because: NotCapturedBecause) -> Self {
        Self {
            what: what.into(),
            because,
            option: None,
        }
    }

    /// An entry of a volume that has no content which could be stored.
    pub fn entry(place: impl Into<String>, because: NotCapturedBecause) -> Self {
        Self::new(place, because)
    }

    fn unless(self, option: impl Into<String>) -> Self {
        Self {
            option: Some(option.into()),
            ..self
        }
    }
}

/// Whether a mount goes with its container; why not, where it does not.
pub fn judge(mount: &ContainerMount, wishes: &CaptureWishes) -> Result<(), NotCaptured> {
    let place = &mount.destination;
    match mount.kind {
        ContainerMountKind::NamedVolume => Ok(()),
        ContainerMountKind::AnonymousVolume if wishes.anonymous => Ok(()),
        ContainerMountKind::AnonymousVolume => {
            let left = NotCaptured::new(place, NotCapturedBecause::Anonymous);
            Err(left.unless("--anonymous"))
        }
        ContainerMountKind::Bind if wishes.binds.contains(place) => Ok(()),
        ContainerMountKind::Bind => {
            let left = NotCaptured::new(place, NotCapturedBecause::Bind);
            Err(left.unless(format!("--bind {place}")))
        }
        ContainerMountKind::Tmpfs => Err(NotCaptured::new(place, NotCapturedBecause::Memory)),
        ContainerMountKind::Other => Err(NotCaptured::new(place, NotCapturedBecause::Unknown)),
    }
}

/// What no container takes along.
pub fn never_captured() -> Vec<NotCaptured> {
    let kernel = ["proc", "sys", "dev"];
    let kernel =
        kernel.map(|name| NotCaptured::new(format!("/{name}"), NotCapturedBecause::Kernel));
    let processes = NotCaptured::new("processes", NotCapturedBecause::Memory);
    kernel.into_iter().chain([processes]).collect()
}

/// Wishes that name no bind mount of a container.
pub fn unmet<'w>(wishes: &'w CaptureWishes, mounts: &[ContainerMount]) -> Option<&'w String> {
    let is_bind = |place: &&String| {
        let mut binds = mounts
            .iter()
            .filter(|one| one.kind == ContainerMountKind::Bind);
        !binds.any(|one| one.destination == **place)
    };
    wishes.binds.iter().find(is_bind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(kind: ContainerMountKind, destination: &str) -> ContainerMount {
        ContainerMount {
            kind,
            volume: None,
            source: String::new(),
            destination: destination.to_owned(),
            writable: true,
            driver: None,
        }
    }

    #[test]
    fn named_volumes_travel_and_the_others_only_when_somebody_says_so() {
        use ContainerMountKind::{AnonymousVolume, Bind, NamedVolume, Other, Tmpfs};
        let none = CaptureWishes::default();
        let all = CaptureWishes {
            binds: BTreeSet::from(["/srv".to_owned()]),
            anonymous: true,
        };
        let of = |kind, wishes: &CaptureWishes| {
            let judged = judge(&mount(kind, "/srv"), wishes);
            judged.map_err(|left| (left.because, left.option))
        };

        assert_eq!(of(NamedVolume, &none), Ok(()));
        assert_eq!(of(AnonymousVolume, &all), Ok(()));
        assert_eq!(of(Bind, &all), Ok(()));
        let option = Some("--bind /srv".to_owned());
        assert_eq!(of(Bind, &none), Err((NotCapturedBecause::Bind, option)));
        let option = Some("--anonymous".to_owned());
        let anonymous = Err((NotCapturedBecause::Anonymous, option));
        assert_eq!(of(AnonymousVolume, &none), anonymous);
        assert_eq!(of(Tmpfs, &all), Err((NotCapturedBecause::Memory, None)));
        assert_eq!(of(Other, &all), Err((NotCapturedBecause::Unknown, None)));
    }

    #[test]
    fn a_bind_that_is_none_is_found() {
        let wishes = CaptureWishes {
            binds: BTreeSet::from(["/data".to_owned(), "/srv".to_owned()]),
            anonymous: false,
        };
        let mounts = [
            mount(ContainerMountKind::Bind, "/srv"),
            mount(ContainerMountKind::NamedVolume, "/data"),
        ];

        assert_eq!(unmet(&wishes, &mounts), Some(&"/data".to_owned()));
        assert_eq!(unmet(&CaptureWishes::default(), &mounts), None);
    }
}
