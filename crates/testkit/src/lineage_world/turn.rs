//! The moves: whoever can move, does, and the store treats it in every way it may.

use super::actor::{Actor, Next, OPERATOR, REAPER, Stage, Wish, is_past, made_by, older};
use super::cast::Command;
use super::conduct::{Conduct, Duty, Ending, PutAnswer, Task};
use super::memo::Heard;
use super::names::{Print, Printed};
use super::store::Request;
use super::{EARLY, LATE, LineageWorld, sight};
use stasis_model::operation::Kind;
use stasis_model::protocol::Answer;
use stasis_model::step::{Doc, Refusal};
use stasis_model::time::Timestamp;
use std::fmt;
use std::rc::Rc;

/// What happened in a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Read,
    ReadAfterExpiry,
    Unreadable,
    Heard,
    Unheard,
    RefusedByRetry,
    Delayed,
    Stale,
    StaleUnheard,
    Landed,
    Stored,
    StoredNothing,
    Looked,
    Erased,
    ErasedArchive,
    Crashed,
}

/// One move, as it stands in a counterexample.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Move {
    actor: u8,
    kind: Kind,
    doc: Doc,
    event: Event,
}

impl fmt::Debug for Move {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.actor {
            REAPER => write!(out, "reaper")?,
            OPERATOR => write!(out, "operator")?,
            writer => write!(out, "writer {writer}")?,
        }
        let doc = match self.doc {
            Doc::Lock => "lock.json",
            Doc::Pointer => "latest.json",
        };
        let text = match self.event {
            Event::Read => "reads",
            Event::ReadAfterExpiry => "reads, with every lease expired,",
            Event::Unreadable => "cannot read",
            Event::Heard => "writes",
            Event::Unheard => "writes, but does not hear of it,",
            Event::RefusedByRetry => "writes, but its own retry is refused,",
            Event::Delayed => "sends a write that may land later to",
            Event::Stale => "is refused to write",
            Event::StaleUnheard => "is refused to write, but does not hear of it,",
            Event::Landed => "has a late write land in",
            Event::Stored => return write!(out, " stores its archive"),
            Event::StoredNothing => return write!(out, " takes its archive for stored"),
            Event::Looked => "looks at",
            Event::Erased => "deletes",
            Event::ErasedArchive => return write!(out, " deletes its archive"),
            Event::Crashed => return write!(out, " crashes"),
        };
        write!(out, " ({:?}) {text} {doc}", self.kind)
    }
}

/// What comes of a world, or the promise that was broken on the way.
type Outcome<C> = Result<LineageWorld<C>, String>;
/// Moves, as they are found.
type Moves<C> = Vec<(Move, Outcome<C>)>;

impl<C: Conduct> LineageWorld<C> {
    /// Every move that is possible now, as far as the order of moves can matter.
    pub(super) fn turns(&self) -> Moves<C> {
        let mut moves = self.stale_write().unwrap_or_default();
        if !moves.is_empty() {
            return moves;
        }
        moves.reserve(24);
        for index in 0..self.flights.len() {
            moves.push(self.landing(index));
        }
        for number in 0..self.actors.len() {
            let Some(actor) = &self.actors[number] else {
                continue;
            };
            let number = u8::try_from(number).expect("few actors");
            match &actor.value.stage {
                Stage::Free(next) => self.beginnings(number, *next, &mut moves),
                Stage::Busy { .. } => self.steps(number, &mut moves),
                Stage::Gone => continue,
            }
            if self.shared.cast.crashes {
                moves.push(self.crash(number));
            }
        }
        for (_, outcome) in &mut moves {
            if let Ok(world) = outcome
                && let Err(breach) = world.settle()
            {
                *outcome = Err(breach);
            }
        }
        moves
    }

    /// The moves of an actor whose write is refused whenever it arrives, if all it does then is to read again.
    ///
    /// Versions do not come back, so nobody can change what it hears, and nobody can notice that it heard. Such a move
    /// commutes with every other one: it is enough to try it first.
    fn stale_write(&self) -> Option<Moves<C>> {
        (0..self.actors.len()).find_map(|index| {
            let actor = self.actors[index].as_ref()?;
            let Stage::Busy {
                wish: Wish::Write(request),
                ..
            } = &actor.value.stage
            else {
                return None;
            };
            if self.accepts(request.value.body.doc(), request.value.condition) {
                return None;
            }
            let number = u8::try_from(index).expect("few actors");
            let mut moves = Vec::new();
            self.steps(number, &mut moves);
            let reads = |outcome: &Outcome<C>| {
                let stage = outcome
                    .as_ref()
                    .ok()
                    .map(|world| &world.actor(number).stage);
                matches!(
                    stage,
                    Some(Stage::Busy {
                        wish: Wish::Read(_),
                        ..
                    })
                )
            };
            let local = moves.iter().all(|(_, outcome)| reads(outcome));
            local.then_some(moves)
        })
    }

    fn actor(&self, number: u8) -> &Actor<C> {
        let actor = self.actors[usize::from(number)].as_ref();
        &actor.expect("only actors of the cast move").value
    }

