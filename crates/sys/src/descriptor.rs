//! What is open in this process, as a path.

use rustix::fs::{self, Mode};
use rustix::io::{Errno, Result};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

/// A path that leads to what our standard input is.
pub const STANDARD_INPUT: &str = "/proc/self/fd/0";

/// A path that leads to the very thing that is open, whatever became of its name; for as long as it is open. A process that was just
/// forked has it too, until its program starts.
pub fn link_to(open: impl AsFd) -> PathBuf {
    let number = open.as_fd().as_raw_fd();
    PathBuf::from(format!("/proc/self/fd/{number}"))
}

/// What an open thing is called now: its path from the root, without links.
pub fn path_of(open: impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(link_to(open))
}

/// Gives other permissions to what is open, also if it is open only as a [place](crate::open::PLACE); nobody can make the descriptor lead elsewhere.
pub fn set_mode(open: impl AsFd, mode: Mode) -> Result<()> {
    fs::chmod(link_to(open), mode).map_err(|error| match error {
        // Not the entry is absent, but `/proc`.
        Errno::NOENT => Errno::OPNOTSUPP,
        error => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn an_open_thing_is_reached_and_named_whatever_it_was_called_when_it_was_opened() {
        let home = tempfile::tempdir().unwrap();
        let (old, new) = (home.path().join("old"), home.path().join("new"));
        std::fs::create_dir(&old).unwrap();
        let opened = File::open(&old).unwrap();
        fs::rename(&old, &new).unwrap();

        set_mode(&opened, Mode::RUSR).unwrap();

        let canonical = new.canonicalize().unwrap();
        assert_eq!(path_of(&opened).unwrap(), canonical);
        let through = std::fs::metadata(link_to(&opened)).unwrap();
        let named = std::fs::metadata(&new).unwrap();
        assert_eq!(through.ino(), named.ino());
        assert_eq!(named.permissions().mode() & 0o7777, 0o400);
    }
}
