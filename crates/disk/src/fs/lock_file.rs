//! One at a time, on this host: a lock that ends with whoever holds it, and says who that is.
//!
//! The lock is the kernel's, on a small file that stays where it is; the words in the file are for whoever is refused.
//!
//! *Always true:* two holders never live at once. A holder that was killed holds nothing any more. What is read of another
//! holder may be a moment old, or nothing: it is told to people and decides nothing. A full disk hinders nobody from holding a lock
//! whose file is there, and nobody who only looks makes one.

use crate::fs::atomic_write::make_directory;
use crate::fs::free_space;
use rustix::fs::{self, Mode, OFlags};
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
pub struct LockFile {
    file: File,
    has_words: bool,
}

impl LockFile {
    /// Takes what the file at `path` stands for, or says at once who holds it; `words` are for those who come meanwhile, and where there
    /// is no room for them there are none.
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
                let (path, holder) = (path.to_owned(), words_in(&file));
                return Err(ExclusiveError::Held { path, holder });
            }
            Err(TryLockError::Error(error)) => return Err(failed("take")(error)),
        }
        let has_words = !words.is_empty();
        let mut exclusive = Self { file, has_words };
        if !has_words {
            return Ok(exclusive);
        }
        match exclusive.says(words) {
            Err(error) if free_space::is_full(&error) => {
                // At least the time is right: who holds it asks since when.
                let now = fs::Timespec {
                    tv_sec: 0,
                    tv_nsec: fs::UTIME_NOW,
                };
                let times = fs::Timestamps {
                    last_access: now,
                    last_modification: now,
                };
                let _ = fs::futimens(&exclusive.file, &times);
            }
            said => said.map_err(failed("write"))?,
        }
        Ok(exclusive)
    }

    /// What whoever holds it wrote; `None` when nobody does, or it cannot be told. Nothing is made, and nothing is written.
    pub fn holder(path: &Path) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(fs::open(path, flags, Mode::empty()).ok()?);
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(words_in(&file)),
            _ => None,
        }
    }

    fn says(&mut self, words: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(words.as_bytes())
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // The words would be wrong from now on; the lock itself goes with the file.
        if self.has_words {
            let _ = self.file.set_len(0);
        }
    }
}

fn words_in(mut file: &File) -> String {
    let mut words = String::new();
    let _ = Read::by_ref(&mut file)
        .take(LONGEST)
        .read_to_string(&mut words);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_somebody_put_there_first_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (victim, path) = (place.path().join("victim"), place.path().join("lock"));
        crate::fs::atomic_write::atomic_write(&victim, b"precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();

        let refused = LockFile::take(&path, "words");

        assert!(refused.is_err());
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_second_one_is_told_who_holds_it_and_a_third_one_after_that_gets_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/lock");

        let first = LockFile::take(&path, "save by 12").unwrap();
        let refused = LockFile::take(&path, "restore by 13").unwrap_err();
        drop(first);
        let third = LockFile::take(&path, "restore by 13");

        assert!(
            matches!(&refused, ExclusiveError::Held { holder, .. } if holder == "save by 12"),
            "{refused:?}"
        );
        assert!(third.is_ok());
    }

    #[test]
    fn whoever_looks_makes_and_writes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");

        assert_eq!(LockFile::holder(&path), None);
        assert!(!path.exists(), "nobody made it");
        let held = LockFile::take(&path, "save by 12").unwrap();
        assert_eq!(LockFile::holder(&path).as_deref(), Some("save by 12"));
        drop(held);
        let quiet = LockFile::take(&path, "").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        assert_eq!(LockFile::holder(&path).as_deref(), Some(""));
        drop(quiet);
        assert_eq!(LockFile::holder(&path), None);
    }
}
