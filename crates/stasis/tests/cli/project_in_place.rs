//! Applications that are saved where they lie: what `init` finds, what every save keeps, what is refused.

#![expect(clippy::too_many_lines, reason = "a story is told in one piece")]

use crate::project::{id, names};
use crate::session::{Session, oldest_first};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn python(script: &str, arguments: &[&str]) -> String {
    let said = Command::new("python3")
        .args(["-c", script])
        .args(arguments)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{err}");
    String::from_utf8(said.stdout).unwrap()
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

fn insert(database: &Path, count: usize) {
    let script = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute('create table if not exists rows (n integer)')
db.executemany('insert into rows values (?)', [(n,) for n in range(int(sys.argv[2]))])
db.commit()
";
    let _ = python(script, &[database.to_str().unwrap(), &count.to_string()]);
}

/// A small application with a database in its own tree.
fn application(session: &Session) -> PathBuf {
    let dir = session.home().join("shop");
    fs::create_dir_all(dir.join("data")).unwrap();
    fs::write(dir.join("main.py"), "print('shop')").unwrap();
    insert(&dir.join("data/app.db"), 3);
    dir
}

fn log(session: &Session, dir: &str) -> Vec<String> {
    let listed = oldest_first(&session.json(0, &["log", dir]));
    let rows = listed.as_array().cloned();
    let rows = rows.or_else(|| listed["items"].as_array().cloned());
    rows.unwrap_or_default().iter().map(id).collect()
}

#[test]
fn init_leaves_everything_where_it_is_and_the_history_stays() {
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    let first = id(&session.json(0, &["save", text]));

    let said = session.data(0, &["project", "init", "--project", text]);
    let second = session.json(0, &["project", "save", text]);
    fs::write(dir.join("main.py"), "print('broken')").unwrap();
    fs::remove_file(dir.join("data/app.db")).unwrap();
    let _ = session.data(0, &["restore", text, &id(&second)]);

    assert!(
        said.contains("found data/app.db (SQLite): captured where it is"),
        "{said}"
    );
    assert!(!dir.join("state").exists());
    assert_eq!(second["files"], 3, "{second:#}");
    assert_eq!(second["volumes"]["app"]["integrity"], "ok", "{second:#}");
    let logged = log(&session, text);
    assert!(
        logged.contains(&first) && logged.contains(&id(&second)),
        "{logged:?}"
    );
    assert_eq!(rows(&dir.join("data/app.db")), "3");
    assert_eq!(
        fs::read_to_string(dir.join("main.py")).unwrap(),
        "print('shop')"
    );
    // The everyday verbs and those of a project speak of one history.
    insert(&dir.join("data/app.db"), 1);
    let third = id(&session.json(0, &["save", text]));
    let listed = session.json(0, &["project", "list", "--project", text]);
    assert!(listed.to_string().contains(&third), "{listed:#}");
}

#[test]
fn an_id_of_ones_own_keeps_the_history_and_the_state_layout_is_a_choice() {
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    let first = id(&session.json(0, &["save", text]));
    let _ = session.data(0, &["project", "init", "--project", text, "--id", "mine"]);
    assert_eq!(log(&session, text), [first]);

    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    let said = session.data(
        0,
        &["project", "init", "--project", text, "--layout", "state"],
    );

    assert!(said.contains("move it into its volume"), "{said}");
    assert_eq!(
        names(&dir.join("state/current")),
        ["files", "volumes"],
        "{said}"
    );
}

#[test]
fn nothing_where_there_was_something_is_refused() {
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    let _ = session.json(0, &["save", text]);
    fs::rename(&dir, session.home().join("elsewhere")).unwrap();
    fs::create_dir(&dir).unwrap();

    let said = session.run(&["save", text]);
    let meant = session.run(&["save", text, "--accept-shrink", "--force"]);

    assert_eq!(said.code, 11, "{}{}", said.out, said.err);
    assert!(said.err.contains("--accept-shrink"), "{}", said.err);
    assert_eq!(meant.code, 0, "{}{}", meant.out, meant.err);
}

#[test]
fn a_home_directory_and_the_root_are_refused_and_a_project_must_be_named() {
    let session = Session::new();
    let home = session.home().join("me");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("notes"), "x").unwrap();
    let run = |dir: &Path, words: &[&str]| {
        let mut command = session.command(words);
        command.env("HOME", &home).current_dir(dir);
        crate::session::said(command.output().unwrap())
    };

    for words in [
        vec!["save", "/"],
        vec!["save", home.to_str().unwrap()],
        vec!["save", "."],
        vec!["project", "save", "."],
        vec!["repo", "--repo", "r", "save", "/"],
    ] {
        let said = run(&home, &words);
        assert_eq!(said.code, 2, "{words:?} {}{}", said.out, said.err);
        assert!(said.err.contains("--force"), "{words:?} {}", said.err);
    }
    let nowhere = run(&home, &["project", "save"]);
    assert_eq!(nowhere.code, 2, "{}{}", nowhere.out, nowhere.err);
    assert!(nowhere.err.contains("stasis.toml"), "{}", nowhere.err);
    let forced = run(&home, &["save", ".", "--force"]);
    assert_eq!(forced.code, 0, "{}{}", forced.out, forced.err);
}

