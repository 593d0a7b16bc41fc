//! A pool that is encrypted: who makes it, and what gc believes of it without the key.

use super::*;
use crate::error::{EncryptionError, ErrorKind, NotOfKey};
use crate::open::Engine;
use crate::rigged::Turn;
use crate::rigged::pool::{Saver, key};
use stasis_disk::form::chunked::ChunkCodec;
use stasis_model::digest::ChunkDigest;
use stasis_model::id::{OpId, SnapshotId};
use stasis_model::protocol::gc::{ChunkName, GcEpoch, Names};
use stasis_model::time::Timestamp;
use stasis_store::location::StoreLocation;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

impl World {
    async fn has(&self, text: &str) -> bool {
        let key = Key::from_listing(text).unwrap();
        self.bucket.exists(&key).await.unwrap()
    }
}

impl Saver {
    async fn make_pool(&self) -> Result<(), Error> {
        let dirs = self.engine.dirs();
        dirs.make_pool(&dirs.root()).await.map(drop)
    }

    /// A manifest that nobody published, as a save that began now would put it, and a chunk that only it needs.
    async fn unpublished(&self, id: &str) -> (SnapshotId, ChunkName) {
        let (dirs, root) = (self.engine.dirs(), self.engine.dirs().root());
        let name = |text: &str| ChunkName::new(ChunkDigest::of(text.as_bytes()), GcEpoch::FIRST);
        let (id, chunk): (SnapshotId, _) = (id.parse().unwrap(), name(id));
        let batch = self.engine.rng.op_id();
        let bytes = b"nobody reads it".as_slice().into();
        root.stage_chunk(batch, &chunk, bytes).await.unwrap();
        root.commit(batch).await.unwrap();
        let mut names: Names = (0..100)
            .map(|number| name(&format!("{id}{number}")))
            .collect();
        names.insert(chunk);
        let index = root.index().await.unwrap().unwrap().value;
        let (op_id, now) = (OpId::from_random([3; 16]), Timestamp::from_millis(5));
        let mut manifest = SnapshotManifest::new(self.name.clone(), id.clone(), op_id, now);
        manifest.incarnation = index.incarnation;
        manifest.lease_epoch = index.fence.epoch;
        let codec = dirs.codec(&root).await.unwrap();
        let stored = closed(&root, &codec, &manifest, &names);
        root.put_manifest(&stored, &names).await.unwrap();
        (id, chunk)
    }
}

#[tokio::test]
async fn a_long_list_of_references_lies_beside_its_manifest_and_goes_with_it() {
    let world = World::new();
    let saver = world.host("one", "notes", Some(key(b'a')));
    saver.make_pool().await.unwrap();
    saver.write("a", &noise(1, 300_000));
    saver.save().await;
    let (id, chunk) = saver.unpublished("under-way").await;
    let root = saver.engine.dirs().root();
    let without_key = world.host("two", "notes", None);

    without_key.gc().await.unwrap();

    assert!(root.has_chunk(&chunk).await.unwrap(), "its save is alive");
    assert_eq!(root.reference_lists().await.unwrap().len(), 1);
    let (stored, _) = root.manifest(&id).await.unwrap().unwrap();
    let StoredManifest::Encrypted(stored) = stored else {
        panic!("it is encrypted");
    };
    let names = root.references(&stored).await.unwrap().unwrap();
    assert_eq!(names.len(), 101);

    saver.write("b", &noise(2, 300_000));
    saver.save().await;
    without_key.gc().await.unwrap();

    assert!(
        !root.has_chunk(&chunk).await.unwrap(),
        "nobody will publish it"
    );
    assert!(root.manifest(&id).await.unwrap().is_none());
    assert!(root.reference_lists().await.unwrap().is_empty());
    saver.restores().await;
}

