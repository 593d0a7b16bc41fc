//! Locks on some bytes of a file, as SQLite takes them.

use rustix::io::{Errno, Result};
use stasis_model::sqlite_file::LockRange;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether somebody holds a record lock on some bytes of a file, this process included.
pub fn is_locked(file: BorrowedFd<'_>, range: LockRange) -> Result<bool> {
    let mut lock = record_lock(libc::F_WRLCK, range);
    // SAFETY: the descriptor is open, and the kernel writes nothing but the structure it is given.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if asked != 0 {
        return Err(Errno::INVAL);
    }
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Takes a shared record lock on some bytes of a file, without waiting; says whether it is held now. It belongs to the open file and not to
/// the process: closing another descriptor does not let it go.
pub fn try_share(file: BorrowedFd<'_>, range: LockRange) -> Result<bool> {
    match set_lock(file, libc::F_RDLCK, range) {
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        taken => taken.map(|()| true),
    }
}

/// Lets a record lock go.
pub fn unlock(file: BorrowedFd<'_>, range: LockRange) -> Result<()> {
    set_lock(file, libc::F_UNLCK, range)
}

fn record_lock(kind: i32, range: LockRange) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).unwrap_or_default(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: range.start,
        l_len: range.length,
        l_pid: 0,
    }
}

fn set_lock(file: BorrowedFd<'_>, kind: i32, range: LockRange) -> Result<()> {
    let mut lock = record_lock(kind, range);
    // SAFETY: the descriptor is open, and the kernel reads nothing but the structure it is given.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) };
    if done == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Whether a process has a lock on some bytes of the file at `path`, as far as the system tells us; nothing is opened.
pub fn is_known_at(path: &Path) -> bool {
    let Ok(seen) = path.symlink_metadata() else {
        return false;
    };
    let (device, inode) = (seen.dev(), seen.ino());
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    locks
        .lines()
        .any(|line| line.split_whitespace().any(|word| word == wanted))
}
