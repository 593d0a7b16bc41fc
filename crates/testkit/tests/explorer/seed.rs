//! The seed's own protocol, unrepaired: it must fail within ten moves, each a request and its answer.

use crate::breaks;
use stasis_model::format::lease::{Fence, Lock, LockState};
use stasis_model::format::pointer::{Act, Pointer};
use stasis_model::id::Epoch;
use stasis_model::protocol::settle::{Answer, Body};
use stasis_model::protocol::step::{Doc, Refusal};
use stasis_model::time::Timestamp;
use stasis_testkit::lineage_world::cast::Cast;
use stasis_testkit::lineage_world::conduct::{Action, Conduct, Duty, Ending, Task, nobody};
use stasis_testkit::lineage_world::promise::Promise;

/// The lock is a separate object, a refused flip is retried with the new `ETag`, the reaper deletes, and a flip that
/// failed three times is taken for a flip that did not happen.
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

    fn acquire(&self, answer: Answer, now: Timestamp) -> Action {
        let mine = |seen: Option<&Lock>| {
            let first = Lock::first(nobody(), self.fence(), now, now);
            let taken = seen.map(|lock| lock.taken_by(nobody(), self.fence(), now, now));
            Box::new(Body::Lock(taken.unwrap_or(first)))
        };
        match answer {
            Answer::Lock(Some(lock)) if lock.value.op_id == self.task.op_id() => {
                Action::Read(Doc::Pointer)
            }
            Answer::Lock(None) => Action::Write(None, mine(None)),
            Answer::Lock(Some(lock)) if lock.value.is_live(now) => {
                Action::End(Ending::Refused(Refusal::Held(Box::new(lock.value))))
            }
            Answer::Lock(Some(lock)) => Action::Write(Some(lock.version), mine(Some(&lock.value))),
            Answer::Won => Action::Read(Doc::Pointer),
            Answer::Pointer(pointer) => Action::End(Ending::Acquired {
                fence: self.fence(),
                base: pointer.and_then(|pointer| pointer.value.active_archive()),
            }),
            Answer::Unreadable => Action::End(Ending::Unreachable),
            _ => Action::Read(Doc::Lock),
        }
    }

    fn flip(&mut self, answer: Answer, now: Timestamp) -> Action {
        let Duty::Flip { to, .. } = &self.task.duty else {
            unreachable!("only flips flip");
        };
        match answer {
            Answer::Pointer(pointer) => {
                let (version, found) = match pointer {
                    Some(pointer) => (Some(pointer.version), pointer.value),
                    None => (None, Pointer::empty()),
                };
                let id = self.task.op_id();
                let mut next = found.successor(id, Act::Flip, Some(to.archive), now);
                next.point_at(to.clone(), now);
                self.attempts_left -= 1;
                Action::Write(version, Box::new(Body::Pointer(next)))
            }
            Answer::Won => Action::End(Ending::Done { lock_told: true }),
            Answer::Lost | Answer::Silence if self.attempts_left == 0 => {
                Action::End(Ending::Refused(Refusal::Contended))
            }
            Answer::Unreadable => Action::End(Ending::Unreachable),
            _ => Action::Read(Doc::Pointer),
        }
    }

    fn reap(answer: Answer, now: Timestamp) -> Action {
        match answer {
            Answer::Begin => Action::Read(Doc::Lock),
            Answer::Lock(Some(lock))
                if lock.value.state == LockState::Held && lock.value.expires_at < now =>
            {
                Action::Erase(Doc::Lock)
            }
            Answer::Lock(_) => Action::End(Ending::Refused(Refusal::NotExpired)),
            _ => Action::End(Ending::Done { lock_told: true }),
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

    fn next(&mut self, answer: Answer, now: Timestamp) -> Action {
        match (&self.task.duty, &answer) {
            (Duty::Acquire, _) => self.acquire(answer, now),
            (Duty::Flip { .. }, _) => self.flip(answer, now),
            (Duty::Reap, _) => Self::reap(answer, now),
            // The seed has no release: the lock expires.
            (_, Answer::Begin) => Action::Read(Doc::Lock),
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
fn the_seeds_protocol_lets_an_evicted_writer_flip() {
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
fn the_seeds_protocol_calls_an_applied_flip_a_failure() {
    let alone = Cast {
        writers: 1,
        reaps: 0,
        ..cast()
    };
    assert!(breaks::<Seed>(&[Promise::Truthful], alone) <= 10);
}

#[test]
fn the_seeds_reaper_deletes_a_lock_that_was_taken_after_it_looked() {
    assert!(breaks::<Seed>(&[Promise::Spared], cast()) <= 10);
}
