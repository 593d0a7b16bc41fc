//! The wrapped data key of a lineage is gone, or nobody knows whether it was stored.

use super::World;
use super::rigged::Turn;
use crate::error::{Error, ErrorKind};
use crate::keys::TenantKey;
use crate::kind::profile::capture::{ProfileSaved, SaveOutcome};
use crate::open::Engine;
use stasis_store::bucket::Bucket;
use stasis_store::layout;
use std::sync::atomic::{AtomicBool, Ordering};

fn tenant_key() -> TenantKey {
    TenantKey::parse(&[b'a'; 64]).unwrap()
}

async fn save(world: &World, text: &str) -> Result<ProfileSaved, Error> {
    world.change(text);
    let engine = world.engine.clone().with_key(tenant_key());
    engine.profiles().save(world.saving()).await
}

/// Another host of the same tenant.
fn other_host(world: &World) -> Engine {
    world.elsewhere().with_key(tenant_key())
}

async fn has_key(world: &World) -> bool {
    let key = layout::data_key(&world.lineage.clone().into());
    world.bucket.inner.exists(&key).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lost_data_key_is_damage_that_no_save_covers_up_with_a_new_one() {
    let world = World::new();
    let first = save(&world, "first").await.unwrap();
    let key = layout::data_key(&world.lineage.clone().into());
    let whole = world.bucket.inner.get(&key, 1 << 20).await.unwrap();
    world.bucket.inner.delete(&key).await.unwrap();

    let refused = world.load_by(&other_host(&world), "there").await;
    let unsaved = save(&world, "second").await.unwrap_err();
    let plain = world.save().await.unwrap_err();

    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(!world.home.path().join("there").exists());
    assert_eq!(unsaved.kind(), ErrorKind::Corrupt, "{unsaved}");
    assert_eq!(plain.kind(), ErrorKind::Corrupt, "{plain}");
    assert!(!has_key(&world).await, "nobody made another one");
    let active = world.pointer().await.active_archive();
    assert_eq!(active, Some(first.sha256));
    // What was put back opens everything again.
    world
        .bucket
        .inner
        .put(&key, whole.unwrap().body)
        .await
        .unwrap();
    assert_eq!(world.restored(&other_host(&world)).await, "first");
    let second = save(&world, "second").await.unwrap();
    assert_eq!(second.predecessor_sha256, Some(first.sha256));
    assert_eq!(world.nothing_dangles().await, 2);
}

#[tokio::test(start_paused = true)]
async fn while_the_data_key_cannot_be_read_nothing_is_loaded_and_nothing_is_fresh() {
    let world = World::new();
    let _first = save(&world, "first").await.unwrap();
    world.bucket.decide(|asked| {
        if asked.reads("key.json") {
            Turn::Fail
        } else {
            Turn::Work
        }
    });
    let engine = world.engine.clone().with_key(tenant_key());

    let refused = world.load_by(&engine, "there").await.unwrap_err();
    let unsaved = save(&world, "second").await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused}");
    assert!(!world.home.path().join("there").exists());
    assert_eq!(unsaved.kind(), ErrorKind::Unreachable, "{unsaved}");
    assert_eq!(world.nothing_dangles().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_data_key_whose_answer_was_lost_is_the_one_that_lies_there() {
    let world = World::new();
    let once = AtomicBool::new(true);
    world.bucket.decide(move |asked| {
        let is_it = asked.writes("key.json") && once.swap(false, Ordering::SeqCst);
        if is_it {
            Turn::ApplySilently
        } else {
            Turn::Work
        }
    });

    let saved = save(&world, "first").await.unwrap();

    assert_eq!(world.restored(&other_host(&world)).await, "first");
    assert_eq!(world.pointer().await.active_archive(), Some(saved.sha256));
}

#[tokio::test(start_paused = true)]
async fn a_data_key_that_was_lost_on_its_way_encrypts_nothing() {
    let world = World::new();
    world.bucket.decide(|asked| {
        if asked.writes("key.json") {
            Turn::Vanish
        } else {
            Turn::Work
        }
    });

    let unsaved = save(&world, "first").await.unwrap_err();

    assert_eq!(unsaved.kind(), ErrorKind::Unreachable, "{unsaved}");
    assert!(!has_key(&world).await);
    assert_eq!(world.pointer().await.active, None, "nothing was published");
    world.bucket.mend();
    let saved = save(&world, "first").await.unwrap();
    assert_eq!(saved.outcome, SaveOutcome::Captured);
    assert_eq!(world.restored(&other_host(&world)).await, "first");
}
