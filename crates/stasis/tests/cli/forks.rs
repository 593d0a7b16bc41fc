//! Forks: several ways from one point, compared, one of them promoted, the others removed.

use crate::session::Said;
use crate::workspace::{Tree, contents, says, text};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

impl Tree {
    fn fork(&self, words: &[&str]) -> Said {
        let dir = self.dir();
        let all = [&["fork"], words, &["--workspace", dir.as_str()]].concat();
        self.session.run(&all)
    }

    fn fork_json(&self, code: i32, words: &[&str]) -> Value {
        let dir = self.dir();
        let all = [&["fork"], words, &["--workspace", dir.as_str()]].concat();
        self.session.json(code, &all)
    }

    /// A path in a fork that lies at its usual place.
    fn in_fork(&self, name: &str, path: &str) -> PathBuf {
        let fork = self.session.home().join(format!("work-{name}"));
        if path.is_empty() {
            fork
        } else {
            fork.join(path)
        }
    }

    fn sessions(&self) -> usize {
        let kept = self.kept();
        fs::read_dir(kept.parent().unwrap()).unwrap().count()
    }

    fn rows(&self) -> Vec<Value> {
        self.fork_json(0, &["list"])["items"]
            .as_array()
            .unwrap()
            .clone()
    }
}

fn tree() -> Tree {
    Tree::new(&[("a", "1"), ("b", "1"), ("d/c", "1")])
}

#[test]
fn forks_lie_beside_the_workspace_and_are_workspaces_that_it_knows() {
    let tree = tree();
    tree.write("new", "not in any checkpoint yet");

    let forked = tree.fork_json(0, &["-n", "2"]);

    let at = |name: &str| tree.in_fork(name, "").display().to_string();
    says(
        &forked,
        &json!({ "forked": true, "names": ["fork-1", "fork-2"], "directories": [at("fork-1"), at("fork-2")] }),
    );
    assert_eq!(contents(&tree.in_fork("fork-1", "")), tree.contents());
    // The next ones take the next names.
    let third = tree.fork_json(0, &[]);
    assert_eq!(third["names"], json!(["fork-3"]));
    let rows = tree.rows();
    says(
        &rows[0],
        &json!({ "name": "fork-1", "status": "ready", "made_by": "cli", "is_workspace": true }),
    );
    assert_eq!(rows[0]["changes"]["total"], 0);
    // A fork can be checkpointed, changed and restored by itself.
    let fork = at("fork-1");
    let own = |words: &[&str]| {
        let all = [&["workspace"], words, &["--workspace", fork.as_str()]].concat();
        tree.session.json(0, &all)
    };
    own(&["create", "mine"]);
    fs::write(tree.in_fork("fork-1", "a"), "2").unwrap();
    own(&["restore", "mine"]);
    assert_eq!(
        fs::read_to_string(tree.in_fork("fork-1", "a")).unwrap(),
        "1"
    );
    assert_eq!(tree.rows()[0]["checkpoints"], 1);
    let listed = tree.session.json(0, &["list"]);
    let listed = listed["workspaces"].as_array().unwrap();
    let fork_of = listed
        .iter()
        .filter(|row| row["fork_of"] == json!(tree.dir()));
    assert_eq!(fork_of.count(), 3);
}

#[test]
fn the_winner_becomes_the_workspace_and_that_can_be_undone() {
    let tree = tree();
    tree.fork_json(0, &["--count", "3", "--name", "way"]);
    fs::write(tree.in_fork("way-1", "a"), "one").unwrap();
    fs::write(tree.in_fork("way-2", "a"), "two").unwrap();
    fs::remove_file(tree.in_fork("way-2", "b")).unwrap();
    fs::write(tree.in_fork("way-2", "added"), "two").unwrap();
    let (before, two) = (tree.contents(), contents(&tree.in_fork("way-2", "")));

    let shown = tree.fork_json(0, &["promote", "way-2", "--dry-run"]);
    assert_eq!(tree.contents(), before, "a dry run changes nothing");
    let checkpoints = tree.listed().len();
    let promoted = tree.fork_json(0, &["promote", "way-2"]);

    says(
        &promoted,
        &json!({ "promoted": true, "fork": "way-2", "overwrites": [], "dry_run": false }),
    );
    assert_eq!(promoted["plan"], shown["plan"]);
    assert_eq!(tree.contents(), two);
    assert_eq!(contents(&tree.in_fork("way-2", "")), two);
    assert!(tree.rows()[1]["is_workspace"].as_bool().unwrap());
    assert!(tree.listed().len() > checkpoints);
    // One undo takes all of it back, and then the other one can win.
    tree.json(0, &["undo", &text(&promoted["undo"])]);
    assert_eq!(tree.contents(), before);
    let other = tree.fork_json(0, &["promote", "way-1"]);
    assert_eq!(tree.read("a"), "one");
    let restored = tree.json(0, &["restore", &text(&other["checkpoint_before"])]);
    assert_eq!(
        (restored["restored"].clone(), tree.contents()),
        (json!(true), before)
    );
}

