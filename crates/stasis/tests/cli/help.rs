//! What help shows can be typed as it stands: its examples are run here, on real directories.

use crate::session::{STASIS, Said, Session, said};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is not run, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("stasis restore @-2h", "nothing here is two hours old"),
    ("stasis diff ~/notes @-2h", "nothing here is two hours old"),
    ("stasis copy dir:notes --to s3://", "needs a bucket"),
    ("stasis doctor --store s3://", "needs a bucket"),
    ("stasis store probe s3://", "needs a bucket"),
    (
        "stasis link ~/copy dir:notes",
        "refused on purpose without --confirm",
    ),
    ("stasis repo pin", "the id is made up"),
    ("stasis repo unpin", "the id is made up"),
    ("stasis project autosave", "runs until it is interrupted"),
    ("stasis workspace watch", "runs until it is interrupted"),
];

/// A home with directories in it, and a shell in one of them.
struct Home {
    session: Session,
    here: PathBuf,
    /// What stands in examples, and what it is here.
    names: Vec<(&'static str, String)>,
}

impl Home {
    fn new(here: &str) -> Self {
        let session = Session::new();
        let here = session.home().join(here);
        fs::create_dir_all(here.join("src")).unwrap();
        fs::write(here.join("plan.txt"), "buy milk").unwrap();
        fs::write(here.join("src/main.rs"), "fn main() {}").unwrap();
        let bin = session.home().join("bin");
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(STASIS, bin.join("stasis")).unwrap();
        Self {
            session,
            here,
            names: Vec::new(),
        }
    }

