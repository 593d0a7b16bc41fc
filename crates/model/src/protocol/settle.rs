//! How an operation on a lineage is carried out, without doing any I/O itself.
//!
//! Every operation is the same loop: read what the rule needs, ask [`step`], write on condition. A [`Protocol`] takes
//! a [`StoreAnswer`] and returns the next [`ProtocolStep`]; tokio, the simulator and the explorer all drive the same value.
//!
//! ```text
//! acquire:                 Take (lock) ──▶ Fence (pointer) ──▶ owned
//!                             ▲──── outrun ────┘
//! rollback, force-unlock:  pointer ──▶ MarkForced (lock; failing here is only a warning)
//! everything else:         one document
//! ```
//!
//! An operation that looks at one document only may begin with a reading that was made earlier, by the operation before it
//! or by its caller: the write is conditional on the version of that reading, so whatever happened since refuses it. What
//! an earlier reading never does is to say no, or that nothing is left to do: then the document is read again first.
//!
//! *Always true:* neither `Lost` nor silence proves that a write was not applied; after either the document is read
//! again. `Done` means applied, `Refused` means not applied and never will be, and an outcome that is
//! unknown is `Unsettled`: nothing is cleaned up, and the operation id settles it later.

use crate::format::document::{Version, Versioned};
use crate::format::lease::{Fence, Holder, Lock};
use crate::format::pointer::{Active, Pointer};
use crate::id::{Generation, Label, OpId};
use crate::protocol::step::{Doc, DocumentChange, Documents, Op, Refusal, step};
use crate::time::Timestamp;
use std::time::Duration;

/// How often an operation writes before it gives up.
pub const ATTEMPTS: u8 = 3;

/// What was written, or found.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// A `lock.json`.
    Lock(Lock),
    /// A `latest.json`.
    Pointer(Pointer),
}

impl Body {
    /// Which document it is.
    pub fn doc(&self) -> Doc {
        match self {
            Self::Lock(_) => Doc::Lock,
            Self::Pointer(_) => Doc::Pointer,
        }
    }

    fn generation(&self) -> Generation {
        match self {
            Self::Lock(lock) => lock.generation,
            Self::Pointer(pointer) => pointer.generation,
        }
    }
}

/// What the store said to the last step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum StoreAnswer {
    /// Nothing was asked yet.
    Begin,
    /// `lock.json`, or that there is none.
    Lock(Option<Versioned<Lock>>),
    /// `latest.json`, or that there is none.
    Pointer(Option<Versioned<Pointer>>),
    /// The document could not be read, in spite of retries.
    Unreadable,
    /// The write was applied.
    Won,
    /// The condition did not hold: another write, perhaps our own, came first.
    Lost,
    /// No answer, or one that settles nothing.
    Silence,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[must_use = "a protocol advances only when its steps are carried out"]
pub enum ProtocolStep {
    /// Read one document.
    Read(Doc),
    /// Write one document: create it, or replace exactly the version named.
    Write {
        /// `None` creates.
        expected: Option<Version>,
        /// What to write.
        body: Box<Body>,
    },
    /// The operation was applied.
    Done(ProtocolOutcome),
    /// The operation was not applied and will not be.
    Refused(Refusal),
    /// The operation was not applied: the store could not be read.
    Unreachable,
    /// Whether the operation was applied is unknown.
    Unsettled(UnknownWrite),
}

/// What a finished operation left behind.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ProtocolOutcome {
    /// The lineage is ours.
    Acquired {
        /// The lease.
        fence: Fence,
        /// The snapshot to start from, from the very version that carries our fence.
        base: Option<Active>,
        /// The expired lock that was taken over, if one was.
        took_over: Option<Box<Lock>>,
    },
    /// The lock after the operation.
    Lock(Box<Lock>),
    /// The pointer after the operation.
    Pointer {
        /// `latest.json`
        pointer: Box<Pointer>,
        /// Whether the lock carries the forced act as well; `false` is a warning.
        lock_marked: bool,
    },
}

/// A write of which it is unknown whether it was applied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UnknownWrite {
    /// Which document it was sent to.
    pub doc: Doc,
    /// The highest generation it would have written.
    pub generation: Generation,
    /// The lowest generation it would have written.
    pub since: Generation,
}

/// One operation in progress.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Protocol {
    op_id: OpId,
    op: Op,
    found: Documents,
    versions: [Option<Version>; 2],
    reads_left: &'static [Doc],
    sent: Option<Body>,
    unknown: Option<UnknownWrite>,
    /// Whether `found` and `versions` are a caller's, from which the first attempt is made.
    is_given: bool,
    writes_left: u8,
    attempts: u8,
    rounds_left: u8,
    claim: Option<(Holder, Duration)>,
    took_over: Option<Box<Lock>>,
    forced: Option<(Label, Duration)>,
    committed: Option<Box<Pointer>>,
}

impl Protocol {
    /// An operation on one document, carried out under a fresh `op_id`.
    pub fn new(op_id: OpId, op: Op) -> Self {
        Self {
            op_id,
            op,
            found: Documents::default(),
            versions: [None, None],
            reads_left: &[],
            sent: None,
            unknown: None,
            is_given: false,
            writes_left: ATTEMPTS,
            attempts: ATTEMPTS,
            rounds_left: ATTEMPTS,
            claim: None,
            took_over: None,
            forced: None,
            committed: None,
        }
    }