#[test]
fn excludes_are_remembered_and_plans_know_them() {
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    fs::create_dir_all(dir.join("node_modules/x")).unwrap();
    fs::write(dir.join("node_modules/x/index.js"), "big").unwrap();
    fs::write(dir.join("secret.key"), "hush").unwrap();
    fs::write(dir.join("out.log"), "line").unwrap();
    fs::write(dir.join(".stasisignore"), "# what is made\n*.log\n\n").unwrap();
    let list = session.home().join("patterns");
    fs::write(&list, "*.key\n").unwrap();

    let first = session.json(
        0,
        &[
            "save",
            text,
            "--exclude",
            "node_modules/",
            "--exclude-from",
            list.to_str().unwrap(),
        ],
    );
    fs::write(dir.join("main.py"), "print('two')").unwrap();
    let second = session.json(0, &["save", text]);
    let differences = session.json(0, &["diff", text]);
    let plan = session.json(0, &["restore", text, &id(&first), "--dry-run"]);
    let _ = session.data(0, &["restore", text, &id(&first)]);

    for told in [&first, &second] {
        assert_eq!(told["files"], 3, "{told:#}");
        assert_eq!(told["excluded"], 3, "{told:#}");
    }
    assert_eq!(
        differences["items"],
        Value::Array(Vec::new()),
        "{differences:#}"
    );
    let changes = plan["changes"].as_array().unwrap();
    let paths: Vec<&str> = changes
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["main.py"], "{plan:#}");
    for kept in ["node_modules/x/index.js", "secret.key", "out.log"] {
        assert!(dir.join(kept).exists(), "{kept} is left alone");
    }
    assert_eq!(
        fs::read_to_string(dir.join("main.py")).unwrap(),
        "print('shop')"
    );
    // What is left out only since the snapshot that is restored is left alone too: no snapshot has it.
    fs::write(dir.join("later.tmp"), "mine").unwrap();
    let _ = session.json(0, &["save", text, "--exclude", "*.tmp"]);
    fs::write(dir.join(".stasisignore"), "*.log\n*.bak\n").unwrap();
    fs::write(dir.join("x.bak"), "mine").unwrap();
    let _ = session.data(0, &["restore", text, &id(&first)]);
    assert!(dir.join("later.tmp").exists() && dir.join("x.bak").exists());
    let forgot = session.json(0, &["save", text, "--forget-excludes"]);
    assert!(forgot["files"].as_u64().unwrap() > 3, "{forgot:#}");
}

#[test]
fn a_sparse_file_costs_bytes_and_a_wrong_clock_is_not_followed_for_good() {
    let session = Session::new();
    let dir = session.home().join("disk");
    fs::create_dir(&dir).unwrap();
    let text = dir.to_str().unwrap();
    let image = fs::File::create(dir.join("image")).unwrap();
    image.set_len(5 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, b"at the end", (5 << 30) - 10).unwrap();

    let told = session.json(0, &["save", text]);

    assert_eq!(told["bytes"], 5_u64 << 30);
    let stored = told["bytes_stored"].as_u64().unwrap();
    assert!(stored < 64 << 10, "{stored} bytes for holes");
}

/// The real Django, if it is installed.
fn django() -> Option<PathBuf> {
    let parts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/parts/venv/bin");
    let admin = parts.join("django-admin");
    let needed = std::env::var_os("STASIS_REQUIRE_PARTS").is_some();
    assert!(admin.exists() || !needed, "no Django: run scripts/parts");
    if !admin.exists() {
        println!("skipped: Django is not installed; scripts/parts installs it");
        return None;
    }
    Some(parts)
}

