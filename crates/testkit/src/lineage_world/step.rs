//! What the store makes of a request, and the actor of the answer.

use super::actor::{Stage, Wish};
use super::conduct::{Conduct, Duty, Ending};
use super::label::{Event, Move};
use super::memo::Received;
use super::names::Printed;
use super::request::Request;
use super::turn::{Moves, Outcome};
use super::{EARLY, LATE, LineageWorld};
use stasis_model::protocol::settle::StoreAnswer;
use stasis_model::protocol::step::{Doc, Refusal};
use stasis_model::time::Timestamp;
use std::rc::Rc;

impl<C: Conduct> LineageWorld<C> {
    /// Every way in which the store can treat what a busy actor asks.
    pub(super) fn steps(&self, number: u8, moves: &mut Moves<C>) {
        let Stage::Busy { task, wish, .. } = &self.actor(number).stage else {
            return;
        };
        let (actor, kind) = (number, task.duty.kind());
        let label = |doc, event| Move {
            actor,
            kind,
            doc,
            event,
        };
        match wish {
            Wish::Read(doc) => self.reads(&label, *doc, moves),
            Wish::Write(request) => self.writes(&label, request, moves),
            Wish::Erase(doc, judged) => {
                let mut world = self.successor();
                let outcome = world.erase(*doc, task, *judged);
                let outcome = outcome.and_then(|()| world.answered(number, StoreAnswer::Won).0);
                moves.push((label(*doc, Event::Erased), outcome));
            }
            Wish::EraseArchive => {
                let mut world = self.successor();
                world.archives &= !(0b100 << number);
                let outcome = world.check_archives();
                let outcome = outcome.and_then(|()| world.answered(number, StoreAnswer::Won).0);
                moves.push((label(Doc::Pointer, Event::ErasedArchive), outcome));
            }
        }
    }

    fn reads(&self, label: &impl Fn(Doc, Event) -> Move, doc: Doc, moves: &mut Moves<C>) {
        let number = label(doc, Event::Read).actor;
        let world = self.successor();
        let key = match doc {
            Doc::Lock => self.lock.as_ref().map_or(10, |cell| cell.print.under(0)),
            Doc::Pointer => self.pointer.as_ref().map_or(11, |cell| cell.print.under(0)),
        };
        let (early, in_time) = world.receive(number, (key, EARLY), || self.read(doc));
        if in_time {
            let (late, _) = world.receive(number, (!key, LATE), || self.read(doc));
            Self::go_on_writing(label, (doc, Event::ReadAfterExpiry), late, moves);
        }
        Self::go_on_writing(label, (doc, Event::Read), early, moves);
        if self.unreadable > 0 {
            let mut world = world;
            world.unreadable -= 1;
            let (blind, _) = world.answered(number, StoreAnswer::Unreadable);
            moves.push((label(doc, Event::Unreadable), blind));
        }
    }

    /// Makes a read and the write that follows it one move, if that leaves nothing out.
    ///
    /// The write is conditional on the very version that was read. If it is accepted, the document was the same all the
    /// time, so it might as well have been read just before. If it is refused, the actor goes on as if the write had
    /// been delayed and never landed, provided that it makes no difference between a refusal and silence.
    fn go_on_writing(
        label: &impl Fn(Doc, Event) -> Move,
        (doc, event): (Doc, Event),
        outcome: Outcome<C>,
        moves: &mut Moves<C>,
    ) {
        let number = label(doc, event).actor;
        if let Ok(world) = &outcome
            && !world.shared.cast.thorough
            && let Stage::Busy { wish, .. } = &world.actor(number).stage
            && let Wish::Write(request) = wish
            && request.value.body.doc() == doc
            && world.accepts(doc, request.value.condition)
            && world.takes_refusal_for_silence(number)
        {
            world.writes(label, request, moves);
            return;
        }
        moves.push((label(doc, event), outcome));
    }

    /// Whether the actor goes on reading after either answer, in the very same state.
    fn takes_refusal_for_silence(&self, number: u8) -> bool {
        let after = |answer| {
            let received = self.received(number, (key_of(&answer), EARLY), || answer);
            matches!(
                received.actor.value.stage,
                Stage::Busy {
                    wish: Wish::Read(_),
                    ..
                }
            )
            .then_some(received.actor.print)
        };
        let refused = after(StoreAnswer::Lost);
        refused.is_some() && refused == after(StoreAnswer::Silence)
    }