    /// Owning a lineage: take the lock, then write the fence.
    pub fn acquire(op_id: OpId, holder: Holder, ttl: Duration) -> Self {
        let claim = Some((holder.clone(), ttl));
        Self {
            claim,
            ..Self::new(op_id, Op::Take { holder, ttl })
        }
    }

    /// A forced act on the pointer; afterwards the lock is marked with the operator's `reason`.
    pub fn forced(op_id: OpId, op: Op, reason: Label, ttl: Duration) -> Self {
        Self {
            forced: Some((reason, ttl)),
            ..Self::new(op_id, op)
        }
    }

    /// The same operation, with another number of writes before it gives up.
    #[must_use = "the protocol is not changed in place"]
    pub fn with_attempts(self, attempts: u8) -> Self {
        Self {
            writes_left: attempts,
            attempts,
            rounds_left: attempts,
            ..self
        }
    }

    /// The same operation, whose first attempt is made from the lock as its caller last saw it. Has no effect on an
    /// operation that also looks at the pointer.
    #[must_use = "the protocol is not changed in place"]
    pub fn from_lock(self, lock: Option<Versioned<Lock>>) -> Self {
        let is_given = lock.is_some() && self.op.reads() == [Doc::Lock];
        let (lock, version) = split(lock);
        Self {
            found: Documents {
                lock,
                pointer: None,
            },
            versions: [version, None],
            is_given,
            ..self
        }
    }

    /// The same operation, whose first attempt is made from the pointer as its caller last saw it. Has no effect on an
    /// operation that also looks at the lock.
    #[must_use = "the protocol is not changed in place"]
    pub fn from_pointer(self, pointer: Option<Versioned<Pointer>>) -> Self {
        let is_given = pointer.is_some() && self.op.reads() == [Doc::Pointer];
        let (pointer, version) = split(pointer);
        Self {
            found: Documents {
                lock: None,
                pointer,
            },
            versions: [None, version],
            is_given,
            ..self
        }
    }

    /// The operation's id.
    pub fn op_id(&self) -> OpId {
        self.op_id
    }

    /// Takes the answer to the last step and returns the next one.
    pub fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> ProtocolStep {
        match answer {
            StoreAnswer::Begin if std::mem::take(&mut self.is_given) => self.try_unread(now),
            StoreAnswer::Begin => self.begin(),
            StoreAnswer::Lock(lock) => {
                (self.found.lock, self.versions[0]) = split(lock);
                self.read_on(now)
            }
            StoreAnswer::Pointer(pointer) => {
                (self.found.pointer, self.versions[1]) = split(pointer);
                self.read_on(now)
            }
            StoreAnswer::Won => match self.sent.take() {
                Some(body) => self.applied(body, now),
                None => self.begin(),
            },
            StoreAnswer::Lost | StoreAnswer::Silence => {
                self.note_unknown();
                self.begin()
            }
            StoreAnswer::Unreadable => {
                self.give_up(ProtocolStep::Unreachable, self.unknown.is_some())
            }
        }
    }

    /// Writes what the rule makes of an earlier reading; anything else it says is asked again about a new one.
    fn try_unread(&mut self, now: Timestamp) -> ProtocolStep {
        match step(&self.found, &self.op, self.op_id, now) {
            Ok(DocumentChange::Lock(lock)) => self.write(Body::Lock(lock)),
            Ok(DocumentChange::Pointer(pointer)) => self.write(Body::Pointer(pointer)),
            Ok(DocumentChange::Already) | Err(_) => self.begin(),
        }
    }

    /// Reads everything anew.
    fn begin(&mut self) -> ProtocolStep {
        self.found = Documents::default();
        self.versions = [None, None];
        self.reads_left = self.op.reads();
        ProtocolStep::Read(self.reads_left[0])
    }

    fn read_on(&mut self, now: Timestamp) -> ProtocolStep {
        self.reads_left = self.reads_left.get(1..).unwrap_or_default();
        match self.reads_left.first() {
            Some(doc) => ProtocolStep::Read(*doc),
            None => self.decide(now),
        }
    }

    fn decide(&mut self, now: Timestamp) -> ProtocolStep {
        match step(&self.found, &self.op, self.op_id, now) {
            Ok(DocumentChange::Already) => self.already(now),
            Ok(DocumentChange::Lock(lock)) => self.write(Body::Lock(lock)),
            Ok(DocumentChange::Pointer(pointer)) => self.write(Body::Pointer(pointer)),
            Err(Refusal::Outrun { .. }) => self.take_again(now),
            Err(refusal) => self.give_up(ProtocolStep::Refused(refusal), self.is_unknown()),
        }
    }

    fn write(&mut self, body: Body) -> ProtocolStep {
        if self.writes_left == 0 {
            return self.give_up(ProtocolStep::Refused(Refusal::Contended), self.is_unknown());
        }
        self.writes_left -= 1;
        let expected = match body.doc() {
            Doc::Lock => self.versions[0].clone(),
            Doc::Pointer => self.versions[1].clone(),
        };
        self.sent = Some(body.clone());
        ProtocolStep::Write {
            expected,
            body: Box::new(body),
        }
    }

