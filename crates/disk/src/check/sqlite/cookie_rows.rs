//! Every cookie of a database with all that Chrome wrote down of it; its value only for who asks.
//!
//! Asked of SQLite in the same way as a check: on a copy, in another process, within limits. What that process says is
//! taken as the claims of a stranger. Texts travel as hexadecimal digits, so that none of them can look like another line.

use super::connection::open;
use super::limits::{ChildLimits, ChildTask, RowValues};
use super::process::{self, ChildEnd};
use crate::check::message::printable;
use crate::check::scratch::CheckScratch;
use crate::check::{CheckError, CheckSettings, Spawn};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use stasis_model::chrome::CookieLife;
use std::fmt::Write;

/// More cookies than this are not read.
const MOST: usize = 100_000;
/// An answer is no longer than this; a little less than what is heard of it.
const LONGEST: usize = 7 << 20;
const WORD: &str = "row ";
const VERSION: &str = "version ";
const WHOLE: &str = "whole";
const UNABLE: &str = "unable ";
/// What is asked of every row, in this order: texts or bytes, the last two the values; then numbers. A Chrome of another age may
/// lack all but the first two.
const COLUMNS: [&str; TEXTS + NUMBERS] = [
    "host_key",
    "name",
    "path",
    "top_frame_site_key",
    "value",
    "encrypted_value",
    "expires_utc",
    "is_persistent",
    "is_secure",
    "is_httponly",
    "samesite",
    "has_cross_site_ancestor",
];
const NEEDED: usize = 2;
const TEXTS: usize = 6;
const NUMBERS: usize = 6;
/// What stands for a text that is empty, and for a number that nobody knows.
const NOTHING: &str = "-";

/// One row of Chrome's table.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::check) struct CookieRow {
    pub(in crate::check) host: String,
    pub(in crate::check) name: String,
    pub(in crate::check) path: String,
    /// The site under which alone it counts; empty for most.
    pub(in crate::check) top_site: String,
    pub(in crate::check) value: Vec<u8>,
    pub(in crate::check) encrypted: Vec<u8>,
    pub(in crate::check) expires_utc: Option<i64>,
    pub(in crate::check) is_persistent: Option<bool>,
    pub(in crate::check) is_secure: bool,
    pub(in crate::check) is_http_only: bool,
    pub(in crate::check) same_site: i64,
    pub(in crate::check) has_cross_site_ancestor: Option<bool>,
}

impl CookieRow {
    /// How long it lasts.
    pub(in crate::check) fn life(&self) -> CookieLife {
        let known = self.is_persistent.zip(self.expires_utc);
        known.map_or(CookieLife::Unknown, |(is_persistent, expires)| {
            CookieLife::of_row(is_persistent, expires)
        })
    }
}

/// What a database has.
#[derive(Default)]
pub(in crate::check) struct CookieRows {
    /// The version of its schema, as it says.
    pub(in crate::check) version: i64,
    pub(in crate::check) rows: Vec<CookieRow>,
}