#[tokio::test]
async fn a_list_of_references_that_is_cut_or_lost_stops_gc() {
    let world = World::new();
    let saver = world.host("one", "notes", Some(key(b'a')));
    saver.make_pool().await.unwrap();
    saver.write("a", &noise(1, 300_000));
    saver.save().await;
    let (_, chunk) = saver.unpublished("under-way").await;
    let root = saver.engine.dirs().root();
    let (list, ..) = root.reference_lists().await.unwrap().remove(0);
    let whole = world
        .bucket
        .get(&list, 1 << 20)
        .await
        .unwrap()
        .unwrap()
        .body;
    let without_key = world.host("two", "notes", None);

    world.bucket.put(&list, whole.slice(36..)).await.unwrap();
    let cut = without_key.gc().await.unwrap_err();
    world.bucket.delete(&list).await.unwrap();
    let missing = without_key.gc().await.unwrap_err();

    assert_eq!(cut.kind(), ErrorKind::Corrupt, "{cut}");
    assert_eq!(missing.kind(), ErrorKind::Corrupt, "{missing}");
    assert!(root.has_chunk(&chunk).await.unwrap());
    // Once nothing can publish it any more, what it named does not matter.
    saver.write("a", &noise(2, 300_000)).save().await;
    without_key.gc().await.unwrap();
    assert!(!root.has_chunk(&chunk).await.unwrap());
}

#[tokio::test]
async fn of_two_first_writers_with_different_wishes_one_wins_and_nothing_is_left_of_the_other() {
    let world = World::new();
    let encrypting = world.host("one", "notes", Some(key(b'a')));
    let plain = world.host("two", "blog", None);
    plain.write("a", b"bytes");

    // The plain one looked for a key before there was one, and was faster.
    let settings = RepoDocument::new(Timestamp::from_millis(1), plain.engine.rng.op_id());
    let root = plain.engine.dirs().root();
    let _ = root.init(&settings).await.unwrap();
    encrypting.make_pool().await.unwrap();

    assert!(
        !world.has("pools/acme/key.json").await,
        "it encrypts nothing"
    );
    plain.save().await;
    plain.restores().await;
    let refused = encrypting.engine.dirs().save(encrypting.command()).await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, Error::Encryption(error) if matches!(**error, EncryptionError::Plain(_)))
    );
}

#[tokio::test]
async fn of_two_first_writers_with_keys_both_use_the_one_that_lies_there() {
    let world = World::new();
    let (one, two) = (
        world.host("one", "notes", Some(key(b'a'))),
        world.host("two", "blog", Some(key(b'a'))),
    );
    one.make_pool().await.unwrap();
    two.make_pool().await.unwrap();
    let other = world.host("three", "else", Some(key(b'b')));

    let refused = other.make_pool().await.unwrap_err();
    let plain = world
        .host("four", "more", None)
        .make_pool()
        .await
        .unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert_eq!(plain.kind(), ErrorKind::Denied, "{plain}");
    let bytes = noise(5, 2_000_000);
    one.write("a", &bytes);
    two.write("b", &bytes);
    let (first, second) = (one.save().await, two.save().await);
    assert!(
        second < first / 10,
        "{second}: what both have is stored once"
    );
    let codec = two
        .engine
        .dirs()
        .codec(&two.engine.dirs().root())
        .await
        .unwrap();
    assert!(matches!(codec, ChunkCodec::Encrypted(_)));
    one.restores().await;
    two.restores().await;
}

/// Every object whose key begins so, put back as it was.
async fn restore(world: &World, kept: &[(Key, bytes::Bytes)]) {
    for (key, body) in kept {
        world.bucket.put(key, body.clone()).await.unwrap();
    }
}

async fn kept(world: &World, name: &str) -> (Key, bytes::Bytes) {
    let key = Key::from_listing(name).unwrap();
    let found = world.bucket.get(&key, 1 << 20).await.unwrap().unwrap();
    (key, found.body)
}

