//! What is there to be let go when a store is full and something must be written all the same.
//!
//! `.stasis/reserve` holds 256 KiB. A conditional write or a deletion that fails for want of room lets it go, and is tried once more: so
//! that a sweep can say that it sweeps, an index can let a snapshot go, and a lock can be made for what is deleted. What a save
//! stores does not use it up. It is made again when there is plenty of room.

use super::tree::OWN;
use super::trouble::FileTrouble;
use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags};
use stasis_sys::sync;
use std::os::fd::OwnedFd;
use std::path::Path;

const NAME: &str = "reserve";
const BYTES: u64 = 256 << 10;
/// It is made where at least this much is free, so that it never takes what somebody needs now.
const PLENTY: u64 = 16 * BYTES;

fn own(root: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::open(root.join(OWN), flags, Mode::empty())
}

/// Makes it, if it is not there and there is plenty of room. A store works without.
pub(super) fn make(root: &Path) {
    let Ok(own) = own(root) else {
        return;
    };
    let seen = fs::statat(&own, NAME, AtFlags::SYMLINK_NOFOLLOW);
    if seen.is_ok_and(|seen| u64::try_from(seen.st_size).is_ok_and(|is| is >= BYTES)) {
        return;
    }
    let free = fs::fstatvfs(&own).map(|space| space.f_bavail.saturating_mul(space.f_frsize));
    if free.is_ok_and(|free| free >= PLENTY) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = fs::openat(&own, NAME, flags, Mode::RUSR | Mode::WUSR)
            .and_then(|file| fs::fallocate(file, FallocateFlags::empty(), 0, BYTES));
        if made.is_err() {
            let _ = fs::unlinkat(&own, NAME, AtFlags::empty());
        }
    }
}

/// Lets it go, so that its room can be had; `false` when there is none.
fn release(root: &Path) -> bool {
    let Ok(own) = own(root) else {
        return false;
    };
    let is_gone = fs::unlinkat(&own, NAME, AtFlags::empty()).is_ok();
    if is_gone {
        // Blocks are free when the filesystem has written down that they are.
        let _ = sync::filesystem(&own);
    }
    is_gone
}

/// Does something that frees room, or leads to that; what fails for want of room is done once more without the reserve.
pub(super) fn lend<T>(
    root: &Path,
    mut work: impl FnMut() -> Result<T, FileTrouble>,
) -> Result<T, FileTrouble> {
    match work() {
        Err(trouble) if trouble.is_full() && release(root) => work(),
        done => done,
    }
}
