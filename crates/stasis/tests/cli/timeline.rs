//! A directory that has snapshots in the store and checkpoints on this host: one subject, one timeline, one undo.

use crate::session::{Said, Session, said, type_command};
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

    assert!(plan.contains("delete     notes"), "{plan}");
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
fn an_undo_takes_back_what_the_restore_changed_and_leaves_what_was_changed_since() {
    let work = Work::new();
    for name in ["kept", "gone", "src/old.rs"] {
        work.write(name, "one");
    }
    let first = work.save();
    fs::remove_file(work.dir.join("src/old.rs")).unwrap();
    work.write("notes", "second");
    work.write("src/new.rs", "two");
    work.save();

    let restored = work.data(&["restore", &first[..8]]);
    assert!(restored.contains("Undo with: stasis undo "), "{restored}");
    work.write("notes", "edited where the restore had been");
    work.write("kept", "edited since");
    work.write("src/since.rs", "made since");
    fs::remove_file(work.dir.join("gone")).unwrap();
    let plan = work.data(&["undo", "--dry-run"]);
    let undone = work.json(&["undo"]);

    let since = ["gone", "kept", "src/since.rs"];
    assert!(!plan.contains("change     kept"), "{plan}");
    assert!(plan.contains("left as they are: gone, kept"), "{plan}");
    assert_eq!(undone["changed_since"], serde_json::json!(since));
    let state = |names: &[&str]| names.iter().map(|name| work.read(name)).collect::<Vec<_>>();
    let words = |all: [Option<&str>; 3]| all.map(|one| one.map(str::to_owned)).to_vec();
    let stayed = words([None, Some("edited since"), Some("made since")]);
    let restored_ones = ["notes", "src/new.rs", "src/old.rs"];
    assert_eq!(state(&since), stayed);
    let before = words([Some("second"), Some("two"), None]);
    assert_eq!(state(&restored_ones), before);
    // And the undo of that, with something new in the meantime.
    work.write("later", "after the undo");
    work.data(&["undo"]);
    assert_eq!(state(&since), stayed);
    let again = words([Some("edited where the restore had been"), None, Some("one")]);
    assert_eq!(state(&restored_ones), again);
    assert_eq!(work.read("later").as_deref(), Some("after the undo"));
    assert_eq!(work.data(&["cat", "latest", "notes"]), "first");
}

#[test]
fn a_printed_undo_is_of_that_workspace_wherever_it_is_typed() {
    let work = Work::new();
    let one = work.checkpoint("one");
    work.write("notes", "second");
    let dir = work.dir.to_str().unwrap();

    let restored = work.session.data(0, &["restore", dir, &one, "--yes"]);
    assert_eq!(work.read("notes").as_deref(), Some("first"));
    let undone = type_command(&work.session, &restored, &["undo"], "");

    assert_eq!(undone.code, 0, "{restored}{}", undone.err);
    assert_eq!(work.read("notes").as_deref(), Some("second"));
}

#[test]
fn a_directory_that_a_restore_made_stays_for_what_was_put_into_it_since() {
    let work = Work::new();
    fs::create_dir(work.dir.join("made")).unwrap();
    work.write("made/by-restore", "one");
    work.save();
    fs::remove_dir_all(work.dir.join("made")).unwrap();
    work.data(&["restore"]);
    work.write("made/since", "mine");

    work.data(&["undo"]);

    assert_eq!(work.read("made/by-restore"), None);
    assert_eq!(work.read("made/since").as_deref(), Some("mine"));
}

#[test]
fn an_undo_that_cannot_know_what_the_restore_changed_says_so() {
    let work = Work::new();
    let first = work.save();
    work.write("notes", "second");
    work.save();
    work.data(&["restore", &first[..8]]);
    work.write("src/main.rs", "edited since");
    // `latest` is what was restored, and cannot be forgotten before another one is.
    work.save();
    work.data(&["forget", &first[..8]]);

    let undone = work.run_in("", &["undo"]);

    assert_eq!(undone.code, 0, "{}", undone.err);
    assert!(undone.err.contains("everything becomes"), "{}", undone.err);
    assert_eq!(work.read("notes").as_deref(), Some("second"));
    assert_eq!(work.read("src/main.rs").as_deref(), Some("one"));
    work.data(&["undo"]);
    assert_eq!(work.read("src/main.rs").as_deref(), Some("edited since"));
}

#[test]
fn gc_keeps_what_the_undo_of_the_last_restore_needs() {
    let work = Work::new();
    let first = work.save();
    work.write("notes", "never saved by anybody");
    work.data(&["restore", &first[..8]]);
    for since in ["one", "two", "three"] {
        work.write("since", since);
        work.save();
    }

    let kept = work.data(&["gc", "--keep-last", "1", "--dry-run"]);
    work.data(&["gc", "--keep-last", "1"]);

    assert!(kept.contains("undo needs it"), "{kept}");
    // Three snapshots, and the restore that can be undone.
    assert_eq!(work.timeline().len(), 4, "{kept}");
    work.data(&["undo"]);
    let notes = work.read("notes");
    assert_eq!(notes.as_deref(), Some("never saved by anybody"));
    assert_eq!(work.read("since").as_deref(), Some("three"));
}

