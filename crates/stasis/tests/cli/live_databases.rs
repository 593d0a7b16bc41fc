//! SQLite databases that nobody declared, in plain directories, while programs write to them.

use crate::project::{eventually, id};
use crate::session::Session;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Writes numbered transactions of several pages each, and says after each commit how far it is.
const WRITER: &str = "
import os, sqlite3, sys, time
path, mode, synchronous, pause, done = sys.argv[1:]
db = sqlite3.connect(path, timeout=60, isolation_level=None)
db.execute('pragma journal_mode = ' + mode)
db.execute('pragma synchronous = ' + synchronous)
db.execute('create table if not exists entries (n integer primary key, bytes blob)')
db.execute('create table if not exists tally (n integer)')
db.execute('create index if not exists by_bytes on entries (substr(bytes, 1, 16))')
n = 0
while True:
    n += 1
    db.execute('begin immediate')
    db.execute('insert into entries values (?, ?)', (n, os.urandom(9000)))
    if n % 7 == 0:
        db.execute('update entries set bytes = ? where n = ?', (os.urandom(9000), n // 2))
    db.execute('delete from tally')
    db.execute('insert into tally values (?)', (n,))
    db.execute('commit')
    with open(done + '.new', 'w') as out:
        out.write(str(n))
    os.replace(done + '.new', done)
    time.sleep(float(pause))
";

/// Says how many transactions each database holds; fails at damage, at a gap and at half a transaction.
const READER: &str = "
import sqlite3, sys
for path in sys.argv[1:]:
    db = sqlite3.connect(path)
    assert db.execute('pragma integrity_check').fetchall() == [('ok',)], path
    count, last = db.execute('select count(*), coalesce(max(n), 0) from entries').fetchone()
    assert count == last, (path, count, last)
    assert (db.execute('select n from tally').fetchone() or (0,))[0] == last, path
    print(last)
";

pub(crate) struct Writers(pub(crate) Vec<Child>);

impl Drop for Writers {
    fn drop(&mut self) {
        for writer in &mut self.0 {
            let _ = writer.kill();
            let _ = writer.wait();
        }
    }
}

pub(crate) fn python(script: &str, arguments: &[&str]) -> String {
    let said = Command::new("python3")
        .args(["-c", script])
        .args(arguments)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{err}");
    String::from_utf8(said.stdout).unwrap()
}

pub(crate) fn counts(paths: &[PathBuf]) -> Vec<u64> {
    let paths: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    let said = python(READER, &paths);
    said.lines().map(|line| line.parse().unwrap()).collect()
}

fn number_in(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.parse().unwrap_or_default()
}

/// Begins to write to a database, and says after each commit in `done` how far it is.
pub(crate) fn writer(
    path: &Path,
    mode: &str,
    (synchronous, pause): (&str, &str),
    done: &Path,
) -> Child {
    let writer = Command::new("python3")
        .args(["-c", WRITER, path.to_str().unwrap(), mode])
        .args([synchronous, pause])
        .arg(done)
        .stdout(Stdio::null())
        .spawn();
    writer.unwrap()
}

/// A directory with files that are no databases beside those that are.
fn application(session: &Session) -> PathBuf {
    let dir = session.home().join("app");
    fs::create_dir_all(dir.join("data/deep")).unwrap();
    fs::write(dir.join("readme.md"), "an application").unwrap();
    fs::write(dir.join("data/notes"), "SQLite format 3 is a format").unwrap();
    // Companions by name only: they belong to nobody and are files like others.
    fs::write(dir.join("data/notes-wal"), "not a log").unwrap();
    fs::write(dir.join("data/alone-journal"), "a diary").unwrap();
    dir
}

fn names(dir: &Path) -> Vec<String> {
    crate::project::names(dir)
}

#[test]
fn every_save_beside_writers_holds_whole_transactions_of_every_database() {
    const SAVES: usize = 15;
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    let databases = [
        ("data/app.db", "delete"),
        ("data/deep/log", "wal"),
        ("db.sqlite3", "truncate"),
        ("cache.bin", "wal"),
    ];
    let done = |name: &str| session.home().join(name.replace('/', "_"));
    let start =
        |(name, mode): &(&str, &str)| writer(&dir.join(name), mode, ("off", "0.002"), &done(name));
    let writers = Writers(databases.iter().map(start).collect());
    let acknowledged = || databases.map(|(name, _)| number_in(&done(name)));
    eventually(Duration::from_mins(1), "all of them write", || {
        acknowledged().iter().all(|n| *n > 5)
    });

    let mut saved: Vec<(String, [u64; 4], [u64; 4])> = Vec::new();
    for _ in 0..SAVES {
        let before = acknowledged();
        let told = session.json(0, &["save", text]);
        let after = acknowledged();
        assert_eq!(told["databases"], 4, "{told:#}");
        assert_eq!(told["not_consistent"], Value::Array(Vec::new()));
        saved.push((id(&told), before, after));
    }
    drop(writers);

    for (number, (snapshot, before, after)) in saved.iter().enumerate() {
        let to = session.home().join(format!("copy-{number}"));
        let target = to.to_str().unwrap();
        let _ = session.data(0, &["restore", text, snapshot, "--to", target]);
        let mut expected = vec!["alone-journal", "app.db", "deep", "notes", "notes-wal"];
        expected.sort_unstable();
        assert_eq!(names(&to.join("data")), expected, "no log of another state");
        let found = counts(&databases.map(|(name, _)| to.join(name)));
        for (at, held) in found.iter().enumerate() {
            // One transaction may have been committed and not yet announced.
            let range = before[at]..=after[at] + 1;
            assert!(
                range.contains(held),
                "{number} {at}: {held} not in {range:?}"
            );
        }
        fs::remove_dir_all(&to).unwrap();
    }
}

/// Makes a database with some rows, closed properly.
fn make(path: &Path, mode: &str, rows: u32) {
    let script = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute('pragma journal_mode = ' + sys.argv[2])
db.execute('create table if not exists entries (n integer primary key, bytes blob)')
db.execute('create table if not exists tally (n integer)')
start = db.execute('select coalesce(max(n), 0) from entries').fetchone()[0]
for n in range(start + 1, start + int(sys.argv[3]) + 1):
    db.execute('insert into entries values (?, ?)', (n, b'x' * 500))
    db.execute('delete from tally')
    db.execute('insert into tally values (?)', (n,))
db.commit()
db.close()
";
    let rows = rows.to_string();
    let _ = python(script, &[path.to_str().unwrap(), mode, &rows]);
}

/// Lets files become older than the two seconds within which they count as possibly still changing.
fn age(paths: &[&Path]) {
    for path in paths {
        let seen = fs::metadata(path).unwrap();
        let changed = std::os::unix::fs::MetadataExt::ctime(&seen);
        eventually(Duration::from_secs(10), "it is old enough", || {
            let now = std::time::SystemTime::now();
            let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_secs().cast_signed() > changed + 3
        });
    }
}

#[test]
fn a_database_at_rest_is_neither_copied_nor_stored_again_and_diff_sees_no_difference() {
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    let (plain, log) = (dir.join("plain.db"), dir.join("log.db"));
    make(&plain, "delete", 200);
    make(&log, "wal", 2000);
    age(&[&plain, &log]);
    let first = session.json(0, &["save", text]);
    assert_eq!(first["databases"], 2);

    let again = session.json(0, &["save", text]);
    let differences = session.json(0, &["diff", text]);
    // Whoever has it open keeps an empty log and shared memory beside it: that is no change.
    let script = "
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1])
db.execute('select count(*) from entries').fetchone()
print('open', flush=True)
time.sleep(60)
";
    let mut reader = Writers(vec![
        Command::new("python3")
            .args(["-c", script, log.to_str().unwrap()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    ]);
    let mut line = [0; 5];
    std::io::Read::read_exact(reader.0[0].stdout.as_mut().unwrap(), &mut line).unwrap();
    let open = session.json(0, &["save", text]);

    for told in [&again, &open] {
        assert_eq!(told["files_read"], 0, "{told:#}");
        assert_eq!(told["databases"], 2, "{told:#}");
    }
    assert_eq!(again["published"], false, "{again:#}");
    assert_eq!(differences["items"], Value::Array(Vec::new()));
    drop(reader);
    // What is committed, but only in the log, is a change although the file looks the same.
    let script = "
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute('pragma wal_autocheckpoint = 0')
db.execute(\"insert into entries values (2001, x'00')\")
db.execute('update tally set n = 2001')
db.commit()
os._exit(0)
";
    let _ = python(script, &[log.to_str().unwrap()]);
    let told = session.json(0, &["save", text]);
    assert_eq!(told["published"], true);
    let to = session.home().join("copy");
    let _ = session.data(
        0,
        &["restore", text, &id(&told), "--to", to.to_str().unwrap()],
    );
    assert_eq!(
        counts(&[to.join("plain.db"), to.join("log.db")]),
        [200, 2001]
    );
    assert!(!to.join("log.db-wal").exists() && !to.join("log.db-shm").exists());
}

#[test]
fn what_a_killed_writer_left_half_done_is_rolled_back_in_the_snapshot() {
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    let database = dir.join("app.db");
    make(&database, "delete", 50);
    // The journal is hot: pages were written over, and nobody lives who would roll them back.
    let script = "
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('pragma cache_size = 1')
db.execute('pragma cache_spill = 1')
db.execute('begin immediate')
for n in range(51, 400):
    db.execute('insert into entries values (?, ?)', (n, b'y' * 2000))
db.execute('update entries set bytes = ?', (b'z' * 2000,))
os._exit(0)
";
    let _ = python(script, &[database.to_str().unwrap()]);
    assert!(fs::metadata(dir.join("app.db-journal")).unwrap().len() > 512);

    let told = session.json(0, &["save", text]);

    let to = session.home().join("copy");
    let _ = session.data(
        0,
        &["restore", text, &id(&told), "--to", to.to_str().unwrap()],
    );
    assert_eq!(counts(&[to.join("app.db")]), [50]);
    assert!(!to.join("app.db-journal").exists());
}

#[test]
fn a_database_that_cannot_be_copied_is_named_and_its_files_are_saved_as_they_are() {
    let session = Session::new();
    let dir = application(&session);
    let text = dir.to_str().unwrap();
    let torn = dir.join("torn.db");
    make(&torn, "delete", 200);
    let mut bytes = fs::read(&torn).unwrap();
    let length = bytes.len();
    bytes[4096..length / 2].fill(0xA5);
    fs::write(&torn, &bytes).unwrap();
    fs::write(dir.join("torn.db-journal"), "").unwrap();
    let good = dir.join("good.db");
    make(&good, "delete", 3);

    let said = session.run(&["save", text]);
    let again = session.json(13, &["save", text]);

    assert_eq!(said.code, 13, "{}{}", said.out, said.err);
    assert!(said.err.contains("torn.db"), "{}", said.err);
    assert!(!said.err.contains("good.db"), "{}", said.err);
    let named = again["not_consistent"].as_array().unwrap();
    assert_eq!(named.len(), 1, "{again:#}");
    assert_eq!(named[0]["path"], "torn.db");
    assert_eq!(named[0]["stored_as"], "crash_consistent");
    assert_eq!(again["databases"], 1);
    let to = session.home().join("copy");
    let _ = session.data(
        0,
        &["restore", text, "latest", "--to", to.to_str().unwrap()],
    );
    assert_eq!(fs::read(to.join("torn.db")).unwrap(), bytes);
    assert!(to.join("torn.db-journal").exists(), "the set is whole");
    assert_eq!(counts(&[to.join("good.db")]), [3]);
}
