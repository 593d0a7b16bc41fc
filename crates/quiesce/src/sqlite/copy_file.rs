//! The copy: a new file that is removed again unless it is kept, and that looks like its source.

use super::find::companion;
use super::{SourceFile, SqliteError};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RawMode, Stat, Timespec, Timestamps, Uid, fchmod, fchown,
    fsync, futimens, lstat, openat, unlinkat,
};
use stasis_model::failure::AtPath;
use stasis_model::sqlite_file::COMPANIONS;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What is being done to the copy, for its errors.
pub(super) const CREATE: &str = "create the copy";
pub(super) const WRITE: &str = "write the copy";
/// Where the header keeps the version of the schema.
const SCHEMA_VERSION: u64 = 40;
/// Where it keeps the count of changes, and of which count and library the rest of the header is valid: both are counted anew
/// in a copy.
const CHANGES: [(u64, usize); 2] = [(24, 4), (92, 8)];

/// A file at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveFile {
    /// The filesystem.
    pub device: u64,
    /// The number of the file in it.
    pub inode: u64,
    /// How many names it has.
    pub links: u64,
    /// Type and permissions.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// How long it is.
    pub size: u64,
    /// 512-byte blocks in use.
    pub blocks: u64,
    /// When the content changed: seconds and nanoseconds.
    pub modified: (i64, u32),
    /// When anything changed.
    pub changed: (i64, u32),
}

/// Owner, mode and time of a file, and which file and state of it that was.
#[derive(Clone, Debug)]
pub(super) struct SourceStat(Stat);

impl SourceStat {
    pub(super) fn of(path: &Path) -> Result<Self, SqliteError> {
        lstat(path).map(Self).or_not_a_file(path)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.st_size == 0
    }

    /// Whether no process wrote between the two, as far as the file system's clock can tell.
    pub(super) fn is_unmoved(&self, later: &Self) -> bool {
        let state = |stat: &Stat| {
            (
                (stat.st_dev, stat.st_ino, stat.st_size),
                (stat.st_mtime, stat.st_mtime_nsec),
                (stat.st_ctime, stat.st_ctime_nsec),
            )
        };
        state(&self.0) == state(&later.0)
    }

    /// The same for others.
    pub(super) fn live(&self) -> LiveFile {
        let stat = &self.0;
        let nanos = |nanos: u64| u32::try_from(nanos).unwrap_or_default();
        LiveFile {
            device: stat.st_dev,
            inode: stat.st_ino,
            links: stat.st_nlink,
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            blocks: u64::try_from(stat.st_blocks).unwrap_or_default(),
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
        }
    }

    fn apply_to(&self, file: &File) -> io::Result<()> {
        // Only root may give a file away; for other users it is the owner's own already, or cannot be.
        let owner = (Uid::from_raw(self.0.st_uid), Gid::from_raw(self.0.st_gid));
        match fchown(file, Some(owner.0), Some(owner.1)) {
            Ok(()) | Err(rustix::io::Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        fchmod(file, Mode::from_raw_mode(RawMode::from(self.0.st_mode)))?;
        let time = |seconds, nanoseconds: u64| Timespec {
            tv_sec: seconds,
            tv_nsec: i64::try_from(nanoseconds).unwrap_or_default(),
        };
        let times = Timestamps {
            last_access: time(self.0.st_mtime, self.0.st_mtime_nsec),
            last_modification: time(self.0.st_mtime, self.0.st_mtime_nsec),
        };
        Ok(futimens(file, &times)?)
    }
}

/// A file that was created here and is removed with its companions unless it is kept.
#[derive(Debug)]
#[must_use = "a copy that is dropped is removed"]
pub(super) struct CopyFile {
    path: PathBuf,
    file: File,
    is_durable: bool,
    is_kept: bool,
}

impl CopyFile {
    /// Creates it, empty and for us alone; fails where anything is.
    pub(super) fn create(path: &Path, is_durable: bool) -> Result<Self, SqliteError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = openat(CWD, path, flags, Mode::RUSR | Mode::WUSR);
        let file = opened.at(CREATE, path)?;
        Ok(Self {
            path: path.to_owned(),
            file: file.into(),
            is_durable,
            is_kept: false,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The online copy counts the schema's version and its changes anew; this puts back what the source says.
    pub(super) fn set_counters(&self, version: u32, source: &File) -> Result<(), SqliteError> {
        let written = self
            .file
            .write_all_at(&version.to_be_bytes(), SCHEMA_VERSION);
        written.at(WRITE, &self.path)?;
        for (at, length) in CHANGES {
            let mut counter = [0; 8];
            // A file that has no header yet keeps it all in its log; then any count will do.
            if source.read_exact_at(&mut counter[..length], at).is_ok() {
                let written = self.file.write_all_at(&counter[..length], at);
                written.at(WRITE, &self.path)?;
            }
        }
        Ok(())
    }

    /// Makes it look like its source, makes it and its name durable, and keeps it. Returns its size.
    pub(super) fn keep(mut self, stat: &SourceStat) -> Result<u64, SqliteError> {
        let sync = || {
            if !self.is_durable {
                return Ok(());
            }
            let synced = self.file.sync_all();
            synced.and_then(|()| sync_directory(&self.path))
        };
        let kept = stat
            .apply_to(&self.file)
            .and_then(|()| sync())
            .and_then(|()| self.file.metadata());
        let kept = kept.at("finish the copy", &self.path)?;
        self.is_kept = true;
        Ok(kept.len())
    }
}

impl Drop for CopyFile {
    fn drop(&mut self) {
        for end in COMPANIONS {
            let _ = unlinkat(CWD, companion(&self.path, end), AtFlags::empty());
        }
        if !self.is_kept {
            let _ = unlinkat(CWD, &self.path, AtFlags::empty());
        }
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fsync(openat(CWD, directory, flags, Mode::empty())?)?)
}
