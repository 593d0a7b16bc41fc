//! What this process has written and not made durable: its batches, and the objects it could not mark.

use crate::layout::Key;
use stasis_model::id::OpId;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The batches that are being written.
#[derive(Default)]
pub(super) struct Batches(Mutex<HashMap<OpId, StagedBatch>>);

/// One batch.
pub(super) struct StagedBatch {
    pub(super) directory: OwnedFd,
    pub(super) name: String,
    /// The file whose lock says that we live.
    pub(super) lock_name: String,
    pub(super) _lock: File,
    pub(super) staged: Vec<Key>,
}

impl Batches {
    pub(super) fn open(&self) -> MutexGuard<'_, HashMap<OpId, StagedBatch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The objects that this process could not even mark.
#[derive(Default)]
pub(super) struct Doubts(Mutex<HashSet<Key>>);

impl Doubts {
    pub(super) fn open(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