#[tokio::test]
async fn a_pool_that_says_it_is_plain_is_refused_however_often_it_is_asked() {
    let world = World::new();
    let saver = world.host("one", "notes", Some(key(b'a')));
    saver.make_pool().await.unwrap();
    saver.write("a", b"one").save().await;
    let root = saver.engine.dirs().root();
    let genuine = root.repo().await.unwrap().unwrap();
    // With the very operation id of the one that it takes the place of.
    let plain = RepoDocument::new(Timestamp::from_millis(1), genuine.op_id);
    let (at, _) = kept(&world, "pools/acme/repo.json").await;
    let body = stasis_model::format::document::render(&plain);
    world.bucket.put(&at, body.into()).await.unwrap();

    let without_key = world.host("two", "notes", None);
    for (host, dirs) in [
        ("one", saver.engine.dirs()),
        ("two", without_key.engine.dirs()),
    ] {
        for _ in 0..3 {
            let refused = dirs.settings(&root).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Corrupt, "{host}: {refused}");
        }
    }
    // One that met the pool while it was encrypted knows without its key document, too.
    world
        .bucket
        .delete(&kept(&world, "pools/acme/key.json").await.0)
        .await
        .unwrap();
    assert!(saver.engine.dirs().settings(&root).await.is_err());
}

#[tokio::test]
async fn a_host_that_saw_a_key_believes_nothing_plain_in_its_place() {
    let world = World::new();
    // Only of what is more than memory is anything remembered.
    let on_disk = |mut saver: Saver| {
        saver.engine.location = StoreLocation::File(world.home.path().join("store"));
        saver
    };
    let owner = on_disk(world.host("one", "notes", Some(key(b'a'))));
    owner.make_pool().await.unwrap();
    owner.write("a", b"one").save().await;
    // It has no key, and lists and collects.
    let looker = on_disk(world.host("two", "notes", None));
    looker.gc().await.unwrap();
    // And one that saw nothing but what the pool says of itself.
    let passer = on_disk(world.host("four", "notes", None)).engine;
    let (actor, root) = ("operator".parse().unwrap(), passer.dirs().root());
    passer.dirs().settings(&root).await.unwrap();
    let early = passer.accept_rollback_of_all(&actor).await.unwrap();
    assert_eq!(early.subjects, [""; 0], "the key is there");
    let (repo, _) = kept(&world, "pools/acme/repo.json").await;
    let (data_key, _) = kept(&world, "pools/acme/key.json").await;
    for key in [&repo, &data_key] {
        world.bucket.delete(key).await.unwrap();
    }

    let stranger = on_disk(world.host("three", "other", None));
    stranger.make_pool().await.unwrap();
    let is_vanished = |error: &Error| matches!(error, Error::Encryption(error) if matches!(**error, EncryptionError::KeyVanished(_)));
    for host in ["one", "two", "four"] {
        let again = on_disk(world.host(host, "notes", None));
        let (dirs, root) = (again.engine.dirs(), again.engine.dirs().root());
        let refused = dirs.settings(&root).await.unwrap_err();
        assert!(is_vanished(&refused), "{host}: {refused}");
        let refused = again.make_pool().await.unwrap_err();
        assert!(is_vanished(&refused), "{host}: {refused}");
    }

    // Who knows why it is plain now says so, once.
    let again = on_disk(world.host("two", "notes", None));
    let accepted = again.engine.dirs().accept_rollback(&actor).await.unwrap();
    assert_eq!(accepted.subjects, ["dir:notes"]);
    // Also where no document is remembered but the key.
    let again_too = on_disk(world.host("four", "notes", None)).engine;
    for wanted in [&["pools/acme"][..], &[]] {
        let accepted = again_too.accept_rollback_of_all(&actor).await.unwrap();
        assert_eq!(accepted.subjects, wanted);
        let dirs = again_too.dirs();
        assert!(!dirs.settings(&dirs.root()).await.unwrap().is_encrypted());
    }
    let root = again.engine.dirs().root();
    assert!(
        !again
            .engine
            .dirs()
            .settings(&root)
            .await
            .unwrap()
            .is_encrypted()
    );
}

#[tokio::test]
async fn what_a_pool_remembers_on_a_host_is_not_that_of_a_plain_one_with_its_id() {
    let op_id = OpId::from_random([7; 16]);
    let plain = RepoDocument::new(Timestamp::from_millis(1), op_id);
    let check = stasis_model::digest::PoolCheck::from_document([9; 32]);
    let encrypted = plain.clone().encrypted(check);

    assert_ne!(plain.spelled(), encrypted.spelled());
}

