//! Does what the journal says, as often as it takes: every step finds out by itself whether it was done before.

use super::error::{RestoreError, entry};
use super::journal::{Journal, Step};
use super::plan::make_writable;
use crate::beneath::{self, Beneath};
use crate::metadata;
use rustix::fs::{self, Mode, RenameFlags};
use rustix::io::{Errno, Result};
use stasis_model::tree::{EntryPath, Metadata};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

/// How often something that somebody puts in our way is moved out of it.
const PATIENCE: usize = 100;

/// Where things are moved from and to.
#[derive(Debug)]
pub(super) struct Moves<'a> {
    pub(super) live: &'a Beneath,
    pub(super) staged: &'a Beneath,
    /// Where old entries go.
    pub(super) trash: &'a OwnedFd,
}

impl Moves<'_> {
    /// Does all steps; `None` when the journal has bytes that are no step.
    pub(super) fn run(&self, journal: &Journal) -> std::result::Result<Option<()>, RestoreError> {
        for step in journal.steps() {
            let Some(step) = step else {
                return Ok(None);
            };
            match &step {
                Step::Remove(path, number) => {
                    let removed = self.remove(path, *number);
                    removed.map_err(entry("move away", path))?;
                }
                Step::Place(path) => self.place(path).map_err(entry("move into place", path))?,
                Step::Dress(path, metadata) => {
                    let dressed = self.dress(path, metadata, journal);
                    dressed.map_err(entry("set owner, mode and time of", path))?;
                }
            }
        }
        Ok(Some(()))
    }

    fn remove(&self, path: &EntryPath, number: u64) -> Result<()> {
        let to = CString::new(number.to_string()).expect("digits");
        if beneath::find(self.trash, &to)?.is_some() {
            return Ok(());
        }
        let (above, name) = split(path)?;
        let above = match writable(self.live, &above) {
            // Nothing is there to be moved away.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            above => above?,
        };
        self.discard(path, &above, &name, &to)
    }

    /// Moves an entry of the live tree to the trash.
    fn discard(&self, path: &EntryPath, above: &OwnedFd, name: &CStr, to: &CStr) -> Result<()> {
        match beneath::find(above, name)? {
            None => return Ok(()),
            Some(seen) if seen.file_type().is_dir() && !is_root() => {
                // A directory can be moved only by somebody who may write in it.
                make_writable(self.live, path)?;
            }
            Some(_) => {}
        }
        match fs::renameat_with(above, name, self.trash, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => fs::renameat(above, name, self.trash, to),
            Err(Errno::NOENT) => Ok(()),
            moved => moved,
        }
    }

    fn place(&self, path: &EntryPath) -> Result<()> {
        let (above, name) = split(path)?;
        let from = writable(self.staged, &above)?;
        let Some(seen) = beneath::find(&from, &name)? else {
            return Ok(());
        };
        if seen.file_type().is_dir() && !is_root() {
            make_writable(self.staged, path)?;
        }
        let to = self.way(&above)?;
        for _ in 0..PATIENCE {
            match fs::renameat(&from, &*name, &to, &*name) {
                // Something of another kind is there: it was not when the plan was made.
                Err(Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                    self.clear(path, &to, &name)?;
                }
                placed => return placed,
            }
        }
        Err(Errno::EXIST)
    }

    /// Opens a directory of the live tree, making it if somebody took it away.
    fn way(&self, path: &EntryPath) -> Result<OwnedFd> {
        match writable(self.live, path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            opened => return opened,
        }
        let mut here = EntryPath::root();
        for name in path.components() {
            let above = writable(self.live, &here)?;
            here = here.child(name).map_err(|_| Errno::INVAL)?;
            let name = CString::new(name).map_err(|_| Errno::INVAL)?;
            match beneath::find(&above, &name)? {
                Some(seen) if seen.file_type().is_dir() => continue,
                Some(_) => self.clear(&here, &above, &name)?,
                None => {}
            }
            match fs::mkdirat(&above, &*name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        writable(self.live, path)
    }

    /// Moves away what is in our way.
    fn clear(&self, path: &EntryPath, above: &OwnedFd, name: &CStr) -> Result<()> {
        for number in 0..u64::MAX {
            let to = CString::new(format!("x{number}")).expect("digits");
            if beneath::find(self.trash, &to)?.is_none() {
                return self.discard(path, above, name, &to);
            }
        }
        Ok(())
    }

    fn dress(&self, path: &EntryPath, wanted: &Metadata, journal: &Journal) -> Result<()> {
        let directory = match self.live.directory(path.as_bytes()) {
            Err(Errno::ACCESS) => {
                make_writable(self.live, path)?;
                self.live.directory(path.as_bytes())
            }
            directory => directory,
        };
        let directory = match directory {
            // Somebody took it away since.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            directory => directory?,
        };
        match writable(self.staged, path) {
            // It was moved here whole, and has its attributes.
            Err(Errno::NOENT) => {}
            staged => {
                let user = metadata::attributes(staged?)?.user;
                if metadata::attributes(&directory)?.user != user {
                    make_writable(self.live, path)?;
                    metadata::replace_attributes(&directory, &user)?;
                }
            }
        }
        metadata::give(directory, wanted, journal.rights())?;
        Ok(())
    }
}

/// Opens a directory in which its owner may change something.
fn writable(tree: &Beneath, path: &EntryPath) -> Result<OwnedFd> {
    let opened = tree.directory(path.as_bytes());
    if is_root() {
        return opened;
    }
    match opened {
        Ok(opened) if metadata::of(&opened)?.raw_mode & 0o700 == 0o700 => Ok(opened),
        Ok(_) | Err(Errno::ACCESS) => {
            make_writable(tree, path)?;
            tree.directory(path.as_bytes())
        }
        Err(error) => Err(error),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn split(path: &EntryPath) -> Result<(EntryPath, CString)> {
    let (above, name) = path.split_last().ok_or(Errno::INVAL)?;
    Ok((above, CString::new(name).map_err(|_| Errno::INVAL)?))
}

/// Opens the directory of old entries in a staging directory.
pub(super) fn open_in(staging: impl AsFd, name: &CStr) -> Result<OwnedFd> {
    use rustix::fs::OFlags;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(staging, name, flags, Mode::empty())
}
