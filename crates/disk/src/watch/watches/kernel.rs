//! One watch of the kernel's per directory, and which path each of them stands for.

use super::RawEvent;
use super::watch_table::WatchTable;
use crate::fs::sys::watch::{AddedWatch, QueueEvent, WatchId, WatchQueue};
use rustix::io::Result;
use stasis_model::tree::EntryPath;
use std::os::fd::{AsFd, BorrowedFd};

#[derive(Debug)]
pub(super) struct KernelWatches {
    /// `None` when the kernel gave none.
    queue: Option<WatchQueue>,
    most: usize,
    watch_table: WatchTable<WatchId>,
}

impl KernelWatches {
    /// Opens a queue that takes `most` watches.
    pub(super) fn open(most: usize) -> Result<Self> {
        Ok(Self {
            queue: WatchQueue::open()?,
            most,
            watch_table: WatchTable::default(),
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
        let added = queue.add(directory)?;
        if let AddedWatch::Watched(watch) = added
            && let Some(other) = self.watch_table.put(path, &watch)
        {
            self.end(other);
        }
        Ok(added)
    }

    pub(super) fn forget(&mut self, path: &EntryPath) {
        if let Some(watch) = self.watch_table.take(path) {
            self.end(watch);
        }
    }

    fn end(&self, watch: WatchId) {
        if let Some(queue) = &self.queue {
            // The kernel may have ended it already.
            let _ = queue.remove(watch);
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
        use std::os::fd::AsRawFd;
        let Some(queue) = self.queue() else {
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
        let (queue, watch) = (self.queue.as_ref(), self.watch_table.key(path));
        queue.unwrap().remove(*watch.unwrap()).unwrap();
    }

    /// Reads everything that the kernel had to report when this was called; not forever, if more keeps coming.
    pub(super) fn read_events(&mut self) -> Result<Vec<RawEvent>> {
        let mut events = Vec::new();
        if let Some(queue) = &self.queue {
            let watch_table = &mut self.watch_table;
            queue.read(|event| events.extend(read_one(watch_table, event)))?;
        }
        Ok(events)
    }
}

fn read_one(watch_table: &mut WatchTable<WatchId>, event: QueueEvent<'_>) -> Option<RawEvent> {
    match event {
        QueueEvent::Overflow => Some(RawEvent::Overflow),
        QueueEvent::Unmounted => Some(RawEvent::Unmounted),
        QueueEvent::Ended(watch) => watch_table.lose(&watch).map(RawEvent::Lost),
        QueueEvent::Name {
            watch,
            name,
            is_directory,
            is_certain,
        } => Some(RawEvent::Name {
            path: watch_table.path(&watch)?.child(name).ok()?,
            is_directory,
            is_certain,
        }),
    }
}
