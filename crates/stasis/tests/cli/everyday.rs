//! The everyday verbs: on the directory one stands in, on one that is named, with snapshots named in every way.

use crate::encrypted::files;
use crate::session::{Said, Session, oldest_first, said};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory with three snapshots, the second of which has a message.
struct Notes {
    session: Session,
    dir: PathBuf,
    ids: Vec<String>,
}

impl Notes {
    fn new() -> Self {
        let session = Session::new();
        let dir = session.home().join("notes");
        fs::create_dir_all(dir.join("deep")).unwrap();
        let mut notes = Self {
            session,
            dir,
            ids: Vec::new(),
        };
        notes.write("todo", "first");
        notes.write("deep/plan.md", "the plan");
        notes.save(&[]);
        notes.write("todo", "second");
        notes.write("big", &"x".repeat(300_000));
        notes.save(&["-m", "before the meeting"]);
        notes.write("todo", "third");
        fs::remove_file(notes.dir.join("big")).unwrap();
        notes.save(&[]);
        notes
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.join(name), text).unwrap();
    }

    fn save(&mut self, more: &[&str]) {
        let saved = self.json(0, &[&["save"], more].concat());
        self.ids
            .push(saved["snapshot_id"].as_str().unwrap().to_owned());
    }

    /// Runs a command where the directory is.
    fn run(&self, arguments: &[&str]) -> Said {
        let mut command = self.session.command(arguments);
        said(command.current_dir(&self.dir).output().unwrap())
    }

    fn data(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, 0, "{arguments:?}\n{}{}", said.out, said.err);
        said.out
    }

    fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let said = self.run(&[&["--json"], arguments].concat());
        assert_eq!(said.code, code, "{arguments:?}\n{}{}", said.out, said.err);
        serde_json::from_str(&said.out).unwrap()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_snapshot_is_named_by_id_message_time_or_how_many_saves_ago_it_was() {
    let notes = Notes::new();
    let cat = |snapshot: &str| notes.data(&["cat", snapshot, "todo"]);

    assert_eq!(notes.data(&["cat", "todo"]), "third");
    assert_eq!(cat("latest"), "third");
    assert_eq!(cat("latest~1"), "second");
    assert_eq!(cat("latest~2"), "first");
    assert_eq!(cat("before the meeting"), "second");
    assert_eq!(cat(&notes.ids[0]), "first");
    assert_eq!(cat("@-0s"), "third");
    let made = notes.json(0, &["show", &notes.ids[1]])["timestamp"].clone();
    let at = format!("@{}", made.as_str().unwrap());
    // To the second: what was saved in the same one counts as made by then.
    assert!(["second", "third"].contains(&&*cat(&at)), "{at}");
    assert_eq!(notes.run(&["cat", "latest~3", "todo"]).code, 3);
    assert_eq!(notes.run(&["cat", "@2020-01-01", "todo"]).code, 3);
    let refused = notes.run(&["cat", "@noon", "todo"]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.err.contains("`@noon` is no time"),
        "{}",
        refused.err
    );
}

#[test]
fn a_subject_comes_first_or_is_where_one_stands() {
    let notes = Notes::new();
    let dir = text(&notes.dir);
    let name = notes.session.json(0, &["list"])["items"][0]["subject"].clone();
    let name = name.as_str().unwrap();

    for subject in [dir, name] {
        let first = notes.session.data(0, &["cat", subject, "latest~2", "todo"]);
        assert_eq!(first, "first");
    }
    let here = notes.json(0, &["diff", "latest~2", "latest"]);
    let there = notes.session.json(0, &["diff", dir, "latest~2", "latest"]);
    assert_eq!(here, there);
    assert_eq!(here["items"].as_array().unwrap().len(), 1);
    fs::create_dir(notes.dir.join("latest")).unwrap();
    let both = notes.run(&["show", "latest"]);
    assert_eq!(both.code, 2);
    assert!(both.err.contains("./latest"), "{}", both.err);
    let shown = notes.json(0, &["show", ".", "latest"]);
    assert_eq!(shown["snapshot_id"], *notes.ids[2]);
}

#[test]
fn restore_and_log_need_no_path_inside_the_directory() {
    let notes = Notes::new();

    notes.data(&["restore", "latest~2"]);

    assert_eq!(fs::read(notes.dir.join("todo")).unwrap(), b"first");
    let log = notes.data(&["log"]);
    // Eight characters of an id are enough to name it.
    assert!(log.contains(&notes.ids[1][..8]), "{log}");
    assert!(!log.contains(&notes.ids[1]), "{log}");
    assert!(log.contains("before the meeting"), "{log}");
    assert!(log.contains(" s ago") || log.contains(" min ago"), "{log}");
}

