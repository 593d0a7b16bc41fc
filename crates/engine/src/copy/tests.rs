//! Copies that stop anywhere, targets that went their own way, and pools that were swept meanwhile.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make the directories that they save"
)]

use super::journey::{copy_of, is_copy_of};
use super::*;
use crate::catalog::SnapshotSelector;
use crate::restore::RepoRestore;
use crate::rigged::pool::{Saver, SteppedClock, World, all, key, noise};
use crate::rigged::{Rigged, Turn};
use stasis_model::format::manifest::{SaveReason, SnapshotIndex};
use stasis_model::id::{Label, SnapshotId};
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_store::bucket::Bucket;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A subject here, and its place in another store.
struct Pair {
    here: World,
    there: World,
    shop: Saver,
    copy: Saver,
}

impl Pair {
    async fn new() -> Self {
        let (here, there) = (World::new(), World::new());
        let shop = here.subject("one", "shop").await;
        let copy = there.subject("two", "shop").await;
        Self {
            here,
            there,
            shop,
            copy,
        }
    }

    async fn copy(&self) -> Result<CopiedSubject, Error> {
        copy(&self.shop, &self.copy).await
    }
}

async fn copy(from: &Saver, to: &Saver) -> Result<CopiedSubject, Error> {
    let what = CopySubject::Directory {
        tenant: "acme".parse().unwrap(),
        id: to.name.as_str().parse().unwrap(),
    };
    let copied = from.engine.copy_to(&to.engine, what, Arc::default()).await;
    copied.map(|mut copied| copied.subjects.remove(0))
}

async fn index(saver: &Saver) -> SnapshotIndex {
    let dirs = saver.engine.dirs();
    dirs.index(&dirs.root()).await.unwrap()
}

/// Every snapshot that the copy has, restored, is the tree that its original is.
async fn is_equal(from: &Saver, to: &Saver) {
    let scratch = tempfile::tempdir().unwrap();
    let restore = async |saver: &Saver, id: &SnapshotId, name: &str| {
        let target = scratch.path().join(name);
        let id: SnapshotRef = id.as_str().parse().unwrap();
        let restore = RepoRestore::new(SnapshotSelector::new(id), &target);
        let _ = saver.engine.dirs().restore(restore).await.unwrap();
        let tree = all(&target);
        fs::remove_dir_all(&target).unwrap();
        tree
    };
    for row in &index(to).await.snapshots {
        let original = &row.copied_from.as_ref().unwrap().snapshot_id;
        assert_ne!(row.id, *original);
        let wanted = restore(from, original, "original").await;
        assert_eq!(restore(to, &row.id, "copy").await, wanted);
    }
    to.is_sound().await;
}

#[tokio::test]
async fn every_snapshot_is_copied_with_what_is_known_of_it_and_a_second_copy_takes_what_is_new() {
    let pair = Pair::new().await;
    let shop = &pair.shop;
    shop.write("large", &noise(1, 3 << 20)).save().await;
    let mut autosave = shop.write("note", b"two").command();
    autosave.reason = SaveReason::Autosave;
    let automatic = shop.engine.dirs().save(autosave).await.unwrap();
    for number in 0..50 {
        shop.write(&format!("small-{number}"), &noise(100 + number, 100));
    }
    shop.save().await;
    let before = index(shop).await;
    let first = before.snapshots[0].id.clone();
    let root = shop.engine.dirs().root();
    let op_id = shop.engine.rng.op_id();
    let pinned = root.change(op_id, |index| index.pin(&first, true, op_id));
    pinned.await.unwrap();

    let done = pair.copy().await.unwrap();

    assert_eq!((done.snapshots, done.snapshots_there), (3, 0));
    is_equal(shop, &pair.copy).await;
    let there = index(&pair.copy).await;
    assert!(there.snapshots[0].pinned && !there.snapshots[1].pinned);
    assert_eq!(there.snapshots[1].reason, SaveReason::Autosave);
    let times = |index: &SnapshotIndex| {
        index
            .snapshots
            .iter()
            .map(|one| one.at_ms)
            .collect::<Vec<_>>()
    };
    assert_eq!(times(&there), times(&before));
    assert_eq!(
        there.active,
        copy_of(&there, before.active.as_ref().unwrap())
    );
    let copies = pair.copy.engine.dirs();
    let root = copies.root();
    let last = copies.open_snapshot(&root, &there, &there.snapshots[2].id);
    let last = last.await.unwrap().manifest;
    // The automatic one in between is nobody's parent.
    assert_eq!(last.parent_snapshot_id, Some(there.snapshots[0].id.clone()));
    assert!(copy_of(&there, &automatic.snapshot_id).is_some());

    let again = pair.copy().await.unwrap();
    assert_eq!(
        (again.snapshots, again.snapshots_there, again.bytes),
        (0, 3, 0)
    );
    shop.write("note", b"four").save().await;
    let more = pair.copy().await.unwrap();
    assert_eq!((more.snapshots, more.snapshots_there), (1, 3));
    assert!(more.bytes < 16 << 10, "{}", more.bytes);
    is_equal(shop, &pair.copy).await;
}

