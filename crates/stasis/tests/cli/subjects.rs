//! A directory is one subject: after a move, on another machine, and beside others of its name.

use crate::session::{Said, Session, oldest_first, type_command};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory that was saved once, on a host with a store of its own.
fn saved(session: &Session, at: &str) -> PathBuf {
    let dir = session.home().join(at);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("plan.txt"), "buy milk").unwrap();
    session.data(0, &["save", dir.to_str().unwrap()]);
    dir
}

fn rows(session: &Session) -> Vec<Value> {
    let listed = session.json(0, &["list"]);
    listed["items"].as_array().unwrap().clone()
}

fn subject(session: &Session) -> String {
    let rows = rows(session);
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0]["subject"].as_str().unwrap().to_owned()
}

#[test]
fn a_directory_that_was_moved_goes_on_where_it_was() {
    let session = Session::new();
    let notes = saved(&session, "notes");
    let name = subject(&session);
    let moved = session.home().join("elsewhere/journal");
    fs::create_dir_all(moved.parent().unwrap()).unwrap();
    fs::rename(&notes, &moved).unwrap();

    let place = moved.to_str().unwrap();
    let log = oldest_first(&session.json(0, &["log", place]));
    assert_eq!(log.as_array().unwrap().len(), 1, "{log}");
    fs::write(moved.join("plan.txt"), "buy bread").unwrap();
    session.data(0, &["save", place]);

    let rows = rows(&session);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["subject"], name.as_str());
    assert_eq!(rows[0]["snapshots"], 2);
    assert_eq!(
        rows[0]["dir"],
        fs::canonicalize(&moved).unwrap().to_str().unwrap()
    );
    let oldest = log[0]["snapshot_id"].as_str().unwrap();
    session.data(0, &["restore", place, oldest]);
    assert_eq!(
        fs::read_to_string(moved.join("plan.txt")).unwrap(),
        "buy milk"
    );
}

