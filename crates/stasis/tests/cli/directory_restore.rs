//! Restores of a directory beside programs that have its databases open, and of what saves leave out by now.

use crate::live_databases::python;
use crate::project::id;
use crate::session::{Session, oldest_first, type_command};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program that has a database in WAL mode open, with nothing in its log, and does what it is told.
struct Program {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
}

impl Program {
    fn on(database: &Path) -> Self {
        let script = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('pragma journal_mode=wal')
db.execute('create table if not exists rows (n integer)')
db.execute('insert into rows values (1)')
db.execute('pragma wal_checkpoint(truncate)').fetchall()
print('ready', flush=True)
for line in sys.stdin:
    db.execute('insert into rows values (2)')
    if line.strip() == 'settle':
        db.execute('pragma wal_checkpoint(truncate)').fetchall()
    print(db.execute('select count(*) from rows').fetchone()[0], flush=True)
";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, says };
        assert_eq!(program.line(), "ready");
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Inserts a row; says how many there are.
    fn insert(&mut self, how: &str) -> String {
        writeln!(self.child.stdin.as_ref().unwrap(), "{how}").unwrap();
        self.line()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn directory(session: &Session) -> (PathBuf, String) {
    let dir = session.home().join("app");
    fs::create_dir_all(&dir).unwrap();
    let text = dir.to_str().unwrap().to_owned();
    (dir, text)
}

fn listed(session: &Session, dir: &str) -> usize {
    let all = oldest_first(&session.json(0, &["log", dir]));
    all.as_array().map_or_else(|| panic!("{all:#}"), Vec::len)
}

fn rows(database: &Path) -> String {
    let script = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
assert db.execute('pragma integrity_check').fetchall() == [('ok',)]
print(db.execute('select count(*) from rows').fetchone()[0])
";
    python(script, &[database.to_str().unwrap()])
        .trim()
        .to_owned()
}

#[test]
fn a_database_that_is_open_and_as_it_was_does_not_hinder_a_restore() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    let database = dir.join("app.db");
    let mut program = Program::on(&database);
    fs::write(dir.join("notes"), "one").unwrap();
    session.json(0, &["save", &text]);
    fs::write(dir.join("notes"), "two").unwrap();
    let inodes = || {
        ["app.db", "app.db-wal", "app.db-shm"]
            .map(|name| fs::metadata(dir.join(name)).unwrap().ino())
    };
    let before = inodes();

    let dry = session.json(0, &["restore", &text, "--dry-run"]);
    let restored = session.json(0, &["restore", &text]);

    assert_eq!(dry["changes"].as_array().unwrap().len(), 1, "{dry:#}");
    assert_eq!(dry["warnings"], serde_json::json!([]), "{dry:#}");
    assert_eq!(fs::read_to_string(dir.join("notes")).unwrap(), "one");
    assert_eq!(inodes(), before, "{restored:#}");
    let again = session.data(0, &["restore", &text]);
    assert!(again.contains("Nothing to do: "), "{again}");
    assert!(!again.contains("safety"), "{again}");
    assert!(!again.contains("Undo"), "{again}");
    let again = session.json(0, &["restore", &text]);
    assert!(restored["safety_snapshot_id"].is_string(), "{restored:#}");
    assert!(again["safety_snapshot_id"].is_null(), "{again:#}");
    assert_eq!(program.insert("settle"), "2");
    drop(program);
    assert_eq!(rows(&database), "2");
}

#[test]
fn a_restore_that_would_exchange_an_open_database_is_refused_before_anything_is_saved() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    let database = dir.join("app.db");
    let mut program = Program::on(&database);
    fs::write(dir.join("notes"), "one").unwrap();
    let first = id(&session.json(0, &["save", &text]));
    fs::write(dir.join("notes"), "two").unwrap();
    let second = id(&session.json(0, &["save", &text]));
    assert_eq!(program.insert("leave it in the log"), "2");
    let before = listed(&session, &text);

    let dry = session.json(0, &["restore", &text, &first, "--dry-run"]);
    let refused = session.run(&["restore", &text, &first]);
    let mistyped = session.run(&["restore", &text, &first, "--except", "ap.db"]);

    let warned = dry["warnings"][0].to_string();
    assert!(
        warned.contains("app.db") && warned.contains("refused"),
        "{dry:#}"
    );
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(
        refused.err.contains("`app.db` is open in process"),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("--except app.db"), "{}", refused.err);
    assert_eq!(mistyped.code, 3, "{}", mistyped.err);
    assert!(mistyped.err.contains("ap.db"), "{}", mistyped.err);
    assert_eq!(listed(&session, &text), before, "nothing was saved");
    assert_eq!(fs::read_to_string(dir.join("notes")).unwrap(), "two");

    // The way that the hint names.
    let around = session.json(0, &["restore", &text, &first, "--except", "app.db"]);
    assert_eq!(fs::read_to_string(dir.join("notes")).unwrap(), "one");
    assert_eq!(
        around["except"],
        serde_json::json!(["app.db"]),
        "{around:#}"
    );
    assert_eq!(program.insert("settle"), "3");
    drop(program);
    assert_eq!(rows(&database), "3");
    // A restore that is not whole does not choose what `latest` means.
    let latest = session.json(0, &["project", "show", "latest", "--project", &text]);
    assert_eq!(id(&latest), second, "{latest:#}");
    let said = session.data(0, &["restore", &text, &first, "--except", "app.db"]);
    let says = format!(" is {} already, but for app.db", &first[..8]);
    assert!(said.contains(&says), "{said}");
    let whole = session.json(0, &["restore", &text, &first]);
    assert_eq!(
        (rows(&database), whole.get("except")),
        ("1".to_owned(), None)
    );
}

#[test]
fn what_saves_leave_out_by_now_stays_as_it_is_and_is_named() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    fs::create_dir(dir.join("logs")).unwrap();
    for name in ["code", "logs/a", "logs/b"] {
        fs::write(dir.join(name), "one").unwrap();
    }
    let first = id(&session.json(0, &["save", &text]));
    fs::write(dir.join(".stasisignore"), "logs/\n").unwrap();
    for name in ["code", "logs/a", "logs/new"] {
        fs::write(dir.join(name), "two").unwrap();
    }
    fs::remove_file(dir.join("logs/b")).unwrap();
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let state = || ["code", "logs/a", "logs/b", "logs/new"].map(read);

