//! Mutants in the way answers are received and requests are made.

use crate::breaks;
use crate::deviations::{Deviation, WithoutFence};
use stasis_model::format::lease::{Fence, LockState};
use stasis_model::protocol::settle::{Body, Protocol, StoreAnswer};
use stasis_model::protocol::step::{Doc, Refusal};
use stasis_model::time::Timestamp;
use stasis_testkit::lineage_world::EARLY;
use stasis_testkit::lineage_world::cast::{Cast, Command};
use stasis_testkit::lineage_world::conduct::{
    Action, Conduct, Duty, EarlierReading, Ending, Honest, PutAnswer, Task,
};
use stasis_testkit::lineage_world::names::op_id;
use stasis_testkit::lineage_world::promise::Promise;

/// Takes "lost" for "not applied".
#[derive(Clone, Hash, Debug)]
struct TrustsLost(Honest);

impl Conduct for TrustsLost {
    fn new(task: &Task) -> Self {
        Self(Honest::new(task))
    }
    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        match answer {
            StoreAnswer::Lost => Action::End(Ending::Refused(Refusal::Contended)),
            answer => self.0.next(answer, now),
        }
    }
}

#[test]
fn an_actor_that_trusts_a_refusal_reports_an_applied_write_as_refused() {
    breaks::<TrustsLost>(&[Promise::Truthful], Cast::default());
}

/// Takes silence for "not applied".
#[derive(Clone, Hash, Debug)]
struct TrustsSilence(Honest);

impl Conduct for TrustsSilence {
    fn new(task: &Task) -> Self {
        Self(Honest::new(task))
    }
    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        match self.0.next(answer, now) {
            Action::End(Ending::Unsettled(_)) => Action::End(Ending::Unreachable),
            action => action,
        }
    }
}

#[test]
fn an_actor_that_takes_unsettled_for_failed_lies() {
    breaks::<TrustsSilence>(&[Promise::Truthful], Cast::default());
}

/// Starts anew under another operation id whenever an answer is missing.
#[derive(Clone, Hash, Debug)]
struct FreshIds {
    task: Task,
    tries: u8,
    protocol: Protocol,
}

impl Conduct for FreshIds {
    fn new(task: &Task) -> Self {
        Self {
            task: task.clone(),
            tries: 0,
            protocol: task.protocol(),
        }
    }
    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        let retries = matches!(answer, StoreAnswer::Lost | StoreAnswer::Silence);
        if !retries || self.tries == 1 {
            return self.protocol.next(answer, now).into();
        }
        self.tries += 1;
        let fresh = op_id(self.task.actor, 100 + self.task.serial);
        self.protocol = self.task.protocol_under(fresh);
        self.protocol.next(StoreAnswer::Begin, EARLY).into()
    }
}

#[test]
fn a_retry_under_a_fresh_operation_id_does_not_recognise_its_own_write() {
    breaks::<FreshIds>(&[Promise::Truthful], Cast::default());
}

/// Takes a 409 for "already there".
#[derive(Clone, Hash, Debug)]
struct BusyIsStored(Honest);

impl Conduct for BusyIsStored {
    fn new(task: &Task) -> Self {
        Self(Honest::new(task))
    }
    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        self.0.next(answer, now)
    }
    fn is_stored(answer: PutAnswer) -> bool {
        answer != PutAnswer::Silence
    }
}

#[test]
fn a_409_taken_for_stored_leaves_a_pointer_to_nothing() {
    breaks::<BusyIsStored>(&[Promise::Closed], Cast::default());
}

/// Deletes its archive when it does not know whether it was published.
#[derive(Clone, Hash, Debug)]
struct CleansUp {
    honest: Honest,
    publishes: bool,
    ending: Option<Ending>,
}

impl Conduct for CleansUp {
    fn new(task: &Task) -> Self {
        Self {
            honest: Honest::new(task),
            publishes: matches!(task.duty, Duty::Publish { .. }),
            ending: None,
        }
    }
    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        if let Some(ending) = self.ending.take() {
            return Action::End(ending);
        }
        match self.honest.next(answer, now) {
            Action::End(Ending::Unsettled(doubt)) if self.publishes => {
                self.ending = Some(Ending::Unsettled(doubt));
                Action::EraseArchive
            }
            action => action,
        }
    }
}

#[test]
fn cleaning_up_after_an_unknown_outcome_deletes_the_active_snapshot() {
    breaks::<CleansUp>(&[Promise::Closed], Cast::default());
}

/// Owns the lineage as soon as the lock is taken, and leaves the pointer's fence alone.
#[derive(Clone, Hash, Debug)]
struct SkipsFence {
    acquires: bool,
    taken: Option<Fence>,
    sent: Option<Fence>,
    honest: Deviation<WithoutFence>,
}