#[test]
fn a_store_is_named_by_a_path_as_well_and_is_never_part_of_what_it_holds() {
    let session = Session::new();
    let dir = session.home().join("work");
    fs::create_dir_all(dir.join("inner")).unwrap();
    fs::write(dir.join("plan.txt"), "buy milk").unwrap();
    let place = dir.to_str().unwrap();
    let run = |code: i32, words: &[&str]| {
        let mut command = session.command(&[&["--json"], words].concat());
        let output = command.current_dir(dir.join("inner")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        serde_json::from_str::<Value>(&said).unwrap()
    };

    let saved = run(0, &["--store", "../store", "save", place]);
    let again = run(0, &["--store", "../store", "save", place, "--allow-empty"]);
    let whole = dir.join("store");
    let listed = run(0, &["--store", whole.to_str().unwrap(), "list"]);

    assert_eq!(saved["own_places"], serde_json::json!(["store"]), "{saved}");
    assert_eq!((&saved["files"], &again["files"]), (&1.into(), &1.into()));
    assert_eq!(listed["items"][0]["snapshots"], 2, "{listed}");
    assert_eq!(listed["items"][0]["encrypted"], false, "{listed}");
    // A file is no store: the caller is mistaken, and nothing is out of reach.
    let file = dir.join("plan.txt");
    run(2, &["--store", file.to_str().unwrap(), "save", place]);
    run(2, &["--store", "../nowhere/../store", "list"]);
}

#[test]
fn a_store_that_is_a_path_without_a_dot_is_refused_with_the_path_to_write() {
    let session = Session::new();
    let dir = session.home().join("work");
    fs::create_dir_all(dir.join("there/store")).unwrap();
    let refused = |words: &[&str], variable: Option<&str>| {
        let mut command = session.command(&[&["--json"], words].concat());
        command.envs(variable.map(|store| ("STASIS_STORE", store)));
        let output = command.current_dir(&dir).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let hint = said["error"]["hint"].as_str().unwrap().to_owned();
        (said.to_string(), hint)
    };

    for name in ["there/store", "nowhere/store", "store"] {
        let by_flag = [
            refused(&["--store", name, "list"], None),
            refused(&["repo", "--repo", name, "snapshots"], None),
            refused(&["copy", "--all", "--to", name], None),
        ];
        let (message, _) = refused(&["list"], Some(name));

        for (message, hint) in by_flag {
            assert!(message.contains(&format!("`{name}`")), "{message}");
            assert!(hint.ends_with(&format!("write ./{name}")), "{hint}");
        }
        // A variable is meant wherever somebody stands.
        assert!(message.contains("write the whole one"), "{message}");
    }
    assert!(!dir.join("nowhere").exists() && !dir.join("store").exists());
    let (message, _) = refused(&["--store", "secret@host/path", "list"], None);
    assert!(!message.contains("secret"), "{message}");
}

#[test]
fn another_machine_finds_restores_and_links_what_a_first_one_saved() {
    let first = Session::new();
    let _ = saved(&first, "notes");
    let store = format!(
        "file://{}",
        first.home().join("data/stasis/store").display()
    );
    let second = Session::on(&store);
    let row = rows(&second).remove(0);
    assert!(row.get("dir").is_none(), "{row}");
    let name = row["subject"].as_str().unwrap();

    let nowhere = second.run(&["restore", "dir:notes"]);
    let copy = second.home().join("copy");
    let to = copy.to_str().unwrap();
    second.data(0, &["restore", "dir:notes", "--to", to]);
    let copied = second.run(&["log", to]);
    second.data(0, &["link", to, name]);
    let log = oldest_first(&second.json(0, &["log", to]));
    fs::write(copy.join("plan.txt"), "buy bread").unwrap();
    second.data(0, &["save", to]);

    assert_eq!(nowhere.code, 3, "{}", nowhere.err);
    let hint = [
        format!("`stasis restore {name} --to DIR`"),
        format!("`stasis link DIR {name}`"),
    ];
    assert!(
        hint.iter().all(|one| nowhere.err.contains(one)),
        "{}",
        nowhere.err
    );
    assert_eq!(copied.code, 3, "a copy is no subject by itself");
    assert!(copied.err.contains("stasis link"), "{}", copied.err);
    assert_eq!(log.as_array().unwrap().len(), 1, "{log}");
    let row = rows(&first).remove(0);
    assert_eq!(row["snapshots"], 2);
    assert_eq!(row["subject"], name);
    // The first host is told that somebody went on, and has the other's state when it asks.
    let notes = first.home().join("notes");
    first.data(0, &["restore", notes.to_str().unwrap()]);
    assert_eq!(
        fs::read_to_string(notes.join("plan.txt")).unwrap(),
        "buy bread"
    );
}

/// Two hosts that share a store, in which the first has saved `notes`; and what that is called there.
fn two_hosts() -> (Session, Session, String) {
    let first = Session::new();
    let _ = saved(&first, "notes");
    let store = first.home().join("data/stasis/store");
    let second = Session::on(store.to_str().unwrap());
    let name = subject(&first);
    (first, second, name)
}

fn read(dir: &Path) -> String {
    fs::read_to_string(dir.join("plan.txt")).unwrap()
}

fn ok(said: &Said) {
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
}

#[test]
fn a_directory_that_only_another_machine_has_is_got_and_gone_on_with_as_the_hint_says() {
    let (first, second, name) = two_hosts();
    let dir = second.home().join("notes");
    let place = dir.to_str().unwrap();

    let refused = second.run(&["restore", place]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    ok(&type_command(
        &second,
        &refused.err,
        &["restore", "--to", place],
        "",
    ));
    assert_eq!(read(&dir), "buy milk");
    let unlinked = second.run(&["log", place]);
    assert_eq!(unlinked.code, 3, "{}", unlinked.err);
    ok(&type_command(&second, &refused.err, &["link", place], ""));
    fs::write(dir.join("plan.txt"), "buy bread").unwrap();
    second.data(0, &["save", place]);

    assert_eq!(subject(&first), name);
    assert_eq!(rows(&first)[0]["snapshots"], 2);
}

#[test]
fn a_restore_to_another_directory_says_how_to_go_on_with_it() {
    let (_first, second, name) = two_hosts();
    let copy = second.home().join("copy");
    let to = copy.to_str().unwrap();

    let restored = second.run(&["restore", "dir:notes", "--to", to]);
    ok(&restored);
    ok(&type_command(&second, &restored.out, &["link"], ""));
    let again = second.home().join("again");
    let again = second.run(&["restore", "dir:notes", "--to", again.to_str().unwrap()]);

    assert_eq!(rows(&second)[0]["subject"], name.as_str());
    assert_eq!(rows(&second)[0]["dir"], to);
    // It lies here by now: that copy is only a copy.
    assert!(!again.out.contains("stasis link"), "{}", again.out);
}

#[test]
fn a_second_directory_of_a_name_is_a_new_subject_that_is_said_and_can_join_the_first() {
    let (first, second, name) = two_hosts();
    let dir = second.home().join("notes");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("plan.txt"), "accident").unwrap();
    let place = dir.to_str().unwrap();

    let said = second.run(&["save", place]);
    let quiet = second.run(&["save", place]);
    let mine = rows(&second);
    let mine = mine.iter().find(|row| row["dir"] == place).unwrap();
    let accidental = mine["subject"].as_str().unwrap().to_owned();

    ok(&said);
    assert!(said.err.contains(&format!("`{name}`")), "{}", said.err);
    assert!(
        said.err.contains(&format!("`{accidental}`")),
        "{}",
        said.err
    );
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""));
    // Without consent nothing is changed; the refusal and the note name the same command.
    let refused = second.run(&["link", place, &name]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert_eq!(
        second.json(0, &["log", place])["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let joined = type_command(&second, &said.err, &["link", &name, "--confirm"], "");
    ok(&joined);
    fs::write(dir.join("plan.txt"), "buy bread").unwrap();
    second.data(0, &["save", place]);
    assert_eq!(
        second.json(0, &["log", place])["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let _ = type_command(&second, &refused.err, &["link", "--confirm"], "");

    // What was saved by accident is still there, as it was said.
    let back = second.home().join("back");
    ok(&type_command(
        &second,
        &joined.out,
        &["restore", &accidental],
        back.to_str().unwrap(),
    ));
    assert_eq!(read(&back), "accident");
    let notes = first.home().join("notes");
    first.data(0, &["restore", notes.to_str().unwrap()]);
    assert_eq!(read(&notes), "buy bread");
}

#[test]
fn a_directory_of_a_name_that_lies_on_this_host_is_saved_without_a_note() {
    let session = Session::new();
    let _ = saved(&session, "a/notes");
    let other = session.home().join("b/notes");
    fs::create_dir_all(&other).unwrap();

    let said = session.run(&["save", other.to_str().unwrap()]);

    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(rows(&session).len(), 2);
}

#[test]
fn a_copy_at_the_old_place_of_a_directory_that_was_moved_is_no_subject_until_it_is_linked() {
    for target in ["journal", "far/journal"] {
        let session = Session::new();
        let notes = saved(&session, "notes");
        let name = subject(&session);
        let moved = session.home().join(target);
        fs::create_dir_all(moved.parent().unwrap()).unwrap();
        fs::rename(&notes, &moved).unwrap();
        let (old, new) = (notes.to_str().unwrap(), moved.to_str().unwrap());

        session.data(0, &["restore", &name, "--to", old]);
        fs::write(moved.join("plan.txt"), "goes on").unwrap();
        fs::write(notes.join("plan.txt"), "a copy").unwrap();
        let copy = session.run(&["log", old]);
        session.data(0, &["save", new]);
        let log = oldest_first(&session.json(0, &["log", new]));
        session.data(0, &["save", old]);

        assert_eq!(copy.code, 3, "{target}: {}{}", copy.out, copy.err);
        assert_eq!(log.as_array().unwrap().len(), 2, "{target}: {log}");
        let place = |row: &&Value| row["subject"] == name.as_str();
        let all = rows(&session);
        assert_eq!(all.len(), 2, "{target}: {all:?}");
        assert_eq!(all.iter().find(place).unwrap()["dir"], new, "{target}");
        // Only one at a time, and the one that somebody says.
        let refused = session.run(&["link", old, &name]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        ok(&type_command(&session, &refused.err, &["--confirm"], ""));
        assert_eq!(
            session.json(0, &["log", old])["items"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        let left = session.run(&["log", new]);
        assert_eq!(left.code, 3, "{}", left.err);
        assert!(
            left.err.contains(&format!("was `{name}` until `{old}`")),
            "{}",
            left.err
        );
        assert_eq!(read(&moved), "goes on");
    }
}

#[test]
fn a_restore_to_the_old_place_of_a_directory_that_was_renamed_names_the_new_one() {
    let session = Session::new();
    let notes = saved(&session, "notes");
    let moved = session.home().join("journal");
    fs::rename(&notes, &moved).unwrap();
    fs::write(moved.join("plan.txt"), "changed").unwrap();
    let (old, new) = (notes.to_str().unwrap(), moved.to_str().unwrap());

    let refused = session.run(&["restore", old]);

    assert_eq!(refused.code, 3, "{}{}", refused.out, refused.err);
    assert!(!notes.exists());
    ok(&type_command(&session, &refused.err, &["restore", new], ""));
    assert_eq!(read(&moved), "buy milk");
    ok(&type_command(
        &session,
        &refused.err,
        &["restore", "--to"],
        "",
    ));
    assert_eq!(rows(&session)[0]["dir"], new);
}

#[test]
fn a_new_directory_in_the_place_of_one_that_was_renamed_goes_on_as_it_and_the_other_is_told() {
    let session = Session::new();
    let notes = saved(&session, "notes");
    let name = subject(&session);
    let moved = session.home().join("notes.old");
    fs::rename(&notes, &moved).unwrap();
    fs::create_dir(&notes).unwrap();
    fs::write(notes.join("plan.txt"), "begun anew").unwrap();
    let (old, new) = (notes.to_str().unwrap(), moved.to_str().unwrap());

    session.data(0, &["save", old]);
    let log = session.run(&["log", new]);

    assert_eq!(
        session.json(0, &["log", old])["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(log.code, 3, "{}", log.err);
    let told = format!("was `{name}` until `{old}`");
    assert!(log.err.contains(&told), "{}", log.err);
    ok(&type_command(
        &session,
        &log.err,
        &["link", "--confirm"],
        "",
    ));
    session.data(0, &["save", new]);
    assert_eq!(
        session.json(0, &["log", new])["items"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert_eq!(session.run(&["log", old]).code, 3);
}

#[test]
fn a_directory_that_was_moved_far_and_restored_at_its_old_place_is_told_what_it_was() {
    let session = Session::new();
    let notes = saved(&session, "notes");
    let name = subject(&session);
    let moved = session.home().join("far/notes");
    fs::create_dir(moved.parent().unwrap()).unwrap();
    fs::rename(&notes, &moved).unwrap();
    let (old, new) = (notes.to_str().unwrap(), moved.to_str().unwrap());

    // As after `rm -r`, of which this cannot be told apart.
    session.data(0, &["restore", old]);
    let log = session.run(&["log", new]);
    let saved = session.run(&["save", new]);

    assert_eq!(
        session.json(0, &["log", old])["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(log.code, 3, "{}", log.err);
    for said in [&log.err, &saved.err] {
        assert!(
            said.contains(&format!("was `{name}` until `{old}`")),
            "{said}"
        );
    }
    ok(&type_command(
        &session,
        &saved.err,
        &["link", "--confirm"],
        "",
    ));
    assert_eq!(
        session.json(0, &["log", new])["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(session.run(&["log", old]).code, 3);
}

#[test]
fn a_host_that_saved_nothing_yet_is_told_how_to_begin() {
    let session = Session::new();

    let fresh = session.run(&["list"]);
    let listed = session.json(0, &["list"]);
    let named = session.run(&["--store", "/nowhere/store", "list"]);

    assert_eq!((fresh.code, fresh.err.as_str()), (0, ""));
    assert!(fresh.out.contains("`stasis save DIR`"), "{}", fresh.out);
    assert_eq!(
        listed,
        serde_json::json!({ "schema": "stasis.list/1", "items": [], "workspaces": [] })
    );
    // A store that somebody names and that is not there is a mistake.
    assert_eq!(named.code, 3, "{}", named.out);
    assert!(!session.home().join("data").exists());
}

#[test]
fn a_label_is_said_whether_the_save_made_a_snapshot_or_not() {
    let session = Session::new();
    let notes = saved(&session, "notes");
    let place = notes.to_str().unwrap();

    let same = session.data(0, &["save", place, "--label", "state=good"]);
    fs::write(notes.join("plan.txt"), "buy bread").unwrap();
    let new = session.data(0, &["save", place, "--label", "state=new"]);
    let plain = session.data(0, &["save", place]);

    let log = oldest_first(&session.json(0, &["log", place]));
    let labels: Vec<&str> = log
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["labels"]["state"].as_str())
        .collect();
    assert_eq!(labels.len(), 2, "{log}");
    let of = |label: &str| {
        let row = log.as_array().unwrap().iter();
        let mut row = row.filter(|row| row["labels"]["state"] == label);
        row.next().unwrap()["snapshot_id"].as_str().unwrap()[..8].to_owned()
    };
    assert!(
        same.contains(&format!("Labelled {}: state=good", of("good"))),
        "{same}"
    );
    assert!(
        new.contains(&format!("as {}, labelled state=new", of("new"))),
        "{new}"
    );
    assert!(!plain.contains("abelled"), "{plain}");
}

#[test]
fn a_command_that_lies_beneath_others_is_pointed_to() {
    let session = Session::new();
    let pointers = [
        ("compact", "`stasis workspace compact`"),
        ("stats", "`stasis repo stats`"),
        ("history", "`stasis log`"),
        ("upgrade", "`stasis project upgrade`"),
    ];

    for (typed, pointer) in pointers {
        let refused = session.run(&[typed, "x"]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains(pointer), "{}", refused.err);
        let json = session.json(2, &[typed]);
        let hint = json["error"]["hint"].as_str().unwrap();
        assert!(hint.contains(pointer), "{hint}");
    }
    let mistyped = session.run(&["sve", "x"]);
    assert!(mistyped.err.contains("'save'"), "{}", mistyped.err);
    let beneath = session.run(&["profile", "compact"]);
    assert!(!beneath.err.contains("workspace"), "{}", beneath.err);
}

#[test]
fn a_name_that_two_directories_have_is_not_guessed() {
    let session = Session::new();
    for at in ["a/notes", "b/notes"] {
        let _ = saved(&session, at);
    }

    let several = session.run(&["log", "dir:notes"]);
    let none = session.run(&["log", "dir:letters"]);

    assert_eq!(several.code, 2, "{}", several.err);
    for row in rows(&session) {
        let name = row["subject"].as_str().unwrap();
        assert!(several.err.contains(name), "{}", several.err);
        session.data(0, &["log", name]);
    }
    assert_eq!(none.code, 3, "{}", none.err);
    assert!(none.err.contains("stasis list"), "{}", none.err);
}

#[test]
fn a_directory_is_linked_to_one_subject_only() {
    let session = Session::new();
    let notes = saved(&session, "notes");
    let letters = saved(&session, "letters");

    let refused = session.run(&["link", letters.to_str().unwrap(), "dir:notes"]);
    let again = session.run(&["link", notes.to_str().unwrap(), "dir:notes"]);

    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("dir:notes-"), "{}", refused.err);
    assert_eq!(again.code, 0, "{}", again.err);
}

#[test]
fn a_copy_of_a_directory_stores_next_to_nothing() {
    let session = Session::new();
    let notes = session.home().join("notes");
    fs::create_dir_all(&notes).unwrap();
    let bytes: Vec<u8> = (0..400_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(notes.join("large"), &bytes).unwrap();
    session.data(0, &["save", notes.to_str().unwrap()]);
    let copy = session.home().join("copy");
    fs::create_dir_all(&copy).unwrap();
    fs::write(copy.join("large"), &bytes).unwrap();

    let saved = session.json(0, &["save", copy.to_str().unwrap()]);

    let stored = saved["bytes_stored"].as_u64().unwrap();
    assert!(stored < 4096, "{saved}");
}

#[test]
fn a_save_of_what_was_moved_away_takes_nothing_from_it() {
    let session = Session::new();
    let (a, b) = (session.home().join("a"), session.home().join("b"));
    fs::create_dir(&a).unwrap();
    fs::write(a.join("file"), "kept").unwrap();
    let (at_a, at_b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let first = session.json(0, &["save", at_a]);
    fs::rename(&a, &b).unwrap();

    session.data(3, &["save", at_a]);
    fs::write(b.join("file"), "changed").unwrap();
    let second = session.json(0, &["save", at_b]);

    assert_eq!(first["project"], second["project"]);
    assert_eq!(
        session.json(0, &["log", at_b])["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn releases_that_are_swapped_at_one_path_are_one_subject() {
    let session = Session::new();
    let at = |name: &str| session.home().join(name);
    let make = |name: &str, text: &str| {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("page"), text).unwrap();
    };
    make("site", "release 0");
    let site = at("site");
    let site = site.to_str().unwrap();
    let first = session.json(0, &["save", site]);
    for release in 1..4 {
        make("site.new", &format!("release {release}"));
        let _ = fs::remove_dir_all(at("site.old"));
        fs::rename(at("site"), at("site.old")).unwrap();
        fs::rename(at("site.new"), at("site")).unwrap();

        let saved = session.json(0, &["save", site]);

        assert_eq!(saved["project"], first["project"], "release {release}");
    }
    assert_eq!(
        session.json(0, &["log", site])["items"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

#[test]
fn a_usual_store_that_vanished_does_not_look_like_one_that_was_never_there() {
    let session = Session::new();
    let dir = session.home().join("notes");
    fs::create_dir(&dir).unwrap();
    assert_eq!(session.run(&["list"]).code, 0);
    session.data(0, &["save", dir.to_str().unwrap()]);
    fs::rename(session.home().join("data"), session.home().join("away")).unwrap();

    let said = session.run(&["list"]);

    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
}

#[test]
fn a_project_that_names_its_subject_loses_it_to_no_link() {
    let session = Session::new();
    let (shop, other) = (session.home().join("shop"), session.home().join("other"));
    for dir in [&shop, &other] {
        fs::create_dir(dir).unwrap();
    }
    let store = session.home().join("store");
    let toml = format!(
        "id = \"shop\"\nlayout = \"in-place\"\nstore = \"file://{}\"\n",
        store.display()
    );
    fs::write(shop.join("stasis.toml"), toml).unwrap();
    let store = store.to_str().unwrap();
    session.data(0, &["save", shop.to_str().unwrap()]);

    let link = [
        "link",
        other.to_str().unwrap(),
        "dir:shop",
        "--confirm",
        "--store",
        store,
    ];
    let said = session.run(&link);

    assert_eq!(said.code, 2, "{}{}", said.out, said.err);
    assert!(said.err.contains("stasis.toml"), "{}", said.err);
}
