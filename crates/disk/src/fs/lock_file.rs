//! The lock of a path on this host, held by one process at a time.
//!
//! The lock is the kernel's (`flock`), on a small file that stays where it is; the text in the file says who holds it, for whoever is refused.
//!
//! *Always true:* two holders never live at once. A holder that was killed holds nothing any more. What is read of another
//! holder may be a moment old, or empty: it is shown to a user and decides nothing. On a full disk a lock whose file exists can
//! still be taken, and [`LockFile::holder`] creates none.

use crate::fs::atomic_write::make_directory;
use crate::fs::free_space;
use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use stasis_model::failure::{AtPath, Failure};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// More than this is not read of what another holder wrote.
const LONGEST: u64 = 4096;

/// How often whoever is refused looks for the name of the holder, and how long he waits in between.
const LOOKS: usize = 50;
const LOOKED_EVERY: Duration = Duration::from_millis(20);

/// What became of an attempt to take a lock.
#[derive(Debug)]
#[must_use = "dropped, the lock is released"]
pub enum LockAttempt {
    /// It is ours.
    Taken(LockFile),
    /// Another process holds it; what that wrote.
    Held(String),
}

/// A lock that is held until this is dropped, or the process ends.
#[derive(Debug)]
#[must_use = "dropped, the lock is released"]
pub struct LockFile {
    file: File,
    has_text: bool,
}

impl LockFile {
    /// Takes the lock at once, or says who holds it. `text` is for those who come meanwhile, and is left out where the disk is full.
    ///
    /// Whoever has just taken it has not said yet who he is: those who would say so themselves wait for that for a moment.
    pub fn take(path: &Path, text: &str) -> Result<LockAttempt, Failure> {
        let looks = if text.is_empty() { 1 } else { LOOKS };
        for _ in 1..looks {
            match Self::take_or_look(path, text)? {
                LockAttempt::Held(holder) if holder.trim().is_empty() => {
                    std::thread::sleep(LOOKED_EVERY);
                }
                attempt => return Ok(attempt),
            }
        }
        Self::take_or_look(path, text)
    }

    fn take_or_look(path: &Path, text: &str) -> Result<LockAttempt, Failure> {
        if let Some(above) = path.parent()
            && let Err(failure) = make_directory(above)
        {
            return Err(relabeled(failure, "make a place for the lock", path));
        }
        let file = open(path).at("open the lock", path)?;
        if !file.metadata().at("look at the lock", path)?.is_file() {
            return Err(io::ErrorKind::InvalidInput).at("open the lock", path);
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Ok(LockAttempt::Held(text_of(&file)));
            }
            Err(TryLockError::Error(error)) => Err(error).at("take the lock", path)?,
        }
        let has_text = !text.is_empty();
        let mut lock = Self { file, has_text };
        if has_text {
            lock.write(text).at("write the lock", path)?;
        }
        Ok(LockAttempt::Taken(lock))
    }

    /// Takes the lock when its holder releases it; asks again after each `pause`, until `is_over` says that it was long enough.
    pub fn take_within(
        path: &Path,
        text: &str,
        pause: Duration,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<LockAttempt, Failure> {
        loop {
            match Self::take(path, text)? {
                LockAttempt::Held(_) if !is_over() => std::thread::sleep(pause),
                attempt => return Ok(attempt),
            }
        }
    }

    /// Takes the lock, however long its holder takes; its directory must be there.
    pub fn wait(path: &Path) -> Result<Self, Failure> {
        let file = open(path).at("open", path)?;
        file.lock().at("lock", path)?;
        Ok(Self {
            file,
            has_text: false,
        })
    }

    /// Takes the lock at once; `None` when another process holds it. Its directory must be there.
    pub fn try_take(path: &Path) -> Result<Option<Self>, Failure> {
        let file = open(path).at("open", path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self {
                file,
                has_text: false,
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).at("lock", path),
        }
    }

    /// What the holder wrote; `None` when nobody holds it, or that cannot be found out. Nothing is created or written.
    pub fn holder(path: &Path) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(fs::open(path, flags, Mode::empty()).ok()?);
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(text_of(&file)),
            _ => None,
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let written = self
            .file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .and_then(|()| self.file.write_all(text.as_bytes()));
        match written {
            Err(error) if free_space::is_full(&error) => {
                // At least the time is right: `status` says since when the lock is held.
                let now = fs::Timespec {
                    tv_sec: 0,
                    tv_nsec: fs::UTIME_NOW,
                };
                let times = fs::Timestamps {
                    last_access: now,
                    last_modification: now,
                };
                let _ = fs::futimens(&self.file, &times);
                Ok(())
            }
            written => written,
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // The text would be wrong from now on; the lock itself goes with the file.
        if self.has_text {
            let _ = self.file.set_len(0);
        }
    }
}

/// The lock of a directory itself, for whoever must leave nothing else in it. It is held until this is dropped.
#[derive(Debug)]
#[must_use = "dropped, the lock is released"]
pub struct DirectoryLock(Option<File>);

