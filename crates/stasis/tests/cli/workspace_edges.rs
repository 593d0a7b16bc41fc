//! What happens to a workspace at its edges: directories that were moved, names that look like our own escapes, checkpoints that
//! are named twice.

use crate::project::names;
use crate::repo_world::noise;
use crate::session::{Session, type_command};
use crate::workspace::{Tree, changed, says, text};
use crate::workspace_undo::{read_json, reverted};
use crate::workspace_watch::asked;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn compacting_takes_no_checkpoint_twice() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("first");

    let twice = tree.run(&["compact", "first", "cp-10"]);

    assert_eq!(twice.code, 2, "{}{}", twice.out, twice.err);
    assert_eq!(tree.listed().len(), 1);
}

#[test]
fn a_compaction_does_not_take_the_name_of_another_and_is_written_down() {
    let tree = Tree::new(&[("a", "one")]);
    for text in ["two", "three"] {
        tree.json(0, &["create", "--auto"]);
        tree.write("a", text);
    }
    tree.checkpoint("theirs");

    let taken = tree.run(&["compact", "cp-0", "cp-1", "--name", "theirs"]);
    let kept = tree.listed().len();
    let both = tree.json(0, &["compact", "cp-0", "cp-1", "--name", "both"]);
    let last = "SELECT slot, origin, name FROM snapshot_events ORDER BY id DESC LIMIT 1";

    assert_eq!(taken.code, 11, "{}{}", taken.out, taken.err);
    assert_eq!(kept, 3);
    assert_eq!(both["checkpoint"], "cp-11");
    assert_eq!(asked(&tree, last), json!([[11, "manual", "both"]]));
}

#[test]
fn a_fork_goes_neither_into_the_workspace_nor_into_its_session() {
    let tree = Tree::new(&[("d/a", "one")]);
    tree.checkpoint("good");
    let places = [tree.at("d/fork"), tree.kept().join("fork")];

    for place in &places {
        let refused = tree.run(&["fork", "good", place.to_str().unwrap()]);
        assert_eq!(refused.code, 2, "{}{}", refused.out, refused.err);
        assert!(!place.exists());
    }
}

#[test]
fn with_a_system_every_automatic_checkpoint_is_made() {
    let session = Session::new();
    let [work, system] = ["work", "system"].map(|name| session.home().join(name));
    for directory in [&work, &system] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("a"), "one").unwrap();
    }
    let (work, system_text) = (work.to_str().unwrap(), system.to_str().unwrap());
    session.json(0, &["workspace", "init", work, "--system", system_text]);
    let auto = ["workspace", "create", "--auto", "--workspace", work];
    session.json(0, &auto);
    fs::write(system.join("a"), "two").unwrap();

    let second = session.json(0, &auto);

    assert_eq!(second["created"], true, "{second:#}");
}

/// The words that make the directory of a tree known again in another place.
fn init_at<'a>(place: &'a Path, session: &'a Path) -> [&'a str; 5] {
    let (place, session) = (place.to_str().unwrap(), session.to_str().unwrap());
    ["workspace", "init", place, "--session-dir", session]
}

#[test]
fn a_workspace_that_was_moved_is_made_known_again_with_all_its_checkpoints() {
    let tree = reverted();
    let (kept, listed) = (tree.kept(), tree.listed());
    let moved = tree.session.home().join("moved");
    fs::rename(tree.at(""), &moved).unwrap();
    let at = |words: &[&str]| {
        let place = ["--workspace", moved.to_str().unwrap()];
        tree.session
            .json(0, &[&["workspace"], words, &place].concat())
    };

    let known = tree.session.json(0, &init_at(&moved, &kept));
    let rows = at(&["list"]);
    at(&["undo"]);
    let undone = fs::read_to_string(moved.join("a")).unwrap();
    at(&["restore", "good"]);
    let next = at(&["create", "next"]);

    says(
        &known,
        &json!({ "workspace": moved, "session": kept, "existed": false }),
    );
    assert_eq!(rows["items"][0]["hash"], listed[0].1);
    assert_eq!(undone, "two");
    assert_eq!(fs::read_to_string(moved.join("a")).unwrap(), "one");
    assert_eq!(next["checkpoint"], "cp-11");
}

