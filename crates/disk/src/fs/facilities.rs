//! What a filesystem and this kernel can do for us.

use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use stasis_model::filesystem::Filesystem;
use std::io;
use std::os::fd::OwnedFd;
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
    let statistics = fs::statfs(directory)?;
    let space = fs::statvfs(directory)?;
    Ok(Facilities {
        filesystem: Filesystem::of_magic(statistics.f_type),
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
    let nameless = || -> rustix::io::Result<OwnedFd> {
        fs::open(
            directory,
            OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )
    };
    let attempt = || -> rustix::io::Result<()> {
        let (source, target) = (nameless()?, nameless()?);
        rustix::io::write(&source, &[7; 4096])?;
        fs::ioctl_ficlone(&target, &source)
    };
    match attempt() {
        Ok(()) => Support::Yes,
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY | Errno::XDEV | Errno::NOSYS) => {
            Support::No
        }
        Err(_) => Support::Unknown,
    }
}

/// How many directories a user may watch with inotify, and how many programs may; none if the kernel does not say.
pub fn inotify_limits() -> Option<(u64, u64)> {
    let limit = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?;
        text.trim().parse().ok()
    };
    Some((limit("max_user_watches")?, limit("max_user_instances")?))
}

/// Whether the kernel opens files beneath a directory without ever leaving it.
pub fn openat2() -> Support {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let opened = fs::openat2(
        fs::CWD,
        ".",
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    );
    match opened {
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
