//! A pool that is encrypted: who makes it, and what gc believes of it without the key.

use super::*;
use crate::error::{EncryptionError, ErrorKind};
use crate::keys::TenantKey;
use crate::open::{Engine, LocalDirs};
use crate::rigged::pool::Saver;
use crate::system::{SystemClock, SystemRng};
use stasis_disk::form::chunked::ChunkCodec;
use stasis_model::digest::ChunkDigest;
use stasis_model::id::{OpId, SnapshotId};
use stasis_model::protocol::gc::{ChunkName, GcEpoch, Names};
use stasis_model::time::Timestamp;

fn key(digit: u8) -> TenantKey {
    TenantKey::parse(&[digit; 64]).unwrap()
}

impl World {
    /// A host of the tenant that has a key, or none.
    fn host(&self, host: &str, name: &str, key: Option<TenantKey>) -> Saver {
        let place = |what: &str| Some(self.home.path().join(host).join(what));
        let local_dirs = LocalDirs {
            cache: place("cache"),
            state: place("state"),
        };
        let (clock, rng) = (Arc::new(SystemClock), Arc::new(SystemRng));
        let bucket = self.bucket.clone();
        let engine = Engine::over(bucket, StoreLocation::Memory, local_dirs, clock, rng);
        let layout = ChunkRoot::project(&"acme".parse().unwrap(), &name.parse().unwrap());
        let engine = engine.rooted(layout);
        let engine = match key {
            Some(key) => engine.with_key(key),
            None => engine,
        };
        let tree = self.home.path().join(host).join(name);
        fs::create_dir_all(&tree).unwrap();
        let name = name.parse().unwrap();
        Saver { engine, name, tree }
    }

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
    assert_eq!(missing.kind(), ErrorKind::Retry, "{missing}");
    assert!(root.has_chunk(&chunk).await.unwrap());
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
