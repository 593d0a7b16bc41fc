//! SQLite databases in checkpoints, while programs write to them.

use crate::live_databases::{Writers, counts, python, writer};
use crate::project::eventually;
use crate::session::Session;
use crate::workspace::{Tree, text};
use serde_json::Value;
use stasis_testkit::mounted_image::MountedImage;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Says that it has the database open, and waits.
const HOLD: &str = "import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute('select * from t').fetchall()
print('open', flush=True)
sys.stdin.read()";

#[test]
fn a_database_that_is_open_and_what_it_was_keeps_nobody_from_restoring() {
    let tree = Tree::new(&[("a", "one")]);
    let database = tree.at("app.db");
    let make = "import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute('pragma journal_mode=wal')
c.execute('create table t(x)')
c.commit()";
    let mut python = Command::new("python3");
    let status = python.args(["-c", make]).arg(&database).status();
    assert!(status.unwrap().success());
    tree.checkpoint("good");
    let mut holder = Command::new("python3");
    holder.args(["-c", HOLD]).arg(&database);
    let mut holder = holder
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let told = BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line);
    told.unwrap();
    tree.write("a", "two");

    let there = tree.at("app.db-shm").exists();
    let restored = tree.run(&["restore", "good"]);
    let stayed = tree.at("app.db-shm").exists();
    drop(holder.stdin.take());
    holder.wait().unwrap();

    assert!(there, "the program has it open in WAL mode");
    assert_eq!(restored.code, 0, "{}{}", restored.out, restored.err);
    assert!(
        restored.out.contains(": 1 entry changed ("),
        "{}",
        restored.out
    );
    assert!(stayed);
    assert_eq!(tree.read("a"), "one");
}

fn init(session: Session) -> Tree {
    let tree = Tree { session };
    if !tree.at("").exists() {
        fs::create_dir(tree.at("")).unwrap();
    }
    let dir = tree.dir();
    let words = ["workspace", "init", &dir, "--no-checkpoint"];
    tree.session.json(0, &words);
    tree
}

fn number_in(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.parse().unwrap_or_default()
}

const DATABASES: [(&str, &str); 3] = [
    ("data/app.db", "delete"),
    ("data/deep/log", "wal"),
    ("db.sqlite3", "truncate"),
];

/// How many checkpoints are made beside writers.
const ROUNDS: usize = 8;

/// How the databases of all checkpoints were kept.
#[derive(Default, Debug)]
struct Kept {
    consistent: usize,
    crash_consistent: usize,
    torn: usize,
}

/// Makes checkpoints while three programs write, and opens what is in each: whole transactions, and every one that was
/// committed before, unless the checkpoint names the database.
fn checkpoints_beside_writers(tree: &Tree, rounds: usize, synchronous: &str) -> Kept {
    fs::create_dir_all(tree.at("data/deep")).unwrap();
    tree.write("readme.md", "an application");
    tree.write("data/notes-wal", "not a log");
    let done = |name: &str| tree.session.home().join(name.replace('/', "_"));
    let start = |(name, mode): &(&str, &str)| {
        writer(&tree.at(name), mode, (synchronous, "0.005"), &done(name))
    };
    let writers = Writers(DATABASES.iter().map(start).collect());
    let acknowledged = || DATABASES.map(|(name, _)| number_in(&done(name)));
    eventually(Duration::from_mins(1), "all of them write", || {
        acknowledged().iter().all(|n| *n > 5)
    });
    let mut kept = Kept::default();
    for round in 0..rounds {
        let before = acknowledged();
        let name = format!("round-{round}");
        let said = tree.run(&["create", &name, "--json"]);
        let after = acknowledged();
        let made: Value = serde_json::from_str(&said.out).unwrap();
        let rows = made["databases"].as_array();
        let rows = rows.unwrap_or_else(|| panic!("{round}: {}\n{}", said.out, said.err));
        assert_eq!(rows.len(), 3, "{made:#}");
        let is_named = rows.iter().any(|row| row.get("why").is_some());
        assert_eq!(said.code, if is_named { 13 } else { 0 }, "{}", said.err);

        let to = tree.session.home().join(&name);
        tree.json(0, &["fork", &name, to.to_str().unwrap()]);
        assert_eq!(
            fs::read_to_string(to.join("data/notes-wal")).unwrap(),
            "not a log"
        );
        for (at, (path, _)) in DATABASES.iter().enumerate() {
            let row = rows.iter().find(|row| row["path"] == *path).unwrap();
            match row["stored_as"].as_str().unwrap() {
                "consistent" => kept.consistent += 1,
                "crash_consistent" => kept.crash_consistent += 1,
                _ => {
                    assert!(row["why"].is_string(), "{row}");
                    kept.torn += 1;
                    continue;
                }
            }
            let held = counts(&[to.join(path)])[0];
            // One transaction may have been committed and not yet announced.
            let range = before[at]..=after[at] + 1;
            assert!(
                range.contains(&held),
                "{round} {path}: {held} not in {range:?}"
            );
        }
        fs::remove_dir_all(&to).unwrap();
        tree.json(0, &["delete", &name]);
    }
    drop(writers);
    println!("{kept:?}");
    kept
}

