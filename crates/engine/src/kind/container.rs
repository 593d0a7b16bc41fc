//! Containers of a Docker engine, with their volumes.
//!
//! What a snapshot of one would have, and what not, is said before there is one (`validate`). Nothing here pauses, stops or changes a
//! container.

mod mounts;
mod validate;

pub use mounts::{CaptureWishes, NotCaptured, NotCapturedBecause};
pub use stasis_quiesce::docker::Docker;
pub use validate::{ContainerValidated, MountValidated, validate};
