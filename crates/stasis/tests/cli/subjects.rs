//! A directory is one subject: after a move, on another machine, and beside others of its name.

use crate::session::Session;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// A directory that was saved once, on a host with a store of its own.
fn saved(session: &Session, at: &str) -> PathBuf {
    let dir = session.home().join(at);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("plan.txt"), "buy milk").unwrap();
    session.data(0, &["save", dir.to_str().unwrap()]);
    dir
}

fn rows(session: &Session) -> Vec<Value> {
    let listed = session.json(0, &["list"]);
    listed["items"].as_array().unwrap().clone()
}

fn subject(session: &Session) -> String {
    let rows = rows(session);
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0]["subject"].as_str().unwrap().to_owned()
}

#[test]
fn a_directory_that_was_moved_goes_on_where_it_was() {
    let session = Session::new();
    let notes = saved(&session, "notes");
    let name = subject(&session);
    let moved = session.home().join("elsewhere/journal");
    fs::create_dir_all(moved.parent().unwrap()).unwrap();
    fs::rename(&notes, &moved).unwrap();

    let place = moved.to_str().unwrap();
    let log = session.json(0, &["log", place]);
    assert_eq!(log.as_array().unwrap().len(), 1, "{log}");
    fs::write(moved.join("plan.txt"), "buy bread").unwrap();
    session.data(0, &["save", place]);

    let rows = rows(&session);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["subject"], name.as_str());
    assert_eq!(rows[0]["snapshots"], 2);
    assert_eq!(
        rows[0]["dir"],
        fs::canonicalize(&moved).unwrap().to_str().unwrap()
    );
    let oldest = log[0]["snapshot_id"].as_str().unwrap();
    session.data(0, &["restore", place, oldest]);
    assert_eq!(
        fs::read_to_string(moved.join("plan.txt")).unwrap(),
        "buy milk"
    );
}

