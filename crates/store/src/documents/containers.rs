//! Which containers a tenant has snapshots of, and which containers were made of those.

use crate::bucket::{Bucket, BucketError};
use crate::documents::lineages::{ReadError, read};
use crate::documents::roots::named_in;
use crate::layout::ChunkRoot;
use crate::part::Part;
use bytes::Bytes;
use stasis_model::container::restoration::Restoration;
use stasis_model::format::document;
use stasis_model::id::{ContainerSubject, SnapshotId, TenantId};

/// The containers of a tenant, or of all, of which anything lies there.
pub async fn containers(
    bucket: &dyn Bucket,
    tenant: Option<&TenantId>,
    part: &Part,
) -> Result<Vec<(TenantId, ContainerSubject)>, BucketError> {
    let prefix = tenant.map_or_else(ChunkRoot::subjects, ChunkRoot::containers);
    named_in(bucket, &prefix, part, ChunkRoot::as_container).await
}

/// The snapshots of a tenant whose images the store has, or has some of.
pub async fn images(
    bucket: &dyn Bucket,
    tenant: &TenantId,
) -> Result<Vec<SnapshotId>, BucketError> {
    let prefix = ChunkRoot::images(tenant);
    let named = named_in(bucket, &prefix, &Part::Whole, ChunkRoot::as_image).await?;
    Ok(named.into_iter().map(|(_, id)| id).collect())
}

/// Writes down that a container was made of a snapshot.
pub async fn note_restoration(
    bucket: &dyn Bucket,
    root: &ChunkRoot,
    snapshot: &SnapshotId,
    restoration: &Restoration,
) -> Result<(), BucketError> {
    let key = root.restoration(snapshot, restoration.op_id);
    let body = Bytes::from(document::render(restoration));
    bucket.put(&key, body).await
}

/// The containers that were made of a snapshot, the first one first.
pub async fn restorations(
    bucket: &dyn Bucket,
    root: &ChunkRoot,
    snapshot: &SnapshotId,
) -> Result<Vec<Restoration>, ReadError> {
    let rows = bucket
        .list(&root.restorations(snapshot), None, usize::MAX)
        .await?;
    let mut all = Vec::new();
    for row in rows {
        let found = read::<Restoration>(bucket, &row.key).await?;
        all.extend(found.map(|found| found.value));
    }
    all.sort_by_key(|one| (one.at_ms, one.op_id));
    Ok(all)
}

/// Removes those records, with the snapshot that they are of.
pub async fn remove_restorations(
    bucket: &dyn Bucket,
    root: &ChunkRoot,
    snapshot: &SnapshotId,
) -> Result<(), BucketError> {
    let rows = bucket
        .list(&root.restorations(snapshot), None, usize::MAX)
        .await?;
    for row in rows {
        bucket.delete(&row.key).await?;
    }
    Ok(())
}