#[test]
fn an_undo_whose_safety_snapshot_was_forgotten_says_so() {
    let work = Work::new();
    let first = work.save();
    work.write("notes", "second");
    let restored = work.json(&["restore", &first[..8]]);
    let safety = restored["safety_snapshot_id"].as_str().unwrap();
    work.data(&["forget", safety]);

    let undone = work.run_in("", &["undo"]);

    assert_eq!(undone.code, 3, "{}", undone.err);
    assert!(undone.err.contains("was let go since"), "{}", undone.err);
    assert_eq!(work.read("notes").as_deref(), Some("first"));
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

#[test]
fn an_undo_is_of_the_last_change_of_this_directory_or_refused() {
    let work = Work::new();
    let saved = work.save();
    let one = work.checkpoint("one");
    work.write("notes", "second");
    work.data(&["restore", &saved[..8]]);

    // What changes nothing leaves the way back.
    work.data(&["restore", &saved[..8]]);
    work.data(&["undo"]);
    assert_eq!(work.read("notes").as_deref(), Some("second"));

    // What was done last without a way back is not passed over.
    work.data(&["restore", &saved[..8], "--no-safety"]);
    let refused = work.run_in("", &["undo"]);
    assert_eq!(refused.code, 3, "{}", refused.out);
    assert_eq!(work.read("notes").as_deref(), Some("first"));
    work.write("notes", "third");
    work.data(&["restore", &saved[..8]]);
    work.write("notes", "fourth");
    work.data(&["restore", &one, "--no-safety", "--yes"]);
    let refused = work.run_in("", &["undo"]);
    assert_ne!(refused.code, 0, "{}", refused.out);
    assert_eq!(work.read("notes").as_deref(), Some("first"));

    // Another directory in its place was never restored.
    work.write("notes", "fifth");
    work.data(&["restore", &saved[..8]]);
    let dir = work.dir.clone();
    fs::rename(&dir, dir.with_extension("old")).unwrap();
    fs::create_dir(&dir).unwrap();
    work.write("mine", "new here");
    let other = work.session.run(&["undo", dir.to_str().unwrap()]);
    assert_ne!(other.code, 0, "{}{}", other.out, other.err);
    assert_eq!(work.read("mine").as_deref(), Some("new here"));
}

#[test]
fn an_undo_moves_latest_back_only_if_nobody_chose_another_since() {
    let work = Work::new();
    let first = work.save();
    work.write("notes", "second");
    let second = work.save();
    let latest = || work.json(&["show", "latest"])["snapshot_id"].clone();

    work.data(&["restore", &first[..8]]);
    assert_eq!(latest(), *first);
    work.data(&["undo"]);
    assert_eq!(latest(), *second);
    work.data(&["restore", &first[..8]]);
    work.write("notes", "third");
    let third = work.save();
    work.data(&["undo"]);
    assert_eq!(work.read("notes").as_deref(), Some("second"));
    assert_eq!(latest(), *third, "somebody saved since");

    work.data(&["restore", &first[..8]]);
    work.data(&["undo", "--except", "src"]);
    assert_eq!(latest(), *first, "not all of it was undone");
}

#[test]
fn an_undo_removes_the_directories_that_a_part_needed() {
    let work = Work::new();
    fs::create_dir_all(work.dir.join("d/e")).unwrap();
    work.write("d/e/a", "deep");
    let saved = work.save();
    fs::remove_dir_all(work.dir.join("d")).unwrap();

    work.data(&["restore", &saved[..8], "--path", "d/e/a"]);
    assert_eq!(work.read("d/e/a").as_deref(), Some("deep"));
    work.data(&["undo"]);

    assert!(!work.dir.join("d").exists());
    assert_eq!(work.read("notes").as_deref(), Some("first"));
}

#[test]
fn what_no_snapshot_has_is_named_and_not_said_to_be_undone() {
    let work = Work::new();
    work.write("secret", "old");
    let saved = work.save();
    work.data(&["save", "--exclude", "secret"]);
    work.write("secret", "new");

    work.data(&["restore", &saved[..8], "--path", "secret"]);
    let undone = work.run_in("", &["undo"]);

    assert_eq!(work.read("secret").as_deref(), Some("old"));
    assert_eq!(undone.code, 3, "{}", undone.out);
    assert!(undone.err.contains("secret"), "{}", undone.err);
}

#[test]
fn deep_in_a_workspace_the_workspace_is_meant_and_entries_are_named_from_there() {
    let work = Work::new();
    work.write("src/x", "in src");
    work.write("x", "at the top");
    let one = work.checkpoint("one");

    let saved = work.run_in("src", &["--json", "save"]);
    let saved: Value = serde_json::from_str(&saved.out).unwrap();
    let listed = work.data(&["ls", "latest"]);
    work.write("x", "changed");
    work.write("src/x", "changed");
    let restored = work.run_in("src", &["restore", &one, "--path", "x"]);

    assert!(listed.contains("notes"), "{listed}");
    let log = work.json(&["log"]);
    assert!(
        log.to_string()
            .contains(saved["snapshot_id"].as_str().unwrap())
    );
    assert_eq!(restored.code, 0, "{}", restored.err);
    assert_eq!(work.read("src/x").as_deref(), Some("in src"));
    assert_eq!(work.read("x").as_deref(), Some("changed"));
    let top = work.run_in("src", &["restore", &one, "--path", "../x"]);
    assert_eq!(top.code, 0, "{}", top.err);
    assert_eq!(work.read("x").as_deref(), Some("at the top"));
}

#[test]
fn a_repository_is_kept_from_wherever_it_is_asked_for() {
    let work = Work::new();
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b"]);
        let done = git.args(arguments).current_dir(&work.dir).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    git(&["init", "-q"]);
    git(&["add", "notes"]);
    git(&["commit", "-qm", "one"]);
    let one = work.checkpoint("one");
    git(&["commit", "-q", "--allow-empty", "-m", "two"]);
    let head = git(&["rev-parse", "HEAD"]);
    work.write("notes", "changed");

    let restored = work.run_in("src", &["restore", &one, "--keep-git", "--yes"]);

    assert_eq!(restored.code, 0, "{}", restored.err);
    assert_eq!(work.read("notes").as_deref(), Some("first"));
    assert_eq!(git(&["rev-parse", "HEAD"]), head);
    let undone = work.run_in("src", &["undo", "--keep-git", "--yes"]);
    assert_eq!(undone.code, 0, "{}", undone.err);
    assert_eq!(git(&["rev-parse", "HEAD"]), head);
}

#[test]
fn a_store_that_is_gone_is_missed_by_whoever_saved() {
    let work = Work::new();
    work.checkpoint("one");
    work.save();
    let store = work.session.home().join("data/stasis/store");
    fs::rename(&store, store.with_extension("away")).unwrap();

    let log = work.run_in("", &["log"]);
    let restored = work.run_in("", &["restore"]);
    let here = work.run_in("", &["ls", "one"]);

    assert_eq!((log.code, restored.code), (3, 3), "{}", log.out);
    assert!(log.err.contains("store"), "{}", log.err);
    assert_eq!(here.code, 3, "a name may be in the store: {}", here.out);
    assert_eq!(work.run_in("", &["ls", "cp-10"]).code, 0);
}

#[test]
fn an_undo_needs_the_store_that_was_restored_from() {
    let work = Work::new();
    let second = work.session.home().join("second");
    let second = second.to_str().unwrap();
    work.data(&["--store", second, "save"]);
    work.write("notes", "second");
    work.data(&["--store", second, "restore"]);
    work.data(&["save"]);

    let refused = work.run_in("", &["undo"]);
    assert_eq!(refused.code, 3, "{}", refused.out);
    assert!(refused.err.contains(second), "{}", refused.err);
    work.data(&["--store", second, "undo"]);
    assert_eq!(work.read("notes").as_deref(), Some("second"));
}

#[test]
fn whoever_has_only_checkpoints_is_told_which_and_how_a_lost_directory_comes_back() {
    let work = Work::new();
    let one = work.checkpoint("one");

    let restored = work.run_in("", &["restore"]);
    assert_eq!(restored.code, 3, "{}", restored.out);
    let told = format!("stasis restore {one}");
    assert!(restored.err.contains(&told), "{}", restored.err);

    fs::remove_dir_all(&work.dir).unwrap();
    let dir = work.dir.to_str().unwrap();
    let gone = work.session.run(&["log", dir]);
    assert_eq!(gone.code, 3, "{}", gone.out);
    assert!(gone.err.contains("makes it again"), "{}", gone.err);
    let unknown = work.session.run(&["restore", dir, "cp-99"]);
    assert_eq!(unknown.code, 3, "{}", unknown.out);
    let shown = work.session.data(0, &["restore", dir, &one, "--dry-run"]);
    assert!(shown.contains("src/main.rs"), "{shown}");
    assert!(
        !work.dir.exists(),
        "what failed, or was shown, leaves nothing"
    );
    work.session.data(0, &["restore", dir, &one]);
    assert_eq!(work.read("src/main.rs").as_deref(), Some("one"));

    // One that was saved too has both.
    work.save();
    work.write("notes", "second");
    let two = work.checkpoint("two");
    fs::remove_dir_all(&work.dir).unwrap();
    let log = work.session.run(&["log", dir]);
    assert_eq!(log.code, 0, "{}", log.err);
    assert!(log.err.contains("2 checkpoints"), "{}", log.err);
    work.session.data(0, &["restore", dir, &two]);
    assert_eq!(work.read("notes").as_deref(), Some("second"));
}
