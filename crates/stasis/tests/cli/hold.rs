//! `stasis lease hold`: a command that runs for as long as the lease is ours.

use crate::session::{Session, said};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const ALICE: &str = "acme/alice@131";

/// Waits until `path` has something in it.
fn text_of(path: &Path) -> String {
    for _ in 0..500 {
        if let Ok(text) = std::fs::read_to_string(path)
            && text.ends_with('\n')
        {
            return text.trim().to_owned();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("`{}` was never written", path.display());
}

fn is_running(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}

#[test]
fn the_commands_exit_code_is_ours_and_the_lease_is_given_back() {
    let session = Session::new();

    let done = session.run(&[
        "lease",
        "hold",
        ALICE,
        "--",
        "sh",
        "-c",
        "echo hello; exit 7",
    ]);

    assert_eq!((done.code, done.out.as_str()), (7, "hello\n"));
    assert_eq!(session.json(0, &["lease", "show", ALICE])["state"], "free");
    let held = session.json(0, &["lease", "hold", ALICE, "--", "true"]);
    assert_eq!(
        (&held["exit_code"], &held["released"]),
        (&serde_json::json!(0), &serde_json::json!(true))
    );
}

#[test]
fn a_lineage_that_is_held_is_not_run_on() {
    let session = Session::new();
    session.data(0, &["lease", "acquire", ALICE, "--run-id", "somebody"]);

    let refused = session.run(&["lease", "hold", ALICE, "--", "echo", "must not run"]);

    assert_eq!((refused.code, refused.out.as_str()), (104, ""));
    assert!(
        refused.err.contains("holder_run_id: somebody"),
        "{}",
        refused.err
    );
}

#[test]
fn a_lease_is_renewed_while_the_command_runs() {
    let session = Session::new();
    let arguments = [
        "lease", "hold", ALICE, "--ttl", "600ms", "--renew", "150ms", "--", "sleep", "1.8",
    ];

    let held = session.run(&arguments);

    assert_eq!(held.code, 0, "{}", held.err);
    let lock = session.json(0, &["lease", "show", ALICE]);
    assert!(lock["renewal_count"].as_u64().unwrap() >= 5, "{lock}");
}

#[test]
fn a_lost_lease_stops_the_whole_process_group() {
    let session = Session::new();
    let pids = session.home().join("pids");
    let script = format!("sleep 100 & echo $$ $! > {}; wait", pids.display());
    let arguments = [
        "lease", "hold", ALICE, "--renew", "200ms", "--ttl", "2s", "--", "sh", "-c", &script,
    ];
    let holder = session
        .command(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pids = text_of(&pids);

    session.data(
        0,
        &[
            "lease",
            "force-unlock",
            ALICE,
            "--confirm",
            "--reason",
            "test",
        ],
    );
    let held = said(holder.wait_with_output().unwrap());

    assert_eq!(held.code, 105);
    assert!(
        held.err
            .contains("error: the lease of `acme/alice@131` is lost"),
        "{}",
        held.err
    );
    for pid in pids.split(' ') {
        assert!(!is_running(pid), "{pid} is still running");
    }
}

#[test]
fn a_holder_that_slept_past_its_lease_stops_its_command_when_it_wakes() {
    let session = Session::new();
    let pids = session.home().join("pids");
    let script = format!("echo $$ > {}; exec sleep 100", pids.display());
    let arguments = [
        "lease", "hold", ALICE, "--ttl", "1s", "--renew", "300ms", "--", "sh", "-c", &script,
    ];
    let holder = session
        .command(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = text_of(&pids);
    let holder_pid = rustix::process::Pid::from_child(&holder);

    rustix::process::kill_process(holder_pid, rustix::process::Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(1300));
    session.data(0, &["lease", "acquire", ALICE, "--run-id", "next"]);
    rustix::process::kill_process(holder_pid, rustix::process::Signal::CONT).unwrap();
    let held = said(holder.wait_with_output().unwrap());

    assert_eq!(held.code, 105, "{}", held.err);
    assert!(!is_running(&pid));
    assert_eq!(
        session.json(0, &["lease", "show", ALICE])["holder_run_id"],
        "next"
    );
}

#[test]
fn a_signal_reaches_the_command_and_the_lease_is_given_back() {
    let session = Session::new();
    let pids = session.home().join("pids");
    let script = format!(
        "trap 'exit 9' TERM; echo $$ > {}; while :; do sleep 0.05; done",
        pids.display()
    );
    let holder = session
        .command(&["lease", "hold", ALICE, "--", "sh", "-c", &script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    text_of(&pids);

    let started = Instant::now();
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&holder),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    let held = said(holder.wait_with_output().unwrap());

    assert_eq!(held.code, 9, "{}", held.err);
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(session.json(0, &["lease", "show", ALICE])["state"], "free");
}

#[test]
fn a_command_that_does_not_exist_leaves_no_lease_behind() {
    let session = Session::new();

    let refused = session.run(&["lease", "hold", ALICE, "--", "no-such-program"]);

    assert_eq!(refused.code, 127);
    assert_eq!(session.json(0, &["lease", "show", ALICE])["state"], "free");
}
