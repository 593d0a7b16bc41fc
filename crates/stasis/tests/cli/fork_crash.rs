//! Making, promoting and removing a fork, killed at every call that changes anything.
//!
//! Whatever happened: a fork that is known is whole, and a directory that is not known as a fork is not there; the workspace is what it
//! was or what the fork is, with an undo if and only if it changed; and nothing that was half made or half removed stays.

use crate::crash_points::{self, killed_at_each_step};
use crate::session::Session;
use crate::workspace::contents;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILES: usize = 9;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Fork,
    Promote,
    Remove,
}

struct ForkStage {
    session: Session,
    act: Act,
    before: BTreeMap<PathBuf, String>,
    after: BTreeMap<PathBuf, String>,
}

fn fill(dir: &Path, word: &str) {
    for number in 0..FILES {
        let place = dir.join(format!("d{}", number % 3));
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(format!("f{number}")), format!("{word} {number}")).unwrap();
    }
    fs::create_dir_all(dir.join(format!("only-{word}"))).unwrap();
    fs::write(dir.join(format!("only-{word}/x")), word).unwrap();
}

impl ForkStage {
    fn new(act: Act) -> Self {
        let mut stage = Self {
            session: Session::new(),
            act,
            before: BTreeMap::new(),
            after: BTreeMap::new(),
        };
        stage.set_up();
        stage.before = contents(&stage.work());
        stage.after = match act {
            Act::Promote => contents(&stage.fork()),
            Act::Fork | Act::Remove => stage.before.clone(),
        };
        stage
    }

    fn work(&self) -> PathBuf {
        self.session.home().join("work")
    }

    fn fork(&self) -> PathBuf {
        self.session.home().join("work-f")
    }

    /// Made anew each time: a copy of a fork is not the fork.
    fn set_up(&self) {
        for name in ["work", "work-f", "state"] {
            let _ = fs::remove_dir_all(self.session.home().join(name));
        }
        fs::create_dir(self.work()).unwrap();
        fill(&self.work(), "one");
        let work = self.work().display().to_string();
        self.session.json(0, &["workspace", "init", &work]);
        if self.act != Act::Fork {
            self.session.json(0, &["fork", &work, "--name", "f"]);
            fill(&self.fork(), "two");
            fs::remove_dir_all(self.fork().join("only-one")).unwrap();
        }
    }

    fn words(&self) -> Vec<String> {
        let words: &[&str] = match self.act {
            Act::Fork => &["--name", "f"],
            Act::Promote => &["promote", "f"],
            Act::Remove => &["rm", "f", "--discard"],
        };
        let work = self.work().display().to_string();
        let all = ["fork"].into_iter().chain(words.iter().copied());
        let all = all.chain(["--workspace", &work]);
        all.map(str::to_owned).collect()
    }

    fn forks(&self) -> Vec<Value> {
        let work = self.work().display().to_string();
        let all = self
            .session
            .json(0, &["fork", "list", "--workspace", &work]);
        all["items"].as_array().unwrap().clone()
    }

    fn left_over(&self) -> Vec<PathBuf> {
        let (mut found, mut waiting) = (Vec::new(), vec![self.session.home().to_owned()]);
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                let is_left = name.contains(".stasis-") || name.starts_with("making.");
                // What a checkpoint had stored serves the next one.
                if is_left && !path.to_str().unwrap().contains("/chunks/") {
                    found.push(path);
                } else if path.is_dir() && !path.is_symlink() {
                    waiting.push(path);
                }
            }
        }
        found
    }

    fn judge_forks(&self, context: &str) {
        let forks = self.forks();
        assert_eq!(!forks.is_empty(), self.fork().exists(), "{context}");
        let sessions = self.session.home().join("state/stasis/workspaces");
        let sessions = fs::read_dir(sessions).unwrap().count();
        assert_eq!(sessions, 1 + forks.len(), "{context}");
        if let Some(fork) = forks.first() {
            assert_eq!(fork["status"], "ready", "{context}");
            let status = ["workspace", "status", "--workspace"];
            let fork = self.fork().display().to_string();
            self.session.json(0, &[&status[..], &[&fork]].concat());
            let whole = if self.act == Act::Fork {
                self.before.clone()
            } else {
                let mut two = BTreeMap::new();
                for (path, text) in &self.before {
                    let path = PathBuf::from(path.to_str().unwrap().replace("one", "two"));
                    two.insert(path, text.replace("one", "two"));
                }
                two
            };
            assert_eq!(contents(&self.fork()), whole, "{context}");
        }
    }
}

impl crash_points::Stage for ForkStage {
    fn command(&self) -> Command {
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.session.command(&words)
    }

    fn reset(&self) {
        self.set_up();
    }

    fn assert_done(&self) {
        assert_eq!(contents(&self.work()), self.after);
        assert_eq!(self.fork().exists(), self.act != Act::Remove);
    }

    fn judge(&self, context: &str) {
        let work = self.work().display().to_string();
        // Whoever comes next finishes or clears it.
        let status = self
            .session
            .json(0, &["workspace", "status", "--workspace", &work]);
        let mut left = self.left_over();
        // What lies in the session of a fork, whoever comes there next clears.
        left.retain(|path| !path.to_str().unwrap().contains("/workspaces/work-f-"));
        assert!(left.is_empty(), "{context}: {left:?}");
        let live = contents(&self.work());
        assert!(live == self.before || live == self.after, "{context}");
        self.judge_forks(context);
        if self.act == Act::Promote {
            let undos = status["undo"].as_array().unwrap().len();
            assert_eq!(undos, usize::from(live == self.after), "{context}");
        }
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let again = self.session.run(&words);
        assert!([0, 2, 3].contains(&again.code), "{context}: {}", again.err);
        self.assert_done();
        self.judge_forks(context);
        let left = self.left_over();
        assert!(left.is_empty(), "{context}: {left:?}");
        if self.act == Act::Promote {
            self.session
                .json(0, &["workspace", "undo", "--workspace", &work]);
            assert_eq!(contents(&self.work()), self.before, "{context}");
        }
    }
}

#[test]
fn a_fork_that_is_killed_is_known_and_whole_or_was_never_there() {
    killed_at_each_step(Act::Fork, || ForkStage::new(Act::Fork));
}

#[test]
fn a_promotion_that_is_killed_is_finished_with_its_undo_or_was_never_begun() {
    killed_at_each_step(Act::Promote, || ForkStage::new(Act::Promote));
}

#[test]
fn a_removal_that_is_killed_is_finished_or_was_never_begun() {
    killed_at_each_step(Act::Remove, || ForkStage::new(Act::Remove));
}
