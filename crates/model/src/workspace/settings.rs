//! How many checkpoints a workspace has, and how often one is made.

use super::{CheckpointOrigin, Slot};
use crate::invalid::Invalid;
use serde::{Deserialize, Serialize};

/// More slots than this in one pool are a mistake.
const MOST: u32 = 1000;
/// A week: longer than that between two checkpoints is a mistake too.
const LONGEST: u64 = 7 * 24 * 3600;

/// The settings `auto_max`, `manual_max` and `auto_interval`; what is not said is as in the contract.
///
/// *Always true:* every value is one that makes sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Said")]
pub struct Settings {
    auto_max: u32,
    manual_max: u32,
    auto_interval: u64,
}

/// As it is written in a configuration.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Said {
    auto_max: u32,
    manual_max: u32,
    auto_interval: u64,
}

impl Default for Said {
    fn default() -> Self {
        Self {
            auto_max: 10,
            manual_max: 12,
            auto_interval: 300,
        }
    }
}

fn check(key: &str, found: u64, most: u64) -> Result<(), Invalid> {
    if (1..=most).contains(&found) {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "`{key}` is {found}; it must be from 1 to {most}"
    )))
}

impl Settings {
    /// Settings of which each makes sense; the interval is in seconds.
    pub fn new(auto_max: u32, manual_max: u32, auto_interval: u64) -> Result<Self, Invalid> {
        check("auto_max", auto_max.into(), MOST.into())?;
        check("manual_max", manual_max.into(), MOST.into())?;
        check("auto_interval", auto_interval, LONGEST)?;
        Ok(Self {
            auto_max,
            manual_max,
            auto_interval,
        })
    }

    /// How many automatic checkpoints there are at most.
    pub fn auto_max(&self) -> u32 {
        self.auto_max
    }

    /// How many manual checkpoints there are at most.
    pub fn manual_max(&self) -> u32 {
        self.manual_max
    }

    /// Seconds between two automatic checkpoints.
    pub fn auto_interval(&self) -> u64 {
        self.auto_interval
    }

    /// The slots of a pool that has a fixed number of them, in order.
    pub fn slots(&self, origin: CheckpointOrigin) -> impl Iterator<Item = Slot> + use<> {
        let range = match origin {
            CheckpointOrigin::Auto => 0..self.auto_max,
            CheckpointOrigin::Manual => self.auto_max..self.auto_max + self.manual_max,
            CheckpointOrigin::Undo | CheckpointOrigin::Prompt | CheckpointOrigin::Command => 0..0,
        };
        range.map(Slot::new)
    }

    /// The pool that a slot is in; `None` beyond both.
    pub fn pool_of(&self, slot: Slot) -> Option<CheckpointOrigin> {
        match slot.index() {
            index if index < self.auto_max => Some(CheckpointOrigin::Auto),
            index if index < self.auto_max + self.manual_max => Some(CheckpointOrigin::Manual),
            _ => None,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Said::default()
            .try_into()
            .expect("what is not said makes sense")
    }
}

impl TryFrom<Said> for Settings {
    type Error = Invalid;

    fn try_from(said: Said) -> Result<Self, Invalid> {
        Self::new(said.auto_max, said.manual_max, said.auto_interval)
    }
}
