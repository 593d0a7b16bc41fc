//! Containers, over the API of the Docker Engine: looked at, paused, committed, made and removed. Never by another program.
//!
//! | file | what it does |
//! |---|---|
//! | `address.rs` | where a daemon listens: `unix://` and `tcp://` |
//! | `client.rs` | one question to a daemon: its API version, its time limit |
//! | `error.rs` | what a daemon answered, as a [`Failure`](stasis_model::failure::Failure) |
//! | `pausing.rs`, `pending.rs` | look, pause and unpause for threads that may not wait for long |
//! | `engine.rs`, `container.rs`, `mount.rs`, `image.rs`, `volume.rs`, `network.rs` | what there is |
//! | `creation.rs`, `lifecycle.rs`, `exec.rs` | containers made, started, stopped, renamed and removed; commands in them |
//! | `archive.rs`, `image_archive.rs`, `flatten.rs`, `stream.rs` | bytes in and out, never all of them in memory |
//!
//! *Always true:* every call ends. A short question ends within [`DockerLimits::reply`]. A long one, say a commit, ends within
//! [`DockerLimits::work`], and within moments when the daemon answers nothing else any more. A container is paused and
//! unpaused by its whole id, which is never used again, at an address that is written down: a later process, with another
//! environment, finds the same one.

mod address;
mod archive;
mod client;
mod container;
mod creation;
mod engine;
mod error;
mod exec;
mod flatten;
mod image;
mod image_archive;
mod lifecycle;
mod mount;
mod network;
mod pausing;
mod pending;
mod stream;
mod volume;

pub use client::{ApiVersion, Docker, DockerLimits};
pub use container::{
    ContainerFacts, ContainerFileChange, ContainerFileChangeKind, ContainerStatus, ListedContainer,
};
pub use creation::{ContainerCreation, ContainerOverrides};
pub use engine::DockerEngine;
pub use exec::RanInContainer;
pub use flatten::FlattenScratch;
pub use image::{ContainerCommit, DockerImage, ListedImage};
pub use image_archive::ImageImport;
pub use lifecycle::{ContainerHealth, OwnHealth, VolumeRemoval};
pub use mount::{ContainerMount, ContainerMountKind};
pub(crate) use pausing::{Container, ContainerInfo, ContainerState, UNDO_TIMEOUT};
pub(crate) use pending::{PendingCall, reason};
pub use stream::DockerStream;
pub use volume::{DockerVolume, VolumeCreation};
