//! A directory that has snapshots in the store and checkpoints on this host: one subject, one timeline, one undo.

use crate::session::{Said, Session, said};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// A directory that is a workspace; nothing of it is saved yet.
struct Work {
    session: Session,
    dir: PathBuf,
}

impl Work {
    fn new() -> Self {
        let session = Session::new();
        let dir = session.home().join("work");
        fs::create_dir_all(dir.join("src")).unwrap();
        let work = Self { session, dir };
        work.write("src/main.rs", "one");
        work.write("notes", "first");
        let dir = work.dir.to_str().unwrap();
        let init = ["workspace", "init", dir, "--no-checkpoint"];
        work.session.json(0, &init);
        work
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.dir.join(name)).ok()
    }

    fn run_in(&self, within: &str, arguments: &[&str]) -> Said {
        let mut command = self.session.command(arguments);
        said(command.current_dir(self.dir.join(within)).output().unwrap())
    }

    fn data(&self, arguments: &[&str]) -> String {
        let said = self.run_in("", arguments);
        assert_eq!(said.code, 0, "{arguments:?}\n{}{}", said.out, said.err);
        said.out
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.data(&[&["--json"], arguments].concat())).unwrap()
    }

    fn checkpoint(&self, name: &str) -> String {
        let made = self.json(&["workspace", "create", name]);
        made["checkpoint"].as_str().unwrap().to_owned()
    }

    fn save(&self) -> String {
        let saved = self.json(&["save"]);
        saved["snapshot_id"].as_str().unwrap().to_owned()
    }

    fn timeline(&self) -> Vec<(String, Value)> {
        let log = self.json(&["log"]);
        let items = log["items"].as_array().unwrap().iter();
        let item = |item: &Value| (item["snapshot"].as_str().unwrap().to_owned(), item.clone());
        items.map(item).collect()
    }
}

#[test]
fn checkpoints_are_looked_into_without_a_store() {
    let work = Work::new();
    let one = work.checkpoint("one");
    fs::remove_dir_all(work.dir.join("src")).unwrap();
    work.write("notes", "second, and longer");
    let two = work.checkpoint("two");

    let log = work.timeline();
    let listed = work.data(&["ls", &one, "-r"]);
    let within = work.run_in("", &["ls", "two", "--path", "src"]);
    let shown = work.data(&["show", &one]);
    let found = work.data(&["find", "main.rs"]);
    let differs = work.data(&["diff", &one, &two]);
    let now = work.data(&["diff", &two]);

    let names: Vec<&str> = log.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, [&two, &one]);
    assert_eq!(log[0].1["changed"]["deleted"], 1, "{}", log[0].1);
    assert_eq!(log[0].1["changed"]["edited"], 1, "{}", log[0].1);
    assert!(listed.contains("src/main.rs"), "{listed}");
    assert_eq!(within.code, 3, "{}{}", within.out, within.err);
    assert_eq!(work.data(&["cat", &one, "src/main.rs"]), "one");
    assert_eq!(work.data(&["cat", "two", "notes"]), "second, and longer");
    assert!(shown.contains("name       one"), "{shown}");
    assert!(found.contains(&one) && !found.contains(&two), "{found}");
    assert!(differs.contains("removed   src/main.rs"), "{differs}");
    assert!(differs.contains("changed   notes"), "{differs}");
    assert_eq!(now, "");
    assert!(!work.session.object("repo.json").exists());
}

