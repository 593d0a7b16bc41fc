//! The ways back in a workspace: revert, restore, undo.

use crate::project::names;
use crate::session::{Said, said};
use crate::workspace::{Tree, changed, says, text};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

#[test]
fn a_file_is_reverted_to_each_of_its_versions_with_mode_and_time() {
    let tree = Tree::new(&[]);
    let stamp =
        |number: u64| SystemTime::UNIX_EPOCH + Duration::new(1_600_000_000 + number, 123_456_789);
    for number in 1..=3_u64 {
        tree.write("file", &format!("version {number}"));
        let mode = 0o600 + u32::try_from(number).unwrap();
        fs::set_permissions(tree.at("file"), fs::Permissions::from_mode(mode)).unwrap();
        let file = fs::File::options()
            .write(true)
            .open(tree.at("file"))
            .unwrap();
        file.set_modified(stamp(number)).unwrap();
        tree.checkpoint(&format!("v{number}"));
    }

    for number in [1, 3, 2_u64] {
        let told = tree.json(0, &["revert", "file", &format!("v{number}")]);
        let is = fs::metadata(tree.at("file")).unwrap();
        says(&told, &json!({ "path": "file", "dry_run": false }));
        assert_eq!(told["checkpoint"], format!("cp-{}", number + 9));
        says(&told, &json!({ "reverted": true, "action": "restored" }));
        assert_eq!(tree.read("file"), format!("version {number}"));
        assert_eq!(u64::from(is.mode() & 0o777), 0o600 + number);
        assert_eq!(is.modified().unwrap(), stamp(number));
        assert!(told["undo"].is_string(), "{told:#}");
    }
    let again = tree.json(0, &["revert", "file", "v2"]);
    says(&again, &json!({ "reverted": false, "action": "unchanged" }));
}

#[test]
fn a_revert_without_a_checkpoint_takes_the_newest_that_holds_the_file_and_differs() {
    let tree = Tree::new(&[("a", "old")]);
    tree.checkpoint("old");
    tree.write("a", "newer");
    tree.checkpoint("newer");
    fs::remove_file(tree.at("a")).unwrap();
    tree.checkpoint("without it");

    let back = tree.json(0, &["revert", "a"]);
    let newer = tree.read("a");
    let further = tree.json(0, &["revert", "a"]);

    assert_eq!(
        (&back["checkpoint"], newer.as_str()),
        (&json!("cp-11"), "newer")
    );
    assert_eq!(
        (&further["checkpoint"], tree.read("a").as_str()),
        (&json!("cp-10"), "old")
    );
}

#[test]
fn a_file_that_did_not_exist_then_is_deleted_and_undo_brings_it_back() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("before");
    tree.write("new", "precious");

    let told = tree.run(&["revert", "new", "before"]);
    let is_there = tree.at("new").exists();
    let undone = tree.json(0, &["undo"]);

    assert_eq!(told.code, 0, "{}", told.err);
    assert!(
        told.out.contains("deleted") && told.out.contains("Undo with: stasis undo "),
        "{}",
        told.out
    );
    assert!(!is_there);
    says(&undone, &json!({ "undone": true, "act": "revert" }));
    assert_eq!(undone["path"], "new");
    assert_eq!(tree.read("new"), "precious");
}

#[test]
fn directories_and_broken_links_come_back_as_they_were() {
    let tree = Tree::new(&[("dir/sub/file", "inside"), ("dir/other", "x")]);
    symlink("/no/such/place", tree.at("dir/broken")).unwrap();
    fs::create_dir(tree.at("dir/empty")).unwrap();
    tree.checkpoint("whole");
    let before = tree.contents();
    fs::remove_dir_all(tree.at("dir")).unwrap();
    tree.write("dir", "a directory that became a file");

    let told = tree.json(0, &["revert", "dir", "whole"]);

    says(&told, &json!({ "reverted": true, "action": "restored" }));
    assert_eq!(tree.contents(), before);
}