#[test]
fn a_workspace_that_was_moved_goes_on_where_it_is_and_its_old_place_is_free() {
    let tree = reverted();
    let (kept, listed) = (tree.kept(), tree.listed());
    fs::create_dir(tree.session.home().join("far")).unwrap();
    let moved = tree.session.home().join("far/moved");
    fs::create_dir(tree.at("inner")).unwrap();
    fs::rename(tree.at(""), &moved).unwrap();
    let inner = moved.join("inner");
    let at = |place: &Path, words: &[&str]| {
        let place = ["--workspace", place.to_str().unwrap()];
        tree.session
            .json(0, &[&["workspace"], words, &place].concat())
    };

    let gone = tree.session.json(0, &["list"]);
    let rows = at(&inner, &["list"]);
    let next = at(&moved, &["create", "next"]);
    let status = at(&moved, &["status"]);
    at(&moved, &["restore", "good"]);

    let row = &gone["workspaces"][0];
    says(
        row,
        &json!({ "workspace": tree.dir(), "is_there": false, "session": kept }),
    );
    assert_eq!(rows["items"][0]["hash"], listed[0].1);
    assert_eq!(next["checkpoint"], "cp-11");
    says(&status, &json!({ "workspace": moved, "session": kept }));
    assert_eq!(fs::read_to_string(moved.join("a")).unwrap(), "one");
    // Another directory at the old place is another workspace.
    fs::create_dir(tree.at("")).unwrap();
    let other = tree.session.json(0, &["workspace", "init", &tree.dir()]);
    assert_ne!(other["session"], json!(kept));
    assert_eq!(tree.listed().len(), 1);
    assert_eq!(at(&moved, &["list"])["items"].as_array().unwrap().len(), 2);
    let listed = tree.session.json(0, &["list"]);
    let all = listed["workspaces"].as_array().unwrap();
    assert!(all.iter().all(|row| row["is_there"] == true), "{listed:#}");
    assert_eq!(all.len(), 2, "{listed:#}");
}

#[test]
fn a_workspace_that_was_renamed_is_itself_although_another_directory_has_its_name() {
    let tree = reverted();
    let (kept, listed) = (tree.kept(), tree.listed());
    let moved = tree.session.home().join("moved");
    fs::rename(tree.at(""), &moved).unwrap();
    fs::create_dir(tree.at("")).unwrap();

    let other = tree.run(&["list"]);
    let init = tree
        .session
        .json(0, &["workspace", "init", moved.to_str().unwrap()]);

    assert_eq!(other.code, 3, "{}", other.err);
    says(
        &init,
        &json!({ "workspace": moved, "session": kept, "existed": true }),
    );
    let place = ["workspace", "list", "--workspace", moved.to_str().unwrap()];
    let rows = tree.session.json(0, &place);
    assert_eq!(rows["items"][0]["hash"], listed[0].1);
}

#[test]
fn a_workspace_that_was_moved_far_while_another_has_its_path_is_taken_over_as_the_hint_says() {
    let tree = reverted();
    let (kept, listed) = (tree.kept(), tree.listed());
    fs::create_dir(tree.session.home().join("far")).unwrap();
    let moved = tree.session.home().join("far/moved");
    fs::rename(tree.at(""), &moved).unwrap();
    fs::create_dir(tree.at("")).unwrap();
    let list = ["workspace", "list", "--workspace", moved.to_str().unwrap()];

    let refused = tree.session.run(&list);
    let taken = type_command(&tree.session, &refused.err, &["init", "--session-dir"], "");

    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(refused.err.contains(&tree.dir()), "{}", refused.err);
    assert_eq!(taken.code, 0, "{}", taken.err);
    assert!(taken.out.contains(kept.to_str().unwrap()), "{}", taken.out);
    let rows = tree.session.json(0, &list);
    assert_eq!(rows["items"][0]["hash"], listed[0].1);
    assert_eq!(tree.run(&["list"]).code, 3);
}