impl Conduct for SkipsFence {
    fn new(task: &Task) -> Self {
        Self {
            acquires: task.duty == Duty::Acquire,
            taken: None,
            sent: None,
            honest: Conduct::new(task),
        }
    }
    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        if let (Some(fence), StoreAnswer::Pointer(Some(pointer))) = (self.taken, &answer) {
            let base = pointer.value.active_archive();
            return Action::End(Ending::Acquired { fence, base });
        }
        if answer == StoreAnswer::Won && self.acquires {
            self.taken = self.sent;
        }
        let action = self.honest.next(answer, now);
        if let Action::Write(_, body) = &action
            && let Body::Lock(lock) = &**body
        {
            self.sent = Some(lock.fence());
        }
        action
    }
}

#[test]
fn an_owner_without_a_fence_in_the_pointer_is_not_kept_out_after_its_eviction() {
    let cast = Cast {
        owned_by: Doc::Lock,
        ..Cast::default()
    };
    breaks::<SkipsFence>(&[Promise::Fenced], cast);
}

/// Judges by reading, then deletes whatever is there.
#[derive(Clone, Hash, Debug)]
struct Deletes {
    reaps: bool,
    honest: Honest,
}

impl Conduct for Deletes {
    fn new(task: &Task) -> Self {
        Self {
            reaps: task.duty == Duty::Reap,
            honest: Honest::new(task),
        }
    }
    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        match self.honest.next(answer, now) {
            Action::Write(..) if self.reaps => Action::Erase(Doc::Lock),
            action => action,
        }
    }
}

#[test]
fn a_reaper_that_deletes_takes_a_lock_that_was_renewed_after_it_looked() {
    let cast = Cast {
        writers: 1,
        renewals: 1,
        reaps: 1,
        ..Cast::default()
    };
    breaks::<Deletes>(&[Promise::Preserved], cast);
}

/// Frees the lock, but leaves the pointer's fence alone.
#[derive(Clone, Hash, Debug)]
struct UnlocksOnly {
    unlocks: bool,
    honest: Honest,
}

impl Conduct for UnlocksOnly {
    fn new(task: &Task) -> Self {
        Self {
            unlocks: matches!(task.duty, Duty::ForceUnlock(_)),
            honest: Honest::new(task),
        }
    }
    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        if !self.unlocks {
            return self.honest.next(answer, now);
        }
        match answer {
            StoreAnswer::Begin => Action::Read(Doc::Lock),
            StoreAnswer::Lock(Some(lock)) if lock.value.state == LockState::Held => {
                let mut next = lock.value.clone();
                next.generation = next.generation.next();
                next.state = LockState::Forced;
                Action::Write(Some(lock.version), Box::new(Body::Lock(next)))
            }
            StoreAnswer::Won => Action::End(Ending::Done { lock_marked: true }),
            _ => Action::End(Ending::Refused(Refusal::NotHeld)),
        }
    }
}

#[test]
fn a_force_unlock_that_leaves_the_fence_lets_the_old_owner_publish() {
    let cast = Cast {
        acts: 1,
        repertoire: &[Command::ForceUnlock],
        ..Cast::default()
    };
    breaks::<UnlocksOnly>(&[Promise::Fenced], cast);
}

/// Looks at the lock before the pointer, as the rule once did.
#[derive(Clone, Hash, Debug)]
struct LooksAtTheLockFirst {
    unlocks: bool,
    looking: bool,
    lock: Option<StoreAnswer>,
    honest: Honest,
}

impl Conduct for LooksAtTheLockFirst {
    fn new(task: &Task) -> Self {
        Self {
            unlocks: matches!(task.duty, Duty::ForceUnlock(_)),
            looking: false,
            lock: None,
            honest: Honest::new(task),
        }
    }
    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        if self.looking && matches!(answer, StoreAnswer::Lock(_)) {
            self.looking = false;
            self.lock = Some(answer);
            return Action::Read(Doc::Pointer);
        }
        let action = self.honest.next(answer, now);
        if let Some(lock) = self.lock.take() {
            return self.honest.next(lock, now);
        }
        self.looking = self.unlocks && action == Action::Read(Doc::Pointer);
        if self.looking {
            return Action::Read(Doc::Lock);
        }
        action
    }
}

#[test]
fn a_force_unlock_that_looks_at_the_lock_first_misses_an_owner_that_came_after() {
    let cast = Cast {
        acts: 1,
        repertoire: &[Command::ForceUnlock],
        ..Cast::default()
    };
    breaks::<LooksAtTheLockFirst>(&[Promise::Preserved], cast);
}

/// Counts epochs by the lock alone, and writes its fence over whatever fence it finds.
#[derive(Clone, Hash, Debug)]
struct ForgetsFences {
    acquires: bool,
    honest: Honest,
}

