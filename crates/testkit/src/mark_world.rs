//! Saves beside the gc rounds of one lineage, and a snapshot whose bytes come back after they went.
//!
//! Of two snapshots one, `x`, is deleted, swept, forgotten and stored anew; the other, `y`, is always there. Savers,
//! collectors and an operator take turns in every order. What the pointer and the lock may become is decided by
//! [`stasis_model::protocol::step`], and how long a mark counts by [`PointerMark`]; here are only the objects, time, and the faults:
//! - a request that removes an object is under way for less than half a day, and lands at any moment of it, or never;
//! - time passes whenever it likes, in steps of eight hours;
//! - an actor may stop anywhere. A crash is an actor that never moves again, and needs no move of its own;
//! - a lease that was shown to a second program may be used by both.
//!
//! Swaps are answered here: what becomes of those that are not is exhausted by [`lineage_world`](crate::lineage_world).
//! An operation that reads only what it replaces is one move, because the version would have refused anything between.
//!
//! *Promised after every move:* neither the pointer nor a pin leads to bytes that are gone; what arrives to remove an
//! object finds its snapshot tombstoned; a gc round throws nobody out, and marks nothing that nobody deleted.

mod collector;
mod operator;
mod saver;

use crate::explore::World;
use crate::fingerprint;
use collector::Collector;
use saver::Saver;
use stasis_model::digest::{ArchiveDigest, ManifestDigest};
use stasis_model::format::lease::{Fence, Holder, Lock, LockState};
use stasis_model::format::pointer::{Active, Pointer, PointerAct, PointerMark};
use stasis_model::id::{Epoch, Generation, Label as Name, OpId};
use stasis_model::protocol::step::{DocumentChange, Documents, Op, Refusal, step};
use stasis_model::time::Timestamp;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

/// How much time passes at once: two such steps are more than a request may take, three are a day.
const STEP: Duration = Duration::from_hours(8);

/// What there is of `x` before anything happens; its mark is older than a day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// It is a snapshot like any other.
    Stored,
    /// It was deleted, and nothing was removed yet.
    Deleted,
    /// It was deleted, and everything was removed.
    Removed,
}

/// A mistake that the protocol must not make; each is a mutant, to show that the explorer would see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Dropping a mark does not raise the fence.
    NoFence,
    /// Marks are dropped while somebody owns the lineage.
    WhileHeld,
    /// Marks are dropped at once.
    Hasty,
    /// As first designed: whatever mark of the snapshot is there is dropped, also one that was set since.
    AnyDate,
    /// As first designed: marks keep the date of the deletion, and let requests be sent for ever.
    Undated,
    /// Marks are dated anew, but a gc round that stalls goes on with what it read.
    Stalls,
    /// Dating a mark sets it where it was dropped.
    SetsAnew,
    /// Objects are removed without a mark.
    Unmarked,
}

/// What takes part, and how much may happen.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What there is before.
    pub start: Start,
    /// Which saves there are: one letter each, in the order of their numbers. `x` and `y` are saves of these bytes under
    /// a lease of their own, `b` saves `x` under the first saver's lease.
    pub saves: &'static str,
    /// How many rounds each of two collectors makes.
    pub rounds: [u8; 2],
    /// How often the operator deletes `x`.
    pub deletes: u8,
    /// How often the operator chooses `x` again, or pins it.
    pub choices: u8,
    /// How often a lock may be freed whose holder is presumed dead.
    pub reaps: u8,
    /// How often eight hours pass.
    pub steps: u8,
    /// The mutant.
    pub bug: Option<Bug>,
}

/// What a move is called.
#[derive(Clone, Copy)]
pub struct Label(&'static str, usize, &'static str);

impl fmt::Debug for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} {}", self.0, self.1, self.2)
    }
}

/// One of the two objects of `x`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Object {
    Manifest,
    Archive,
}

/// A document with its fingerprint.
#[derive(Clone, Debug)]
struct Part<T>(Rc<(u128, T)>);

impl<T: Hash> Part<T> {
    fn new(value: T) -> Self {
        Self(Rc::new((fingerprint::of(&value), value)))
    }

