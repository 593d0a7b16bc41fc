//! Profiles in a store that fails at the worst moment.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make the directories that they save"
)]

mod browser;
mod derived;
mod keys;
mod orphans;
mod publish;
mod quotas;
mod requests;
mod shown;
mod swept;

use super::capture::{BrowserState, Capture, ProfileSaved};
use super::load::{LoadOutcome, ProfileLoad, ProfileLoaded, UpgradeWish};
use super::save::{OnBrowser, ProfileSave};
use crate::check::Spawn;
use crate::error::Error;
use crate::lease::ForceUnlock;
use crate::open::{Engine, LocalDirs, StoreLocation};
use crate::rigged::{self, Rigged};
use stasis_disk::tree::restore::Placement;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::lease::Holder;
use stasis_model::format::manifest::{CapturedIn, Mode};
use stasis_model::format::pointer::Pointer;
use stasis_model::id::{Label, Lineage, OpId};
use stasis_model::rng::Rng;
use stasis_model::time::{Clock, Timestamp};
use stasis_store::bucket::Bucket;
use stasis_store::documents::profiles::LineageSnapshots;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// A clock that stands still until somebody moves it.
#[derive(Debug)]
struct Still(AtomicU64);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl Counting {
    /// One that gives other ids than those of other hosts.
    fn seeded(name: &str) -> Self {
        let seed = name
            .bytes()
            .fold(1, |seed, byte| seed * 31 + u64::from(byte));
        Self(AtomicU64::new(seed << 20))
    }
}

impl Rng for Counting {
    fn op_id(&self) -> OpId {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        OpId::from_random(u128::from(count).to_be_bytes())
    }

    fn below(&self, bound: u64) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) % bound.max(1)
    }
}

