//! The checkpoints of a workspace: how many there are, what they are called, and which one goes.
//!
//! Four pools share one row of slots. The automatic ones of the timer are a ring, numbered from 0: each new one takes the slot
//! after the newest. The manual ones follow, and stay until they are deleted. The checkpoints of agents' prompts and
//! commands have numbers from 100 on, none of which is ever given again; they are thinned by age.
//!
//! *Always true:* nothing here ever names a slot for overwriting that has a name, that is manual, that is an agent's, or whose
//! metadata cannot be read. What came later is known by its sequence, not by a clock that may jump.

mod agent;
mod budget;
mod fork;
mod metadata;
pub mod pace;
mod reference;
mod ring;
mod settings;
pub mod thinning;
mod turns;

pub use agent::{
    AgentCall, AgentEvent, AgentEventKind, EventText, LONGEST_EVENT_TEXT, MOST_EVENTS,
};
pub use budget::{Budget, OverBudget, eviction_order};
pub use fork::{ForkName, ForkSide, LONGEST_FORK_NAME, fork_names};
pub use metadata::{
    CheckpointOrigin, LARGEST_METADATA, MOST_DATABASES, OF_SYSTEM, Occupant, SlotDatabase,
    SlotForm, SlotMetadata, UndoNote,
};
pub use reference::{CheckpointName, CheckpointRef, LONGEST_CHECKPOINT_NAME};
pub use ring::{NoSlot, find, named, next_agent, next_auto, next_manual, next_sequence};
pub use settings::Settings;
pub use turns::{numbered, prompts};

use serde::{Deserialize, Serialize};
use std::fmt;

/// The place of a checkpoint, counted over all pools.
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

/// As users name it: `cp-3`.
impl fmt::Display for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "cp-{}", self.0)
    }
}

#[cfg(test)]
mod tests;
