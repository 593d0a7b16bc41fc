//! What is asked of open files and directories again and again, and of names in them.

use rustix::fs::{self, Mode, OFlags};
use rustix::io::{self, Errno, Result};
use rustix::path::Arg;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Opens a directory, or the one that a symbolic link leads to.
pub(crate) fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::empty())
}

/// Opens a directory in an open one; a symbolic link is none.
pub(crate) fn open_dir_in(parent: impl AsFd, name: impl Arg) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(parent, name, flags, Mode::empty())
}

/// Opens an open directory once more: with a position and locks of its own.
pub(crate) fn reopen_dir(directory: impl AsFd) -> Result<OwnedFd> {
    open_dir_in(directory, c".")
}

/// A name as the system takes it.
pub(crate) fn c_name(name: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(name).map_err(|_| Errno::INVAL)
}

/// Writes all bytes where the file is.
pub(crate) fn write_all(file: &OwnedFd, mut rest: &[u8]) -> Result<()> {
    while !rest.is_empty() {
        match io::retry_on_intr(|| io::write(file, rest))? {
            0 => return Err(Errno::IO),
            written => rest = &rest[written..],
        }
    }
    Ok(())
}
