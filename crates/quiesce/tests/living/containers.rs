//! Containers are held still by a real daemon, and by one that behaves badly.
//!
//! Each test has a daemon of its own, which only root can start; elsewhere they are skipped, by name.

use crate::home::{Home, LONG, is_soon};
use stasis_quiesce::docker::Docker;
use stasis_quiesce::freeze::{FreezeError, thaw_abandoned};
use stasis_quiesce::pause::Paused;
use stasis_quiesce::service::{Handling, Service, ServiceError, ServiceStopped, Status};
use stasis_testkit::docker::{Dockerd, IMAGE};
use stasis_testkit::fake_docker::{FAKE_CONTAINER, FakeDocker, FakePause};
use std::process::Command;
use std::time::Duration;
use tokio::time::Instant;

/// A container that writes all the time into a directory of this test, and is removed with its daemon.
struct Box {
    daemon: Dockerd,
    name: &'static str,
    home: Home,
}

impl Box {
    fn start(name: &'static str) -> Option<Self> {
        Some(Self::start_in(Dockerd::start()?, name))
    }

    fn start_in(daemon: Dockerd, name: &'static str) -> Self {
        let home = Home::new();
        let volume = format!("{}:/out", home.path("").display());
        let script = "while :; do echo x >> /out/box; sleep 0.01; done";
        let how = [
            "run",
            "-d",
            "--network",
            "none",
            "--name",
            name,
            "-v",
            &volume,
        ];
        daemon.must(&[&how[..], &[IMAGE, "/bin/sh", "-c", script]].concat());
        let this = Self { daemon, name, home };
        assert!(this.home.grows("box"));
        this
    }

    fn service(&self) -> Service {
        let handling = Handling::Docker {
            docker: Docker::at(self.daemon.host()),
            container: self.name.to_owned(),
        };
        self.home.handled("box", handling)
    }

    fn docker(&self, words: &[&str]) {
        self.daemon.must(words);
    }

    /// Held by an engine of its own, which hangs.
    fn paused_by_another(&self) -> crate::home::Engine {
        let services = [format!("docker={}", self.name)];
        self.home.paused_at(&self.daemon.host(), LONG, &services)
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
    assert!(resumed.paused_for < LONG);
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
    let mut engine = held.paused_by_another();
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
    let mut engine = held.paused_by_another();
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
    held.docker(&["pause", held.name]);

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
    held.docker(&["unpause", held.name]);
    let disturbed = paused.resume().unwrap();
    let paused = Paused::hold(&[&held.service()], &settings).unwrap();
    held.docker(&["restart", "-t", "0", held.name]);
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

#[tokio::test]
async fn when_the_daemon_is_killed_while_a_container_is_paused_it_runs_again_once_the_daemon_does()
{
    let Some(daemon) = Dockerd::start_with(&["--live-restore"]) else {
        return;
    };
    let mut held = Box::start_in(daemon, "survivor");
    let mut engine = held.paused_by_another();

    held.daemon.kill();
    engine.kill();
    assert!(held.home.rests("box"), "nobody can let it run");
    held.daemon.run().unwrap();

    assert!(is_soon(|| held.home.grows("box"), Duration::from_secs(10)));
    assert!(is_soon(
        || !held.home.has_journal(),
        Duration::from_secs(10)
    ));
}

fn faked(home: &Home, daemon: &FakeDocker) -> Service {
    let handling = Handling::Docker {
        docker: Docker::at(daemon.host()),
        container: "box".to_owned(),
    };
    home.handled("box", handling)
}

#[test]
fn a_pause_that_the_daemon_refuses_is_reported_and_not_undone() {
    let home = Home::new();
    let daemon = FakeDocker::start(FakePause::Refused(409, "Container x is already paused"));

    let refused = Paused::hold(&[&faked(&home, &daemon)], &home.settings(LONG)).unwrap_err();

    let ServiceError::Freeze(FreezeError::AlreadyPaused { .. }) = refused else {
        panic!("{refused:?}");
    };
    let asked = daemon.asked();
    let pause = format!("POST /containers/{FAKE_CONTAINER}/pause");
    assert!(asked.contains(&pause), "{asked:?}");
    assert!(!asked.iter().any(|asked| asked.ends_with("unpause")));
    assert!(!home.has_journal());
}

#[test]
fn a_pause_of_which_nothing_is_known_is_undone() {
    let home = Home::new();
    let daemon = FakeDocker::start(FakePause::Answered(500, "connection lost"));

    let refused = Paused::hold(&[&faked(&home, &daemon)], &home.settings(LONG)).unwrap_err();

    let ServiceError::Freeze(FreezeError::Container { doing, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(doing, "pause");
    let undone = || daemon.was_unpaused() && daemon.runs();
    assert!(is_soon(undone, Duration::from_secs(2)));
    assert!(is_soon(|| !home.has_journal(), Duration::from_secs(2)));
}

#[test]
fn when_the_engine_is_killed_while_a_pause_is_on_its_way_the_container_runs_afterwards() {
    let home = Home::new();
    let daemon = FakeDocker::start(FakePause::After(Duration::from_millis(500)));
    let mut engine = Command::new(crate::home::freezer("").program);
    engine
        .arg("pause")
        .arg(home.journals())
        .args(["20000", "docker=box"]);
    let mut engine = engine.env("DOCKER_HOST", daemon.host()).spawn().unwrap();
    let asked = |what: &str| daemon.asked().iter().any(|asked| asked.ends_with(what));
    assert!(is_soon(|| asked("/pause"), LONG));

    engine.kill().unwrap();
    engine.wait().unwrap();

    let gone = || daemon.was_paused() && !home.has_journal();
    assert!(is_soon(gone, Duration::from_secs(5)));
    assert!(daemon.runs());
}

#[tokio::test]
async fn a_container_of_a_daemon_that_is_absent_hangs_or_does_not_know_it_is_unknown() {
    let home = Home::new();
    let service = |host: String, container: &str| {
        let handling = Handling::Docker {
            docker: Docker::at(host),
            container: container.to_owned(),
        };
        home.handled("box", handling)
    };
    let why = |status: Status| match status {
        Status::Unknown(why) => why,
        other => panic!("{other:?}"),
    };
    let nowhere = format!("unix://{}", home.path("none").display());
    let absent = service(nowhere, "box");
    let hung = FakeDocker::hung();

    let absent_because = why(absent.status().await);
    let hung_because = why(service(hung.host(), "box").status().await);
    let strange = why(service("ssh://far".to_owned(), "box").status().await);

    assert!(absent_because.contains("none`: "), "{absent_because}");
    assert!(
        hung_because.contains("no answer within 5s"),
        "{hung_because}"
    );
    assert!(strange.contains("only unix:// and tcp://"), "{strange}");
    let refused = Paused::hold(&[&absent], &home.settings(LONG)).unwrap_err();
    assert!(matches!(refused, ServiceError::Unclear { .. }));
}
