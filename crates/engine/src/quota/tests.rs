use super::*;
use crate::rigged::Rigged;
use crate::rigged::pool::{Saver, World, noise};
use crate::save::RepoSave;
use bytes::Bytes;
use stasis_model::failure::error_chain;
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::Label;
use stasis_model::time::Timestamp;
use stasis_store::bucket::Bucket;
use std::fs;
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

/// Forgets the oldest snapshot; its manifest stays until gc.
async fn forget_oldest(saver: &Saver) {
    let root = saver.engine.dirs().root();
    let index = root.index().await.unwrap().unwrap().value;
    let gone = [index.snapshots[0].id.clone()];
    let (op_id, now) = (saver.engine.rng.op_id(), Timestamp::from_millis(1));
    let forgotten = root.change(op_id, |index| index.forget(&gone, now, op_id));
    forgotten.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_gets_as_many_snapshots_as_are_allowed_and_a_forgotten_one_is_none() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let one = world.subject_in(bucket.clone(), "host", "one").await;
    let other = world.subject_in(bucket.clone(), "host", "other").await;
    allow(&one, "quotas.max_snapshots", 3).await;
    one.write("file", &noise(1, 1000)).save().await;
    one.write("file", &noise(2, 1000)).save().await;
    other.write("file", &noise(3, 1000)).save().await;
    let before = stored(&one).await;

    other.write("file", &noise(4, MIB));
    let refused = other.engine.dirs().save(other.command()).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Limit, "{refused:?}");
    let said = error_chain(&refused);
    assert!(said.contains("may have 3 snapshots and has 3"), "{said}");
    assert_eq!(stored(&one).await, before, "nothing was sent");
    assert_eq!(
        other
            .engine
            .dirs()
            .root()
            .manifest_ids()
            .await
            .unwrap()
            .len(),
        1
    );
    // What is nothing new is no snapshot.
    let unchanged = RepoSave {
        skip_unchanged: true,
        ..one.command()
    };
    let _ = one.engine.dirs().save(unchanged).await.unwrap();

    forget_oldest(&one).await;
    assert_eq!(
        one.engine.dirs().root().manifest_ids().await.unwrap().len(),
        2
    );
    other.save().await;
    other.write("file", &noise(5, 1000));
    let refused = other.engine.dirs().save(other.command()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Limit);
    allow(&one, "quotas.max_snapshots", 4).await;
    other.save().await;
    other.restores().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_as_many_snapshots_as_are_allowed_can_still_go_back() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let one = world.subject_in(bucket.clone(), "host", "one").await;
    allow(&one, "quotas.max_snapshots", 2).await;
    one.write("file", &noise(1, 1000)).save().await;
    let save = async |seed: u64, reason: SaveReason| {
        one.write("file", &noise(seed, 1000));
        let command = RepoSave {
            reason,
            ..one.command()
        };
        one.engine.dirs().save(command).await
    };

    // What only prepares a snapshot takes no place from it.
    let _ = save(2, SaveReason::FirstPass).await.unwrap();
    let _ = save(3, SaveReason::Manual).await.unwrap();
    let refused = save(4, SaveReason::Manual).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Limit);
    let _ = save(5, SaveReason::BeforeRestore).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_bytes_that_are_all_stored_takes_room_too() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let one = world.subject_in(bucket.clone(), "host", "one").await;
    one.write("file", &noise(1, 1000)).save().await;
    let file = one.tree.join("file");
    let then = fs::metadata(&file).unwrap().modified().unwrap();
    one.write("file", &noise(2, 1000)).save().await;
    one.write("file", &noise(1, 1000));
    let again = fs::File::options().write(true).open(&file).unwrap();
    again.set_modified(then).unwrap();
    drop(again);

    allow(&one, "quotas.max_snapshots", 2).await;
    let refused = one.engine.dirs().save(one.command()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Limit, "{refused:?}");
    assert_eq!(
        one.engine.dirs().root().manifest_ids().await.unwrap().len(),
        2
    );
    allow(&one, "quotas.max_snapshots", 3).await;
    one.save().await;

    // What is asked where no byte was new.
    let room = |most| {
        let quotas = Quotas {
            max_snapshots: most,
            ..Quotas::default()
        };
        let room = StorageRoom::new(one.engine.clone(), acme());
        room.knowing(Some(&quotas))
    };
    room(0).take_snapshot().await.unwrap();
    room(4).take_snapshot().await.unwrap();
    let full = room(3).take_snapshot().await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Limit);
    let layout = one.engine.dirs().root().layout().clone();
    let replaced = room(1).replacing(Some(&layout));
    replaced.take_snapshot().await.unwrap();
    room(5).take_snapshots(2).await.unwrap();
    let one_too_many = room(5).take_snapshots(3).await.unwrap_err();
    assert_eq!(one_too_many.kind(), ErrorKind::Limit);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_read_only_where_a_listing_shows_as_many_as_are_allowed() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let one = world.subject_in(bucket.clone(), "host", "one").await;
    let other = world.subject_in(bucket.clone(), "host", "other").await;
    other.write("file", &noise(1, 1000)).save().await;
    one.write("file", &noise(2, 1000)).save().await;
    let asked = async |seed| {
        bucket.requests();
        one.write("file", &noise(seed, 1000)).save().await;
        let asked = bucket.requests();
        let count = |what| asked.iter().filter(|one| one.starts_with(what)).count();
        (count("list"), count("get index.json"))
    };

    let (lists, reads) = asked(3).await;
    allow(&one, "quotas.max_snapshots", 9).await;
    let limited = asked(4).await;
    // Three of four are left.
    allow(&one, "quotas.max_snapshots", 4).await;
    forget_oldest(&one).await;
    let full = asked(5).await;

    assert_eq!(limited, (lists + 2, reads));
    assert_eq!(full, (lists + 2, reads + 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_chunk_is_stored_again_however_full_it_is() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let one = world.subject_in(bucket.clone(), "host", "one").await;
    one.write("file", &noise(1, 2 * MIB)).save().await;
    let root = one.engine.dirs().root();
    let chunks = root.chunks().await.unwrap();
    let (name, size) = *chunks.iter().max_by_key(|(_, size)| *size).unwrap();
    let damaged = Bytes::from(vec![7; usize::try_from(size).unwrap()]);
    let place = root.layout().chunk(&name);
    bucket.put(&place, damaged.clone()).await.unwrap();
    root.quarantine(&name, damaged).await.unwrap();
    let full = stored(&one).await;
    allow(&one, "quotas.max_bytes", full).await;

    let healed = one.engine.dirs().save(one.command()).await.unwrap();

    assert_eq!(healed.chunks_healed, 1);
    assert_eq!(stored(&one).await, full);
    assert_eq!(root.quarantined().await.unwrap(), []);
    one.restores().await;
    // What is new is still refused.
    one.write("file", &noise(2, 1000));
    let refused = one.engine.dirs().save(one.command()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Limit);
}
