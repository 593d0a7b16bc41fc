//! What a Chrome profile says of itself, and which parts of it are what.

use crate::format::manifest::CookieStore;
use crate::id::{ChromeMajor, Label};
use crate::time::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;

/// Never part of a snapshot, as gitignore-style patterns: who runs where, which is true of one host only.
pub const LEFT_OUT: [&str; 4] = [
    "/SingletonLock",
    "/SingletonSocket",
    "/SingletonCookie",
    "/DevToolsActivePort",
];

/// What Chrome makes again by itself, as gitignore-style patterns. What pages keep on purpose (`Service Worker/CacheStorage`,
/// `Service Worker/ScriptCache`) is none of it.
pub const CACHES: [&str; 17] = [
    "/*/Cache/",
    "/*/Code Cache/",
    "/*/GPUCache/",
    "/*/Dawn*Cache/",
    "/*/GPUPersistentCache/",
    "/*/Shared Dictionary/",
    "/*/shared_proto_db/",
    "/*/*_crx_cache/",
    "/*/Safe Browsing*",
    "/*ShaderCache/",
    "/*DawnCache/",
    "/GPUPersistentCache/",
    "/*_crx_cache/",
    "/Safe Browsing/",
    "/segmentation_platform/",
    "/OptimizationGuideModelsManifest",
    "/optimization_guide_model_store/",
];

/// Where Chrome writes which version of it started last.
pub const LAST_VERSION: &str = "Last Version";
/// Where a profile's settings are, below the user data directory.
pub const PREFERENCES: &str = "Default/Preferences";
/// Where cookies are, below the user data directory: the newer place first.
pub const COOKIES: [&str; 2] = ["Default/Cookies", "Default/Network/Cookies"];

/// What Chrome keeps in SQLite databases, in the directory of a profile (`Default`) or in `Network` there.
const SQLITE_NAMES: [&str; 13] = [
    "Account Web Data",
    "Affiliation Database",
    "Cookies",
    "Extension Cookies",
    "Favicons",
    "History",
    "Login Data",
    "Login Data For Account",
    "Reporting and NEL",
    "Safe Browsing Cookies",
    "Top Sites",
    "Trust Tokens",
    "Web Data",
];
/// Those of them without which a user is signed out: cookies, passwords, and the tokens of accounts. Chrome empties them, but
/// never deletes them.
const LOGIN_NAMES: [&str; 3] = ["Cookies", "Login Data", "Web Data"];
/// The profile that every user data directory has; others may be removed by their user, with everything in them.
const FIRST_PROFILE: &str = "Default";

/// The files of a user data directory that lie where no path names a site: at its top, in each directory there, and in
/// `Network` of each of these.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DatabaseFiles {
    /// Those that begin like a SQLite database.
    pub sqlite: BTreeSet<String>,
    /// Those that hold something else. Empty files are in neither set.
    pub other: BTreeSet<String>,
}

impl DatabaseFiles {
    /// The files that should be SQLite databases and are none: by their names, or because they were, `before`.
    pub fn unrecognised(&self, before: &[String]) -> Vec<String> {
        let is_expected = |path: &&String| {
            let name = parts(path).map(|(_, name)| name);
            name.is_some_and(|name| SQLITE_NAMES.contains(&name)) || before.contains(path)
        };
        self.other.iter().filter(is_expected).cloned().collect()
    }

    /// The databases of logins that there were `before`, and of which nothing is left: the file is gone or empty.
    ///
    /// A profile other than the first one may go as a whole: its user removed it.
    pub fn lost_logins(&self, before: &[String]) -> Vec<String> {
        let found = || self.sqlite.iter().chain(&self.other);
        let is_lost = |path: &&String| {
            let Some((profile, name)) = parts(path).filter(|(_, name)| LOGIN_NAMES.contains(name))
            else {
                return false;
            };
            let is_there = found().any(|one| parts(one) == Some((profile, name)));
            let is_removed = profile != FIRST_PROFILE
                && !found().any(|one| parts(one).is_some_and(|(other, _)| other == profile));
            !is_there && !is_removed
        };
        before.iter().filter(is_lost).cloned().collect()
    }
}

