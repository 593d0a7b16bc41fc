//! `stasis session`: sessions of agents that sleep and wake.

use crate::session::{Session, real_store};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that runs until it is ended, with a child of its own.
pub(crate) struct Agent(Child);

impl Agent {
    pub(crate) fn start() -> Self {
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", "sleep 600 & wait"]);
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Self(started.unwrap())
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A workspace with something of everything.
fn workspace(dir: &Path, word: &str) {
    fs::create_dir_all(dir.join("outputs/deep")).unwrap();
    fs::create_dir_all(dir.join("attachments")).unwrap();
    fs::create_dir_all(dir.join("node_modules")).unwrap();
    fs::write(dir.join("outputs/a.txt"), word).unwrap();
    fs::write(dir.join("outputs/deep/b"), vec![7_u8; 100_000]).unwrap();
    fs::write(dir.join("node_modules/no"), "is not saved").unwrap();
    let _ = std::os::unix::fs::symlink("/etc/passwd", dir.join("outputs/leaves"));
}

/// What the roots of a workspace hold.
pub(crate) fn saved_of(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = crate::workspace::contents(dir);
    all.retain(|path, _| !path.starts_with("node_modules"));
    all
}

fn state(session: &Session, name: &str) -> String {
    let shown = session.json(0, &["session", "show", name]);
    shown["state"].as_str().unwrap().to_owned()
}

/// The documents of all snapshots of a session.
pub(crate) fn manifests(session: &Session, name: &str) -> Vec<PathBuf> {
    let (tenant, id) = name.split_once('/').unwrap();
    let place = session.object(&format!("subjects/{tenant}/session/{id}/snapshots"));
    let Ok(all) = fs::read_dir(place) else {
        return Vec::new();
    };
    all.map(|entry| entry.unwrap().path()).collect()
}

fn register(session: &Session, name: &str, dir: &Path, more: &[&str]) {
    let dir = dir.to_str().unwrap();
    let words = ["session", "register", name, "--dir", dir];
    session.json(0, &[&words[..], more].concat());
}

#[test]
fn an_idle_session_sleeps_with_exactly_one_snapshot_and_wakes_where_it_left_off() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    let before = saved_of(&dir);
    let mut agent = Agent::start();
    register(
        &session,
        "acme/42",
        &dir,
        &["--pid", &agent.pid(), "--idle-timeout", "1h"],
    );

    let busy = session.json(0, &["session", "reap"]);
    assert_eq!(
        (&busy["in_use"], &busy["sandboxes_ended"]),
        (&1.into(), &0.into())
    );
    assert!(agent.is_running());
    register(
        &session,
        "acme/42",
        &dir,
        &["--pid", &agent.pid(), "--idle-timeout", "1ms"],
    );
    let reaped = session.json(0, &["session", "reap"]);

    assert_eq!(reaped["items"][0]["fate"], "sleeping");
    assert!(!agent.is_running());
    assert_eq!(state(&session, "acme/42"), "sleeping");
    assert_eq!(manifests(&session, "acme/42").len(), 1);
    let again = session.json(0, &["session", "reap"]);
    assert_eq!(
        (&again["asleep"], &again["items"]),
        (&1.into(), &Value::Array(vec![]))
    );
    let late = session.run(&["session", "heartbeat", "acme/42"]);
    assert_eq!(late.code, 4, "{}", late.err);
    assert!(
        late.err.contains("stasis session wake acme/42"),
        "{}",
        late.err
    );

    // On a host that has nothing of it.
    let elsewhere = session.home().join("elsewhere/ws");
    let to = elsewhere.to_str().unwrap();
    let woken = session.json(
        0,
        &["session", "wake", "acme/42", "--dir", to, "--host", "two"],
    );
    assert_eq!(woken["outcome"], "restored");
    assert_eq!(saved_of(&elsewhere), before);
    assert!(!elsewhere.join("node_modules").exists());
    let link = fs::read_link(elsewhere.join("outputs/leaves")).unwrap();
    assert_eq!(link, Path::new("/etc/passwd"));
    let twice = session.json(0, &["session", "wake", "acme/42", "--host", "two"]);
    assert_eq!(twice["outcome"], "present");
    // Where it lay, somebody must say that the other host is gone.
    let refused = session.run(&["session", "wake", "acme/42"]);
    assert_eq!(refused.code, 4, "{}", refused.out);
    assert!(refused.err.contains("--take-over"), "{}", refused.err);
}

#[test]
fn a_snapshot_replaces_the_one_before_and_a_wake_fetches_only_what_differs() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    register(&session, "acme/42", &dir, &[]);
    let first = session.json(0, &["session", "snapshot", "acme/42"]);
    let same = session.json(0, &["session", "snapshot", "acme/42"]);
    assert_eq!(same["snapshot_id"], first["snapshot_id"]);
    assert_eq!(
        (&same["unchanged"], &same["bytes_stored"]),
        (&true.into(), &0.into())
    );
    fs::write(dir.join("outputs/a.txt"), "two").unwrap();

