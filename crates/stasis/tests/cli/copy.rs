//! Subjects copied into another store, and what somebody types next.

use crate::crash_points::{self, failed_at_each_step, killed_at_each_step};
use crate::repo_crash::{Fault, copy as copy_aside};
use crate::repo_world::{Shown, noise, show, write};
use crate::session::{Session, oldest_first, real_store};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A directory of this host with two snapshots, the second of which only adds a line.
fn notes(session: &Session, at: &str) -> PathBuf {
    let dir = session.home().join(at);
    write(&dir, "plan.txt", b"buy milk");
    write(&dir, "film", &noise(7, 2_000_000));
    session.data(0, &["save", text(&dir)]);
    write(&dir, "plan.txt", b"buy bread");
    session.data(0, &["save", text(&dir)]);
    dir
}

fn rows(session: &Session) -> Vec<Value> {
    let listed = session.json(0, &["list"]);
    listed["items"].as_array().unwrap().clone()
}

fn copied(said: &Value) -> Vec<(String, u64, u64)> {
    let subjects = said["subjects"].as_array().unwrap();
    let row = |one: &Value| {
        let number = |field: &str| one[field].as_u64().unwrap();
        let subject = one["subject"].as_str().unwrap().to_owned();
        (subject, number("snapshots"), number("snapshots_there"))
    };
    subjects.iter().map(row).collect()
}

/// A laptop with a directory and a profile, and a bucket with nothing in it.
struct Move {
    laptop: Session,
    bucket: String,
    dir: PathBuf,
    /// What the directory is called.
    name: String,
}

impl Move {
    /// None where there is no real server.
    fn new(place: &str) -> Option<Self> {
        let store = real_store("STASIS_TEST_S3")?;
        let bucket = store.replace("/test?", &format!("/{place}-{}?", std::process::id()));
        let laptop = Session::new();
        let dir = notes(&laptop, "notes");
        let profile = laptop.home().join("profile");
        write(&profile, "Last Version", b"131.0.6778.85");
        write(&profile, "Local State", b"{}");
        let preferences = b"{\"profile\":{\"exit_type\":\"Normal\"}}";
        write(&profile, "Default/Preferences", preferences);
        let words = ["profile", "save", "acme/alice", "--dir", text(&profile)];
        laptop.json(0, &words);
        laptop.data(0, &["tenant", "policy", "set", "acme", "lease_ttl_s=240"]);
        let mut all = rows(&laptop).into_iter();
        let row = all.find(|row| row["kind"] == "dir").unwrap();
        let name = row["subject"].as_str().unwrap().to_owned();
        Some(Self {
            laptop,
            bucket,
            dir,
            name,
        })
    }

    fn copy(&self, code: i32, words: &[&str]) -> Value {
        let to = ["copy", "--to", &self.bucket];
        self.laptop.json(code, &[&to, words].concat())
    }
}

#[test]
fn a_laptops_store_moves_to_a_bucket() {
    let Some(moved) = Move::new("copy") else {
        return;
    };

    let first = moved.copy(0, &["--all"]);
    let again = moved.copy(0, &["--all"]);

    let (name, profile) = (moved.name.clone(), "profile:acme/alice@131".to_owned());
    assert_eq!(
        copied(&first),
        [(profile.clone(), 1, 0), (name.clone(), 2, 0)]
    );
    assert_eq!(first["policies"], 1, "{first}");
    assert_eq!(copied(&again), [(profile, 0, 1), (name.clone(), 0, 2)]);
    let server = Session::on(&moved.bucket);
    assert_eq!(rows(&server).len(), 2);
    let target = server.home().join("notes");
    server.data(0, &["restore", &name, "--to", text(&target)]);
    assert_eq!(show(&target), show(&moved.dir));
    let loaded = server.home().join("profile");
    let words = [
        "profile",
        "load",
        "acme/alice",
        "--dir",
        text(&loaded),
        "--chrome-major",
        "131",
    ];
    assert_eq!(server.json(0, &words)["outcome"], "success");
    let log = oldest_first(&server.json(0, &["log", &name]));
    let oldest = log.as_array().unwrap()[0]["snapshot_id"].clone();
    let earlier = server.home().join("earlier");
    let oldest = oldest.as_str().unwrap();
    server.data(0, &["restore", &name, oldest, "--to", text(&earlier)]);
    assert_eq!(fs::read(earlier.join("plan.txt")).unwrap(), b"buy milk");
}

