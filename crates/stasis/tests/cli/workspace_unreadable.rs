//! What somebody may not read, or may not move: no revert and no restore takes it away, everything else is restored, and a checkpoint
//! without it is no whole one.

use crate::session::{Said, said};
use crate::workspace::{Tree, says, text};
use serde_json::{Value, json};
use stasis_testkit::unprivileged::{as_unprivileged, give_to_unprivileged};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A workspace of somebody with no privileges.
struct Theirs {
    tree: Tree,
    is_root: bool,
}

impl Theirs {
    /// One with these files and a checkpoint `good` of them; nothing where nobody else can run the program.
    fn new(files: &[(&str, &str)]) -> Option<Self> {
        let tree = Tree::new(files);
        let is_root = rustix::process::geteuid().is_root();
        let theirs = Self { tree, is_root };
        give_to_unprivileged(theirs.tree.session.home());
        let made = theirs.run(&["create", "good"]);
        if made.code == 126 || made.code == 127 {
            // Where it was built is not open to everybody.
            println!("skipped: nobody else can run the program: {}", made.err);
            return None;
        }
        assert_eq!(made.code, 0, "{}{}", made.out, made.err);
        Some(theirs)
    }

    fn write(&self, path: &str, content: &str, mode: u32) {
        // What is there may be closed to everybody but root.
        let _ = fs::remove_file(self.tree.at(path));
        self.tree.write(path, content);
        give_to_unprivileged(&self.tree.at(path.split('/').next().unwrap()));
        fs::set_permissions(self.tree.at(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs a command without privileges.
    fn run(&self, words: &[&str]) -> Said {
        said(as_unprivileged(&self.tree.command(words)).output().unwrap())
    }

    /// What a command says that ends with this code.
    fn json(&self, code: i32, words: &[&str]) -> Value {
        let said = self.run(&[words, &["--json"]].concat());
        assert_eq!(said.code, code, "{words:?}\n{}{}", said.out, said.err);
        serde_json::from_str(&said.out).unwrap()
    }

    /// Everything in the workspace, whoever may read it.
    fn contents(&self) -> Vec<(PathBuf, String)> {
        if !self.is_root {
            // Then it is theirs, and they may say so.
            let _ = Command::new("chmod")
                .args(["-R", "u+rwX"])
                .arg(self.tree.at(""))
                .status();
        }
        self.tree.contents().into_iter().collect()
    }
}

/// Asserts that a command was refused because something may not be read.
fn assert_unreadable(refused: &Said) {
    assert_eq!(refused.code, 8, "{}{}", refused.out, refused.err);
    let words = ["may not be read", "Permission denied"];
    let says_so = words.iter().any(|words| refused.err.contains(words));
    assert!(says_so, "{}", refused.err);
}

/// What an answer names as left alone, and why.
fn left_alone(told: &Value) -> Vec<(String, String)> {
    let rows = told["left_alone"].as_array();
    let row = |row: &Value| (text(&row["path"]), text(&row["why"]));
    rows.map_or_else(Vec::new, |rows| rows.iter().map(row).collect())
}

fn named(path: &str, why: &str) -> Vec<(String, String)> {
    vec![(path.to_owned(), why.to_owned())]
}

#[test]
fn a_restore_leaves_alone_what_may_not_be_read_and_does_the_rest() {
    let Some(theirs) = Theirs::new(&[("a", "one"), ("b", "one")]) else {
        return;
    };
    theirs.write("a", "two", 0o644);
    theirs.write("b", "precious", 0o000);
    theirs.write("private/key", "secret", 0o000);

    let around = theirs.run(&["revert", "private", "good"]);
    let itself = theirs.run(&["revert", "private/key", "good"]);
    let dry = theirs.json(13, &["restore", "good", "--dry-run"]);
    let before = theirs.tree.read("a");
    let restored = theirs.run(&["restore", "good"]);
    let again = theirs.json(13, &["restore", "good"]);
    theirs.write("a", "three", 0o644);
    let silent = theirs.run(&["restore", "good", "--except", "private", "--except", "b"]);

    for told in [&around, &itself] {
        assert_unreadable(told);
    }
    let both = [named("b", "unreadable"), named("private/key", "unreadable")].concat();
    assert_eq!((left_alone(&dry), before), (both.clone(), "two".to_owned()));
    assert_eq!(restored.code, 13, "{}{}", restored.out, restored.err);
    for path in ["`b` may not be read", "`private/key` may not be read"] {
        assert!(restored.err.contains(path), "{}", restored.err);
    }
    says(&again, &json!({ "restored": false }));
    assert_eq!(left_alone(&again), both);
    assert_eq!(
        (silent.code, silent.err.as_str()),
        (0, ""),
        "{}",
        silent.out
    );
    let found = theirs.contents();
    for (path, content) in [("private/key", "secret"), ("b", "precious"), ("a", "one")] {
        assert!(found.contains(&(path.into(), content.to_owned())), "{path}");
    }
}

#[test]
fn what_a_checkpoint_left_out_is_named_and_a_restore_of_it_leaves_that_alone() {
    let Some(theirs) = Theirs::new(&[("a", "one"), ("d/b", "one")]) else {
        return;
    };
    theirs.write("d/key", "secret", 0o000);

    let made = theirs.run(&["create", "gap"]);
    let listed = theirs.run(&["list"]);
    theirs.write("a", "two", 0o644);
    theirs.write("d/key", "new secret", 0o644);
    let there = theirs.json(13, &["restore", "gap"]);
    fs::remove_file(theirs.tree.at("d/key")).unwrap();
    let gone = theirs.json(13, &["restore", "gap"]);
    let silent = theirs.json(0, &["restore", "gap", "--except", "d/key"]);

    assert_eq!(made.code, 13, "{}{}", made.out, made.err);
    assert!(
        made.err.contains("skipped d/key: permission denied\n"),
        "{}",
        made.err
    );
    let line = "cp-11 (gap): not in it, because it could not be read: d/key";
    assert!(listed.out.contains(line), "{}", listed.out);
    says(&there, &json!({ "restored": true }));
    for told in [&there, &gone] {
        assert_eq!(left_alone(told), named("d/key", "not_in_checkpoint"));
    }
    assert_eq!(left_alone(&silent), []);
    assert_eq!(theirs.tree.read("a"), "one");
}

#[test]
fn a_hook_makes_its_checkpoint_without_what_may_not_be_read_and_says_so_afterwards() {
    let Some(theirs) = Theirs::new(&[("a", "one")]) else {
        return;
    };
    theirs.write("key", "secret", 0o000);
    let dir = theirs.tree.dir();

    let run = ["hook", "run", "claude-code", "--workspace", dir.as_str()];
    let mut hook = as_unprivileged(&theirs.tree.session.command(&run));
    let mut child = hook.stdin(Stdio::piped()).spawn().unwrap();
    let call = json!({ "hook_event_name": "UserPromptSubmit", "prompt": "go", "cwd": dir });
    let said = child
        .stdin
        .take()
        .unwrap()
        .write_all(call.to_string().as_bytes());
    said.unwrap();
    let ended = child.wait().unwrap();
    let status = theirs.run(&["status"]);

    assert!(ended.success());
    let shown = "without: key (permission denied)";
    assert!(status.out.contains(shown), "{}{}", status.out, status.err);
}

#[test]
fn what_may_not_be_read_hinders_nobody_who_only_looks() {
    let Some(theirs) = Theirs::new(&[("d/a", "one")]) else {
        return;
    };
    theirs.write("d/a", "two", 0o644);
    theirs.write("d/key", "secret", 0o000);

    for words in [&["history", "d"][..], &["diff", "d"], &["changes"]] {
        let told = theirs.run(words);
        assert_eq!(told.code, 0, "{words:?}: {}{}", told.out, told.err);
        assert!(told.out.contains("modified"), "{words:?}: {}", told.out);
    }
}

#[test]
fn a_revert_does_not_write_over_what_may_not_be_read() {
    let Some(theirs) = Theirs::new(&[("d/a", "one"), ("d/b", "one")]) else {
        return;
    };
    theirs.write("d/a", "precious", 0o000);
    theirs.write("d/b", "two", 0o644);

    let itself = theirs.run(&["revert", "d/a", "good"]);
    let around = theirs.run(&["revert", "d", "good"]);

    for told in [&itself, &around] {
        assert_unreadable(told);
    }
    let found = theirs.contents();
    for (path, content) in [("d/a", "precious"), ("d/b", "two")] {
        assert!(found.contains(&(path.into(), content.to_owned())), "{path}");
    }
}

#[test]
fn a_directory_that_may_not_be_read_is_not_taken_away() {
    let Some(theirs) = Theirs::new(&[("a", "one"), ("kind", "a file")]) else {
        return;
    };
    theirs.write("a", "two", 0o644);
    fs::remove_file(theirs.tree.at("kind")).unwrap();
    for inside in ["d/closed", "kind/closed"] {
        theirs.write(&format!("{inside}/file"), "precious", 0o644);
        theirs.write(&format!("{inside}-not"), "beside", 0o644);
        let closed = theirs.tree.at(inside);
        if theirs.is_root {
            chown(&closed, Some(0), Some(0)).unwrap();
        }
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    }

    let made = theirs.run(&["create", "with a gap"]);
    let restored = theirs.json(13, &["restore", "good"]);
    let undone = theirs.run(&["undo"]);
    let reverted = theirs.run(&["revert", "d", "good"]);

    assert_eq!(made.code, 13, "{}", made.err);
    assert!(
        made.err.contains("skipped d/closed: permission denied\n"),
        "{}",
        made.err
    );
    let all = [
        named("d/closed", "unreadable"),
        named("kind/closed", "unreadable"),
    ];
    assert_eq!(left_alone(&restored), all.concat());
    assert_eq!(restored["left_alone"][1]["within"], "kind");
    says(
        &restored["plan"],
        &json!({ "creates": 0, "replaces": 1, "deletes": 0 }),
    );
    assert_eq!(undone.code, 0, "{}{}", undone.out, undone.err);
    assert_unreadable(&reverted);
    let found = theirs.contents();
    for (path, content) in [
        ("d/closed/file", "precious"),
        ("kind/closed/file", "precious"),
        ("d/closed-not", "beside"),
        ("a", "two"),
    ] {
        assert!(found.contains(&(path.into(), content.to_owned())), "{path}");
    }
}

#[test]
fn an_undo_leaves_alone_what_may_not_be_read_by_now() {
    let Some(theirs) = Theirs::new(&[("a", "one"), ("d/b", "one")]) else {
        return;
    };
    theirs.write("a", "two", 0o644);
    theirs.write("d/b", "two", 0o644);
    theirs.json(0, &["restore", "good"]);
    theirs.write("d/b", "precious", 0o000);
    theirs.write("elsewhere", "of no concern", 0o000);

    let undone = theirs.json(13, &["undo"]);

    says(&undone, &json!({ "undone": true }));
    assert_eq!(left_alone(&undone), named("d/b", "unreadable"));
    let found = theirs.contents();
    for (path, content) in [("a", "two"), ("d/b", "precious")] {
        assert!(found.contains(&(path.into(), content.to_owned())), "{path}");
    }
}

/// Root gives a directory to nobody else than root; an ordinary user cannot make one that is not his.
#[test]
fn directories_of_another_user_stay_and_nothing_is_left_half_done() {
    let Some(theirs) = Theirs::new(&[("a", "one"), ("theirs/f", "one")]) else {
        return;
    };
    if !theirs.is_root {
        println!("skipped: only root gives a directory away");
        return;
    }
    let others = |path: &str, content: &str| {
        theirs.write(path, content, 0o644);
        let above = theirs.tree.at(path.split('/').next().unwrap());
        for one in [above, theirs.tree.at(path)] {
            chown(one, Some(0), Some(0)).unwrap();
        }
    };
    others("theirs/f", "one");
    theirs.write("a", "two", 0o644);
    let untouched = theirs.run(&["restore", "good"]);
    others("theirs/f", "two");
    others("came/f", "new");
    theirs.write("a", "two", 0o644);
    let dry = theirs.json(13, &["restore", "good", "--dry-run"]);
    let left = theirs.json(13, &["restore", "good"]);
    let status = theirs.run(&["status"]);
    let undone = theirs.run(&["undo"]);

    // What need not be changed hinders nobody.
    assert_eq!(untouched.code, 0, "{}{}", untouched.out, untouched.err);
    let both = [named("came", "not_ours"), named("theirs/f", "not_ours")].concat();
    assert_eq!(left_alone(&dry), both);
    assert_eq!(left_alone(&left), both);
    says(&left, &json!({ "restored": true }));
    assert_eq!(status.code, 0, "{}{}", status.out, status.err);
    assert_eq!(undone.code, 0, "{}{}", undone.out, undone.err);
    assert_eq!(theirs.tree.read("a"), "two");
    assert_eq!(theirs.tree.read("theirs/f"), "two");
    assert_eq!(theirs.tree.read("came/f"), "new");
}

#[test]
fn an_automatic_checkpoint_with_a_gap_is_no_reason_not_to_make_the_next() {
    let Some(theirs) = Theirs::new(&[("a", "one")]) else {
        return;
    };
    let auto = |code| theirs.json(code, &["create", "--auto"]);
    let whole = auto(0);
    theirs.write("key", "secret", 0o000);

    let gap = auto(13);
    let again = auto(13);
    let rows = theirs.tree.json(0, &["list"]);
    fs::remove_file(theirs.tree.at("key")).unwrap();
    let same = auto(0);

    says(&whole, &json!({ "created": true, "left_out_count": 0 }));
    for made in [&gap, &again] {
        says(made, &json!({ "created": true, "left_out_count": 1 }));
    }
    let complete = |row: usize| &rows["items"][row]["complete"];
    assert_eq!(
        [complete(0), complete(1), complete(2)],
        [&json!(false), &json!(false), &json!(true)]
    );
    // What is there now is what the last whole one holds.
    says(&same, &json!({ "created": false, "checkpoint": "cp-0" }));
}
