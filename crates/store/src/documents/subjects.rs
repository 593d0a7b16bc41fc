//! Which subjects of a tenant have snapshots, by a listing alone.

use crate::bucket::{Bucket, BucketError, objects};
use crate::layout::ChunkRoot;
use futures_util::TryStreamExt;
use stasis_model::id::TenantId;
use std::collections::BTreeMap;

/// The directories, sessions and containers of a tenant, and how many manifests lie there: of snapshots, of those that were let go,
/// and of saves that are not over. The image of a container belongs to a snapshot of that, and is not counted.
pub async fn listed_manifests(
    bucket: &dyn Bucket,
    tenant: &TenantId,
) -> Result<BTreeMap<ChunkRoot, u64>, BucketError> {
    let prefix = ChunkRoot::pool(tenant).pool_subjects();
    let mut listed = objects(bucket, &prefix);
    let mut found = BTreeMap::new();
    while let Some(row) = listed.try_next().await? {
        let root = ChunkRoot::subject_of(&row.key).filter(|root| root.as_image().is_none());
        if let Some(root) = root.filter(|root| root.manifest_id(&row.key).is_some()) {
            *found.entry(root).or_default() += 1;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::MemoryBucket;
    use bytes::Bytes;
    use stasis_model::id::SnapshotId;
    use stasis_model::time::Timestamp;

    #[tokio::test]
    async fn manifests_are_counted_for_their_subjects_and_those_of_images_are_not() {
        let bucket = MemoryBucket::new();
        let tenant: TenantId = "acme".parse().unwrap();
        let other: TenantId = "other".parse().unwrap();
        let ids = [1, 2].map(|byte| SnapshotId::dated(Timestamp::from_millis(1), [byte; 16]));
        let dir = ChunkRoot::project(&tenant, &"shop".parse().unwrap());
        let session = ChunkRoot::session(&"acme/one".parse().unwrap());
        let image = ChunkRoot::image(&tenant, &ids[0]);
        let elsewhere = ChunkRoot::project(&other, &"shop".parse().unwrap());
        let manifests = [
            dir.manifest(&ids[0]),
            dir.manifest(&ids[1]),
            session.manifest(&ids[0]),
            image.manifest(&ids[0]),
            elsewhere.manifest(&ids[0]),
            dir.index(),
            session.session_json(),
        ];
        for key in manifests {
            bucket.put(&key, Bytes::from_static(b"{}")).await.unwrap();
        }

        let found = listed_manifests(&bucket, &tenant).await.unwrap();

        assert_eq!(found, BTreeMap::from([(dir, 2), (session, 1)]));
    }
}
