//! Opening things in ways that only this system has.

use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Result;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Opens something to go on from it, or to ask what it is, but not to read it: needs no right to read.
pub const PLACE: OFlags = OFlags::PATH;

/// Which filesystems the way to something may lead through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The one where it begins.
    OneFilesystem,
    /// Whatever is mounted on the way.
    AnyFilesystem,
}

/// Opens what lies beneath an open directory, and nothing else: the way passes through no link and never leads out, whoever moves things about
/// meanwhile. Tries once; [`AGAIN`](rustix::io::Errno::AGAIN) means that somebody does.
///
/// [`NOSYS`](rustix::io::Errno::NOSYS) or [`PERM`](rustix::io::Errno::PERM) where the system does not offer it, or a sandbox blocks it:
/// then each component has to be opened by itself.
pub fn inside(from: BorrowedFd<'_>, way: &[u8], flags: OFlags, reach: Reach) -> Result<OwnedFd> {
    let stay = match reach {
        Reach::OneFilesystem => ResolveFlags::NO_XDEV,
        Reach::AnyFilesystem => ResolveFlags::empty(),
    };
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | stay;
    fs::openat2(from, way, flags, Mode::empty(), resolve)
}

/// Opens an entry of an open directory, unless something else is mounted on it or it is a link. Errors as those of [`inside`].
pub fn entry_of(parent: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd> {
    let stay = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    fs::openat2(parent, name, flags, Mode::empty(), stay)
}