#[test]
fn a_laptop_goes_on_in_the_bucket_and_its_old_store_does_not_overwrite_that() {
    let Some(moved) = Move::new("gone-on") else {
        return;
    };
    moved.copy(0, &["--all"]);
    let (laptop, server) = (&moved.laptop, Session::on(&moved.bucket));
    let dir = text(&moved.dir);

    write(&moved.dir, "plan.txt", b"buy tea");
    laptop.data(0, &["--store", &moved.bucket, "save", dir]);

    assert_eq!(rows(&server).len(), 2, "it became no other subject");
    let log = oldest_first(&server.json(0, &["log", &moved.name]));
    assert_eq!(log.as_array().unwrap().len(), 3, "{log}");
    write(&moved.dir, "plan.txt", b"buy coffee");
    laptop.data(0, &["save", dir]);
    let refused = laptop.run(&["copy", dir, "--to", &moved.bucket]);
    assert_eq!(refused.code, 6, "{}", refused.err);
    assert!(refused.err.contains("--as NAME"), "{}", refused.err);
    let all = moved.copy(6, &["--all"]);
    let failed = &all["subjects"][1]["error"];
    assert!(failed.as_str().unwrap().contains("of its own"), "{all}");
    let renamed = moved.copy(0, &[dir, "--as", "from-laptop"]);
    assert_eq!(copied(&renamed), [("dir:from-laptop".to_owned(), 3, 0)]);
    assert_eq!(rows(&server).len(), 3);
}

fn warns_of_leaving(said: &Value) -> bool {
    let warnings = said["warnings"].as_array();
    let mut warnings = warnings.into_iter().flatten();
    warnings.any(|one| one["code"] == "left_copy")
}

#[test]
fn the_first_save_into_a_copy_says_that_it_is_none_any_more() {
    for way in ["save", "restore", "repo save", "repo restore"] {
        let session = Session::new();
        let dir = notes(&session, "notes");
        let to = session.home().join("other");
        let copy = ["copy", text(&dir), "--to", text(&to)];
        session.data(0, &copy);
        let name = rows(&session)[0]["subject"].as_str().unwrap().to_owned();
        let id = name.strip_prefix("dir:").unwrap();
        let store = ["--store", text(&to)];
        let words = match way {
            "save" => vec!["save", text(&dir)],
            "restore" => vec!["restore", text(&dir)],
            "repo save" => vec!["repo", "save", text(&dir), "--name", id],
            _ => vec![
                "repo",
                "restore",
                "latest",
                text(&dir),
                "--in-place",
                "--name",
                id,
            ],
        };
        let there = |words: &[&str]| session.json(0, &[&store, words].concat());
        // Looking into a copy changes nothing about it.
        let out = session.home().join("out");
        let looked = there(&["restore", &name, "--to", text(&out)]);
        write(&dir, "plan.txt", b"buy tea");
        session.data(0, &["save", text(&dir)]);
        session.data(0, &copy);
        write(&dir, "plan.txt", b"buy coffee");

        let said = there(&words);
        write(&dir, "plan.txt", b"buy beer");
        let again = there(&words);
        let told = session.run(&[&["copy"], &copy[1..]].concat());

        assert!(!warns_of_leaving(&looked), "{way}: {looked}");
        let of_the_save = |said: &Value| match way {
            "repo restore" => warns_of_leaving(&said["before"]),
            _ => warns_of_leaving(said),
        };
        assert!(of_the_save(&said), "{way}: {said}");
        assert!(!of_the_save(&again), "{way}: {again}");
        assert_eq!(told.code, 6, "{way}: {}", told.err);
        // What was copied is there all the same, and goes on.
        let log = oldest_first(&there(&["log", &name]));
        assert!(log.as_array().unwrap().len() >= 4, "{way}: {log}");
    }
}

