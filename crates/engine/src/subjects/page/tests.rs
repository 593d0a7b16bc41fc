use super::*;
use crate::rigged::Rigged;
use crate::rigged::pool::{Saver, World};
use stasis_model::digest::ArchiveDigest;
use stasis_store::bucket::Bucket as _;
use stasis_store::layout::{ChunkRoot, archive, pointer};
use stasis_store::location::StoreLocation;
use std::sync::Arc;

fn acme() -> TenantId {
    "acme".parse().unwrap()
}

fn asked(after: Option<SubjectCursor>, most: usize) -> SubjectsAsked {
    SubjectsAsked {
        tenant: acme(),
        kind: None,
        after,
        most,
    }
}

async fn profile(bucket: &Rigged, name: &str) {
    let lineage: Lineage = name.parse().unwrap();
    let key = archive(&lineage, ArchiveDigest::of(name.as_bytes()));
    bucket.inner.put(&key, "bytes".into()).await.unwrap();
}

/// Directories, profiles whose names begin alike, what belongs to others, and a session that cannot be read.
async fn crowd(world: &World, bucket: &Arc<Rigged>) -> Vec<Saver> {
    let mut savers = Vec::new();
    for name in ["app", "app-2", "app2", "blog"] {
        let saver = world.subject_in(bucket.clone(), "host", name).await;
        saver.write("file", name.as_bytes()).save().await;
        savers.push(saver);
    }
    for name in [
        "acme/a@13",
        "acme/a@131",
        "acme/a-b@131",
        "acme/a1@131",
        "b/x@1",
    ] {
        profile(bucket, name).await;
    }
    let session = ChunkRoot::session(&"acme/s1".parse().unwrap()).session_json();
    bucket.inner.put(&session, "{".into()).await.unwrap();
    savers
}

fn names(page: &SubjectPage) -> Vec<String> {
    page.items.iter().map(|row| row.subject.clone()).collect()
}