/// The profile that a file belongs to, and its name: the same for `Default/Cookies` and `Default/Network/Cookies`.
fn parts(path: &str) -> Option<(&str, &str)> {
    let (profile, rest) = path.split_once('/')?;
    let name = rest.strip_prefix("Network/").unwrap_or(rest);
    (!name.contains('/')).then_some((profile, name))
}

/// The version in `Last Version`, such as `131.0.6778.85`.
pub fn last_version(content: &[u8]) -> Option<(ChromeMajor, Label)> {
    version(std::str::from_utf8(content).ok()?.trim())
}

/// The version in what `chromium --version` prints, such as `Chromium 131.0.6778.85 built on Debian`.
pub fn printed_version(line: &str) -> Option<(ChromeMajor, Label)> {
    line.split_whitespace().find_map(version)
}

fn version(word: &str) -> Option<(ChromeMajor, Label)> {
    let parts: Vec<&str> = word.split('.').collect();
    let is_version = parts.len() == 4
        && parts
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_version {
        return None;
    }
    Some((parts[0].parse().ok()?, word.parse().ok()?))
}

/// What the settings of a profile say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Preferences {
    /// The version that ran last, in case `Last Version` is missing.
    pub version: Option<(ChromeMajor, Label)>,
    /// Whether the browser did not end by itself: it crashed, was killed, or still runs.
    pub has_crashed: bool,
    /// Whether it ended by itself and wrote everything: not after a crash, nor when its session was ended for it.
    pub ended_well: Option<bool>,
}

/// Reads the settings of a profile; what cannot be read says nothing.
pub fn preferences(content: &[u8]) -> Preferences {
    let Ok(json) = serde_json::from_slice::<Value>(content) else {
        return Preferences::default();
    };
    let text = |path: &str| json.pointer(path).and_then(Value::as_str);
    let exit_type = text("/profile/exit_type");
    let written_by = [
        "/extensions/last_chrome_version",
        "/profile/created_by_version",
    ];
    Preferences {
        version: written_by.iter().find_map(|path| version(text(path)?)),
        has_crashed: exit_type == Some("Crashed"),
        ended_well: exit_type.map(|exit_type| exit_type == "Normal"),
    }
}

/// How long a cookie lasts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CookieLife {
    /// As long as the browser runs.
    Session,
    /// Until this moment.
    Until(Timestamp),
    /// Unknown.
    Unknown,
}

/// Milliseconds from Chrome's beginning of time, 1601, to ours.
const EPOCH_MS: i64 = 11_644_473_600_000;

impl CookieLife {
    /// From the columns `is_persistent` and `expires_utc` of Chrome's table: microseconds since 1601.
    pub fn of_row(is_persistent: bool, expires_utc: i64) -> Self {
        if !is_persistent {
            return Self::Session;
        }
        let millis = (expires_utc / 1000).saturating_sub(EPOCH_MS);
        Self::Until(Timestamp::from_millis(u64::try_from(millis).unwrap_or(0)))
    }

    /// Whether the cookie must still be there at `now`, after the browser was closed.
    pub fn outlives(self, now: Timestamp) -> bool {
        match self {
            Self::Session => false,
            Self::Until(moment) => moment > now,
            Self::Unknown => true,
        }
    }
}

