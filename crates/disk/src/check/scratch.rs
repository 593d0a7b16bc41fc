//! A private directory with copies of a database's files, removed when it is dropped.

use super::CheckError;
use crate::fs::metadata;
use crate::fs::remove;
use crate::tree::clone::Fallback;
use crate::tree::content::{self, CarryError};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many directories somebody with our process id may have left behind.
const LEFT_BEHIND: usize = 1000;

/// Why a database could not be copied.
#[derive(Debug, thiserror::Error)]
#[error("could not {doing} in `{}`", .scratch.display())]
pub struct ScratchError {
    /// What we were doing.
    pub doing: &'static str,
    /// The directory for copies.
    pub scratch: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// Whether a copy is of one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CopiedDatabase {
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
    pub(super) fn make(parent: &Path) -> Result<Self, ScratchError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let failed = |doing| failed(doing, parent);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = fs::open(parent, flags, Mode::empty()).map_err(failed("open a directory"))?;
        let pid = rustix::process::getpid().as_raw_nonzero();
        for _ in 0..LEFT_BEHIND {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name =
                CString::new(format!(".stasis-check-{pid}-{count}")).expect("numbers hold no NUL");
            match fs::mkdirat(&opened, &*name, Mode::RWXU) {
                Err(Errno::EXIST) => continue,
                made => made.map_err(failed("make a directory"))?,
            }
            let inside = flags | OFlags::NOFOLLOW;
            let root = fs::openat(&opened, &*name, inside, Mode::empty());
            return Ok(Self {
                root: root.map_err(failed("open a directory"))?,
                parent: opened,
                name,
                at: parent.to_owned(),
            });
        }
        Err(failed("make a directory")(Errno::EXIST))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Makes an empty file.
    pub(super) fn file(&self, name: &CStr) -> Result<OwnedFd, ScratchError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = fs::openat(&self.root, name, flags, Mode::RUSR | Mode::WUSR);
        file.map_err(self.failed("make a file"))
    }

    /// Copies an open file, sharing its blocks where that can be done.
    pub(super) fn copy(
        &self,
        source: BorrowedFd<'_>,
        name: &CStr,
        cancel: &AtomicBool,
    ) -> Result<(OwnedFd, CopiedDatabase), CheckError> {
        let before = metadata::of(source).map_err(self.failed("look at a file"))?;
        let target = self.file(name)?;
        match content::carry(source, target.as_fd(), before.size, Fallback::Copy, cancel) {
            Ok(_) => {}
            Err(CarryError::Cancelled) => return Err(CheckError::Cancelled),
            Err(CarryError::Failed(error) | CarryError::CannotShare(error)) => {
                return Err(self.failed("copy a file")(error).into());
            }
            Err(CarryError::Late) => return Err(self.failed("copy a file")(Errno::TIMEDOUT).into()),
        }
        let after = metadata::of(source).map_err(self.failed("look at a file"))?;
        let copied = if after.is_unchanged_since(&before) {
            CopiedDatabase::Whole
        } else {
            CopiedDatabase::Torn
        };
        Ok((target, copied))
    }

    pub(super) fn failed(&self, doing: &'static str) -> impl FnOnce(Errno) -> ScratchError {
        failed(doing, &self.at)
    }
}

fn failed(doing: &'static str, scratch: &Path) -> impl FnOnce(Errno) -> ScratchError + use<> {
    let scratch = scratch.to_owned();
    move |error| ScratchError {
        doing,
        scratch,
        source: error.into(),
    }
}

impl Drop for CheckScratch {
    fn drop(&mut self) {
        // What is told is the verdict; a copy that stays is only untidy.
        let _ = remove::tree(&self.parent, &self.name);
    }
}
