//! Saves that last longer than sweeps are apart.

use super::*;
use crate::error::error_chain;
use crate::open::{Engine, LocalDirs};
use crate::rigged::Turn;
use crate::rigged::pool::{Saver, SteppedClock, key};
use crate::system::SystemRng;
use bytes::Bytes;
use stasis_model::id::SnapshotId;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A host whose store, and whose time, do what the test wants.
struct LongWorld {
    world: World,
    bucket: Arc<Rigged>,
    clock: Arc<SteppedClock>,
    /// The subject that is saved for long.
    saver: Saver,
    /// The same pool by a better network, which is swept from there.
    other: Arc<Saver>,
}

impl LongWorld {
    async fn new(encrypted: bool) -> Self {
        let bucket = Arc::new(Rigged::default());
        let world = World {
            home: tempfile::tempdir().unwrap(),
            bucket: bucket.inner.clone(),
        };
        let tenant = encrypted.then(|| key(b'a'));
        let other = Arc::new(world.host("two", "other", tenant));
        let dirs = other.engine.dirs();
        dirs.make_pool(&dirs.root()).await.map(drop).unwrap();
        other.write("own", &noise(77, 200_000)).save().await;
        let clock = Arc::new(SteppedClock::default());
        let like = world.host("one", "long", None);
        let place = |what: &str| Some(world.home.path().join("one").join(what));
        let local_dirs = LocalDirs {
            cache: place("cache"),
            state: place("state"),
        };
        let (store, rng) = (bucket.clone(), Arc::new(SystemRng));
        let engine = Engine::over(store, StoreLocation::Memory, local_dirs, clock.clone(), rng);
        let engine = engine.rooted(like.engine.chunk_root.clone());
        let engine = if encrypted {
            engine.with_key(key(b'a'))
        } else {
            engine
        };
        let saver = Saver { engine, ..like };
        Self {
            world,
            bucket,
            clock,
            saver,
            other,
        }
    }

    /// Lets a minute go by with each third chunk that is stored, and sweeps the pool with each of so many.
    fn sweep_every(&self, chunks: usize) -> Arc<AtomicU64> {
        let (other, clock) = (self.other.clone(), self.clock.clone());
        let (stored, swept) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicU64::new(0)));
        let removed = swept.clone();
        self.bucket.rig(move |asked| {
            let (other, clock, removed) = (other.clone(), clock.clone(), removed.clone());
            let stored = stored.clone();
            Box::pin(async move {
                if asked.writes_chunk() {
                    clock.step(25);
                    if stored
                        .fetch_add(1, Ordering::Relaxed)
                        .is_multiple_of(chunks)
                    {
                        let gone = other.gc().await.map_or(0, |swept| swept.chunks_removed);
                        removed.fetch_add(gone.min(1), Ordering::Relaxed);
                    }
                }
                Turn::Work
            })
        });
        swept
    }

    /// Fails every request from one on; the first of them may have been applied.
    fn stop_at(&self, last: usize, silently: bool) {
        let (clock, count) = (self.clock.clone(), AtomicUsize::new(0));
        self.bucket.decide(move |asked| {
            if asked.writes_chunk() {
                clock.step(61);
            }
            match count.fetch_add(1, Ordering::Relaxed) {
                number if number < last => Turn::Work,
                number if number == last && silently => Turn::ApplySilently,
                _ => Turn::Fail,
            }
        });
    }

    fn fill(&self, files: u64) {
        for number in 0..files {
            self.saver.write(
                &format!("file-{number}"),
                &noise(1000 + number, (1 << 20) + 7),
            );
        }
    }

    /// The manifests of the subject that are no snapshots.
    async fn provisional(&self) -> Vec<SnapshotId> {
        let root = self.saver.engine.dirs().root();
        let mut found = Vec::new();
        for id in root.manifest_ids().await.unwrap() {
            if let Ok(Some((StoredManifest::Provisional(_), _))) = root.manifest(&id).await {
                found.push(id);
            }
        }
        found
    }

    /// A save that was killed when it had put two provisional manifests; and a snapshot before that.
    async fn killed(&self) -> Vec<SnapshotId> {
        self.saver.write("file-0", &noise(5, 1 << 20)).save().await;
        self.fill(8);
        let (clock, count) = (self.clock.clone(), AtomicUsize::new(0));
        self.bucket.decide(move |asked| {
            if asked.writes_chunk() {
                clock.step(61);
            }
            let is_manifest = asked.writes(".json") && !asked.writes("index.json");
            let count = count.fetch_add(usize::from(is_manifest), Ordering::Relaxed);
            if count >= 2 { Turn::Fail } else { Turn::Work }
        });
        let dirs = self.saver.engine.dirs();
        dirs.save(self.saver.command()).await.unwrap_err();
        self.bucket.mend();
        let left = self.provisional().await;
        assert_eq!(left.len(), 2);
        left
    }

    /// Everything is there that should be, and nothing else.
    async fn is_clean(&self) {
        self.saver.restores().await;
        self.other.restores().await;
        self.saver.is_sound().await;
        self.saver.gc().await.unwrap();
        assert_eq!(self.provisional().await, []);
        let dirs = self.saver.engine.dirs();
        let stats = dirs.stats().await.unwrap();
        assert_eq!(stats.chunks_unused, 0);
        self.saver.restores().await;
        self.saver.is_sound().await;
    }

    fn key_of(&self, id: &SnapshotId) -> Key {
        self.saver.engine.chunk_root.manifest(id)
    }
}

