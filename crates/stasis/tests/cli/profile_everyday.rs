//! The everyday verbs on a profile: the same words as for a directory, tested through the commands that come next.

use crate::profile::{cookies, profile, sqlite};
use crate::session::{Session, type_command};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const SUBJECT: &str = "profile:acme/alice";

/// A profile with three snapshots: one cookie, two, three.
struct Saved {
    session: Session,
    dir: PathBuf,
    shas: Vec<String>,
}

impl Saved {
    fn new() -> Self {
        let session = Session::new();
        let dir = profile(&session, "p");
        let mut shas = Vec::new();
        for more in ["", "two", "three"] {
            if !more.is_empty() {
                sqlite(&dir, &format!("insert into cookies values('{more}');"));
            }
            let place = dir.to_str().unwrap();
            let save = ["profile", "save", "acme/alice", "--dir", place];
            let saved = session.json(0, &save);
            shas.push(saved["sha256"].as_str().unwrap().to_owned());
        }
        Self { session, dir, shas }
    }

    fn active(&self) -> String {
        let shown = self.session.json(0, &["show", SUBJECT]);
        let row = &shown["lineages"][0]["snapshot"]["manifest"]["archive_sha256"];
        row.as_str().unwrap().to_owned()
    }
}

fn names(items: &Value, field: &str) -> Vec<String> {
    let items = items.as_array().unwrap().iter();
    items
        .map(|item| item[field].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_profile_is_looked_into_with_the_words_for_a_directory() {
    let saved = Saved::new();
    let session = &saved.session;

    let log = session.json(0, &["log", SUBJECT]);
    let two = session.json(0, &["log", SUBJECT, "-n", "2"]);
    let listed = session.json(0, &["ls", SUBJECT, "latest~1", "--path", "Default"]);
    let version = session.data(0, &["cat", SUBJECT, "Last Version"]);
    let found = session.json(0, &["find", "Cookies", SUBJECT]);
    let shown = session.json(0, &["show", SUBJECT, "latest~2"]);
    let used = session.json(0, &["du", SUBJECT]);
    let differs = session.json(0, &["diff", SUBJECT]);

    let prefixes: Vec<&str> = saved.shas.iter().rev().map(|sha| &sha[..12]).collect();
    assert_eq!(names(&log["items"], "sha256_prefix"), prefixes);
    assert_eq!(names(&two["items"], "sha256_prefix"), prefixes[..2]);
    assert_eq!(two["older"], 1);
    let listed = listed.get("items").unwrap_or(&listed);
    let listed = names(listed, "path");
    assert!(listed.contains(&"Default/Cookies".to_owned()), "{listed:?}");
    assert!(!listed.contains(&"Last Version".to_owned()), "{listed:?}");
    assert_eq!(version, "131.0.6778.85");
    let versions = found["items"].as_array().unwrap();
    assert_eq!(versions.len(), 3, "one for each save: {found:#}");
    assert_eq!(versions[0]["first"], saved.shas[0]);
    let row = &shown["lineages"][0]["snapshot"]["manifest"];
    assert_eq!(row["archive_sha256"], saved.shas[0]);
    assert_eq!(used["items"].as_array().unwrap().len(), 3);
    assert_eq!(differs["before_sha256"], saved.shas[1], "{differs:#}");
    let missing = session.run(&["cat", SUBJECT, "no/such/file"]);
    assert_eq!(missing.code, 3, "{}", missing.err);
    let hinted = type_command(session, &missing.err, &["ls"], "");
    assert_eq!(hinted.code, 0, "{}{}", missing.err, hinted.err);
}

#[test]
fn a_restore_chooses_what_runs_start_from_and_undo_takes_that_back() {
    let saved = Saved::new();
    let session = &saved.session;
    let nothing = session.run(&["undo", SUBJECT]);
    assert_eq!(nothing.code, 3, "a save is not undone: {}", nothing.err);
    let unnamed = session.run(&["restore", SUBJECT]);
    assert_eq!(unnamed.code, 2, "{}", unnamed.err);

    let plan = session.data(0, &["restore", SUBJECT, "latest~2", "--dry-run"]);
    assert!(plan.contains("would go back"), "{plan}");
    assert_eq!(saved.active(), saved.shas[2]);
    let restored = session.data(0, &["restore", SUBJECT, &saved.shas[0][..8]]);
    assert_eq!(saved.active(), saved.shas[0]);
    // What is loaded next is what was chosen.
    let there = session.home().join("there");
    let place = there.to_str().unwrap();
    let load = ["profile", "load", "acme/alice@131", "--dir", place];
    session.json(0, &load);
    assert_eq!(cookies(&there), "one");

    let undone = type_command(session, &restored, &["undo"], "");
    assert_eq!(undone.code, 0, "{restored}{}", undone.err);
    assert_eq!(saved.active(), saved.shas[2]);
    // And the undo of the undo.
    session.data(0, &["undo", SUBJECT]);
    assert_eq!(saved.active(), saved.shas[0]);
    // What is saved after it is no choice of anybody.
    sqlite(&there, "insert into cookies values('four');");
    let save = ["profile", "save", "acme/alice", "--dir", place];
    session.json(0, &save);
    let nothing = session.run(&["undo", SUBJECT]);
    assert_eq!(nothing.code, 3, "{}", nothing.err);
}

#[test]
fn whoever_owns_a_profile_is_thrown_out_only_if_that_was_agreed_to() {
    let saved = Saved::new();
    let session = &saved.session;
    let acquire = [
        "lease",
        "acquire",
        "acme/alice@131",
        "--run-id",
        "night-shift",
    ];
    session.json(0, &acquire);

    let refused = session.run(&["restore", SUBJECT, "latest~1"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("night-shift"), "{}", refused.err);
    assert!(refused.err.contains("--yes"), "{}", refused.err);
    assert_eq!(saved.active(), saved.shas[2]);
    session.data(0, &["restore", SUBJECT, "latest~1", "--yes"]);
    assert_eq!(saved.active(), saved.shas[1]);
}

#[test]
fn a_snapshot_of_a_profile_is_written_elsewhere_and_nothing_else_changes() {
    let saved = Saved::new();
    let session = &saved.session;
    let copy = session.home().join("copy");
    let place = copy.to_str().unwrap();

    session.data(0, &["restore", SUBJECT, "latest~1", "--to", place]);
    assert_eq!(cookies(&copy), "one,two");
    assert_eq!(saved.active(), saved.shas[2]);
    let again = session.run(&["restore", SUBJECT, "--to", place]);
    assert_ne!(again.code, 0, "{}", again.out);
    assert_eq!(cookies(&copy), "one,two");
    assert_eq!(cookies(&saved.dir), "one,three,two");
    let part = session.run(&["restore", SUBJECT, "latest~1", "--path", "Default"]);
    assert_eq!(part.code, 2, "{}", part.err);
}

#[test]
fn pins_and_the_active_one_stay_and_all_are_forgotten_or_none() {
    let saved = Saved::new();
    let session = &saved.session;
    session.data(0, &["pin", SUBJECT, "latest~2"]);
    let count = || {
        let log = session.json(0, &["log", SUBJECT]);
        log["items"].as_array().unwrap().len()
    };

    for kept in ["latest", "latest~2"] {
        let refused = session.run(&["forget", SUBJECT, "latest~1", kept]);
        assert_ne!(refused.code, 0, "{kept}: {}", refused.out);
    }
    session.data(0, &["forget", SUBJECT, "latest~1", "--dry-run"]);
    let check = ["find", "Cookies", SUBJECT];
    assert_eq!(session.json(0, &check)["snapshots"], 3);
    let forgotten = session.json(0, &["forget", SUBJECT, &saved.shas[1][..8]]);
    assert_eq!(forgotten["forgotten"].as_array().unwrap().len(), 1);
    assert_eq!(session.json(0, &check)["snapshots"], 2);
    session.data(0, &["gc", SUBJECT]);
    assert_eq!(count(), 2);
    session.data(0, &["pin", SUBJECT, &saved.shas[0][..8], "--off"]);
    session.data(0, &["forget", SUBJECT, &saved.shas[0][..8]]);
}

#[test]
fn a_check_names_the_snapshot_that_is_damaged() {
    let saved = Saved::new();
    let session = &saved.session;
    let whole = session.json(0, &["check", SUBJECT, "--read-data"]);
    assert_eq!(whole["restored"], 3, "{whole:#}");
    let lineage = session.object("snapshots/acme/alice/131");
    let names = fs::read_dir(lineage)
        .unwrap()
        .map(|one| one.unwrap().path());
    let digits = &saved.shas[1][..12];
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.contains(digits) && path.extension().unwrap() != "json"
    };
    let archive = names.into_iter().find(is_archive).unwrap();
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&archive, bytes).unwrap();

    let quick = session.run(&["check", SUBJECT]);
    let read = session.json(9, &["check", SUBJECT, "--read-data"]);

    assert_eq!(quick.code, 0, "nothing was read: {}", quick.out);
    assert!(quick.out.contains("--read-data"), "{}", quick.out);
    let damage = read["damage"].as_array().unwrap();
    assert_eq!(damage.len(), 1, "{read:#}");
    assert_eq!(damage[0]["snapshot"], *digits);
    assert_eq!(read["restored"], 2);
}