#[test]
fn a_django_project_is_saved_where_it_lies_and_its_rows_come_back() {
    let Some(bin) = django() else { return };
    let session = Session::new();
    let home = session.home().to_owned();
    let run = |program: &str, dir: &Path, words: &[&str]| {
        let said = Command::new(bin.join(program))
            .args(words)
            .current_dir(dir)
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.status.success(), "{program} {words:?}: {err}");
        String::from_utf8(said.stdout).unwrap()
    };
    let _ = run("django-admin", &home, &["startproject", "shop"]);
    let dir = home.join("shop");
    let text = dir.to_str().unwrap();
    let _ = run(
        "python",
        &dir,
        &["manage.py", "migrate", "--verbosity", "0"],
    );
    let user = |name: &str| {
        let script = format!(
            "from django.contrib.auth.models import User; User.objects.create_user({name:?})"
        );
        let _ = run(
            "python",
            &dir,
            &["manage.py", "shell", "--command", &script],
        );
    };
    let users = || {
        let script =
            "from django.contrib.auth.models import User; print('users:', User.objects.count())";
        let said = run("python", &dir, &["manage.py", "shell", "--command", script]);
        let line = said.lines().find(|line| line.starts_with("users:"));
        line.unwrap_or_default().to_owned()
    };
    user("ada");

    let first = session.json(0, &["save", text]);
    let init = session.data(0, &["project", "init", "--project", text]);
    user("grace");
    let second = session.json(0, &["project", "save", "--project", text]);
    let bytes = fs::read(dir.join("db.sqlite3")).unwrap();
    fs::write(dir.join("db.sqlite3"), "it is broken").unwrap();
    fs::remove_file(dir.join("manage.py")).unwrap();
    let _ = session.data(0, &["restore", text, "latest"]);

    assert!(
        init.contains("found db.sqlite3 (SQLite): captured where it is"),
        "{init}"
    );
    assert!(
        second["files"].as_u64() > first["files"].as_u64(),
        "{second:#}"
    );
    assert_eq!(users(), "users: 2");
    assert_eq!(fs::read(dir.join("db.sqlite3")).unwrap().len(), bytes.len());
    let logged = log(&session, text);
    for snapshot in [id(&first), id(&second)] {
        assert!(logged.contains(&snapshot), "{logged:?}");
    }
    let _ = session.data(0, &["restore", text, &id(&first)]);
    assert_eq!(users(), "users: 1");
}

#[test]
fn a_database_that_is_gone_empty_overwritten_or_damaged_is_named_and_does_not_become_latest() {
    for how in ["deleted", "emptied", "overwritten", "damaged"] {
        let session = Session::new();
        let dir = application(&session);
        let text = dir.to_str().unwrap();
        let database = dir.join("data/app.db");
        insert(&dir.join("moved.db"), 7);
        let good = session.json(0, &["save", text]);
        assert_eq!(good["is_latest"], true, "{good:#}");
        let shown = session.json(0, &["project", "show", "latest", "--project", text]);
        assert!(shown.to_string().contains("checkedAtMs"), "{shown:#}");
        match how {
            "deleted" => fs::remove_file(&database).unwrap(),
            "emptied" => fs::write(&database, "").unwrap(),
            "overwritten" => fs::write(&database, "oops").unwrap(),
            _ => {
                let mut bytes = fs::read(&database).unwrap();
                bytes[4096..].fill(0xff);
                fs::write(&database, bytes).unwrap();
            }
        }
        fs::rename(dir.join("moved.db"), dir.join("data/moved.db")).unwrap();

        let told = session.json(1, &["save", text]);
        let again = session.run(&["save", text]);
        let _ = session.data(0, &["restore", text]);

        assert_eq!(told["is_latest"], false, "{told:#}");
        let lost = told["lost_databases"].as_array().unwrap();
        assert_eq!(lost.len(), 1, "what was only moved is not lost: {told:#}");
        assert_eq!(lost[0]["path"], "data/app.db");
        assert_eq!(lost[0]["how"], how);
        assert_eq!(again.code, 1, "{}{}", again.out, again.err);
        assert!(again.err.contains("data/app.db"), "{}", again.err);
        assert!(again.err.contains("--force"), "{}", again.err);
        assert_eq!(rows(&database), "3", "{how}: the good one came back");
        let logged = log(&session, text);
        assert!(logged.contains(&id(&told)), "the other state is stored too");
        fs::remove_file(&database).unwrap();
        let forced = session.json(0, &["save", text, "--force"]);
        assert_eq!(forced["is_latest"], true, "{forced:#}");
        let after = session.json(0, &["save", text, "--allow-empty"]);
        assert_eq!(after["lost_databases"], Value::Array(Vec::new()));
    }
}

