//! Three hosts at once on one bucket, by a network that refuses, loses, delays and doubles requests.
//!
//! Each host saves a directory of its own and one that all of them save, forgets, sweeps, forks a profile, copies into another
//! store, and damages an index and repairs it. *Always true when the storm is over:* every snapshot that was acknowledged and
//! not forgotten is listed and restores to its tree, and so does whatever else is listed; what was reported as failed is not there;
//! check is clean, and a sweep leaves nothing unused.
//!
//! *Not shown:* an index is never lost while a gc, a forget or a first save runs; a request is repeated and its outcome read until it
//! is known, so that hardly any save ends in doubt; a copy is made again before it is compared, so that one that was acknowledged
//! and lost is not noticed. No mutant was planted that this must find.
//!
//! Faults are drawn from the seed; which request meets which of them depends on threads too, so that no run can be had again.
//! `STASIS_HOST_SEEDS` says how many seeds are tried.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make the directories that they save"
)]

use super::pool::{Saver, all, key, noise};
use super::{Asked, Rigged, Road, Turn};
use crate::catalog::SnapshotSelector;
use crate::check::Spawn;
use crate::copy::CopySubject;
use crate::error::{Error, ErrorKind, error_chain};
use crate::gc::RepoGc;
use crate::kind::profile::{
    BrowserState, Capture, ForkProfile, LoadOutcome, OnBrowser, ProfileLoad, ProfileSave,
    UpgradeWish,
};
use crate::open::{Engine, LocalDirs};
use crate::repair::Repair;
use crate::restore::RepoRestore;
use crate::save::RepoSave;
use crate::system::{SystemClock, SystemRng};
use stasis_disk::tree::restore::Placement;
use stasis_model::format::lease::Holder;
use stasis_model::format::manifest::{CapturedIn, Mode, SnapshotIndex};
use stasis_model::id::{Label, Lineage, SnapshotId};
use stasis_model::policy::retention::{Repository, RetentionPolicy};
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_store::backend::memory::MemoryBucket;
use stasis_store::bucket::Bucket;
use stasis_store::layout::ChunkRoot;
use stasis_store::retry::{RetrySettings, Retrying};
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::RwLock;
use tokio::time::sleep;

const HOSTS: usize = 3;
/// How many things each host does.
const STEPS: usize = 20;
/// By how many milliseconds a request is late at most.
const LATEST: u64 = 60;
/// The directory that every host saves.
const SHARED: &str = "shared";

/// The contents of a tree.
type Tree = BTreeMap<String, Vec<u8>>;

/// Numbers that look random, the same for the same seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// What goes wrong on the way to the store.
struct Storm {
    draw: Mutex<Draw>,
    /// How many times as bad it is as a bad day.
    severity: u64,
    is_over: AtomicBool,
    faults: AtomicUsize,
    /// The writes of all hosts that are under way.
    road: Road,
}

impl Storm {
    fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            draw: Mutex::new(Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)),
            severity: [1, 2, 4][usize::try_from(seed / 2 % 3).unwrap_or_default()],
            is_over: AtomicBool::new(true),
            faults: AtomicUsize::new(0),
            road: Road::default(),
        })
    }

    /// How long a request is on its way, and what becomes of it then.
    fn fate(&self, asked: &Asked) -> (Duration, Turn) {
        if self.is_over.load(Ordering::Relaxed) {
            return (Duration::ZERO, Turn::Work);
        }
        let mut draw = self.draw.lock().unwrap();
        let way = Duration::from_micros(draw.below(1500));
        let turn = match draw.below(1000 / self.severity) {
            0..25 => Turn::Fail,
            25..40 if asked.writes => Turn::Vanish,
            40..60 if asked.writes => Turn::ApplySilently,
            60..85 if asked.writes => Turn::Late(Duration::from_millis(1 + draw.below(LATEST))),
            85..105 if asked.writes => Turn::Twice,
            _ => return (way, Turn::Work),
        };
        self.faults.fetch_add(1, Ordering::Relaxed);
        (way, turn)
    }

    /// A way through the storm to some objects.
    fn way(self: &Arc<Self>, objects: &Arc<MemoryBucket>) -> Arc<dyn Bucket> {
        let (rigged, storm) = (
            Rigged::along(objects.clone(), self.road.clone()),
            self.clone(),
        );
        rigged.rig(move |asked| {
            let (way, turn) = storm.fate(&asked);
            Box::pin(async move {
                if !way.is_zero() {
                    sleep(way).await;
                }
                turn
            })
        });
        let settings = RetrySettings {
            first_pause: Duration::from_millis(2),
            longest_pause: Duration::from_millis(20),
            deadline: Duration::from_millis(400),
        };
        Arc::new(Retrying::new(rigged, Arc::new(SystemRng), settings))
    }
}

