use super::*;
use crate::rigged::Rigged;
use crate::rigged::pool::{Saver, World, noise};
use stasis_model::id::Label;
use std::sync::Arc;

const MIB: usize = 1 << 20;

async fn allow(saver: &Saver, setting: &str, value: u64) {
    let settings = [(setting.to_owned(), value.to_string())];
    let (tenants, actor) = (saver.engine.tenants(), Label::nobody());
    let set = tenants.set_policy(acme(), &settings, &actor).await;
    set.unwrap();
}

fn acme() -> TenantId {
    "acme".parse().unwrap()
}

async fn stored(saver: &Saver) -> u64 {
    saver.engine.stored_bytes(&acme()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_save_beyond_the_quota_is_refused_and_what_is_there_stays() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let one = world.subject_in(bucket.clone(), "host", "one").await;
    one.write("file", &noise(1, 2 * MIB)).save().await;
    let before = stored(&one).await;
    allow(&one, "quotas.max_bytes", before + MIB as u64).await;

    // Of whichever subject: what a tenant stores is counted together.
    let other = world.subject_in(bucket.clone(), "host", "other").await;
    other.write("file", &noise(2, 6 * MIB));
    let refused = other.engine.dirs().save(other.command()).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Limit, "{refused:?}");
    let said = refused.to_string();
    assert!(said.contains("tenant `acme` may store"), "{said}");
    assert!(stored(&one).await <= before + MIB as u64);
    one.restores().await;

    allow(&one, "quotas.max_bytes", 0).await;
    assert!(other.save().await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fits_is_stored_and_what_is_stored_already_is_never_refused() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let one = world.subject_in(bucket.clone(), "host", "one").await;
    one.write("file", &noise(1, 2 * MIB)).save().await;
    let before = stored(&one).await;
    allow(&one, "quotas.max_bytes", before + 2 * MIB as u64).await;

    one.write("more", &noise(2, MIB)).save().await;
    let full = stored(&one).await;
    allow(&one, "quotas.max_bytes", full).await;
    bucket.requests();
    one.save().await;

    assert!(full > before);
    let asked = bucket.requests();
    let counts = |one: &&String| one.starts_with("list") && *one != "list quarantine";
    assert_eq!(asked.iter().filter(counts).count(), 0, "{asked:?}");
    one.write("yet more", &noise(3, MIB));
    let refused = one.engine.dirs().save(one.command()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Limit);
}
