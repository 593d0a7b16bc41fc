//! `session.db`: what happened to the files of a workspace, and when it was checkpointed.
//!
//! `fs_events` and `snapshot_events` are a contract: whoever shows statistics reads them with SQL of their own. The tables
//! whose names begin with `stasis_` are ours. A watcher, commands and servers use the database at once; SQLite keeps them
//! apart, and each write is one transaction that takes the lock before it reads.
//!
//! A checkpoint covers the events in `(start, stop]`: `stop` is the last event there is, `start` that of the automatic one
//! before it, or 0; manual ones begin at 0. Ids are never used again.
//!
//! What we put back ourselves is recorded once, as `restored`, although the watcher sees it as well, in another process:
//!
//! 1. [`SessionDb::announce`] the paths, with the process that is at it: events on them are held back from now on
//! 2. change them
//! 3. [`SessionDb::settle`]: in one transaction the `restored` events are written, and what was left at each path
//! 4. [`SessionDb::record`] finds a path as it was left: that was us, and nothing is written; or it does not: it is written
//!
//! *Always true:* an event that [`SessionDb::record`] was given is in `fs_events`, or is held back, or the path was at that moment exactly as
//! one of our acts had left it. Events, what is held back, and the watcher's state are written together. A crash between 1 and 3
//! ends the process that announced; the next [`SessionDb::record`] sees that it ended, forgets its announcement, and writes what was held back.
//!
//! On a full disk SQLite cannot even read a database with a log: it wants a file beside it, which it maps, and where the filesystem has no
//! block for a page of that, as btrfs for every page that was written out, the process is killed (`SIGBUS`). So there is no connection
//! while there is no room: whoever reads gets a look at what is there without that file, whoever writes is told that there is no
//! room ([`SessionDbError::Full`]), until there is some.

mod checkpoints;
mod error;
mod events;
mod own;
mod owner;
mod record;
mod schema;

pub use checkpoints::{CoveredCounts, CoveredRange, SkippedCheckpoint};
pub use error::SessionDbError;
pub use events::{EventRow, GapRow, USUAL_MOST_EVENTS};
pub use own::{LeftEntry, RestoredFile, RestoredFrom};
pub use record::RecordedEvents;

use crate::fs::sys::processes;
use crate::watch::EventBatch;
use error::SqliteContext;
use owner::OwnerProcess;
use record::Recorder;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use schema::NewDatabase;
use stasis_model::failure::AtPath;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{Slot, SlotMetadata};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The name of the database in the directory of a session.
pub const DATABASE: &str = "session.db";
/// Under which key the state of the watcher is kept.
pub const WATCH_STATE: &str = "beliefs";

/// The database of one session. Blocking; any thread may use it, one at a time does.
#[derive(Debug)]
pub struct SessionDb {
    path: PathBuf,
    /// Nothing while there is no room for what SQLite needs beside the database.
    connection: Mutex<Option<Connection>>,
}

