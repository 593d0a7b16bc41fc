#![expect(
    clippy::disallowed_methods,
    reason = "tests make and remove files of their own"
)]

use super::*;
use rusqlite::{Connection, OpenFlags};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering;
use tempfile::TempDir;
use tokio::time::Instant;

/// Inserts pairs with increasing numbers, each in a transaction of its own, until it is killed.
/// Ready after the first: SQLite's waiters are not a queue, and one of four may wait for a second.
const HAMMER: &str = "
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
db.execute('PRAGMA synchronous=OFF')
me, n = int(sys.argv[2]), 0
while True:
    n += 1
    db.execute('BEGIN IMMEDIATE')
    for half in (0, 1):
        db.execute('INSERT INTO pairs VALUES (?, ?, ?, ?)', (me, n, half, 'x' * (n % 200)))
    db.execute('COMMIT')
    if n == 1:
        print('ready', flush=True)
    # Four without any pause would make it so large that copies take ever longer.
    time.sleep(0.001)
";

/// Runs a script, says that it is ready, and waits until it is killed.
const HOLD: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for line in sys.argv[2:]:
    db.execute(line).fetchall()
print('ready', flush=True)
sys.stdin.read()
";

/// Changes the schema all the time.
const MIGRATE: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for turn in range(10**9):
    db.execute('CREATE TABLE coming (a)')
    db.execute('DROP TABLE coming')
    if turn == 10:
        print('ready', flush=True)
";

/// Another process, which is killed at the end.
struct Other {
    child: Child,
    _ears: Option<ChildStdin>,
}