#[tokio::test]
async fn repair_makes_no_repo_json_for_a_key_that_opens_nothing() {
    let (world, other) = (World::new(), World::new());
    let saver = world.host("one", "notes", Some(key(b'a')));
    let foreign = other.host("one", "notes", Some(key(b'a')));
    for one in [&saver, &foreign] {
        one.make_pool().await.unwrap();
        one.write("a", &noise(1, 100_000)).save().await;
    }
    let repo = kept(&world, "pools/acme/repo.json").await;
    let genuine = kept(&world, "pools/acme/key.json").await;
    world.bucket.delete(&repo.0).await.unwrap();
    restore(&world, &[kept(&other, "pools/acme/key.json").await]).await;
    let again = world.host("two", "notes", Some(key(b'a')));
    let dirs = again.engine.dirs();
    let actor = "operator".parse().unwrap();

    let refused = dirs.repair(&actor, false).await.unwrap_err();
    let checked = dirs.check(true, Arc::default()).await.unwrap();

    assert!(
        matches!(&refused, Error::Encryption(error) if matches!(**error, EncryptionError::OpensNothing(_))),
        "{refused}"
    );
    // Nor is anything taken for damaged that this key does not open.
    let named: Vec<&str> = checked.damage.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(named, ["repo.json", "key.json"], "{:?}", checked.damage);
    assert!(checked.damage[1].why.contains("opens nothing"));
    assert_eq!(dirs.root().quarantined().await.unwrap(), []);
    // Without any key document nothing plain is made of it.
    world.bucket.delete(&genuine.0).await.unwrap();
    let refused = dirs.repair(&actor, false).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Encryption(error) if matches!(**error, EncryptionError::NoKey(_))),
        "{refused}"
    );
    restore(&world, &[genuine]).await;
    let again = world.host("three", "notes", Some(key(b'a')));
    again.engine.dirs().repair(&actor, false).await.unwrap();
    let found = again.engine.dirs().root().repo().await.unwrap().unwrap();
    assert!(found.is_encrypted());
}

#[tokio::test]
async fn an_unpublished_manifest_of_a_later_build_stops_gc_before_anything_goes() {
    let world = World::new();
    let saver = world.host("one", "notes", Some(key(b'a')));
    saver.make_pool().await.unwrap();
    saver.write("a", &noise(1, 100_000)).save().await;
    let (id, chunk) = saver.unpublished("later-build").await;
    let name = format!("subjects/acme/dir/notes/snapshots/{id}.json");
    let (at, body) = kept(&world, &name).await;
    let text = String::from_utf8(body.to_vec()).unwrap();
    let text = text.replacen("\"encryption\"", "\"encryption\",\"later\"", 1);
    world.bucket.put(&at, text.into()).await.unwrap();
    saver.write("b", &noise(2, 100_000)).save().await;

    let refused = world.host("two", "notes", None).gc().await;

    assert!(refused.is_err());
    assert!(world.has(&name).await);
    let root = saver.engine.dirs().root();
    assert!(root.has_chunk(&chunk).await.unwrap());
    assert_eq!(root.reference_lists().await.unwrap().len(), 1);
}

/// What is done to a list.
type Damage = fn(&[u8]) -> Option<Vec<u8>>;