    let second = session.json(0, &["session", "sleep", "acme/42"]);

    assert_ne!(second["saved"]["snapshot_id"], first["snapshot_id"]);
    assert_eq!(second["saved"]["pruned"], 1);
    assert_eq!(manifests(&session, "acme/42").len(), 1);
    let before = saved_of(&dir);
    fs::write(dir.join("outputs/a.txt"), "written while it slept").unwrap();
    fs::write(dir.join("outputs/new"), "also").unwrap();
    let woken = session.json(0, &["session", "wake", "acme/42"]);
    assert_eq!(saved_of(&dir), before);
    assert_eq!(woken["bytes_reused"], 100_000);
    assert!(
        dir.join("node_modules/no").exists(),
        "what is not saved stays"
    );
    let backup = woken["backup"].as_str().unwrap();
    let kept = fs::read_to_string(Path::new(backup).join("tree/outputs/a.txt")).unwrap();
    assert_eq!(kept, "written while it slept");
}

#[test]
fn a_sandbox_is_ended_once_when_all_its_sessions_are_idle_and_durable() {
    let session = Session::new();
    let mut agent = Agent::start();
    let pid = agent.pid();
    let shared = ["--pid", &pid, "--sandbox", "pod-7", "--idle-timeout"];
    for (name, timeout) in [("acme/a", "1ms"), ("acme/b", "1h")] {
        let dir = session.home().join(name.replace('/', "-"));
        workspace(&dir, name);
        register(&session, name, &dir, &[&shared[..], &[timeout]].concat());
    }

    let one = session.json(0, &["session", "reap"]);
    assert_eq!(one["items"][0]["fate"], "sandbox_in_use");
    assert!(agent.is_running());
    let dir = session.home().join("acme-b");
    register(&session, "acme/b", &dir, &[&shared[..], &["1ms"]].concat());
    let all = session.json(0, &["session", "reap"]);

    assert_eq!(all["sandboxes_ended"], 1);
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    assert!(!agent.is_running());
    for name in ["acme/a", "acme/b"] {
        assert_eq!(state(&session, name), "sleeping");
    }
}

#[test]
fn a_session_that_cannot_be_saved_keeps_a_healthy_sandbox_and_loses_one_that_does_not_answer() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    let mut agent = Agent::start();
    let pid = agent.pid();
    let words = ["--pid", &pid, "--idle-timeout", "1ms"];
    register(&session, "acme/42", &dir, &words);
    session.json(0, &["session", "snapshot", "acme/42"]);
    fs::write(dir.join("outputs/more"), "than is allowed").unwrap();
    let reap = ["session", "reap", "--max-entries", "1"];

    let kept = session.json(1, &reap);
    assert_eq!(kept["items"][0]["fate"], "snapshot_failed");
    let problem = kept["items"][0]["problem"].as_str().unwrap();
    assert!(
        problem.contains("largest directories: outputs"),
        "{problem}"
    );
    assert!(agent.is_running());
    assert_eq!(state(&session, "acme/42"), "snapshot_failed");

    register(
        &session,
        "acme/42",
        &dir,
        &[&words[..], &["--health-cmd", "exit 3"]].concat(),
    );
    let lost = session.json(1, &reap);
    assert_eq!(lost["items"][0]["fate"], "terminated");
    assert!(!agent.is_running());
    assert_eq!(state(&session, "acme/42"), "terminated");
    // What there is comes back, and it is said what does not.
    let woken = session.json(0, &["session", "wake", "acme/42"]);
    assert_eq!(woken["outcome"], "restored");
    assert!(
        woken["lost"].as_str().unwrap().contains("too large"),
        "{woken}"
    );
    assert!(!dir.join("outputs/more").exists());
    let events = session.data(0, &["events", "--tenant", "acme"]);
    assert!(events.contains("session_lost"), "{events}");
}

