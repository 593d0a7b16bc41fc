//! A private directory with copies of a database's files, removed when it is dropped.

use super::CheckError;
use crate::fs::metadata;
use crate::fs::remove;
use crate::tree::clone::Fallback;
use crate::tree::content::{self, CarryError};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use stasis_model::failure::{AtPath, Failure};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many directories somebody with our process id may have left behind.
const LEFT_BEHIND: usize = 1000;

/// Whether a copy is of one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CopyState {
    /// The file did not change meanwhile.
    Whole,
    /// It did.
    Torn,
}

#[derive(Debug)]
pub(super) struct CheckScratch {
    parent: OwnedFd,
    name: CString,
    root: OwnedFd,
    at: PathBuf,
}

impl CheckScratch {
    /// Makes a directory in `parent` that only we enter; one that a dead process left there is not touched.
    pub(super) fn make(parent: &Path) -> Result<Self, Failure> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = fs::open(parent, flags, Mode::empty()).at("open a directory in", parent)?;
        let pid = rustix::process::getpid().as_raw_nonzero();
        for _ in 0..LEFT_BEHIND {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name =
                CString::new(format!(".stasis-check-{pid}-{count}")).expect("numbers hold no NUL");
            match fs::mkdirat(&opened, &*name, Mode::RWXU) {
                Err(Errno::EXIST) => continue,
                made => made.at("make a directory in", parent)?,
            }
            let inside = flags | OFlags::NOFOLLOW;
            let root = fs::openat(&opened, &*name, inside, Mode::empty());
            return Ok(Self {
                root: root.at("open a directory in", parent)?,
                parent: opened,
                name,
                at: parent.to_owned(),
            });
        }
        Err(Errno::EXIST).at("make a directory in", parent)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Makes an empty file.
    pub(super) fn file(&self, name: &CStr) -> Result<OwnedFd, Failure> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = fs::openat(&self.root, name, flags, Mode::RUSR | Mode::WUSR);
        file.at("make a file in", &self.at)
    }

    /// Copies an open file, sharing its blocks where that can be done.
    pub(super) fn copy(
        &self,
        source: BorrowedFd<'_>,
        name: &CStr,
        cancel: &AtomicBool,
    ) -> Result<(OwnedFd, CopyState), CheckError> {
        let before = metadata::of(source).at("look at a file in", &self.at)?;
        let target = self.file(name)?;
        match content::carry(source, target.as_fd(), before.size, Fallback::Copy, cancel) {
            Ok(_) => {}
            Err(CarryError::Cancelled) => return Err(CheckError::Cancelled),
            Err(CarryError::Failed(error) | CarryError::CannotShare(error)) => {
                return Ok(Err(error).at("copy a file in", &self.at)?);
            }
            Err(CarryError::Late) => {
                return Ok(Err(Errno::TIMEDOUT).at("copy a file in", &self.at)?);
            }
        }
        let after = metadata::of(source).at("look at a file in", &self.at)?;
        let copied = if after.is_unchanged_since(&before) {
            CopyState::Whole
        } else {
            CopyState::Torn
        };
        Ok((target, copied))
    }

    /// Where the copies are made, for what is said of them.
    pub(super) fn place(&self) -> &Path {
        &self.at
    }
}

impl Drop for CheckScratch {
    fn drop(&mut self) {
        // What is told is the verdict; a copy that stays is only untidy.
        let _ = remove::tree(&self.parent, &self.name);
    }
}