#[test]
fn every_checkpoint_beside_writers_holds_whole_transactions_or_names_the_database() {
    let tree = init(Session::new());

    let kept = checkpoints_beside_writers(&tree, ROUNDS, "off");

    assert!(kept.consistent >= ROUNDS, "{kept:?}");
}

#[test]
fn every_clone_beside_writers_holds_whole_transactions_or_names_the_database() {
    for filesystem in ["xfs", "btrfs"] {
        let Some(mounted) = MountedImage::new(filesystem, 8 << 30) else {
            return;
        };
        let tree = init(Session::beneath(&mounted.root()));

        let kept = checkpoints_beside_writers(&tree, ROUNDS, "off");

        assert!(kept.consistent >= ROUNDS, "{filesystem}: {kept:?}");
        let form = tree.json(0, &["create", "last"])["form"].clone();
        assert_eq!(form, "clone", "{filesystem}");
    }
}

#[test]
fn every_snapshot_of_a_subvolume_beside_writers_is_what_sqlite_recovers_from() {
    let Some(mounted) = MountedImage::new("btrfs", 8 << 30) else {
        return;
    };
    let session = Session::beneath(&mounted.root());
    let made = Command::new("btrfs")
        .args(["subvolume", "create"])
        .arg(session.home().join("work"))
        .output();
    assert!(made.unwrap().status.success());
    let tree = init(session);

    let kept = checkpoints_beside_writers(&tree, ROUNDS, "full");

    assert_eq!(kept.torn, 0, "{kept:?}");
    assert!(kept.crash_consistent > 0, "{kept:?}");
}

/// Has a database for itself and does not let go until its input ends; with `busy` it goes on writing.
const OWNER: &str = "
import os, select, sqlite3, sys
path, busy = sys.argv[1], sys.argv[2] == 'busy'
db = sqlite3.connect(path, timeout=60, isolation_level=None)
db.execute('pragma cache_size = 4')
db.execute('pragma synchronous = off')
db.execute('begin exclusive')
db.execute('update entries set bytes = ?', (os.urandom(500),))
print('ready', flush=True)
while not select.select([sys.stdin], [], [], 0 if busy else None)[0]:
    db.execute('update entries set bytes = ?', (os.urandom(500),))
db.execute('rollback')
db.close()
";

struct Owner(Child);