#[tokio::test]
async fn what_is_plain_becomes_encrypted_on_the_way_and_the_other_way_round() {
    let keys = [None, Some(b'a'), Some(b'b')];
    for (from, to) in keys.into_iter().flat_map(|from| keys.map(|to| (from, to))) {
        let (here, there) = (World::new(), World::new());
        let shop = here.host("one", "shop", from.map(key));
        let target = there.host("two", "shop", to.map(key));
        shop.engine.dirs().ensure_pool().await.unwrap();
        for number in 0..40 {
            shop.write(&format!("small-{number}"), &noise(number, 300));
        }
        shop.write("large", &noise(77, 2 << 20)).save().await;
        shop.write("note", b"two").save().await;

        let copied = copy(&shop, &target).await.unwrap();

        assert_eq!(copied.snapshots, 2, "{from:?} to {to:?}");
        is_equal(&shop, &target).await;
        shop.write("note", b"three").save().await;
        let more = copy(&shop, &target).await.unwrap();
        assert!(more.bytes < 32 << 10, "{from:?} to {to:?}: {}", more.bytes);
        is_equal(&shop, &target).await;
        let repo = target.engine.dirs().root().repo().await.unwrap().unwrap();
        assert_eq!(repo.is_encrypted(), to.is_some());
    }
}

#[tokio::test]
async fn nothing_plain_is_copied_to_where_the_policy_wants_encryption() {
    let pair = Pair::new().await;
    pair.shop.write("a", b"one").save().await;
    let tenant = "acme".parse().unwrap();
    let settings = [("require_encryption".to_owned(), "true".to_owned())];
    let op_id = pair.copy.engine.rng.op_id();
    let set = policies::set(&*pair.there.bucket, &tenant, &settings, op_id);
    set.await.unwrap();

    let refused = pair.copy().await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Limit, "{refused}");
    assert!(index(&pair.copy).await.snapshots.is_empty());
}

#[tokio::test]
async fn a_disk_that_is_full_ends_a_copy_and_nothing_is_passed_over() {
    let (here, there) = (World::new(), World::new());
    let bucket = Arc::new(Rigged::default());
    let shop = here.subject("one", "shop").await;
    let target = there.subject_in(bucket.clone(), "two", "shop").await;
    for number in 0..3 {
        shop.write("a", &noise(number, 1000)).save().await;
    }
    let second = index(&shop).await.snapshots[1].clone();
    let count = Arc::new(AtomicUsize::new(0));
    let manifests = count.clone();
    bucket.decide(move |asked| {
        let is_manifest = asked.writes(".json") && !asked.writes("index.json");
        let is_second = is_manifest && manifests.fetch_add(1, Ordering::Relaxed) == 1;
        if is_second { Turn::Fail } else { Turn::Work }
    });

    let refused = copy(&shop, &target).await;

    bucket.mend();
    assert!(refused.is_err());
    assert_eq!(index(&target).await.snapshots.len(), 1);
    copy(&shop, &target).await.unwrap();
    let there = index(&target).await;
    assert_eq!(there.snapshots.len(), 3);
    assert!(is_copy_of(&there.snapshots[1], &second));
}

