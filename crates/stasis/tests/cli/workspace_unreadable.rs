//! Files that somebody may not read: no revert and no restore takes them away, and a checkpoint without them is no whole one.

use crate::session::{Said, said};
use crate::workspace::{Tree, says};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Somebody with no privileges.
const NOBODY: u32 = 65_534;

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
        theirs.give(theirs.tree.session.home());
        let made = theirs.run(&["create", "good"]);
        if made.code == 126 || made.code == 127 {
            // Where it was built is not open to everybody.
            println!("skipped: nobody else can run the program: {}", made.err);
            return None;
        }
        assert_eq!(made.code, 0, "{}{}", made.out, made.err);
        Some(theirs)
    }

    /// Makes everything beneath a place theirs.
    fn give(&self, place: &Path) {
        if !self.is_root {
            return;
        }
        chown(place, Some(NOBODY), Some(NOBODY)).unwrap();
        if place.is_dir() {
            for entry in fs::read_dir(place).unwrap() {
                self.give(&entry.unwrap().path());
            }
        }
    }

    fn write(&self, path: &str, content: &str, mode: u32) {
        self.tree.write(path, content);
        self.give(&self.tree.at(path.split('/').next().unwrap()));
        fs::set_permissions(self.tree.at(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs a command without privileges.
    fn run(&self, words: &[&str]) -> Said {
        let plain = self.tree.command(words);
        let mut command = Command::new(plain.get_program());
        if self.is_root {
            let id = NOBODY.to_string();
            command = Command::new("setpriv");
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
            command.arg(plain.get_program());
        }
        command.args(plain.get_args()).env_clear();
        let set = plain.get_envs();
        command.envs(set.filter_map(|(name, value)| Some((name, value?))));
        said(command.output().unwrap())
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

#[test]
fn a_restore_does_not_take_away_what_may_not_be_read() {
    let Some(theirs) = Theirs::new(&[("a", "one")]) else {
        return;
    };
    theirs.write("a", "two", 0o644);
    theirs.write("private/key", "secret", 0o000);

    let dry = theirs.run(&["restore", "good", "--dry-run"]);
    let refused = theirs.run(&["restore", "good"]);
    let around = theirs.run(&["revert", "private", "good"]);
    let itself = theirs.run(&["revert", "private/key", "good"]);
    let beside = theirs.run(&["revert", "a", "good"]);

    for told in [&dry, &refused, &around, &itself] {
        assert_unreadable(told);
    }
    assert!(refused.err.contains("may not be read"), "{}", refused.err);
    assert_eq!(beside.code, 0, "{}", beside.err);
    let found = theirs.contents();
    assert!(found.contains(&("private/key".into(), "secret".to_owned())));
    assert!(found.contains(&("a".into(), "one".to_owned())));
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

    let itself = theirs.run(&["revert", "d/a", "good"]);
    let around = theirs.run(&["revert", "d", "good"]);
    let whole = theirs.run(&["restore", "good"]);

    for told in [&itself, &around, &whole] {
        assert_unreadable(told);
    }
    let found = theirs.contents();
    assert!(found.contains(&("d/a".into(), "precious".to_owned())));
}

#[test]
fn a_directory_that_may_not_be_read_is_not_taken_away() {
    let Some(theirs) = Theirs::new(&[("a", "one")]) else {
        return;
    };
    theirs.write("a", "two", 0o644);
    theirs.write("d/closed/file", "precious", 0o644);
    let closed = theirs.tree.at("d/closed");
    if theirs.is_root {
        chown(&closed, Some(0), Some(0)).unwrap();
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();

    let made = theirs.run(&["create", "with a gap"]);
    let restored = theirs.run(&["restore", "good"]);
    let reverted = theirs.run(&["revert", "d", "good"]);

    assert_eq!(made.code, 0, "{}", made.err);
    for told in [&restored, &reverted] {
        assert_unreadable(told);
    }
    let found = theirs.contents();
    assert!(found.contains(&("d/closed/file".into(), "precious".to_owned())));
    assert!(found.contains(&("a".into(), "two".to_owned())));
}

#[test]
fn an_automatic_checkpoint_with_a_gap_is_no_reason_not_to_make_the_next() {
    let Some(theirs) = Theirs::new(&[("a", "one")]) else {
        return;
    };
    let auto = || {
        let said = theirs.run(&["create", "--auto", "--json"]);
        assert_eq!(said.code, 0, "{}", said.err);
        serde_json::from_str::<Value>(&said.out).unwrap()
    };
    let whole = auto();
    theirs.write("key", "secret", 0o000);

    let gap = auto();
    let again = auto();
    let rows = theirs.tree.json(0, &["list"]);
    fs::remove_file(theirs.tree.at("key")).unwrap();
    let same = auto();

    says(&whole, &json!({ "created": true, "left_out_count": 0 }));
    for made in [&gap, &again] {
        says(made, &json!({ "created": true, "left_out_count": 1 }));
    }
    let complete = |row: usize| &rows["snapshots"][row]["complete"];
    assert_eq!(
        [complete(0), complete(1), complete(2)],
        [&json!(false), &json!(false), &json!(true)]
    );
    // What is there now is what the last whole one holds.
    says(&same, &json!({ "created": false, "checkpoint": "cp-0" }));
}
