//! The kernel's watches on directories.
//!
//! A watch is put on an *open directory* (through its link in `/proc/self/fd`, which leads to the very inode), never on a
//! path: whatever somebody puts in the place of a directory meanwhile is not what gets watched.
//!
//! *Always true:* every directory of the table has a watch, or is among the blind ones with the reason.

use super::Why;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::{Errno, Result, ioctl_fionread};
use stasis_model::tree::EntryPath;
use std::collections::{BTreeMap, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

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

/// One thing the kernel said.
#[derive(Debug)]
pub(super) enum Sign {
    /// Something was done to a name in a directory.
    Name {
        path: EntryPath,
        is_directory: bool,
        /// Whether it is certain that the content changed, or that the name led elsewhere for a while.
        is_certain: bool,
    },
    /// A directory is no longer watched by the kernel's own doing.
    Lost(EntryPath),
    /// More happened than the kernel keeps.
    Overflow,
    /// The filesystem of a directory was unmounted.
    Unmounted,
}

#[derive(Debug)]
pub(super) struct Watches {
    /// `None` when the kernel gave none: everything is blind then.
    inotify: Option<OwnedFd>,
    most: usize,
    by_number: HashMap<i32, EntryPath>,
    by_path: HashMap<EntryPath, i32>,
    blind: BTreeMap<EntryPath, Why>,
    /// The reason of a directory that became blind since it was last asked for.
    newly_blind: Option<Why>,
}

impl Watches {
    pub(super) fn new(most: usize) -> Result<Self> {
        let inotify = match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(inotify) => Some(inotify),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            inotify,
            most,
            by_number: HashMap::new(),
            by_path: HashMap::new(),
            blind: BTreeMap::new(),
            newly_blind: None,
        })
    }

    /// Watches an open directory that was reached as `path`, or makes it a blind one.
    pub(super) fn watch(&mut self, path: &EntryPath, directory: BorrowedFd<'_>) -> Result<()> {
        let has_room = self.by_path.contains_key(path) || self.by_number.len() < self.most;
        let Some(inotify) = self.inotify.as_ref().filter(|_| has_room) else {
            self.cannot_see(path, Why::WatchLimit);
            return Ok(());
        };
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        match inotify::add_watch(inotify, link, ASKED) {
            Ok(number) => self.is_watched(path, number),
            Err(Errno::NOSPC | Errno::NOMEM) => self.cannot_see(path, Why::WatchLimit),
            Err(Errno::ACCESS | Errno::PERM) => self.cannot_see(path, Why::Unreadable),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn is_watched(&mut self, path: &EntryPath, number: i32) {
        // The same directory under another name: it moved, and the old name is about to be found gone.
        if let Some(old) = self.by_number.insert(number, path.clone())
            && old != *path
        {
            self.by_path.remove(&old);
        }
        // Another directory under the same name.
        if let Some(old) = self.by_path.insert(path.clone(), number)
            && old != number
        {
            self.end(old);
        }
        self.blind.remove(path);
    }

    /// Makes a directory one that only a rescan sees.
    pub(super) fn cannot_see(&mut self, path: &EntryPath, why: Why) {
        if let Some(number) = self.by_path.remove(path) {
            self.end(number);
        }
        if self.blind.insert(path.clone(), why).is_none() {
            self.newly_blind = Some(why);
        }
    }

    /// Ends the watch on a directory that is not in the tree any more.
    pub(super) fn forget(&mut self, path: &EntryPath) {
        self.blind.remove(path);
        if let Some(number) = self.by_path.remove(path) {
            self.end(number);
        }
    }

    fn end(&mut self, number: i32) {
        self.by_number.remove(&number);
        if let Some(inotify) = &self.inotify {
            // The kernel may have ended it already.
            let _ = inotify::remove_watch(inotify, number);
        }
    }

    pub(super) fn sees(&self, path: &EntryPath) -> bool {
        self.by_path.contains_key(path)
    }

    pub(super) fn blind(&self) -> &BTreeMap<EntryPath, Why> {
        &self.blind
    }

    pub(super) fn take_newly_blind(&mut self) -> Option<Why> {
        self.newly_blind.take()
    }

    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// The inodes that the kernel watches for us, by its own account.
    #[cfg(test)]
    pub(super) fn watched_inodes(&self) -> Vec<u64> {
        let inotify = self.inotify.as_ref().unwrap().as_raw_fd();
        let account = std::fs::read_to_string(format!("/proc/self/fdinfo/{inotify}")).unwrap();
        let inode = |line: &str| {
            let hex = line.split_once("ino:")?.1.split(' ').next()?;
            u64::from_str_radix(hex, 16).ok()
        };
        let lines = account.lines().filter(|line| line.starts_with("inotify "));
        lines.map(|line| inode(line).unwrap()).collect()
    }

    /// Makes the kernel end a watch without our knowing.
    #[cfg(test)]
    pub(super) fn lose(&self, path: &EntryPath) {
        let inotify = self.inotify.as_ref().unwrap();
        inotify::remove_watch(inotify, self.by_path[path]).unwrap();
    }

    /// Waits until the kernel has something to say; says whether a signal ended the waiting.
    pub(super) fn wait(&self, longest: Duration) -> Result<bool> {
        let limit = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        let inotify = self.inotify.as_ref();
        let mut polled: Vec<PollFd<'_>> = inotify
            .map(|inotify| PollFd::from_borrowed_fd(inotify.as_fd(), PollFlags::IN))
            .into_iter()
            .collect();
        match poll(&mut polled, Some(&limit)) {
            Ok(_) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Reads everything that the kernel had to say when this was called; not forever, if somebody keeps it talking.
    pub(super) fn hear(&mut self) -> Result<Vec<Sign>> {
        let Some(inotify) = self.inotify.take() else {
            return Ok(Vec::new());
        };
        let mut signs = Vec::new();
        let heard = self.read(&inotify, &mut signs);
        self.inotify = Some(inotify);
        heard.map(|()| signs)
    }

    fn read(&mut self, inotify: &OwnedFd, signs: &mut Vec<Sign>) -> Result<()> {
        let mut left = ioctl_fionread(inotify)? / SMALLEST_EVENT;
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(inotify, &mut buffer);
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
            let path = self.by_number.remove(&number)?;
            self.by_path.remove(&path);
            return Some(Sign::Lost(path));
        }
        let path = self.by_number.get(&number)?.child(name?).ok()?;
        let certain = ReadFlags::MODIFY | ReadFlags::DELETE | ReadFlags::MOVED_FROM;
        Some(Sign::Name {
            path,
            is_directory: said.contains(ReadFlags::ISDIR),
            is_certain: said.intersects(certain),
        })
    }
}