/// What a restore of a part saves first lacks the volumes that it does not touch: it is a way back, and nothing else.
#[test]
fn going_back_from_a_restore_of_a_part_leaves_the_rest_in_every_later_save() {
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    session.data(0, &["project", "init", "--project", text]);
    let whole = id(&session.json(0, &["project", "save", text]));
    fs::write(dir.join("main.py"), "edited").unwrap();
    let words = [
        "project",
        "restore",
        "latest",
        "--path",
        "main.py",
        "--project",
        text,
    ];
    let part = session.json(0, &words);
    let safety = part["safety_snapshot_id"].as_str().unwrap();

    let back = session.json(0, &["project", "restore", safety, "--project", text]);
    insert(&dir.join("data/app.db"), 2);
    let saved = session.json(0, &["project", "save", text]);
    fs::remove_file(dir.join("data/app.db")).unwrap();
    let restored = session.json(0, &["project", "restore", "latest", "--project", text]);

    assert_eq!(back["is_part"], true, "{back:#}");
    assert_eq!(fs::read_to_string(dir.join("main.py")).unwrap(), "edited");
    assert_eq!(saved["parent_snapshot_id"], whole.as_str(), "{saved:#}");
    assert_eq!(restored["snapshot_id"], id(&saved).as_str());
    assert_eq!(rows(&dir.join("data/app.db")), "5");
}

#[test]
fn a_declared_database_that_is_not_there_is_missed() {
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    let toml = "id = \"shop\"\n[volumes.app]\nconsistency = \"sqlite\"\npath = \"data/other.db\"\n";
    fs::write(dir.join("stasis.toml"), toml).unwrap();

    let told = session.json(1, &["project", "save", text]);

    assert_eq!(
        told["lost_databases"][0]["path"], "data/other.db",
        "{told:#}"
    );
    insert(&dir.join("data/other.db"), 1);
    let told = session.json(0, &["project", "save", text]);
    assert_eq!(told["is_latest"], true, "{told:#}");
}

#[test]
fn a_database_that_is_restored_alone_is_not_given_the_log_of_another_state() {
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    let database = dir.join("data/app.db");
    let first = id(&session.json(0, &["save", text]));
    let script = "
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute('pragma journal_mode = wal')
db.execute('pragma wal_autocheckpoint = 0')
db.executemany('insert into rows values (?)', [(n,) for n in range(5000)])
db.commit()
os._exit(0)
";
    let _ = python(script, &[database.to_str().unwrap()]);
    assert!(fs::metadata(dir.join("data/app.db-wal")).unwrap().len() > 0);

    let _ = session.data(0, &["restore", text, &first, "--path", "data/app.db"]);

    assert!(!dir.join("data/app.db-wal").exists());
    assert_eq!(rows(&database), "3");
}

#[test]
fn the_layout_of_a_state_directory_neither_hides_a_history_nor_saves_nothing_of_something() {
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    let first = id(&session.json(0, &["save", text]));
    let init = ["project", "init", "--layout", "state", "--project", text];

    let hidden = session.run(&init);

    assert_eq!(hidden.code, 11, "{}", hidden.err);
    assert!(
        hidden.err.contains("was saved as it lies"),
        "{}",
        hidden.err
    );
    assert!(!dir.join("stasis.toml").exists() && !dir.join("state").exists());
    assert_eq!(log(&session, text), [first]);

    // One that nobody has saved yet.
    let other = Session::new();
    let dir = application(&other);
    let text = dir.to_str().unwrap();
    let save = ["project", "save", "--project", text];
    other.data(
        0,
        &["project", "init", "--layout", "state", "--project", text],
    );
    let nothing = other.run(&save);
    assert_eq!(nothing.code, 11, "{}{}", nothing.out, nothing.err);
    assert!(nothing.err.contains("lie outside it"), "{}", nothing.err);
    assert!(log(&other, text).is_empty());
    let meant = other.json(0, &[&save[..], &["--accept-shrink"]].concat());
    assert_eq!(meant["files"], 0, "{meant:#}");
    fs::write(dir.join("state/current/files/main.py"), "print('shop')").unwrap();
    let saved = other.json(0, &save);
    assert_eq!(saved["files"], 1, "{saved:#}");
}