#[tokio::test]
async fn latest_means_in_the_copy_what_it_means_in_the_original() {
    let pair = Pair::new().await;
    pair.shop.write("a", b"one").save().await;
    pair.shop.write("a", b"two").save().await;
    let adopt = async |saver: &Saver, at: usize| {
        let (dirs, now) = (saver.engine.dirs(), index(saver).await);
        let (chosen, seen) = (&now.snapshots[at].id, now.active.as_ref());
        dirs.adopt(&dirs.root(), Some(chosen), seen).await.unwrap();
    };
    let active = async |at: usize| {
        let now = index(&pair.copy).await;
        assert_eq!(now.active, Some(now.snapshots[at].id.clone()));
    };
    adopt(&pair.shop, 0).await;

    pair.copy().await.unwrap();

    active(0).await;
    // What is chosen in the target afterwards is not taken back by a copy of nothing.
    adopt(&pair.copy, 1).await;
    pair.copy().await.unwrap();
    active(1).await;
    // What somebody saves goes on from what `latest` means.
    pair.shop.write("a", b"three").save().await;
    adopt(&pair.shop, 1).await;
    pair.copy().await.unwrap();
    active(1).await;
    assert_eq!(index(&pair.copy).await.snapshots.len(), 3);
}

#[tokio::test]
async fn sweeps_of_either_pool_leave_what_the_other_needs_and_later_copies_still_share() {
    let pair = Pair::new().await;
    pair.shop.write("large", &noise(1, 3 << 20)).save().await;
    pair.shop.end_epoch().await;
    pair.copy().await.unwrap();
    let other = pair.there.subject("two", "other").await;
    other.end_epoch().await;

    pair.shop.write("note", b"later").save().await;
    let copied = pair.copy().await.unwrap();

    assert!(copied.bytes < 16 << 10, "{}", copied.bytes);
    pair.shop.gc().await.unwrap();
    pair.copy.gc().await.unwrap();
    pair.shop.restores().await;
    is_equal(&pair.shop, &pair.copy).await;
    // What both forgot, but for the newest, is not copied again.
    let again = pair.copy().await.unwrap();
    assert_eq!(again.snapshots, 0);
}

#[tokio::test]
async fn a_second_directory_of_the_source_shares_what_the_first_one_brought() {
    let pair = Pair::new().await;
    pair.shop.write("large", &noise(1, 3 << 20)).save().await;
    pair.copy().await.unwrap();
    let other = pair.there.subject("two", "other").await;
    other.end_epoch().await;
    let blog = pair.here.subject("one", "blog").await;
    blog.write("large", &noise(1, 3 << 20)).save().await;

    let copied = copy(&blog, &pair.there.subject("two", "blog").await)
        .await
        .unwrap();

    assert!(copied.bytes < 16 << 10, "{}", copied.bytes);
}

#[tokio::test]
async fn a_target_with_snapshots_of_its_own_is_left_alone() {
    let pair = Pair::new().await;
    pair.shop.write("a", b"one").save().await;
    pair.copy().await.unwrap();
    pair.copy.write("a", b"own").save().await;
    pair.shop.write("a", b"two").save().await;
    let before = index(&pair.copy).await;

    let refused = pair.copy().await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Diverged, "{refused}");
    assert_eq!(index(&pair.copy).await, before);
}

#[tokio::test]
async fn another_directory_of_the_same_name_is_not_mixed_in() {
    let pair = Pair::new().await;
    pair.shop.write("a", b"one").save().await;
    pair.copy().await.unwrap();
    let elsewhere = World::new();
    let other = elsewhere.subject("three", "shop").await;
    other.write("a", b"other").save().await;

    let refused = copy(&other, &pair.copy).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Diverged, "{refused}");
    assert_eq!(index(&pair.copy).await.snapshots.len(), 1);
}

#[tokio::test]
async fn a_source_that_forgot_what_was_copied_goes_on_and_nothing_comes_back() {
    let pair = Pair::new().await;
    pair.shop.write("a", b"one").save().await;
    pair.copy().await.unwrap();
    pair.shop.write("a", b"two").save().await;
    pair.shop.gc().await.unwrap();

    let copied = pair.copy().await.unwrap();

    assert_eq!(copied.snapshots, 1);
    assert_eq!(index(&pair.copy).await.snapshots.len(), 2);
    pair.copy.is_sound().await;
}