#[test]
fn a_workspace_that_shrank_does_not_replace_a_good_snapshot() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    register(&session, "acme/42", &dir, &["--idle-timeout", "1ms"]);
    let good = session.json(0, &["session", "snapshot", "acme/42"]);
    fs::remove_dir_all(dir.join("outputs")).unwrap();
    fs::remove_dir_all(dir.join("attachments")).unwrap();

    let reaped = session.json(1, &["session", "reap"]);
    assert_eq!(reaped["items"][0]["fate"], "snapshot_failed");
    let shown = session.json(0, &["session", "show", "acme/42"]);
    assert_eq!(shown["snapshot_id"], good["snapshot_id"]);
    assert_eq!(
        manifests(&session, "acme/42").len(),
        2,
        "it is stored beside it"
    );

    session.json(0, &["session", "reap", "--accept-shrink"]);
    assert_eq!(state(&session, "acme/42"), "sleeping");
    assert_eq!(manifests(&session, "acme/42").len(), 1);
}

#[test]
fn a_session_without_anything_to_save_sleeps_and_begins_with_nothing() {
    let session = Session::new();
    let dir = session.home().join("ws");
    fs::create_dir(&dir).unwrap();
    register(&session, "acme/42", &dir, &["--idle-timeout", "1ms"]);

    let reaped = session.json(0, &["session", "reap"]);
    assert_eq!(reaped["items"][0]["fate"], "sleeping");
    let woken = session.json(0, &["session", "wake", "acme/42"]);
    assert_eq!(woken["outcome"], "fresh");
}

#[test]
fn a_snapshot_that_is_lost_is_never_taken_for_a_fresh_start() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    register(&session, "acme/42", &dir, &[]);
    session.json(0, &["session", "sleep", "acme/42"]);
    fs::remove_dir_all(&dir).unwrap();
    for manifest in manifests(&session, "acme/42") {
        fs::remove_file(manifest).unwrap();
    }

    let failed = session.run(&["session", "wake", "acme/42"]);

    assert_eq!(failed.code, 9, "{}{}", failed.out, failed.err);
    assert!(!dir.exists(), "nothing is left of the attempt");
    assert_eq!(state(&session, "acme/42"), "failed");
}

#[test]
fn what_only_the_store_says_is_not_acted_on() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    let mark = session.home().join("ended");
    let end = format!("touch {}", mark.display());
    let words = ["--terminate-cmd", &end, "--idle-timeout", "1ms"];
    register(&session, "acme/42", &dir, &words);
    // Another host, which sees the same bucket and the same disk.
    let store = session.home().join("data/stasis/store");
    let other = Session::on(store.to_str().unwrap());
    let reap = ["session", "--host", "two", "reap", "--any-host"];

    let refused = other.json(0, &reap);
    assert_eq!(refused["items"][0]["fate"], "not_registered_here");
    assert!(!mark.exists());
    other.json(0, &[&reap[..], &["--trust-commands"]].concat());

    assert!(mark.exists());
    assert_eq!(state(&session, "acme/42"), "sleeping");
}

#[test]
fn what_is_written_while_the_sandbox_ends_is_saved_too() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    let script = format!(
        "trap 'echo last > {}/outputs/last; exit' TERM; touch {0}/ready; while :; do sleep 0.05; done",
        dir.display()
    );
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", &script]).stdin(Stdio::null());
    let agent = Agent(command.spawn().unwrap());
    while !dir.join("ready").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let words = ["--pid", &agent.pid(), "--idle-timeout", "1ms"];
    register(&session, "acme/42", &dir, &words);

    session.json(0, &["session", "reap"]);
    fs::remove_dir_all(&dir).unwrap();
    session.json(0, &["session", "wake", "acme/42"]);

    let last = fs::read_to_string(dir.join("outputs/last")).unwrap();
    assert_eq!(last, "last\n");
}

