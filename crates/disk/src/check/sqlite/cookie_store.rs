//! What the key to the cookies of a profile is, by how their encrypted values begin; never a value.

use super::connection::open;
use super::limits::{ChildLimits, ChildTask};
use super::process::{self, ChildEnd};
use super::{GROWTH, Originals};
use crate::check::scratch::{CheckScratch, CopyState};
use crate::check::{CheckError, CheckSettings, Spawn};
use crate::fs::root_dir::RootDir;
use stasis_model::chrome;
use stasis_model::format::manifest::CookieStore;
use stasis_model::tree::EntryPath;

const WORD: &str = "begins ";
const WHOLE: &str = "whole";
/// More different beginnings than this are nobody's.
const MOST: usize = 16;

/// Looks into the first database of cookies that the profile beneath `root` has.
pub fn cookie_store(
    root: &RootDir,
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<CookieStore, CheckError> {
    let paths = chrome::COOKIES.iter();
    let mut paths = paths.filter_map(|path| EntryPath::parse(path.as_bytes()).ok());
    let Some(originals) = paths.find_map(|path| Originals::open(root, &path).ok()) else {
        return Ok(CookieStore::None);
    };
    let bytes = originals.bytes();
    if bytes > settings.largest {
        return Ok(CookieStore::Unknown);
    }
    let scratch = CheckScratch::make(&settings.scratch)?;
    if originals.copy(&scratch, settings)? == CopyState::Torn {
        return Ok(CookieStore::Unknown);
    }
    let limits = ChildLimits {
        task: ChildTask::CookieStore,
        memory: settings.memory,
        seconds: settings.time.as_secs().saturating_add(1),
        largest: bytes.saturating_add(GROWTH),
        messages: settings.messages,
    };
    Ok(match process::run(spawn, &limits, &scratch, settings)? {
        ChildEnd::TimedOut => CookieStore::Unknown,
        ChildEnd::Said(said) => heard(&said),
    })
}

/// What the process says; without its last line it says nothing.
fn heard(said: &str) -> CookieStore {
    if said.lines().last() != Some(WHOLE) {
        return CookieStore::Unknown;
    }
    let begins = said.lines().filter_map(|line| line.strip_prefix(WORD));
    chrome::cookie_store(begins.map(str::as_bytes))
}

/// Inside the other process: every beginning, one a line.
pub(super) fn answer(limits: &ChildLimits) -> String {
    begins(limits).unwrap_or_default()
}

fn begins(limits: &ChildLimits) -> rusqlite::Result<String> {
    let connection = open(limits)?;
    let query = "SELECT DISTINCT hex(substr(encrypted_value, 1, 3)) FROM main.cookies";
    let mut all = connection.prepare(query)?;
    let mut rows = all.query([])?;
    let (mut text, mut count) = (String::new(), 0);
    while let Some(row) = rows.next()? {
        let begin: String = row.get(0)?;
        // A value that is not encrypted begins with nothing.
        let word = match &*begin {
            "" => "",
            "763130" => "v10",
            "763131" => "v11",
            _ => "???",
        };
        count += 1;
        if count > MOST {
            break;
        }
        text.push_str(WORD);
        text.push_str(word);
        text.push('\n');
    }
    Ok(text + WHOLE + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_says_is_believed_only_when_it_is_whole() {
        assert_eq!(heard("begins v10\nbegins \nwhole\n"), CookieStore::Basic);
        assert_eq!(heard("begins v11\nwhole\n"), CookieStore::Keyring);
        assert_eq!(heard("whole\n"), CookieStore::None);
        assert_eq!(heard("begins ???\nwhole\n"), CookieStore::Unknown);
        assert_eq!(heard("begins v10\n"), CookieStore::Unknown);
        assert_eq!(heard(""), CookieStore::Unknown);
    }
}
