//! What Prometheus is told: the twelve series and the three alerts of the contract.

use crate::session::{Session, said};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ALICE: &str = "acme/alice@131";

/// The program that knows what Prometheus understands: installed, or put below `target` by `scripts/parts`.
pub(crate) fn promtool() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ours = root.join("target/parts/prometheus/usr/bin/promtool");
    let found = [PathBuf::from("promtool"), ours];
    let mut found = found.into_iter();
    let found = found.find(|tool| Command::new(tool).arg("--version").output().is_ok());
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    assert!(
        found.is_some() || !needed,
        "promtool is not there: run scripts/parts"
    );
    if found.is_none() {
        println!("skipped: promtool is not there; scripts/parts brings it");
    }
    found
}

/// Prometheus understands it, and finds nothing wrong with names that are ours to choose.
pub(crate) fn check_metrics(text: &str) {
    let Some(promtool) = promtool() else { return };
    let mut checking = Command::new(promtool);
    let checking = checking.args(["check", "metrics"]).stdin(Stdio::piped());
    let checking = checking.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut checking = checking.spawn().unwrap();
    let mut input = checking.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let checked = said(checking.wait_with_output().unwrap());
    // 3 is about style only: names that the contract chose, and none of our own.
    assert!(
        matches!(checked.code, 0 | 3),
        "{}{}",
        checked.out,
        checked.err
    );
    assert!(!checked.err.contains("error while"), "{}", checked.err);
    let complaints = format!("{}{}", checked.out, checked.err);
    let of_ours = |line: &&str| !line.is_empty() && !line.contains("_profile_");
    let ours: Vec<&str> = complaints.lines().filter(of_ours).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}

/// A profile in a directory, and a file for metrics.
struct World {
    session: Session,
    dir: PathBuf,
    file: PathBuf,
}

impl World {
    fn new() -> Self {
        let session = Session::new();
        let dir = session.home().join("p");
        fs::create_dir_all(dir.join("Default")).unwrap();
        fs::write(dir.join("Last Version"), "131.0.6778.85").unwrap();
        let file = session.home().join("stasis.prom");
        Self { session, dir, file }
    }

    fn change(&self, text: &str) {
        fs::write(self.dir.join("Default/state"), text).unwrap();
    }

    /// Runs a command that tells Prometheus, and must end with `code`.
    fn run(&self, code: i32, words: &[&str]) -> String {
        let (dir, file) = (self.dir.to_str().unwrap(), self.file.to_str().unwrap());
        let mut all = vec!["profile", "--metrics-file", file, "--metrics-per-profile"];
        all.extend(
            words
                .iter()
                .map(|word| if *word == "DIR" { dir } else { word }),
        );
        self.session.data(code, &all)
    }

    /// The value of a sample whose line begins so; 0 when there is none.
    fn sample(&self, begins: &str) -> u64 {
        let told = fs::read_to_string(&self.file).unwrap_or_default();
        let mut lines = told.lines().filter(|line| line.starts_with(begins));
        let value = lines.next().and_then(|line| line.rsplit_once(' '));
        value.map_or(0, |(_, value)| value.parse().unwrap())
    }

    fn snapshots(&self, outcome: &str) -> u64 {
        self.sample(&format!(
            "stasis_profile_snapshot_total{{outcome=\"{outcome}\""
        ))
    }

    fn loads(&self, outcome: &str) -> u64 {
        self.sample(&format!("stasis_profile_load_total{{outcome=\"{outcome}\""))
    }

    fn locks(&self, outcome: &str) -> u64 {
        self.sample(&format!(
            "stasis_profile_lock_acquire_total{{outcome=\"{outcome}\""
        ))
    }

    fn evictions(&self, reason: &str) -> u64 {
        self.sample(&format!(
            "stasis_profile_lock_evict_total{{reason=\"{reason}\""
        ))
    }

    /// Every value of a label is one that the contract has.
    fn only_the_contracts_outcomes(&self) {
        let text = fs::read_to_string(&self.file).unwrap();
        let known = |series: &str| match series {
            "profile_snapshot_total" => vec!["success", "skipped", "failed"],
            "profile_load_total" => vec![
                "success",
                "fresh_fallback",
                "integrity_failed",
                "sha_mismatch",
                "version_mismatch",
                "too_large",
            ],
            _ => vec!["acquired", "forced_expired", "conflict_409"],
        };
        for line in text.lines().filter(|line| line.contains("outcome=")) {
            let (series, labels) = line.split_once('{').unwrap();
            let value = labels.split('"').nth(1).unwrap();
            let series = series.strip_prefix("stasis_").unwrap();
            assert!(known(series).contains(&value), "{line}");
        }
    }

    /// Flips a bit in the newest archive, where no cache hides it.
    fn rot(&self) {
        let lineage = self.session.object("snapshots/acme/alice/131");
        let archives = fs::read_dir(lineage)
            .unwrap()
            .flatten()
            .map(|entry| entry.path());
        for archive in archives.filter(|path| path.to_str().unwrap().ends_with(".tar.zst")) {
            let mut bytes = fs::read(&archive).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&archive, bytes).unwrap();
        }
        fs::remove_dir_all(self.session.home().join("cache")).unwrap();
    }
}

