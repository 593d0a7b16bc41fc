//! One at a time, on this host: a lock that ends with whoever holds it, and says who that is.
//!
//! The lock is the kernel's, on a small file that stays where it is; the words in the file are for whoever is refused.
//!
//! *Always true:* two holders never live at once. A holder that was killed holds nothing any more. What is read of another
//! holder may be a moment old, or nothing: it is told to people and decides nothing.

use crate::atomic_write::make_directory;
use rustix::fs::{Mode, OFlags};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// More than this is not read of what another holder wrote.
const LONGEST: u64 = 4096;

/// Why something is not ours alone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExclusiveError {
    /// Somebody holds it.
    #[error("`{}` is held: {holder}", path.display())]
    Held {
        /// The lock.
        path: PathBuf,
        /// What they wrote.
        holder: String,
    },
    /// It could not be found out.
    #[error("could not {doing} the lock `{}`", path.display())]
    Failed {
        /// What we were doing.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Ours alone until it is dropped.
#[derive(Debug)]
#[must_use = "dropped, it is anybody's"]
pub struct Exclusive {
    file: File,
}

impl Exclusive {
    /// Takes what the file at `path` stands for, or says at once who holds it; `words` are for those who come meanwhile.
    pub fn take(path: &Path, words: &str) -> Result<Self, ExclusiveError> {
        let failed = |doing| {
            let path = path.to_owned();
            move |source: io::Error| ExclusiveError::Failed {
                doing,
                path,
                source,
            }
        };
        if let Some(above) = path.parent() {
            make_directory(above).map_err(|error| failed("make a place for")(error.source))?;
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(opened.map_err(|error| failed("open")(error.into()))?);
        if !file.metadata().map_err(failed("look at"))?.is_file() {
            return Err(failed("open")(io::ErrorKind::InvalidInput.into()));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = (&file).take(LONGEST).read_to_string(&mut holder);
                let path = path.to_owned();
                return Err(ExclusiveError::Held { path, holder });
            }
            Err(TryLockError::Error(error)) => return Err(failed("take")(error)),
        }
        let mut exclusive = Self { file };
        exclusive.says(words).map_err(failed("write"))?;
        Ok(exclusive)
    }

    fn says(&mut self, words: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(words.as_bytes())
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        // The words would be wrong from now on; the lock itself goes with the file.
        let _ = self.file.set_len(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_somebody_put_there_first_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (victim, path) = (place.path().join("victim"), place.path().join("lock"));
        crate::atomic_write::atomic_write(&victim, b"precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();

        let refused = Exclusive::take(&path, "words");

        assert!(refused.is_err());
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_second_one_is_told_who_holds_it_and_a_third_one_after_that_gets_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/lock");

        let first = Exclusive::take(&path, "save by 12").unwrap();
        let refused = Exclusive::take(&path, "restore by 13").unwrap_err();
        drop(first);
        let third = Exclusive::take(&path, "restore by 13");

        assert!(
            matches!(&refused, ExclusiveError::Held { holder, .. } if holder == "save by 12"),
            "{refused:?}"
        );
        assert!(third.is_ok());
    }
}
