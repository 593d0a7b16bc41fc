//! Chunks that were unpacked lately.

use stasis_model::protocol::gc::ChunkName;
use std::collections::VecDeque;

/// So many chunks stay unpacked for whoever reads stretches of them.
const UNPACKED: usize = 16;

/// What belongs to the chunks that were needed last, the one that was needed longest ago first.
#[derive(Clone, Debug)]
pub(super) struct Lately<T> {
    chunks: VecDeque<(ChunkName, T)>,
}

impl<T> Default for Lately<T> {
    fn default() -> Self {
        let chunks = VecDeque::new();
        Self { chunks }
    }
}

impl<T: Clone> Lately<T> {
    /// What belongs to a chunk, which is then the one that was needed last.
    pub(super) fn get(&mut self, name: &ChunkName) -> Option<T> {
        let at = self.chunks.iter().position(|(known, _)| known == name)?;
        let found = self.chunks.remove(at)?;
        let value = found.1.clone();
        self.chunks.push_back(found);
        Some(value)
    }

    /// Adds one that is not there, in the place of the one that was needed longest ago.
    pub(super) fn add(&mut self, name: ChunkName, value: T) -> T {
        if self.chunks.len() >= UNPACKED {
            self.chunks.pop_front();
        }
        self.chunks.push_back((name, value.clone()));
        value
    }
}
