//! Manifests that no save will ever publish: which they are, and how they are removed. No I/O.
//!
//! 1. list the manifests, then read the index   2. tombstone in the index, by a swap   3. look again   4. remove
//!
//! *Always true:* a manifest is removed only after the index said that it is tombstoned, and the index never leads to a
//! tombstoned manifest again. A live save's manifest is not tombstoned: only a lease behind the fence is, and a fence
//! never goes back, so that the save which holds such a lease could not publish any more. A crash anywhere leaves
//! manifests that the next round finds again, as does a PUT of a removed manifest that lands late.
//!
//! A provisional manifest has the lease of its save and is judged like any other: what goes by itself is that of a save
//! that is over, because publishing raises the fence.
//!
//! A manifest of another incarnation than its index's, or beneath an index that is marked as deleted, needs no tombstone:
//! the index is one, since an incarnation never comes back. Two things make that true. The index carries an incarnation
//! *before* the first manifest of it is put, and it is read *after* the manifests were listed.

use super::ATTEMPTS;
use crate::format::document::Version;
use crate::id::{Epoch, SnapshotId};
use std::collections::BTreeSet;

/// A set of manifests, each named by its own snapshot id.
pub type Manifests = BTreeSet<SnapshotId>;

/// One listed manifest and what the index, in one version read afterwards, says about it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ListedManifest {
    /// Which manifest.
    pub id: SnapshotId,
    /// The epoch of the lease it was made under.
    pub lease: Epoch,
    /// The fence of its subject; `None` if the index knows no such subject.
    pub fence: Option<Epoch>,
    /// Whether it was made under another incarnation of its subject than the index has, or the index is marked as deleted.
    pub foreign: bool,
    /// Whether the index leads to it.
    pub indexed: bool,
    /// Whether the index says that it was forgotten or tombstoned.
    pub tombstoned: bool,
}

/// What becomes of a manifest, and why.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ManifestFate {
    /// Stays: it is a snapshot.
    Indexed,
    /// Stays: its save may still publish it, or that is unknown.
    MayBePublished,
    /// To be tombstoned: its lease is behind the fence.
    Behind,
    /// To be removed: it is tombstoned.
    Tombstoned,
    /// To be removed: its subject was deleted, and what was made again under its name is another one.
    Foreign,
}

/// Judges one manifest.
pub fn judge(manifest: &ListedManifest) -> ManifestFate {
    if manifest.indexed {
        ManifestFate::Indexed
    } else if manifest.tombstoned {
        ManifestFate::Tombstoned
    } else if manifest.foreign {
        ManifestFate::Foreign
    } else if manifest.fence.is_some_and(|fence| manifest.lease < fence) {
        ManifestFate::Behind
    } else {
        ManifestFate::MayBePublished
    }
}

/// What the store said to the last step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ManifestGcAnswer {
    /// Nothing was asked yet.
    Begin,
    /// All manifests, and the version of the index that they were looked up in.
    Surveyed(Version, Vec<ListedManifest>),
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
#[must_use = "a gc of manifests advances only when its steps are carried out"]
pub enum ManifestGcStep {
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

/// One gc of manifests in progress.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ManifestGc {
    step: ManifestGcStep,
    attempts_left: u8,
}

impl Default for ManifestGc {
    fn default() -> Self {
        Self::new()
    }
}

impl ManifestGc {
    /// One that has not begun.
    pub fn new() -> Self {
        Self {
            step: ManifestGcStep::Survey,
            attempts_left: ATTEMPTS,
        }
    }

    /// Takes the answer to the last step and returns the next one.
    pub fn next(&mut self, answer: ManifestGcAnswer) -> ManifestGcStep {
        self.step = match (&self.step, answer) {
            (_, ManifestGcAnswer::Begin)
            | (ManifestGcStep::Tombstone { .. }, ManifestGcAnswer::Won) => ManifestGcStep::Survey,
            (ManifestGcStep::Survey, ManifestGcAnswer::Surveyed(version, manifests)) => {
                after_survey(version, &manifests)
            }
            (ManifestGcStep::Remove(gone), ManifestGcAnswer::Removed) => {
                ManifestGcStep::Done(gone.clone())
            }
            (ManifestGcStep::Done(_) | ManifestGcStep::Unreachable, _) => self.step.clone(),
            _ if self.attempts_left == 0 => ManifestGcStep::Unreachable,
            (ManifestGcStep::Tombstone { .. }, _) => {
                self.attempts_left -= 1;
                ManifestGcStep::Survey
            }
            _ => {
                self.attempts_left -= 1;
                self.step.clone()
            }
        };
        self.step.clone()
    }
}

fn after_survey(expected: Version, manifests: &[ListedManifest]) -> ManifestGcStep {
    let of = |fate: ManifestFate| -> Manifests {
        let fits = manifests.iter().filter(|one| judge(one) == fate);
        fits.map(|one| one.id.clone()).collect()
    };
    let behind = of(ManifestFate::Behind);
    let mut dead = of(ManifestFate::Tombstoned);
    dead.append(&mut of(ManifestFate::Foreign));
    if !behind.is_empty() {
        ManifestGcStep::Tombstone {
            expected,
            manifests: behind,
        }
    } else if !dead.is_empty() {
        ManifestGcStep::Remove(dead)
    } else {
        ManifestGcStep::Done(Manifests::new())
    }
}
