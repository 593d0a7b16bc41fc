//! Which snapshot somebody means.

use super::{Project, ProjectError};
use crate::error::Error;
use stasis_model::format::manifest::{Indexed, SnapshotIndex};
use stasis_model::id::SnapshotId;
use stasis_model::snapshot_ref::{SnapshotRef, Unresolved};

impl Project {
    /// The index of its snapshots; empty before the first save.
    pub(super) async fn index(&self) -> Result<SnapshotIndex, Error> {
        self.engine.dirs().index(&self.engine.dirs().root()).await
    }

    /// Its snapshots, the oldest first.
    pub(super) fn own<'i>(&self, index: &'i SnapshotIndex) -> Vec<&'i Indexed> {
        let name = self.name();
        let own = index.snapshots().filter(|(of, _)| **of == name);
        own.map(|(_, one)| one).collect()
    }

    /// Finds the snapshot that a user means: see [`SnapshotIndex::resolve`].
    pub(super) fn resolve(
        &self,
        index: &SnapshotIndex,
        wanted: &SnapshotRef,
    ) -> Result<SnapshotId, Error> {
        let project = self.home.id.clone();
        match index.resolve(Some(&self.name()), wanted) {
            Ok(one) => Ok(one.id.clone()),
            Err(Unresolved::Ambiguous(fits)) => Err(Error::Ambiguous {
                wanted: wanted.to_string(),
                count: fits.len(),
            }),
            Err(Unresolved::NoLatest) => {
                let own = self.own(index).into_iter().rev();
                let snapshots = own.map(|one| self.row(index, one)).collect();
                Err(ProjectError::NoLatest { project, snapshots }.into())
            }
            Err(Unresolved::Absent) => {
                let wanted = wanted.to_string();
                if !wanted.is_empty() {
                    self.ensure_no_other(index, &wanted)?;
                }
                Err(ProjectError::NoSnapshot { project, wanted }.into())
            }
        }
    }

    /// The same, for somebody who must not be told "there is none" by a damaged index.
    pub(super) async fn find(
        &self,
        index: &SnapshotIndex,
        wanted: &SnapshotRef,
    ) -> Result<SnapshotId, Error> {
        let found = self.resolve(index, wanted);
        let is_none = matches!(&found, Err(Error::Project(error)) if matches!(**error, ProjectError::NoSnapshot { .. }));
        if !is_none {
            return found;
        }
        let wanted = wanted.text();
        let stored = self.engine.dirs().root().manifest_ids().await?;
        let is_lost = |id: &SnapshotId| {
            id.as_str().starts_with(&*wanted) && !index.tombstones.contains_key(id)
        };
        match stored.into_iter().find(is_lost) {
            Some(id) => Err(Error::LostManifest(id)),
            None => found,
        }
    }

    /// A snapshot of another project is named as such, and not as missing.
    fn ensure_no_other(&self, index: &SnapshotIndex, wanted: &str) -> Result<(), ProjectError> {
        let mut others = index.snapshots();
        match others.find(|(_, one)| one.id.as_str().starts_with(wanted)) {
            Some((name, one)) => Err(ProjectError::OtherProject {
                snapshot: one.id.clone(),
                found: name.to_string(),
                project: self.home.id.clone(),
            }),
            None => Ok(()),
        }
    }
}
