//! Containers, over the API of the Docker Engine: looked at, paused, started and stopped. Never by another program.
//!
//! | file | what it does |
//! |---|---|
//! | `address.rs` | where a daemon listens: `unix://` and `tcp://` |
//! | `client.rs` | one question to a daemon: its API version, its time limit |
//! | `error.rs` | what a daemon answered, as a [`Failure`](stasis_model::failure::Failure) |
//! | `lifecycle.rs` | containers started, stopped, renamed and removed |
//! | `pausing.rs`, `pending.rs` | look, pause and unpause for threads that may not wait for long |
//!
//! *Always true:* every call ends. A short question ends within [`DockerLimits::reply`]. A long one, say a commit, ends within
//! [`DockerLimits::work`], and within moments when the daemon answers nothing else any more. A container is paused and
//! unpaused by its whole id, which is never used again, at an address that is written down: a later process, with another
//! environment, finds the same one.

mod address;
mod client;
mod error;
mod lifecycle;
mod pausing;
mod pending;

pub use client::{ApiVersion, Docker, DockerLimits};
pub use lifecycle::{ContainerHealth, VolumeRemoval};
pub(crate) use pausing::{Container, ContainerInfo, ContainerState, REPLY_TIMEOUT};
pub(crate) use pending::{PendingCall, reason};
