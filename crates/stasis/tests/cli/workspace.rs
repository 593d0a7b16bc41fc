//! Workspaces: checkpoints of a live tree, and every way back.

use crate::project::names;
use crate::session::{Said, Session, said};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// A workspace in a home of its own.
pub(crate) struct Tree {
    pub(crate) session: Session,
}

impl Tree {
    /// A workspace with these files.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        Self::with(files, &[])
    }

    /// The same, made known with more words.
    pub(crate) fn with(files: &[(&str, &str)], more: &[&str]) -> Self {
        Self::of(Session::new(), files, more)
    }

    /// The same, in a session that is there.
    pub(crate) fn of(session: Session, files: &[(&str, &str)], more: &[&str]) -> Self {
        let tree = Self { session };
        fs::create_dir(tree.at("")).unwrap();
        for (path, text) in files {
            tree.write(path, text);
        }
        let dir = tree.dir();
        // Every checkpoint of a test is one that it made itself.
        let init = ["workspace", "init", dir.as_str(), "--no-checkpoint"];
        let init = [&init, more].concat();
        tree.session.json(0, &init);
        tree
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.session.home().join("work").join(path)
    }

    pub(crate) fn dir(&self) -> String {
        self.session
            .home()
            .join("work")
            .to_str()
            .unwrap()
            .to_owned()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let dir = self.dir();
        let all = [&["workspace"], words, &["--workspace", dir.as_str()]].concat();
        self.session.command(&all)
    }

    pub(crate) fn run(&self, words: &[&str]) -> Said {
        said(self.command(words).output().unwrap())
    }

    pub(crate) fn json(&self, code: i32, words: &[&str]) -> Value {
        let dir = self.dir();
        let all = [&["workspace"], words, &["--workspace", dir.as_str()]].concat();
        self.session.json(code, &all)
    }

    /// Makes a named checkpoint.
    pub(crate) fn checkpoint(&self, name: &str) -> String {
        let made = self.json(0, &["create", name]);
        assert_eq!(made["created"], true, "{made:#}");
        text(&made["checkpoint"])
    }

    /// Where its checkpoints are.
    pub(crate) fn kept(&self) -> PathBuf {
        PathBuf::from(text(&self.json(0, &["status"])["session"]))
    }

    /// All checkpoints with their hashes, the newest first.
    pub(crate) fn listed(&self) -> Vec<(String, Value)> {
        let all = self.json(0, &["list"]);
        let rows = all["items"].as_array().unwrap().iter();
        rows.map(|row| (text(&row["checkpoint"]), row["hash"].clone()))
            .collect()
    }

    /// Every file and link of the live tree, with what is in it.
    pub(crate) fn contents(&self) -> BTreeMap<PathBuf, String> {
        contents(&self.at(""))
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

pub(crate) fn contents(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let inside = if kind.is_dir() {
                waiting.push(path.clone());
                "a directory".to_owned()
            } else if kind.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else {
                String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
            };
            found.insert(path.strip_prefix(top).unwrap().to_owned(), inside);
        }
    }
    found
}

/// Asserts that an answer has these fields, among others.
pub(crate) fn says(told: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&told[name], value, "`{name}` in {told:#}");
    }
}

/// What became of each entry, sorted by path.
pub(crate) fn changed(told: &Value) -> Vec<(String, String)> {
    let changes = told["items"].as_array().unwrap().iter();
    let mut changes: Vec<(String, String)> = changes
        .map(|change| (text(&change["path"]), text(&change["op"])))
        .collect();
    changes.sort();
    changes
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(path, op): &(&str, &str)| ((*path).to_owned(), (*op).to_owned());
    of.iter().map(own).collect()
}

