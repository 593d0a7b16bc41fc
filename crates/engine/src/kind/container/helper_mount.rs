//! What is mounted in a container that is made to read or write volumes, and never started.

use super::failure;
use crate::error::{Error, ErrorKind};
use stasis_model::container::mount::ContainerMountKind;
use stasis_model::format::manifest::CapturedVolume;

/// One such mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HelperMount {
    /// The volume, or the path on the engine's host.
    pub(super) source: String,
    /// Where.
    pub(super) destination: String,
    /// Whether it is a path on the host.
    pub(super) is_bind: bool,
}

impl HelperMount {
    /// A volume of a snapshot, or another one in its place, where that was mounted.
    pub(super) fn of(volume: &CapturedVolume, name: &str) -> Result<Self, Error> {
        let destination = volume.destinations.first().cloned().ok_or_else(|| {
            let said = format!("the volume `{}` was mounted nowhere", volume.name);
            Error::from(failure(ErrorKind::Corrupt, said))
        })?;
        Ok(Self {
            source: name.to_owned(),
            destination,
            is_bind: volume.kind == ContainerMountKind::Bind && volume.name == name,
        })
    }
}
