//! Replaces one small file so that readers, and a crash, see the old bytes or the new ones.
//!
//! 1. write a temporary file beside it   2. fsync it   3. rename it over the old one   4. fsync the directory
//!
//! A crash before 3 leaves the old file and a `.stasis-tmp-…` beside it; after 3 the new one. A failed fsync is never
//! retried: the kernel may have dropped the pages it could not write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why a file was not replaced.
#[derive(Debug, thiserror::Error)]
#[error("could not {doing} `{}`", .path.display())]
pub struct WriteError {
    /// Which of the four things failed.
    pub doing: &'static str,
    /// To which file or directory.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError {
        doing,
        path,
        source,
    }
}

/// Makes `path` hold exactly `bytes`, readable by its owner only; makes its directory when there is none.
#[expect(
    clippy::disallowed_methods,
    reason = "this file is the one that writes small files"
)]
pub fn atomic_write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(parent).map_err(failed("make the directory", parent))?;
    let mut temp_name = std::ffi::OsString::from(".stasis-tmp-");
    temp_name.push(std::process::id().to_string());
    temp_name.push("-");
    temp_name.push(path.file_name().unwrap_or_default());
    let temp = parent.join(temp_name);
    let written = write_durably(&temp, bytes)
        .and_then(|()| fs::rename(&temp, path).map_err(failed("rename into place", path)));
    if written.is_err() {
        // The first failure is the one to tell; a temporary file that stays is only untidy.
        let _ = fs::remove_file(&temp);
    }
    written?;
    let directory = File::open(parent).map_err(failed("open the directory", parent))?;
    directory.sync_all().map_err(failed("make durable", parent))
}

fn write_durably(temp: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(temp).map_err(failed("create", temp))?;
    file.write_all(bytes).map_err(failed("write", temp))?;
    file.sync_all().map_err(failed("make durable", temp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("deep/er/note.json");

        atomic_write(&path, b"old").unwrap();
        atomic_write(&path, b"new").unwrap();

        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_failure_says_what_was_done_to_what() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("taken");
        fs::create_dir(&path).unwrap();

        let error = atomic_write(&path, b"new").unwrap_err();

        assert_eq!(error.doing, "rename into place");
        assert_eq!(
            fs::read_dir(home.path()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }
}
