//! Where a tree grows until it is whole.

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest part of the final name that the temporary one repeats.
const REPEATED: usize = 200;
/// How many trees somebody with our process id may have left behind.
const LEFT_BEHIND: usize = 1000;

/// A directory beside the target that only we enter. Dropped before it is published, it is removed.
#[derive(Debug)]
pub(crate) struct Staging {
    parent: OwnedFd,
    temp: CString,
    root: OwnedFd,
    is_published: bool,
}

impl Staging {
    /// Makes `.NAME.stasis-tmp-PID` in `parent`; one that a dead process left there is not touched.
    pub(crate) fn make(parent: OwnedFd, name: &CStr) -> Result<Self> {
        let name = name.to_bytes();
        let pid = rustix::process::getpid().as_raw_nonzero();
        for attempt in 0..LEFT_BEHIND {
            let mut temp = vec![b'.'];
            temp.extend_from_slice(&name[..name.len().min(REPEATED)]);
            temp.extend_from_slice(format!(".stasis-tmp-{pid}").as_bytes());
            if attempt > 0 {
                temp.extend_from_slice(format!("-{attempt}").as_bytes());
            }
            let temp = CString::new(temp).map_err(|_| Errno::INVAL)?;
            match fs::mkdirat(&parent, &*temp, Mode::RWXU) {
                Err(Errno::EXIST) => continue,
                made => made?,
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let root = match fs::openat(&parent, &*temp, flags, Mode::empty()) {
                Ok(root) => root,
                Err(error) => {
                    let _ = fs::unlinkat(&parent, &*temp, AtFlags::REMOVEDIR);
                    return Err(error);
                }
            };
            return Ok(Self {
                parent,
                temp,
                root,
                is_published: false,
            });
        }
        Err(Errno::EXIST)
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Makes everything in it durable.
    pub(crate) fn sync(&self) -> Result<()> {
        fs::syncfs(&self.root)
    }

    /// Gives the tree its name; [`Errno::EXIST`] when something has it already.
    pub(crate) fn publish(&mut self, name: &CStr) -> Result<()> {
        let (parent, temp) = (&self.parent, &*self.temp);
        match fs::renameat_with(parent, temp, parent, name, RenameFlags::NOREPLACE) {
            // A filesystem that does not know the flag. A directory never replaces a file or a directory with content.
            Err(Errno::INVAL | Errno::NOSYS) => {
                if crate::beneath::find(parent, name)?.is_some() {
                    return Err(Errno::EXIST);
                }
                fs::renameat(parent, temp, parent, name)?;
            }
            renamed => renamed?,
        }
        self.is_published = true;
        Ok(())
    }

    /// Makes the name durable.
    pub(crate) fn sync_name(&self) -> Result<()> {
        fs::fsync(&self.parent)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_published {
            // What made us give up is the failure to tell; a tree that stays is only untidy.
            let _ = crate::remove::tree(&self.parent, &self.temp);
        }
    }
}