impl Owner {
    fn of(path: &Path, how: &str) -> Self {
        let started = Command::new("python3")
            .args(["-c", OWNER, path.to_str().unwrap(), how])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut owner = started.unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(owner.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(owner)
    }

    fn end(mut self) {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes a database with some rows; the writer closes it, or is killed, which leaves its WAL.
fn make(path: &Path, mode: &str, rows: u32, end: &str) {
    let script = "
import os, sqlite3, sys
path, mode, rows, end = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None)
db.execute('pragma journal_mode = ' + mode)
db.execute('pragma wal_autocheckpoint = 0')
db.execute('create table if not exists entries (n integer primary key, bytes blob)')
db.execute('create table if not exists tally (n integer)')
start = db.execute('select coalesce(max(n), 0) from entries').fetchone()[0]
for n in range(start + 1, start + int(rows) + 1):
    db.execute('begin')
    db.execute('insert into entries values (?, ?)', (n, os.urandom(500)))
    db.execute('delete from tally')
    db.execute('insert into tally values (?)', (n,))
    db.execute('commit')
if end == 'killed':
    os._exit(0)
db.close()
";
    let rows = rows.to_string();
    let _ = python(script, &[path.to_str().unwrap(), mode, &rows, end]);
}

fn database(made: &Value) -> &Value {
    let rows = made["databases"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{made:#}");
    &rows[0]
}

#[test]
fn a_database_that_somebody_keeps_for_himself_is_named_and_nobody_waits_for_it() {
    let tree = init(Session::new());
    make(&tree.at("app.db"), "delete", 100, "closed");
    let owner = Owner::of(&tree.at("app.db"), "idle");
    let began = Instant::now();

    let said = tree.run(&["create", "held"]);

    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(said.code, 13, "{}", said.err);
    assert!(
        said.err.contains("app.db") && said.err.contains("crash_consistent"),
        "{}",
        said.err
    );
    let listed = tree.run(&["list"]);
    assert!(
        listed.out.contains("app.db") && listed.out.contains("crash_consistent"),
        "{}",
        listed.out
    );
    let all = tree.json(0, &["list"]);
    let row = database(&all["items"][0]);
    assert_eq!(row["stored_as"], "crash_consistent");
    assert!(text(&row["why"]).contains("locked"));

    // The journal that it needs is with it, and nothing of the transaction is in it.
    let to = tree.session.home().join("held");
    tree.json(0, &["fork", "held", to.to_str().unwrap()]);
    assert!(to.join("app.db-journal").exists());
    assert_eq!(counts(&[to.join("app.db")]), [100]);

    owner.end();
    let made = tree.json(0, &["create", "free"]);
    assert_eq!(database(&made)["stored_as"], "consistent");
    assert_eq!(counts(&[tree.at("app.db")]), [100]);
}

#[test]
fn a_database_that_is_written_all_the_time_is_called_torn_and_the_checkpoint_incomplete() {
    let tree = init(Session::new());
    make(&tree.at("app.db"), "delete", 200, "closed");
    let owner = Owner::of(&tree.at("app.db"), "busy");

    let said = tree.run(&["create", "busy", "--json"]);

    owner.end();
    assert_eq!(said.code, 13, "{}", said.err);
    let made: Value = serde_json::from_str(&said.out).unwrap();
    let row = database(&made);
    assert!(text(&row["why"]).contains("locked"), "{row}");
    let all = tree.json(0, &["list"]);
    // On a machine that let the writer sleep for a while it is of one moment after all.
    let is_torn = row["stored_as"] == "torn";
    assert_eq!(all["items"][0]["complete"], !is_torn, "{all:#}");
    if !is_torn {
        let to = tree.session.home().join("busy");
        tree.json(0, &["fork", "busy", to.to_str().unwrap()]);
        assert_eq!(counts(&[to.join("app.db")]), [200]);
    }
}

#[test]
fn a_database_comes_back_with_its_own_wal_and_without_another_one() {
    let tree = init(Session::new());
    let (db, wal) = (tree.at("app.db"), tree.at("app.db-wal"));
    make(&db, "wal", 50, "closed");
    assert!(!wal.exists());
    let closed = tree.checkpoint("closed");
    make(&db, "wal", 30, "killed");
    assert!(fs::metadata(&wal).unwrap().len() > 0);
    let killed = tree.json(0, &["create", "killed"]);
    assert_eq!(database(&killed)["stored_as"], "consistent");

    // The WAL that is there now would be played into the older database.
    tree.json(0, &["restore", &closed]);
    assert!(!wal.exists() && !tree.at("app.db-shm").exists());
    let was = tree.session.home().join("was.db");
    fs::copy(&db, &was).unwrap();
    assert_eq!(counts(&[was]), [50]);

    // It is in the undo, with the database that it belongs to.
    tree.json(0, &["undo"]);
    assert!(fs::metadata(&wal).unwrap().len() > 0);
    assert_eq!(counts(std::slice::from_ref(&db)), [80]);

    // By now it was played and removed: the checkpoint has it still.
    make(&db, "wal", 7, "closed");
    assert!(!wal.exists());
    tree.json(0, &["restore", "killed"]);
    assert!(fs::metadata(&wal).unwrap().len() > 0);
    assert_eq!(counts(std::slice::from_ref(&db)), [80]);

    // One file alone means the database with what belongs to it.
    make(&db, "wal", 9, "killed");
    tree.json(0, &["revert", "app.db", "closed"]);
    assert_eq!(counts(&[db]), [50]);
}

#[test]
fn an_unchanged_tree_with_an_open_wal_needs_no_new_checkpoint() {
    let tree = init(Session::new());
    make(&tree.at("app.db"), "wal", 50, "killed");
    let first = tree.json(0, &["create", "--auto"]);
    assert_eq!(first["created"], true, "{first:#}");

    let second = tree.json(0, &["create", "--auto"]);

    assert_eq!(second["created"], false, "{second:#}");
    let third = tree.json(0, &["create", "manual"]);
    assert_eq!(third["hash"], first["hash"]);
    assert_eq!(database(&third)["stored_as"], "consistent");
}
