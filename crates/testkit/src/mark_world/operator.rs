//! The operator, who deletes `x`, goes back to it and pins it; and the reaper.

use super::{Label, MarkWorld, Moves, snapshot, x};
use stasis_model::format::lease::LockState;
use stasis_model::protocol::step::Op;
use std::time::Duration;

const NUMBER: u8 = 100;

impl MarkWorld {
    pub(super) fn operator_moves(&self, moves: &mut Moves) {
        let whole = self.there == [true; 2];
        if self.deletes > 0 && whole && self.mark().is_none() {
            self.delete(moves);
        }
        if self.choices > 0 {
            self.choose(moves);
        }
        if self.reaps > 0 && self.lock.get().state == LockState::Held {
            let mut after = self.calm();
            after.reaps -= 1;
            let grace = Duration::ZERO;
            if after.act(&Op::Reap { grace }, NUMBER).is_ok() {
                Self::add(moves, Label("reaper", 0, "frees the lock"), after);
            }
        }
    }

    fn delete(&self, moves: &mut Moves) {
        let mut after = self.calm();
        after.deletes -= 1;
        let known = vec![x(), snapshot("y").archive];
        let target = x();
        if after.act(&Op::Delete { target, known }, NUMBER).is_ok() {
            Self::add(moves, Label("operator", 0, "deletes x"), after);
        }
    }

    /// Goes back to `x`, if the pointer is still the one that was read before `x` was seen; or pins it.
    fn choose(&self, moves: &mut Moves) {
        if !self.looked {
            if self.there == [true; 2] && self.mark().is_none() {
                let mut after = self.calm();
                after.looked = true;
                Self::add(moves, Label("operator", 0, "sees x"), after);
            }
            return;
        }
        let (to, seen, target) = (snapshot("x"), None, x());
        let back = (Op::Rollback { to, seen }, "rolls back to x");
        let pinned = true;
        for (op, what) in [back, (Op::Pin { target, pinned }, "pins x")] {
            let mut after = self.calm();
            after.choices -= 1;
            after.looked = false;
            if after.act(&op, NUMBER + after.choices).is_ok() {
                after
                    .observations
                    .push("the operator chose what had been seen");
                Self::add(moves, Label("operator", 0, what), after);
            }
        }
    }
}
