//! `stasis container`, with a real Docker engine.

use crate::session::Session;
use serde_json::Value;
use stasis_testkit::docker::{Dockerd, IMAGE};
use stasis_testkit::fake_docker::FakeDocker;
use std::ffi::OsStr;
use std::process::Output;
use std::time::{Duration, Instant};

/// What a command of `stasis container` answers, with an engine.
fn ask(session: &Session, host: impl AsRef<OsStr>, words: &[&str]) -> Output {
    let words = [&["--json", "container"], words].concat();
    let mut command = session.command(&words);
    command.env("DOCKER_HOST", host).output().unwrap()
}

fn answer(output: &Output) -> Value {
    let text = if output.stdout.is_empty() {
        &output.stderr
    } else {
        &output.stdout
    };
    serde_json::from_slice(text).unwrap()
}

/// The mounts of an answer, by the place where they are.
fn mount<'a>(answer: &'a Value, place: &str) -> &'a Value {
    let mut mounts = answer["mounts"].as_array().unwrap().iter();
    mounts.find(|one| one["destination"] == place).unwrap()
}

/// A container with a volume, one that nobody named, a directory of the host, and memory; its id.
fn start_web(daemon: &Dockerd, session: &Session) -> String {
    let bound = session.home().join("bound");
    std::fs::create_dir_all(&bound).unwrap();
    std::fs::write(bound.join("a"), "12345").unwrap();
    let bind = format!("{}:/bound", bound.display());
    let run = ["run", "-d", "--network", "none", "--name", "web"];
    let mounts = ["-v", "data:/data", "-v", "/cache", "-v", &bind];
    let script = ["/bin/sh", "-c", "echo hello > /data/x; sleep 1000"];
    let words = [&run[..], &mounts, &["--tmpfs", "/scratch", IMAGE], &script];
    let id = daemon.must(&words.concat());
    let written = ["exec", "web", "/bin/test", "-s", "/data/x"];
    for _ in 0..200 {
        if daemon.docker(&written).status.success() {
            return id.trim().to_owned();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the container has written nothing");
}

/// What of a container would not be saved, and why.
fn left_out(answer: &Value) -> Vec<(&str, &str)> {
    let all = answer["not_captured"].as_array().unwrap().iter();
    all.map(|one| {
        let what = one["what"].as_str().unwrap();
        (what, one["because"].as_str().unwrap())
    })
    .collect()
}

#[test]
fn what_a_snapshot_of_a_container_would_have_is_said_before_there_is_one() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let session = Session::new();
    let id = start_web(&daemon, &session);

    let all = ask(&session, daemon.host(), &["validate", "web"]);
    let found = answer(&all);

    assert_eq!(all.status.code(), Some(0), "{found}");
    assert_eq!(found["is_valid"], true);
    assert_eq!(found["status"], "running");
    assert_eq!(found["container_id"], id);
    let volume = mount(&found, "/data");
    assert_eq!(volume["kind"], "named_volume");
    assert_eq!(volume["travels"], true);
    assert_eq!(volume["bytes"], 6);
    let bind = mount(&found, "/bound");
    assert_eq!(bind["travels"], false);
    assert_eq!(bind["bytes"], 5);
    let wanted = [
        ("/bound", "bind"),
        ("/cache", "anonymous"),
        ("/scratch", "memory"),
        ("/proc", "kernel"),
        ("/sys", "kernel"),
        ("/dev", "kernel"),
        ("processes", "memory"),
    ];
    assert_eq!(left_out(&found), wanted);

    // By its short id, with what saves the rest.
    let short = id.get(..12).unwrap();
    let wishes = ["validate", short, "--bind", "/bound", "--anonymous"];
    let more = answer(&ask(&session, daemon.host(), &wishes));
    assert_eq!(mount(&more, "/bound")["travels"], true);
    assert_eq!(mount(&more, "/cache")["travels"], true);
    for (more, says) in [
        (vec!["--strict"], "`/bound` would not be saved"),
        (vec!["--bind", "/data"], "nothing of the host is bound"),
    ] {
        let words = [&["validate", "web"], &more[..]].concat();
        let refused = ask(&session, daemon.host(), &words);
        assert_eq!(refused.status.code(), Some(1));
        let said = answer(&refused)["refused"].to_string();
        assert!(said.contains(says), "{said}");
    }
    let absent = ask(&session, daemon.host(), &["validate", "nobody"]);
    assert_eq!(absent.status.code(), Some(3));
}

#[test]
fn an_engine_that_does_not_answer_or_is_not_there_holds_nobody_up() {
    let session = Session::new();
    let hung = FakeDocker::hung();
    let began = Instant::now();

    for host in [
        hung.host(),
        format!("unix://{}/none.sock", session.home().display()),
    ] {
        let output = ask(&session, &host, &["validate", "web"]);
        let error = answer(&output)["error"].clone();
        assert_eq!(error["kind"], "unreachable", "{error}");
        assert!(error["hint"].as_str().is_some_and(|hint| !hint.is_empty()));
    }

    assert!(began.elapsed() < Duration::from_secs(40));
}
