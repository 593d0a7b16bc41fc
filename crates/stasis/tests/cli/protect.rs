//! `stasis protect`: in one step, and away again.

use crate::session::{Said, Session, said};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A project of somebody who has Claude Code.
struct Shop {
    session: Session,
    dir: PathBuf,
}

impl Shop {
    fn new() -> Self {
        let session = Session::new();
        let dir = session.home().join("shop");
        fs::create_dir_all(dir.join("src")).unwrap();
        fs::write(dir.join("src/main.rs"), "one").unwrap();
        fs::create_dir(session.home().join(".claude")).unwrap();
        Self { session, dir }
    }

    fn run(&self, arguments: &[&str]) -> Said {
        let mut command = self.session.command(arguments);
        command.env("HOME", self.session.home());
        said(command.current_dir(&self.dir).output().unwrap())
    }

    fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let said = self.run(&[&["--json"], arguments].concat());
        assert_eq!(said.code, code, "{arguments:?}\n{}{}", said.out, said.err);
        serde_json::from_str(&said.out).unwrap()
    }

    fn settings(&self) -> Option<String> {
        fs::read_to_string(self.session.home().join(".claude/settings.json")).ok()
    }

    fn status(&self) -> Value {
        self.json(0, &["workspace", "status"])
    }
}

impl Drop for Shop {
    /// No watch outlives its test, whatever became of that.
    fn drop(&mut self) {
        let _ = self.run(&["protect", "--off", "--yes"]);
    }
}

#[test]
fn one_step_protects_and_another_takes_all_of_it_away() {
    let shop = Shop::new();

    let begun = shop.json(0, &["protect", "--yes"]);
    assert_eq!(begun["first"]["files_count"], 1, "{begun}");
    assert_eq!(begun["hooks"][0]["agent"], "claude-code", "{begun}");
    assert!(shop.settings().unwrap().contains("hook run"));
    let watched = shop.status()["watched_by"].clone();
    assert!(watched.as_str().unwrap().starts_with("process "));

    // A second time nothing is missing, and there is one watch.
    let again = shop.json(0, &["protect", "--yes"]);
    assert_eq!(again["watched_by"], watched);
    assert_eq!(again["hooks"][0]["changed"], false, "{again}");

    fs::remove_dir_all(shop.dir.join("src")).unwrap();
    let back = shop.run(&["restore", "cp-0", "--yes"]);
    assert_eq!(back.code, 0, "{}", back.err);
    assert!(shop.dir.join("src/main.rs").exists());

    let off = shop.json(0, &["protect", "--off", "--yes"]);
    assert_eq!(off["watch_ended"], watched);
    assert_eq!(shop.settings(), None, "it was made by us");
    assert_eq!(shop.status()["watched_by"], Value::Null);
    let log = shop.json(0, &["log"]);
    assert!(!log["items"].as_array().unwrap().is_empty());

    let gone = shop.json(0, &["protect", "--off", "--delete-checkpoints", "--yes"]);
    assert!(gone["removed"]["checkpoints"].as_u64().unwrap() >= 1);
    assert_eq!(shop.run(&["workspace", "status"]).code, 3);
    assert!(shop.dir.join("src/main.rs").exists(), "the directory stays");
    let left = fs::read_dir(shop.session.home().join("state/stasis/workspaces"));
    assert_eq!(left.unwrap().count(), 0);
}

#[test]
fn without_a_yes_nobody_elses_file_is_touched() {
    let shop = Shop::new();
    let settings = shop.session.home().join(".claude/settings.json");
    fs::write(&settings, "{\"model\": \"x\"}").unwrap();

    let looked = shop.json(0, &["protect", "--dry-run"]);
    assert_eq!(looked["hooks"][0]["changed"], true, "{looked}");
    assert_eq!(shop.run(&["workspace", "status"]).code, 3, "only shown");
    let begun = shop.run(&["protect", "--no-watch"]);

    // The rest is done, and what is missing is said.
    assert_eq!(begun.code, 13, "{}{}", begun.out, begun.err);
    assert!(begun.out.contains("--yes"), "{}", begun.out);
    assert_eq!(fs::read_to_string(&settings).unwrap(), "{\"model\": \"x\"}");
    assert_eq!(shop.status()["watched_by"], Value::Null);
    let kept = shop.run(&["protect", "--off", "--delete-checkpoints"]);
    assert_eq!(kept.code, 13, "{}{}", kept.out, kept.err);
    assert_eq!(shop.status()["auto_count"], 1, "nobody said yes");
}

#[test]
fn hooks_stay_for_another_directory_and_the_watch_makes_checkpoints() {
    let shop = Shop::new();
    let other = shop.session.home().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    shop.json(0, &["protect", other, "--yes", "--no-watch"]);
    shop.json(0, &["protect", "--yes"]);

    fs::write(shop.dir.join("new"), "made while watched").unwrap();
    let began = Instant::now();
    let is_seen = || shop.status()["last_event_id"].as_i64().unwrap_or_default() > 0;
    while !is_seen() {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "nothing was seen"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let off = shop.json(0, &["protect", "--off", "--yes"]);
    let count = || shop.json(0, &["log"])["items"].as_array().unwrap().len();
    let before = count();
    fs::write(shop.dir.join("new"), "not hooked any more").unwrap();
    let hook = shop.run(&["hook", "run", "claude-code"]);

    assert_eq!((hook.code, count()), (0, before), "{}", hook.err);
    assert_eq!(off["hooks_stay_for"][0].as_str(), Some(other), "{off}");
    assert!(shop.settings().unwrap().contains("hook run"));
    let last = shop.json(0, &["protect", other, "--off", "--yes"]);
    assert_eq!(
        last["hooks_stay_for"].as_array().unwrap().len(),
        0,
        "{last}"
    );
    assert_eq!(shop.settings(), None);
}
