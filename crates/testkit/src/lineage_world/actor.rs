//! The actors: what each is doing, and what it was told.

use super::conduct::{Action, Conduct, Duty, Task};
use super::names::{PAST, snapshot};
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::{Generation, Lineage};
use stasis_model::lease::Fence;
use stasis_model::operation::Unsettled;
use stasis_model::pointer::Active;
use stasis_model::protocol::{Answer, Doubt};
use stasis_model::time::Timestamp;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// The reaper's number; writers have 0, 1 and 2.
pub(crate) const REAPER: u8 = 3;
/// The operator's number.
pub(crate) const OPERATOR: u8 = 4;
/// How many numbers there are.
pub(crate) const ACTORS: usize = 5;

/// The older of the two snapshots that a published lineage starts with.
pub(crate) fn older() -> Active {
    snapshot(PAST, 0)
}

/// The newer one, which is active.
pub(crate) fn newer() -> Active {
    snapshot(PAST, 1)
}

/// The snapshot that a writer makes.
pub(crate) fn made_by(writer: u8) -> Active {
    snapshot(writer, 0)
}

/// What a free actor does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Next {
    /// A writer stores its archive and manifest.
    Store,
    /// A writer flips.
    Flip,
    /// A writer releases.
    Release,
    /// The reaper makes a pass.
    Reap,
    /// The operator acts.
    Act,
    /// The operator throws out the holder it saw.
    Throw(Fence),
    /// The operator rolls back, if the pointer still has the generation it saw.
    Choose(Generation),
}

/// Where an actor stands.
#[derive(Clone, Hash, Debug)]
pub(crate) enum Stage<C> {
    /// Between two tasks.
    Free(Next),
    /// In the middle of a task, waiting for the store to do the action.
    Busy {
        task: Rc<Task>,
        conduct: C,
        action: Action,
        /// What comes after a renewal.
        then: Next,
    },
    /// Finished, stopped or crashed.
    Gone,
}

/// An operation that ended without anybody knowing how.
#[derive(Clone, Debug)]
pub(crate) struct Riddle {
    pub(crate) task: Rc<Task>,
    pub(crate) record: Unsettled,
}

impl Riddle {
    pub(crate) fn new(task: Rc<Task>, doubt: Doubt, lineage: Lineage) -> Self {
        let record = Unsettled::new(
            task.op_id(),
            task.duty.kind(),
            lineage,
            doubt,
            Timestamp::default(),
        );
        Self { task, record }
    }
}

impl Hash for Riddle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.record.op_id.hash(state);
        self.record.on_lock.hash(state);
        self.record.generation.hash(state);
        self.record.since.hash(state);
    }
}

/// One actor.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Actor<C> {
    pub(crate) stage: Stage<C>,
    /// The next task's number.
    pub(crate) serial: u8,
    /// Renewals, passes or acts that are left.
    pub(crate) turns: u8,
    pub(crate) lease: Option<Fence>,
    /// What acquiring said is active, and the writer therefore loads.
    pub(crate) base: Option<ArchiveDigest>,
    /// The version of the lock that was read last, for the reaper.
    pub(crate) judged: u32,
    /// Whether acquiring had to begin again.
    pub(crate) outrun: bool,
    pub(crate) riddles: Vec<Rc<Riddle>>,
}

impl<C: Conduct> Actor<C> {
    /// An actor at its beginning.
    pub(crate) fn new(next: Next, turns: u8) -> Self {
        Self {
            stage: Stage::Free(next),
            serial: 0,
            turns,
            lease: None,
            base: None,
            judged: 0,
            outrun: false,
            riddles: Vec::new(),
        }
    }

    /// Takes up a task.
    pub(crate) fn start(&mut self, (number, attempts): (u8, u8), duty: Duty, then: Next) {
        let task = Task {
            actor: number,
            serial: self.serial,
            duty,
            attempts,
        };
        let mut conduct = C::new(&task);
        let action = conduct.next(Answer::Begin, Timestamp::default());
        self.serial += 1;
        self.stage = Stage::Busy {
            task: Rc::new(task),
            conduct,
            action,
            then,
        };
    }

    /// Leaves for good. What nobody will ask for again is forgotten.
    pub(crate) fn leave(&mut self) {
        let riddles = std::mem::take(&mut self.riddles);
        *self = Self {
            stage: Stage::Gone,
            riddles,
            ..Self::new(Next::Act, 0)
        };
    }
}
