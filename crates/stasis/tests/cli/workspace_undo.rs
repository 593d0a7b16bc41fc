//! What takes changes back: when it is kept, when it goes, and that nothing is changed without it.

use crate::project::names;
use crate::repo_world::noise;
use crate::session::said;
use crate::workspace::{Tree, says, text};
use crate::workspace_watch::{LARGE, large};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// What takes changes back, the newest first.
pub(crate) fn undos(tree: &Tree) -> Vec<String> {
    let status = tree.json(0, &["status"]);
    let rows = status["undo"].as_array().unwrap().iter();
    rows.map(|row| text(&row["undo"])).collect()
}

/// The metadata of what takes a change back.
pub(crate) fn note_of(tree: &Tree, number: u32) -> PathBuf {
    tree.kept().join(format!("undo/{number}/metadata.json"))
}

pub(crate) fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Makes an act one of which nobody wrote down that it was done, as a kill leaves it.
pub(crate) fn forget_that_it_was_done(note: &Path) {
    let mut metadata = read_json(note);
    assert_eq!(metadata["undo"]["pending"], json!(false), "{metadata:#}");
    metadata["undo"]["pending"] = json!(true);
    fs::write(note, metadata.to_string()).unwrap();
}

/// A workspace in which `a` was reverted from `two` to `one`, which `u-1` takes back.
pub(crate) fn reverted() -> Tree {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    tree.write("a", "two");
    let told = tree.json(0, &["revert", "a", "good"]);
    assert_eq!(told["undo"], "u-1");
    tree
}

/// Takes away what came out of the tree, as if the change had never been made.
fn without_backup(tree: &Tree, number: u32) {
    forget_that_it_was_done(&note_of(tree, number));
    let backup = tree.kept().join(format!("undo/{number}/workspace/backup"));
    fs::remove_dir_all(backup).unwrap();
}

#[test]
fn a_change_that_never_happened_leaves_no_undo() {
    let tree = reverted();
    without_backup(&tree, 1);

    let found = undos(&tree);
    let undone = tree.run(&["undo"]);

    assert!(found.is_empty(), "{found:?}");
    assert!(!tree.kept().join("undo/1").exists());
    assert_eq!(undone.code, 3, "{}{}", undone.out, undone.err);
    assert!(undone.err.contains("nothing to undo"), "{}", undone.err);
}

#[test]
fn a_workspace_is_not_given_another_session_directory_without_a_word() {
    let tree = Tree::new(&[("a", "one")]);
    let (dir, other) = (tree.dir(), tree.session.home().join("other"));
    let other = other.to_str().unwrap();

    let refused = tree
        .session
        .run(&["workspace", "init", &dir, "--session-dir", other]);
    let own = tree.kept();
    let same = [
        "workspace",
        "init",
        &dir,
        "--session-dir",
        own.to_str().unwrap(),
    ];

    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("already"), "{}", refused.err);
    assert!(!Path::new(other).exists());
    assert_eq!(tree.session.run(&same).code, 0);
}

#[test]
fn the_permissions_of_a_directory_that_a_restore_changed_come_back() {
    use std::os::unix::fs::PermissionsExt;
    let tree = Tree::new(&[("d/a", "one")]);
    let set = |mode| fs::set_permissions(tree.at("d"), fs::Permissions::from_mode(mode)).unwrap();
    let mode = || fs::metadata(tree.at("d")).unwrap().permissions().mode() & 0o777;
    set(0o755);
    tree.checkpoint("good");
    set(0o700);
    tree.json(0, &["restore", "good", "--yes"]);
    assert_eq!(mode(), 0o755);

    let undone = tree.json(0, &["undo", "--yes"]);

    assert_eq!(undone["undone"], true, "{undone}");
    assert_eq!(mode(), 0o700);
}

