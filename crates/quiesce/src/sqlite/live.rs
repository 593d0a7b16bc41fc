//! One committed state of a live database, held while it is copied.

use super::copy_file::{CopyFile, WRITE};
use super::retry_budget::RetryBudget;
use super::{CaptureMethod, JournalMode, ReadContext, SourceFile, SqliteError, WalCheckpoint};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{CWD, Mode, OFlags, openat};
use stasis_model::failure::{Failure, Kinded};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many pages are copied before it is looked whether the copy is still wanted.
const STRIDE: i32 = 1024;

/// How long a checkpoint waits for those who read the log, with the write lock: others wait for it, so it is short, and
/// asked again. Without any, it would fail whenever a process happens to read.
const CHECKPOINT: Duration = Duration::from_millis(20);

/// Opens what is there, by a path without links, and believes nothing that its schema says.
pub(super) fn connect(path: &Path, budget: &RetryBudget) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    budget.bind(&mut connection)?;
    Ok(connection)
}

fn schema_version(connection: &Connection) -> rusqlite::Result<u32> {
    // The cookie is 32 bits of the header, and SQLite shows it with a sign.
    let version: i32 =
        connection.query_row("PRAGMA schema_version", [], |row| row.get("schema_version"))?;
    Ok(version.cast_unsigned())
}

/// Opens the file for its header, without following a link.
fn raw(path: &Path) -> Result<File, SqliteError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty());
    opened.map(File::from).or_not_a_file(path)
}

/// A live database with its log written down, as far as that went.
#[derive(Debug)]
pub(super) struct CheckpointedDatabase {
    path: PathBuf,
    connection: Connection,
    /// The file itself. Declared after the connection, because to close it drops the connection's locks.
    raw: File,
    journal: JournalMode,
    checkpoint: WalCheckpoint,
    is_read_only: bool,
    schema_version: u32,
}

impl CheckpointedDatabase {
    pub(super) fn open(path: &Path, budget: &RetryBudget) -> Result<Self, SqliteError> {
        let raw = raw(path)?;
        let connection = connect(path, budget).reading("open the database", path)?;
        // The first read recovers what a killed writer left, if anything.
        let version = budget.ask("read the schema of", path, || schema_version(&connection))?;
        let mode: String = budget.ask("read the journal mode of", path, || {
            connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))
        })?;
        let journal = match mode.as_str() {
            "wal" => JournalMode::Wal,
            _ => JournalMode::Rollback,
        };
        let is_read_only = connection
            .is_readonly("main")
            .reading("open the database", path)?;
        let checkpoint = match (journal, is_read_only) {
            (JournalMode::Rollback, _) => WalCheckpoint::NotNeeded,
            (JournalMode::Wal, true) => WalCheckpoint::ReadOnly,
            (JournalMode::Wal, false) => checkpoint(&connection, path, &budget.quarter())?,
        };
        Ok(Self {
            path: path.to_owned(),
            connection,
            raw,
            journal,
            checkpoint,
            is_read_only,
            schema_version: version,
        })
    }

    /// Chooses the state that will be copied: one at which no process has a write transaction.
    pub(super) fn snapshot(self, budget: &RetryBudget) -> Result<ReadSnapshot, SqliteError> {
        let path = &self.path;
        let reader = connect(path, budget).reading("open the database", path)?;
        let writer = &self.connection;
        if !self.is_read_only {
            let doing = "take the write lock of";
            budget.ask(doing, path, || writer.execute_batch("BEGIN IMMEDIATE"))?;
        }
        let begun = budget.ask("begin to read", path, || {
            if reader.is_autocommit() {
                reader.execute_batch("BEGIN")?;
            }
            schema_version(&reader)
        });
        if !self.is_read_only {
            writer.execute_batch("ROLLBACK").reading("unlock", path)?;
        }
        Ok(ReadSnapshot {
            reader,
            journal: self.journal,
            checkpoint: self.checkpoint,
            method: if self.is_read_only {
                CaptureMethod::ReadOnly
            } else {
                CaptureMethod::Locked
            },
            schema_version: begun?,
            before: self.schema_version,
            path: self.path,
            live: self.connection,
            raw: self.raw,
        })
    }
}

