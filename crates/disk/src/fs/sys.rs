//! The calls that nobody wraps for us: those of btrfs about its subvolumes, where the blocks of a file are, and record
//! locks. The only place with `unsafe` in it.

use rustix::fs::{self, AtFlags, FileType};
use rustix::io::{Errno, Result};
use rustix::ioctl::{self, Setter, Updater, opcode};
use stasis_model::sqlite_file::LockRange;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How btrfs introduces itself in `statfs`.
const BTRFS: u64 = 0x9123_683E;
/// The group of its calls.
const GROUP: u8 = 0x94;
/// The inode of every subvolume's root.
const SUBVOLUME_ROOT: u64 = 256;
/// The inode of the empty directory that a snapshot has in the place of a subvolume.
pub(crate) const EMPTY_SUBVOLUME: u64 = 2;

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

/// Whether somebody holds a record lock on some bytes of a file, this process included.
pub(crate) fn is_locked(file: BorrowedFd<'_>, range: LockRange) -> Result<bool> {
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
pub(crate) fn try_share(file: BorrowedFd<'_>, range: LockRange) -> Result<bool> {
    match set_lock(file, libc::F_RDLCK, range) {
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        taken => taken.map(|()| true),
    }
}

/// Lets a record lock go.
pub(crate) fn unlock(file: BorrowedFd<'_>, range: LockRange) -> Result<()> {
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

/// Whether `name` in an open directory is the root of a btrfs subvolume, as far as the system says.
pub(crate) fn is_subvolume(parent: BorrowedFd<'_>, name: &CStr) -> bool {
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
pub(crate) fn snapshot(source: BorrowedFd<'_>, parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
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
pub(crate) fn destroy(parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    let arguments = SubvolumeName {
        fd: 0,
        name: field(name)?,
    };
    // SAFETY: the number and the structure are those of BTRFS_IOC_SNAP_DESTROY, which reads the structure, finds the
    // name's end in it, and keeps nothing.
    unsafe { ioctl::ioctl(parent, Setter::<SNAP_DESTROY, _>::new(arguments)) }
}

/// Whether other subvolumes lie in an open one, at any depth of directories.
pub(crate) fn has_nested(subvolume: BorrowedFd<'_>) -> Result<bool> {
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

/// How many stretches of a file are asked for at once.
const STRETCHES: usize = 64;
/// The last stretch of a file.
const LAST: u32 = 0x1;
/// Stretches whose place means nothing: not known, not yet chosen, or inside the inode.
const PLACELESS: u32 = 0x2 | 0x4 | 0x200;

/// `struct fiemap_extent`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FileExtent {
    logical: u64,
    physical: u64,
    length: u64,
    unused: [u64; 2],
    flags: u32,
    unused_too: [u32; 3],
}

/// `struct fiemap` with room for some stretches.
#[repr(C)]
struct ExtentMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    unused: u32,
    stretches: [FileExtent; STRETCHES],
}

/// The number of the call has only the size of its head.
const FIEMAP: ioctl::Opcode = opcode::read_write::<[u64; 4]>(b'f', 11);

const _: () = assert!(size_of::<FileExtent>() == 56);
const _: () = assert!(size_of::<ExtentMap>() == 32 + STRETCHES * 56);

/// Calls `place` with where each stretch of a file lies on its disk and how long it is; no place for one that has none of its own.
pub(crate) fn stretches(
    file: BorrowedFd<'_>,
    mut place: impl FnMut(Option<u64>, u64),
) -> Result<()> {
    let mut from = 0;
    loop {
        let mut map = ExtentMap {
            start: from,
            length: u64::MAX - from,
            flags: 0,
            mapped: 0,
            room: u32::try_from(STRETCHES).unwrap_or_default(),
            unused: 0,
            stretches: [FileExtent::default(); STRETCHES],
        };
        {
            // SAFETY: the number and the structure are those of FS_IOC_FIEMAP, which reads the head, fills at most as many
            // stretches as `room` says, all of whose bits are good in any state, and keeps nothing.
            unsafe { ioctl::ioctl(file, Updater::<FIEMAP, _>::new(&mut map))? };
        }
        let mapped = map.stretches.iter().take(map.mapped as usize);
        let mut last = None;
        for one in mapped {
            let has_place = one.flags & PLACELESS == 0;
            place(has_place.then_some(one.physical), one.length);
            last = Some(one);
        }
        match last {
            Some(one) if one.flags & LAST == 0 => {
                // Always onward, whatever a filesystem says.
                from = one.logical.saturating_add(one.length).max(from + 1);
            }
            _ => return Ok(()),
        }
    }
}