#[test]
fn an_act_that_happened_is_undone_though_nobody_wrote_down_that_it_was_done() {
    let tree = reverted();
    let note = note_of(&tree, 1);
    forget_that_it_was_done(&note);

    let found = undos(&tree);
    let pending = read_json(&note)["undo"]["pending"].clone();
    // It is decided once: what somebody does later is none of its business.
    tree.write("a", "two");
    let later = undos(&tree);
    tree.write("a", "three");
    tree.json(0, &["undo"]);

    assert_eq!(
        (found, later),
        (vec!["u-1".to_owned()], vec!["u-1".to_owned()])
    );
    assert_eq!(pending, json!(false));
    assert_eq!(tree.read("a"), "two");
}

#[test]
fn an_act_that_was_done_is_undone_though_somebody_made_it_again_what_it_was() {
    let tree = reverted();
    tree.write("a", "two");

    assert_eq!(undos(&tree), ["u-1"]);
}

#[test]
fn a_restore_that_happened_is_undone_though_nobody_wrote_down_that_it_was_done() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    tree.write("a", "two");
    tree.write("new", "precious");
    let before = tree.contents();
    tree.json(0, &["restore", "good"]);
    forget_that_it_was_done(&note_of(&tree, 1));

    let found = undos(&tree);
    tree.json(0, &["undo"]);

    assert_eq!(found, ["u-1"]);
    assert_eq!(tree.contents(), before);
}

#[test]
fn what_could_be_undone_is_let_go_at_once_and_nothing_else_is() {
    let tree = Tree::new(&[("a", "one"), ("b", "one")]);
    tree.checkpoint("good");
    let held = || tree.json(0, &["status"])["held_bytes"].as_u64().unwrap();
    let before = held();
    tree.write("a", &"two ".repeat(20_000));
    tree.json(0, &["revert", "a"]);
    tree.write("b", "two");
    tree.json(0, &["restore", "good"]);
    let (with_undos, contents, listed) = (held(), tree.contents(), tree.listed());

    let both = tree.run(&["undo", "u-1", "--forget"]);
    let dry = tree.run(&["undo", "--forget", "--dry-run"]);
    let kept = undos(&tree);
    let told = tree.json(0, &["undo", "--forget"]);
    let again = tree.run(&["undo", "--forget"]);
    let undone = tree.run(&["undo"]);

    assert_eq!((both.code, dry.code), (2, 2), "{}{}", both.err, dry.err);
    assert_eq!(kept, ["u-2", "u-1"]);
    assert_eq!(told["forgotten"], 2);
    assert_eq!((again.code, undone.code), (0, 3), "{}", again.err);
    assert!(again.out.contains("0 undo checkpoints"), "{}", again.out);
    assert_eq!((tree.contents(), tree.listed()), (contents, listed));
    assert!(with_undos > before, "{with_undos} and {before}");
    assert_eq!(held(), before, "their bytes are free");
    tree.write("a", "two");
    let next = tree.json(0, &["revert", "a"]);
    assert_eq!(next["undo"], "u-3", "no number is used again");
}

#[test]
fn undos_are_kept_for_seven_days_and_one_that_goes_is_named() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    for number in 1..=12 {
        tree.write("a", &format!("version {number}"));
        tree.json(0, &["revert", "a", "good"]);
    }

    let found = undos(&tree);
    tree.json(0, &["undo", "u-2"]);
    let (undone, redo) = (tree.read("a"), undos(&tree));
    for number in [1, 3] {
        age(&tree, number);
    }
    tree.write("a", "version 14");
    let told = tree.json(0, &["revert", "a", "good"]);
    age(&tree, 4);
    tree.write("a", "version 15");
    let words = tree.run(&["restore", "good"]);

    let expected: Vec<String> = (1..=12).rev().map(|number| format!("u-{number}")).collect();
    assert_eq!(found, expected);
    assert_eq!((undone.as_str(), redo[0].as_str()), ("version 2", "u-13"));
    let gone = json!([{ "undo": "u-1", "why": "old" }, { "undo": "u-3", "why": "old" }]);
    assert_eq!(told["undo_forgotten"], gone, "{told:#}");
    let line = "u-4 can be undone no longer: it was kept for 7 days";
    assert!(words.out.contains(line), "{}", words.out);
    assert_eq!(undos(&tree).last().unwrap(), "u-5");
}

