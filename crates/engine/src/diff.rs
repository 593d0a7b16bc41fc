//! What differs between two snapshots.

use crate::bridge;
use crate::catalog::SnapshotSelector;
use crate::error::Error;
use crate::handle::DirRepo;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::chunked::ChunkError;
use stasis_disk::form::chunked::list::ListReader;
use stasis_model::tree;
use stasis_model::tree::diff::{ChangeKind, DiffError, DigestedEntry};

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
        let (before, source) = self.open_wanted(before).await?;
        let (after, _) = self.open_wanted(after).await?;
        let found = bridge::blocking(move || {
            let (old, new) = (
                ListReader::new(&source, &before.list)?.entries(),
                ListReader::new(&source, &after.list)?.entries(),
            );
            let changes = tree::diff::diff(old, new, DigestedEntry::difference);
            let found = changes.map(|change| {
                let change = change.map_err(DiffError::into_source)?;
                Ok::<_, ChunkError>(TreeDifference {
                    path: change.path().to_string(),
                    change: change.kind(),
                })
            });
            found.collect::<Result<Vec<_>, _>>()
        });
        Ok(found.await?)
    }
}
