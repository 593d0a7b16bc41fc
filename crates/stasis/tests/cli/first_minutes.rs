//! What a newcomer types in the first ten minutes: slips, words of other tools, and everyday verbs in a directory with checkpoints.

use crate::session::{Said, Session, said};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with a file in a directory, in a place where nothing else was saved.
fn notes(session: &Session) -> (PathBuf, String) {
    let dir = session.home().join("notes");
    fs::create_dir_all(dir.join("src/cli")).unwrap();
    fs::write(dir.join("plan"), "one\n").unwrap();
    fs::write(dir.join("src/cli/mod"), "inner\n").unwrap();
    let text = dir.to_str().unwrap().to_owned();
    (dir, text)
}

fn typed(session: &Session, at: &Path, words: &[&str]) -> Said {
    said(session.command(words).current_dir(at).output().unwrap())
}

fn protect(session: &Session, dir: &str) {
    session.json(0, &["workspace", "init", dir]);
}

#[test]
fn a_misspelt_directory_is_said_to_be_none_and_the_nearest_is_offered() {
    let session = Session::new();
    let (_, text) = notes(&session);
    session.json(0, &["save", &text]);
    let home = session.home();

    for words in [
        &["log", "noets"][..],
        &["restore", "noets"],
        &["diff", "noets"],
    ] {
        let slip = typed(&session, home, words);

        assert_eq!(slip.code, 3, "{}", slip.err);
        assert!(slip.err.contains("noets"), "{words:?}: {}", slip.err);
        assert!(slip.err.contains("did you mean"), "{words:?}: {}", slip.err);
        assert!(slip.err.contains("notes`"), "{words:?}: {}", slip.err);
        assert!(slip.err.contains("`dir:notes-"), "{words:?}: {}", slip.err);
    }
    let named = session.run(&["log", "dir:noets"]);
    assert_eq!(named.code, 3);
    assert!(
        named.err.contains("did you mean `dir:notes-"),
        "{}",
        named.err
    );
    let other = typed(&session, home, &["log", "something-else"]);
    assert!(!other.err.contains("did you mean"), "{}", other.err);
}

#[test]
fn a_misspelt_snapshot_is_answered_with_the_nearest_ones() {
    let session = Session::new();
    let (dir, text) = notes(&session);
    session.json(0, &["save", &text, "--label", "tag=before-release"]);
    protect(&session, &text);
    let says = |wanted: &str, offered: &str| {
        let slip = session.run(&["restore", &text, wanted]);
        assert_eq!(slip.code, 3, "{}", slip.err);
        let question = format!("did you mean `{offered}`");
        assert!(slip.err.contains(&question), "{wanted}: {}", slip.err);
    };

    says("lates", "latest");
    says("before-relaese", "before-release");
    says("latest~4", "latest");
    says("cp-7", "cp-0");
    assert_eq!(fs::read_to_string(dir.join("plan")).unwrap(), "one\n");
}

/// Applies a patch as a user would; says what Git says.
fn apply(at: &Path, patch: &str) -> String {
    let file = at.join("../the.patch");
    fs::write(&file, patch).unwrap();
    let mut git = Command::new("git");
    git.args(["apply", "--unsafe-paths", "-R"]).arg(&file);
    let said = git.current_dir(at).output().unwrap();
    String::from_utf8_lossy(&said.stderr).into_owned()
}

