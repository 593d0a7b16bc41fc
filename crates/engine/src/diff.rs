//! What differs between two snapshots.

use crate::bridge;
use crate::catalog::SnapshotSelector;
use crate::error::Error;
use crate::handle::DirRepo;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::chunked::ChunkError;
use stasis_disk::form::chunked::list::ListReader;
use stasis_model::tree::diff::{ChangeKind, DiffError, DigestedEntry, EntryChange};
use stasis_model::tree::{self, Entry, EntryKind, EntryPath};

/// What differs between two snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TreeDifference {
    /// Which entry.
    pub path: String,
    /// In what it differs.
    pub change: ChangeKind,
}

impl DirRepo<'_> {
    /// What differs between two snapshots, in the order of paths.
    pub async fn diff(
        self,
        before: &SnapshotSelector,
        after: &SnapshotSelector,
    ) -> Result<Vec<TreeDifference>, Error> {
        let note = |all: &mut Vec<TreeDifference>, change: &EntryChange<DigestedEntry>| {
            all.push(TreeDifference {
                path: change.path().to_string(),
                change: change.kind(),
            });
        };
        self.noted_changes(before, after, note).await
    }

    /// How many of the entries that are wanted differ. The time of a directory is no difference: opening a database in it changes that.
    pub(crate) async fn count(
        self,
        before: &SnapshotSelector,
        after: &SnapshotSelector,
        is_wanted: impl Fn(&EntryPath) -> bool + Send + 'static,
    ) -> Result<DifferenceCount, Error> {
        let note = move |count: &mut DifferenceCount, change: &EntryChange<DigestedEntry>| {
            if !is_wanted(change.path()) {
                return;
            }
            match change {
                EntryChange::Added(_) => count.added += 1,
                EntryChange::Removed(_) => count.removed += 1,
                EntryChange::Changed { old, new, .. } => {
                    count.changed += u64::from(!is_directory_in_time(&old.entry, &new.entry));
                }
            }
        };
        self.noted_changes(before, after, note).await
    }

    /// What is noted of each entry that differs between two snapshots, in the order of paths.
    async fn noted_changes<T: Default + Send + 'static>(
        self,
        before: &SnapshotSelector,
        after: &SnapshotSelector,
        note: impl Fn(&mut T, &EntryChange<DigestedEntry>) + Send + 'static,
    ) -> Result<T, Error> {
        let (before, source) = self.open_wanted(before).await?;
        let (after, _) = self.open_wanted(after).await?;
        let noted = bridge::blocking(move || {
            let (old, new) = (
                ListReader::new(&source, &before.list)?.entries(),
                ListReader::new(&source, &after.list)?.entries(),
            );
            let mut noted = T::default();
            for change in tree::diff::diff(old, new, DigestedEntry::difference) {
                note(&mut noted, &change.map_err(DiffError::into_source)?);
            }
            Ok::<_, ChunkError>(noted)
        });
        Ok(noted.await?)
    }
}

/// How many entries differ between two trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DifferenceCount {
    /// Both have them, and they are not the same.
    pub changed: u64,
    /// Only the newer one has them.
    pub added: u64,
    /// Only the older one has them.
    pub removed: u64,
}

/// Whether two entries are one directory at different times.
fn is_directory_in_time(was: &Entry, is: &Entry) -> bool {
    let properties = |one: &Entry| (one.metadata.mode, one.metadata.uid, one.metadata.gid);
    was.kind == EntryKind::Directory
        && is.kind == EntryKind::Directory
        && properties(was) == properties(is)
        && was.attributes == is.attributes
}