    fn writes(
        &self,
        label: &impl Fn(Doc, Event) -> Move,
        request: &Rc<Printed<Request>>,
        moves: &mut Moves<C>,
    ) {
        let doc = request.value.body.doc();
        let number = request.value.task.actor;
        if !self.accepts(doc, request.value.condition) {
            let world = self.successor();
            let (lost, _) = world.answered(number, StoreAnswer::Lost);
            let (silent, _) = world.answered(number, StoreAnswer::Silence);
            moves.push((label(doc, Event::Stale), lost));
            moves.push((label(doc, Event::StaleUnanswered), silent));
            return;
        }
        let mut applied = self.successor();
        if let Err(breach) = applied.apply(request) {
            moves.push((label(doc, Event::Received), Err(breach)));
            return;
        }
        let (received, _) = applied.won(number, doc);
        moves.push((label(doc, Event::Received), received));
        let (unanswered, _) = applied.answered(number, StoreAnswer::Silence);
        moves.push((label(doc, Event::Unanswered), unanswered));
        if self.shared.cast.thorough || !self.takes_refusal_for_silence(number) {
            let (refused, _) = applied.answered(number, StoreAnswer::Lost);
            moves.push((label(doc, Event::RefusedByRetry), refused));
        }
        let mut delayed = self.successor();
        delayed.delay(request);
        let (after, _) = delayed.answered(number, StoreAnswer::Silence);
        moves.push((label(doc, Event::Delayed), after));
    }

    /// What comes of a write that won: the actor knows the document and its version from now on.
    fn won(&self, number: u8, doc: Doc) -> (Outcome<C>, bool) {
        if !self.shared.cast.keeps_readings {
            return self.answered(number, StoreAnswer::Won);
        }
        let before = self.actor(number);
        let mut actor = before.clone();
        actor.note_written(&self.read(doc));
        let mut world = self.clone();
        world.place(number, actor);
        world.answered(number, StoreAnswer::Won)
    }

    /// What comes of an answer that is not a document.
    fn answered(&self, number: u8, answer: StoreAnswer) -> (Outcome<C>, bool) {
        self.receive(number, (key_of(&answer), EARLY), || answer)
    }

    /// The actor after an answer with this key.
    fn received(
        &self,
        number: u8,
        (key, now): (u128, Timestamp),
        answer: impl FnOnce() -> StoreAnswer,
    ) -> Rc<Received<C>> {
        let before = self.actors[usize::from(number)].as_ref();
        let before = before.expect("only actors of the cast move");
        let shared = &self.shared;
        shared.memo.received((before.print.under(0), key), || {
            let mut actor = before.value.clone();
            let end = actor.receive(answer(), now, shared);
            let actor = Rc::new(Printed::new(actor, shared.renamings()));
            Received { actor, end }
        })
    }

    /// What comes of an answer, and whether it would come out otherwise after the lease expired.
    fn receive(
        &self,
        number: u8,
        key: (u128, Timestamp),
        answer: impl FnOnce() -> StoreAnswer,
    ) -> (Outcome<C>, bool) {
        let received = self.received(number, key, answer);
        let mut world = self.clone();
        world.actors[usize::from(number)] = Some(Rc::clone(&received.actor));
        let Some((task, ending, outrun)) = &received.end else {
            return (Ok(world), false);
        };
        let timed = matches!(task.duty, Duty::Acquire | Duty::Reap);
        let stopped = matches!(
            ending,
            Ending::Refused(Refusal::Held(_) | Refusal::NotExpired) | Ending::Unsettled(_)
        );
        let verdict = world.conclude(task, ending, *outrun);
        (verdict.map(|()| world), timed && stopped)
    }
}

/// A key for an answer that is not a document.
fn key_of(answer: &StoreAnswer) -> u128 {
    match answer {
        StoreAnswer::Won => 1,
        StoreAnswer::Lost => 2,
        StoreAnswer::Silence => 3,
        _ => 4,
    }
}
