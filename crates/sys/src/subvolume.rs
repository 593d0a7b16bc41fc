//! Subvolumes of btrfs: trees that are copied and removed as a whole. Where there are none, nothing is one.

use rustix::fs::{self, AtFlags, FileType};
use rustix::io::{Errno, Result};
use rustix::ioctl::{self, Setter, Updater, opcode};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How btrfs introduces itself in `statfs`.
const BTRFS: u64 = 0x9123_683E;
/// The group of its calls.
const GROUP: u8 = 0x94;
/// The inode of every subvolume's root.
const SUBVOLUME_ROOT: u64 = 256;
/// The inode of the empty directory that a snapshot has in the place of a subvolume.
pub const EMPTY_SUBVOLUME: u64 = 2;

/// `struct btrfs_ioctl_vol_args`
#[repr(C)]
struct SubvolumeName {
    fd: i64,
    name: [u8; 4088],
}

/// `struct btrfs_ioctl_vol_args_v2`
#[repr(C)]
struct SubvolumeNameWithFlags {
    fd: i64,
    transaction: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

/// `struct btrfs_ioctl_get_subvol_rootref_args`
#[repr(C)]
struct RootRefs {
    first_tree: u64,
    /// Tree and directory of each.
    refs: [[u64; 2]; 255],
    count: u8,
    unused: [u8; 7],
}

const SNAP_DESTROY: ioctl::Opcode = opcode::write::<SubvolumeName>(GROUP, 15);
const SNAP_CREATE_V2: ioctl::Opcode = opcode::write::<SubvolumeNameWithFlags>(GROUP, 23);
const GET_SUBVOL_ROOTREF: ioctl::Opcode = opcode::read_write::<RootRefs>(GROUP, 61);

// The numbers of the calls have these sizes in them.
const _: () = assert!(size_of::<SubvolumeName>() == 4096);
const _: () = assert!(size_of::<SubvolumeNameWithFlags>() == 4096);
const _: () = assert!(size_of::<RootRefs>() == 4096);

/// Whether `name` in an open directory is the root of a btrfs subvolume, as far as the system says.
pub fn is_subvolume(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    let seen = fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    let is_root = |seen: fs::Stat| {
        seen.st_ino == SUBVOLUME_ROOT && FileType::from_raw_mode(seen.st_mode).is_dir()
    };
    // Several filesystems say the number is 256 of something or other; only one means this by it.
    let magic =
        || fs::fstatfs(parent).and_then(|it| u64::try_from(it.f_type).or(Err(Errno::RANGE)));
    seen.is_ok_and(is_root) && magic().is_ok_and(|magic| magic & 0xFFFF_FFFF == BTRFS)
}

/// The name with zeros behind it, in a field of the kernel's that must end with one.
fn field<const N: usize>(name: &CStr) -> Result<[u8; N]> {
    let name = name.to_bytes();
    let mut field = [0; N];
    if name.len() >= N {
        return Err(Errno::NAMETOOLONG);
    }
    field[..name.len()].copy_from_slice(name);
    Ok(field)
}

/// Makes the writable snapshot `name` of an open subvolume in an open directory.
pub fn snapshot(source: BorrowedFd<'_>, parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    let arguments = SubvolumeNameWithFlags {
        fd: source.as_raw_fd().into(),
        transaction: 0,
        flags: 0,
        unused: [0; 4],
        name: field(name)?,
    };
    // SAFETY: the number and the structure are those of BTRFS_IOC_SNAP_CREATE_V2, which reads the structure, finds the
    // name's end in it, and keeps nothing; `source` stays open during the call.
    unsafe { ioctl::ioctl(parent, Setter::<SNAP_CREATE_V2, _>::new(arguments)) }
}

/// Removes the subvolume `name` of an open directory with everything in it, however much that is.
pub fn destroy(parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    let arguments = SubvolumeName {
        fd: 0,
        name: field(name)?,
    };
    // SAFETY: the number and the structure are those of BTRFS_IOC_SNAP_DESTROY, which reads the structure, finds the
    // name's end in it, and keeps nothing.
    unsafe { ioctl::ioctl(parent, Setter::<SNAP_DESTROY, _>::new(arguments)) }
}

/// Whether other subvolumes lie in an open one, at any depth of directories.
pub fn has_nested(subvolume: BorrowedFd<'_>) -> Result<bool> {
    let mut answer = RootRefs {
        first_tree: 0,
        refs: [[0; 2]; 255],
        count: 0,
        unused: [0; 7],
    };
    let asked = {
        // SAFETY: the number and the structure are those of BTRFS_IOC_GET_SUBVOL_ROOTREF, which reads and fills the
        // structure, all of whose bits are good in any state, and keeps nothing.
        unsafe {
            ioctl::ioctl(
                subvolume,
                Updater::<GET_SUBVOL_ROOTREF, _>::new(&mut answer),
            )
        }
    };
    match asked {
        Err(Errno::OVERFLOW) => Ok(true), // more than fit
        Err(error) => Err(error),
        Ok(()) => Ok(answer.count > 0),
    }
}