/// Makes an undo checkpoint eight days old.
fn age(tree: &Tree, number: u32) {
    let file = tree.kept().join(format!("undo/{number}/metadata.json"));
    let mut metadata: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let millis = metadata["epoch_millis"].as_u64().unwrap() - 8 * 24 * 3_600_000;
    metadata["epoch_millis"] = json!(millis);
    metadata["epoch_secs"] = json!(millis / 1000);
    fs::write(file, metadata.to_string()).unwrap();
}

#[test]
fn over_the_budget_the_oldest_undos_go_and_ten_stay() {
    let tree = Tree::with(&[("a", "one")], &["--budget", "2MB"]);
    tree.checkpoint("good");
    let mut gone = Vec::new();
    for number in 1..=12_u8 {
        tree.write("a", &char::from(b'a' + number).to_string().repeat(300_000));
        let told = tree.json(0, &["revert", "a", "good"]);
        gone.extend(told["undo_forgotten"].as_array().cloned());
    }

    let expected: Vec<String> = (3..=12).rev().map(|number| format!("u-{number}")).collect();
    assert_eq!(undos(&tree), expected);
    let row = |number: u32| json!({ "undo": format!("u-{number}"), "why": "budget" });
    assert_eq!(gone.concat(), [row(1), row(2)]);
}

#[test]
fn an_undo_that_leaves_something_alone_keeps_what_would_have_come_back() {
    let files = [("a", "one"), ("b/c", "one"), ("b/keep/d", "one")];
    let tree = Tree::new(&files);
    tree.checkpoint("good");
    for (path, _) in files {
        tree.write(path, "two, and longer");
    }
    tree.write("b/keep/new", "new");
    let two = tree.contents();

    let restored = tree.json(0, &["restore", "good"]);
    let dry = tree.json(0, &["undo", "--except", "b/keep", "--dry-run"]);
    let part = tree.json(0, &["undo", "--except", "b/keep"]);
    let left = (tree.read("a"), tree.read("b/c"), tree.read("b/keep/d"));
    let is_new = tree.at("b/keep/new").exists();
    let redone = tree.json(0, &["undo"]);
    let one = tree.contents();
    let whole = tree.json(0, &["undo"]);

    says(
        &restored,
        &json!({ "restored": true, "changed_meanwhile": [] }),
    );
    says(
        &dry["plan"],
        &json!({ "creates": 0, "replaces": 2, "deletes": 0 }),
    );
    says(&part, &json!({ "undone": true, "changed_meanwhile": [] }));
    let expected = ["two, and longer", "two, and longer", "one"].map(str::to_owned);
    assert_eq!((left.0, left.1, left.2), expected.into());
    assert!(!is_new);
    says(&redone, &json!({ "undone": true, "changed_meanwhile": [] }));
    let then: Vec<(std::path::PathBuf, String)> = one.into_iter().collect();
    for (path, content) in files {
        assert!(then.contains(&(path.into(), content.to_owned())), "{path}");
    }
    assert_eq!(whole["undone"], true);
    assert_eq!(tree.contents(), two, "what was left alone came back too");
}

#[test]
fn what_an_exception_left_alone_was_not_changed_by_others() {
    let tree = Tree::new(&[("a", "one"), ("b", "one")]);
    tree.checkpoint("good");
    tree.write("a", "two");
    tree.write("b", "two, and longer");

    let told = tree.json(0, &["restore", "good", "--except", "b"]);

    says(&told, &json!({ "restored": true, "changed_meanwhile": [] }));
    assert_eq!(tree.read("b"), "two, and longer");
}

