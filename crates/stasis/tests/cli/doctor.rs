//! What `stasis doctor` looks at besides the store.

use crate::session::{Session, said};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What the doctor finds in a directory, with only these programs on the PATH.
fn found(session: &Session, here: &Path, programs: &Path) -> Vec<Value> {
    let mut doctor = session.command(&["--json", "doctor"]);
    doctor.env("HOME", session.home()).env("PATH", programs);
    let said = said(doctor.current_dir(here).output().unwrap());
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let found: Value = serde_json::from_str(&said.out).unwrap();
    found["items"].as_array().unwrap().clone()
}

fn named<'a>(found: &'a [Value], name: &str) -> &'a Value {
    let one = found.iter().find(|one| one["name"] == name);
    one.unwrap_or_else(|| panic!("no {name} in {found:#?}"))
}

#[test]
fn agents_without_hooks_are_named_with_the_command_that_installs_them() {
    let session = Session::new();
    let programs = session.home().join("programs");
    fs::create_dir(&programs).unwrap();

    let none = found(&session, session.home(), &programs);
    let claude = programs.join("claude");
    // Whoever started it would wait.
    fs::write(&claude, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    let without = found(&session, session.home(), &programs);
    let mut install = session.command(&["hook", "install", "claude-code", "--yes"]);
    install
        .env("HOME", session.home())
        .current_dir(session.home());
    assert!(install.output().unwrap().status.success());
    let with = found(&session, session.home(), &programs);

    assert_eq!(named(&none, "coding agents")["health"], "missing");
    let hook = named(&without, "hook claude-code");
    assert_eq!(hook["health"], "missing");
    let detail = hook["detail"].as_str().unwrap();
    assert!(
        detail.ends_with("try: stasis hook install claude-code"),
        "{detail}"
    );
    assert!(without.iter().all(|one| one["name"] != "hook codex"));
    let detail = named(&with, "hook claude-code")["detail"].as_str().unwrap();
    assert!(detail.contains("stasis hook test claude-code"), "{detail}");
}

#[test]
fn filesystems_watches_and_the_workspace_that_one_stands_in_are_looked_at() {
    let session = Session::new();
    let app = session.home().join("app");
    fs::create_dir(&app).unwrap();
    let path = session.home();

    let before = found(&session, &app, path);
    session.data(0, &["workspace", "init", app.to_str().unwrap()]);
    let after = found(&session, &app, path);

    for name in ["store", "reflinks", "inotify watches"] {
        named(&before, name);
    }
    // Store and directory lie on one filesystem, of which one row says everything.
    let mut names: Vec<String> = before.iter().map(|one| one["name"].to_string()).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "{before:#?}");
    assert!(
        !names.iter().any(|name| name.contains("(here)")),
        "{names:?}"
    );
    let bound = named(&before, "confinement");
    assert!(
        bound["detail"].as_str().unwrap().contains("seccomp"),
        "{bound}"
    );
    // No program that mounts for users is on that PATH.
    let fuse = named(&before, "fuse");
    assert_eq!(fuse["health"], "missing", "{fuse}");
    assert!(fuse["costs"].to_string().contains("stasis mount"), "{fuse}");
    assert!(before.iter().all(|one| one["name"] != "budget"));
    assert_eq!(named(&after, "budget")["health"], "ok");
    assert_eq!(named(&after, "watcher")["health"], "missing");
}

#[test]
fn a_store_that_cannot_be_reached_fails_the_whole_visit() {
    let session = Session::on("s3://bucket/a?endpoint=http://127.0.0.1:1&region=here");

    let findings = session.json(1, &["doctor"]);

    let findings = findings["items"].as_array().unwrap();
    assert_eq!(named(findings, "store")["health"], "broken");
}

#[test]
fn what_the_doctor_says_of_secrets_is_so() {
    let session = Session::new();
    let app = session.home().join("app");
    fs::create_dir(&app).unwrap();
    fs::write(app.join(".env"), "TOKEN=made-up").unwrap();
    fs::write(app.join("main.rs"), "fn main() {}").unwrap();
    let dir = app.to_str().unwrap();

    let notes = found(&session, &app, session.home());
    session.data(0, &["save", dir]);
    let kept = session.data(0, &["cat", dir, "latest", ".env"]);
    session.data(0, &["save", dir, "--exclude", ".env"]);
    let left_out = session.run(&["cat", dir, "latest", ".env"]);

    for name in ["secrets", "session directory"] {
        assert_eq!(named(&notes, name)["health"], "note");
    }
    assert_eq!(kept, "TOKEN=made-up");
    assert_eq!(left_out.code, 3, "{}", left_out.out);
}
