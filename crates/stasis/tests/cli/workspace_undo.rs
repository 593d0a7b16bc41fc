//! What takes changes back: when it is kept, when it goes, and that nothing is changed without it.

use crate::project::names;
use crate::repo_world::noise;
use crate::session::said;
use crate::workspace::{Tree, text};
use crate::workspace_watch::{LARGE, large, until_busy};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// What takes changes back, the newest first.
pub(crate) fn undos(tree: &Tree) -> Vec<String> {
    let status = tree.json(0, &["status"]);
    let rows = status["undo"].as_array().unwrap().iter();
    rows.map(|row| text(&row["undo"])).collect()
}

/// The metadata of what takes a change back.
pub(crate) fn note_of(tree: &Tree, number: u32) -> PathBuf {
    tree.kept().join(format!("undo/{number}/metadata.json"))
}

pub(crate) fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Makes an act one of which nobody wrote down that it was done, as a kill leaves it.
pub(crate) fn forget_that_it_was_done(note: &Path) {
    let mut metadata = read_json(note);
    assert_eq!(metadata["undo"]["pending"], json!(false), "{metadata:#}");
    metadata["undo"]["pending"] = json!(true);
    fs::write(note, metadata.to_string()).unwrap();
}

/// A workspace in which `a` was reverted from `two` to `one`, which `u-1` takes back.
pub(crate) fn reverted() -> Tree {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    tree.write("a", "two");
    let told = tree.json(0, &["revert", "a", "good"]);
    assert_eq!(told["undo"], "u-1");
    tree
}

#[test]
fn a_revert_that_never_happened_leaves_no_undo() {
    let tree = reverted();
    forget_that_it_was_done(&note_of(&tree, 1));
    tree.write("a", "two");

    let found = undos(&tree);
    let undone = tree.run(&["undo"]);

    assert!(found.is_empty(), "{found:?}");
    assert_eq!(undone.code, 3, "{}{}", undone.out, undone.err);
    assert!(undone.err.contains("nothing to undo"), "{}", undone.err);
    assert_eq!(tree.read("a"), "two");
}

#[test]
fn a_restore_that_never_happened_leaves_no_undo() {
    let tree = Tree::new(&[("a", "one"), ("gone/b", "x")]);
    tree.checkpoint("good");
    tree.write("a", "two");
    fs::remove_dir_all(tree.at("gone")).unwrap();
    tree.json(0, &["restore", "good"]);
    forget_that_it_was_done(&note_of(&tree, 1));
    tree.write("a", "two");
    fs::remove_dir_all(tree.at("gone")).unwrap();

    let found = undos(&tree);

    assert!(found.is_empty(), "{found:?}");
    assert!(!tree.kept().join("undo/1").exists());
}

#[test]
fn an_act_that_happened_is_undone_though_nobody_wrote_down_that_it_was_done() {
    let tree = reverted();
    let note = note_of(&tree, 1);
    forget_that_it_was_done(&note);

    let found = undos(&tree);
    let pending = read_json(&note)["undo"]["pending"].clone();
    // It is decided once: what somebody does later is none of its business.
    tree.write("a", "two");
    let later = undos(&tree);
    tree.write("a", "three");
    tree.json(0, &["undo"]);

    assert_eq!(
        (found, later),
        (vec!["u-1".to_owned()], vec!["u-1".to_owned()])
    );
    assert_eq!(pending, json!(false));
    assert_eq!(tree.read("a"), "two");
}

#[test]
fn an_act_that_was_done_is_undone_though_somebody_made_it_again_what_it_was() {
    let tree = reverted();
    tree.write("a", "two");

    assert_eq!(undos(&tree), ["u-1"]);
}

#[test]
fn a_restore_that_happened_is_undone_though_nobody_wrote_down_that_it_was_done() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    tree.write("a", "two");
    tree.write("new", "precious");
    let before = tree.contents();
    tree.json(0, &["restore", "good"]);
    forget_that_it_was_done(&note_of(&tree, 1));

    let found = undos(&tree);
    tree.json(0, &["undo"]);

    assert_eq!(found, ["u-1"]);
    assert_eq!(tree.contents(), before);
}

#[test]
fn what_could_be_undone_is_let_go_at_once_and_nothing_else_is() {
    let tree = Tree::new(&[("a", "one"), ("b", "one")]);
    tree.checkpoint("good");
    let held = || tree.json(0, &["status"])["held_bytes"].as_u64().unwrap();
    let before = held();
    tree.write("a", &"two ".repeat(20_000));
    tree.json(0, &["revert", "a"]);
    tree.write("b", "two");
    tree.json(0, &["restore", "good"]);
    let (with_undos, contents, listed) = (held(), tree.contents(), tree.listed());

    let both = tree.run(&["undo", "u-1", "--forget"]);
    let dry = tree.run(&["undo", "--forget", "--dry-run"]);
    let kept = undos(&tree);
    let told = tree.json(0, &["undo", "--forget"]);
    let again = tree.run(&["undo", "--forget"]);
    let undone = tree.run(&["undo"]);

    assert_eq!((both.code, dry.code), (2, 2), "{}{}", both.err, dry.err);
    assert_eq!(kept, ["u-2", "u-1"]);
    assert_eq!(told, json!({ "forgotten": 2 }));
    assert_eq!((again.code, undone.code), (0, 3), "{}", again.err);
    assert!(again.out.contains("0 undo checkpoints"), "{}", again.out);
    assert_eq!((tree.contents(), tree.listed()), (contents, listed));
    assert!(with_undos > before, "{with_undos} and {before}");
    assert_eq!(held(), before, "their bytes are free");
    tree.write("a", "two");
    let next = tree.json(0, &["revert", "a"]);
    assert_eq!(next["undo"], "u-3", "no number is used again");
}