#[test]
fn a_wake_that_failed_leaves_the_snapshot_and_nothing_else_is_saved_for_it() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    register(&session, "acme/42", &dir, &[]);
    session.json(0, &["session", "sleep", "acme/42"]);
    let other = session.home().join("other");
    workspace(&other, "not of this session");
    let refused = session.run(&[
        "session",
        "wake",
        "acme/42",
        "--dir",
        other.to_str().unwrap(),
    ]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("is not empty"), "{}", refused.err);
    fs::remove_dir_all(&other).unwrap();
    fs::create_dir(&other).unwrap();
    let to = other.to_str().unwrap();
    let words = [
        "session",
        "wake",
        "acme/42",
        "--dir",
        to,
        "--start-cmd",
        "exit 7",
    ];
    assert_eq!(session.run(&words).code, 1);

    for verb in ["snapshot", "sleep"] {
        let refused = session.run(&["session", verb, "acme/42"]);
        assert_eq!(refused.code, 4, "{verb}: {}{}", refused.out, refused.err);
    }
    fs::remove_dir_all(&dir).unwrap();
    session.json(0, &["session", "wake", "acme/42"]);
    assert_eq!(
        fs::read_to_string(dir.join("outputs/a.txt")).unwrap(),
        "one"
    );
}

#[test]
fn what_is_not_said_again_stays_as_it_was() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    let mut agent = Agent::start();
    let words = [
        "--pid",
        &agent.pid(),
        "--root",
        "node_modules",
        "--idle-timeout",
        "1ms",
    ];
    register(&session, "acme/42", &dir, &words);
    register(&session, "acme/42", &dir, &[]);

    session.json(0, &["session", "reap"]);

    assert!(!agent.is_running(), "it is still its sandbox");
    let shown = session.json(0, &["session", "show", "acme/42"]);
    assert_eq!(shown["roots"], serde_json::json!(["node_modules"]));
}

#[test]
fn a_sandbox_is_started_by_its_command_and_ended_with_everything_it_started() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    register(&session, "acme/42", &dir, &[]);
    session.json(0, &["session", "sleep", "acme/42"]);
    let start = "echo $$ > pid; sleep 600 & wait";

    session.json(0, &["session", "wake", "acme/42", "--start-cmd", start]);
    let pid = || fs::read_to_string(dir.join("pid")).ok();
    let pid = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        pid().filter(|pid| pid.ends_with('\n'))
    });
    let pid = pid.unwrap().trim().to_owned();
    let runs = |pid: &str| Path::new("/proc").join(pid).join("exe").exists();
    assert!(runs(&pid));
    session.json(0, &["session", "sleep", "acme/42"]);

    assert!(!runs(&pid));
    let failed = session.run(&["session", "wake", "acme/42", "--start-cmd", "exit 7"]);
    assert_eq!(failed.code, 1, "{}{}", failed.out, failed.err);
    assert_eq!(state(&session, "acme/42"), "failed");
    session.json(0, &["session", "wake", "acme/42"]);
}

#[test]
fn one_command_is_the_whole_life_of_a_session() {
    let session = Session::new();
    let dir = session.home().join("ws");
    let to = dir.to_str().unwrap();
    let script = "mkdir -p outputs; echo $STASIS_SESSION >> outputs/log; exit 7";

    let first = session.run(&[
        "session", "run", "acme/42", "--dir", to, "--", "sh", "-c", script,
    ]);
    assert_eq!(first.code, 7, "{}", first.err);
    assert_eq!(state(&session, "acme/42"), "sleeping");
    fs::remove_dir_all(&dir).unwrap();
    let second = session.run(&["session", "run", "acme/42", "--", "cat", "outputs/log"]);

    assert_eq!((second.code, &*second.out), (0, "42\n"), "{}", second.err);
    assert_eq!(manifests(&session, "acme/42").len(), 1);
}

#[test]
fn a_session_in_which_a_command_runs_takes_no_second_one_and_goes_on_after_a_kill() {
    let session = Session::new();
    let dir = session.home().join("ws");
    let to = dir.to_str().unwrap();
    let script = "mkdir -p outputs; echo half > outputs/work; touch ready; sleep 600";
    let words = [
        "session", "run", "acme/42", "--dir", to, "--", "sh", "-c", script,
    ];
    let mut first = session.command(&words).spawn().unwrap();
    while !dir.join("ready").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }

    let second = session.run(&["session", "run", "acme/42", "--", "true"]);
    assert_eq!(second.code, 104, "{}{}", second.out, second.err);
    first.kill().unwrap();
    first.wait().unwrap();
    // Its command lives on, and so does the session.
    let still = session.run(&["session", "run", "acme/42", "--", "true"]);
    assert_eq!(still.code, 104, "{}{}", still.out, still.err);
    session.json(0, &["session", "sleep", "acme/42"]);

    let next = session.run(&["session", "run", "acme/42", "--", "cat", "outputs/work"]);
    assert_eq!((next.code, &*next.out), (0, "half\n"), "{}", next.err);
}

