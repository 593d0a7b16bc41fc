//! Services are started, found, checked and stopped.

use crate::home::{Home, LONG, is_soon, pid_of};
use rustix::process::Signal;
use stasis_quiesce::invocation::Invocation;
use stasis_quiesce::process::{Process, ProcessInfo};
use stasis_quiesce::service::{
    Handling, HealthCheck, Probe, Service, ServiceError, ServiceStopped, Status,
};
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

const BRIEF: Duration = Duration::from_millis(300);

fn pid_file(home: &Home, start: Option<Invocation>, stop: Option<Invocation>) -> Service {
    let path = home.path("pid");
    home.handled("daemon", Handling::PidFile { path, start, stop })
}

#[tokio::test]
async fn a_command_is_started_in_a_session_of_its_own_found_again_and_stopped() {
    let home = Home::new();
    let service = home.service("web", "echo hello; echo oops >&2; pwd; exec sleep 60");
    assert_eq!(service.status().await, Status::Stopped);

    let pid = service.start(LONG).await.unwrap();

    let row = ProcessInfo::read(pid).unwrap();
    assert_eq!((row.group, row.session), (pid, pid));
    assert_eq!(pid_of(&service.clone()).await, pid);
    assert_eq!(service.start(LONG).await.unwrap(), pid, "it runs already");
    let said = || fs::read_to_string(&service.log).unwrap();
    assert!(is_soon(|| said().lines().count() == 3, LONG), "{}", said());
    assert!(said().starts_with("hello\noops\n/"));
    assert_eq!(service.stop(LONG).await.unwrap(), ServiceStopped::Asked);
    assert_eq!(service.status().await, Status::Stopped);
    assert!(!home.path("web.record").exists());
    assert_eq!(
        service.stop(LONG).await.unwrap(),
        ServiceStopped::NotRunning
    );
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_told_and_leaves_no_record() {
    let home = Home::new();
    let handling = Handling::Command {
        start: Invocation::words(["no-such-program"]),
        stop: None,
        record: home.path("record"),
    };

    let refused = home.handled("web", handling).start(LONG).await;

    let Err(ServiceError::Run {
        program, source, ..
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(program, "no-such-program");
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    assert!(!home.path("record").exists());
}

#[tokio::test]
async fn a_service_that_ignores_the_question_is_killed_with_all_it_started() {
    let home = Home::new();
    let script = "trap '' TERM; sleep 60 & echo $! > child; setsid sleep 60 & echo ready > ready; while :; do wait; done";
    let service = home.service("deaf", script);
    service.start(LONG).await.unwrap();
    let child = home.process("child");
    assert!(is_soon(|| home.path("ready").exists(), LONG));

    let stopped = service.stop(BRIEF).await.unwrap();

    assert_eq!(stopped, ServiceStopped::Killed);
    assert!(!child.is_running());
    assert_eq!(service.status().await, Status::Stopped);
}

#[tokio::test]
async fn its_own_command_stops_it_and_what_that_does_not_stop_is_killed() {
    let home = Home::new();
    let mut service = home.service("own", "trap '' TERM; until [ -e end ]; do sleep 0.02; done");
    let Handling::Command { stop, .. } = &mut service.handling else {
        unreachable!();
    };
    let mut touch = Invocation::words(["touch", "end"]);
    touch.directory = Some(home.path(""));
    *stop = Some(touch);
    service.start(LONG).await.unwrap();
    assert_eq!(service.stop(LONG).await.unwrap(), ServiceStopped::Asked);

    fs::remove_file(home.path("end")).unwrap();
    let Handling::Command { stop, .. } = &mut service.handling else {
        unreachable!();
    };
    *stop = Some(Invocation::words(["false"]));
    service.start(LONG).await.unwrap();
    assert_eq!(service.stop(BRIEF).await.unwrap(), ServiceStopped::Killed);
}

#[tokio::test]
async fn a_number_that_is_used_again_is_not_taken_for_the_service() {
    let home = Home::new();
    let service = home.service("web", "exec sleep 60");
    let pid = service.start(LONG).await.unwrap();
    let record = home.path("web.record");
    let text = fs::read_to_string(&record).unwrap();
    let started = ProcessInfo::read(pid).unwrap().identity.started();
    let before = format!("{pid} {}\n", started - 1);

    let other = text.replace(&format!("{pid} {started}\n"), &before);
    assert_ne!(other, text);
    fs::write(&record, other).unwrap();

    assert_eq!(service.status().await, Status::Stopped);
    assert_eq!(
        service.stop(LONG).await.unwrap(),
        ServiceStopped::NotRunning
    );
    let stranger = Process::open(pid).unwrap().unwrap();
    assert!(stranger.is_running(), "the stranger was not touched");
    fs::write(&record, text.replace(&pid.to_string(), "x")).unwrap();
    assert!(matches!(service.status().await, Status::Unknown(_)));
    stranger.signal(Signal::KILL).unwrap();
}

#[tokio::test]
async fn what_outlives_the_first_process_of_a_service_is_told() {
    let home = Home::new();
    let service = home.service(
        "web",
        "sleep 60 & echo $! > child; until [ -e end ]; do sleep 0.02; done",
    );
    let first = service.start(LONG).await.unwrap();
    let child = home.process("child");
    fs::write(home.path("end"), "").unwrap();
    let first = Process::open(first).unwrap();
    assert!(is_soon(
        || first.as_ref().is_none_or(|first| !first.is_running()),
        LONG
    ));

    let refused = service.start(LONG).await;

    assert!(
        matches!(refused, Err(ServiceError::Unclear { .. })),
        "{refused:?}"
    );
    let Status::Unknown(why) = service.status().await else {
        panic!("somebody is left");
    };
    assert!(why.contains(&child.pid().to_string()), "{why}");
    child.signal(Signal::KILL).unwrap();
    assert!(is_soon(|| !child.is_running(), LONG));
    assert_eq!(service.status().await, Status::Stopped);
}

#[tokio::test]
async fn a_service_that_writes_its_number_into_a_file_is_found_by_it() {
    let home = Home::new();
    let script = "sleep 60 & echo $! > pid";
    let mut start = Invocation::shell(script);
    start.directory = Some(home.path(""));
    let service = pid_file(&home, Some(start), None);
    assert_eq!(service.status().await, Status::Stopped);

    let pid = service.start(LONG).await.unwrap();

    assert_eq!(pid, home.process("pid").pid());
    assert_eq!(service.stop(LONG).await.unwrap(), ServiceStopped::Asked);
    assert_eq!(
        service.status().await,
        Status::Stopped,
        "its file names nobody"
    );
}

#[tokio::test]
async fn a_file_that_was_written_before_the_process_began_names_a_stranger() {
    let home = Home::new();
    let stranger = home.service("stranger", "exec sleep 60");
    let pid = stranger.start(LONG).await.unwrap();
    fs::write(home.path("pid"), format!("{pid}\n")).unwrap();
    let service = pid_file(&home, None, None);
    assert_eq!(pid_of(&service).await, pid);

    let file = fs::File::options()
        .write(true)
        .open(home.path("pid"))
        .unwrap();
    let written = file.metadata().unwrap().modified().unwrap();
    file.set_modified(written - Duration::from_mins(1)).unwrap();

    assert!(matches!(service.status().await, Status::Unknown(_)));
    let refused = service.stop(LONG).await;
    assert!(
        matches!(refused, Err(ServiceError::Unclear { .. })),
        "{refused:?}"
    );
    assert_eq!(pid_of(&stranger).await, pid);
    fs::write(home.path("pid"), "nonsense").unwrap();
    assert!(matches!(service.status().await, Status::Unknown(_)));
    fs::remove_file(home.path("pid")).unwrap();
    let nobody = service.start(LONG).await;
    assert!(matches!(nobody, Err(ServiceError::NoCommand { .. })));
}

#[tokio::test]
async fn a_start_that_fails_or_does_not_return_is_told() {
    let home = Home::new();
    let failing = pid_file(&home, Some(Invocation::shell("echo no; exit 3")), None);
    let hanging = pid_file(&home, Some(Invocation::shell("sleep 60")), None);
    let silent = pid_file(&home, Some(Invocation::words(["true"])), None);

    let failed = failing.start(LONG).await;
    let hung = hanging.start(BRIEF).await;
    let late = silent.start(BRIEF).await;

    assert!(
        matches!(&failed, Err(ServiceError::CommandFailed { why, .. }) if why.contains('3')),
        "{failed:?}"
    );
    assert!(
        matches!(hung, Err(ServiceError::CommandFailed { .. })),
        "{hung:?}"
    );
    assert!(matches!(late, Err(ServiceError::Late { .. })), "{late:?}");
}

fn quick(probe: Probe) -> HealthCheck {
    HealthCheck {
        interval: Duration::from_millis(20),
        total_timeout: Duration::from_secs(5),
        ..HealthCheck::new(probe)
    }
}

#[tokio::test]
async fn a_check_is_tried_until_it_succeeds_or_its_time_is_over() {
    let home = Home::new();
    let service = home.service("web", "sleep 0.3; echo > ready; exec sleep 60");
    service.start(LONG).await.unwrap();
    let file = home.path("ready").display().to_string();
    let there = quick(Probe::Command(Invocation::words(["test", "-e", &file])));
    let never = HealthCheck {
        total_timeout: Duration::from_secs(2),
        ..quick(Probe::Command(Invocation::shell("echo sick >&2; false")))
    };

    let healthy = service.health(&there).await.unwrap();
    let sick = service.health(&never).await;

    assert!(healthy.attempts > 1, "{healthy:?}");
    let Err(ServiceError::Unhealthy { last, .. }) = sick else {
        panic!("{sick:?}");
    };
    assert!(last.contains("sick"), "{last}");
    service.stop(LONG).await.unwrap();
    let ended = service.health(&there).await;
    assert!(matches!(ended, Err(ServiceError::NotRunning { .. })));
}

#[tokio::test]
async fn a_port_or_a_socket_that_accepts_is_healthy() {
    let home = Home::new();
    let service = home.service("web", "exec sleep 60");
    service.start(LONG).await.unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap().to_string();
    let socket = home.path("socket");
    let listens = UnixListener::bind(&socket).unwrap();
    let tcp = quick(Probe::Tcp(address));
    let unix = quick(Probe::Unix(socket));

    assert_eq!(service.health(&tcp).await.unwrap().attempts, 1);
    assert_eq!(service.health(&unix).await.unwrap().attempts, 1);
    drop((port, listens));
    for check in [tcp, unix] {
        let check = HealthCheck {
            total_timeout: BRIEF,
            ..check
        };
        let refused = service.health(&check).await;
        assert!(matches!(refused, Err(ServiceError::Unhealthy { .. })));
    }
}

#[tokio::test]
async fn a_file_that_names_whoever_started_us_stops_nobody() {
    let home = Home::new();
    let service = pid_file(&home, None, None);
    for pid in [std::process::id(), std::os::unix::process::parent_id(), 1] {
        fs::write(home.path("pid"), format!("{pid}\n")).unwrap();

        let refused = service.stop(LONG).await;

        assert!(
            matches!(refused, Err(ServiceError::Unclear { .. })),
            "{refused:?}"
        );
    }
}