#[test]
fn a_diff_without_a_word_is_what_changed_since_the_newest_wherever_that_is() {
    let session = Session::new();
    let (dir, text) = notes(&session);
    protect(&session, &text);
    fs::write(dir.join("plan"), "two\n").unwrap();
    fs::write(dir.join("new"), "new\n").unwrap();

    // Only checkpoints, and no store.
    let here = typed(&session, &dir, &["diff"]);
    assert_eq!(here.code, 0, "{}", here.err);
    assert!(here.err.contains("compared with cp-0"), "{}", here.err);
    assert!(
        here.out.contains("plan") && here.out.contains("new"),
        "{}",
        here.out
    );
    let patch = typed(&session, &dir, &["diff", "--patch"]);
    assert!(patch.out.contains("-one\n+two"), "{}", patch.out);
    let stat = typed(&session, &dir, &["diff", "--stat"]);
    assert!(stat.out.contains("2 files changed"), "{}", stat.out);

    // What was saved later is the newest, and its patch is the same.
    session.json(0, &["save", &text]);
    let same = typed(&session, &dir, &["diff"]);
    assert!(same.err.contains("nothing differs"), "{}", same.err);
    fs::write(dir.join("plan"), "three\n").unwrap();
    let patch = typed(&session, &dir, &["diff", "--patch"]);
    assert!(patch.out.contains("-two\n+three"), "{}", patch.out);
    assert!(!patch.out.contains("new"), "{}", patch.out);
    assert_eq!(apply(&dir, &patch.out), "");
    assert_eq!(fs::read_to_string(dir.join("plan")).unwrap(), "two\n");

    // Between a checkpoint and a snapshot of the store.
    let both = session.json(0, &["diff", &text, "cp-0", "latest", "--patch"]);
    let items = both["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{both:#}");
    assert!(both["patch"].as_str().unwrap().contains("+two"), "{both:#}");
}

#[test]
fn du_counts_checkpoints_beside_snapshots() {
    let session = Session::new();
    let (dir, text) = notes(&session);
    protect(&session, &text);
    let only = session.json(0, &["du", &text]);
    assert_eq!(only["items"], serde_json::json!([]), "{only:#}");
    session.json(0, &["save", &text]);
    fs::write(dir.join("plan"), "two\n").unwrap();
    session.json(0, &["workspace", "create", "second", "--workspace", &text]);

    let used = session.json(0, &["du", &text]);
    let words = session.data(0, &["du", &text]);

    let here = used["checkpoints"]["items"].as_array().unwrap();
    let names: Vec<&str> = here
        .iter()
        .filter_map(|one| one["checkpoint"].as_str())
        .collect();
    assert_eq!(names.len(), 2, "{used:#}");
    assert!(
        used["checkpoints"]["bytes_held"].as_u64().unwrap() > 0,
        "{used:#}"
    );
    assert_eq!(used["items"].as_array().unwrap().len(), 1, "{used:#}");
    for name in names {
        assert!(words.contains(name), "{words}");
    }
}

