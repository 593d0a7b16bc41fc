//! What was worked out before.
//!
//! The world's states are many, but they are made of few parts: an actor that hears the same answer in the same
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

/// What became of an actor that heard an answer.
#[derive(Debug)]
pub(crate) struct Heard<C> {
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
    heard: Table<(u128, u128), Rc<Heard<C>>>,
    begun: Table<(u128, u128), Rc<Printed<Actor<C>>>>,
    written: Table<(u128, u128), Written>,
    noted: RefCell<Vec<&'static str>>,
}

impl<C> Default for Memo<C> {
    fn default() -> Self {
        Self {
            heard: Table::default(),
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
    pub(crate) fn heard(&self, key: (u128, u128), work: impl FnOnce() -> Heard<C>) -> Rc<Heard<C>> {
        looked_up(&self.heard, key, || Rc::new(work()))
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
    pub(crate) fn is_news(&self, observation: &'static str) -> bool {
        let news = !self.noted.borrow().contains(&observation);
        if news {
            self.noted.borrow_mut().push(observation);
        }
        news
    }
}
