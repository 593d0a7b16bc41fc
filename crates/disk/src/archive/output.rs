//! A large file that gets its name only when it is whole.

use super::ArchiveError;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest part of the final name that the temporary one repeats.
const REPEATED: usize = 200;
/// How many files somebody with our process id may have left behind.
const LEFT_BEHIND: usize = 1000;

/// `.NAME.stasis-tmp-PID` beside the target. Dropped before it is published, it is removed.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) path: PathBuf,
    pub(super) file: File,
    parent: OwnedFd,
    name: CString,
    temp: CString,
    is_published: bool,
}

impl Output {
    /// Creates the temporary file, readable by its owner only; what has the final name is not touched yet.
    pub(super) fn create(path: &Path) -> Result<Self, ArchiveError> {
        let failed = |error: Errno| ArchiveError::failed("create", path)(error);
        let name = path.file_name().ok_or_else(|| failed(Errno::ISDIR))?;
        let name = CString::new(name.as_bytes()).map_err(|_| failed(Errno::INVAL))?;
        let above = path.parent().filter(|path| !path.as_os_str().is_empty());
        let above = above.unwrap_or_else(|| Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = fs::open(above, flags, Mode::empty());
        let parent = parent.map_err(ArchiveError::failed("open the directory", above))?;
        let there = crate::beneath::find(&parent, &name).map_err(failed)?;
        if there.is_some_and(|there| there.file_type().is_dir()) {
            return Err(failed(Errno::ISDIR));
        }
        let (temp, file) = new_file(&parent, name.to_bytes()).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            parent,
            name,
            temp,
            is_published: false,
        })
    }

    /// What must not be archived: this file, and the one it will replace, by device and inode.
    pub(super) fn identities(&self) -> Result<Vec<(u64, u64)>, ArchiveError> {
        let failed = |error: Errno| ArchiveError::failed("look at", &self.path)(error);
        let own = crate::metadata::of(&self.file).map_err(failed)?;
        let there = crate::beneath::find(&self.parent, &self.name).map_err(failed)?;
        let there = there.filter(|there| there.file_type().is_file());
        let all = [Some(own), there].into_iter().flatten();
        Ok(all.map(|seen| seen.identity()).collect())
    }

    /// Makes the file durable and gives it its name, and makes that durable too.
    pub(super) fn publish(mut self) -> Result<(), ArchiveError> {
        let path = self.path.clone();
        let failed = |doing| ArchiveError::failed(doing, &path);
        fs::fsync(&self.file).map_err(failed("make durable"))?;
        let renamed = fs::renameat(&self.parent, &*self.temp, &self.parent, &*self.name);
        renamed.map_err(failed("rename into place"))?;
        self.is_published = true;
        fs::fsync(&self.parent).map_err(failed("make durable the name of"))
    }
}

fn new_file(parent: &OwnedFd, name: &[u8]) -> Result<(CString, File), Errno> {
    let pid = rustix::process::getpid().as_raw_nonzero();
    for attempt in 0..LEFT_BEHIND {
        let mut temp = vec![b'.'];
        temp.extend_from_slice(&name[..name.len().min(REPEATED)]);
        temp.extend_from_slice(format!(".stasis-tmp-{pid}-{attempt}").as_bytes());
        let temp = CString::new(temp).map_err(|_| Errno::INVAL)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match fs::openat(parent, &*temp, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {}
            file => return Ok((temp, File::from(file?))),
        }
    }
    Err(Errno::EXIST)
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_published {
            // What made us give up is the failure to tell; a file that stays is only untidy.
            let _ = fs::unlinkat(&self.parent, &*self.temp, AtFlags::empty());
        }
    }
}