    fn get(&self) -> &T {
        &self.0.1
    }
}

impl<T> Hash for Part<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.0.hash(state);
    }
}

/// The whole of it.
#[derive(Clone, Debug)]
pub struct MarkWorld {
    config: Config,
    now: u8,
    pointer: Part<Pointer>,
    lock: Part<Lock>,
    /// Which objects of `x` exist: the manifest, the archive.
    there: [bool; 2],
    /// Requests to remove an object that may still arrive, and when they were sent.
    flights: Vec<(Object, u8)>,
    savers: Vec<Saver>,
    collectors: [Collector; 2],
    /// The operator saw that `x` can be chosen, and the pointer has not moved since.
    looked: bool,
    deletes: u8,
    choices: u8,
    reaps: u8,
    observations: Vec<&'static str>,
}

type Moves = Vec<(Label, Result<MarkWorld, String>)>;

fn snapshot(name: &str) -> Active {
    Active {
        archive: ArchiveDigest::of(name.as_bytes()),
        manifest: ManifestDigest::of(name.as_bytes()),
        archive_key: name.to_owned(),
        manifest_key: name.to_owned(),
    }
}

fn x() -> ArchiveDigest {
    ArchiveDigest::of(b"x")
}

fn moment(step: u8) -> Timestamp {
    Timestamp::from_millis(0).plus(STEP * u32::from(step))
}

/// The steps that a mark of the start is old: a day.
const OLD: u8 = 3;

impl MarkWorld {
    /// The state before anybody has moved.
    pub fn new(config: Config) -> Self {
        let fence = Fence {
            epoch: Epoch(1),
            op_id: OpId::default(),
        };
        let nobody = Holder {
            run_id: Name::nobody(),
            host: Name::nobody(),
            host_run_id: Name::nobody(),
        };
        let mut lock = Lock::first(nobody, fence, moment(0), moment(0));
        (lock.state, lock.released) = (LockState::Free, true);
        let mut pointer =
            Pointer::empty().successor(OpId::default(), PointerAct::Publish, None, moment(0));
        pointer.fence = fence;
        pointer.point_at(snapshot("y"), moment(0));
        if config.start != Start::Stored {
            let at_ms = moment(0);
            pointer.tombstones.push(PointerMark { sha256: x(), at_ms });
        }
        let there = config.start != Start::Removed;
        let savers = config.saves.bytes().map(Saver::new).collect();
        let collectors = config.rounds.map(Collector::new);
        Self {
            now: OLD,
            pointer: Part::new(plain(pointer)),
            lock: Part::new(plain_lock(lock)),
            there: [there; 2],
            flights: Vec::new(),
            savers,
            collectors,
            looked: false,
            deletes: config.deletes,
            choices: config.choices,
            reaps: config.reaps,
            observations: Vec::new(),
            config,
        }
    }

    fn has_bug(&self, bug: Bug) -> bool {
        self.config.bug == Some(bug)
    }

    fn now(&self) -> Timestamp {
        moment(self.now)
    }

    /// The mark of `x`.
    fn mark(&self) -> Option<PointerMark> {
        let marks = &self.pointer.get().tombstones;
        marks.iter().find(|mark| mark.sha256 == x()).cloned()
    }

    fn lies_there(&self) -> bool {
        self.there != [false; 2]
    }

    fn documents(&self) -> Documents {
        Documents {
            lock: Some(self.lock.get().clone()),
            pointer: Some(self.pointer.get().clone()),
        }
    }

    /// Reads, decides and writes in one; the number tells fences of different actors apart.
    fn act(&mut self, op: &Op, number: u8) -> Result<(), Refusal> {
        let change = step(&self.documents(), op, op_id(number), self.now())?;
        self.write(change);
        Ok(())
    }

    fn write(&mut self, change: DocumentChange) {
        match change {
            DocumentChange::Already => {}
            DocumentChange::Lock(lock) => self.lock = Part::new(plain_lock(lock)),
            DocumentChange::Pointer(pointer) => {
                self.pointer = Part::new(plain(pointer));
                // Whoever read the one before will be refused.
                self.looked = false;
                self.collectors.iter_mut().for_each(Collector::outdate);
            }
        }
    }

