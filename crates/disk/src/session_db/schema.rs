//! What is in the database, and how one gets to it.
//!
//! To make one:
//!
//! 1. make `.stasis-tmp-PID-N-NAME` beside it, with everything in it; `fsync`
//! 2. rename it, unless the name is taken by then; `fsync` the directory
//!
//! *Always true:* a crash before 2 leaves only the temporary file, and the next open makes another; after 2 the database is
//! whole. What is there is first read without locks, recovery or log, so that what is not ours is never written: SQLite
//! would roll back its journal or write down its log.
//!
//! The file is never opened but by SQLite: closing any other descriptor would end all locks that this process has on it.

use super::error::{SessionDbError, SqliteContext, check_room};
use crate::fs::sys::node;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, RenameFlags};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// `Stas`: how the header of our databases is told from others.
pub(super) const APPLICATION: i32 = 0x5374_6173;
/// What we write, and the newest that we read.
pub(super) const VERSION: i32 = 1;
/// How long we wait for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often, and after which rest, a database is looked at again that another process may be writing down its log into.
const LOOKS: u32 = 50;
const REST: Duration = Duration::from_millis(20);
/// How long somebody waits who only wants a look.
const SHORT_TIMEOUT: Duration = Duration::from_secs(1);
/// What stays of the log once it has been written down.
const LOG_BYTES: u32 = 4 << 20;

/// The first two tables are the contract; what has a name that begins with `stasis_` is ours.
///
/// With the index, the contract's four counts over a million events and 22 checkpoints take 1.8 s instead of 10.7 s; an event costs
/// 6 µs more.
const SCHEMA: &str = "
CREATE TABLE fs_events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  timestamp TEXT NOT NULL,
  action TEXT NOT NULL,
  path TEXT NOT NULL,
  size INTEGER
);
CREATE TABLE snapshot_events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  timestamp TEXT NOT NULL,
  slot INTEGER NOT NULL,
  origin TEXT NOT NULL,
  name TEXT,
  files_count INTEGER DEFAULT 0,
  start_fs_event_id INTEGER DEFAULT 0,
  stop_fs_event_id INTEGER DEFAULT 0
);
CREATE INDEX stasis_fs_events_by_action ON fs_events (action);
CREATE TABLE stasis_own_changes (
  path BLOB PRIMARY KEY,
  act TEXT NOT NULL,
  pid INTEGER NOT NULL,
  started INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('pending', 'settled')),
  inode INTEGER,
  size INTEGER,
  modified INTEGER,
  changed INTEGER
) WITHOUT ROWID;
CREATE INDEX stasis_own_changes_by_act ON stasis_own_changes (act) WHERE state = 'pending';
CREATE TABLE stasis_held (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  timestamp TEXT NOT NULL,
  action TEXT NOT NULL,
  path BLOB NOT NULL,
  size INTEGER
);
CREATE TABLE stasis_kept (key TEXT PRIMARY KEY, value BLOB);
CREATE TABLE stasis_gaps (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  timestamp TEXT NOT NULL,
  why TEXT NOT NULL,
  missed INTEGER NOT NULL,
  last_fs_event_id INTEGER NOT NULL
);
CREATE TABLE stasis_skipped (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  timestamp TEXT NOT NULL,
  because TEXT NOT NULL
);
";

/// Whose database it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DatabaseOwner {
    Ours,
    /// Of a version that we do not know.
    Newer(i32),
    /// There is nothing in it.
    Nobodys,
    Foreign,
}

fn owner_of(connection: &Connection) -> rusqlite::Result<DatabaseOwner> {
    let number = |pragma| connection.query_row(pragma, [], |row| row.get::<_, i32>(0));
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    Ok(match (application, version) {
        (APPLICATION, 1..=VERSION) => DatabaseOwner::Ours,
        (APPLICATION, version) if version > VERSION => DatabaseOwner::Newer(version),
        (0, 0) if number("SELECT COUNT(*) FROM sqlite_master")? == 0 => DatabaseOwner::Nobodys,
        _ => DatabaseOwner::Foreign,
    })
}

/// Opens the database at `path`, which is made when there is none.
pub(super) fn open(path: &Path) -> Result<Connection, SessionDbError> {
    match fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => create(path)?,
        Ok(seen) if !FileType::from_raw_mode(seen.st_mode).is_file() => {
            let path = path.to_owned();
            return Err(SessionDbError::Foreign { path });
        }
        seen => {
            seen.at("look at", path)?;
        }
    }
    check(path, peek(path)?)?;
    let op = "open";
    let mut connection = connect(path).doing(op, path)?;
    // A version may be in the log only.
    check(path, owner_of(&connection).doing(op, path)?)?;
    init(&mut connection).doing(op, path)?;
    Ok(connection)
}

fn check(path: &Path, owner_of: DatabaseOwner) -> Result<(), SessionDbError> {
    let path = path.to_owned();
    match owner_of {
        DatabaseOwner::Ours | DatabaseOwner::Nobodys => Ok(()),
        DatabaseOwner::Foreign => Err(SessionDbError::Foreign { path }),
        DatabaseOwner::Newer(found) => Err(SessionDbError::Newer {
            path,
            found,
            known: VERSION,
        }),
    }
}