#[test]
fn a_fork_begins_as_the_other_session_and_goes_its_own_way() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    register(&session, "acme/42", &dir, &[]);
    session.json(0, &["session", "snapshot", "acme/42"]);
    let before = saved_of(&dir);

    let forked = session.json(0, &["session", "fork", "acme/42", "acme/43"]);
    assert_eq!(forked["bytes_stored"], 0, "everything is there already");
    let to = session.home().join("fork");
    session.json(
        0,
        &["session", "wake", "acme/43", "--dir", to.to_str().unwrap()],
    );
    assert_eq!(saved_of(&to), before);
    session.json(0, &["session", "delete", "acme/42", "--confirm"]);
    session.json(0, &["session", "sleep", "acme/43"]);

    fs::remove_dir_all(&to).unwrap();
    session.json(0, &["session", "wake", "acme/43"]);
    assert_eq!(saved_of(&to), before);
    let gone = session.json(0, &["session", "delete", "acme/42", "--confirm"]);
    assert_eq!(gone["was_there"], false);
    let export = session.home().join("43.tar.gz");
    session.json(
        0,
        &["session", "export", "acme/43", export.to_str().unwrap()],
    );
    let listed = Command::new("tar")
        .arg("tzf")
        .arg(&export)
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("outputs/deep/b"), "{listed}");
}

#[test]
fn everyday_verbs_look_at_a_session_and_leave_changes_to_its_own_commands() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    register(&session, "acme/42", &dir, &[]);
    session.json(0, &["session", "snapshot", "acme/42"]);
    let of = "session:acme/42";

    let list = session.json(0, &["list"]);
    assert_eq!(list["items"][0]["subject"], of);
    assert_eq!(
        session.data(0, &["cat", of, "latest", "outputs/a.txt"]),
        "one"
    );
    for verb in ["log", "show", "ls", "du", "check"] {
        let said = session.run(&[verb, of]);
        assert_eq!(said.code, 0, "{verb}: {}{}", said.out, said.err);
    }
    let to = session.home().join("looked-at");
    session.data(0, &["restore", of, "--to", to.to_str().unwrap()]);
    assert_eq!(saved_of(&to), saved_of(&dir));
    for (verb, instead) in [
        ("save", "session snapshot acme/42"),
        ("restore", "session wake acme/42"),
        ("pin", "session fork acme/42"),
    ] {
        let said = session.run(&[verb, of]);
        assert_eq!(said.code, 2, "{verb}: {}", said.out);
        assert!(said.err.contains(instead), "{verb}: {}", said.err);
    }
    let said = session.run(&["forget", of, "latest"]);
    assert_eq!(said.code, 2, "{}", said.out);
}

#[test]
fn everyday_verbs_call_a_session_by_its_name_and_compare_it_with_its_workspace() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    register(&session, "acme/42", &dir, &[]);
    let of = "session:acme/42";
    session.json(0, &["session", "snapshot", "acme/42"]);

    let same = session.json(0, &["diff", of]);
    assert_eq!(same["items"].as_array().map(Vec::len), Some(0), "{same}");
    fs::write(dir.join("outputs/a.txt"), "two").unwrap();
    fs::write(dir.join("not-in-a-root"), "x").unwrap();
    let diff = session.json(0, &["diff", of]);
    let paths: Vec<&str> = diff["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["outputs/a.txt"], "{diff}");
    let patch = session.data(0, &["diff", of, "--patch"]);
    assert!(patch.contains("-one") && patch.contains("+two"), "{patch}");

    let to = session.home().join("copy");
    let to = to.to_str().unwrap();
    let copy = session.data(0, &["restore", of, "--to", to]);
    assert!(copy.contains("stasis session wake acme/42 --dir"), "{copy}");
    let other = session.home().join("other");
    let copy = session.json(0, &["restore", of, "--to", other.to_str().unwrap()]);
    assert_eq!(copy["copy_of"], of);
    let absent = session.run(&["ls", of, "nope"]);
    assert!(
        absent
            .err
            .contains("`session:acme/42` has no snapshot `nope`")
    );

    workspace(&session.home().join("far"), "far");
    register(
        &session,
        "acme/far",
        &session.home().join("far"),
        &["--host", "two", "--root", "."],
    );
    session.json(0, &["session", "--host", "two", "snapshot", "acme/far"]);
    let far = session.run(&["diff", "session:acme/far"]);
    assert_eq!(far.code, 3);
    assert!(far.err.contains("lies on two"), "{}", far.err);
    fs::remove_dir_all(&dir).unwrap();
    let gone = session.run(&["diff", of]);
    assert!(
        gone.err
            .contains("`stasis session wake acme/42` brings it back"),
        "{}",
        gone.err
    );
}

