//! Manifests that nobody will ever publish: which they are, and how they go. No I/O.
//!
//! 1. list the manifests, then read the index   2. tombstone in the index, by a swap   3. look again   4. remove
//!
//! *Always true:* a manifest is removed only after the index said that it is tombstoned, and the index never leads to a
//! tombstoned manifest again. A live save's manifest is not tombstoned: only a lease behind the fence is, and a fence
//! never goes back, so that the save which holds such a lease could not publish any more. A crash anywhere leaves
//! manifests that the next burial finds again, as does a PUT of a removed manifest that lands late.

use super::ATTEMPTS;
use crate::format::document::Version;
use crate::id::{Epoch, SnapshotId};
use std::collections::BTreeSet;

/// A set of manifests, each named by its own snapshot id.
pub type Manifests = BTreeSet<SnapshotId>;

/// One listed manifest and what the index, in one version read afterwards, says about it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Listed {
    /// Which manifest.
    pub id: SnapshotId,
    /// The epoch of the lease it was made under.
    pub lease: Epoch,
    /// The fence of its subject; `None` if the index knows no such subject.
    pub fence: Option<Epoch>,
    /// Whether the index leads to it.
    pub indexed: bool,
    /// Whether the index says that it was forgotten or buried.
    pub tombstoned: bool,
}

/// What becomes of a manifest, and why.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fate {
    /// Stays: it is a snapshot.
    Indexed,
    /// Stays: its save may still publish it, or nobody can tell.
    MayBePublished,
    /// To be tombstoned: its lease is behind the fence.
    Behind,
    /// To be removed: it is tombstoned.
    Tombstoned,
}

/// Judges one manifest.
pub fn judge(manifest: &Listed) -> Fate {
    if manifest.indexed {
        Fate::Indexed
    } else if manifest.tombstoned {
        Fate::Tombstoned
    } else if manifest.fence.is_some_and(|fence| manifest.lease < fence) {
        Fate::Behind
    } else {
        Fate::MayBePublished
    }
}

/// What the store said to the last step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum BurialAnswer {
    /// Nothing was asked yet.
    Begin,
    /// All manifests, and the version of the index that they were looked up in.
    Surveyed(Version, Vec<Listed>),
    /// None of the manifests is there any more.
    Removed,
    /// The write was applied.
    Won,
    /// The condition did not hold.
    Lost,
    /// No answer, or one that settles nothing, in spite of retries.
    Silence,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[must_use = "a burial advances only when its steps are carried out"]
pub enum BurialStep {
    /// List all manifests, then read the index.
    Survey,
    /// Replace exactly this version of the index by one in which these manifests are tombstoned.
    Tombstone {
        /// What the swap must name.
        expected: Version,
        /// What to tombstone.
        manifests: Manifests,
    },
    /// Remove these manifests; one that is absent is removed.
    Remove(Manifests),
    /// Over; these were removed.
    Done(Manifests),
    /// Given up; what was tombstoned stays so.
    Unreachable,
}

/// One burial in progress.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Burial {
    step: BurialStep,
    attempts_left: u8,
}

impl Default for Burial {
    fn default() -> Self {
        Self::new()
    }
}

impl Burial {
    /// A burial that has not begun.
    pub fn new() -> Self {
        Self {
            step: BurialStep::Survey,
            attempts_left: ATTEMPTS,
        }
    }

    /// Hears the answer to the last step and says the next one.
    pub fn next(&mut self, answer: BurialAnswer) -> BurialStep {
        self.step = match (&self.step, answer) {
            (_, BurialAnswer::Begin) | (BurialStep::Tombstone { .. }, BurialAnswer::Won) => {
                BurialStep::Survey
            }
            (BurialStep::Survey, BurialAnswer::Surveyed(version, manifests)) => {
                after_survey(version, &manifests)
            }
            (BurialStep::Remove(gone), BurialAnswer::Removed) => BurialStep::Done(gone.clone()),
            (BurialStep::Done(_) | BurialStep::Unreachable, _) => self.step.clone(),
            _ if self.attempts_left == 0 => BurialStep::Unreachable,
            (BurialStep::Tombstone { .. }, _) => {
                self.attempts_left -= 1;
                BurialStep::Survey
            }
            _ => {
                self.attempts_left -= 1;
                self.step.clone()
            }
        };
        self.step.clone()
    }
}

fn after_survey(expected: Version, manifests: &[Listed]) -> BurialStep {
    let of = |fate: Fate| -> Manifests {
        let fits = manifests.iter().filter(|one| judge(one) == fate);
        fits.map(|one| one.id.clone()).collect()
    };
    let (behind, tombstoned) = (of(Fate::Behind), of(Fate::Tombstoned));
    if !behind.is_empty() {
        BurialStep::Tombstone {
            expected,
            manifests: behind,
        }
    } else if !tombstoned.is_empty() {
        BurialStep::Remove(tombstoned)
    } else {
        BurialStep::Done(Manifests::new())
    }
}
