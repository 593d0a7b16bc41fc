//! The rows of `fs_events`, and of the times in which events were missed.

use super::signed;
use crate::watch::Gap;
use rusqlite::{Connection, Row, Transaction, params};
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;

/// How many events are kept when nobody says otherwise.
pub const USUAL_MOST_EVENTS: u64 = 1_000_000;
/// How many notes of each other kind are kept.
pub(super) const MOST_NOTES: i64 = 1000;
/// What stands between a path that was put back and where it came from.
const FROM: &str = " (from ";
/// The least text that comes after all that begin so.
const AFTER_FROM: &str = " (from!";

pub(super) const INSERT: &str =
    "INSERT INTO fs_events (timestamp, action, path, size) VALUES (?1, ?2, ?3, ?4)";

/// One row of `fs_events`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventRow {
    /// Later ones have larger ids.
    pub id: i64,
    /// When, as users read it: ISO 8601.
    pub timestamp: String,
    /// `created`, `modified`, `deleted` or `restored`.
    pub action: String,
    /// To which file, as [`EntryPath`] shows it; with ` (from cp-N)` behind it when it was put back.
    pub path: String,
    /// How long it was then; `None` when it was gone.
    pub size: Option<u64>,
}

impl EventRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            timestamp: row.get(1)?,
            action: row.get(2)?,
            path: row.get(3)?,
            size: row.get::<_, Option<i64>>(4)?.map(i64::cast_unsigned),
        })
    }

    /// To which file, without where it came from.
    pub fn file(&self) -> &str {
        self.split().map_or(&self.path, |(file, _)| file)
    }

    /// Where it was put back from, when it was.
    pub fn from(&self) -> Option<&str> {
        self.split().map(|(_, from)| from)
    }

    fn split(&self) -> Option<(&str, &str)> {
        let path = self.path.strip_suffix(')')?;
        let is_restored = self.action == "restored";
        path.rsplit_once(FROM).filter(|_| is_restored)
    }
}

/// A time in which events were missed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GapRow {
    /// When it was reported, as users read it: ISO 8601.
    pub timestamp: String,
    /// The same in milliseconds since 1970, to the second.
    pub at_ms: u64,
    /// Why, in the words of [`GapReason`](crate::watch::GapReason).
    pub why: String,
    /// How many events were found only later.
    pub missed: u64,
    /// The last event that was written by then.
    pub last_event_id: i64,
}

pub(super) fn last_id(connection: &Connection) -> rusqlite::Result<i64> {
    // Of events that were all pruned only the counter still knows.
    let sql = "SELECT COALESCE((SELECT MAX(id) FROM fs_events),
        (SELECT seq FROM sqlite_sequence WHERE name = 'fs_events'), 0)";
    connection.query_row(sql, [], |row| row.get(0))
}

pub(super) fn select(
    connection: &Connection,
    since: i64,
    path: Option<&EntryPath>,
    limit: usize,
) -> rusqlite::Result<Vec<EventRow>> {
    // Only a first sieve: a name may itself end like something that was put back.
    let sql = "SELECT id, timestamp, action, path, size FROM fs_events
        WHERE id > ?1 AND (?2 IS NULL OR path = ?2 OR (path >= ?3 AND path < ?4)) ORDER BY id";
    let path = path.map(EntryPath::to_string);
    let restored = path.as_ref().map(|path| format!("{path}{FROM}"));
    let after = path.as_ref().map(|path| format!("{path}{AFTER_FROM}"));
    let mut events = connection.prepare(sql)?;
    let events = events.query_map(params![since, path, restored, after], EventRow::read)?;
    let is_wanted = |event: &rusqlite::Result<EventRow>| {
        let (Ok(event), Some(path)) = (event, &path) else {
            return true;
        };
        event.file() == path
    };
    events.filter(is_wanted).take(limit).collect()
}

pub(super) fn prune(within: &Transaction<'_>, most: u64, keep_after: i64) -> rusqlite::Result<u64> {
    // Ids have no holes but at the low end: a transaction that fails takes its ids back.
    let until = last_id(within)?.saturating_sub(signed(most));
    let sql = "DELETE FROM fs_events WHERE id <= ?1";
    let gone = within.execute(sql, [until.min(keep_after)])?;
    Ok(gone as u64)
}

pub(super) fn insert_gap(
    within: &Transaction<'_>,
    gap: Gap,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO stasis_gaps (timestamp, why, missed, last_fs_event_id) VALUES (?1, ?2, ?3, ?4)";
    let missed = signed(gap.missed as u64);
    let last = last_id(within)?;
    within.execute(sql, params![at.to_string(), gap.why.word(), missed, last])?;
    let sql = "DELETE FROM stasis_gaps WHERE id <= ?1";
    within.execute(sql, [within.last_insert_rowid() - MOST_NOTES])?;
    Ok(())
}

pub(super) fn select_gaps(connection: &Connection, limit: usize) -> rusqlite::Result<Vec<GapRow>> {
    let sql = "SELECT timestamp, why, missed, last_fs_event_id, CAST(strftime('%s', timestamp) AS INTEGER)
        FROM stasis_gaps ORDER BY id DESC";
    let mut gaps = connection.prepare(sql)?;
    let gaps = gaps.query_map([], |row| {
        Ok(GapRow {
            timestamp: row.get(0)?,
            at_ms: row.get::<_, i64>(4)?.cast_unsigned() * 1000,
            why: row.get(1)?,
            missed: row.get::<_, i64>(2)?.cast_unsigned(),
            last_event_id: row.get(3)?,
        })
    })?;
    gaps.take(limit).collect()
}
