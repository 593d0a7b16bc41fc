//! `stasis session`: what runs sessions, from its start to its end.

use crate::agent_sessions::Agent;
use crate::session::Session;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

fn workspace(dir: &Path) {
    fs::create_dir_all(dir.join("outputs")).unwrap();
    fs::write(dir.join("outputs/a.txt"), "one").unwrap();
}

fn register(session: &Session, name: &str, dir: &Path, more: &[&str]) {
    workspace(dir);
    let words = ["session", "register", name, "--dir", dir.to_str().unwrap()];
    session.json(0, &[&words[..], more].concat());
}

/// A session that sleeps.
fn asleep(session: &Session, name: &str, dir: &Path, more: &[&str]) {
    register(session, name, dir, more);
    session.json(0, &["session", "sleep", name]);
}

fn show(session: &Session, name: &str) -> Value {
    session.json(0, &["session", "show", name])
}

/// The number that is written into a file, as soon as it is there.
fn number_in(file: &Path) -> u32 {
    for _ in 0..500 {
        if let Ok(text) = fs::read_to_string(file)
            && text.ends_with('\n')
        {
            return text.trim().parse().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} was never written", file.display());
}

fn is_running(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit(')').next().unwrap_or_default();
    !state.is_empty() && !state.trim_start().starts_with('Z')
}

#[test]
fn a_directory_is_the_workspace_of_one_session() {
    let session = Session::new();
    let dir = session.home().join("ws");
    register(&session, "acme/a", &dir, &[]);
    let to = dir.to_str().unwrap();
    let again = ["session", "register", "acme/b", "--dir", to];

    let refused = session.run(&again);

    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(
        refused.err.contains("is the workspace of `acme/a`"),
        "{}",
        refused.err
    );
    session.json(0, &["session", "delete", "acme/a", "--confirm"]);
    session.json(0, &again);
    session.json(0, &["session", "snapshot", "acme/b"]);
}

#[test]
fn sessions_that_share_a_sandbox_are_woken_into_one() {
    let session = Session::new();
    let start = format!(
        "echo $$ > {}; exec sleep 600",
        session.home().join("pid").display()
    );
    let shared = ["--sandbox", "pod-7", "--idle-timeout", "1ms"];
    for name in ["acme/a", "acme/b"] {
        let dir = session.home().join(name.replace('/', "-"));
        asleep(&session, name, &dir, &shared[2..]);
    }
    for name in ["acme/a", "acme/b"] {
        let words = [
            "session",
            "wake",
            name,
            "--sandbox",
            "pod-7",
            "--start-cmd",
            &start,
        ];
        session.json(0, &words);
    }
    let pid = number_in(&session.home().join("pid"));
    let sandbox = |name: &str| show(&session, name)["runs_in"]["driver"].clone();

    assert_eq!(sandbox("acme/a"), sandbox("acme/b"));
    assert_eq!(sandbox("acme/a")["pid"], pid);
    session.json(0, &["session", "reap"]);

    assert!(!is_running(pid));
}

#[test]
fn a_name_is_one_sandbox_and_a_process_has_one_name() {
    let session = Session::new();
    let (one, other) = (Agent::start(), Agent::start());
    let dir = |name: &str| session.home().join(name);
    let pod = ["--sandbox", "pod-7", "--pid", &one.pid()];
    register(&session, "acme/a", &dir("a"), &pod);
    workspace(&dir("b"));
    let to = dir("b").to_str().unwrap().to_owned();
    let register_b = ["session", "register", "acme/b", "--dir", &to];

    for (more, says) in [
        (
            vec!["--sandbox", "pod-7", "--pid", &*other.pid()],
            "is something else for `acme/a`",
        ),
        (
            vec!["--sandbox", "pod-7", "--terminate-cmd", "true"],
            "is something else for `acme/a`",
        ),
        (vec!["--pid", &*one.pid()], "--sandbox pod-7"),
    ] {
        let refused = session.run(&[&register_b[..], &more].concat());
        assert_eq!(refused.code, 4, "{}", refused.err);
        assert!(refused.err.contains(says), "{}", refused.err);
    }
    let refused = session.run(&[&register_b[..], &["--pid", "1"]].concat());
    assert_eq!(refused.code, 2, "{}", refused.err);
    session.json(0, &[&register_b[..], &pod].concat());
}

#[test]
fn one_of_several_sessions_in_a_sandbox_does_not_sleep_alone() {
    let session = Session::new();
    let mut agent = Agent::start();
    for name in ["acme/a", "acme/b"] {
        let dir = session.home().join(name.replace('/', "-"));
        let words = ["--sandbox", "pod-7", "--pid", &agent.pid()];
        register(&session, name, &dir, &words);
    }

    let saved = session.json(4, &["session", "sleep", "acme/a"]);
    assert_eq!(saved["state"], "saved");
    assert_eq!(saved["sandbox_kept_for"][0], "acme/b");
    assert_eq!(show(&session, "acme/a")["state"], "running");
    assert!(agent.is_running());
    let slept = session.json(0, &["session", "sleep", "acme/a", "--with-others"]);

    assert_eq!(slept["slept_with"][0], "acme/b", "{slept}");
    assert!(!agent.is_running());
    assert_eq!(show(&session, "acme/b")["state"], "sleeping");
}

#[test]
fn an_empty_directory_in_the_place_of_a_workspace_is_not_taken_for_it() {
    let session = Session::new();
    let dir = session.home().join("ws");
    register(&session, "acme/42", &dir, &[]);
    session.json(0, &["session", "snapshot", "acme/42"]);
    fs::remove_dir_all(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    let to = dir.to_str().unwrap();

    let refused = session.run(&["session", "register", "acme/42", "--dir", to]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    let woken = session.json(0, &["session", "wake", "acme/42"]);
    assert_eq!(woken["outcome"], "restored");
    assert_eq!(
        fs::read_to_string(dir.join("outputs/a.txt")).unwrap(),
        "one"
    );
    // What is emptied on purpose stays so.
    fs::remove_dir_all(dir.join("outputs")).unwrap();
    let woken = session.json(0, &["session", "wake", "acme/42"]);
    assert_eq!(woken["outcome"], "present");
}

#[test]
fn a_workspace_is_not_laid_into_another_one_nor_by_another_name() {
    let session = Session::new();
    let dir = session.home().join("ws");
    register(&session, "acme/a", &dir, &[]);
    let other = session.home().join("other");
    asleep(&session, "acme/b", &other, &[]);
    std::os::unix::fs::symlink(session.home(), session.home().join("link")).unwrap();
    fs::create_dir_all(dir.join("outputs/inner")).unwrap();

    for to in [
        session.home().join("link/ws"),
        dir.join("outputs/inner"),
        session.home().to_owned(),
    ] {
        let to = to.to_str().unwrap();
        let refused = session.run(&["session", "wake", "acme/b", "--dir", to]);
        assert_eq!(refused.code, 4, "{to}: {}", refused.err);
        assert!(
            refused.err.contains("workspace of `acme/a`"),
            "{}",
            refused.err
        );
    }
    assert_eq!(
        fs::read_to_string(dir.join("outputs/a.txt")).unwrap(),
        "one"
    );
}

#[test]
fn work_of_a_sandbox_that_does_not_answer_is_saved_once_it_has_ended() {
    let session = Session::new();
    let dir = session.home().join("ws");
    register(&session, "acme/42", &dir, &[]);
    session.json(0, &["session", "snapshot", "acme/42"]);
    session.json(0, &["session", "sleep", "acme/42"]);
    // It writes all the time, so that it cannot be saved while it runs.
    let start = "while [ -d outputs ]; do echo x >> outputs/log; done";
    let words = [
        "session",
        "wake",
        "acme/42",
        "--start-cmd",
        start,
        "--health-cmd",
        "test ! -e sick",
    ];
    session.json(0, &words);
    fs::write(dir.join("sick"), "").unwrap();

    let slept = session.json(0, &["session", "sleep", "acme/42"]);

    assert_eq!(slept["state"], "sleeping", "{slept}");
    let log = fs::read(dir.join("outputs/log")).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    session.json(
        0,
        &["session", "wake", "acme/42", "--start-cmd", "exec sleep 60"],
    );
    assert!(fs::read(dir.join("outputs/log")).unwrap() == log);
    session.json(0, &["session", "sleep", "acme/42"]);
}

#[test]
fn a_root_that_is_a_link_out_of_the_workspace_is_not_said_to_be_saved() {
    let session = Session::new();
    let (dir, data) = (session.home().join("ws"), session.home().join("data"));
    fs::create_dir_all(&dir).unwrap();
    fs::create_dir_all(&data).unwrap();
    std::os::unix::fs::symlink(&data, dir.join("outputs")).unwrap();
    let to = dir.to_str().unwrap();
    session.json(0, &["session", "register", "acme/42", "--dir", to]);

    let refused = session.run(&["session", "snapshot", "acme/42"]);

    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("is a link to"), "{}", refused.err);
    session.json(1, &["session", "sleep", "acme/42"]);
    assert_eq!(show(&session, "acme/42")["state"], "snapshot_failed");
}

#[test]
fn what_a_session_started_is_left_to_another_that_still_uses_it() {
    let session = Session::new();
    let start = format!(
        "echo $$ > {}; exec sleep 600",
        session.home().join("pid").display()
    );
    for name in ["acme/a", "acme/b"] {
        let dir = session.home().join(name.replace('/', "-"));
        asleep(&session, name, &dir, &[]);
        let words = [
            "session",
            "wake",
            name,
            "--sandbox",
            "pod-7",
            "--start-cmd",
            &start,
        ];
        session.json(0, &words);
    }
    let pid = number_in(&session.home().join("pid"));
    session.json(0, &["session", "delete", "acme/a", "--confirm"]);
    let dir = session.home().join("acme-a");
    asleep(&session, "acme/a", &dir, &[]);

    session.json(0, &["session", "reap"]);

    assert!(is_running(pid), "acme/b runs in it");
    session.json(0, &["session", "sleep", "acme/b"]);
    assert!(!is_running(pid));
}

#[test]
fn a_session_whose_sandbox_commands_start_takes_no_command_of_its_own() {
    let session = Session::new();
    let dir = session.home().join("ws");
    asleep(&session, "acme/42", &dir, &[]);
    session.json(
        0,
        &[
            "session",
            "wake",
            "acme/42",
            "--start-cmd",
            "exec sleep 600",
        ],
    );
    session.json(0, &["session", "sleep", "acme/42"]);

    let refused = session.run(&["session", "run", "acme/42", "--", "true"]);

    assert_eq!(refused.code, 104, "{}", refused.err);
    assert_eq!(show(&session, "acme/42")["state"], "sleeping");
    session.json(0, &["session", "wake", "acme/42"]);
    assert_eq!(show(&session, "acme/42")["health"], "healthy");
    session.json(0, &["session", "sleep", "acme/42"]);
}

#[test]
fn what_a_sandbox_sends_into_the_background_ends_with_it() {
    let session = Session::new();
    let (dir, daemon) = (session.home().join("ws"), session.home().join("daemon"));
    asleep(&session, "acme/42", &dir, &[]);
    let start = format!(
        "setsid sh -c 'echo $$ > {}; exec sleep 600' > /dev/null 2>&1 &",
        daemon.display()
    );
    session.json(0, &["session", "wake", "acme/42", "--start-cmd", &start]);
    let pid = number_in(&daemon);
    assert!(is_running(pid));

    let slept = session.json(0, &["session", "sleep", "acme/42"]);

    assert_eq!(slept["state"], "sleeping");
    assert!(!is_running(pid));
}

#[test]
fn a_command_that_leaves_something_running_is_saved_after_that_has_ended() {
    let session = Session::new();
    let dir = session.home().join("ws");
    let script = "mkdir -p outputs; setsid sh -c 'echo $$ > outputs/pid; while :; do echo x >> outputs/log; sleep 0.01; done' \
        > /dev/null 2>&1 & while ! [ -s outputs/pid ]; do sleep 0.01; done";
    let to = dir.to_str().unwrap();
    let ran = session.run(&[
        "session", "run", "acme/42", "--dir", to, "--", "sh", "-c", script,
    ]);

    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!is_running(number_in(&dir.join("outputs/pid"))));
    let log = fs::read(dir.join("outputs/log")).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    session.json(0, &["session", "wake", "acme/42"]);
    assert!(fs::read(dir.join("outputs/log")).unwrap() == log);
}

#[test]
fn what_a_killed_wake_started_is_ended_by_the_next_reap() {
    let session = Session::new();
    let (dir, pid) = (session.home().join("ws"), session.home().join("pid"));
    asleep(&session, "acme/42", &dir, &[]);
    let start = format!("echo $$ > {}; exec sleep 600", pid.display());
    let words = [
        "session",
        "wake",
        "acme/42",
        "--start-cmd",
        &start,
        "--health-cmd",
        "sleep 8; false",
        "--lease-ttl",
        "1s",
    ];
    let mut wake = session
        .command(&words)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = number_in(&pid);
    wake.kill().unwrap();
    wake.wait().unwrap();
    assert!(is_running(pid));
    std::thread::sleep(Duration::from_millis(1200));

    session.json(0, &["session", "reap"]);

    assert!(!is_running(pid));
    let woken = session.json(0, &["session", "wake", "acme/42"]);
    assert_eq!(woken["outcome"], "restored");
}

#[test]
fn a_session_is_put_to_sleep_from_within_its_own_sandbox() {
    let session = Session::new();
    let dir = session.home().join("ws");
    asleep(&session, "acme/42", &dir, &[]);
    let stasis = session.command(&["session", "sleep", "acme/42"]);
    let words: Vec<String> = std::iter::once(stasis.get_program())
        .chain(stasis.get_args())
        .map(|word| word.to_str().unwrap().to_owned())
        .collect();
    let start = format!(
        "echo last > outputs/last; sleep 1; {}; sleep 600",
        words.join(" ")
    );
    session.json(0, &["session", "wake", "acme/42", "--start-cmd", &start]);

    for _ in 0..500 {
        if show(&session, "acme/42")["state"] == "sleeping" {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }

    let shown = show(&session, "acme/42");
    assert_eq!(shown["state"], "sleeping", "{shown}");
    fs::remove_dir_all(&dir).unwrap();
    session.json(0, &["session", "wake", "acme/42"]);
    assert!(dir.join("outputs/last").exists());
    session.json(0, &["session", "sleep", "acme/42"]);
}

#[test]
fn what_cannot_be_saved_after_the_end_is_tried_again_and_not_given_up() {
    let session = Session::new();
    let dir = session.home().join("ws");
    asleep(&session, "acme/42", &dir, &["--idle-timeout", "1ms"]);
    let start = "trap 'head -c 300000 /dev/zero > outputs/late; exit' TERM; touch ready; while :; do sleep 0.05; done";
    session.json(0, &["session", "wake", "acme/42", "--start-cmd", start]);
    while !dir.join("ready").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }

    let reaped = session.json(1, &["session", "reap", "--max-bytes", "200000"]);
    assert_eq!(reaped["items"][0]["fate"], "ended", "{reaped}");
    assert_eq!(show(&session, "acme/42")["state"], "snapshot_failed");
    let reaped = session.json(0, &["session", "reap"]);

    assert_eq!(reaped["items"][0]["fate"], "sleeping", "{reaped}");
    fs::remove_dir_all(&dir).unwrap();
    session.json(0, &["session", "wake", "acme/42"]);
    assert_eq!(fs::read(dir.join("outputs/late")).unwrap().len(), 300_000);
    session.json(0, &["session", "sleep", "acme/42"]);
}

#[test]
fn named_pipes_are_left_out_and_counted_and_directories_count_as_entries() {
    let session = Session::new();
    let dir = session.home().join("ws");
    register(&session, "acme/42", &dir, &[]);
    let pipe = dir.join("outputs/pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for name in 0..20 {
        fs::create_dir(dir.join(format!("outputs/{name}"))).unwrap();
    }

    let refused = session.run(&["session", "snapshot", "acme/42", "--max-entries", "10"]);
    let saved = session.json(
        0,
        &["session", "snapshot", "acme/42", "--max-entries", "30"],
    );

    assert_eq!(refused.code, 11, "{}", refused.err);
    assert!(refused.err.contains("22 entries"), "{}", refused.err);
    assert_eq!(saved["left_out"], 1, "{saved}");
    let listed = session.data(0, &["ls", "-r", "session:acme/42"]);
    assert!(!listed.contains("pipe"), "{listed}");
}

#[test]
fn commands_that_nobody_typed_here_are_refused_before_anything_is_restored() {
    let session = Session::new();
    let dir = session.home().join("ws");
    asleep(&session, "acme/42", &dir, &[]);
    session.json(
        0,
        &[
            "session",
            "wake",
            "acme/42",
            "--start-cmd",
            "exec sleep 600",
        ],
    );
    session.json(0, &["session", "sleep", "acme/42"]);
    let other = Session::beneath(session.home());
    let to = other.home().join("elsewhere");
    let store = session.object("");
    let words = [
        "--store",
        store.to_str().unwrap(),
        "session",
        "wake",
        "acme/42",
        "--dir",
        to.to_str().unwrap(),
    ];

    let refused = other.run(&words);

    assert_ne!(refused.code, 0);
    assert!(
        refused.err.contains("were not typed on this host"),
        "{}",
        refused.err
    );
    assert!(!to.exists());
    assert_eq!(show(&session, "acme/42")["state"], "sleeping");
}

/// A process that writes a number into two files, one after the other, as fast as it can.
const TWINS: &str = "n=0; touch ready; while [ -d outputs ]; do n=$((n+1)); echo $n > outputs/one; echo $n > outputs/two; done";

#[test]
fn files_that_are_saved_while_the_sandbox_stands_still_are_of_one_moment() {
    let session = Session::new();
    let dir = session.home().join("ws");
    asleep(&session, "acme/42", &dir, &[]);
    session.json(0, &["session", "wake", "acme/42", "--start-cmd", TWINS]);
    while !dir.join("outputs/two").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }

    for _ in 0..5 {
        let saved = session.json(0, &["session", "snapshot", "acme/42", "--freeze"]);
        assert!(saved["frozen_ms"].is_u64(), "{saved}");
        let number = |name: &str| -> i64 {
            let text = session.data(0, &["cat", "session:acme/42", name]);
            text.trim().parse().unwrap_or_default()
        };
        let (one, two) = (number("outputs/one"), number("outputs/two"));
        // Between two writes, or while a file is being written anew.
        assert!(one - two <= 1 || one == 0 || two == 0, "{one} {two}");
    }
    let written = || number_in(&dir.join("outputs/two"));
    let before = written();
    std::thread::sleep(Duration::from_millis(300));
    assert_ne!(before, written(), "it runs again");
    session.json(0, &["session", "sleep", "acme/42"]);
    let refused = session.run(&["session", "snapshot", "acme/42", "--freeze"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
}

#[test]
fn a_sandbox_that_stands_still_runs_again_though_whoever_saves_it_is_killed() {
    let session = Session::new();
    let dir = session.home().join("ws");
    asleep(&session, "acme/42", &dir, &[]);
    session.json(0, &["session", "wake", "acme/42", "--start-cmd", TWINS]);
    while !dir.join("outputs/two").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = u32::try_from(
        show(&session, "acme/42")["runs_in"]["driver"]["pid"]
            .as_u64()
            .unwrap(),
    );
    let pid = pid.unwrap();
    let is_stopped = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('T'))
    };

    let mut was_stopped = 0;
    for _ in 0..10 {
        let words = ["session", "snapshot", "acme/42", "--freeze"];
        let mut saving = session
            .command(&words)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while saving.try_wait().unwrap().is_none() && !is_stopped() {
            std::thread::sleep(Duration::from_micros(200));
        }
        if is_stopped() {
            was_stopped += 1;
        }
        let _ = saving.kill();
        saving.wait().unwrap();
        for _ in 0..500 {
            if !is_stopped() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!is_stopped());
    }
    assert!(was_stopped > 0, "nothing was killed in time");
    session.json(0, &["session", "sleep", "acme/42"]);
}

