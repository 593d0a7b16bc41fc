//! Why something is not written down, or cannot be read.

use crate::fs::free_space;
use rusqlite::ErrorCode;
use rustix::fs::{self, Mode, OFlags};
use stasis_model::failure::{ErrorKind, Failure};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// What SQLite needs beside a database before anything can be read or written: its index of the log, and some pages of that.
const NEEDED: u64 = 128 << 10;
/// Why the session database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionDbError {
    /// What is there is somebody else's; nothing was written to it.
    #[error("`{}` is not a session database of ours; it was left as it is", path.display())]
    Foreign {
        /// Where.
        path: PathBuf,
    },
    /// A later version of this program made it; nothing was written to it.
    #[error("`{}` has version {found}; this program knows versions up to {known}", path.display())]
    Newer {
        /// Where.
        path: PathBuf,
        /// What it says.
        found: i32,
        /// What we know.
        known: i32,
    },
    /// SQLite found that the bytes contradict each other.
    #[error("could not {doing} `{}`: the database is damaged", path.display())]
    Damaged {
        /// What we were doing.
        doing: &'static str,
        /// To which database.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// There is no room for it; what is there can be read.
    #[error("could not {doing} `{}`: there is no room for it", path.display())]
    Full {
        /// What we were doing.
        doing: &'static str,
        /// To which database.
        path: PathBuf,
        /// What the system said when room was asked for.
        #[source]
        source: io::Error,
    },
    /// SQLite or the system refused something: no right, or another process wrote for longer than we wait.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl SessionDbError {
    /// Whether somebody else wrote for longer than we wait: later it may work.
    pub fn is_busy(&self) -> bool {
        let Self::Failed(failure) = self else {
            return false;
        };
        let sqlite = failure.source().and_then(|source| source.downcast_ref());
        matches!(
            sqlite.and_then(rusqlite::Error::sqlite_error_code),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        )
    }
}

/// Says of what SQLite refused what it was, and to which database.
pub(super) trait SqliteContext<T> {
    fn doing(self, op: &'static str, path: &Path) -> Result<T, SessionDbError>;
}

impl<T> SqliteContext<T> for rusqlite::Result<T> {
    fn doing(self, op: &'static str, path: &Path) -> Result<T, SessionDbError> {
        self.map_err(|source| {
            let is_damaged = matches!(
                source.sqlite_error_code(),
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
            );
            let path = path.to_owned();
            match no_room(&path, &source) {
                _ if is_damaged => SessionDbError::Damaged {
                    doing: op,
                    path,
                    source,
                },
                Some(source) => SessionDbError::Full {
                    doing: op,
                    path,
                    source,
                },
                None => Failure::new(ErrorKind::Unreachable, op, path.display())
                    .because(source)
                    .into(),
            }
        })
    }
}

/// What the system says, if SQLite refused something for want of room. It says so itself only when it writes; when it cannot make what
/// it needs beside a database, it says that it cannot open it.
fn no_room(path: &Path, refused: &rusqlite::Error) -> Option<io::Error> {
    let says_so = match refused.sqlite_error_code()? {
        ErrorCode::DiskFull => true,
        ErrorCode::CannotOpen | ErrorCode::SystemIoFailure => false,
        _ => return None,
    };
    match check_room(path).and_then(|()| check_name(path)) {
        Err(source) => Some(source),
        Ok(()) => says_so.then(|| rustix::io::Errno::NOSPC.into()),
    }
}

/// Whether another name fits beside a database; the error is that none does. A btrfs without room for metadata says that it has bytes.
fn check_name(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("-room-{}", std::process::id()));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match fs::open(&*name, flags, Mode::RUSR | Mode::WUSR) {
        Err(error) if free_space::is_errno(error) => Err(error.into()),
        // Whatever else is wrong is found by whoever opens it.
        Err(_) => Ok(()),
        Ok(_) => {
            // One that stays is empty, and in nobody's way.
            let _ = fs::unlink(&*name);
            Ok(())
        }
    }
}

/// Whether there is room for what SQLite needs beside a database; the error is that there is none.
pub(super) fn check_room(path: &Path) -> io::Result<()> {
    let above = path.parent().filter(|at| !at.as_os_str().is_empty());
    match free_space::has(above.unwrap_or_else(|| Path::new(".")), NEEDED) {
        Err(source) if free_space::is_full(&source) => Err(source),
        // Whatever else is wrong is found by whoever opens it.
        _ => Ok(()),
    }
}