    let dry = session.json(0, &["restore", &text, &first, "--dry-run"]);
    let restored = session.json(0, &["restore", &text, &first]);

    let changes = dry["changes"].as_array().unwrap();
    let planned: Vec<&str> = changes
        .iter()
        .filter_map(|one| one["path"].as_str())
        .collect();
    assert_eq!(planned, [".stasisignore", "code", "logs/b"], "{dry:#}");
    assert_eq!(state(), ["one", "two", "one", "two"], "{restored:#}");
    assert_eq!(
        restored["in_place"]["left_alone"],
        serde_json::json!(["logs/a"]),
        "{restored:#}"
    );
    assert!(!dir.join(".stasisignore").exists());

    // Named, it comes back.
    fs::write(dir.join(".stasisignore"), "logs/\n").unwrap();
    let path = ["restore", &text, &first, "--path", "logs/a"];
    let dry = session.json(0, &[&path[..], &["--dry-run"]].concat());
    assert_eq!(dry["changes"][0]["path"], "logs/a", "{dry:#}");
    let named = session.json(0, &path);
    let kept = named["set_aside"][0]["kept_at"].as_str().unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "two", "{named:#}");
    assert_eq!(state(), ["one", "one", "one", "two"], "{named:#}");
    assert_eq!(
        named["in_place"].get("left_alone"),
        None::<&Value>,
        "{named:#}"
    );
}

