//! Copying a database that SQLite could not read without writing: in a place where not even a lock can be taken, say a directory that
//! is read-only, or with a log or a journal that a killed program left.
//!
//! SQLite needs to write beside a database that has a log, or a journal to be rolled back, before it can read it. So
//!
//! 1. database, log and journal are looked at, and after a moment copied
//! 2. they are looked at again: if one moved, all is done again, within the budget
//! 3. the copy is opened, which recovers it, and its log is written into it
//!
//! The moment is longer than the tick of a file system's clock, so a write between the first look and the copy cannot hide
//! behind the same time stamp as one that came before.

use super::copy_file::{CREATE, CopyFile, SourceStat};
use super::find::companion;
use super::live::{checkpoint, connect};
use super::retry_budget::RetryBudget;
use super::{
    CaptureMethod, Integrity, JournalMode, ReadContext, SourceFile, SqliteCaptured, SqliteError,
    WalCheckpoint, finish,
};
use rusqlite::ErrorCode;
use rustix::fs::{CWD, Mode, OFlags, openat};
use stasis_model::failure::AtPath;
use stasis_model::sqlite_file::LOGS;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

const SETTLE_DELAY: Duration = Duration::from_millis(20);

/// A database and what lies beside it, copied, and how the database looked before.
struct CopiedFiles {
    copy_file: CopyFile,
    stat: SourceStat,
}

/// Whether this is what SQLite says when it would have to write where it may not.
pub(super) fn is_needed(error: &SqliteError) -> bool {
    let SqliteError::Read { source, .. } = error else {
        return false;
    };
    let extended = source.sqlite_error().map(|error| error.extended_code);
    matches!(
        source.sqlite_error_code(),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen)
    ) || extended == Some(rusqlite::ffi::SQLITE_IOERR_DELETE)
}

pub(super) fn capture(
    source: &Path,
    target: &Path,
    budget: &RetryBudget,
) -> Result<SqliteCaptured, SqliteError> {
    let copied = budget.until_some(source, || {
        copy(source, target, budget.is_durable()).transpose()
    })?;
    let copied = copied.unwrap_or_else(|| {
        let path = source.to_owned();
        let waited = budget.waited();
        Err(SqliteError::Busy { path, waited })
    })?;
    recovered(source, copied, budget)
}

/// The same, tried once; `None` when a process writes.
pub(super) fn capture_once(
    source: &Path,
    target: &Path,
    budget: &RetryBudget,
) -> Result<Option<SqliteCaptured>, SqliteError> {
    let copied = copy(source, target, budget.is_durable())?;
    copied
        .map(|copied| recovered(source, copied, budget))
        .transpose()
}

fn recovered(
    source: &Path,
    copied: CopiedFiles,
    budget: &RetryBudget,
) -> Result<SqliteCaptured, SqliteError> {
    let CopiedFiles { copy_file, stat } = copied;
    let (journal, schema_version) = recover(source, &copy_file, budget)?;
    let captured = SqliteCaptured {
        bytes: 0,
        journal,
        checkpoint: match journal {
            JournalMode::Rollback => WalCheckpoint::NotNeeded,
            JournalMode::Wal => WalCheckpoint::ReadOnly,
        },
        method: CaptureMethod::Unmoved,
        schema_version,
        integrity: Integrity::Ok,
        live: stat.live(),
    };
    finish(source, copy_file, &stat, captured, budget)
}

/// Copies all files once; `None` when one moved meanwhile.
fn copy(source: &Path, target: &Path, durable: bool) -> Result<Option<CopiedFiles>, SqliteError> {
    let look = || {
        (
            SourceStat::of(source),
            LOGS.map(|end| SourceStat::of(&companion(source, end)).ok()),
        )
    };
    let before = look();
    std::thread::sleep(SETTLE_DELAY);
    let copy_file = CopyFile::create(target, durable)?;
    copy_bytes(source, copy_file.file())?;
    for end in LOGS {
        if !copy_log(&companion(source, end), &companion(target, end))? {
            return Ok(None);
        }
    }
    let after = look();
    let is_unmoved = match (&before.0, &after.0) {
        (Ok(before), Ok(after)) => before.is_unmoved(after),
        _ => false,
    };
    let logs = before.1.iter().zip(&after.1);
    let are_unmoved = logs.into_iter().all(|pair| match pair {
        (Some(before), Some(after)) => before.is_unmoved(after),
        (None, None) => true,
        _ => false,
    });
    let stat = before.0?;
    Ok((is_unmoved && are_unmoved).then_some(CopiedFiles { copy_file, stat }))
}

/// Copies a log or a journal, where there is one; false when its writer took it away meanwhile, as each commit does with a journal.
fn copy_log(log: &Path, path: &Path) -> Result<bool, SqliteError> {
    if !log.symlink_metadata().is_ok_and(|log| log.is_file()) {
        return Ok(true);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).at(CREATE, path)?;
    match copy_bytes(log, &file.into()) {
        Err(SqliteError::NotAFile { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(false)
        }
        poured => poured.map(|()| true),
    }
}

fn copy_bytes(from: &Path, mut into: &File) -> Result<(), SqliteError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(CWD, from, flags, Mode::empty());
    let mut file = File::from(opened.or_not_a_file(from)?);
    io::copy(&mut file, &mut into).or_not_a_file(from)?;
    into.flush().or_not_a_file(from)
}

/// Opens the copy, which rolls back or replays what lies beside it, and leaves nothing beside it.
fn recover(
    source: &Path,
    copy_file: &CopyFile,
    budget: &RetryBudget,
) -> Result<(JournalMode, u32), SqliteError> {
    let doing = "recover the copy of";
    let connection = connect(copy_file.path(), budget).reading(doing, source)?;
    connection
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE")
        .reading(doing, source)?;
    let version = connection
        .query_row("PRAGMA schema_version", [], |row| row.get::<_, i32>(0))
        .reading(doing, source)?;
    let mode: String = connection
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .reading(doing, source)?;
    let journal = match mode.as_str() {
        "wal" => JournalMode::Wal,
        _ => JournalMode::Rollback,
    };
    if journal == JournalMode::Wal {
        checkpoint(&connection, source, budget)?;
    }
    let closed = connection.close().map_err(|(_, error)| error);
    closed.reading(doing, source)?;
    Ok((journal, version.cast_unsigned()))
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "the test is the writer that takes its journal away"
)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_journal_that_its_writer_takes_away_meanwhile_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let (log, copy) = (
            directory.path().join("app.db-journal"),
            directory.path().join("copy"),
        );
        let is_over = AtomicBool::new(false);
        let vanished = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::fs::write(&log, "pages").unwrap();
                    std::fs::remove_file(&log).unwrap();
                }
            });
            let (mut vanished, mut rounds) = (0, 0);
            // On one busy core it takes a while until the writer runs at that very moment.
            while rounds < 20_000 || (vanished == 0 && rounds < 1_000_000) {
                rounds += 1;
                let copied = copy_log(&log, &copy);
                let _ = std::fs::remove_file(&copy);
                let is_over = || is_over.store(true, Ordering::Relaxed);
                vanished += u32::from(!copied.inspect_err(|_| is_over()).unwrap());
            }
            is_over.store(true, Ordering::Relaxed);
            vanished
        });
        assert!(vanished > 0, "it never went away between look and copy");
    }
}
