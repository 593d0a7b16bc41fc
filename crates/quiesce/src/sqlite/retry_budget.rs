//! How long is waited for others, and whether the caller still wants the result.

use super::{ReadContext, SqliteError, SqliteSettings};
use rusqlite::{Connection, ErrorCode};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The first pause; each is half as long again, up to the longest. A writer that hammers leaves gaps of microseconds
/// many times in a second: who asks often enough meets one.
const FIRST: Duration = Duration::from_micros(200);
const LONGEST: Duration = Duration::from_millis(5);
/// How many steps SQLite's machine makes before it looks whether it should stop.
const STEPS: i32 = 10_000;

/// What is left of the time in which others are waited for.
#[derive(Clone, Debug)]
pub(super) struct RetryBudget {
    began: Instant,
    whole: Duration,
    durable: bool,
    cancel: Arc<AtomicBool>,
}

impl RetryBudget {
    pub(super) fn new(settings: &SqliteSettings) -> Self {
        Self {
            began: Instant::now(),
            whole: settings.busy_timeout,
            durable: settings.durable,
            cancel: Arc::clone(&settings.cancel),
        }
    }

    /// A quarter of what there was at first, from now on, for what is not essential.
    pub(super) fn quarter(&self) -> Self {
        Self {
            began: Instant::now(),
            whole: self.whole / 4,
            durable: self.durable,
            cancel: Arc::clone(&self.cancel),
        }
    }

    /// Whether what is written must outlive a power cut.
    pub(super) fn is_durable(&self) -> bool {
        self.durable
    }

    /// How long it has been asked for.
    pub(super) fn waited(&self) -> Duration {
        self.began.elapsed()
    }

    /// Fails once the caller has called it off.
    pub(super) fn check(&self, path: &Path) -> Result<(), SqliteError> {
        if self.cancel.load(Ordering::Relaxed) {
            let path = path.to_owned();
            return Err(SqliteError::Cancelled { path });
        }
        Ok(())
    }

    /// Lets a long statement on this connection be called off.
    pub(super) fn bind(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let cancel = Arc::clone(&self.cancel);
        connection.progress_handler(STEPS, Some(move || cancel.load(Ordering::Relaxed)))
    }

    /// Tries until it is not refused because another process is at it, or until the time is over.
    pub(super) fn ask<T>(
        &self,
        doing: &'static str,
        path: &Path,
        mut question: impl FnMut() -> rusqlite::Result<T>,
    ) -> Result<T, SqliteError> {
        let answer = self.until_some(path, || match question() {
            Err(error) if is_busy(&error) => None,
            answer => Some(answer),
        })?;
        match answer {
            Some(answer) => answer.reading(doing, path),
            None => Err(SqliteError::Busy {
                path: path.to_owned(),
                waited: self.waited(),
            }),
        }
    }

    /// Tries until there is something, or returns `None` when the time is over. Tries once at least.
    pub(super) fn until_some<T>(
        &self,
        path: &Path,
        mut question: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, SqliteError> {
        let mut pause = FIRST;
        loop {
            self.check(path)?;
            let answer = question();
            let left = self.whole.saturating_sub(self.began.elapsed());
            if answer.is_some() || left.is_zero() {
                return Ok(answer);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 3 / 2).min(LONGEST);
        }
    }
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}
