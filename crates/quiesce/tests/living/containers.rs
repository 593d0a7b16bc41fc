//! Containers are held still by a real daemon.
//!
//! Where `docker info` answers, or `STASIS_DOCKER` is 1, these run with the daemon that it names, on an image of nothing but
//! a static busybox; elsewhere they are skipped, by name.

use crate::home::{Home, LONG, is_soon};
use stasis_quiesce::docker::Docker;
use stasis_quiesce::freeze::{FreezeError, thaw_abandoned};
use stasis_quiesce::pause::Paused;
use stasis_quiesce::service::{Handling, Service, ServiceError, ServiceStopped, Status};
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tokio::time::Instant;

const IMAGE: &str = "stasis-test-busybox";

fn docker(words: &[&str]) -> Output {
    Command::new("docker").args(words).output().unwrap()
}

/// Whether a daemon answers. Where it must, and does not, the test fails.
fn answers() -> bool {
    let answers = Command::new("docker").arg("info").output();
    let answers = answers.is_ok_and(|answer| answer.status.success());
    let wanted = std::env::var_os("STASIS_DOCKER").is_some_and(|wanted| wanted == "1");
    assert!(answers || !wanted, "no Docker daemon answers");
    if !answers {
        println!("skipped: no Docker daemon answers");
    }
    answers
}

/// An image of a static busybox, made once.
fn make_image() {
    if docker(&["image", "inspect", IMAGE]).status.success() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    let bin = tree.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].map(std::path::Path::new);
    let busybox = busybox.into_iter().find(|path| path.exists());
    std::fs::copy(
        busybox.expect("busybox-static is there"),
        bin.join("busybox"),
    )
    .unwrap();
    for name in ["sh", "sleep"] {
        std::os::unix::fs::symlink("busybox", bin.join(name)).unwrap();
    }
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(tree.path()).args(["-c", "."]);
    let tar = tar.output().unwrap().stdout;
    let mut import = Command::new("docker")
        .args(["import", "-", IMAGE])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    import.stdin.take().unwrap().write_all(&tar).unwrap();
    assert!(import.wait().unwrap().success());
}

/// A container that writes all the time into a directory of this test, and is removed with it.
struct Box {
    name: String,
    home: Home,
}

impl Box {
    fn start(name: &str) -> Option<Self> {
        if !answers() {
            return None;
        }
        make_image();
        let name = format!("stasis-test-{}-{name}", std::process::id());
        let home = Home::new();
        let volume = format!("{}:/out", home.path("").display());
        let script = "while :; do echo x >> /out/box; sleep 0.01; done";
        let run = [
            "run",
            "-d",
            "--network",
            "none",
            "--name",
            &name,
            "-v",
            &volume,
        ];
        let run = docker(&[&run[..], &[IMAGE, "/bin/sh", "-c", script]].concat());
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        let this = Self { name, home };
        assert!(this.home.grows("box"));
        Some(this)
    }

    fn service(&self) -> Service {
        let handling = Handling::Docker {
            docker: Docker::default(),
            container: self.name.clone(),
        };
        self.home.handled("box", handling)
    }
}

impl Drop for Box {
    fn drop(&mut self) {
        let _ = docker(&["rm", "-f", &self.name]);
    }
}

#[tokio::test]
async fn a_container_stands_still_with_a_process_and_both_run_again() {
    let Some(held) = Box::start("both") else {
        return;
    };
    let home = &held.home;
    let process = home.service("web", "while :; do echo x >> web; sleep 0.005; done");
    process.start(LONG).await.unwrap();
    assert!(home.grows("web"));

    let paused = Paused::hold(&[&held.service(), &process], &home.settings(LONG)).unwrap();

    assert!(home.rests("box") && home.rests("web"));
    assert_eq!(held.service().status().await, Status::Paused);
    let resumed = paused.resume().unwrap();
    assert!(resumed.held(), "{resumed:?}");
    assert!(home.grows("box") && home.grows("web"));
    assert!(!home.has_journal());
    println!("paused for {:?}", resumed.paused_for);
}