    /// The same world, before anything notable happens in it.
    fn successor(&self) -> Self {
        Self {
            sights: None,
            ..self.clone()
        }
    }

    fn crash(&self, number: u8) -> (Move, Outcome<C>) {
        let mut world = self.successor();
        let mut actor = self.actor(number).clone();
        actor.leave();
        world.place(number, actor);
        let label = Move {
            actor: number,
            kind: Kind::Release,
            doc: Doc::Lock,
            event: Event::Crashed,
        };
        (label, Ok(world))
    }

    fn landing(&self, index: usize) -> (Move, Outcome<C>) {
        let mut world = self.successor();
        let flight = Rc::make_mut(&mut world.flights).remove(index);
        let request = &flight.value;
        let label = Move {
            actor: request.task.actor,
            kind: request.task.duty.kind(),
            doc: request.body.doc(),
            event: Event::Landed,
        };
        world.note(sight::LANDED_LATE);
        (label, world.apply(&flight).map(|()| world))
    }

    /// Every way in which a free actor can begin its next task.
    fn beginnings(&self, number: u8, next: Next, moves: &mut Moves<C>) {
        let actor = self.actor(number);
        let writes = matches!(next, Next::Store | Next::Flip | Next::Release);
        if let Some(fence) = actor.lease.filter(|_| writes && actor.turns > 0) {
            self.begin((number, true), Duty::Renew(fence), next, moves);
        }
        match next {
            Next::Store => self.store_archive(number, moves),
            Next::Flip => self.begin_flip(number, moves),
            Next::Release => {
                if let Some(fence) = actor.lease {
                    self.begin((number, false), Duty::Release(fence), next, moves);
                }
            }
            Next::Reap => self.begin((number, true), Duty::Reap, next, moves),
            Next::Act => {
                for command in self.shared.cast.repertoire {
                    self.act(number, *command, moves);
                }
            }
            Next::Throw(seen) => {
                self.begin((number, true), Duty::ForceUnlock(seen), Next::Act, moves);
            }
            Next::Choose(seen) => {
                let (to, seen) = (older(), Some(seen));
                let duty = Duty::Rollback { to, seen };
                self.begin((number, true), duty, Next::Act, moves);
            }
        }
    }

    /// Starts a task and takes its first step; `costs` one of the actor's turns, or not.
    fn begin(&self, (number, costs): (u8, bool), duty: Duty, then: Next, moves: &mut Moves<C>) {
        let mut world = self.successor();
        if matches!(duty, Duty::Flip { .. }) && self.after_acquiring() == Next::Flip {
            world.archives |= 0b100 << number;
        }
        let index = usize::from(number);
        let before = self.actors[index]
            .as_ref()
            .expect("only actors of the cast move");
        let task = Task {
            actor: number,
            serial: before.value.serial,
            duty,
            attempts: self.shared.cast.attempts_by(number),
        };
        let key = Print::of(&task, &self.renamings()[..1]).under(0);
        let actor = self.shared.memo.begun((before.print.under(0), key), || {
            let mut actor = before.value.clone();
            actor.turns -= u8::from(costs);
            actor.start(task, then, &self.shared);
            Rc::new(Printed::new(actor, self.renamings()))
        });
        world.actors[index] = Some(actor);
        world.steps(number, moves);
    }

    fn store_archive(&self, number: u8, moves: &mut Moves<C>) {
        let label = |event| Move {
            actor: number,
            kind: Kind::Flip,
            doc: Doc::Pointer,
            event,
        };
        let mut actor = self.actor(number).clone();
        actor.stage = Stage::Free(Next::Flip);
        let mut world = self.successor();
        world.archives |= 0b100 << number;
        world.place(number, actor);
        if C::is_stored(PutAnswer::Busy) {
            let mut world = world.clone();
            world.archives = self.archives;
            moves.push((label(Event::StoredNothing), Ok(world)));
        }
        moves.push((label(Event::Stored), Ok(world)));
    }

    /// A writer flips onto what it loaded; if loading failed, onto nothing.
    fn begin_flip(&self, number: u8, moves: &mut Moves<C>) {
        let actor = self.actor(number);
        let Some(fence) = actor.lease else { return };
        let loads = match actor.base {
            Some(base) if self.shared.cast.fresh => vec![Some(base), None],
            base => vec![base],
        };
        for base in loads {
            let to = made_by(number);
            let duty = Duty::Flip { fence, base, to };
            self.begin((number, false), duty, Next::Release, moves);
        }
    }

