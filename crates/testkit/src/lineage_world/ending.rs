//! What an actor does when a task has ended.

use super::actor::{Actor, Next, UnknownOutcome};
use super::conduct::{Conduct, Duty, Ending, PutAnswer, Task};
use super::names::Printed;
use super::promise::Verdict;
use super::{LineageWorld, observation};
use stasis_model::protocol::operation::{OperationFate, OperationKind};
use stasis_model::protocol::step::Refusal;
use std::rc::Rc;

impl<C: Conduct> LineageWorld<C> {
    /// What a writer does once it owns the lineage.
    pub(super) fn after_acquiring(&self) -> Next {
        // Storing is a move of its own only where somebody could notice.
        let noticed = C::is_stored(PutAnswer::Busy)
            || self
                .shared
                .cast
                .repertoire
                .iter()
                .any(|command| command.lists());
        if noticed { Next::Store } else { Next::Publish }
    }

    /// Checks and books the end of a task.
    pub(super) fn conclude(&mut self, task: &Task, ending: &Ending, outrun: bool) -> Verdict {
        self.check_ending(task, ending)?;
        self.note_ending(task.duty.kind(), ending, outrun);
        if !matches!(ending, Ending::Unsettled(_)) {
            self.close_book(task);
        }
        if let (Duty::ForceUnlock(seen), Ending::Done { .. }) = (&task.duty, ending) {
            // Whoever was seen is out from now on, by the operator's word.
            self.owner = self.owner.take().filter(|owner| owner.fence != *seen);
        }
        Ok(())
    }

    /// Asks again what became of every unknown outcome.
    pub(super) fn settle(&mut self) -> Verdict {
        for number in 0..self.actors.len() {
            let has_unknowns = |actor: &&Rc<Printed<Actor<C>>>| !actor.value.unknowns.is_empty();
            let Some(actor) = self.actors[number].as_ref().filter(has_unknowns).cloned() else {
                continue;
            };
            let mut open = Vec::new();
            for unknown in &actor.value.unknowns {
                let fate = self.check_unknown(unknown)?;
                match fate {
                    OperationFate::Applied => self.note(observation::SETTLED_APPLIED),
                    OperationFate::NotApplied => self.note(observation::SETTLED_NOT),
                    OperationFate::Unknown => {}
                }
                if self.shared.cast.thorough || self.is_open(unknown, fate) {
                    open.push(Rc::clone(unknown));
                } else {
                    self.close_book(&unknown.task);
                }
            }
            if open.len() < actor.value.unknowns.len() {
                let mut actor = actor.value.clone();
                actor.unknowns = open;
                self.place(u8::try_from(number).expect("few actors"), actor);
            }
        }
        Ok(())
    }

    /// Whether what is known of an unknown outcome can still change.
    fn is_open(&self, unknown: &UnknownOutcome, fate: OperationFate) -> bool {
        let lock = self.lock.as_deref().map(|cell| &cell.value.value);
        let passed = lock.is_some_and(|lock| lock.generation > unknown.record.generation);
        let hopeless =
            unknown.record.on_lock && passed && self.under_way(&unknown.task).next().is_none();
        fate == OperationFate::Unknown && !hopeless
    }

    fn note_ending(&mut self, kind: OperationKind, ending: &Ending, outrun: bool) {
        let noted = match (ending, kind) {
            (Ending::Acquired { .. }, _) if outrun => observation::OUTRUN,
            (Ending::Done { lock_marked: false }, _) => observation::NOT_TOLD,
            (Ending::Done { .. }, OperationKind::Publish) => observation::PUBLISHED,
            (Ending::Done { .. }, OperationKind::Release) => observation::RELEASED,
            (Ending::Done { .. }, OperationKind::Renew) => observation::RENEWED,
            (Ending::Done { .. }, OperationKind::Reap) => observation::REAPED,
            (Ending::Done { .. }, OperationKind::Rollback) => observation::ROLLED_BACK,
            (Ending::Done { .. }, OperationKind::ForceUnlock) => observation::FORCED,
            (Ending::Done { .. }, OperationKind::Delete) => observation::DELETED,
            (Ending::Done { .. }, OperationKind::Pin) => observation::PINNED,
            (Ending::Unsettled(_), _) => observation::UNSETTLED,
            (Ending::Unreachable, _) => observation::UNREACHABLE,
            (Ending::Refused(refusal), _) => match refusal {
                Refusal::Held(_) => observation::HELD,
                Refusal::LockLost(_) => observation::LOCK_LOST,
                Refusal::Diverged { .. } => observation::DIVERGED,
                Refusal::NotExpired => observation::NOT_EXPIRED,
                Refusal::Contended => observation::CONTENDED,
                Refusal::HolderChanged { .. } => observation::HOLDER_CHANGED,
                Refusal::PointerMoved { .. } => observation::POINTER_MOVED,
                Refusal::IsActive(_) => observation::IS_ACTIVE,
                Refusal::IsPinned(_) => observation::IS_PINNED,
                Refusal::Tombstoned(_) => observation::TOMBSTONED,
                _ => return,
            },
            _ => return,
        };
        self.note(noted);
    }
}
