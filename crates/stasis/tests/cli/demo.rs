//! `stasis demo`, from the first line to the last, with programs that are there and programs that are not.

use crate::session::{Said, Session, said};
use rustix::process::{Pid, Signal, kill_process};
use stasis_testkit::docker::Dockerd;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A machine that has these programs and no others, with a place for temporary files that nobody else uses.
struct Machine {
    session: Session,
}

impl Machine {
    fn with(programs: &[&str]) -> Self {
        let session = Session::new();
        for directory in ["bin", "tmp"] {
            fs::create_dir(session.home().join(directory)).unwrap();
        }
        for program in programs {
            let path = std::env::var_os("PATH").unwrap();
            let mut found = std::env::split_paths(&path).map(|at| at.join(program));
            let found = found.find(|path| path.is_file()).unwrap();
            symlink(found, session.home().join("bin").join(program)).unwrap();
        }
        Self { session }
    }

    /// A program of our own instead of a real one.
    fn replace(&self, program: &str, script: &str) {
        let path = self.session.home().join("bin").join(program);
        let _ = fs::remove_file(&path);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn tmp(&self) -> PathBuf {
        self.session.home().join("tmp")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.session.command(arguments);
        command
            .env("PATH", self.session.home().join("bin"))
            .env("HOME", self.session.home())
            .env("TMPDIR", self.tmp());
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().unwrap())
    }

    /// Everything that is in the home besides what the machine was made with.
    fn left(&self) -> Vec<String> {
        let mut left = names(self.session.home());
        left.retain(|name| name != "bin" && name != "tmp");
        left.extend(names(&self.tmp()));
        left
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect()
}

/// Compares the story with the one that is kept, but for numbers that are others each time.
fn compare(out: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"in \S+stasis-demo-[0-9a-f-]+", "in TMP/stasis-demo-ID");
    settings.add_filter(r" *\d+(\.\d+)? (µs|ms|s)\b", " TIME");
    settings.add_filter(r"\d+(\.\d+)? (K|M|G)iB", "SIZE");
    settings.bind(|| insta::assert_snapshot!("demo", out));
}

#[test]
fn the_demo_destroys_a_shop_and_brings_it_back_within_eighty_columns() {
    let machine = Machine::with(&["git", "sh", "rm"]);

    let told = machine.run(&["demo"]);

    assert_eq!(told.code, 0, "{}\n{}", told.out, told.err);
    assert_eq!(told.err, "");
    let wide = told.out.lines().find(|line| {
        // The directory of the test has a long name.
        !line.contains("stasis-demo-") && line.chars().count() > 80
    });
    assert_eq!(wide, None);
    assert!(!told.out.contains('\u{1b}'), "no colour without a terminal");
    for number in ["187 files", "1,204 orders", "60 checkpoints"] {
        assert!(told.out.contains(number), "{number}\n{}", told.out);
    }
    // Which programs follow depends on the machine, and on who runs this.
    let (story, rest) = told.out.split_once("\nNot shown here\n").unwrap();
    compare(story);
    for line in [
        "  - a browser: no Chromium is on the PATH\n",
        "  - a container: no Docker engine answers\n",
        "  - a session: there is no `sleep` that could be an agent\n",
        "  $ cd your-project && stasis protect\n  $ stasis rewind\n",
    ] {
        assert!(rest.contains(line), "{rest}");
    }
    assert!(machine.left().is_empty(), "{:?}", machine.left());
}

#[test]
fn the_demo_shows_a_container_of_a_real_engine_and_leaves_nothing_on_it() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let machine = Machine::with(&["sh", "rm", "busybox", "tar"]);
    let on_engine = || {
        let all: [&[&str]; 3] = [
            &["ps", "-aq"],
            &["volume", "ls", "-q"],
            &["images", "-aq", "--no-trunc"],
        ];
        all.map(|words| daemon.must(words))
    };
    let before = on_engine();

    let played = machine
        .command(&["--json", "demo"])
        .env("DOCKER_HOST", daemon.host())
        .output();
    let played = said(played.unwrap());

    assert_eq!(played.code, 0, "{}\n{}", played.out, played.err);
    let played: serde_json::Value = serde_json::from_str(&played.out).unwrap();
    let mut scenes = played["scenes"].as_array().unwrap().iter();
    let scene = scenes.find(|scene| scene["scene"] == "container");
    let scene = scene.unwrap_or_else(|| panic!("no container is shown: {played}"));
    assert!(scene["bytes"].as_u64().unwrap() > 64 * 65_536, "{scene}");
    assert!(scene["frozen_ms"].as_u64().unwrap() > 0, "{scene}");
    let checks = scene["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 4, "{scene}");
    assert!(checks.iter().all(|one| one["holds"] == true), "{scene}");
    assert_eq!(on_engine(), before, "nothing of it is left");
}

