//! Records of operations whose outcome was unknown, so that anybody can ask later.

use crate::bucket::{Bucket, BucketError};
use crate::documents::lineages::{Lineages, ReadError, read};
use crate::documents::profiles::LineageSnapshots;
use crate::layout;
use bytes::Bytes;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::document;
use stasis_model::format::manifest::ProfileManifest;
use stasis_model::id::OpId;
use stasis_model::protocol::operation::{OperationFate, OperationKind, OperationRecord, Unsettled};
use std::collections::{BTreeMap, BTreeSet};

/// Writes the record down.
pub async fn record(bucket: &dyn Bucket, record: &OperationRecord) -> Result<(), BucketError> {
    let key = layout::operation(record.op_id());
    bucket
        .put(&key, Bytes::from(document::render(record)))
        .await
}

/// Finds a record.
pub async fn find(bucket: &dyn Bucket, op_id: OpId) -> Result<Option<OperationRecord>, ReadError> {
    Ok(read(bucket, &layout::operation(op_id))
        .await?
        .map(|found| found.value))
}

impl Lineages {
    /// Judges an operation by what its lineage says now.
    pub async fn settle(&self, unsettled: &Unsettled) -> Result<OperationFate, ReadError> {
        let lock = self
            .lock(&unsettled.lineage)
            .await?
            .map(|found| found.value);
        let pointer = self
            .pointer(&unsettled.lineage)
            .await?
            .map(|found| found.value);
        let fate = unsettled.settle(lock.as_ref(), pointer.as_ref());
        let publishes = unsettled.kind == OperationKind::Publish;
        if fate != OperationFate::Unknown || !publishes {
            return Ok(fate);
        }
        match pointer.and_then(|pointer| pointer.active) {
            Some(active) => self.walk_back(unsettled, active.archive).await,
            None => Ok(fate),
        }
    }

    /// Looks for an operation among those that made the active snapshot and its predecessors: the pointer remembers a few only.
    ///
    /// One that is not found stays unknown: its snapshot may have been rolled back from, and removed.
    async fn walk_back(
        &self,
        unsettled: &Unsettled,
        active: ArchiveDigest,
    ) -> Result<OperationFate, ReadError> {
        let snapshots = LineageSnapshots::of(self.bucket(), &unsettled.lineage);
        let stored = snapshots.all().await?.snapshots;
        let manifests: BTreeMap<ArchiveDigest, ProfileManifest> = stored
            .into_iter()
            .map(|one| (one.active.archive, one.manifest))
            .collect();
        let (mut next, mut seen) = (Some(active), BTreeSet::new());
        while let Some(manifest) = next.and_then(|digest| manifests.get(&digest)) {
            if manifest.op_id == unsettled.op_id {
                return Ok(OperationFate::Applied);
            }
            // Manifests name earlier ones only, unless somebody wrote them by hand.
            let is_new = seen.insert(manifest.archive_sha256);
            next = manifest.predecessor_sha256.filter(|_| is_new);
        }
        Ok(OperationFate::Unknown)
    }
}
