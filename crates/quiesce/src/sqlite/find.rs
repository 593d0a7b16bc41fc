//! Which files are databases, and where a path leads.

use super::{SourceFile, SqliteError};
use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
use stasis_model::sqlite_file::{self, HEADER};
use stasis_sys::record_lock;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Whether a regular file begins like a SQLite database. An empty file, a symbolic link and a pipe do not.
///
/// Opens and closes the file, which takes away the locks of every connection of this process to the database.
pub fn is_database(path: &Path) -> io::Result<bool> {
    // A pipe must neither be waited for nor, by opening it, signal that a reader is there.
    if !path.symlink_metadata()?.is_file() {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(openat(CWD, path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    let mut header = Vec::with_capacity(HEADER.len());
    file.take(HEADER.len() as u64).read_to_end(&mut header)?;
    Ok(header == HEADER)
}

/// Whether a file belongs to the database beside it: its log, its journal or its shared memory, by name.
///
/// Says so only where that database is: a file called `notes-wal` alone belongs to no database.
pub fn is_companion(path: &Path) -> bool {
    let owner = path.file_name().and_then(owner_of);
    let owner = owner.map(|name| path.with_file_name(name));
    owner.is_some_and(|owner| {
        owner
            .symlink_metadata()
            .is_ok_and(|owner| owner.is_file() && owner.len() == 0)
            || is_database(&owner).unwrap_or(false)
    })
}

fn owner_of(name: &OsStr) -> Option<&OsStr> {
    sqlite_file::owner_name(name.as_bytes()).map(OsStr::from_bytes)
}

/// Finds every database below a directory, sorted by path. Follows no symbolic link and leaves out companions.
///
/// What vanishes meanwhile is left out; what may not be read is an error, because a database might be missed.
pub fn find_databases(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !found.is_empty() => continue,
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let kind = match path.symlink_metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?.file_type(),
            };
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() && is_there_and_database(&path)? && !is_companion(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_there_and_database(path: &Path) -> io::Result<bool> {
    match is_database(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        answer => answer,
    }
}

/// The companion of a database with this end of its name.
pub(super) fn companion(path: &Path, end: &[u8]) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(OsStr::from_bytes(end));
    name.into()
}

/// Whether something may be in a log or a journal beside this file.
pub(super) fn has_companion(path: &Path) -> bool {
    let end_has = |end: &&[u8]| {
        let there = companion(path, end).symlink_metadata();
        there.is_ok_and(|metadata| metadata.len() > 0)
    };
    sqlite_file::LOGS.iter().any(end_has)
}

/// Whether a log or a journal is what a process left that has ended: a process that opens the database now would replay it or roll back with it,
/// and change what lies there. Locks that we are not shown are those of another container; what is copied then must not move.
pub(super) fn is_left(path: &Path) -> bool {
    let shared = companion(path, b"-shm");
    has_companion(path) && !record_lock::is_known_at(path) && !record_lock::is_known_at(&shared)
}

/// The same file by a path whose directories are no links, if it is a regular file itself.
pub(super) fn resolved(path: &Path) -> Result<PathBuf, SqliteError> {
    let refused = |source| SqliteError::NotAFile {
        path: path.to_owned(),
        source,
    };
    let resolved = beside(path).or_not_a_file(path)?;
    let metadata = rustix::fs::lstat(&resolved).or_not_a_file(path)?;
    match FileType::from_raw_mode(metadata.st_mode) {
        FileType::RegularFile => Ok(resolved),
        FileType::Symlink => Err(refused(io::Error::from_raw_os_error(
            rustix::io::Errno::LOOP.raw_os_error(),
        ))),
        FileType::Directory => Err(refused(io::ErrorKind::IsADirectory.into())),
        _ => Err(refused(io::ErrorKind::InvalidInput.into())),
    }
}

/// The path with its directory resolved and its last component as it is.
pub(super) fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = std::fs::canonicalize(parent.unwrap_or(Path::new(".")))?;
    Ok(parent.join(name))
}
