//! Copying a SQLite database while others write to it.
//!
//! 1. the source is a regular file that is there; no symbolic link is followed in its last component, nothing is created
//! 2. the schema's version is read, and the log is written into the database (`wal_checkpoint(TRUNCATE)`)
//! 3. the write lock is taken: at that moment no process has a write transaction, so none that changes the schema either
//! 4. a read transaction begins while the write lock is held; then the lock is given back and writers go on
//! 5. the pages of that one read transaction are copied
//! 6. the schema's version is read again: if it moved since 2, all of it is done again, a few times
//! 7. owner, mode and time are set; the copy is checked; file and directory are made durable
//!
//! *Always true:* a copy that is returned holds exactly the transactions that were committed at 3, has passed
//! `integrity_check`, and needs no `-wal` or `-journal` beside it. The source is never written, but for the log of a database that
//! another process has open, which is checkpointed. What a killed writer left is replayed or rolled back in the copy, and stays where it lies:
//! it may be a stranger's, and the database the only one.
//!
//! A crash or an error at any step leaves the source whole. An error removes the copy; a crash leaves a part of it
//! under its name, for the caller to remove.
//!
//! What 3 and 6 can see: a schema change that is not yet committed, and one that was committed between 2 and 6. What they
//! cannot see: a migration of several transactions that happens to rest between two of them for as long as the copy
//! takes. Where we may only read, the write lock cannot be taken and only 6 is left; the result says so.
//!
//! The backup API counts changes and schema versions anew. What the source's header says of them is written into the copy, so
//! that the copy of a database at rest has the very bytes of its file.
//!
//! A writer of a database with a rollback journal cannot commit during 5, a few milliseconds for each 10 MiB; with a
//! log no writer waits. POSIX locks belong to a process: a part of this process that has a database open and opens or closes
//! its file by other means loses them. So nothing here opens the file but SQLite.

mod check;
mod copy_file;
mod find;
mod live;
mod offline;
mod retry_budget;

pub use check::Integrity;
pub use copy_file::LiveFile;
pub use find::{find_databases, is_companion, is_database};

use copy_file::{CopyFile, SourceStat};
use live::CheckpointedDatabase;
use retry_budget::RetryBudget;
use rusqlite::ErrorCode;
use stasis_model::failure::{AtPath, Failure};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a capture waits, and how often it tries.
#[derive(Clone, Debug)]
pub struct SqliteSettings {
    /// How long may be waited for writers, in all. The log has a quarter of it, the write lock what is left.
    pub busy_timeout: Duration,
    /// How often it is tried again when the schema changed meanwhile.
    pub attempts: u32,
    /// Whether whoever writes it is held still: then the files are copied as they lie, and recovered in the copy. A lock that somebody
    /// has who cannot let it go is not waited for.
    pub is_still: bool,
    /// Whether the copy must outlive a power cut when it is returned; it costs two waits for the disk.
    pub durable: bool,
    /// Becomes true when the capture is not wanted any more; looked at between pages and while waiting.
    pub cancel: Arc<AtomicBool>,
}

impl Default for SqliteSettings {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(10),
            attempts: 3,
            is_still: false,
            durable: true,
            cancel: Arc::default(),
        }
    }
}

/// How a database keeps what is not yet committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalMode {
    /// A journal to roll back with.
    Rollback,
    /// A write-ahead log.
    Wal,
}

/// What became of the log before the copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalCheckpoint {
    /// There is no log.
    NotNeeded,
    /// All of it is in the database, and it is empty.
    Done,
    /// A reader used it for longer than the budget. The copy is as good; only the log goes on growing.
    Busy {
        /// How many of its pages are not yet in the database.
        pages_left: u32,
    },
    /// We may only read.
    ReadOnly,
}

/// How it was made sure that no process was writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureMethod {
    /// We had the write lock when the copied state was chosen.
    Locked,
    /// We may only read: the copied state is a committed one, but a write transaction may have been open.
    ReadOnly,
    /// We cannot even lock: the files were copied, were the same before and after, and were recovered in the copy.
    Unmoved,
    /// There is nothing in it.
    Empty,
}

/// A database was copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqliteCaptured {
    /// How large the copy is.
    pub bytes: u64,
    /// How the database keeps what is not committed; the copy does the same.
    pub journal: JournalMode,
    /// What became of the log.
    pub checkpoint: WalCheckpoint,
    /// How it was made sure that no process was writing.
    pub method: CaptureMethod,
    /// The schema's version, in the source and in the copy.
    pub schema_version: u32,
    /// What the check of the copy found: never a failure, which is an error.
    pub integrity: Integrity,
    /// The live file at the moment of the copied state: a later write to it changes that.
    pub live: LiveFile,
}