/// One host, and a store that can be rigged.
struct World {
    home: TempDir,
    bucket: Arc<Rigged>,
    clock: Arc<Still>,
    rng: Arc<Counting>,
    engine: Engine,
    lineage: Lineage,
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let bucket = Arc::new(Rigged::default());
        let clock = Arc::new(Still(AtomicU64::new(1_700_000_000_000)));
        let rng = Arc::new(Counting::default());
        let local_dirs = LocalDirs {
            cache: Some(home.path().join("cache")),
            state: Some(home.path().join("state")),
        };
        let engine = Engine::over(
            bucket.clone(),
            StoreLocation::Memory,
            local_dirs,
            clock.clone(),
            rng.clone(),
        );
        fs::create_dir_all(home.path().join("p/Default")).unwrap();
        fs::write(home.path().join("p/Last Version"), "131.0.6778.85").unwrap();
        let lineage = "acme/alice@131".parse().unwrap();
        Self {
            home,
            bucket,
            clock,
            rng,
            engine,
            lineage,
        }
    }

    /// Another host, with nothing in its cache and a network that never fails.
    fn elsewhere(&self) -> Engine {
        let number = self.rng.0.fetch_add(1, Ordering::Relaxed);
        let place = |name: &str| Some(self.home.path().join(format!("{name}-{number}")));
        let local_dirs = LocalDirs {
            cache: place("cache"),
            state: place("state"),
        };
        let bucket: Arc<dyn Bucket> = self.bucket.inner.clone();
        let (clock, rng) = (self.clock.clone(), self.rng.clone());
        Engine::over(bucket, StoreLocation::Memory, local_dirs, clock, rng)
    }

    /// Another host, with nothing in its cache, whose requests are counted.
    fn elsewhere_counted(&self) -> Engine {
        let host = self.elsewhere();
        let (clock, rng) = (self.clock.clone(), self.rng.clone());
        let location = StoreLocation::Memory;
        Engine::over(self.bucket.clone(), location, host.local_dirs, clock, rng)
    }

    /// The directory of the profile.
    fn dir(&self) -> PathBuf {
        self.home.path().join("p")
    }

    /// The browser leaves something in the directory.
    fn change(&self, text: &str) {
        fs::write(self.dir().join("Default/state"), text).unwrap();
    }

    fn later(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.clock.0.fetch_add(by, Ordering::Relaxed);
    }

    fn spawn() -> Spawn {
        Spawn {
            program: "/bin/false".into(),
            arguments: Vec::new(),
        }
    }

    fn capture(&self) -> Capture {
        Capture {
            dir: self.dir(),
            base: None,
            upgraded_from: None,
            held_back: false,
            exclude_caches: false,
            accept_shrink: false,
            holder: Holder {
                run_id: "run".parse().unwrap(),
                host: "host".parse().unwrap(),
                host_run_id: Label::nobody(),
            },
            captured_in: CapturedIn::default(),
            notes: String::new(),
            browser: BrowserState::default(),
            spawn: Self::spawn(),
            progress: Arc::default(),
            cancel: Arc::default(),
        }
    }

    fn saving(&self) -> ProfileSave {
        ProfileSave {
            subject: "acme/alice@131".parse().unwrap(),
            chrome_major: None,
            capture: self.capture(),
            base: None,
            mode: Mode::Cold,
            browser: OnBrowser::Refuse,
            close_timeout: Duration::from_secs(2),
            force: false,
            wait: None,
            token: None,
        }
    }

    async fn save(&self) -> Result<ProfileSaved, Error> {
        self.engine.profiles().save(self.saving()).await
    }

    /// Saves what the browser leaves; that must work.
    async fn saved(&self, text: &str) -> ArchiveDigest {
        self.change(text);
        self.save().await.unwrap().sha256
    }

    async fn load_by(&self, engine: &Engine, name: &str) -> Result<ProfileLoaded, Error> {
        let load = ProfileLoad {
            lineage: self.lineage.clone(),
            dir: self.home.path().join(name),
            placement: Placement::Replace,
            exactly: None,
            on_failure: None,
            upgrade: UpgradeWish::default(),
            cold_only: false,
            region: None,
            actor: Label::nobody(),
            spawn: Self::spawn(),
            progress: Arc::default(),
            cancel: Arc::default(),
        };
        engine.profiles().load(load).await
    }

    fn state_in(&self, name: &str) -> String {
        fs::read_to_string(self.home.path().join(name).join("Default/state")).unwrap()
    }

    /// What the browser left, as another host gets it back.
    async fn restored(&self, host: &Engine) -> String {
        let loaded = self.load_by(host, "restored").await.unwrap();
        assert_eq!(loaded.outcome, LoadOutcome::Success, "{loaded:?}");
        self.state_in("restored")
    }

    async fn pointer(&self) -> Pointer {
        let pointer = self.elsewhere().lineages.pointer(&self.lineage).await;
        pointer.unwrap().unwrap().value
    }

    /// Throws whoever owns the profile out.
    async fn unlock(&self) {
        let unlock = ForceUnlock {
            lineage: self.lineage.clone(),
            seen: None,
            reason: Label::nobody(),
            actor: Label::nobody(),
        };
        self.elsewhere()
            .leases()
            .force_unlock(unlock)
            .await
            .unwrap();
    }

    /// Looks whether every snapshot is whole, and the pointer leads to one of them; says how many there are.
    async fn nothing_dangles(&self) -> usize {
        let bucket: &dyn Bucket = &*self.bucket.inner;
        let all = LineageSnapshots::of(bucket, &self.lineage)
            .all()
            .await
            .unwrap();
        assert!(all.orphans.is_empty() && all.unfit.is_empty(), "{all:?}");
        for one in &all.snapshots {
            assert_eq!(one.archive_size, Some(one.manifest.archive_size_bytes));
        }
        let active = self.pointer().await.active_archive();
        let shown = all.snapshots.iter().map(|one| Some(one.active.archive));
        assert!(shown.clone().any(|one| one == active), "{active:?}");
        shown.count()
    }
}