    fn act(&self, number: u8, command: Command, moves: &mut Moves<C>) {
        let mut begin = |duty| self.begin((number, true), duty, Next::Act, moves);
        match command {
            Command::Rollback => begin(Duty::Rollback {
                to: older(),
                seen: None,
            }),
            Command::Adopt => {
                let made = self.stored().filter(|snapshot| !is_past(snapshot));
                made.cloned()
                    .for_each(|to| begin(Duty::Rollback { to, seen: None }));
            }
            Command::Delete => self.stored().for_each(|target| {
                begin(Duty::Delete {
                    target: target.archive,
                    known: self.stored().map(|known| known.archive).collect(),
                });
            }),
            Command::Pin => begin(Duty::Pin(older().archive)),
            Command::ForceUnlock => {
                let lock = self.lock.as_deref().map(|cell| &cell.value.value);
                if let Some(lock) = lock {
                    moves.push(self.look(number, Doc::Lock, Next::Throw(lock.fence())));
                }
            }
            Command::RollbackIfUnmoved => {
                let pointer = self.pointer.as_deref().map(|cell| &cell.value.value);
                if let Some(pointer) = pointer {
                    let next = Next::Choose(pointer.generation);
                    moves.push(self.look(number, Doc::Pointer, next));
                }
            }
        }
    }

    fn look(&self, number: u8, doc: Doc, next: Next) -> (Move, Outcome<C>) {
        let mut world = self.successor();
        let mut actor = self.actor(number).clone();
        actor.stage = Stage::Free(next);
        world.place(number, actor);
        let label = Move {
            actor: number,
            kind: Kind::ForceUnlock,
            doc,
            event: Event::Looked,
        };
        (label, Ok(world))
    }

    /// Every way in which the store can treat what a busy actor asks.
    fn steps(&self, number: u8, moves: &mut Moves<C>) {
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
                let outcome = outcome.and_then(|()| world.told(number, Answer::Won).0);
                moves.push((label(*doc, Event::Erased), outcome));
            }
            Wish::EraseArchive => {
                let mut world = self.successor();
                world.archives &= !(0b100 << number);
                let outcome = world.check_archives();
                let outcome = outcome.and_then(|()| world.told(number, Answer::Won).0);
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
        let (early, in_time) = world.hear(number, (key, EARLY), || self.read(doc));
        if in_time {
            let (late, _) = world.hear(number, (!key, LATE), || self.read(doc));
            Self::go_on_writing(label, (doc, Event::ReadAfterExpiry), late, moves);
        }
        Self::go_on_writing(label, (doc, Event::Read), early, moves);
        if self.unreadable > 0 {
            let mut world = world;
            world.unreadable -= 1;
            let (blind, _) = world.told(number, Answer::Unreadable);
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
            && world.shared.cast.merges
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

    fn takes_refusal_for_silence(&self, number: u8) -> bool {
        let after = |answer| {
            let heard = self.heard(number, (key_of(&answer), EARLY), || answer);
            matches!(
                heard.actor.value.stage,
                Stage::Busy {
                    wish: Wish::Read(_),
                    ..
                }
            )
            .then_some(heard.actor.print)
        };
        let refused = after(Answer::Lost);
        refused.is_some() && refused == after(Answer::Silence)
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
            let (lost, _) = world.told(number, Answer::Lost);
            let (silent, _) = world.told(number, Answer::Silence);
            moves.push((label(doc, Event::Stale), lost));
            moves.push((label(doc, Event::StaleUnheard), silent));
            return;
        }
        let mut applied = self.successor();
        if let Err(breach) = applied.apply(request) {
            moves.push((label(doc, Event::Heard), Err(breach)));
            return;
        }
        let answers = [
            (Event::Heard, Answer::Won),
            (Event::Unheard, Answer::Silence),
            (Event::RefusedByRetry, Answer::Lost),
        ];
        for (event, answer) in answers {
            let (after, _) = applied.told(number, answer);
            moves.push((label(doc, event), after));
        }
        let mut delayed = self.successor();
        delayed.delay(request);
        let (after, _) = delayed.told(number, Answer::Silence);
        moves.push((label(doc, Event::Delayed), after));
    }

    /// What comes of an answer that is not a document.
    fn told(&self, number: u8, answer: Answer) -> (Outcome<C>, bool) {
        self.hear(number, (key_of(&answer), EARLY), || answer)
    }

    /// The actor after an answer with this key.
    fn heard(
        &self,
        number: u8,
        (key, now): (u128, Timestamp),
        answer: impl FnOnce() -> Answer,
    ) -> Rc<Heard<C>> {
        let before = self.actors[usize::from(number)].as_ref();
        let before = before.expect("only actors of the cast move");
        let shared = &self.shared;
        shared.memo.heard((before.print.under(0), key), || {
            let mut actor = before.value.clone();
            let end = actor.hear(answer(), now, shared);
            let actor = Rc::new(Printed::new(actor, shared.renamings()));
            Heard { actor, end }
        })
    }

    /// What comes of an answer, and whether it would come out otherwise after the lease expired.
    fn hear(
        &self,
        number: u8,
        key: (u128, Timestamp),
        answer: impl FnOnce() -> Answer,
    ) -> (Outcome<C>, bool) {
        let heard = self.heard(number, key, answer);
        let mut world = self.clone();
        world.actors[usize::from(number)] = Some(Rc::clone(&heard.actor));
        let Some((task, ending, outrun)) = &heard.end else {
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
fn key_of(answer: &Answer) -> u128 {
    match answer {
        Answer::Won => 1,
        Answer::Lost => 2,
        Answer::Silence => 3,
        _ => 4,
    }
}
