//! Which directories the kernel watches for us, and the events that it reports.
//!
//! *Always true:* every directory of the table has a watch of the kernel's, or is among the unwatched ones with the reason: those are
//! read again now and then.

mod kernel;
mod watch_table;

use super::{GapReason, MonitorSettings};
use crate::fs::sys::watch::AddedWatch;
use kernel::KernelWatches;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};
use stasis_model::tree::EntryPath;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// One event as the kernel reports it.
#[derive(Debug)]
pub(super) enum RawEvent {
    /// Something was done to a name in a directory.
    Name {
        path: EntryPath,
        is_directory: bool,
        /// Whether it is certain that the content changed, or that the name led elsewhere for a while.
        is_certain: bool,
    },
    /// The kernel removed the watch of a directory.
    Lost(EntryPath),
    /// The kernel's queue overflowed.
    Overflow,
    /// The filesystem of a directory was unmounted.
    Unmounted,
}

/// How many directories are watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchCoverage {
    /// Watched by the kernel.
    pub watched: usize,
    /// Not watched, and read again now and then.
    pub unwatched: usize,
}

#[derive(Debug)]
pub(super) struct Watches {
    kernel: KernelWatches,
    unwatched: BTreeMap<EntryPath, GapReason>,
    /// The reason of a directory that became unwatched since it was last asked for.
    newly_unwatched: Option<GapReason>,
}

impl Watches {
    pub(super) fn new(settings: &MonitorSettings) -> Result<Self> {
        Ok(Self {
            kernel: KernelWatches::open(settings.most_watches)?,
            unwatched: BTreeMap::new(),
            newly_unwatched: None,
        })
    }

    /// Watches an open directory that was reached as `path`, or makes it an unwatched one.
    pub(super) fn watch(&mut self, path: &EntryPath, directory: BorrowedFd<'_>) -> Result<()> {
        match self.kernel.watch(path, directory)? {
            AddedWatch::Watched(_) => {
                self.unwatched.remove(path);
            }
            AddedWatch::Unreadable => self.mark_unwatched(path, GapReason::Unreadable),
            AddedWatch::Full => self.mark_unwatched(path, GapReason::WatchLimit),
        }
        Ok(())
    }

    /// Makes a directory one whose changes only a rescan finds.
    pub(super) fn mark_unwatched(&mut self, path: &EntryPath, why: GapReason) {
        self.kernel.forget(path);
        if self.unwatched.insert(path.clone(), why).is_none() {
            self.newly_unwatched = Some(why);
        }
    }

    /// Ends the watch on a directory that is not in the tree any more.
    pub(super) fn forget(&mut self, path: &EntryPath) {
        self.unwatched.remove(path);
        self.kernel.forget(path);
    }

    pub(super) fn is_watched(&self, path: &EntryPath) -> bool {
        self.kernel.has(path)
    }

    pub(super) fn unwatched(&self) -> &BTreeMap<EntryPath, GapReason> {
        &self.unwatched
    }

    pub(super) fn take_newly_unwatched(&mut self) -> Option<GapReason> {
        self.newly_unwatched.take()
    }

    pub(super) fn coverage(&self) -> WatchCoverage {
        WatchCoverage {
            watched: self.kernel.len(),
            unwatched: self.unwatched.len(),
        }
    }

    /// Whether the kernel watches an open directory for us.
    #[cfg(test)]
    pub(super) fn has_kernel_watch(&self, directory: BorrowedFd<'_>) -> bool {
        let inode = crate::fs::metadata::of(directory).unwrap().inode;
        self.kernel.has_kernel_watch(inode)
    }

    /// Makes the kernel end a watch without our knowing.
    #[cfg(test)]
    pub(super) fn lose(&self, path: &EntryPath) {
        self.kernel.lose(path);
    }

    /// Waits until the kernel has something to report; says whether a signal ended the waiting.
    pub(super) fn wait(&self, longest: Duration) -> Result<bool> {
        let limit = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        let queue = self.kernel.queue();
        let mut polled: Vec<PollFd<'_>> = queue
            .map(|queue| PollFd::from_borrowed_fd(queue, PollFlags::IN))
            .into_iter()
            .collect();
        match poll(&mut polled, Some(&limit)) {
            Ok(_) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Reads everything that the kernel had to report when this was called; not forever, if more keeps coming.
    pub(super) fn read_events(&mut self) -> Result<Vec<RawEvent>> {
        self.kernel.read_events()
    }
}
