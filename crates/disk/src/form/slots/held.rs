//! What the checkpoints of a session hold, for whoever saves the same tree elsewhere.

use super::chunks::Chunks;
use super::create::LIST_CACHES;
use super::error::SlotError;
use super::place::SlotDir;
use super::{DIRECTORY, packed};
use crate::form::chunked::list_cache::ListCacheKey;
use crate::form::chunked::save::HeldTree;
use stasis_model::id::SnapshotId;
use stasis_model::workspace::Occupant;
use std::collections::HashSet;
use std::fmt;
use std::path::Path;

/// The contents of a session, and the list of the newest checkpoint of its workspace. Nothing is locked: what goes meanwhile is not
/// found, and whatever is found is proven by its digest.
pub struct HeldCheckpoint {
    chunks: Chunks,
    cache: ListCacheKey,
    known: HashSet<SnapshotId>,
}

impl fmt::Debug for HeldCheckpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.len();
        out.debug_struct("HeldCheckpoint")
            .field("known", &known)
            .finish_non_exhaustive()
    }
}

impl HeldCheckpoint {
    /// Opens what a session directory holds.
    pub fn open(session: &Path) -> Result<Self, SlotError> {
        let slots = SlotDir::open(session.join(DIRECTORY))?;
        let occupants = slots.list()?;
        let known = occupants.iter().filter_map(Occupant::known);
        let known = known.filter(|one| one.form.is_list());
        Ok(Self {
            chunks: Chunks::open(session)?,
            cache: ListCacheKey {
                file: session.join(LIST_CACHES[0]),
                repo: packed::own(),
            },
            known: known.map(packed::id_of).collect(),
        })
    }

    /// Shows the tree to a save.
    pub fn with_tree<T>(&self, save: impl FnOnce(&HeldTree<'_>) -> T) -> T {
        save(&HeldTree {
            cache: &self.cache,
            is_held: &|id| self.known.contains(id),
            source: &self.chunks,
        })
    }
}
