use super::*;
use crate::open::Engine;
use crate::open::{LocalDirs, StoreLocation};
use bytes::Bytes;
use futures_util::stream;
use stasis_model::format::lease::{Fence, Holder};
use stasis_model::format::manifest::{CapturedBy, NewProfileManifest, ProfileManifest};
use stasis_model::format::pointer::{Active, Pointer};
use stasis_model::id::{Epoch, OpId};
use stasis_model::rng::Rng;
use stasis_model::time::{Clock, Timestamp};
use stasis_model::tree::canonical::TreeHasher;
use stasis_store::backend::file::FileBucket;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::{Bucket, ByteStream};
use stasis_store::documents::pointers::PublishSnapshot;
use stasis_store::documents::profiles::{LineageSnapshots, NewArchive};
use stasis_store::layout::{Key, SnapshotKeys, Spelling, StoredForm};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that stands still until somebody moves it; the second number is what each look at the uptime takes.
#[derive(Debug)]
struct Still(AtomicU64, AtomicU64);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn uptime(&self) -> Duration {
        let takes = self.1.load(Ordering::Relaxed);
        Duration::from_millis(self.0.fetch_add(takes, Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl Rng for Counting {
    fn op_id(&self) -> OpId {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        OpId::from_random(u128::from(count).to_be_bytes())
    }

    fn below(&self, _bound: u64) -> u64 {
        0
    }
}

struct World {
    engine: Engine,
    clock: Arc<Still>,
    lineage: Lineage,
}

impl World {
    fn over(bucket: Arc<dyn Bucket>) -> Self {
        let clock = Arc::new(Still(AtomicU64::new(1_700_000_000_000), AtomicU64::new(0)));
        let local_dirs = LocalDirs {
            cache: None,
            state: None,
        };
        let engine = Engine::over(
            bucket,
            StoreLocation::Memory,
            local_dirs,
            clock.clone(),
            Arc::new(Counting::default()),
        );
        let lineage = "acme/alice@131".parse().unwrap();
        Self {
            engine,
            clock,
            lineage,
        }
    }

    fn in_memory() -> Self {
        Self::over(Arc::new(MemoryBucket::new()))
    }

    fn snapshots(&self) -> LineageSnapshots<'_> {
        LineageSnapshots::of(self.engine.bucket(), &self.lineage)
    }

    fn later(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.clock.0.fetch_add(by, Ordering::Relaxed);
    }

    async fn acquire(&self) -> Fence {
        let holder = Holder {
            run_id: "run".parse().unwrap(),
            host: "host".parse().unwrap(),
            host_run_id: Label::nobody(),
        };
        let ttl = Duration::from_mins(5);
        let lease = self.engine.lineages.acquire(&self.lineage, holder, ttl);
        lease.await.unwrap().fence
    }

    async fn release(&self, fence: Fence) {
        let released = self.engine.lineages.release(&self.lineage, fence);
        released.await.unwrap();
    }

    async fn put_archive(&self, bytes: &'static [u8]) -> SnapshotKeys {
        let body = || -> ByteStream { Box::pin(stream::iter([Ok(Bytes::from_static(bytes))])) };
        let archive = NewArchive {
            digest: ArchiveDigest::of(bytes),
            size: bytes.len() as u64,
            form: StoredForm::Plain,
            body: &body,
            derived: None,
        };
        self.snapshots().put_archive(&archive).await.unwrap().keys
    }

    async fn put_manifest(
        &self,
        bytes: &'static [u8],
        keys: &SnapshotKeys,
        (epoch, base): (Epoch, Option<ArchiveDigest>),
    ) -> Active {
        let mut manifest = ProfileManifest::new(NewProfileManifest {
            lineage: self.lineage.clone(),
            archive_sha256: ArchiveDigest::of(bytes),
            archive_size_bytes: bytes.len() as u64,
            tree_digest: TreeHasher::default().finish(),
            captured_at: self.clock.now(),
            captured_by: CapturedBy {
                host: "h".parse().unwrap(),
                host_run_id: "r".parse().unwrap(),
                writer_version: "w".parse().unwrap(),
            },
            op_id: OpId::default(),
        });
        manifest.lease_epoch = epoch;
        manifest.predecessor_sha256 = base;
        let snapshots = self.snapshots();
        snapshots.put_manifest(&manifest, keys).await.unwrap()
    }

    async fn publish(&self, fence: Fence, to: Active) -> Result<(), LineageError> {
        let base = self.pointer().await.active_archive();
        let publish = PublishSnapshot {
            op_id: self.engine.lineages.op_id(),
            fence,
            base,
            to,
        };
        let published = self.engine.lineages.publish(&self.lineage, publish).await;
        published.map(|_| ())
    }

    /// A whole save by a run of its own, a minute after the one before.
    async fn save(&self, bytes: &'static [u8]) -> ArchiveDigest {
        self.later(Duration::from_mins(1));
        let fence = self.acquire().await;
        let base = self.pointer().await.active_archive();
        let keys = self.put_archive(bytes).await;
        let to = self.put_manifest(bytes, &keys, (fence.epoch, base)).await;
        self.publish(fence, to).await.unwrap();
        self.release(fence).await;
        ArchiveDigest::of(bytes)
    }

    async fn pointer(&self) -> Pointer {
        let pointer = self.engine.lineages.pointer(&self.lineage).await;
        pointer.unwrap().unwrap().value
    }

    async fn delete(&self, target: ArchiveDigest) {
        let inventory = self
            .engine
            .profiles()
            .inventory(&self.lineage)
            .await
            .unwrap();
        let known = known(&inventory, target);
        let deleted = self.engine.lineages.delete(&self.lineage, target, known);
        deleted.await.unwrap();
    }

    async fn gc(&self, keep_newest: Option<u64>) -> LineageCollected {
        self.gc_as(keep_newest, false).await
    }

    async fn gc_as(&self, keep_newest: Option<u64>, dry_run: bool) -> LineageCollected {
        let cmd = ProfileGc {
            subject: None,
            tenant: None,
            keep_newest,
            keep_periods: std::collections::BTreeMap::new(),
            keep_rollback_days: None,
            on_doubt: OnDoubt::RefuseAges,
            dry_run,
        };
        let mut collected = self.engine.profiles().gc(&cmd).await.unwrap();
        assert_eq!(collected.lineages.len(), 1);
        collected.lineages.remove(0)
    }

    /// What lies there, as `a` for an archive and `m` for a manifest before the bytes it is of.
    async fn lies_there(&self, bytes: &[u8]) -> (bool, bool) {
        let digest = ArchiveDigest::of(bytes);
        let all = self.snapshots().all().await.unwrap();
        let listed = all
            .snapshots
            .iter()
            .find(|one| one.active.archive == digest);
        let orphan = |(key, _): &(Key, u64)| key.as_str().contains(&digest.prefix());
        let archive =
            listed.is_some_and(|one| one.archive_size.is_some()) || all.orphans.iter().any(orphan);
        (archive, listed.is_some())
    }
}

const BOTH: (bool, bool) = (true, true);
const NEITHER: (bool, bool) = (false, false);

async fn in_a_directory() -> (tempfile::TempDir, World) {
    let place = tempfile::tempdir().unwrap();
    let bucket = FileBucket::open(place.path()).await.unwrap();
    let world = World::over(Arc::new(bucket));
    (place, world)
}

/// Makes the clock say what it is some time after an object was really written.
async fn since_written(world: &World, key: &Key, after: Duration) {
    let written = world
        .engine
        .bucket()
        .written_at(key)
        .await
        .unwrap()
        .unwrap();
    let then = written.plus(after).millis();
    world.clock.0.store(then, Ordering::Relaxed);
}

#[tokio::test]
async fn a_save_beside_a_sweep_keeps_its_archive_between_put_and_publish() {
    let (_place, world) = in_a_directory().await;
    world.save(b"old").await;
    world.save(b"base").await;
    let fence = world.acquire().await;
    let base = world.pointer().await.active_archive();

    let keys = world.put_archive(b"new").await;
    since_written(&world, &keys.archive, 2 * A_DAY).await;
    let with_an_archive = world.gc(Some(1)).await;
    assert_eq!(world.lies_there(b"new").await, (true, false));
    let to = world.put_manifest(b"new", &keys, (fence.epoch, base)).await;
    let with_a_manifest = world.gc(Some(1)).await;
    assert_eq!(world.lies_there(b"new").await, BOTH);
    world.publish(fence, to).await.unwrap();
    let with_a_pointer = world.gc(Some(1)).await;

    assert_eq!(with_an_archive.preserved.len(), 1);
    assert_eq!(world.lies_there(b"old").await, NEITHER);
    let waiting = &with_a_manifest.verdicts[0];
    assert_eq!(waiting.because, ["its writer may yet publish it"]);
    assert_eq!(with_a_pointer.removed.len(), 2, "the former base goes now");
    assert_eq!(world.lies_there(b"new").await, BOTH);
    assert_eq!(world.lies_there(b"base").await, NEITHER);
}

#[tokio::test]
async fn an_archive_that_was_never_finished_goes_when_it_is_a_day_old_and_nobody_owns_the_profile()
{
    let (_place, world) = in_a_directory().await;
    world.save(b"base").await;
    let fence = world.acquire().await;
    let keys = world.put_archive(b"unfinished").await;
    world.release(fence).await;

    since_written(&world, &keys.archive, A_DAY / 2).await;
    let young = world.gc(Some(1)).await;
    assert_eq!(world.lies_there(b"unfinished").await, (true, false));
    since_written(&world, &keys.archive, A_DAY).await;
    let unasked = world.gc(None).await;
    assert_eq!(world.lies_there(b"unfinished").await, (true, false));
    let old = world.gc(Some(1)).await;

    assert_eq!(
        young.preserved[0].because,
        "it was written within the last day"
    );
    assert!(!unasked.judged && unasked.removed.is_empty());
    assert_eq!(old.removed.len(), 1);
    assert_eq!(world.lies_there(b"unfinished").await, NEITHER);
    assert_eq!(world.lies_there(b"base").await, BOTH);
}

#[tokio::test]
async fn an_archive_under_a_short_name_goes_at_every_size_that_ever_had_one() {
    let (_place, world) = in_a_directory().await;
    world.save(b"base").await;
    let bytes = vec![7; 12 << 20];
    let digest = ArchiveDigest::of(&bytes);
    let keys = SnapshotKeys::new(&world.lineage, digest, Spelling::Short, StoredForm::Plain);
    let stored = world.engine.bucket().put(&keys.archive, bytes.into()).await;
    stored.unwrap();
    since_written(&world, &keys.archive, A_DAY).await;

    let collected = world.gc(Some(1)).await;

    assert_eq!(collected.preserved, []);
    assert_eq!(collected.removed.len(), 1);
    assert_eq!(collected.removed[0].sha256, digest);
}

#[tokio::test]
async fn without_retention_only_what_was_deleted_goes_and_can_come_back_as_new() {
    let world = World::in_memory();
    let old = world.save(b"old").await;
    world.save(b"kept").await;
    world.save(b"active").await;
    world.delete(old).await;

    let swept = world.gc(None).await;

    assert_eq!(swept.removed.len(), 2);
    assert!(
        swept.removed[0].key.ends_with(".manifest.json"),
        "the manifest goes first"
    );
    assert_eq!(world.lies_there(b"old").await, NEITHER);
    assert_eq!(world.lies_there(b"kept").await, BOTH);
    assert!(
        world.pointer().await.is_tombstoned(old),
        "the mark is not a day old"
    );
    world.later(A_DAY);
    assert_eq!(world.gc(None).await.marks_dropped, 1);
    assert!(!world.pointer().await.is_tombstoned(old));
    world.save(b"old").await;
    assert_eq!(world.pointer().await.active_archive(), Some(old));
}

#[tokio::test]
async fn an_old_mark_is_dated_anew_before_anything_goes_and_rests_for_a_day_after() {
    let world = World::in_memory();
    let old = world.save(b"old").await;
    world.save(b"active").await;
    world.delete(old).await;
    world.later(5 * A_DAY);

    let swept = world.gc(None).await;
    let at_once = world.gc(None).await;
    world.later(A_DAY);
    let later = world.gc(None).await;

    assert_eq!((swept.removed.len(), swept.marks_dropped), (2, 0));
    assert_eq!(
        at_once.marks_dropped, 0,
        "a request that removes may be under way still"
    );
    assert_eq!(later.marks_dropped, 1);
}

#[tokio::test]
async fn a_sweep_that_took_half_a_day_removes_no_more() {
    let world = World::in_memory();
    let old = world.save(b"old").await;
    world.save(b"active").await;
    world.delete(old).await;
    let four_hours = 4 * 60 * 60 * 1000;
    world.clock.1.store(four_hours, Ordering::Relaxed);

    let stalled = world.gc(None).await;
    world.clock.1.store(0, Ordering::Relaxed);
    let next = world.gc(None).await;

    assert_eq!(stalled.removed.len(), 1, "the archive is left");
    assert_eq!(next.removed.len(), 1);
    assert_eq!(world.lies_there(b"old").await, NEITHER);
}

#[tokio::test]
async fn no_mark_is_dropped_while_a_run_owns_the_profile() {
    let world = World::in_memory();
    let old = world.save(b"old").await;
    world.save(b"active").await;
    world.delete(old).await;
    world.gc(None).await;
    let fence = world.acquire().await;
    world.later(A_DAY);

    let owned = world.gc(None).await;

    assert_eq!(owned.marks_dropped, 0);
    let keys = world.put_archive(b"old").await;
    let to = world.put_manifest(b"old", &keys, (fence.epoch, None)).await;
    let refused = world.publish(fence, to).await.unwrap_err();
    let LineageError::Refused { refusal, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!(refusal, Refusal::Tombstoned(old));
}

#[tokio::test]
async fn a_sweep_that_died_between_manifest_and_archive_is_finished_by_the_next() {
    let world = World::in_memory();
    let old = world.save(b"old").await;
    world.save(b"active").await;
    world.delete(old).await;
    let all = world.snapshots().all().await.unwrap();
    let manifest = Key::from_listing(&all.snapshots[0].active.manifest_key).unwrap();
    world.engine.bucket().delete(&manifest).await.unwrap();

    let swept = world.gc(None).await;

    assert_eq!(swept.removed.len(), 1);
    assert_eq!(world.lies_there(b"old").await, NEITHER);
}

#[tokio::test]
async fn retention_keeps_the_newest_the_active_the_pinned_and_what_was_rolled_back_to() {
    let world = World::in_memory();
    let pinned = world.save(b"pinned").await;
    world.save(b"goes").await;
    let chosen = world.save(b"chosen").await;
    for bytes in [b"1", b"2"] {
        world.save(bytes).await;
    }
    let pin = world.engine.lineages.pin(&world.lineage, pinned, true);
    pin.await.unwrap();
    let inventory = world
        .engine
        .profiles()
        .inventory(&world.lineage)
        .await
        .unwrap();
    let to = inventory
        .choose(&chosen.to_string().parse().unwrap())
        .unwrap();
    let (to, reason) = (to.active.clone(), Label::nobody());
    let back = world
        .engine
        .lineages
        .rollback(&world.lineage, to, None, reason);
    back.await.unwrap();
    for bytes in [b"3", b"4"] {
        world.save(bytes).await;
    }

    let planned = world.gc_as(Some(2), true).await;
    assert_eq!(
        world.lies_there(b"goes").await,
        BOTH,
        "a dry run removes nothing"
    );
    let swept = world.gc(Some(2)).await;
    world.later(31 * A_DAY);
    let later = world.gc(Some(2)).await;

    assert_eq!(planned.removed.len(), 6);
    assert_eq!(planned.removed, swept.removed);
    for bytes in [&b"pinned"[..], b"3", b"4"] {
        assert_eq!(world.lies_there(bytes).await, BOTH, "{bytes:?}");
    }
    for bytes in [&b"goes"[..], b"1", b"2"] {
        assert_eq!(world.lies_there(bytes).await, NEITHER, "{bytes:?}");
    }
    assert_eq!(
        later.removed[0].sha256, chosen,
        "a rollback protects for 30 days"
    );
}

#[tokio::test]
async fn an_unpublished_snapshot_is_judged_once_its_lease_is_behind_the_fence() {
    let world = World::in_memory();
    world.save(b"base").await;
    let fence = world.acquire().await;
    let keys = world.put_archive(b"stray").await;
    world
        .put_manifest(b"stray", &keys, (fence.epoch, None))
        .await;
    world.release(fence).await;

    world.gc(Some(1)).await;
    assert_eq!(
        world.lies_there(b"stray").await,
        BOTH,
        "its epoch is the fence's"
    );
    world.save(b"next").await;
    world.gc(Some(1)).await;

    assert_eq!(world.lies_there(b"stray").await, NEITHER);
    assert_eq!(world.lies_there(b"next").await, BOTH);
}

#[tokio::test]
async fn the_newest_of_each_day_stays_as_the_policy_or_the_command_asks() {
    let world = World::in_memory();
    let days: [[&'static [u8]; 2]; 3] = [[b"1a", b"1b"], [b"2a", b"2b"], [b"3a", b"3b"]];
    for day in days {
        world.later(2 * A_DAY);
        for bytes in day {
            world.save(bytes).await;
        }
    }
    let cmd = |daily: u64| ProfileGc {
        subject: None,
        tenant: None,
        keep_newest: Some(1),
        keep_periods: BTreeMap::from([(CalendarPeriod::Daily, daily)]),
        keep_rollback_days: None,
        on_doubt: OnDoubt::RefuseAges,
        dry_run: false,
    };

    let collected = world.engine.profiles().gc(&cmd(2)).await.unwrap();
    let again = world.engine.profiles().gc(&cmd(2)).await.unwrap();

    for bytes in [&b"2b"[..], b"3b"] {
        assert_eq!(world.lies_there(bytes).await, BOTH, "{bytes:?}");
    }
    for bytes in [&b"1a"[..], b"1b", b"2a", b"3a"] {
        assert_eq!(world.lies_there(bytes).await, NEITHER, "{bytes:?}");
    }
    let older = ArchiveDigest::of(b"2b");
    let mut verdicts = collected.lineages[0].verdicts.iter();
    let older = verdicts.find(|verdict| verdict.sha256 == older).unwrap();
    assert!(older.because.contains(&"daily snapshot".to_owned()));
    assert_eq!(again.objects_removed, 0, "the same again removes nothing");
}
