//! Where the blocks of a file are.

use rustix::io::Result;
use rustix::ioctl::{self, Updater, opcode};
use std::os::fd::BorrowedFd;

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
pub fn stretches(file: BorrowedFd<'_>, mut place: impl FnMut(Option<u64>, u64)) -> Result<()> {
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