/// A snapshot that was acknowledged.
struct Acknowledged {
    subject: String,
    id: SnapshotId,
    tree: Tree,
    /// Whether somebody asked that it be forgotten.
    may_be_gone: bool,
}

/// What must be true in the end.
#[derive(Default)]
struct Oracle {
    rows: Vec<Acknowledged>,
    /// Trees whose save ended in doubt.
    doubtful: Vec<(String, Tree)>,
    /// Trees whose save failed. An index that is made anew leads to every manifest that is whole, published or not (ADR 66).
    failed_saves: Vec<(String, Tree)>,
    forks: Vec<Lineage>,
    /// How many things were done, and how many failed.
    done: usize,
    failed: usize,
}

/// What all hosts share.
struct Scene {
    home: TempDir,
    objects: Arc<MemoryBucket>,
    /// Another store, for copies.
    elsewhere: Arc<MemoryBucket>,
    storm: Arc<Storm>,
    is_encrypted: bool,
    oracle: Mutex<Oracle>,
    /// A disaster does not happen while manifests are removed, for what a lost index had condemned is gone for whoever removes it;
    /// nor while a first index is made, by somebody who looked before there was one.
    removing: RwLock<()>,
    /// Indexes that are damaged now, and how often one was.
    hurt_now: AtomicUsize,
    hurts: AtomicUsize,
    seed: u64,
}