/// Reads the copy `db` in `scratch`, which has `bytes` with its journals; the inner failure is why it cannot be told.
pub(in crate::check) fn read(
    scratch: &CheckScratch,
    bytes: u64,
    values: RowValues,
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<Result<CookieRows, String>, CheckError> {
    let limits = ChildLimits {
        task: ChildTask::CookieRows(values),
        memory: settings.memory,
        seconds: settings.time.as_secs().saturating_add(1),
        largest: bytes.saturating_add(super::GROWTH),
        messages: settings.messages,
    };
    Ok(match process::run(spawn, &limits, scratch, settings)? {
        ChildEnd::TimedOut => Err("it took too long".to_owned()),
        ChildEnd::Said(said) => heard(&said),
    })
}

/// What the process says; without its last line it says nothing.
fn heard(said: &str) -> Result<CookieRows, String> {
    let mut found = CookieRows::default();
    for line in said.lines() {
        if let Some(row) = line.strip_prefix(WORD).and_then(row) {
            found.rows.push(row);
        } else if let Some(version) = line.strip_prefix(VERSION) {
            found.version = version.parse().unwrap_or(0);
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

fn row(line: &str) -> Option<CookieRow> {
    let words: Vec<&str> = line.split(' ').collect();
    let (texts, numbers) = words.split_at_checked(TEXTS)?;
    let texts: Vec<Vec<u8>> = texts.iter().map(|hex| bytes(hex)).collect::<Option<_>>()?;
    let texts: [Vec<u8>; TEXTS] = texts.try_into().ok()?;
    let number = |word: &&str| match *word {
        NOTHING => Some(None),
        word => word.parse::<i64>().ok().map(Some),
    };
    let numbers: Vec<Option<i64>> = numbers.iter().map(number).collect::<Option<_>>()?;
    let [
        expires_utc,
        persistent,
        secure,
        http_only,
        same_site,
        ancestor,
    ]: [Option<i64>; NUMBERS] = numbers.try_into().ok()?;
    // What is no text, such as half of a letter, is told apart and nothing more.
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let is_set = |number: i64| number != 0;
    let [host, name, path, top_site, value, encrypted] = texts;
    Some(CookieRow {
        host: text(host),
        name: text(name),
        path: text(path),
        top_site: text(top_site),
        value,
        encrypted,
        expires_utc,
        is_persistent: persistent.map(is_set),
        is_secure: secure.is_some_and(is_set),
        is_http_only: http_only.is_some_and(is_set),
        same_site: same_site.unwrap_or(-1),
        has_cross_site_ancestor: ancestor.map(is_set),
    })
}

/// The bytes that hexadecimal digits stand for.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    if hex == NOTHING {
        return Some(Vec::new());
    }
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let (pairs, left) = hex.as_bytes().as_chunks::<2>();
    let pairs = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if left.is_empty() {
        pairs.collect()
    } else {
        None
    }
}

/// Inside the other process: every row, one a line.
pub(super) fn answer(limits: &ChildLimits, values: RowValues) -> String {
    let why = match all(limits, values) {
        Ok(Ok(text)) => return text,
        Ok(Err(why)) => why,
        Err(error) => error.to_string(),
    };
    format!("{UNABLE}{}\n", printable(&why))
}

fn all(limits: &ChildLimits, values: RowValues) -> rusqlite::Result<Result<String, String>> {
    let connection = open(limits)?;
    let mut text = format!("{VERSION}{}\n", version(&connection));
    let columns: Vec<&str> = COLUMNS
        .iter()
        .enumerate()
        .map(|(at, name)| match column(&connection, name) {
            Err(_) if at >= NEEDED => "NULL",
            _ => name,
        })
        .collect();
    let columns = columns.join(", ");
    let mut statement = connection.prepare(&format!("SELECT {columns} FROM main.cookies"))?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        if count > MOST || text.len() > LONGEST {
            return Ok(Err(format!("it has more than {} cookies", count - 1)));
        }
        text += WORD;
        line(&mut text, row, values)?;
    }
    // The last row may have been a long one.
    if text.len() > LONGEST {
        return Ok(Err("its cookies are too long".to_owned()));
    }
    Ok(Ok(text + WHOLE + "\n"))
}

/// Whether the table has a column.
fn column(connection: &Connection, name: &str) -> rusqlite::Result<()> {
    let asked = format!("SELECT {name} FROM main.cookies");
    connection.prepare(&asked).map(|_| ())
}

fn line(text: &mut String, row: &Row<'_>, values: RowValues) -> rusqlite::Result<()> {
    for column in 0..TEXTS {
        let is_value = column >= TEXTS - 2;
        match row.get_ref(column)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes)
                if !bytes.is_empty() && (!is_value || values == RowValues::With) =>
            {
                for byte in bytes {
                    let _ = write!(text, "{byte:02x}");
                }
                text.push(' ');
            }
            _ => {
                text.push_str(NOTHING);
                text.push(' ');
            }
        }
    }
    for column in TEXTS..COLUMNS.len() {
        match row.get::<_, i64>(column) {
            Ok(number) => {
                let _ = write!(text, "{number}");
            }
            Err(_) => text.push_str(NOTHING),
        }
        let is_last = column + 1 == COLUMNS.len();
        text.push(if is_last { '\n' } else { ' ' });
    }
    Ok(())
}

/// The version of the schema; since 24 an encrypted value begins with a digest of its host.
fn version(connection: &Connection) -> i64 {
    let said = "SELECT CAST(value AS INTEGER) FROM main.meta WHERE key = 'version'";
    connection
        .query_row(said, [], |row| row.get(0))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_its_end_says_nothing() {
        let said = "version 24\nrow 2e61 62 2f - - 7631 5 1 0 1 -1 -\nrow 61 ff - - - - - - - - - 1\nwhole\n";

        let found = heard(said).unwrap();

        assert_eq!(found.version, 24);
        let [whole, little] = &found.rows[..] else {
            panic!("two rows");
        };
        assert_eq!((&*whole.host, &*whole.name), (".a", "b"));
        assert_eq!(whole.encrypted, b"v1");
        assert!(whole.is_http_only && !whole.is_secure);
        assert_eq!(whole.has_cross_site_ancestor, None);
        assert_eq!(
            (&*little.name, little.life()),
            ("\u{fffd}", CookieLife::Unknown)
        );
        assert_eq!(little.has_cross_site_ancestor, Some(true));
        for bad in [
            "",
            "version 24\n",
            "row 2e61 62 2f - - 7631 5 1 0 1 -1\nwhole\n",
            "row 2e6 62 2f - - 7631 5 1 0 1 0 -\nwhole\n",
            "row zz 62 2f - - 7631 5 1 0 1 0 -\nwhole\n",
            "row 61 62 2f - - 7631 5 1 0 1 x -\nwhole\n",
            "unable no such table\n",
        ] {
            assert!(heard(bad).is_err(), "{bad:?}");
        }
    }
}
