//! Why something is not written down, or cannot be read.

use rusqlite::ErrorCode;
use std::io;
use std::path::{Path, PathBuf};

/// Why the ledger did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
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
    /// SQLite refused something: no right, or somebody wrote for longer than we wait.
    #[error("could not {doing} `{}`", path.display())]
    Failed {
        /// What we were doing.
        doing: &'static str,
        /// To which database.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// The system refused something.
    #[error("could not {doing} `{}`", path.display())]
    File {
        /// What we were doing.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl LedgerError {
    /// Whether somebody else wrote for longer than we wait: later it may work.
    pub fn is_busy(&self) -> bool {
        let Self::Failed { source, .. } = self else {
            return false;
        };
        matches!(
            source.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        )
    }
}

/// SQLite's part of an error: what we were doing, to which database.
pub(super) fn sqlite(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(rusqlite::Error) -> LedgerError + use<> {
    let path = path.to_owned();
    move |source| {
        if matches!(
            source.sqlite_error_code(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        ) {
            LedgerError::Damaged {
                doing,
                path,
                source,
            }
        } else {
            match no_room(&path, &source) {
                Some(source) => LedgerError::Full {
                    doing,
                    path,
                    source,
                },
                None => LedgerError::Failed {
                    doing,
                    path,
                    source,
                },
            }
        }
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
    match super::schema::has_room(path) {
        Err(LedgerError::Full { source, .. }) => Some(source),
        _ => says_so.then(|| rustix::io::Errno::NOSPC.into()),
    }
}

/// The system's part of an error.
pub(super) fn file<E: Into<io::Error>>(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(E) -> LedgerError + use<E> {
    let path = path.to_owned();
    move |error| LedgerError::File {
        doing,
        path,
        source: error.into(),
    }
}
