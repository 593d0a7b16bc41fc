//! `stasis mount`: snapshots as a filesystem to look at, through FUSE.
//!
//! [`layout`] says what the snapshots of a subject are called, [`tree`] answers what a kernel asks, [`fuse`] passes the questions on, and
//! [`point`] looks after the directory that it is mounted on.
//!
//! *Always true:* nothing can be written. What the kernel is told of a snapshot never changes, so that it may keep it; which snapshots
//! there are is looked up again every few seconds.

mod fuse;
mod layout;
mod point;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use fuse::{Access, MountSession};
pub(crate) use point::MountPoint;
pub(crate) use tree::{MountedSubject, MountedTree, WhatIsMounted};