#[test]
fn a_session_that_knows_its_workspace_by_its_path_only_is_named_when_that_is_gone() {
    let tree = reverted();
    let (kept, listed) = (tree.kept(), tree.listed());
    // As an earlier build wrote it.
    let identity = json!({ "workspace": tree.dir(), "system": null });
    fs::write(kept.join("session.json"), identity.to_string()).unwrap();
    let moved = tree.session.home().join("moved");
    fs::rename(tree.at(""), &moved).unwrap();
    let list = ["workspace", "list", "--workspace", moved.to_str().unwrap()];

    let refused = tree.session.run(&list);
    let shown = tree.session.data(0, &["list"]);
    // Nothing but the user knows which directory it is.
    let place = moved.to_str().unwrap();
    let taken = type_command(
        &tree.session,
        &refused.err,
        &["init", "--session-dir"],
        place,
    );

    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(refused.err.contains(&tree.dir()), "{}", refused.err);
    assert!(shown.contains(&format!("{} (gone)", tree.dir())), "{shown}");
    assert_eq!(taken.code, 0, "{}", taken.err);
    let rows = tree.session.json(0, &list);
    assert_eq!(rows["items"][0]["hash"], listed[0].1);
    // From now on it is known by more.
    let again = tree.session.home().join("again");
    fs::rename(&moved, &again).unwrap();
    let place = ["workspace", "list", "--workspace", again.to_str().unwrap()];
    tree.session.json(0, &place);
}

#[test]
fn a_fork_that_cannot_be_made_is_named_by_its_own_name() {
    let tree = reverted();
    let target = tree.session.home().join("try");
    fs::create_dir(tree.session.home().join("try-2")).unwrap();

    let refused = tree.run(&["fork", "good", target.to_str().unwrap(), "--n", "3"]);

    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(
        refused.err.contains("/try-2` cannot be made"),
        "{}",
        refused.err
    );
    assert!(!tree.session.home().join("try-1").exists());
}

#[test]
fn the_session_of_a_workspace_that_is_still_there_is_not_given_to_another() {
    let tree = reverted();
    let (kept, listed) = (tree.kept(), tree.listed());
    let copied = tree.session.home().join("copied");
    fs::create_dir(&copied).unwrap();

    let refused = tree.session.run(&init_at(&copied, &kept));

    assert_eq!(refused.code, 2, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains(&tree.dir()), "{}", refused.err);
    assert_eq!(tree.listed(), listed);
    assert!(names(&copied).is_empty());
}

#[test]
fn a_name_like_an_undo_is_refused_and_one_that_only_begins_so_is_not() {
    let tree = Tree::new(&[("a", "one")]);

    let refused = tree.run(&["create", "u-3"]);
    tree.checkpoint("u-turn");

    assert_eq!(refused.code, 2, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("u-"), "{}", refused.err);
    assert_eq!(tree.listed().len(), 1);
}

/// The name of a file with a line break in it, as answers write it, and a file that really has that name.
const SHOWN: &str = r"a\x0ab";

/// A workspace with a file whose name has a line break, and one whose name is what answers write for the other.
fn twins() -> Tree {
    let tree = Tree::new(&[("a\nb", "break"), (SHOWN, "literal")]);
    tree.checkpoint("good");
    tree.write("a\nb", "break changed");
    tree.write(SHOWN, "literal changed");
    tree
}

