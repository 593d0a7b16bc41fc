//! Databases, found by what they hold.

use super::{CheckError, CheckSettings, DatabaseKind};
use crate::fs::metadata;
use crate::fs::root_dir::RootDir;
use crate::fs::sys::open::PLACE;
use crate::tree::walk::{
    Visitor, WalkError, WalkReport, WalkSettings, WalkedDir, WalkedEntry, walk,
};
use crate::worker_pool::{into_inner, lock};
use rustix::fs::{self, Mode, OFlags};
use rustix::io;
use stasis_model::tree::{EntryKind, EntryPath};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

/// What a SQLite database begins with.
pub(super) use stasis_model::sqlite_file::HEADER as SQLITE;
/// What a rollback journal begins with.
pub(super) const JOURNAL: &[u8; 8] = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
/// What a write-ahead log begins with, but for the lowest bit, which says how its checksums are made.
const WAL: [u8; 4] = [0x37, 0x7f, 0x06, 0x82];
/// More databases than this are an error.
const MOST: usize = 100_000;

/// Whether a write-ahead log begins like this.
pub(super) fn is_wal(header: &[u8]) -> bool {
    header.len() >= 4 && header[..3] == WAL[..3] && header[3] & !1 == WAL[3]
}

/// The first bytes of a file, at most 16.
pub(super) fn header(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut header = vec![0; 16];
    let length = io::retry_on_intr(|| io::pread(file, &mut *header, 0))?;
    header.truncate(length);
    Ok(header)
}

/// Whether a file begins like a SQLite database; `None` for an empty one, which is a database without anything in it.
pub(crate) fn is_sqlite(file: &OwnedFd) -> io::Result<Option<bool>> {
    let header = header(file)?;
    Ok((!header.is_empty()).then(|| header.starts_with(SQLITE)))
}

/// A database that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Database {
    pub(super) path: EntryPath,
    pub(super) kind: DatabaseKind,
    /// How long its check may take, compared with others: the bytes of the files by which it was found.
    pub(super) weight: u64,
}

/// Every database beneath `root`.
pub(super) fn databases(
    root: &RootDir,
    settings: &CheckSettings,
) -> Result<(Vec<Database>, WalkReport), CheckError> {
    let finder = DatabaseFinder::default();
    let walk_settings = WalkSettings {
        avoid: settings.walk.avoid.or_else(|| copies(settings)),
        cancel: settings.cancel.clone(),
        ..settings.walk.clone()
    };
    let report = walk(root, &finder, &walk_settings)?;
    let found = into_inner(finder.0);
    if found.len() > MOST {
        return Err(CheckError::TooMany { limit: MOST });
    }
    let found = found
        .into_iter()
        .map(|(path, (kind, weight))| Database { path, kind, weight });
    Ok((found.collect(), report))
}

/// The directory for copies: what a killed check left there does not belong to the tree.
fn copies(settings: &CheckSettings) -> Option<(u64, u64)> {
    let flags = PLACE | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = fs::open(&settings.scratch, flags, Mode::empty()).ok()?;
    metadata::of(&opened).ok().map(|seen| seen.identity())
}

#[derive(Default)]
struct DatabaseFinder(Mutex<BTreeMap<EntryPath, (DatabaseKind, u64)>>);

impl DatabaseFinder {
    fn add(&self, path: EntryPath, kind: DatabaseKind, bytes: u64) {
        let mut found = lock(&self.0);
        if found.len() <= MOST {
            let (kept, weight) = found.entry(path).or_insert((kind, 0));
            (*kept, *weight) = (kind, weight.saturating_add(bytes));
        }
    }
}

impl Visitor for DatabaseFinder {
    type Error = WalkError;

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), WalkError> {
        for found in entries {
            let EntryKind::File { size } = found.kind else {
                continue;
            };
            let name = found.name.to_bytes();
            if is_manifest(name) {
                self.add(place.path.clone(), DatabaseKind::LevelDb, size);
            }
            if size < 8 && name != b"CURRENT" {
                continue;
            }
            let Some((file, _)) = place.open_file(found.name)? else {
                continue;
            };
            let read = header(&file);
            let Ok(header) = read else {
                let error = read.expect_err("it was no header");
                place.could_not("read", found.name, error)?;
                continue;
            };
            if name == b"CURRENT" && header.starts_with(b"MANIFEST-") {
                self.add(place.path.clone(), DatabaseKind::LevelDb, size);
            }
            if let Some(name) = database_of(name, &header) {
                let path = place.path.child(name);
                self.add(
                    path.expect("a name's beginning is a name"),
                    DatabaseKind::Sqlite,
                    size,
                );
            }
        }
        Ok(())
    }
}

/// The name of the SQLite database to which a file with this header belongs.
fn database_of<'a>(name: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    let owner = |suffix: &[u8]| name.strip_suffix(suffix).filter(|owner| is_name(owner));
    if header.starts_with(SQLITE) {
        Some(name)
    } else if header.starts_with(JOURNAL) {
        owner(b"-journal")
    } else if is_wal(header) {
        owner(b"-wal")
    } else {
        None
    }
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
}

fn is_manifest(name: &[u8]) -> bool {
    let number = name.strip_prefix(b"MANIFEST-");
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}