/// Bytes that do not become fewer by compression.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn a_directory_becomes_a_workspace_once_and_nothing_is_put_into_it() {
    let session = Session::new();
    let dir = session.home().join("work");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a"), "one").unwrap();
    let dir = dir.to_str().unwrap();

    let first = session.json(0, &["workspace", "init", dir, "--budget", "2GB"]);
    let again = session.json(0, &["workspace", "init", dir]);
    let words = session.run(&["workspace", "init", dir]);

    assert_eq!(
        (&first["workspace"], &first["existed"]),
        (&json!(dir), &json!(false))
    );
    assert_eq!(first["budget_bytes"], 2_000_000_000_u64);
    assert!(["clone", "chunked"].contains(&text(&first["form"]).as_str()));
    let kept = text(&first["session"]);
    let beneath = session.home().join("state/stasis/workspaces/work-");
    let hex = kept.strip_prefix(beneath.to_str().unwrap()).unwrap();
    assert!(
        hex.len() == 12 && hex.chars().all(|c| c.is_ascii_hexdigit()),
        "{kept}"
    );
    assert_eq!(
        (&again["existed"], &again["session"]),
        (&json!(true), &first["session"])
    );
    assert_eq!(
        again["budget_bytes"], first["budget_bytes"],
        "what is known stays as it is"
    );
    assert!(words.out.contains(&kept), "{}", words.out);
    assert_eq!(names(Path::new(dir)), ["a"]);
    // Its first checkpoint was made where somebody could watch, and only once.
    says(
        &first["first"],
        &json!({ "created": true, "checkpoint": "cp-0", "origin": "auto", "files_count": 1 }),
    );
    assert_eq!(again["first"], Value::Null);
    let all = session.json(0, &["workspace", "list", "--workspace", dir]);
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
}

#[test]
fn the_root_the_home_and_a_session_inside_the_workspace_are_refused() {
    let session = Session::new();
    let dir = session.home().join("work");
    fs::create_dir(&dir).unwrap();
    let inside = dir.join("state");
    let run = |words: &[&str]| {
        let mut command = session.command(&[&["workspace", "init"], words].concat());
        said(command.env("HOME", session.home()).output().unwrap())
    };

    let root = run(&["/"]);
    let home = run(&[session.home().to_str().unwrap()]);
    let within = run(&[
        dir.to_str().unwrap(),
        "--session-dir",
        inside.to_str().unwrap(),
    ]);
    let same = run(&[
        dir.to_str().unwrap(),
        "--session-dir",
        dir.to_str().unwrap(),
    ]);
    let absent = run(&[session.home().join("no").to_str().unwrap()]);

    for refused in [&root, &home, &within, &same] {
        assert_eq!(refused.code, 2, "{}{}", refused.out, refused.err);
        assert!(refused.err.contains("\nhint: "), "{}", refused.err);
    }
    assert!([2, 3].contains(&absent.code), "{}", absent.err);
    assert!(names(&dir).is_empty(), "{:?}", names(&dir));
    assert!(!session.home().join("no").exists());
}

#[test]
fn without_a_state_directory_people_are_told_what_to_set() {
    let session = Session::new();
    let mut command = session.command(&["workspace", "list"]);
    command.env_remove("XDG_STATE_HOME").env_remove("HOME");

    let told = said(command.output().unwrap());

    assert_eq!(told.code, 2);
    assert!(told.err.contains("XDG_STATE_HOME"), "{}", told.err);
}

#[test]
fn a_workspace_is_named_once() {
    let session = Session::new();

    let init = session.run(&["workspace", "init", "a", "--workspace", "b"]);
    let watch = session.run(&["workspace", "watch", "a", "--workspace", "b"]);

    for refused in [init, watch] {
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains("named twice"), "{}", refused.err);
    }
}

#[test]
fn a_directory_that_nobody_made_known_is_no_workspace() {
    let session = Session::new();
    let dir = session.home().to_str().unwrap();

    let told = session.run(&["workspace", "list", "--workspace", dir]);
    let as_json = session.json(3, &["workspace", "list", "--workspace", dir]);

    assert_eq!(told.code, 3, "{}", told.err);
    assert!(told.err.contains("stasis protect DIR"), "{}", told.err);
    assert_eq!(as_json["error"]["kind"], "notfound");
    assert_eq!(as_json["error"]["directory"], dir);
}

