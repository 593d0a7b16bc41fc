//! Inside the other process: bound to its limits before it opens anything.

use super::answer::{SqliteAnswer, SqliteClaim};
use super::{cookie_store, cookies};
use crate::check::find::{self, JOURNAL};
use crate::check::{Depth, Messages, Recovered};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{self, Mode, OFlags};
use rustix::process::{self, Resource, Rlimit};
use std::ffi::OsString;

/// How many tables are asked one by one.
const MOST_TABLES: usize = 100_000;
/// What SQLite says of a schema that it does not trust.
const UNSAFE: &str = " - unsafe use of ";

/// What the process is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChildTask {
    /// Checks the database.
    Check(Depth),
    /// Says which cookies are in it, by site and name.
    Cookies,
    /// Says how the encrypted values of cookies begin.
    CookieStore,
}

const TASKS: [(ChildTask, &str); 4] = [
    (ChildTask::CookieStore, "cookie-store"),
    (ChildTask::Check(Depth::Quick), "quick"),
    (ChildTask::Check(Depth::Full), "full"),
    (ChildTask::Cookies, "cookies"),
];

/// What the process is for, and what it may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ChildLimits {
    pub(super) task: ChildTask,
    pub(super) memory: u64,
    pub(super) seconds: u64,
    pub(super) largest: u64,
    pub(super) messages: usize,
}

impl ChildLimits {
    /// The words that [`child`] reads.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let task = TASKS.iter().find(|(task, _)| *task == self.task);
        let task = task.map_or("quick", |(_, word)| word);
        let numbers = [
            self.memory,
            self.seconds,
            self.largest,
            self.messages as u64,
        ];
        let numbers = numbers.iter().map(u64::to_string);
        std::iter::once(task.to_owned())
            .chain(numbers)
            .map(OsString::from)
            .collect()
    }

    fn parse(arguments: &[OsString]) -> Option<Self> {
        let [task, numbers @ ..] = arguments else {
            return None;
        };
        let number = |text: &OsString| text.to_str()?.parse::<u64>().ok();
        let numbers: Vec<u64> = numbers.iter().map(number).collect::<Option<_>>()?;
        let [memory, seconds, largest, messages] = numbers[..] else {
            return None;
        };
        Some(Self {
            task: TASKS.iter().find(|(_, word)| *task == **word)?.0,
            memory,
            seconds,
            largest,
            messages: usize::try_from(messages).ok()?,
        })
    }

    /// Binds this process, for good.
    fn bind(&self) -> rustix::io::Result<()> {
        let limits = [
            (Resource::Core, 0),
            (Resource::As, self.memory),
            (Resource::Cpu, self.seconds),
            (Resource::Fsize, self.largest),
            (Resource::Nofile, 64),
        ];
        for (resource, limit) in limits {
            let most = process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
            let limit = Some(limit.min(most));
            let both = Rlimit {
                current: limit,
                maximum: limit,
            };
            process::setrlimit(resource, both)?;
        }
        // Only root may; for everybody else the limits and the copy have to do.
        if process::chroot(".").is_ok() {
            process::chdir("/")?;
        }
        Ok(())
    }
}

/// Checks the copy in the current directory; returns what to write to standard output.
///
/// To be called first thing in a process that was started for nothing else, with the arguments it was started with: it
/// gives up most of what a process may do.
pub fn child(arguments: &[OsString]) -> String {
    let Some(limits) = ChildLimits::parse(arguments) else {
        return unable("the limits are not understood").to_string();
    };
    if let Err(error) = limits.bind() {
        return unable(&format!("the limits cannot be set: {error}")).to_string();
    }
    let depth = match limits.task {
        ChildTask::Check(depth) => depth,
        ChildTask::Cookies => return cookies::told(&limits),
        ChildTask::CookieStore => return cookie_store::told(&limits),
    };
    let pending = PendingAnswer::see();
    let mut answer = match check(&limits, depth) {
        Ok(answer) => answer,
        Err(error) => refusal(&error, limits.messages),
    };
    answer.recovered = pending.recovered();
    answer.to_string()
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

/// Opens the copy so that nothing in it is trusted, and recovers it.
pub(super) fn open(limits: &ChildLimits) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags("db", flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Lower limits on what the schema may say would make a large honest one look malformed.
    for (limit, most) in [
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, most)?;
    }
    // With an exclusive lock the index of a log stays in memory; a constraint is an opinion, not damage.
    let heap = limits.memory / 2;
    connection.execute_batch(&format!(
        "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192;
         PRAGMA hard_heap_limit = {heap}; PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF;
         PRAGMA ignore_check_constraints = ON;"
    ))?;
    Ok(connection)
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