impl Other {
    fn start(script: &str, path: &Path, words: &[&str]) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(path)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut mouth = BufReader::new(child.stdout.take().unwrap());
        mouth.read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        let ears = child.stdin.take();
        Self { child, _ears: ears }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn database(directory: &TempDir, mode: &str) -> PathBuf {
    let path = directory.path().join("app.db");
    let db = Connection::open(&path).unwrap();
    db.pragma_update(None, "journal_mode", mode).unwrap();
    db.execute_batch(
        "CREATE TABLE pairs (writer, n, half, filling); CREATE INDEX by_writer ON pairs (writer, n); \
         PRAGMA user_version = 7",
    )
    .unwrap();
    path
}

fn patient(millis: u64) -> SqliteSettings {
    SqliteSettings {
        busy_timeout: Duration::from_millis(millis),
        ..SqliteSettings::default()
    }
}

fn open(path: &Path) -> Connection {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    db
}

fn count(db: &Connection, of: &str) -> i64 {
    db.query_row(&format!("SELECT {of}"), [], |row| row.get(0))
        .unwrap()
}

/// The last number of each writer; every number before it must be there, with both halves.
fn prefixes(db: &Connection) -> Vec<i64> {
    db.execute_batch("BEGIN").unwrap();
    let prefixes = (0..4)
        .map(|writer| {
            let of = |what| count(db, &format!("{what} FROM pairs WHERE writer = {writer}"));
            let last = of("coalesce(max(n), 0)");
            assert_eq!(of("count(*)"), 2 * last, "both halves of all");
            assert_eq!(of("count(DISTINCT n)"), last, "no gap");
            assert_eq!(of("coalesce(sum(half), 0)"), last);
            last
        })
        .collect();
    db.execute_batch("COMMIT").unwrap();
    prefixes
}

fn names(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn every_copy_is_a_prefix_beside_four_writers(mode: &str, journal: JournalMode) {
    let (directory, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = database(&directory, mode);
    let writers: Vec<Other> = (0..4)
        .map(|writer| Other::start(HAMMER, &path, &[&writer.to_string()]))
        .collect();

    let live = open(&path);
    let first = prefixes(&live);
    for round in 0..25 {
        let before = prefixes(&live);
        let copy = copies.path().join(format!("{round}.db"));

        let captured = capture(&path, &copy, &SqliteSettings::default()).unwrap();

        assert_eq!(captured.integrity, Integrity::Ok);
        assert_eq!(captured.method, CaptureMethod::Locked);
        assert_eq!(captured.journal, journal);
        assert_eq!(captured.bytes, copy.metadata().unwrap().len());
        assert_eq!(names(copies.path()), [format!("{round}.db")]);
        let held = open(&copy);
        let mode_of_copy: String = held
            .query_row("PRAGMA journal_mode", [], |row| row.get(0))
            .unwrap();
        assert_eq!(mode_of_copy, mode);
        let after = prefixes(&held);
        let grew = before.iter().zip(&after).all(|(was, is)| was <= is);
        assert!(grew, "{before:?} was committed before {after:?}");
        drop(held);
        for name in names(copies.path()) {
            std::fs::remove_file(copies.path().join(name)).unwrap();
        }
    }
    drop(writers);
    let last = prefixes(&live);
    assert!(first.iter().all(|n| *n > 0), "all four write: {first:?}");
    assert!(
        first < last,
        "and did beside the copies: {first:?}, {last:?}"
    );
}

#[test]
fn beside_four_writers_with_a_log_every_copy_is_a_prefix() {
    every_copy_is_a_prefix_beside_four_writers("wal", JournalMode::Wal);
}

#[test]
fn beside_four_writers_with_a_journal_every_copy_is_a_prefix() {
    every_copy_is_a_prefix_beside_four_writers("delete", JournalMode::Rollback);
}

#[test]
fn a_copy_says_and_looks_the_same_as_its_source_and_leaves_nothing_beside_it() {
    for mode in ["wal", "delete"] {
        let (directory, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = database(&directory, mode);
        let mode = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(&path, mode).unwrap();
        let copy = copies.path().join("odd name %?#.db");

        let captured = capture(&path, &copy, &SqliteSettings::default()).unwrap();

        assert_eq!(names(copies.path()), ["odd name %?#.db"]);
        let (source, stat) = (path.metadata().unwrap(), copy.metadata().unwrap());
        assert_eq!(stat.mode(), source.mode());
        assert_eq!(stat.uid(), source.uid());
        assert_eq!(stat.mtime_nsec(), source.mtime_nsec());
        let bytes = std::fs::read(&copy).unwrap();
        assert_eq!(bytes[40..44], captured.schema_version.to_be_bytes());
        for pragma in ["schema_version", "user_version"] {
            let of = |path| -> i64 {
                open(path)
                    .pragma_query_value(None, pragma, |row| row.get(0))
                    .unwrap()
            };
            assert_eq!(of(&path), of(&copy), "{pragma}");
        }
    }
}

#[test]
fn a_write_transaction_that_does_not_end_is_busy_within_the_patience() {
    for mode in ["wal", "delete"] {
        let directory = TempDir::new().unwrap();
        let path = database(&directory, mode);
        let writer = "INSERT INTO pairs VALUES (0, 1, 0, '')";
        let _writer = Other::start(HOLD, &path, &["BEGIN IMMEDIATE", writer]);
        let began = Instant::now();

        let refused = capture(&path, &directory.path().join("copy"), &patient(300)).unwrap_err();

        assert!(matches!(refused, SqliteError::Busy { .. }), "{refused}");
        assert!(began.elapsed() >= Duration::from_millis(300));
        assert!(began.elapsed() < Duration::from_secs(3));
        assert!(!names(directory.path()).contains(&"copy".to_owned()));
    }
}

#[test]
fn a_lock_of_somebody_who_is_held_still_is_not_waited_for() {
    for mode in ["wal", "delete"] {
        let (directory, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = database(&directory, mode);
        let writer = Other::start(HAMMER, &path, &["0"]);
        let pid = i32::try_from(writer.child.id()).ok();
        let pid = pid.and_then(rustix::process::Pid::from_raw).unwrap();
        for round in 0..20 {
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
            // It stands still a moment later.
            std::thread::sleep(Duration::from_millis(10));
            let copy = copies.path().join(format!("{round}.db"));
            let still = SqliteSettings {
                is_still: true,
                ..patient(0)
            };

            let captured = capture(&path, &copy, &still);

            rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
            assert_eq!(captured.unwrap().method, CaptureMethod::Unmoved);
            prefixes(&open(&copy));
            std::thread::sleep(Duration::from_millis(3));
        }
    }
}

#[test]
fn a_log_that_somebody_reads_is_told_of_and_the_copy_is_whole() {
    let directory = TempDir::new().unwrap();
    let path = database(&directory, "wal");
    let _reader = Other::start(HOLD, &path, &["BEGIN", "SELECT * FROM pairs"]);
    let writer = Connection::open(&path).unwrap();
    writer
        .execute_batch("INSERT INTO pairs VALUES (0, 1, 0, ''), (0, 1, 1, '')")
        .unwrap();
    let copy = directory.path().join("copy");

    let captured = capture(&path, &copy, &patient(800)).unwrap();

    assert!(matches!(captured.checkpoint, WalCheckpoint::Busy { .. }));
    assert_eq!(prefixes(&open(&copy))[0], 1, "what is only in the log");
}

#[test]
fn a_log_that_nobody_uses_is_written_down() {
    let directory = TempDir::new().unwrap();
    let path = database(&directory, "wal");
    let writer = Connection::open(&path).unwrap();
    writer
        .execute_batch("INSERT INTO pairs VALUES (0, 1, 0, ''), (0, 1, 1, '')")
        .unwrap();

    let captured = capture(&path, &directory.path().join("copy"), &patient(800)).unwrap();

    assert_eq!(captured.checkpoint, WalCheckpoint::Done);
    let log = directory.path().join("app.db-wal");
    assert_eq!(log.metadata().unwrap().len(), 0);
}

#[test]
fn a_schema_that_changes_all_the_time_is_refused() {
    let directory = TempDir::new().unwrap();
    let path = database(&directory, "wal");
    // Large enough that it changes while it is copied.
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "CREATE TABLE large AS WITH RECURSIVE some(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM some \
         WHERE value < 5000) SELECT value, zeroblob(4000) FROM some",
    )
    .unwrap();
    drop(db);
    let _migration = Other::start(MIGRATE, &path, &[]);

    let copy = directory.path().join("copy");
    // On a busy machine the other one may stand still for the length of a copy, which is then right.
    let mut captures = (0..10).map(|_| capture(&path, &copy, &patient(10_000)));
    let refused = captures.find_map(|captured| match captured {
        Ok(_) => {
            std::fs::remove_file(&copy).unwrap();
            None
        }
        Err(refused) => Some(refused),
    });
    let refused = refused.expect("it changes all the time");

    assert!(
        matches!(refused, SqliteError::SchemaChanging { attempts: 3, .. }),
        "{refused}"
    );
    assert!(!copy.exists());
}

#[test]
fn a_schema_change_that_is_not_committed_is_refused() {
    let directory = TempDir::new().unwrap();
    let path = database(&directory, "wal");
    let _migration = Other::start(HOLD, &path, &["BEGIN", "CREATE TABLE coming (a)"]);

    let refused = capture(&path, &directory.path().join("copy"), &patient(200)).unwrap_err();

    assert!(matches!(refused, SqliteError::Busy { .. }), "{refused}");
}

/// A writer that was killed when half of its transaction was in the database, with its journal beside it.
fn left_by_a_killed_writer(directory: &TempDir) -> PathBuf {
    let path = database(directory, "delete");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "WITH RECURSIVE some(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM some WHERE n < 1000) \
         INSERT INTO pairs SELECT 0, n, half, zeroblob(500) FROM some, (SELECT 0 AS half UNION SELECT 1)",
    )
    .unwrap();
    drop(db);
    let half = "UPDATE pairs SET half = 7, filling = 'y'";
    let before = std::fs::read(&path).unwrap();
    drop(Other::start(
        HOLD,
        &path,
        &["PRAGMA cache_size = 5", "BEGIN IMMEDIATE", half],
    ));
    assert_ne!(std::fs::read(&path).unwrap(), before, "half is written");
    assert_eq!(names(directory.path()), ["app.db", "app.db-journal"]);
    path
}

#[test]
fn what_a_killed_writer_left_half_done_is_not_in_the_copy() {
    let (directory, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = left_by_a_killed_writer(&directory);
    let copy = copies.path().join("copy");

    let lies_there = || {
        let read = |name: &String| std::fs::read(directory.path().join(name)).unwrap();
        let names = names(directory.path());
        names.iter().map(read).collect::<Vec<_>>()
    };
    let before = lies_there();

    let captured = capture(&path, &copy, &SqliteSettings::default()).unwrap();

    assert_eq!(captured.method, CaptureMethod::Unmoved);
    assert_eq!(prefixes(&open(&copy))[0], 1000);
    assert_eq!(names(copies.path()), ["copy"]);
    assert!(lies_there() == before, "the only copy of it was changed");
}

#[test]
fn the_log_that_a_killed_writer_left_stays_and_is_in_the_copy() {
    let (directory, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = database(&directory, "wal");
    let insert = "INSERT INTO pairs VALUES (0, 1, 0, ''), (0, 1, 1, '')";
    drop(Other::start(HOLD, &path, &[insert]));
    let log = directory.path().join("app.db-wal");
    let before = (std::fs::read(&path).unwrap(), std::fs::read(&log).unwrap());
    assert!(!before.1.is_empty());
    let copy = copies.path().join("copy");

    capture(&path, &copy, &SqliteSettings::default()).unwrap();

    assert_eq!(prefixes(&open(&copy))[0], 1, "what is only in the log");
    assert!((std::fs::read(&path).unwrap(), std::fs::read(&log).unwrap()) == before);
}

/// Runs as a user that may not write where the modes say so, which root may.
fn as_somebody<T: Send>(task: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective
                .remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).unwrap();
            task()
        });
        thread.join().unwrap()
    })
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Makes a directory and all in it read-only, copies its database, and makes it ours again.
fn capture_where_nothing_may_be_written(directory: &TempDir, copy: &Path) -> SqliteCaptured {
    for name in names(directory.path()) {
        set_mode(&directory.path().join(name), 0o444);
    }
    set_mode(directory.path(), 0o555);
    let before = names(directory.path());
    let path = directory.path().join("app.db");
    let captured = as_somebody(|| capture(&path, copy, &patient(2000)));
    assert_eq!(names(directory.path()), before);
    set_mode(directory.path(), 0o755);
    captured.unwrap()
}

#[test]
fn a_database_in_a_read_only_directory_is_copied_and_the_result_says_how() {
    for (mode, method) in [
        ("delete", CaptureMethod::ReadOnly),
        ("wal", CaptureMethod::Unmoved),
    ] {
        let (directory, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = database(&directory, mode);
        let db = Connection::open(&path).unwrap();
        db.execute_batch("INSERT INTO pairs VALUES (0, 1, 0, ''), (0, 1, 1, '')")
            .unwrap();
        drop(db);
        let copy = copies.path().join("copy");

        let captured = capture_where_nothing_may_be_written(&directory, &copy);

        assert_eq!(captured.method, method, "{mode}");
        assert_eq!(names(copies.path()), ["copy"]);
        assert_eq!(prefixes(&open(&copy))[0], 1);
    }
}

#[test]
fn what_was_left_half_done_in_a_read_only_directory_is_recovered_in_the_copy() {
    let (directory, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    left_by_a_killed_writer(&directory);
    let copy = copies.path().join("copy");

    let captured = capture_where_nothing_may_be_written(&directory, &copy);

    assert_eq!(captured.method, CaptureMethod::Unmoved);
    assert_eq!(prefixes(&open(&copy))[0], 1000);
    assert_eq!(names(copies.path()), ["copy"]);
}

#[test]
fn a_damaged_database_is_told_of_and_not_kept() {
    let (directory, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = left_by_a_killed_writer(&directory);
    drop(Connection::open(&path).unwrap().execute_batch("VACUUM"));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 8192].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();

    let copy = copies.path().join("copy");
    let refused = capture(&path, &copy, &SqliteSettings::default()).unwrap_err();

    let SqliteError::Damaged { messages, .. } = refused else {
        panic!("{refused}");
    };
    assert!(!messages.is_empty() && messages.len() <= 10);
    assert!(names(copies.path()).is_empty());
}

#[test]
fn what_is_no_database_is_told_apart_and_nothing_is_created() {
    let (directory, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let at = |name: &str| directory.path().join(name);
    let copy = copies.path().join("copy");
    let refused = |name| capture(&at(name), &copy, &patient(200)).unwrap_err();
    database(&directory, "delete");
    std::fs::write(at("encrypted"), [0x5a; 8192]).unwrap();
    std::os::unix::fs::symlink("app.db", at("link")).unwrap();

    assert!(matches!(
        refused("encrypted"),
        SqliteError::NotADatabase { .. }
    ));
    assert!(matches!(refused("link"), SqliteError::NotAFile { .. }));
    assert!(matches!(refused("missing"), SqliteError::NotAFile { .. }));
    assert!(matches!(refused("."), SqliteError::NotAFile { .. }));
    assert!(names(copies.path()).is_empty());
    assert_eq!(names(directory.path()), ["app.db", "encrypted", "link"]);
}

#[test]
fn an_empty_file_is_copied_as_one() {
    let directory = TempDir::new().unwrap();
    let (path, copy) = (
        directory.path().join("new.db"),
        directory.path().join("copy"),
    );
    std::fs::write(&path, "").unwrap();

    let captured = capture(&path, &copy, &SqliteSettings::default()).unwrap();

    assert_eq!((captured.bytes, captured.method), (0, CaptureMethod::Empty));
    assert_eq!(copy.metadata().unwrap().len(), 0);
}

#[test]
fn nothing_is_written_over() {
    let directory = TempDir::new().unwrap();
    let path = database(&directory, "delete");
    let copy = directory.path().join("copy");
    std::fs::write(&copy, "precious").unwrap();

    let refused = capture(&path, &copy, &SqliteSettings::default()).unwrap_err();

    let SqliteError::Failed(failure) = &refused else {
        panic!("{refused}");
    };
    assert_eq!(failure.op(), "create the copy");
    assert_eq!(std::fs::read(&copy).unwrap(), b"precious");
}

#[test]
fn a_capture_that_is_called_off_ends_soon_and_leaves_nothing() {
    let directory = TempDir::new().unwrap();
    let path = database(&directory, "delete");
    let _writer = Other::start(HOLD, &path, &["BEGIN IMMEDIATE"]);
    let settings = SqliteSettings::default();
    let cancel = Arc::clone(&settings.cancel);
    let began = Instant::now();

    let refused = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            cancel.store(true, Ordering::Relaxed);
        });
        capture(&path, &directory.path().join("copy"), &settings).unwrap_err()
    });