#[test]
fn the_undo_of_a_wake_brings_back_what_it_replaced_and_can_be_undone() {
    let session = Session::new();
    let dir = session.home().join("ws");
    asleep(&session, "acme/42", &dir, &[]);
    let file = dir.join("outputs/a.txt");
    fs::write(&file, "changed while it slept").unwrap();
    let woken = session.json(0, &["session", "wake", "acme/42"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "one");
    assert_eq!(show(&session, "acme/42")["kept"], woken["backup"]);
    let undo = ["undo", "session:acme/42"];

    let would = session.json(0, &[&undo[..], &["--dry-run"]].concat());
    assert_eq!(would["back"][0], "outputs/a.txt", "{would}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "one");
    session.json(0, &undo);
    assert_eq!(fs::read_to_string(&file).unwrap(), "changed while it slept");
    session.json(0, &undo);
    assert_eq!(fs::read_to_string(&file).unwrap(), "one");

    session.json(0, &["session", "delete", "acme/42", "--confirm"]);
    register(&session, "acme/43", &dir, &[]);
    let other = session.run(&["undo", "session:acme/43"]);
    assert_eq!(other.code, 3, "{}", other.err);
}

#[test]
fn the_host_that_a_session_was_taken_from_learns_that_it_has_it_no_more() {
    let session = Session::new();
    let dir = session.home().join("ws");
    asleep(&session, "acme/42", &dir, &[]);
    let pid = session.home().join("pid");
    let start = format!("echo $$ > {}; exec sleep 600", pid.display());
    session.json(0, &["session", "wake", "acme/42", "--start-cmd", &start]);
    let pid = number_in(&pid);
    let to = session.home().join("elsewhere");
    let words = [
        "session",
        "--host",
        "other",
        "wake",
        "acme/42",
        "--dir",
        to.to_str().unwrap(),
        "--take-over",
        "--start-cmd",
        "exec sleep 600",
    ];
    session.json(0, &words);

    let refused = session.run(&["session", "heartbeat", "acme/42"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    session.json(0, &["session", "--host", "other", "heartbeat", "acme/42"]);
    session.json(0, &["session", "reap"]);

    assert!(!is_running(pid), "nobody saves what it does");
    assert_eq!(show(&session, "acme/42")["host"], "other");
    session.json(0, &["session", "--host", "other", "sleep", "acme/42"]);
}

#[test]
fn of_two_runs_at_once_one_is_refused_and_the_other_ends_well() {
    let session = Session::new();
    let dir = session.home().join("ws");
    let to = dir.to_str().unwrap();
    let script = "mkdir -p outputs; sleep 1; echo done >> outputs/log";
    let words = [
        "session", "run", "acme/42", "--dir", to, "--", "sh", "-c", script,
    ];
    let mut both: Vec<_> = (0..2)
        .map(|_| {
            session
                .command(&words)
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();

    let codes: Vec<i32> = both
        .iter_mut()
        .map(|one| one.wait().unwrap().code().unwrap())
        .collect();

    assert!(codes.contains(&0), "{codes:?}");
    assert_eq!(show(&session, "acme/42")["state"], "sleeping");
    let log = session.data(0, &["cat", "session:acme/42", "outputs/log"]);
    let ended = codes.iter().filter(|code| **code == 0).count();
    assert_eq!(log.lines().count(), ended, "{codes:?}");
}

#[test]
fn a_sandbox_that_is_started_when_it_is_woken_can_be_registered() {
    let session = Session::new();
    let dir = session.home().join("ws");
    register(
        &session,
        "acme/42",
        &dir,
        &["--start-cmd", "exec sleep 600"],
    );

    let woken = session.json(0, &["session", "wake", "acme/42"]);

    assert_eq!(woken["outcome"], "present");
    assert_eq!(show(&session, "acme/42")["health"], "healthy");
    session.json(0, &["session", "sleep", "acme/42"]);
}

#[test]
fn a_wake_that_replaced_nothing_leaves_no_older_one_to_undo() {
    let session = Session::new();
    let (dir, other) = (session.home().join("ws"), session.home().join("other"));
    asleep(&session, "acme/42", &dir, &[]);
    fs::write(dir.join("outputs/a.txt"), "changed").unwrap();
    session.json(0, &["session", "wake", "acme/42"]);
    session.json(0, &["session", "sleep", "acme/42"]);
    let to = other.to_str().unwrap();
    session.json(0, &["session", "wake", "acme/42", "--dir", to]);

    let none = session.run(&["undo", "session:acme/42"]);

    assert_eq!(none.code, 3, "{}", none.err);
    assert_eq!(
        fs::read_to_string(dir.join("outputs/a.txt")).unwrap(),
        "one"
    );
}

#[test]
fn who_shares_a_sandbox_is_known_to_the_store_also_where_this_host_has_forgotten_it() {
    let session = Session::new();
    let mut agent = Agent::start();
    let pid = agent.pid();
    let pod = ["--sandbox", "pod-7", "--pid", &pid];
    register(&session, "acme/a", &session.home().join("a"), &pod);
    // As another user of the machine, or after its home was lost: this host knows nothing.
    fs::remove_dir_all(session.home().join("state")).unwrap();
    let dir = session.home().join("b");
    workspace(&dir);
    let to = dir.to_str().unwrap();
    let words = ["session", "register", "acme/b", "--dir", to, "--pid", &pid];
    let other_name = session.run(&words);
    register(&session, "acme/b", &dir, &pod);
    let other_tenant = session.home().join("c");
    register(&session, "other/c", &other_tenant, &pod);

    let saved = session.json(4, &["session", "sleep", "acme/b"]);

    assert_eq!(other_name.code, 4, "{}", other_name.err);
    assert_eq!(
        saved["sandbox_kept_for"],
        serde_json::json!(["acme/a", "other/c"])
    );
    assert!(agent.is_running());
    session.json(0, &["session", "delete", "other/c", "--confirm"]);
    // What that has forgotten is not acted on.
    session.json(
        0,
        &[
            "session",
            "register",
            "acme/a",
            "--dir",
            &path(&session, "a"),
        ],
    );
    session.json(0, &["session", "sleep", "acme/b", "--with-others"]);
    assert!(!agent.is_running());
}

fn path(session: &Session, name: &str) -> String {
    session.home().join(name).to_str().unwrap().to_owned()
}

#[test]
fn commands_that_end_different_things_are_not_one_sandbox() {
    let session = Session::new();
    let ended = |name: &str| path(&session, &format!("ended-{name}"));
    let (end_a, end_b) = (
        format!("touch {}", ended("a")),
        format!("touch {}", ended("b")),
    );
    let pod = ["--sandbox", "pod-7", "--idle-timeout", "1ms"];
    let one = [&pod[..], &["--terminate-cmd", &end_a]].concat();
    register(&session, "acme/a", &session.home().join("a"), &one);
    let dir = session.home().join("b");
    workspace(&dir);
    let to = dir.to_str().unwrap();
    let words = ["session", "register", "acme/b", "--dir", to];
    let other = ["--sandbox", "pod-7", "--terminate-cmd", &end_b];

    let refused = session.run(&[&words[..], &other].concat());
    session.json(0, &["session", "reap"]);

    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(Path::new(&ended("a")).exists());
    assert!(!Path::new(&ended("b")).exists());
}

#[test]
fn a_session_is_woken_into_a_process_only_under_the_name_that_this_has() {
    let session = Session::new();
    let mut agent = Agent::start();
    let pid = agent.pid();
    let pod = ["--sandbox", "pod-7", "--pid", &pid];
    register(&session, "acme/a", &session.home().join("a"), &pod);
    asleep(&session, "acme/b", &session.home().join("b"), &[]);
    let wake = ["session", "wake", "acme/b"];

    let refused = session.run(&[&wake[..], &["--pid", &pid]].concat());

    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("--sandbox pod-7"), "{}", refused.err);
    assert_eq!(show(&session, "acme/b")["state"], "sleeping");
    session.json(0, &[&wake[..], &pod].concat());
    session.json(4, &["session", "sleep", "acme/a"]);
    assert!(agent.is_running());
    session.json(0, &["session", "sleep", "acme/b", "--with-others"]);
    assert!(!agent.is_running());
}

#[test]
fn sessions_of_one_sandbox_that_are_woken_at_once_start_it_once() {
    let session = Session::new();
    let pids = session.home().join("pids");
    let start = format!("echo $$ >> {}; exec sleep 600", pids.display());
    let names = ["acme/a", "acme/b", "acme/c"];
    for name in names {
        let dir = session.home().join(name.replace('/', "-"));
        asleep(&session, name, &dir, &[]);
    }
    let mut wakes: Vec<_> = names
        .iter()
        .map(|name| {
            let words = ["session", "wake", name, "--sandbox", "pod-7"];
            let words = [&words[..], &["--start-cmd", &start]].concat();
            session
                .command(&words)
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for wake in &mut wakes {
        assert!(wake.wait().unwrap().success());
    }

    let text = fs::read_to_string(&pids).unwrap();
    let pid: u32 = text.trim().parse().expect("one was started");
    assert!(is_running(pid));
    // It ended by itself: whoever starts it again starts it for all.
    let words = ["session", "sleep", "acme/a", "--with-others"];
    let slept = session.json(0, &words);
    assert_eq!(slept["slept_with"], serde_json::json!(["acme/b", "acme/c"]));
    assert!(!is_running(pid));
}

#[test]
fn a_sandbox_that_ended_by_itself_is_started_again_for_all_of_its_sessions() {
    let session = Session::new();
    let pids = session.home().join("pids");
    let start = format!("echo $$ >> {}; exec sleep 600", pids.display());
    let pod = ["--sandbox", "pod-7", "--start-cmd", &start];
    for name in ["acme/a", "acme/b"] {
        let dir = session.home().join(name.replace('/', "-"));
        register(&session, name, &dir, &pod);
        session.json(0, &["session", "wake", name]);
    }
    let first = number_in(&pids);
    signal(first);
    while is_running(first) {
        std::thread::sleep(Duration::from_millis(20));
    }
    for name in ["acme/a", "acme/b"] {
        session.json(0, &["session", "wake", name]);
    }

    let text = fs::read_to_string(&pids).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    let driver = |name: &str| show(&session, name)["runs_in"]["driver"].clone();
    assert_eq!(driver("acme/a"), driver("acme/b"));
    session.json(0, &["session", "sleep", "acme/a", "--with-others"]);
}

#[test]
fn a_wake_of_a_session_that_runs_says_when_something_else_runs_it() {
    let session = Session::new();
    let mut agent = Agent::start();
    let (pid, dir) = (agent.pid(), session.home().join("ws"));
    register(&session, "acme/42", &dir, &["--pid", &pid]);
    let wake = ["session", "wake", "acme/42"];

    let present = session.json(0, &[&wake[..], &["--pid", &pid]].concat());
    let refused = session.run(&[&wake[..], &["--start-cmd", "sleep 600"]].concat());

    assert_eq!(present["outcome"], "present");
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(
        refused.err.contains("session sleep acme/42"),
        "{}",
        refused.err
    );
    assert!(agent.is_running());
    session.json(0, &["session", "sleep", "acme/42"]);
}

#[test]
fn a_directory_is_one_sessions_whatever_the_host_is_called() {
    let session = Session::new();
    let dir = session.home().join("ws");
    register(&session, "acme/a", &dir, &["--host", "one"]);
    let to = dir.to_str().unwrap();
    let words = ["session", "register", "acme/b", "--dir", to];

    let refused = session.run(&[&words[..], &["--host", "two"]].concat());

    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(
        refused.err.contains("is the workspace of `acme/a`"),
        "{}",
        refused.err
    );
}

#[test]
fn a_host_that_lost_its_memory_wakes_a_session_in_its_workspace_when_the_store_is_trusted() {
    let session = Session::new();
    let dir = session.home().join("ws");
    asleep(&session, "acme/42", &dir, &[]);
    fs::remove_dir_all(session.home().join("state")).unwrap();
    fs::write(dir.join("outputs/a.txt"), "changed").unwrap();
    let to = dir.to_str().unwrap();

    let refused = session.run(&["session", "wake", "acme/42", "--dir", to]);
    let wake = ["session", "wake", "acme/42", "--trust-commands"];
    let woken = session.json(0, &wake);

    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("--trust-commands"), "{}", refused.err);
    assert_eq!(woken["outcome"], "restored");
    assert_eq!(
        fs::read_to_string(dir.join("outputs/a.txt")).unwrap(),
        "one"
    );
    session.json(0, &["undo", "session:acme/42", "--yes"]);
    assert_eq!(
        fs::read_to_string(dir.join("outputs/a.txt")).unwrap(),
        "changed"
    );
}

/// Asks a process to end.
fn signal(pid: u32) {
    let mut kill = std::process::Command::new("kill");
    assert!(kill.arg(pid.to_string()).status().unwrap().success());
}

/// A wake that has begun to start a sandbox, which commands reach.
fn half_started(session: &Session) -> (std::process::Child, std::path::PathBuf) {
    let (begun, ended) = (session.home().join("begun"), session.home().join("ended"));
    asleep(session, "acme/42", &session.home().join("ws"), &[]);
    let start = format!("echo 1 > {}; sleep 20", begun.display());
    let end = format!("touch {}", ended.display());
    let words = ["session", "wake", "acme/42", "--start-cmd", &start];
    let more = ["--terminate-cmd", &end, "--lease-ttl", "1s"];
    let mut wake = session.command(&[&words[..], &more].concat());
    let wake = wake.stdout(Stdio::null()).stderr(Stdio::null());
    let wake = wake.spawn().unwrap();
    number_in(&begun);
    assert!(!ended.exists());
    (wake, ended)
}

#[test]
fn what_commands_began_to_start_for_a_killed_wake_is_ended_by_the_next_reap() {
    let session = Session::new();
    let (mut wake, ended) = half_started(&session);
    wake.kill().unwrap();
    wake.wait().unwrap();
    std::thread::sleep(Duration::from_millis(1200));

    session.json(0, &["session", "reap"]);

    assert!(ended.exists());
}

#[test]
fn a_wake_that_is_given_up_ends_what_it_has_begun_to_start() {
    let session = Session::new();
    let (mut wake, ended) = half_started(&session);

    signal(wake.id());
    let code = wake.wait().unwrap().code();

    assert_eq!(code, Some(130));
    assert!(ended.exists());
    assert_eq!(show(&session, "acme/42")["state"], "failed");
}

#[test]
fn a_wake_that_fails_does_not_end_what_commands_run_for_another() {
    let session = Session::new();
    let (fails, ended) = (session.home().join("fails"), session.home().join("ended"));
    let start = format!("! test -e {}", fails.display());
    let end = format!("touch {}", ended.display());
    let pod = ["--sandbox", "pod-7", "--start-cmd", &start];
    let pod = [&pod[..], &["--terminate-cmd", &end]].concat();
    for name in ["a", "b"] {
        let full = format!("acme/{name}");
        asleep(&session, &full, &session.home().join(name), &[]);
    }
    session.json(0, &[&["session", "wake", "acme/a"], &pod[..]].concat());
    fs::write(&fails, "").unwrap();

    let failed = session.run(&[&["session", "wake", "acme/b"], &pod[..]].concat());
    session.json(0, &["session", "reap"]);

    assert_eq!(failed.code, 1, "{}", failed.err);
    assert!(!ended.exists(), "it runs for acme/a");
    fs::remove_file(&fails).unwrap();
    session.json(0, &[&["session", "wake", "acme/b"], &pod[..]].concat());
    session.json(0, &["session", "sleep", "acme/b", "--with-others"]);
    assert!(ended.exists());
    fs::remove_file(&ended).unwrap();
    session.json(0, &["session", "reap"]);
    assert!(!ended.exists(), "nothing is left to end");
}

#[test]
fn a_sandbox_that_could_not_be_started_nor_ended_is_started_the_next_time() {
    let session = Session::new();
    let ready = session.home().join("ready");
    let start = format!("test -e {}", ready.display());
    let words = ["session", "wake", "acme/42", "--start-cmd", &start];
    let words = [&words[..], &["--terminate-cmd", "false"]].concat();
    asleep(&session, "acme/42", &session.home().join("ws"), &[]);
    assert_eq!(session.run(&words).code, 1);
    assert_eq!(session.run(&words).code, 1);
    fs::write(&ready, "").unwrap();

    let woken = session.json(0, &words);

    assert_eq!(woken["outcome"], "restored");
}

#[test]
fn what_the_store_alone_says_to_be_in_a_sandbox_is_not_put_to_sleep_with_it() {
    let session = Session::new();
    let mut agent = Agent::start();
    let pid = agent.pid();
    let pod = ["--sandbox", "pod-7", "--pid", &pid];
    register(&session, "acme/a", &session.home().join("a"), &pod);
    register(&session, "acme/b", &session.home().join("b"), &pod);
    fs::remove_dir_all(session.home().join("state")).unwrap();
    register(&session, "acme/b", &session.home().join("b"), &pod);

    let refused = session.run(&["session", "sleep", "acme/b", "--with-others"]);

    assert_eq!(refused.code, 8, "{}", refused.err);
    assert!(refused.err.contains("acme/a"), "{}", refused.err);
    assert!(agent.is_running());
}

#[test]
fn the_status_of_one_session_is_its_row_of_the_list() {
    let session = Session::new();
    for name in ["a", "b"] {
        let full = format!("acme/{name}");
        register(&session, &full, &session.home().join(name), &[]);
    }

    let one = session.json(0, &["session", "status", "acme/b"]);
    let all = session.json(0, &["session", "status", "acme"]);

    assert_eq!(one["items"], serde_json::json!([all["items"][1]]));
    assert_eq!(session.run(&["session", "status", "acme/c"]).code, 3);
}
