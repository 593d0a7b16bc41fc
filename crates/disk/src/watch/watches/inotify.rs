//! One watch of the kernel's per directory.
//!
//! A watch is put on an *open directory* (through its link in `/proc/self/fd`, which leads to the very inode), never on a
//! path: whatever somebody puts in the place of a directory meanwhile is not what gets watched.

use super::RawEvent;
use super::watch_table::WatchTable;
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
pub(super) enum AddedWatch {
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
    watch_table: WatchTable<i32>,
}

impl Inotify {
    /// Opens a queue that takes `most` watches.
    pub(super) fn open(most: usize) -> Result<Self> {
        let queue = match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(queue) => Some(queue),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => None,
            Err(error) => return Err(error),
        };
        let watch_table = WatchTable::default();
        Ok(Self {
            queue,
            most,
            watch_table,
        })
    }

    /// Watches an open directory that was reached as `path`.
    pub(super) fn watch(
        &mut self,
        path: &EntryPath,
        directory: BorrowedFd<'_>,
    ) -> Result<AddedWatch> {
        let has_room = self.watch_table.has(path) || self.watch_table.len() < self.most;
        let Some(queue) = self.queue.as_ref().filter(|_| has_room) else {
            return Ok(AddedWatch::Full);
        };
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let number = match inotify::add_watch(queue, link, ASKED) {
            Ok(number) => number,
            Err(Errno::NOSPC | Errno::NOMEM) => return Ok(AddedWatch::Full),
            Err(Errno::ACCESS | Errno::PERM) => return Ok(AddedWatch::Unreadable),
            Err(error) => return Err(error),
        };
        if let Some(other) = self.watch_table.put(path, &number) {
            self.end(other);
        }
        Ok(AddedWatch::Watched)
    }

    pub(super) fn forget(&mut self, path: &EntryPath) {
        if let Some(number) = self.watch_table.take(path) {
            self.end(number);
        }
    }

    fn end(&self, number: i32) {
        if let Some(queue) = &self.queue {
            // The kernel may have ended it already.
            let _ = inotify::remove_watch(queue, number);
        }
    }

    pub(super) fn has(&self, path: &EntryPath) -> bool {
        self.watch_table.has(path)
    }

    pub(super) fn len(&self) -> usize {
        self.watch_table.len()
    }

    pub(super) fn queue(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref().map(AsFd::as_fd)
    }

    /// Whether the kernel watches an inode for us, by its own account.
    #[cfg(test)]
    pub(super) fn has_kernel_watch(&self, inode: u64) -> bool {
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
        let (queue, number) = (self.queue.as_ref(), self.watch_table.key(path));
        inotify::remove_watch(queue.unwrap(), *number.unwrap()).unwrap();
    }

    /// Reads everything that the kernel had to report when this was called; not forever, if more keeps coming.
    pub(super) fn read_events(&mut self) -> Result<Vec<RawEvent>> {
        let mut events = Vec::new();
        if let Some(queue) = self.queue.take() {
            let read = self.read_queue(&queue, &mut events);
            self.queue = Some(queue);
            read?;
        }
        Ok(events)
    }

    fn read_queue(&mut self, queue: &OwnedFd, events: &mut Vec<RawEvent>) -> Result<()> {
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
            events.extend(self.read_one(event.wd(), event.events(), name));
        }
        Ok(())
    }

    fn read_one(&mut self, number: i32, said: ReadFlags, name: Option<&[u8]>) -> Option<RawEvent> {
        if said.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Some(RawEvent::Overflow);
        }
        if said.contains(ReadFlags::UNMOUNT) {
            return Some(RawEvent::Unmounted);
        }
        if said.contains(ReadFlags::IGNORED) {
            return self.watch_table.lose(&number).map(RawEvent::Lost);
        }
        let path = self.watch_table.path(&number)?.child(name?).ok()?;
        let certain = ReadFlags::MODIFY | ReadFlags::DELETE | ReadFlags::MOVED_FROM;
        Some(RawEvent::Name {
            path,
            is_directory: said.contains(ReadFlags::ISDIR),
            is_certain: said.intersects(certain),
        })
    }
}
