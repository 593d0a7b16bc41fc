//! Making durable what many have written.

use rustix::fs;
use rustix::io::Result;
use std::os::fd::AsFd;

/// Makes everything durable that was written to the filesystem of an open thing, whoever wrote it. Reports what could not be written since
/// that was opened.
pub fn filesystem(open: impl AsFd) -> Result<()> {
    fs::syncfs(open)
}
