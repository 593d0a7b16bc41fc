//! Whether a copy is whole.

use super::retry_budget::RetryBudget;
use super::{ReadContext, SqliteError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How many findings are reported.
const MOST: usize = 10;

/// What `integrity_check` found in a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Integrity {
    /// Nothing.
    Ok,
    /// Nothing in what could be checked: some tables need an order or a function that only the application knows.
    OkExcept {
        /// These tables.
        unchecked: Vec<String>,
    },
    /// The first things.
    Failed(Vec<String>),
}

/// Checks the copy of `source` without writing to it or beside it.
pub(super) fn check(
    source: &Path,
    copy: &Path,
    budget: &RetryBudget,
) -> Result<Integrity, SqliteError> {
    match check_copy(copy, budget).reading("check the copy of", source) {
        // It could be copied, so it is a database; its inside is not.
        Err(SqliteError::NotADatabase { path }) => Err(SqliteError::Damaged {
            path,
            messages: vec!["its header is damaged".to_owned()],
        }),
        checked => checked,
    }
}

fn check_copy(copy: &Path, budget: &RetryBudget) -> rusqlite::Result<Integrity> {
    let connection = open(copy, budget)?;
    match findings(&connection, &format!("PRAGMA integrity_check({MOST})")) {
        Err(error) if needs_application(&error) => one_by_one(&connection),
        found => Ok(verdict(&found?, Integrity::Ok)),
    }
}

/// An order or a function is missing here, which is no fault of the database.
fn needs_application(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::Unknown)
}

/// Checks every table that can be checked by itself.
fn one_by_one(connection: &Connection) -> rusqlite::Result<Integrity> {
    let tables = findings(
        connection,
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0",
    )?;
    let (mut unchecked, mut found) = (Vec::new(), Vec::new());
    for table in tables {
        let name = table.replace('\'', "''");
        match findings(connection, &format!("PRAGMA integrity_check('{name}')")) {
            Err(error) if needs_application(&error) => unchecked.push(table),
            findings => found.extend(findings?.into_iter().filter(|finding| finding != "ok")),
        }
    }
    let found = lines(&found);
    if found.is_empty() {
        return Ok(Integrity::OkExcept { unchecked });
    }
    Ok(Integrity::Failed(found))
}

fn verdict(findings: &[String], good: Integrity) -> Integrity {
    match findings.first().map(String::as_str) {
        Some("ok") => good,
        _ => Integrity::Failed(lines(findings)),
    }
}

/// No other process knows of the copy yet, so it need not be locked; so a log is neither looked for nor made.
fn open(path: &Path, budget: &RetryBudget) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_URI;
    let mut connection = Connection::open_with_flags(address(path), flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.execute_batch("PRAGMA cell_size_check = ON")?;
    budget.bind(&mut connection)?;
    Ok(connection)
}

fn address(path: &Path) -> String {
    let mut address = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                address.push(char::from(*byte));
            }
            _ => write!(address, "%{byte:02x}").expect("a string takes all that is written"),
        }
    }
    address + "?immutable=1"
}

fn findings(connection: &Connection, sql: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    rows.collect()
}

/// One finding a line: SQLite may put all findings about pages into one, under a heading.
fn lines(findings: &[String]) -> Vec<String> {
    let lines = findings.iter().flat_map(|finding| finding.lines());
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("*** in database"));
    lines.take(MOST).map(str::to_owned).collect()
}

/// The first finding, and how many more there are.
pub(super) fn summary(messages: &[String]) -> String {
    match messages {
        [] => String::new(),
        [only] => only.clone(),
        [first, more @ ..] => format!("{first} (and {} more findings)", more.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_much_is_found_it_is_told_on_one_line() {
        let pages = "*** in database main ***\nOn tree page 26 cell 7: Extends off end of page\nOn tree page 26 cell 6: Extends off end of page";
        let found = [pages.to_owned(), "row 3 missing from index i".to_owned()];

        let Integrity::Failed(messages) = verdict(&found, Integrity::Ok) else {
            panic!("it is damaged");
        };

        assert_eq!(messages.len(), 3, "{messages:?}");
        let error = SqliteError::Damaged {
            path: "/a.db".into(),
            messages,
        };
        let told = "`/a.db` is damaged: On tree page 26 cell 7: Extends off end of page (and 2 more findings)";
        assert_eq!(error.to_string(), told);
        assert_eq!(summary(&["one".to_owned()]), "one");
    }
}
