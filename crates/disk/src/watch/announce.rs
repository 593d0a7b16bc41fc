//! Our own changes, which somebody else records.
//!
//! 1. [`Announcer::announce`] the paths.
//! 2. Change them.
//! 3. Drop the [`Announced`]: it looks once at what was left there.
//!
//! Whatever the monitor finds at these paths from then on is recorded and not reported, until it has heard everything that was
//! said before step 3; a path that is not as step 3 left it was changed by somebody else and is reported. So is a path of which
//! an event was read before step 1: that was not us, or not us alone.
//!
//! A crash between the steps takes the monitor with it; nothing outlives the process.

use super::table::{EntryStat, WatchedKind};
use crate::fs::root_dir::{self, RootDir};
use crate::worker_pool::lock;
use rustix::io::Errno;
use stasis_model::time::Clock;
use stasis_model::tree::EntryPath;
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// What was left at an announced path.
#[derive(Debug)]
enum Left {
    Nothing,
    Entry(EntryStat),
    /// A directory, or something that could not be looked at: anything in it is ours.
    Anything,
}

#[derive(Debug)]
struct Announcement {
    generation: u64,
    paths: HashSet<EntryPath>,
    /// On the clock that only goes forward.
    since: Duration,
    /// Set when the change is over.
    left: OnceLock<HashMap<EntryPath, Left>>,
}

impl Announcement {
    /// Whether `now` at `path`, of which the first event came at `first`, is our doing.
    fn explains(&self, path: &EntryPath, first: Duration, now: Option<&EntryStat>) -> bool {
        if first < self.since || !self.covers(path) {
            return false;
        }
        let left = self.left.get().and_then(|left| left.get(path));
        match (left, now) {
            (Some(Left::Nothing), now) => now.is_none(),
            (Some(Left::Entry(left)), Some(now)) => now.is_untouched(left),
            (Some(Left::Entry(_)), None) => false,
            (Some(Left::Anything) | None, _) => true,
        }
    }

    /// Whether `path` or something that holds it was announced.
    fn covers(&self, path: &EntryPath) -> bool {
        let mut at = Some(path.clone());
        while let Some(path) = at {
            if self.paths.contains(&path) {
                return true;
            }
            at = path.split_last().map(|(above, _)| above);
        }
        false
    }
}

#[derive(Debug, Default)]
struct AnnouncementBook {
    last: u64,
    open: Vec<Arc<Announcement>>,
}

/// Tells the monitor of changes that are its owner's, from any thread.
#[derive(Clone, Debug)]
pub struct Announcer {
    book: Arc<Mutex<AnnouncementBook>>,
    root: Arc<RootDir>,
    clock: Arc<dyn Clock>,
}

/// A change of ours that is going on; it is over when this is dropped.
#[derive(Debug)]
#[must_use = "the change is taken to be over when this is dropped"]
pub struct Announced {
    one: Arc<Announcement>,
    announcer: Announcer,
}

impl Announcer {
    pub(super) fn new(root: Arc<RootDir>, clock: Arc<dyn Clock>) -> Self {
        let book = Arc::default();
        Self { book, root, clock }
    }

    /// Says that these paths, and what is in those that are directories, are about to be changed by us.
    ///
    /// A path that is announced by itself is compared with what we left there; of a directory everything in it is taken
    /// for ours until the monitor has caught up, so it is better to name files.
    pub fn announce(&self, paths: impl IntoIterator<Item = EntryPath>) -> Announced {
        let mut book = lock(&self.book);
        book.last += 1;
        let one = Arc::new(Announcement {
            generation: book.last,
            paths: paths.into_iter().collect(),
            since: self.clock.uptime(),
            left: OnceLock::new(),
        });
        book.open.push(one.clone());
        let announcer = self.clone();
        Announced { one, announcer }
    }

    fn look(&self, path: &EntryPath) -> Left {
        let Some((above, name)) = path.split_last() else {
            return Left::Anything;
        };
        let Ok(name) = CString::new(name) else {
            return Left::Anything;
        };
        let directory = self.root.directory(above.as_bytes());
        match directory.and_then(|directory| root_dir::find(directory, &name)) {
            Ok(None) | Err(Errno::NOENT | Errno::NOTDIR) => Left::Nothing,
            Ok(Some(seen)) => match EntryStat::of(&seen, 0) {
                Some(fact) if fact.kind != WatchedKind::Directory => Left::Entry(fact),
                _ => Left::Anything,
            },
            Err(_) => Left::Anything,
        }
    }

    /// What is announced now.
    pub(super) fn open(&self) -> Announcements {
        let book = lock(&self.book);
        Announcements(book.open.clone())
    }

    /// The generations of changes that are over; once everything said before this call was heard, they may be
    /// [retired](Self::retire).
    pub(super) fn over(&self) -> Vec<u64> {
        let Announcements(open) = self.open();
        let over = open.iter().filter(|one| one.left.get().is_some());
        over.map(|one| one.generation).collect()
    }

    pub(super) fn retire(&self, over: &[u64]) {
        if over.is_empty() {
            return;
        }
        let mut book = lock(&self.book);
        book.open.retain(|one| !over.contains(&one.generation));
    }
}

impl Announced {
    /// Which change this is; they are counted from 1.
    pub fn generation(&self) -> u64 {
        self.one.generation
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let paths = self.one.paths.iter();
        let left = paths.map(|path| (path.clone(), self.announcer.look(path)));
        let _ = self.one.left.set(left.collect());
    }
}

/// What was announced at one moment.
#[derive(Debug, Default)]
pub(super) struct Announcements(Vec<Arc<Announcement>>);

impl Announcements {
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn explain(
        &self,
        path: &EntryPath,
        first: Duration,
        now: Option<&EntryStat>,
    ) -> bool {
        self.0.iter().any(|one| one.explains(path, first, now))
    }
}
