//! A large file that gets its name only when it is whole, or never gets one.

use super::ArchiveError;
use crate::fs::fd::{c_name, open_dir};
use crate::fs::stale;
use crate::fs::sys::unnamed;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest part of the final name that the temporary one repeats.
const REPEATED: usize = 200;
/// What every temporary name has.
const MARK: &[u8] = b".stasis-tmp-";
/// How many files somebody with our process id may have left behind.
const LEFT_BEHIND: usize = 1000;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct ArchiveOutput {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// What it will be called; a file without a name is gone when it is closed.
    name: Option<OutputName>,
}

/// `.NAME.stasis-tmp-PID-N` beside the target, locked. Dropped before it is published, it is removed; what a killed process
/// leaves, the next one that writes an archive beside it removes.
#[derive(Debug)]
struct OutputName {
    parent: OwnedFd,
    last: CString,
    temp: CString,
    is_published: bool,
}

impl ArchiveOutput {
    /// Creates the temporary file, readable by its owner only; what has the final name is not touched yet.
    pub(super) fn create(path: &Path) -> Result<Self, ArchiveError> {
        let name = path.file_name().ok_or(Errno::ISDIR).at("create", path)?;
        let name = c_name(name.as_bytes()).at("create", path)?;
        let above = path.parent().filter(|path| !path.as_os_str().is_empty());
        let above = above.unwrap_or_else(|| Path::new("."));
        let parent = open_dir(above).at("open the directory", above)?;
        let there = crate::fs::root_dir::find(&parent, &name).at("create", path)?;
        if there.is_some_and(|there| there.file_type().is_dir()) {
            return Ok(Err(Errno::ISDIR).at("create", path)?);
        }
        stale::collect(&parent, is_temporary);
        let (temp, file) = new_file(&parent, name.to_bytes()).at("create", path)?;
        let name = OutputName {
            parent,
            last: name,
            temp,
            is_published: false,
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            name: Some(name),
        })
    }

    /// A file in `directory` that nobody else sees, and that is gone with the process.
    pub(super) fn nameless(directory: &Path) -> Result<Self, ArchiveError> {
        Ok(Self {
            path: directory.to_owned(),
            file: nameless(directory)?,
            name: None,
        })
    }

    /// What must not be archived: this file, and the one it will replace, by device and inode.
    pub(super) fn identities(&self) -> Result<Vec<(u64, u64)>, ArchiveError> {
        let own = crate::fs::metadata::of(&self.file).at("look at", &self.path)?;
        let there = match &self.name {
            Some(name) => {
                crate::fs::root_dir::find(&name.parent, &name.last).at("look at", &self.path)?
            }
            None => None,
        };
        let there = there.filter(|there| there.file_type().is_file());
        let all = [Some(own), there].into_iter().flatten();
        Ok(all.map(|seen| seen.identity()).collect())
    }

    /// Makes the file durable and gives it its name, and makes that durable too; one without a name stays as it is.
    pub(super) fn publish(self) -> Result<File, ArchiveError> {
        let Self { path, file, name } = self;
        let Some(mut name) = name else {
            return Ok(file);
        };
        fs::fsync(&file).at("make durable", &path)?;
        let renamed = fs::renameat(&name.parent, &*name.temp, &name.parent, &*name.last);
        renamed.at("rename into place", &path)?;
        name.is_published = true;
        fs::fsync(&name.parent).at("make durable the name of", &path)?;
        Ok(file)
    }
}

/// Opens a file in `directory` that has no name, and is gone when it is closed.
pub fn nameless(directory: &Path) -> Result<File, ArchiveError> {
    let file = open_nameless(directory);
    Ok(file.at("create a file in", directory)?)
}

fn open_nameless(directory: &Path) -> Result<File, Errno> {
    match unnamed::at(directory) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let parent = open_dir(directory)?;
            let (temp, file) = new_file(&parent, b"spool")?;
            fs::unlinkat(&parent, &*temp, AtFlags::empty())?;
            Ok(file)
        }
        file => Ok(File::from(file?)),
    }
}

fn new_file(parent: &OwnedFd, name: &[u8]) -> Result<(CString, File), Errno> {
    let pid = rustix::process::getpid().as_raw_nonzero();
    for attempt in 0..LEFT_BEHIND {
        let mut temp = vec![b'.'];
        temp.extend_from_slice(&name[..name.len().min(REPEATED)]);
        temp.extend_from_slice(MARK);
        temp.extend_from_slice(format!("{pid}-{attempt}").as_bytes());
        let temp = c_name(temp)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match fs::openat(parent, &*temp, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {}
            file => {
                let file = file?;
                if stale::hold(&file)? {
                    return Ok((temp, File::from(file)));
                }
            }
        }
    }
    Err(Errno::EXIST)
}

/// Whether a name is one that [`new_file`] gives.
fn is_temporary(name: &[u8]) -> bool {
    let Some(at) = find(name, MARK).filter(|at| *at > 1 && name[0] == b'.') else {
        return false;
    };
    let mut numbers = name[at + MARK.len()..].split(|byte| *byte == b'-');
    let mut is_number = || {
        let number = numbers.next().unwrap_or_default();
        !number.is_empty() && number.iter().all(u8::is_ascii_digit)
    };
    is_number() && is_number() && numbers.next().is_none()
}

/// Where the last of some bytes begins in others.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).rposition(|some| some == wanted)
}

impl Drop for OutputName {
    fn drop(&mut self) {
        if !self.is_published {
            // What made us give up is the failure to tell; a file that stays is only untidy.
            let _ = fs::unlinkat(&self.parent, &*self.temp, AtFlags::empty());
        }
    }
}