#[test]
fn the_numbers_of_the_demo_are_in_json_and_its_directory_can_be_kept() {
    let machine = Machine::with(&["sh", "rm"]);

    let played = machine.run(&["--json", "demo", "--keep"]);

    assert_eq!(played.code, 0, "{}\n{}", played.out, played.err);
    let played: serde_json::Value = serde_json::from_str(&played.out).unwrap();
    let scene = |name: &str| {
        let scenes = played["scenes"].as_array().unwrap();
        let found = scenes.iter().find(|scene| scene["scene"] == name);
        found.unwrap_or_else(|| panic!("{name}")).clone()
    };
    assert_eq!(played["holds"], true);
    assert_eq!(scene("rewind")["files"], 187);
    assert_eq!(scene("rewind")["orders"], 1204);
    assert_eq!(scene("accident")["in_git"], serde_json::Value::Null);
    let cost = scene("checkpoints");
    let (copies, added) = (cost["copies_bytes"].as_u64(), cost["added_bytes"].as_u64());
    assert!(copies.unwrap() > 1 << 30, "{cost}");
    assert!(added.unwrap() * 20 < copies.unwrap(), "{cost}");
    let scenes = played["scenes"].as_array().unwrap();
    let skipped = scenes.iter().filter_map(|scene| scene["part"].as_str());
    let skipped: Vec<&str> = skipped.filter(|part| *part != "postgres").collect();
    assert_eq!(skipped, ["git", "session", "browser", "container"]);

    // What the demo says can be seen with the next command, in what it left.
    let kept = Path::new(played["kept"].as_str().unwrap());
    assert_eq!(
        fs::metadata(kept).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let log = machine
        .command(&["--json", "workspace", "list"])
        .env("XDG_STATE_HOME", kept)
        .current_dir(kept.join("shop"))
        .output()
        .unwrap();
    assert!(
        !log.status.success(),
        "its state is not where ours would be"
    );
    fs::rename(kept.join("state"), kept.join("stasis")).unwrap();
    let log = machine
        .command(&["--json", "workspace", "list"])
        .env("XDG_STATE_HOME", kept)
        .current_dir(kept.join("shop"))
        .output()
        .unwrap();
    let log: serde_json::Value = serde_json::from_slice(&log.stdout).unwrap();
    assert!(log["items"].as_array().unwrap().len() > 60, "{log}");
}

/// An agent whose `rm` deletes nothing: the demo has to notice that what it tells is not so.
#[test]
fn a_demo_whose_claim_does_not_hold_says_so_and_fails() {
    let machine = Machine::with(&["sh"]);
    machine.replace("rm", "exit 0");

    let told = machine.run(&["demo"]);

    assert_eq!(told.code, 1, "{}\n{}", told.out, told.err);
    let claim = "✗ the database is gone: expected false, found true";
    assert!(told.out.contains(claim), "{}", told.out);
    assert!(
        told.err.contains("error: 1 claim did not hold"),
        "{}",
        told.err
    );
    assert!(!told.out.contains("stasis protect"), "{}", told.out);
    assert!(machine.left().is_empty(), "{:?}", machine.left());
}

#[test]
fn an_agent_that_fails_ends_the_demo_and_nothing_is_left_of_it() {
    let machine = Machine::with(&["sh"]);
    machine.replace("rm", "echo no such luck >&2; exit 3");

    let told = machine.run(&["demo"]);

    assert_ne!(told.code, 0);
    assert!(told.err.contains("no such luck"), "{}", told.err);
    assert!(machine.left().is_empty(), "{:?}", machine.left());
}

#[test]
fn an_interrupted_demo_leaves_nothing_and_ends_with_130() {
    for signal in [Signal::INT, Signal::TERM] {
        let machine = Machine::with(&["sh", "rm"]);
        let mut command = machine.command(&["demo"]);
        let mut demo = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The first scene is told: the directory is there, and the second is under way.
        let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
        lines.find(|line| line.as_ref().unwrap().contains("checkpoint"));
        assert_eq!(names(&machine.tmp()).len(), 1);

        let pid = Pid::from_raw(i32::try_from(demo.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let told = said(demo.wait_with_output().unwrap());

        assert_eq!(told.code, 130, "{}", told.err);
        assert!(machine.left().is_empty(), "{:?}", machine.left());
    }
}

#[test]
fn a_quiet_demo_prints_numbers_and_no_story() {
    let machine = Machine::with(&["sh", "rm"]);

    let told = machine.run(&["-q", "demo"]);

    assert_eq!((told.code, &*told.err), (0, ""), "{}", told.out);
    let rewind = told.out.lines().find(|line| line.starts_with("rewind "));
    let rewind = rewind.unwrap_or_else(|| panic!("{}", told.out));
    assert!(
        rewind.contains(" files=187 ") && rewind.contains(" orders=1204 "),
        "{rewind}"
    );
    assert!(!told.out.contains("An agent is asked"), "{}", told.out);
}

/// With everything that this machine has: a real Chromium, where there is one, and a real PostgreSQL for whoever is not root.
#[test]
fn the_demo_shows_the_programs_that_this_machine_has() {
    let session = Session::new();
    let mut command = session.command(&["--json", "demo"]);
    command
        .env("HOME", session.home())
        .env("TMPDIR", session.home());

    let played = said(command.output().unwrap());

    assert_eq!(played.code, 0, "{}\n{}", played.out, played.err);
    let played: serde_json::Value = serde_json::from_str(&played.out).unwrap();
    let has = |name: &str| {
        let scenes = played["scenes"].as_array().unwrap();
        scenes.iter().any(|scene| scene["scene"] == name)
    };
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    let is_root = rustix::process::geteuid().is_root();
    assert!(has("session"), "{played:#}");
    assert!(has("browser") || !needed, "{played:#}");
    assert!(has("postgres") || is_root || !needed, "{played:#}");
    assert!(
        names(session.home()).is_empty(),
        "{:?}",
        names(session.home())
    );
}