#[test]
fn checkpoints_are_listed_the_newest_first_with_what_programs_need() {
    let tree = Tree::new(&[("a", "one"), ("deep/b", "second")]);

    let named = tree.json(0, &["create", "before it all"]);
    tree.write("a", "two");
    let auto = tree.json(0, &["create", "--auto"]);
    let all = tree.json(0, &["list"]);
    let table = tree.run(&["list"]);

    says(
        &named,
        &json!({
            "created": true, "checkpoint": "cp-10", "slot": 10, "origin": "manual", "name": "before it all",
            "available": 11, "files_count": 2, "bytes": 9, "evicted": [], "left_out_count": 0
        }),
    );
    assert_eq!(text(&named["hash"]).len(), 64, "{named:#}");
    says(&auto, &json!({ "checkpoint": "cp-0", "name": null }));
    let rows = all["items"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (&rows[0]["checkpoint"], &rows[1]["checkpoint"]),
        (&json!("cp-0"), &json!("cp-10"))
    );
    assert_eq!(
        (&rows[1]["hash"], &rows[1]["made_by"]),
        (&named["hash"], &json!("cli"))
    );
    assert_eq!(
        (&rows[1]["complete"], &rows[1]["files_count"]),
        (&json!(true), &json!(2))
    );
    assert!(rows[0]["epoch_millis"].as_u64() >= rows[1]["epoch_millis"].as_u64());
    says(
        &all,
        &json!({ "auto_max": 10, "manual_max": 12, "manual_available": 11 }),
    );
    let lines: Vec<&str> = table.out.lines().collect();
    assert!(lines[0].starts_with("CHECKPOINT"), "{}", table.out);
    assert!(
        lines[1].starts_with("cp-0 ") && lines[2].contains("before it all"),
        "{}",
        table.out
    );
}

#[test]
fn the_metadata_of_a_checkpoint_is_as_the_contract_says() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    let slot = tree.kept().join("auto_snapshots/10");

    let metadata = fs::read(slot.join("metadata.json")).unwrap();
    let metadata: Value = serde_json::from_slice(&metadata).unwrap();

    says(&metadata, &json!({ "slot": 10, "origin": "manual" }));
    assert_eq!(metadata["name"], "good");
    let (seconds, millis) = (
        metadata["epoch_secs"].as_u64().unwrap(),
        metadata["epoch_millis"].as_u64().unwrap(),
    );
    assert_eq!(seconds, millis / 1000);
    assert!(text(&metadata["timestamp"]).contains('T'));
    assert_eq!(
        metadata["hash"],
        tree.json(0, &["list"])["items"][0]["hash"]
    );
}

#[test]
fn list_with_changes_compares_each_checkpoint_with_the_one_before_it() {
    let tree = Tree::new(&[("a", "one"), ("b", "two")]);
    tree.checkpoint("first");
    tree.write("a", "ONE");
    fs::remove_file(tree.at("b")).unwrap();
    tree.write("c", "new");
    tree.checkpoint("second");

    let plain = tree.json(0, &["list"]);
    let all = tree.json(0, &["list", "--include-changes"]);
    let words = tree.run(&["list", "--include-changes"]);

    assert!(plain["items"][0].get("changes").is_none());
    let newest = &all["items"][0];
    assert_eq!(
        newest["changes_summary"],
        json!({ "created": 1, "edited": 1, "deleted": 1, "total": 3 })
    );
    assert_eq!(
        changed(&json!({ "items": newest["changes"] })),
        pairs(&[("a", "modified"), ("b", "deleted"), ("c", "created")])
    );
    assert!(
        words
            .out
            .contains("cp-11 (second): 1 created, 1 edited, 1 deleted"),
        "{}",
        words.out
    );
}

#[test]
fn a_new_checkpoint_is_said_with_its_name_and_size() {
    let tree = Tree::new(&[("a", "one"), ("b", "two")]);

    let named = tree.run(&["create", "x"]);
    let dry = tree.run(&["create", "y", "--dry-run"]);

    assert_eq!(named.out, "Checkpoint cp-10 \"x\": 2 files, 6 B\n");
    assert!(
        dry.out
            .starts_with("Would make checkpoint cp-11 \"y\": 2 files"),
        "{}",
        dry.out
    );
}

#[test]
fn an_automatic_checkpoint_is_made_only_if_something_changed() {
    let tree = Tree::new(&[("a", "one")]);
    let first = tree.json(0, &["create", "--auto"]);

    let second = tree.json(0, &["create", "--auto"]);
    let words = tree.run(&["create", "--auto"]);
    tree.write("a", "two");
    let third = tree.json(0, &["create", "--auto"]);
    let named = tree.run(&["create", "name", "--auto"]);

    says(&first, &json!({ "created": true, "checkpoint": "cp-0" }));
    says(&second, &json!({ "created": false, "checkpoint": "cp-0" }));
    assert!(second["skipped"].is_string(), "{second:#}");
    assert!(
        words.out.contains("No new checkpoint is needed: "),
        "{}",
        words.out
    );
    says(&third, &json!({ "created": true, "checkpoint": "cp-1" }));
    assert_eq!(named.code, 2, "{}", named.err);
}