#[test]
fn the_command_that_undoes_a_restore_of_a_part_undoes_that_part_only() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    fs::create_dir(dir.join("src")).unwrap();
    for name in ["a", "b", "src/c", "gone"] {
        write(name, "one");
    }
    session.json(0, &["save", &text]);
    for name in ["a", "b", "src/c", "src/new"] {
        write(name, "two");
    }
    fs::remove_file(dir.join("gone")).unwrap();

    let part = ["restore", &text, "latest", "--path", "a", "--path", "src"];
    let part = session.data(0, &part);
    write("b", "later");
    assert_eq!(
        [read("a"), read("src/c"), read("src/new")],
        ["one", "one", ""]
    );
    let undone = type_command(&session, &part, &["undo"], "");
    assert_eq!(undone.code, 0, "{part}{}", undone.err);
    assert_eq!([read("a"), read("src/c"), read("src/new")], ["two"; 3]);
    assert_eq!(read("b"), "later", "{part}");
    // What was not there is gone again.
    let new = session.data(0, &["restore", &text, "latest", "--path", "gone"]);
    assert_eq!(read("gone"), "one");
    let undone = type_command(&session, &new, &["undo"], "");
    assert_eq!(undone.code, 0, "{new}{}", undone.err);
    assert!(!dir.join("gone").exists(), "{new}");

    write("gone", "later");
    let except = ["restore", &text, "latest", "--except", "b"];
    let except = session.data(0, &except);
    write("b", "latest");
    assert_eq!([read("a"), read("gone")], ["one"; 2]);
    let undone = type_command(&session, &except, &["undo"], "");
    assert_eq!(undone.code, 0, "{except}{}", undone.err);
    let state = [read("a"), read("gone"), read("b")];
    assert_eq!(state, ["two", "later", "latest"], "{except}");
}

#[test]
fn the_latest_of_a_repository_is_what_a_whole_restore_in_place_chose() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    session.data(0, &["repo", "init"]);
    fs::write(dir.join("a"), "one").unwrap();
    let first = id(&session.json(0, &["repo", "save", &text, "--name", "app"]));
    fs::write(dir.join("a"), "two").unwrap();
    session.json(0, &["repo", "save", &text, "--name", "app"]);
    let latest = || session.data(0, &["repo", "cat", "latest", "a", "--name", "app"]);
    let live = || fs::read_to_string(dir.join("a")).unwrap();
    assert_eq!(latest(), "two");

    let in_place = ["repo", "restore", &first, &text, "--in-place"];
    let except = [&in_place[..], &["--except", "a"]].concat();
    session.json(0, &except);
    assert_eq!((latest().as_str(), live().as_str()), ("two", "two"));
    let other = session.home().join("other");
    let other = other.to_str().unwrap();
    session.json(0, &["repo", "restore", &first, other]);
    assert_eq!(latest(), "two");
    session.json(0, &in_place);
    assert_eq!((latest().as_str(), live().as_str()), ("one", "one"));
}

#[test]
fn a_database_that_saves_leave_out_keeps_what_waits_in_its_log() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    let database = dir.join("app.db");
    let mut program = Program::on(&database);
    let first = id(&session.json(0, &["save", &text]));
    assert_eq!(program.insert("leave it in the log"), "2");
    program.child.kill().unwrap();
    drop(program);
    assert!(fs::metadata(dir.join("app.db-wal")).unwrap().len() > 0);
    // Two more rows reach the file itself, so that it differs from the snapshot's.
    let script = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute('insert into rows values (3)')
db.commit()
db.execute('pragma wal_checkpoint(passive)').fetchall()
db.execute('insert into rows values (4)')
db.commit()
import os
os._exit(0)
";
    python(script, &[database.to_str().unwrap()]);
    fs::write(dir.join(".stasisignore"), "*.db\n").unwrap();

    let dry = session.json(0, &["restore", &text, &first, "--dry-run"]);
    let restored = session.json(0, &["restore", &text, &first]);

    let planned = dry["changes"].as_array().unwrap();
    assert_eq!(planned.len(), 1, "{dry:#}");
    assert_eq!(
        restored["in_place"]["left_alone"],
        serde_json::json!(["app.db"]),
        "{restored:#}"
    );
    assert_eq!(rows(&database), "4");
}

#[test]
fn of_a_directory_that_came_since_only_that_goes_which_a_save_would_have() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    fs::write(dir.join(".stasisignore"), "node_modules/\n").unwrap();
    session.json(0, &["save", &text]);
    for path in [
        "new/node_modules/lib",
        "new/code",
        "new/deep/keep",
        "gone/code",
    ] {
        fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
        fs::write(dir.join(path), "x").unwrap();
    }

    session.json(0, &["restore", &text, "--except", "new/deep/keep"]);

    let is_there = |path: &str| dir.join(path).exists();
    assert!(is_there("new/node_modules/lib") && is_there("new/deep/keep"));
    assert!(!is_there("new/code") && !is_there("gone"));
    session.json(0, &["restore", &text]);
    assert!(is_there("new/node_modules/lib") && !is_there("new/deep"));
}

