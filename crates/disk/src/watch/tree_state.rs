//! The state of the tree as it was last read, and the events that a new look makes of it.

use super::announce::Announcements;
use super::file_event::{Action, FileEvent, OutgoingEvents};
use super::table::{EntryStat, EntryTable, WatchedKind};
use super::watches::Watches;
use super::{GapReason, MonitorError};
use crate::fs::fd::c_name;
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::{Mounts, RootDir};
use crate::tree::walk::Excludes;
use rustix::fs::Dir;
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use std::collections::{BTreeSet, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Which directories are read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reread {
    /// All that are met.
    All,
    /// Those that were not known, or cannot be watched.
    New,
}

/// Why something is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookReason {
    /// When the first event of it was read.
    pub(super) at: Timestamp,
    /// The same on the clock that only goes forward.
    pub(super) first: Duration,
    /// Whether it is certain that the content changed, or the name led elsewhere for a while.
    pub(super) is_certain: bool,
}

/// The table, and all that is needed to make it true.
#[derive(Debug)]
pub(super) struct TreeState {
    pub(super) root: Arc<RootDir>,
    pub(super) table: EntryTable,
    pub(super) watches: Watches,
    pub(super) outgoing: OutgoingEvents,
    pub(super) ignore: Excludes,
    pub(super) announced: Announcements,
    pub(super) most_entries: usize,
    /// Whether nothing is reported: the first look at everything.
    pub(super) is_silent: bool,
    /// When looking began, in nanoseconds since 1970.
    now: i64,
    /// Directories that must be read.
    to_read: Vec<EntryPath>,
    /// Files with several names of which something was reported under one.
    shared: HashSet<u64>,
}

/// Whether the system says that nothing (of the tree) is there.
fn is_absence(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV
    )
}

/// Whether the system says that we may not know.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::ACCESS | Errno::PERM)
}

impl TreeState {
    pub(super) fn new(root: Arc<RootDir>, watches: Watches, ignore: Excludes) -> Self {
        Self {
            root,
            table: EntryTable::default(),
            watches,
            outgoing: OutgoingEvents::default(),
            ignore,
            announced: Announcements::default(),
            most_entries: usize::MAX,
            is_silent: false,
            now: 0,
            to_read: Vec::new(),
            shared: HashSet::new(),
        }
    }

    /// Says when looking begins.
    pub(super) fn begin(&mut self, now: Timestamp) {
        let millis = i64::try_from(now.millis()).unwrap_or(i64::MAX);
        self.now = millis.saturating_mul(1_000_000);
    }

    /// Looks at one path, and at everything in it when it is a directory.
    pub(super) fn look(
        &mut self,
        path: &EntryPath,
        reason: LookReason,
    ) -> Result<(), MonitorError> {
        if path.is_root() {
            return self.read(vec![path.clone()], Reread::All, reason);
        }
        let seen = match self.see(path) {
            Err(error) if is_absence(error) => None,
            // What cannot be seen is still recorded; its directory is asked about now and then.
            Err(error) if is_refusal(error) => {
                let above = path.split_last().map(|(above, _)| above);
                self.watches
                    .mark_unwatched(&above.unwrap_or_default(), GapReason::Unreadable);
                return Ok(());
            }
            seen => Some(seen.on("look at", path)?),
        };
        self.update(path, seen, Reread::All, reason)?;
        let is_certain = false;
        self.read_waiting(
            Reread::All,
            LookReason {
                is_certain,
                ..reason
            },
        )
    }

    fn see(&self, path: &EntryPath) -> rustix::io::Result<Seen> {
        let (above, name) = path.split_last().ok_or(Errno::INVAL)?;
        let name = c_name(name)?;
        let directory = self.root.directory(above.as_bytes())?;
        metadata::look(directory.as_fd(), &name)
    }