#[test]
fn a_file_whose_name_looks_like_an_escape_is_reached_as_answers_write_it() {
    let tree = twins();
    let told = changed(&tree.json(0, &["changes"]));
    let paths: Vec<&str> = told.iter().map(|(path, _)| path.as_str()).collect();

    let diff = tree.json(0, &["diff", r"a\\x0ab"]);
    let history = tree.json(0, &["history", r"a\\x0ab"]);
    let reverted = tree.json(0, &["revert", r"a\\x0ab"]);

    assert_eq!(paths, [r"a\\x0ab", SHOWN]);
    for answer in [&diff, &history, &reverted] {
        assert_eq!(answer["path"], r"a\\x0ab");
    }
    assert!(text(&diff["unified"]).contains("+literal changed"));
    assert_eq!(
        (tree.read(SHOWN), tree.read("a\nb")),
        ("literal".to_owned(), "break changed".to_owned())
    );
}

#[test]
fn a_deleted_file_whose_name_looks_like_an_escape_comes_back_under_its_own_name() {
    let tree = Tree::new(&[(SHOWN, "literal")]);
    tree.checkpoint("good");
    fs::remove_file(tree.at(SHOWN)).unwrap();
    let told = changed(&tree.json(0, &["changes"]));

    tree.json(0, &["revert", &told[0].0]);
    tree.json(0, &["undo"]);
    let gone = names(&tree.at(""));
    tree.json(0, &["undo"]);

    assert_eq!(told[0].0, r"a\\x0ab");
    assert!(gone.is_empty(), "{gone:?}");
    assert_eq!(names(&tree.at("")), [SHOWN]);
}

#[test]
fn a_compaction_for_which_there_is_no_room_leaves_its_sources() {
    let tree = Tree::with(&[], &["--budget", "1MB"]);
    let config = tree.kept().join("config.toml");
    fs::write(config, "budget_bytes = 1000000\nfallback = \"copy\"\n").unwrap();
    let fill = |seed: u64, length: usize| {
        fs::write(tree.at("data"), noise(seed, length)).unwrap();
    };
    fill(1, 300_000);
    tree.checkpoint("theirs");
    fill(2, 100_000);
    tree.json(0, &["create", "--auto"]);
    fill(3, 400_000);
    tree.json(0, &["create", "--auto"]);
    let newest = tree.listed()[0].clone();

    let told = tree.run(&["compact", "cp-0", "cp-1", "--name", "both"]);

    let listed = tree.listed();
    let is_kept = listed.iter().any(|(_, hash)| *hash == newest.1);
    assert!(
        is_kept,
        "{} {}{}: {listed:?}",
        told.code, told.out, told.err
    );
    if told.code != 0 {
        assert_eq!(told.code, 11, "{}", told.err);
        assert_eq!(listed.len(), 3, "{listed:?}");
    }
}

#[test]
fn a_workspace_that_was_moved_keeps_the_system_that_is_cloned_with_it() {
    let session = Session::new();
    let [work, system, moved, kept] =
        ["work", "system", "moved", "kept"].map(|name| session.home().join(name));
    for directory in [&work, &system] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("a"), "one").unwrap();
    }
    let mut init = init_at(&work, &kept).to_vec();
    init.extend(["--system", system.to_str().unwrap()]);
    session.json(0, &init);
    let before = read_json(&kept.join("session.json"));
    fs::rename(&work, &moved).unwrap();

    session.json(0, &init_at(&moved, &kept));

    let after = read_json(&kept.join("session.json"));
    assert_eq!(before["system"], json!(system));
    assert_eq!(after["workspace"], json!(moved));
    assert_eq!(after["system"], before["system"]);
}

#[test]
fn the_file_beside_one_that_looks_like_its_escape_is_reached_as_answers_write_it() {
    let tree = twins();

    let diff = tree.json(0, &["diff", SHOWN]);
    let history = tree.json(0, &["history", SHOWN]);
    let reverted = tree.json(0, &["revert", SHOWN]);

    for answer in [&diff, &history, &reverted] {
        assert_eq!(answer["path"], SHOWN);
    }
    assert!(text(&diff["unified"]).contains("+break changed"));
    assert_eq!(
        (tree.read("a\nb"), tree.read(SHOWN)),
        ("break".to_owned(), "literal changed".to_owned())
    );
}