#[tokio::test]
async fn damage_in_the_source_is_named_and_never_copied() {
    let pair = Pair::new().await;
    pair.shop.write("a", &noise(1, 200_000)).save().await;
    let root = pair.shop.engine.dirs().root();
    let old: Vec<_> = root.chunks().await.unwrap();
    pair.shop.write("b", &noise(2, 200_000)).save().await;
    let new = root.chunks().await.unwrap();
    let (name, _) = new.iter().find(|one| !old.contains(one)).unwrap();
    let at = root.layout().chunk(name);
    let stored = root.chunk(name).await.unwrap().unwrap();
    let mut bytes = stored.to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    pair.here.bucket.put(&at, bytes.into()).await.unwrap();

    fs::remove_file(pair.shop.tree.join("b")).unwrap();
    pair.shop.write("c", b"later").save().await;

    let refused = pair.copy().await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    let damaged = &index(&pair.shop).await.snapshots[1].id;
    let said = error_chain(&refused);
    assert!(said.contains(damaged.as_str()), "{said}");
    // What comes after it waits for it.
    let there = index(&pair.copy).await;
    assert_eq!(there.snapshots.len(), 1);
    is_equal(&pair.shop, &pair.copy).await;
    pair.here.bucket.put(&at, stored).await.unwrap();
    let again = pair.copy().await.unwrap();
    assert_eq!((again.snapshots, again.snapshots_left), (2, 0));
    is_equal(&pair.shop, &pair.copy).await;
}

#[tokio::test]
async fn damage_in_the_target_does_not_keep_a_copy_from_going_on() {
    let pair = Pair::new().await;
    for number in 0..40 {
        pair.shop
            .write(&format!("small-{number}"), &noise(number, 300));
    }
    pair.shop.save().await;
    pair.copy().await.unwrap();
    let root = pair.copy.engine.dirs().root();
    for (name, _) in root.chunks().await.unwrap() {
        let key = root.layout().chunk(&name);
        pair.there.bucket.put(&key, "damaged".into()).await.unwrap();
    }
    pair.shop.write("more", b"later").save().await;

    let copied = pair.copy().await.unwrap();

    assert_eq!(copied.snapshots, 1);
    let target = pair.copy.tree.with_extension("restored");
    let restore = RepoRestore::new(SnapshotSelector::new("latest"), &target);
    let _ = pair.copy.engine.dirs().restore(restore).await.unwrap();
    assert_eq!(all(&target), all(&pair.shop.tree));
}

#[tokio::test]
async fn a_subject_that_was_deleted_in_the_target_does_not_come_back() {
    let pair = Pair::new().await;
    pair.shop.write("a", b"one").save().await;
    pair.copy().await.unwrap();
    let root = pair.copy.engine.dirs().root();
    let (op_id, now) = (
        pair.copy.engine.rng.op_id(),
        pair.copy.engine.lineages.now(),
    );
    let deleted = root.change(op_id, |index| index.delete(now, op_id)).await;
    deleted.unwrap();

    let refused = pair.copy().await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Diverged, "{refused}");
}

