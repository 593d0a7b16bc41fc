//! A queue of what happens in directories.
//!
//! A watch is put on an *open directory*, never on a path: whatever somebody puts in the place of a directory meanwhile is not what gets
//! watched.

use crate::descriptor;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::{Errno, Result, ioctl_fionread};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the kernel fills with events in one call.
const BUFFER: usize = 64 << 10;
/// What an event takes at the least.
const SMALLEST_EVENT: u64 = 16;

/// What is asked of the kernel: all that gives or takes a name or changes a content. Permissions and times are not content.
const ASKED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

/// Which watch of a queue; two on one directory are one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WatchId(i32);

/// What came of putting up a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddedWatch {
    /// It is there.
    Watched(WatchId),
    /// There are as many watches as there may be.
    Full,
    /// We may not know what happens in it.
    Unreadable,
}

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueEvent<'e> {
    /// Something was done to a name in a directory.
    Name {
        /// Which directory.
        watch: WatchId,
        /// The name there.
        name: &'e [u8],
        /// Whether it is the name of a directory.
        is_directory: bool,
        /// Whether it is certain that the content changed, or that the name led elsewhere for a while.
        is_certain: bool,
    },
    /// A watch is there no more: the directory is gone, or somebody removed the watch.
    Ended(WatchId),
    /// More happened than the queue holds, and nobody knows what.
    Overflow,
    /// The filesystem of a directory was unmounted.
    Unmounted,
}

/// How much may be watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchLimits {
    /// How many directories a user may watch.
    pub directories: u64,
    /// How many programs of a user may.
    pub programs: u64,
}

/// How much may be watched on this machine; none if the system does not say.
pub fn limits() -> Option<WatchLimits> {
    let limit = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?;
        text.trim().parse().ok()
    };
    Some(WatchLimits {
        directories: limit("max_user_watches")?,
        programs: limit("max_user_instances")?,
    })
}

/// A queue of events, with the watches that fill it.
#[derive(Debug)]
pub struct WatchQueue(OwnedFd);

impl AsFd for WatchQueue {
    /// Is readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl WatchQueue {
    /// Opens one, or `None` when there are as many as there may be.
    pub fn open() -> Result<Option<Self>> {
        match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(queue) => Ok(Some(Self(queue))),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Watches an open directory.
    pub fn add(&self, directory: BorrowedFd<'_>) -> Result<AddedWatch> {
        match inotify::add_watch(&self.0, descriptor::link_to(directory), ASKED) {
            Ok(number) => Ok(AddedWatch::Watched(WatchId(number))),
            Err(Errno::NOSPC | Errno::NOMEM) => Ok(AddedWatch::Full),
            Err(Errno::ACCESS | Errno::PERM) => Ok(AddedWatch::Unreadable),
            Err(error) => Err(error),
        }
    }

    /// Ends a watch; an error where the kernel has ended it already.
    pub fn remove(&self, watch: WatchId) -> Result<()> {
        inotify::remove_watch(&self.0, watch.0)
    }

    /// Hands over everything that happened until this was called; not forever, if more keeps coming.
    pub fn read(&self, mut each: impl FnMut(QueueEvent<'_>)) -> Result<()> {
        let mut left = ioctl_fionread(&self.0)? / SMALLEST_EVENT;
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(&self.0, &mut buffer);
        while left > 0 || !reader.is_buffer_empty() {
            left = left.saturating_sub(1);
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            if let Some(event) = read_one(WatchId(event.wd()), event.events(), name) {
                each(event);
            }
        }
        Ok(())
    }
}

fn read_one(watch: WatchId, said: ReadFlags, name: Option<&[u8]>) -> Option<QueueEvent<'_>> {
    if said.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Some(QueueEvent::Overflow);
    }
    if said.contains(ReadFlags::UNMOUNT) {
        return Some(QueueEvent::Unmounted);
    }
    if said.contains(ReadFlags::IGNORED) {
        return Some(QueueEvent::Ended(watch));
    }
    let certain = ReadFlags::MODIFY | ReadFlags::DELETE | ReadFlags::MOVED_FROM;
    Some(QueueEvent::Name {
        watch,
        name: name?,
        is_directory: said.contains(ReadFlags::ISDIR),
        is_certain: said.intersects(certain),
    })
}
