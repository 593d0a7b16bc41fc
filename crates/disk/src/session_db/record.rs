//! Which events are written, which were our own doing, and which cannot be told yet.

use super::own::{self, LeftEntry, OwnChange};
use super::{events, signed};
use crate::watch::FileEvent;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, Statement, Transaction, params};
use stasis_model::tree::EntryPath;
use std::collections::BTreeSet;

/// What became of the events that were recorded, and of those that were held back before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordedEvents {
    /// How many were written.
    pub written: usize,
    /// How many were our own doing.
    pub own: usize,
    /// How many are held back now.
    pub held: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EventVerdict {
    Write,
    OwnChange,
    Hold,
}

pub(super) fn has_held(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM stasis_held)", [], |row| {
        row.get(0)
    })
}

/// One call of [`record`](super::SessionDb::record).
pub(super) struct Recorder<'a> {
    within: &'a Transaction<'a>,
    find: Statement<'a>,
    insert: Statement<'a>,
    hold: Statement<'a>,
    look: &'a mut dyn FnMut(&EntryPath) -> Option<LeftEntry>,
    /// Whether any path is or was changed by us.
    has_own: bool,
    /// What is not as we left it any more: forgotten at the end, because it speaks for others of the same moment too.
    spent: BTreeSet<EntryPath>,
    done: RecordedEvents,
}

struct HeldEvent {
    id: i64,
    timestamp: String,
    action: String,
    path: EntryPath,
    size: Option<i64>,
}

impl HeldEvent {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let path: Vec<u8> = row.get(3)?;
        let path = EntryPath::parse(&path).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(3, Type::Blob, Box::new(error))
        })?;
        Ok(Self {
            id: row.get(0)?,
            timestamp: row.get(1)?,
            action: row.get(2)?,
            path,
            size: row.get(4)?,
        })
    }
}

impl<'a> Recorder<'a> {
    pub(super) fn new(
        within: &'a Transaction<'a>,
        look: &'a mut dyn FnMut(&EntryPath) -> Option<LeftEntry>,
    ) -> rusqlite::Result<Self> {
        own::forget_ended(within)?;
        let sql = "SELECT EXISTS (SELECT 1 FROM stasis_own_changes)";
        let has_own = within.query_row(sql, [], |row| row.get(0))?;
        let sql = "INSERT INTO stasis_held (timestamp, action, path, size) VALUES (?1, ?2, ?3, ?4)";
        Ok(Self {
            within,
            find: within.prepare(OwnChange::SELECT)?,
            insert: within.prepare(events::INSERT)?,
            hold: within.prepare(sql)?,
            look,
            has_own,
            spent: BTreeSet::new(),
            done: RecordedEvents::default(),
        })
    }

    /// Judges what was held back, before anything that came later.
    pub(super) fn judge_held(&mut self) -> rusqlite::Result<()> {
        let sql = "SELECT id, timestamp, action, path, size FROM stasis_held ORDER BY id";
        let mut held = self.within.prepare(sql)?;
        let held: Vec<HeldEvent> = held
            .query_map([], HeldEvent::read)?
            .collect::<Result<_, _>>()?;
        let mut forget = self
            .within
            .prepare("DELETE FROM stasis_held WHERE id = ?1")?;
        for one in held {
            let verdict = self.verdict(&one.path)?;
            self.count(verdict);
            if verdict == EventVerdict::Write {
                let path = one.path.to_string();
                self.insert
                    .execute(params![one.timestamp, one.action, path, one.size])?;
            }
            if verdict != EventVerdict::Hold {
                forget.execute([one.id])?;
            }
        }
        Ok(())
    }

    pub(super) fn judge(&mut self, events: &[FileEvent]) -> rusqlite::Result<()> {
        for event in events {
            let verdict = self.verdict(&event.path)?;
            self.count(verdict);
            let (at, action) = (event.at.to_string(), event.action.word());
            let size = event.size.map(signed);
            match verdict {
                EventVerdict::Write => {
                    let path = event.path.to_string();
                    self.insert.execute(params![at, action, path, size])?;
                }
                EventVerdict::Hold => {
                    let path = event.path.as_bytes();
                    self.hold.execute(params![at, action, path, size])?;
                }
                EventVerdict::OwnChange => {}
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> rusqlite::Result<RecordedEvents> {
        let sql = "DELETE FROM stasis_own_changes WHERE path = ?1 AND state = 'settled'";
        let mut forget = self.within.prepare(sql)?;
        for path in &self.spent {
            forget.execute([path.as_bytes()])?;
        }
        Ok(self.done)
    }

    fn count(&mut self, verdict: EventVerdict) {
        let count = match verdict {
            EventVerdict::Write => &mut self.done.written,
            EventVerdict::OwnChange => &mut self.done.own,
            EventVerdict::Hold => &mut self.done.held,
        };
        *count += 1;
    }

    fn verdict(&mut self, path: &EntryPath) -> rusqlite::Result<EventVerdict> {
        if !self.has_own {
            return Ok(EventVerdict::Write);
        }
        let mut said = None;
        let mut at = Some(path.clone());
        while let Some(place) = at {
            at = place.split_last().map(|(above, _)| above);
            match self.own(&place)? {
                Some(OwnChange::Pending) => return Ok(EventVerdict::Hold),
                // What was left of a directory says nothing of what is in it, unless nothing was.
                Some(OwnChange::Settled(left)) if left.is_none() || place == *path => {
                    said.get_or_insert((place, left));
                }
                _ => {}
            }
        }
        let Some((place, left)) = said else {
            return Ok(EventVerdict::Write);
        };
        if (self.look)(path) == left {
            return Ok(EventVerdict::OwnChange);
        }
        self.spent.insert(place);
        Ok(EventVerdict::Write)
    }

    fn own(&mut self, place: &EntryPath) -> rusqlite::Result<Option<OwnChange>> {
        let found = self.find.query_row([place.as_bytes()], OwnChange::read);
        found.optional()
    }
}
