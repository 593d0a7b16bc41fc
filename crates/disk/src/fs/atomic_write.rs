//! Replaces one small file so that readers, and a crash, see the old bytes or the new ones.
//!
//! 1. write a temporary file beside it   2. fsync it   3. rename it over the old one   4. fsync the directory
//!
//! A crash before 3 leaves the old file and a `.stasis-tmp-…` beside it, which `collect` removes; after 3 the new one. A failed
//! fsync is never retried: the kernel may have dropped the pages it could not write. The temporary file is always a new one of ours,
//! and locked while its maker lives: a link that somebody put there first is not followed.

use crate::fs::stale;
use rustix::fs::{Mode, OFlags};
use stasis_model::failure::{AtPath, Failure};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the names of temporary files begin with; the process and a number follow.
const TEMPORARY: &str = ".stasis-tmp-";

/// Makes `path` hold exactly `bytes`, readable by its owner only; makes its directory when there is none.
pub fn atomic_write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    replace(path, bytes, 0o600)
}

/// The same for a file that everybody may read.
pub fn replace_public(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    replace(path, bytes, 0o644)
}

/// Makes `path` hold exactly `bytes` without waiting for the disk: readers see the old bytes or the new ones, but after a power
/// failure the file may be empty. For notes that are cheap to lose and written often.
#[expect(
    clippy::disallowed_methods,
    reason = "this file is the one that writes small files"
)]
pub fn replace_unsynced(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let parent = path.parent().unwrap_or_else(|| Path::new("."));
    make_directory(parent)?;
    let (temp, mut file) = new_file_beside(parent, path, 0o600)?;
    let written = file
        .write_all(bytes)
        .at("write", &temp)
        .and_then(|()| fs::rename(&temp, path).at("rename into place", path));
    if written.is_err() {
        let _ = fs::remove_file(&temp);
    }
    written
}

/// Removes the file at `path` so that it does not come back after a power failure; one that is not there is no error.
pub fn remove_durably(path: &Path) -> Result<(), Failure> {
    let parent = path.parent().unwrap_or_else(|| Path::new("."));
    let removed = crate::fs::remove::file_at(path);
    removed.map_err(io::Error::from).at("remove", path)?;
    sync_directory(parent)
}

/// Writes over a file that is there, within the room that it has already: for a note on a full disk, where none can be made beside it.
///
/// A crash, or somebody who reads meanwhile, may find half of it. What does not fit is refused, and the file stays what it was.
pub fn write_over(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let opened = OpenOptions::new().write(true).open(path);
    let mut file = opened.at("open", path)?;
    let seen = file.metadata().at("look at", path)?;
    let room = seen.len().max(seen.blocks().saturating_mul(512));
    if !seen.is_file() || bytes.len() as u64 > room {
        return Err(io::ErrorKind::StorageFull).at("write", path);
    }
    let written = file
        .write_all(bytes)
        .and_then(|()| file.set_len(bytes.len() as u64));
    written.at("write", path)
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

fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    replace_with(path, mode, |file| file.write_all(bytes))
}

/// Makes `path` hold what is written into a file, however much that is: all of it, or what was there before.
#[expect(
    clippy::disallowed_methods,
    reason = "this file is the one that replaces files"
)]
pub(crate) fn replace_with(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), Failure> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    make_directory(parent)?;
    let (temp, file) = new_file_beside(parent, path, mode)?;
    let written = write_durably(file, &temp, write)
        .and_then(|()| fs::rename(&temp, path).at("rename into place", path));
    if written.is_err() {
        // The first failure is the one to tell; a temporary file that stays is only untidy.
        let _ = fs::remove_file(&temp);
    }
    written?;
    sync_directory(parent)
}

/// Makes a directory and those above it, private and durable.
pub fn make_directory(directory: &Path) -> Result<(), Failure> {
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
        failed => failed.at("make the directory", directory),
    }
}

/// The same for a directory that others must not look into, also where it was made before: one of ours loses the rights that others
/// have. A link, and what belongs to somebody else, is left as it is.
pub fn make_private_directory(directory: &Path) -> Result<(), Failure> {
    make_directory(directory)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::open(directory, flags, Mode::empty()) else {
        return Ok(());
    };
    let seen = rustix::fs::fstat(&opened).at("look at", directory)?;
    let (mode, own) = (Mode::from_raw_mode(seen.st_mode), Mode::RWXU);
    let is_ours = seen.st_uid == rustix::process::geteuid().as_raw();
    if is_ours && mode.intersects(Mode::RWXG | Mode::RWXO) {
        let taken = rustix::fs::fchmod(&opened, mode & own);
        taken.at("take away the rights of others from", directory)?;
    }
    Ok(())
}

/// Creates a file that was not there before.
pub(crate) fn new_file_beside(
    parent: &Path,
    path: &Path,
    mode: u32,
) -> Result<(PathBuf, File), Failure> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut name = OsString::from(format!(
            "{TEMPORARY}{}-{}-",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        name.push(path.file_name().unwrap_or_default());
        let temp = parent.join(name);
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(mode).open(&temp) {
            // Left by a process of the same number that was killed; the next count is free some time.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => {
                let file = opened.at("create", &temp)?;
                // Somebody who clears up may have taken it for left over before it was locked.
                if stale::hold(&file).at("lock", &temp)? {
                    return Ok((temp, file));
                }
            }
        }
    }
}

/// Whether a name is one that a temporary file is made under here.
fn is_temporary(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(TEMPORARY.as_bytes()) else {
        return false;
    };
    let mut parts = rest.splitn(3, |byte| *byte == b'-');
    let mut is_number = || {
        parts
            .next()
            .is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
    };
    is_number() && is_number() && parts.next().is_some()
}

/// Removes the temporary files that killed processes left in a directory.
pub(crate) fn collect(directory: &OwnedFd) {
    stale::collect(directory, is_temporary);
}

pub(crate) fn write_durably(
    mut file: File,
    temp: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), Failure> {
    write(&mut file).at("write", temp)?;
    file.sync_all().at("make durable", temp)
}

pub(crate) fn sync_directory(directory: &Path) -> Result<(), Failure> {
    let opened = File::open(directory).at("open the directory", directory)?;
    opened.sync_all().at("make durable", directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_removed_and_one_that_is_gone_is_no_error() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("note.json");
        atomic_write(&path, b"old").unwrap();

        remove_durably(&path).unwrap();
        assert!(!path.exists());
        remove_durably(&path).unwrap();
    }

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
    fn others_lose_their_rights_on_a_directory_that_was_made_before() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let (before, new) = (home.path().join("before"), home.path().join("new/er"));
        DirBuilder::new().mode(0o755).create(&before).unwrap();
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&before, &link).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;

        make_private_directory(&link).unwrap();
        assert_eq!(
            mode(&before),
            0o755,
            "what a link leads to is not ours to judge"
        );
        make_private_directory(&before).unwrap();
        make_private_directory(&new).unwrap();

        assert_eq!((mode(&before), mode(&new)), (0o700, 0o700));
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

        assert_eq!(error.op(), "rename into place");
        assert_eq!(
            fs::read_dir(home.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }
}