#[test]
fn a_restore_makes_the_whole_tree_what_it_was_and_can_itself_be_undone_and_redone() {
    let tree = Tree::new(&[("a", "one"), ("dir/b", "two"), ("same", "kept")]);
    tree.checkpoint("good");
    let good = tree.contents();
    let (root, same) = (
        fs::metadata(tree.at("")).unwrap().ino(),
        fs::metadata(tree.at("same")).unwrap().ino(),
    );
    tree.write("a", "broken");
    fs::remove_dir_all(tree.at("dir")).unwrap();
    tree.write("added/deep/file", "since");
    let broken = tree.contents();

    let told = tree.json(0, &["restore", "good"]);
    let restored = tree.contents();
    let status = tree.json(0, &["status"]);
    let undone = tree.json(0, &["undo", &text(&told["undo"])]);
    let back = tree.contents();
    let redone = tree.json(0, &["undo"]);

    says(&told, &json!({ "restored": true, "checkpoint": "cp-10" }));
    assert_eq!(told["plan"]["deletes_files"], 1);
    assert!(told["plan"]["deletes"].as_u64().unwrap() >= 3, "{told:#}");
    assert_eq!(restored, good);
    assert_eq!(
        (
            fs::metadata(tree.at("")).unwrap().ino(),
            fs::metadata(tree.at("same")).unwrap().ino()
        ),
        (root, same)
    );
    assert_eq!(
        (&status["undo"][0]["undo"], &status["undo"][0]["act"]),
        (&told["undo"], &json!("restore"))
    );
    says(&undone, &json!({ "undone": true, "act": "restore" }));
    assert_eq!(back, broken);
    assert_eq!(
        (&redone["act"], redone["redo"].is_string()),
        (&json!("undo"), true)
    );
    assert_eq!(tree.contents(), good);
    assert_eq!(tree.listed().len(), 1, "what undo needs is in neither pool");
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let tree = Tree::new(&[("a", "one"), ("b", "two")]);
    tree.checkpoint("first");
    tree.write("a", "two");
    tree.checkpoint("second");
    tree.json(0, &["revert", "a", "first"]);
    tree.write("added", "since");
    let fork = tree.session.home().join("fork");
    let (before, listed, undo) = (
        tree.contents(),
        tree.listed(),
        tree.json(0, &["status"])["undo"].clone(),
    );
    let dry = |words: &[&str]| tree.json(0, &[words, &["--dry-run"]].concat());

    let created = dry(&["create", "third"]);
    let reverted = dry(&["revert", "added", "first"]);
    let restored = dry(&["restore", "second"]);
    let deleted = dry(&["delete", "first"]);
    let compacted = dry(&["compact", "first", "second", "--name", "one"]);
    let forked = dry(&["fork", "first", fork.to_str().unwrap()]);
    let undone = dry(&["undo"]);
    let words = tree.run(&["restore", "second", "--dry-run"]);

    for (told, field) in [
        (&created, "created"),
        (&reverted, "reverted"),
        (&restored, "restored"),
        (&deleted, "deleted"),
        (&compacted, "compacted"),
        (&forked, "forked"),
        (&undone, "undone"),
    ] {
        assert_eq!(
            (&told["dry_run"], &told[field]),
            (&json!(true), &json!(false)),
            "{told:#}"
        );
    }
    assert_eq!(
        (&reverted["action"], &reverted["plan"]["deletes"]),
        (&json!("deleted"), &json!(1))
    );
    assert_eq!(
        (&restored["plan"]["deletes"], &restored["plan"]["replaces"]),
        (&json!(1), &json!(1))
    );
    assert!(restored["plan"]["digest"].is_string());
    assert!(words.out.contains("  delete     added\n"), "{}", words.out);
    assert!(words.out.contains("  change     a"), "{}", words.out);
    assert!(!fork.exists());
    assert_eq!((tree.contents(), tree.listed()), (before, listed));
    let after = &tree.json(0, &["status"])["undo"];
    assert_eq!(
        after.as_array().unwrap().len(),
        undo.as_array().unwrap().len()
    );
}

#[test]
fn in_a_subdirectory_paths_are_taken_from_there() {
    let tree = Tree::new(&[("name", "top"), ("deep/name", "deep")]);
    let inside = |words: &[&str]| {
        let mut command = tree
            .session
            .command(&[&["--json", "workspace"], words].concat());
        let told = said(command.current_dir(tree.at("deep")).output().unwrap());
        assert_eq!(told.code, 0, "{words:?}\n{}{}", told.out, told.err);
        serde_json::from_str::<Value>(&told.out).unwrap()
    };
    inside(&["create", "good"]);
    tree.write("name", "broken top");
    tree.write("deep/name", "broken deep");

    let here = inside(&["revert", "name"]);
    let deep = (tree.read("deep/name"), tree.read("name"));
    let above = inside(&["revert", "../name"]);
    let full = tree.at("deep/name");
    let history = inside(&["history", full.to_str().unwrap()]);
    let outside = {
        let mut command = tree
            .session
            .command(&["workspace", "revert", "../../elsewhere"]);
        said(command.current_dir(tree.at("deep")).output().unwrap())
    };

    assert_eq!(here["path"], "deep/name");
    assert_eq!(deep, ("deep".to_owned(), "broken top".to_owned()));
    assert_eq!(
        (&above["path"], tree.read("name").as_str()),
        (&json!("name"), "top")
    );
    assert_eq!(history["path"], "deep/name");
    assert_eq!(outside.code, 2, "{}", outside.err);
    assert!(outside.err.contains("hint: "), "{}", outside.err);
}

