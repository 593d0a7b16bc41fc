//! Checkpoints, reverts, restores and compactions of a workspace that are killed at every call that changes anything.
//!
//! The calls are counted as in `repo_crash`: strace delays each, and the kill comes in the pause after the n-th. Whatever
//! happened, the live tree is the old one or the new one whole, every checkpoint that was there before is there and holds what
//! it held, and the same command done again succeeds.

use crate::repo_crash::{copy, has_strace, killed_after};
use crate::workspace::Tree;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How many crash points are tried when not all are asked for.
const SOME: usize = 10;
const FILES: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Create,
    Revert,
    Restore,
    Undo,
    Compact,
}

struct Stage {
    tree: Tree,
    act: Act,
    before: BTreeMap<PathBuf, String>,
    after: BTreeMap<PathBuf, String>,
    listed: Vec<(String, Value)>,
}

/// Every file says the same word, so that a half-done tree is seen.
fn become_state(tree: &Tree, word: &str) {
    for number in 0..FILES {
        tree.write(
            &format!("d{}/f{number}", number % 3),
            &format!("{word} {number}"),
        );
    }
    tree.write(&format!("only-{word}/file"), word);
    let other = if word == "one" {
        "only-two"
    } else {
        "only-one"
    };
    let _ = std::fs::remove_dir_all(tree.at(other));
}

impl Stage {
    /// A workspace in state `two` with checkpoints `first`, of state `one`, and `second`, of state `two`.
    fn new(act: Act) -> Self {
        let tree = Tree::new(&[]);
        become_state(&tree, "one");
        let one = tree.contents();
        tree.checkpoint("first");
        become_state(&tree, "two");
        tree.checkpoint("second");
        let two = tree.contents();
        let (before, after) = match act {
            Act::Restore => (two, one),
            Act::Undo => {
                tree.json(0, &["restore", "first"]);
                (one, two)
            }
            Act::Revert => {
                let mut after = two.clone();
                after.retain(|path, _| !path.starts_with("d1"));
                let old = one.iter().filter(|(path, _)| path.starts_with("d1"));
                after.extend(old.map(|(path, text)| (path.clone(), text.clone())));
                (two, after)
            }
            Act::Create | Act::Compact => (two.clone(), two),
        };
        let listed = tree.listed();
        copy(tree.session.home(), &["work", "state"], "", "kept-");
        Self {
            tree,
            act,
            before,
            after,
            listed,
        }
    }

    fn reset(&self) {
        copy(self.tree.session.home(), &["work", "state"], "kept-", "");
    }

    fn words(&self) -> &'static [&'static str] {
        match self.act {
            Act::Create => &["create", "third"],
            Act::Revert => &["revert", "d1", "first"],
            Act::Restore => &["restore", "first"],
            Act::Undo => &["undo"],
            Act::Compact => &["compact", "first", "second", "--name", "both"],
        }
    }

    fn run(&self, kill_after: usize) -> (usize, bool) {
        killed_after(&self.tree.command(self.words()), kill_after)
    }

    fn judge(&self, context: &str) {
        // Whoever comes next brings an interrupted restore to its end.
        self.tree.json(0, &["status"]);
        let live = self.tree.contents();
        assert!(
            live == self.before || live == self.after,
            "{context}: {live:?}"
        );
        let listed = self.tree.listed();
        for checkpoint in &self.listed {
            let is_kept = listed.iter().any(|one| one.1 == checkpoint.1);
            let may_go = self.act == Act::Compact && checkpoint == &self.listed[1];
            assert!(
                is_kept || may_go,
                "{context}: {checkpoint:?} is not in {listed:?}"
            );
        }
        let newest = &listed[0].0;
        let fork = self.tree.session.home().join("fork");
        self.tree.json(0, &["fork", newest, fork.to_str().unwrap()]);
        assert_eq!(
            std::fs::read_to_string(fork.join("d1/f1")).unwrap(),
            "two 1",
            "{context}"
        );
        std::fs::remove_dir_all(fork).unwrap();
        let again = self.tree.run(self.words());
        let is_done = [0, 2, 3, 11].contains(&again.code);
        assert!(is_done, "{context}: {} {}", again.code, again.err);
        if again.code != 0 {
            // It had been done before it was killed.
            assert!(
                ["already", "no checkpoint", "nothing to undo"]
                    .iter()
                    .any(|words| again.err.contains(words)),
                "{context}: {}",
                again.err
            );
        }
    }
}

fn killed_at_each_step(act: Act) {
    if !has_strace() {
        return;
    }
    let stage = Stage::new(act);
    let (count, was_killed) = stage.run(usize::MAX);
    assert!(!was_killed);
    let all = std::env::var("STASIS_CRASH_POINTS").is_ok_and(|points| points == "all");
    let step = if all { 1 } else { count.div_ceil(SOME) };
    let first = std::process::id() as usize % step + 1;
    let mut kills = 0;
    for when in (first..=count).step_by(step) {
        stage.reset();
        let (_, was_killed) = stage.run(when);
        kills += usize::from(was_killed);
        stage.judge(&format!("{act:?}, killed after call {when} of {count}"));
    }
    println!("{act:?} survived {kills} kills, every {step} of {count} from {first}");
    assert!(kills >= 3, "{kills} of {count}");
}

#[test]
fn a_checkpoint_that_is_killed_loses_no_slot() {
    killed_at_each_step(Act::Create);
}

#[test]
fn a_revert_that_is_killed_leaves_the_old_directory_or_the_new_one() {
    killed_at_each_step(Act::Revert);
}

#[test]
fn a_restore_that_is_killed_is_finished_or_was_never_begun() {
    killed_at_each_step(Act::Restore);
}

#[test]
fn an_undo_that_is_killed_is_finished_or_was_never_begun() {
    killed_at_each_step(Act::Undo);
}

#[test]
fn a_compaction_that_is_killed_loses_no_state_that_it_was_to_keep() {
    killed_at_each_step(Act::Compact);
}
