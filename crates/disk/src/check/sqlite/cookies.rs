//! Which cookies a database has, by site and name, and how long they last: never a value.
//!
//! Asked of SQLite in the same way as a check: on a copy, in another process, within limits. What that process says is
//! taken as the claims of a stranger.

use super::connection::open;
use super::limits::{ChildLimits, ChildTask};
use super::process::{self, ChildEnd};
use crate::check::message::printable;
use crate::check::scratch::CheckScratch;
use crate::check::{CheckError, CheckSettings, Spawn};
use rusqlite::Row;
use rusqlite::types::ValueRef;
use stasis_model::chrome::CookieLife;
use stasis_model::time::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Write;

/// More cookies than this are not named.
const MOST: usize = 100_000;
/// An answer is no longer than this; a little less than what is heard of it.
const LONGEST: usize = 7 << 20;
const WORD: &str = "cookie ";
const WHOLE: &str = "whole";
const UNABLE: &str = "unable ";
/// What stands for the end of a cookie that lasts as long as the browser.
const SESSION: &str = "session";
/// What stands for an end that nobody knows.
const UNKNOWN: &str = "-";

/// The cookies by site and name; else why they cannot be told.
pub(in crate::check) type Cookies = Result<BTreeMap<(String, String), CookieLife>, String>;

/// Reads the names from the copy `db` in `scratch`, which has `bytes` with its journals.
pub(in crate::check) fn read(
    scratch: &CheckScratch,
    bytes: u64,
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<Cookies, CheckError> {
    let limits = ChildLimits {
        task: ChildTask::Cookies,
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
fn heard(said: &str) -> Cookies {
    let mut cookies = BTreeMap::new();
    for line in said.lines() {
        if let Some((site, name, life)) = line.strip_prefix(WORD).and_then(three) {
            let longest = cookies.entry((printable(site), printable(name)));
            let longest = longest.or_insert(life);
            *longest = life.max(*longest);
        } else if let Some(why) = line.strip_prefix(UNABLE) {
            return Err(printable(why));
        } else if line == WHOLE {
            return Ok(cookies);
        } else {
            break;
        }
    }
    Err("the process that read it died without an answer".to_owned())
}

/// Site, name and end of one line.
fn three(line: &str) -> Option<(&str, &str, CookieLife)> {
    let (site, rest) = line.split_once('\t')?;
    let (name, end) = rest.split_once('\t')?;
    let expiry = match end {
        SESSION => CookieLife::Session,
        UNKNOWN => CookieLife::Unknown,
        millis => CookieLife::Until(Timestamp::from_millis(millis.parse().ok()?)),
    };
    Some((site, name, expiry))
}

/// Inside the other process: all names, one a line.
pub(super) fn answer(limits: &ChildLimits) -> String {
    let why = match names(limits) {
        Ok(Ok(text)) => return text,
        Ok(Err(why)) => why,
        Err(error) => error.to_string(),
    };
    format!("{UNABLE}{}\n", printable(&why))
}

/// The names; or why not all of them are wanted.
fn names(limits: &ChildLimits) -> rusqlite::Result<Result<String, String>> {
    let connection = open(limits)?;
    // A Chrome that has other columns still has these names.
    let full = "SELECT host_key, name, is_persistent, expires_utc FROM main.cookies";
    let short = "SELECT host_key, name FROM main.cookies";
    let (mut all, has_ends) = match connection.prepare(full) {
        Ok(all) => (all, true),
        Err(_) => (connection.prepare(short)?, false),
    };
    let mut rows = all.query([])?;
    let (mut text, mut count) = (String::new(), 0);
    while let Some(row) = rows.next()? {
        let site = word(row.get_ref(0)?);
        let name = word(row.get_ref(1)?);
        let end = if has_ends {
            end(row)
        } else {
            UNKNOWN.to_owned()
        };
        count += 1;
        if count > MOST || text.len() > LONGEST {
            return Ok(Err(format!("it has more than {} cookies", count - 1)));
        }
        let _ = writeln!(text, "{WORD}{site}\t{name}\t{end}");
    }
    Ok(Ok(text + WHOLE + "\n"))
}

/// When the cookie of a row ends.
fn end(row: &Row<'_>) -> String {
    let number = |column| row.get::<_, i64>(column).ok();
    match number(2).zip(number(3)) {
        None => UNKNOWN.to_owned(),
        Some((is_persistent, expires)) => match CookieLife::of_row(is_persistent != 0, expires) {
            CookieLife::Session => SESSION.to_owned(),
            CookieLife::Until(moment) => moment.millis().to_string(),
            CookieLife::Unknown => UNKNOWN.to_owned(),
        },
    }
}

/// A text of the database as one harmless line; a tab in it is a space from here on.
fn word(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Text(bytes) => printable(&String::from_utf8_lossy(bytes)),
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_its_end_names_nothing() {
        let said = "cookie .example.com\tsid\t5\ncookie a.b\t\t-\nwhole\n";

        let cookies = heard(said).unwrap();

        let cookie = (".example.com".to_owned(), "sid".to_owned());
        let until = CookieLife::Until(Timestamp::from_millis(5));
        assert_eq!(cookies.get(&cookie), Some(&until));
        assert_eq!(cookies.len(), 2);
        for bad in [
            "",
            "cookie a\tb\t-\n",
            "cookie a\tb\nwhole\n",
            "cookie a\tb\tx\nwhole\n",
            "cookie ab\nwhole\n",
            "unable no such table\n",
        ] {
            assert!(heard(bad).is_err(), "{bad:?}");
        }
    }
}