#[test]
fn an_exception_in_a_directory_that_is_missing_does_not_come_back_with_it() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    fs::create_dir(dir.join("d")).unwrap();
    for path in ["d/a", "d/b"] {
        fs::write(dir.join(path), "one").unwrap();
    }
    session.json(0, &["save", &text]);
    fs::remove_dir_all(dir.join("d")).unwrap();

    session.json(0, &["restore", &text, "--except", "d/b"]);

    assert!(dir.join("d/a").exists() && !dir.join("d/b").exists());
}

#[test]
fn a_database_in_a_directory_that_goes_is_not_moved_under_its_program() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    fs::write(dir.join("a"), "one").unwrap();
    session.data(0, &["repo", "init"]);
    let first = id(&session.json(0, &["repo", "save", &text]));
    session.json(0, &["save", &text]);
    fs::create_dir(dir.join("new")).unwrap();
    let program = Program::on(&dir.join("new/app.db"));

    let refused = session.run(&["restore", &text]);
    let in_place = ["repo", "restore", &first, &text, "--in-place"];
    let too = session.run(&in_place);
    let mistyped = session.run(&[&in_place[..], &["--except", "nwe"]].concat());

    for said in [&refused, &too] {
        assert_eq!(said.code, 4, "{}{}", said.out, said.err);
        assert!(said.err.contains("`new/app.db` is open"), "{}", said.err);
    }
    assert_eq!(mistyped.code, 3, "{}", mistyped.err);
    assert!(dir.join("new/app.db").exists());
    drop(program);
    session.json(0, &["restore", &text]);
    assert!(!dir.join("new").exists());
}

#[test]
fn a_restore_is_taken_back_by_the_name_that_people_type() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    fs::write(dir.join("a"), "one").unwrap();
    let first = id(&session.json(0, &["save", &text]));
    fs::write(dir.join("a"), "two").unwrap();
    session.json(0, &["repo", "restore", &first, &text, "--in-place"]);

    let mut undo = session.command(&["repo", "undo", "app"]);
    let said = crate::session::said(undo.current_dir(session.home()).output().unwrap());

    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "two");
}

#[test]
fn stores_and_sessions_in_a_directory_are_in_no_snapshot_and_stay_when_it_is_restored() {
    let session = Session::new();
    let outer = session.home().join("outer");
    let [notes, tree] = ["notes", "tree"].map(|name| outer.join(name));
    for dir in [&notes, &tree] {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("file"), "one").unwrap();
    }
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (store, kept) = (outer.join("store"), outer.join("kept"));
    let url = format!("file://{}", store.display());
    session.json(0, &["--store", &url, "save", &text(&notes)]);
    let init = ["workspace", "init", &text(&tree), "--session-dir"];
    session.json(0, &[&init[..], &[&text(&kept)]].concat());

    let saved = id(&session.json(0, &["save", &text(&outer)]));
    fs::write(notes.join("file"), "two").unwrap();
    session.json(0, &["--store", &url, "save", &text(&notes)]);
    session.json(0, &["restore", &text(&outer), &saved]);

    let copy = session.home().join("copy");
    session.json(0, &["restore", &text(&outer), &saved, "--to", &text(&copy)]);
    assert_eq!(fs::read_to_string(notes.join("file")).unwrap(), "one");
    assert!(copy.join("notes/file").is_file());
    assert!(!copy.join("store").exists() && !copy.join("kept").exists());
    let log = session.json(0, &["--store", &url, "log", &text(&notes)]);
    assert_eq!(log["items"].as_array().map(Vec::len), Some(2), "{log}");
    session.json(0, &["workspace", "list", "--workspace", &text(&tree)]);
}