#[test]
fn a_listing_shows_one_level_and_with_a_flag_all() {
    let notes = Notes::new();
    let paths = |arguments: &[&str]| -> Vec<String> {
        let listed = notes.json(0, arguments);
        let all = listed["items"].as_array().unwrap().iter();
        all.map(|one| one["path"].as_str().unwrap().to_owned())
            .collect()
    };

    assert_eq!(paths(&["ls"]), ["deep", "todo"]);
    assert_eq!(paths(&["ls", "latest~1"]), ["big", "deep", "todo"]);
    assert_eq!(paths(&["ls", "-r"]), ["deep", "deep/plan.md", "todo"]);
    assert_eq!(paths(&["ls", "--path", "deep"]), ["deep", "deep/plan.md"]);
    assert_eq!(notes.run(&["ls", "--path", "nothing"]).code, 3);
}

#[test]
fn a_name_is_found_in_every_version_it_ever_had() {
    let notes = Notes::new();

    let todo = notes.json(0, &["find", "todo"]);
    let plan = notes.json(0, &["find", "*.md"]);
    let deep = notes.json(0, &["find", "deep"]);
    let none = notes.run(&["find", "nothing"]);

    let items = todo["items"].as_array().unwrap();
    let firsts: Vec<&str> = items
        .iter()
        .map(|one| one["first"].as_str().unwrap())
        .collect();
    assert_eq!(firsts, notes.ids);
    let plan = &plan["items"].as_array().unwrap()[..];
    assert_eq!(plan.len(), 1);
    assert_eq!(
        (&plan[0]["path"], &plan[0]["snapshots"]),
        (&"deep/plan.md".into(), &3.into())
    );
    assert_eq!(
        (&plan[0]["first"], &plan[0]["last"]),
        (&notes.ids[0].as_str().into(), &notes.ids[2].as_str().into())
    );
    // Not what is in it.
    assert_eq!(deep["items"].as_array().unwrap().len(), 1);
    assert_eq!(none.code, 3);
}

#[test]
fn what_a_snapshot_takes_is_free_once_it_is_forgotten_and_collected() {
    let notes = Notes::new();
    let used = notes.json(0, &["du"]);
    let items = used["items"].as_array().unwrap();
    let freed = |at: usize| items[at]["bytes_freed"].as_u64().unwrap();
    let before = used["bytes_own"].as_u64().unwrap();
    // `big` is in the second alone.
    assert!(freed(1) > 0, "{used}");
    assert!(
        items
            .iter()
            .all(|one| one["bytes_stored"].as_u64() >= one["bytes_freed"].as_u64())
    );

    notes.data(&["forget", &notes.ids[1][..8]]);
    let after = notes.json(0, &["du"]);

    assert_eq!(after["items"].as_array().unwrap().len(), 2);
    let after = after["bytes_own"].as_u64().unwrap();
    assert_eq!(before - after, freed(1), "{used}");
    notes.data(&["gc"]);
    assert_eq!(notes.data(&["cat", "todo"]), "third");
    assert_eq!(notes.data(&["cat", "latest~1", "todo"]), "first");
}