impl Scene {
    fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            home: tempfile::tempdir().unwrap(),
            objects: Arc::default(),
            elsewhere: Arc::default(),
            storm: Storm::new(seed),
            is_encrypted: seed.is_multiple_of(2),
            oracle: Mutex::default(),
            removing: RwLock::default(),
            hurt_now: AtomicUsize::new(0),
            hurts: AtomicUsize::new(0),
            seed,
        })
    }

    fn engine(&self, host: &str, store: &str) -> Engine {
        let objects = match store {
            "here" => &self.objects,
            _ => &self.elsewhere,
        };
        let place = |what: &str| Some(self.home.path().join(host).join(what));
        let local_dirs = LocalDirs {
            cache: place("cache"),
            state: place("state"),
        };
        let location = format!("s3://{store}/hosts").parse().unwrap();
        let (clock, rng) = (Arc::new(SystemClock), Arc::new(SystemRng));
        let engine = Engine::over(self.storm.way(objects), location, local_dirs, clock, rng);
        let engine = engine.with_provisional_after(Duration::from_millis(4));
        if self.is_encrypted {
            engine.with_key(key(b'a'))
        } else {
            engine
        }
    }

    fn saver(&self, host: &str, name: &str) -> Saver {
        let layout = ChunkRoot::project(&"acme".parse().unwrap(), &name.parse().unwrap());
        let engine = self.engine(host, "here").rooted(layout);
        let tree = self.home.path().join(host).join(name);
        fs::create_dir_all(&tree).unwrap();
        let name = name.parse().unwrap();
        Saver { engine, name, tree }
    }

    fn holder() -> Holder {
        Holder {
            run_id: "run".parse().unwrap(),
            host: "host".parse().unwrap(),
            host_run_id: Label::nobody(),
        }
    }

    fn spawn() -> Spawn {
        Spawn {
            program: "/bin/false".into(),
            arguments: Vec::new(),
        }
    }

    /// Makes the pools and the profile that is forked.
    async fn begin(&self) {
        for store in ["here", "elsewhere"] {
            let engine = self.engine("first", store);
            engine.store().ensure_trusted().await.unwrap();
        }
        let first = self.saver("first", "first");
        let dirs = first.engine.dirs();
        dirs.make_pool(&dirs.root()).await.map(drop).unwrap();
        let dir = self.home.path().join("profile");
        fs::create_dir_all(dir.join("Default")).unwrap();
        fs::write(dir.join("Last Version"), "131.0.6778.85").unwrap();
        fs::write(dir.join("Default/state"), noise(3, 5_000)).unwrap();
        let capture = Capture {
            dir,
            base: None,
            upgraded_from: None,
            held_back: false,
            exclude_caches: false,
            accept_shrink: false,
            holder: Self::holder(),
            captured_in: CapturedIn::default(),
            notes: String::new(),
            browser: BrowserState::default(),
            spawn: Self::spawn(),
            progress: Arc::default(),
            cancel: Arc::default(),
        };
        let save = ProfileSave {
            subject: "acme/alice@131".parse().unwrap(),
            chrome_major: None,
            capture,
            base: None,
            mode: Mode::Cold,
            browser: OnBrowser::Refuse,
            close_timeout: Duration::from_secs(2),
            force: false,
            wait: None,
            token: None,
        };
        let _ = self
            .engine("first", "here")
            .profiles()
            .save(save)
            .await
            .unwrap();
    }

    /// Damage is met only where somebody did some.
    fn allows(&self, error: &Error, hurts_before: (usize, usize)) -> bool {
        let hurts = (
            self.hurt_now.load(Ordering::SeqCst),
            self.hurts.load(Ordering::SeqCst),
        );
        match error.kind() {
            ErrorKind::Retry
            | ErrorKind::Unreachable
            | ErrorKind::Unknown
            | ErrorKind::Conflict
            | ErrorKind::Diverged
            | ErrorKind::Fenced => true,
            ErrorKind::Corrupt => hurts_before.0 + hurts.0 > 0 || hurts_before.1 != hurts.1,
            _ => false,
        }
    }

    async fn index_of(&self, name: &str) -> SnapshotIndex {
        let saver = self.saver("judge", name);
        let index = saver.engine.dirs().root().index().await.unwrap();
        index.map_or_else(SnapshotIndex::empty, |found| found.value)
    }

    async fn restored(&self, saver: &Saver, snapshot: SnapshotRef) -> Result<Tree, Error> {
        let scratch = tempfile::tempdir_in(self.home.path()).unwrap();
        let target = scratch.path().join("restored");
        let restore = RepoRestore::new(SnapshotSelector::new(snapshot), &target);
        let _ = saver.engine.dirs().restore(restore).await?;
        Ok(all(&target))
    }

    /// Every snapshot that a subject must have, and none that it must not.
    async fn judge(&self, name: &str) {
        let (saver, index) = (self.saver("judge", name), self.index_of(name).await);
        let (kept, known): (Vec<SnapshotId>, BTreeMap<SnapshotId, Tree>) = {
            let oracle = self.oracle.lock().unwrap();
            let mine = || oracle.rows.iter().filter(|row| row.subject == name);
            let kept = mine().filter(|row| !row.may_be_gone);
            let known = mine().map(|row| (row.id.clone(), row.tree.clone()));
            (kept.map(|row| row.id.clone()).collect(), known.collect())
        };
        for id in &kept {
            assert!(index.find(id).is_some(), "{name} lost {id}: {index:?}");
        }
        for row in &index.snapshots {
            let restored = self.restored(&saver, row.id.as_str().parse().unwrap());
            let restored = restored.await;
            let restored = restored.unwrap_or_else(|error| {
                panic!(
                    "seed {}: {name} {}: {}",
                    self.seed,
                    row.id,
                    error_chain(&error)
                )
            });
            if let Some(tree) = known.get(&row.id) {
                assert_eq!(restored, *tree, "{name} {}", row.id);
                continue;
            }
            let tree = (name.to_owned(), restored);
            let is_made_anew = self.hurts.load(Ordering::SeqCst) > 0;
            let oracle = self.oracle.lock().unwrap();
            let is_known = oracle.doubtful.contains(&tree)
                || (is_made_anew && oracle.failed_saves.contains(&tree));
            assert!(is_known, "{name} {}: nobody was told of it", row.id);
        }
    }

    /// Every fork that was acknowledged is the profile.
    async fn judge_forks(&self) {
        let wanted = noise(3, 5_000);
        let forks = std::mem::take(&mut self.oracle.lock().unwrap().forks);
        for (number, lineage) in forks.into_iter().enumerate() {
            let dir = self.home.path().join(format!("fork-{number}"));
            let load = ProfileLoad {
                lineage,
                dir: dir.clone(),
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
            let loaded = self.engine("judge", "here").profiles().load(load).await;
            assert_eq!(loaded.unwrap().outcome, LoadOutcome::Success);
            assert_eq!(fs::read(dir.join("Default/state")).unwrap(), wanted);
        }
    }

    /// What was copied is what it was copied from; what was not is copied now.
    async fn judge_copies(&self, name: &str) {
        let from = self.saver("judge", name);
        if self.index_of(name).await.snapshots.is_empty() {
            return;
        }
        let to = self.engine("judge", "elsewhere");
        let what = CopySubject::Directory {
            tenant: "acme".parse().unwrap(),
            id: name.parse().unwrap(),
        };
        let copied = from.engine.copy_to(&to, what, Arc::default()).await;
        let _ = copied.unwrap_or_else(|error| panic!("{name}: {}", error_chain(&error)));
        let layout = from.engine.chunk_root.clone();
        let copy = Saver {
            engine: to.rooted(layout),
            name: from.name.clone(),
            tree: from.tree.clone(),
        };
        let dirs = copy.engine.dirs();
        let known: BTreeMap<SnapshotId, Tree> = {
            let oracle = self.oracle.lock().unwrap();
            let rows = oracle.rows.iter();
            rows.map(|row| (row.id.clone(), row.tree.clone())).collect()
        };
        for row in dirs.index(&dirs.root()).await.unwrap().snapshots {
            let original = row.copied_from.as_ref().unwrap().snapshot_id.clone();
            let restored = self.restored(&copy, row.id.as_str().parse().unwrap());
            let restored = restored.await.unwrap();
            let Some(tree) = known.get(&original) else {
                continue;
            };
            assert_eq!(restored, *tree, "{name} {original}");
        }
        copy.is_sound().await;
    }

    async fn settle_down(&self) {
        self.storm.is_over.store(true, Ordering::Relaxed);
        // What is late lands.
        drop(self.storm.road.write().await);
        let mut names: Vec<String> = (0..HOSTS).map(|host| format!("own-{host}")).collect();
        names.push(SHARED.to_owned());
        for name in &names {
            self.judge(name).await;
        }
        let all = self.engine("judge", "here");
        for _ in 0..2 {
            let pool = all.rooted(ChunkRoot::pool(&"acme".parse().unwrap()));
            let checked = pool.dirs().check(true, Arc::default()).await.unwrap();
            assert!(checked.damage.is_empty(), "{:?}", checked.damage);
            pool.dirs().gc(sweep(None)).await.unwrap();
            let stats = pool.dirs().stats().await.unwrap();
            assert_eq!(stats.chunks_unused, 0);
            for name in &names {
                self.judge(name).await;
            }
        }
        for name in &names {
            Box::pin(self.judge_copies(name)).await;
        }
        self.judge_forks().await;
    }
}

