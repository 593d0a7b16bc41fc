//! Loads of a profile that are killed at every call that changes anything.
//!
//! `crash_points` counts the calls and kills. Whatever happened, the directory is the old profile, the new one whole, or not
//! there; nothing is saved over a snapshot because of it; and the next load succeeds and leaves nothing of the dead one.

use crate::crash_points::{self, killed_at_each_step};
use crate::repo_crash::copy;
use crate::repo_world::{Shown, names, noise, show, write};
use crate::session::Session;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const ALICE: &str = "acme/alice@131";

/// Where the directory lies before the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    Nothing,
    OldProfile,
}

struct Stage {
    session: Session,
    target: String,
    old: Shown,
    new: Shown,
}

impl Stage {
    /// A store with two snapshots, and what a load begins with, kept aside so that every run begins alike.
    fn new(before: Before) -> Self {
        let session = Session::new();
        let source = session.home().join("source");
        write(&source, "Last Version", b"131.0.6778.85");
        for number in 0..6_u64 {
            let bytes = noise(number, 40_000);
            write(
                &source,
                &format!("Default/d{}/f{number}", number % 2),
                &bytes,
            );
        }
        let text = source.to_str().unwrap();
        let stage = Self {
            target: format!("{}/place/there", session.home().display()),
            session,
            old: Shown::new(),
            new: Shown::new(),
        };
        let save = ["profile", "save", ALICE, "--dir", text];
        stage.session.json(0, &save);
        fs::create_dir(stage.session.home().join("place")).unwrap();
        if before == Before::OldProfile {
            stage.session.json(0, &stage.load());
        }
        let old = show(&stage.there());
        write(&source, "Default/d0/f2", b"changed");
        write(&source, "Default/new", &noise(99, 70_000));
        fs::remove_file(source.join("Default/d1/f3")).unwrap();
        stage.session.json(0, &save);
        let new = show(&source);
        copy(
            stage.session.home(),
            &["data", "cache", "state", "place"],
            "",
            "kept-",
        );
        Self { old, new, ..stage }
    }

    fn there(&self) -> PathBuf {
        PathBuf::from(&self.target)
    }

    fn load(&self) -> [&str; 5] {
        ["profile", "load", ALICE, "--dir", &self.target]
    }

    /// The next load succeeds, and nothing is left of the dead one.
    fn go_on(&self, context: &str) {
        let loaded = self.session.json(0, &self.load());
        assert_eq!(loaded["outcome"], "success", "{context}: {loaded}");
        assert!(show(&self.there()) == self.new, "{context}");
        let mut left = names(&self.session.home().join("place"));
        left.retain(|name| {
            let name = name.to_str().unwrap();
            name != "there" && name != "there.stasis.json"
        });
        let kept = left
            .iter()
            .filter(|name| name.to_str().unwrap().contains(".stasis-kept"));
        assert_eq!(kept.count(), left.len(), "{context}: {left:?}");
        assert!(
            left.len() <= 2,
            "one tree and its record: {context} {left:?}"
        );
        let mut cached = names(&self.session.home().join("cache/stasis/archives"));
        cached.retain(|name| !name.to_str().unwrap().ends_with(".tar.zst"));
        assert!(cached.is_empty(), "{context}: {cached:?}");
    }
}

impl crash_points::Stage for Stage {
    fn command(&self) -> Command {
        self.session.command(&self.load())
    }

    fn reset(&self) {
        copy(
            self.session.home(),
            &["data", "cache", "state", "place"],
            "kept-",
            "",
        );
    }

    fn assert_done(&self) {
        assert!(show(&self.there()) == self.new);
    }

    fn judge(&self, context: &str) {
        let now = show(&self.there());
        let is_absent = !self.there().exists() && self.old.is_empty();
        assert!(
            is_absent || now == self.old || now == self.new,
            "{context}: {:?}",
            now.keys()
        );
        if self.there().exists() {
            // Whatever the directory is, nobody who saves it takes the place of the active snapshot by mistake.
            let save = ["--json", "profile", "save", ALICE, "--dir", &self.target];
            let saved = self.session.run(&save);
            let told: serde_json::Value = serde_json::from_str(&saved.out).unwrap();
            let outcome = told["outcome"].as_str().unwrap_or_default();
            let is_new = now == self.new;
            assert!(
                outcome == "diverged" || (is_new && outcome == "deduplicated"),
                "{context}: {told}"
            );
        }
        self.go_on(context);
    }
}

#[test]
fn a_load_over_a_profile_that_is_killed_leaves_the_old_one_or_the_new_one_whole() {
    killed_at_each_step(Before::OldProfile, || Stage::new(Before::OldProfile));
}

#[test]
fn a_first_load_that_is_killed_leaves_nothing_or_the_new_profile_whole() {
    killed_at_each_step(Before::Nothing, || Stage::new(Before::Nothing));
}
