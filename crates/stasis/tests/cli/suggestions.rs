//! The commands that messages name: typed as printed, they do what the message says, to the same store.

use crate::session::{STASIS, Session, said};
use std::fs;
use std::path::Path;

/// Types what stands after `with: ` in a message, as a shell takes it.
fn type_after(session: &Session, marker: &str, printed: &str) -> crate::session::Said {
    let line = printed.lines().find_map(|line| line.strip_prefix(marker));
    let line = line.unwrap_or_else(|| panic!("no `{marker}` in {printed}"));
    let program = Path::new(STASIS).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", line]).env_clear();
    for (name, value) in session.command(&[]).get_envs() {
        shell.envs(value.map(|value| (name, value)));
    }
    shell.env("PATH", format!("{}:{path}", program.display()));
    said(shell.output().unwrap())
}

#[test]
fn an_undo_that_is_typed_as_printed_goes_to_the_store_that_was_named() {
    let session = Session::new();
    let (work, store) = (session.home().join("work"), session.home().join("a store"));
    let (dir, store) = (work.to_str().unwrap(), store.to_str().unwrap());
    fs::create_dir(&work).unwrap();
    fs::write(work.join("file"), "first").unwrap();
    session.data(0, &["save", dir, "--store", store]);
    fs::write(work.join("file"), "second").unwrap();

    let restored = session.data(0, &["restore", dir, "--store", store]);
    assert_eq!(fs::read(work.join("file")).unwrap(), b"first");
    let undone = type_after(&session, "Undo with: ", &restored);

    assert_eq!(undone.code, 0, "{restored}\n{}{}", undone.out, undone.err);
    assert_eq!(fs::read(work.join("file")).unwrap(), b"second");
    assert!(!session.object("").exists(), "the default store was made");
}

#[test]
fn hints_of_errors_name_the_store_that_was_named_and_no_other() {
    let session = Session::new();
    let (work, store) = (session.home().join("work"), session.home().join("store"));
    let (dir, store) = (work.to_str().unwrap(), store.to_str().unwrap());
    fs::create_dir(&work).unwrap();
    session.data(0, &["save", dir, "--store", store]);
    session.data(0, &["save", dir]);

    let named = session.run(&["restore", "dir:nothing", "--store", store]);
    let by_default = session.run(&["restore", "dir:nothing"]);
    let as_json = session.json(3, &["restore", "dir:nothing", "--store", store]);

    let wanted = format!("`stasis list --store {store}`");
    assert!(named.err.contains(&wanted), "{}", named.err);
    assert!(
        by_default.err.contains("`stasis list`"),
        "{}",
        by_default.err
    );
    let hint = as_json["error"]["hint"].as_str().unwrap();
    assert!(hint.contains(&wanted), "{hint}");
}