#[test]
fn work_of_the_workspace_itself_is_named_and_never_lost_without_a_word() {
    let tree = tree();
    tree.fork_json(0, &["--name", "f"]);
    fs::write(tree.in_fork("f", "a"), "fork").unwrap();
    tree.write("a", "mine");
    tree.write("b", "mine");
    tree.write("notes", "mine");
    let before = tree.contents();

    let refused = tree.fork_json(8, &["promote", "f"]);
    assert_eq!(tree.contents(), before);
    let shown = tree.fork_json(0, &["promote", "f", "--dry-run"]);
    let kept = tree.fork_json(0, &["promote", "f", "--keep-mine"]);

    let message = text(&refused["error"]["message"]);
    assert!(message.ends_with("a, b, notes"), "{message}");
    assert_eq!(refused["error"]["overwrites"], 3);
    assert_eq!(
        shown["overwrites"],
        json!([
            { "path": "a", "op": "modified", "changed_in_fork": true },
            { "path": "b", "op": "modified", "changed_in_fork": false },
            { "path": "notes", "op": "created", "changed_in_fork": false },
        ])
    );
    says(&kept, &json!({ "kept_own": 3, "overwrites_count": 0 }));
    assert_eq!(tree.contents(), before);
    // Whoever says so gets the fork whole, and can have it back.
    fs::write(tree.in_fork("f", "d/c"), "fork").unwrap();
    let done = tree.fork_json(0, &["promote", "f", "--yes"]);
    assert_eq!(done["overwrites_count"], 3);
    assert_eq!(tree.contents(), contents(&tree.in_fork("f", "")));
    tree.json(0, &["undo"]);
    assert_eq!(tree.contents(), before);
}

#[test]
fn what_both_sides_changed_in_the_same_way_is_no_conflict() {
    let tree = tree();
    tree.fork_json(0, &["--name", "f"]);
    tree.write("a", "same");
    fs::write(tree.in_fork("f", "a"), "same").unwrap();
    fs::write(tree.in_fork("f", "b"), "fork").unwrap();

    let done = tree.fork_json(0, &["promote", "f"]);

    says(&done, &json!({ "promoted": true, "overwrites_count": 0 }));
    assert_eq!(
        (tree.read("a"), tree.read("b")),
        ("same".into(), "fork".into())
    );
}

#[test]
fn a_fork_with_work_that_is_nowhere_else_is_not_removed_by_the_way() {
    let tree = tree();
    let sessions = tree.sessions();
    tree.fork_json(0, &["--name", "f"]);
    tree.fork_json(0, &["--name", "idle"]);
    fs::write(tree.in_fork("f", "only"), "here").unwrap();

    let refused = tree.fork_json(8, &["rm", "f"]);
    let shown = tree.fork_json(0, &["rm", "f", "--dry-run"]);
    assert!(tree.in_fork("f", "only").exists());
    let idle = tree.fork_json(0, &["rm", "idle"]);
    let gone = tree.fork_json(0, &["rm", "f", "--discard"]);

    assert_eq!(refused["error"]["files"], 1);
    assert_eq!(shown["items"][0]["only_here"], json!(["only"]));
    assert_eq!(idle["items"][0]["removed"], true);
    says(
        &gone["items"][0],
        &json!({ "removed": true, "only_here_count": 1 }),
    );
    assert!(!tree.in_fork("f", "").exists() && !tree.in_fork("idle", "").exists());
    assert_eq!(tree.sessions(), sessions, "no session is left over");
    let left = fs::read_dir(tree.kept()).unwrap();
    let left = left.filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_str().unwrap().starts_with("fork.")
    });
    assert_eq!(left.count(), 0);
    assert_eq!(tree.fork(&["rm", "f"]).code, 3);
}

