//! Makes a live tree what it was: the one way in which directories, projects and workspaces are restored.
//!
//! 1. *plan* what is touched, before anything is written (`RestorePlan`); a dry run ends here
//! 2. *guard*: refuse what must not be done
//! 3. *keep* what will be replaced, so that it can be taken back: a snapshot, or an undo checkpoint
//! 4. *stage* what takes its place beside it, and verify that
//! 5. *swap*: put it in its place by a journal; what comes out is the backup
//! 6. *settle*: write down what was done, and say it
//!
//! What only a kind knows (its programs and databases, its store or its slots) is its `RestoreKind`; the order is here,
//! once (`carry_out`).
//!
//! *Always true:* an error before 5 leaves the tree as it was. A crash in 5 leaves the old tree, or a journal by which
//! whoever comes next makes it the new one, whole (`recover`).

mod snapshot;

pub(crate) use snapshot::StagedSnapshot;
pub use snapshot::{BeforeRestore, RepoRestore, RepoRestored};
pub use stasis_disk::tree::restore::Placement;

use crate::error::Error;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::tree::restore::{self, PlacedTree, is_part_of};
use stasis_model::display_as_serialized;
use stasis_model::tree::EntryPath;
use std::future::Future;
use std::path::Path;

/// What a restore touches, decided before anything is written: a dry run shows it, and a real run does just that.
#[derive(Clone, Debug)]
pub(crate) struct RestorePlan<S> {
    /// What the tree becomes, and what else only the kind knows of it.
    pub(crate) source: S,
    /// The entries that are restored, with everything in them; everything if none is named.
    pub(crate) only: Vec<EntryPath>,
    /// Entries that stay as they are, with everything in them; a database with its journals.
    pub(crate) except: Vec<EntryPath>,
    /// What of that nobody asked for.
    pub(crate) left_alone: Vec<LeftAloneEntry>,
}

impl<S> RestorePlan<S> {
    /// A plan that touches everything.
    pub(crate) fn whole(source: S) -> Self {
        Self {
            source,
            only: Vec::new(),
            except: Vec::new(),
            left_alone: Vec::new(),
        }
    }

    /// Whether everything is restored.
    pub(crate) fn is_whole(&self) -> bool {
        self.only.is_empty()
    }

    /// Whether an entry is among those that are restored.
    pub(crate) fn is_wanted(&self, path: &EntryPath) -> bool {
        !self.is_excepted(path) && (self.is_whole() || is_named(path, &self.only))
    }

    /// Whether an entry, or the database that it belongs to, stays as it is.
    pub(crate) fn is_excepted(&self, path: &EntryPath) -> bool {
        self.except.iter().any(|one| is_part_of(path, one))
    }

    /// Whether all of an entry stays as it is.
    pub(crate) fn leaves(&self, path: &EntryPath) -> bool {
        self.except.iter().any(|one| path.is_within(one))
    }
}

/// Whether somebody named an entry, what it is in, or the database that it waits beside: the log of a database that is
/// replaced would be replayed into the other one.
pub(crate) fn is_named(path: &EntryPath, names: &[EntryPath]) -> bool {
    let mut names = names.iter();
    names.any(|one| path.is_within(one) || path.is_companion_of(one))
}

/// What only a kind knows of a restore: how it is guarded, kept, staged, swapped and settled.
pub(crate) trait RestoreKind: Send {
    /// What takes the restore back.
    type Kept: Send + Sync;
    /// What was written beside the live tree.
    type Staged: Send;
    /// What became of the live tree.
    type Swapped: Send;
    /// What is said of all that.
    type Restored;

