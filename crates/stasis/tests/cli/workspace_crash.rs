//! Checkpoints, reverts, restores and compactions of a workspace that are killed at every call that changes anything.
//!
//! `crash_points` counts the calls and kills. Whatever happened, the live tree is the old one or the new one whole, what takes it
//! back is there if and only if it was changed, every checkpoint that was there before is there and holds what it held, the
//! same command done again succeeds, and nothing that was half made stays anywhere once somebody came by.

use crate::crash_points::{self, killed_at_each_step};
use crate::repo_crash::copy;
use crate::workspace::Tree;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

const FILES: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Create,
    Revert,
    Restore,
    Undo,
    Compact,
    Fork,
}

struct Stage {
    tree: Tree,
    act: Act,
    before: BTreeMap<PathBuf, String>,
    after: BTreeMap<PathBuf, String>,
    listed: Vec<(String, Value)>,
    /// Where a fork goes.
    forked: PathBuf,
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
            Act::Create | Act::Compact | Act::Fork => (two.clone(), two),
        };
        let listed = tree.listed();
        copy(tree.session.home(), &["work", "state"], "", "kept-");
        Self {
            forked: tree.session.home().join("forked"),
            tree,
            act,
            before,
            after,
            listed,
        }
    }

    fn words(&self) -> Vec<&str> {
        match self.act {
            Act::Create => vec!["create", "third"],
            Act::Revert => vec!["revert", "d1", "first"],
            Act::Restore => vec!["restore", "first"],
            Act::Undo => vec!["undo"],
            // The name of one that goes.
            Act::Compact => vec!["compact", "first", "second", "--name", "first"],
            Act::Fork => vec!["fork", "second", self.forked.to_str().unwrap()],
        }
    }

    /// What is only there for a moment while a command runs, and has stayed.
    fn left_over(&self) -> Vec<PathBuf> {
        let (mut found, mut waiting) = (Vec::new(), vec![self.tree.session.home().to_owned()]);
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                if name.starts_with("kept-") {
                    continue;
                }
                let is_left = name.contains(".stasis-tmp-")
                    || name.starts_with("remembered.")
                    || name.starts_with("making.");
                if is_left {
                    found.push(path);
                } else if path.is_dir() && !path.is_symlink() {
                    waiting.push(path);
                }
            }
        }
        found
    }
}

impl crash_points::Stage for Stage {
    fn command(&self) -> Command {
        self.tree.command(&self.words())
    }

    fn reset(&self) {
        let _ = std::fs::remove_dir_all(&self.forked);
        copy(self.tree.session.home(), &["work", "state"], "kept-", "");
    }

    fn assert_done(&self) {
        let checkpoints = match self.act {
            Act::Create => 3,
            Act::Compact => 1,
            Act::Revert | Act::Restore | Act::Undo | Act::Fork => 2,
        };
        assert_eq!(self.forked.exists(), self.act == Act::Fork);
        assert_eq!(self.tree.contents(), self.after);
        assert_eq!(self.tree.listed().len(), checkpoints);
    }

    fn judge(&self, context: &str) {
        // Whoever comes next brings an interrupted restore to its end.
        let status = self.tree.json(0, &["status"]);
        // What a checkpoint had stored serves the next one.
        let serves = |path: &PathBuf| path.to_str().unwrap().contains("/chunks/.incoming.");
        let mut left = self.left_over();
        left.retain(|path| self.act != Act::Create || !serves(path));
        assert!(left.is_empty(), "{context}: {left:?}");
        let live = self.tree.contents();
        assert!(
            live == self.before || live == self.after,
            "{context}: {live:?}"
        );
        if matches!(self.act, Act::Revert | Act::Restore) {
            let undos = status["undo"].as_array().unwrap().len();
            let was_done = usize::from(live == self.after);
            assert_eq!(undos, was_done, "{context}: {status:#}");
        }
        let listed = self.tree.listed();
        for checkpoint in &self.listed {
            let is_kept = listed.iter().any(|one| one.1 == checkpoint.1);
            let may_go = self.act == Act::Compact && checkpoint == &self.listed[1];
            assert!(
                is_kept || may_go,
                "{context}: {checkpoint:?} is not in {listed:?}"
            );
        }
        let all = self.tree.json(0, &["list"]);
        let names = all["items"].as_array().unwrap().iter();
        let names: Vec<&Value> = names.map(|row| &row["name"]).collect();
        let is_unique = |name: &&Value| names.iter().filter(|other| *other == name).count() == 1;
        assert!(names.iter().all(is_unique), "{context}: {names:?}");
        let newest = &listed[0].0;
        let fork = self.tree.session.home().join("fork");
        self.tree.json(0, &["fork", newest, fork.to_str().unwrap()]);
        assert_eq!(
            std::fs::read_to_string(fork.join("d1/f1")).unwrap(),
            "two 1",
            "{context}"
        );
        std::fs::remove_dir_all(fork).unwrap();
        let again = self.tree.run(&self.words());
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
        let left = self.left_over();
        assert!(left.is_empty(), "{context}: {left:?}");
    }
}

#[test]
fn a_checkpoint_that_is_killed_loses_no_slot() {
    killed_at_each_step(Act::Create, || Stage::new(Act::Create));
}

#[test]
fn a_revert_that_is_killed_leaves_the_old_directory_or_the_new_one() {
    killed_at_each_step(Act::Revert, || Stage::new(Act::Revert));
}

#[test]
fn a_restore_that_is_killed_is_finished_or_was_never_begun() {
    killed_at_each_step(Act::Restore, || Stage::new(Act::Restore));
}

#[test]
fn an_undo_that_is_killed_is_finished_or_was_never_begun() {
    killed_at_each_step(Act::Undo, || Stage::new(Act::Undo));
}

#[test]
fn a_compaction_that_is_killed_loses_no_state_that_it_was_to_keep() {
    killed_at_each_step(Act::Compact, || Stage::new(Act::Compact));
}

#[test]
fn a_fork_that_is_killed_leaves_nothing_beside_its_target() {
    killed_at_each_step(Act::Fork, || Stage::new(Act::Fork));
}
