//! The rows of `snapshot_events`, what they cover, and what was not made.

use super::events::{self, MOST_NOTES};
use super::signed;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use stasis_model::time::Timestamp;
use stasis_model::workspace::{CheckpointName, CheckpointOrigin, Slot, SlotMetadata};

/// Which events a checkpoint covers: those after `start`, up to and with `stop`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoveredRange {
    /// Later ones have larger ids.
    pub id: i64,
    /// The last event that it does not cover.
    pub start: i64,
    /// The last event that it covers.
    pub stop: i64,
}

/// How many events of each kind a checkpoint covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoveredCounts {
    /// Where it is.
    pub slot: Slot,
    /// Files that were not there before.
    pub created: u64,
    /// Files that got another content.
    pub modified: u64,
    /// Files that went.
    pub deleted: u64,
    /// Files that were put back.
    pub restored: u64,
}

/// A checkpoint that was due and not made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkippedCheckpoint {
    /// When it was due, as users read it: ISO 8601.
    pub timestamp: String,
    /// Why it was not made.
    pub because: String,
}

pub(super) fn insert(
    within: &Transaction<'_>,
    made: &SlotMetadata,
) -> rusqlite::Result<CoveredRange> {
    let stop = events::last_id(within)?;
    let start = match made.origin {
        CheckpointOrigin::Manual | CheckpointOrigin::Undo => 0,
        CheckpointOrigin::Auto => last_stop(within, &[CheckpointOrigin::Auto])?,
        CheckpointOrigin::Prompt | CheckpointOrigin::Command => last_stop(
            within,
            &[
                CheckpointOrigin::Auto,
                CheckpointOrigin::Prompt,
                CheckpointOrigin::Command,
            ],
        )?,
    };
    let sql = "INSERT INTO snapshot_events
        (timestamp, slot, origin, name, files_count, start_fs_event_id, stop_fs_event_id)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = params![
        made.timestamp,
        made.slot.index(),
        made.origin.to_string(),
        made.name.as_ref().map(CheckpointName::as_str),
        signed(made.files_count),
        start,
        stop,
    ];
    within.execute(sql, values)?;
    let id = within.last_insert_rowid();
    Ok(CoveredRange { id, start, stop })
}

/// Where the last checkpoint of some origins stopped. The contract's automatic ones are a chain of their own.
fn last_stop(within: &Transaction<'_>, origins: &[CheckpointOrigin]) -> rusqlite::Result<i64> {
    let sql =
        "SELECT stop_fs_event_id FROM snapshot_events WHERE origin = ?1 ORDER BY id DESC LIMIT 1";
    let mut last = 0;
    for origin in origins {
        let stop = within.query_row(sql, [origin.to_string()], |row| row.get(0));
        last = last.max(stop.optional()?.unwrap_or(0));
    }
    Ok(last)
}

/// The highest slot that a checkpoint of an agent ever had.
pub(super) fn last_agent_slot(connection: &Connection) -> rusqlite::Result<Option<Slot>> {
    let sql = "SELECT MAX(slot) FROM snapshot_events WHERE origin IN ('prompt', 'command')";
    let last = connection.query_row(sql, [], |row| row.get::<_, Option<u32>>(0))?;
    Ok(last.map(Slot::new))
}

/// Only of the slots that are asked for: numbers that are given once become many.
pub(super) fn counts(
    connection: &Connection,
    is_wanted: &dyn Fn(Slot) -> bool,
) -> rusqlite::Result<Vec<CoveredCounts>> {
    let sql = "SELECT slot, MAX(id) FROM snapshot_events GROUP BY slot ORDER BY slot";
    let mut rows = connection.prepare(sql)?;
    let rows = rows.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, i64>(1)?)))?;
    let rows: Vec<(u32, i64)> = rows.collect::<rusqlite::Result<_>>()?;
    let wanted = rows
        .into_iter()
        .filter(|(slot, _)| is_wanted(Slot::new(*slot)));
    // The query of the contract, with the slot, for one checkpoint.
    let sql = "SELECT s.slot,
        (SELECT COUNT(*) FROM fs_events WHERE id > s.start_fs_event_id AND id <= s.stop_fs_event_id AND action = 'created') as created,
        (SELECT COUNT(*) FROM fs_events WHERE id > s.start_fs_event_id AND id <= s.stop_fs_event_id AND action = 'modified') as modified,
        (SELECT COUNT(*) FROM fs_events WHERE id > s.start_fs_event_id AND id <= s.stop_fs_event_id AND action = 'deleted') as deleted,
        (SELECT COUNT(*) FROM fs_events WHERE id > s.start_fs_event_id AND id <= s.stop_fs_event_id AND action = 'restored') as restored
        FROM snapshot_events s
        WHERE s.id = ?1";
    let mut counts = connection.prepare(sql)?;
    let counts = wanted.map(|(_, id)| {
        counts.query_row([id], |row| {
            let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
            Ok(CoveredCounts {
                slot: Slot::new(row.get(0)?),
                created: number(1)?,
                modified: number(2)?,
                deleted: number(3)?,
                restored: number(4)?,
            })
        })
    });
    counts.collect()
}

pub(super) fn skip(within: &Transaction<'_>, at: Timestamp, because: &str) -> rusqlite::Result<()> {
    let sql = "INSERT INTO stasis_skipped (timestamp, because) VALUES (?1, ?2)";
    within.execute(sql, (at.to_string(), because))?;
    let sql = "DELETE FROM stasis_skipped WHERE id <= ?1";
    within.execute(sql, [within.last_insert_rowid() - MOST_NOTES])?;
    Ok(())
}

pub(super) fn last_skipped(connection: &Connection) -> rusqlite::Result<Option<SkippedCheckpoint>> {
    let sql = "SELECT timestamp, because FROM stasis_skipped ORDER BY id DESC LIMIT 1";
    let last = connection.query_row(sql, [], |row| {
        let (timestamp, because) = (row.get(0)?, row.get(1)?);
        Ok(SkippedCheckpoint { timestamp, because })
    });
    last.optional()
}
