//! Which checkpoints go when there are too many bytes.

use super::{Occupant, Slot, SlotMetadata};

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

    /// What is taken on a disk of that size when nobody says anything: 10 GB or a tenth, whichever is less.
    pub fn for_disk(total: u64) -> Self {
        Self(Self::MOST.min(total / 10))
    }

    /// How many bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The automatic checkpoints that have to go before another one comes to `target`, the oldest first.
    ///
    /// `held` says how many bytes all checkpoints hold, with the new one, when these have gone; what is in `target` now counts as
    /// gone there already. Checkpoints share bytes, so that what one frees depends on those that went before.
    pub fn make_room<E: From<OverBudget>>(
        self,
        occupants: &[Occupant],
        target: Slot,
        mut held: impl FnMut(&[Slot]) -> Result<u64, E>,
    ) -> Result<Vec<Slot>, E> {
        let known = occupants.iter().filter_map(Occupant::known);
        let mut candidates: Vec<&SlotMetadata> = known
            .filter(|one| one.may_go() && one.slot != target)
            .collect();
        candidates.sort_by_key(|one| one.age_key());
        let mut candidates = candidates.into_iter();
        let mut gone = Vec::new();
        loop {
            let needed = held(&gone)?;
            if needed <= self.0 {
                return Ok(gone);
            }
            match candidates.next() {
                Some(oldest) => gone.push(oldest.slot),
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