#[test]
fn what_was_in_the_way_of_an_entry_comes_back_by_the_command_that_is_named() {
    for is_link in [false, true] {
        let session = Session::new();
        let (dir, text) = directory(&session);
        fs::create_dir_all(dir.join("d/deep")).unwrap();
        for path in ["d/f", "d/deep/g"] {
            fs::write(dir.join(path), "one").unwrap();
        }
        session.json(0, &["save", &text]);
        fs::remove_dir_all(dir.join("d")).unwrap();
        let outside = session.home().join("outside");
        fs::create_dir(&outside).unwrap();
        if is_link {
            std::os::unix::fs::symlink(&outside, dir.join("d")).unwrap();
        } else {
            fs::write(dir.join("d"), "a file").unwrap();
        }

        let paths = ["--path", "d/f", "--path", "d/deep/g"];
        let said = session.data(0, &[&["restore", &text, "latest"], &paths[..]].concat());
        let read = |path: &str| fs::read_to_string(dir.join(path)).unwrap_or_default();
        assert_eq!([read("d/f"), read("d/deep/g")], ["one"; 2], "{said}");
        let undone = type_command(&session, &said, &["undo"], "");

        assert_eq!(undone.code, 0, "{said}{}", undone.err);
        if is_link {
            assert_eq!(fs::read_link(dir.join("d")).unwrap(), outside);
        } else {
            assert_eq!(read("d"), "a file");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}

#[test]
fn an_entry_in_a_directory_that_is_gone_is_new() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    fs::create_dir_all(dir.join("d/deep")).unwrap();
    fs::write(dir.join("d/deep/f"), "one").unwrap();
    session.json(0, &["save", &text]);
    fs::remove_dir_all(dir.join("d/deep")).unwrap();

    let said = session.data(0, &["restore", &text, "latest", "--path", "d/deep/f"]);
    assert!(dir.join("d/deep/f").exists(), "{said}");
    let undone = type_command(&session, &said, &["undo"], "");

    assert_eq!(undone.code, 0, "{said}{}", undone.err);
    assert!(!dir.join("d/deep").exists(), "{said}");
}

/// A directory `notes` that a host saved, and what it is called in the store.
fn saved_notes(session: &Session, above: &str) -> (PathBuf, String) {
    let dir = session.home().join(above).join("notes");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("todo"), "buy milk").unwrap();
    let saved = session.json(0, &["save", dir.to_str().unwrap()]);
    let listed = session.json(0, &["list"]);
    let mut rows = listed["items"].as_array().unwrap().iter();
    let row = rows.find(|row| row["dir"] == dir.to_str().unwrap());
    let row = row.unwrap_or_else(|| panic!("{saved:#}{listed:#}"));
    (dir, row["subject"].as_str().unwrap().to_owned())
}

/// A second host on the store of a first.
fn beside(first: &Session) -> Session {
    Session::on(first.object("").to_str().unwrap())
}

#[test]
fn a_directory_of_the_same_name_is_found_behind_any_number_of_others() {
    let first = Session::new();
    let (_, name) = saved_notes(&first, "a");
    let tenants = fs::read_dir(first.object("subjects")).unwrap();
    let tenant = tenants.last().unwrap().unwrap().path();
    // As many objects as are ever looked at, in directories before and of names that begin alike.
    for other in ["aaa-00000000", "note-00000000"] {
        let snapshots = tenant.join("dir").join(other).join("snapshots");
        fs::create_dir_all(&snapshots).unwrap();
        for number in 0..4100 {
            fs::write(snapshots.join(format!("{number}.json")), "").unwrap();
        }
    }
    let second = beside(&first);
    let dir = second.home().join("notes");
    fs::create_dir(&dir).unwrap();

    let said = second.run(&["save", dir.to_str().unwrap()]);

    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains(&format!("`{name}`")), "{}", said.err);
}

#[test]
fn a_directory_of_another_host_is_named_however_many_of_its_name_lie_on_this_one() {
    let digits = |name: &str| name.rsplit_once('-').unwrap().1.to_owned();
    // One that comes late enough in a listing that others come before it.
    let (first, name) = std::iter::repeat_with(|| {
        let first = Session::new();
        let (_, name) = saved_notes(&first, "a");
        (first, name)
    })
    .find(|(_, name)| *digits(name) > *"8")
    .unwrap();
    let second = beside(&first);
    let mut before = 0;
    for number in 0.. {
        if before == 3 {
            break;
        }
        let (_, own) = saved_notes(&second, &number.to_string());
        before += usize::from(digits(&own) < digits(&name));
    }
    let dir = second.home().join("last/notes");
    fs::create_dir_all(&dir).unwrap();

    let said = second.run(&["save", dir.to_str().unwrap()]);

    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains(&format!("`{name}`")), "{}", said.err);
}

