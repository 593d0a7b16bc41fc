//! Subjects that share a pool: what they have in common is stored once, and stays as long as one of them needs it.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make the directories that they save"
)]

mod encrypted;
mod many;
mod provisional;

use super::*;
use crate::rigged::Rigged;
use crate::rigged::pool::{World, noise};
use stasis_model::format::document;
use stasis_model::format::manifest::{IndexRefusal, SnapshotIndex};
use stasis_model::id::Label;
use stasis_store::bucket::Bucket;
use stasis_store::documents::roots::ChangeError;
use stasis_store::layout::{ChunkRoot, Key};
use std::fs;
use std::sync::Arc;

#[tokio::test]
async fn what_two_subjects_have_in_common_is_stored_once() {
    let world = World::new();
    let (shop, blog) = (
        world.subject("one", "shop").await,
        world.subject("two", "blog").await,
    );
    shop.write("shared", &noise(1, 3 << 20)).save().await;

    let stored = blog.write("shared", &noise(1, 3 << 20)).save().await;

    assert!(stored < 8 << 10, "{stored}");
    shop.restores().await;
    blog.restores().await;
    blog.is_sound().await;
}

#[tokio::test]
async fn a_sweep_by_one_subject_leaves_what_another_one_needs() {
    let world = World::new();
    let (shop, blog) = (
        world.subject("one", "shop").await,
        world.subject("two", "blog").await,
    );
    shop.write("shared", &noise(1, 1 << 20)).save().await;
    blog.write("own", &noise(2, 1 << 20))
        .write("shared", &noise(1, 1 << 20))
        .save()
        .await;
    shop.write("shared", &noise(3, 1 << 20)).save().await;

    let swept = shop.gc().await.unwrap();

    assert_eq!(swept.verdicts.iter().filter(|one| !one.kept).count(), 1);
    blog.is_sound().await;
    blog.restores().await;
    shop.restores().await;
}

#[tokio::test]
async fn after_a_sweep_a_new_subject_of_this_host_borrows_and_one_of_another_host_does_not() {
    let world = World::new();
    let shop = world.subject("one", "shop").await;
    shop.write("large", &noise(1, 3 << 20)).save().await;
    shop.end_epoch().await;
    let here = world.subject("one", "copy").await;
    let there = world.subject("two", "copy-elsewhere").await;

    let borrowed = here.write("large", &noise(1, 3 << 20)).save().await;
    let stored = there.write("large", &noise(1, 3 << 20)).save().await;

    assert!(borrowed < 8 << 10, "{borrowed}");
    assert!(stored > 3 << 20, "{stored}");
    for saver in [&shop, &here, &there] {
        saver.restores().await;
    }
}

#[tokio::test]
async fn a_donor_that_goes_while_a_save_is_under_way_is_not_relied_on() {
    let world = World::new();
    let shop = world.subject("one", "shop").await;
    shop.write("large", &noise(1, 3 << 20)).save().await;
    shop.end_epoch().await;
    let copy = world.subject("one", "copy").await;
    copy.write("large", &noise(1, 3 << 20));
    let gathered = copy
        .engine
        .dirs()
        .save_gather(copy.command())
        .await
        .unwrap();

    fs::remove_file(shop.tree.join("large")).unwrap();
    let mut without = shop.command();
    without.allow_shrink = true;
    let _ = shop.engine.dirs().save(without).await.unwrap();
    assert!(shop.gc().await.unwrap().chunks_removed > 0);
    let described = copy.engine.dirs().save_describe(gathered).await;

    assert!(matches!(described, Err(Error::SaveGaveUp(_))));
    copy.save().await;
    copy.is_sound().await;
    copy.restores().await;
}