#[tokio::test]
async fn a_list_of_references_that_is_damaged_in_any_way_is_seen_and_gc_takes_nothing() {
    let world = World::new();
    let saver = world.host("one", "notes", Some(key(b'a')));
    saver.make_pool().await.unwrap();
    // More chunks than a manifest names itself.
    for number in 0..70 {
        saver.write(&format!("{number}"), &noise(number, (1 << 20) + 7));
    }
    saver.save().await;
    let root = saver.engine.dirs().root();
    let (list, _, _) = root.reference_lists().await.unwrap().remove(0);
    let whole = world.bucket.get(&list, 1 << 20).await.unwrap().unwrap();
    let before = root.chunks().await.unwrap();
    let damages: [Damage; 5] = [
        |rows| Some([&[rows[0] ^ 1], &rows[1..]].concat()),
        |rows| Some(rows[..rows.len() / 2].to_vec()),
        |_| Some(Vec::new()),
        |_| None,
        // A list that was right once, of a tree that lacked a file.
        |rows| Some(rows[36..].to_vec()),
    ];

    for (number, damage) in damages.into_iter().enumerate() {
        match damage(&whole.body) {
            Some(rows) => world.bucket.put(&list, rows.into()).await.unwrap(),
            None => world.bucket.delete(&list).await.unwrap(),
        }
        for tenant in [None, Some(key(b'a'))] {
            let has_key = tenant.is_some();
            let host = world.host("two", "notes", tenant);
            let checked = host
                .engine
                .dirs()
                .check(true, Arc::default())
                .await
                .unwrap();
            let swept = host.gc().await;
            assert!(!checked.damage.is_empty(), "{number}, {has_key}");
            assert!(swept.is_err(), "{number}, {has_key}: {swept:?}");
            assert_eq!(root.chunks().await.unwrap(), before, "{number}");
        }
        // What opens with the key does not need the list.
        saver.restores().await;
    }
    world.bucket.put(&list, whole.body).await.unwrap();
    saver.is_sound().await;
    saver.gc().await.unwrap();
    assert_eq!(root.chunks().await.unwrap(), before);
}

/// A host whose key is printed by something slow.
fn slowly(saver: &Saver, how: impl Fn() + Send + Sync + 'static) -> Engine {
    let engine = saver.engine.clone();
    engine.with_key_from(move || {
        how();
        Ok(key(b'a'))
    })
}

#[tokio::test]
async fn a_key_is_read_once_and_off_the_runtime() {
    let world = World::new();
    let mut saver = world.host("one", "notes", Some(key(b'a')));
    saver.make_pool().await.unwrap();
    saver.write("a", &noise(1, 100_000)).save().await;
    let (ticks, reads) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, count) = (ticks.clone(), reads.clone());
    saver.engine = slowly(&saver, move || {
        count.fetch_add(1, Ordering::Relaxed);
        let before = seen.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        assert!(seen.load(Ordering::Relaxed) > before, "nobody else worked");
    });
    let ticking = ticks.clone();
    let clock = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            ticking.fetch_add(1, Ordering::Relaxed);
        }
    });

    let dirs = saver.engine.dirs();
    let root = dirs.root();
    let both = tokio::join!(dirs.codec(&root), dirs.codec(&root));

    clock.abort();
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
    assert_eq!(reads.load(Ordering::Relaxed), 1);
    saver.restores().await;
}

#[tokio::test]
async fn nothing_is_made_for_a_key_that_does_not_open_as_it_lies_there() {
    let bucket = Arc::new(Rigged::default());
    let world = World {
        home: tempfile::tempdir().unwrap(),
        bucket: bucket.inner.clone(),
    };
    let saver = world.host_in(bucket.clone(), "one", "notes", Some(key(b'a')));
    let objects = world.bucket.clone();
    bucket.rig(move |asked| {
        let objects = objects.clone();
        Box::pin(async move {
            let place = Key::from_listing("pools/acme/key.json").unwrap();
            if asked.reads("key.json") && objects.exists(&place).await.unwrap() {
                objects.put(&place, "{}".into()).await.unwrap();
            }
            Turn::Work
        })
    });

    let refused = saver.make_pool().await;

    assert!(refused.is_err(), "{refused:?}");
    assert!(!world.has("pools/acme/repo.json").await);
}

#[tokio::test]
async fn repair_makes_no_repo_json_for_a_pool_with_something_plain_in_it() {
    let (world, other) = (World::new(), World::new());
    let saver = world.host("one", "notes", Some(key(b'a')));
    let plain = other.host("one", "letters", None);
    for one in [&saver, &plain] {
        one.make_pool().await.unwrap();
        one.write("a", &noise(1, 1_000)).save().await;
    }
    let root = plain.engine.dirs().root();
    let id = root.manifest_ids().await.unwrap().remove(0);
    let manifest = format!("subjects/acme/dir/letters/snapshots/{id}.json");
    restore(&world, &[kept(&other, &manifest).await]).await;
    let repo = kept(&world, "pools/acme/repo.json").await;
    world.bucket.delete(&repo.0).await.unwrap();
    let again = world.host("two", "notes", Some(key(b'a')));

    let refused = again.engine.dirs().repair(&Label::nobody(), false).await;

    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, Error::Encryption(error) if matches!(**error, EncryptionError::Mixed { .. })),
        "{refused}"
    );
}

