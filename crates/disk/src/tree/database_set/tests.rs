//! What a set is while somebody works with the database, step by step: nothing here depends on who is quicker.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make and remove files of their own"
)]

use super::*;
use crate::fs::root_dir::Mounts;
use crate::tree::clone::Fallback;
use crate::tree::content::CarryLimit;
use rusqlite::Connection;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;

/// Two tables, of which each transaction changes both; many pages, so that half a transaction is seen.
fn database(dir: &Path, mode: &str) -> (PathBuf, Connection) {
    let path = dir.join("app.db");
    let live = Connection::open(&path).unwrap();
    live.busy_timeout(Duration::ZERO).unwrap();
    live.pragma_update(None, "journal_mode", mode).unwrap();
    live.pragma_update(None, "synchronous", "off").unwrap();
    live.execute_batch("create table one (n, bytes); create table other (n, bytes)")
        .unwrap();
    for n in 0..20 {
        add(&live, n).unwrap();
    }
    (path, live)
}

fn add(live: &Connection, n: i64) -> rusqlite::Result<()> {
    let added = live.execute_batch(&format!(
        "begin immediate; insert into one values ({n}, randomblob(5000)); \
         insert into other values ({n}, randomblob(5000)); \
         update one set bytes = randomblob(5000); commit"
    ));
    if added.is_err() {
        let _ = live.execute_batch("rollback");
    }
    added
}