#[test]
fn an_undo_that_was_used_is_gone_and_only_its_redo_is_there() {
    let tree = reverted();

    let undone = tree.json(0, &["undo"]);
    let left = undos(&tree);
    let again = tree.run(&["undo", "u-1"]);

    assert_eq!(undone["redo"], "u-2");
    assert_eq!(left, ["u-2"]);
    assert_eq!(again.code, 3, "{}{}", again.out, again.err);
}

#[test]
fn an_undo_of_several_changes_is_one_change() {
    let tree = Tree::new(&[("a", "one"), ("b", "one")]);
    tree.checkpoint("one");
    for (name, version) in [("a", "two"), ("b", "three"), ("a", "four")] {
        tree.write(name, version);
        tree.json(0, &["restore", "one"]);
    }
    assert_eq!(undos(&tree), ["u-3", "u-2", "u-1"]);

    tree.json(0, &["undo", "u-1"]);
    assert_eq!(
        (tree.read("a"), tree.read("b")),
        ("two".into(), "three".into())
    );
    tree.json(0, &["undo"]);

    assert_eq!(
        (tree.read("a"), tree.read("b")),
        ("one".into(), "one".into())
    );
    tree.json(0, &["undo"]);
    assert_eq!(
        (tree.read("a"), tree.read("b")),
        ("two".into(), "three".into())
    );
}

#[test]
fn directories_that_a_revert_made_go_with_its_undo_unless_something_else_is_in_them() {
    let tree = Tree::new(&[("one/deep/a", "x"), ("two/deep/a", "x"), ("b", "x")]);
    tree.checkpoint("good");
    for top in ["one", "two"] {
        fs::remove_dir_all(tree.at(top)).unwrap();
        tree.json(0, &["revert", &format!("{top}/deep/a")]);
    }
    tree.write("two/mine", "since");

    tree.json(0, &["undo", "u-2"]);
    tree.json(0, &["undo", "u-1"]);

    assert_eq!(names(&tree.at("")), ["b", "two"]);
    assert_eq!(names(&tree.at("two")), ["mine"]);
}

/// Waits until a restore has begun to stage what will come.
fn until_staged(tree: &Tree) {
    let beside = tree.at("").parent().unwrap().to_owned();
    for _ in 0..5_000 {
        if names(&beside)
            .iter()
            .any(|name| name.contains("stasis-tmp-in-"))
        {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    panic!("no restore began");
}

/// Where a file is that somebody wrote during an act: in the workspace, or in what takes the act back.
fn is_somewhere(tree: &Tree, path: &str, content: &str) -> bool {
    let is_it = |file: PathBuf| fs::read_to_string(file).is_ok_and(|text| text == content);
    let undos = fs::read_dir(tree.kept().join("undo")).unwrap();
    let kept = undos.map(|undo| {
        undo.unwrap()
            .path()
            .join("workspace/backup/tree")
            .join(path)
    });
    is_it(tree.at(path)) || kept.into_iter().any(is_it)
}

#[test]
fn what_somebody_writes_while_an_act_begins_is_not_lost() {
    let tree = large();
    fs::write(tree.kept().join("config.toml"), "exclude = [\"*.log\"]\n").unwrap();
    tree.checkpoint("good");
    for number in 0..LARGE {
        let bytes = noise(100 + number, 1 << 20);
        fs::write(tree.at(&format!("f{number}")), bytes).unwrap();
    }
    tree.write("added/since", "goes");
    let mut restoring = tree.command(&["restore", "good"]);
    let restored = std::thread::scope(|scope| {
        let restored = scope.spawn(move || said(restoring.output().unwrap()));
        until_staged(&tree);
        tree.write("late", "precious");
        tree.write("f0", "precious too");
        tree.write("added/run.log", "excluded");
        restored.join().unwrap()
    });

    // What is in no checkpoint refuses a restore that would take it away, if it is there in time.
    let is_refused = restored.code == 2 && restored.err.contains("added/run.log");
    assert!(
        restored.code == 0 || is_refused,
        "{}{}",
        restored.out,
        restored.err
    );
    for (path, content) in [
        ("late", "precious"),
        ("f0", "precious too"),
        ("added/run.log", "excluded"),
    ] {
        assert!(
            is_somewhere(&tree, path, content),
            "{path}: {}",
            restored.out
        );
    }
}

#[test]
fn a_file_that_is_written_all_the_time_hinders_no_restore_and_is_named() {
    let tree = Tree::new(&[("a", "one"), ("busy", "0")]);
    tree.checkpoint("good");
    tree.write("a", "two");
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let (restored, dry) = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                if is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                fs::write(tree.at("busy"), format!("{number}")).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        let restored: Vec<Value> = (0..5)
            .map(|_| {
                let told = tree.json(0, &["restore", "good"]);
                std::thread::sleep(std::time::Duration::from_millis(20));
                told
            })
            .collect();
        let dry = tree.json(0, &["restore", "good", "--except", "busy", "--dry-run"]);
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        (restored, dry)
    });

    assert!(
        restored.iter().all(|told| told["restored"] == true),
        "{restored:#?}"
    );
    let is_named = |told: &&Value| told["changed_meanwhile"] == json!(["busy"]);
    assert!(
        restored.iter().filter(is_named).count() >= 4,
        "{restored:#?}"
    );
    assert_eq!(dry["plan"]["replaces"], 0, "{dry:#}");
    assert_eq!(tree.read("a"), "one");
}

