//! One mark on a whole filesystem.
//!
//! The kernel tells of everything that happens on the filesystem, and names each directory by its handle. The handles of the
//! directories of the tree are known, taken from the open directories; what happens in any other one is dropped by that, and no
//! handle is ever opened.
//!
//! 1. The queue is opened and the mark is set, before the first directory is known.
//! 2. An open directory becomes known by its handle, and only then is it listed, by whoever opened it.
//! 3. What the queue holds is read; a notice of a directory that is not known yet, or no longer, is dropped.
//!
//! *Always true:* what happens in a directory after it became known is a sign. What happened before, and was dropped, is in
//! the list: so of a directory that was moved in from outside, and so when notices of what is inside a new directory are read
//! before the new directory itself is looked at. A directory that moves within the tree is opened, known and listed under its
//! new path before, or after, its old path is found gone.
//!
//! *The queue is bounded,* as the kernel has it. Without a bound, somebody who writes elsewhere on the filesystem while
//! nobody listens would fill the kernel's memory in our name; an overflow costs a rescan. So that a long rescan does not
//! cause the next one, the queue is read whenever a directory becomes known, too. After nothing but noise we wait [`NAP`] before
//! we listen again: noise wakes us so often and no oftener.
//!
//! *A handle must stay what it is.* It does not where a filesystem lies over others: overlayfs gives a directory another one
//! when it is first written to. So the mark is put only on filesystems of which it is known (and tested), and only after an
//! event of the root was heard under the handle that we would know it by. Handles of btrfs have the subvolume in them,
//! so that the filesystem's id, of which there is one per subvolume, is not needed to tell them apart.

use super::Sign;
use super::known::Known;
use super::notices::{HEAD, Notice, Notices, Torn};
use crate::fs::sys::fanotify::{self, Mark};
use libc::{
    FAN_CLOSE_WRITE, FAN_CREATE, FAN_DELETE, FAN_DELETE_SELF, FAN_MODIFY, FAN_MOVED_FROM,
    FAN_MOVED_TO, FAN_ONDIR, FAN_OPEN, FAN_Q_OVERFLOW,
};
use rustix::fs::{Mode, OFlags, fstatfs, openat};
use rustix::io::{self, Errno, ioctl_fionread, read};
use stasis_model::tree::EntryPath;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long noise may go on without our listening: short beside a window, and too short for the kernel's queue to fill.
pub(super) const NAP: Duration = Duration::from_millis(10);
/// What the kernel fills with notices in one call.
const BUFFER: usize = 64 << 10;
/// How many signs are kept that were heard of while directories became known; more stay with the kernel.
const MOST_KEPT: usize = 1 << 16;

/// The same as with inotify; a deleted directory tells that by itself.
const ASKED: u64 = FAN_CREATE
    | FAN_DELETE
    | FAN_MODIFY
    | FAN_CLOSE_WRITE
    | FAN_MOVED_FROM
    | FAN_MOVED_TO
    | FAN_DELETE_SELF
    | FAN_ONDIR;
const CERTAIN: u64 = FAN_MODIFY | FAN_DELETE | FAN_MOVED_FROM;

/// Filesystems that give a directory the same handle as long as it lives: ext4 (and its forebears), xfs, btrfs, tmpfs.
const STEADY: [u64; 4] = [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994];

#[derive(Debug)]
pub(super) struct Fanotify {
    queue: OwnedFd,
    buffer: Box<[u8]>,
    known: Known<Box<[u8]>>,
    /// Heard of while directories became known.
    kept: Vec<Sign>,
    /// Whether there was nothing but noise, when we last listened.
    is_noisy: bool,
}

impl Fanotify {
    /// Listens to the filesystem of an open directory; fails where that is not permitted, or would not be reliable.
    pub(super) fn open(root: BorrowedFd<'_>) -> io::Result<Self> {
        let magic = u64::try_from(fstatfs(root)?.f_type).or(Err(Errno::OPNOTSUPP))?;
        if !STEADY.contains(&(magic & 0xFFFF_FFFF)) {
            return Err(Errno::OPNOTSUPP);
        }
        let mut fanotify = Self {
            queue: fanotify::queue()?,
            buffer: vec![0; BUFFER].into(),
            known: Known::default(),
            kept: Vec::new(),
            is_noisy: false,
        };
        if !fanotify.hears_of_opening(root)? {
            return Err(Errno::OPNOTSUPP);
        }
        let queue = fanotify.queue.as_fd();
        fanotify::mark(queue, Mark::Filesystem, ASKED, root)?;
        Ok(fanotify)
    }

