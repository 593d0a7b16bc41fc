//! The place where a tree is to go, and what is there.

use super::Placement;
use super::error::RestoreError;
use crate::fs::fd::{open_dir, open_dir_in, reopen_dir};
use crate::fs::lock_file::try_lock_if_supported;
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::{self, Mounts, RootDir};
use crate::fs::staging;
use crate::fs::sys::mounts::mounts_inside;
use rustix::fs::{self, RenameFlags};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long others may take to exchange two directories.
const ATTEMPTS: usize = 200;
const PAUSE: Duration = Duration::from_millis(50);

/// A name in a directory.
#[derive(Debug)]
pub(super) struct RestoreTarget {
    pub(super) path: PathBuf,
    pub(super) parent: OwnedFd,
    pub(super) name: CString,
    pub(super) seen: Option<Seen>,
}

impl RestoreTarget {
    /// Looks at what is called `path`: nothing or a directory, and not the root of the system.
    pub(super) fn find(path: &Path) -> Result<Self, RestoreError> {
        // Without a trailing slash, which would follow a symbolic link.
        let mut path = path.components().as_path().to_owned();
        if path.file_name().is_none() {
            path = std::fs::canonicalize(&path).at("find", &path)?;
        }
        let name = path.file_name().ok_or(RestoreError::TargetIsEverything)?;
        let name = CString::new(name.as_bytes()).ok();
        let name = name.ok_or(Errno::INVAL).at("name", &path)?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or_else(|| Path::new("."));
        let parent = open_dir(above).at("open the directory", above)?;
        let seen = match metadata::look(parent.as_fd(), &name) {
            Err(Errno::NOENT) => None,
            seen => Some(seen.at("look at", &path)?),
        };
        if let Some(seen) = &seen {
            let everything = fs::stat("/").at("look at", Path::new("/"))?;
            if Seen::from(&everything).identity() == seen.identity() {
                return Err(RestoreError::TargetIsEverything);
            }
            match seen.file_type() {
                kind if kind.is_symlink() => return Err(RestoreError::TargetIsSymlink(path)),
                kind if !kind.is_dir() => return Err(RestoreError::NotDirectory(path)),
                _ => {}
            }
        }
        Ok(Self {
            path,
            parent,
            name,
            seen,
        })
    }

    /// Whether a tree can be placed here like that; where nothing is, it is a new one.
    pub(super) fn check(&self, placement: Placement) -> Result<Placement, RestoreError> {
        let Some(seen) = &self.seen else {
            return Ok(Placement::New);
        };
        if placement == Placement::InPlace {
            return Ok(placement);
        }
        let parent = metadata::of(&self.parent).at("look at", &self.path)?;
        // A btrfs subvolume is another device too, and yet can be exchanged: its number tells.
        if seen.is_mount || (seen.device != parent.device && seen.inode != 256) {
            return Err(RestoreError::TargetIsMount(self.path.clone()));
        }
        if placement == Placement::New && !is_empty(&self.parent, &self.name) {
            return Err(RestoreError::NotEmpty(self.path.clone()));
        }
        if let Some(mount) = self.mounts()?.into_iter().next() {
            return Err(RestoreError::MountInside(self.path.join(mount)));
        }
        Ok(placement)
    }

    /// Opens the tree that is there.
    pub(super) fn open_tree(&self) -> Result<Option<RootDir>, RestoreError> {
        if self.seen.is_none() {
            return Ok(None);
        }
        let opened = self.open().and_then(|fd| RootDir::new(fd, Mounts::Stay));
        let opened = opened.at("open the directory", &self.path)?;
        Ok(Some(opened))
    }

    pub(super) fn open(&self) -> rustix::io::Result<OwnedFd> {
        open_dir_in(&self.parent, &*self.name)
    }

    pub(super) fn parent_again(&self) -> rustix::io::Result<OwnedFd> {
        reopen_dir(&self.parent)
    }

    /// A path beside the target.
    pub(super) fn beside(&self, name: &CStr) -> PathBuf {
        self.path.with_file_name(OsStr::from_bytes(name.to_bytes()))
    }

    /// Our own name beside the target.
    pub(super) fn own_name(&self, suffix: &str) -> CString {
        let mut name = staging::stem(&self.name);
        name.extend_from_slice(suffix.as_bytes());
        CString::new(name).expect("neither part has a NUL")
    }

    /// Where something is mounted in the target, relative to it; nothing when nobody tells.
    pub(super) fn mounts(&self) -> Result<Vec<PathBuf>, RestoreError> {
        let opened = self.open().at("open", &self.path)?;
        Ok(mounts_inside(opened.as_fd()).unwrap_or_default())
    }

    /// Keeps other restores beside this one from exchanging or recording anything until it is dropped.
    pub(super) fn lock_parent(&self) -> Result<OwnedFd, RestoreError> {
        for _ in 0..ATTEMPTS {
            if let Some(lock) = self.try_lock_parent()? {
                return Ok(lock);
            }
            std::thread::sleep(PAUSE);
        }
        Err(RestoreError::Busy(self.path.clone()))
    }

    /// The same without waiting; `None` when somebody else does it right now.
    pub(super) fn try_lock_parent(&self) -> Result<Option<OwnedFd>, RestoreError> {
        let parent = self.parent_again();
        let parent = parent.at("open the directory of", &self.path)?;
        // A filesystem without locks has to do without.
        Ok(Some(parent).filter(|parent| try_lock_if_supported(parent)))
    }
}

/// Exchanges two names of one directory.
pub(super) fn exchange(
    parent: impl AsFd,
    one: &CStr,
    other: &CStr,
    target: &Path,
) -> Result<(), RestoreError> {
    match fs::renameat_with(&parent, one, &parent, other, RenameFlags::EXCHANGE) {
        Err(error @ (Errno::INVAL | Errno::NOSYS | Errno::XDEV | Errno::BUSY)) => {
            Err(RestoreError::CannotExchange {
                path: target.to_owned(),
                source: error.into(),
            })
        }
        exchanged => Ok(exchanged.at("exchange", target)?),
    }
}

/// Whether a directory has nothing in it, as far as can be seen.
pub(super) fn is_empty(parent: impl AsFd, name: &CStr) -> bool {
    let opened = open_dir_in(parent, name);
    let is_entry = |name: &[u8]| !matches!(name, b"." | b"..");
    let names = opened.and_then(|directory| staging::named(directory, b"", is_entry));
    names.is_ok_and(|names| names.is_empty())
}

/// What is called `name` beside the target now.
pub(super) fn inode_of(parent: impl AsFd, name: &CStr) -> rustix::io::Result<Option<u64>> {
    let seen = root_dir::find(parent, name)?;
    Ok(seen
        .filter(|seen| seen.file_type().is_dir())
        .map(|seen| seen.inode))
}
