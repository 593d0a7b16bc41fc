//! The calls of fanotify, and the handles by which it names directories.

use rustix::io::{Errno, Result};
use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What the longest handle takes.
const LONGEST: usize = 128;

/// `struct file_handle` with room for the longest one.
#[repr(C)]
struct Handle {
    length: u32,
    kind: i32,
    bytes: [u8; LONGEST],
}

const _: () = assert!(std::mem::offset_of!(Handle, bytes) == size_of::<libc::file_handle>());

/// What is done to the marks of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// One directory is heard of.
    Directory,
    /// It is heard of no more.
    NoDirectory,
    /// Everything on the filesystem is heard of.
    Filesystem,
}

fn said() -> Errno {
    Errno::from_io_error(&Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Opens a queue whose events name a directory by its handle, and an entry in it; reading it never waits.
pub(crate) fn queue() -> Result<OwnedFd> {
    let flags =
        libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_DFID_NAME | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
    // SAFETY: the call takes two numbers.
    let opened = unsafe { libc::fanotify_init(flags, 0) };
    if opened < 0 {
        return Err(said());
    }
    // SAFETY: the kernel has just opened it, for nobody but us.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Changes what is heard of: these events, in an open directory or on its filesystem.
pub(crate) fn mark(
    queue: BorrowedFd<'_>,
    change: Mark,
    events: u64,
    directory: BorrowedFd<'_>,
) -> Result<()> {
    let flags = match change {
        Mark::Directory => libc::FAN_MARK_ADD,
        Mark::NoDirectory => libc::FAN_MARK_REMOVE,
        Mark::Filesystem => libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM,
    };
    let (queue, directory) = (queue.as_raw_fd(), directory.as_raw_fd());
    // SAFETY: both descriptors are open during the call, and no path means the directory itself.
    let marked = unsafe { libc::fanotify_mark(queue, flags, events, directory, std::ptr::null()) };
    if marked < 0 {
        return Err(said());
    }
    Ok(())
}

/// The handle of an open directory: its kind, then its bytes, as they stand next to each other in an event.
pub(crate) fn handle(directory: BorrowedFd<'_>) -> Result<Box<[u8]>> {
    let mut handle = Handle {
        length: u32::try_from(LONGEST).unwrap_or_default(),
        kind: 0,
        bytes: [0; LONGEST],
    };
    let mut mount = 0;
    // SAFETY: the path is one, the structure begins like a `file_handle` and has as many bytes behind it as `length` says,
    // all of whose bits are good in any state, and nothing is kept.
    let found = unsafe {
        libc::name_to_handle_at(
            directory.as_raw_fd(),
            c"".as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if found < 0 {
        return Err(said());
    }
    let length = usize::try_from(handle.length).or(Err(Errno::OVERFLOW))?;
    let bytes = handle.bytes.get(..length).ok_or(Errno::OVERFLOW)?;
    Ok([&handle.kind.to_ne_bytes(), bytes].concat().into())
}
