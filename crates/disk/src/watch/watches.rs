//! What the kernel is asked to tell of directories, and what it tells.
//!
//! *Always true:* every directory of the table is heard of by inotify or by fanotify, or is among the blind ones with the
//! reason. Nobody else knows who hears of what.
//!
//! With [`Hearer::Auto`], inotify hears of as many directories as it may, and fanotify of the others, where it is permitted: a mark on
//! a filesystem costs everybody who writes there, and wakes us for what is not ours. It is set when the first directory needs it
//! and taken away with the last one. A directory stays with the one that hears of it: nothing that one has heard of it is thrown away.

mod fanotify;
mod inotify;
mod known;
mod notices;

use super::{Hearer, MonitorSettings, Why};
use crate::fs::root_dir::RootDir;
use fanotify::{Fanotify, NAP};
use inotify::{Inotify, Put};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};
use stasis_model::tree::EntryPath;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

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

/// Who hears of how many directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hearing {
    /// Heard of by inotify.
    pub inotify: usize,
    /// Heard of by fanotify.
    pub fanotify: usize,
    /// Heard of by nobody, and read again now and then.
    pub blind: usize,
    /// Why fanotify could not be used, if it was needed.
    pub refused: Option<std::io::ErrorKind>,
}

#[derive(Debug)]
pub(super) struct Watches {
    root: Arc<RootDir>,
    hearer: Hearer,
    inotify: Inotify,
    fanotify: Option<Fanotify>,
    /// Why there is no fanotify; it is not asked for again.
    refused: Option<Errno>,
    blind: BTreeMap<EntryPath, Why>,
    /// The reason of a directory that became blind since it was last asked for.
    newly_blind: Option<Why>,
}

impl Watches {
    pub(super) fn new(root: Arc<RootDir>, settings: &MonitorSettings) -> Result<Self> {
        let (inotify, fanotify) = match settings.hearer {
            Hearer::Auto | Hearer::Inotify => (Inotify::open(settings.most_watches)?, None),
            Hearer::Fanotify => {
                let fanotify = Fanotify::open(root.directory(b"")?.as_fd())?;
                (Inotify::deaf(), Some(fanotify))
            }
        };
        Ok(Self {
            root,
            hearer: settings.hearer,
            inotify,
            fanotify,
            refused: None,
            blind: BTreeMap::new(),
            newly_blind: None,
        })
    }

    /// Watches an open directory that was reached as `path`, or makes it a blind one.
    pub(super) fn watch(&mut self, path: &EntryPath, directory: BorrowedFd<'_>) -> Result<()> {
        match self.hear_of(path, directory)? {
            Ok(()) => {
                self.blind.remove(path);
            }
            Err(why) => self.cannot_see(path, why),
        }
        Ok(())
    }

    /// Finds somebody who hears of an open directory, or says why nobody does.
    fn hear_of(
        &mut self,
        path: &EntryPath,
        directory: BorrowedFd<'_>,
    ) -> Result<std::result::Result<(), Why>> {
        let fanotify = self.fanotify.as_ref();
        if !fanotify.is_some_and(|fanotify| fanotify.sees(path)) {
            match self.inotify.watch(path, directory)? {
                Put::Watched => return Ok(Ok(())),
                Put::Unreadable => return Ok(Err(Why::Unreadable)),
                Put::Full => self.inotify.forget(path),
            }
        }
        let is_heard = match self.fanotify() {
            Some(fanotify) => fanotify.watch(path, directory)?,
            None => false,
        };
        Ok(if is_heard {
            Ok(())
        } else {
            Err(Why::WatchLimit)
        })
    }

    /// The one beyond the limit, if it is permitted.
    fn fanotify(&mut self) -> Option<&mut Fanotify> {
        let is_asked_for = self.hearer == Hearer::Auto && self.refused.is_none();
        if self.fanotify.is_none() && is_asked_for {
            let root = self.root.directory(b"");
            match root.and_then(|root| Fanotify::open(root.as_fd())) {
                Ok(fanotify) => self.fanotify = Some(fanotify),
                // There may be room for one later.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {}
                Err(error) => self.refused = Some(error),
            }
        }
        self.fanotify.as_mut()
    }