    /// The same world, before anything notable happens in it.
    fn calm(&self) -> Self {
        Self {
            observations: Vec::new(),
            ..self.clone()
        }
    }

    fn add(moves: &mut Moves, label: Label, after: Self) {
        let broken = after.broken_promise();
        moves.push((label, broken.map_or(Ok(after), |what| Err(what.to_owned()))));
    }

    fn broken_promise(&self) -> Option<&'static str> {
        let whole = self.there == [true; 2];
        if self.pointer.get().active_archive() == Some(x()) && !whole {
            return Some("the pointer leads to bytes that are gone");
        }
        if self.pointer.get().is_pinned(x()) && !whole {
            return Some("a pin leads to bytes that are gone");
        }
        None
    }

    /// What is on its way arrives; a request that is too old does not any more.
    fn landings(&self, moves: &mut Moves) {
        for (index, (object, sent)) in self.flights.iter().enumerate() {
            let mut after = self.calm();
            after.flights.remove(index);
            after.there[*object as usize] = false;
            if *sent < self.now {
                after.observations.push("a removal arrived late");
            }
            let label = Label("removal", usize::from(*sent), "arrives");
            if self.mark().is_none() && !self.has_bug(Bug::Unmarked) {
                let what = "a removal arrived at what is not tombstoned";
                moves.push((label, Err(what.to_owned())));
            } else {
                Self::add(moves, label, after);
            }
        }
    }

    fn send_removal(&mut self, object: Object) {
        let flight = (object, self.now);
        if !self.flights.contains(&flight) {
            self.flights.push(flight);
            self.flights.sort_unstable();
        }
    }

    /// Eight hours pass.
    fn time(&self, moves: &mut Moves) {
        if self.now < OLD + self.config.steps {
            let mut after = self.calm();
            after.now += 1;
            after.flights.retain(|(_, sent)| after.now - sent < 2);
            Self::add(
                moves,
                Label("time", usize::from(after.now), "passes"),
                after,
            );
        }
    }
}

fn op_id(number: u8) -> OpId {
    OpId::from_random([number; 16])
}

/// The same pointer without the memory that nobody asks for here.
fn plain(mut pointer: Pointer) -> Pointer {
    pointer.recent.clear();
    pointer.rollbacks.clear();
    pointer.generation = Generation::default();
    pointer.op_id = OpId::default();
    if let Some(active) = pointer.active.take() {
        // Twice, so that it does not tell what was before.
        pointer.point_at(active.clone(), moment(0));
        pointer.point_at(active, moment(0));
    }
    pointer
}

/// The same lock without the count of its writes.
fn plain_lock(mut lock: Lock) -> Lock {
    lock.generation = Generation::default();
    lock.write_id = OpId::default();
    lock.acquired_at = moment(0);
    lock.renewed_at = moment(0);
    if lock.state != LockState::Held {
        lock.expires_at = moment(0);
    }
    lock
}

impl World for MarkWorld {
    type Label = Label;

    fn fingerprint(&self) -> u128 {
        let collectors = self.collectors.iter().map(fingerprint::of);
        let collectors = collectors.fold(0, u128::wrapping_add);
        fingerprint::of(&(
            (self.now, &self.pointer, &self.lock, self.there),
            (&self.flights, &self.savers, collectors),
            (self.looked, self.deletes, self.choices, self.reaps),
        ))
    }

    fn moves(&self) -> Vec<(Label, Result<Self, String>)> {
        let mut moves = Vec::new();
        self.landings(&mut moves);
        self.time(&mut moves);
        for number in 0..self.savers.len() {
            self.saver_moves(number, &mut moves);
        }
        for number in 0..self.collectors.len() {
            self.collector_moves(number, &mut moves);
        }
        self.operator_moves(&mut moves);
        moves
    }

    fn observations(&self) -> &[&'static str] {
        &self.observations
    }
}
