//! Replaces one small file so that readers, and a crash, see the old bytes or the new ones.
//!
//! 1. write a temporary file beside it   2. fsync it   3. rename it over the old one   4. fsync the directory
//!
//! A crash before 3 leaves the old file and a `.stasis-tmp-…` beside it; after 3 the new one. A failed fsync is never
//! retried: the kernel may have dropped the pages it could not write. The temporary file is always a new one of ours: a
//! link that somebody put there first is not followed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a file was not replaced.
#[derive(Debug, thiserror::Error)]
#[error("could not {doing} `{}`", .path.display())]
pub struct WriteError {
    /// Which of the four things failed.
    pub doing: &'static str,
    /// To which file or directory.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError {
        doing,
        path,
        source,
    }
}

/// Makes `path` hold exactly `bytes`, readable by its owner only; makes its directory when there is none.
pub fn atomic_write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    replace(path, bytes, 0o600)
}

/// The same for a file that everybody may read.
pub fn replace_public(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    replace(path, bytes, 0o644)
}

/// Makes `path` hold exactly `bytes` without waiting for the disk: readers see the old bytes or the new ones, but after a power
/// failure the file may be empty. For notes that are cheap to lose and written often.
#[expect(
    clippy::disallowed_methods,
    reason = "this file is the one that writes small files"
)]
pub fn replace_unsynced(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let parent = path.parent().unwrap_or_else(|| Path::new("."));
    make_directory(parent)?;
    let (temp, mut file) = new_file_beside(parent, path, 0o600)?;
    let written = file
        .write_all(bytes)
        .map_err(failed("write", &temp))
        .and_then(|()| fs::rename(&temp, path).map_err(failed("rename into place", path)));
    if written.is_err() {
        let _ = fs::remove_file(&temp);
    }
    written
}

/// Writes over a file that is there, within the room that it has already: for a note on a full disk, where none can be made beside it.
///
/// A crash, or somebody who reads meanwhile, may find half of it. What does not fit is refused, and the file stays what it was.
pub fn write_over(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let opened = OpenOptions::new().write(true).open(path);
    let mut file = opened.map_err(failed("open", path))?;
    let seen = file.metadata().map_err(failed("look at", path))?;
    let room = seen.len().max(seen.blocks().saturating_mul(512));
    if !seen.is_file() || bytes.len() as u64 > room {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        return Err(failed("write", path)(full));
    }
    let written = file
        .write_all(bytes)
        .and_then(|()| file.set_len(bytes.len() as u64));
    written.map_err(failed("write", path))
}

/// Reads a small file; one that is longer than `limit` is [`io::ErrorKind::FileTooLarge`], unread.
pub fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.len() <= limit {
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= limit {
            return Ok(bytes);
        }
    }
    Err(io::ErrorKind::FileTooLarge.into())
}

/// Waits until nobody else holds the lock in the file at `path`, and holds it until the file is dropped.
pub fn lock_file(path: &Path) -> Result<File, WriteError> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path).map_err(failed("open", path))?;
    file.lock().map_err(failed("lock", path))?;
    Ok(file)
}

/// The same without waiting: `None` when somebody holds it.
pub fn try_lock_file(path: &Path) -> Result<Option<File>, WriteError> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path).map_err(failed("open", path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(failed("lock", path)(error)),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this file is the one that writes small files"
)]
fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), WriteError> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    make_directory(parent)?;
    let (temp, file) = new_file_beside(parent, path, mode)?;
    let written = write_durably(file, &temp, bytes)
        .and_then(|()| fs::rename(&temp, path).map_err(failed("rename into place", path)));
    if written.is_err() {
        // The first failure is the one to tell; a temporary file that stays is only untidy.
        let _ = fs::remove_file(&temp);
    }
    written?;
    sync_directory(parent)
}

/// Makes a directory and those above it, private and durable.
pub fn make_directory(directory: &Path) -> Result<(), WriteError> {
    if directory.is_dir() {
        return Ok(());
    }
    let above = directory
        .parent()
        .filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        make_directory(above)?;
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => above.map_or(Ok(()), sync_directory),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) => Err(failed("make the directory", directory)(error)),
    }
}

/// Creates a file that was not there before.
fn new_file_beside(parent: &Path, path: &Path, mode: u32) -> Result<(PathBuf, File), WriteError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut name = OsString::from(format!(
            ".stasis-tmp-{}-{}-",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        name.push(path.file_name().unwrap_or_default());
        let temp = parent.join(name);
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(mode).open(&temp) {
            Ok(file) => return Ok((temp, file)),
            // Left by a process of the same number that was killed; the next count is free some time.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("create", &temp)(error)),
        }
    }
}

fn write_durably(mut file: File, temp: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    file.write_all(bytes).map_err(failed("write", temp))?;
    file.sync_all().map_err(failed("make durable", temp))
}

fn sync_directory(directory: &Path) -> Result<(), WriteError> {
    let opened = File::open(directory).map_err(failed("open the directory", directory))?;
    opened.sync_all().map_err(failed("make durable", directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("deep/er/note.json");

        atomic_write(&path, b"old").unwrap();
        atomic_write(&path, b"new").unwrap();

        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_note_is_replaced_whole_without_a_sync() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("deep/note.json");

        replace_unsynced(&path, b"old").unwrap();
        replace_unsynced(&path, b"new").unwrap();

        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_note_is_written_over_only_within_the_room_that_it_has() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("note.json");

        assert!(write_over(&path, b"new").is_err(), "none is made");
        atomic_write(&path, b"a longer one").unwrap();
        write_over(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(write_over(&path, &vec![b'x'; 1 << 20]).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_link_that_somebody_put_in_the_way_is_replaced_and_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let (path, outside) = (home.path().join("note.json"), home.path().join("outside"));
        atomic_write(&outside, b"theirs").unwrap();
        std::os::unix::fs::symlink(&outside, &path).unwrap();

        atomic_write(&path, b"ours").unwrap();

        assert_eq!(fs::read(&outside).unwrap(), b"theirs");
        assert!(!path.is_symlink());
    }

    #[test]
    fn a_failure_says_what_was_done_to_what() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("taken");
        fs::create_dir(&path).unwrap();

        let error = atomic_write(&path, b"new").unwrap_err();

        assert_eq!(error.doing, "rename into place");
        assert_eq!(
            fs::read_dir(home.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }
}