#[test]
fn a_conflict_is_no_failure_and_what_diverged_is_no_success() {
    let world = World::new();
    world.run(0, &["save", ALICE, "--dir", "DIR"]);
    let token = world.session.data(0, &["lease", "acquire", ALICE]);

    world.run(4, &["save", ALICE, "--dir", "DIR"]);
    world.run(104, &["run", ALICE, "--", "true", "{dir}"]);
    assert_eq!(world.locks("conflict_409"), 2);
    assert_eq!(world.snapshots("failed"), 0);

    world
        .session
        .data(0, &["lease", "release", ALICE, "--token", &token]);
    fs::remove_file(world.session.home().join("p.stasis.json")).unwrap();
    world.change("stranger");
    world.run(6, &["save", ALICE, "--dir", "DIR"]);
    assert_eq!(world.snapshots("skipped"), 1);
    assert_eq!(world.snapshots("success"), 1, "only the first");
    assert_eq!(world.locks("acquired"), 2);
    world.only_the_contracts_outcomes();
}

#[test]
fn what_is_stored_already_is_a_success_and_what_starts_fresh_is_a_fallback() {
    let world = World::new();
    world.run(0, &["save", ALICE, "--dir", "DIR"]);
    world.run(0, &["save", ALICE, "--dir", "DIR"]);
    assert_eq!(world.snapshots("success"), 2);
    assert_eq!(world.snapshots("skipped"), 0);

    let there = world.session.home().join("there");
    let there = there.to_str().unwrap();
    world.run(0, &["load", "acme/nobody@131", "--dir", there]);
    assert_eq!(world.loads("fresh_fallback"), 1);
    world.only_the_contracts_outcomes();
}

#[test]
fn rotten_bytes_are_told_whatever_the_load_does_then() {
    let world = World::new();
    world.run(0, &["save", ALICE, "--dir", "DIR"]);
    world.rot();

    world.run(12, &["load", ALICE, "--dir", "DIR"]);
    assert_eq!(world.loads("sha_mismatch"), 1);
    world.run(
        9,
        &["load", ALICE, "--dir", "DIR", "--on-failure", "refuse"],
    );
    assert_eq!(world.loads("sha_mismatch"), 2);
    world.run(
        109,
        &[
            "run",
            ALICE,
            "--on-failure",
            "refuse",
            "--",
            "true",
            "{dir}",
        ],
    );
    assert_eq!(world.loads("sha_mismatch"), 3);
    world.only_the_contracts_outcomes();
}

#[test]
fn every_holder_that_is_thrown_out_counts_once() {
    let world = World::new();
    let acquire = |ttl: &str| {
        world
            .session
            .data(0, &["lease", "acquire", ALICE, "--ttl", ttl])
    };
    acquire("5m");
    world.run(0, &["force-unlock", ALICE, "--reason", "test", "--confirm"]);
    assert_eq!(world.evictions("operator_force"), 1);

    acquire("1s");
    std::thread::sleep(std::time::Duration::from_millis(1200));
    world.run(0, &["reap", ALICE, "--grace", "0s"]);
    assert_eq!(world.evictions("ttl_expired"), 1);

    acquire("1s");
    std::thread::sleep(std::time::Duration::from_millis(1200));
    world.run(0, &["save", ALICE, "--dir", "DIR"]);
    assert_eq!(world.locks("forced_expired"), 1);
    assert_eq!(
        world.evictions("ttl_expired"),
        2,
        "whoever takes over evicts"
    );
}

#[test]
fn the_twelve_series_of_the_contract_are_told_as_prometheus_reads_them() {
    let world = World::new();
    world.run(0, &["save", ALICE, "--dir", "DIR"]);
    world.run(0, &["load", ALICE, "--dir", "DIR"]);
    world.session.data(0, &["lease", "acquire", ALICE]);
    world.run(0, &["force-unlock", ALICE, "--reason", "test", "--confirm"]);

    let told = fs::read_to_string(&world.file).unwrap();
    for series in [
        "snapshot_total{outcome=\"success\",host=",
        "snapshot_archive_size_bytes{tenant_id=\"acme\",profile_id=\"alice\"}",
        "snapshot_capture_seconds_count{mode=\"cold\"}",
        "snapshot_upload_seconds_count",
        "snapshot_pointer_flip_seconds_count",
        "load_total{outcome=\"success\",host=",
        "load_download_seconds_count",
        "load_extract_seconds_count",
        "lock_acquire_total{outcome=\"acquired\"}",
        "lock_evict_total{reason=\"operator_force\"}",
        "archive_size_bytes_histogram_count",
        "uncompressed_size_bytes_histogram_count",
    ] {
        let line = format!("stasis_profile_{series}");
        assert!(told.contains(&line), "{line} in\n{told}");
    }
    check_metrics(&told);
}

#[test]
fn the_three_alerts_fire_as_the_contract_says() {
    let Some(promtool) = promtool() else { return };
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus");
    for words in [
        ["check", "rules", "stasis-alerts.yml"],
        ["test", "rules", "stasis-alerts.test.yml"],
    ] {
        let mut command = Command::new(&promtool);
        let ran = said(command.args(words).current_dir(&rules).output().unwrap());
        assert_eq!(ran.code, 0, "{words:?}\n{}{}", ran.out, ran.err);
    }
    // What the rules look at is what is written.
    let rules = fs::read_to_string(rules.join("stasis-alerts.yml")).unwrap();
    let world = World::new();
    world.run(0, &["save", ALICE, "--dir", "DIR"]);
    world.rot();
    world.run(12, &["load", ALICE, "--dir", "DIR"]);
    let told = fs::read_to_string(&world.file).unwrap();
    for name in [
        "stasis_profile_load_total{outcome=\"sha_mismatch\"",
        "stasis_profile_snapshot_total{outcome=",
    ] {
        assert!(rules.contains(name) && told.contains(name), "{name}");
    }
}