/// A workspace in which another one lies, with its session directory and a store.
fn around_another() -> (Tree, impl Fn(&Tree, &[&str]) -> serde_json::Value) {
    let tree = Tree::new(&[("a", "one"), ("inner/file", "one")]);
    let (inner, session) = (tree.at("inner"), tree.at("kept/of inner*"));
    tree.session.json(0, &init_at(&inner, &session));
    let place = inner.to_str().unwrap().to_owned();
    let within = move |tree: &Tree, words: &[&str]| {
        let place = ["--workspace", place.as_str()];
        tree.session
            .json(0, &[&["workspace"], words, &place].concat())
    };
    (tree, within)
}

#[test]
fn the_sessions_and_stores_in_a_workspace_are_in_no_checkpoint_and_stay_as_they_are() {
    let (tree, within) = around_another();
    let (store, notes) = (tree.at("backups/store"), tree.session.home().join("notes"));
    fs::create_dir(&notes).unwrap();
    fs::write(notes.join("todo"), "buy milk").unwrap();
    let url = format!("file://{}", store.display());
    let save = || {
        let notes = notes.to_str().unwrap();
        tree.session.json(0, &["--store", &url, "save", notes])
    };
    save();
    tree.checkpoint("before");
    within(&tree, &["create", "inner-1"]);
    fs::write(notes.join("todo"), "buy bread").unwrap();
    save();
    tree.write("a", "two");
    tree.write("inner/file", "two");
    within(&tree, &["create", "inner-2"]);

    let restored = tree.json(0, &["restore", "before"]);
    let listed = within(&tree, &["list"]);
    within(&tree, &["restore", "inner-2"]);
    let check = ["--store", &url, "repo", "check"];
    let checked = tree.session.run(&check);
    let forked = tree.session.home().join("forked");
    tree.json(0, &["fork", "before", forked.to_str().unwrap()]);
    let undone = tree.json(0, &["undo"]);

    assert_eq!(restored["restored"], true);
    // The first one was made by `init`.
    assert_eq!(listed["items"].as_array().unwrap().len(), 3, "{listed:#}");
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
    assert!(!forked.join("kept/of inner*").exists());
    assert!(!forked.join("backups/store").exists());
    assert_eq!(
        fs::read_to_string(forked.join("inner/file")).unwrap(),
        "one"
    );
    assert_eq!(undone["undone"], true);
    assert_eq!(
        (tree.read("a"), tree.read("inner/file")),
        ("two".into(), "two".into())
    );
}

#[test]
fn a_directory_that_holds_a_session_by_now_stays_when_the_checkpoint_does_not_have_it() {
    let tree = Tree::new(&[("a", "one")]);
    tree.checkpoint("before");
    tree.write("a", "two");
    tree.write("inner/file", "kept");
    let session = tree.at("new/session");
    tree.session.json(0, &init_at(&tree.at("inner"), &session));

    let restored = tree.json(13, &["restore", "before"]);
    let refused = tree.run(&["revert", "new", "before"]);

    let left = &restored["left_alone"][0];
    says(
        left,
        &json!({ "path": "new/session", "why": "holds_excluded", "within": "new" }),
    );
    assert_eq!(tree.read("a"), "one");
    assert!(session.join("session.json").is_file());
    assert!(!tree.at("inner").exists());
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("new"), "{}", refused.err);
}

