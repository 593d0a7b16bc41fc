//! `stasis workspace watch`: automatic checkpoints and file events while somebody works.

use crate::project::{eventually, names};
use crate::repo_world::noise;
use crate::session::{Said, said};
use crate::workspace::{Tree, says, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// The counts of file events of every checkpoint, as the contract asks for them.
const FOUR_COUNTS: &str = "SELECT (SELECT COUNT(*) FROM fs_events WHERE id > s.start_fs_event_id AND id <= s.stop_fs_event_id \
    AND action = 'created') as created, (SELECT COUNT(*) FROM fs_events WHERE id > s.start_fs_event_id AND id <= \
    s.stop_fs_event_id AND action = 'modified') as modified, (SELECT COUNT(*) FROM fs_events WHERE id > s.start_fs_event_id \
    AND id <= s.stop_fs_event_id AND action = 'deleted') as deleted, (SELECT COUNT(*) FROM fs_events WHERE id > \
    s.start_fs_event_id AND id <= s.stop_fs_event_id AND action = 'restored') as restored FROM snapshot_events s WHERE s.id IN \
    (SELECT MAX(id) FROM snapshot_events GROUP BY slot) ORDER BY s.slot";

/// A watch that is ready.
struct Watch {
    child: Child,
    ready: String,
}

impl Watch {
    fn of(tree: &Tree) -> Self {
        let mut command = tree.command(&["watch"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = String::new();
        // Unbuffered beyond this line: what comes later is read when it has ended.
        let talk = child.stderr.as_mut().unwrap();
        BufReader::with_capacity(1, talk)
            .read_line(&mut ready)
            .unwrap();
        assert!(!ready.is_empty(), "the watch ended: {:?}", child.wait());
        Self { child, ready }
    }

    fn end(mut self, signal: Signal) -> Said {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        Said { code, out, err }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_event(tree: &Tree) -> i64 {
    tree.json(0, &["status"])["last_event_id"].as_i64().unwrap()
}

/// What the database of a workspace answers.
pub(crate) fn asked(tree: &Tree, query: &str) -> Value {
    let database = tree.kept().join("session.db");
    let program = "import json,sqlite3,sys; print(json.dumps(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()))";
    let answer = Command::new("python3")
        .args(["-c", program, database.to_str().unwrap(), query])
        .output()
        .unwrap();
    let answer = said(answer);
    assert_eq!(answer.code, 0, "{}", answer.err);
    serde_json::from_str(&answer.out).unwrap()
}

#[test]
fn a_watch_makes_the_first_checkpoint_at_once_and_ends_cleanly() {
    let tree = Tree::new(&[("a", "one")]);

    let watch = Watch::of(&tree);
    let ready = watch.ready.clone();
    eventually(PATIENCE, "the first checkpoint is there", || {
        let all = tree.json(0, &["list"]);
        all["items"][0]["checkpoint"] == "cp-0"
    });
    let during = tree.json(0, &["status"]);
    let row = tree.json(0, &["list"])["items"][0].clone();
    let ended = watch.end(Signal::TERM);
    let after = tree.json(0, &["status"]);

    let dir = tree.session.home().join("work");
    assert!(
        ready.starts_with(&format!("watching {}; checkpoints in ", dir.display())),
        "{ready}"
    );
    says(&row, &json!({ "origin": "auto", "made_by": "watch" }));
    assert!(during["watched_by"].is_string(), "{during:#}");
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(ended.out.starts_with("made 1 checkpoints"), "{}", ended.out);
    assert_eq!(after["watched_by"], Value::Null);
    let slots = names(&tree.kept().join("auto_snapshots"));
    assert!(
        slots.iter().all(|name| !name.contains("stasis-tmp")),
        "{slots:?}"
    );
}

#[test]
fn an_interrupt_ends_a_watch_and_says_in_json_what_it_did() {
    let tree = Tree::new(&[("a", "one")]);
    let mut child = tree
        .command(&["watch", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually(PATIENCE, "somebody watches and made a checkpoint", || {
        let status = tree.json(0, &["status"]);
        status["watched_by"].is_string() && status["auto_count"] == 1
    });

    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut told = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    let ended = child.wait().unwrap();

    assert!(ended.success(), "{ended:?}");
    let told: Value = serde_json::from_str(&told).unwrap();
    says(&told, &json!({ "checkpoints": 1, "gaps": 0 }));
}

#[test]
fn what_happens_to_files_is_recorded_and_counted_by_checkpoint() {
    let tree = Tree::new(&[("changed", "one"), ("gone", "x")]);
    let watch = Watch::of(&tree);

    tree.write("new", "created");
    eventually(PATIENCE, "the new file is recorded", || {
        last_event(&tree) >= 1
    });
    tree.write("changed", "two");
    eventually(PATIENCE, "the edit is recorded", || last_event(&tree) >= 2);
    fs::remove_file(tree.at("gone")).unwrap();
    eventually(PATIENCE, "the removal is recorded", || {
        last_event(&tree) >= 3
    });
    tree.checkpoint("after");
    let all = tree.json(0, &["list"]);
    let counts = asked(&tree, FOUR_COUNTS);
    let events = asked(&tree, "SELECT action, path FROM fs_events ORDER BY id");
    let ended = watch.end(Signal::TERM);

    let newest = &all["items"][0];
    assert_eq!(newest["name"], "after");
    assert_eq!(newest["events"]["created"], 1, "{newest:#}");
    assert!(
        newest["events"]["modified"].as_u64().unwrap() >= 1,
        "{newest:#}"
    );
    assert_eq!(
        (&newest["events"]["deleted"], &newest["events"]["restored"]),
        (&json!(1), &json!(0))
    );
    let manual = counts.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&manual[0], &manual[2], &manual[3]),
        (&json!(1), &json!(1), &json!(0)),
        "{counts}"
    );
    assert_eq!(events[0], json!(["created", "new"]), "{events}");
    assert_eq!(ended.code, 0, "{}", ended.err);
}

#[test]
fn a_revert_under_watch_is_recorded_once_as_restored() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    let watch = Watch::of(&tree);
    tree.write("a", "two");
    eventually(PATIENCE, "the edit is recorded", || last_event(&tree) >= 1);
    // A file that is written may be told of twice, once for its being emptied.
    std::thread::sleep(Duration::from_millis(400));
    let before = last_event(&tree);

    tree.json(0, &["revert", "a", "good"]);
    std::thread::sleep(Duration::from_millis(600));
    let told = asked(
        &tree,
        &format!("SELECT action, path FROM fs_events WHERE id > {before} ORDER BY id"),
    );
    watch.end(Signal::TERM);

    assert_eq!(told, json!([["restored", "a (from cp-10)"]]));
}

#[test]
fn what_an_act_puts_back_and_what_it_takes_away_is_recorded_once_each() {
    let tree = Tree::new(&[("a", "one"), ("deep/b", "one")]);
    tree.checkpoint("good");
    tree.write("a", "two");
    fs::remove_dir_all(tree.at("deep")).unwrap();
    tree.write("new/c", "since");

    let restored = tree.json(0, &["restore", "good"]);
    tree.json(0, &["undo", &text(&restored["undo"])]);
    let told = asked(&tree, "SELECT action, path FROM fs_events ORDER BY id");

    let row = |path: &str, from: &str| json!(["restored", format!("{path} (from {from})")]);
    let paths = ["a", "deep/b", "new/c"];
    let expected = ["cp-10", "undo"].map(|from| paths.map(|path| row(path, from)));
    assert_eq!(told, json!(expected.concat()));
}

#[test]
fn a_second_watch_is_refused_and_the_ring_goes_on_after_a_restart() {
    let tree = Tree::new(&[("a", "one")]);
    let watch = Watch::of(&tree);
    eventually(PATIENCE, "the first checkpoint is there", || {
        tree.json(0, &["status"])["auto_count"] == 1
    });

    let second = tree.json(4, &["watch"]);
    watch.end(Signal::TERM);
    tree.write("a", "two");
    let again = Watch::of(&tree);
    eventually(PATIENCE, "the next checkpoint is there", || {
        tree.json(0, &["status"])["auto_count"] == 2
    });
    again.end(Signal::TERM);

    assert!(second["error"]["holder"].is_string(), "{second:#}");
    let all = tree.json(0, &["list"]);
    let rows = all["items"].as_array().unwrap().iter();
    let slots: Vec<String> = rows.map(|row| text(&row["checkpoint"])).collect();
    assert_eq!(slots, ["cp-1", "cp-0"]);
}

#[test]
fn what_happened_between_two_watches_is_recorded_by_the_second() {
    let tree = Tree::new(&[("a", "one")]);
    Watch::of(&tree).end(Signal::TERM);
    tree.write("between", "nobody watched");

    let watch = Watch::of(&tree);
    eventually(PATIENCE, "what happened between is recorded", || {
        last_event(&tree) >= 1
    });
    watch.end(Signal::TERM);

    let told = asked(&tree, "SELECT action, path FROM fs_events ORDER BY id");
    assert_eq!(told, json!([["created", "between"]]));
}

/// How many files there are in a workspace of which a checkpoint takes a while.
pub(crate) const LARGE: u64 = 24;

/// A workspace of which a checkpoint takes a while.
pub(crate) fn large() -> Tree {
    let tree = Tree::new(&[]);
    for number in 0..LARGE {
        fs::write(tree.at(&format!("f{number}")), noise(number, 1 << 20)).unwrap();
    }
    tree
}

/// Waits until a checkpoint is being made.
pub(crate) fn until_busy(kept: &Path) {
    let is_half = |name: &String| name.contains("stasis-tmp");
    eventually(PATIENCE, "a checkpoint is being made", || {
        let places = ["chunks", "auto_snapshots"].map(|place| names(&kept.join(place)));
        places.iter().flatten().any(is_half)
    });
}

/// Asserts that nothing is left of what was begun, and that what is listed is whole.
fn assert_no_half_slot(tree: &Tree) {
    let kept = tree.kept();
    for place in ["auto_snapshots", "chunks"] {
        let left = names(&kept.join(place));
        let half = left.iter().any(|name| name.contains("stasis-tmp"));
        assert!(!half, "{left:?}");
    }
    let all = tree.json(0, &["list"]);
    says(&all, &json!({ "unreadable": [] }));
    for row in all["items"].as_array().unwrap() {
        says(row, &json!({ "files_count": LARGE, "complete": true }));
        let fork = tree.session.home().join("fork");
        let words = ["fork", &text(&row["checkpoint"]), fork.to_str().unwrap()];
        tree.json(0, &words);
        for name in names(&fork) {
            let (live, then) = (fs::read(tree.at(&name)), fs::read(fork.join(&name)));
            assert!(live.unwrap() == then.unwrap(), "{name} in {row:#}");
        }
        fs::remove_dir_all(fork).unwrap();
    }
}

#[test]
fn a_watch_that_is_told_to_end_brings_the_checkpoint_that_it_makes_to_its_end() {
    let tree = large();
    let kept = tree.kept();
    let watch = Watch::of(&tree);
    until_busy(&kept);

    let ended = watch.end(Signal::TERM);

    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(ended.out.starts_with("made 1 checkpoints"), "{}", ended.out);
    assert_eq!(tree.listed().len(), 1);
    assert_no_half_slot(&tree);
}

#[test]
fn a_checkpoint_whose_process_is_told_to_end_is_whole_or_not_there() {
    let tree = large();
    let kept = tree.kept();
    let mut child = tree
        .command(&["create", "first"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until_busy(&kept);

    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = child.wait().unwrap();
    let listed = tree.listed().len();
    let next = tree.json(0, &["create", "second"]);

    assert_eq!(listed, usize::from(ended.success()), "{ended:?}");
    assert_eq!(next["created"], true);
    assert_no_half_slot(&tree);
}

#[test]
fn checkpoints_of_people_and_of_a_watch_that_are_made_at_once_are_both_whole() {
    let tree = large();
    let kept = tree.kept();
    let watch = Watch::of(&tree);
    until_busy(&kept);

    let made = tree.json(0, &["create", "by hand"]);
    let ended = watch.end(Signal::TERM);

    says(&made, &json!({ "checkpoint": "cp-10", "origin": "manual" }));
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let listed = tree.listed();
    assert_eq!(
        (listed[0].0.as_str(), listed[1].0.as_str()),
        ("cp-10", "cp-0")
    );
    assert_eq!(listed[0].1, listed[1].1, "nothing changed between them");
    assert_no_half_slot(&tree);
}

#[test]
fn the_log_says_where_nobody_watched_and_how_much_was_found_afterwards() {
    let tree = Tree::new(&[("a", "one")]);
    let watch = Watch::of(&tree);
    tree.write("seen", "while somebody watches");
    eventually(PATIENCE, "the first file is recorded", || {
        last_event(&tree) >= 1
    });
    let ended = watch.end(Signal::TERM);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let before = last_event(&tree);

    tree.write("a", "two, and nobody sees it");
    tree.write("b", "nobody sees this either");
    let watch = Watch::of(&tree);
    eventually(PATIENCE, "what was missed is found", || {
        last_event(&tree) >= before + 2
    });
    drop(watch);
    let dir = tree.session.home().join("work");
    let log = |words: &[&str]| {
        let mut all = vec!["log", dir.to_str().unwrap()];
        all.extend_from_slice(words);
        tree.session.data(0, &all)
    };
    let told = log(&[]);
    let listed: Value = serde_json::from_str(&log(&["--json"])).unwrap();

    assert!(
        told.contains("nobody watched: 2 changes found afterwards"),
        "{told}"
    );
    let gaps = listed["items"].as_array().unwrap().iter();
    let gaps: Vec<&Value> = gaps.filter(|item| item["kind"] == "gap").collect();
    assert_eq!(gaps.len(), 1, "{listed:#}");
    says(
        gaps[0],
        &json!({ "why": "resumed", "missed": 2, "snapshot": "", "place": "here" }),
    );
}