/// What the beginnings of encrypted cookie values say of their key.
pub fn cookie_store<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> CookieStore {
    let mut store = CookieStore::None;
    for value in values {
        match value.get(..3) {
            Some(b"v11") => return CookieStore::Keyring,
            Some(b"v10") => store = CookieStore::Basic,
            Some(_) => return CookieStore::Unknown,
            None => {}
        }
    }
    store
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_where_chrome_writes_them() {
        let (major, full) = last_version(b"131.0.6778.85").unwrap();
        assert_eq!((u32::from(major), full.as_str()), (131, "131.0.6778.85"));
        let printed = printed_version("Chromium 156.0.1.2 built on Debian GNU/Linux 12 (bookworm)");
        assert_eq!(u32::from(printed.unwrap().0), 156);
        for none in [&b""[..], b"131", b"131.0", b"a.b.c.d", b"0.1.2.3", b"\xff"] {
            assert_eq!(last_version(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_crash_is_told_by_the_settings_and_rubbish_tells_nothing() {
        let crashed =
            preferences(br#"{"profile":{"exit_type":"Crashed","created_by_version":"130.0.1.1"}}"#);
        assert!(crashed.has_crashed);
        assert_eq!(u32::from(crashed.version.unwrap().0), 130);
        for sound in [
            &br#"{"profile":{"exit_type":"Normal"}}"#[..],
            br#"{"profile":{"exit_type":"SessionEnded"}}"#,
            b"{",
            b"[]",
        ] {
            assert!(!preferences(sound).has_crashed);
        }
    }

    fn files(sqlite: &[&str], other: &[&str]) -> DatabaseFiles {
        let owned = |paths: &[&str]| paths.iter().map(ToString::to_string).collect();
        DatabaseFiles {
            sqlite: owned(sqlite),
            other: owned(other),
        }
    }

    #[test]
    fn a_file_that_should_be_a_database_is_known_by_its_name_or_by_what_it_was() {
        let found = files(
            &["Default/History"],
            &[
                "Default/Network/Cookies",
                "Default/Preferences",
                "Default/x.db",
                "History",
            ],
        );
        assert_eq!(found.unrecognised(&[]), ["Default/Network/Cookies"]);
        let before = ["Default/x.db".to_owned(), "Default/History".to_owned()];
        let both = ["Default/Network/Cookies", "Default/x.db"];
        assert_eq!(found.unrecognised(&before), both);
    }

    #[test]
    fn logins_are_lost_when_their_database_is_nowhere() {
        let before = [
            "Default/Cookies",
            "Default/History",
            "Default/Login Data",
            "Profile 1/Cookies",
        ];
        let before = before.map(ToOwned::to_owned);

        let moved = files(&["Default/Network/Cookies", "Default/Login Data"], &[]);
        assert_eq!(
            moved.lost_logins(&before),
            [""; 0],
            "Chrome moves them, users remove profiles"
        );
        let damaged = files(&["Default/Login Data"], &["Default/Cookies"]);
        assert_eq!(
            damaged.lost_logins(&before),
            [""; 0],
            "it is there, and damaged"
        );
        let lost = files(&["Default/History"], &["Profile 1/Preferences"]);
        let all = ["Default/Cookies", "Default/Login Data", "Profile 1/Cookies"];
        assert_eq!(lost.lost_logins(&before), all);
        let nothing = files(&[], &[]).lost_logins(&before);
        assert_eq!(nothing, ["Default/Cookies", "Default/Login Data"]);
    }

    #[test]
    fn a_row_says_how_long_its_cookie_lasts() {
        // 2024-12-06T03:41:52Z
        let moment = Timestamp::from_millis(1_733_456_512_000);
        let expires = 13_377_930_112_000_000;

        assert_eq!(CookieLife::of_row(true, expires), CookieLife::Until(moment));
        assert_eq!(CookieLife::of_row(false, expires), CookieLife::Session);
        assert!(!CookieLife::of_row(true, 0).outlives(moment));
        assert!(!CookieLife::of_row(true, i64::MIN).outlives(moment));
        assert!(CookieLife::of_row(true, i64::MAX).outlives(moment));
        assert!(CookieLife::Unknown.outlives(moment));
    }

    #[test]
    fn one_value_from_a_keyring_ties_the_profile_to_its_host() {
        let told = |values: &[&[u8]]| cookie_store(values.iter().copied());
        assert_eq!(told(&[]), CookieStore::None);
        assert_eq!(told(&[b"v10abc", b""]), CookieStore::Basic);
        assert_eq!(told(&[b"v10abc", b"v11abc"]), CookieStore::Keyring);
        assert_eq!(told(&[b"v99abc"]), CookieStore::Unknown);
    }
}
