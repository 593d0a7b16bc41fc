//! What may be moved, by a process that may not do everything.
//!
//! An entry comes, goes or is exchanged by a rename, for which its directory must let us write. A directory of our own is opened up for it; one of
//! somebody else is what it is. A directory that gets another parent must be writable itself. Looked at before the journal is
//! written: after that there is only a way forward, and it must not end at somebody else's directory.

use super::error::RestoreError;
use super::journal::{JournalStep, RestoreJournal};
use crate::fs::fd::c_name;
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::{self, RootDir};
use crate::fs::sys::descriptor;
use crate::fs::sys::open::PLACE;
use rustix::fs::{self, Access, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stasis_model::tree::EntryPath;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

/// In such a directory only the owner of an entry moves it.
const STICKY: u32 = 0o1000;

/// Says what this process may move in a live tree.
#[derive(Debug)]
pub struct Permissions<'a> {
    live: &'a RootDir,
    own: u32,
    directories: HashMap<EntryPath, Above>,
}

/// What may be done in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Above {
    /// Everything.
    All,
    /// Everything to what is ours.
    OwnOnly,
    Nothing,
    /// It is not there.
    Absent,
}

impl<'a> Permissions<'a> {
    /// Those of this process.
    pub fn new(live: &'a RootDir) -> Self {
        Self {
            live,
            own: rustix::process::geteuid().as_raw(),
            directories: HashMap::new(),
        }
    }

    /// Whether an entry may be taken away, or another one put in its place.
    pub fn may_move(&mut self, path: &EntryPath) -> bool {
        if self.own == 0 {
            return true;
        }
        let Some((mut above, name)) = path.split_last() else {
            return true;
        };
        let there = self.find(&above, name);
        let mut found = self.above(&above);
        // What is missing is made, in the first directory above it that is there.
        while found == Above::Absent {
            let Some((higher, _)) = above.split_last() else {
                return true;
            };
            above = higher;
            found = self.above(&above);
        }
        match (found, &there) {
            (Above::Nothing, _) => false,
            (Above::OwnOnly, Some((_, seen))) if seen.uid != self.own => false,
            (_, Some((directory, seen))) if seen.file_type().is_dir() => {
                seen.uid == self.own || {
                    let name = CString::new(name).unwrap_or_default();
                    fs::accessat(directory, &*name, Access::WRITE_OK, AtFlags::empty()).is_ok()
                }
            }
            _ => true,
        }
    }

    /// Whether permissions, time and attributes of an entry may be changed.
    pub fn is_own(&self, path: &EntryPath) -> bool {
        let Some((above, name)) = path.split_last() else {
            let root = self
                .live
                .directory(b"")
                .and_then(|root| metadata::of(&root));
            return self.own == 0 || root.is_ok_and(|seen| seen.uid == self.own);
        };
        let found = self.find(&above, name);
        self.own == 0 || found.is_none_or(|(_, seen)| seen.uid == self.own)
    }

    fn find(&self, above: &EntryPath, name: &[u8]) -> Option<(OwnedFd, Seen)> {
        let directory = self.live.directory(above.as_bytes()).ok()?;
        let seen = root_dir::find(&directory, &CString::new(name).ok()?);
        Some((directory, seen.ok()??))
    }

    fn above(&mut self, path: &EntryPath) -> Above {
        if let Some(known) = self.directories.get(path) {
            return *known;
        }
        let found = self.look(path);
        self.directories.insert(path.clone(), found);
        found
    }

    fn look(&self, path: &EntryPath) -> Above {
        let directory = match self.live.directory(path.as_bytes()) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Above::Absent,
            // One of our own is opened up.
            Err(_) if path.split_last().is_some() && self.is_ours_closed(path) => {
                return Above::All;
            }
            Err(_) => return Above::Nothing,
        };
        let Ok(seen) = metadata::of(&directory) else {
            return Above::Nothing;
        };
        let access = Access::WRITE_OK | Access::EXEC_OK;
        if seen.uid == self.own {
            Above::All
        } else if fs::accessat(&directory, c".", access, AtFlags::empty()).is_err() {
            Above::Nothing
        } else if seen.raw_mode & STICKY != 0 {
            Above::OwnOnly
        } else {
            Above::All
        }
    }

    fn is_ours_closed(&self, path: &EntryPath) -> bool {
        let (above, name) = path.split_last().unwrap_or_default();
        let found = self.find(&above, name);
        found.is_some_and(|(_, seen)| seen.uid == self.own)
    }
}

/// Refuses to begin what could not be brought to its end.
pub(super) fn check(live: &RootDir, journal: &RestoreJournal) -> Result<(), RestoreError> {
    let mut permissions = Permissions::new(live);
    let moved = journal.steps().flatten().filter_map(|step| match step {
        JournalStep::Remove(path, _) | JournalStep::Place(path, ..) | JournalStep::Make(path) => {
            Some(path)
        }
        JournalStep::Unmake(_)
        | JournalStep::Dress(..)
        | JournalStep::Kept(_)
        | JournalStep::Again(_) => None,
    });
    let others: Vec<EntryPath> = moved.filter(|path| !permissions.may_move(path)).collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(RestoreError::NotOurs(others))
}

/// Gives its owner all rights to a directory, though the owner may not even open it.
pub(super) fn make_writable(tree: &RootDir, path: &EntryPath) -> rustix::io::Result<()> {
    let (above, name) = path.split_last().unwrap_or_default();
    let above = tree.directory(above.as_bytes())?;
    let name = if path.is_root() {
        b".".as_slice()
    } else {
        name
    };
    let name = c_name(name)?;
    let seen = root_dir::find(&above, &name)?.ok_or(Errno::NOENT)?;
    if seen.raw_mode & 0o700 == 0o700 {
        return Ok(());
    }
    set_mode(&above, &name, seen.raw_mode & 0o7777 | 0o700)
}

/// Gives a directory other permissions.
pub(super) fn set_mode(parent: &OwnedFd, name: &CStr, mode: u32) -> rustix::io::Result<()> {
    let flags = PLACE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = fs::openat(parent, name, flags, Mode::empty())?;
    // By the descriptor, which nobody can make lead elsewhere.
    descriptor::set_mode(&found, Mode::from_raw_mode(mode))
}
