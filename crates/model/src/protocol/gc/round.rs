//! The sweep's side: one round, from reading `gc.json` to the next epoch. No I/O.
//!
//! A swap that was lost, or whose answer was, is settled by reading `gc.json` again. It does not matter who wrote what is
//! found there: a list that is in must be worked off by whoever finds it, and an epoch that has gone by is over.

use super::{ATTEMPTS, GcState, Names, mark, spare};
use crate::format::document::{Version, Versioned};
use crate::id::OpId;

/// What the store said to the last step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SweepAnswer {
    /// Nothing was asked yet.
    Begin,
    /// `gc.json`, or that there is none.
    Gc(Option<Versioned<GcState>>),
    /// The names of stored chunks, as many as one wants to look at in one round.
    Listed(Names),
    /// Which of the names asked for stand in any manifest.
    Referenced(Names),
    /// A manifest is there but cannot be read or understood.
    UnreadableManifest,
    /// None of the names is there any more, and no deletion is unanswered.
    Deleted,
    /// The write was applied.
    Won,
    /// The condition did not hold.
    Lost,
    /// No answer, or one that settles nothing, in spite of retries.
    Silence,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[must_use = "a sweep advances only when its steps are carried out"]
pub enum SweepStep {
    /// Read `gc.json`.
    ReadGc,
    /// List stored chunks.
    ListChunks,
    /// List the manifests now, all of them, promoted or not; read each; say which of these names they name.
    ///
    /// One that disappears between the list and the read was tombstoned, and names nothing.
    FindReferenced(Names),
    /// Write `gc.json`: create it, or replace exactly the version named.
    Write {
        /// `None` creates.
        expected: Option<Version>,
        /// What to write.
        gc: Box<GcState>,
    },
    /// Delete these chunks; a chunk that is absent is deleted.
    Delete(Names),
    /// The round is over.
    Done(Swept),
    /// The round was given up; a list that is in stays in for the next one.
    Aborted(Abort),
}

/// What a round did.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Swept {
    /// Deleted by us; another sweep may have deleted the same.
    pub deleted: Names,
    /// Condemned, and then found in a manifest.
    pub spared: Names,
    /// The list was one that somebody else had left. Run another round to look for garbage of one's own.
    pub resumed: bool,
    /// There was more garbage than one round takes.
    pub more: bool,
}

/// Why a round was given up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Abort {
    /// What it names is not known, so nothing may be deleted.
    UnreadableManifest,
    /// The store does not answer, or others are always faster.
    Unreachable,
    /// There are no epochs left.
    Exhausted,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Opening,
    Listing,
    Marking(Names),
    Condemning(Box<GcState>),
    Sparing,
    Deleting(Names),
    /// Reading whether the epoch is still ours to end.
    Settling,
    Finishing(Box<GcState>),
    Over(Result<(), Abort>),
}

/// One round of a sweep.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sweep {
    op_id: OpId,
    stage: Stage,
    gc: GcState,
    /// `None` while there is no document.
    version: Option<Version>,
    swept: Swept,
    attempts_left: u8,
}

impl Sweep {
    /// A round that has not begun, under a fresh `op_id`.
    pub fn new(op_id: OpId) -> Self {
        Self {
            op_id,
            stage: Stage::Opening,
            gc: GcState::empty(),
            version: None,
            swept: Swept::default(),
            attempts_left: ATTEMPTS,
        }
    }

    /// Whether nothing was decided yet.
    pub fn is_opening(&self) -> bool {
        self.stage == Stage::Opening
    }

    /// Whether the list is one that somebody else had left.
    pub fn is_resumed(&self) -> bool {
        self.swept.resumed
    }

