//! Where the bytes come from: files beneath a root, or memory.

use crate::fs::fd::reopen_dir;
use crate::fs::metadata;
use crate::fs::root_dir::RootDir;
use crate::fs::sys::listing::Listing;
use rustix::io::{self as sys, Errno};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// More names than this are not a database.
const MOST_NAMES: usize = 1_000_000;
/// What the kernel fills with names in one call.
const BUFFER: usize = 32 << 10;

/// A file that is read here and there.
pub trait ReadFileAt {
    /// How long it is.
    fn size(&self) -> u64;

    /// Fills `buffer` with what stands at `offset`; an end before that is an error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

/// The files of one directory.
pub trait Files {
    /// Their names, sorted; those that are no text are not among them.
    fn names(&self) -> &[String];

    /// Opens one of them; `None` when there is no regular file of that name.
    fn open(&self, name: &str) -> io::Result<Option<Box<dyn ReadFileAt + '_>>>;
}

/// Files in memory, by name.
#[derive(Clone, Debug, Default)]
pub struct Bytes {
    names: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
}

impl From<BTreeMap<String, Vec<u8>>> for Bytes {
    fn from(files: BTreeMap<String, Vec<u8>>) -> Self {
        let names = files.keys().cloned().collect();
        Self { names, files }
    }
}

impl Files for Bytes {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn open(&self, name: &str) -> io::Result<Option<Box<dyn ReadFileAt + '_>>> {
        let found = self.files.get(name);
        Ok(found.map(|bytes| Box::new(&**bytes) as Box<dyn ReadFileAt + '_>))
    }
}

impl ReadFileAt for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let found = start.and_then(|start| self.get(start..start.checked_add(buffer.len())?));
        let found = found.ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(found);
        Ok(())
    }
}

/// Files in a directory beneath a root.
pub(super) struct Beside<'a> {
    root: &'a RootDir,
    directory: OwnedFd,
    names: Vec<String>,
}

impl<'a> Beside<'a> {
    pub(super) fn new(root: &'a RootDir, directory: OwnedFd) -> sys::Result<Self> {
        let listed = reopen_dir(&directory)?;
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut entries = Listing::new(&listed, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = entries.read() {
            let name = entry?.file_name().to_str().map(str::to_owned);
            names.extend(name.ok());
            if names.len() > MOST_NAMES {
                return Err(Errno::OVERFLOW);
            }
        }
        names.sort_unstable();
        Ok(Self {
            root,
            directory,
            names,
        })
    }
}

impl Files for Beside<'_> {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn open(&self, name: &str) -> io::Result<Option<Box<dyn ReadFileAt + '_>>> {
        let name = CString::new(name)?;
        let file = match self.root.file(self.directory.as_fd(), &name) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let seen = metadata::of(&file)?;
        if !seen.file_type().is_file() {
            return Ok(None);
        }
        let size = seen.size;
        Ok(Some(Box::new(OnDisk { file, size })))
    }
}

struct OnDisk {
    file: OwnedFd,
    size: u64,
}

impl ReadFileAt for OnDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let read = sys::retry_on_intr(|| sys::pread(&self.file, &mut buffer[done..], at))?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += read;
        }
        Ok(())
    }
}