#[test]
fn a_promoted_fork_has_no_work_that_is_nowhere_else() {
    let tree = tree();
    tree.fork_json(0, &["--name", "f"]);
    fs::write(tree.in_fork("f", "a"), "fork").unwrap();
    tree.fork_json(0, &["promote", "f"]);
    // Even when the workspace went on since.
    tree.write("a", "later");

    let gone = tree.fork_json(0, &["rm", "f"]);

    assert_eq!(gone["items"][0]["removed"], true);
    assert_eq!(tree.read("a"), "later");
}

#[test]
fn a_directory_that_is_not_the_fork_any_more_is_never_touched() {
    let tree = tree();
    tree.fork_json(0, &["--name", "f"]);
    let (place, moved) = (tree.in_fork("f", ""), tree.session.home().join("elsewhere"));
    fs::rename(&place, &moved).unwrap();

    assert_eq!(
        tree.rows()[0]["directory"],
        json!(moved.display().to_string())
    );
    fs::create_dir(&place).unwrap();
    fs::write(place.join("precious"), "1").unwrap();
    fs::write(moved.join("a"), "moved").unwrap();
    tree.fork_json(0, &["promote", "f"]);
    assert_eq!(tree.read("a"), "moved");
    fs::remove_dir_all(&moved).unwrap();
    let row = tree.rows()[0].clone();
    let refused = tree.fork(&["promote", "f"]);
    let forgotten = tree.fork_json(0, &["rm", "f"]);

    assert_eq!(row["status"], "replaced");
    assert_eq!(refused.code, 8, "{}", refused.err);
    assert_eq!(forgotten["items"][0]["removed"], true);
    assert_eq!(fs::read_to_string(place.join("precious")).unwrap(), "1");
    assert!(tree.rows().is_empty());
}

#[test]
fn forks_are_compared_with_each_other_with_the_workspace_and_with_their_checkpoint() {
    let tree = tree();
    tree.fork_json(0, &["-n", "2"]);
    fs::write(tree.in_fork("fork-1", "a"), "one").unwrap();
    fs::write(tree.in_fork("fork-2", "new"), "two").unwrap();
    tree.write("b", "mine");
    let changed = |words: &[&str]| {
        let found = tree.fork_json(0, &[&["diff"], words].concat());
        let rows = found["items"].as_array().unwrap().iter();
        let rows = rows.map(|row| format!("{} {}", text(&row["op"]), text(&row["path"])));
        rows.collect::<Vec<_>>().join(", ")
    };

    assert_eq!(changed(&["fork-1"]), "modified a");
    assert_eq!(changed(&["fork-1", "fork-2"]), "modified a, created new");
    assert_eq!(changed(&["main", "fork-2"]), "modified b, created new");
    assert_eq!(changed(&["fork-2", "."]), "modified b, deleted new");
    assert_eq!(tree.fork(&["diff", "main"]).code, 2);
    assert_eq!(tree.fork(&["diff", "nope"]).code, 3);
    // What it was made from can be told after that is gone.
    let from = text(&tree.rows()[0]["checkpoint"]);
    tree.json(0, &["delete", &from]);
    assert_eq!(changed(&["fork-1"]), "modified a");
    assert_eq!(tree.fork(&["diff", "fork-1", "--patch"]).code, 3);
    assert_eq!(tree.rows()[0]["checkpoint_is_kept"], false);
}

