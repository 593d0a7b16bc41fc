//! Paths that must be looked at, each once, in the order of the first sign.

use super::belief::Hint;
use stasis_model::tree::EntryPath;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Hints {
    places: HashMap<EntryPath, usize>,
    hints: Vec<(EntryPath, Hint)>,
}

impl Hints {
    pub(super) fn add(&mut self, path: EntryPath, hint: Hint) {
        if let Some(&place) = self.places.get(&path) {
            self.hints[place].1.is_certain |= hint.is_certain;
            return;
        }
        self.places.insert(path.clone(), self.hints.len());
        self.hints.push((path, hint));
    }

    /// When the first sign of all was read.
    pub(super) fn first(&self) -> Option<Duration> {
        self.hints.first().map(|(_, hint)| hint.first)
    }

    pub(super) fn take(&mut self) -> Vec<(EntryPath, Hint)> {
        self.places.clear();
        std::mem::take(&mut self.hints)
    }
}
