//! What was worked out before.
//!
//! The world's states are many, but they are made of few parts: an actor that receives the same answer in the same
//! situation does the same thing, whatever the others do. Each such step is worked out once, by the production code,
//! and then looked up by fingerprint.

use super::actor::Actor;
use super::conduct::{Ending, Task};
use super::names::Printed;
use super::request::Cell;
use stasis_model::format::lease::Lock;
use stasis_model::format::pointer::Pointer;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

/// What became of an actor that received an answer.
#[derive(Debug)]
pub(crate) struct Received<C> {
    /// The actor afterwards.
    pub(crate) actor: Rc<Printed<Actor<C>>>,
    /// The task that ended, how, and whether it had been outrun.
    pub(crate) end: Option<(Rc<Task>, Ending, bool)>,
}

/// A document after a write.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    Lock(Rc<Printed<Cell<Lock>>>),
    Pointer(Rc<Printed<Cell<Pointer>>>),
}

/// Prints are hashes already.
#[derive(Default)]
pub(crate) struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only prints are hashed")
    }
    #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
    fn write_u128(&mut self, print: u128) {
        self.0 = self.0.rotate_left(21) ^ print as u64;
    }
}

type Table<K, V> = RefCell<HashMap<K, V, BuildHasherDefault<Folded>>>;

/// The tables.
#[derive(Debug)]
pub(crate) struct Memo<C> {
    received: Table<(u128, u128), Rc<Received<C>>>,
    begun: Table<(u128, u128), Rc<Printed<Actor<C>>>>,
    written: Table<(u128, u128), Written>,
    noted: RefCell<Vec<&'static str>>,
}

impl<C> Default for Memo<C> {
    fn default() -> Self {
        Self {
            received: Table::default(),
            begun: Table::default(),
            written: Table::default(),
            noted: RefCell::default(),
        }
    }
}

fn looked_up<V: Clone>(
    table: &Table<(u128, u128), V>,
    key: (u128, u128),
    work: impl FnOnce() -> V,
) -> V {
    if let Some(known) = table.borrow().get(&key) {
        return known.clone();
    }
    let value = work();
    table.borrow_mut().insert(key, value.clone());
    value
}

impl<C> Memo<C> {
    /// The actor with print `key.0` after the answer with print `key.1`.
    pub(crate) fn received(
        &self,
        key: (u128, u128),
        work: impl FnOnce() -> Received<C>,
    ) -> Rc<Received<C>> {
        looked_up(&self.received, key, || Rc::new(work()))
    }

    /// The actor with print `key.0` after it took up the task with print `key.1`.
    pub(crate) fn begun(
        &self,
        key: (u128, u128),
        work: impl FnOnce() -> Rc<Printed<Actor<C>>>,
    ) -> Rc<Printed<Actor<C>>> {
        looked_up(&self.begun, key, work)
    }

    /// The document after the request with print `key.0`, in version `key.1`.
    pub(crate) fn written(&self, key: (u128, u128), work: impl FnOnce() -> Written) -> Written {
        looked_up(&self.written, key, work)
    }

    /// Whether a sight is new.
    pub(crate) fn is_new(&self, observation: &'static str) -> bool {
        let is_new = !self.noted.borrow().contains(&observation);
        if is_new {
            self.noted.borrow_mut().push(observation);
        }
        is_new
    }
}