#[test]
fn a_pin_is_kept_by_gc_and_can_be_taken_away() {
    let notes = Notes::new();
    notes.data(&["pin", "latest~2"]);

    notes.data(&["gc", "--keep", "1"]);
    let kept = oldest_first(&notes.json(0, &["log"]));
    notes.data(&["pin", &notes.ids[0], "--off"]);
    notes.data(&["gc", "--keep", "1"]);

    let ids: Vec<&str> = { kept.as_array().unwrap().iter() }
        .map(|row| row["snapshot_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, [&*notes.ids[0], &*notes.ids[2]]);
    assert_eq!(
        notes.json(0, &["log"])["items"].as_array().unwrap().len(),
        1
    );
}

#[test]
fn whoever_stands_deep_in_a_saved_directory_means_that_directory() {
    let notes = Notes::new();
    let deep = notes.dir.join("deep");
    let run = |arguments: &[&str]| {
        let mut command = notes.session.command(arguments);
        said(command.current_dir(&deep).output().unwrap())
    };
    notes.write("todo", "fourth");

    let saved = run(&["save"]);
    let log = run(&["--json", "log"]);
    let restored = run(&["restore", "latest~3"]);

    for said in [&saved, &log, &restored] {
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    }
    assert!(saved.out.starts_with("Saved notes-"), "{}", saved.out);
    let log: Value = serde_json::from_str(&log.out).unwrap();
    assert_eq!(log["items"].as_array().unwrap().len(), 4);
    assert_eq!(fs::read(notes.dir.join("todo")).unwrap(), b"first");
    assert_eq!(
        notes.session.json(0, &["list"])["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    // One that is named is that one.
    notes.session.data(0, &["save", text(&deep)]);
    assert_eq!(
        notes.session.json(0, &["list"])["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn a_directory_that_was_deleted_comes_back_by_its_bare_name() {
    let notes = Notes::new();
    let above = notes.dir.parent().unwrap().to_owned();
    fs::remove_dir_all(&notes.dir).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = notes.session.command(arguments);
        said(command.current_dir(&above).output().unwrap())
    };

    let shown = run(&["cat", "notes", "todo"]);
    let restored = run(&["restore", "notes"]);
    let unknown = run(&["gc", "nothing"]);

    assert_eq!((shown.code, &*shown.out), (0, "third"), "{}", shown.err);
    assert_eq!(restored.code, 0, "{}", restored.err);
    assert_eq!(fs::read(notes.dir.join("todo")).unwrap(), b"third");
    assert_eq!(unknown.code, 3, "{}{}", unknown.out, unknown.err);
}

/// The chunks of the usual store.
fn chunks(session: &Session) -> Vec<PathBuf> {
    let mut all = files(&session.object(""));
    all.retain(|path| text(path).contains("/chunks/"));
    all
}

#[test]
fn a_save_of_an_unchanged_tree_is_a_new_snapshot_if_the_last_one_lost_a_chunk_for_good() {
    let session = Session::new();
    let dir = session.home().join("n");
    fs::create_dir(&dir).unwrap();
    let out = session.home().join("out");
    let dir_text = text(&dir);
    for (name, content) in [("a", "first"), ("b", "stays")] {
        fs::write(dir.join(name), content).unwrap();
    }
    session.data(0, &["save", dir_text]);
    let old = chunks(&session);
    fs::write(dir.join("a"), "second").unwrap();
    session.data(0, &["save", dir_text]);
    // It holds what `a` was, which nobody has any more, and what `b` is.
    for chunk in &old {
        fs::remove_file(chunk).unwrap();
    }
    let lost = session.run(&["restore", dir_text, "--to", text(&out)]);
    assert_eq!(lost.code, 9, "{}", lost.err);
    session.data(9, &["repo", "check"]);

    session.data(0, &["save", dir_text]);

    session.data(0, &["restore", dir_text, "--to", text(&out)]);
    assert_eq!(fs::read(out.join("a")).unwrap(), b"second");
    assert_eq!(fs::read(out.join("b")).unwrap(), b"stays");
    let again = session.json(0, &["save", dir_text]);
    let log = oldest_first(&session.json(0, &["log", dir_text]));
    let ids: Vec<&Value> = { log.as_array().unwrap().iter() }
        .map(|row| &row["snapshot_id"])
        .collect();
    assert_eq!(ids.len(), 3, "{again}");
}

#[test]
fn a_dry_run_to_another_directory_shows_what_is_written_there_and_refuses_what_the_restore_would() {
    let notes = Notes::new();
    notes.write("todo", "changed since");
    let new = notes.session.home().join("new");
    let taken = notes.session.home().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("mine"), "mine").unwrap();
    let (to, to_taken) = (text(&new), text(&taken));

    let plan = notes.json(0, &["restore", "--to", to, "--dry-run"]);
    let words = notes.data(&["restore", "--to", to, "--dry-run"]);
    let part = notes.data(&["restore", "--to", to, "--path", "deep", "--dry-run"]);
    let refused = notes.run(&["restore", "--to", to_taken, "--dry-run"]);

    let written = |value: &Value| -> Vec<String> {
        let rows = value["changes"].as_array().unwrap().iter();
        rows.map(|row| row["path"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(written(&plan), ["deep", "deep/plan.md", "todo"]);
    assert!(words.contains("will add 3 entries"), "{words}");
    assert!(words.contains(to), "{words}");
    assert!(!part.contains("todo"), "{part}");
    assert!(!new.exists());
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert_eq!(
        refused.code,
        notes.run(&["restore", "--to", to_taken]).code,
        "as the restore itself"
    );
    notes.json(0, &["restore", "--to", to]);
    assert_eq!(fs::read_to_string(new.join("todo")).unwrap(), "third");
}

#[test]
fn a_session_of_which_nothing_is_saved_yet_has_nothing_to_collect_or_to_check() {
    let session = Session::new();
    let dir = session.home().join("ws");
    fs::create_dir_all(dir.join("outputs")).unwrap();
    fs::write(dir.join("outputs/a"), "one").unwrap();
    let register = ["session", "register", "acme/42", "--dir", text(&dir)];
    session.json(0, &[&register[..], &["--terminate-cmd", "true"]].concat());
    let of = "session:acme/42";

    let collected = session.json(0, &["gc", of]);
    let checked = session.json(0, &["check", of]);
    let missing = session.run(&["gc", "session:acme/43"]);

    assert_eq!(collected["items"], serde_json::json!([]));
    assert_eq!(checked["snapshots"], 0);
    assert_eq!(missing.code, 3, "{}", missing.out);
    session.json(0, &["session", "snapshot", "acme/42"]);
    fs::write(dir.join("outputs/a"), "changed since").unwrap();
    let to = session.home().join("copy");
    let plan = session.json(0, &["restore", of, "--to", text(&to), "--dry-run"]);
    let rows = plan["changes"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{plan:#}");
    // Only what is done is shown: a session is not restored where it is.
    let refused = session.run(&["restore", of, "--dry-run"]);
    assert_eq!(refused.code, 2, "{}", refused.out);
    assert!(refused.err.contains("--to"), "{}", refused.err);
}