#[test]
fn odd_names_are_written_so_that_they_can_be_given_back() {
    let tree = Tree::new(&[("plain", "x")]);
    let odd: [&[u8]; 4] = [
        b"tab\there",
        b"line\nbreak",
        b"not \xff text",
        b"back\\slash",
    ];
    let at = |name: &[u8]| tree.at("").join(std::ffi::OsStr::from_bytes(name));
    for name in odd {
        fs::write(at(name), "before").unwrap();
    }
    tree.checkpoint("good");
    for name in odd {
        fs::write(at(name), "after!").unwrap();
    }

    let words = tree.run(&["changes"]);
    let told = changed(&tree.json(0, &["changes"]));
    for (path, _) in &told {
        tree.json(0, &["revert", path, "good"]);
    }

    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(words.out.lines().count(), 5, "one line each: {}", words.out);
    assert!(!words.out.contains('\t'), "{}", words.out);
    for name in odd {
        assert_eq!(fs::read_to_string(at(name)).unwrap(), "before");
    }
    assert_eq!(names(&tree.at("")).len(), 5);
}

/// Runs a command on a terminal, with this typed into it.
fn at_a_terminal(tree: &Tree, words: &[&str], typed: &str) -> Option<Said> {
    use std::io::Write;
    if Command::new("script").arg("--version").output().is_err() {
        let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
        assert!(!needed, "script is not installed: run scripts/parts");
        println!("skipped: script is not installed");
        return None;
    }
    let plain = tree.command(words);
    let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap());
    let line = [plain.get_program()].into_iter().chain(plain.get_args());
    let line: Vec<String> = line.map(quoted).collect();
    let mut script = Command::new("script");
    script.args(["-qec", &line.join(" "), "/dev/null"]);
    script.env_clear().env("SHELL", "/bin/sh");
    script.envs(
        plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    script
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = script.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(typed.as_bytes())
        .unwrap();
    Some(said(child.wait_with_output().unwrap()))
}

#[test]
fn a_restore_at_a_terminal_asks_before_it_deletes() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("good");
    tree.write("a", "two");
    for number in 0..15 {
        tree.write(&format!("added-{number:02}"), "since");
    }
    let before = tree.contents();

    let Some(no) = at_a_terminal(&tree, &["restore", "good"], "n\n") else {
        return;
    };
    let unchanged = tree.contents();
    let yes = at_a_terminal(&tree, &["restore", "good"], "y\n").unwrap();
    let restored = tree.contents();
    tree.json(0, &["undo"]);
    let unasked = at_a_terminal(&tree, &["restore", "good", "--yes"], "").unwrap();

    assert_eq!((no.code, unchanged), (130, before), "{}", no.out);
    assert!(
        no.out.contains("Restoring ")
            && no.out.contains("delete 15")
            && no.out.contains("Continue? [y/N]"),
        "{}",
        no.out
    );
    assert_eq!(no.out.matches("added-").count(), 10, "{}", no.out);
    assert!(no.out.contains("and 6 more"), "{}", no.out);
    assert_eq!((yes.code, restored.len()), (0, 1), "{}", yes.out);
    assert_eq!(unasked.code, 0, "{}", unasked.out);
    assert!(!unasked.out.contains("[y/N]"), "{}", unasked.out);
    assert_eq!(tree.contents().len(), 1);
}

/// Says so in the session's configuration.
fn exclude(tree: &Tree, pattern: &str) {
    let file = tree.kept().join("config.toml");
    fs::write(file, format!("exclude = [\"{pattern}\"]\n")).unwrap();
}

