//! What is mounted in a container that is made to read or write volumes, and never started.

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
    /// A volume of a snapshot, or another one in its place: not where that was mounted, where another one may be mounted in it.
    pub(super) fn of(volume: &CapturedVolume, name: &str, number: usize) -> Self {
        Self {
            source: name.to_owned(),
            destination: format!("/.stasis-volume-{number}"),
            is_bind: volume.kind == ContainerMountKind::Bind && volume.name == name,
        }
    }
}
