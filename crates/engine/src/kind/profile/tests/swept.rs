//! A snapshot is deleted and swept while somebody loads it.

use super::World;
use super::rigged::{Asked, Turn};
use crate::kind::profile::load::{FallbackReason, LoadOutcome};
use crate::kind::profile::sweep::ProfileGc;
use crate::kind::profile::{DeleteSnapshot, ShaPrefix};
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::Label;
use stasis_model::policy::retention::OnDoubt;
use stasis_store::bucket::Bucket;
use stasis_store::layout::Key;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Another host saves, deletes the one before and sweeps.
async fn supersede(world: &World, old: ArchiveDigest) {
    world.change("new");
    let engine = world.elsewhere();
    let saved = engine.profiles().save(world.saving()).await.unwrap();
    assert_eq!(saved.predecessor_sha256, Some(old));
    let sha: ShaPrefix = old.to_string().parse().unwrap();
    let delete = DeleteSnapshot {
        lineage: world.lineage.clone(),
        sha,
        actor: Label::nobody(),
    };
    engine.profiles().delete(&delete).await.unwrap();
    let gc = ProfileGc {
        subject: None,
        tenant: None,
        keep_newest: None,
        keep_periods: std::collections::BTreeMap::new(),
        keep_rollback_days: None,
        on_doubt: OnDoubt::RefuseAges,
        dry_run: false,
    };
    let swept = engine.profiles().gc(&gc).await.unwrap();
    assert_eq!(swept.objects_removed, 2, "{swept:?}");
}

/// The host's cache is lost, so that everything has to be fetched.
fn forget(world: &World) {
    std::fs::remove_dir_all(world.home.path().join("cache")).unwrap();
}

/// Loads while the snapshot is swept just before the first request of which `is_it` is true.
async fn load_swept_before(is_it: fn(&Asked) -> bool) {
    let world = Arc::new(World::new());
    let old = world.saved("old").await;
    forget(&world);
    let (other, once) = (world.clone(), AtomicBool::new(true));
    world.bucket.rig(move |asked| {
        let other = other.clone();
        let now = is_it(&asked) && once.swap(false, Ordering::SeqCst);
        Box::pin(async move {
            if now {
                supersede(&other, old).await;
            }
            Turn::Work
        })
    });

    let loaded = world.load_by(&world.engine, "there").await.unwrap();

    assert_eq!(loaded.outcome, LoadOutcome::Success, "{loaded:?}");
    assert_eq!(world.state_in("there"), "new");
    assert_eq!(loaded.sha256, world.pointer().await.active_archive());
    assert_ne!(loaded.sha256, Some(old));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_whose_manifest_is_swept_before_it_is_read_gives_way_to_its_successor() {
    load_swept_before(|asked| asked.reads(".manifest.json")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_whose_archive_is_swept_before_it_is_fetched_gives_way_to_its_successor() {
    load_swept_before(|asked| asked.reads(".tar.zst")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_is_gone_while_its_pointer_stays_is_a_fresh_fallback_that_says_so() {
    let world = World::new();
    world.saved("old").await;
    forget(&world);
    let active = world.pointer().await.active.unwrap();
    let archive = Key::from_listing(&active.archive_key).unwrap();
    let inner = world.bucket.inner.clone();
    world.bucket.rig(move |asked| {
        let (inner, archive) = (inner.clone(), archive.clone());
        Box::pin(async move {
            if asked.reads(".tar.zst") {
                inner.delete(&archive).await.unwrap();
            }
            Turn::Work
        })
    });

    let loaded = world.load_by(&world.engine, "there").await.unwrap();

    assert_eq!(loaded.outcome, LoadOutcome::FreshFallback);
    assert_eq!(loaded.reason, Some(FallbackReason::NoArchive), "{loaded:?}");
    assert_eq!(loaded.sha256, None, "what comes of it has no base");
}
