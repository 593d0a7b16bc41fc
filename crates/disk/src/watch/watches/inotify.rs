//! One watch of the kernel's per directory.
//!
//! A watch is put on an *open directory* (through its link in `/proc/self/fd`, which leads to the very inode), never on a
//! path: whatever somebody puts in the place of a directory meanwhile is not what gets watched.

use super::Sign;
use super::known::Known;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::{Errno, Result, ioctl_fionread};
use stasis_model::tree::EntryPath;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

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

/// What came of putting up a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Put {
    Watched,
    /// There are as many watches as there may be.
    Full,
    /// We may not know what happens in it.
    Unreadable,
}

#[derive(Debug)]
pub(super) struct Inotify {
    /// `None` when the kernel gave none.
    queue: Option<OwnedFd>,
    most: usize,
    known: Known<i32>,
}

impl Inotify {
    /// Opens a queue that takes `most` watches.
    pub(super) fn open(most: usize) -> Result<Self> {
        let queue = match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(queue) => Some(queue),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => None,
            Err(error) => return Err(error),
        };
        let known = Known::default();
        Ok(Self { queue, most, known })
    }

    /// One that hears of nothing.
    pub(super) fn deaf() -> Self {
        Self {
            queue: None,
            most: 0,
            known: Known::default(),
        }
    }

    /// Watches an open directory that was reached as `path`.
    pub(super) fn watch(&mut self, path: &EntryPath, directory: BorrowedFd<'_>) -> Result<Put> {
        let has_room = self.known.has(path) || self.known.len() < self.most;
        let Some(queue) = self.queue.as_ref().filter(|_| has_room) else {
            return Ok(Put::Full);
        };
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let number = match inotify::add_watch(queue, link, ASKED) {
            Ok(number) => number,
            Err(Errno::NOSPC | Errno::NOMEM) => return Ok(Put::Full),
            Err(Errno::ACCESS | Errno::PERM) => return Ok(Put::Unreadable),
            Err(error) => return Err(error),
        };
        if let Some(other) = self.known.put(path, &number) {
            self.end(other);
        }
        Ok(Put::Watched)
    }

    pub(super) fn forget(&mut self, path: &EntryPath) {
        if let Some(number) = self.known.take(path) {
            self.end(number);
        }
    }

    fn end(&self, number: i32) {
        if let Some(queue) = &self.queue {
            // The kernel may have ended it already.
            let _ = inotify::remove_watch(queue, number);
        }
    }

    pub(super) fn sees(&self, path: &EntryPath) -> bool {
        self.known.has(path)
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn queue(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref().map(AsFd::as_fd)
    }

    /// Whether the kernel watches an inode for us, by its own account.
    #[cfg(test)]
    pub(super) fn watches(&self, inode: u64) -> bool {
        let Some(queue) = &self.queue else {
            return false;
        };
        let account = format!("/proc/self/fdinfo/{}", queue.as_raw_fd());
        let account = std::fs::read_to_string(account).unwrap();
        let of = |line: &str| {
            let hex = line.split_once("ino:")?.1.split(' ').next()?;
            u64::from_str_radix(hex, 16).ok()
        };
        let mut lines = account.lines().filter(|line| line.starts_with("inotify "));
        lines.any(|line| of(line).unwrap() == inode)
    }

    /// Makes the kernel end a watch without our knowing.
    #[cfg(test)]
    pub(super) fn lose(&self, path: &EntryPath) {
        let (queue, number) = (self.queue.as_ref(), self.known.key(path));
        inotify::remove_watch(queue.unwrap(), *number.unwrap()).unwrap();
    }

    /// Reads everything that the kernel had to say when this was called; not forever, if somebody keeps it talking.
    pub(super) fn hear(&mut self, signs: &mut Vec<Sign>) -> Result<()> {
        let Some(queue) = self.queue.take() else {
            return Ok(());
        };
        let heard = self.read(&queue, signs);
        self.queue = Some(queue);
        heard
    }

    fn read(&mut self, queue: &OwnedFd, signs: &mut Vec<Sign>) -> Result<()> {
        let mut left = ioctl_fionread(queue)? / SMALLEST_EVENT;
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(queue, &mut buffer);
        while left > 0 || !reader.is_buffer_empty() {
            left = left.saturating_sub(1);
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            signs.extend(self.read_one(event.wd(), event.events(), name));
        }
        Ok(())
    }

    fn read_one(&mut self, number: i32, said: ReadFlags, name: Option<&[u8]>) -> Option<Sign> {
        if said.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Some(Sign::Overflow);
        }
        if said.contains(ReadFlags::UNMOUNT) {
            return Some(Sign::Unmounted);
        }
        if said.contains(ReadFlags::IGNORED) {
            return self.known.lose(&number).map(Sign::Lost);
        }
        let path = self.known.path(&number)?.child(name?).ok()?;
        let certain = ReadFlags::MODIFY | ReadFlags::DELETE | ReadFlags::MOVED_FROM;
        Some(Sign::Name {
            path,
            is_directory: said.contains(ReadFlags::ISDIR),
            is_certain: said.intersects(certain),
        })
    }
}
