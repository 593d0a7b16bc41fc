//! Keeps what is about to be replaced and nothing else has: beside the live tree, under a name of its own.
//!
//! 1. [`SetAside::keep`]: each file gets a second name in `.NAME.stasis-backup-SECOND` (a hard link), so that it outlives
//!    its first one; what cannot be linked or looked into is moved there
//! 2. [`SetAside::sync`], and whoever called replaces the live tree
//! 3. [`SetAside::settle`]: what is still in the live tree needs no second name; or [`SetAside::undo`], when nothing was
//!    replaced
//!
//! *Always true:* an entry that was kept is in the live tree, in the backup, or in both. A crash leaves the backup.

use crate::beneath::{Beneath, Mounts};
use crate::metadata;
use rustix::fs::{self, AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result};
use stasis_model::tree::EntryPath;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How many names are tried for a backup.
const NAMES: u32 = 16;

/// A backup of entries of a live tree.
#[derive(Debug)]
#[must_use = "a backup is settled or undone"]
pub struct SetAside {
    live: Beneath,
    backup: Beneath,
    above: OwnedFd,
    name: CString,
    path: PathBuf,
    directories: Vec<EntryPath>,
    linked: Vec<EntryPath>,
    moved: Vec<EntryPath>,
}

impl SetAside {
    /// Makes a directory beside the tree at `live`, called after a second since 1970.
    pub fn begin(live: &Path, second: u64) -> Result<Self> {
        let (Some(above), Some(name)) = (live.parent(), live.file_name()) else {
            return Err(Errno::INVAL);
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = fs::open(above, flags, Mode::empty())?;
        for second in second..second + u64::from(NAMES) {
            let mut called = b".".to_vec();
            called.extend(name.as_bytes());
            called.extend(format!(".stasis-backup-{second}").into_bytes());
            let path = above.join(std::ffi::OsStr::from_bytes(&called));
            let called = CString::new(called).map_err(|_| Errno::INVAL)?;
            match fs::mkdirat(&opened, &called, Mode::RWXU) {
                Err(Errno::EXIST) => {}
                made => {
                    made?;
                    return Ok(Self {
                        live: Beneath::open(live, Mounts::Stay)?,
                        backup: Beneath::open(&path, Mounts::Stay)?,
                        above: opened,
                        name: called,
                        path,
                        directories: Vec::new(),
                        linked: Vec::new(),
                        moved: Vec::new(),
                    });
                }
            }
        }
        Err(Errno::EXIST)
    }

    /// Where an entry that was kept is found afterwards.
    pub fn place_of(&self, path: &EntryPath) -> PathBuf {
        self.path.join(std::ffi::OsStr::from_bytes(path.as_bytes()))
    }

    /// Keeps an entry with everything in it; says whether it is there at all.
    pub fn keep(&mut self, path: &EntryPath) -> Result<bool> {
        let Some((above, name)) = path.split_last() else {
            return Err(Errno::INVAL);
        };
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let from = match self.live.directory(above.as_bytes()) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
            from => from?,
        };
        let seen = match metadata::look(from.as_fd(), &name) {
            Err(Errno::NOENT) => return Ok(false),
            seen => seen?,
        };
        self.make_above(path)?;
        if !seen.file_type().is_dir() {
            self.keep_file(path, (&from, &name))?;
            return Ok(true);
        }
        let Ok(names) = self.names_in(path) else {
            // It cannot be looked into: all of it goes.
            self.move_away(path, (&from, &name))?;
            return Ok(true);
        };
        self.make(path)?;
        for name in names {
            let inner = path.child(name.to_bytes()).map_err(|_| Errno::INVAL)?;
            self.keep(&inner)?;
        }
        Ok(true)
    }