    /// Hears the answer to the last step and says the next one.
    pub fn next(&mut self, answer: SweepAnswer) -> SweepStep {
        let stage = match (&self.stage, answer) {
            (_, SweepAnswer::Begin) => Stage::Opening,
            (Stage::Marking(_) | Stage::Sparing, SweepAnswer::UnreadableManifest) => {
                Stage::Over(Err(Abort::UnreadableManifest))
            }
            (Stage::Opening, SweepAnswer::Gc(found)) => self.open(found),
            (Stage::Listing, SweepAnswer::Listed(listed)) => Stage::Marking(listed),
            (Stage::Marking(listed), SweepAnswer::Referenced(named)) => {
                let condemned = mark(listed, &named, &self.gc);
                self.swept.more = condemned.len() == super::CONDEMNED_LIMIT;
                self.condemn(condemned)
            }
            (Stage::Condemning(sent), SweepAnswer::Won) => {
                self.gc = sent.as_ref().clone();
                Stage::Sparing
            }
            (Stage::Condemning(_), SweepAnswer::Lost | SweepAnswer::Silence) => {
                return self.retry(Stage::Opening);
            }
            (Stage::Sparing, SweepAnswer::Referenced(named)) => {
                self.swept.deleted = spare(self.gc.condemned(), &named);
                self.swept.spared = self.gc.condemned() - &self.swept.deleted;
                Stage::Deleting(self.swept.deleted.clone())
            }
            (Stage::Deleting(_), SweepAnswer::Deleted) => Stage::Settling,
            (Stage::Settling, SweepAnswer::Gc(found)) => self.settle(found),
            (Stage::Finishing(_), SweepAnswer::Won) => Stage::Over(Ok(())),
            (Stage::Finishing(_), SweepAnswer::Lost | SweepAnswer::Silence) => {
                return self.retry(Stage::Settling);
            }
            _ => return self.retry(self.stage.clone()),
        };
        self.stage = stage;
        self.step()
    }

    fn take(&mut self, found: Option<Versioned<GcState>>) {
        (self.gc, self.version) = match found {
            Some(Versioned { value, version }) => (value, Some(version)),
            None => (GcState::empty(), None),
        };
    }

    fn open(&mut self, found: Option<Versioned<GcState>>) -> Stage {
        self.take(found);
        if self.gc.is_sweeping() {
            // Ours, if an answer was lost; else somebody's who died, or is at it right now.
            self.swept.resumed = self.gc.op_id != self.op_id;
            Stage::Sparing
        } else if self.gc.epoch.is_last() {
            Stage::Over(Err(Abort::Exhausted))
        } else {
            Stage::Listing
        }
    }

    fn condemn(&mut self, names: Names) -> Stage {
        if names.is_empty() {
            return Stage::Over(Ok(()));
        }
        Stage::Condemning(Box::new(self.gc.condemn(self.op_id, names)))
    }

    /// Ends the epoch, unless somebody else has.
    fn settle(&mut self, found: Option<Versioned<GcState>>) -> Stage {
        let epoch = self.gc.epoch;
        self.take(found);
        if self.gc.epoch == epoch && self.gc.is_sweeping() {
            Stage::Finishing(Box::new(self.gc.finish(self.op_id)))
        } else {
            Stage::Over(Ok(()))
        }
    }

    /// Goes on with `stage` after an answer that settles nothing; not forever.
    fn retry(&mut self, stage: Stage) -> SweepStep {
        self.stage = match self.attempts_left.checked_sub(1) {
            Some(left) => {
                self.attempts_left = left;
                stage
            }
            None if matches!(self.stage, Stage::Over(_)) => stage,
            None => Stage::Over(Err(Abort::Unreachable)),
        };
        self.step()
    }

    fn step(&self) -> SweepStep {
        match &self.stage {
            Stage::Opening | Stage::Settling => SweepStep::ReadGc,
            Stage::Listing => SweepStep::ListChunks,
            Stage::Marking(listed) => SweepStep::FindReferenced(listed.clone()),
            Stage::Sparing => SweepStep::FindReferenced(self.gc.condemned().clone()),
            Stage::Deleting(names) => SweepStep::Delete(names.clone()),
            Stage::Condemning(gc) | Stage::Finishing(gc) => SweepStep::Write {
                expected: self.version.clone(),
                gc: gc.clone(),
            },
            Stage::Over(Ok(())) => SweepStep::Done(self.swept.clone()),
            Stage::Over(Err(why)) => SweepStep::Aborted(*why),
        }
    }
}
