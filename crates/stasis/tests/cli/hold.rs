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

#[test]
fn a_lease_that_was_taken_away_unnoticed_is_still_a_lost_lease() {
    let session = Session::new();
    let (ready, go) = (session.home().join("ready"), session.home().join("go"));
    let script = format!(
        "echo > {}; while [ ! -e {} ]; do sleep 0.02; done",
        ready.display(),
        go.display()
    );
    let holder = session
        .command(&["lease", "hold", ALICE, "--", "sh", "-c", &script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    text_of(&ready);

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
    std::fs::write(&go, "").unwrap();
    let held = said(holder.wait_with_output().unwrap());

    assert_eq!(held.code, 105, "{}", held.err);
}

#[test]
fn a_short_lease_is_renewed_often_enough_without_being_told() {
    let session = Session::new();

    // Shorter than the command, and longer than a busy disk takes for a renewal.
    let held = session.run(&["lease", "hold", ALICE, "--ttl", "4s", "--", "sleep", "5"]);
    let slow = session.run(&[
        "lease", "hold", ALICE, "--ttl", "4s", "--renew", "3s", "--", "true",
    ]);

    assert_eq!(held.code, 0, "{}", held.err);
    assert_eq!(slow.code, 102, "{}", slow.err);
    assert!(
        slow.err.contains("at least twice per lease"),
        "{}",
        slow.err
    );
}

#[test]
fn what_a_command_leaves_running_is_stopped_before_the_lease_is_given_back() {
    let session = Session::new();
    let pids = session.home().join("pids");
    let script = format!("sleep 97 >/dev/null 2>&1 & echo $! > {}", pids.display());

    let held = session.run(&["lease", "hold", ALICE, "--", "sh", "-c", &script]);

    assert_eq!(held.code, 0, "{}", held.err);
    assert!(!is_running(&text_of(&pids)));
    assert_eq!(session.json(0, &["lease", "show", ALICE])["state"], "free");
}

#[test]
fn a_stubborn_command_is_gone_before_anybody_else_can_own_the_lineage() {
    let session = Session::new();
    let beat = session.home().join("beat");
    let script = format!(
        "trap '' TERM; while :; do echo x >> {}; sleep 0.02; done",
        beat.display()
    );
    let arguments = [
        "lease", "hold", ALICE, "--ttl", "2s", "--renew", "900ms", "--", "sh", "-c", &script,
    ];
    let holder = session
        .command(&arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    text_of(&beat);

    // From here on no renewal is answered: the lock cannot be read any more.
    let lock = session.object("snapshots/acme/alice/131/lock.json");
    let sound = std::fs::read(&lock).unwrap();
    std::fs::write(&lock, "{").unwrap();
    let held = said(holder.wait_with_output().unwrap());
    let beats = std::fs::metadata(&beat).unwrap().len();
    std::fs::write(&lock, sound).unwrap();

    assert_eq!(held.code, 105, "{}", held.err);
    assert!(held.err.contains("it ran out"), "{}", held.err);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(
        std::fs::metadata(&beat).unwrap().len(),
        beats,
        "it still writes"
    );
}

#[test]
fn failures_of_ours_are_told_from_the_commands() {
    let absent = Session::on("file:///proc/no-such-place");
    let nobody = Session::on("s3://bucket/x?endpoint=http://127.0.0.1:9");
    let mut without_keys = nobody.command(&["lease", "hold", ALICE, "--", "true"]);

    let absent = absent.run(&["lease", "hold", ALICE, "--", "true"]);
    let without_keys = without_keys
        .env_remove("AWS_ACCESS_KEY_ID")
        .output()
        .unwrap();

    assert!(
        absent.code > 100 && absent.code < 112,
        "{} {}",
        absent.code,
        absent.err
    );
    assert_eq!(without_keys.status.code(), Some(102));
}

#[test]
fn a_second_signal_stops_a_command_that_will_not_hear() {
    let session = Session::new();
    let ready = session.home().join("ready");
    let script = format!(
        "trap '' TERM; echo > {}; while :; do sleep 0.05; done",
        ready.display()
    );
    let arguments = [
        "lease", "hold", ALICE, "--ttl", "2s", "--", "sh", "-c", &script,
    ];
    let holder = session
        .command(&arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    text_of(&ready);
    let pid = rustix::process::Pid::from_child(&holder);

    for _ in 0..2 {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
    let held = said(holder.wait_with_output().unwrap());

    assert_eq!(held.code, 137, "{}", held.err);
    assert_eq!(session.json(0, &["lease", "show", ALICE])["state"], "free");
}

#[test]
fn the_command_finds_its_lease_in_its_environment() {
    let session = Session::new();

    let held = session.run(&[
        "lease",
        "hold",
        ALICE,
        "--run-id",
        "run-7",
        "--",
        "sh",
        "-c",
        "echo $STASIS_LEASE_SUBJECT $STASIS_LEASE_RUN_ID ${STASIS_LEASE_TOKEN%%.*}",
    ]);

    assert_eq!(held.out, "acme/alice@131 run-7 1\n");
}
