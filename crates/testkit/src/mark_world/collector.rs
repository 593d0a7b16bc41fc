//! A gc round, in the order of the engine's: read and list, date, read and list again, remove, forget.

use super::{Bug, Label, MarkWorld, Moves, Object, Part, snapshot, x};
use stasis_model::format::lease::LockState;
use stasis_model::format::pointer::{Pointer, PointerMark};
use stasis_model::protocol::step::{DocumentChange, Op, Refusal, step};

/// What a gc round knew at its beginning: the mark, and whether anything lay there.
type Known = (Option<PointerMark>, bool);

/// Where a gc round stands. What was listed the second time only keeps a request from being sent: here all are sent, which
/// leaves out nothing and makes that listing, and the reading before it, one with the move before.
#[derive(Clone, Hash, Debug)]
enum Stage {
    Begins,
    /// It read and listed, and dates the mark next.
    Listed(Known),
    /// It removes these objects for the mark that it read, the manifest first.
    Removes(Known, PointerMark, Object),
    /// It drops the mark next, if it may.
    Removed(Known),
    /// It read the pointer and the lock, and swaps this in.
    Forgets(Known, Part<Pointer>),
}

/// One collector.
#[derive(Clone, Hash, Debug)]
pub(super) struct Collector {
    stage: Stage,
    rounds: u8,
}

impl Collector {
    pub(super) fn new(rounds: u8) -> Self {
        let stage = Stage::Begins;
        Self { stage, rounds }
    }

    /// The pointer has moved: a swap on what was read before will be refused, and everything is read again.
    pub(super) fn outdate(&mut self) {
        if let Stage::Forgets(known, _) = &self.stage {
            self.stage = Stage::Removed(known.clone());
        }
    }

    fn end(&mut self) {
        self.stage = Stage::Begins;
        self.rounds -= 1;
    }
}

impl MarkWorld {
    pub(super) fn collector_moves(&self, number: usize, moves: &mut Moves) {
        let collector = &self.collectors[number];
        if collector.rounds == 0 {
            return;
        }
        let mut after = self.calm();
        let outcome = match collector.stage.clone() {
            Stage::Begins => {
                let known = (self.mark(), self.lies_there());
                Ok((Stage::Listed(known), "reads the pointer and lists"))
            }
            Stage::Listed(known) => after.date(known),
            Stage::Removes(known, mark, next) => Ok(after.remove(known, mark, next)),
            Stage::Removed(known) => Ok(after.look(number, known)),
            Stage::Forgets(_, next) => after.forget(&next),
        };
        let label = |what| Label("gc", number, what);
        match outcome {
            Ok((Stage::Begins, what)) => {
                after.collectors[number].end();
                Self::add(moves, label(what), after);
            }
            Ok((stage, what)) => {
                after.collectors[number].stage = stage;
                Self::add(moves, label(what), after);
            }
            Err(broken) => moves.push((label("breaks a promise"), Err(broken.to_owned()))),
        }
    }

    /// Dates the mark of what still lies there anew, and reads it.
    fn date(&mut self, known: Known) -> Result<(Stage, &'static str), &'static str> {
        let was_marked = self.mark().is_some();
        if known.0.is_some() && known.1 && !self.has_bug(Bug::Undated) {
            let (target, mut listed) = (x(), Vec::new());
            if self.has_bug(Bug::SetsAnew) {
                listed = vec![x(), snapshot("y").archive];
            }
            let known = listed;
            let _refused = self.act(&Op::Delete { target, known }, 0);
        }
        if !was_marked && self.mark().is_some() {
            return Err("a gc round marked what nobody deleted");
        }
        let at_ms = self.now();
        let unmarked = self
            .has_bug(Bug::Unmarked)
            .then(|| PointerMark { sha256: x(), at_ms });
        Ok(match self.mark().or(unmarked) {
            Some(mark) => {
                let next = Stage::Removes(known, mark, Object::Manifest);
                (next, "dates the mark and reads it")
            }
            None => (Stage::Removed(known), "has nothing to remove"),
        })
    }

    /// Sends the next request, if the mark lets it.
    fn remove(&mut self, known: Known, mark: PointerMark, next: Object) -> (Stage, &'static str) {
        let stalls = self.has_bug(Bug::Stalls) || self.has_bug(Bug::Undated);
        if !mark.lets_remove(self.now()) && !stalls {
            self.observations.push("a gc round took too long");
            return (Stage::Removed(known), "took too long");
        }
        self.send_removal(next);
        match next {
            Object::Manifest => {
                let rest = Stage::Removes(known, mark, Object::Archive);
                (rest, "removes the manifest")
            }
            // What lay there when the gc began keeps its mark.
            Object::Archive if known.1 => (Stage::Begins, "removes the archive"),
            Object::Archive => (Stage::Removed(known), "removes the archive"),
        }
    }

    /// Reads the pointer, then the lock, and decides. (That is one move: the pointer that is swapped is the one read.)
    fn look(&mut self, number: usize, known: Known) -> (Stage, &'static str) {
        let gone = match &known {
            (Some(mark), false) if mark.is_spent(self.now()) || self.has_bug(Bug::Hasty) => {
                mark.clone()
            }
            _ => return (Stage::Begins, "is done"),
        };
        let mut gone = vec![gone];
        if self.has_bug(Bug::AnyDate) {
            gone.extend(self.mark());
        }
        let mut found = self.documents();
        if let Some(lock) = found.lock.as_mut().filter(|_| self.has_bug(Bug::WhileHeld)) {
            (lock.state, lock.released) = (LockState::Free, true);
        }
        let op_id = super::op_id(200 + u8::try_from(number).expect("few collectors"));
        match step(&found, &Op::Forget { gone }, op_id, self.now()) {
            Ok(DocumentChange::Pointer(mut next)) => {
                if self.has_bug(Bug::NoFence) {
                    next.fence = self.pointer.get().fence;
                }
                (Stage::Forgets(known, Part::new(next)), "reads the lock")
            }
            Err(Refusal::Held(_)) => {
                self.observations
                    .push("an owner kept a mark from being dropped");
                (Stage::Begins, "drops nothing: there is an owner")
            }
            _ => {
                self.observations.push("a mark that had changed stayed");
                (Stage::Begins, "drops nothing")
            }
        }
    }

    /// Swaps the pointer that was decided upon; nobody has written another since.
    fn forget(&mut self, next: &Part<Pointer>) -> Result<(Stage, &'static str), &'static str> {
        let owner = Some(self.pointer.get().fence);
        if self.savers.iter().any(|saver| saver.lease() == owner) {
            return Err("a gc round threw an owner out");
        }
        self.observations.push("a mark was dropped");
        if self.lies_there() {
            self.observations
                .push("a mark was dropped though bytes had come back");
        }
        self.write(DocumentChange::Pointer(next.get().clone()));
        Ok((Stage::Begins, "drops the mark"))
    }
}