    fn note_unknown(&mut self) {
        let Some(body) = self.sent.take() else { return };
        let generation = body.generation();
        let since = self.unknown.map_or(generation, |earlier| earlier.since);
        self.unknown = Some(UnknownWrite {
            doc: body.doc(),
            generation,
            since,
        });
    }

    /// Whether an unanswered write may have been applied, or may yet be, judging by what was read since.
    fn is_unknown(&self) -> bool {
        let Some(unknown) = self.unknown else {
            return false;
        };
        match (self.op.writes(), &self.found.lock, &self.found.pointer) {
            (Doc::Lock, Some(lock), _) => match self.op {
                // Owning and renewing are statements about now: superseded is the same as never applied.
                Op::Take { .. } | Op::Renew { .. } => lock.generation < unknown.generation,
                _ => lock.generation != unknown.generation || unknown.since != unknown.generation,
            },
            (Doc::Pointer, _, Some(pointer)) => {
                pointer.generation < unknown.generation || !pointer.covers(unknown.since)
            }
            _ => true,
        }
    }

    /// Ends the operation; a write whose outcome is unknown wins over every other ending.
    fn give_up(&mut self, otherwise: ProtocolStep, open: bool) -> ProtocolStep {
        if let Some(pointer) = self.committed.take() {
            // The act itself is done; only the lock could not be marked.
            return ProtocolStep::Done(ProtocolOutcome::Pointer {
                pointer,
                lock_marked: false,
            });
        }
        match self.unknown {
            Some(unknown) if open => ProtocolStep::Unsettled(unknown),
            _ => otherwise,
        }
    }

    fn already(&mut self, now: Timestamp) -> ProtocolStep {
        let body = match self.op.writes() {
            Doc::Lock => self.found.lock.clone().map(Body::Lock),
            Doc::Pointer => self.found.pointer.clone().map(Body::Pointer),
        };
        match (body, self.committed.take()) {
            (Some(body), None) => self.applied(body, now),
            (_, Some(pointer)) => ProtocolStep::Done(ProtocolOutcome::Pointer {
                pointer,
                lock_marked: true,
            }),
            (None, None) => unreachable!("only a document that was found can already be right"),
        }
    }

    /// Goes on after a write that was applied.
    fn applied(&mut self, body: Body, now: Timestamp) -> ProtocolStep {
        match (body, &self.op, self.committed.take()) {
            (Body::Lock(lock), Op::Take { .. }, _) => {
                let before = self
                    .found
                    .lock
                    .take()
                    .filter(|before| before.op_id != self.op_id);
                self.took_over = before.map(Box::new).or(self.took_over.take());
                let fence = lock.fence();
                self.turn_to(Op::Fence { fence }, now)
            }
            (Body::Pointer(pointer), Op::Fence { fence }, _) => {
                ProtocolStep::Done(ProtocolOutcome::Acquired {
                    fence: *fence,
                    base: pointer.active,
                    took_over: self.took_over.take(),
                })
            }
            (Body::Pointer(pointer), _, _) => match self.forced.take() {
                Some((reason, ttl)) => {
                    let fence = pointer.fence;
                    self.committed = Some(Box::new(pointer));
                    self.turn_to(Op::MarkForced { fence, reason, ttl }, now)
                }
                None => ProtocolStep::Done(ProtocolOutcome::Pointer {
                    pointer: Box::new(pointer),
                    lock_marked: true,
                }),
            },
            (Body::Lock(_), _, Some(pointer)) => ProtocolStep::Done(ProtocolOutcome::Pointer {
                pointer,
                lock_marked: true,
            }),
            (Body::Lock(lock), _, None) => {
                ProtocolStep::Done(ProtocolOutcome::Lock(Box::new(lock)))
            }
        }
    }

    fn take_again(&mut self, now: Timestamp) -> ProtocolStep {
        self.rounds_left = self.rounds_left.saturating_sub(1);
        match self.claim.clone() {
            // Every fence we may have sent is below the one that outran us, so none of them can land.
            Some((holder, ttl)) if self.rounds_left > 0 => {
                self.turn_to(Op::Take { holder, ttl }, now)
            }
            _ => self.give_up(ProtocolStep::Refused(Refusal::Contended), false),
        }
    }

    /// Goes on with the other half. The fence goes into the pointer as taking the lock has just read it.
    fn turn_to(&mut self, op: Op, now: Timestamp) -> ProtocolStep {
        let was_read = matches!(op, Op::Fence { .. });
        self.op = op;
        self.unknown = None;
        self.writes_left = self.attempts;
        if was_read {
            self.try_unread(now)
        } else {
            self.begin()
        }
    }
}

fn split<T>(read: Option<Versioned<T>>) -> (Option<T>, Option<Version>) {
    match read {
        Some(Versioned { value, version }) => (Some(value), Some(version)),
        None => (None, None),
    }
}

#[cfg(test)]
mod tests;
