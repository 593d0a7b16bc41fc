//! The names in a directory, in the order of its filesystem, as many at a time as fit into a buffer.

use rustix::fs::{FileType, RawDir, RawDirEntry};
use rustix::io::Result;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

/// A directory that is being read.
pub struct Listing<'b, D: AsFd>(RawDir<'b, D>);

/// One name, with `.` and `..` among them.
#[derive(Debug)]
pub struct Listed<'l>(RawDirEntry<'l>);

impl<'b, D: AsFd> Listing<'b, D> {
    /// Reads an open directory from where its descriptor stands.
    pub fn new(directory: D, buffer: &'b mut [MaybeUninit<u8>]) -> Self {
        Self(RawDir::new(directory, buffer))
    }

    /// The next name, which is there until the one after it is asked for.
    pub fn read(&mut self) -> Option<Result<Listed<'_>>> {
        self.0.next().map(|entry| entry.map(Listed))
    }
}

impl Listed<'_> {
    /// What it is called.
    pub fn file_name(&self) -> &CStr {
        self.0.file_name()
    }

    /// What it is, if the filesystem says so in a listing.
    pub fn file_type(&self) -> FileType {
        self.0.file_type()
    }
}