#[tokio::test]
async fn a_container_runs_again_at_the_deadline() {
    let Some(held) = Box::start("deadline") else {
        return;
    };

    let settings = held.home.settings(Duration::from_millis(600));
    let paused = Paused::hold(&[&held.service()], &settings).unwrap();

    assert!(is_soon(|| paused.has_expired(), Duration::from_secs(2)));
    assert!(held.home.grows("box"));
    assert!(!paused.resume().unwrap().held());
    assert!(!held.home.has_journal());
}

#[tokio::test]
async fn when_the_engine_is_killed_a_container_runs_again_within_two_seconds() {
    let Some(held) = Box::start("killed") else {
        return;
    };
    let mut engine = held
        .home
        .paused_by_another(LONG, &[format!("docker={}", held.name)]);
    assert!(held.home.rests("box"));

    engine.kill();
    let killed = Instant::now();

    assert!(held.home.grows("box"));
    assert!(killed.elapsed() < Duration::from_secs(2));
    assert!(is_soon(|| !held.home.has_journal(), Duration::from_secs(2)));
}

#[tokio::test]
async fn when_the_watchdog_is_killed_too_the_next_start_lets_a_container_run_again() {
    let Some(held) = Box::start("next") else {
        return;
    };
    let mut engine = held
        .home
        .paused_by_another(LONG, &[format!("docker={}", held.name)]);
    let live = thaw_abandoned(&held.home.journals()).unwrap();
    engine
        .watchdog()
        .signal(rustix::process::Signal::KILL)
        .unwrap();
    engine.kill();
    assert!(held.home.rests("box"));

    let abandoned = thaw_abandoned(&held.home.journals()).unwrap();

    assert!(
        live.unpaused.is_empty(),
        "an engine that lives keeps its own"
    );
    assert_eq!(abandoned.unpaused.len(), 1);
    assert!(held.home.grows("box"));
    assert!(!held.home.has_journal());
}

#[tokio::test]
async fn a_container_that_somebody_else_paused_is_refused_and_stays_paused() {
    let Some(held) = Box::start("theirs") else {
        return;
    };
    assert!(docker(&["pause", &held.name]).status.success());

    let refused = Paused::hold(&[&held.service()], &held.home.settings(LONG)).unwrap_err();

    assert!(matches!(refused, ServiceError::AlreadyPaused { .. }));
    assert_eq!(held.service().status().await, Status::Paused);
    assert!(!held.home.has_journal());
}

#[tokio::test]
async fn a_container_that_somebody_else_let_run_or_restarted_makes_the_hold_worthless() {
    let Some(held) = Box::start("disturbed") else {
        return;
    };
    let settings = held.home.settings(LONG);

    let paused = Paused::hold(&[&held.service()], &settings).unwrap();
    assert!(docker(&["unpause", &held.name]).status.success());
    let disturbed = paused.resume().unwrap();
    let paused = Paused::hold(&[&held.service()], &settings).unwrap();
    assert!(docker(&["restart", "-t", "0", &held.name]).status.success());
    let restarted = paused.resume().unwrap();

    assert!(disturbed.disturbed && !disturbed.held());
    assert_eq!(restarted.changed, ["box"]);
    assert!(!held.home.has_journal());
}

#[tokio::test]
async fn a_container_is_stopped_and_started() {
    let Some(held) = Box::start("stopped") else {
        return;
    };
    let service = held.service();

    let stopped = service.stop(Duration::from_secs(1)).await.unwrap();

    assert_eq!(stopped, ServiceStopped::Asked);
    assert_eq!(service.status().await, Status::Stopped);
    assert_eq!(
        service.stop(LONG).await.unwrap(),
        ServiceStopped::NotRunning
    );
    assert!(service.start(LONG).await.unwrap() > 0);
    assert!(held.home.grows("box"));
}

/// A client that is not the real one: it answers what the script says.
fn pretended(home: &Home, script: &str) -> Service {
    let program = home.path("docker");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let docker = Docker {
        program: program.into(),
        host: Some("unix:///some where".into()),
    };
    let container = "box".to_owned();
    home.handled("box", Handling::Docker { docker, container })
}

