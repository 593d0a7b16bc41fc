//! A small world in which several actors work on one lineage at once.
//!
//! Two cells stand for `lock.json` and `latest.json`; writers, a reaper and an operator drive the production
//! [`Protocol`](stasis_model::protocol::settle::Protocol) over them. The adversary chooses who moves, whether a lease has
//! expired wherever the rules look at the time, and what becomes of every write:
//!
//! | fate | applied | answer |
//! |---|---|---|
//! | answered | at once | that it won |
//! | unanswered | at once | nothing |
//! | refused by its own retry | at once | that it lost |
//! | delayed (lost, if it never lands; also a 409) | later, if the version still matches | nothing |
//! | stale | never: the version had moved | that it lost, or nothing |
//!
//! A read and the decision that follows it are one move, and so are the start of a task and its first read: nobody else
//! can notice a difference. A crash is an actor that never moves again; since all orders are tried, and promises are
//! checked at every move, every crash is tried as well. What it had sent may still land.
//!
//! Three short cuts leave nothing out, and [`Cast::thorough`] goes without them: a read and the write that it leads to
//! are one move where nobody could come between, a write that can only be refused is refused first, and an unsettled
//! operation is not asked about any more once its answer cannot change.
//!
//! *Always true:* the promises in [`promise`]; see there. What the world remembers beyond the documents, so that it can
//! check them (who owned last, what was applied, what a writer really loaded), no actor ever sees.

mod actor;
pub mod cast;
pub mod conduct;
mod ending;
mod label;
mod memo;
pub mod names;
pub mod observation;
pub mod promise;
mod request;
mod step;
mod store;
mod turn;

use crate::explore::World;
use actor::{ACTORS, Actor, Next, OPERATOR, REAPER, made_by, newer, older};
use cast::{Cast, Start};
use conduct::{Conduct, Duty, EarlierReading, Task};
use label::Move;
use memo::Memo;
use names::{Joint, PAST, Printed, op_id};
use request::{Cell, Request};
use stasis_model::format::lease::{Fence, Lock, LockState};
use stasis_model::format::pointer::{Active, Pointer, PointerAct};
use stasis_model::id::{Epoch, Lineage};
use stasis_model::time::Timestamp;
use std::rc::Rc;
use store::EMPTY_BOOKS;

/// The moment at which everything is written: a lease is not expired then.
pub const EARLY: Timestamp = Timestamp::from_millis(1);
/// A moment at which every lease is expired.
pub const LATE: Timestamp = Timestamp::from_millis(2);

/// What all states of a world have in common.
#[derive(Debug)]
struct Shared<C> {
    cast: Cast,
    lineage: Lineage,
    /// Every snapshot that may come to be, in the order of the bits of `archives`.
    snapshots: Vec<Active>,
    memo: Memo<C>,
}

impl<C> Shared<C> {
    fn renamings(&self) -> &'static [[u8; 3]] {
        names::renamings(usize::from(self.cast.writers))
    }
}

/// The writer whose fence landed last.
#[derive(PartialEq, Eq, Debug)]
struct Owner {
    actor: u8,
    fence: Fence,
}

/// One state of the world.
#[derive(Clone, Debug)]
pub struct LineageWorld<C> {
    shared: Rc<Shared<C>>,
    lock: Option<Rc<Printed<Cell<Lock>>>>,
    pointer: Option<Rc<Printed<Cell<Pointer>>>>,
    versions: [u32; 2],
    flights: Rc<Vec<Rc<Printed<Request>>>>,
    actors: [Option<Rc<Printed<Actor<C>>>>; ACTORS],
    /// Whose fence landed last.
    owner: Option<Rc<Owner>>,
    /// Which tasks of each actor were applied, one bit each.
    applied: [u8; ACTORS],
    /// Which archives exist: the two past ones, then the writers'.
    archives: u8,
    unreadable: u8,
    observations: Option<Rc<Vec<&'static str>>>,
}

impl<C: Conduct> LineageWorld<C> {
    /// The world at its beginning.
    pub fn new(cast: Cast) -> Self {
        assert!(cast.writers <= 3, "there are names for three writers");
        let unreadable = cast.unreadable;
        let lineage = "tenant/profile@1".parse().expect("a constant lineage");
        let memo = Memo::default();
        let made = (0..cast.writers).map(made_by);
        let snapshots = [older(), newer()].into_iter().chain(made).collect();
        let shared = Shared {
            cast,
            lineage,
            snapshots,
            memo,
        };
        let mut world = Self {
            shared: Rc::new(shared),
            lock: None,
            pointer: None,
            versions: [0, 0],
            flights: Rc::default(),
            actors: Default::default(),
            owner: None,
            applied: EMPTY_BOOKS,
            archives: 0,
            unreadable,
            observations: None,
        };
        if world.shared.cast.start == Start::Published {
            world.publish_the_past();
        }
        world.enter_actors();
        world
    }