/// Looks at what is in the file itself, and leaves it and all beside it alone.
fn peek(path: &Path) -> Result<DatabaseOwner, SessionDbError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let mut looks = 0;
    loop {
        let looked = Connection::open_with_flags(address(path), flags);
        let error = match looked.and_then(|connection| owner_of(&connection)) {
            Ok(owner_of) => return Ok(owner_of),
            Err(error) => error,
        };
        looks += 1;
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => return Ok(DatabaseOwner::Foreign),
            // Its log is being written down: the first page is ahead of the others for a moment.
            Some(ErrorCode::DatabaseCorrupt) if looks < LOOKS => std::thread::sleep(REST),
            _ => return Err(error).doing("open", path),
        }
    }
}

/// Whether there is room for what SQLite needs beside a database.
pub(super) fn has_room(path: &Path) -> Result<(), SessionDbError> {
    check_room(path).map_err(|source| SessionDbError::Full {
        doing: "open",
        path: path.to_owned(),
        source,
    })
}

/// A connection that is closed without writing anything down, and without a look into what is mapped.
pub(super) fn at_rest(connection: Connection) -> Connection {
    // One that does write something down has room for it after all.
    let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    connection
}

/// A look at what is there, for somebody who reads while there is no room for what SQLite makes beside a database.
///
/// What has no log is read as it is. A log that was left by somebody who was killed is read into memory under a lock that shuts out all
/// others, for which no file is needed; nothing of it is written down. Where that is refused, because somebody still has the database open,
/// what he wrote last is not seen.
pub(super) fn look(path: &Path) -> Result<Connection, SessionDbError> {
    let op = "read";
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = fs::stat(&log).is_ok_and(|seen| seen.st_size > 0);
    if has_log && let Ok(copied) = read_log(path) {
        return Ok(copied);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(address(path), flags).doing(op, path)
}

/// A copy in memory of a database with what is in its log.
fn read_log(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let from = at_rest(Connection::open_with_flags(path, flags)?);
    from.busy_timeout(SHORT_TIMEOUT)?;
    from.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // Before anything is read, also by another pragma: who shuts out all others keeps the index of the log to himself.
    from.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    let mut into = Connection::open_in_memory()?;
    super::copy_all(&from, &mut into)?;
    Ok(into)
}

fn address(path: &Path) -> String {
    let mut address = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                address.push(char::from(*byte));
            }
            _ => write!(address, "%{byte:02x}").expect("a string takes all that is written"),
        }
    }
    address + "?immutable=1"
}

/// Opens what is there, and believes nothing that its schema says.
pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.execute_batch("PRAGMA synchronous = NORMAL")?;
    Ok(connection)
}

/// Puts everything into a database that is nobody's yet; from then on it has a log.
fn init(connection: &mut Connection) -> rusqlite::Result<()> {
    if owner_of(connection)? == DatabaseOwner::Nobodys {
        let within = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Somebody else may have been faster.
        if owner_of(&within)? == DatabaseOwner::Nobodys {
            within.execute_batch(SCHEMA)?;
            within.pragma_update(None, "application_id", APPLICATION)?;
            within.pragma_update(None, "user_version", VERSION)?;
        }
        within.commit()?;
    }
    connection.execute_batch("PRAGMA journal_mode = WAL")?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)
}

/// Makes the database; when somebody else was faster, theirs is as good.
fn create(path: &Path) -> Result<(), SessionDbError> {
    let aside = NewDatabase::new(path)?;
    let op = "create";
    let mut connection = connect(&aside.path).doing(op, path)?;
    init(&mut connection).doing(op, path)?;
    connection
        .close()
        .map_err(|(_, error)| error)
        .doing(op, path)?;
    match aside.place(path) {
        // Another process was faster.
        Err(SessionDbError::Failed(failure))
            if failure.io_source().map(io::Error::kind) == Some(io::ErrorKind::AlreadyExists) =>
        {
            Ok(())
        }
        placed => placed,
    }
}

/// An empty file for a database that gets its name when it is whole; removed when it never does.
#[derive(Debug)]
pub(super) struct NewDatabase {
    pub(super) path: PathBuf,
}

impl NewDatabase {
    /// Makes it beside `target`, for its owner only.
    pub(super) fn new(target: &Path) -> Result<Self, SessionDbError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let pid = std::process::id();
            let mut name = OsString::from(format!(".stasis-tmp-{pid}-{count}-"));
            name.push(target.file_name().unwrap_or_default());
            let path = target.with_file_name(name);
            let mode = Mode::RUSR | Mode::WUSR;
            match node::make_file(&path, mode) {
                Ok(()) => return Ok(Self { path }),
                // Left by a process of the same number that was killed.
                Err(Errno::EXIST) => {}
                failed => failed.at("create", &path)?,
            }
        }
    }

    /// Gives it its name, durably, unless that is taken.
    pub(super) fn place(self, target: &Path) -> Result<(), SessionDbError> {
        fs::renameat_with(CWD, &self.path, CWD, target, RenameFlags::NOREPLACE)
            .at("create", target)?;
        let above = target.parent().filter(|at| !at.as_os_str().is_empty());
        let above = above.unwrap_or_else(|| Path::new("."));
        let directory = File::open(above).at("open", above)?;
        Ok(directory.sync_all().at("make durable", above)?)
    }
}

impl Drop for NewDatabase {
    fn drop(&mut self) {
        for end in ["", "-wal", "-shm", "-journal"] {
            let mut path = self.path.clone().into_os_string();
            path.push(end);
            // Gone already when all went well; otherwise it is only untidy.
            let _ = fs::unlinkat(CWD, &path, AtFlags::empty());
        }
    }
}
