//! `stasis clone`

use crate::session::{STASIS, Said, Session, said};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A tree whose clone takes long enough to be interrupted.
fn slow_tree(session: &Session) -> (PathBuf, PathBuf) {
    let source = session.home().join("work/source");
    for directory in 0..50 {
        let directory = source.join(format!("d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..20 {
            fs::write(directory.join(format!("f{file}")), "some bytes").unwrap();
        }
    }
    (source, session.home().join("work/target"))
}

/// Starts a clone and waits until it has begun to build.
fn begun(session: &Session, source: &Path, target: &Path) -> Child {
    let child = session
        .command(&["clone", text(source), text(target)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let staging = target.with_file_name(format!(".target.stasis-tmp-{}", child.id()));
    while fs::read_dir(&staging).map_or(0, Iterator::count) == 0 {
        if target.exists() {
            break;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    child
}

#[test]
fn a_clone_says_what_it_made_and_what_it_left_out() {
    let session = Session::new();
    let (source, target) = (session.home().join("source"), session.home().join("target"));
    fs::create_dir_all(source.join("node_modules/x")).unwrap();
    fs::write(source.join("file"), "ten bytes.").unwrap();
    fs::write(source.join("odd\nname"), "1").unwrap();
    std::os::unix::fs::symlink("/nowhere", source.join("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(source.join("so\ncket")).unwrap();
    let arguments = [
        "clone",
        text(&source),
        text(&target),
        "--exclude",
        "node_modules/",
    ];

    let told = session.json(0, &arguments);

    assert_eq!((&told["files"], &told["symlinks"]), (&json!(2), &json!(1)));
    assert_eq!((&told["bytes"], &told["excluded"]), (&json!(11), &json!(1)));
    let carried = told["bytes_shared"].as_u64().unwrap() + told["bytes_copied"].as_u64().unwrap();
    assert_eq!(carried, 11);
    let left_out = json!([{ "path": "so\\x0acket", "reason": "socket" }]);
    assert_eq!(
        (&told["left_out"], &told["skipped"]),
        (&left_out, &json!(1))
    );
    assert!(told["peak_memory_bytes"].as_u64().unwrap() > 0);
    assert!(told["elapsed_ms"].is_u64());
    assert_eq!(names(&target), ["file", "link", "odd\nname"]);
    assert_eq!(
        names(session.home()),
        ["source", "target"],
        "no store is made"
    );
}

#[test]
fn a_clone_onto_something_or_into_itself_is_refused_with_a_hint() {
    let session = Session::new();
    let (source, target) = (session.home().join("source"), session.home().join("target"));
    fs::create_dir(&source).unwrap();
    fs::write(&target, "mine").unwrap();

    let taken = session.run(&["clone", text(&source), text(&target)]);
    let inside = session.run(&["clone", text(&source), text(&source.join("x"))]);
    let absent = session.run(&["clone", text(&session.home().join("no")), text(&target)]);

    assert_eq!((taken.code, inside.code, absent.code), (2, 2, 3));
    assert!(
        taken.err.contains("exists already\nhint: "),
        "{}",
        taken.err
    );
    assert!(
        inside
            .err
            .starts_with("error: source and destination overlap\nhint: "),
        "{}",
        inside.err
    );
    assert_eq!(fs::read(&target).unwrap(), b"mine");
}

/// Sends a signal to a clone that has begun to build; again, should the clone have been faster than we.
fn signalled(session: &Session, source: &Path, target: &Path, signal: Signal) -> Said {
    for _ in 0..20 {
        let child = begun(session, source, target);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let stopped = said(child.wait_with_output().unwrap());
        if stopped.code != 0 {
            return stopped;
        }
        fs::remove_dir_all(target).unwrap();
    }
    panic!("no signal ever came in time");
}

#[test]
fn an_interrupted_clone_leaves_nothing() {
    let session = Session::new();
    let (source, target) = slow_tree(&session);

    let stopped = signalled(&session, &source, &target, Signal::INT);

    assert_eq!(stopped.code, 130, "{}", stopped.err);
    assert_eq!(names(target.parent().unwrap()), ["source"]);
}

#[test]
fn a_killed_clone_leaves_only_a_temporary_tree_and_the_next_one_succeeds() {
    let session = Session::new();
    let (source, target) = slow_tree(&session);

    signalled(&session, &source, &target, Signal::KILL);
    let left = names(target.parent().unwrap());
    let told = session.json(0, &["clone", text(&source), text(&target)]);

    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left[0].starts_with(".target.stasis-tmp-"), "{left:?}");
    assert_eq!(
        (&told["files"], &told["directories"]),
        (&json!(1_000), &json!(50))
    );
}

#[test]
fn what_may_not_be_read_is_reported_and_fails_a_strict_clone() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become somebody who may read less");
        return;
    }
    let session = Session::new();
    let open =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(session.home(), 0o777);
    let source = session.home().join("source");
    fs::create_dir_all(source.join("closed")).unwrap();
    fs::write(source.join("secret"), "root's").unwrap();
    fs::write(source.join("public"), "everybody's").unwrap();
    open(&source.join("secret"), 0o600);
    open(&source.join("closed"), 0o700);
    let program = session.home().join("stasis");
    fs::copy(STASIS, &program).unwrap();
    let as_nobody = |target: &str, more: &[&str]| {
        let target = session.home().join(target);
        let mut command = Command::new(&program);
        command
            .args(["--json", "clone"])
            .args([&source, &target])
            .args(more);
        command.env_clear().uid(65_534).gid(65_534);
        said(command.output().unwrap())
    };

    let told = as_nobody("lenient", &[]);
    let refused = as_nobody("strict", &["--strict"]);

    assert_eq!(told.code, 0, "{}{}", told.out, told.err);
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    let unreadable = |path: &str| json!({ "path": path, "reason": "unreadable" });
    assert_eq!(
        told["left_out"],
        json!([unreadable("closed"), unreadable("secret")])
    );
    assert_eq!(
        (&told["files"], &told["owners_not_kept"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(refused.code, 8, "{}", refused.out);
    let why = "would be skipped (permission denied), and everything was asked for";
    let said = format!("{}{}", refused.out, refused.err);
    assert!(said.contains(why), "{said}");
    assert!(
        !names(session.home())
            .iter()
            .any(|name| name.contains("strict"))
    );
}