#[tokio::test]
async fn a_save_that_lasts_over_many_sweeps_is_published_and_comes_back() {
    for encrypted in [false, true] {
        let long = LongWorld::new(encrypted).await;
        long.fill(60);
        let swept = long.sweep_every(8);

        let saved = long.saver.engine.dirs().save(long.saver.command()).await;

        long.bucket.mend();
        let saved = saved.unwrap();
        assert!(saved.published);
        let swept = swept.load(Ordering::Relaxed);
        assert!(swept >= 3, "{swept} sweeps took something");
        assert_eq!(long.provisional().await, [], "the save removes its own");
        long.is_clean().await;
    }
}

#[tokio::test]
async fn what_is_proved_outlives_every_sweep_until_the_save_is_published() {
    for encrypted in [false, true] {
        let long = LongWorld::new(encrypted).await;
        long.fill(6);
        let clock = long.clock.clone();
        long.bucket.decide(move |asked| {
            clock.step(if asked.writes_chunk() { 61 } else { 0 });
            Turn::Work
        });
        let dirs = long.saver.engine.dirs();

        let gathered = dirs.save_gather(long.saver.command()).await.unwrap();
        // From now on each write comes after a sweep: of the manifest, of the index, and what is removed.
        let other = long.other.clone();
        long.bucket.rig(move |asked| {
            let other = other.clone();
            Box::pin(async move {
                if asked.writes(".json") {
                    other.gc().await.unwrap();
                }
                Turn::Work
            })
        });
        let ready = dirs.save_describe(gathered).await.unwrap();
        let _ = dirs.save_publish(ready).await.unwrap();

        long.bucket.mend();
        assert_eq!(long.provisional().await, [], "the save removes its own");
        long.is_clean().await;
    }
}

#[tokio::test]
async fn without_provisional_manifests_such_a_save_never_ends() {
    let long = LongWorld::new(false).await;
    long.fill(30);
    long.sweep_every(8);
    let engine = long.saver.engine.clone();
    let engine = engine.with_provisional_after(std::time::Duration::MAX);

    let saved = engine.dirs().save(long.saver.command()).await;

    assert!(matches!(saved, Err(Error::SaveGaveUp(_))), "{saved:?}");
}

#[tokio::test]
async fn a_sweep_beside_a_long_save_costs_what_was_stored_since_the_last_manifest() {
    let long = LongWorld::new(false).await;
    long.fill(30);
    let (other, clock) = (long.other.clone(), long.clock.clone());
    let stored = Arc::new(AtomicUsize::new(0));
    long.bucket.rig(move |asked| {
        let (other, clock, stored) = (other.clone(), clock.clone(), stored.clone());
        Box::pin(async move {
            if asked.writes_chunk() {
                clock.step(61);
                if stored.fetch_add(1, Ordering::Relaxed) == 25 {
                    other.gc().await.unwrap();
                }
            }
            Turn::Work
        })
    });

    let saved = long.saver.engine.dirs().save(long.saver.command()).await;

    long.bucket.mend();
    let saved = saved.unwrap();
    let tree = 30 * ((1 << 20) + 7);
    assert!(saved.bytes_stored < tree * 3 / 2, "{}", saved.bytes_stored);
    long.is_clean().await;
}

