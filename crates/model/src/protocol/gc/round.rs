//! The side of gc: one round, from reading `gc.json` to the next epoch. No I/O.
//!
//! A swap that was lost, or whose answer was, is settled by reading `gc.json` again. It does not matter who wrote what is
//! found there: a list that is in must be worked off by the round that finds it, and an epoch that has gone by is over.

use super::{ATTEMPTS, GcState, Names, mark, unreferenced};
use crate::format::document::{Version, Versioned};
use crate::id::OpId;

/// What the store said to the last step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum GcAnswer {
    /// Nothing was asked yet.
    Begin,
    /// `gc.json`, or that there is none.
    Gc(Option<Versioned<GcState>>),
    /// The names of stored chunks, as many as one wants to look at in one round.
    Listed(Names),
    /// Which of the names asked for stand in any manifest.
    Referenced(Names),
    /// A manifest that was listed is not there any more, so that the one that took its place may have been missed.
    Vanished,
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
#[must_use = "a gc round advances only when its steps are carried out"]
pub enum GcStep {
    /// Read `gc.json`.
    ReadGc,
    /// List stored chunks.
    ListChunks,
    /// Say which of these names stand in the manifests of any subject of the pool. For each subject, one after the other:
    /// list its manifests, published or not; then read its index; then read every manifest that either has.
    ///
    /// One that is gone when it is read makes the subject be looked at again from its start, or is [`GcAnswer::Vanished`].
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
    Done(GcReport),
    /// The round was given up; a list that is in stays in for the next one.
    Aborted(Abort),
}

/// What a round did.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct GcReport {
    /// Deleted by us; another round may have deleted the same.
    pub deleted: Names,
    /// Condemned, and then found in a manifest.
    pub preserved: Names,
    /// The list was one that another process left. Run another round to look for garbage of one's own.
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
enum RoundStage {
    Opening,
    Listing,
    Marking(Names),
    Condemning(Box<GcState>),
    Sparing,
    /// Reading whether the list was in all the while that the manifests were looked at.
    Confirming(Names),
    Deleting(Names),
    /// Reading whether the epoch is still ours to end.
    Settling,
    Finishing(Box<GcState>),
    Over(Result<(), Abort>),
}

/// One round of gc.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GcRound {
    op_id: OpId,
    stage: RoundStage,
    gc: GcState,
    /// `None` while there is no document.
    version: Option<Version>,
    report: GcReport,
    attempts_left: u8,
}

impl GcRound {
    /// A round that has not begun, under a fresh `op_id`.
    pub fn new(op_id: OpId) -> Self {
        Self {
            op_id,
            stage: RoundStage::Opening,
            gc: GcState::empty(),
            version: None,
            report: GcReport::default(),
            attempts_left: ATTEMPTS,
        }
    }

    /// Whether nothing was decided yet.
    pub fn is_opening(&self) -> bool {
        self.stage == RoundStage::Opening
    }

    /// Whether the manifests were looked at and nothing was deleted yet.
    pub fn is_confirming(&self) -> bool {
        matches!(self.stage, RoundStage::Confirming(_))
    }

    /// Whether the list is one that another process left.
    pub fn is_resumed(&self) -> bool {
        self.report.resumed
    }