#[test]
fn names_are_unique_and_never_look_like_a_slot() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");

    let taken = tree.json(11, &["create", "good"]);
    let slot = tree.run(&["create", "cp-3"]);
    let shouted = tree.run(&["create", "CP-new"]);
    let empty = tree.run(&["create", ""]);

    assert_eq!(
        (&taken["error"]["name"], &taken["error"]["checkpoint"]),
        (&json!("good"), &json!("cp-10"))
    );
    assert_eq!((slot.code, shouted.code, empty.code), (2, 2, 2));
    assert!(slot.err.contains("cp-"), "{}", slot.err);
    assert_eq!(tree.listed().len(), 1);
}

#[test]
fn a_full_pool_names_the_maximum_and_a_freed_slot_is_taken_without_harm_to_others() {
    let tree = Tree::new(&[("a", "one")]);
    for number in 0..12 {
        tree.write("a", &format!("version {number}"));
        tree.checkpoint(&format!("v{number}"));
    }

    let full = tree.json(11, &["create", "one too many"]);
    let words = tree.run(&["create", "one too many"]);
    tree.json(0, &["delete", "v5"]);
    let before = tree.listed();
    let next = tree.checkpoint("in the middle");
    let after = tree.listed();

    assert_eq!(full["error"]["max"], 12);
    assert_eq!(words.code, 11);
    assert!(
        words.err.contains("12") && words.err.contains("hint: "),
        "{}",
        words.err
    );
    assert_eq!(next, "cp-15");
    assert_eq!(
        after[1..],
        before[..],
        "every other checkpoint is what it was"
    );
}

#[test]
fn a_same_length_edit_is_seen_and_a_bare_touch_is_not() {
    let tree = Tree::new(&[
        ("edited", "aaaa"),
        ("touched", "same"),
        ("kept", "same"),
        ("gone", "x"),
    ]);
    tree.checkpoint("first");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let stamp = fs::metadata(tree.at("edited")).unwrap().modified().unwrap();
    tree.write("edited", "aaab");
    let edited = fs::File::options()
        .write(true)
        .open(tree.at("edited"))
        .unwrap();
    edited.set_modified(stamp).unwrap();
    let touched = fs::File::options()
        .write(true)
        .open(tree.at("touched"))
        .unwrap();
    touched.set_modified(old).unwrap();
    fs::remove_file(tree.at("gone")).unwrap();
    tree.write("new dir/new", "four");
    symlink("/nowhere", tree.at("link")).unwrap();

    let told = tree.json(0, &["changes"]);
    let words = tree.run(&["changes"]);

    assert_eq!(
        changed(&told),
        pairs(&[
            ("edited", "modified"),
            ("gone", "deleted"),
            ("link", "created"),
            ("new dir/new", "created"),
        ])
    );
    assert_eq!(told["summary"]["edited"], 1);
    assert_eq!(told["compared_with"], json!(["cp-10"]));
    let changes = told["items"].as_array().unwrap();
    let find = |path: &str| {
        changes
            .iter()
            .find(|change| change["path"] == path)
            .unwrap()
    };
    assert_eq!(
        (&find("edited")["size"], &find("edited")["kind"]),
        (&json!(4), &json!("file"))
    );
    assert_eq!(
        (&find("link")["is_symlink"], &find("link")["kind"]),
        (&json!(true), &json!("symlink"))
    );
    assert_eq!(find("gone")["checkpoint_name"], "first");
    assert!(
        words.out.contains("edited") && !words.out.contains("touched"),
        "{}",
        words.out
    );
}

