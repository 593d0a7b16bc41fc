//! The actors: what each is doing, and what it was told.

use super::conduct::{Action, Conduct, Duty, EarlierReading, Ending, Task};
use super::names::{PAST, Printed, snapshot};
use super::request::{Condition, Request};
use super::{EARLY, Shared};
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::lease::Fence;
use stasis_model::format::pointer::Active;
use stasis_model::id::Generation;
use stasis_model::protocol::operation::{OperationKind, Unsettled};
use stasis_model::protocol::settle::{Body, StoreAnswer};
use stasis_model::protocol::step::Doc;
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

/// Whether the snapshot was there when the world began.
pub(crate) fn is_past(snapshot: &Active) -> bool {
    [older(), newer()].contains(snapshot)
}

/// What a free actor does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Next {
    /// A writer stores its archive and manifest.
    Store,
    /// A writer publishes.
    Publish,
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

/// What a busy actor waits for.
#[derive(Clone, Hash, Debug)]
pub(crate) enum Wish {
    Read(Doc),
    Write(Rc<Printed<Request>>),
    /// Also which version of the lock was judged.
    Erase(Doc, u32),
    EraseArchive,
}

/// Where an actor stands.
#[derive(Clone, Hash, Debug)]
pub(crate) enum Stage<C> {
    /// Between two tasks.
    Free(Next),
    /// In the middle of a task.
    Busy {
        task: Rc<Task>,
        conduct: C,
        wish: Wish,
        /// What comes after the task.
        then: Next,
    },
    /// Finished, stopped or crashed.
    Gone,
}

/// An operation that ended without anybody knowing how.
#[derive(Clone, Debug)]
pub(crate) struct UnknownOutcome {
    pub(crate) task: Rc<Task>,
    pub(crate) record: Unsettled,
}

impl Hash for UnknownOutcome {
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
    /// The version of the lock that was read last.
    judged: u32,
    /// Whether acquiring had to begin again.
    outrun: bool,
    /// The documents as a writer's last tasks left them.
    seen: EarlierReading,
    /// The documents as the task under way has seen them.
    reading: EarlierReading,
    pub(crate) unknowns: Vec<Rc<UnknownOutcome>>,
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
            seen: EarlierReading::default(),
            reading: EarlierReading::default(),
            unknowns: Vec::new(),
        }
    }

    /// What the actor's next task may begin with.
    pub(crate) fn given_to(&self, duty: &Duty) -> EarlierReading {
        self.seen.clone().take_for(duty)
    }

    /// Whether the task under way began with a write.
    pub(crate) fn begins_unread(&self) -> bool {
        matches!(
            &self.stage,
            Stage::Busy {
                wish: Wish::Write(_),
                ..
            }
        )
    }

    /// Notes the document that the task under way has just written.
    pub(crate) fn note_written(&mut self, document: &StoreAnswer) {
        self.reading.note(document);
    }

    /// Takes up a task; what it does then is its first wish.
    pub(crate) fn start(&mut self, task: Task, then: Next, shared: &Shared<C>) {
        self.seen.take_for(&task.duty);
        let mut conduct = C::new(&task);
        let action = conduct.next(StoreAnswer::Begin, EARLY);
        let task = Rc::new(task);
        let wish = self
            .wish(&task, action, shared)
            .expect("a task begins with a wish");
        self.serial += 1;
        self.stage = Stage::Busy {
            task,
            conduct,
            wish,
            then,
        };
    }

    /// What the actor wants of the store, or how its task ended.
    fn wish(&self, task: &Rc<Task>, action: Action, shared: &Shared<C>) -> Result<Wish, Ending> {
        let write = |condition, body: Box<Body>| {
            let loaded = match task.duty {
                Duty::Publish { base, .. } => base,
                _ => None,
            };
            let request = Request {
                task: Rc::clone(task),
                condition,
                body: *body,
                loaded,
                judged: self.judged,
            };
            Wish::Write(Rc::new(Printed::new(request, shared.renamings())))
        };
        Ok(match action {
            Action::Read(doc) => Wish::Read(doc),
            Action::Write(expected, body) => write(Condition::of(expected.as_ref()), body),
            Action::Overwrite(body) => write(Condition::Always, body),
            Action::Erase(doc) => Wish::Erase(doc, self.judged),
            Action::EraseArchive => Wish::EraseArchive,
            Action::End(ending) => return Err(ending),
        })
    }

    /// Receives an answer; says which task ended and how, if one did.
    pub(crate) fn receive(
        &mut self,
        answer: StoreAnswer,
        now: Timestamp,
        shared: &Shared<C>,
    ) -> Option<(Rc<Task>, Ending, bool)> {
        let Stage::Busy {
            task,
            mut conduct,
            wish: before,
            then,
        } = std::mem::replace(&mut self.stage, Stage::Gone)
        else {
            unreachable!("only busy actors receive answers");
        };
        if let (Duty::Reap, StoreAnswer::Lock(Some(lock))) = (&task.duty, &answer) {
            self.judged = lock.version.as_str().parse().expect("our own version");
        }
        let keeps_readings = shared.cast.keeps_readings && task.actor < REAPER;
        if keeps_readings {
            self.reading.note(&answer);
        }
        let action = conduct.next(answer, now);
        match self.wish(&task, action, shared) {
            Ok(wish) => {
                if let Wish::Write(request) = &wish {
                    self.reading.forget(request.value.body.doc());
                }
                let began_again = matches!(
                    (&before, &wish),
                    (Wish::Read(Doc::Pointer), Wish::Read(Doc::Lock))
                );
                self.outrun |= began_again && task.duty == Duty::Acquire;
                self.stage = Stage::Busy {
                    task,
                    conduct,
                    wish,
                    then,
                };
                None
            }
            Err(ending) => {
                let outrun = self.outrun;
                self.go_on(&task, &ending, then, shared);
                Some((task, ending, outrun))
            }
        }
    }

    /// Moves on after a task: a writer that was not told "done" stops, unless it only renewed in vain.
    fn go_on(&mut self, task: &Rc<Task>, ending: &Ending, then: Next, shared: &Shared<C>) {
        self.judged = 0;
        self.outrun = false;
        let reading = std::mem::take(&mut self.reading);
        if matches!(ending, Ending::Acquired { .. } | Ending::Done { .. }) {
            self.seen.update(reading);
        }
        let kind = task.duty.kind();
        if let Ending::Unsettled(doubt) = ending {
            let lineage = shared.lineage.clone();
            let record = Unsettled::new(task.op_id(), kind, lineage, *doubt, EARLY);
            let task = Rc::clone(task);
            self.unknowns.push(Rc::new(UnknownOutcome { task, record }));
        }
        match (kind, ending) {
            (OperationKind::Acquire, Ending::Acquired { fence, base }) => {
                self.lease = Some(*fence);
                self.base = *base;
                self.stage = Stage::Free(then);
            }
            (OperationKind::Renew, Ending::Refused(_)) => self.leave(),
            (OperationKind::Renew, _) | (OperationKind::Publish, Ending::Done { .. }) => {
                self.stage = Stage::Free(then);
            }
            (OperationKind::Acquire | OperationKind::Publish | OperationKind::Release, _) => {
                self.leave();
            }
            _ if self.turns > 0 => self.stage = Stage::Free(then),
            _ => self.leave(),
        }
    }

    /// Leaves for good. What nobody will ask for again is forgotten.
    pub(crate) fn leave(&mut self) {
        let unknowns = std::mem::take(&mut self.unknowns);
        *self = Self {
            stage: Stage::Gone,
            unknowns,
            ..Self::new(Next::Act, 0)
        };
    }
}
