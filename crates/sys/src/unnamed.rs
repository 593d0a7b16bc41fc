//! Files without a name, gone when they are closed.

use crate::descriptor;
use rustix::fs::{self, AtFlags, CWD, MemfdFlags, Mode, OFlags};
use rustix::io::Result;
use rustix::path::Arg;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// One on the filesystem of the directory at `path`. [`OPNOTSUPP`](rustix::io::Errno::OPNOTSUPP) or [`ISDIR`](rustix::io::Errno::ISDIR)
/// where that filesystem has none.
pub fn at(path: &Path) -> Result<OwnedFd> {
    open(CWD, path)
}

/// The same in an open directory.
pub fn within(directory: impl AsFd) -> Result<OwnedFd> {
    open(directory, c".")
}

fn open(directory: impl AsFd, path: impl Arg) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    fs::openat(directory, path, flags, Mode::RUSR | Mode::WUSR)
}

/// One in memory.
pub fn in_memory() -> Result<OwnedFd> {
    fs::memfd_create(c"stasis", MemfdFlags::CLOEXEC)
}

/// Gives a name to one that lies on the filesystem of that name; an error if the name is taken.
pub fn give_name(file: impl AsFd, path: &Path) -> Result<()> {
    let unnamed = descriptor::link_to(file);
    fs::linkat(CWD, &unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, read, read_dir};
    use std::io::Write;

    #[test]
    fn an_unnamed_file_is_seen_by_nobody_until_it_has_a_name() {
        let home = tempfile::tempdir().unwrap();
        let mut file = File::from(at(home.path()).unwrap());
        file.write_all(b"kept").unwrap();
        assert_eq!(read_dir(home.path()).unwrap().count(), 0);

        give_name(&file, &home.path().join("a")).unwrap();

        assert_eq!(read(home.path().join("a")).unwrap(), b"kept");
        give_name(&file, &home.path().join("a")).unwrap_err();
    }
}
