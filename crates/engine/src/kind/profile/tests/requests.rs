//! How many requests a command sends to the store.
//!
//! A request costs a round trip, and a store asks money for it. Parts of archives are not counted: their number follows
//! from the bytes. What a save sends is spelled out, so that whoever adds a request sees which one it is.

use super::World;
use super::rigged::Turn;
use crate::error::ErrorKind;
use crate::keys::TenantKey;
use crate::kind::profile::capture::SaveOutcome;
use crate::warning::Warning;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What was asked since the last time, without parts of archives.
fn counted(world: &World) -> Vec<String> {
    let mut all = world.bucket.requests();
    all.retain(|request| !request.contains(".tar.zst"));
    for request in &mut all {
        // The name of a manifest has a digest in it.
        if request.ends_with(".manifest.json") {
            let verb = request.split(' ').next().unwrap_or_default();
            *request = format!("{verb} manifest");
        }
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_changed_save_reads_every_document_once() {
    let world = World::new();
    world.saved("first").await;
    counted(&world);

    world.saved("second").await;

    assert_eq!(
        counted(&world),
        [
            "get policy.json",
            "get lock.json",
            "get latest.json",
            "swap lock.json",
            "swap latest.json",
            "get key.json",
            "create manifest",
            "list 131",
            "swap latest.json",
            "swap lock.json",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_save_on_a_host_without_a_cache_reads_the_manifest_as_well() {
    let world = World::new();
    world.saved("first").await;
    world.change("second");
    counted(&world);
    let mut engine = world.engine.clone();
    engine.local_dirs.cache = None;

    let saved = engine.profiles().save(world.saving()).await.unwrap();

    assert_eq!(saved.outcome, SaveOutcome::Captured);
    let all = counted(&world);
    assert_eq!(all.len(), 11, "{all:#?}");
    assert!(all.contains(&"get manifest".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_save_sends_six_requests() {
    let world = World::new();
    world.saved("first").await;
    counted(&world);

    let saved = world.save().await.unwrap();

    assert_eq!(saved.outcome, SaveOutcome::Deduplicated);
    assert_eq!(
        counted(&world),
        [
            "get policy.json",
            "get lock.json",
            "get latest.json",
            "swap lock.json",
            "swap latest.json",
            "swap lock.json",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_first_save_sends_twelve_requests_encrypted_or_not() {
    for key in [None, Some(TenantKey::parse(&[b'a'; 64]).unwrap())] {
        let world = World::new();
        world.change("first");
        let engine = match key {
            None => world.engine.clone(),
            Some(key) => world.engine.clone().with_key(key),
        };

        let _ = engine.profiles().save(world.saving()).await.unwrap();
        let first = counted(&world);
        let _ = engine.profiles().save(world.saving()).await.unwrap();
        let unchanged = counted(&world);

        assert!(first.len() <= 12, "{first:#?}");
        assert!(unchanged.len() <= 7, "the key is read too: {unchanged:#?}");
    }
}

/// However many profiles a tenant has, nobody lists the others to look at one.
#[tokio::test(start_paused = true)]
async fn a_profile_is_looked_for_below_its_own_name() {
    let world = World::new();
    world.saved("first").await;
    let profile = world.lineage.any_major();
    counted(&world);

    let found = world.engine.profiles().snapshots(&profile).await.unwrap();
    let lists = counted(&world).into_iter();
    let lists: Vec<String> = lists.filter(|one| one.starts_with("list ")).collect();

    assert_eq!(found.snapshots.len(), 1);
    let own = [format!("list {}", profile.profile), "list 131".to_owned()];
    assert!(lists.iter().all(|one| own.contains(one)), "{lists:?}");
}

#[tokio::test(start_paused = true)]
async fn a_load_reads_every_document_once() {
    let world = World::new();
    world.saved("first").await;
    counted(&world);

    let _ = world.load_by(&world.elsewhere_counted(), "there").await;

    let all = counted(&world);
    let mut once = all.clone();
    once.sort();
    once.dedup();
    assert_eq!(all.len(), once.len(), "{all:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_directory_is_not_called_saved_when_the_lease_was_taken_away() {
    let world = Arc::new(World::new());
    world.saved("first").await;
    let (operator, written) = (world.clone(), AtomicBool::new(false));
    world.bucket.rig(move |asked| {
        let operator = operator.clone();
        // The second write of the lock gives it back: nothing but that proves the lease.
        let is_release = asked.writes("lock.json") && written.swap(true, Ordering::SeqCst);
        Box::pin(async move {
            if is_release {
                operator.unlock().await;
            }
            Turn::Work
        })
    });

    let lost = world.save().await.unwrap_err();

    assert_eq!(lost.kind(), ErrorKind::Fenced, "{lost}");
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_directory_is_saved_though_the_lease_could_not_be_given_back() {
    let world = World::new();
    let first = world.saved("first").await;
    let written = AtomicBool::new(false);
    world.bucket.decide(move |asked| {
        let is_release = asked.writes("lock.json") && written.swap(true, Ordering::SeqCst);
        if is_release { Turn::Fail } else { Turn::Work }
    });

    let saved = world.save().await.unwrap();

    assert_eq!(saved.outcome, SaveOutcome::Deduplicated);
    assert_eq!(saved.sha256, first);
    let last = saved.warnings.last();
    assert!(matches!(last, Some(Warning::LeaseNotReleased)), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn plain_bytes_are_not_added_to_a_lineage_that_has_a_key() {
    let world = World::new();
    let first = world.saved("first").await;
    let key = stasis_store::layout::data_key(&world.lineage.clone().into());
    let wrapped = {
        let other = World::new();
        other.change("x");
        let engine = other.engine.clone();
        let engine = engine.with_key(TenantKey::parse(&[b'a'; 64]).unwrap());
        let _ = engine.profiles().save(other.saving()).await.unwrap();
        let bucket: &dyn stasis_store::bucket::Bucket = &*other.bucket.inner;
        bucket.get(&key, 1 << 20).await.unwrap().unwrap().body
    };
    let bucket: &dyn stasis_store::bucket::Bucket = &*world.bucket.inner;
    bucket.put(&key, wrapped).await.unwrap();
    world.change("second");

    let refused = world.save().await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert_eq!(world.pointer().await.active_archive(), Some(first));
    assert_eq!(world.nothing_dangles().await, 1, "nothing was stored");
}
