//! What is in the files.

use super::{What, World};
use crate::dice::Dice;
use crate::words::Words;
use anyhow::Result;
use rusqlite::{Connection, params};
use std::path::Path;

/// A block of a log.
const LOG_BLOCK: usize = 32 << 10;
/// How many rows are written before we look how large a database is.
const ROWS: u64 = 200;

fn length(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The content of a planned file that is not a database.
pub(super) fn bytes(world: &World, path: &str, what: &What) -> Vec<u8> {
    let (words, mut dice) = (&world.words, world.dice(path));
    match what {
        What::Noise(size) => dice.noise(length(*size)),
        What::Prose(size) => words.prose(&mut dice, length(*size)),
        What::Source(size) => words.source(&mut dice, length(*size)),
        What::Json(size) => words.json(&mut dice, length(*size)),
        What::Mixed(size) => mixed(words, &mut dice, length(*size)),
        What::LevelLog(size) => level_log(words, &mut dice, length(*size)),
        What::LevelTable(size) => level_table(words, &mut dice, length(*size)),
        What::Common(size) => words.prose(&mut Dice::new(world.seed), length(*size)),
        What::Directory | What::Link(_) | What::Sqlite(_) | What::Pages(_) => Vec::new(),
    }
}

fn mixed(words: &Words, dice: &mut Dice, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 4096);
    while bytes.len() < size {
        let text = 512 + dice.index(2048);
        bytes.extend_from_slice(&words.source(dice, text));
        let noise = 32 + dice.index(256);
        bytes.extend_from_slice(&dice.noise(noise));
    }
    bytes.truncate(size);
    bytes
}

/// Records with a checksum, a length and a type, none across a block's end.
fn level_log(words: &Words, dice: &mut Dice, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 4096);
    while bytes.len() < size {
        let left = LOG_BLOCK - bytes.len() % LOG_BLOCK;
        let payload = record(words, dice);
        if left < 7 + payload.len() {
            bytes.resize(bytes.len() + left, 0);
            continue;
        }
        bytes.extend_from_slice(&dice.roll().to_le_bytes()[..4]);
        let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.push(1);
        bytes.extend_from_slice(&payload);
    }
    bytes.truncate(size);
    bytes
}

fn record(words: &Words, dice: &mut Dice) -> Vec<u8> {
    let key = format!("_https://{}.example\0{:016x}", words.any(dice), dice.roll());
    let mut record = key.into_bytes();
    let value = 40 + dice.index(400);
    let value = if dice.once_in(2) {
        words.json(dice, value)
    } else {
        words.prose(dice, value)
    };
    record.extend_from_slice(&value);
    record
}

/// Blocks of sorted keys, each with a trailer, and a footer with the magic.
fn level_table(words: &Words, dice: &mut Dice, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 8192);
    let mut number = 0_u64;
    while bytes.len() + 48 < size {
        let end = bytes.len() + 4096;
        while bytes.len() < end {
            number += 1 + dice.below(9);
            bytes.extend_from_slice(&number.to_be_bytes());
            bytes.extend_from_slice(&record(words, dice));
        }
        bytes.push(0);
        bytes.extend_from_slice(&dice.roll().to_le_bytes()[..4]);
    }
    bytes.truncate(size.saturating_sub(8));
    bytes.extend_from_slice(&0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    bytes.truncate(size);
    bytes
}

fn open(path: &Path) -> Result<Connection> {
    let database = Connection::open(path)?;
    database.execute_batch(
        "PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         PRAGMA cache_size = -16384; PRAGMA locking_mode = EXCLUSIVE;",
    )?;
    Ok(database)
}

/// A real database of about `size` bytes.
pub(super) fn sqlite(world: &World, path: &Path, size: u64) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut dice = world.dice(&name);
    let mut database = open(path)?;
    database.execute_batch(
        "CREATE TABLE visits (id INTEGER PRIMARY KEY, url TEXT, title TEXT, at INTEGER, token BLOB);
         CREATE INDEX by_time ON visits (at);",
    )?;
    loop {
        add_rows(world, &mut dice, &mut database, ROWS)?;
        let pages: i64 = database.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        if pages * 4096 >= i64::try_from(size)? {
            return Ok(());
        }
    }
}

fn add_rows(world: &World, dice: &mut Dice, database: &mut Connection, rows: u64) -> Result<()> {
    let words = &world.words;
    let transaction = database.transaction()?;
    let last: i64 =
        transaction.query_row("SELECT coalesce(max(id), 0) FROM visits", [], |row| {
            row.get(0)
        })?;
    {
        let mut insert = transaction
            .prepare("INSERT INTO visits (url, title, at, token) VALUES (?, ?, ?, ?)")?;
        for row in 1..=rows {
            let length = 40 + dice.index(160);
            let title = words.prose(dice, length);
            let url = format!(
                "https://{}.example/{}/{}?id={}",
                words.any(dice),
                words.any(dice),
                words.any(dice),
                dice.below(1 << 30)
            );
            let at = 13_400_000_000_000_000 + (last + i64::try_from(row)?) * 1_000_003;
            let token = dice.noise(8);
            insert.execute(params![url, String::from_utf8_lossy(&title), at, token])?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Adds a few rows to a database and touches one row in `every` others.
pub(super) fn use_sqlite(world: &World, path: &Path, every: i64) -> Result<()> {
    let mut dice = world.dice("use");
    let mut database = open(path)?;
    add_rows(world, &mut dice, &mut database, ROWS)?;
    database.execute(
        "UPDATE visits SET at = at + 17 WHERE id % ?1 = 3",
        params![every],
    )?;
    Ok(())
}
