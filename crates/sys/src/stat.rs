//! What the system says of an entry.

use rustix::fs::{self, AtFlags, CWD, FileType, Stat, StatxAttributes, StatxFlags};
use rustix::io::{Errno, Result};
use stasis_model::tree::{FileTime, Metadata};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// The bits of a mode that are permissions: the rest says what the entry is.
const PERMISSIONS: u32 = 0o7777;

/// What the system said of one entry at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The filesystem.
    pub device: u64,
    /// The number of the entry in its filesystem.
    pub inode: u64,
    /// How many names it has, here and elsewhere.
    pub links: u64,
    /// Type and permissions.
    pub raw_mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The length, holes included.
    pub size: u64,
    /// 512-byte blocks in use.
    pub blocks: u64,
    /// When the content changed.
    pub modified: FileTime,
    /// When anything changed.
    pub changed: FileTime,
    /// Whether another filesystem is mounted on it; where the kernel does not tell, no.
    pub is_mount: bool,
}

impl Seen {
    /// What it is.
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.raw_mode)
    }

    /// Equal for two names of one thing.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// What a tree keeps of it.
    pub fn metadata(&self) -> Metadata {
        Metadata {
            mode: self.raw_mode & PERMISSIONS,
            uid: self.uid,
            gid: self.gid,
            modified: self.modified,
        }
    }

    /// Whether this is still the same thing with the same content.
    pub fn is_unchanged_since(&self, before: &Self) -> bool {
        self.identity() == before.identity()
            && self.size == before.size
            && self.modified == before.modified
            && self.changed == before.changed
    }
}

fn file_time(seconds: i64, nanos: impl TryInto<u32>) -> FileTime {
    let nanos = nanos.try_into().unwrap_or_default();
    FileTime { seconds, nanos }
}

impl From<&Stat> for Seen {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            links: stat.st_nlink,
            raw_mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            blocks: u64::try_from(stat.st_blocks).unwrap_or_default(),
            modified: file_time(stat.st_mtime, stat.st_mtime_nsec),
            changed: file_time(stat.st_ctime, stat.st_ctime_nsec),
            is_mount: false,
        }
    }
}

/// What an open thing is.
pub fn of(fd: impl AsFd) -> Result<Seen> {
    Ok(Seen::from(&fs::fstat(fd)?))
}

/// What the entry `name` of an open directory is; a symbolic link is not followed.
pub fn look(directory: BorrowedFd<'_>, name: &CStr) -> Result<Seen> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let seen = match fs::statx(directory, name, flags, StatxFlags::BASIC_STATS) {
        Ok(seen) => seen,
        Err(Errno::NOSYS | Errno::PERM) => {
            return Ok(Seen::from(&fs::statat(directory, name, flags)?));
        }
        Err(error) => return Err(error),
    };
    Ok(Seen {
        device: fs::makedev(seen.stx_dev_major, seen.stx_dev_minor),
        inode: seen.stx_ino,
        links: u64::from(seen.stx_nlink),
        raw_mode: u32::from(seen.stx_mode),
        uid: seen.stx_uid,
        gid: seen.stx_gid,
        size: seen.stx_size,
        blocks: seen.stx_blocks,
        modified: file_time(seen.stx_mtime.tv_sec, seen.stx_mtime.tv_nsec),
        changed: file_time(seen.stx_ctime.tv_sec, seen.stx_ctime.tv_nsec),
        is_mount: seen.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    })
}

/// What tells an entry from all that its filesystem ever had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Birth {
    /// The filesystem.
    pub device: u64,
    /// The number of the entry in its filesystem; it is used again.
    pub inode: u64,
    /// When it was made.
    pub at: FileTime,
}

/// When what lies at `path` was made; none where nothing does, or where the filesystem does not say. A link is not followed.
pub fn birth(path: &Path) -> Option<Birth> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let seen = fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
    let has_birth = seen.stx_mask & StatxFlags::BTIME.bits() != 0;
    has_birth.then(|| Birth {
        device: fs::makedev(seen.stx_dev_major, seen.stx_dev_minor),
        inode: seen.stx_ino,
        at: FileTime {
            seconds: seen.stx_btime.tv_sec,
            nanos: seen.stx_btime.tv_nsec,
        },
    })
}
