//! How many rows each table of a database has, for comparing two.
//!
//! Asked of SQLite in the same way as a check: in another process, within limits. What that process says is taken as the claims
//! of a stranger. Names travel as hexadecimal digits, so that none of them can look like another line.

use super::connection::open;
use super::limits::{ChildLimits, ChildTask};
use super::process::ChildEnd;
use super::{Originals, TaskPair};
use crate::check::message::printable;
use crate::check::{CheckError, CheckSettings, Spawn};
use crate::fs::root_dir::RootDir;
use rusqlite::Connection;
use rustix::io::Errno;
use stasis_model::tree::EntryPath;
use std::collections::BTreeMap;
use std::fmt::Write;

/// More tables than this are not counted.
const MOST: usize = 100_000;
/// An answer is no longer than this; a little less than what is heard of it.
const LONGEST: usize = 7 << 20;
const ROWS: &str = "rows ";
const UNCOUNTED: &str = "uncounted ";
const WHOLE: &str = "whole";
const UNABLE: &str = "unable ";
const TASKS: TaskPair = TaskPair {
    in_place: ChildTask::TableRowsInPlace,
    of_copy: ChildTask::TableRows,
};

/// The tables of a database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableRows {
    /// How many rows each has that could be counted.
    pub counted: BTreeMap<String, u64>,
    /// Why the others could not be: they are damaged, or need a module or an order that we lack.
    pub uncounted: BTreeMap<String, String>,
}

/// Counts the rows of the database at `path`; `None` when it does not begin like one. The inner failure is why nothing of it
/// can be told.
pub fn table_rows(
    root: &RootDir,
    path: &EntryPath,
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<Option<Result<TableRows, String>>, CheckError> {
    let originals = match Originals::open(root, path) {
        Ok(originals) => originals,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Ok(Some(Err(format!("it could not be opened: {error}")))),
    };
    if !originals.has_header {
        return Ok(None);
    }
    let bytes = originals.bytes();
    if bytes > settings.largest {
        let most = settings.largest;
        let why = format!("{bytes} bytes with its journals; {most} are allowed");
        return Ok(Some(Err(why)));
    }
    let rows = originals.ask(TASKS, settings, spawn, |ended| {
        let heard = match ended {
            ChildEnd::TimedOut => return Ok(Err("it took too long".to_owned())),
            ChildEnd::Said(said) => heard(&said),
        };
        // What cannot be opened where it lies may be opened as a copy.
        heard.map(Ok).map_err(Err)
    })?;
    let changed = || Err("it changed while it was copied".to_owned());
    Ok(Some(rows.unwrap_or_else(changed)))
}

/// What the process says; without its last line it says nothing.
fn heard(said: &str) -> Result<TableRows, String> {
    let mut found = TableRows::default();
    for line in said.lines() {
        if let Some((table, rows)) = line.strip_prefix(ROWS).and_then(named) {
            let Ok(rows) = rows.parse() else { break };
            found.counted.insert(table, rows);
        } else if let Some((table, why)) = line.strip_prefix(UNCOUNTED).and_then(named) {
            found.uncounted.insert(table, printable(why));
        } else if let Some(why) = line.strip_prefix(UNABLE) {
            return Err(printable(why));
        } else if line == WHOLE {
            return Ok(found);
        } else {
            break;
        }
    }
    Err("the process that read it died without an answer".to_owned())
}

/// The name of a table, and what is said of it.
fn named(line: &str) -> Option<(String, &str)> {
    let (hex, said) = line.split_once(' ')?;
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let bytes = pairs
        .iter()
        .map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok());
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    Some((String::from_utf8_lossy(&bytes).into_owned(), said))
}

/// Inside the other process: every table, one a line.
pub(super) fn answer(limits: &ChildLimits) -> String {
    let why = match all(limits) {
        Ok(Ok(text)) => return text,
        Ok(Err(why)) => why,
        Err(error) => error.to_string(),
    };
    format!("{UNABLE}{}\n", printable(&why))
}

fn all(limits: &ChildLimits) -> rusqlite::Result<Result<String, String>> {
    let connection = open(limits)?;
    let mut statement = connection.prepare(
        "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
    )?;
    let mut rows = statement.query([])?;
    let (mut text, mut count) = (String::new(), 0);
    while let Some(row) = rows.next()? {
        count += 1;
        if count > MOST {
            return Ok(Err(format!("it has more than {MOST} tables")));
        }
        // A table whose name is no text has none that could be asked for.
        if let Ok(name) = row.get::<_, String>(0) {
            line(&mut text, &connection, &name);
        }
        if text.len() > LONGEST {
            return Ok(Err("the names of its tables are too long".to_owned()));
        }
    }
    Ok(Ok(text + WHOLE + "\n"))
}

fn line(text: &mut String, connection: &Connection, name: &str) {
    let quoted = name.replace('"', "\"\"");
    let asked = format!("SELECT count(*) FROM main.\"{quoted}\"");
    let counted = connection.query_row(&asked, [], |row| row.get::<_, i64>(0));
    let mut hex = String::new();
    for byte in name.as_bytes() {
        let _ = write!(hex, "{byte:02x}");
    }
    let _ = match counted {
        Ok(rows) => writeln!(text, "{ROWS}{hex} {rows}"),
        Err(error) => writeln!(text, "{UNCOUNTED}{hex} {}", printable(&error.to_string())),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_its_end_says_nothing() {
        let found =
            heard("rows 61 2\nuncounted 6220 no such module: x\nrows  0\nwhole\nrows 63 1\n");

        let found = found.unwrap();
        let counted = [(String::new(), 0), ("a".to_owned(), 2)];
        assert_eq!(found.counted, BTreeMap::from(counted));
        assert_eq!(found.uncounted["b "], "no such module: x");
        for bad in [
            "",
            "rows 61 2\n",
            "rows 61 -2\nwhole\n",
            "rows 61 2 3\nwhole\n",
            "rows 6 2\nwhole\n",
            "rows zz 2\nwhole\n",
            "rows 61\nwhole\n",
            "sound\nwhole\n",
        ] {
            let why = heard(bad).unwrap_err();
            assert!(why.contains("died without an answer"), "{bad:?}: {why}");
        }
        assert_eq!(heard("unable a\u{7}b\nwhole\n").unwrap_err(), "a\u{fffd}b");
    }
}