#[test]
fn what_is_excepted_is_left_as_it_is() {
    let tree = Tree::new(&[("a", "one"), ("data/app.db", "one"), ("data/x", "one")]);
    tree.checkpoint("good");
    for path in ["a", "data/app.db", "data/x", "data/app.db-wal", "new/file"] {
        tree.write(path, "two");
    }

    let told = tree.json(
        0,
        &[
            "restore",
            "good",
            "--except",
            "data/app.db",
            "--except",
            "new",
        ],
    );

    assert_eq!(told["plan"]["deletes"], 0, "{told:#}");
    assert_eq!(told["plan"]["replaces"], 2, "{told:#}");
    let read = |path: &str| tree.read(path);
    assert_eq!([read("a"), read("data/x")], ["one", "one"]);
    for path in ["data/app.db", "data/app.db-wal", "new/file"] {
        assert_eq!(read(path), "two", "{path}");
    }
}

#[test]
fn an_undo_needs_no_room_in_the_budget() {
    let tree = Tree::with(&[("a", "one"), ("d/b", "one")], &["--budget", "1MB"]);
    tree.checkpoint("good");
    for path in ["a", "d/b"] {
        fs::write(tree.at(path), noise(1, 1 << 20)).unwrap();
    }
    let before = tree.contents();

    let file = tree.json(0, &["revert", "a", "good"]);
    let whole = tree.json(0, &["restore", "good"]);
    let restored = tree.read("d/b");
    for undo in [&whole, &file] {
        tree.json(0, &["undo", &text(&undo["undo"])]);
    }

    assert_eq!(restored, "one");
    assert!(tree.contents() == before);
}

#[test]
fn an_older_restore_is_undone_with_those_after_it() {
    let tree = Tree::new(&[("a", "one"), ("b", "one")]);
    tree.checkpoint("good");
    tree.write("a", "two");
    tree.json(0, &["restore", "good"]);
    tree.write("b", "two");
    tree.write("mine", "since");
    tree.json(0, &["restore", "good", "--except", "mine"]);

    let undone = tree.json(0, &["undo", "u-1"]);
    let before = (tree.read("a"), tree.read("b"), tree.read("mine"));
    tree.json(0, &["undo", &text(&undone["redo"])]);

    let words = |[a, b, c]: [&str; 3]| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(before, words(["two", "two", "since"]));
    assert_eq!(
        (tree.read("a"), tree.read("b"), tree.read("mine")),
        words(["one", "one", "since"])
    );
}

