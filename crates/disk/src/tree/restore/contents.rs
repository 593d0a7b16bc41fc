//! Whether two entries are the same, bytes and all.

use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::RootDir;
use rustix::fs::{self, FileType};
use rustix::io::{self, Errno, Result};
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// What is read at once of each.
const BUFFER: usize = 128 << 10;

/// An entry of an open directory.
#[derive(Debug)]
pub(super) struct ContentSide<'a> {
    pub(super) tree: &'a RootDir,
    pub(super) directory: &'a OwnedFd,
    pub(super) seen: Seen,
}

impl<'a> ContentSide<'a> {
    pub(super) fn new(tree: &'a RootDir, directory: &'a OwnedFd, seen: Seen) -> Self {
        Self {
            tree,
            directory,
            seen,
        }
    }
}

/// Whether an entry that is no directory is the same on both sides; what cannot be read is not.
///
/// [`Errno::CANCELED`] when somebody wants us to stop.
pub(super) fn are_same(
    name: &CStr,
    one: &ContentSide<'_>,
    other: &ContentSide<'_>,
    cancel: &AtomicBool,
) -> Result<bool> {
    let (mine, theirs) = (&one.seen, &other.seen);
    if mine.file_type() != theirs.file_type() {
        return Ok(false);
    }
    let (mut have, mut want) = (mine.metadata(), theirs.metadata());
    let same = match mine.file_type() {
        FileType::Symlink => {
            (have.mode, want.mode) = (0, 0);
            have == want && target(one, name)? == target(other, name)?
        }
        FileType::Fifo => have == want,
        FileType::RegularFile => {
            have == want && mine.size == theirs.size && have_same_bytes(name, one, other, cancel)?
        }
        _ => false,
    };
    Ok(same)
}

fn target(side: &ContentSide<'_>, name: &CStr) -> Result<std::ffi::CString> {
    fs::readlinkat(side.directory, name, Vec::new())
}

fn have_same_bytes(
    name: &CStr,
    one: &ContentSide<'_>,
    other: &ContentSide<'_>,
    cancel: &AtomicBool,
) -> Result<bool> {
    let open = |side: &ContentSide<'_>| match side.tree.file(side.directory.as_fd(), name) {
        Err(Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::NOENT) => Ok(None),
        opened => opened.map(Some),
    };
    let (Some(one), Some(other)) = (open(one)?, open(other)?) else {
        return Ok(false);
    };
    if metadata::attributes(&one)?.user != metadata::attributes(&other)?.user {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; BUFFER], vec![0; BUFFER]);
    let mut at = 0;
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(Errno::CANCELED);
        }
        let (mine, theirs) = (fill(&one, &mut left, at)?, fill(&other, &mut right, at)?);
        if left[..mine] != right[..theirs] {
            return Ok(false);
        }
        if mine == 0 {
            return Ok(true);
        }
        at += mine as u64;
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &OwnedFd, buffer: &mut [u8], at: u64) -> Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        let from = at + length as u64;
        match io::retry_on_intr(|| io::pread(file, &mut buffer[length..], from))? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}