#[test]
fn what_a_session_lacks_is_said_as_it_is() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    register(&session, "acme/42", &dir, &[]);
    let export = |name: &str| session.home().join(name).display().to_string();

    for words in [
        vec!["session", "fork", "acme/42", "acme/43"],
        vec!["session", "export", "acme/42", &export("42.tar.gz")],
    ] {
        let said = session.run(&words);
        assert_eq!(said.code, 3, "{}", said.err);
        assert!(said.err.contains("has no snapshot"), "{}", said.err);
        assert!(
            said.err.contains("`stasis session snapshot acme/42`"),
            "{}",
            said.err
        );
    }
    session.json(0, &["session", "snapshot", "acme/42"]);
    session.json(0, &["session", "fork", "acme/42", "acme/43"]);
    let empty = session.home().join("empty");
    fs::create_dir(&empty).unwrap();
    register(&session, "acme/44", &empty, &[]);
    let twice = session.run(&["session", "fork", "acme/42", "acme/43"]);
    assert_eq!(twice.code, 4, "{}", twice.err);
    assert!(
        twice.err.contains("there is a session `acme/43` already"),
        "{}",
        twice.err
    );
    let diff = session.run(&["diff", "session:acme/44"]);
    assert_eq!(diff.code, 3);
    assert!(
        diff.err.contains("`session:acme/44` has no snapshot"),
        "{}",
        diff.err
    );
    assert!(
        diff.err.contains("`stasis session snapshot acme/44`"),
        "{}",
        diff.err
    );
    let zip = session.run(&["session", "export", "acme/42", &export("42.zip")]);
    assert_eq!(zip.code, 2, "{}", zip.err);
    assert!(zip.err.contains(".tar.gz or .tgz"), "{}", zip.err);
    let nowhere = session.run(&["session", "export", "acme/42", &export("no/42.tgz")]);
    assert_eq!(nowhere.code, 3, "{}", nowhere.err);
    assert!(!session.home().join("no").exists());
}

#[test]
fn what_there_is_no_session_of_is_said_with_what_to_type() {
    let session = Session::new();
    let dir = session.home().join("ws");
    workspace(&dir, "one");
    register(&session, "acme/42", &dir, &[]);
    session.json(0, &["session", "snapshot", "acme/42"]);

    let list = session.json(0, &["list"]);
    assert_eq!(list["items"][0]["encrypted"], false, "{list}");
    for verb in ["list", "reap"] {
        let said = session.data(0, &["session", verb, "acne"]);
        assert!(said.contains("No session of tenant `acne`"), "{said}");
        assert!(said.contains("did you mean `acme`?"), "{said}");
    }
    let here = session.run(&["gc"]);
    assert!(here.err.contains("stasis gc session:"), "{}", here.err);
    let delete = session.run(&["session", "delete", "acme/42"]);
    assert_eq!(delete.code, 2);
    assert!(
        delete
            .err
            .contains("`stasis session delete acme/42 --confirm`"),
        "{}",
        delete.err
    );
}

