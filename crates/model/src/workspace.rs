//! The checkpoints of a workspace: how many there are, what they are called, and which one goes.
//!
//! Two pools share one row of slots. The automatic ones are a ring, numbered from 0: each new one takes the slot after the
//! newest. The manual ones follow, and stay until somebody deletes them.
//!
//! *Always true:* nothing here ever names a slot for overwriting that has a name, that is manual, or whose metadata cannot be
//! read. What came later is known by its sequence, not by a clock that may jump.

mod budget;
mod metadata;
mod reference;
mod ring;
mod settings;

pub use budget::{Budget, OverBudget};
pub use metadata::{BadMetadata, Form, LARGEST_METADATA, Occupant, Origin, SlotMetadata, UndoNote};
pub use reference::{BadReference, CheckpointName, CheckpointRef, LONGEST_CHECKPOINT_NAME};
pub use ring::{NoSlot, find, named, next_auto, next_manual, next_sequence};
pub use settings::{BadSettings, Settings};

use serde::{Deserialize, Serialize};
use std::fmt;

/// The place of a checkpoint, counted over both pools.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(u32);

impl Slot {
    /// The slot with this absolute index.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Its absolute index, which is also the name of its directory.
    pub const fn index(self) -> u32 {
        self.0
    }

    /// Reads the name of a directory; one slot has exactly one spelling.
    pub fn from_directory(name: &str) -> Option<Self> {
        let index: u32 = name.parse().ok()?;
        (index.to_string() == name).then_some(Self(index))
    }
}

/// As people name it: `cp-3`.
impl fmt::Display for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "cp-{}", self.0)
    }
}

#[cfg(test)]
mod tests;
