//! What a tenant's quotas allow of its profiles.

use super::World;
use super::rigged::Turn;
use crate::error::ErrorKind;
use crate::kind::profile::ForkProfile;
use crate::kind::profile::capture::SaveOutcome;
use stasis_model::id::Label;
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
