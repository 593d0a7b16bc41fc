//! Which cookies a database has, by site and name: never a value.
//!
//! Asked of SQLite in the same way as a check: on a copy, in another process, within limits. What that process says is
//! taken as the claims of a stranger.

use super::child::{self, Limits, Task};
use super::process::{self, Ended};
use crate::check::message::printable;
use crate::check::scratch::Scratch;
use crate::check::{CheckError, CheckSettings, Spawn};
use rusqlite::types::ValueRef;
use std::collections::BTreeSet;
use std::fmt::Write;

/// More cookies than this are not named.
const MOST: usize = 100_000;
/// An answer is no longer than this; a little less than what is heard of it.
const LONGEST: usize = 7 << 20;
const WORD: &str = "cookie ";
const WHOLE: &str = "whole";
const UNABLE: &str = "unable ";

/// The cookies by site and name; else why they cannot be told.
pub(in crate::check) type Cookies = Result<BTreeSet<(String, String)>, String>;

/// Reads the names from the copy `db` in `scratch`, which has `bytes` with its journals.
pub(in crate::check) fn read(
    scratch: &Scratch,
    bytes: u64,
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<Cookies, CheckError> {
    let limits = Limits {
        task: Task::Cookies,
        memory: settings.memory,
        seconds: settings.time.as_secs().saturating_add(1),
        largest: bytes.saturating_add(super::GROWTH),
        messages: settings.messages,
    };
    Ok(match process::run(spawn, &limits, scratch, settings)? {
        Ended::TimedOut => Err("it took too long".to_owned()),
        Ended::Said(said) => heard(&said),
    })
}

/// What the process says; without its last line it says nothing.
fn heard(said: &str) -> Cookies {
    let mut cookies = BTreeSet::new();
    for line in said.lines() {
        if let Some((site, name)) = line.strip_prefix(WORD).and_then(|it| it.split_once('\t')) {
            cookies.insert((printable(site), printable(name)));
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

/// Inside the other process: all names, one a line.
pub(super) fn told(limits: &Limits) -> String {
    match names(limits) {
        Ok(text) => text,
        Err(why) => format!("{UNABLE}{}\n", printable(&why)),
    }
}

fn names(limits: &Limits) -> Result<String, String> {
    let say = |error: rusqlite::Error| error.to_string();
    let connection = child::open(limits).map_err(say)?;
    let all = connection.prepare("SELECT host_key, name FROM main.cookies");
    let mut all = all.map_err(say)?;
    let mut rows = all.query([]).map_err(say)?;
    let (mut text, mut count) = (String::new(), 0);
    while let Some(row) = rows.next().map_err(say)? {
        let site = word(row.get_ref(0).map_err(say)?);
        let name = word(row.get_ref(1).map_err(say)?);
        count += 1;
        if count > MOST || text.len() > LONGEST {
            return Err(format!("it has more than {} cookies", count - 1));
        }
        let _ = writeln!(text, "{WORD}{site}\t{name}");
    }
    Ok(text + WHOLE + "\n")
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
        let said = "cookie .example.com\tsid\ncookie a.b\t\nwhole\n";

        let cookies = heard(said).unwrap();

        assert!(cookies.contains(&(".example.com".to_owned(), "sid".to_owned())));
        assert_eq!(cookies.len(), 2);
        for bad in [
            "",
            "cookie a\tb\n",
            "cookie ab\nwhole\n",
            "unable no such table\n",
        ] {
            assert!(heard(bad).is_err(), "{bad:?}");
        }
    }
}