/// Removes what nothing needs; and snapshots, if only so many are kept.
fn sweep(keep_last: Option<u64>) -> RepoGc {
    let policy = match keep_last {
        None => RetentionPolicy::KeepAll,
        keep_last => RetentionPolicy::Repository(Repository {
            keep_last,
            ..Repository::default()
        }),
    };
    RepoGc::new(policy)
}

struct Host {
    scene: Arc<Scene>,
    number: usize,
    own: Saver,
    shared: Saver,
    copies: Engine,
    draw: Draw,
}

impl Host {
    fn new(scene: &Arc<Scene>, number: usize) -> Self {
        let host = format!("host-{number}");
        Self {
            scene: scene.clone(),
            number,
            own: scene.saver(&host, &format!("own-{number}")),
            shared: scene.saver(&host, SHARED),
            copies: scene.engine(&host, "elsewhere"),
            draw: Draw(scene.seed.wrapping_add(77 * number as u64 + 1) | 1),
        }
    }

    async fn live(mut self) {
        for step in 0..STEPS {
            let before = (
                self.scene.hurt_now.load(Ordering::SeqCst),
                self.scene.hurts.load(Ordering::SeqCst),
            );
            let done = match self.draw.below(16) {
                0..5 => self.save(false, step).await,
                5..8 => self.save(true, step).await,
                8 => self.forget().await,
                9..11 => self.sweep().await,
                11 => self.fork(step).await,
                12 => self.copy().await,
                13 => self.restore(false).await,
                14 => self.restore(true).await,
                _ => self.hurt_and_repair(step).await,
            };
            let mut oracle = self.scene.oracle.lock().unwrap();
            oracle.done += 1;
            if let Err(error) = done {
                oracle.failed += 1;
                let (seed, said) = (self.scene.seed, error_chain(&error));
                let is_allowed = self.scene.allows(&error, before);
                assert!(is_allowed, "seed {seed}: {:?} {said}", error.kind());
            }
        }
    }

    fn saver(&self, shared: bool) -> &Saver {
        if shared { &self.shared } else { &self.own }
    }

