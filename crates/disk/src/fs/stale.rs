//! Temporary files of processes that are gone.
//!
//! Whoever makes a temporary file locks it, and keeps the lock as long as it has the file open; the kernel lets go of it when the
//! process ends, however it ends. Whoever comes by removes what can be locked.
//!
//! *Always true:* a file whose maker lives is not removed. Between making and locking another process may lock and remove it;
//! the maker sees that ([`hold`]) and makes another one.

use crate::fs::lock_file::try_lock;
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Takes a new temporary file for this process; `false` when somebody took it for left over.
pub(crate) fn hold(file: impl AsFd) -> Result<bool, Errno> {
    match try_lock(&file) {
        // A filesystem without locks has no collector either.
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(true),
        locked => Ok(locked? && fs::fstat(&file)?.st_nlink > 0),
    }
}

/// Removes the regular files of a directory that are temporary by their names, and that nobody holds. What cannot be looked at
/// or removed stays.
pub(crate) fn collect(directory: &OwnedFd, is_temporary: impl Fn(&[u8]) -> bool) {
    let Ok(listed) = Dir::read_from(directory) else {
        return;
    };
    for entry in listed.flatten() {
        let name = entry.file_name();
        let may_be_file = matches!(entry.file_type(), FileType::RegularFile | FileType::Unknown);
        if !may_be_file || !is_temporary(name.to_bytes()) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = fs::openat(directory, name, flags, Mode::empty()) else {
            continue;
        };
        let is_file = fs::fstat(&file)
            .is_ok_and(|seen| FileType::from_raw_mode(seen.st_mode) == FileType::RegularFile);
        if is_file && try_lock(&file) == Ok(true) {
            let _ = fs::unlinkat(directory, name, AtFlags::empty());
        }
    }
}
