//! The moves: whoever can move, does, and the store treats it in every way it may.

use super::actor::{Actor, Next, Stage, Wish, is_past, made_by, older};
use super::cast::Command;
use super::conduct::{Conduct, Duty, PutAnswer, Task};
use super::label::{Event, Move};
use super::names::{Print, Printed};
use super::{LineageWorld, observation};
use stasis_model::protocol::operation::OperationKind;
use stasis_model::protocol::step::Doc;
use std::rc::Rc;

/// What comes of a world, or the promise that was broken on the way.
pub(super) type Outcome<C> = Result<LineageWorld<C>, String>;
/// Moves, as they are found.
pub(super) type Moves<C> = Vec<(Move, Outcome<C>)>;

impl<C: Conduct> LineageWorld<C> {
    /// Every move that is possible now, as far as the order of moves can matter.
    pub(super) fn turns(&self) -> Moves<C> {
        if let Some(moves) = self.stale_write() {
            return moves;
        }
        let mut moves = Vec::with_capacity(24);
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
            if self.shared.cast.thorough {
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
    /// Versions do not come back, so nobody can change which answer it gets, and nobody can notice that it got one. Such a move
    /// commutes with every other one: it is enough to try it first.
    fn stale_write(&self) -> Option<Moves<C>> {
        if self.shared.cast.thorough {
            return None;
        }
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

    pub(super) fn actor(&self, number: u8) -> &Actor<C> {
        let actor = self.actors[usize::from(number)].as_ref();
        &actor.expect("only actors of the cast move").value
    }

    /// The same world, before anything notable happens in it.
    pub(super) fn successor(&self) -> Self {
        Self {
            observations: None,
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
            kind: OperationKind::Release,
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
        world.note(observation::LANDED_LATE);
        (label, world.apply(&flight).map(|()| world))
    }

    /// Every way in which a free actor can begin its next task.
    fn beginnings(&self, number: u8, next: Next, moves: &mut Moves<C>) {
        let actor = self.actor(number);
        let writes = matches!(next, Next::Store | Next::Publish | Next::Release);
        if let Some(fence) = actor.lease.filter(|_| writes && actor.turns > 0) {
            self.begin((number, true), Duty::Renew(fence), next, moves);
        }
        match next {
            Next::Store => self.store_archive(number, moves),
            Next::Publish => self.begin_publish(number, moves),
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
        if matches!(duty, Duty::Publish { .. }) && self.after_acquiring() == Next::Publish {
            world.archives |= 0b100 << number;
        }
        let index = usize::from(number);
        let before = self.actors[index]
            .as_ref()
            .expect("only actors of the cast move");
        let task = Task {
            actor: number,
            serial: before.value.serial,
            given: before.value.given_to(&duty),
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
        let is_unread = actor.value.begins_unread();
        world.actors[index] = Some(actor);
        let begun = moves.len();
        world.steps(number, moves);
        for (taken, outcome) in &mut moves[begun..] {
            if let Ok(world) = outcome
                && is_unread
            {
                world.note(match taken.event {
                    Event::Stale | Event::StaleUnanswered => observation::UNREAD_REFUSED,
                    _ => observation::UNREAD,
                });
            }
        }
    }

    fn store_archive(&self, number: u8, moves: &mut Moves<C>) {
        let label = |event| Move {
            actor: number,
            kind: OperationKind::Publish,
            doc: Doc::Pointer,
            event,
        };
        let mut actor = self.actor(number).clone();
        actor.stage = Stage::Free(Next::Publish);
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

    /// A writer publishes onto what it loaded; if loading failed, onto nothing.
    fn begin_publish(&self, number: u8, moves: &mut Moves<C>) {
        let actor = self.actor(number);
        let Some(fence) = actor.lease else { return };
        let loads = match actor.base {
            Some(base) if self.shared.cast.fresh => vec![Some(base), None],
            base => vec![base],
        };
        for base in loads {
            let to = made_by(number);
            let duty = Duty::Publish { fence, base, to };
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
            kind: OperationKind::ForceUnlock,
            doc,
            event: Event::Looked,
        };
        (label, Ok(world))
    }
}
