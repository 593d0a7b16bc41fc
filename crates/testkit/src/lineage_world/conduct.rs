//! How an actor carries out a task: by the production protocol, or by a mutant.

use super::names::op_id;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::document::{Version, Versioned};
use stasis_model::format::lease::{Fence, Holder, Lock};
use stasis_model::format::pointer::{Active, Pointer};
use stasis_model::id::{Generation, Label, OpId};
use stasis_model::protocol::operation::OperationKind;
use stasis_model::protocol::settle::{
    Body, Protocol, ProtocolOutcome, ProtocolStep, StoreAnswer, UnknownWrite,
};
use stasis_model::protocol::step::{Doc, Op, Refusal};
use stasis_model::time::Timestamp;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// What an actor is to do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Duty {
    /// Own the lineage.
    Acquire,
    /// Prolong the lease.
    Renew(Fence),
    /// Give the lease back.
    Release(Fence),
    /// Free an expired lock.
    Reap,
    /// Publish a snapshot.
    Publish {
        /// The writer's lease.
        fence: Fence,
        /// What the writer says it loaded.
        base: Option<ArchiveDigest>,
        /// The new snapshot.
        to: Active,
    },
    /// Choose a snapshot.
    Rollback {
        /// Which.
        to: Active,
        /// The generation that was looked at, if it matters.
        seen: Option<Generation>,
    },
    /// Throw the holder out.
    ForceUnlock(Fence),
    /// Mark a snapshot for removal.
    Delete {
        /// Which.
        target: ArchiveDigest,
        /// Every snapshot there was when the operator listed them.
        known: Vec<ArchiveDigest>,
    },
    /// Protect a snapshot.
    Pin(ArchiveDigest),
}

impl Duty {
    /// The word for it.
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::Acquire => OperationKind::Acquire,
            Self::Renew(_) => OperationKind::Renew,
            Self::Release(_) => OperationKind::Release,
            Self::Reap => OperationKind::Reap,
            Self::Publish { .. } => OperationKind::Publish,
            Self::Rollback { .. } => OperationKind::Rollback,
            Self::ForceUnlock(_) => OperationKind::ForceUnlock,
            Self::Delete { .. } => OperationKind::Delete,
            Self::Pin(_) => OperationKind::Pin,
        }
    }
}

/// The documents as an actor last saw them; `None` is not known, which is not absent.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct EarlierReading {
    /// `lock.json`
    pub lock: Option<Versioned<Lock>>,
    /// `latest.json`
    pub pointer: Option<Versioned<Pointer>>,
}

impl EarlierReading {
    /// Takes a document for what it is now.
    pub(crate) fn note(&mut self, answer: &StoreAnswer) {
        match answer {
            StoreAnswer::Lock(lock) => self.lock.clone_from(lock),
            StoreAnswer::Pointer(pointer) => self.pointer.clone_from(pointer),
            _ => {}
        }
    }

    /// Forgets a document that is being written.
    pub(crate) fn forget(&mut self, doc: Doc) {
        match doc {
            Doc::Lock => self.lock = None,
            Doc::Pointer => self.pointer = None,
        }
    }

    /// Takes over what a later task saw.
    pub(crate) fn update(&mut self, later: Self) {
        self.lock = later.lock.or(self.lock.take());
        self.pointer = later.pointer.or(self.pointer.take());
    }

    /// What of it a task may begin with, which is forgotten then: the one document that its rule looks at.
    pub(crate) fn take_for(&mut self, duty: &Duty) -> Self {
        match duty {
            Duty::Publish { .. } => Self {
                pointer: self.pointer.take(),
                lock: None,
            },
            Duty::Release(_) => Self {
                lock: self.lock.take(),
                pointer: None,
            },
            _ => Self::default(),
        }
    }
}

/// One piece of work of one actor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// Whose.
    pub actor: u8,
    /// Which of the actor's tasks.
    pub serial: u8,
    /// What is to be done.
    pub duty: Duty,
    /// How often to write before giving up.
    pub attempts: u8,
    /// What its first attempt is made from, without reading.
    pub given: EarlierReading,
}

impl Hash for Task {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The operation id says whose it is, in a form in which it can be renamed.
        self.op_id().hash(state);
        self.duty.hash(state);
        self.attempts.hash(state);
        self.given.hash(state);
    }
}

impl Task {
    /// The task's own operation id.
    pub fn op_id(&self) -> OpId {
        op_id(self.actor, self.serial)
    }

    /// The production protocol for this task.
    pub fn protocol(&self) -> Protocol {
        self.protocol_under(self.op_id())
    }

