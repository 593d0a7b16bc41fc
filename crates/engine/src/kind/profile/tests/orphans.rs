//! Archives that were never finished, on a real S3 server, which alone says when they were written.

use super::{Counting, World};
use crate::kind::profile::sweep::{LineageCollected, ProfileGc};
use crate::open::{Engine, LocalDirs, StoreLocation};
use bytes::Bytes;
use futures_util::stream;
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::Lineage;
use stasis_model::policy::retention::OnDoubt;
use stasis_model::time::{Clock, Timestamp};
use stasis_store::backend::object_store::{ObjectBucket, TransferSettings};
use stasis_store::backend::s3::{self, S3Access};
use stasis_store::bucket::{Bucket, ByteStream};
use stasis_store::credentials::{Credentials, Secret};
use stasis_store::documents::profiles::{LineageSnapshots, NewArchive};
use stasis_store::layout::StoredForm;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The real time, and as much later as somebody wants.
#[derive(Debug, Default)]
pub(super) struct Moved(AtomicU64);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let real = u64::try_from(real.as_millis()).unwrap();
        Timestamp::from_millis(real + self.0.load(Ordering::Relaxed))
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.now().millis())
    }
}

/// A store of this test's own on the real server; `None` means that this test is skipped.
pub(super) fn real_bucket(place: &str) -> Option<ObjectBucket> {
    let store = std::env::var("STASIS_TEST_S3").ok();
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    assert!(
        store.is_some() || !needed,
        "STASIS_TEST_S3 is not set: run scripts/test"
    );
    let store = store?.replace("/test?", &format!("/{place}-{}?", std::process::id()));
    let StoreLocation::S3(location) = store.parse().unwrap() else {
        panic!("{store}")
    };
    let variable = |name| std::env::var(name).unwrap();
    let access = S3Access::Keys(Credentials {
        access_key: variable("AWS_ACCESS_KEY_ID"),
        secret: Secret::new(variable("AWS_SECRET_ACCESS_KEY")),
        session_token: None,
    });
    // The bucket compares the server's clock with the real one; only the engine is told another time.
    let clock = Arc::new(Moved::default());
    Some(s3::open(&location, access, clock, TransferSettings::default()).unwrap())
}

async fn put_orphan(bucket: &dyn Bucket, lineage: &Lineage) {
    let bytes: &[u8] = b"never finished";
    let body = move || -> ByteStream { Box::pin(stream::iter([Ok(Bytes::from_static(bytes))])) };
    let archive = NewArchive {
        digest: ArchiveDigest::of(bytes),
        size: bytes.len() as u64,
        form: StoredForm::Plain,
        body: &body,
        derived: None,
    };
    let snapshots = LineageSnapshots::of(bucket, lineage);
    snapshots.put_archive(&archive).await.unwrap();
}

async fn gc(engine: &Engine) -> LineageCollected {
    let gc = ProfileGc {
        subject: None,
        tenant: None,
        keep_newest: Some(1),
        keep_periods: std::collections::BTreeMap::new(),
        keep_rollback_days: None,
        on_doubt: OnDoubt::RefuseAges,
        dry_run: false,
    };
    engine.profiles().gc(&gc).await.unwrap().lineages.remove(0)
}

#[tokio::test]
async fn on_s3_an_archive_that_was_never_finished_is_kept_for_a_day_and_goes_after_it() {
    let Some(bucket) = real_bucket("orphans") else {
        return;
    };
    let (world, clock) = (World::new(), Arc::new(Moved::default()));
    let bucket: Arc<dyn Bucket> = Arc::new(bucket);
    let local_dirs = LocalDirs {
        cache: Some(world.home.path().join("cache")),
        state: None,
    };
    let rng = Arc::new(Counting::default());
    let engine = Engine::over(
        bucket.clone(),
        StoreLocation::Memory,
        local_dirs,
        clock.clone(),
        rng,
    );
    let saved = engine.profiles().save(world.saving()).await.unwrap();
    put_orphan(&*bucket, &world.lineage).await;

    let young = gc(&engine).await;
    let hours = |hours| u64::try_from(Duration::from_hours(hours).as_millis()).unwrap();
    clock.0.store(hours(23), Ordering::Relaxed);
    let still_young = gc(&engine).await;
    clock.0.store(hours(25), Ordering::Relaxed);
    let old = gc(&engine).await;

    for kept in [young, still_young] {
        assert_eq!(kept.removed, []);
        assert_eq!(kept.preserved.len(), 1);
        assert_eq!(
            kept.preserved[0].because,
            "it was written within the last day"
        );
    }
    assert_eq!(old.removed.len(), 1);
    let orphan = ArchiveDigest::of(b"never finished");
    assert_eq!(old.removed[0].sha256, orphan);
    let snapshots = LineageSnapshots::of(&*bucket, &world.lineage);
    let left = snapshots.all().await.unwrap();
    assert!(left.orphans.is_empty());
    assert_eq!(left.snapshots.len(), 1);
    assert_eq!(left.snapshots[0].active.archive, saved.sha256);
}