    /// Makes the table say what was seen, and reports what that changes.
    fn update(
        &mut self,
        path: &EntryPath,
        seen: Option<Seen>,
        reread: Reread,
        reason: LookReason,
    ) -> Result<(), MonitorError> {
        let seen = seen.filter(|seen| self.belongs(path, seen));
        let now = seen.and_then(|seen| EntryStat::of(&seen, self.now));
        let was = self.table.get(path).copied();
        let is_directory =
            |fact: Option<EntryStat>| fact.is_some_and(|f| f.kind == WatchedKind::Directory);
        if is_directory(was) != is_directory(now) {
            self.remove(path, reason);
        }
        let Some(now) = now else {
            self.remove(path, reason);
            return Ok(());
        };
        let was = self.table.get(path).copied();
        if was.is_none() && self.table.len() >= self.most_entries {
            let limit = self.most_entries;
            return Err(MonitorError::TooMany { limit });
        }
        if !self.table.insert(path, now) {
            // What holds it is not known yet, or no longer: it is read with that.
            return Ok(());
        }
        match (was, now.kind) {
            (was, WatchedKind::Directory) => {
                let is_same = was.is_some_and(|was| was.inode == now.inode);
                if reread == Reread::All || !is_same || !self.watches.is_watched(path) {
                    self.to_read.push(path.clone());
                }
            }
            (None, _) => self.emit(Action::Created, path, &now, reason),
            (Some(was), _) if is_other(&now, &was, reason) => {
                self.emit(Action::Modified, path, &now, reason);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the monitor has anything to do with it.
    fn belongs(&self, path: &EntryPath, seen: &Seen) -> bool {
        let stays = self.root.mounts() == Mounts::Cross || !seen.is_mount;
        stays && !self.ignore.names(path, seen.file_type().is_dir())
    }

    fn remove(&mut self, path: &EntryPath, reason: LookReason) {
        for (path, fact) in self.table.remove(path) {
            if fact.kind == WatchedKind::Directory {
                self.watches.forget(&path);
            } else {
                self.emit(Action::Deleted, &path, &fact, reason);
            }
        }
    }

    /// Reports what was done to a file or a link, of which `fact` is, or was, true.
    fn emit(&mut self, action: Action, path: &EntryPath, fact: &EntryStat, reason: LookReason) {
        if self.is_silent {
            return;
        }
        if fact.has_more_names {
            self.shared.insert(fact.inode);
        }
        let now = (action != Action::Deleted).then_some(fact);
        if self.announced.explain(path, reason.first, now) {
            return;
        }
        self.outgoing.push(FileEvent {
            action,
            path: path.clone(),
            size: now.map(|now| now.size),
            at: reason.at,
        });
    }

    /// Reads directories, and those in them that ought to be.
    pub(super) fn read(
        &mut self,
        directories: Vec<EntryPath>,
        reread: Reread,
        reason: LookReason,
    ) -> Result<(), MonitorError> {
        self.to_read = directories;
        self.to_read.reverse();
        self.read_waiting(reread, reason)
    }

    fn read_waiting(&mut self, reread: Reread, reason: LookReason) -> Result<(), MonitorError> {
        while let Some(path) = self.to_read.pop() {
            let waiting = self.to_read.len();
            self.read_one(&path, reread, reason)?;
            // The last one is read next: so they are read in the order of their names.
            self.to_read[waiting..].reverse();
        }
        Ok(())
    }

    /// Watches a directory, *then* lists it: what comes later is heard of, what came before is found.
    fn read_one(
        &mut self,
        path: &EntryPath,
        reread: Reread,
        reason: LookReason,
    ) -> Result<(), MonitorError> {
        if !self.table.has_directory(path) {
            return Ok(());
        }
        let directory = match self.root.directory(path.as_bytes()) {
            Err(error) if is_absence(error) => {
                self.remove(path, reason);
                return Ok(());
            }
            Err(error) if is_refusal(error) => {
                self.watches.mark_unwatched(path, GapReason::Unreadable);
                return Ok(());
            }
            directory => directory.on("open", path)?,
        };
        let watched = self.watches.watch(path, directory.as_fd());
        watched.on("watch", path)?;
        let names = match list(&directory) {
            // It was deleted after it was opened.
            Err(Errno::NOENT) => Vec::new(),
            names => names.on("list", path)?,
        };
        for name in &names {
            let child = child(path, name.to_bytes());
            let seen = match metadata::look(directory.as_fd(), name) {
                Err(Errno::NOENT) => None,
                Err(error) if is_refusal(error) => {
                    self.watches.mark_unwatched(path, GapReason::Unreadable);
                    return Ok(());
                }
                seen => Some(seen.on("look at", &child)?),
            };
            self.update(&child, seen, reread, reason)?;
        }
        let there: HashSet<&[u8]> = names.iter().map(|name| name.to_bytes()).collect();
        for name in self.table.names(path) {
            if !there.contains(&*name) {
                self.remove(&child(path, &name), reason);
            }
        }
        Ok(())
    }

    /// Looks at the other names of files of which something was reported under one: the kernel speaks of that one only.
    pub(super) fn look_at_other_names(&mut self, reason: LookReason) -> Result<(), MonitorError> {
        let shared = std::mem::take(&mut self.shared);
        if shared.is_empty() {
            return Ok(());
        }
        for path in self.table.files(|fact| shared.contains(&fact.inode)) {
            self.look(&path, reason)?;
        }
        self.shared.clear();
        Ok(())
    }
}

/// Whether a file must be taken for another one than it was.
fn is_other(now: &EntryStat, was: &EntryStat, reason: LookReason) -> bool {
    let is_suspect = reason.is_certain && (was.is_fresh || !now.is_untouched(was));
    is_suspect || now.has_other_content(was)
}

fn child(path: &EntryPath, name: &[u8]) -> EntryPath {
    path.child(name).expect("the kernel's names are names")
}

fn list(directory: impl AsFd) -> rustix::io::Result<Vec<CString>> {
    let mut names = BTreeSet::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.insert(name.to_owned());
        }
    }
    Ok(names.into_iter().collect())
}
