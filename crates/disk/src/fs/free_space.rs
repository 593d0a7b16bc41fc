//! Room on a disk that may be full.
//!
//! A *reserve* is a small file that is there to be removed: when something must be written that frees room, or ends what was begun, and
//! the disk is full, the reserve goes, and it is tried once more. It is made again when there is plenty of room.
//!
//! What was measured (`docs/adr/0033-…`): on xfs and ext4 its blocks are free as soon as it is unlinked, and files and directories can be
//! made again; where a btrfs has no room for metadata, it helps nobody, because only unlinking works there: whatever deletes must do
//! without a rename then.

use crate::fs::fd::open_dir;
use crate::fs::sys::{sync, unnamed};
use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// How many bytes a reserve holds: an inode chunk of xfs, the log and the index of a database, and some small documents.
pub const RESERVE_BYTES: u64 = 256 << 10;
/// A reserve is made where at least this much is free, so that it never takes what somebody needs now.
const PLENTY: u64 = 16 * RESERVE_BYTES;
/// Whoever writes something makes some files for it.
const FEW: u64 = 4;
/// Its name in the directory that it is for.
const RESERVE: &str = "reserve";

/// Whether the system says that there is no room: no blocks or inodes, or none that this user may have.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Whether an error, or one of its causes, is that there is no room.
pub fn is_want_of_room(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_full))
}

/// Whether a call failed because there is no room.
pub(crate) fn is_errno(error: Errno) -> bool {
    matches!(error, Errno::NOSPC | Errno::DQUOT)
}

/// What is free where a path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Free {
    /// Bytes that anybody may write; root may have some more.
    pub bytes: u64,
    /// How many files may be made; `None` where the filesystem has no such limit.
    pub entries: Option<u64>,
}

impl Free {
    /// Whether a few files can be made.
    fn has_entries(self) -> bool {
        self.entries.is_none_or(|entries| entries >= FEW)
    }
}

/// What is free where a path is, as the filesystem says. A quota may allow less.
pub fn free(path: &Path) -> io::Result<Free> {
    let space = fs::statvfs(path)?;
    Ok(Free {
        // Not what is free: of that ext4 keeps some for itself, and btrfs most when it has no room for metadata.
        bytes: space.f_bavail.saturating_mul(space.f_frsize),
        // What makes inodes as it needs them, as btrfs does, counts none.
        entries: (space.f_files > 0).then_some(space.f_favail),
    })
}

/// Sees whether so many bytes can be had in a directory: believes the filesystem where that says that there is much more, and tries it
/// otherwise.
pub fn has(directory: &Path, bytes: u64) -> io::Result<()> {
    match free(directory) {
        Ok(free) if free.bytes >= bytes.saturating_mul(8) && free.has_entries() => Ok(()),
        _ => check(directory, bytes),
    }
}

/// Sees whether so many bytes, and a few files, can be had in a directory: takes the bytes for a nameless file, and gives them back.
pub fn check(directory: &Path, bytes: u64) -> io::Result<()> {
    if !free(directory)?.has_entries() {
        return Err(Errno::NOSPC.into());
    }
    let taken = unnamed::at(directory)
        .and_then(|file| fs::fallocate(file, FallocateFlags::empty(), 0, bytes));
    match taken {
        Err(error) if is_errno(error) => Err(error.into()),
        // Whoever cannot try it believes what the filesystem says.
        Err(_) if free(directory)?.bytes < bytes => Err(Errno::NOSPC.into()),
        _ => Ok(()),
    }
}

/// Makes a file of so many bytes in a directory, for somebody who must not run out of room later.
pub(crate) fn set_apart(
    directory: impl std::os::fd::AsFd,
    name: &std::ffi::CStr,
    bytes: u64,
) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
    match fs::fallocate(&file, FallocateFlags::empty(), 0, bytes.max(1)) {
        Err(error) if is_errno(error) => Err(error),
        // A filesystem that takes no blocks beforehand.
        _ => Ok(()),
    }
}

/// The reserve of a directory.
#[derive(Clone, Debug)]
pub struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// That of a directory, there or not.
    pub fn of(directory: &Path) -> Self {
        let path = directory.join(RESERVE);
        Self { path }
    }

    /// Makes it, if it is not there and there is plenty of room; says whether it is there.
    pub fn make(&self) -> bool {
        let seen = fs::statat(fs::CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        if seen.is_ok_and(|seen| u64::try_from(seen.st_size).is_ok_and(|is| is >= RESERVE_BYTES)) {
            return true;
        }
        let above = self.path.parent().unwrap_or_else(|| Path::new("."));
        let is_plenty = has(above, PLENTY).is_ok();
        let made = is_plenty && self.fill().is_ok();
        if is_plenty && !made {
            let _ = fs::unlink(&self.path);
        }
        made
    }

    fn fill(&self) -> rustix::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::open(&self.path, flags, Mode::RUSR | Mode::WUSR)?;
        fs::fallocate(file, FallocateFlags::empty(), 0, RESERVE_BYTES)
    }

    /// Lets it go, so that its room can be had; `false` when there is none.
    pub fn release(&self) -> bool {
        if fs::unlink(&self.path).is_err() {
            return false;
        }
        // Blocks are free when the filesystem has written down that they are.
        let _ = self.above().and_then(sync::filesystem);
        true
    }

    fn above(&self) -> rustix::io::Result<OwnedFd> {
        let above = self.path.parent().unwrap_or_else(|| Path::new("."));
        open_dir(above)
    }

    /// Does something that must not fail for want of room: when it does, the reserve is let go, and it is done once more.
    pub fn lend<T, E: std::error::Error + 'static>(
        &self,
        mut work: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        match work() {
            Err(error) if is_want_of_room(&error) && self.release() => work(),
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("could not write")]
    struct Failed(#[source] io::Error);

    #[test]
    fn a_reserve_is_lent_once_for_want_of_room_and_for_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let reserve = Reserve::of(home.path());
        if !reserve.make() {
            // A filesystem that takes no blocks beforehand has none.
            return;
        }
        let size = home.path().join(RESERVE).metadata().unwrap().len();
        assert_eq!(size, RESERVE_BYTES);

        let mut calls = 0;
        let denied = reserve.lend(|| -> Result<(), Failed> {
            calls += 1;
            Err(Failed(Errno::ACCESS.into()))
        });
        assert!(denied.is_err());
        assert_eq!(calls, 1);
        assert!(home.path().join(RESERVE).exists());

        for errno in [Errno::NOSPC, Errno::DQUOT] {
            assert!(reserve.make());
            let mut calls = 0;
            let done = reserve.lend(|| {
                calls += 1;
                match calls {
                    1 => Err(Failed(errno.into())),
                    _ => Ok(calls),
                }
            });
            assert_eq!(done.unwrap(), 2);
            assert!(!home.path().join(RESERVE).exists());
        }
        let mut calls = 0;
        let none_left = reserve.lend(|| -> Result<(), Failed> {
            calls += 1;
            Err(Failed(Errno::NOSPC.into()))
        });
        assert!(none_left.is_err());
        assert_eq!(calls, 1, "without a reserve nothing is tried twice");
    }

    #[test]
    fn what_can_be_had_is_tried_and_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();

        assert!(check(home.path(), 4096).is_ok());
        let refused = check(home.path(), 1 << 60);

        assert!(refused.is_err());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