/// Why a database could not be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// It is not there, is not a regular file, or a symbolic link leads to it.
    #[error("`{}` is not a file that can be captured", .path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It does not begin like a database: it is something else, or encrypted.
    #[error("`{}` is not a SQLite database, or is encrypted", .path.display())]
    NotADatabase {
        /// Which.
        path: PathBuf,
    },
    /// Another process was writing all the time. Nothing is wrong; try again later, or stop the writer.
    #[error("somebody was writing to `{}` for all of {} ms", .path.display(), .waited.as_millis())]
    Busy {
        /// Which.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// Its schema changed during each attempt: it is being migrated.
    #[error("the schema of `{}` changed during {attempts} attempts to copy it", .path.display())]
    SchemaChanging {
        /// Which.
        path: PathBuf,
        /// How often it was tried.
        attempts: u32,
    },
    /// It, and so its copy, is damaged.
    #[error("`{}` is damaged: {}", .path.display(), check::summary(.messages))]
    Damaged {
        /// Which.
        path: PathBuf,
        /// The first things that were found, each on a line.
        messages: Vec<String>,
    },
    /// The caller does not want it any more.
    #[error("the capture of `{}` was called off", .path.display())]
    Cancelled {
        /// Which.
        path: PathBuf,
    },
    /// It could not be read.
    #[error("could not {doing} `{}`", .path.display())]
    Read {
        /// What was tried.
        doing: &'static str,
        /// Which.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// The copy could not be written.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl SqliteError {
    /// Tells apart what SQLite said while we did something to the source.
    fn reading(doing: &'static str, path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged {
                path,
                messages: vec![source.to_string()],
            },
            Some(ErrorCode::OperationInterrupted) => Self::Cancelled { path },
            _ => Self::Read {
                doing,
                path,
                source,
            },
        }
    }
}

/// Says of what SQLite refused what was being done, to which database.
trait ReadContext<T> {
    fn reading(self, doing: &'static str, path: &Path) -> Result<T, SqliteError>;
}

impl<T> ReadContext<T> for rusqlite::Result<T> {
    fn reading(self, doing: &'static str, path: &Path) -> Result<T, SqliteError> {
        self.map_err(|error| SqliteError::reading(doing, path, error))
    }
}

/// Says of a file that the system refused that it cannot be captured.
trait SourceFile<T> {
    fn or_not_a_file(self, path: &Path) -> Result<T, SqliteError>;
}

impl<T, E: Into<io::Error>> SourceFile<T> for Result<T, E> {
    fn or_not_a_file(self, path: &Path) -> Result<T, SqliteError> {
        self.map_err(|error| SqliteError::NotAFile {
            path: path.to_owned(),
            source: error.into(),
        })
    }
}

/// Copies the database `source` to the new file `target`, which must not exist.
///
/// Blocks for as long as the copy takes, and before that for the busy timeout at most.
#[tracing::instrument(skip_all, err, fields(source = %source.display()))]
pub fn capture(
    source: &Path,
    target: &Path,
    settings: &SqliteSettings,
) -> Result<SqliteCaptured, SqliteError> {
    let source = &find::resolved(source)?;
    let target = &find::beside(target).at("find a place for the copy", target)?;
    let budget = RetryBudget::new(settings);
    if SourceStat::of(source)?.is_empty() && !find::has_companion(source) {
        return empty(source, target);
    }
    for _ in 0..settings.attempts.max(1) {
        if let Some(captured) = attempt(source, target, &budget, settings.is_still)? {
            return Ok(captured);
        }
    }
    Err(SqliteError::SchemaChanging {
        path: source.clone(),
        attempts: settings.attempts.max(1),
    })
}

/// Copies once; `None` when the schema changed meanwhile.
fn attempt(
    source: &Path,
    target: &Path,
    budget: &RetryBudget,
    is_still: bool,
) -> Result<Option<SqliteCaptured>, SqliteError> {
    if (is_still || find::is_left(source))
        && let Some(captured) = offline::capture_once(source, target, budget)?
    {
        return Ok(Some(captured));
    }
    let snapshot =
        CheckpointedDatabase::open(source, budget).and_then(|opened| opened.snapshot(budget));
    let snapshot = match snapshot {
        Err(error) if offline::is_needed(&error) => {
            return offline::capture(source, target, budget).map(Some);
        }
        snapshot => snapshot?,
    };
    let stat = SourceStat::of(source)?;
    let copy_file = CopyFile::create(target, budget.is_durable())?;
    snapshot.copy(&copy_file, budget)?;
    if snapshot.schema_moved(budget)? {
        return Ok(None);
    }
    let captured = SqliteCaptured {
        bytes: 0,
        journal: snapshot.journal,
        checkpoint: snapshot.checkpoint,
        method: snapshot.method,
        schema_version: snapshot.schema_version,
        integrity: Integrity::Ok,
        live: stat.live(),
    };
    // Readers of a rollback journal stop writers: the check of the copy needs the source no more.
    drop(snapshot);
    finish(source, copy_file, &stat, captured, budget).map(Some)
}

/// Checks the copy, makes it look like its source, and makes it durable.
fn finish(
    source: &Path,
    copy_file: CopyFile,
    stat: &SourceStat,
    mut captured: SqliteCaptured,
    budget: &RetryBudget,
) -> Result<SqliteCaptured, SqliteError> {
    let integrity = check::check(source, copy_file.path(), budget)?;
    if let Integrity::Failed(messages) = integrity {
        let path = source.to_owned();
        return Err(SqliteError::Damaged { path, messages });
    }
    let bytes = copy_file.keep(stat)?;
    tracing::debug!(bytes, method = ?captured.method, checkpoint = ?captured.checkpoint, "database copied");
    captured.bytes = bytes;
    captured.integrity = integrity;
    Ok(captured)
}

fn empty(source: &Path, target: &Path) -> Result<SqliteCaptured, SqliteError> {
    let stat = SourceStat::of(source)?;
    let live = stat.live();
    let copy_file = CopyFile::create(target, true)?;
    Ok(SqliteCaptured {
        bytes: copy_file.keep(&stat)?,
        journal: JournalMode::Rollback,
        checkpoint: WalCheckpoint::NotNeeded,
        method: CaptureMethod::Empty,
        schema_version: 0,
        integrity: Integrity::Ok,
        live,
    })
}

#[cfg(test)]
mod tests;
