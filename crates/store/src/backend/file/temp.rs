//! Temporary files and locks: what lies beneath `.stasis/`.
//!
//! *Always true:* a temporary file whose writer lives is locked by it, and is not removed by anyone else. It is made
//! and locked under a shared hold on the lock `sweep`, which the sweep takes alone: so the sweep never sees one that
//! is made but not locked yet.

use super::tree::is_there;
use super::trouble::FileTrouble;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// How long a write waits for a lock before it gives up, not applied.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
const SWEEP: &str = "sweep";
/// How the marks of objects in doubt are called.
pub(super) const MARK: &str = ".doubt";
/// How the directory of a batch is called.
const BATCH: &str = ".batch";

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// The directories for what is not an object.
pub(super) struct Workshop {
    pub(super) locks: OwnedFd,
    pub(super) tmp: OwnedFd,
}

/// A lock that is held until it is dropped, or until its process ends.
pub(super) struct TempLock {
    _file: OwnedFd,
}

impl Workshop {
    /// Waits for a lock that nobody else holds.
    pub(super) fn lock(&self, name: &str) -> Result<TempLock, FileTrouble> {
        self.waited(name, FlockOperation::NonBlockingLockExclusive)
    }

    fn waited(&self, name: &str, how: FlockOperation) -> Result<TempLock, FileTrouble> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = made(&self.locks, name, flags)?;
        let (mut pause, mut waited) = (Duration::from_micros(100), Duration::ZERO);
        loop {
            match rustix::fs::flock(&file, how) {
                Ok(()) => return Ok(TempLock { _file: file }),
                Err(Errno::WOULDBLOCK | Errno::INTR) if waited < LOCK_TIMEOUT => {}
                Err(Errno::WOULDBLOCK) => return Err(FileTrouble::LockHeld(name.to_owned())),
                Err(errno) => return Err(errno.into()),
            }
            sleep(pause);
            waited += pause;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes an empty temporary file that only we write.
    pub(super) fn temp(&self) -> Result<Temp<'_>, FileTrouble> {
        let _not_swept = self.waited(SWEEP, FlockOperation::NonBlockingLockShared)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            // Processes in different containers can have the same number; then the other's name is skipped.
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-{count}.tmp", std::process::id());
            let file = match made(&self.tmp, &name, flags) {
                Ok(file) => File::from(file),
                Err(FileTrouble::Io(taken)) if taken.kind() == ErrorKind::AlreadyExists => continue,
                Err(trouble) => return Err(trouble),
            };
            let temp = Temp {
                workshop: self,
                file,
                name,
                moved: false,
            };
            rustix::fs::flock(&temp.file, FlockOperation::NonBlockingLockExclusive)?;
            return Ok(temp);
        }
    }

    /// Removes the temporary files whose writers are dead. Does nothing while someone is making one. Says whether objects are
    /// marked as perhaps not durable.
    pub(super) fn remove_dead(&self) -> Result<bool, FileTrouble> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let alone = made(&self.locks, SWEEP, flags)?;
        if rustix::fs::flock(&alone, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        let mut has_doubts = false;
        for entry in rustix::fs::Dir::read_from(&self.tmp)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_bytes().ends_with(BATCH.as_bytes()) {
                self.remove_dead_batch(name)?;
            }
            has_doubts |= name.to_bytes().ends_with(MARK.as_bytes());
            if !name.to_bytes().ends_with(b".tmp") {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let Ok(file) = rustix::fs::openat(&self.tmp, name, flags, Mode::empty()) else {
                continue;
            };
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                unless_gone(rustix::fs::unlinkat(&self.tmp, name, AtFlags::empty()))?;
            }
        }
        Ok(has_doubts)
    }

    /// Removes the directory of a batch whose process is dead: the lock beside it is gone, or nobody holds it.
    fn remove_dead_batch(&self, name: &CStr) -> Result<(), FileTrouble> {
        let beside = name.to_bytes().strip_suffix(BATCH.as_bytes());
        let beside = [beside.unwrap_or_default(), b".tmp"].concat();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let lock = rustix::fs::openat(&self.tmp, &*beside, flags, Mode::empty());
        let is_held = lock.is_ok_and(|lock| {
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err()
        });
        if !is_held {
            unless_gone(remove_flat(&self.tmp, name))?;
        }
        Ok(())
    }

    /// Makes a directory for a batch, beside a temporary file whose lock says that we live.
    pub(super) fn batch(&self) -> Result<(Temp<'_>, OwnedFd, String), FileTrouble> {
        let temp = self.temp()?;
        let name = format!("{}{BATCH}", temp.name.trim_end_matches(".tmp"));
        rustix::fs::mkdirat(&self.tmp, &name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(&self.tmp, &name, flags, Mode::empty())?;
        Ok((temp, directory, name))
    }

    /// Fails on a filesystem where two of our keys could be one file.
    pub(super) fn tells_case(&self) -> Result<(), FileTrouble> {
        let temp = self.temp()?;
        if is_there(&self.tmp, &temp.name.to_ascii_uppercase())? {
            return Err(FileTrouble::CaseInsensitive);
        }
        Ok(())
    }
}

/// A writer that lived when it was listed may have ended, and taken with it what it had.
fn unless_gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Removes a directory that holds only files.
pub(super) fn remove_flat(above: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(above, name, flags, Mode::empty())?;
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            rustix::fs::unlinkat(&directory, entry.file_name(), AtFlags::empty())?;
        }
    }
    rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)
}

/// Opens or makes a file beneath `.stasis/`. Where it cannot be made for want of a directory, the store was removed.
fn made(directory: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, FileTrouble> {
    match rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file),
        Err(Errno::NOENT) => Err(FileTrouble::RootGone),
        Err(errno) => Err(errno.into()),
    }
}

/// A file that is being written. Removed when dropped, unless it was moved into place.
pub(super) struct Temp<'a> {
    workshop: &'a Workshop,
    pub(super) file: File,
    pub(super) name: String,
    pub(super) moved: bool,
}

impl Temp<'_> {
    /// Renames the file over whatever has this name.
    pub(super) fn rename_to(&mut self, directory: &OwnedFd, name: &str) -> Result<(), Errno> {
        rustix::fs::renameat(&self.workshop.tmp, &self.name, directory, name)?;
        self.moved = true;
        Ok(())
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if !self.moved {
            // What cannot be removed now is removed by a later sweep.
            let _ = rustix::fs::unlinkat(&self.workshop.tmp, &self.name, AtFlags::empty());
        }
    }
}
