//! The Git repository in a workspace: told in one line, and never moved without a word.

use crate::workspace::Tree;
use serde_json::json;
use std::process::Command;

/// Runs git in the workspace; `false` when there is none.
fn git(tree: &Tree, words: &[&str]) -> bool {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=A", "-c", "user.email=a@example.org"]);
    command.args([
        "-c",
        "init.defaultBranch=main",
        "-c",
        "commit.gpgsign=false",
    ]);
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    match command.args(words).current_dir(tree.at("")).output() {
        Ok(done) => {
            assert!(done.status.success(), "{words:?}: {done:?}");
            true
        }
        Err(error) => {
            println!("skipped: git is not there: {error}");
            false
        }
    }
}

fn commit(tree: &Tree, subject: &str) {
    tree.write(&format!("{}.txt", subject.replace(' ', "-")), subject);
    git(tree, &["add", "."]);
    git(tree, &["commit", "-q", "-m", subject]);
}

/// A repository with one commit, of which there is a checkpoint, and three commits more.
fn repository() -> Option<Tree> {
    let tree = Tree::new(&[("a", "one")]);
    if !git(&tree, &["init", "-q"]) {
        return None;
    }
    commit(&tree, "the first");
    tree.checkpoint("good");
    for subject in ["add a parser", "fix the parser", "document it"] {
        commit(&tree, subject);
    }
    Some(tree)
}

#[test]
fn a_restore_that_takes_commits_away_names_them_and_is_refused_until_somebody_agrees() {
    let Some(tree) = repository() else { return };
    let before = tree.contents();

    let dry = tree.json(0, &["restore", "good", "--dry-run"]);
    let words = tree.run(&["restore", "good", "--dry-run"]);
    let refused = tree.run(&["restore", "good"]);
    let unchanged = tree.contents();
    let told = tree.json(0, &["restore", "good", "--yes"]);
    let undone = tree.json(0, &["undo"]);

    let plan = &dry["plan"]["git"];
    assert_eq!(plan["commits_leaving"], 3, "{dry:#}");
    assert_eq!(
        (&plan["branch"], &plan["commits"][0]["subject"]),
        (&json!("main"), &json!("document it"))
    );
    assert!(
        plan["moves"].as_array().unwrap().contains(&json!("refs")),
        "{dry:#}"
    );
    assert_eq!(
        (refused.code, unchanged),
        (8, before.clone()),
        "{}",
        refused.err
    );
    assert!(
        refused.err.contains("3 commits") && refused.err.contains("--keep-git"),
        "{}",
        refused.err
    );
    assert!(
        words.out.contains("3 commits leave their branches"),
        "{}",
        words.out
    );
    assert!(words.out.contains("fix the parser"), "{}", words.out);
    assert!(!words.out.contains("objects"), "{}", words.out);
    assert_eq!(
        (&told["restored"], &undone["undone"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        tree.contents(),
        before,
        "the commits are back, and nobody had to agree to that"
    );
}

#[test]
fn commits_of_a_branch_that_is_not_checked_out_are_named_too() {
    let tree = Tree::new(&[("a", "one")]);
    if !git(&tree, &["init", "-q"]) {
        return;
    }
    commit(&tree, "the first");
    tree.checkpoint("good");
    git(&tree, &["checkout", "-q", "-b", "feature"]);
    commit(&tree, "a feature");
    git(&tree, &["checkout", "-q", "main"]);
    let before = tree.contents();

    let refused = tree.run(&["restore", "good"]);
    let unchanged = tree.contents();
    let told = tree.run(&["restore", "good", "--yes"]);

    assert_eq!((refused.code, unchanged), (8, before), "{}", refused.err);
    assert!(
        refused.err.contains("1 commit would leave its branch"),
        "{}",
        refused.err
    );
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.out.contains(".git: moves"), "{}", told.out);
    assert!(told.out.contains("a feature"), "{}", told.out);
}

#[test]
fn a_restore_with_keep_git_leaves_branch_commits_and_index() {
    let Some(tree) = repository() else { return };
    let repository = |tree: &Tree| {
        let mut all = tree.contents();
        all.retain(|path, _| path.starts_with(".git"));
        all
    };
    let before = repository(&tree);

    let told = tree.json(0, &["restore", "good", "--keep-git"]);

    assert_eq!(told["plan"]["git"], json!(null), "{told:#}");
    assert_eq!(repository(&tree), before);
    assert!(!tree.at("add-a-parser.txt").exists());
}

#[test]
fn an_undo_with_keep_git_leaves_the_branch_and_a_later_one_brings_the_commits_back() {
    let Some(tree) = repository() else { return };
    let head = |tree: &Tree| tree.read(".git/refs/heads/main");
    let (before, later) = (tree.contents(), head(&tree));
    tree.json(0, &["restore", "good", "--yes"]);
    let then = head(&tree);

    let undone = tree.json(0, &["undo", "--keep-git"]);
    let kept = (head(&tree), tree.at("add-a-parser.txt").exists());
    tree.json(0, &["undo"]);
    let all = tree.json(0, &["undo"]);

    assert_eq!(undone["plan"]["git"], json!(null), "{undone:#}");
    assert_ne!(later, then);
    assert_eq!(kept, (then, true));
    assert_eq!(all["undone"], true);
    assert_eq!(tree.contents(), before);
}

#[test]
fn commits_that_nobody_can_count_are_not_counted() {
    let Some(tree) = repository() else { return };
    let file = tree.kept().join("auto_snapshots/10/metadata.json");
    let mut metadata: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    metadata["left_out"] = json!([".git/packed-refs"]);
    metadata["left_out_count"] = json!(1);
    std::fs::write(file, metadata.to_string()).unwrap();

    let dry = tree.json(13, &["restore", "good", "--dry-run"]);
    let refused = tree.run(&["restore", "good"]);

    assert_eq!(
        dry["plan"]["git"]["commits_leaving"],
        json!(null),
        "{dry:#}"
    );
    assert_eq!(refused.code, 8, "{}{}", refused.out, refused.err);
    let words = "it is not known which commits would leave";
    assert!(refused.err.contains(words), "{}", refused.err);
}

#[test]
fn what_differs_in_git_is_one_line_unless_somebody_asks() {
    let Some(tree) = repository() else { return };

    let told = tree.json(0, &["changes"]);
    let words = tree.run(&["changes"]);
    let all = tree.json(0, &["changes", "--git"]);
    tree.checkpoint("later");
    let listed = tree.json(0, &["list", "--include-changes"]);

    let paths = |changes: &serde_json::Value| -> Vec<String> {
        let rows = changes.as_array().unwrap().iter();
        rows.map(|row| row["path"].as_str().unwrap().to_owned())
            .collect()
    };
    let files = ["add-a-parser.txt", "document-it.txt", "fix-the-parser.txt"];
    assert_eq!(paths(&told["items"]), [&[".git"], &files[..]].concat());
    assert_eq!(told["summary"]["total"], 4);
    assert_eq!(
        (&told["git"]["commits"], &told["git"]["branch"]),
        (&json!(3), &json!("main"))
    );
    assert!(
        words.out.contains(".git: 3 commits, branch main"),
        "{}",
        words.out
    );
    assert!(
        paths(&all["items"])
            .iter()
            .any(|path| path.starts_with(".git/objects")),
        "{all:#}"
    );
    assert_eq!(paths(&listed["items"][0]["changes"]).len(), 4, "{listed:#}");
}
