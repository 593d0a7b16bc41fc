//! `stasis protect`: in one step, and away again.

use crate::session::{Said, Session, said};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
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

    /// How many checkpoints there are.
    fn count(&self) -> usize {
        self.json(0, &["log"])["items"].as_array().unwrap().len()
    }

    /// What an agent does before a prompt.
    fn prompt(&self) -> Said {
        let mut command = self.session.command(&["hook", "run", "claude-code"]);
        command.env("HOME", self.session.home());
        let mut child = command
            .current_dir(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let event = json!({
            "hook_event_name": "UserPromptSubmit",
            "prompt": "make it better",
            "session_id": "s1",
            "cwd": self.dir,
        });
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(event.to_string().as_bytes()).unwrap();
        drop(stdin);
        said(child.wait_with_output().unwrap())
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
    let before = shop.count();
    fs::write(shop.dir.join("new"), "not hooked any more").unwrap();
    let hook = shop.prompt();

    assert_eq!((hook.code, shop.count()), (0, before), "{}", hook.err);
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

#[test]
fn hooks_make_checkpoints_again_when_it_is_protected_again() {
    let shop = Shop::new();
    shop.json(0, &["protect", "--yes", "--no-watch"]);
    shop.json(0, &["protect", "--off", "--yes"]);
    fs::write(shop.dir.join("new"), "nobody minds").unwrap();
    let before = shop.count();
    assert_eq!(shop.prompt().code, 0);
    assert_eq!(shop.count(), before);

    let again = shop.json(0, &["protect", "--yes", "--no-watch"]);
    fs::write(shop.dir.join("new"), "somebody minds").unwrap();
    let before = shop.count();
    let hook = shop.prompt();

    assert!(again["workspace"]["existed"].as_bool().unwrap(), "{again}");
    assert!(shop.settings().unwrap().contains("hook run"));
    assert_eq!(hook.code, 0, "{}", hook.err);
    assert!(shop.count() > before, "{}", hook.err);
}

#[test]
fn what_is_not_ours_in_a_session_directory_survives() {
    let shop = Shop::new();
    let (kept, dir) = (shop.session.home().join("kept"), shop.dir.to_str().unwrap());
    fs::create_dir_all(kept.join("mine")).unwrap();
    fs::write(kept.join("mine/deep"), "mine too").unwrap();
    fs::write(kept.join("notes.txt"), "mine").unwrap();
    let init = ["workspace", "init", dir, "--session-dir"];
    let init = shop.run(&[&init[..], &[kept.to_str().unwrap()]].concat());
    assert_eq!(init.code, 0, "{}", init.err);
    shop.json(0, &["protect", "--yes"]);
    let off = ["protect", "--off", "--delete-checkpoints", "--yes"];

    let looked = shop.json(0, &[&off[..], &["--dry-run"]].concat());
    assert!(kept.join("auto_snapshots/0").exists(), "only shown");
    let gone = shop.json(0, &off);

    let whole = kept.canonicalize().unwrap();
    let left = ["config.toml", "mine", "notes.txt"].map(|name| whole.join(name));
    assert_eq!(gone["removed"]["left"], json!(left), "{gone}");
    assert_eq!(looked["removed"]["left"], json!(left), "{looked}");
    assert_eq!(fs::read_dir(&kept).unwrap().count(), left.len());
    assert_eq!(fs::read(kept.join("mine/deep")).unwrap(), b"mine too");
    assert_eq!(fs::read(kept.join("notes.txt")).unwrap(), b"mine");
    assert_eq!(shop.run(&["workspace", "status"]).code, 3);
    let leads = fs::read_dir(shop.session.home().join("state/stasis/workspaces"));
    assert_eq!(leads.unwrap().count(), 0, "nothing leads to it");

    // It can be a session directory again.
    let again = ["workspace", "init", dir, "--session-dir"];
    let again = shop.run(&[&again[..], &[kept.to_str().unwrap()]].concat());
    assert_eq!(again.code, 0, "{}", again.err);
    assert_eq!(shop.count(), 1);
}

#[test]
fn a_directory_in_a_workspace_is_not_taken_for_the_workspace() {
    let shop = Shop::new();
    shop.json(0, &["protect", "--yes", "--no-watch"]);
    let before = shop.count();
    let whole = shop.dir.canonicalize().unwrap();
    let whole = whole.to_str().unwrap();

    let off = ["protect", "src", "--off", "--delete-checkpoints", "--yes"];
    let refused = shop.run(&off);
    assert_eq!(refused.code, 3, "{}{}", refused.out, refused.err);
    let command = format!("stasis protect --off {whole}");
    assert!(refused.err.contains(&command), "{}", refused.err);
    assert_eq!(shop.count(), before, "nothing was deleted");
    assert!(shop.settings().unwrap().contains("hook run"));

    let inner = shop.run(&["protect", "src", "--yes", "--no-watch"]);
    assert_eq!(inner.code, 2, "{}{}", inner.out, inner.err);
    assert!(inner.err.contains(whole), "{}", inner.err);
    // One that somebody made a workspace all the same is one.
    let init = shop.run(&["workspace", "init", "src"]);
    assert_eq!(init.code, 0, "{}", init.err);
    shop.json(0, &["protect", "src", "--yes", "--no-watch"]);
    let off = shop.json(0, &off);
    assert_eq!(off["removed"]["workspace"], json!(format!("{whole}/src")));
    assert_eq!(shop.count(), before);
}

#[test]
fn a_watch_that_somebody_started_by_hand_ends_too() {
    let shop = Shop::new();
    shop.json(0, &["protect", "--yes", "--no-watch"]);
    let session = PathBuf::from(shop.status()["session"].as_str().unwrap());
    // Left by one that was killed: no watch heeds it.
    fs::write(session.join("watch.stop"), "").unwrap();
    let mut command = shop.session.command(&["workspace", "watch"]);
    let command = command.current_dir(&shop.dir).stdout(Stdio::null());
    let mut watch = command.stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while shop.status()["watched_by"] == Value::Null || session.join("watch.stop").exists() {
        assert!(began.elapsed() < Duration::from_secs(30), "no watch began");
        std::thread::sleep(Duration::from_millis(100));
    }
    let watched = shop.status()["watched_by"].clone();

    let off = shop.json(0, &["protect", "--off", "--yes"]);

    assert_eq!(off["watch_ended"], watched, "{off}");
    let ended = watch.wait().unwrap();
    assert!(ended.success(), "it ended by itself: {ended}");
    assert!(!session.join("watch.stop").exists());
    assert_eq!(shop.status()["watched_by"], Value::Null);
}