    assert!(
        matches!(refused, SqliteError::Cancelled { .. }),
        "{refused}"
    );
    assert!(began.elapsed() < Duration::from_secs(3));
    assert!(!directory.path().join("copy").exists());
}

#[test]
fn an_order_that_only_the_application_knows_is_told_of() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("app.db");
    let script = "CREATE TABLE plain (a); CREATE TABLE t (a COLLATE ours); CREATE INDEX i ON t (a); INSERT INTO t VALUES ('a'), ('b')";
    let python = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.create_collation('ours', lambda a, b: (a > b) - (a < b))
db.executescript(sys.argv[2])
";
    let status = Command::new("python3")
        .args(["-c", python])
        .arg(&path)
        .arg(script)
        .status();
    assert!(status.unwrap().success());

    let copy = directory.path().join("copy");
    let captured = capture(&path, &copy, &SqliteSettings::default()).unwrap();

    let unchecked = vec!["t".to_owned()];
    assert_eq!(captured.integrity, Integrity::OkExcept { unchecked });
}

#[test]
fn databases_are_found_by_what_is_in_them() {
    let directory = TempDir::new().unwrap();
    let path = database(&directory, "wal");
    let holder = Connection::open(&path).unwrap();
    holder.execute_batch("DELETE FROM pairs").unwrap();
    let inner = directory.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("text.db"), "not one").unwrap();
    std::fs::copy(&path, inner.join("no-ending")).unwrap();
    std::os::unix::fs::symlink(&path, inner.join("link.db")).unwrap();
    std::os::unix::fs::symlink(directory.path(), inner.join("round")).unwrap();

    let found = find_databases(directory.path()).unwrap();

    assert_eq!(found, [path.clone(), inner.join("no-ending")]);
    assert!(is_companion(&directory.path().join("app.db-wal")));
    assert!(is_companion(&directory.path().join("app.db-shm")));
    assert!(!is_companion(&inner.join("text.db-wal")));
    assert!(is_database(&path).unwrap());
    assert!(!is_database(&inner.join("link.db")).unwrap());
}
