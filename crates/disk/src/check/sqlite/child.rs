//! Inside the other process: bound to its limits before it opens anything.

use super::answer::{SqliteAnswer, SqliteClaim};
use super::connection::open;
use super::limits::{ChildLimits, ChildTask, enclose};
use super::{cookie_rows, cookie_store, table_rows};
use crate::check::find::{self, JOURNAL};
use crate::check::{Depth, Messages, Recovered};
use crate::fs::sys::confine::{Reach, confine};
use crate::fs::sys::open::PLACE;
use rusqlite::{Connection, ErrorCode};
use rustix::fs::{self, Mode, OFlags};
use std::ffi::OsString;
use std::os::fd::AsFd;

/// How many tables are asked one by one.
const MOST_TABLES: usize = 100_000;
/// What SQLite says of a schema that it does not trust.
const UNSAFE: &str = " - unsafe use of ";

/// Checks the copy in the current directory, or the database that standard input is; returns what to write to standard
/// output.
///
/// To be called first thing in a process that was started for nothing else, with the arguments it was started with: it
/// gives up most of what a process may do.
pub fn child(arguments: &[OsString]) -> String {
    let Some(limits) = ChildLimits::parse(arguments) else {
        return unable("the limits are not understood").to_string();
    };
    if let Err(error) = bind(&limits) {
        return unable(&format!("the limits cannot be set: {error}")).to_string();
    }
    let depth = match limits.task {
        ChildTask::Check(depth) | ChildTask::CheckInPlace(depth) => depth,
        ChildTask::CookieRows(values) => return cookie_rows::answer(&limits, values),
        ChildTask::CookieStore => return cookie_store::answer(&limits),
        ChildTask::TableRows | ChildTask::TableRowsInPlace => return table_rows::answer(&limits),
    };
    let pending = PendingAnswer::see();
    let mut answer = match check(&limits, depth) {
        Ok(answer) => answer,
        Err(error) => refusal(&error, limits.messages),
    };
    answer.recovered = pending.recovered();
    answer.to_string()
}

/// Gives up, for good, what the task does not need.
///
/// What the system does not enforce is done without: then the limits have to do, and that what is opened is a copy or cannot be written to.
fn bind(limits: &ChildLimits) -> rustix::io::Result<()> {
    limits.bind()?;
    if limits.task.is_in_place() {
        // The directory in which it lies must be seen until it is open: its root is changed then.
        confine(Reach::File(std::io::stdin().as_fd()));
        return Ok(());
    }
    enclose()?;
    let flags = PLACE | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = fs::open(".", flags, Mode::empty())?;
    confine(Reach::Directory(directory.as_fd()));
    Ok(())
}

fn unable(why: &str) -> SqliteAnswer {
    let mut answer = SqliteAnswer::new(SqliteClaim::Unable);
    answer.messages.push(1, why);
    answer
}

/// What an error of SQLite says about the database.
fn refusal(error: &rusqlite::Error, most: usize) -> SqliteAnswer {
    let mut answer = SqliteAnswer::new(match code(error) {
        // The schema calls something that only people may call; a program that trusts its schema could open it.
        Some(ErrorCode::DatabaseCorrupt) if error.to_string().contains(UNSAFE) => {
            SqliteClaim::Unable
        }
        Some(ErrorCode::DatabaseCorrupt) => SqliteClaim::Damaged,
        Some(ErrorCode::NotADatabase) => SqliteClaim::NotADatabase,
        Some(ErrorCode::OutOfMemory | ErrorCode::TooBig | ErrorCode::DiskFull) => {
            SqliteClaim::Limit
        }
        _ => SqliteClaim::Unable,
    });
    answer.messages.push(most, &error.to_string());
    answer
}

fn check(limits: &ChildLimits, depth: Depth) -> rusqlite::Result<SqliteAnswer> {
    let connection = open(limits)?;
    let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    let check = match depth {
        Depth::Quick => "quick_check",
        Depth::Full => "integrity_check",
    };
    let whole = format!("PRAGMA main.{check}({})", limits.messages.max(1));
    let (messages, unchecked) = match rows(&connection, &whole, limits.messages) {
        Ok(messages) => (messages, Messages::default()),
        Err(error) if is_about_us(&error) => table_by_table(&connection, check, limits)?,
        Err(error) => return Err(error),
    };
    let claim = if messages.is_empty() {
        SqliteClaim::Sound
    } else {
        SqliteClaim::Damaged
    };
    Ok(SqliteAnswer {
        pages: u64::try_from(pages).unwrap_or(0),
        messages,
        unchecked,
        ..SqliteAnswer::new(claim)
    })
}

/// Whether the statement could not be made at all: something that the database's own program has, and we have not.
fn is_about_us(error: &rusqlite::Error) -> bool {
    matches!(code(error), Some(ErrorCode::Unknown))
}

fn code(error: &rusqlite::Error) -> Option<ErrorCode> {
    match error {
        rusqlite::Error::SqlInputError { error, .. } => Some(error.code),
        error => error.sqlite_error_code(),
    }
}

/// What a check says, less `ok`.
fn rows(connection: &Connection, check: &str, most: usize) -> rusqlite::Result<Messages> {
    let mut messages = Messages::default();
    let mut statement = connection.prepare(check)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let said = row.get_ref(0)?.as_bytes().map(String::from_utf8_lossy);
        let said = said.unwrap_or_else(|_| "something that is no text".into());
        for line in said.lines().filter(|line| *line != "ok") {
            messages.push(most, line);
        }
    }
    Ok(messages)
}

/// Checks each table by itself; returns what is wrong, and which ones need something that we lack.
fn table_by_table(
    connection: &Connection,
    check: &str,
    limits: &ChildLimits,
) -> rusqlite::Result<(Messages, Messages)> {
    let (mut wrong, mut unchecked) = (Messages::default(), Messages::default());
    let mut statement =
        connection.prepare("SELECT name FROM main.sqlite_schema WHERE type = 'table'")?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    let names: Vec<String> = names.take(MOST_TABLES).collect::<Result<_, _>>()?;
    for name in names.iter().map(String::as_str).chain(["sqlite_schema"]) {
        let quoted = name.replace('"', "\"\"");
        match rows(
            connection,
            &format!("PRAGMA main.{check}(\"{quoted}\")"),
            limits.messages,
        ) {
            Ok(messages) => messages
                .kept()
                .iter()
                .for_each(|message| wrong.push(limits.messages, message)),
            Err(error) if is_about_us(&error) => {
                unchecked.push(limits.messages, &format!("{name}: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok((wrong, unchecked))
}

/// What was waiting to be recovered before SQLite looked.
struct PendingAnswer {
    journal: bool,
    wal: bool,
}

impl PendingAnswer {
    fn see() -> Self {
        let header = |name| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let file = fs::open(name, flags, Mode::empty()).ok();
            file.and_then(|file| find::header(&file).ok())
                .unwrap_or_default()
        };
        Self {
            journal: header("db-journal").starts_with(JOURNAL),
            wal: find::is_wal(&header("db-wal")),
        }
    }

    /// A journal that was rolled back is gone, or has lost its header.
    fn recovered(&self) -> Recovered {
        if self.journal && !Self::see().journal {
            Recovered::Journal
        } else if self.wal {
            Recovered::Wal
        } else {
            Recovered::Nothing
        }
    }
}

#[cfg(test)]
mod tests;