#[test]
fn an_act_that_is_not_known_to_be_done_blocks_nobody_when_its_path_is_excluded_since() {
    let tree = reverted();
    let (note, config) = (note_of(&tree, 1), tree.kept().join("config.toml"));
    forget_that_it_was_done(&note);
    fs::write(config, "exclude = [\"a\"]\n").unwrap();

    let made = tree.run(&["create", "next"]);

    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    assert!(note.exists(), "whether it was done nobody knows");
}

#[test]
fn the_oldest_of_the_undos_that_are_kept_is_taken_back_like_any_other() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    for number in 1..=10 {
        tree.write("a", &format!("version {number}"));
        tree.json(0, &["revert", "a", "good"]);
    }

    let undone = tree.run(&["undo", "u-1"]);

    assert_eq!(tree.read("a"), "version 1");
    assert_eq!(undone.code, 0, "{}{}", undone.out, undone.err);
}

#[test]
fn an_undo_that_brings_nothing_back_is_not_forgotten() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    tree.write("a", "my work");
    tree.json(0, &["restore", "good"]);

    let nothing = tree.json(0, &["undo", "--except", "a"]);
    let left = tree.read("a");
    let undone = tree.json(0, &["undo"]);

    assert_eq!(
        (left.as_str(), &nothing["undone"]),
        ("one", &json!(false)),
        "{nothing:#}"
    );
    assert_eq!(undone["undone"], true, "{undone:#}");
    assert_eq!(tree.read("a"), "my work");
}

#[test]
fn what_an_undo_of_several_left_alone_outlives_the_next_undo() {
    let tree = Tree::new(&[("x", "one"), ("y", "one")]);
    tree.checkpoint("good");
    tree.write("x", "my x");
    let first = tree.json(0, &["restore", "good"]);
    tree.write("y", "my y");
    tree.json(0, &["restore", "good"]);
    let first = first["undo"].as_str().unwrap();

    tree.json(0, &["undo", first, "--except", "x"]);
    assert_eq!(
        (tree.read("x"), tree.read("y")),
        ("one".into(), "my y".into())
    );
    // However often somebody says it, each undo takes the last one back.
    let mut seen = Vec::new();
    for _ in 0..4 {
        if tree.run(&["undo"]).code != 0 {
            break;
        }
        seen.push(tree.read("x"));
    }

    assert!(seen.contains(&"my x".to_owned()), "{seen:?}");
}

#[test]
fn what_the_system_refused_to_bring_back_comes_with_a_later_undo() {
    let tree = Tree::new(&[("a", "one"), ("b", "one"), ("c", "one")]);
    tree.checkpoint("good");
    for name in ["a", "b", "c"] {
        tree.write(name, "my work");
    }
    tree.json(0, &["restore", "good"]);
    let fixed = tree.at("b");
    let set = |flag: &str| {
        let status = std::process::Command::new("chattr")
            .arg(flag)
            .arg(&fixed)
            .status();
        status.is_ok_and(|status| status.success())
    };
    if !set("+i") {
        println!("skipped: nobody can make a file immutable here");
        return;
    }

    let undone = tree.run(&["undo", "--json"]);
    let state = ["a", "b", "c"].map(|name| tree.read(name));
    assert!(set("-i"));

    assert_eq!(undone.code, 13, "{}{}", undone.out, undone.err);
    let told: serde_json::Value = serde_json::from_str(&undone.out).unwrap();
    assert_eq!(told["left_alone"][0]["path"], "b", "{told:#}");
    assert_eq!(told["changed_meanwhile"], json!([]), "{told:#}");
    assert_eq!(state, ["my work", "one", "my work"]);
    tree.json(0, &["undo"]);
    tree.json(0, &["undo"]);
    assert_eq!(["a", "b", "c"].map(|name| tree.read(name)), ["my work"; 3]);
}
