//! The seed's own protocol, unrepaired: it must fail within ten moves, each a request and its answer.

use crate::breaks;
use stasis_model::format::lease::{Fence, Lock, LockState};
use stasis_model::format::pointer::{Pointer, PointerAct};
use stasis_model::id::Epoch;
use stasis_model::protocol::settle::{Body, StoreAnswer};
use stasis_model::protocol::step::{Doc, Refusal};
use stasis_model::time::Timestamp;
use stasis_testkit::lineage_world::cast::Cast;
use stasis_testkit::lineage_world::conduct::{Action, Conduct, Duty, Ending, Task, nobody};
use stasis_testkit::lineage_world::promise::Promise;

/// The lock is a separate object, a refused publish is retried with the new `ETag`, the reaper deletes, and a publish that
/// failed three times is taken for a publish that did not happen.
#[derive(Clone, Hash, Debug)]
struct Seed {
    task: Task,
    attempts_left: u8,
}

impl Seed {
    fn fence(&self) -> Fence {
        Fence {
            epoch: Epoch(0),
            op_id: self.task.op_id(),
        }
    }

    fn acquire(&self, answer: StoreAnswer, now: Timestamp) -> Action {
        let mine = |seen: Option<&Lock>| {
            let first = Lock::first(nobody(), self.fence(), now, now);
            let taken = seen.map(|lock| lock.taken_by(nobody(), self.fence(), now, now));
            Box::new(Body::Lock(taken.unwrap_or(first)))
        };
        match answer {
            StoreAnswer::Lock(Some(lock)) if lock.value.op_id == self.task.op_id() => {
                Action::Read(Doc::Pointer)
            }
            StoreAnswer::Lock(None) => Action::Write(None, mine(None)),
            StoreAnswer::Lock(Some(lock)) if lock.value.is_live(now) => {
                Action::End(Ending::Refused(Refusal::Held(Box::new(lock.value))))
            }
            StoreAnswer::Lock(Some(lock)) => {
                Action::Write(Some(lock.version), mine(Some(&lock.value)))
            }
            StoreAnswer::Won => Action::Read(Doc::Pointer),
            StoreAnswer::Pointer(pointer) => Action::End(Ending::Acquired {
                fence: self.fence(),
                base: pointer.and_then(|pointer| pointer.value.active_archive()),
            }),
            StoreAnswer::Unreadable => Action::End(Ending::Unreachable),
            _ => Action::Read(Doc::Lock),
        }
    }

    fn publish(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        let Duty::Publish { to, .. } = &self.task.duty else {
            unreachable!("only publishes publish");
        };
        match answer {
            StoreAnswer::Pointer(pointer) => {
                let (version, found) = match pointer {
                    Some(pointer) => (Some(pointer.version), pointer.value),
                    None => (None, Pointer::empty()),
                };
                let id = self.task.op_id();
                let mut next = found.successor(id, PointerAct::Publish, Some(to.archive), now);
                next.point_at(to.clone(), now);
                self.attempts_left -= 1;
                Action::Write(version, Box::new(Body::Pointer(next)))
            }
            StoreAnswer::Won => Action::End(Ending::Done { lock_marked: true }),
            StoreAnswer::Lost | StoreAnswer::Silence if self.attempts_left == 0 => {
                Action::End(Ending::Refused(Refusal::Contended))
            }
            StoreAnswer::Unreadable => Action::End(Ending::Unreachable),
            _ => Action::Read(Doc::Pointer),
        }
    }

    fn reap(answer: StoreAnswer, now: Timestamp) -> Action {
        match answer {
            StoreAnswer::Begin => Action::Read(Doc::Lock),
            StoreAnswer::Lock(Some(lock))
                if lock.value.state == LockState::Held && lock.value.expires_at < now =>
            {
                Action::Erase(Doc::Lock)
            }
            StoreAnswer::Lock(_) => Action::End(Ending::Refused(Refusal::NotExpired)),
            _ => Action::End(Ending::Done { lock_marked: true }),
        }
    }
}

impl Conduct for Seed {
    fn new(task: &Task) -> Self {
        Self {
            task: task.clone(),
            attempts_left: task.attempts,
        }
    }

    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        match (&self.task.duty, &answer) {
            (Duty::Acquire, _) => self.acquire(answer, now),
            (Duty::Publish { .. }, _) => self.publish(answer, now),
            (Duty::Reap, _) => Self::reap(answer, now),
            // The seed has no release: the lock expires.
            (_, StoreAnswer::Begin) => Action::Read(Doc::Lock),
            _ => Action::End(Ending::Refused(Refusal::NotHeld)),
        }
    }
}

fn cast() -> Cast {
    Cast {
        attempts: 3,
        reaps: 1,
        owned_by: Doc::Lock,
        ..Cast::default()
    }
}

#[test]
fn the_seeds_protocol_lets_an_evicted_writer_publish() {
    assert!(breaks::<Seed>(&[Promise::Fenced], cast()) <= 10);
}

#[test]
fn the_seeds_protocol_loses_an_update() {
    let once = Cast {
        attempts: 1,
        ..cast()
    };
    assert!(breaks::<Seed>(&[Promise::Linear], once) <= 10);
}

#[test]
fn the_seeds_protocol_calls_an_applied_publish_a_failure() {
    let alone = Cast {
        writers: 1,
        reaps: 0,
        ..cast()
    };
    assert!(breaks::<Seed>(&[Promise::Truthful], alone) <= 10);
}

#[test]
fn the_seeds_reaper_deletes_a_lock_that_was_taken_after_it_looked() {
    assert!(breaks::<Seed>(&[Promise::Preserved], cast()) <= 10);
}