impl DirectoryLock {
    /// Waits until nobody else has it. On a filesystem without locks everybody has it.
    pub fn wait(directory: &Path) -> Result<Self, Failure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = fs::open(directory, flags, Mode::empty()).at("open", directory)?;
        let opened = File::from(opened);
        match fs::flock(&opened, FlockOperation::LockExclusive) {
            Ok(()) => Ok(Self(Some(opened))),
            // There are none, or none for a directory that cannot be written to like a file.
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::BADF | Errno::NOLCK) => Ok(Self(None)),
            Err(error) => Err(error).at("lock", directory),
        }
    }

    /// Whether others are kept out.
    pub fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

/// Takes the lock of an open file or directory at once; `false` when another process holds it. An error is a filesystem without locks.
pub(crate) fn try_lock(file: impl AsFd) -> Result<bool, Errno> {
    match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        locked => locked.map(|()| true),
    }
}

/// The same for whoever goes on without a lock where the filesystem has none: `false` only when another process holds it.
pub(crate) fn try_lock_if_supported(file: impl AsFd) -> bool {
    try_lock(file) != Ok(false)
}

fn open(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// The same failure of the system, said of the lock.
fn relabeled(failure: Failure, op: &'static str, path: &Path) -> Failure {
    let relabeled = Failure::new(failure.kind(), op, path.display());
    match failure.into_io_source() {
        Some(source) => relabeled.because(source),
        None => relabeled,
    }
}

fn text_of(mut file: &File) -> String {
    let mut text = String::new();
    let _ = Read::by_ref(&mut file)
        .take(LONGEST)
        .read_to_string(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_locked_by_one_at_a_time_and_has_nothing_in_it() {
        let place = tempfile::tempdir().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let first = DirectoryLock::wait(place.path()).unwrap();
        assert!(first.is_held());

        let path = place.path().to_owned();
        let waiting = std::thread::spawn(move || {
            let second = DirectoryLock::wait(&path).unwrap();
            sender.send(()).unwrap();
            drop(second);
        });

        let while_held = receiver.recv_timeout(Duration::from_millis(200));
        assert!(while_held.is_err(), "the second waits for the first");
        drop(first);
        receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        waiting.join().unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

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
    fn a_second_one_learns_who_holds_it_and_a_third_one_after_that_gets_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/lock");

        let first = LockFile::take(&path, "save by 12").unwrap();
        let refused = LockFile::take(&path, "restore by 13").unwrap();
        assert!(matches!(first, LockAttempt::Taken(_)), "{first:?}");
        drop(first);
        let third = LockFile::take(&path, "restore by 13").unwrap();

        assert!(
            matches!(&refused, LockAttempt::Held(holder) if holder == "save by 12"),
            "{refused:?}"
        );
        assert!(matches!(third, LockAttempt::Taken(_)), "{third:?}");
    }

    #[test]
    fn whoever_has_just_taken_it_has_a_moment_to_say_who_he_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let held = LockFile::wait(&path).unwrap();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(3 * LOOKED_EVERY);
            (&held.file).write_all(b"save by 12").unwrap();
            held
        });

        let refused = LockFile::take(&path, "restore by 13").unwrap();

        drop(writer.join().unwrap());
        let said = matches!(&refused, LockAttempt::Held(holder) if holder == "save by 12");
        assert!(said, "{refused:?}");
    }

    #[test]
    fn whoever_looks_makes_and_writes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");

        assert_eq!(LockFile::holder(&path), None);
        assert!(!path.exists(), "nobody made it");
        let held = LockFile::take(&path, "save by 12").unwrap();
        assert!(matches!(held, LockAttempt::Taken(_)), "{held:?}");
        assert_eq!(LockFile::holder(&path).as_deref(), Some("save by 12"));
        drop(held);
        let quiet = LockFile::take(&path, "").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        assert_eq!(LockFile::holder(&path).as_deref(), Some(""));
        drop(quiet);
        assert_eq!(LockFile::holder(&path), None);
    }

    #[test]
    fn whoever_waits_gets_the_lock_after_its_holder_and_gives_up_in_time() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let pause = Duration::from_millis(1);
        let held = LockFile::wait(&path).unwrap();

        assert!(LockFile::try_take(&path).unwrap().is_none());
        let mut asked = 0;
        let refused = LockFile::take_within(&path, "", pause, || {
            asked += 1;
            asked == 3
        });
        assert!(matches!(refused, Ok(LockAttempt::Held(_))), "{refused:?}");
        assert_eq!(asked, 3);

        let mut held = Some(held);
        let taken = LockFile::take_within(&path, "", pause, || {
            held = None;
            false
        });
        assert!(matches!(taken, Ok(LockAttempt::Taken(_))), "{taken:?}");
        drop(taken);
        assert!(LockFile::try_take(&path).unwrap().is_some());
    }
}