impl SessionDb {
    /// Opens the database at `path`; makes it when there is none, for its owner only.
    ///
    /// What is not ours, or of a later version, is refused and not touched.
    pub fn open(path: &Path) -> Result<Self, SessionDbError> {
        let path = std::path::absolute(path).at("find", path)?;
        let connection = match schema::has_room(&path).and_then(|()| schema::open(&path)) {
            Ok(opened) => Some(opened),
            // Made when there is room; what is there can be read.
            Err(SessionDbError::Full { .. }) if path.is_file() => None,
            Err(error) => return Err(error),
        };
        let connection = Mutex::new(connection);
        Ok(Self { path, connection })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down what a watcher reported, and its state after that; judges once more what was held back.
    ///
    /// `look` says what is at a path now, without following a link, and `None` when there is nothing. When there is
    /// nothing to write, nothing is locked.
    pub fn record(
        &self,
        batch: &EventBatch,
        at: Timestamp,
        watch_state: Option<&[u8]>,
        look: &mut dyn FnMut(&EntryPath) -> Option<LeftEntry>,
    ) -> Result<RecordedEvents, SessionDbError> {
        let is_empty = batch.events.is_empty() && batch.gap.is_none() && watch_state.is_none();
        if is_empty && !self.read("read what is held back in", record::has_held)? {
            return Ok(RecordedEvents::default());
        }
        self.write("record events in", |within| {
            let mut recorder = Recorder::new(within, look)?;
            recorder.judge_held()?;
            recorder.judge(&batch.events)?;
            let done = recorder.finish()?;
            if let Some(gap) = batch.gap {
                events::insert_gap(within, gap, at)?;
            }
            if let Some(watch_state) = watch_state {
                keep(within, WATCH_STATE, watch_state)?;
            }
            Ok(done)
        })
    }

    /// Says that this process is about to change these paths and, where they are directories, what is in them.
    ///
    /// To be called before anything is touched; `act` is a name that nobody else uses. Ends with [`SessionDb::settle`] or
    /// [`SessionDb::abandon`], or with the process.
    pub fn announce(&self, act: &str, paths: &[EntryPath]) -> Result<(), SessionDbError> {
        let stat = processes::file(std::process::id());
        let owner = OwnerProcess::this().at("read", &stat)?;
        self.write("announce a change in", |within| {
            own::announce(within, act, owner, paths)
        })
    }

    /// Writes what an act put back as `restored`, and what it left at each path; nothing else of it is awaited any more.
    pub fn settle(
        &self,
        act: &str,
        at: Timestamp,
        restored: &[RestoredFile],
    ) -> Result<(), SessionDbError> {
        self.write("settle a change in", |within| {
            own::settle(within, act, at, restored)
        })
    }

    /// Takes back an announcement of which nothing came: what was held back is written by the next [`SessionDb::record`].
    pub fn abandon(&self, act: &str) -> Result<(), SessionDbError> {
        self.write("abandon a change in", |within| own::abandon(within, act))
    }

    /// Writes that a checkpoint was made, with the events that it covers.
    pub fn checkpoint(&self, made: &SlotMetadata) -> Result<CoveredRange, SessionDbError> {
        self.write("record a checkpoint in", |within| {
            checkpoints::insert(within, made)
        })
    }

    /// How many files were created, modified, deleted and restored before the checkpoint in each slot that is wanted, by slot.
    ///
    /// Of a slot that was used again the last checkpoint counts.
    pub fn counts(
        &self,
        is_wanted: &dyn Fn(Slot) -> bool,
    ) -> Result<Vec<CoveredCounts>, SessionDbError> {
        self.read("count the events in", |connection| {
            checkpoints::counts(connection, is_wanted)
        })
    }

    /// The highest slot that a checkpoint of an agent ever had.
    pub fn last_agent_slot(&self) -> Result<Option<Slot>, SessionDbError> {
        self.read("read the checkpoints in", checkpoints::last_agent_slot)
    }

    /// Writes why no checkpoint was made when one was due.
    pub fn skipped(&self, at: Timestamp, because: &str) -> Result<(), SessionDbError> {
        self.write("record a skipped checkpoint in", |within| {
            checkpoints::skip(within, at, because)
        })
    }

    /// The last checkpoint that was due and not made.
    pub fn last_skipped(&self) -> Result<Option<SkippedCheckpoint>, SessionDbError> {
        self.read("read the skipped checkpoints in", checkpoints::last_skipped)
    }

    /// The first `limit` events after `since`, of all files or of one; those that put it back included.
    pub fn events(
        &self,
        since: i64,
        path: Option<&EntryPath>,
        limit: usize,
    ) -> Result<Vec<EventRow>, SessionDbError> {
        self.read("read the events in", |connection| {
            events::select(connection, since, path, limit)
        })
    }

    /// The id of the last event that was ever written; 0 when there was none.
    pub fn last_event_id(&self) -> Result<i64, SessionDbError> {
        self.read("read the events in", events::last_id)
    }

    /// The last `limit` times that events were missed, the newest first.
    pub fn gaps(&self, limit: usize) -> Result<Vec<GapRow>, SessionDbError> {
        self.read("read the gaps in", |connection| {
            events::select_gaps(connection, limit)
        })
    }

    /// Removes the oldest events until there are at most `most`, but none after `keep_after`; says how many went.
    pub fn prune(&self, most: u64, keep_after: i64) -> Result<u64, SessionDbError> {
        self.write("prune the events in", |within| {
            events::prune(within, most, keep_after)
        })
    }

    /// What was kept under this key.
    pub fn kept(&self, key: &str) -> Result<Option<Vec<u8>>, SessionDbError> {
        self.read("read what is kept in", |connection| {
            let sql = "SELECT value FROM stasis_kept WHERE key = ?1";
            let found = connection.query_row(sql, [key], |row| row.get(0));
            found.optional()
        })
    }

    /// Keeps something under a key, instead of what was kept there.
    pub fn keep(&self, key: &str, bytes: &[u8]) -> Result<(), SessionDbError> {
        self.write("keep something in", |within| keep(within, key, bytes))
    }

    /// Makes a copy at `path`, where there is nothing yet, of one committed state; others may go on writing.
    ///
    /// A crash leaves the copy whole or not at all.
    pub fn copy_to(&self, path: &Path) -> Result<(), SessionDbError> {
        let aside = NewDatabase::new(path)?;
        let op = "copy the session database to";
        let mut copy = schema::connect(&aside.path).doing(op, path)?;
        copy_all(self.opened(&mut self.connection())?, &mut copy).doing(op, path)?;
        copy.close().map_err(|(_, error)| error).doing(op, path)?;
        aside.place(path)
    }

    fn connection(&self) -> MutexGuard<'_, Option<Connection>> {
        // A transaction that panicked was rolled back when it was dropped.
        let locked = self.connection.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection; made now if there was no room for it before, and given up if there is none any more.
    fn opened<'a>(
        &self,
        connection: &'a mut Option<Connection>,
    ) -> Result<&'a mut Connection, SessionDbError> {
        if let Err(full) = schema::has_room(&self.path) {
            drop(connection.take().map(schema::at_rest));
            return Err(full);
        }
        match connection {
            Some(opened) => Ok(opened),
            none => Ok(none.insert(schema::open(&self.path)?)),
        }
    }

    fn read<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, SessionDbError> {
        let mut connection = self.connection();
        match self.opened(&mut connection) {
            Ok(opened) => work(opened).doing(doing, &self.path),
            Err(SessionDbError::Full { .. }) => {
                let look = schema::look(&self.path)?;
                work(&look).doing(doing, &self.path)
            }
            Err(error) => Err(error),
        }
    }

    /// One transaction, which has the lock from its beginning: one that reads first can find it taken later, and fail.
    fn write<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, SessionDbError> {
        let mut connection = self.connection();
        let connection = self.opened(&mut connection)?;
        let all = || {
            let within = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&within)?;
            within.commit()?;
            Ok(done)
        };
        all().doing(doing, &self.path)
    }
}

impl Drop for SessionDb {
    fn drop(&mut self) {
        let connection = self.connection.get_mut();
        let connection = connection.unwrap_or_else(PoisonError::into_inner);
        if schema::has_room(&self.path).is_err() {
            drop(connection.take().map(schema::at_rest));
        }
    }
}

fn copy_all(from: &Connection, to: &mut Connection) -> rusqlite::Result<()> {
    let all = -1;
    match Backup::new(from, to)?.step(all)? {
        StepResult::Done => Ok(()),
        // SQLite has waited already.
        _ => Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
            None,
        )),
    }
}

fn keep(within: &Transaction<'_>, key: &str, bytes: &[u8]) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO stasis_kept (key, value) VALUES (?1, ?2)";
    within.execute(sql, (key, bytes)).map(|_| ())
}

/// A number of ours as SQLite has it; none of them is that large.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
