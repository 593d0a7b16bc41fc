//! What an actor does when a task has ended.

use super::actor::{Actor, Next, Riddle};
use super::conduct::{Conduct, Duty, Ending, PutAnswer, Task};
use super::names::Printed;
use super::promise::Verdict;
use super::{LineageWorld, sight};
use stasis_model::protocol::operation::{Fate, Kind};
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
        if noticed { Next::Store } else { Next::Flip }
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

    /// Asks every riddle again.
    pub(super) fn settle(&mut self) -> Verdict {
        for number in 0..self.actors.len() {
            let riddled = |actor: &&Rc<Printed<Actor<C>>>| !actor.value.riddles.is_empty();
            let Some(actor) = self.actors[number].as_ref().filter(riddled).cloned() else {
                continue;
            };
            let mut open = Vec::new();
            for riddle in &actor.value.riddles {
                let fate = self.check_riddle(riddle)?;
                match fate {
                    Fate::Applied => self.note(sight::SETTLED_APPLIED),
                    Fate::NotApplied => self.note(sight::SETTLED_NOT),
                    Fate::StillUnknown => {}
                }
                if self.shared.cast.thorough || self.is_open(riddle, fate) {
                    open.push(Rc::clone(riddle));
                } else {
                    self.close_book(&riddle.task);
                }
            }
            if open.len() < actor.value.riddles.len() {
                let mut actor = actor.value.clone();
                actor.riddles = open;
                self.place(u8::try_from(number).expect("few actors"), actor);
            }
        }
        Ok(())
    }

    /// Whether a riddle's answer can still change.
    fn is_open(&self, riddle: &Riddle, fate: Fate) -> bool {
        let lock = self.lock.as_deref().map(|cell| &cell.value.value);
        let passed = lock.is_some_and(|lock| lock.generation > riddle.record.generation);
        let hopeless =
            riddle.record.on_lock && passed && self.under_way(&riddle.task).next().is_none();
        fate == Fate::StillUnknown && !hopeless
    }

    fn note_ending(&mut self, kind: Kind, ending: &Ending, outrun: bool) {
        let noted = match (ending, kind) {
            (Ending::Acquired { .. }, _) if outrun => sight::OUTRUN,
            (Ending::Done { lock_told: false }, _) => sight::NOT_TOLD,
            (Ending::Done { .. }, Kind::Flip) => sight::FLIPPED,
            (Ending::Done { .. }, Kind::Release) => sight::RELEASED,
            (Ending::Done { .. }, Kind::Renew) => sight::RENEWED,
            (Ending::Done { .. }, Kind::Reap) => sight::REAPED,
            (Ending::Done { .. }, Kind::Rollback) => sight::ROLLED_BACK,
            (Ending::Done { .. }, Kind::ForceUnlock) => sight::FORCED,
            (Ending::Done { .. }, Kind::Delete) => sight::DELETED,
            (Ending::Done { .. }, Kind::Pin) => sight::PINNED,
            (Ending::Unsettled(_), _) => sight::UNSETTLED,
            (Ending::Unreachable, _) => sight::UNREACHABLE,
            (Ending::Refused(refusal), _) => match refusal {
                Refusal::Held(_) => sight::HELD,
                Refusal::LockLost(_) => sight::LOCK_LOST,
                Refusal::Diverged { .. } => sight::DIVERGED,
                Refusal::NotExpired => sight::NOT_EXPIRED,
                Refusal::Contended => sight::CONTENDED,
                Refusal::HolderChanged { .. } => sight::HOLDER_CHANGED,
                Refusal::PointerMoved { .. } => sight::POINTER_MOVED,
                Refusal::IsActive(_) => sight::IS_ACTIVE,
                Refusal::IsPinned(_) => sight::IS_PINNED,
                Refusal::Tombstoned(_) => sight::TOMBSTONED,
                _ => return,
            },
            _ => return,
        };
        self.note(noted);
    }
}