#[test]
fn commits_that_only_a_fork_has_are_work_and_come_with_its_promotion() {
    let tree = tree();
    let git = |dir: PathBuf, words: &[&str]| {
        let identity = ["-c", "user.name=x", "-c", "user.email=x@y"];
        let mut git = Command::new("git");
        git.args(identity).args(words).current_dir(dir);
        let output = git.output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    git(tree.at(""), &["init", "-q", "-b", "trunk"]);
    git(tree.at(""), &["add", "-A"]);
    git(tree.at(""), &["commit", "-qm", "first"]);
    tree.fork_json(0, &["--name", "f"]);
    fs::write(tree.in_fork("f", "a"), "committed").unwrap();
    git(tree.in_fork("f", ""), &["commit", "-qam", "second"]);

    let refused = tree.fork_json(8, &["rm", "f"]);
    let promoted = tree.fork_json(0, &["promote", "f"]);

    assert_eq!(refused["error"]["commits"], 1);
    // Nothing leaves: the branch of the fork goes on from ours.
    assert_eq!(promoted["plan"]["git"]["commits_leaving"], 0);
    assert_eq!(git(tree.at(""), &["log", "--format=%s"]), "second\nfirst\n");
    assert_eq!(git(tree.at(""), &["status", "--short"]), "");
    tree.fork_json(0, &["rm", "f"]);
    // Commits that the workspace has made since are not taken away without a word.
    tree.fork_json(0, &["--name", "g"]);
    fs::write(tree.in_fork("g", "b"), "fork").unwrap();
    tree.write("a", "third");
    git(tree.at(""), &["commit", "-qam", "third"]);
    let refused = tree.fork_json(8, &["promote", "g", "--keep-mine"]);
    assert_eq!(refused["error"]["commits_leaving"], 1);
    tree.fork_json(0, &["promote", "g", "--keep-mine", "--keep-git"]);
    assert_eq!(
        (tree.read("a"), tree.read("b")),
        ("third".into(), "fork".into())
    );
    assert!(git(tree.at(""), &["log", "--format=%s"]).starts_with("third\n"));
}

#[test]
fn a_command_and_a_directory_of_one_name_are_told_apart() {
    let tree = tree();
    let session = &tree.session;
    let listed = session.json(0, &["fork", "list", "--workspace", &tree.dir()]);
    assert_eq!(listed["items"], json!([]));
    for words in [
        ["fork", "--workspace", &tree.dir(), "list"].as_slice(),
        &["fork", &tree.dir(), "list"],
    ] {
        assert_eq!(session.json(0, words)["items"], json!([]), "{words:?}");
    }
    let mixed = session.run(&["fork", &tree.dir(), "--count", "2", "list"]);
    assert_eq!(mixed.code, 2, "{}", mixed.err);

    let forked = session.json(0, &["fork", &tree.dir(), "--name", "x"]);

    assert_eq!(forked["names"], json!(["x"]));
    let taken = session.run(&["fork", &tree.dir(), "--name", "x"]);
    assert_eq!(taken.code, 2, "{}", taken.err);
    for bad in ["main", "../x", "-x", ""] {
        let name = format!("--name={bad}");
        let refused = session.run(&["fork", &tree.dir(), &name]);
        assert_eq!(refused.code, 2, "{bad}: {}", refused.err);
    }
}

#[test]
fn forks_count_in_the_budget_and_what_to_remove_is_named() {
    let big = "x".repeat(60_000);
    let tree = Tree::with(&[("big", &big)], &["--budget", "200KB"]);
    // Where bytes are shared, forks take nothing until they change.
    tree.fork_json(0, &["--name", "first"]);
    fs::write(tree.in_fork("first", "more"), "y".repeat(190_000)).unwrap();

    let refused = tree.fork_json(11, &["--name", "second"]);

    let hint = text(&refused["error"]["hint"]);
    assert!(hint.contains("stasis fork rm first` frees"), "{hint}");
    assert!(!tree.in_fork("second", "").exists());
    assert!(tree.rows()[0]["own_bytes"].as_u64().unwrap() >= 190_000);
    tree.fork_json(0, &["rm", "first", "--discard"]);
    tree.fork_json(0, &["--name", "second"]);
}

#[test]
fn a_fork_of_a_fork_goes_first_and_is_looked_for_where_it_is() {
    let tree = tree();
    tree.fork_json(0, &["--name", "f"]);
    let fork = tree.in_fork("f", "").display().to_string();
    tree.session.json(0, &["fork", &fork, "--name", "g"]);

    let refused = tree.fork(&["rm", "f"]);
    let nowhere = tree.session.run(&["fork", "rm", "f", "--workspace", &fork]);

    assert_eq!(refused.code, 8, "{}", refused.err);
    assert!(refused.err.contains('g'), "{}", refused.err);
    assert_eq!(nowhere.code, 3, "{}", nowhere.err);
    assert!(nowhere.err.contains(&tree.dir()), "{}", nowhere.err);
    tree.session
        .json(0, &["fork", "rm", "g", "--workspace", &fork]);
    // The checkpoint that `g` was made of is one of its own.
    assert_eq!(tree.fork(&["rm", "f"]).code, 8);
    tree.fork_json(0, &["rm", "f", "--discard"]);
}

#[test]
fn what_was_interrupted_costs_nobody_what_was_done_since() {
    let tree = tree();
    tree.fork_json(0, &["-n", "3"]);
    let become_again = |name: &str, state: &str| {
        let path = tree.kept().join(format!("fork.{name}.json"));
        let record = fs::read_to_string(&path).unwrap();
        assert!(record.contains("\"ready\""), "{record}");
        fs::write(&path, record.replace("\"ready\"", state)).unwrap();
    };
    fs::write(tree.in_fork("fork-1", "since"), "1").unwrap();
    become_again("fork-1", "\"removing\"");
    become_again("fork-2", "\"making\"");
    fs::write(tree.in_fork("fork-3", "since"), "1").unwrap();
    become_again("fork-3", "\"making\"");

    let names: Vec<String> = tree.rows().iter().map(|row| text(&row["name"])).collect();

    // The first was not removed yet, the second was made, and nobody can tell that the third is what was to be made.
    assert_eq!(names, ["fork-1", "fork-2"]);
    assert!(tree.in_fork("fork-1", "since").exists());
    assert!(tree.in_fork("fork-3", "since").exists());
}

#[test]
fn checkpoints_of_a_fork_and_what_is_excluded_are_not_removed_by_the_way() {
    let tree = tree();
    tree.fork_json(0, &["--name", "kept"]);
    let fork = tree.in_fork("kept", "");
    fs::write(fork.join("precious"), "only in a checkpoint").unwrap();
    let at = fork.to_str().unwrap();
    tree.session
        .json(0, &["workspace", "create", "mine", "--workspace", at]);
    fs::remove_file(fork.join("precious")).unwrap();

    let refused = tree.fork(&["rm", "kept"]);
    assert_eq!(refused.code, 8, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("1 checkpoints"), "{}", refused.err);
    assert!(fork.exists());

    // One that was moved away is forgotten, and goes on by itself.
    let far = tree.session.home().join("far");
    fs::create_dir(&far).unwrap();
    fs::rename(&fork, far.join("x")).unwrap();
    tree.fork_json(0, &["rm", "kept"]);
    let moved = far.join("x");
    let moved = moved.to_str().unwrap();
    let listed = tree
        .session
        .json(0, &["workspace", "list", "--workspace", moved]);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn a_fork_takes_over_no_checkpoints_of_a_workspace_that_lay_there() {
    let tree = tree();
    let other = tree.in_fork("g", "");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "mine").unwrap();
    let at = other.to_str().unwrap();
    tree.session
        .json(0, &["workspace", "init", at, "--no-checkpoint"]);
    tree.session
        .json(0, &["workspace", "create", "keepme", "--workspace", at]);
    let far = tree.session.home().join("far");
    fs::create_dir(&far).unwrap();
    fs::rename(&other, far.join("g")).unwrap();

    let forked = tree.fork(&["--name", "g"]);
    if forked.code == 0 {
        let removed = tree.fork(&["rm", "g"]);
        assert_eq!(removed.code, 0, "{}", removed.err);
    }

    let moved = far.join("g");
    let moved = moved.to_str().unwrap();
    let listed = tree
        .session
        .json(0, &["workspace", "list", "--workspace", moved]);
    assert_eq!(listed["items"][0]["name"], "keepme", "{listed}");
}

#[test]
fn settings_of_the_repository_are_work_of_the_workspace() {
    let tree = tree();
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b"]);
        let done = git
            .args(arguments)
            .current_dir(tree.at(""))
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "a"]);
    git(&["commit", "-qm", "one"]);
    tree.fork_json(0, &["--name", "p"]);
    fs::write(tree.in_fork("p", "b"), "better").unwrap();
    git(&["config", "remote.o.url", "http://x"]);

    let refused = tree.fork(&["promote", "p"]);
    let kept = tree.fork(&["promote", "p", "--keep-mine"]);

    assert_eq!(refused.code, 8, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains(".git/config"), "{}", refused.err);
    assert_eq!(kept.code, 0, "{}{}", kept.out, kept.err);
    assert_eq!(fs::read_to_string(tree.at("b")).unwrap(), "better");
    let config = fs::read_to_string(tree.at(".git/config")).unwrap();
    assert!(config.contains("http://x"), "{config}");
}