    /// Two snapshots were published before, the second one is active, and its writer gave the lock back.
    fn publish_the_past(&mut self) {
        let fence = Fence {
            epoch: Epoch(1),
            op_id: op_id(PAST, 0),
        };
        let mut lock =
            Lock::first(conduct::nobody(), fence, EARLY, EARLY).successor(op_id(PAST, 1));
        lock.state = LockState::Free;
        let archive = Some(newer().archive);
        let mut pointer =
            Pointer::empty().successor(op_id(PAST, 2), PointerAct::Publish, archive, EARLY);
        pointer.point_at(older(), EARLY);
        pointer.point_at(newer(), EARLY);
        pointer.fence = fence;
        self.archives = 0b11;
        self.versions = [1, 1];
        let renamings = self.renamings();
        let cell = Cell {
            value: lock,
            version: 1,
        };
        self.lock = Some(Rc::new(Printed::new(cell, renamings)));
        let cell = Cell {
            value: pointer,
            version: 1,
        };
        self.pointer = Some(Rc::new(Printed::new(cell, renamings)));
    }

    fn enter_actors(&mut self) {
        let shared = Rc::clone(&self.shared);
        let cast = &shared.cast;
        for actor in 0..cast.writers {
            let mut writer = Actor::new(Next::Store, cast.renewals);
            let task = Task {
                actor,
                serial: 0,
                duty: Duty::Acquire,
                attempts: cast.attempts,
                given: EarlierReading::default(),
            };
            writer.start(task, self.after_acquiring(), &shared);
            self.place(actor, writer);
        }
        if cast.reaps > 0 {
            self.place(REAPER, Actor::new(Next::Reap, cast.reaps));
        }
        if cast.acts > 0 {
            self.place(OPERATOR, Actor::new(Next::Act, cast.acts));
        }
    }

    fn place(&mut self, number: u8, actor: Actor<C>) {
        let renamings = self.renamings();
        self.actors[usize::from(number)] = Some(Rc::new(Printed::new(actor, renamings)));
    }

    fn renamings(&self) -> &'static [[u8; 3]] {
        self.shared.renamings()
    }

    /// Notes a sight, if it is the first of its kind.
    fn note(&mut self, observation: &'static str) {
        if self.shared.memo.is_new(observation) {
            let observations = self.observations.get_or_insert_default();
            Rc::make_mut(observations).push(observation);
        }
    }

    /// The fingerprint after renaming the writers.
    fn print_under(&self, which: usize, renaming: [u8; 3]) -> u128 {
        let mut joint = Joint::default();
        joint.add(self.lock.as_ref().map_or(0, |cell| cell.print.under(which)));
        joint.add(
            self.pointer
                .as_ref()
                .map_or(0, |cell| cell.print.under(which)),
        );
        let flights = self.flights.iter().map(|flight| flight.print.under(which));
        joint.add(flights.fold(0, u128::wrapping_add));
        let mut books = 0;
        for old in old_numbers(renaming) {
            let actor = self.actors[old].as_ref();
            joint.add(actor.map_or(0, |actor| actor.print.under(which)));
            let stored = old < 3 && self.archives & (0b100 << old) != 0;
            books = books << 9 | u128::from(self.applied[old]) << 1 | u128::from(stored);
        }
        let renamed = |actor: u8| renaming.get(usize::from(actor)).copied().unwrap_or(actor);
        let owner = self.owner.as_ref();
        let epoch = owner.map_or(0, |owner| owner.fence.epoch.0);
        let owner = owner.map_or(9, |owner| renamed(owner.actor));
        books = books << 8 | u128::from(owner);
        books = books << 8 | u128::from(self.unreadable);
        books = books << 8 | u128::from(self.archives & 0b11);
        joint.add(books << 32 | u128::from(epoch));
        joint.print()
    }
}

/// The actors' numbers in the order of their new ones.
fn old_numbers(renaming: [u8; 3]) -> [usize; ACTORS] {
    let mut olds = [0, 1, 2, 3, 4];
    for (old, new) in renaming.into_iter().enumerate() {
        olds[usize::from(new)] = old;
    }
    olds
}

impl<C: Conduct> World for LineageWorld<C> {
    type Label = Move;

    fn fingerprint(&self) -> u128 {
        self.renamings()
            .iter()
            .enumerate()
            .map(|(which, renaming)| self.print_under(which, *renaming))
            .min()
            .expect("there is always a renaming")
    }

    fn moves(&self) -> Vec<(Move, Result<Self, String>)> {
        self.turns()
    }

    fn observations(&self) -> &[&'static str] {
        self.observations
            .as_ref()
            .map_or(&[], |observations| observations.as_slice())
    }
}