/// Workspaces in a home, each with a file that says whose it is.
fn named_workspaces(places: [&str; 2]) -> (Session, [PathBuf; 2]) {
    let session = Session::new();
    let places = places.map(|name| session.home().join(name));
    for place in &places {
        fs::create_dir_all(place).unwrap();
        let name = place.file_name().unwrap().to_str().unwrap();
        fs::write(place.join("file"), name).unwrap();
        session.json(0, &["workspace", "init", place.to_str().unwrap()]);
    }
    (session, places)
}

/// Does something to the workspace that a directory is in.
fn on(session: &Session, place: &Path, words: &[&str]) -> serde_json::Value {
    let place = ["--workspace", place.to_str().unwrap()];
    session.json(0, &[&["workspace"], words, &place].concat())
}

fn checkpoint_names(session: &Session, place: &Path) -> Vec<String> {
    let listed = on(session, place, &["list"]);
    let all = listed["items"].as_array().unwrap().iter();
    let names = all.filter_map(|one| one["name"].as_str());
    names.map(str::to_owned).collect()
}

/// A directory with the same files, as a copy on another filesystem is.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in names(from) {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

#[test]
fn a_workspace_that_was_moved_to_the_path_of_one_that_is_gone_is_still_itself() {
    let (session, [a, b]) = named_workspaces(["a", "b"]);
    let [of_a, of_b] = [&a, &b].map(|place| on(&session, place, &["status"])["session"].clone());
    on(&session, &b, &["create", "mine"]);
    fs::remove_dir_all(&a).unwrap();
    fs::rename(&b, &a).unwrap();

    let init = session.json(0, &["workspace", "init", a.to_str().unwrap()]);
    let checkpoints = checkpoint_names(&session, &a);
    on(&session, &a, &["restore", "cp-0"]);

    says(&init, &json!({ "session": of_b, "existed": true }));
    assert!(checkpoints.contains(&"mine".to_owned()), "{checkpoints:?}");
    assert_eq!(fs::read_to_string(a.join("file")).unwrap(), "b");
    let listed = session.json(0, &["list"]);
    for row in listed["workspaces"].as_array().unwrap() {
        assert_eq!(row["is_there"], json!(row["session"] == of_b), "{listed:#}");
    }
    // What is left of the other one is for whoever has a copy.
    let copied = session.home().join("copied");
    fs::create_dir(&copied).unwrap();
    session.json(0, &init_at(&copied, Path::new(&text(&of_a))));
    on(&session, &copied, &["restore", "cp-0"]);
    assert_eq!(fs::read_to_string(copied.join("file")).unwrap(), "a");
    assert!(checkpoint_names(&session, &a).contains(&"mine".to_owned()));
}

#[test]
fn a_directory_at_the_old_path_does_not_get_the_session_of_a_workspace_that_lies_at_anothers() {
    let (session, [a, b]) = named_workspaces(["x/a", "y/b"]);
    on(&session, &b, &["create", "mine"]);
    fs::remove_dir_all(&a).unwrap();
    fs::rename(&b, &a).unwrap();
    fs::create_dir(&b).unwrap();

    let other = session.run(&["workspace", "list", "--workspace", b.to_str().unwrap()]);
    let checkpoints = checkpoint_names(&session, &a);
    on(&session, &a, &["restore", "cp-0"]);

    assert_eq!(other.code, 3, "{}", other.err);
    assert!(checkpoints.contains(&"mine".to_owned()), "{checkpoints:?}");
    assert_eq!(fs::read_to_string(a.join("file")).unwrap(), "b");
}

#[test]
fn a_workspace_that_was_made_anew_at_its_path_is_followed_from_there() {
    let tree = reverted();
    let [second, moved] = ["second", "moved"].map(|name| tree.session.home().join(name));
    copy(&tree.at(""), &second);
    fs::remove_dir_all(tree.at("")).unwrap();
    fs::rename(&second, tree.at("")).unwrap();
    tree.checkpoint("two");
    fs::rename(tree.at(""), &moved).unwrap();

    assert_eq!(checkpoint_names(&tree.session, &moved), ["two", "good"]);
}

