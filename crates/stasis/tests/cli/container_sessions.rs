//! Sessions that a container runs, on a real Docker engine, beside others who work with the same container.

use crate::container_host::{Host, text};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// A session in the container `box`, which has some options.
fn host_with_session(options: &str) -> Option<Host> {
    let host = Host::new()?;
    let dir = host.session.home().join("work");
    std::fs::create_dir_all(dir.join("outputs")).unwrap();
    std::fs::write(dir.join("outputs/n"), "one").unwrap();
    host.start("box", options, "echo own > /own");
    let register = format!(
        "session register acme/s1 --dir {} --container box --sandbox pod --host here",
        dir.display()
    );
    host.json(0, &register);
    Some(host)
}

/// The lock of the one container that somebody saved.
fn lock(host: &Host) -> PathBuf {
    let place = host.session.home().join("state/stasis/containers");
    let inside = std::fs::read_dir(place).unwrap();
    let mut paths = inside.map(|entry| entry.unwrap().path());
    let found = paths.find(|path| path.extension().is_some_and(|ending| ending == "lock"));
    found.unwrap()
}

#[test]
fn a_container_that_somebody_works_on_is_neither_stopped_nor_started() {
    let Some(host) = host_with_session("-v data:/data") else {
        return;
    };
    host.json(0, "container create box");
    let held = File::options().write(true).open(lock(&host)).unwrap();
    flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();

    let output = host.output(&["session", "sleep", "acme/s1", "--host", "here"]);

    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("is in use"), "{said}");
    assert_eq!(host.status("box"), "running");
    drop(held);
    host.json(0, "session sleep acme/s1 --host here");
    assert_eq!(host.status("box"), "exited");
    let held = File::options().write(true).open(lock(&host)).unwrap();
    flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    let output = host.output(&["session", "wake", "acme/s1", "--host", "here"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("is in use"), "{said}");
    assert_eq!(host.status("box"), "exited");
    drop(held);
    // What a refused wake did not start is nobody's to end.
    host.daemon.must(&["start", "box"]);
    host.output(&["session", "reap", "--host", "here"]);
    assert_eq!(host.status("box"), "running");
    host.daemon.must(&["stop", "-t", "1", "box"]);
    host.json(0, "session wake acme/s1 --host here");
    assert_eq!(host.status("box"), "running");
}

#[test]
fn a_container_whose_health_is_not_known_yet_is_not_taken_for_dead() {
    let options = "--health-interval 1s --health-start-period 10m --health-retries 2 --health-cmd";
    let options = format!("{options} /bin/healthy");
    let Some(host) = host_with_session(&options) else {
        return;
    };
    let health = || {
        let shown = host.json(0, "session show acme/s1 --host here");
        text(&shown, "health").to_owned()
    };
    assert_eq!(health(), "starting");
    host.sh(
        "box",
        "echo '#!/bin/sh' > /bin/healthy; /bin/busybox chmod 755 /bin/healthy",
    );
    for _ in 0..400 {
        if health() == "healthy" {
            break;
        }
        sleep(Duration::from_millis(50));
    }
    assert_eq!(health(), "healthy");
    host.json(0, "session sleep acme/s1 --host here");
    // It is woken once its own health check says so.
    host.json(0, "session wake acme/s1 --host here");
    assert_eq!(health(), "healthy");
}

#[test]
fn a_container_that_needs_long_to_end_is_not_killed_before() {
    let Some(host) = host_with_session("--stop-timeout 300") else {
        return;
    };

    let output = host.output(&["session", "sleep", "acme/s1", "--host", "here"]);

    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("may take 300 s to end"), "{said}");
    assert_eq!(host.status("box"), "running");
    host.daemon.must(&["kill", "box"]);
    host.json(0, "session sleep acme/s1 --host here");
}

#[test]
fn a_container_that_only_the_store_names_is_not_touched() {
    let Some(host) = host_with_session("-v data:/data") else {
        return;
    };
    let elsewhere = host.session.home().join("elsewhere");
    let run = |words: &[&str]| {
        let mut command = host.command(&[&["--json"], words].concat());
        command.env("XDG_STATE_HOME", &elsewhere);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let dir = host.session.home().join("work");
    let dir = dir.to_str().unwrap();
    // That its directory is right is said here, and of a container nothing.
    run(&[
        "session", "register", "acme/s1", "--dir", dir, "--host", "here",
    ]);

    let said = run(&["session", "sleep", "acme/s1", "--host", "here"]);

    assert!(said.contains("was not said on this host"), "{said}");
    assert_eq!(host.status("box"), "running");
    let trusting = [
        "session",
        "sleep",
        "acme/s1",
        "--host",
        "here",
        "--trust-commands",
    ];
    run(&trusting);
    assert_eq!(host.status("box"), "exited");
}

#[test]
fn locks_in_a_directory_of_somebody_else_are_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give a directory away");
        return;
    }
    let Some(host) = host_with_session("-v data:/data") else {
        return;
    };
    host.json(0, "container create box");
    let place = host.session.home().join("state/stasis/containers");
    std::os::unix::fs::chown(&place, Some(12345), None).unwrap();

    let refused = host.json(8, "container create box");

    let said = refused["error"].to_string();
    assert!(said.contains("belongs to user 12345"), "{said}");
    std::os::unix::fs::chown(&place, Some(0), None).unwrap();
    host.json(0, "container create box");
}
