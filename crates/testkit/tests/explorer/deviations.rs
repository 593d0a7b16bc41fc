//! Mutants that carry out another task than the one they were given, judging by what they find.

use crate::breaks;
use stasis_model::format::lease::Lock;
use stasis_model::format::pointer::Pointer;
use stasis_model::protocol::settle::{Protocol, StoreAnswer};
use stasis_model::time::Timestamp;
use stasis_testkit::lineage_world::EARLY;
use stasis_testkit::lineage_world::cast::{Cast, Command};
use stasis_testkit::lineage_world::conduct::{Action, Conduct, Duty, Task};
use stasis_testkit::lineage_world::promise::Promise;
use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;

/// How a task is retold, once the documents are known.
pub(crate) trait Story: Clone + Hash + Debug {
    fn deviations(duty: Duty, lock: Option<&Lock>, pointer: Option<&Pointer>) -> Duty;
}

/// Carries out the task as it is retold after every read.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Deviation<S> {
    task: Task,
    received: Vec<StoreAnswer>,
    protocol: Protocol,
    story: PhantomData<S>,
}

impl<S: Story> Conduct for Deviation<S> {
    fn new(task: &Task) -> Self {
        Self {
            task: task.clone(),
            received: Vec::new(),
            protocol: task.protocol(),
            story: PhantomData,
        }
    }

    fn next(&mut self, answer: StoreAnswer, now: Timestamp) -> Action {
        let is_document = matches!(answer, StoreAnswer::Lock(_) | StoreAnswer::Pointer(_));
        if !is_document {
            self.received.clear();
            return self.protocol.next(answer, now).into();
        }
        self.received.push(answer.clone());
        let found = |answer: &StoreAnswer| match answer {
            StoreAnswer::Lock(Some(lock)) => (Some(lock.value.clone()), None),
            StoreAnswer::Pointer(Some(pointer)) => (None, Some(pointer.value.clone())),
            _ => (None, None),
        };
        let lock = self.received.iter().find_map(|answer| found(answer).0);
        let pointer = self.received.iter().find_map(|answer| found(answer).1);
        let duty = S::deviations(self.task.duty.clone(), lock.as_ref(), pointer.as_ref());
        if duty == self.task.duty {
            return self.protocol.next(answer, now).into();
        }
        let deviations = Task {
            duty,
            ..self.task.clone()
        };
        self.protocol = deviations.protocol();
        let first = self.protocol.next(StoreAnswer::Begin, EARLY);
        let answers = self.received.clone();
        answers
            .into_iter()
            .fold(first, |_, answer| self.protocol.next(answer, now))
            .into()
    }
}

macro_rules! story {
    ($name:ident, $deviations:expr) => {
        #[derive(Clone, Hash, Debug)]
        pub(crate) struct $name;

        impl Story for $name {
            fn deviations(duty: Duty, lock: Option<&Lock>, pointer: Option<&Pointer>) -> Duty {
                let deviations: fn(Duty, Option<&Lock>, Option<&Pointer>) -> Duty = $deviations;
                deviations(duty, lock, pointer)
            }
        }
    };
}

story!(WithoutBase, |duty, _, pointer| match (duty, pointer) {
    (Duty::Publish { fence, to, .. }, Some(pointer)) => Duty::Publish {
        fence,
        base: pointer.active_archive(),
        to,
    },
    (duty, _) => duty,
});

story!(WithoutFence, |duty, _, pointer| match (duty, pointer) {
    (Duty::Publish { base, to, .. }, Some(pointer)) => Duty::Publish {
        fence: pointer.fence,
        base,
        to,
    },
    (duty, _) => duty,
});

story!(WithoutEither, |duty, lock, pointer| {
    let duty = WithoutBase::deviations(duty, lock, pointer);
    WithoutFence::deviations(duty, lock, pointer)
});

story!(FreshIsAsGood, |duty, lock, pointer| match duty {
    Duty::Publish { base: None, .. } => WithoutBase::deviations(duty, lock, pointer),
    duty => duty,
});

story!(WhoeverHolds, |duty, lock, _| match (duty, lock) {
    (Duty::ForceUnlock(_), Some(lock)) => Duty::ForceUnlock(lock.fence()),
    (Duty::Release(_), Some(lock)) => Duty::Release(lock.fence()),
    (duty, _) => duty,
});

#[test]
fn a_publish_without_the_base_check_replaces_what_its_writer_never_loaded() {
    let cast = Cast {
        fresh: true,
        ..Cast::default()
    };
    breaks::<Deviation<WithoutBase>>(&[Promise::Linear], cast);
}

#[test]
fn a_publish_without_the_fence_check_is_made_by_an_evicted_writer() {
    breaks::<Deviation<WithoutFence>>(&[Promise::Fenced], Cast::default());
}

#[test]
fn a_publish_without_either_check_loses_an_update() {
    breaks::<Deviation<WithoutEither>>(&[Promise::Linear], Cast::default());
}

#[test]
fn a_fresh_fallback_that_publishes_replaces_a_good_snapshot() {
    let cast = Cast {
        writers: 1,
        fresh: true,
        ..Cast::default()
    };
    breaks::<Deviation<FreshIsAsGood>>(&[Promise::Linear], cast);
}

#[test]
fn a_release_of_whatever_is_held_frees_somebody_elses_lease() {
    breaks::<Deviation<WhoeverHolds>>(&[Promise::Preserved], Cast::default());
}

#[test]
fn a_force_unlock_of_whoever_holds_throws_out_a_newer_owner() {
    let cast = Cast {
        acts: 1,
        repertoire: &[Command::ForceUnlock],
        attempts: 1,
        ..Cast::default()
    };
    breaks::<Deviation<WhoeverHolds>>(&[Promise::Preserved], cast);
}