/// Writes the log into the database. Busy is an answer, not an error, and it is asked again.
pub(super) fn checkpoint(
    connection: &Connection,
    path: &Path,
    budget: &RetryBudget,
) -> Result<WalCheckpoint, SqliteError> {
    let doing = "write the log of";
    connection.busy_timeout(CHECKPOINT).reading(doing, path)?;
    let mut left = 0;
    let asked = budget.until_some(path, || {
        let row = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        });
        match row {
            Ok((0, _, _)) => Some(Ok(())),
            Ok((1.., pages, done)) => {
                let (pages, done): (i64, i64) = (pages, done);
                left = u32::try_from(pages - done).unwrap_or_default();
                None
            }
            Ok((i64::MIN..0, _, _)) => None,
            Err(error) if super::retry_budget::is_busy(&error) => None,
            Err(error) => Some(Err(error)),
        }
    })?;
    connection
        .busy_timeout(Duration::ZERO)
        .reading(doing, path)?;
    match asked {
        Some(Ok(())) => Ok(WalCheckpoint::Done),
        Some(Err(error)) => Err(error).reading(doing, path),
        None => Ok(WalCheckpoint::Busy { pages_left: left }),
    }
}

/// One committed state: a read transaction that is open.
#[derive(Debug)]
pub(super) struct ReadSnapshot {
    path: PathBuf,
    reader: Connection,
    live: Connection,
    /// The file itself. Declared after the connections, because to close it drops their locks.
    raw: File,
    before: u32,
    pub(super) journal: JournalMode,
    pub(super) checkpoint: WalCheckpoint,
    pub(super) method: CaptureMethod,
    pub(super) schema_version: u32,
}

impl ReadSnapshot {
    /// Copies every page of the state. The steps see the same state, because the transaction is open all the time.
    pub(super) fn copy(
        &self,
        copy_file: &CopyFile,
        budget: &RetryBudget,
    ) -> Result<(), SqliteError> {
        let path = copy_file.path();
        let mut copy = connect(path, budget).written(path)?;
        // It is made durable as a whole afterwards, and removed when anything fails.
        copy.execute_batch(
            "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF",
        )
        .written(path)?;
        let backup = Backup::new(&self.reader, &mut copy).written(path)?;
        loop {
            budget.check(&self.path)?;
            let doing = "copy";
            let step = budget.ask(doing, &self.path, || match backup.step(STRIDE)? {
                StepResult::Done => Ok(true),
                StepResult::Busy | StepResult::Locked => Err(busy()),
                _ => Ok(false),
            });
            if step.map_err(|error| attribute_error(error, copy_file))? {
                break;
            }
        }
        drop(backup);
        copy.close().map_err(|(_, error)| error).written(path)?;
        copy_file.set_counters(self.schema_version, &self.raw)
    }

    /// Whether the schema changed since the beginning, in the live database.
    pub(super) fn schema_moved(&self, budget: &RetryBudget) -> Result<bool, SqliteError> {
        let doing = "read the schema of";
        let after = budget.ask(doing, &self.path, || schema_version(&self.live))?;
        Ok([self.before, after] != [self.schema_version; 2])
    }
}

/// A full disk is the copy's fault.
fn attribute_error(error: SqliteError, copy_file: &CopyFile) -> SqliteError {
    use rusqlite::ErrorCode::{CannotOpen, DiskFull, SystemIoFailure};
    match error {
        SqliteError::Read { source, .. }
            if matches!(
                source.sqlite_error_code(),
                Some(DiskFull | SystemIoFailure | CannotOpen)
            ) =>
        {
            write_failure(source, copy_file.path()).into()
        }
        error => error,
    }
}

/// Says of what SQLite refused that the copy could not be written.
trait WriteContext<T> {
    fn written(self, copy: &Path) -> Result<T, SqliteError>;
}

impl<T> WriteContext<T> for rusqlite::Result<T> {
    fn written(self, copy: &Path) -> Result<T, SqliteError> {
        self.map_err(|error| write_failure(error, copy).into())
    }
}

fn write_failure(error: rusqlite::Error, copy: &Path) -> Failure {
    let error = other(error);
    Failure::new(Kinded::kind(&error), WRITE, copy.display()).because(error)
}

fn busy() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None)
}

fn other(error: rusqlite::Error) -> io::Error {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => io::Error::new(io::ErrorKind::StorageFull, error),
        _ => io::Error::other(error),
    }
}