    /// Refuses what must not be done. Nothing was written.
    fn guard(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Keeps what will be replaced. An error leaves nothing behind.
    fn keep(&mut self) -> impl Future<Output = Result<Self::Kept, Error>> + Send;

    /// What a swap would answer if that which was kept shows that nothing has to be replaced: then nothing is staged or moved.
    fn nothing_to_do(
        &mut self,
        _kept: &Self::Kept,
    ) -> impl Future<Output = Result<Option<Self::Swapped>, Error>> + Send {
        async { Ok(None) }
    }

    /// Writes what takes its place beside it, and verifies that.
    fn stage(&mut self) -> impl Future<Output = Result<Self::Staged, Error>> + Send;

    /// Puts it in its place. An error means that the old tree is still there, but for one that says otherwise.
    fn swap(
        &mut self,
        staged: Self::Staged,
        kept: &Self::Kept,
    ) -> impl Future<Output = Result<Self::Swapped, Error>> + Send;

    /// Writes down what was done, and says it.
    fn settle(
        self,
        swapped: Self::Swapped,
        kept: Self::Kept,
    ) -> impl Future<Output = Result<Self::Restored, Error>> + Send;
}

/// Carries out a restore that was planned.
pub(crate) async fn carry_out<K: RestoreKind>(mut kind: K) -> Result<K::Restored, Error> {
    kind.guard().await?;
    let kept = kind.keep().await?;
    if let Some(swapped) = kind.nothing_to_do(&kept).await? {
        return kind.settle(swapped, kept).await;
    }
    let staged = kind.stage().await?;
    let swapped = kind.swap(staged, &kept).await?;
    kind.settle(swapped, kept).await
}

/// Brings a restore to its end that was interrupted, and says where that is which it replaced; `false` when there was none.
pub(crate) fn recover(live: &Path) -> Result<bool, Error> {
    let finished = restore::recovered(live)?;
    for one in &finished {
        let changed: Vec<String> = one.changed.iter().map(ToString::to_string).collect();
        let (kept, changed) = (one.kept.display(), changed.join(", "));
        for path in &one.not_permitted {
            tracing::warn!(%path, "this user may not change it: it is as it was before the restore that was interrupted");
        }
        tracing::warn!(%kept, changed, "an interrupted restore was brought to its end; what it replaced, and what was changed since, is kept");
    }
    Ok(!finished.is_empty())
}

/// What became of the entries of a directory that stayed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct InPlaceChanges {
    /// Entries that were put in place.
    pub placed: u64,
    /// Entries that were removed, because the snapshot does not have them.
    pub removed: u64,
    /// Entries that only got other owners, permissions or times.
    pub dressed: u64,
    /// Entries that were not touched.
    pub untouched: u64,
    /// Entries that others changed meanwhile: what they wrote is in the backup.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_meanwhile: Vec<String>,
    /// Entries that saves leave out by now: they stay as they are, because no snapshot has what they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<String>,
    /// Entries that are not what the snapshot has because this user may not read or change them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_permitted: Vec<String>,
    /// Whether some of these are not what the snapshot has, though nobody could know that beforehand.
    #[serde(skip)]
    pub is_partial: bool,
    /// Where what was replaced is kept, for seven days; none if all of that is in the snapshot that was made before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
}

impl InPlaceChanges {
    /// Of a directory in which nothing had to be touched.
    pub(crate) fn nothing() -> Self {
        Self {
            placed: 0,
            removed: 0,
            dressed: 0,
            untouched: 0,
            changed_meanwhile: Vec::new(),
            left_alone: Vec::new(),
            not_permitted: Vec::new(),
            is_partial: false,
            backup: None,
        }
    }

    /// Whether everything was as it should be already, or was left as it is.
    pub fn is_nothing(&self) -> bool {
        self.placed + self.removed + self.dressed == 0
    }

    pub(crate) fn of(placed: &PlacedTree) -> Option<Self> {
        let names = |paths: &[EntryPath]| paths.iter().map(ToString::to_string).collect();
        match placed {
            PlacedTree::InPlace(changes) => Some(Self {
                placed: changes.placed,
                removed: changes.removed,
                dressed: changes.dressed,
                untouched: changes.untouched,
                changed_meanwhile: names(&changes.changed_meanwhile),
                left_alone: names(&changes.left_alone),
                not_permitted: names(&changes.not_permitted),
                is_partial: !changes.refused.is_empty(),
                backup: changes
                    .backup
                    .as_ref()
                    .map(|path| path.display().to_string()),
            }),
            _ => None,
        }
    }
}

/// An entry that a restore left as it is, though nobody asked for that.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LeftAloneEntry {
    /// Which.
    pub path: String,
    /// What kept it from being restored.
    pub why: LeftAloneReason,
    /// What stays with it, and everything in that; nothing where it stays alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

/// Why a restore left an entry as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeftAloneReason {
    /// It may not be read: nobody could say what an undo brings back.
    Unreadable,
    /// It could not be read when the checkpoint was made, which says nothing of what it was.
    NotInCheckpoint,
    /// It, or the directory it is in, belongs to another user, and may not be moved.
    NotOurs,
    /// A directory that did not exist then, with something in it that is excluded from checkpoints.
    HoldsExcluded,
}

display_as_serialized!(LeftAloneReason);

#[cfg(test)]
mod tests;