#[tokio::test]
async fn a_provisional_manifest_costs_two_requests_and_names_only_what_is_new() {
    let long = LongWorld::new(false).await;
    long.fill(12);
    let clock = long.clock.clone();
    long.bucket.decide(move |asked| {
        if asked.writes_chunk() {
            clock.step(7);
        }
        Turn::Work
    });
    long.bucket.requests();

    long.saver.save().await;

    let asked = long.bucket.requests();
    let count = |what: &str| asked.iter().filter(|one| one.starts_with(what)).count();
    let is_manifest = |one: &&String| one.starts_with("create ") && !one.contains("index");
    let provisional = asked.iter().filter(is_manifest).count() - 1;
    let removed = count("delete ");
    assert!(provisional >= 1, "{asked:?}");
    assert_eq!(removed, provisional);
    // When the save begins, when its names are judged, and once for each document; there is no list in.
    assert_eq!(count("get gc.json"), 2 + provisional);
}

#[tokio::test]
async fn a_save_that_stops_at_any_request_leaves_nothing_that_stays() {
    for encrypted in [false, true] {
        for last in 0.. {
            let long = LongWorld::new(encrypted).await;
            long.saver.write("file-0", &noise(5, 1 << 20)).save().await;
            long.fill(3);
            long.stop_at(last, last % 2 == 0);
            long.bucket.requests();

            let saved = long.saver.engine.dirs().save(long.saver.command()).await;

            let asked = long.bucket.requests().len();
            long.bucket.mend();
            long.other.gc().await.unwrap();
            if saved.is_err() {
                long.saver.save().await;
            }
            long.is_clean().await;
            assert!(last < 400, "it ends");
            if asked < last {
                break;
            }
        }
    }
}

#[tokio::test]
async fn what_a_killed_save_left_keeps_its_chunks_until_another_one_is_published() {
    let long = LongWorld::new(false).await;
    let left = long.killed().await;
    let chunks = async || {
        long.other
            .engine
            .dirs()
            .root()
            .chunks()
            .await
            .unwrap()
            .len()
    };
    long.other.gc().await.unwrap();
    let before = chunks().await;

    long.other.gc().await.unwrap();

    assert_eq!(chunks().await, before, "its save may still publish");
    assert_eq!(long.provisional().await.len(), left.len());
    let rows = long.saver.engine.dirs().snapshots(None).await.unwrap();
    assert_eq!(rows.len(), 1, "it is no snapshot");
    let stored = long.saver.save().await;
    // No epoch went by that took anything of it, so that its chunks are found by their names.
    assert!(stored < 8 * (1 << 20), "{stored}");
    long.is_clean().await;
}

#[tokio::test]
async fn repair_takes_no_provisional_manifest_for_a_snapshot() {
    for encrypted in [false, true] {
        let long = LongWorld::new(encrypted).await;
        long.killed().await;
        let key = long.saver.engine.chunk_root.index();
        long.world.bucket.delete(&key).await.unwrap();

        let dirs = long.saver.engine.dirs();
        let repaired = dirs.repair(&Label::nobody(), false).await.unwrap();

        assert_eq!(repaired.snapshots.len(), 1);
        assert!(repaired.left_out.is_empty(), "{:?}", repaired.left_out);
        long.saver.gc().await.unwrap();
        assert_eq!(long.provisional().await, [], "of another life by now");
        long.saver.save().await;
        long.is_clean().await;
    }
}

#[tokio::test]
async fn a_damaged_provisional_manifest_ends_gc_and_can_be_forgotten() {
    type Damage = fn(&[u8]) -> Vec<u8>;
    let flip: Damage = |bytes| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let at = text.find("\"names\"").unwrap() + 15;
        let mut flipped = bytes.to_vec();
        flipped[at] = if flipped[at] == b'A' { b'B' } else { b'A' };
        flipped
    };
    let cut: Damage = |bytes| bytes[..bytes.len() / 2].to_vec();
    let empty: Damage = |_| Vec::new();
    for damage in [flip, cut, empty] {
        let long = LongWorld::new(false).await;
        let left = long.killed().await;
        let key = long.key_of(&left[0]);
        let found = long.world.bucket.get(&key, 1 << 20).await.unwrap().unwrap();
        let damaged = Bytes::from(damage(&found.body));
        long.world.bucket.put(&key, damaged).await.unwrap();
        let chunks = async || long.other.engine.dirs().root().chunks().await.unwrap();
        let before = chunks().await;

        let refused = long.other.gc().await.unwrap_err();

        let said = error_chain(&refused);
        assert!(said.contains(left[0].as_str()), "{said}");
        assert_eq!(chunks().await, before);
        let dirs = long.saver.engine.dirs();
        let ids = &left[..1];
        dirs.forget_damaged(ids, &Label::nobody()).await.unwrap();
        long.saver.save().await;
        long.is_clean().await;
    }
}