#[test]
fn a_workspace_is_known_although_nothing_leads_from_its_path_to_its_session() {
    let tree = reverted();
    let records = tree.kept().parent().unwrap().to_owned();
    let moved = tree.session.home().join("moved");
    fs::rename(tree.at(""), &moved).unwrap();
    assert_eq!(checkpoint_names(&tree.session, &moved), ["good"]);
    let leading = names(&records)
        .into_iter()
        .map(|name| records.join(name).join("elsewhere"));
    let leading: Vec<_> = leading.filter(|file| file.is_file()).collect();
    assert_eq!(leading.len(), 1, "{leading:?}");

    fs::remove_dir_all(leading[0].parent().unwrap()).unwrap();

    assert_eq!(checkpoint_names(&tree.session, &moved), ["good"]);
}

#[test]
fn the_hint_for_a_lost_workspace_names_the_directory_that_has_its_name() {
    let session = Session::new();
    let [old, new] = ["old/proj", "new/proj"].map(|name| session.home().join(name));
    fs::create_dir_all(&old).unwrap();
    fs::write(old.join("file"), "one").unwrap();
    session.json(0, &["workspace", "init", old.to_str().unwrap()]);
    on(&session, &old, &["create", "mine"]);
    copy(&old, &new);
    for inner in ["src/deep", "src/proj"] {
        fs::create_dir_all(new.join(inner)).unwrap();
    }
    fs::remove_dir_all(&old).unwrap();
    let lost = |inner: &str| {
        let mut status = session.command(&["workspace", "status"]);
        let output = status.current_dir(new.join(inner)).output().unwrap();
        let said = crate::session::said(output);
        assert_eq!(said.code, 3, "{}", said.err);
        said.err
    };

    // Two of them have its name.
    let either = lost("src/proj");
    let hint = lost("src/deep");
    let taken = type_command(&session, &hint, &["init", "--session-dir"], "");

    assert!(either.contains("init DIR --session-dir"), "{either}");
    assert_eq!(taken.code, 0, "{hint}{}", taken.err);
    assert!(checkpoint_names(&session, &new).contains(&"mine".to_owned()));
    let status = on(&session, &new.join("src/deep"), &["status"]);
    assert_eq!(status["workspace"], json!(new));
}

#[test]
fn a_workspace_that_was_moved_with_the_session_directory_around_it_goes_on() {
    let session = Session::new();
    let [kept, moved] = ["sess", "far/sess"].map(|name| session.home().join(name));
    let work = kept.join("workspace");
    fs::create_dir_all(work.join("inner")).unwrap();
    session.json(0, &init_at(&work, &kept));
    on(&session, &work, &["create", "mine"]);
    fs::create_dir(session.home().join("far")).unwrap();
    fs::rename(&kept, &moved).unwrap();
    let work = moved.join("workspace");

    let status = on(&session, &work.join("inner"), &["status"]);

    says(&status, &json!({ "workspace": work, "session": moved }));
    assert!(checkpoint_names(&session, &work).contains(&"mine".to_owned()));
    let listed = session.json(0, &["list"]);
    let row = &listed["workspaces"][0];
    says(row, &json!({ "workspace": work, "is_there": true }));
}

#[test]
fn a_copy_gets_the_session_when_what_lies_at_the_old_path_was_moved_away_as_the_hint_says() {
    let tree = reverted();
    let (kept, far) = (tree.kept(), tree.session.home().join("far"));
    copy(&tree.at(""), &far);
    fs::remove_dir_all(tree.at("")).unwrap();
    fs::create_dir(tree.at("")).unwrap();

    let refused = tree.session.run(&init_at(&far, &kept));
    fs::rename(tree.at(""), tree.session.home().join("away")).unwrap();
    tree.session.json(0, &init_at(&far, &kept));

    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("move that away"), "{}", refused.err);
    assert_eq!(checkpoint_names(&tree.session, &far), ["good"]);
}