/// Looks like a container that runs, and writes down whatever else is asked.
const LOOK: &str = r#"echo "$*" >> "$0.asked"
case "$*" in *inspect*) echo "0123456789abcdef $(cat "$0.state") 1 then"; exit;; esac"#;

#[test]
fn a_pause_that_the_daemon_refuses_is_told_and_not_undone() {
    let home = Home::new();
    let theirs = "echo 'Container x is already paused' >&2; exit 1";
    let service = pretended(&home, &format!("{LOOK}\n{theirs}"));
    std::fs::write(home.path("docker.state"), "running").unwrap();

    let refused = Paused::hold(&[&service], &home.settings(LONG)).unwrap_err();

    let ServiceError::Freeze(FreezeError::AlreadyPaused { .. }) = refused else {
        panic!("{refused:?}");
    };
    let asked = std::fs::read_to_string(home.path("docker.asked")).unwrap();
    assert!(asked.contains("--host unix:///some where pause -- 0123456789abcdef\n"));
    assert!(!asked.contains("unpause"), "{asked}");
    assert!(!home.has_journal());
}

#[test]
fn a_pause_of_which_nothing_is_known_is_undone() {
    let home = Home::new();
    let breaks = r#"case "$*" in *unpause*) echo running > "$0.state"; exit;; *pause*) echo paused > "$0.state"; echo 'connection lost' >&2; exit 1;; esac"#;
    let service = pretended(&home, &format!("{LOOK}\n{breaks}"));
    std::fs::write(home.path("docker.state"), "running").unwrap();

    let refused = Paused::hold(&[&service], &home.settings(LONG)).unwrap_err();

    let ServiceError::Freeze(FreezeError::Container { doing, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(doing, "pause");
    let state = || std::fs::read_to_string(home.path("docker.state")).unwrap();
    assert!(is_soon(|| state() == "running\n", Duration::from_secs(2)));
    assert!(is_soon(|| !home.has_journal(), Duration::from_secs(2)));
}

/// A pause takes half a second, and happens whoever waits for it.
const SLOW: &str = r#"case "$*" in *unpause*)
    grep -q paused "$0.state" || { echo "Container x is not paused" >&2; exit 1; }
    echo running > "$0.state";;
*pause*) sleep 0.5; echo paused > "$0.state"; echo > "$0.was-paused";; esac"#;

#[test]
fn when_the_engine_is_killed_while_a_pause_is_on_its_way_the_container_runs_afterwards() {
    let home = Home::new();
    pretended(&home, &format!("{LOOK}\n{SLOW}"));
    std::fs::write(home.path("docker.state"), "running\n").unwrap();
    let path = format!(
        "{}:{}",
        home.path("").display(),
        std::env::var("PATH").unwrap()
    );
    let mut engine = Command::new(crate::home::freezer("").program);
    engine
        .arg("pause")
        .arg(home.journals())
        .args(["20000", "docker=box"]);
    let mut engine = engine.env("PATH", path).spawn().unwrap();
    let asked = || std::fs::read_to_string(home.path("docker.asked")).unwrap_or_default();
    assert!(is_soon(|| asked().contains("pause -- "), LONG));

    engine.kill().unwrap();
    engine.wait().unwrap();

    let state = || std::fs::read_to_string(home.path("docker.state")).unwrap();
    let gone = || home.path("docker.was-paused").exists() && !home.has_journal();
    assert!(is_soon(gone, Duration::from_secs(5)), "{}", asked());
    assert_eq!(state(), "running\n");
}

#[tokio::test]
async fn a_daemon_that_cannot_be_reached_or_knows_no_such_container_is_unknown() {
    let home = Home::new();
    let unreachable = pretended(&home, "echo 'Cannot connect' >&2; exit 1");
    let unknown = unreachable.status().await;
    let absent = pretended(&home, "echo 'Error: No such container: box' >&2; exit 1");
    let absent = absent.status().await;

    assert_eq!(unknown, Status::Unknown("Cannot connect".to_owned()));
    assert!(matches!(absent, Status::Unknown(_)));
    let refused = Paused::hold(&[&unreachable], &home.settings(LONG)).unwrap_err();
    assert!(matches!(refused, ServiceError::Unclear { .. }));
}
