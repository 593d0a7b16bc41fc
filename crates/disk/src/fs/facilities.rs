//! What a filesystem and this kernel can do for us.

use crate::fs::sys::{mounts, open, share, unnamed};
use rustix::fs::{self, OFlags};
use rustix::io::Errno;
use stasis_model::filesystem::Filesystem;
use std::io;
use std::path::Path;

/// Whether something works here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// It was tried, and works.
    Yes,
    /// It was tried, and does not.
    No,
    /// It could not be tried, as on a disk that is full.
    Unknown,
}

/// What the filesystem of a directory is like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facilities {
    /// What it is called.
    pub filesystem: Filesystem,
    /// Whether a file can share another's blocks.
    pub reflinks: Support,
    /// Bytes that may still be written without privileges.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Tries what the filesystem of `directory` can do; leaves nothing behind.
pub fn examine(directory: &Path) -> io::Result<Facilities> {
    let filesystem = mounts::filesystem(directory)?;
    let space = fs::statvfs(directory)?;
    Ok(Facilities {
        filesystem,
        reflinks: try_reflink(directory),
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
    })
}

/// How many bytes the filesystem of `directory` has in all; tries nothing.
pub fn total_bytes(directory: &Path) -> io::Result<u64> {
    let space = fs::statvfs(directory)?;
    Ok(space.f_blocks.saturating_mul(space.f_frsize))
}

/// Clones a small nameless file into another one.
fn try_reflink(directory: &Path) -> Support {
    let attempt = || -> rustix::io::Result<()> {
        let (source, target) = (unnamed::at(directory)?, unnamed::at(directory)?);
        rustix::io::write(&source, &[7; 4096])?;
        share::share_blocks(&source, &target)
    };
    match attempt() {
        Ok(()) => Support::Yes,
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY | Errno::XDEV | Errno::NOSYS) => {
            Support::No
        }
        Err(_) => Support::Unknown,
    }
}

/// Whether the kernel opens files beneath a directory without ever leaving it.
pub fn openat2() -> Support {
    let flags = open::PLACE | OFlags::CLOEXEC;
    match open::inside(fs::CWD, b".", flags, open::Reach::AnyFilesystem) {
        Ok(_) => Support::Yes,
        Err(Errno::NOSYS | Errno::PERM) => Support::No,
        Err(_) => Support::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examining_a_directory_leaves_nothing_behind() {
        let home = tempfile::tempdir().unwrap();

        let facilities = examine(home.path()).unwrap();

        assert!(facilities.free_bytes > 0 && facilities.free_bytes <= facilities.total_bytes);
        assert_ne!(facilities.reflinks, Support::Unknown);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
