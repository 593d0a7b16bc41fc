//! Services are held still, and run again whatever happens.

use crate::home::{Home, LONG, is_soon, is_stopped, pid_of};
use rustix::process::Signal;
use stasis_quiesce::freeze::thaw_abandoned;
use stasis_quiesce::pause::Paused;
use stasis_quiesce::process::Process;
use stasis_quiesce::service::{Service, ServiceError, Status};
use std::fs;
use std::time::Duration;
use tokio::time::Instant;

fn busy(home: &Home, name: &str) -> Service {
    home.service(
        name,
        &format!("(while :; do echo x >> {name}; sleep 0.005; done) & wait"),
    )
}

#[tokio::test]
async fn services_stand_still_together_and_run_again() {
    let home = Home::new();
    let [one, two, idle] = ["one", "two", "idle"].map(|name| busy(&home, name));
    one.start(LONG).await.unwrap();
    two.start(LONG).await.unwrap();
    assert!(home.grows("one") && home.grows("two"));

    let paused = Paused::hold(&[&one, &two, &idle], &home.settings(LONG)).unwrap();

    assert!(home.rests("one") && home.rests("two"));
    assert_eq!(one.status().await, Status::Paused);
    assert!(!paused.has_expired() && paused.pids().len() >= 4);
    let resumed = paused.resume().unwrap();
    assert!(resumed.held(), "{resumed:?}");
    assert!(home.grows("one") && home.grows("two"));
    assert!(!home.has_journal());
    assert_eq!(idle.status().await, Status::Stopped);
}

#[tokio::test]
async fn at_the_deadline_services_run_again_and_the_hold_says_so() {
    let home = Home::new();
    let service = busy(&home, "one");
    service.start(LONG).await.unwrap();
    assert!(home.grows("one"));

    let paused = Paused::hold(&[&service], &home.settings(Duration::from_millis(300))).unwrap();

    assert!(is_soon(|| paused.has_expired(), Duration::from_secs(1)));
    assert!(home.grows("one"));
    let resumed = paused.resume().unwrap();
    assert!(resumed.expired && !resumed.held());
}

#[tokio::test]
async fn when_the_engine_is_killed_the_services_it_started_run_again_and_were_not_ended() {
    let home = Home::new();
    let record = home.path("own");
    let service = home.service("own", "");
    let mut engine = home.paused_by_another(LONG, &[format!("start={}", record.display())]);
    let text = fs::read_to_string(&record).unwrap();
    fs::write(home.path("own.record"), text).unwrap();
    let stopped = home.rests("own.out") && service.status().await == Status::Paused;

    engine.kill();
    let killed = Instant::now();

    assert!(stopped);
    assert!(home.grows("own.out"), "{:?}", service.status().await);
    assert!(killed.elapsed() < Duration::from_secs(2));
    assert!(is_soon(|| !home.has_journal(), Duration::from_secs(2)));
    service.stop(LONG).await.unwrap();
}

#[tokio::test]
async fn when_the_watchdog_is_killed_too_the_next_start_lets_services_run_again() {
    let home = Home::new();
    let service = busy(&home, "one");
    let pid = service.start(LONG).await.unwrap();
    assert!(home.grows("one"));
    let record = home.path("one.record");
    let mut engine = home.paused_by_another(LONG, &[format!("record={}", record.display())]);
    engine.watchdog().signal(Signal::KILL).unwrap();
    engine.kill();
    assert!(home.rests("one"));

    let abandoned = thaw_abandoned(&home.journals()).unwrap();

    assert!(abandoned.thawed.contains(&pid));
    assert!(home.grows("one"));
}

#[tokio::test]
async fn a_service_that_ends_or_begins_during_the_hold_makes_it_worthless() {
    let home = Home::new();
    let [dies, begins] = ["dies", "begins"].map(|name| busy(&home, name));
    let pid = dies.start(LONG).await.unwrap();
    assert!(home.grows("dies"));
    let paused = Paused::hold(&[&dies, &begins], &home.settings(LONG)).unwrap();

    let process = Process::open(pid).unwrap().unwrap();
    process.signal(Signal::KILL).unwrap();
    assert!(is_soon(|| !process.is_running(), LONG));
    begins.start(LONG).await.unwrap();
    let resumed = paused.resume().unwrap();

    assert_eq!(resumed.changed, ["dies", "begins"]);
    assert!(!resumed.held());
    assert!(home.grows("dies"), "what it had started runs again");
    assert!(!home.has_journal());
}

#[tokio::test]
async fn a_service_that_somebody_else_stopped_is_refused_and_stays_stopped() {
    let home = Home::new();
    let [one, theirs] = ["one", "theirs"].map(|name| busy(&home, name));
    one.start(LONG).await.unwrap();
    let pid = theirs.start(LONG).await.unwrap();
    let process = Process::open(pid).unwrap().unwrap();
    process.signal(Signal::STOP).unwrap();
    assert!(is_soon(|| is_stopped(pid), LONG));

    let refused = Paused::hold(&[&one, &theirs], &home.settings(LONG)).unwrap_err();

    assert!(matches!(refused, ServiceError::AlreadyPaused { service } if service == "theirs"));
    assert!(is_stopped(pid));
    assert!(home.grows("one") && !home.has_journal());
    assert_eq!(theirs.status().await, Status::Paused);
    assert!(theirs.start(LONG).await.is_err());
    theirs.stop(LONG).await.unwrap();
}

#[tokio::test]
async fn where_no_service_runs_there_is_nothing_to_hold() {
    let home = Home::new();
    let service = busy(&home, "one");

    let paused = Paused::hold(&[&service], &home.settings(LONG)).unwrap();

    assert!(!home.has_journal() && !paused.has_expired());
    assert!(paused.resume().unwrap().held());
    let paused = Paused::hold(&[&service], &home.settings(LONG)).unwrap();
    service.start(LONG).await.unwrap();
    assert!(!paused.resume().unwrap().held(), "it began meanwhile");
    assert!(pid_of(&service).await > 0);
}