    /// Hears the answer to the last step and says the next one.
    pub fn next(&mut self, answer: GcAnswer) -> GcStep {
        let stage = match (&self.stage, answer) {
            (_, GcAnswer::Begin) => RoundStage::Opening,
            (RoundStage::Marking(_) | RoundStage::Sparing, GcAnswer::UnreadableManifest) => {
                RoundStage::Over(Err(Abort::UnreadableManifest))
            }
            (RoundStage::Opening, GcAnswer::Gc(found)) => self.open(found),
            (RoundStage::Listing, GcAnswer::Listed(listed)) => RoundStage::Marking(listed),
            (RoundStage::Marking(listed), GcAnswer::Referenced(named)) => {
                let condemned = mark(listed, &named, &self.gc);
                self.report.more = condemned.len() == super::CONDEMNED_LIMIT;
                self.condemn(condemned)
            }
            (RoundStage::Condemning(sent), GcAnswer::Won) => {
                self.gc = sent.as_ref().clone();
                RoundStage::Sparing
            }
            (RoundStage::Condemning(_), GcAnswer::Lost | GcAnswer::Silence) => {
                return self.retry(RoundStage::Opening);
            }
            (RoundStage::Sparing, GcAnswer::Referenced(named)) => {
                self.report.deleted = unreferenced(self.gc.condemned(), &named);
                self.report.preserved = self.gc.condemned() - &self.report.deleted;
                if self.report.deleted.is_empty() {
                    RoundStage::Settling
                } else {
                    RoundStage::Confirming(self.report.deleted.clone())
                }
            }
            (RoundStage::Confirming(names), GcAnswer::Gc(found)) => {
                let names = names.clone();
                self.confirm(found, names)
            }
            (RoundStage::Deleting(_), GcAnswer::Deleted) => RoundStage::Settling,
            (RoundStage::Settling, GcAnswer::Gc(found)) => self.settle(found),
            (RoundStage::Finishing(_), GcAnswer::Won) => RoundStage::Over(Ok(())),
            (RoundStage::Finishing(_), GcAnswer::Lost | GcAnswer::Silence) => {
                return self.retry(RoundStage::Settling);
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

    fn open(&mut self, found: Option<Versioned<GcState>>) -> RoundStage {
        self.take(found);
        if self.gc.is_collecting() {
            // Ours, if an answer was lost; else of a process that died, or is at it right now.
            self.report.resumed = self.gc.op_id != self.op_id;
            RoundStage::Sparing
        } else if self.gc.epoch.is_last() {
            RoundStage::Over(Err(Abort::Exhausted))
        } else {
            RoundStage::Listing
        }
    }

    fn condemn(&mut self, names: Names) -> RoundStage {
        if names.is_empty() {
            return RoundStage::Over(Ok(()));
        }
        RoundStage::Condemning(Box::new(self.gc.condemn(self.op_id, names)))
    }

    /// Deletes, unless another process has ended the epoch: a save may have used these names since, borrowed from a
    /// snapshot that was still there when that process looked and was forgotten when we did.
    fn confirm(&mut self, found: Option<Versioned<GcState>>, names: Names) -> RoundStage {
        let epoch = self.gc.epoch;
        self.take(found);
        if self.gc.epoch == epoch && self.gc.is_collecting() {
            RoundStage::Deleting(names)
        } else {
            self.report.deleted = Names::new();
            self.report.preserved = Names::new();
            RoundStage::Over(Ok(()))
        }
    }

    /// Ends the epoch, unless another process has.
    fn settle(&mut self, found: Option<Versioned<GcState>>) -> RoundStage {
        let epoch = self.gc.epoch;
        self.take(found);
        if self.gc.epoch == epoch && self.gc.is_collecting() {
            RoundStage::Finishing(Box::new(self.gc.finish(self.op_id)))
        } else {
            RoundStage::Over(Ok(()))
        }
    }

    /// Goes on with `stage` after an answer that settles nothing; not forever.
    fn retry(&mut self, stage: RoundStage) -> GcStep {
        self.stage = match self.attempts_left.checked_sub(1) {
            Some(left) => {
                self.attempts_left = left;
                stage
            }
            None if matches!(self.stage, RoundStage::Over(_)) => stage,
            None => RoundStage::Over(Err(Abort::Unreachable)),
        };
        self.step()
    }

    fn step(&self) -> GcStep {
        match &self.stage {
            RoundStage::Opening | RoundStage::Confirming(_) | RoundStage::Settling => {
                GcStep::ReadGc
            }
            RoundStage::Listing => GcStep::ListChunks,
            RoundStage::Marking(listed) => GcStep::FindReferenced(listed.clone()),
            RoundStage::Sparing => GcStep::FindReferenced(self.gc.condemned().clone()),
            RoundStage::Deleting(names) => GcStep::Delete(names.clone()),
            RoundStage::Condemning(gc) | RoundStage::Finishing(gc) => GcStep::Write {
                expected: self.version.clone(),
                gc: gc.clone(),
            },
            RoundStage::Over(Ok(())) => GcStep::Done(self.report.clone()),
            RoundStage::Over(Err(why)) => GcStep::Aborted(*why),
        }
    }
}
