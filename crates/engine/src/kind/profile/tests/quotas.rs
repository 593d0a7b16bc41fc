//! What a tenant's quotas allow of its profiles.

use super::World;
use super::rigged::Turn;
use crate::copy::CopySubject;
use crate::error::ErrorKind;
use crate::kind::profile::capture::SaveOutcome;
use crate::kind::profile::{DeleteSnapshot, ForkProfile};
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::Label;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

async fn allow(world: &World, setting: &str, value: u64) {
    let settings = [(format!("quotas.{setting}"), value.to_string())];
    let tenant = world.lineage.tenant.clone();
    let tenants = world.engine.tenants();
    let actor = Label::nobody();
    let set = tenants.set_policy(tenant, &settings, &actor);
    set.await.unwrap();
}

fn fork(world: &World) -> ForkProfile {
    ForkProfile {
        source: world.lineage.clone(),
        sha: None,
        target: "acme/bob".parse().unwrap(),
        holder: world.capture().holder,
    }
}

#[tokio::test]
async fn a_profile_gets_as_many_snapshots_as_are_allowed_and_what_it_has_is_saved_again() {
    let world = World::new();
    allow(&world, "max_snapshots_per_profile", 2).await;
    world.saved("first").await;
    let second = world.saved("second").await;

    let same = world.save().await.unwrap();
    world.change("third");
    let refused = world.save().await.unwrap_err();

    assert_eq!(same.outcome, SaveOutcome::Deduplicated);
    assert_eq!(refused.kind(), ErrorKind::Limit, "{refused}");
    let said = refused.to_string();
    assert!(said.contains("has 2 snapshots"), "{said}");
    assert_eq!(world.pointer().await.active_archive(), Some(second));
    assert_eq!(world.nothing_dangles().await, 2);
    // Another profile has its own.
    world.engine.profiles().fork(&fork(&world)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_stored_and_not_published_is_published_whatever_the_quota() {
    let world = World::new();
    world.saved("first").await;
    allow(&world, "max_snapshots_per_profile", 2).await;
    world.change("second");
    let is_out = AtomicBool::new(false);
    world.bucket.decide(move |asked| {
        if asked.publishes() {
            is_out.store(true, Ordering::SeqCst);
        }
        if is_out.load(Ordering::SeqCst) {
            Turn::Fail
        } else {
            Turn::Work
        }
    });
    world.save().await.unwrap_err();
    assert_eq!(world.nothing_dangles().await, 2);
    world.bucket.mend();
    world.later(Duration::from_hours(1));

    let again = world.save().await.unwrap();

    assert_eq!(again.outcome, SaveOutcome::Captured);
    assert_eq!(world.pointer().await.active_archive(), Some(again.sha256));
}

#[tokio::test]
async fn archives_count_for_the_bytes_of_a_tenant_and_are_refused_before_they_are_sent() {
    let world = World::new();
    world.saved("first").await;
    let stored = world.engine.stored_bytes(&world.lineage.tenant).await;
    allow(&world, "max_bytes", stored.unwrap() + 10).await;
    world.change("second");
    world.bucket.written();

    let refused = world.save().await.unwrap_err();
    let forked = world.engine.profiles().fork(&fork(&world)).await;

    assert_eq!(refused.kind(), ErrorKind::Limit, "{refused}");
    assert_eq!(forked.unwrap_err().kind(), ErrorKind::Limit);
    let sent = world.bucket.written();
    assert!(!sent.iter().any(|key| key.contains(".tar.zst")), "{sent:?}");
    assert_eq!(world.nothing_dangles().await, 1);
    allow(&world, "max_bytes", 0).await;
    let _ = world.save().await.unwrap();
    assert_eq!(world.nothing_dangles().await, 2);
}

async fn delete(world: &World, archive: ArchiveDigest) {
    let delete = DeleteSnapshot {
        lineage: world.lineage.clone(),
        sha: archive.to_string().parse().unwrap(),
        actor: Label::nobody(),
    };
    world.engine.profiles().delete(&delete).await.unwrap();
}

#[tokio::test]
async fn a_deleted_snapshot_counts_no_more_before_it_is_swept() {
    for setting in ["max_snapshots_per_profile", "max_snapshots"] {
        let world = World::new();
        allow(&world, setting, 2).await;
        let first = world.saved("first").await;
        world.saved("second").await;
        world.change("third");
        let full = world.save().await.unwrap_err();
        assert_eq!(full.kind(), ErrorKind::Limit, "{setting}: {full}");

        delete(&world, first).await;
        let saved = world.save().await.unwrap();

        assert_eq!(saved.outcome, SaveOutcome::Captured, "{setting}");
        // That one is there, and so is what is left of the deleted one.
        assert_eq!(world.nothing_dangles().await, 3, "{setting}");
        world.change("fourth");
        let full = world.save().await.unwrap_err();
        assert_eq!(full.kind(), ErrorKind::Limit, "{setting}: {full}");
    }
}

#[tokio::test]
async fn snapshots_of_all_profiles_count_for_their_tenant() {
    let world = World::new();
    allow(&world, "max_snapshots", 2).await;
    world.saved("first").await;
    world.engine.profiles().fork(&fork(&world)).await.unwrap();
    world.change("second");
    world.bucket.written();

    let saved = world.save().await.unwrap_err();
    let again = ForkProfile {
        target: "acme/carol".parse().unwrap(),
        ..fork(&world)
    };
    let forked = world.engine.profiles().fork(&again).await.unwrap_err();

    for refused in [saved, forked] {
        assert_eq!(refused.kind(), ErrorKind::Limit, "{refused}");
        let said = refused.to_string();
        assert!(said.contains("may have 2 snapshots and has 2"), "{said}");
    }
    let sent = world.bucket.written();
    assert!(!sent.iter().any(|key| key.contains(".tar.zst")), "{sent:?}");
    allow(&world, "max_snapshots", 3).await;
    let _ = world.save().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_archive_that_was_sent_before_a_crash_is_counted_once() {
    let world = World::new();
    world.saved("first").await;
    world.change("second");
    world.bucket.decide(|asked| {
        if asked.writes(".manifest.json") {
            Turn::Fail
        } else {
            Turn::Work
        }
    });
    world.save().await.unwrap_err();
    world.bucket.mend();
    world.later(Duration::from_hours(1));
    let stored = world.engine.stored_bytes(&world.lineage.tenant).await;
    allow(&world, "max_bytes", stored.unwrap()).await;

    let again = world.save().await.unwrap();

    assert_eq!(again.outcome, SaveOutcome::Captured);
    assert_eq!(world.nothing_dangles().await, 2);
    world.change("third");
    let full = world.save().await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Limit, "{full}");
}

#[tokio::test]
async fn a_name_that_is_taken_is_a_conflict() {
    let world = World::new();
    world.saved("first").await;
    world.engine.profiles().fork(&fork(&world)).await.unwrap();

    let taken = world.engine.profiles().fork(&fork(&world)).await;

    let taken = taken.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Conflict, "{taken}");
}

#[tokio::test]
async fn a_copy_is_held_to_the_quotas_of_the_store_that_it_goes_to() {
    let (world, there) = (World::new(), World::new());
    world.saved("first").await;
    world.saved("second").await;
    let copy = async || {
        let what = CopySubject::Profile(world.lineage.clone());
        let copied = world.engine.copy_to(&there.engine, what, Arc::default());
        copied.await.map(|mut all| all.subjects.remove(0))
    };
    let bytes = world.engine.stored_bytes(&world.lineage.tenant).await;
    let bytes = bytes.unwrap();

    for (setting, most) in [
        ("max_snapshots", 2),
        ("max_snapshots_per_profile", 2),
        ("max_bytes", bytes),
    ] {
        allow(&there, setting, most - 1).await;
        there.bucket.written();
        let refused = copy().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Limit, "{setting}: {refused}");
        let sent = there.bucket.written();
        assert!(!sent.iter().any(|key| key.contains(".tar.zst")), "{sent:?}");
        allow(&there, setting, most).await;
    }
    assert_eq!(copy().await.unwrap().snapshots, 2);

    // What is there is not asked about again.
    allow(&there, "max_snapshots", 1).await;
    assert_eq!(copy().await.unwrap().snapshots_there, 2);
}