#[tokio::test]
async fn what_was_never_saved_is_not_copied_and_makes_no_pool() {
    let (here, bucket) = (World::new(), Arc::new(Rigged::default()));
    let shop = here.subject("one", "shop").await;
    let there = World::new().subject_in(bucket.clone(), "two", "shop").await;
    let _ = bucket.requests();

    let refused = copy(&shop, &there).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
    assert_eq!(bucket.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn two_copies_at_once_make_each_snapshot_once() {
    let pair = Pair::new().await;
    for number in 0..4 {
        pair.shop.write("a", &noise(number, 1000)).save().await;
    }

    let (one, two) = tokio::join!(pair.copy(), pair.copy());

    // Whoever was overtaken says so, and goes on when it is run again.
    let refused = |done: &Result<CopiedSubject, Error>| {
        done.as_ref()
            .err()
            .map(|error| assert_eq!(error.kind(), ErrorKind::Diverged))
    };
    let _ = (refused(&one), refused(&two));
    pair.copy().await.unwrap();
    let there = index(&pair.copy).await;
    assert_eq!(there.snapshots.len(), 4);
    is_equal(&pair.shop, &pair.copy).await;
}

#[tokio::test]
async fn a_sweep_of_the_target_while_a_copy_is_under_way_takes_nothing_that_it_needs() {
    let (here, there) = (World::new(), World::new());
    let bucket = Arc::new(Rigged::default());
    let shop = here.subject("one", "shop").await;
    let target = there.subject_in(bucket.clone(), "two", "shop").await;
    shop.write("a", &noise(1, 300_000)).save().await;
    copy(&shop, &target).await.unwrap();
    shop.write("b", &noise(2, 300_000)).save().await;
    let other = there.subject_in(bucket.inner.clone(), "two", "other").await;
    other.write("garbage", &noise(3, 300_000)).save().await;
    other.write("garbage", &noise(4, 300_000)).save().await;
    let is_done = Arc::new(AtomicUsize::new(0));
    let other = Arc::new(other);
    bucket.rig(move |asked| {
        let (other, is_done) = (other.clone(), is_done.clone());
        Box::pin(async move {
            let is_manifest = asked.writes(".json") && !asked.writes("index.json");
            if is_manifest && is_done.fetch_add(1, Ordering::Relaxed) == 0 {
                // Its chunks are stored, and no manifest names them yet.
                let swept = other.gc().await.unwrap();
                assert!(swept.chunks_removed > 0, "{swept:?}");
            }
            Turn::Work
        })
    });

    let copied = copy(&shop, &target).await.unwrap();

    bucket.mend();
    assert_eq!(copied.snapshots, 1);
    is_equal(&shop, &target).await;
}

/// Copies a large snapshot into a pool that is swept with each twentieth chunk, while time goes by.
async fn copied_over_sweeps(
    provisional_after: Duration,
    key_there: Option<u8>,
) -> (Pair, Result<CopiedSubject, Error>) {
    let (here, bucket) = (World::new(), Arc::new(Rigged::default()));
    let there = World {
        home: tempfile::tempdir().unwrap(),
        bucket: bucket.inner.clone(),
    };
    let shop = here.subject("one", "shop").await;
    for number in 0..40 {
        shop.write(&format!("{number}"), &noise(500 + number, (1 << 20) + 9));
    }
    shop.save().await;
    let other = Arc::new(there.host("two", "other", key_there.map(key)));
    let dirs = other.engine.dirs();
    dirs.make_pool(&dirs.root()).await.map(drop).unwrap();
    other.write("own", &noise(3, 300_000)).save().await;
    let clock = Arc::new(SteppedClock::default());
    let mut target = there.host("two", "shop", key_there.map(key));
    let (location, dirs) = (StoreLocation::Memory, target.engine.local_dirs.clone());
    let (store, rng) = (bucket.clone(), target.engine.rng.clone());
    let engine = Engine::over(store, location, dirs, clock.clone(), rng);
    let engine = engine.with_provisional_after(provisional_after);
    target.engine = match key_there {
        Some(digit) => engine.with_key(key(digit)),
        None => engine,
    };
    let stored = Arc::new(AtomicUsize::new(1));
    bucket.rig(move |asked| {
        let (other, clock, stored) = (other.clone(), clock.clone(), stored.clone());
        Box::pin(async move {
            if asked.writes_chunk() {
                clock.step(25);
                if stored.fetch_add(1, Ordering::Relaxed).is_multiple_of(20) {
                    let swept = other.gc().await;
                    assert!(swept.is_ok(), "{swept:?}");
                }
            }
            Turn::Work
        })
    });
    let copied = copy(&shop, &target).await;
    bucket.mend();
    target.engine = target.engine.rooted(ChunkRoot::project(
        &"acme".parse().unwrap(),
        &"shop".parse().unwrap(),
    ));
    let copy = target;
    let pair = Pair {
        here,
        there,
        shop,
        copy,
    };
    (pair, copied)
}

#[tokio::test]
async fn a_copy_that_lasts_over_many_sweeps_of_the_target_is_published() {
    for key_there in [None, Some(b'b')] {
        let (pair, copied) = copied_over_sweeps(Duration::from_mins(1), key_there).await;

        assert_eq!(copied.unwrap().snapshots, 1);
        is_equal(&pair.shop, &pair.copy).await;
        let root = pair.copy.engine.dirs().root();
        let left = root.manifest_ids().await.unwrap();
        assert_eq!(left.len(), 1, "the copy removes its provisional ones");
        pair.copy.gc().await.unwrap();
        is_equal(&pair.shop, &pair.copy).await;
    }
}

#[tokio::test]
async fn without_provisional_manifests_such_a_copy_gives_up() {
    let (_, copied) = copied_over_sweeps(Duration::MAX, None).await;

    assert!(matches!(copied, Err(Error::SaveGaveUp(_))), "{copied:?}");
}

#[tokio::test]
async fn a_snapshot_that_is_forgotten_while_it_is_copied_is_passed_over() {
    let bucket = Arc::new(Rigged::default());
    let (here, there) = (World::new(), World::new());
    let shop = here.subject_in(bucket.clone(), "one", "shop").await;
    let copy_of_it = there.subject("two", "shop").await;
    shop.write("a", &noise(1, 200_000)).save().await;
    shop.write("a", &noise(2, 200_000)).save().await;
    let first = index(&shop).await.snapshots[0].id.clone();
    let engine = shop.engine.clone();
    let is_done = Arc::new(AtomicUsize::new(0));
    bucket.rig(move |asked| {
        let (engine, first, is_done) = (engine.clone(), first.clone(), is_done.clone());
        Box::pin(async move {
            let is_manifest = asked.reads(&format!("{first}.json"));
            if is_manifest && is_done.fetch_add(1, Ordering::Relaxed) == 0 {
                let root = engine.dirs().root();
                let op_id = engine.rng.op_id();
                let now = engine.lineages.now();
                let ids = [first.clone()];
                let gone = root.change(op_id, |index| index.forget(&ids, now, op_id));
                gone.await.unwrap();
                root.remove_manifest(&first).await.unwrap();
            }
            Turn::Work
        })
    });

    let copied = copy(&shop, &copy_of_it).await.unwrap();

    assert_eq!(copied.snapshots, 1);
    copy_of_it.is_sound().await;
}

#[tokio::test]
async fn stopped_at_any_request_it_leads_only_to_what_is_whole_and_goes_on() {
    let here = World::new();
    let shop = here.subject("one", "shop").await;
    shop.write("a", &noise(1, 200_000)).save().await;
    for number in 0..40 {
        shop.write(&format!("small-{number}"), &noise(100 + number, 100));
    }
    shop.save().await;
    let mut stopped = 0;
    for silently in [false, true] {
        for last in 0.. {
            let there = World::new();
            let bucket = Arc::new(Rigged::default());
            let target = there.subject_in(bucket.clone(), "two", "shop").await;
            let asked = Arc::new(AtomicUsize::new(0));
            let count = asked.clone();
            bucket.decide(move |_| match count.fetch_add(1, Ordering::Relaxed) {
                number if number < last => Turn::Work,
                number if number == last && silently => Turn::ApplySilently,
                _ => Turn::Fail,
            });

            let copied = copy(&shop, &target).await;

            bucket.mend();
            if copied.is_ok() {
                assert!(asked.load(Ordering::Relaxed) <= last + 1);
                break;
            }
            stopped += 1;
            is_equal(&shop, &target).await;
            copy(&shop, &target).await.unwrap();
            is_equal(&shop, &target).await;
            assert_eq!(index(&target).await.snapshots.len(), 2);
        }
    }
    assert!(stopped > 20, "{stopped}");
}

#[tokio::test]
async fn a_copy_stops_where_the_other_store_may_have_no_more_and_goes_on_when_it_may() {
    let pair = Pair::new().await;
    pair.shop.write("note", b"one").save().await;
    pair.shop.write("note", b"two").save().await;
    let allow = async |most: u64| {
        let settings = [("quotas.max_snapshots".to_owned(), most.to_string())];
        let (tenants, nobody) = (pair.copy.engine.tenants(), Label::nobody());
        let set = tenants.set_policy("acme".parse().unwrap(), &settings, &nobody);
        set.await.unwrap();
    };
    allow(1).await;

    let refused = pair.copy().await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Limit, "{refused:?}");
    assert_eq!(index(&pair.copy).await.snapshots.len(), 1);
    allow(2).await;
    assert_eq!(pair.copy().await.unwrap().snapshots, 1);
    is_equal(&pair.shop, &pair.copy).await;
}