#[test]
fn what_is_said_of_sessions_is_true_and_fits_a_screen() {
    let session = Session::new();
    let dir = session.home().join("ws");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("log"), "l").unwrap();
    let path = dir.to_str().unwrap();
    let words = ["session", "register", "acme/42", "--dir", path];
    let said = session.data(0, &[&words[..], &["--idle-timeout", "1ms"]].concat());
    assert!(said.contains("Will save: "), "{said}");
    assert!(said.contains("Will not save: log"), "{said}");

    let would = session.data(0, &["session", "reap", "--dry-run"]);
    let counts = "1 session: 1 would be put to sleep, 0 in use, 0 asleep already";
    assert!(would.contains(counts), "{would}");
    let slept = session.data(0, &["session", "sleep", "acme/42"]);
    assert!(slept.contains("log is in none of its roots"), "{slept}");
    assert!(slept.contains("`--root .`"), "{slept}");
    let again = session.data(0, &["session", "sleep", "acme/42"]);
    assert!(again.starts_with("acme/42 sleeps already"), "{again}");
    let reaped = session.data(0, &["session", "reap"]);
    let counts = "1 session: 0 put to sleep, 0 in use, 1 asleep already";
    assert!(reaped.contains(counts), "{reaped}");

    let fresh = session.data(0, &["session", "wake", "acme/42"]);
    let as_it_was = "acme/42 has no snapshot: its workspace is as it was";
    assert!(fresh.starts_with(as_it_was), "{fresh}");
    assert!(fresh.contains("Nothing runs it yet"), "{fresh}");
    assert!(
        fresh.contains("stasis session register acme/42 --dir"),
        "{fresh}"
    );
    let mut agent = Agent::start();
    let pid = agent.pid();
    register(&session, "acme/42", &dir, &["--pid", &pid]);
    let present = session.data(0, &["session", "wake", "acme/42"]);
    assert!(present.contains(&format!("is process {pid}")), "{present}");
    assert!(agent.is_running());
    let shown = session.data(0, &["session", "show", "acme/42"]);
    assert!(shown.starts_with("session "), "{shown}");
    let listed = session.data(0, &["session", "list"]);
    assert!(!listed.ends_with("\n\n"), "{listed}");
}

/// How many sessions share sandboxes where two reapers race; five on two.
fn racing() -> usize {
    let asked = std::env::var("STASIS_RACING_SESSIONS").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(20)
}
/// What the dead held expires soon.
const SOON: [&str; 3] = ["--any-host", "--lease-ttl", "3s"];

/// Starts two reapers on two hosts, again and again, and kills both.
fn kill_reapers(session: &Session) {
    let reap = |host: &str| {
        let words = ["session", "--host", host, "reap"];
        let mut command = session.command(&[&words[..], &SOON].concat());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    for round in 0..6_u64 {
        let mut both = [reap("one"), reap("two")];
        std::thread::sleep(Duration::from_millis(150 * (round % 3 + 1)));
        for one in &mut both {
            let _ = one.kill();
            let _ = one.wait();
        }
    }
}

/// Reaps until everything sleeps: what the dead claimed expires.
fn reap_all(session: &Session) {
    let words = ["session", "--host", "one", "reap"];
    for _ in 0..60 + racing() {
        let reaped = session.run(&[&words[..], &SOON].concat());
        let all = session.json(0, &["session", "list"]);
        let mut all = all["items"].as_array().unwrap().iter();
        if reaped.code == 0 && all.all(|one| one["state"] == "sleeping") {
            return;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    panic!(
        "not everything sleeps: {}",
        session.data(0, &["session", "list"])
    );
}

/// Two reapers on two hosts, over a real S3 server, killed again and again: nothing is lost, and exactly one snapshot of each is left.
#[test]
fn two_reapers_that_are_killed_now_and_then_lose_nothing() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };
    let sessions = racing();
    let sandboxes = sessions * 2 / 5;
    let session = Session::on(&store);
    let mut agents: Vec<Agent> = (0..sandboxes).map(|_| Agent::start()).collect();
    let dir = |number: usize| session.home().join(format!("ws{number}"));
    for number in 0..sessions {
        workspace(&dir(number), &format!("word {number}"));
        let (sandbox, pid) = (number % sandboxes, agents[number % sandboxes].pid());
        let name = format!("pod-{sandbox}");
        let words = [
            "--host",
            "one",
            "--sandbox",
            &name,
            "--pid",
            &pid,
            "--idle-timeout",
            "1ms",
        ];
        register(&session, &format!("acme/s{number}"), &dir(number), &words);
    }

    kill_reapers(&session);
    reap_all(&session);

    for number in 0..sessions {
        let name = format!("acme/s{number}");
        let before = saved_of(&dir(number));
        fs::remove_dir_all(dir(number)).unwrap();
        session.json(0, &["session", "--host", "one", "wake", &name]);
        assert_eq!(saved_of(&dir(number)), before, "{name}");
        let log = session.json(0, &["log", &format!("session:{name}")]);
        assert_eq!(log["items"].as_array().map(Vec::len), Some(1), "{log}");
    }
    assert!(agents.iter_mut().all(|agent| !agent.is_running()));
}
