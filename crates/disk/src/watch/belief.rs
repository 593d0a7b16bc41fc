//! Looking, believing what is seen, and telling what that changes.

use super::announce::Announcements;
use super::table::{Fact, Kind, Table};
use super::told::{Action, FileEvent, Told};
use super::watches::Watches;
use super::{MonitorError, Why};
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::{Mounts, RootDir};
use crate::tree::walk::Excludes;
use rustix::fs::Dir;
use rustix::io::Errno;
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
pub(super) struct Hint {
    /// When the first sign of it was read.
    pub(super) at: Timestamp,
    /// The same on the clock that only goes forward.
    pub(super) first: Duration,
    /// Whether it is certain that the content changed, or the name led elsewhere for a while.
    pub(super) is_certain: bool,
}

/// The table, and all that is needed to make it true.
#[derive(Debug)]
pub(super) struct Belief {
    pub(super) root: Arc<RootDir>,
    pub(super) table: Table,
    pub(super) watches: Watches,
    pub(super) told: Told,
    pub(super) ignore: Excludes,
    pub(super) announced: Announcements,
    pub(super) most_entries: usize,
    /// Whether nothing is told: the first look at everything.
    pub(super) is_silent: bool,
    /// When looking began, in nanoseconds since 1970.
    now: i64,
    /// Directories that must be read.
    to_read: Vec<EntryPath>,
    /// Files with several names of which something was told under one.
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

impl Belief {
    pub(super) fn new(root: Arc<RootDir>, watches: Watches, ignore: Excludes) -> Self {
        Self {
            root,
            table: Table::default(),
            watches,
            told: Told::default(),
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
    pub(super) fn look(&mut self, path: &EntryPath, hint: Hint) -> Result<(), MonitorError> {
        if path.is_root() {
            return self.read(vec![path.clone()], Reread::All, hint);
        }
        let seen = match self.see(path) {
            Ok(seen) => Some(seen),
            Err(error) if is_absence(error) => None,
            // What cannot be seen is still believed; its directory is asked about now and then.
            Err(error) if is_refusal(error) => {
                let above = path.split_last().map(|(above, _)| above);
                self.watches
                    .cannot_see(&above.unwrap_or_default(), Why::Unreadable);
                return Ok(());
            }
            Err(error) => return Err(MonitorError::failed("look at", path, error)),
        };
        self.believe(path, seen, Reread::All, hint)?;
        let is_certain = false;
        self.read_waiting(Reread::All, Hint { is_certain, ..hint })
    }

    fn see(&self, path: &EntryPath) -> rustix::io::Result<Seen> {
        let (above, name) = path.split_last().ok_or(Errno::INVAL)?;
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let directory = self.root.directory(above.as_bytes())?;
        metadata::look(directory.as_fd(), &name)
    }

    /// Makes the table say what was seen, and tells what that changes.
    fn believe(
        &mut self,
        path: &EntryPath,
        seen: Option<Seen>,
        reread: Reread,
        hint: Hint,
    ) -> Result<(), MonitorError> {
        let seen = seen.filter(|seen| self.belongs(path, seen));
        let now = seen.and_then(|seen| Fact::of(&seen, self.now));
        let was = self.table.get(path).copied();
        let is_directory = |fact: Option<Fact>| fact.is_some_and(|f| f.kind == Kind::Directory);
        if is_directory(was) != is_directory(now) {
            self.remove(path, hint);
        }
        let Some(now) = now else {
            self.remove(path, hint);
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
            (was, Kind::Directory) => {
                let is_same = was.is_some_and(|was| was.inode == now.inode);
                if reread == Reread::All || !is_same || !self.watches.sees(path) {
                    self.to_read.push(path.clone());
                }
            }
            (None, _) => self.tell(Action::Created, path, &now, hint),
            (Some(was), _) if is_other(&now, &was, hint) => {
                self.tell(Action::Modified, path, &now, hint);
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

    fn remove(&mut self, path: &EntryPath, hint: Hint) {
        for (path, fact) in self.table.remove(path) {
            if fact.kind == Kind::Directory {
                self.watches.forget(&path);
            } else {
                self.tell(Action::Deleted, &path, &fact, hint);
            }
        }
    }

    /// Tells what was done to a file or a link, of which `fact` is, or was, true.
    fn tell(&mut self, action: Action, path: &EntryPath, fact: &Fact, hint: Hint) {
        if self.is_silent {
            return;
        }
        if fact.has_more_names {
            self.shared.insert(fact.inode);
        }
        let now = (action != Action::Deleted).then_some(fact);
        if self.announced.explain(path, hint.first, now) {
            return;
        }
        self.told.tell(FileEvent {
            action,
            path: path.clone(),
            size: now.map(|now| now.size),
            at: hint.at,
        });
    }

    /// Reads directories, and those in them that ought to be.
    pub(super) fn read(
        &mut self,
        directories: Vec<EntryPath>,
        reread: Reread,
        hint: Hint,
    ) -> Result<(), MonitorError> {
        self.to_read = directories;
        self.to_read.reverse();
        self.read_waiting(reread, hint)
    }

    fn read_waiting(&mut self, reread: Reread, hint: Hint) -> Result<(), MonitorError> {
        while let Some(path) = self.to_read.pop() {
            let waiting = self.to_read.len();
            self.read_one(&path, reread, hint)?;
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
        hint: Hint,
    ) -> Result<(), MonitorError> {
        if !self.table.has_directory(path) {
            return Ok(());
        }
        let directory = match self.root.directory(path.as_bytes()) {
            Ok(directory) => directory,
            Err(error) if is_absence(error) => {
                self.remove(path, hint);
                return Ok(());
            }
            Err(error) if is_refusal(error) => {
                self.watches.cannot_see(path, Why::Unreadable);
                return Ok(());
            }
            Err(error) => return Err(MonitorError::failed("open", path, error)),
        };
        let watched = self.watches.watch(path, directory.as_fd());
        watched.map_err(|error| MonitorError::failed("watch", path, error))?;
        let names = match list(&directory) {
            // It was deleted after it was opened.
            Err(Errno::NOENT) => Vec::new(),
            names => names.map_err(|error| MonitorError::failed("list", path, error))?,
        };
        for name in &names {
            let child = child(path, name.to_bytes());
            let seen = match metadata::look(directory.as_fd(), name) {
                Ok(seen) => Some(seen),
                Err(Errno::NOENT) => None,
                Err(error) if is_refusal(error) => {
                    self.watches.cannot_see(path, Why::Unreadable);
                    return Ok(());
                }
                Err(error) => return Err(MonitorError::failed("look at", &child, error)),
            };
            self.believe(&child, seen, reread, hint)?;
        }
        let there: HashSet<&[u8]> = names.iter().map(|name| name.to_bytes()).collect();
        for name in self.table.names(path) {
            if !there.contains(&*name) {
                self.remove(&child(path, &name), hint);
            }
        }
        Ok(())
    }

    /// Looks at the other names of files of which something was told under one: the kernel speaks of that one only.
    pub(super) fn look_at_other_names(&mut self, hint: Hint) -> Result<(), MonitorError> {
        let shared = std::mem::take(&mut self.shared);
        if shared.is_empty() {
            return Ok(());
        }
        for path in self.table.files(|fact| shared.contains(&fact.inode)) {
            self.look(&path, hint)?;
        }
        self.shared.clear();
        Ok(())
    }
}

/// Whether a file must be taken for another one than it was.
fn is_other(now: &Fact, was: &Fact, hint: Hint) -> bool {
    let is_suspect = hint.is_certain && (was.is_fresh || !now.is_untouched(was));
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
