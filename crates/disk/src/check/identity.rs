//! Who a browser profile in an archive is known to: names of cookies, and origins that keep something. Never a value.
//!
//! *Always true:* nothing in the archive is trusted. Cookies are read by SQLite in another process ([`super::sqlite`]),
//! Local Storage by our own reader ([`super::leveldb`]), `IndexedDB` by the names of its directories. What cannot be
//! read is named with the reason; it never reads as "nothing there".

use super::leveldb::{self, Bytes, LevelDbSettings};
use super::message::printable;
use super::scratch::CheckScratch;
use super::sqlite::{self, CookieRow, RowValues};
use super::{CheckError, CheckSettings, Depth, Spawn};
use crate::form::archive::{Archive, ArchiveError, ReadSettings};
use stasis_model::chrome::CookieLife;
use stasis_model::failure::AtPath;
use stasis_model::tree::EntryPath;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

/// The largest database of cookies that is read, with its journals.
const LARGEST_COOKIES: u64 = 256 << 20;
/// The largest Local Storage that is read into memory.
const LARGEST_STORAGE: u64 = 64 << 20;
/// How the key begins that every origin with Local Storage has.
const META: &[u8] = b"META:";
const INDEXED: &[u8] = b".indexeddb.leveldb";

/// A file of a database: its path, its name in there, its size.
pub(super) type Part<'a> = (&'a EntryPath, &'a [u8], u64);

/// Who a profile is known to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProfileIdentity {
    /// Cookies by site and name.
    pub cookies: BTreeSet<(String, String)>,
    /// How long each of them lasts.
    pub lives: BTreeMap<(String, String), CookieLife>,
    /// Origins with Local Storage.
    pub local_storage: BTreeSet<String>,
    /// Origins with `IndexedDB`.
    pub indexed_db: BTreeSet<String>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

