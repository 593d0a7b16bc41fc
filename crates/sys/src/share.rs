//! Bytes that the system brings from one file into another.

use rustix::fs;
use rustix::io::Result;
use std::os::fd::AsFd;

/// Makes a file share all blocks of another one, so that neither has a copy; both are changed without the other's knowing.
///
/// One of [`OPNOTSUPP`](rustix::io::Errno::OPNOTSUPP), [`XDEV`](rustix::io::Errno::XDEV), [`INVAL`](rustix::io::Errno::INVAL),
/// [`NOTTY`](rustix::io::Errno::NOTTY) or [`NOSYS`](rustix::io::Errno::NOSYS) where the filesystem cannot.
pub fn share_blocks(source: impl AsFd, target: impl AsFd) -> Result<()> {
    fs::ioctl_ficlone(target, source)
}

/// Copies at most `most` bytes from one file into another, at the same place in both, without their passing through this process; returns how many.
pub fn copy_range(source: impl AsFd, target: impl AsFd, at: u64, most: usize) -> Result<u64> {
    let (mut from, mut to) = (at, at);
    let done = fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), most)?;
    Ok(done as u64)
}