#[tokio::test]
async fn a_provisional_manifest_that_vanishes_or_comes_back_hurts_nobody() {
    let long = LongWorld::new(false).await;
    let left = long.killed().await;
    let (first, second) = (long.key_of(&left[0]), long.key_of(&left[1]));
    let bucket = &long.world.bucket;
    let old = bucket.get(&first, 1 << 20).await.unwrap().unwrap().body;
    bucket.delete(&second).await.unwrap();

    long.other.gc().await.unwrap();
    long.saver.save().await;
    long.is_clean().await;
    // A request of the killed save lands late.
    bucket.put(&first, old).await.unwrap();

    long.saver.restores().await;
    long.is_clean().await;
}

#[tokio::test]
async fn a_save_that_cannot_put_a_provisional_manifest_goes_on() {
    let long = LongWorld::new(false).await;
    long.fill(6);
    let (clock, count) = (long.clock.clone(), AtomicUsize::new(0));
    long.bucket.decide(move |asked| {
        if asked.writes_chunk() {
            clock.step(61);
        }
        let is_manifest = asked.writes(".json") && !asked.writes("index.json");
        match count.fetch_add(usize::from(is_manifest), Ordering::Relaxed) {
            0 if is_manifest => Turn::Fail,
            _ => Turn::Work,
        }
    });

    long.saver.save().await;

    long.bucket.mend();
    long.is_clean().await;
}

#[tokio::test]
async fn a_save_that_is_cancelled_holds_nothing_back_from_gc() {
    let long = LongWorld::new(false).await;
    long.saver.write("kept", &noise(5, 1 << 20)).save().await;
    long.fill(12);
    let command = long.saver.command();
    let (clock, cancel) = (long.clock.clone(), command.cancel.clone());
    let (stored, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let (put, seen) = (AtomicUsize::new(0), most.clone());
    long.bucket.decide(move |asked| {
        if asked.writes_chunk() {
            clock.step(61);
            if stored.fetch_add(1, Ordering::Relaxed) == 8 {
                cancel.store(true, Ordering::Relaxed);
            }
        } else if asked.writes(".json") {
            seen.fetch_max(put.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        Turn::Work
    });

    let ended = long.saver.engine.dirs().save(command).await;

    long.bucket.mend();
    assert!(ended.is_err(), "{ended:?}");
    assert!(most.load(Ordering::Relaxed) >= 2, "it had put some");
    assert_eq!(long.provisional().await, [], "it takes its own away");
    let swept = long.saver.gc().await.unwrap();
    assert!(swept.chunks_removed >= 5, "{swept:?}");
}

#[tokio::test]
async fn what_a_long_save_borrows_is_held_when_its_donor_goes() {
    let long = LongWorld::new(false).await;
    let shop = long.world.host("one", "shop", None);
    shop.write("large", &noise(1, 3 << 20)).save().await;
    shop.end_epoch().await;
    long.saver.write("large", &noise(1, 3 << 20));
    long.fill(6);
    let clock = long.clock.clone();
    long.bucket.decide(move |asked| {
        clock.step(if asked.writes_chunk() { 61 } else { 0 });
        Turn::Work
    });
    let dirs = long.saver.engine.dirs();
    let gathered = dirs.save_gather(long.saver.command()).await.unwrap();
    assert!(!long.provisional().await.is_empty());

    fs::remove_file(shop.tree.join("large")).unwrap();
    let mut without = shop.command();
    without.allow_shrink = true;
    let _ = shop.engine.dirs().save(without).await.unwrap();
    shop.gc().await.unwrap();
    shop.gc().await.unwrap();
    let ready = dirs.save_describe(gathered).await.unwrap();
    let saved = dirs.save_publish(ready).await.unwrap();

    long.bucket.mend();
    let own = 6 * ((1 << 20) + 7);
    assert!(
        saved.bytes_stored < own + (1 << 20),
        "it was borrowed: {saved:?}"
    );
    long.is_clean().await;
}

#[tokio::test]
async fn an_index_that_leads_to_a_provisional_manifest_stops_gc() {
    let long = LongWorld::new(false).await;
    let left = long.killed().await;
    let root = long.saver.engine.dirs().root();
    let (_, digest) = root.manifest(&left[0]).await.unwrap().unwrap();
    let mut index = root.index().await.unwrap().unwrap().value;
    let mut row = index.snapshots[0].clone();
    (row.id, row.manifest_sha256) = (left[0].clone(), digest);
    index.snapshots.push(row);
    let body = stasis_model::format::document::render(&index);
    let key = long.saver.engine.chunk_root.index();
    long.world.bucket.put(&key, body.into()).await.unwrap();
    let before = root.chunks().await.unwrap();

    let refused = long.other.gc().await;

    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(root.chunks().await.unwrap(), before);
}