    async fn save(&mut self, shared: bool, step: usize) -> Result<(), Error> {
        // The same contents turn up in all trees, go away, and come back.
        let (small, large) = (self.draw.below(9), 20 + self.draw.below(9));
        let saver = self.saver(shared);
        saver.write("small", &noise(small, 3_000));
        saver.write("large", &noise(large, 60_000));
        let mark = format!("{} {step}", self.number);
        saver.write("mark", mark.as_bytes());
        let tree = all(&saver.tree);
        let mut command = RepoSave::new(&saver.tree, saver.name.clone());
        command.allow_shrink = true;
        let is_first = self.scene.index_is_empty(saver.name.as_str()).await;
        let _first = if is_first {
            Some(self.scene.removing.read().await)
        } else {
            None
        };

        let result = saver.engine.dirs().save(command).await;

        let mut oracle = self.scene.oracle.lock().unwrap();
        let subject = saver.name.to_string();
        match result {
            Ok(done) => oracle.rows.push(Acknowledged {
                subject,
                id: done.snapshot_id,
                tree,
                may_be_gone: false,
            }),
            Err(error) => {
                let kept_in = match error.kind() {
                    ErrorKind::Unknown => &mut oracle.doubtful,
                    _ => &mut oracle.failed_saves,
                };
                kept_in.push((subject, tree));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Lets the oldest snapshot of its own go, by name, or all but some.
    async fn forget(&mut self) -> Result<(), Error> {
        let is_prune = self.draw.below(2) == 0;
        let _removing = self.scene.removing.read().await;
        let name = self.own.name.to_string();
        let oldest = {
            let mut oracle = self.scene.oracle.lock().unwrap();
            let mine = oracle.rows.iter_mut().filter(|row| row.subject == name);
            let mut mine: Vec<&mut Acknowledged> = mine.filter(|row| !row.may_be_gone).collect();
            // The newest stays, whatever else is kept.
            mine.pop();
            let Some(oldest) = mine.first().map(|row| row.id.clone()) else {
                return Ok(());
            };
            let going = if is_prune { mine.len() } else { 1 };
            for row in mine.into_iter().take(going) {
                row.may_be_gone = true;
            }
            oldest
        };
        let dirs = self.own.engine.dirs();
        if is_prune {
            let mut prune = sweep(Some(STEPS as u64 / 2));
            prune.name = Some(self.own.name.clone());
            return dirs.gc(prune).await.map(drop);
        }
        dirs.forget(&[oldest]).await.map(drop)
    }

    async fn sweep(&mut self) -> Result<(), Error> {
        let _removing = self.scene.removing.read().await;
        self.own.engine.dirs().gc(sweep(None)).await.map(drop)
    }

    async fn fork(&mut self, step: usize) -> Result<(), Error> {
        let target = format!("acme/fork-{}-{step}@131", self.number);
        let fork = ForkProfile {
            source: "acme/alice@131".parse().unwrap(),
            sha: None,
            target: target.parse().unwrap(),
            holder: Scene::holder(),
        };
        let forked = self.own.engine.profiles().fork(&fork).await?;
        self.scene.oracle.lock().unwrap().forks.push(forked.subject);
        Ok(())
    }

    async fn copy(&mut self) -> Result<(), Error> {
        let name = self.own.name.to_string();
        if self.scene.index_is_empty(&name).await {
            return Ok(());
        }
        let what = CopySubject::Directory {
            tenant: "acme".parse().unwrap(),
            id: name.parse().unwrap(),
        };
        let copied = self
            .own
            .engine
            .copy_to(&self.copies, what, Arc::default())
            .await;
        copied.map(drop)
    }

    /// What is latest now is a tree that somebody saved.
    async fn restore(&mut self, shared: bool) -> Result<(), Error> {
        let saver = self.saver(shared);
        let name = saver.name.to_string();
        if self.scene.index_is_empty(&name).await {
            return Ok(());
        }
        let tree = self
            .scene
            .restored(saver, SnapshotRef::from("latest"))
            .await?;
        // Whoever saved it may not have been told yet; but it is a tree that one of them wrote.
        assert_eq!(tree.len(), 3);
        let is_whole = (0..9).any(|seed| tree["small"] == noise(seed, 3_000))
            && (20..29).any(|seed| tree["large"] == noise(seed, 60_000));
        assert!(is_whole, "{name}");
        Ok(())
    }

    /// Loses or damages the index of a subject, and makes it anew.
    async fn hurt_and_repair(&mut self, step: usize) -> Result<(), Error> {
        let (shared, lost) = (self.draw.below(2) == 0, self.draw.below(2) == 0);
        // Without disasters nobody ever meets damage.
        if self.scene.seed.is_multiple_of(3) || step < 4 {
            return Ok(());
        }
        let saver = self.saver(shared);
        if !self.scene.hurt(saver, lost).await {
            return Ok(());
        }
        let repaired = self.scene.repaired(saver).await;
        {
            let oracle = self.scene.oracle.lock().unwrap();
            for left in &repaired.left_out {
                let mut kept = oracle.rows.iter().filter(|row| !row.may_be_gone);
                let is_kept = kept.any(|row| row.id.as_str() == left.snapshot);
                assert!(!is_kept, "seed {}: {left:?}", self.scene.seed);
            }
        }
        self.scene.hurts.fetch_add(1, Ordering::SeqCst);
        self.scene.hurt_now.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

impl Scene {
    /// Loses or damages the index of a subject, one at a time; says whether it did.
    async fn hurt(&self, saver: &Saver, lost: bool) -> bool {
        let _alone = self.removing.write().await;
        // Nothing that was to be removed is under way any more, nor is an index that somebody makes.
        let _empty = self.storm.road.write().await;
        let is_hurt = self.hurt_now.fetch_add(1, Ordering::SeqCst) > 0;
        if is_hurt || self.index_is_empty(saver.name.as_str()).await {
            self.hurt_now.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        self.hurts.fetch_add(1, Ordering::SeqCst);
        let index = saver.engine.chunk_root.index();
        if lost {
            self.objects.delete(&index).await.unwrap();
        } else {
            self.objects.put(&index, "{\"ver".into()).await.unwrap();
        }
        true
    }

    /// Repairs a subject, as often as that takes.
    async fn repaired(&self, saver: &Saver) -> Repair {
        let mut leave_out = false;
        for _ in 0..60 {
            let nobody = Label::nobody();
            let repaired = saver.engine.dirs().repair(&nobody, leave_out);
            let error = match repaired.await {
                Ok(repaired) => return repaired,
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::Unreachable | ErrorKind::Retry | ErrorKind::Unknown => {}
                // Something is there that nobody was told of, and that is not whole.
                ErrorKind::Limit if !leave_out => leave_out = true,
                kind => panic!("seed {}: {kind:?} {}", self.seed, error_chain(&error)),
            }
        }
        panic!("seed {}: the repair never ends", self.seed)
    }

    /// Whether nothing is published of a subject, as somebody sees who has a better network.
    async fn index_is_empty(&self, name: &str) -> bool {
        let layout = ChunkRoot::project(&"acme".parse().unwrap(), &name.parse().unwrap());
        let found = self.objects.get(&layout.index(), 1 << 20).await.unwrap();
        let body = found.map(|found| found.body).unwrap_or_default();
        let index: Option<SnapshotIndex> = stasis_model::format::document::parse(&body).ok();
        index.is_none_or(|index| index.snapshots.is_empty())
    }
}

async fn lived_through(seed: u64) -> Oracle {
    let scene = Scene::new(seed);
    scene.begin().await;
    scene.storm.is_over.store(false, Ordering::Relaxed);
    let hosts = (0..HOSTS).map(|number| tokio::spawn(Host::new(&scene, number).live()));
    for host in hosts.collect::<Vec<_>>() {
        host.await
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    Box::pin(scene.settle_down()).await;
    let faults = scene.storm.faults.load(Ordering::Relaxed);
    assert!(faults > 10, "seed {seed}: {faults} faults");
    let hurts = scene.hurts.load(Ordering::SeqCst) / 2;
    let oracle = std::mem::take(&mut *scene.oracle.lock().unwrap());
    println!(
        "seed {seed}: {} things done, {} failed, {} saves in doubt, {faults} faults, {hurts} indexes made anew",
        oracle.done,
        oracle.failed,
        oracle.doubtful.len(),
    );
    oracle
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_published_snapshot_of_three_hosts_outlives_the_storm() {
    let asked = std::env::var("STASIS_HOST_SEEDS").ok();
    let seeds: u64 = asked.and_then(|asked| asked.parse().ok()).unwrap_or(3);
    let first = std::env::var("STASIS_HOST_SEED").ok();
    let first: u64 = first.and_then(|first| first.parse().ok()).unwrap_or(1);
    let (mut done, mut failed) = (0, 0);
    for seed in first..first + seeds {
        let oracle = Box::pin(lived_through(seed)).await;
        done += oracle.done;
        failed += oracle.failed;
    }
    assert!(failed > 0 && failed < done / 2, "{failed} of {done}");
}
