//! How much is said, in which colour, and what the program is.

use crate::session::{STASIS, Said, Session, said};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A directory with a file that cannot be read, which a save warns of.
fn notes(session: &Session) -> String {
    let dir = session.home().join("notes");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("plan.txt"), "buy milk").unwrap();
    dir.to_str().unwrap().to_owned()
}

#[test]
fn quiet_leaves_errors_and_data_and_verbose_says_what_is_done() {
    let session = Session::new();
    let dir = notes(&session);
    let store = session.home().join("data/stasis/store");
    let store = format!("store: file://{}\n", store.display());
    session.data(0, &["workspace", "init", &dir]);

    let plain = session.run(&["workspace", "status", "--workspace", &dir]);
    let quiet = session.run(&["-q", "workspace", "status", "--workspace", &dir]);
    let saved = session.run(&["save", &dir, "-v"]);
    let as_json = session.run(&["--json", "save", &dir, "--allow-empty", "--verbose"]);
    let failed = session.run(&["--quiet", "log", "dir:nothing"]);
    let both = session.run(&["-q", "-v", "list"]);

    assert!(plain.err.contains("warning: no watcher"), "{}", plain.err);
    assert_eq!(quiet.err, "");
    assert_eq!(quiet.out, plain.out);
    assert!(
        saved.err.starts_with(&store) && saved.err.contains("\ntook "),
        "{}",
        saved.err
    );
    assert!(as_json.err.starts_with(&store), "{}", as_json.err);
    serde_json::from_str::<serde_json::Value>(&as_json.out).unwrap();
    assert!(
        failed.code == 3 && failed.err.starts_with("error: "),
        "{}",
        failed.err
    );
    assert!(failed.err.contains("\nhint: "), "{}", failed.err);
    assert_eq!(both.code, 2, "{}", both.err);
}

#[test]
fn a_password_in_a_store_is_not_repeated_by_verbose() {
    let session = Session::new();
    let store = "s3://bucket/a?endpoint=http://user:secret@127.0.0.1:1&region=here";

    let said = session.run(&["-v", "--store", store, "list"]);

    assert_ne!(said.code, 0);
    assert!(
        !said.err.contains("secret") && !said.out.contains("secret"),
        "{}",
        said.err
    );
}

/// Runs a command at a terminal, as `script` makes one.
fn at_terminal(session: &Session, line: &str, variable: Option<(&str, &str)>) -> Option<Said> {
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped: script is not installed");
        return None;
    }
    let mut script = Command::new("script");
    script.env_clear();
    for (name, value) in session.command(&[]).get_envs() {
        script.envs(value.map(|value| (name, value)));
    }
    script.env("TERM", "xterm").envs(variable);
    script.args(["-qec", &format!("{STASIS} {line}"), "/dev/null"]);
    Some(said(script.output().unwrap()))
}

#[test]
fn colour_is_for_terminals_and_for_whoever_asks() {
    const ESCAPE: char = '\u{1b}';
    let session = Session::new();
    let dir = notes(&session);
    session.data(0, &["save", &dir]);
    let log = format!("log {dir}");

    let piped = session.run(&["log", &dir]);
    let always = session.run(&["log", &dir, "--color", "always"]);
    let refused = session.run(&["log", "dir:nothing", "--color=always"]);
    let help = session.run(&["save", "--help"]);
    let bright = session.run(&["save", "--help", "--color", "always"]);
    let as_json = session.run(&["--json", "log", &dir, "--color", "always"]);

    assert!(!piped.out.contains(ESCAPE), "{}", piped.out);
    assert!(
        always.out.starts_with("\u{1b}[1mSNAPSHOT"),
        "{}",
        always.out
    );
    assert!(
        refused.err.starts_with("\u{1b}[1m\u{1b}[31merror:"),
        "{}",
        refused.err
    );
    assert!(!help.out.contains(ESCAPE), "{}", help.out);
    assert!(bright.out.contains(ESCAPE), "{}", bright.out);
    assert!(!as_json.out.contains(ESCAPE), "{}", as_json.out);
    let seen = |line: &str, variable| at_terminal(&session, line, variable);
    let Some(terminal) = seen(&log, None) else {
        return;
    };
    assert!(
        terminal.out.contains("\u{1b}[1mSNAPSHOT"),
        "{}",
        terminal.out
    );
    let without = [
        seen(&log, Some(("NO_COLOR", "1"))),
        seen(&log, Some(("TERM", "dumb"))),
        seen(&format!("{log} --color never"), None),
        seen("--color never --help", None),
    ];
    for seen in without.into_iter().flatten() {
        assert!(!seen.out.contains(ESCAPE), "{}", seen.out);
    }
}

