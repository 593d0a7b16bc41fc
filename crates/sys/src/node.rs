//! Entries that are made without being opened.

use rustix::fs::{self, CWD, FileType, Mode};
use rustix::io::Result;
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::path::Path;

/// Makes a named pipe in an open directory; an error if the name is taken.
pub fn make_pipe(directory: impl AsFd, name: &CStr, mode: Mode) -> Result<()> {
    fs::mknodat(directory, name, FileType::Fifo, mode, 0)
}

/// Makes an empty file; an error if the name is taken.
pub fn make_file(path: &Path, mode: Mode) -> Result<()> {
    fs::mknodat(CWD, path, FileType::RegularFile, mode, 0)
}