    /// Makes a directory one that only a rescan sees.
    pub(super) fn cannot_see(&mut self, path: &EntryPath, why: Why) {
        self.end(path);
        if self.blind.insert(path.clone(), why).is_none() {
            self.newly_blind = Some(why);
        }
    }

    /// Ends the watch on a directory that is not in the tree any more.
    pub(super) fn forget(&mut self, path: &EntryPath) {
        self.blind.remove(path);
        self.end(path);
    }

    fn end(&mut self, path: &EntryPath) {
        self.inotify.forget(path);
        let Some(fanotify) = &mut self.fanotify else {
            return;
        };
        fanotify.forget(path);
        if fanotify.len() == 0 && self.hearer == Hearer::Auto {
            self.fanotify = None;
        }
    }

    pub(super) fn sees(&self, path: &EntryPath) -> bool {
        let is_far = |fanotify: &Fanotify| fanotify.sees(path);
        self.inotify.sees(path) || self.fanotify.as_ref().is_some_and(is_far)
    }

    pub(super) fn blind(&self) -> &BTreeMap<EntryPath, Why> {
        &self.blind
    }

    pub(super) fn take_newly_blind(&mut self) -> Option<Why> {
        self.newly_blind.take()
    }

    pub(super) fn hearing(&self) -> Hearing {
        let refused = self.refused.map(|error| std::io::Error::from(error).kind());
        Hearing {
            inotify: self.inotify.len(),
            fanotify: self.fanotify.as_ref().map_or(0, Fanotify::len),
            blind: self.blind.len(),
            refused,
        }
    }

    /// Whether anybody hears of an open directory.
    #[cfg(test)]
    pub(super) fn hears_of(&self, directory: BorrowedFd<'_>) -> bool {
        let inode = crate::fs::metadata::of(directory).unwrap().inode;
        let is_known = |fanotify: &Fanotify| fanotify.knows(directory);
        self.inotify.watches(inode) || self.fanotify.as_ref().is_some_and(is_known)
    }

    /// Whether the filesystem is marked.
    #[cfg(test)]
    pub(super) fn is_marked(&self) -> bool {
        self.fanotify.is_some()
    }

    /// Makes the kernel end a watch without our knowing.
    #[cfg(test)]
    pub(super) fn lose(&self, path: &EntryPath) {
        self.inotify.lose(path);
    }

    /// Waits until the kernel has something to say; says whether a signal ended the waiting.
    pub(super) fn wait(&self, longest: Duration) -> Result<bool> {
        let is_noisy = self.fanotify.as_ref().is_some_and(Fanotify::is_noisy);
        let nap = if is_noisy {
            NAP.min(longest)
        } else {
            Duration::ZERO
        };
        if !nap.is_zero() && wait(&mut [], nap)? {
            return Ok(true);
        }
        let queues = [
            self.inotify.queue(),
            self.fanotify.as_ref().map(Fanotify::queue),
        ];
        let queues = queues.into_iter().flatten();
        let mut polled: Vec<PollFd<'_>> = queues
            .map(|queue| PollFd::from_borrowed_fd(queue, PollFlags::IN))
            .collect();
        wait(&mut polled, longest.saturating_sub(nap))
    }

    /// Reads everything that the kernel had to say when this was called; not forever, if somebody keeps it talking.
    pub(super) fn hear(&mut self) -> Result<Vec<Sign>> {
        let mut signs = Vec::new();
        self.inotify.hear(&mut signs)?;
        if let Some(fanotify) = &mut self.fanotify {
            fanotify.hear(&mut signs)?;
        }
        Ok(signs)
    }
}

/// Waits for any of these; says whether a signal ended the waiting.
fn wait(polled: &mut [PollFd<'_>], longest: Duration) -> Result<bool> {
    let limit = Timespec {
        tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(longest.subsec_nanos()),
    };
    match poll(polled, Some(&limit)) {
        Ok(_) => Ok(false),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error),
    }
}