#[test]
fn people_read_that_a_restore_made_a_copy_a_subject_of_its_own() {
    let session = Session::new();
    let dir = notes(&session, "notes");
    let to = session.home().join("other");
    session.data(0, &["copy", text(&dir), "--to", text(&to)]);
    write(&dir, "plan.txt", b"buy tea");

    let told = session.run(&["--store", text(&to), "restore", text(&dir)]);

    assert_eq!(told.code, 0, "{}", told.err);
    assert!(
        told.err.contains("was a copy, and goes its own way"),
        "{}",
        told.err
    );
    assert!(told.err.contains("a later copy no longer"), "{}", told.err);
    assert!(!told.err.contains("`stasis copy"), "{}", told.err);
}

#[test]
fn a_projects_own_store_is_copied_under_its_name() {
    let session = Session::new();
    let shop = session.home().join("shop");
    write(&shop, "stasis.toml", b"id = \"shop\"\n");
    write(&shop, "state/current/data.txt", b"one");
    session.data(0, &["save", text(&shop)]);
    let to = session.home().join("other");

    let said = session.json(0, &["copy", text(&shop), "--to", text(&to)]);

    assert_eq!(copied(&said), [("dir:shop".to_owned(), 1, 0)]);
    let there = Session::on(&format!("file://{}", to.display()));
    let out = there.home().join("out");
    there.data(0, &["restore", "dir:shop", "--to", text(&out)]);
    assert_eq!(fs::read(out.join("data.txt")).unwrap(), b"one");
}

#[test]
fn what_cannot_be_copied_is_said_before_anything_is_written() {
    let session = Session::new();
    let dir = notes(&session, "notes");
    let store = format!(
        "file://{}",
        session.home().join("data/stasis/store").display()
    );
    let to = session.home().join("other");

    let itself = session.run(&["copy", "--all", "--to", &store]);
    let unknown = session.run(&["copy", "dir:letters", "--to", text(&to)]);
    let never = session.home().join("never");
    fs::create_dir(&never).unwrap();
    let never = session.run(&["copy", text(&never), "--to", text(&to)]);
    let nothing = session.run(&["copy", "--to", text(&to)]);
    let profile = session.run(&["copy", "profile:acme/alice@131", "--to", text(&to)]);
    let written = fs::read_dir(&to).map_or(0, |entries| {
        let names = entries.map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| !name.to_string_lossy().starts_with('.') && name != "meta")
            .count()
    });

    assert_eq!(itself.code, 2, "{}", itself.err);
    assert!(itself.err.contains("is the store that is copied from"));
    assert_eq!(unknown.code, 3, "{}", unknown.err);
    assert_eq!(never.code, 3, "{}", never.err);
    assert_eq!(nothing.code, 2, "{}", nothing.err);
    assert_eq!(profile.code, 3, "{}", profile.err);
    assert_eq!(written, 0, "only what a probe of the store leaves");
    let full = session.home().join("full");
    write(&full, "mine.txt", b"mine");
    let mixed = session.run(&["copy", text(&dir), "--to", text(&full)]);
    assert_eq!(mixed.code, 2, "{}", mixed.err);
    assert!(
        mixed.err.contains("is not empty, and no store"),
        "{}",
        mixed.err
    );
    assert_eq!(fs::read_dir(&full).unwrap().count(), 1);
    let nowhere = session.run(&["copy", text(&dir), "--to", "memory:"]);
    assert_eq!(nowhere.code, 2, "{}", nowhere.err);
    let told = session.data(0, &["copy", text(&dir), "--to", text(&to)]);
    assert!(told.contains("2 snapshots copied to"), "{told}");
}