    /// The production protocol for this task, under another operation id.
    pub fn protocol_under(&self, id: OpId) -> Protocol {
        let new = |op| Protocol::new(id, op);
        let forced = |op| Protocol::forced(id, op, blank(), Duration::ZERO);
        let protocol = match self.duty.clone() {
            Duty::Acquire => Protocol::acquire(id, nobody(), Duration::ZERO),
            Duty::Renew(fence) => new(Op::Renew {
                fence,
                ttl: Duration::ZERO,
            }),
            Duty::Release(fence) => new(Op::Release { fence }),
            Duty::Reap => new(Op::Reap {
                grace: Duration::ZERO,
            }),
            Duty::Publish { fence, base, to } => new(Op::Publish { fence, base, to }),
            Duty::Rollback { to, seen } => forced(Op::Rollback { to, seen }),
            Duty::ForceUnlock(seen) => forced(Op::ForceUnlock { seen }),
            Duty::Delete { target, known } => new(Op::Delete { target, known }),
            Duty::Pin(target) => new(Op::Pin {
                target,
                pinned: true,
            }),
        };
        let protocol = protocol.with_attempts(self.attempts);
        match self.duty {
            Duty::Publish { .. } => protocol.from_pointer(self.given.pointer.clone()),
            Duty::Release(_) => protocol.from_lock(self.given.lock.clone()),
            _ => protocol,
        }
    }
}

fn blank() -> Label {
    "".parse().expect("an empty label is a label")
}

/// A holder without a name: leases are told apart by their operation ids.
pub fn nobody() -> Holder {
    Holder {
        run_id: blank(),
        host: blank(),
        host_run_id: blank(),
    }
}

/// What an actor asks of the store, or says at the end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Read one document.
    Read(Doc),
    /// Write one document on condition; `None` creates.
    Write(Option<Version>, Box<Body>),
    /// Write one document, whatever is there. Honest actors never do.
    Overwrite(Box<Body>),
    /// Delete one document. Honest actors never do.
    Erase(Doc),
    /// Delete the actor's own archive. Honest actors never do.
    EraseArchive,
    /// Nothing more.
    End(Ending),
}

/// What an actor says at the end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Ending {
    /// The lineage is owned.
    Acquired {
        /// The lease.
        fence: Fence,
        /// What to start from.
        base: Option<ArchiveDigest>,
    },
    /// It is done.
    Done {
        /// Whether the lock was told as well.
        lock_marked: bool,
    },
    /// It was not done and will not be.
    Refused(Refusal),
    /// It was not done: the store could not be read.
    Unreachable,
    /// Nobody can tell.
    Unsettled(UnknownWrite),
}

impl From<ProtocolStep> for Action {
    fn from(step: ProtocolStep) -> Self {
        Self::End(match step {
            ProtocolStep::Read(doc) => return Self::Read(doc),
            ProtocolStep::Write { expected, body } => return Self::Write(expected, body),
            ProtocolStep::Done(ProtocolOutcome::Acquired { fence, base, .. }) => Ending::Acquired {
                fence,
                base: base.map(|active| active.archive),
            },
            ProtocolStep::Done(ProtocolOutcome::Lock(_)) => Ending::Done { lock_marked: true },
            ProtocolStep::Done(ProtocolOutcome::Pointer { lock_marked, .. }) => {
                Ending::Done { lock_marked }
            }
            ProtocolStep::Refused(refusal) => Ending::Refused(refusal),
            ProtocolStep::Unreachable => Ending::Unreachable,
            ProtocolStep::Unsettled(doubt) => Ending::Unsettled(doubt),
        })
    }
}

/// What the store said to an archive that was put.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PutAnswer {
    /// It is there.
    Stored,
    /// Nothing was received.
    Silence,
    /// The store was busy with another request for the same name (409): nothing is settled.
    Busy,
}

/// How tasks are carried out.
pub trait Conduct: Clone + Hash + Debug {
    /// Takes up a task; the first [`StoreAnswer`] to come is [`StoreAnswer::Begin`].
    fn new(task: &Task) -> Self;

    /// Receives an answer and says what to do next.
    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action;

    /// Whether an archive may be relied upon after this answer; otherwise it is put again.
    fn is_stored(answer: PutAnswer) -> bool {
        answer == PutAnswer::Stored
    }
}

/// The production protocol, unchanged.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Honest(Protocol);

impl Conduct for Honest {
    fn new(task: &Task) -> Self {
        Self(task.protocol())
    }

    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        self.0.next(answer, now).into()
    }
}