/// A pool in a rigged bucket, with a subject for each of these names.
async fn rigged_pool(names: &[&str]) -> (Arc<Rigged>, World) {
    let bucket = Arc::new(Rigged::default());
    let world = World {
        home: tempfile::tempdir().unwrap(),
        bucket: bucket.inner.clone(),
    };
    for (number, name) in (1..).zip(names) {
        let saver = world.host("one", name, Some(key(b'a')));
        saver.make_pool().await.unwrap();
        saver.write("a", &noise(number, 10_000)).save().await;
    }
    (bucket, world)
}

#[tokio::test]
async fn a_key_that_opens_nothing_is_named_once_and_tried_once() {
    let names = ["a", "b", "c", "d", "e"];
    let (bucket, world) = rigged_pool(&names).await;
    let (_, other) = rigged_pool(&["a"]).await;
    let repo = kept(&world, "pools/acme/repo.json").await;
    let genuine = kept(&world, "pools/acme/key.json").await;
    let foreign = kept(&other, "pools/acme/key.json").await;
    // The first subject has nothing that leads to snapshots.
    let index = kept(&world, "subjects/acme/dir/a/index.json").await.0;
    world.bucket.put(&index, "{\"ver".into()).await.unwrap();
    let mut manifests = Vec::new();
    for name in names {
        let root = world.host("one", name, None).engine.dirs().root();
        let ids = root.manifest_ids().await.unwrap();
        manifests.extend(ids.iter().map(|id| format!("get {id}.json")));
    }

    let wrong = ["repo.json", "index.json", "key.json"];
    for (is_lost, key_json, wanted) in [
        (false, &foreign, &wrong[1..]),
        (true, &foreign, &wrong[..]),
        (true, &genuine, &wrong[..2]),
    ] {
        if is_lost {
            world.bucket.delete(&repo.0).await.unwrap();
        }
        restore(&world, std::slice::from_ref(key_json)).await;
        let host = world.host_in(bucket.clone(), "two", "a", Some(key(b'a')));
        let pool = ChunkRoot::pool(&"acme".parse().unwrap());
        drop(bucket.requests());

        let engine = host.engine.rooted(pool);
        let checked = engine.dirs().check(true, Arc::default()).await.unwrap();

        let said: Vec<&str> = checked.damage.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(said, wanted, "{:?}", checked.damage);
        let asked = bucket.requests();
        let read = asked.iter().filter(|one| manifests.contains(*one)).count();
        // Each for what it needs, which takes two looks with the key, and all of them once to try the key.
        let most = 2 * (names.len() - 1) + names.len();
        assert!(read <= most, "{read} of {most}: {asked:?}");
    }
}

