//! The whole tree as one patch, applied by the real `git apply`.

use crate::workspace::{Tree, contents, text};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What Git knows of a tree: files and links with their contents, and what can be executed.
fn known_to_git(top: &Path) -> BTreeMap<PathBuf, (Vec<u8>, bool)> {
    let files = contents(top).into_iter();
    let files = files.filter(|(path, inside)| inside != "a directory" && !path.starts_with(".git"));
    let files = files.map(|(path, inside)| {
        let whole = top.join(&path);
        let seen = fs::symlink_metadata(&whole).unwrap();
        if seen.is_symlink() {
            return (path, (inside.into_bytes(), false));
        }
        let is_executable = seen.permissions().mode() & 0o100 != 0;
        (path, (fs::read(&whole).unwrap(), is_executable))
    });
    files.collect()
}

/// Applies a patch to a tree that is written out anew from a checkpoint.
fn applied(tree: &Tree, checkpoint: &str, patch: &str, more: &[&str]) -> PathBuf {
    let to = tree.session.home().join(format!("applied-{checkpoint}"));
    tree.json(
        0,
        &["materialize", checkpoint, "--to", to.to_str().unwrap()],
    );
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(words).current_dir(&to).stdin(Stdio::piped());
        git.env("GIT_CONFIG_GLOBAL", "/dev/null");
        git
    };
    assert!(git(&["init", "-q"]).status().unwrap().success());
    let mut child = git(&[&["apply", "--whitespace=nowarn"], more].concat())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), patch.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}\n{patch}");
    to
}