impl Conduct for ForgetsFences {
    fn new(task: &Task) -> Self {
        Self {
            acquires: task.duty == Duty::Acquire,
            honest: Honest::new(task),
        }
    }
    fn next(&mut self, mut answer: StoreAnswer, now: Timestamp) -> Action {
        if let StoreAnswer::Pointer(Some(pointer)) = &mut answer
            && self.acquires
        {
            pointer.value.fence = Fence::default();
        }
        self.honest.next(answer, now)
    }
}

#[test]
fn epochs_counted_by_the_lock_alone_go_backwards_after_a_rollback() {
    let cast = Cast {
        acts: 1,
        repertoire: &[Command::Rollback],
        ..Cast::default()
    };
    breaks::<ForgetsFences>(&[Promise::Growing], cast);
}

/// Takes every fence with its own epoch for its own fence.
#[derive(Clone, Hash, Debug)]
struct ComparesNumbers {
    own: Option<Fence>,
    acquires: bool,
    honest: Honest,
}

impl Conduct for ComparesNumbers {
    fn new(task: &Task) -> Self {
        let own = match task.duty {
            Duty::Publish { fence, .. } => Some(fence),
            _ => None,
        };
        Self {
            own,
            acquires: task.duty == Duty::Acquire,
            honest: Honest::new(task),
        }
    }
    fn next(&mut self, mut answer: StoreAnswer, now: Timestamp) -> Action {
        if let (StoreAnswer::Pointer(Some(pointer)), Some(own)) = (&mut answer, self.own)
            && pointer.value.fence.epoch == own.epoch
        {
            pointer.value.fence = own;
        }
        let action = self.honest.next(answer, now);
        if let Action::Write(_, body) = &action
            && let Body::Lock(lock) = &**body
            && self.acquires
        {
            self.own = Some(lock.fence());
        }
        action
    }
}

#[test]
fn fences_compared_by_number_alone_let_an_operators_epoch_pass_for_a_writers() {
    let cast = Cast {
        acts: 1,
        repertoire: &[Command::Rollback],
        ..Cast::default()
    };
    breaks::<ComparesNumbers>(&[Promise::Fenced], cast);
}

/// Reads anew when its write is refused, but only to learn the version: what it writes is still made of its earlier reading.
#[derive(Clone, Hash, Debug)]
struct KeepsItsReading {
    given: EarlierReading,
    honest: Honest,
}

impl Conduct for KeepsItsReading {
    fn new(task: &Task) -> Self {
        Self {
            given: task.given.clone(),
            honest: Honest::new(task),
        }
    }
    fn next(&mut self, mut answer: StoreAnswer, now: Timestamp) -> Action {
        match (&mut answer, &self.given) {
            (
                StoreAnswer::Lock(Some(found)),
                EarlierReading {
                    lock: Some(seen), ..
                },
            ) => {
                found.value.clone_from(&seen.value);
            }
            (
                StoreAnswer::Pointer(Some(found)),
                EarlierReading {
                    pointer: Some(seen),
                    ..
                },
            ) => {
                found.value.clone_from(&seen.value);
            }
            _ => {}
        }
        self.honest.next(answer, now)
    }
}

/// Writers that begin with what they saw last, and an operator who comes between.
fn interrupted_writers() -> Cast {
    Cast {
        keeps_readings: true,
        acts: 1,
        repertoire: &[Command::Rollback],
        ..Cast::default()
    }
}

#[test]
fn a_publish_made_of_an_earlier_reading_under_a_new_version_passes_the_fence() {
    breaks::<KeepsItsReading>(&[Promise::Fenced], interrupted_writers());
}

#[test]
fn a_release_made_of_an_earlier_reading_under_a_new_version_frees_somebody_elses_lease() {
    let cast = Cast {
        reaps: 1,
        ..interrupted_writers()
    };
    breaks::<KeepsItsReading>(&[Promise::Preserved], cast);
}

/// Writes what it makes of an earlier reading whatever is there.
#[derive(Clone, Hash, Debug)]
struct TrustsItsReading {
    is_given: bool,
    honest: Honest,
}

impl Conduct for TrustsItsReading {
    fn new(task: &Task) -> Self {
        Self {
            is_given: task.given != EarlierReading::default(),
            honest: Honest::new(task),
        }
    }
    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        let begins = answer == StoreAnswer::Begin && self.is_given;
        match self.honest.next(answer, now) {
            Action::Write(_, body) if begins => Action::Overwrite(body),
            action => action,
        }
    }
}

#[test]
fn a_publish_that_trusts_an_earlier_reading_replaces_what_an_operator_chose() {
    breaks::<TrustsItsReading>(&[Promise::Linear], interrupted_writers());
}
