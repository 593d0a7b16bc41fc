//! The directories of a store, reached one component at a time so that no symbolic link is ever followed.

use super::trouble::FileTrouble;
use crate::layout::Key;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What makes a directory a store: where it keeps what belongs to nobody else.
pub const OWN: &str = ".stasis";
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// How often we go on making a directory that another process goes on removing because it is empty.
pub(super) const RETRY_BUDGET: usize = 64;

/// The root of a store.
pub(super) struct Tree {
    root: OwnedFd,
    path: PathBuf,
}

impl Tree {
    /// Opens the root, which may itself be reached through links.
    pub(super) fn open(path: PathBuf) -> Result<Self, FileTrouble> {
        match rustix::fs::open(&path, DIRECTORY, Mode::empty()) {
            Ok(root) => Ok(Self { root, path }),
            Err(Errno::NOENT) => Err(FileTrouble::NoStore(path.display().to_string())),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails when the root was removed under us: then everything is missing, and nothing is known to be.
    pub(super) fn still_there(&self) -> Result<(), FileTrouble> {
        match rustix::fs::fstat(&self.root)?.st_nlink {
            0 => Err(FileTrouble::RootGone),
            _ => Ok(()),
        }
    }

    /// The directory at `path` (components), or `None` when there is none.
    pub(super) fn directory<'a>(
        &self,
        path: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<OwnedFd>, FileTrouble> {
        let mut here = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?;
        for name in path {
            match step(&here, name)? {
                Some(next) => here = next,
                None => return Ok(None),
            }
        }
        Ok(Some(here))
    }

    /// The directory a key lies in, or `None` when there is none.
    pub(super) fn parent(&self, key: &Key) -> Result<Option<OwnedFd>, FileTrouble> {
        let parent = self.directory(directories(key)?)?;
        if parent.is_none() {
            self.still_there()?;
        }
        Ok(parent)
    }

    /// The directory a key lies in, made durably if it is missing.
    pub(super) fn make_parent(&self, key: &Key) -> Result<OwnedFd, FileTrouble> {
        for _ in 0..RETRY_BUDGET {
            if let Some(parent) = self.try_make(directories(key)?)? {
                return Ok(parent);
            }
        }
        self.still_there()?;
        Err(Errno::NOENT.into())
    }

    /// The directory a key lies in, made if it is missing; whoever asks makes it durable.
    pub(super) fn make_parent_unsynced(&self, key: &Key) -> Result<OwnedFd, FileTrouble> {
        for _ in 0..RETRY_BUDGET {
            if let Some(parent) = self.made(directories(key)?, |_| Ok(()))? {
                return Ok(parent);
            }
        }
        self.still_there()?;
        Err(Errno::NOENT.into())
    }

    /// Makes the names of directories durable, from the root down to `path`.
    pub(super) fn sync_above(&self, path: &str) -> Result<(), FileTrouble> {
        let mut here = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            rustix::fs::fsync(&here)?;
            here = step(&here, name)?.ok_or(Errno::NOENT)?;
        }
        Ok(())
    }

    /// Makes directories on the way; `None` when another process removed one of them again at once.
    pub(super) fn try_make<'a>(
        &self,
        path: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<OwnedFd>, FileTrouble> {
        self.made(path, |made| rustix::fs::fsync(made))
    }

    fn made<'a>(
        &self,
        path: impl IntoIterator<Item = &'a str>,
        sync: impl Fn(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<Option<OwnedFd>, FileTrouble> {
        let mut here = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?;
        for name in path {
            if let Some(next) = step(&here, name)? {
                here = next;
                continue;
            }
            match rustix::fs::mkdirat(&here, name, Mode::RWXU) {
                Ok(()) => {
                    if let Err(errno) = sync(&here) {
                        // Whoever comes next must not take it for durable; it is empty, unless somebody was quick.
                        let _ = rustix::fs::unlinkat(&here, name, AtFlags::REMOVEDIR);
                        return Err(errno.into());
                    }
                }
                Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
            match step(&here, name)? {
                Some(next) => here = next,
                None if is_there(&here, name)? => return Err(Errno::NOTDIR.into()),
                None => return Ok(None),
            }
        }
        Ok(Some(here))
    }

    /// Opens an object for reading; `None` when there is none.
    pub(super) fn object(&self, key: &Key) -> Result<Option<File>, FileTrouble> {
        let Some(parent) = self.parent(key)? else {
            return Ok(None);
        };
        // Not to be stopped by a pipe that lies where an object should be.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let found = match rustix::fs::openat(&parent, key.file_name(), flags, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::NOENT) => {
                self.still_there()?;
                return Ok(None);
            }
            Err(Errno::LOOP) => return Err(FileTrouble::Symlink(key.to_string())),
            Err(Errno::NXIO) => return Err(FileTrouble::Special(key.to_string())),
            Err(errno) => return Err(errno.into()),
        };
        match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
            FileType::RegularFile => Ok(Some(File::from(found))),
            FileType::Directory => Ok(None),
            _ => Err(FileTrouble::Special(key.to_string())),
        }
    }

    /// Removes a key's directories as far up as they are empty; whoever needs them makes them again.
    pub(super) fn prune(&self, key: &Key) -> Result<(), FileTrouble> {
        let path: Vec<&str> = directories(key)?.collect();
        for depth in (1..=path.len()).rev() {
            let Some(above) = self.directory(path[..depth - 1].iter().copied())? else {
                return Ok(());
            };
            if rustix::fs::unlinkat(&above, path[depth - 1], AtFlags::REMOVEDIR).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The directories of a key, from the top.
fn directories(key: &Key) -> Result<impl Iterator<Item = &str>, FileTrouble> {
    let mut parts = key.as_str().split('/');
    if parts.next_back().is_none() || key.as_str().split('/').next() == Some(OWN) {
        return Err(FileTrouble::Reserved);
    }
    Ok(parts)
}

/// One step down; `None` when there is no directory of this name.
pub(super) fn step(here: &OwnedFd, name: &str) -> Result<Option<OwnedFd>, FileTrouble> {
    match rustix::fs::openat(here, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(next) => Ok(Some(next)),
        Err(Errno::NOTDIR | Errno::LOOP) if is_symlink(here, name)? => {
            Err(FileTrouble::Symlink(name.to_owned()))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn kind_at(here: &OwnedFd, name: &str) -> Result<Option<FileType>, FileTrouble> {
    match rustix::fs::statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn is_symlink(here: &OwnedFd, name: &str) -> Result<bool, FileTrouble> {
    Ok(kind_at(here, name)? == Some(FileType::Symlink))
}

/// Whether anything has this name.
pub(super) fn is_there(here: &OwnedFd, name: &str) -> Result<bool, FileTrouble> {
    Ok(kind_at(here, name)?.is_some())
}
