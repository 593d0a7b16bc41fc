//! How much of a changed profile is sent to a real S3 server, and what comes back of it.

use super::orphans::{Moved, real_bucket};
use super::{Counting, World};
use crate::keys::TenantKey;
use crate::kind::profile::capture::{ProfileSaved, SaveOutcome};
use crate::kind::profile::load::LoadOutcome;
use crate::open::{Engine, LocalDirs, StoreLocation};
use stasis_store::bucket::Bucket;
use stasis_store::layout::Key;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const MIB: usize = 1 << 20;

/// Bytes that do not compress.
fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

/// A profile of thirty mebibytes in three files, and hosts that share a store.
struct LargeProfile {
    world: World,
    bucket: Arc<dyn Bucket>,
    here: Engine,
    there: Engine,
}

impl LargeProfile {
    fn new(bucket: Arc<dyn Bucket>, is_encrypted: bool) -> Self {
        let world = World::new();
        for number in 0..3 {
            let file = world.dir().join(format!("Default/large-{number}"));
            fs::write(file, noise(number, 10 * MIB)).unwrap();
        }
        let host = |name: &str| host(&world, bucket.clone(), is_encrypted, name);
        let (here, there) = (host("here"), host("there"));
        Self {
            world,
            bucket,
            here,
            there,
        }
    }

    async fn save(&self) -> ProfileSaved {
        let saved = self.here.profiles().save(self.world.saving()).await;
        let saved = saved.unwrap();
        assert_eq!(saved.outcome, SaveOutcome::Captured);
        saved
    }

    /// Changes 200 KiB in the middle of a file.
    fn change(&self) {
        let file = self.world.dir().join("Default/large-1");
        let mut bytes = fs::read(&file).unwrap();
        bytes[5 * MIB..5 * MIB + 200 * 1024].copy_from_slice(&noise(9, 200 * 1024));
        fs::write(file, bytes).unwrap();
    }

    /// Another host gets what is here.
    async fn comes_back(&self) {
        let loaded = self.world.load_by(&self.there, "there").await;
        assert_eq!(loaded.unwrap().outcome, LoadOutcome::Success);
        let there = self.world.home.path().join("there");
        assert_eq!(files(&self.world.dir()), files(&there));
    }
}

fn host(world: &World, bucket: Arc<dyn Bucket>, is_encrypted: bool, name: &str) -> Engine {
    let place = |kind: &str| Some(world.home.path().join(format!("{kind}-{name}")));
    let local_dirs = LocalDirs {
        cache: place("cache"),
        state: place("state"),
    };
    let (clock, rng) = (Arc::new(Moved::default()), Arc::new(Counting::seeded(name)));
    let engine = Engine::over(bucket, StoreLocation::Memory, local_dirs, clock, rng);
    if is_encrypted {
        engine.with_key(TenantKey::parse(&[b'a'; 64]).unwrap())
    } else {
        engine
    }
}

/// Every file of a profile that a browser may have written, with its bytes.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = ["", "Default"]
        .into_iter()
        .flat_map(|inner| fs::read_dir(dir.join(inner)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            (name, fs::read(&path).unwrap())
        })
        .collect();
    found.sort();
    found
}

#[tokio::test]
async fn of_thirty_mebibytes_of_which_little_changed_less_than_eight_are_sent() {
    for (place, is_encrypted) in [("derived", false), ("derived-encrypted", true)] {
        let Some(bucket) = real_bucket(place) else {
            return;
        };
        let large = LargeProfile::new(Arc::new(bucket), is_encrypted);
        let first = large.save().await;
        large.change();

        let second = large.save().await;

        assert_eq!(first.bytes_uploaded, first.archive_bytes);
        assert!(second.archive_bytes > 30 << 20, "{second:?}");
        assert!(second.bytes_uploaded <= 8 << 20, "{second:?}");
        println!(
            "{place}: {} of {}",
            second.bytes_uploaded, second.archive_bytes
        );
        large.comes_back().await;
    }
}

#[tokio::test]
async fn everything_is_sent_when_the_base_is_gone_or_rotten() {
    for rots in [false, true] {
        let Some(bucket) = real_bucket(&format!("derived-{rots}")) else {
            return;
        };
        let large = LargeProfile::new(Arc::new(bucket), false);
        let _ = large.save().await;
        let pointer = large.here.lineages.pointer(&large.world.lineage).await;
        let active = pointer.unwrap().unwrap().value.active.unwrap();
        let base = Key::from_listing(&active.archive_key).unwrap();
        let whole = large
            .bucket
            .get(&base, u64::MAX)
            .await
            .unwrap()
            .unwrap()
            .body;
        large.bucket.delete(&base).await.unwrap();
        if rots {
            let mut rotten = whole.to_vec();
            rotten[MIB] ^= 1;
            large.bucket.put(&base, rotten.into()).await.unwrap();
        }
        large.change();

        let second = large.save().await;

        assert_eq!(second.bytes_uploaded, second.archive_bytes);
        large.comes_back().await;
    }
}

#[tokio::test]
async fn everything_is_sent_to_a_store_that_cannot_copy() {
    let bucket: Arc<dyn Bucket> = World::new().bucket.inner.clone();
    let large = LargeProfile::new(bucket, false);
    let _ = large.save().await;
    large.change();

    let second = large.save().await;

    assert_eq!(second.bytes_uploaded, second.archive_bytes);
    assert!(second.bytes_reused > 25 << 20, "{second:?}");
    large.comes_back().await;
}