    fn names_in(&self, path: &EntryPath) -> Result<Vec<CString>> {
        let directory = self.live.directory(path.as_bytes())?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name: &CStr = entry.file_name();
            if name != c"." && name != c".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn keep_file(&mut self, path: &EntryPath, (from, name): (&OwnedFd, &CStr)) -> Result<()> {
        let to = self.directory_above(path)?;
        match fs::linkat(from, name, &to, name, AtFlags::empty()) {
            Ok(()) => self.linked.push(path.clone()),
            // Another user's file, a filesystem without links, or too many of them.
            Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::MLINK) => {
                return self.move_away(path, (from, name));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn move_away(&mut self, path: &EntryPath, (from, name): (&OwnedFd, &CStr)) -> Result<()> {
        let to = self.directory_above(path)?;
        fs::renameat_with(from, name, &to, name, RenameFlags::NOREPLACE)?;
        self.moved.push(path.clone());
        Ok(())
    }

    fn directory_above(&self, path: &EntryPath) -> Result<OwnedFd> {
        let above = path.split_last().map(|(above, _)| above);
        self.backup.directory(above.unwrap_or_default().as_bytes())
    }

    /// Makes the directories of the backup on the way to an entry.
    fn make_above(&mut self, path: &EntryPath) -> Result<()> {
        let Some((above, _)) = path.split_last() else {
            return Ok(());
        };
        if above.is_root() {
            return Ok(());
        }
        self.make_above(&above)?;
        self.make(&above)
    }

    fn make(&mut self, path: &EntryPath) -> Result<()> {
        let Some((_, name)) = path.split_last() else {
            return Ok(());
        };
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        match fs::mkdirat(self.directory_above(path)?, &name, Mode::RWXU) {
            Err(Errno::EXIST) => Ok(()),
            made => {
                made?;
                self.directories.push(path.clone());
                Ok(())
            }
        }
    }

    /// Makes everything durable that was kept so far.
    pub fn sync(&self) -> Result<()> {
        fs::syncfs(self.backup.directory(b"")?)
    }

    /// Removes second names of what is in the live tree still; returns where the backup is, unless nothing is left in it.
    pub fn settle(self) -> Result<Option<PathBuf>> {
        for path in &self.linked {
            let Some((above, name)) = path.split_last() else {
                continue;
            };
            let name = CString::new(name).map_err(|_| Errno::INVAL)?;
            let kept = self.directory_above(path)?;
            let live = self.live.directory(above.as_bytes());
            let live = live.and_then(|live| metadata::look(live.as_fd(), &name));
            let is_live = match (live, metadata::look(kept.as_fd(), &name)) {
                (Ok(live), Ok(kept)) => live.identity() == kept.identity(),
                _ => false,
            };
            if is_live {
                fs::unlinkat(&kept, &name, AtFlags::empty())?;
            }
        }
        let is_empty = self.remove_directories();
        Ok((!is_empty).then_some(self.path))
    }

    /// Makes everything what it was: the live tree was not replaced.
    pub fn undo(self) -> Result<()> {
        for path in self.moved.iter().rev() {
            let Some((above, name)) = path.split_last() else {
                continue;
            };
            let name = CString::new(name).map_err(|_| Errno::INVAL)?;
            let (from, to) = (
                self.directory_above(path)?,
                self.live.directory(above.as_bytes())?,
            );
            fs::renameat_with(&from, &name, &to, &name, RenameFlags::NOREPLACE)?;
        }
        for path in &self.linked {
            let Some((_, name)) = path.split_last() else {
                continue;
            };
            let name = CString::new(name).map_err(|_| Errno::INVAL)?;
            fs::unlinkat(self.directory_above(path)?, &name, AtFlags::empty())?;
        }
        self.remove_directories();
        Ok(())
    }

    /// Removes directories that have nothing in them; says whether the backup itself went.
    fn remove_directories(&self) -> bool {
        for path in self.directories.iter().rev() {
            let Some((_, name)) = path.split_last() else {
                continue;
            };
            if let (Ok(above), Ok(name)) = (self.directory_above(path), CString::new(name)) {
                let _ = fs::unlinkat(above, &name, AtFlags::REMOVEDIR);
            }
        }
        fs::unlinkat(&self.above, &self.name, AtFlags::REMOVEDIR).is_ok()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;
    use std::fs as files;

    fn path(text: &str) -> EntryPath {
        EntryPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_replaced_stays_and_what_is_not_needs_no_second_name() {
        let place = tempfile::tempdir().unwrap();
        let live = place.path().join("live");
        files::create_dir_all(live.join("db/deep")).unwrap();
        for name in ["db/a", "db/deep/b", "other"] {
            files::write(live.join(name), name).unwrap();
        }

        let mut aside = SetAside::begin(&live, 7).unwrap();
        assert!(aside.keep(&path("db")).unwrap());
        assert!(!aside.keep(&path("nothing/there")).unwrap());
        aside.sync().unwrap();
        files::write(live.join("new"), "new").unwrap();
        files::rename(live.join("new"), live.join("db/a")).unwrap();
        let kept = aside.settle().unwrap().unwrap();

        assert_eq!(kept, place.path().join(".live.stasis-backup-7"));
        assert_eq!(files::read_to_string(kept.join("db/a")).unwrap(), "db/a");
        assert!(!kept.join("db/deep").exists(), "it is live still");
        assert_eq!(files::read_to_string(live.join("db/a")).unwrap(), "new");
    }

    #[test]
    fn undone_nothing_is_left_and_two_backups_have_two_names() {
        let place = tempfile::tempdir().unwrap();
        let live = place.path().join("live");
        files::create_dir_all(live.join("db")).unwrap();
        files::write(live.join("db/a"), "a").unwrap();

        let mut one = SetAside::begin(&live, 7).unwrap();
        let other = SetAside::begin(&live, 7).unwrap();
        one.keep(&path("db")).unwrap();
        one.undo().unwrap();
        assert_eq!(other.settle().unwrap(), None, "nothing was kept");

        let left: Vec<_> = files::read_dir(place.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(files::read_to_string(live.join("db/a")).unwrap(), "a");
    }
}
