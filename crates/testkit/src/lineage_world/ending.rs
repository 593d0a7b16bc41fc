//! What an actor does when a task has ended.

use super::actor::{Actor, Next, Riddle, Stage};
use super::conduct::{Conduct, Duty, Ending};
use super::{LineageWorld, sight};
use stasis_model::operation::{Fate, Kind};
use stasis_model::step::Refusal;
use std::rc::Rc;

impl<C: Conduct> LineageWorld<C> {
    /// What a writer does once it owns the lineage.
    pub(super) fn after_acquiring(&self) -> Next {
        // Storing is a move of its own only where somebody could notice.
        let noticed = C::is_stored(super::conduct::PutAnswer::Busy)
            || self.cast.repertoire.iter().any(|command| command.lists());
        if noticed { Next::Store } else { Next::Flip }
    }

    /// Ends the actor's task and lets it go on, or go.
    pub(super) fn conclude(mut self, number: u8, ending: Ending) -> Result<Self, String> {
        let mut actor = self.actors[usize::from(number)]
            .as_ref()
            .map(|actor| actor.value.clone())
            .expect("only actors of the cast move");
        let Stage::Busy { task, then, .. } = &actor.stage else {
            unreachable!("only busy actors have a task to end");
        };
        let (task, then) = (Rc::clone(task), *then);
        self.check_ending(&task, &ending)?;
        self.note_ending(task.duty.kind(), &ending, actor.outrun);
        if let Ending::Unsettled(doubt) = &ending {
            let lineage = (*self.lineage).clone();
            let riddle = Riddle::new(Rc::clone(&task), *doubt, lineage);
            actor.riddles.push(Rc::new(riddle));
        } else {
            self.close_book(&task);
        }
        if let (Duty::ForceUnlock(seen), Ending::Done { .. }) = (&task.duty, &ending) {
            // Whoever was seen is out from now on, by the operator's word.
            self.owner = self.owner.filter(|(_, owned)| owned != seen);
        }
        go_on(&mut actor, task.duty.kind(), &ending, then);
        self.place(number, actor);
        Ok(self)
    }

    /// Asks every riddle again.
    pub(super) fn settled(mut self) -> Result<Self, String> {
        for number in 0..self.actors.len() {
            let Some(actor) = self.actors[number].clone() else {
                continue;
            };
            let mut open = Vec::new();
            for riddle in &actor.value.riddles {
                let fate = self.check_riddle(riddle)?;
                match fate {
                    Fate::Applied => self.sights.push(sight::SETTLED_APPLIED),
                    Fate::NotApplied => self.sights.push(sight::SETTLED_NOT),
                    Fate::StillUnknown => {}
                }
                if self.cast.asks_for_ever || self.is_open(riddle, fate) {
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
        Ok(self)
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
        self.sights.push(noted);
    }
}

/// Moves an actor on after an ending: a writer that was not told "done" stops, unless it only renewed in vain.
fn go_on<C: Conduct>(actor: &mut Actor<C>, kind: Kind, ending: &Ending, then: Next) {
    actor.judged = 0;
    actor.outrun = false;
    match (kind, ending) {
        (Kind::Acquire, Ending::Acquired { fence, base }) => {
            actor.lease = Some(*fence);
            actor.base = *base;
            actor.stage = Stage::Free(then);
        }
        (Kind::Renew, Ending::Refused(_)) => actor.leave(),
        (Kind::Renew, _) | (Kind::Flip, Ending::Done { .. }) => {
            actor.stage = Stage::Free(then);
        }
        (Kind::Acquire | Kind::Flip | Kind::Release, _) => actor.leave(),
        _ if actor.turns > 0 => actor.stage = Stage::Free(then),
        _ => actor.leave(),
    }
}
