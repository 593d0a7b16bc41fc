//! Hosts that save into the pool of one tenant, in memory.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make the directories that they save"
)]

use crate::catalog::SnapshotSelector;
use crate::error::Error;
use crate::gc::RepoGc;
use crate::keys::TenantKey;
use crate::open::{Engine, LocalDirs};
use crate::restore::RepoRestore;
use crate::save::RepoSave;
use crate::system::{SystemClock, SystemRng};
use stasis_model::format::manifest::RepoDocument;
use stasis_model::id::SubjectName;
use stasis_model::policy::retention::{Repository, RetentionPolicy};
use stasis_model::time::{Clock, Timestamp};
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::Bucket;
use stasis_store::layout::ChunkRoot;
use stasis_store::location::StoreLocation;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// A bucket, and hosts that save into the pool of one tenant.
pub(crate) struct World {
    pub(crate) home: TempDir,
    pub(crate) bucket: Arc<MemoryBucket>,
}

/// One subject, as one host sees it.
pub(crate) struct Saver {
    pub(crate) engine: Engine,
    pub(crate) name: SubjectName,
    pub(crate) tree: PathBuf,
}

impl World {
    /// A host of the tenant that has a key, or none.
    pub(crate) fn host(&self, host: &str, name: &str, key: Option<TenantKey>) -> Saver {
        self.host_in(self.bucket.clone(), host, name, key)
    }

    /// The same by a way of its own to the objects.
    pub(crate) fn host_in(
        &self,
        bucket: Arc<dyn Bucket>,
        host: &str,
        name: &str,
        key: Option<TenantKey>,
    ) -> Saver {
        let place = |what: &str| Some(self.home.path().join(host).join(what));
        let local_dirs = LocalDirs {
            cache: place("cache"),
            state: place("state"),
        };
        let (clock, rng) = (Arc::new(SystemClock), Arc::new(SystemRng));
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

    pub(crate) fn new() -> Self {
        let (home, bucket) = (tempfile::tempdir().unwrap(), Arc::new(MemoryBucket::new()));
        Self { home, bucket }
    }

    pub(crate) async fn subject(&self, host: &str, name: &str) -> Saver {
        self.subject_in(self.bucket.clone(), host, name).await
    }

    pub(crate) async fn subject_in(
        &self,
        bucket: Arc<dyn Bucket>,
        host: &str,
        name: &str,
    ) -> Saver {
        let saver = self.host_in(bucket, host, name, None);
        let engine = &saver.engine;
        let settings = RepoDocument::new(Timestamp::from_millis(1), engine.rng.op_id());
        let _ = engine.dirs().root().init(&settings).await.unwrap();
        saver
    }
}

/// A clock that a test sets forward.
#[derive(Debug, Default)]
pub(crate) struct SteppedClock(AtomicU64);

impl SteppedClock {
    /// Lets seconds go by.
    pub(crate) fn step(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn uptime(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

/// A tenant's key.
pub(crate) fn key(digit: u8) -> TenantKey {
    TenantKey::parse(&[digit; 64]).unwrap()
}

/// So many bytes that nothing else has.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next)
        .flatten()
        .take(length)
        .collect()
}

impl Saver {
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> &Self {
        fs::write(self.tree.join(name), bytes).unwrap();
        self
    }

    pub(crate) fn command(&self) -> RepoSave {
        RepoSave::new(&self.tree, self.name.clone())
    }

    /// Saves the tree; says how many bytes were stored for that.
    pub(crate) async fn save(&self) -> u64 {
        let saved = self.engine.dirs().save(self.command()).await.unwrap();
        saved.bytes_stored
    }

    /// Keeps only the newest snapshot, and sweeps the pool.
    pub(crate) async fn gc(&self) -> Result<crate::gc::RepoCollected, Error> {
        let keep = Repository {
            keep_last: Some(1),
            ..Repository::default()
        };
        let command = RepoGc::new(RetentionPolicy::Repository(keep));
        self.engine.dirs().gc(command).await
    }

    /// Leaves garbage and sweeps it, so that an epoch ends.
    pub(crate) async fn end_epoch(&self) {
        let tree = |seed| self.write("passing", &noise(seed, 200_000));
        tree(9001);
        self.save().await;
        tree(9002);
        self.save().await;
        let swept = self.gc().await.unwrap();
        assert!(swept.chunks_removed > 0, "{swept:?}");
    }

    /// The newest snapshot, restored elsewhere, is the tree.
    pub(crate) async fn restores(&self) {
        let target = self.tree.with_extension("restored");
        let _ = fs::remove_dir_all(&target);
        let wanted = SnapshotSelector::new("latest");
        let restored = self
            .engine
            .dirs()
            .restore(RepoRestore::new(wanted, &target));
        let _ = restored.await.unwrap();
        assert_eq!(all(&self.tree), all(&target));
    }

    pub(crate) async fn is_sound(&self) {
        let checked = self.engine.dirs().check(true, Arc::default()).await;
        let checked = checked.unwrap();
        assert!(checked.damage.is_empty(), "{:?}", checked.damage);
    }
}

pub(crate) fn all(tree: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(tree).unwrap();
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    };
    entries.map(read).collect()
}
