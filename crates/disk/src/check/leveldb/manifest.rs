//! The manifest: edits that, applied one after the other, say which files are alive.

use super::cursor::Cursor;
use super::{End, LevelDbTrouble, damage};
use std::collections::{BTreeMap, BTreeSet};

/// The number in a file's name.
pub(super) type Number = u64;

/// More live tables than this are a limit.
const MOST_TABLES: usize = 1_000_000;
const LEVELS: u32 = 7;

/// Which files are alive.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Tables with their sizes.
    pub(super) tables: BTreeMap<Number, u64>,
    levels: BTreeSet<(u32, Number)>,
    comparator: Option<Vec<u8>>,
    log: Option<Number>,
    previous_log: Option<Number>,
    next_file: Option<Number>,
    last_sequence: Option<u64>,
}

impl Live {
    /// Whether keys are ordered as plain bytes.
    pub(super) fn is_bytewise(&self) -> bool {
        let name = self.comparator.as_deref();
        name == Some(b"leveldb.BytewiseComparator")
    }

    /// Applies one record of the manifest.
    pub(super) fn apply(&mut self, record: &[u8]) -> Result<(), LevelDbTrouble> {
        let mut cursor = Cursor::new(record);
        while !cursor.is_empty() {
            match self.edit(&mut cursor) {
                Some(Ok(())) => {}
                Some(Err(trouble)) => return Err(trouble),
                None => return damage("an edit that ends too early"),
            }
        }
        if self.tables.len() > MOST_TABLES {
            let what = format!("more than {MOST_TABLES} tables");
            return Err(End::limit(what).into());
        }
        Ok(())
    }

    fn edit(&mut self, cursor: &mut Cursor<'_>) -> Option<Result<(), LevelDbTrouble>> {
        match cursor.varint32()? {
            1 => {
                let name = cursor.string()?;
                let known = self.comparator.get_or_insert_with(|| name.to_vec());
                if known != name {
                    return Some(damage("it names two comparators"));
                }
            }
            2 => self.log = Some(cursor.varint64()?),
            3 => self.next_file = Some(cursor.varint64()?),
            4 => self.last_sequence = Some(cursor.varint64()?),
            5 => {
                let (level, _key) = (cursor.varint32()?, cursor.string()?);
                return Some(check_level(level));
            }
            6 => {
                let file = (cursor.varint32()?, cursor.varint64()?);
                if self.levels.remove(&file) && !self.is_on_a_level(file.1) {
                    self.tables.remove(&file.1);
                }
                return Some(check_level(file.0));
            }
            7 => {
                let (level, number) = (cursor.varint32()?, cursor.varint64()?);
                let size = cursor.varint64()?;
                let (_smallest, _largest) = (cursor.string()?, cursor.string()?);
                self.levels.insert((level, number));
                self.tables.insert(number, size);
                return Some(check_level(level));
            }
            9 => self.previous_log = Some(cursor.varint64()?),
            tag => return Some(damage(format!("an edit of the unknown kind {tag}"))),
        }
        Some(Ok(()))
    }

    /// A table may be moved to another level by one edit that removes it here and adds it there, in either order.
    fn is_on_a_level(&self, number: Number) -> bool {
        (0..LEVELS).any(|level| self.levels.contains(&(level, number)))
    }

    /// Checks that everything was said that must be.
    pub(super) fn finish(self) -> Result<Self, LevelDbTrouble> {
        let Some(next_file) = self.next_file else {
            return damage("it does not say the number of the next file");
        };
        if self.log.is_none() {
            return damage("it does not say which log is current");
        }
        if self.last_sequence.is_none() {
            return damage("it does not say the last sequence number");
        }
        match self.tables.last_key_value() {
            Some((number, _)) if *number >= next_file => damage(format!(
                "table {number} has a number that is not given out yet"
            )),
            _ => Ok(self),
        }
    }

    /// The logs that were not taken in yet, the oldest first.
    pub(super) fn logs(&self, names: &[String]) -> Vec<String> {
        let number = |name: &String| {
            let number = name.strip_suffix(".log")?.parse::<Number>().ok()?;
            let is_live = Some(number) >= self.log || Some(number) == self.previous_log;
            is_live.then(|| (number, name.clone()))
        };
        let logs: BTreeMap<Number, String> = names.iter().filter_map(number).collect();
        logs.into_values().collect()
    }
}

fn check_level(level: u32) -> Result<(), LevelDbTrouble> {
    if level >= LEVELS {
        return damage(format!("an edit of level {level}"));
    }
    Ok(())
}