#[test]
fn what_is_excluded_is_never_taken_away_or_written_over() {
    let files = [
        ("a", "one"),
        ("data/old.db", "kept before it was excluded"),
        ("gone.db", "kept before it was excluded"),
    ];
    let tree = Tree::new(&files);
    tree.checkpoint("first");
    exclude(&tree, "*.db");
    tree.write("a", "two");
    tree.write("new/prod.db", "live");
    tree.write("data/old.db", "live");
    tree.write("data/added", "text");
    fs::remove_file(tree.at("gone.db")).unwrap();

    let changes = tree.json(0, &["changes"]);
    let dry = tree.json(13, &["restore", "first", "--dry-run"]);
    let over = tree.run(&["restore", "first"]);
    let rest = (tree.read("a"), tree.at("data/added").exists());
    tree.checkpoint("second");
    tree.write("later/prod.db", "live");
    tree.write("later/file", "text");
    tree.write("a", "three");
    let away = tree.json(13, &["restore", "second"]);
    let named = tree.run(&["revert", "data/old.db", "first"]);
    let around = tree.run(&["revert", "later", "second"]);

    let told = changes["items"].as_array().unwrap().iter();
    let told: Vec<&str> = told.map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(told, ["a", "data/added", "new"]);
    let left = json!({ "entries": 2, "paths": ["data/old.db", "gone.db"] });
    assert_eq!(dry["excluded_now"], left);
    assert_eq!(over.code, 13, "{}{}", over.out, over.err);
    for words in [
        "2 entries of cp-10 are excluded",
        "take the pattern out of `exclude`",
    ] {
        assert!(over.err.contains(words), "{}", over.err);
    }
    assert_eq!(rest, ("one".to_owned(), false));
    // A directory that came since is not taken away with what is in it.
    let later = json!([{ "path": "later/prod.db", "why": "holds_excluded", "within": "later" }]);
    assert_eq!(away["left_alone"], later);
    for refused in [&named, &around] {
        assert_eq!(refused.code, 2, "{}{}", refused.out, refused.err);
        assert!(refused.err.contains("excluded"), "{}", refused.err);
    }
    assert_eq!(
        (tree.read("a"), tree.read("later/file")),
        ("one".to_owned(), "text".to_owned())
    );
    for live in ["new/prod.db", "data/old.db", "later/prod.db"] {
        assert_eq!(tree.read(live), "live");
    }
}

#[test]
fn what_was_excluded_comes_back_when_the_pattern_goes() {
    let tree = Tree::new(&[("a", "one"), ("logs/x.log", "then")]);
    tree.checkpoint("first");
    exclude(&tree, "logs");
    tree.write("a", "two");
    tree.write("logs/x.log", "now");

    let left = tree.json(0, &["restore", "first"]);
    let (a, log) = (tree.read("a"), tree.read("logs/x.log"));
    fs::write(tree.kept().join("config.toml"), "").unwrap();
    let back = tree.json(0, &["restore", "first"]);
    let then = tree.read("logs/x.log");
    tree.json(0, &["undo"]);

    let counted = json!({ "entries": 2, "paths": ["logs"] });
    says(&left, &json!({ "restored": true, "excluded_now": counted }));
    assert_eq!((a.as_str(), log.as_str()), ("one", "now"));
    assert_eq!(back["excluded_now"], Value::Null);
    assert_eq!(then, "then");
    assert_eq!(tree.read("logs/x.log"), "now");
}

#[test]
fn a_directory_with_something_excluded_in_it_is_not_exchanged() {
    let tree = Tree::new(&[("d/a", "one"), ("d/prod.db", "live")]);
    exclude(&tree, "*.db");
    tree.checkpoint("good");
    tree.write("d/a", "two");

    let refused = tree.run(&["revert", "d", "good"]);
    let inside = tree.json(0, &["revert", "d/a", "good"]);

    assert_eq!(refused.code, 2, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("d/prod.db"), "{}", refused.err);
    assert_eq!(inside["reverted"], true);
    assert_eq!(tree.read("d/prod.db"), "live");
}

#[test]
fn a_socket_in_the_tree_does_not_make_every_checkpoint_a_new_one() {
    let tree = Tree::new(&[("a", "one")]);
    let _socket = std::os::unix::net::UnixListener::bind(tree.at("socket")).unwrap();

    let first = tree.json(0, &["create", "--auto"]);
    let second = tree.json(0, &["create", "--auto"]);

    assert_eq!(first["created"], true);
    assert_eq!(second["created"], false, "{second:#}");
    assert!(second["skipped"].as_str().unwrap().contains("cp-0"));
}

#[test]
fn the_number_of_an_undo_is_never_used_again() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("first");
    tree.write("a", "two");
    let reverted = tree.json(0, &["revert", "a"]);
    tree.write("a", "two");
    // Nothing differs from what it kept, so that it is used up without a change.
    let nothing = tree.json(0, &["undo"]);
    let again = tree.json(0, &["revert", "a"]);

    assert_eq!(nothing["undone"], false, "{nothing:#}");
    assert_ne!(reverted["undo"], again["undo"]);
}

#[test]
fn a_file_of_that_name_in_a_directory_above_is_nobodys_session() {
    let tree = Tree::new(&[("a", "one")]);
    fs::write(tree.session.home().join("session.json"), "{ not ours").unwrap();

    let made = tree.json(0, &["create", "first"]);

    assert_eq!(made["created"], true);
}