#[test]
fn changes_since_one_checkpoint_are_those_against_it() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("first");
    tree.write("a", "two");
    tree.checkpoint("second");

    let newest = tree.json(0, &["changes", "--since", "second"]);
    let first = tree.json(0, &["changes", "--since", "first"]);
    let words = tree.run(&["changes", "--since", "cp-11"]);
    let absent = tree.json(3, &["changes", "--since", "cp-3"]);

    assert_eq!(newest["items"], json!([]));
    assert_eq!(changed(&first), pairs(&[("a", "modified")]));
    assert_eq!((words.out.as_str(), words.code), ("", 0));
    assert!(
        words.err.contains("nothing differs from cp-11"),
        "{}",
        words.err
    );
    assert_eq!(absent["error"]["checkpoint"], "cp-3");
}

#[test]
fn a_diff_is_unified_for_text_and_a_summary_for_bytes() {
    let tree = Tree::new(&[("a.txt", "one\ntwo\nthree\n")]);
    fs::write(tree.at("image"), b"\0\x01\x02").unwrap();
    symlink("here", tree.at("link")).unwrap();
    tree.checkpoint("first");
    tree.write("a.txt", "one\n2\nthree\n");
    fs::write(tree.at("image"), b"\0\x01\x03\x04").unwrap();
    tree.write("new", "hello\n");

    let told = tree.json(0, &["diff", "a.txt"]);
    let words = tree.run(&["diff", "a.txt", "first"]);
    let image = tree.json(0, &["diff", "image", "cp-10"]);
    let new = tree.json(0, &["diff", "new", "first"]);
    let same = tree.json(0, &["diff", "link", "first"]);
    let nowhere = tree.json(3, &["diff", "no such file"]);

    says(&told, &json!({ "status": "modified", "kind": "text" }));
    let unified = text(&told["unified"]);
    assert!(unified.contains("\n-two\n+2\n"), "{unified}");
    assert!(unified.contains("@@ "), "{unified}");
    assert_eq!(words.out.trim_end(), unified.trim_end());
    says(&image, &json!({ "kind": "binary", "unified": null }));
    assert_eq!(
        (&image["before"]["size"], &image["after"]["size"]),
        (&json!(3), &json!(4))
    );
    assert_ne!(image["before"]["digest"], image["after"]["digest"]);
    says(&new, &json!({ "status": "created", "before": null }));
    assert_eq!(same["status"], "unchanged");
    assert_eq!(nowhere["error"]["path"], "no such file");
}

#[test]
fn history_follows_a_file_through_all_checkpoints() {
    let tree = Tree::new(&[("other", "x")]);
    tree.write("a", "one");
    tree.checkpoint("came");
    tree.checkpoint("stayed");
    tree.write("a", "ONE");
    tree.checkpoint("changed");
    fs::remove_file(tree.at("a")).unwrap();
    tree.checkpoint("went");
    tree.write("a", "again");

    let told = tree.json(0, &["history", "a"]);
    let words = tree.run(&["history", "a"]);
    let nowhere = tree.run(&["history", "no such file"]);

    let versions = told["items"].as_array().unwrap().iter();
    let versions: Vec<(&Value, &Value)> = versions
        .map(|version| (&version["name"], &version["status"]))
        .collect();
    assert_eq!(
        versions,
        [
            (&json!("went"), &json!("deleted")),
            (&json!("changed"), &json!("modified")),
            (&json!("stayed"), &json!("unchanged")),
            (&json!("came"), &json!("new")),
        ]
    );
    says(&told, &json!({ "current_kind": "file", "current_size": 5 }));
    assert!(
        words.out.contains("STATUS") && words.out.contains("changed"),
        "{}",
        words.out
    );
    assert_eq!(nowhere.code, 3, "{}", nowhere.err);
}

#[test]
fn a_deleted_checkpoint_is_gone_and_its_name_is_free() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("first");
    tree.checkpoint("second");

    let gone = tree.json(0, &["delete", "first"]);
    let twice = tree.run(&["delete", "cp-10"]);
    let again = tree.checkpoint("first");

    says(&gone, &json!({ "deleted": true, "checkpoint": "cp-10" }));
    assert_eq!(gone["name"], "first");
    assert_eq!(twice.code, 3, "{}", twice.err);
    assert!(twice.err.contains("stasis log"), "{}", twice.err);
    assert_eq!(again, "cp-10");
    assert_eq!(tree.listed().len(), 2);
}