/// A database in WAL mode with its last commit in the log, and nobody who has it open.
fn database_with_a_log(database: &Path) {
    let script = "
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('pragma journal_mode=wal')
db.execute('create table if not exists rows (n integer)')
db.execute('insert into rows values (1)')
os._exit(0)
";
    python(script, &[database.to_str().unwrap()]);
}

fn backups(dir: &Path) -> Vec<String> {
    let beside = fs::read_dir(dir.parent().unwrap()).unwrap();
    let names = beside.map(|one| one.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.contains("stasis-backup"))
        .collect()
}

#[test]
fn a_restore_of_what_is_there_says_so_and_leaves_the_undo_of_the_one_before() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    fs::create_dir(dir.join("data")).unwrap();
    database_with_a_log(&dir.join("data/app.db"));
    fs::write(dir.join("notes"), "one").unwrap();
    session.json(0, &["save", &text]);
    assert!(dir.join("data/app.db-wal").metadata().unwrap().len() > 0);
    let diff = session.data(0, &["diff", &text]);
    assert_eq!(diff.trim(), "", "the database holds what was saved");
    let dry = session.json(0, &["restore", &text, "--dry-run"]);
    assert_eq!(dry["changes"].as_array().map_or(0, Vec::len), 0, "{dry:#}");

    let first = session.data(0, &["restore", &text]);
    assert!(first.starts_with("Nothing to do: "), "{first}");
    assert!(dir.join("data/app.db-wal").exists(), "it was not touched");
    fs::write(dir.join("notes"), "two").unwrap();
    session.json(0, &["restore", &text]);
    let again = session.data(0, &["restore", &text]);

    assert!(again.starts_with("Nothing to do: "), "{again}");
    assert_eq!(backups(&dir), Vec::<String>::new());
    session.json(0, &["undo", &text]);
    assert_eq!(fs::read_to_string(dir.join("notes")).unwrap(), "two");
    assert_eq!(rows(&dir.join("data/app.db")), "1");
}

#[test]
fn what_a_restore_replaced_stays_beside_it_only_if_no_snapshot_has_it() {
    let session = Session::new();
    let (dir, text) = directory(&session);
    let database = dir.join("app.db");
    database_with_a_log(&database);
    fs::write(dir.join("notes"), "one").unwrap();
    session.json(0, &["save", &text]);
    database_with_a_log(&database);
    fs::create_dir_all(dir.join("new/deep")).unwrap();
    fs::write(dir.join("new/deep/file"), "new").unwrap();
    fs::write(dir.join("notes"), "two").unwrap();

    let restored = session.json(0, &["restore", &text]);
    assert!(restored["in_place"].get("backup").is_none(), "{restored:#}");
    assert_eq!(rows(&database), "1");
    session.json(0, &["undo", &text]);
    assert_eq!(backups(&dir), Vec::<String>::new());
    assert_eq!(rows(&database), "2");
    assert_eq!(
        fs::read_to_string(dir.join("new/deep/file")).unwrap(),
        "new"
    );

    // A program that has the file open writes on to the one that it opened.
    let script = "
import sys
log = open(sys.argv[1], 'a')
print('ready', flush=True)
sys.stdin.readline()
log.write(' and three')
log.close()
print('written', flush=True)
";
    let mut child = Command::new("python3")
        .args(["-c", script])
        .arg(dir.join("notes"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let says = BufReader::new(child.stdout.take().unwrap());
    let mut program = Program { child, says };
    assert_eq!(program.line(), "ready");
    let kept = session.json(0, &["restore", &text]);
    assert_eq!(program.insert("go"), "written");

    let backup = kept["in_place"]["backup"].as_str().unwrap();
    let written = fs::read_to_string(Path::new(backup).join("tree/notes")).unwrap();
    assert_eq!(written, "two and three");
}