#[test]
fn ten_undos_are_kept_of_what_people_do_and_the_oldest_go() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    for number in 1..=12 {
        tree.write("a", &format!("version {number}"));
        tree.json(0, &["revert", "a", "good"]);
    }

    let found = undos(&tree);
    tree.json(0, &["undo", "u-4"]);

    let expected: Vec<String> = (3..=12).rev().map(|number| format!("u-{number}")).collect();
    assert_eq!(found, expected);
    assert_eq!(tree.read("a"), "version 4");
}

#[test]
fn an_undo_that_was_used_is_gone_and_only_its_redo_is_there() {
    let tree = reverted();

    let undone = tree.json(0, &["undo"]);
    let left = undos(&tree);
    let again = tree.run(&["undo", "u-1"]);

    assert_eq!(undone["redo"], "u-2");
    assert_eq!(left, ["u-2"]);
    assert_eq!(again.code, 3, "{}{}", again.out, again.err);
}

#[test]
fn directories_that_a_revert_made_go_with_its_undo_unless_something_else_is_in_them() {
    let tree = Tree::new(&[("one/deep/a", "x"), ("two/deep/a", "x"), ("b", "x")]);
    tree.checkpoint("good");
    for top in ["one", "two"] {
        fs::remove_dir_all(tree.at(top)).unwrap();
        tree.json(0, &["revert", &format!("{top}/deep/a")]);
    }
    tree.write("two/mine", "since");

    tree.json(0, &["undo", "u-2"]);
    tree.json(0, &["undo", "u-1"]);

    assert_eq!(names(&tree.at("")), ["b", "two"]);
    assert_eq!(names(&tree.at("two")), ["mine"]);
}

#[test]
fn what_somebody_writes_while_an_act_begins_is_not_lost() {
    let tree = large();
    tree.checkpoint("good");
    for number in 0..LARGE {
        let bytes = noise(100 + number, 1 << 20);
        fs::write(tree.at(&format!("f{number}")), bytes).unwrap();
    }
    let kept = tree.kept();
    let restoring = tree.command(&["restore", "good"]);
    let (restored, contents) = std::thread::scope(|scope| {
        let mut restoring = restoring;
        let restored = scope.spawn(move || said(restoring.output().unwrap()));
        until_busy(&kept);
        tree.write("late", "precious");
        let contents = tree.contents();
        (restored.join().unwrap(), contents)
    });

    let found = undos(&tree);

    assert_ne!(restored.code, 0, "{}", restored.out);
    assert!(restored.err.contains("meanwhile"), "{}", restored.err);
    assert!(tree.contents() == contents, "nothing was changed");
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn what_is_in_no_checkpoint_and_comes_while_an_act_begins_is_not_lost() {
    let tree = large();
    fs::write(tree.kept().join("config.toml"), "exclude = [\"*.log\"]\n").unwrap();
    tree.checkpoint("good");
    for number in 0..LARGE {
        let bytes = noise(100 + number, 1 << 20);
        fs::write(tree.at(&format!("f{number}")), bytes).unwrap();
    }
    tree.write("added/since", "goes");
    let (kept, mut restoring) = (tree.kept(), tree.command(&["restore", "good"]));
    let restored = std::thread::scope(|scope| {
        let restored = scope.spawn(move || said(restoring.output().unwrap()));
        until_busy(&kept);
        tree.write("added/run.log", "precious");
        restored.join().unwrap()
    });

    assert_ne!(restored.code, 0, "{}", restored.out);
    assert!(restored.err.contains("added/run.log"), "{}", restored.err);
    assert_eq!(tree.read("added/run.log"), "precious");
    assert_eq!(tree.read("added/since"), "goes", "nothing was changed");
    assert!(undos(&tree).is_empty());
}

#[test]
fn an_act_that_cannot_be_undone_within_the_budget_is_not_done() {
    let tree = Tree::with(&[("a", "one"), ("d/b", "one")], &["--budget", "1MB"]);
    tree.checkpoint("good");
    for path in ["a", "d/b"] {
        fs::write(tree.at(path), noise(1, 1 << 20)).unwrap();
    }
    let before = tree.contents();

    let file = tree.run(&["revert", "a", "good"]);
    let directory = tree.run(&["revert", "d", "good"]);
    let whole = tree.run(&["restore", "good"]);

    for refused in [&file, &directory, &whole] {
        assert_eq!(refused.code, 11, "{}{}", refused.out, refused.err);
        assert!(refused.err.contains("1000000"), "{}", refused.err);
    }
    assert!(tree.contents() == before);
    assert!(undos(&tree).is_empty());
}

#[test]
fn an_act_that_is_not_known_to_be_done_blocks_nobody_when_its_path_is_excluded_since() {
    let tree = reverted();
    let (note, config) = (note_of(&tree, 1), tree.kept().join("config.toml"));
    forget_that_it_was_done(&note);
    fs::write(config, "exclude = [\"a\"]\n").unwrap();

    let made = tree.run(&["create", "next"]);

    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    assert!(note.exists(), "whether it was done nobody knows");
}

#[test]
fn the_oldest_of_the_undos_that_are_kept_is_taken_back_like_any_other() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    for number in 1..=10 {
        tree.write("a", &format!("version {number}"));
        tree.json(0, &["revert", "a", "good"]);
    }

    let undone = tree.run(&["undo", "u-1"]);

    assert_eq!(tree.read("a"), "version 1");
    assert_eq!(undone.code, 0, "{}{}", undone.out, undone.err);
}
