//! Saves, restores and sweeps of a project that are killed at every call that changes anything.
//!
//! `crash_points` counts the calls and kills. Whatever happened, after the next command the state is the old one or the new one
//! whole, every snapshot that is listed comes back, nothing stands still, and the next save succeeds and leaves nothing of the dead one.

use crate::crash_points::{self, killed_at_each_step};
use crate::project::{Shop, id};
use crate::repo_crash::copy;
use std::process::Command;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Save,
    Restore,
    Gc,
}

struct Stage {
    shop: Shop,
    act: Act,
    first: String,
}

impl Stage {
    /// A project whose state is `two`, with a snapshot of `one` and, unless it is to be saved, of `two`.
    fn new(act: Act) -> Self {
        let shop = Shop::new(
            "[volumes.main]\nconsistency = \"sqlite\"\n[volumes.media]\nconsistency = \"generic\"\n[retention]\nmax_snapshots = 1\n",
        );
        for number in 0..8 {
            shop.write(&format!("volumes/media/{number}"), &"x".repeat(40_000));
        }
        become_state(&shop, "one");
        let first = shop.save();
        become_state(&shop, "two");
        if act == Act::Gc {
            shop.save();
        }
        copy(
            shop.session.home(),
            &["shop", "cache", "state"],
            "",
            "kept-",
        );
        Self { shop, act, first }
    }

    fn words(&self) -> Vec<&str> {
        match self.act {
            Act::Save => vec!["save"],
            Act::Restore => vec!["restore", &self.first],
            Act::Gc => vec!["gc"],
        }
    }
}

impl crash_points::Stage for Stage {
    fn command(&self) -> Command {
        self.shop.command(&self.words())
    }

    fn reset(&self) {
        copy(
            self.shop.session.home(),
            &["shop", "cache", "state"],
            "kept-",
            "",
        );
    }

    fn assert_done(&self) {
        let word = if self.act == Act::Restore {
            "one"
        } else {
            "two"
        };
        assert_eq!(rows(&self.shop), word);
    }

    fn judge(&self, context: &str) {
        if self.act == Act::Restore {
            // In place there is a journal: whatever command comes next follows it to its end.
            let next = self.shop.run(&["start"]);
            assert_eq!(next.code, 0, "{context}: {}", next.err);
        }
        let (file, rows) = (self.shop.read("files/a"), rows(&self.shop));
        let allowed: &[&str] = match self.act {
            Act::Restore => &["one", "two"],
            _ => &["two"],
        };
        assert!(
            file == rows && allowed.contains(&&*file),
            "{context}: {file} and {rows}"
        );
        let listed = self.shop.json(0, &["list"]);
        let listed: Vec<String> = listed["items"].as_array().unwrap().iter().map(id).collect();
        assert!(!listed.is_empty(), "{context}");
        if self.act != Act::Gc {
            assert!(
                listed.contains(&self.first),
                "{context}: the last good snapshot is there"
            );
        }
        for snapshot in &listed {
            let verified = self.shop.json(0, &["verify", snapshot]);
            assert_eq!(verified["databases"], 1, "{context}: {verified}");
        }
        become_state(&self.shop, "three");
        let next = self.shop.run(&["save"]);
        assert_eq!(next.code, 0, "{context}: {}", next.err);
        if self.act == Act::Save {
            let listed = self.shop.json(0, &["list"]);
            let stored = crate::project::names(&self.shop.at("state/snapshots"));
            let listed = listed["items"].as_array().unwrap().len();
            assert_eq!(
                stored.len(),
                listed,
                "{context}: collected by the next save"
            );
        }
        let swept = self.shop.run(&["gc"]);
        assert_eq!(swept.code, 0, "{context}: {}", swept.err);
        assert!(
            self.shop.left_over().is_empty(),
            "{context}: {:?}",
            self.shop.left_over()
        );
    }
}

/// Writes a word into a file and into a database.
fn become_state(shop: &Shop, word: &str) {
    let path = shop.at("state/current/volumes/main/shop.db");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let script = "import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.executescript('create table if not exists t(x); delete from t'); \
                  d.execute('insert into t values (?)', (sys.argv[2],)); d.commit(); d.close()";
    let done = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .arg(word)
        .status();
    assert!(done.unwrap().success());
    shop.write("files/a", word);
}

fn rows(shop: &Shop) -> String {
    let script = "import sqlite3,sys; print(','.join(r[0] for r in sqlite3.connect(sys.argv[1]).execute('select x from t')))";
    let path = shop.at("state/current/volumes/main/shop.db");
    let said = Command::new("python3")
        .args(["-c", script])
        .arg(path)
        .output()
        .unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_save_of_a_project_that_is_killed_leaves_the_state_and_the_last_good_snapshot() {
    killed_at_each_step(Act::Save, || Stage::new(Act::Save));
}

#[test]
fn a_restore_of_a_project_that_is_killed_leaves_the_old_state_or_the_new_one_whole() {
    killed_at_each_step(Act::Restore, || Stage::new(Act::Restore));
}

#[test]
fn a_sweep_of_a_project_that_is_killed_loses_no_snapshot_that_is_listed() {
    killed_at_each_step(Act::Gc, || Stage::new(Act::Gc));
}