fn executable(path: &Path, is_executable: bool) {
    let mode = if is_executable { 0o755 } else { 0o644 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Everything that a patch has to carry: it differs in each of these.
fn odd_tree() -> Tree {
    let lines = |from: usize| {
        let lines = (from..from + 200).map(|number| format!("line {number}\n"));
        lines.collect::<String>()
    };
    let tree = Tree::new(&[
        ("changed", &lines(0)),
        ("no newline", "a\nb"),
        ("newline", "a\nb\n"),
        ("crlf", "a\r\nb\r\n"),
        ("lone\u{d}return", "a\rb\n"),
        ("emptied", "x\n"),
        ("filled", ""),
        ("gone/deep/file", "gone\n"),
        ("empty gone", ""),
        ("run.sh", "#!/bin/sh\n"),
        ("moved/from", &lines(1000)),
        ("becomes directory", "file\n"),
        ("a directory/file", "file\n"),
        ("quo\"ted\\na\tme\n", "x\n"),
        ("ümläut ☃", "x\n"),
        (" leading and trailing ", "x\n"),
        ("becomes link", "text\n"),
        ("-dash", "x\n"),
        ("same", "same\n"),
    ]);
    fs::write(tree.at("binary"), [0_u8, 1, 2, 255, 254]).unwrap();
    fs::write(tree.at("latin1"), b"caf\xe9\n").unwrap();
    symlink("changed", tree.at("link")).unwrap();
    symlink("nowhere", tree.at("becomes file")).unwrap();
    tree.checkpoint("one");
    change_all(&tree, &lines(0));
    tree.checkpoint("two");
    tree
}

fn change_all(tree: &Tree, lines: &str) {
    tree.write("changed", &(lines.replace("line 7\n", "") + "end"));
    tree.write("no newline", "a\nb\n");
    tree.write("newline", "a\nb");
    tree.write("crlf", "a\r\nc\r\n");
    tree.write("lone\u{d}return", "a\rc\n");
    tree.write("emptied", "");
    tree.write("filled", "y\n");
    fs::remove_dir_all(tree.at("gone")).unwrap();
    fs::remove_file(tree.at("empty gone")).unwrap();
    executable(&tree.at("run.sh"), true);
    fs::create_dir(tree.at("to")).unwrap();
    fs::rename(tree.at("moved/from"), tree.at("to/here now")).unwrap();
    fs::remove_dir(tree.at("moved")).unwrap();
    fs::remove_file(tree.at("becomes directory")).unwrap();
    tree.write("becomes directory/inside", "x\n");
    fs::remove_dir_all(tree.at("a directory")).unwrap();
    tree.write("a directory", "now a file\n");
    tree.write("quo\"ted\\na\tme\n", "y\n");
    tree.write("ümläut ☃", "y\n");
    tree.write(" leading and trailing ", "y\n");
    fs::remove_file(tree.at("becomes link")).unwrap();
    symlink("changed", tree.at("becomes link")).unwrap();
    fs::remove_file(tree.at("becomes file")).unwrap();
    tree.write("becomes file", "text\n");
    tree.write("-dash", "y\n");
    tree.write("new/deep/file", "new\n");
    tree.write("new empty", "");
    tree.write("new script", "#!/bin/sh\n");
    executable(&tree.at("new script"), true);
    let many: Vec<u8> = (0..70_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(tree.at("binary"), many).unwrap();
    fs::write(tree.at("new binary"), [0_u8; 3000]).unwrap();
    fs::write(tree.at("latin1"), b"caf\xe8\n").unwrap();
    fs::remove_file(tree.at("link")).unwrap();
    symlink("same", tree.at("link")).unwrap();
}

#[test]
fn git_makes_the_second_tree_of_the_first_and_back() {
    let tree = odd_tree();
    let known = known_to_git(&tree.at(""));

    let patch = tree.json(0, &["diff", "one", "two", "--patch"]);
    let there = applied(&tree, "one", &text(&patch["patch"]), &[]);
    let back = applied(&tree, "two", &text(&patch["patch"]), &["-R"]);

    assert_eq!(known_to_git(&there), known);
    let to = tree.session.home().join("plain");
    tree.json(0, &["materialize", "one", "--to", to.to_str().unwrap()]);
    let (mut back, mut first) = (known_to_git(&back), known_to_git(&to));
    // `git apply -R` makes a file of a link that became one, of its own patches too.
    let link = Path::new("becomes file");
    assert!(back.remove(link).is_some() && first.remove(link).is_some());
    assert_eq!(back, first);
    // As text it is the same, and a file that was only renamed is not carried.
    let plain = tree.run(&["diff", "one", "two", "--patch"]);
    assert_eq!(plain.out, text(&patch["patch"]));
    assert!(
        plain
            .out
            .contains("rename from moved/from\nrename to to/here now\n")
    );
    assert!(!plain.out.contains("line 1100"));
}

#[test]
fn what_git_does_not_know_is_named_and_a_missing_entry_ends_with_13() {
    let tree = Tree::new(&[("a", "1\n"), ("secret", "x\n")]);
    tree.write(".git/HEAD", "ref: refs/heads/x\n");
    tree.checkpoint("one");
    fs::set_permissions(tree.at("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    tree.write(".git/HEAD", "ref: refs/heads/y\n");
    tree.checkpoint("two");
    fs::create_dir(tree.at("empty")).unwrap();
    tree.checkpoint("three");

    let two = tree.json(0, &["diff", "one", "two", "--patch"]);
    let less = tree.json(13, &["diff", "one", "three", "--patch"]);

    let reasons =
        json!([{ "path": ".git", "why": "git_repository" }, { "path": "secret", "why": "mode" }]);
    assert_eq!(two["not_in_patch"], reasons);
    assert_eq!(two["patch"], "");
    assert_eq!(
        less["not_in_patch"][1],
        json!({ "path": "empty", "why": "empty_directory" })
    );
}

#[test]
fn a_diffstat_counts_lines_and_fits_a_terminal() {
    let tree = odd_tree();

    let stat = tree.json(0, &["diff", "one", "two", "--stat"]);
    let shown = tree.run(&["diff", "one", "two", "--stat"]);

    let files = stat["stat"]["files"].as_array().unwrap();
    let changed = files.iter().find(|one| one["path"] == "changed").unwrap();
    assert_eq!(
        (&changed["added"], &changed["removed"]),
        (&json!(1), &json!(1))
    );
    assert!(
        shown.out.lines().all(|line| line.chars().count() <= 80),
        "{}",
        shown.out
    );
    let last = shown.out.lines().last().unwrap();
    assert!(
        last.starts_with(&format!(" {} files changed, ", files.len())),
        "{last}"
    );
    assert!(stat.get("patch").is_none());
}

#[test]
fn a_diff_takes_a_path_or_checkpoints() {
    let tree = Tree::new(&[("a", "1\n"), ("named", "1\n")]);
    tree.checkpoint("first");
    tree.checkpoint("named");
    tree.write("a", "2\n");

    let whole = tree.json(0, &["diff", "first"]);
    let newest = tree.json(0, &["diff"]);
    let of_path = tree.json(0, &["diff", "a", "first"]);
    let refused = tree.run(&["diff", "a", "first", "--patch"]);

    assert_eq!(
        (&whole["after"], &whole["summary"]["edited"]),
        (&json!("main"), &json!(1))
    );
    assert_eq!(newest["summary"]["total"], 1);
    assert_eq!(of_path["path"], "a");
    assert_eq!(refused.code, 2, "{}", refused.err);
}