    fn sh(&self, line: &str) -> Said {
        let mut line = line.to_owned();
        for (name, value) in &self.names {
            line = line.replace(name, value);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.session.home().join("bin");
        let mut shell = Command::new("sh");
        shell.env_clear();
        for (name, value) in self.session.command(&[]).get_envs() {
            shell.envs(value.map(|value| (name, value)));
        }
        shell
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("HOME", self.session.home())
            .args(["-c", &line])
            .current_dir(&self.here);
        said(shell.output().unwrap())
    }

    fn ok(&self, line: &str) -> String {
        let said = self.sh(line);
        assert_eq!(said.code, 0, "{line}\n{}{}", said.out, said.err);
        said.out
    }

    /// Saves another state, and returns the id of its snapshot.
    fn save(&self, content: &str) -> String {
        fs::write(self.here.join("src/main.rs"), content).unwrap();
        let saved: serde_json::Value =
            serde_json::from_str(&self.ok("stasis save --json")).unwrap();
        saved["snapshot_id"].as_str().unwrap().to_owned()
    }

    /// Types every example of a command; returns how many.
    fn follow(&self, path: &str) -> usize {
        let lines = self.examples(path);
        let is_run = |line: &&String| !NOT_RUN.iter().any(|(one, _)| line.starts_with(one));
        for line in lines.iter().filter(is_run) {
            self.ok(line);
        }
        lines.len()
    }

    /// What stands below `Examples:` on the screen.
    fn examples(&self, path: &str) -> Vec<String> {
        let screen = self.ok(&format!("stasis help {path}"));
        let (_, rest) = screen.split_once("Examples:\n").unwrap();
        let (examples, _) = rest.split_once("\n\n").unwrap();
        let lines = examples
            .lines()
            .filter(|line| line.starts_with("  stasis "));
        let command = |line: &str| line.trim().split("  ").next().unwrap().to_owned();
        let lines: Vec<String> = lines.map(command).collect();
        assert!(!lines.is_empty(), "{screen}");
        lines
    }
}

fn exists(path: &Path) {
    assert!(path.exists(), "{}", path.display());
}

#[test]
fn the_examples_of_everyday_commands_work() {
    let mut home = Home::new("notes");
    for content in ["1", "2", "3", "4"] {
        home.save(content);
    }
    let older = home.save("5");
    home.save("6");
    home.names.push(("a27be8bc", older[..8].to_owned()));
    home.ok("stasis session register acme/42 --dir ~/notes --root .");
    home.ok("stasis session snapshot acme/42");

    for path in [
        "save", "list", "log", "show", "diff", "ls", "cat", "find", "du", "restore", "pin",
        "forget", "gc", "check",
    ] {
        home.follow(path);
    }
    // `copy --all` cannot take sessions along yet.
    home.ok("stasis session delete acme/42 --confirm");
    for path in ["copy", "events", "doctor", "man"] {
        home.follow(path);
    }

    exists(&home.session.home().join("copy/plan.txt"));
    exists(&home.session.home().join("usb/store"));
    home.ok("stasis link ~/copy dir:notes --confirm");
    home.ok("stasis repair dir:notes");
}

#[test]
fn the_examples_of_plumbing_work() {
    let mut home = Home::new("notes");
    let older = home.save("1");
    home.names.push(("a27be8bc", older[..8].to_owned()));
    home.ok("stasis repo save ~/notes --name notes");
    fs::write(home.here.join("plan.txt"), "buy bread").unwrap();

    for path in [
        "archive create",
        "archive list",
        "archive cat",
        "archive verify",
        "archive extract",
        "clone",
        "repo init",
        "repo save",
        "repo snapshots",
        "repo ls",
        "repo cat",
        "repo diff",
        "repo restore",
        "repo check",
        "repo gc",
        "repo stats",
        "repo retire",
        "store probe",
        "tenant policy show",
        "tenant policy set",
        "key init",
        "lease reap",
    ] {
        home.follow(path);
    }
    let [acquire] = &home.examples("lease acquire")[..] else {
        panic!("one example");
    };
    let token = home.ok(acquire).trim().to_owned();
    home.names.push(("$TOKEN", token));
    for path in ["lease renew", "lease show", "lease release"] {
        home.follow(path);
    }

    exists(&home.session.home().join("unpacked/plan.txt"));
    exists(&home.session.home().join("back/plan.txt"));
}

#[test]
fn the_examples_of_projects_work() {
    let home = Home::new("shop");
    fs::write(
        home.here.join("upgrade.sh"),
        "#!/bin/sh\necho 2 > version\n",
    )
    .unwrap();
    home.ok("chmod +x upgrade.sh");

    for path in [
        "project init",
        "project save",
        "project status",
        "project list",
        "project show",
        "project label",
        "project pin",
        "project upgrade",
        "project diff",
        "project verify",
        "project restore",
        "project gc",
        "project duplicate",
        "project start",
        "project stop",
    ] {
        fs::write(home.here.join("src/main.rs"), path).unwrap();
        let _ = home.sh("stasis save");
        if path != "project verify" {
            home.follow(path);
        }
    }

    exists(&home.session.home().join("shop-test/plan.txt"));
}

#[test]
fn the_examples_of_workspaces_work() {
    let home = Home::new("app");
    home.ok("stasis workspace init .");
    home.ok("stasis workspace create before-refactoring");
    fs::write(home.here.join("src/main.rs"), "fn main() { panic!() }").unwrap();

    for path in [
        "workspace list",
        "workspace status",
        "workspace changes",
        "workspace diff",
        "workspace history",
        "workspace revert",
        "workspace restore",
        "workspace undo",
        "workspace materialize",
        "workspace fork",
        "workspace check",
        "workspace delete",
        "hook show",
        "rewind",
    ] {
        fs::write(home.here.join("src/main.rs"), path).unwrap();
        if path == "rewind" {
            home.ok("stasis rewind --list");
            continue;
        }
        for line in home.examples(path) {
            // Without a terminal a plan is not asked for: it must be agreed to.
            let yes = matches!(path, "workspace restore" | "workspace undo")
                && !line.contains("--dry-run");
            home.ok(&format!("{line}{}", if yes { " --yes" } else { "" }));
        }
    }

    exists(&home.session.home().join("try-3/plan.txt"));
    exists(&home.session.home().join("then/plan.txt"));
}

#[test]
fn the_examples_of_profiles_work() {
    let mut home = Home::new("browser");
    let profile = home.session.home().join(".config/chromium");
    fs::create_dir_all(&profile).unwrap();
    fs::write(profile.join("Last Version"), "131.0.6778.85").unwrap();
    let save = home.examples("profile save").remove(0);
    let mut saved = Vec::new();
    for (content, id) in [("one", "1a2b3c4d"), ("two", "5e6f7a8b")] {
        fs::write(profile.join("state"), content).unwrap();
        let base = saved.last().map(|sha| format!(" --base {sha}"));
        let line = format!("{save} --json{}", base.unwrap_or_default());
        let report: serde_json::Value = serde_json::from_str(&home.ok(&line)).unwrap();
        let sha = report["sha256"].as_str().unwrap().to_owned();
        home.names.push((id, sha[..8].to_owned()));
        saved.push(sha);
    }

    for path in [
        "profile list",
        "profile show",
        "profile pin",
        "profile unpin",
        "profile diff",
        "profile logins",
        "profile storage-state export",
        "profile fork",
        "profile reap",
        "profile gc",
    ] {
        home.follow(path);
    }
    let rollback = home.examples("profile rollback");
    assert_eq!(
        home.sh(&rollback[0]).code,
        1,
        "it only says what it would do"
    );
    home.ok(&rollback[1]);
}

/// The words of a table; a second that has passed does not count.
fn without_ages(table: &str) -> Vec<&str> {
    let words: Vec<&str> = table.split_whitespace().collect();
    let is_age = |at: usize| words.get(at + 1..at + 3) == Some(&["s", "ago"]);
    let all = words.iter().enumerate();
    all.filter(|(at, _)| !is_age(*at))
        .map(|(_, word)| *word)
        .collect()
}

#[test]
fn words_of_other_tools_mean_what_they_mean_there() {
    let home = Home::new("notes");

    home.ok("stasis backup -m first");
    fs::write(home.here.join("plan.txt"), "buy bread").unwrap();
    home.ok("stasis backup");
    home.ok("stasis checkout latest~1");
    assert_eq!(fs::read(home.here.join("plan.txt")).unwrap(), b"buy milk");
    for line in ["stasis snapshots", "stasis snapshots ~/notes"] {
        let (found, log) = (home.ok(line), home.ok("stasis log"));
        assert_eq!(without_ages(&found), without_ages(&log), "{line}");
    }
    home.ok("stasis prune --keep 1");

    for (command, other) in [
        ("save", "backup"),
        ("log", "snapshots"),
        ("restore", "checkout"),
        ("gc", "prune"),
    ] {
        let screen = home.ok(&format!("stasis help {command}"));
        let said = format!("Also called: {other}\n");
        assert!(screen.contains(&said), "{screen}");
    }
    // The contract of workspaces has a `snapshots` of its own.
    let refused = home.sh("stasis snapshots --workspace ~/notes");
    assert_eq!(refused.code, 2, "{}", refused.err);
    home.ok("stasis workspace init .");
    home.ok("stasis snapshots create a-name");
    assert!(home.ok("stasis snapshots list").contains("a-name"));
}