/// Looks into the profile in `archive`, whose entries are given with their sizes.
pub fn identity(
    archive: &Archive,
    entries: &[(EntryPath, u64)],
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<ProfileIdentity, CheckError> {
    let mut identity = ProfileIdentity::default();
    let mut storages: BTreeMap<&[u8], Vec<Part<'_>>> = BTreeMap::new();
    for (path, size) in entries {
        let names: Vec<&[u8]> = path.components().collect();
        match names[..] {
            [_, b"Cookies"] | [_, b"Network", b"Cookies"] => {
                match cookies(archive, path, *size, settings, spawn)? {
                    Ok(found) => {
                        identity.cookies.extend(found.keys().cloned());
                        identity.lives.extend(found);
                    }
                    Err(why) => identity.unread.push(format!("{path}: {why}")),
                }
            }
            [profile, b"Local Storage", b"leveldb", file] => {
                storages
                    .entry(profile)
                    .or_default()
                    .push((path, file, *size));
            }
            [_, b"IndexedDB", name] => {
                let origin = name.strip_suffix(INDEXED);
                identity.indexed_db.extend(origin.map(origin_of));
            }
            _ => {}
        }
    }
    for files in storages.values() {
        match local_storage(archive, files, settings)? {
            Ok(origins) => identity.local_storage.extend(origins),
            Err(why) => identity.unread.push(format!("Local Storage: {why}")),
        }
    }
    Ok(identity)
}

/// The cookies by site and name, each with the longest life; else why they cannot be told.
type Cookies = Result<BTreeMap<(String, String), CookieLife>, String>;

fn cookies(
    archive: &Archive,
    path: &EntryPath,
    size: u64,
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<Cookies, CheckError> {
    let (scratch, bytes) = match copied_cookies(archive, path, size, settings)? {
        Ok(copied) => copied,
        Err(why) => return Ok(Err(why)),
    };
    let rows = sqlite::read_cookie_rows(&scratch, bytes, RowValues::Without, settings, spawn)?;
    Ok(rows.map(|all| by_name(&all.rows)))
}

fn by_name(rows: &[CookieRow]) -> BTreeMap<(String, String), CookieLife> {
    let mut cookies = BTreeMap::new();
    for row in rows {
        let life = row.life();
        let longest = cookies.entry((printable(&row.host), printable(&row.name)));
        let longest = longest.or_insert(life);
        *longest = life.max(*longest);
    }
    cookies
}

/// A private copy of a database of cookies with its journals, and how many bytes they have; or why there is none.
pub(super) fn copied_cookies(
    archive: &Archive,
    path: &EntryPath,
    size: u64,
    settings: &CheckSettings,
) -> Result<Result<(CheckScratch, u64), String>, CheckError> {
    let scratch = CheckScratch::make(&settings.scratch)?;
    let mut bytes = size;
    for (copy, suffix) in [
        (c"db", ""),
        (c"db-journal", "-journal"),
        (c"db-wal", "-wal"),
    ] {
        let Some(beside) = with_suffix(path, suffix) else {
            continue;
        };
        let Some(entry) = archive.entry(&beside, &reading(settings))? else {
            continue;
        };
        if let stasis_model::tree::EntryKind::File { size } = entry.kind {
            bytes = if suffix.is_empty() {
                size
            } else {
                bytes.saturating_add(size)
            };
        }
        if bytes > LARGEST_COOKIES {
            return Ok(Err(format!("it has more than {LARGEST_COOKIES} bytes")));
        }
        let mut file = File::from(scratch.file(copy)?);
        archive.cat(&beside, &mut file, &reading(settings))?;
        if suffix == "-journal" {
            let journal = file.into();
            let cut = sqlite::forget_super_journal(&journal);
            cut.at("change a journal in", scratch.place())?;
        }
    }
    Ok(Ok((scratch, bytes)))
}

fn with_suffix(path: &EntryPath, suffix: &str) -> Option<EntryPath> {
    EntryPath::parse(&[path.as_bytes(), suffix.as_bytes()].concat()).ok()
}

fn reading(settings: &CheckSettings) -> ReadSettings {
    ReadSettings {
        cancel: settings.cancel.clone(),
        ..ReadSettings::default()
    }
}

fn local_storage(
    archive: &Archive,
    files: &[Part<'_>],
    settings: &CheckSettings,
) -> Result<Result<BTreeSet<String>, String>, CheckError> {
    let read = match storage_files(archive, files, settings)? {
        Ok(read) => read,
        Err(why) => return Ok(Err(why)),
    };
    let keys = leveldb::keys(&read, META, &quick(settings));
    Ok(keys.map(|keys| keys.iter().map(|key| text(&key[META.len()..])).collect()))
}

/// How Local Storage is read.
pub(super) fn quick(settings: &CheckSettings) -> LevelDbSettings<'_> {
    LevelDbSettings {
        depth: Depth::Quick,
        messages: settings.messages,
        cancel: &settings.cancel,
    }
}

/// The files of a Local Storage, in memory; or why they are not.
pub(super) fn storage_files(
    archive: &Archive,
    files: &[Part<'_>],
    settings: &CheckSettings,
) -> Result<Result<Bytes, String>, CheckError> {
    let total = files
        .iter()
        .fold(0_u64, |sum, (_, _, size)| sum.saturating_add(*size));
    if total > LARGEST_STORAGE {
        return Ok(Err(format!("it has more than {LARGEST_STORAGE} bytes")));
    }
    let mut read = BTreeMap::new();
    for (path, name, size) in files {
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        let mut bytes = Vec::with_capacity(usize::try_from(*size).unwrap_or(0));
        match archive.cat(path, &mut bytes, &reading(settings)) {
            Ok(_) => read.insert(name.to_owned(), bytes),
            Err(ArchiveError::NotAFile(_)) => continue,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Ok(Bytes::from(read)))
}

fn text(bytes: &[u8]) -> String {
    super::message::printable(&String::from_utf8_lossy(bytes))
}

/// `https_example.com_0` is `https://example.com`, and `http_localhost_8080` has a port.
fn origin_of(name: &[u8]) -> String {
    let name = text(name);
    let parts = name.split_once('_');
    let parts = parts.and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('_')?)));
    match parts {
        Some((scheme, (host, "0"))) => format!("{scheme}://{host}"),
        Some((scheme, (host, port))) if port.parse::<u16>().is_ok() => {
            format!("{scheme}://{host}:{port}")
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_directory_says_the_origin() {
        assert_eq!(origin_of(b"https_example.com_0"), "https://example.com");
        assert_eq!(origin_of(b"http_localhost_8080"), "http://localhost:8080");
        assert_eq!(origin_of(b"odd"), "odd");
        assert_eq!(origin_of(b"file__0"), "file://");
    }
}
