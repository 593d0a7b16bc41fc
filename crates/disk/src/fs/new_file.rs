//! A file that was not there before: whole, or not at all.
//!
//! 1. write a temporary file beside it   2. fsync it   3. give it its name, unless something has it   4. fsync the directory
//!
//! A failure before 3, such as a disk without room, leaves nothing; a crash leaves a `.stasis-tmp-…`. Nothing is ever replaced.

use crate::fs::atomic_write::{new_file_beside, sync_directory, write_durably};
use crate::fs::fd::{c_name, open_dir};
use crate::fs::remove;
use crate::fs::staging::rename_noreplace;
use stasis_model::failure::{AtPath, Failure};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Makes a file of these bytes with this mode; fails when anything has its name.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    let (temp, file) = new_file_beside(parent, path, mode)?;
    let named = write_durably(file, &temp, |file| file.write_all(bytes)).and_then(|()| {
        let name = |path: &Path| c_name(path.file_name().unwrap_or_default().as_bytes());
        let (from, to) = (
            name(&temp).at("rename", path)?,
            name(path).at("create", path)?,
        );
        let directory = open_dir(parent).at("open the directory", parent)?;
        let renamed = rename_noreplace(directory.as_fd(), &from, directory.as_fd(), &to);
        renamed.at("create", path)
    });
    if named.is_err() {
        // The first failure is the one to tell.
        let _ = remove::file_at(&temp);
    }
    named?;
    sync_directory(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_has_the_name_stays_and_nothing_is_left_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state.json");

        write_new(&path, b"first", 0o600).unwrap();
        let refused = write_new(&path, b"second", 0o600).unwrap_err();

        assert_eq!(refused.op(), "create");
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }
}