#[tokio::test]
async fn a_kind_of_subject_that_this_build_does_not_know_stops_a_sweep() {
    let world = World::new();
    let shop = world.subject("one", "shop").await;
    shop.write("a", &noise(1, 1 << 20)).save().await;
    shop.write("a", &noise(2, 1 << 20)).save().await;
    let foreign = Key::from_listing("subjects/acme/future/x/index.json").unwrap();
    world.bucket.put(&foreign, "{}".into()).await.unwrap();
    let before = shop.engine.dirs().root().chunks().await.unwrap();

    let refused = shop.gc().await;

    let message = crate::error::error_chain(&refused.unwrap_err());
    assert!(message.contains("subjects/acme/future/x"), "{message}");
    let after = shop.engine.dirs().root().chunks().await.unwrap();
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_subject_without_its_index_is_damaged_and_not_empty() {
    let world = World::new();
    let shop = world.subject("one", "shop").await;
    shop.write("a", b"one").save().await;
    let key = shop.engine.chunk_root.index();
    world.bucket.delete(&key).await.unwrap();

    let found = shop.engine.dirs().save(shop.command()).await;

    assert!(matches!(found, Err(Error::LostIndex(_))), "{found:?}");
}

#[tokio::test]
async fn a_save_that_began_in_another_life_of_its_subject_is_not_published() {
    let world = World::new();
    let shop = world.subject("one", "shop").await;
    shop.write("a", b"one").save().await;
    shop.write("a", b"stalled");
    let dirs = shop.engine.dirs();
    let gathered = dirs.save_gather(shop.command()).await.unwrap();
    let stalled = dirs.save_describe(gathered).await.unwrap();

    dirs.retire(&shop.name, &Label::nobody()).await.unwrap();
    let deleted = dirs.index(&dirs.root()).await.unwrap();
    shop.write("a", b"anew").save().await;
    let late = dirs.save_publish(stalled).await;

    assert!(deleted.snapshots.is_empty() && deleted.deleted_at_ms.is_some());
    let refused = matches!(
        late,
        Err(Error::Index(ChangeError::Refused(IndexRefusal::OtherLife)))
    );
    assert!(refused, "{:?}", late.err());
    let swept = shop.gc().await.unwrap();
    assert_eq!(swept.manifests_removed, 2, "those of the first life go");
    let left = dirs.root().manifest_ids().await.unwrap();
    assert_eq!(left.len(), 1);
    shop.is_sound().await;
    shop.restores().await;
}

/// What a first save, a changed one and an unchanged one ask of a store in which so many other subjects lie.
async fn asked_beside(others: usize) -> [Vec<String>; 3] {
    let world = World::new();
    let bucket = Arc::new(Rigged::default());
    let index = SnapshotIndex::empty().begun(stasis_model::id::OpId::default());
    let body = bytes::Bytes::from(document::render(&index));
    for number in 0..others {
        let key = format!("subjects/acme/dir/other-{number}/index.json");
        let key = Key::from_listing(&key).unwrap();
        bucket.inner.put(&key, body.clone()).await.unwrap();
    }
    let shop = world.subject_in(bucket.clone(), "one", "shop").await;
    let requests = || {
        let mut all = bucket.requests();
        // The names of chunks and manifests are not always the same.
        for request in &mut all {
            let verb = request.split(' ').next().unwrap_or_default().to_owned();
            if request.contains("sha256") || request.contains('-') {
                *request = verb;
            }
        }
        all.sort();
        all
    };
    requests();
    shop.write("a", &noise(1, 100_000)).save().await;
    let first = requests();
    shop.write("a", &noise(2, 100_000)).save().await;
    let changed = requests();
    shop.save().await;
    [first, changed, requests()]
}

#[tokio::test]
async fn what_a_save_asks_does_not_grow_with_the_number_of_subjects() {
    let few = asked_beside(10).await;
    let many = asked_beside(10_000).await;

    assert_eq!(few, many);
    let [first, changed, unchanged] = few.map(|asked| asked.len());
    assert!(
        first <= 16 && changed <= 12 && unchanged <= 12,
        "{first} {changed} {unchanged}"
    );
}

#[tokio::test]
async fn an_unchanged_save_stores_next_to_nothing_whatever_the_size_of_the_tree() {
    let world = World::new();
    let shop = world.subject("one", "shop").await;
    for number in 0..1500 {
        shop.write(&format!("{number}"), &number_text(number));
    }
    shop.save().await;
    let stored = async || {
        let subjects = ChunkRoot::subjects();
        let all = world.bucket.list(&subjects, None, usize::MAX);
        let pool = ChunkRoot::pool(&"acme".parse().unwrap()).chunks();
        let chunks = world.bucket.list(&pool, None, usize::MAX);
        let rows = [all.await.unwrap(), chunks.await.unwrap()].concat();
        rows.iter().map(|row| row.size).sum::<u64>()
    };
    let before = stored().await;

    shop.save().await;

    let grown = stored().await - before;
    assert!((1..2048).contains(&grown), "{grown}");
}

fn number_text(number: u32) -> Vec<u8> {
    format!("file {number}").into_bytes()
}