#[test]
fn one_timeline_has_both_and_a_name_leads_to_either() {
    let work = Work::new();
    let here = work.checkpoint("before");
    work.write("notes", "second");
    let saved = work.save();
    work.write("notes", "third");
    let last = work.checkpoint("after");

    let log = work.timeline();
    let mixed = work.data(&["diff", &here, "latest"]);
    let by_time = work.data(&["cat", "@-0s", "notes"]);

    let names: Vec<&str> = log.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, [&last, &saved, &here]);
    assert_eq!(log[1].1["place"], "store");
    assert_eq!(log[1].1["changed"]["edited"], 1, "{}", log[1].1);
    assert_eq!(log[1].1["active"], true);
    assert_eq!(mixed.trim_end(), "changed   notes");
    assert_eq!(by_time, "third");
    assert_eq!(work.data(&["cat", "latest", "notes"]), "second");
    assert_eq!(work.data(&["cat", &saved[..8], "notes"]), "second");
    // Deep in it, the same directory is meant.
    let deep = work.run_in("src", &["--json", "log"]);
    assert!(deep.out.contains(&saved) && deep.out.contains(&last));
    let text = work.data(&["log"]);
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn a_checkpoint_is_restored_by_the_everyday_verb_and_undone_by_one_word() {
    let work = Work::new();
    let one = work.checkpoint("one");
    fs::remove_dir_all(work.dir.join("src")).unwrap();
    work.write("new", "made since");

    let plan = work.data(&["restore", &one, "--dry-run"]);
    assert!(plan.contains("bring back"), "{plan}");
    assert_eq!(work.read("src/main.rs"), None);

    work.data(&["restore", &one, "--path", "src"]);
    assert_eq!(work.read("src/main.rs").as_deref(), Some("one"));
    work.data(&["undo"]);
    assert_eq!(work.read("src/main.rs"), None);

    let restored = work.data(&["restore", &one, "--yes"]);
    assert_eq!(work.read("src/main.rs").as_deref(), Some("one"));
    assert_eq!(work.read("new"), None);
    let undo = restored
        .lines()
        .find_map(|line| line.strip_prefix("Undo with: stasis "));
    let words: Vec<&str> = undo.unwrap().split(' ').collect();
    work.data(&words);
    assert_eq!(work.read("new").as_deref(), Some("made since"));

    let copy = work.session.home().join("copy");
    work.data(&["restore", "one", "--to", copy.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(copy.join("src/main.rs")).unwrap(), "one");
    let latest = work.run_in("", &["restore"]);
    assert_eq!(latest.code, 3, "no checkpoint is `latest`: {}", latest.out);
}

#[test]
fn undo_takes_back_what_was_done_last_wherever_it_came_from() {
    let work = Work::new();
    let saved = work.save();
    let one = work.checkpoint("one");
    work.write("notes", "second");
    work.save();
    work.write("notes", "unsaved");

    work.data(&["restore", &saved[..8]]);
    assert_eq!(work.read("notes").as_deref(), Some("first"));
    work.data(&["undo"]);
    assert_eq!(work.read("notes").as_deref(), Some("unsaved"));
    // `latest` means what it meant before.
    assert_eq!(work.data(&["cat", "latest", "notes"]), "second");
    work.data(&["undo"]);
    assert_eq!(work.read("notes").as_deref(), Some("first"));
    assert_eq!(work.data(&["cat", "latest", "notes"]), "first");

    work.write("notes", "third");
    work.data(&["restore", &one, "--yes"]);
    work.data(&["undo", "--yes"]);
    assert_eq!(work.read("notes").as_deref(), Some("third"));
}

#[test]
fn the_undo_of_a_part_touches_that_part_alone() {
    let work = Work::new();
    let saved = work.save();
    fs::remove_file(work.dir.join("notes")).unwrap();
    work.write("src/main.rs", "two");
    work.write("other", "before");

    let paths = ["--path", "notes", "--path", "src/main.rs"];
    work.data(&[&["restore", &saved[..8]], &paths[..]].concat());
    assert_eq!(work.read("notes").as_deref(), Some("first"));
    work.write("other", "written since");
    let plan = work.data(&["undo", "--dry-run"]);
    let undone = work.data(&["undo"]);

    assert!(plan.contains("would remove notes"), "{plan}");
    assert!(undone.starts_with("Undid the last restore"), "{undone}");
    assert_eq!(work.read("notes"), None, "it was not there before");
    assert_eq!(work.read("src/main.rs").as_deref(), Some("two"));
    assert_eq!(work.read("other").as_deref(), Some("written since"));
    // And the undo of that.
    work.data(&["undo"]);
    assert_eq!(work.read("notes").as_deref(), Some("first"));
    assert_eq!(work.read("other").as_deref(), Some("written since"));
}

#[test]
fn several_are_forgotten_at_once_or_none() {
    let work = Work::new();
    let first = work.save();
    let one = work.checkpoint("one");
    work.write("notes", "second");
    work.save();
    let two = work.checkpoint("two");

    let unknown = work.run_in("", &["forget", &first[..8], "cp-99"]);
    assert_eq!(unknown.code, 3, "{}", unknown.out);
    assert_eq!(work.timeline().len(), 4);
    work.data(&["forget", &first[..8], &one, "--dry-run"]);
    assert_eq!(work.timeline().len(), 4);
    let gone = work.json(&["forget", &first[..8], &one]);

    assert_eq!(gone["forgotten"].as_array().unwrap().len(), 2);
    let left = work.timeline();
    assert_eq!((left.len(), &*left[0].0), (2, &*two));
    let pinned = work.run_in("", &["pin", &two]);
    assert_eq!(pinned.code, 2, "{}", pinned.out);
    assert!(pinned.err.contains("stasis save"), "{}", pinned.err);
}

#[test]
fn damage_in_a_checkpoint_is_no_content() {
    let work = Work::new();
    let lines =
        (0..4000_u64).map(|line| format!("{:x}\n", line.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    work.write("notes", &lines.collect::<String>());
    let one = work.checkpoint("one");
    let state = work.session.home().join("state/stasis/workspaces");
    let mut damaged = 0;
    for file in crate::encrypted::files(&state) {
        let is_content = file.components().any(|part| {
            let part = part.as_os_str();
            part == "chunks" || part == "objects"
        });
        let Ok(mut bytes) = fs::read(&file) else {
            continue;
        };
        if is_content && bytes.len() > 300 {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&file, bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "nothing was damaged in {}", state.display());

    let read = work.run_in("", &["cat", &one, "notes"]);

    assert_eq!(read.code, 9, "{}", read.err);
}
