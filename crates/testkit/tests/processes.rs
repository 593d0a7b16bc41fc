//! Real processes that race, die and stand still, on a directory and on a real S3 server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "proofs say what they counted")]

use stasis_engine::bridge;
use stasis_engine::open::{AwsSettings, Engine, LocalDirs, Open, Secret};
use stasis_model::digest::ArchiveDigest;
use stasis_model::rng::Rng;
use stasis_store::backend::file::FileBucket;
use stasis_store::bucket::Bucket;
use stasis_store::layout::{self, Key};
use stasis_testkit::race::{TTL, lineage};
use stasis_testkit::real_time::{RealClock, SystemRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

const RACER: &str = env!("CARGO_BIN_EXE_racer");

/// A process that is killed when the test ends, however it ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, signal);
    }

    fn is_done(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

#[test]
fn eight_processes_count_to_four_thousand_exactly() {
    let home = tempfile::tempdir().unwrap();
    let counter = || {
        let arguments = ["count", home.path().to_str().unwrap(), "500"];
        Running(Command::new(RACER).args(arguments).spawn().unwrap())
    };

    let mut counters: Vec<Running> = (0..8).map(|_| counter()).collect();
    let all_well = counters
        .iter_mut()
        .all(|counter| counter.0.wait().unwrap().success());

    assert!(all_well);
    assert_eq!(counted(home.path()), 4000);
}

fn counted(home: &Path) -> u64 {
    let home = home.to_owned();
    let key = Key::from_listing("meta/counter").unwrap();
    let read = async move {
        let bucket = FileBucket::open(home).await.unwrap();
        bucket.get(&key, 1024).await.unwrap().unwrap().body
    };
    let body = bridge::run(read).unwrap();
    String::from_utf8_lossy(&body)
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn a_store_whose_writers_are_killed_at_any_moment_stays_readable() {
    let home = tempfile::tempdir().unwrap();
    let mut before = 0;

    for round in 0..40 {
        let arguments = ["count", home.path().to_str().unwrap(), "100000"];
        let mut writers: Vec<Running> = (0..3)
            .map(|_| Running(Command::new(RACER).args(arguments).spawn().unwrap()))
            .collect();
        std::thread::sleep(Duration::from_millis(20 + SystemRng.below(80)));
        for writer in &mut writers {
            writer.0.kill().unwrap();
        }
        drop(writers);

        if home.path().join("meta/counter").exists() {
            let now = counted(home.path());
            assert!(
                now >= before,
                "round {round}: the counter went back from {before} to {now}"
            );
            before = now;
        }
    }
    assert!(before > 0, "nobody ever counted");
}

#[test]
fn racers_on_a_directory_never_lose_an_update() {
    let home = tempfile::tempdir().unwrap();
    let store = format!("file://{}", home.path().join("store").display());

    race(&store, home.path(), publishes(200));
}

#[test]
fn racers_on_a_real_s3_server_never_lose_an_update() {
    let Ok(store) = std::env::var("STASIS_TEST_S3") else {
        assert!(
            std::env::var("STASIS_REQUIRE_PARTS").is_err(),
            "STASIS_TEST_S3 is not set: run scripts/test"
        );
        println!("skipped: no S3 server; scripts/with-s3 starts one");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let store = store.replace("/test?", &format!("/race-{}?", SystemRng.op_id()));

    race(&store, home.path(), publishes(150));
}

fn publishes(usual: usize) -> usize {
    std::env::var("STASIS_RACE_PUBLISHES")
        .ok()
        .and_then(|publishes| publishes.parse().ok())
        .unwrap_or(usual)
}

/// Three racers, of whom one at a time is killed, or stands still for longer than its lease.
fn race(store: &str, home: &Path, publishes: usize) {
    let mut race = Race {
        store: store.to_owned(),
        home: home.to_owned(),
        started: 0,
        racers: Vec::new(),
    };
    for _ in 0..3 {
        race.start(publishes);
    }
    let journals = race.until(publishes);
    drop(race.racers);

    let chain = bridge::run(chain(store.to_owned(), home.to_owned())).unwrap();
    let journal =
        |word: &str| -> BTreeSet<String> { journals.get(word).cloned().unwrap_or_default() };
    let lost: Vec<String> = journal("ok").difference(&chain).cloned().collect();
    let lies: Vec<String> = journal("refused")
        .union(&journal("fenced"))
        .filter(|sha| chain.contains(*sha))
        .cloned()
        .collect();
    println!(
        "{} acknowledged, {} in the chain, {} fenced, {} refused, {} unknown, {} owners",
        journal("ok").len(),
        chain.len(),
        journal("fenced").len(),
        journal("refused").len(),
        journal("unknown").len(),
        journal("owns").len()
    );
    assert_eq!(
        lost,
        Vec::<String>::new(),
        "acknowledged, but not in the history"
    );
    assert_eq!(lies, Vec::<String>::new(), "refused, but in the history");
    let tried = journal("try");
    assert!(
        chain.iter().all(|sha| tried.contains(sha)),
        "the history holds what nobody tried"
    );
    assert!(journal("ok").len() >= publishes);
    assert!(
        publishes < 500 || !journal("fenced").is_empty(),
        "nobody was ever fenced: the race was too tame"
    );
}

struct Race {
    store: String,
    home: PathBuf,
    started: usize,
    racers: Vec<(Running, PathBuf)>,
}

impl Race {
    fn start(&mut self, publishes: usize) {
        self.started += 1;
        let name = format!("racer-{}", self.started);
        let journal = self.home.join(format!("{name}.journal"));
        let cache = self.home.join("cache");
        let mut command = Command::new(RACER);
        command
            .args(["publish", &self.store, &name])
            .arg(&journal)
            .arg(cache)
            .arg(publishes.to_string());
        self.racers
            .push((Running(command.spawn().unwrap()), journal));
    }

    /// Troubles the racers until enough was acknowledged, and returns what the journals say.
    fn until(&mut self, publishes: usize) -> BTreeMap<String, BTreeSet<String>> {
        for turn in 0..600 {
            std::thread::sleep(Duration::from_millis(100 + SystemRng.below(400)));
            let journals = self.journals();
            if journals.get("ok").map_or(0, BTreeSet::len) >= publishes {
                return journals;
            }
            let victim = self.victim();
            if turn % 3 == 0 {
                drop(self.racers.swap_remove(victim));
                self.start(publishes);
            } else if turn % 3 == 1 {
                self.racers[victim].0.signal(rustix::process::Signal::STOP);
                std::thread::sleep(TTL + Duration::from_millis(900));
                self.racers[victim].0.signal(rustix::process::Signal::CONT);
            }
            if self.racers[victim].0.is_done() {
                drop(self.racers.swap_remove(victim));
                self.start(publishes);
            }
        }
        panic!(
            "too slow: {:?}",
            self.journals().get("ok").map_or(0, BTreeSet::len)
        );
    }

    /// Most often the owner, which is the racer that wrote into its journal last.
    fn victim(&self) -> usize {
        let anybody = usize::try_from(SystemRng.below(3)).unwrap();
        let touched = |racer: &(Running, PathBuf)| {
            std::fs::metadata(&racer.1)
                .and_then(|file| file.modified())
                .ok()
        };
        let owner = (0..self.racers.len()).max_by_key(|racer| touched(&self.racers[*racer]));
        owner.filter(|_| SystemRng.below(4) > 0).unwrap_or(anybody)
    }

    fn journals(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut said: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for number in 1..=self.started {
            let path = self.home.join(format!("racer-{number}.journal"));
            let text = std::fs::read_to_string(path).unwrap_or_default();
            for (word, detail) in text.lines().filter_map(|line| line.split_once(' ')) {
                said.entry(word.to_owned())
                    .or_default()
                    .insert(detail.to_owned());
            }
        }
        said
    }
}

/// Every snapshot from the active one back to the first, by what the manifests say.
async fn chain(store: String, home: PathBuf) -> BTreeSet<String> {
    let aws = AwsSettings {
        access_key: std::env::var("AWS_ACCESS_KEY_ID").ok(),
        secret_key: std::env::var("AWS_SECRET_ACCESS_KEY").ok().map(Secret::new),
        ..AwsSettings::default()
    };
    let local_dirs = LocalDirs {
        cache: Some(home.join("cache")),
        state: None,
    };
    let open = Open {
        location: store.parse().unwrap(),
        create: false,
        aws,
        local_dirs,
    };
    let engine = Engine::open(open, Arc::new(RealClock), Arc::new(SystemRng))
        .await
        .unwrap();
    let pointer = engine
        .lineages()
        .pointer(&lineage())
        .await
        .unwrap()
        .unwrap()
        .value;
    let (mut at, mut chain) = (pointer.active_archive(), BTreeSet::new());
    while let Some(archive) = at {
        assert!(
            chain.insert(archive.to_string()),
            "the history runs in a circle"
        );
        let manifest = engine
            .bucket()
            .get(&layout::manifest(&lineage(), archive), 10_000)
            .await
            .unwrap()
            .unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest.body).unwrap();
        at = manifest["predecessor_sha256"]
            .as_str()
            .map(|sha| sha.parse::<ArchiveDigest>().unwrap());
    }
    chain
}
