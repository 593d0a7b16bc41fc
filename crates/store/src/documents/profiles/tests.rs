use super::*;
use crate::backend::memory::MemoryBucket;
use futures_util::stream;
use stasis_model::format::manifest::{CapturedBy, NewProfileManifest};
use stasis_model::id::OpId;
use stasis_model::time::Timestamp;
use stasis_model::tree::canonical::TreeHasher;

fn lineage() -> Lineage {
    "acme/alice@131".parse().unwrap()
}

fn manifest(bytes: &[u8]) -> ProfileManifest {
    ProfileManifest::new(NewProfileManifest {
        lineage: lineage(),
        archive_sha256: ArchiveDigest::of(bytes),
        archive_size_bytes: bytes.len() as u64,
        tree_digest: TreeHasher::default().finish(),
        captured_at: Timestamp::from_millis(1000 + bytes.len() as u64),
        captured_by: CapturedBy {
            host: "h".parse().unwrap(),
            host_run_id: "r".parse().unwrap(),
            writer_version: "w".parse().unwrap(),
        },
        op_id: OpId::default(),
    })
}

async fn store(bucket: &dyn Bucket, bytes: &'static [u8]) -> (SnapshotKeys, Active) {
    let lineage = lineage();
    let snapshots = LineageSnapshots::of(bucket, &lineage);
    let body = || -> ByteStream { Box::pin(stream::iter([Ok(Bytes::from_static(bytes))])) };
    let archive = NewArchive {
        digest: ArchiveDigest::of(bytes),
        size: bytes.len() as u64,
        form: StoredForm::Plain,
        body: &body,
        derived: None,
    };
    let keys = snapshots.put_archive(&archive).await.unwrap().keys;
    let active = snapshots.put_manifest(&manifest(bytes), &keys).await;
    assert!(snapshots.is_listed(&keys, archive.size).await.unwrap());
    (keys, active.unwrap())
}

#[tokio::test]
async fn the_same_snapshot_again_changes_nothing() {
    let bucket = MemoryBucket::new();

    let (keys, first) = store(&bucket, b"bytes").await;
    let (again, second) = store(&bucket, b"bytes").await;

    assert_eq!((&keys, &first), (&again, &second));
    let lineage = lineage();
    let all = LineageSnapshots::of(&bucket, &lineage).all().await.unwrap();
    assert_eq!(all.snapshots.len(), 1);
    assert_eq!(all.snapshots[0].active, first);
    assert_eq!(all.snapshots[0].archive_size, Some(5));
    let read = LineageSnapshots::of(&bucket, &lineage)
        .manifest(&first)
        .await;
    assert_eq!(read.unwrap(), manifest(b"bytes"));
}

#[tokio::test]
async fn a_name_that_is_taken_by_other_bytes_is_lengthened_and_never_overwritten() {
    let bucket = MemoryBucket::new();
    let digest = ArchiveDigest::of(b"bytes");
    let short = SnapshotKeys::new(&lineage(), digest, Spelling::Short, StoredForm::Plain);
    bucket
        .put(&short.archive, Bytes::from_static(b"others"))
        .await
        .unwrap();

    let (keys, _) = store(&bucket, b"bytes").await;

    assert!(keys.archive.as_str().contains(&digest.to_string()));
    let there = bucket.get(&short.archive, 100).await.unwrap().unwrap();
    assert_eq!(&there.body[..], b"others");
    let lineage = lineage();
    let all = LineageSnapshots::of(&bucket, &lineage).all().await.unwrap();
    assert_eq!(all.snapshots.len(), 1);
    assert_eq!(all.orphans, [(short.archive, 6)]);
}

#[tokio::test]
async fn a_manifest_from_elsewhere_is_shown_as_unfit_and_not_used() {
    let bucket = MemoryBucket::new();
    let (keys, active) = store(&bucket, b"bytes").await;
    let body = bucket.get(&keys.manifest, 1 << 20).await.unwrap().unwrap();
    let text = String::from_utf8(body.body.to_vec()).unwrap();
    let other = text.replacen("\"acme\"", "\"acm3\"", 1);
    bucket
        .put(&keys.manifest, Bytes::from(other))
        .await
        .unwrap();

    let lineage = lineage();
    let snapshots = LineageSnapshots::of(&bucket, &lineage);

    let all = snapshots.all().await.unwrap();
    assert_eq!((all.snapshots.len(), all.unfit.len()), (0, 1));
    let refused = snapshots.manifest(&active).await.unwrap_err();
    assert!(matches!(refused, ReadError::OtherManifest(_)));
    bucket.delete(&keys.manifest).await.unwrap();
    let absent = snapshots.manifest(&active).await.unwrap_err();
    assert!(matches!(absent, ReadError::NoManifest(_)));
}

#[tokio::test]
async fn lineages_are_found_by_tenant_and_a_common_beginning_does_not_mix_them() {
    let bucket = MemoryBucket::new();
    let of = |subject: &str| subject.parse::<Lineage>().unwrap();
    let keys = [
        layout::lock(&of("acme/alice@131")),
        layout::pointer(&of("acme/alice@131")),
        layout::pointer(&of("acme/alice@132")),
        layout::pointer(&of("acme2/bob@131")),
        layout::ChunkRoot::state().manifest(&"one".parse().unwrap()),
    ];
    for key in keys {
        bucket.put(&key, Bytes::from_static(b"{}")).await.unwrap();
    }

    let tenant: TenantId = "acme".parse().unwrap();
    let one = lineages(&bucket, Some(&tenant)).await.unwrap();
    let all = lineages(&bucket, None).await.unwrap();

    let spelled = |set: &BTreeSet<Lineage>| set.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(spelled(&one), ["acme/alice@131", "acme/alice@132"]);
    assert_eq!(all.len(), 3);
}
