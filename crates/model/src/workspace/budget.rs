//! Which checkpoints go when there are too many bytes.

use super::thinning::{holds, last_prompt};
use super::{CheckpointOrigin, Occupant, Slot, SlotMetadata};

/// The most bytes that all checkpoints of a workspace hold together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget(u64);

/// There is no room for another checkpoint, even without the automatic ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the checkpoints would hold {needed} bytes; the budget is {budget}, and no automatic one is left to go"
)]
pub struct OverBudget {
    /// What they would hold with the new one, after every automatic one has gone.
    pub needed: u64,
    /// What they may hold.
    pub budget: u64,
}

impl Budget {
    /// Ten GB.
    const MOST: u64 = 10_000_000_000;

    /// So many bytes.
    pub const fn of_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// What is taken on a disk of that size when nothing is configured: 10 GB or a tenth, whichever is less.
    pub fn for_disk(total: u64) -> Self {
        Self(Self::MOST.min(total / 10))
    }

    /// How many bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Those of the candidates that have to go before another checkpoint comes, the first ones first.
    ///
    /// `held` says how many bytes all checkpoints hold, with the new one, when these have gone; what is in its slot now counts as
    /// gone there already. Checkpoints share bytes, so that what one frees depends on those that went before.
    pub fn make_room<E: From<OverBudget>>(
        self,
        candidates: &[Slot],
        mut held: impl FnMut(&[Slot]) -> Result<u64, E>,
    ) -> Result<Vec<Slot>, E> {
        let mut candidates = candidates.iter();
        let mut gone = Vec::new();
        loop {
            let needed = held(&gone)?;
            if needed <= self.0 {
                return Ok(gone);
            }
            match candidates.next() {
                Some(next) => gone.push(*next),
                None => {
                    return Err(E::from(OverBudget {
                        needed,
                        budget: self.0,
                    }));
                }
            }
        }
    }
}

/// The checkpoints that may go for a new one, in the order in which they do: those of the timer and of agents' commands, the oldest
/// first; then those that prompts began with, the oldest first.
///
/// Never what has a name, is manual, or takes a change back; never what the last prompt began with, unless the new one is that of a
/// later prompt; never what the new one is an undo of.
pub fn eviction_order(occupants: &[Occupant], new: &SlotMetadata) -> Vec<Slot> {
    let last_prompt =
        last_prompt(occupants).max(new.last_prompt().and_then(super::agent::AgentEvent::prompt));
    let source = new.undo.as_ref().map(|note| note.from.as_str());
    let may_go = |one: &&SlotMetadata| {
        one.origin.is_automatic()
            && one.name.is_none()
            && !holds(one, last_prompt)
            && source != Some(one.slot.to_string().as_str())
            // What takes a change back has a number of its own, in no pool.
            && (new.origin == CheckpointOrigin::Undo || one.slot != new.slot)
    };
    let known = occupants.iter().filter_map(Occupant::known);
    let mut candidates: Vec<&SlotMetadata> = known.filter(may_go).collect();
    candidates.sort_by_key(|one| (one.last_prompt().is_some(), one.age_key()));
    candidates.iter().map(|one| one.slot).collect()
}
