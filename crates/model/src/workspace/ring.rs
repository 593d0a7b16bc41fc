//! Which slot the next checkpoint takes.

use super::{
    CheckpointName, CheckpointOrigin, CheckpointRef, Occupant, Settings, Slot, SlotMetadata,
};

/// Why there is no slot for another checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoSlot {
    /// All manual ones are taken.
    #[error("all {max} manual checkpoints are taken; delete one first")]
    ManualFull {
        /// How many there may be.
        max: u32,
    },
    /// Every slot of the ring holds something that is not overwritten.
    #[error("none of the {max} automatic checkpoints may be overwritten")]
    AutoBlocked {
        /// How many there are.
        max: u32,
    },
    /// Another one is called that.
    #[error("the checkpoint {slot} is called `{name}` already")]
    NameTaken {
        /// The name.
        name: CheckpointName,
        /// Whose it is.
        slot: Slot,
    },
}

/// The slot of the next automatic checkpoint: the first one after the newest that is free or may be overwritten.
pub fn next_auto(settings: &Settings, occupants: &[Occupant]) -> Result<Slot, NoSlot> {
    let max = settings.auto_max();
    let known = occupants.iter().filter_map(Occupant::known);
    let is_in_ring = |one: &&SlotMetadata| {
        one.origin == CheckpointOrigin::Auto
            && settings.pool_of(one.slot) == Some(CheckpointOrigin::Auto)
    };
    let newest = known.filter(is_in_ring).max_by_key(|one| one.age_key());
    let first = newest.map_or(0, |newest| newest.slot.index() + 1);
    let around = (0..max).map(|step| Slot::new((first + step) % max));
    let mut free = around.filter(|slot| {
        let mut here = occupants.iter().filter(|one| one.slot() == *slot);
        here.all(|one| one.known().is_some_and(SlotMetadata::may_go))
    });
    free.next().ok_or(NoSlot::AutoBlocked { max })
}

/// The slot of the next manual checkpoint: the first free one of its pool. A name must be unused.
pub fn next_manual(
    settings: &Settings,
    occupants: &[Occupant],
    name: Option<&CheckpointName>,
) -> Result<Slot, NoSlot> {
    if let Some((name, other)) = name.and_then(|name| Some((name, named(occupants, name)?))) {
        let (name, slot) = (name.clone(), other.slot);
        return Err(NoSlot::NameTaken { name, slot });
    }
    let is_free = |slot: &Slot| occupants.iter().all(|one| one.slot() != *slot);
    let mut slots = settings.slots(CheckpointOrigin::Manual);
    let max = settings.manual_max();
    slots.find(is_free).ok_or(NoSlot::ManualFull { max })
}

/// The first number of agents' checkpoints, unless the other pools reach beyond it.
const FIRST_AGENT: u32 = 100;

/// The slot of the next checkpoint of an agent: after all that are there, and after `used`, the last one there ever was. What a user saw
/// as `cp-104` never becomes another state.
pub fn next_agent(settings: &Settings, occupants: &[Occupant], used: Option<Slot>) -> Slot {
    let first = FIRST_AGENT.max(settings.auto_max() + settings.manual_max());
    let taken = occupants.iter().map(Occupant::slot).chain(used);
    let after = taken.map(|slot| slot.index().saturating_add(1)).max();
    Slot::new(first.max(after.unwrap_or(first)))
}

/// The number of the next checkpoint of any pool.
pub fn next_sequence(occupants: &[Occupant]) -> u64 {
    let known = occupants.iter().filter_map(Occupant::known);
    known
        .map(|one| one.sequence)
        .max()
        .map_or(1, |last| last.saturating_add(1))
}

/// The checkpoint of that name; should several have it, which nothing here makes, the newest.
pub fn named<'a>(occupants: &'a [Occupant], name: &CheckpointName) -> Option<&'a SlotMetadata> {
    let known = occupants.iter().filter_map(Occupant::known);
    let named = known.filter(|one| one.name.as_ref() == Some(name));
    named.max_by_key(|one| one.age_key())
}

/// The checkpoint that is meant; `None` when there is no such checkpoint.
pub fn find<'a>(occupants: &'a [Occupant], which: &CheckpointRef) -> Option<&'a Occupant> {
    let slot = match which {
        CheckpointRef::Slot(slot) => *slot,
        CheckpointRef::Name(name) => named(occupants, name)?.slot,
    };
    occupants.iter().find(|one| one.slot() == slot)
}