#[test]
fn compacting_keeps_the_newest_state_and_removes_the_sources_after_success() {
    let tree = Tree::new(&[("a", "one"), ("b", "deleted later")]);
    tree.checkpoint("first");
    tree.write("a", "two");
    fs::remove_file(tree.at("b")).unwrap();
    tree.write("c", "new");
    tree.checkpoint("second");
    let newest = tree.contents();
    let before = tree.listed();

    let unknown = tree.run(&["compact", "first", "no such"]);
    let few = tree.run(&["compact", "first"]);
    let untouched = tree.listed();
    tree.write("a", "live");
    let one = tree.json(0, &["compact", "first", "cp-11", "--name", "both"]);
    let fork = tree.session.home().join("fork");
    tree.json(0, &["fork", "both", fork.to_str().unwrap()]);

    assert_eq!(
        (unknown.code, few.code),
        (3, 2),
        "{}{}",
        unknown.err,
        few.err
    );
    assert_eq!(untouched, before);
    says(
        &one,
        &json!({ "compacted": true, "name": "both", "merged_count": 2, "files_count": 2 }),
    );
    let mut gone: Vec<String> = one["deleted_checkpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(text)
        .collect();
    gone.sort();
    assert_eq!(
        gone,
        ["cp-10"],
        "the newest keeps its place and gets the name"
    );
    assert_eq!(one["checkpoint"], "cp-11");
    assert_eq!(tree.listed().len(), 1);
    assert_eq!(contents(&fork), newest);
    assert_eq!(tree.read("a"), "live", "the live tree is not touched");
}

#[test]
fn a_fork_is_a_directory_of_its_own() {
    let tree = Tree::new(&[("a", "one"), ("dir/b", "two")]);
    tree.checkpoint("good");
    let good = tree.contents();
    tree.write("a", "broken");
    let place = |name: &str| tree.session.home().join(name);
    let at = |name: &str| place(name).to_str().unwrap().to_owned();

    let one = tree.json(0, &["fork", "good", &at("one")]);
    let several = tree.json(0, &["fork", "cp-10", &at("try"), "--n", "3"]);
    let taken = tree.run(&["fork", "good", &at("one")]);
    fs::write(place("try-1").join("a"), "its own").unwrap();

    says(
        &one,
        &json!({ "forked": true, "directories": [at("one")], "checkpoint": "cp-10", "files": 2 }),
    );
    assert_eq!(
        several["directories"],
        json!([at("try-1"), at("try-2"), at("try-3")])
    );
    for name in ["one", "try-2", "try-3"] {
        assert_eq!(contents(&place(name)), good, "{name}");
    }
    assert!(
        taken.code != 0 && taken.err.contains("error: "),
        "{}",
        taken.err
    );
    assert_eq!(tree.read("a"), "broken");
}

#[test]
fn the_budget_lets_automatic_checkpoints_go_and_then_refuses() {
    let tree = Tree::with(&[], &["--budget", "2MB"]);
    let fill = |length: usize, seed: u64| fs::write(tree.at("data"), noise(length, seed)).unwrap();
    let held = || tree.json(0, &["status"])["held_bytes"].as_u64().unwrap();

    for seed in 1..=2 {
        fill(800_000, seed);
        let made = tree.json(0, &["create", "--auto"]);
        assert_eq!(made["evicted"], json!([]));
    }
    fill(800_000, 3);
    let third = tree.json(0, &["create", "--auto"]);
    let after_third = held();
    fill(3_000_000, 4);
    let refused = tree.run(&["create", "too large"]);
    let bad = tree
        .session
        .run(&["workspace", "init", "/tmp", "--budget", "10 apples"]);

    assert_eq!(third["evicted"][0], "cp-0", "the oldest goes first");
    assert!(after_third <= 2_000_000, "{after_third}");
    assert_eq!(refused.code, 11, "{}{}", refused.out, refused.err);
    assert!(
        refused.err.contains("2000000") && refused.err.contains("hint: "),
        "{}",
        refused.err
    );
    assert!(held() <= 2_000_000);
    assert_eq!((bad.code, bad.err.contains("10 apples")), (2, true));
}

#[test]
fn the_short_names_of_the_contract_do_the_same() {
    let tree = Tree::new(&[("a", "one")]);
    let dir = tree.dir();
    let short = |words: &[&str]| {
        let all = [&["snapshots"], words, &["--workspace", dir.as_str()]].concat();
        tree.session.json(0, &all)
    };

    let made = short(&["create", "good"]);
    tree.write("a", "two");
    let changes = short(&["changes"]);
    let reverted = short(&["revert", "a"]);
    short(&["create", "other"]);
    let listed = short(&["list", "--include-changes"]);
    let history = short(&["history", "a"]);
    let one = short(&["compact", "good", "other", "--name", "both"]);
    let gone = short(&["delete", "both"]);

    assert_eq!(made["checkpoint"], "cp-10");
    assert_eq!(changed(&changes), pairs(&[("a", "modified")]));
    assert_eq!(
        (&reverted["action"], tree.read("a").as_str()),
        (&json!("restored"), "one")
    );
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert_eq!(history["items"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&one["compacted"], &gone["deleted"]),
        (&json!(true), &json!(true))
    );
}

#[test]
fn the_short_names_are_in_their_help_and_without_one_it_is_a_log() {
    let session = Session::new();

    let usage = session.run(&["snapshots", "--help"]);
    let unknown = session.run(&["snapshots", "no-such-verb"]);

    assert_eq!((usage.code, usage.err.as_str()), (0, ""));
    for verb in [
        "create", "list", "changes", "revert", "history", "delete", "compact",
    ] {
        assert!(usage.out.contains(&format!("\n  {verb} ")), "{}", usage.out);
    }
    // What is no verb is taken for a directory, as by `log`.
    assert_eq!(unknown.code, 3, "{}", unknown.err);
}

#[test]
fn checkpoints_that_are_made_at_once_do_not_take_each_others_slot() {
    let tree = Tree::new(&[("a", "one")]);

    let codes: Vec<i32> = std::thread::scope(|scope| {
        let make = |number: usize| {
            let tree = &tree;
            scope.spawn(move || tree.run(&["create", &format!("n{number}")]).code)
        };
        let all: Vec<_> = (0..4).map(make).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });

    let made = codes.iter().filter(|code| **code == 0).count();
    assert!(
        made >= 1 && codes.iter().all(|code| [0, 4].contains(code)),
        "{codes:?}"
    );
    assert_eq!(tree.listed().len(), made);
}

#[test]
fn the_status_says_how_a_workspace_is_kept_and_that_nobody_watches() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    tree.write("a", "two");
    tree.json(0, &["revert", "a"]);

    let told = tree.json(0, &["status"]);
    let words = tree.run(&["status"]);
    let nothing = tree.run(&["undo", "u-77"]);
    let typo = tree.run(&["undo", "77"]);

    says(
        &told,
        &json!({
            "auto_max": 10, "manual_max": 12, "auto_interval": 300, "auto_count": 0, "manual_count": 1,
            "newest": "cp-10", "watched_by": null
        }),
    );
    assert!(told["held_bytes"].as_u64().unwrap() <= told["budget_bytes"].as_u64().unwrap());
    assert_eq!(told["undo"][0]["path"], "a");
    assert!(
        words.err.contains("warning: no watcher is running, so there are no automatic checkpoints. Start one with: stasis protect"),
        "{}",
        words.err
    );
    assert!(
        words.out.contains("takes back the revert of a with cp-10"),
        "{}",
        words.out
    );
    assert_eq!(
        (nothing.code, typo.code),
        (3, 2),
        "{}{}",
        nothing.err,
        typo.err
    );
}

#[test]
fn a_dry_run_of_a_checkpoint_says_how_much_there_would_be_in_it_and_makes_none() {
    let tree = Tree::new(&[("a", "four"), ("deep/b", "sixsix")]);
    fs::hard_link(tree.at("a"), tree.at("again")).unwrap();

    let told = tree.json(0, &["create", "first", "--dry-run"]);

    assert_eq!(
        json!([
            told["created"],
            told["dry_run"],
            told["files_count"],
            told["bytes"]
        ]),
        json!([false, true, 3, 10])
    );
    let made = tree.json(0, &["create", "first"]);
    assert_eq!(
        [&told["hash"], &told["form"], &told["bytes"]],
        [&made["hash"], &made["form"], &made["bytes"]],
        "it says what the real one does"
    );
    assert_eq!(told["checkpoint"], made["checkpoint"], "and made none");
}