#[test]
fn the_version_is_one_line_or_all_there_is_to_know() {
    let session = Session::new();

    let short = session.data(0, &["-V"]);
    let long = session.data(0, &["--version"]);

    let lines: Vec<&str> = long.lines().collect();
    assert_eq!(lines[0], short);
    assert!(
        short.starts_with(&format!("stasis {}", env!("CARGO_PKG_VERSION"))),
        "{short}"
    );
    assert!(lines[1].starts_with("features: "), "{long}");
    assert!(
        lines[2].starts_with("target: ") && lines.len() == 3,
        "{long}"
    );
}

fn git(dir: &Path, arguments: &[&str]) {
    let mut git = Command::new("git");
    let names = ["-c", "user.name=a", "-c", "user.email=a@b"];
    git.arg("-C").arg(dir).args(names).args(arguments);
    let date = "2026-11-17T10:00:00+0000";
    git.env("GIT_AUTHOR_DATE", date)
        .env("GIT_COMMITTER_DATE", date);
    let output = git.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The build script by itself: in a checkout, in a tarball, and in a tarball in somebody else's repository.
#[test]
fn the_commit_is_that_of_our_own_checkout_or_is_left_out() {
    let home = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    let program = home.path().join("build");
    let mut rustc = Command::new("rustc");
    rustc
        .args(["--edition=2024", "-o"])
        .arg(&program)
        .arg(script);
    match rustc.output() {
        Ok(built) => assert!(built.status.success(), "{built:?}"),
        Err(_) => return println!("skipped: rustc is not installed"),
    }
    let tree = home.path().join("outer/stasis");
    fs::create_dir_all(tree.join("crates/stasis")).unwrap();
    let version = |variables: &[(&str, &str)]| {
        let mut script = Command::new(&program);
        script
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap());
        script.env("CARGO_MANIFEST_DIR", tree.join("crates/stasis"));
        script
            .env("CARGO_PKG_VERSION", "1.2.3")
            .envs(variables.iter().copied());
        let said = said(script.output().unwrap());
        let line = said
            .out
            .lines()
            .find_map(|line| line.strip_prefix("cargo::rustc-env=STASIS_VERSION="));
        line.unwrap().to_owned()
    };

    let tarball = version(&[]);
    let packaged = version(&[
        ("STASIS_COMMIT", "0123456789abcdef"),
        ("STASIS_COMMIT_DATE", "2026-11-17"),
    ]);
    git(tree.parent().unwrap(), &["init", "-q"]);
    git(
        tree.parent().unwrap(),
        &["commit", "-q", "--allow-empty", "-m", "another project"],
    );
    let within = version(&[]);
    git(&tree, &["init", "-q"]);
    git(&tree, &["commit", "-q", "--allow-empty", "-m", "this one"]);
    let checkout = version(&[]);

    assert_eq!(tarball, "1.2.3");
    assert_eq!(within, "1.2.3");
    assert_eq!(packaged, "1.2.3 (0123456789ab 2026-11-17)");
    let commit = checkout
        .strip_prefix("1.2.3 (")
        .and_then(|rest| rest.strip_suffix(" 2026-11-17)"));
    assert_eq!(commit.map(str::len), Some(12), "{checkout}");
}