#[test]
fn files_beside_a_store_are_saved_and_the_store_is_not() {
    let session = Session::new();
    let (work, other) = (session.home().join("work"), session.home().join("other"));
    write(&work, "data/mine.txt", b"mine");
    write(&other, "plan.txt", b"buy milk");
    let inner = format!("file://{}", work.join("data").display());
    session.data(0, &["--store", &inner, "save", text(&other)]);

    session.data(0, &["save", text(&work)]);
    let itself = session.run(&["--store", &inner, "save", text(&work.join("data"))]);

    let out = session.home().join("out");
    session.data(0, &["restore", text(&work), "--to", text(&out)]);
    assert_eq!(fs::read(out.join("data/mine.txt")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(out.join("data")).unwrap().count(), 1);
    assert_eq!(itself.code, 2, "{}", itself.err);
    assert!(
        itself.err.contains("is the directory of the store itself"),
        "{}",
        itself.err
    );
}

/// A copy of one directory into a store that has an earlier copy of it.
struct Stage {
    session: Session,
    dir: PathBuf,
    wanted: Shown,
}

impl Stage {
    const KEPT: [&str; 4] = ["data", "cache", "state", "other"];

    fn new() -> Self {
        let session = Session::new();
        let dir = notes(&session, "notes");
        let to = session.home().join("other");
        session.data(0, &["copy", text(&dir), "--to", text(&to)]);
        for number in 0..40 {
            write(&dir, &format!("small-{number}"), &noise(100 + number, 300));
        }
        session.data(0, &["save", text(&dir)]);
        write(&dir, "film", &noise(8, 1_000_000));
        session.data(0, &["save", text(&dir)]);
        copy_aside(session.home(), &Self::KEPT, "", "kept-");
        let wanted = show(&dir);
        Self {
            session,
            dir,
            wanted,
        }
    }

    fn there(&self) -> Session {
        Session::on(&format!(
            "file://{}",
            self.session.home().join("other").display()
        ))
    }

    /// How many snapshots are there; every one of them comes back.
    fn whole(&self) -> u64 {
        let there = self.there();
        let checked = there.json(0, &["repo", "check", "--read-data"]);
        assert_eq!(checked["damage"], serde_json::json!([]), "{checked}");
        let log = oldest_first(&there.json(0, &["log", "dir:notes"]));
        log.as_array().unwrap().len() as u64
    }
}

impl crash_points::Stage for Stage {
    fn command(&self) -> Command {
        let to = self.session.home().join("other");
        self.session
            .command(&["copy", text(&self.dir), "--to", text(&to)])
    }

    fn reset(&self) {
        copy_aside(self.session.home(), &Self::KEPT, "kept-", "");
    }

    fn assert_done(&self) {
        assert_eq!(self.whole(), 4);
        let there = self.there();
        let out = there.home().join("out");
        there.data(0, &["restore", "dir:notes", "--to", text(&out)]);
        assert_eq!(show(&out), self.wanted);
    }

    fn judge(&self, context: &str) {
        let before = self.whole();
        assert!((2..=4).contains(&before), "{context}");
        let to = self.session.home().join("other");
        let said = self
            .session
            .json(0, &["copy", text(&self.dir), "--to", text(&to)]);
        let (_, new, _) = copied(&said).remove(0);
        assert_eq!(new, 4 - before, "{context}: {said}");
        self.assert_done();
        let temps = self.session.home().join("other/.stasis/tmp");
        let left = fs::read_dir(temps).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{context}");
    }
}

#[test]
fn killed_at_any_call_it_leads_only_to_what_is_whole_and_goes_on() {
    killed_at_each_step("a copy", Stage::new);
}

#[test]
fn a_copy_on_a_full_or_broken_disk_is_refused_and_goes_on() {
    failed_at_each_step("a copy", Fault::Once("EIO"), Stage::new);
    failed_at_each_step("a copy", Fault::FromThenOn("ENOSPC"), Stage::new);
}
