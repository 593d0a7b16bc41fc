//! Lists of rights beyond owner, group and others.

use rustix::fs;
use rustix::io::Result;
use std::os::fd::AsFd;

/// Takes away the list that everything made in an open directory would inherit; an error where there is none.
pub fn remove_inherited(directory: impl AsFd) -> Result<()> {
    fs::fremovexattr(directory, c"system.posix_acl_default")
}
