//! What we changed ourselves.
//!
//! One row per path: `pending` while the act goes on, then `settled` with what it left there. A pending row speaks for all
//! that is below its path; a settled one for its path only, or, when nothing was left there, for all that was below.

use super::owner::OwnerProcess;
use super::{events, signed};
use crate::fs::metadata::Seen;
use rusqlite::{Row, Transaction, params};
use stasis_model::time::Timestamp;
use stasis_model::tree::{EntryPath, FileTime};
use stasis_model::workspace::Slot;
use std::fmt;

const NANOS: i64 = 1_000_000_000;

/// What tells whether anything was done to an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftEntry {
    /// Its number in its filesystem.
    pub inode: u64,
    /// How long it is.
    pub size: u64,
    /// When its content changed, in nanoseconds since 1970.
    pub modified: i64,
    /// When anything changed.
    pub changed: i64,
}

impl From<&Seen> for LeftEntry {
    fn from(seen: &Seen) -> Self {
        Self {
            inode: seen.inode,
            size: seen.size,
            modified: nanos(seen.modified),
            changed: nanos(seen.changed),
        }
    }
}

fn nanos(time: FileTime) -> i64 {
    let seconds = time.seconds.saturating_mul(NANOS);
    seconds.saturating_add(i64::from(time.nanos))
}

/// Where something was put back from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestoredFrom {
    /// The checkpoint in this slot.
    Checkpoint(Slot),
    /// Something else that has one word for it, say `undo`.
    Word(&'static str),
}

impl fmt::Display for RestoredFrom {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(slot) => slot.fmt(out),
            Self::Word(word) => out.write_str(word),
        }
    }
}

/// A file that was put back, or removed because it was not there before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestoredFile {
    /// Which.
    pub path: EntryPath,
    /// From where.
    pub from: RestoredFrom,
    /// How long it is now; `None` when it was removed.
    pub size: Option<u64>,
    /// What is there after the act; `None` when nothing is.
    pub left: Option<LeftEntry>,
}

/// What is known of a path that we changed, or are changing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnChange {
    Pending,
    Settled(Option<LeftEntry>),
}

impl OwnChange {
    pub(super) const SELECT: &str =
        "SELECT state, inode, size, modified, changed FROM stasis_own_changes WHERE path = ?1";

    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        if row.get::<_, String>(0)? == "pending" {
            return Ok(Self::Pending);
        }
        let Some(inode) = row.get::<_, Option<i64>>(1)? else {
            return Ok(Self::Settled(None));
        };
        Ok(Self::Settled(Some(LeftEntry {
            inode: inode.cast_unsigned(),
            size: row.get::<_, i64>(2)?.cast_unsigned(),
            modified: row.get(3)?,
            changed: row.get(4)?,
        })))
    }
}

pub(super) fn announce(
    within: &Transaction<'_>,
    act: &str,
    owner: OwnerProcess,
    paths: &[EntryPath],
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO stasis_own_changes (path, act, pid, started, state)
        VALUES (?1, ?2, ?3, ?4, 'pending')";
    let mut insert = within.prepare(sql)?;
    for path in paths {
        insert.execute(params![path.as_bytes(), act, owner.pid, owner.started])?;
    }
    Ok(())
}

pub(super) fn abandon(within: &Transaction<'_>, act: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM stasis_own_changes WHERE act = ?1 AND state = 'pending'";
    within.execute(sql, [act]).map(|_| ())
}

pub(super) fn settle(
    within: &Transaction<'_>,
    act: &str,
    at: Timestamp,
    restored: &[RestoredFile],
) -> rusqlite::Result<()> {
    abandon(within, act)?;
    let at = at.to_string();
    let mut event = within.prepare(events::INSERT)?;
    // Another act that is at the path now has the last word.
    let sql = "INSERT INTO stasis_own_changes (path, act, pid, started, state, inode, size, modified, changed)
        VALUES (?1, ?2, 0, 0, 'settled', ?3, ?4, ?5, ?6)
        ON CONFLICT (path) DO UPDATE SET act = excluded.act, inode = excluded.inode, size = excluded.size,
            modified = excluded.modified, changed = excluded.changed WHERE state = 'settled'";
    let mut left = within.prepare(sql)?;
    let sql = "DELETE FROM stasis_own_changes WHERE path > ?1 AND path < ?2 AND state = 'settled'";
    let mut forget_below = within.prepare(sql)?;
    for one in restored {
        let path = format!("{} (from {})", one.path, one.from);
        event.execute(params![at, "restored", path, one.size.map(signed)])?;
        if one.left.is_none() {
            let path = one.path.as_bytes();
            forget_below.execute((&*[path, b"/"].concat(), &*[path, b"0"].concat()))?;
        }
        left.execute(params![
            one.path.as_bytes(),
            act,
            one.left.map(|left| left.inode.cast_signed()),
            one.left.map(|left| left.size.cast_signed()),
            one.left.map(|left| left.modified),
            one.left.map(|left| left.changed),
        ])?;
    }
    Ok(())
}

/// Takes back the announcements of processes that have ended.
pub(super) fn forget_ended(within: &Transaction<'_>) -> rusqlite::Result<()> {
    let sql = "SELECT DISTINCT act, pid, started FROM stasis_own_changes WHERE state = 'pending'";
    let mut pending = within.prepare(sql)?;
    let pending = pending.query_map([], |row| {
        let (pid, started) = (row.get(1)?, row.get(2)?);
        Ok((row.get::<_, String>(0)?, OwnerProcess { pid, started }))
    })?;
    for (act, owner) in pending.collect::<rusqlite::Result<Vec<_>>>()? {
        if !owner.is_alive() {
            abandon(within, &act)?;
        }
    }
    Ok(())
}