    /// Opens a directory and sees whether that is heard of, under the handle that we know it by.
    fn hears_of_opening(&mut self, directory: BorrowedFd<'_>) -> io::Result<bool> {
        let handle = fanotify::handle(directory)?;
        let (queue, asked) = (self.queue.as_fd(), FAN_OPEN | FAN_ONDIR);
        fanotify::mark(queue, Mark::Directory, asked, directory)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(directory, c".", flags, Mode::empty())?;
        fanotify::mark(queue, Mark::NoDirectory, asked, directory)?;
        let length = match read(queue, &mut *self.buffer) {
            Err(Errno::AGAIN) => 0,
            length => length?,
        };
        let is_it = |notice: Notice<'_>| {
            let place = notice.place.filter(|place| *place.directory == *handle);
            place.is_some_and(|place| place.is_directory_itself())
        };
        Ok(Notices(&self.buffer[..length]).flatten().any(is_it))
    }

    /// Knows an open directory that was reached as `path`; says whether it has a handle.
    pub(super) fn watch(
        &mut self,
        path: &EntryPath,
        directory: BorrowedFd<'_>,
    ) -> io::Result<bool> {
        if self.kept.len() < MOST_KEPT {
            self.listen()?;
        }
        let Ok(handle) = fanotify::handle(directory) else {
            return Ok(false);
        };
        self.known.put(path, &handle);
        Ok(true)
    }

    pub(super) fn forget(&mut self, path: &EntryPath) {
        self.known.take(path);
    }

    pub(super) fn sees(&self, path: &EntryPath) -> bool {
        self.known.has(path)
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn queue(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    pub(super) fn is_noisy(&self) -> bool {
        self.is_noisy
    }

    /// Whether an open directory is known.
    #[cfg(test)]
    pub(super) fn knows(&self, directory: BorrowedFd<'_>) -> bool {
        let handle = fanotify::handle(directory).unwrap();
        self.known.path(&*handle).is_some()
    }

    /// Reads everything that the kernel had to say when this was called; not forever, if somebody keeps it talking.
    pub(super) fn hear(&mut self, signs: &mut Vec<Sign>) -> io::Result<()> {
        let heard = self.listen();
        signs.append(&mut self.kept);
        heard
    }

    fn listen(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let heard = self.read(&mut buffer);
        self.buffer = buffer;
        heard
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        // The kernel counts no more than the head of each.
        let mut left = ioctl_fionread(&self.queue)? / HEAD as u64;
        let (before, is_any) = (self.kept.len(), left > 0);
        while left > 0 {
            let length = match read(&self.queue, &mut *buffer) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            for notice in Notices(&buffer[..length]) {
                left = left.saturating_sub(1);
                self.kept.extend(sign(&mut self.known, notice));
            }
        }
        self.is_noisy = is_any && self.kept.len() == before;
        Ok(())
    }
}

/// What a notice means to us; nothing, if it is of a directory that is not known.
fn sign(known: &mut Known<Box<[u8]>>, notice: Result<Notice<'_>, Torn>) -> Option<Sign> {
    // Whatever one that is torn was going to say is lost, and one that does not say where may mean anywhere.
    let Ok(Notice {
        mask,
        place: Some(place),
    }) = notice
    else {
        return Some(Sign::Overflow);
    };
    if mask & FAN_Q_OVERFLOW != 0 {
        return Some(Sign::Overflow);
    }
    if place.is_directory_itself() {
        let is_gone = mask & FAN_DELETE_SELF != 0;
        let gone = is_gone.then(|| known.lose(place.directory));
        return gone.flatten().map(Sign::Lost);
    }
    let path = known.path(place.directory)?.child(place.name).ok()?;
    Some(Sign::Name {
        path,
        is_directory: mask & FAN_ONDIR != 0,
        is_certain: mask & CERTAIN != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::super::notices::Place;
    use super::*;

    #[test]
    fn a_notice_that_does_not_say_where_may_mean_anywhere() {
        let path = EntryPath::parse(b"d").unwrap();
        let mut known = Known::default();
        known.put(&path, &Box::from(&b"known"[..]));
        let mut meaning = |mask, place: Option<(&'static str, &'static str)>| {
            let place = place.map(|(directory, name)| Place {
                directory: directory.as_bytes(),
                name: name.as_bytes(),
            });
            let sign = sign(&mut known, Ok(Notice { mask, place }));
            sign.map(|sign| match sign {
                Sign::Name { path, .. } => format!("{path}"),
                Sign::Lost(path) => format!("lost {path}"),
                other => format!("{other:?}"),
            })
        };
        let overflow = Some("Overflow".to_owned());

        assert_eq!(meaning(FAN_Q_OVERFLOW, None), overflow);
        assert_eq!(meaning(FAN_MODIFY, None), overflow);
        assert_eq!(meaning(FAN_MODIFY, Some(("other", "file"))), None);
        let told = meaning(FAN_MODIFY, Some(("known", "file")));
        assert_eq!(told.as_deref(), Some("d/file"));
        assert_eq!(meaning(FAN_OPEN, Some(("known", "."))), None);
        assert_eq!(meaning(FAN_MODIFY, Some(("known", ".."))), None);
        let gone = meaning(FAN_DELETE_SELF | FAN_ONDIR, Some(("known", ".")));
        assert_eq!(gone.as_deref(), Some("lost d"));
        assert_eq!(meaning(FAN_MODIFY, Some(("known", "file"))), None);
        let torn = sign(&mut known, Err(Torn));
        assert!(matches!(torn, Some(Sign::Overflow)));
    }
}