async fn walked(engine: &Engine, most: usize) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = engine.subjects_page(&asked(after, most)).await.unwrap();
        assert!(page.items.len() <= most);
        all.extend(names(&page));
        let Some(next) = page.next else { return all };
        assert_eq!(page.items.len(), most, "a page before the last one is full");
        after = SubjectCursor::parse(&acme(), &next.to_string());
        assert_eq!(after, Some(next));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_every_size_have_every_subject_once() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let savers = crowd(&world, &bucket).await;
    let service = savers[0].engine.clone().with_document_memory(1 << 20);
    let whole = service.subjects(Some(&acme())).await.unwrap().items;
    let mut whole: Vec<String> = whole.into_iter().map(|row| row.subject).collect();
    whole.sort();
    assert_eq!(whole.len(), 9);

    for most in [1, 2, 3, 4, 5, 8, 9, 10, 1000] {
        let mut all = walked(&service, most).await;
        all.sort();
        assert_eq!(all, whole, "pages of {most}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_go_on_has_the_same_pages() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let savers = crowd(&world, &bucket).await;
    let going_on = walked(&savers[0].engine, 2).await;
    // A bucket whose report says nothing of it.
    let mut engine = savers[0].engine.clone();
    engine.location = "s3://bucket/root".parse::<StoreLocation>().unwrap();

    assert!(!engine.store().lists_go_on().await);
    assert_eq!(walked(&engine, 2).await, going_on);
    // Pages go on in the order in which they were begun, whatever is known of the store by then.
    let first = engine.subjects_page(&asked(None, 2)).await.unwrap();
    let next = first.next.unwrap();
    assert_eq!(next.to_string(), "sorted:dir:app");
    assert_eq!(SubjectCursor::parse(&acme(), "sorted:dir:app"), Some(next));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_reads_its_own_rows_and_nothing_else() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let savers = crowd(&world, &bucket).await;
    for number in 0..300 {
        let name = format!("acme/p{number:03}@131");
        profile(&bucket, &name).await;
        let key = pointer(&name.parse().unwrap());
        bucket.inner.put(&key, "{".into()).await.unwrap();
    }
    let service = savers[0].engine.clone().with_document_memory(1 << 20);
    let after = SubjectCursor::parse(&acme(), "profile:p100/131");
    bucket.requests();

    let page = service.subjects_page(&asked(after, 3)).await.unwrap();

    let expected = ["acme/p101@131", "acme/p102@131", "acme/p103@131"];
    assert_eq!(names(&page), expected.map(|name| format!("profile:{name}")));
    let requests = bucket.requests();
    let lists = requests
        .iter()
        .filter(|one| one.starts_with("list"))
        .count();
    assert_eq!(lists, 1, "{requests:?}");
    // The pointers, which are damaged, are looked at twice; that there is no lock the listing says.
    let reads = requests.iter().filter(|one| one.starts_with("get")).count();
    assert!(reads <= 9, "{requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_and_goes_between_two_pages_moves_nothing_else() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let savers = crowd(&world, &bucket).await;
    let engine = &savers[0].engine;
    let first = engine.subjects_page(&asked(None, 2)).await.unwrap();
    assert_eq!(names(&first), ["dir:app-2", "dir:app"]);

    bucket
        .inner
        .delete(&savers[0].engine.chunk_root.index())
        .await
        .unwrap();
    let early = world.subject_in(bucket.clone(), "host", "aaa").await;
    early.write("file", b"early").save().await;

    let second = engine.subjects_page(&asked(first.next, 2)).await.unwrap();
    assert_eq!(names(&second), ["dir:app2", "dir:blog"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_deleted_subjects_is_passed_by_pages_and_hides_nobody() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let savers = crowd(&world, &bucket).await;
    for number in 0..1500 {
        // Of a session that is gone something else may lie there.
        let session = format!("acme/gone{number:04}").parse().unwrap();
        let key = ChunkRoot::session(&session).index();
        bucket.inner.put(&key, "{}".into()).await.unwrap();
    }
    let service = savers[0].engine.clone().with_document_memory(1 << 20);
    bucket.requests();

    let (mut all, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let page = service.subjects_page(&asked(after, 4)).await.unwrap();
        all.extend(names(&page));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }

    assert_eq!(all.len(), 9, "{all:?}");
    assert!((4..10).contains(&pages), "{pages} pages");
    let requests = bucket.requests();
    let lists = requests
        .iter()
        .filter(|one| one.starts_with("list"))
        .count();
    assert!(lists < 60, "{lists} listings");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_kind_is_listed_alone() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let savers = crowd(&world, &bucket).await;
    let only = SubjectsAsked {
        kind: Some(SubjectKind::Dir),
        ..asked(None, 4)
    };

    let page = savers[0].engine.subjects_page(&only).await.unwrap();

    assert_eq!(
        names(&page),
        ["dir:app-2", "dir:app", "dir:app2", "dir:blog"]
    );
    assert_eq!(page.next, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_cannot_be_read_is_listed_with_what_is_wrong() {
    let (world, bucket) = (World::new(), Arc::new(Rigged::default()));
    let savers = crowd(&world, &bucket).await;

    let whole = savers[0].engine.subjects(None).await.unwrap().items;

    let session = whole.iter().find(|row| row.subject == "session:acme/s1");
    let error = session.unwrap().error.as_ref().unwrap();
    assert!(error.message.contains("session.json"), "{}", error.message);
}

#[test]
fn only_what_a_page_ended_with_is_a_cursor() {
    let parse = |text: &str| SubjectCursor::parse(&acme(), text);
    for sound in ["dir:app", "session:42", "profile:alice/131"] {
        assert_eq!(parse(sound).unwrap().to_string(), sound);
    }
    for none in [
        "",
        "app",
        "dir:",
        "dir:a/b",
        "dir:../x",
        "profile:alice@131",
        "image:x",
        "profile:a/b/1",
    ] {
        assert_eq!(parse(none), None, "{none}");
    }
}