#[test]
fn a_store_is_named_by_a_path_as_well_and_is_never_part_of_what_it_holds() {
    let session = Session::new();
    let dir = session.home().join("work");
    fs::create_dir_all(dir.join("inner")).unwrap();
    fs::write(dir.join("plan.txt"), "buy milk").unwrap();
    let place = dir.to_str().unwrap();
    let run = |code: i32, words: &[&str]| {
        let mut command = session.command(&[&["--json"], words].concat());
        let output = command.current_dir(dir.join("inner")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        serde_json::from_str::<Value>(&said).unwrap()
    };

    let saved = run(0, &["--store", "../store", "save", place]);
    let again = run(0, &["--store", "../store", "save", place, "--allow-empty"]);
    let whole = dir.join("store");
    let listed = run(0, &["--store", whole.to_str().unwrap(), "list"]);

    assert_eq!(saved["own_places"], serde_json::json!(["store"]), "{saved}");
    assert_eq!((&saved["files"], &again["files"]), (&1.into(), &1.into()));
    assert_eq!(listed["items"][0]["snapshots"], 2, "{listed}");
    assert_eq!(listed["items"][0]["encrypted"], false, "{listed}");
    // A file is no store: the caller is mistaken, and nothing is out of reach.
    let file = dir.join("plan.txt");
    run(2, &["--store", file.to_str().unwrap(), "save", place]);
    run(2, &["--store", "../nowhere/../store", "list"]);
}

#[test]
fn a_store_that_is_a_path_without_a_dot_is_refused_with_the_path_to_write() {
    let session = Session::new();
    let dir = session.home().join("work");
    fs::create_dir_all(dir.join("there/store")).unwrap();
    let refused = |words: &[&str], variable: Option<&str>| {
        let mut command = session.command(&[&["--json"], words].concat());
        command.envs(variable.map(|store| ("STASIS_STORE", store)));
        let output = command.current_dir(&dir).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let hint = said["error"]["hint"].as_str().unwrap().to_owned();
        (said.to_string(), hint)
    };

    for name in ["there/store", "nowhere/store", "store"] {
        let by_flag = [
            refused(&["--store", name, "list"], None),
            refused(&["repo", "--repo", name, "snapshots"], None),
            refused(&["copy", "--all", "--to", name], None),
        ];
        let (message, _) = refused(&["list"], Some(name));

        for (message, hint) in by_flag {
            assert!(message.contains(&format!("`{name}`")), "{message}");
            assert!(hint.ends_with(&format!("write ./{name}")), "{hint}");
        }
        // A variable is meant wherever somebody stands.
        assert!(message.contains("write the whole one"), "{message}");
    }
    assert!(!dir.join("nowhere").exists() && !dir.join("store").exists());
    let (message, _) = refused(&["--store", "secret@host/path", "list"], None);
    assert!(!message.contains("secret"), "{message}");
}

#[test]
fn another_machine_finds_restores_and_links_what_a_first_one_saved() {
    let first = Session::new();
    let _ = saved(&first, "notes");
    let store = format!(
        "file://{}",
        first.home().join("data/stasis/store").display()
    );
    let second = Session::on(&store);
    let row = rows(&second).remove(0);
    assert!(row.get("dir").is_none(), "{row}");
    let name = row["subject"].as_str().unwrap();

    let nowhere = second.run(&["restore", "dir:notes"]);
    let copy = second.home().join("copy");
    let to = copy.to_str().unwrap();
    second.data(0, &["restore", "dir:notes", "--to", to]);
    let copied = second.run(&["log", to]);
    second.data(0, &["link", to, name]);
    let log = second.json(0, &["log", to]);
    fs::write(copy.join("plan.txt"), "buy bread").unwrap();
    second.data(0, &["save", to]);

    assert_eq!(nowhere.code, 3, "{}", nowhere.err);
    assert!(nowhere.err.contains("--to DIR"), "{}", nowhere.err);
    assert_eq!(copied.code, 3, "a copy is no subject by itself");
    assert!(copied.err.contains("stasis link"), "{}", copied.err);
    assert_eq!(log.as_array().unwrap().len(), 1, "{log}");
    let row = rows(&first).remove(0);
    assert_eq!(row["snapshots"], 2);
    assert_eq!(row["subject"], name);
    // The first host is told that somebody went on, and has the other's state when it asks.
    let notes = first.home().join("notes");
    first.data(0, &["restore", notes.to_str().unwrap()]);
    assert_eq!(
        fs::read_to_string(notes.join("plan.txt")).unwrap(),
        "buy bread"
    );
}

#[test]
fn a_name_that_two_directories_have_is_not_guessed() {
    let session = Session::new();
    for at in ["a/notes", "b/notes"] {
        let _ = saved(&session, at);
    }

    let several = session.run(&["log", "dir:notes"]);
    let none = session.run(&["log", "dir:letters"]);

    assert_eq!(several.code, 2, "{}", several.err);
    for row in rows(&session) {
        let name = row["subject"].as_str().unwrap();
        assert!(several.err.contains(name), "{}", several.err);
        session.data(0, &["log", name]);
    }
    assert_eq!(none.code, 3, "{}", none.err);
    assert!(none.err.contains("stasis list"), "{}", none.err);
}

#[test]
fn a_directory_is_linked_to_one_subject_only() {
    let session = Session::new();
    let notes = saved(&session, "notes");
    let letters = saved(&session, "letters");

    let refused = session.run(&["link", letters.to_str().unwrap(), "dir:notes"]);
    let again = session.run(&["link", notes.to_str().unwrap(), "dir:notes"]);

    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("dir:notes-"), "{}", refused.err);
    assert_eq!(again.code, 0, "{}", again.err);
}

#[test]
fn a_copy_of_a_directory_stores_next_to_nothing() {
    let session = Session::new();
    let notes = session.home().join("notes");
    fs::create_dir_all(&notes).unwrap();
    let bytes: Vec<u8> = (0..400_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(notes.join("large"), &bytes).unwrap();
    session.data(0, &["save", notes.to_str().unwrap()]);
    let copy = session.home().join("copy");
    fs::create_dir_all(&copy).unwrap();
    fs::write(copy.join("large"), &bytes).unwrap();

    let saved = session.json(0, &["save", copy.to_str().unwrap()]);

    let stored = saved["bytes_stored"].as_u64().unwrap();
    assert!(stored < 4096, "{saved}");
}
