//! SQLite databases that a program has open.
//!
//! A database, its journal and its WAL are one thing: a program that has opened some of them would go on with files of two states if
//! they were exchanged under it. So nothing is exchanged of a database that is open: its locks are looked at, which every
//! connection in WAL mode has and every other one while it works, and the descriptors of all processes that may be looked at.

use super::error::RestoreError;
use super::journal::{JournalStep, RestoreJournal};
use super::scope::DATABASE_SUFFIXES;
use crate::fs::metadata::Seen;
use crate::fs::root_dir::{self, Mounts, RootDir};
use crate::fs::sys::{descriptor, processes, record_lock};
use rustix::io;
use stasis_model::failure::AtPath;
use stasis_model::sqlite_file::{DATABASE_LOCKS, HEADER, INDEX_LOCKS};
use stasis_model::tree::EntryPath;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The databases among these entries, or whose journals are, that a program has open, and which program if that is known.
pub fn open_databases<'a>(
    live: &RootDir,
    paths: impl Iterator<Item = &'a EntryPath>,
) -> Vec<(EntryPath, Option<u32>)> {
    let mut bases = BTreeSet::new();
    for path in paths {
        let stripped = DATABASE_SUFFIXES
            .iter()
            .find_map(|suffix| path.as_bytes().strip_suffix(*suffix));
        let base = stripped.and_then(|base| EntryPath::parse(base).ok());
        bases.insert(base.unwrap_or_else(|| path.clone()));
    }
    let databases: Vec<OpenDatabase> = bases
        .into_iter()
        .filter_map(|path| OpenDatabase::find(live, path))
        .collect();
    if databases.is_empty() {
        return Vec::new();
    }
    let holders = holders(&databases);
    let all = databases.into_iter().zip(holders);
    all.filter(|(one, holder)| holder.is_some() || one.is_locked())
        .map(|(one, holder)| (one.path, holder))
        .collect()
}

/// The databases in a directory that a program of which that can be seen has open.
pub fn open_databases_in(directory: &Path) -> Vec<EntryPath> {
    let Ok(root) = directory.canonicalize() else {
        return Vec::new();
    };
    let open = open_files_below(&root);
    let Ok(live) = RootDir::open(&root, Mounts::Stay) else {
        return Vec::new();
    };
    let open = open_databases(&live, open.iter());
    open.into_iter().map(|(path, _)| path).collect()
}

/// The entries of a directory that other processes have open, as far as that can be seen.
fn open_files_below(root: &Path) -> BTreeSet<EntryPath> {
    let links = processes::files_open_elsewhere().filter_map(|file| file.path());
    let paths = links.filter_map(|link| {
        let path = link.strip_prefix(root).ok()?;
        EntryPath::parse(path.as_os_str().as_bytes()).ok()
    });
    paths.collect()
}

/// Whether another process of which that can be seen has something in a directory open, or stands in it.
pub fn is_in_use(directory: &Path) -> bool {
    let Ok(root) = directory.canonicalize() else {
        return true;
    };
    let others = processes::all().unwrap_or_default().into_iter();
    let mut others = others.filter(|pid| *pid != std::process::id());
    !open_files_below(&root).is_empty()
        || others.any(|pid| {
            let place = processes::working_directory_of(pid).read_link();
            place.is_ok_and(|place| place.starts_with(&root))
        })
}

/// Refuses to exchange entries of a directory if they are databases that a program has open.
pub fn ensure_none_open<'a>(
    directory: &Path,
    paths: impl Iterator<Item = &'a EntryPath>,
) -> Result<(), RestoreError> {
    let live = RootDir::open(directory, Mounts::Stay).at("open", directory)?;
    refuse(open_databases(&live, paths))
}

/// Refuses to exchange what a program has open.
pub(super) fn check(live: &RootDir, journal: &RestoreJournal) -> Result<(), RestoreError> {
    let touched = journal.steps().flatten().filter_map(|step| match step {
        JournalStep::Remove(path, Some(_)) | JournalStep::Place(path, _, Some(_)) => Some(path),
        _ => None,
    });
    let mut touched: Vec<EntryPath> = touched.collect();
    // What is in a directory that is moved is moved with it.
    let is_directory = |path: &&EntryPath| live.directory(path.as_bytes()).is_ok();
    let directories: Vec<EntryPath> = touched.iter().filter(is_directory).cloned().collect();
    if !directories.is_empty() {
        let root = live.directory(b"").ok();
        let root = root.and_then(|root| descriptor::path_of(&root).ok());
        let open = root
            .map(|root| open_files_below(&root))
            .unwrap_or_default()
            .into_iter();
        touched.extend(open.filter(|path| directories.iter().any(|one| path.is_within(one))));
    }
    refuse(open_databases(live, touched.iter()))
}

fn refuse(open: Vec<(EntryPath, Option<u32>)>) -> Result<(), RestoreError> {
    match open.into_iter().next() {
        Some((path, holder)) => Err(RestoreError::DatabaseOpen {
            path,
            by: holder.map_or("another process".to_owned(), |pid| format!("process {pid}")),
        }),
        None => Ok(()),
    }
}

struct OpenDatabase {
    path: EntryPath,
    file: OwnedFd,
    index: Option<OwnedFd>,
    /// Device and inode of it, and of what belongs to it.
    identities: Vec<(u64, u64)>,
}

impl OpenDatabase {
    fn find(live: &RootDir, path: EntryPath) -> Option<Self> {
        let (above, name) = path.split_last()?;
        let directory = live.directory(above.as_bytes()).ok()?;
        let named = |suffix: &[u8]| CString::new([name, suffix].concat()).ok();
        let seen = |suffix: &[u8]| -> Option<Seen> {
            let seen = root_dir::find(&directory, &named(suffix)?).ok()??;
            seen.file_type().is_file().then_some(seen)
        };
        let own = seen(b"")?;
        let file = live.file(directory.as_fd(), &named(b"")?).ok()?;
        let mut magic = [0; HEADER.len()];
        let read = io::retry_on_intr(|| io::pread(&file, &mut magic, 0)).ok()?;
        if magic[..read] != *HEADER {
            return None;
        }
        let others = DATABASE_SUFFIXES.iter().filter_map(|suffix| seen(suffix));
        let identities = std::iter::once(own)
            .chain(others)
            .map(|seen| seen.identity());
        let identities = identities.collect();
        let index = seen(b"-shm").and_then(|_| live.file(directory.as_fd(), &named(b"-shm")?).ok());
        Some(Self {
            path,
            file,
            index,
            identities,
        })
    }

    fn is_locked(&self) -> bool {
        let is_locked =
            |file: &OwnedFd, range| record_lock::is_locked(file.as_fd(), range).unwrap_or(false);
        let index = self.index.as_ref();
        is_locked(&self.file, DATABASE_LOCKS)
            || index.is_some_and(|index| is_locked(index, INDEX_LOCKS))
    }
}

/// For each database a process that has it open, among those that may be looked at.
fn holders(databases: &[OpenDatabase]) -> Vec<Option<u32>> {
    let mut holders = vec![None; databases.len()];
    for file in processes::files_open_elsewhere() {
        let Some(identity) = file.identity() else {
            continue;
        };
        for (database, holder) in databases.iter().zip(&mut holders) {
            if database.identities.contains(&identity) {
                *holder = Some(file.pid);
            }
        }
    }
    holders
}
