//! The model store: two cells with versions, and the requests that are under way to them.

use super::conduct::{Conduct, Duty, Task};
use super::memo::Written;
use super::names::Printed;
use super::observation;
use super::promise::Verdict;
use super::request::{Cell, Condition, Request};
use super::{EARLY, actor::ACTORS};
use super::{LineageWorld, Owner};
use stasis_model::format::lease::{Lock, LockState};
use stasis_model::protocol::settle::{Body, StoreAnswer};
use stasis_model::protocol::step::Doc;
use std::rc::Rc;

impl<C: Conduct> LineageWorld<C> {
    /// Answers a read.
    pub(crate) fn read(&self, doc: Doc) -> StoreAnswer {
        match doc {
            Doc::Lock => StoreAnswer::Lock(self.lock.as_ref().map(|cell| cell.value.versioned())),
            Doc::Pointer => {
                StoreAnswer::Pointer(self.pointer.as_ref().map(|cell| cell.value.versioned()))
            }
        }
    }

    /// The version of a document, if it exists.
    pub(crate) fn version(&self, doc: Doc) -> Option<u32> {
        match doc {
            Doc::Lock => self.lock.as_ref().map(|cell| cell.value.version),
            Doc::Pointer => self.pointer.as_ref().map(|cell| cell.value.version),
        }
    }

    /// Whether a write under this condition would be accepted now.
    pub(crate) fn accepts(&self, doc: Doc, condition: Condition) -> bool {
        match condition {
            Condition::Always => true,
            Condition::Absent => self.version(doc).is_none(),
            Condition::Version(version) => self.version(doc) == Some(version),
        }
    }

    /// Applies an accepted write.
    pub(crate) fn apply(&mut self, request: &Printed<Request>) -> Verdict {
        let (request, request_print) = (&request.value, request.print.under(0));
        self.check_change(request)?;
        let doc = request.body.doc();
        self.note_change(request);
        self.versions[doc as usize] += 1;
        let version = self.versions[doc as usize];
        let key = (request_print, u128::from(version));
        let renamings = self.shared.renamings();
        let written = self.shared.memo.written(key, || match &request.body {
            Body::Lock(lock) => {
                let value = timeless(lock.clone());
                let cell = Cell { value, version };
                Written::Lock(Rc::new(Printed::new(cell, renamings)))
            }
            Body::Pointer(pointer) => {
                let value = pointer.clone();
                let cell = Cell { value, version };
                Written::Pointer(Rc::new(Printed::new(cell, renamings)))
            }
        });
        match written {
            Written::Lock(cell) => self.lock = Some(cell),
            Written::Pointer(cell) => self.pointer = Some(cell),
        }
        let task = &request.task;
        if doc == self.shared.cast.effect_of(&task.duty) {
            self.applied[usize::from(task.actor)] |= 1 << task.serial;
        }
        self.change_owner(request);
        self.drop_dead_requests();
        Ok(())
    }

    /// Keeps the oracle's own books about who may publish.
    fn change_owner(&mut self, request: &Request) {
        let doc = request.body.doc();
        match request.task.duty {
            Duty::Acquire if doc == self.shared.cast.owned_by => {
                let fence = match &request.body {
                    Body::Lock(lock) => lock.fence(),
                    Body::Pointer(pointer) => pointer.fence,
                };
                let actor = request.task.actor;
                self.owner = Some(Rc::new(Owner { actor, fence }));
            }
            Duty::Rollback { .. } | Duty::ForceUnlock(_) if doc == Doc::Pointer => {
                self.owner = None;
            }
            _ => {}
        }
    }

    /// Forgets the requests that can never be accepted: versions do not come back.
    fn drop_dead_requests(&mut self) {
        let alive = |flight: &Rc<Printed<Request>>| {
            let request = &flight.value;
            self.accepts(request.body.doc(), request.condition)
        };
        if !self.flights.iter().all(alive) {
            let flights = self.flights.iter().filter(|flight| alive(flight));
            self.flights = Rc::new(flights.cloned().collect());
        }
    }

    fn note_change(&mut self, request: &Request) {
        let before = self.lock.as_deref().map(|cell| cell.value.value.state);
        match (&request.task.duty, request.body.doc()) {
            (Duty::Renew(_), _) if before == Some(LockState::Free) => {
                self.note(observation::HANDED_BACK);
            }
            (Duty::Acquire, Doc::Lock) if before == Some(LockState::Held) => {
                self.note(observation::TAKEN_OVER);
            }
            (Duty::Acquire, Doc::Lock) if before == Some(LockState::Forced) => {
                self.note(observation::TAKEN_AFTER_FORCE);
            }
            (Duty::Rollback { .. } | Duty::ForceUnlock(_), Doc::Lock) => {
                self.note(observation::MARKED);
            }
            _ => {}
        }
    }

    /// Deletes a document.
    pub(crate) fn erase(&mut self, doc: Doc, task: &Task, judged: u32) -> Verdict {
        self.check_erasure(doc, task, judged)?;
        match doc {
            Doc::Lock => self.lock = None,
            Doc::Pointer => self.pointer = None,
        }
        if doc == self.shared.cast.effect_of(&task.duty) {
            self.applied[usize::from(task.actor)] |= 1 << task.serial;
        }
        self.drop_dead_requests();
        Ok(())
    }

    /// Whether the task's act is in the books.
    pub(crate) fn applied(&self, task: &Task) -> bool {
        self.applied[usize::from(task.actor)] & (1 << task.serial) != 0
    }

    /// Strikes the task from the books once nobody will ask again.
    pub(crate) fn close_book(&mut self, task: &Task) {
        self.applied[usize::from(task.actor)] &= !(1 << task.serial);
    }

    /// The documents that requests of the task may still reach.
    pub(crate) fn under_way(&self, task: &Task) -> impl Iterator<Item = Doc> {
        let same = move |request: &&Request| {
            (request.task.actor, request.task.serial) == (task.actor, task.serial)
        };
        let requests = self.flights.iter().map(|flight| &flight.value);
        requests.filter(same).map(|request| request.body.doc())
    }

    /// Sends a request that may land at any later moment. Sent twice, it can land only once.
    pub(crate) fn delay(&mut self, request: &Rc<Printed<Request>>) {
        if self
            .flights
            .iter()
            .all(|other| other.print != request.print)
        {
            Rc::make_mut(&mut self.flights).push(Rc::clone(request));
        }
    }
}

/// The same lock at the one moment at which all locks are written, so that time does not multiply the states.
fn timeless(mut lock: Lock) -> Lock {
    lock.acquired_at = EARLY;
    lock.renewed_at = EARLY;
    lock.expires_at = EARLY;
    lock
}

/// The books at the beginning.
pub(crate) const EMPTY_BOOKS: [u8; ACTORS] = [0; ACTORS];