/// How many transactions a database holds; panics unless it is whole.
fn count(path: &Path) -> i64 {
    let db = Connection::open(path).unwrap();
    let check: String = db
        .query_row("pragma integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    let ask = |table: &str| -> i64 {
        let count = format!("select count(*) from {table}");
        db.query_row(&count, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(ask("one"), ask("other"));
    ask("one")
}

/// Takes the set into a new directory; `meanwhile` is called before each file is carried over, and after.
fn taken(
    path: &Path,
    deadline_is_over: bool,
    mut meanwhile: impl FnMut(&[u8], bool),
) -> (tempfile::TempDir, TakenSet) {
    let copy = tempfile::tempdir().unwrap();
    let root = RootDir::open(path.parent().unwrap(), Mounts::Stay).unwrap();
    let directory = root.directory(b"").unwrap();
    let wait_budget = SetWaitBudget::default();
    let set = Set {
        root: &root,
        directory: directory.as_fd(),
        name: c"app.db",
        wait_budget: &wait_budget,
    };
    let mut made: HashMap<&'static [u8], PathBuf> = HashMap::new();
    let cancel = AtomicBool::new(false);
    let taken = take(&set, &mut |member, deadline| {
        meanwhile(member.suffix, false);
        if deadline_is_over && deadline.is_some() {
            return Err(CarryError::Late);
        }
        let name = format!("app.db{}", String::from_utf8_lossy(member.suffix));
        let to = copy.path().join(name);
        let file = std::fs::File::create(&to).unwrap();
        made.insert(member.suffix, to);
        let stop = CarryLimit {
            cancel: &cancel,
            deadline,
            progress: None,
        };
        let (from, size) = (member.source.as_fd(), member.seen.size);
        content::carry_until(from, file.as_fd(), size, Fallback::Copy, stop)?;
        meanwhile(member.suffix, true);
        Ok(())
    });
    let taken = taken.unwrap();
    for (suffix, path) in made {
        if !taken.members.iter().any(|one| one.suffix == suffix) {
            std::fs::remove_file(path).unwrap();
        }
    }
    (copy, taken)
}

#[test]
fn nobody_writes_to_a_database_with_a_journal_while_it_is_taken() {
    let home = tempfile::tempdir().unwrap();
    let (path, live) = database(home.path(), "delete");
    let mut refused = 0;

    let (copy, taken) = taken(&path, false, |_, _| {
        refused += i32::from(add(&live, 100).is_err());
    });

    assert_eq!(taken.state, StoredAs::Consistent);
    assert_eq!(refused, 2);
    assert_eq!(count(&copy.path().join("app.db")), 20);
    add(&live, 100).unwrap();
    assert_eq!(count(&path), 21);
}

#[test]
fn a_journal_that_is_not_needed_is_left_out_and_a_hot_one_is_not() {
    let home = tempfile::tempdir().unwrap();
    let (path, live) = database(home.path(), "delete");
    live.execute_batch("begin immediate; update one set bytes = randomblob(5000)")
        .unwrap();
    assert!(home.path().join("app.db-journal").exists());

    let (copy, reserved) = taken(&path, false, |_, _| {});

    assert_eq!(reserved.members.len(), 1);
    assert_eq!(reserved.state, StoredAs::Consistent);
    assert_eq!(count(&copy.path().join("app.db")), 20);

    // As if the writer had been killed: its files without its locks, some pages written.
    let crashed = tempfile::tempdir().unwrap();
    live.execute_batch("pragma cache_size = 2; update other set bytes = randomblob(5000)")
        .unwrap();
    for name in ["app.db", "app.db-journal"] {
        std::fs::copy(home.path().join(name), crashed.path().join(name)).unwrap();
    }
    let (copy, hot) = taken(&crashed.path().join("app.db"), false, |_, _| {});

    assert_eq!(hot.members.len(), 2);
    assert_eq!(hot.state, StoredAs::Consistent);
    assert_eq!(count(&copy.path().join("app.db")), 20);
}

#[test]
fn a_wal_is_not_begun_anew_while_its_database_is_taken() {
    let home = tempfile::tempdir().unwrap();
    let (path, live) = database(home.path(), "wal");
    let mut is_done = false;

    // Between the database and the WAL: more transactions, a checkpoint of SQLite, and more again, which would begin the WAL anew.
    let (copy, taken) = taken(&path, false, |suffix, is_after| {
        if suffix.is_empty() && is_after && !is_done {
            is_done = true;
            add(&live, 100).unwrap();
            let checkpoint = live.query_row("pragma wal_checkpoint(restart)", [], |_| Ok(()));
            checkpoint.unwrap();
            add(&live, 101).unwrap();
        }
    });

    assert!(is_done);
    assert_eq!(taken.state, StoredAs::Consistent);
    assert_eq!(count(&copy.path().join("app.db")), 22);
}

#[test]
fn a_wal_is_taken_after_its_database() {
    let home = tempfile::tempdir().unwrap();
    let (path, live) = database(home.path(), "wal");
    let mut is_done = false;

    // Before the database is carried over, but after it was looked at: what a checkpoint writes into it now must be in the WAL too.
    let (copy, taken) = taken(&path, false, |suffix, is_after| {
        if suffix.is_empty() && !is_after && !is_done {
            is_done = true;
            add(&live, 100).unwrap();
            let checkpoint = live.query_row("pragma wal_checkpoint(passive)", [], |_| Ok(()));
            checkpoint.unwrap();
        }
    });

    assert_eq!(taken.members[1].suffix, b"-wal");
    assert_eq!(taken.state, StoredAs::Consistent);
    assert_eq!(count(&copy.path().join("app.db")), 21);
}

#[test]
fn the_last_to_close_a_database_leaves_its_wal_while_it_is_taken() {
    let home = tempfile::tempdir().unwrap();
    let (path, live) = database(home.path(), "wal");
    let mut live = Some(live);

    let (copy, taken) = taken(&path, false, |suffix, is_after| {
        if suffix.is_empty()
            && is_after
            && let Some(live) = live.take()
        {
            live.close().unwrap();
        }
    });

    assert_eq!(taken.state, StoredAs::Consistent);
    assert_eq!(count(&copy.path().join("app.db")), 20);
}

#[test]
fn a_database_with_a_wal_that_somebody_opens_meanwhile_is_taken_again() {
    let home = tempfile::tempdir().unwrap();
    let (path, live) = database(home.path(), "wal");
    // A WAL without an index, as a machine that went down leaves it.
    let crashed = tempfile::tempdir().unwrap();
    for name in ["app.db", "app.db-wal"] {
        std::fs::copy(home.path().join(name), crashed.path().join(name)).unwrap();
    }
    drop((path, live));
    let path = crashed.path().join("app.db");
    let mut opened = None;

    let (copy, taken) = taken(&path, false, |suffix, is_after| {
        if suffix.is_empty() && is_after && opened.is_none() {
            let live = Connection::open(&path).unwrap();
            add(&live, 100).unwrap();
            let checkpoint = live.query_row("pragma wal_checkpoint(restart)", [], |_| Ok(()));
            checkpoint.unwrap();
            add(&live, 101).unwrap();
            opened = Some(live);
        }
    });

    assert_eq!(taken.state, StoredAs::Consistent);
    assert_eq!(count(&copy.path().join("app.db")), 22);
}

#[test]
fn what_is_too_large_for_the_time_counts_only_if_nobody_wrote_meanwhile() {
    let home = tempfile::tempdir().unwrap();
    let (path, live) = database(home.path(), "delete");

    let (copy, still) = taken(&path, true, |_, _| {});
    assert_eq!(still.state, StoredAs::Consistent);
    assert_eq!(count(&copy.path().join("app.db")), 20);

    let mut n = 100;
    let (_, busy) = taken(&path, true, |_, is_after| {
        if is_after {
            n += 1;
            add(&live, n).unwrap();
        }
    });
    assert_eq!(busy.state, StoredAs::Torn);
    assert!(busy.why.is_some());

    // Written once, and then not any more: the second attempt counts.
    let mut is_done = false;
    let (copy, once) = taken(&path, true, |_, is_after| {
        if is_after && !is_done {
            is_done = true;
            add(&live, 1000).unwrap();
        }
    });
    assert_eq!(once.state, StoredAs::Consistent);
    assert_eq!(count(&copy.path().join("app.db")), count(&path));
}

/// Has a database for himself, in a process of his own: closing a descriptor here would drop the locks of a connection here. Writes
/// whenever he is told to.
const OWNER: &str = "
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('pragma cache_size = 2')
db.execute('begin exclusive')
table = 'one'
while table:
    db.execute('update ' + table + ' set bytes = ?', (os.urandom(5000),))
    print('written', flush=True)
    table = sys.stdin.readline().strip()
";

struct Owner(Child, BufReader<ChildStdout>);

impl Owner {
    fn of(path: &Path) -> Self {
        let mut python = Command::new("python3");
        let python = python.args(["-c", OWNER]).arg(path);
        let started = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut owner = started.unwrap();
        let said = BufReader::new(owner.stdout.take().unwrap());
        let mut owner = Self(owner, said);
        owner.has_written();
        owner
    }

    fn has_written(&mut self) {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        assert_eq!(line, "written\n");
    }

    fn write(&mut self) {
        let input = self.0.stdin.as_mut().unwrap();
        input.write_all(b"other\n").unwrap();
        self.has_written();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_database_that_somebody_keeps_for_himself_is_of_one_moment_or_torn() {
    let home = tempfile::tempdir().unwrap();
    let (path, live) = database(home.path(), "delete");
    drop(live);
    let mut owner = Owner::of(&path);
    let began = content::now();

    let (copy, idle) = taken(&path, false, |_, _| {});

    assert!(began.elapsed() >= WAIT, "it was waited for");
    assert_eq!(idle.state, StoredAs::CrashConsistent);
    assert_eq!(idle.members.len(), 2, "with the journal that it needs");
    assert_eq!(count(&copy.path().join("app.db")), 20);

    let (_, busy) = taken(&path, false, |suffix, is_after| {
        if suffix.is_empty() && is_after {
            owner.write();
        }
    });
    assert_eq!(busy.state, StoredAs::Torn);
    assert!(busy.why.unwrap().contains("locked"));
}

#[test]
fn databases_are_told_by_their_first_bytes() {
    let home = tempfile::tempdir().unwrap();
    let (path, live) = database(home.path(), "delete");
    drop(live);
    assert!(is_database(std::fs::File::open(&path).unwrap()));
    assert!(may_be(std::fs::metadata(&path).unwrap().len()));
    let other = home.path().join("text");
    std::fs::write(&other, "SQLite format 3, they say").unwrap();
    assert!(!is_database(std::fs::File::open(&other).unwrap()));
    assert!(!may_be(0) && !may_be(513) && may_be(512));
}