#[test]
fn a_path_goes_from_where_one_stands_else_from_the_top() {
    let session = Session::new();
    let (dir, text) = notes(&session);
    session.json(0, &["save", &text]);
    let inner = dir.join("src/cli");
    let cat = |at: &Path, path: &str| typed(&session, at, &["cat", path]).out;

    assert_eq!(cat(&inner, "mod"), "inner\n");
    assert_eq!(cat(&inner, "../cli/mod"), "inner\n");
    assert_eq!(cat(&inner, "src/cli/mod"), "inner\n");
    assert_eq!(cat(&dir, "src/cli/mod"), "inner\n");
    let missing = typed(&session, &inner, &["cat", "nowhere"]);
    assert_eq!(missing.code, 3);
    assert!(missing.err.contains("src/cli/nowhere"), "{}", missing.err);
    let listed = typed(&session, &dir.join("src"), &["ls", "--path", "cli"]);
    assert!(listed.out.contains("src/cli/mod"), "{}", listed.out);

    fs::write(inner.join("mod"), "changed").unwrap();
    fs::write(dir.join("plan"), "changed").unwrap();
    let back = typed(&session, &inner, &["restore", "--path", "mod", "--yes"]);
    assert_eq!(back.code, 0, "{}", back.err);
    assert_eq!(fs::read_to_string(inner.join("mod")).unwrap(), "inner\n");
    assert_eq!(fs::read_to_string(dir.join("plan")).unwrap(), "changed");
    fs::write(inner.join("mod"), "mine").unwrap();
    let rest = typed(&session, &inner, &["restore", "--except", "mod", "--yes"]);
    assert_eq!(rest.code, 0, "{}", rest.err);
    assert_eq!(fs::read_to_string(inner.join("mod")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(dir.join("plan")).unwrap(), "one\n");
}

#[test]
fn an_undo_leaves_alone_what_is_named_from_where_one_stands() {
    for of in ["cp-0", "latest"] {
        let session = Session::new();
        let (dir, text) = notes(&session);
        protect(&session, &text);
        session.json(0, &["save", &text]);
        let inner = dir.join("src/cli");
        let read = |path: &str| fs::read_to_string(dir.join(path)).unwrap();
        fs::write(inner.join("mod"), "changed").unwrap();
        fs::write(inner.join("new"), "new").unwrap();
        fs::write(dir.join("plan"), "changed").unwrap();
        let undo = |path: &str| typed(&session, &inner, &["undo", "--except", path, "--yes"]);

        let restored = typed(&session, &inner, &["restore", of, "--yes"]);
        assert_eq!(restored.code, 0, "{of}: {}", restored.err);
        let nowhere = undo("mdo");
        assert_eq!(nowhere.code, 3, "{of}: {}", nowhere.err);
        assert!(nowhere.err.contains("src/cli/mdo"), "{}", nowhere.err);
        assert_eq!(
            (read("plan"), read("src/cli/mod")),
            ("one\n".into(), "inner\n".into())
        );

        // What only the undo would bring back can be left out as well.
        let here = typed(
            &session,
            &inner,
            &["undo", "--except", "mod", "--except", "new", "--yes"],
        );
        assert_eq!(here.code, 0, "{of}: {}", here.err);
        assert_eq!(
            (read("plan"), read("src/cli/mod")),
            ("changed".into(), "inner\n".into()),
            "{of}"
        );
        assert!(!inner.join("new").exists(), "{of}");

        fs::write(inner.join("mod"), "mine").unwrap();
        fs::write(dir.join("plan"), "one more").unwrap();
        let again = typed(&session, &inner, &["restore", of, "--yes"]);
        assert_eq!(again.code, 0, "{of}: {}", again.err);
        let above = undo("../../plan");
        assert_eq!(above.code, 0, "{of}: {}", above.err);
        assert_eq!(
            (read("plan"), read("src/cli/mod")),
            ("one\n".into(), "mine".into()),
            "{of}"
        );
        let from_top = undo("src/cli/mod");
        assert_eq!(from_top.code, 0, "{of}: {}", from_top.err);
        assert_eq!(read("src/cli/mod"), "mine", "{of}");
    }
}

#[test]
fn an_entry_that_a_restore_cannot_leave_alone_is_refused_before_anything_changes() {
    for of in ["cp-0", "latest"] {
        let session = Session::new();
        let (dir, text) = notes(&session);
        protect(&session, &text);
        session.json(0, &["save", &text]);
        fs::write(dir.join("plan"), "changed").unwrap();

        let said = typed(
            &session,
            &dir,
            &["restore", of, "--except", "paln", "--yes"],
        );

        assert_eq!(said.code, 3, "{of}: {}", said.err);
        assert!(said.err.contains("`paln`"), "{of}: {}", said.err);
        assert_eq!(fs::read_to_string(dir.join("plan")).unwrap(), "changed");
    }
}

#[test]
fn a_restore_that_changes_nothing_is_not_in_the_log() {
    let session = Session::new();
    let (dir, text) = notes(&session);
    let copy = session.home().join("copy");
    let shell = |line: &str| {
        let mut shell = Command::new("sh");
        assert!(
            shell
                .args(["-c", line])
                .current_dir(session.home())
                .status()
                .unwrap()
                .success()
        );
    };
    shell("cp -a notes copy");
    session.json(0, &["save", &text, "--label", "state=first"]);
    fs::write(dir.join("plan"), "two\n").unwrap();
    session.json(0, &["save", &text]);
    // By hand to what the first has, while `latest` is the second.
    shell("cp -a copy/plan notes/plan && touch -r copy notes");
    assert!(copy.exists());
    let rows = || {
        let log = session.json(0, &["log", &text]);
        let rows = log["items"].as_array().unwrap().iter();
        let row = |row: &Value| (row["kind"].clone(), row["snapshot"].clone());
        rows.map(row).collect::<Vec<_>>()
    };
    let before = rows();

    let said = session.run(&["restore", &text, "first", "--yes"]);
    let again = session.run(&["restore", &text, "first", "--yes"]);

    assert_eq!((said.code, again.code), (0, 0), "{}", said.err);
    assert!(said.out.starts_with("Nothing to do: "), "{}", said.out);
    assert!(said.out.contains("`latest` means it now"), "{}", said.out);
    assert!(!again.out.contains("latest"), "{}", again.out);
    assert_eq!(rows(), before);
    // The same of a part, while something else is not saved.
    fs::write(dir.join("plan"), "three\n").unwrap();
    let part = session.run(&["restore", &text, "--path", "src", "--yes"]);
    assert!(part.out.starts_with("Nothing to do: "), "{}", part.out);
    assert_eq!(rows(), before);
    assert_eq!(fs::read_to_string(dir.join("plan")).unwrap(), "three\n");
    // One that changes something is in it, with what was there before.
    session.json(0, &["restore", &text, "--yes"]);
    assert_eq!(rows().len(), before.len() + 2);
}

#[test]
fn words_of_other_tools_are_answered_with_the_command() {
    let session = Session::new();
    let expected = [
        ("snapshot", "`stasis save`"),
        ("delete", "`stasis forget SNAPSHOT`"),
        ("rollback", "`stasis restore SNAPSHOT`"),
        ("revert", "`stasis restore --path FILE`"),
        ("history", "`stasis log`"),
        ("status", "`stasis diff`"),
    ];

    for (word, command) in expected {
        let said = session.run(&[word]);

        assert_eq!(said.code, 2, "{}", said.err);
        let tips = said.err.lines().filter(|line| line.contains("tip:"));
        let tips: Vec<&str> = tips.collect();
        assert_eq!(tips.len(), 1, "{}", said.err);
        assert!(tips[0].contains(command), "{}", said.err);
        assert!(tips[0].len() <= 80, "{}", said.err);
    }
}

#[test]
fn the_log_shows_a_restore_and_that_it_can_be_undone() {
    let session = Session::new();
    let (dir, text) = notes(&session);
    session.json(0, &["save", &text]);
    fs::write(dir.join("plan"), "two\n").unwrap();
    let restored = session.json(0, &["restore", &text]);
    let marks = || {
        let log = session.json(0, &["log", &text]);
        let items = log["items"].as_array().unwrap().clone();
        let is_mark = |one: &Value| one["kind"] == "restore";
        items.into_iter().filter(is_mark).collect::<Vec<_>>()
    };

    let first = marks();
    assert_eq!(first.len(), 1);
    assert_eq!(first[0]["snapshot"], restored["snapshot_id"]);
    assert_eq!(first[0]["before"], restored["safety_snapshot_id"]);
    assert_eq!(first[0]["is_next_undo"], true);
    let words = session.data(0, &["log", &text]);
    assert!(words.contains("undo with: stasis undo"), "{words}");

    session.json(0, &["undo", &text]);
    assert_eq!(marks()[0]["snapshot"], restored["safety_snapshot_id"]);
}

#[test]
fn several_forks_are_removed_or_none() {
    let session = Session::new();
    let (dir, text) = notes(&session);
    protect(&session, &text);
    session.json(0, &["fork", &text, "-n", "3"]);
    let beside = |name: &str| dir.with_file_name(format!("notes-{name}"));
    fs::write(beside("fork-2").join("only"), "here").unwrap();
    let rm = |code, names: &[&str]| {
        let words = [&["fork", "--workspace", &text, "rm"][..], names].concat();
        session.json(code, &words)
    };

    rm(8, &["fork-1", "fork-2"]);
    assert!(beside("fork-1").exists() && beside("fork-2").exists());
    let removed = rm(0, &["fork-1", "fork-3"]);

    assert_eq!(removed["items"].as_array().unwrap().len(), 2, "{removed:#}");
    assert!(!beside("fork-1").exists() && !beside("fork-3").exists());
    assert!(beside("fork-2").join("only").exists());
}

#[test]
fn a_man_page_is_printed_alone_or_all_are_written() {
    let session = Session::new();
    let page = session.data(0, &["man", "fork", "rm"]);
    assert!(page.contains(".TH stasis-fork-rm 1"), "{page}");
    assert!(!page.contains("stasis-fork-promote"), "{page}");
    let none = session.run(&["man", "froke"]);
    assert!(none.err.contains("no command `froke`"), "{}", none.err);

    let dir = session.home().join("man");
    session.json(0, &["man", "--dir", dir.to_str().unwrap()]);
    assert!(dir.join("stasis-save.1").exists());
}