#[tokio::test]
async fn one_thing_that_opens_does_not_make_a_key_that_of_a_pool() {
    let (_, world) = rigged_pool(&["letters", "notes"]).await;
    let (_, other) = rigged_pool(&["letters", "planted"]).await;
    let planted = other.host("one", "planted", None).engine.dirs().root();
    let id = planted.manifest_ids().await.unwrap().remove(0);
    let manifest = format!("subjects/acme/dir/planted/snapshots/{id}.json");
    let repo = kept(&world, "pools/acme/repo.json").await;
    let genuine = kept(&world, "pools/acme/key.json").await;
    world.bucket.delete(&repo.0).await.unwrap();
    let planted = [
        kept(&other, &manifest).await,
        kept(&other, "pools/acme/key.json").await,
    ];
    restore(&world, &planted).await;
    let host = |name| world.host(name, "notes", Some(key(b'a')));
    let (two, three) = (host("two"), host("three"));

    let read = two.engine.dirs().codec(&two.engine.dirs().root()).await;
    let repaired = two.engine.dirs().repair(&Label::nobody(), false).await;
    // With the genuine key it is the planted snapshot that does not open.
    restore(&world, &[genuine]).await;
    let with_genuine = three.engine.dirs().repair(&Label::nobody(), false).await;

    for refused in [
        read.unwrap_err(),
        repaired.unwrap_err(),
        with_genuine.unwrap_err(),
    ] {
        let Error::Encryption(refused) = refused else {
            panic!("{refused}");
        };
        let said = refused.to_string();
        let EncryptionError::Mixed { opens, other, .. } = *refused else {
            panic!("{said}");
        };
        let is_planted = |place: &str| place.contains("/planted/");
        let NotOfKey::Closed(closed) = other else {
            panic!("{said}");
        };
        assert_ne!(is_planted(&opens.unwrap()), is_planted(&closed), "{said}");
    }
    let is_there = world.bucket.exists(&repo.0).await.unwrap();
    assert!(!is_there, "nothing was made anew");
    // What was damaged is no other key's: it is named for what it is, and the pool is repaired.
    world.bucket.delete(&planted[0].0).await.unwrap();
    let letters = world.host("one", "letters", None).engine.dirs().root();
    let id = letters.manifest_ids().await.unwrap().remove(0);
    let damaged = format!("subjects/acme/dir/letters/snapshots/{id}.json");
    let (place, body) = kept(&world, &damaged).await;
    let mut manifest: serde_json::Value = serde_json::from_slice(&body).unwrap();
    manifest["leaseEpoch"] = 77.into();
    let text = manifest.to_string();
    world.bucket.put(&place, text.into()).await.unwrap();
    let four = host("four");
    let repaired = four
        .engine
        .dirs()
        .repair(&Label::nobody(), false)
        .await
        .unwrap();
    assert_eq!(repaired.documents.len(), 1, "{repaired:?}");
}

#[tokio::test]
async fn a_key_beside_what_is_plain_is_not_tried_on_it() {
    let (_, other) = rigged_pool(&["notes"]).await;
    let world = World::new();
    let saver = world.host("one", "notes", None);
    saver.make_pool().await.unwrap();
    saver.write("a", b"plain").save().await;
    let repo = kept(&world, "pools/acme/repo.json").await;
    world.bucket.delete(&repo.0).await.unwrap();
    restore(&world, &[kept(&other, "pools/acme/key.json").await]).await;
    let again = world.host("two", "notes", Some(key(b'a')));

    let refused = again.engine.dirs().codec(&again.engine.dirs().root()).await;

    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, Error::Encryption(error) if matches!(**error, EncryptionError::Mixed { .. })),
        "{refused}"
    );
}

#[tokio::test]
async fn what_a_later_build_wrote_stops_a_repair_of_the_pool_and_no_reader() {
    let (_, world) = rigged_pool(&["later", "notes"]).await;
    let later = world.host("one", "later", None).engine.dirs().root();
    let id = later.manifest_ids().await.unwrap().remove(0);
    let name = format!("subjects/acme/dir/later/snapshots/{id}.json");
    let (at, body) = kept(&world, &name).await;
    let mut manifest: serde_json::Value = serde_json::from_slice(&body).unwrap();
    manifest["version"] = 99.into();
    let text = manifest.to_string();
    world.bucket.put(&at, text.into()).await.unwrap();
    let repo = kept(&world, "pools/acme/repo.json").await;
    world.bucket.delete(&repo.0).await.unwrap();

    let reader = world.host("two", "empty", Some(key(b'a')));
    let (dirs, root) = (reader.engine.dirs(), reader.engine.dirs().root());
    let codec = dirs.codec(&root).await.unwrap();
    let notes = world.host("two", "notes", Some(key(b'a')));
    let refused = notes.engine.dirs().repair(&Label::nobody(), false).await;

    assert!(matches!(codec, ChunkCodec::Encrypted(_)));
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, Error::Read(error) if error.is_of_another_build()),
        "{refused}"
    );
}
