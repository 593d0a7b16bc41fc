//! Paths that must be looked at, each once, in the order of the first event.

use super::tree_state::LookReason;
use stasis_model::tree::EntryPath;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct PendingLooks {
    places: HashMap<EntryPath, usize>,
    pending: Vec<(EntryPath, LookReason)>,
}

impl PendingLooks {
    pub(super) fn add(&mut self, path: EntryPath, reason: LookReason) {
        if let Some(&place) = self.places.get(&path) {
            self.pending[place].1.is_certain |= reason.is_certain;
            return;
        }
        self.places.insert(path.clone(), self.pending.len());
        self.pending.push((path, reason));
    }

    /// When the first event of all was read.
    pub(super) fn first(&self) -> Option<Duration> {
        self.pending.first().map(|(_, reason)| reason.first)
    }

    pub(super) fn take(&mut self) -> Vec<(EntryPath, LookReason)> {
        self.places.clear();
        std::mem::take(&mut self.pending)
    }
}
