//! Live SQLite databases in a tree that is saved.
//!
//! 1. a file that is read anyway is recognised by its header, whatever it is called
//! 2. it is not read on but captured: a [`DatabaseCapture`] gives a copy of one committed state
//! 3. the copy is stored in the place of the file, and what SQLite keeps beside the file (log, journal, shared memory) is
//!    left out, because the copy needs none of it
//! 4. where no copy can be had, the file and what lies beside it are stored as they are, and named as not consistent
//!
//! *Always true:* a snapshot never holds a copy together with a log or a journal that belongs to another state of it. A
//! database counts as unchanged only if its file looks the same and nothing waits in a log or a journal beside it; one that
//! could not be captured is tried again by every save.
//!
//! A checkpoint stores the files themselves instead, taken together as `database_set` says.
//!
//! A descriptor of the file is closed before it is captured, because closing it drops SQLite's locks in this process.

use crate::fs::metadata::Seen;
use stasis_model::digest::FileDigest;
use stasis_model::format::manifest::StoredAs;
pub use stasis_model::sqlite_file::{COMPANIONS, HEADER, owner_name};
use stasis_model::tree::{Attribute, EntryPath};
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The same, of what a database is taken together with: its shared memory is made anew whenever it is opened.
pub fn set_owner_name(name: &[u8]) -> Option<&[u8]> {
    owner_name(name).filter(|_| !name.ends_with(b"-shm"))
}

/// Whether a file of this name and size may hold something that its database does not.
pub fn holds_changes(name: &[u8], size: u64) -> bool {
    size > 0 && !name.ends_with(b"-shm")
}

/// A database that was met in a tree.
#[derive(Clone, Copy, Debug)]
pub struct LiveDatabase<'a> {
    /// Where in the tree.
    pub path: &'a EntryPath,
    /// The directory that it lies in, opened from the root of the tree.
    pub directory: BorrowedFd<'a>,
    /// Its name there.
    pub name: &'a CStr,
    /// Device and inode of the file whose header was read.
    pub identity: (u64, u64),
}

/// What became of the attempt to copy a database.
#[derive(Debug)]
pub enum DatabaseCopy {
    /// One committed state of it, whole and checked.
    Consistent {
        /// The copy; nobody else knows of it.
        file: OwnedFd,
        /// The live file at the moment of that state.
        live: Seen,
    },
    /// The file in the tree is such a copy already.
    Still,
    /// The files that it consists of, which are all stored.
    Set {
        /// Each of them.
        files: Vec<SetFile>,
        /// How they fit together.
        state: StoredAs,
        /// Why they do not, for people.
        why: Option<String>,
    },
    /// There is no copy.
    Refused {
        /// Why, for people.
        why: String,
    },
    /// The save is not wanted any more.
    Cancelled,
}

/// One file of a database that is stored with its journal and its WAL.
#[derive(Debug)]
pub struct SetFile {
    /// What its name has after that of the database.
    pub suffix: &'static [u8],
    /// A copy; nobody else knows of it.
    pub file: OwnedFd,
    /// The live file when it was copied.
    pub live: Seen,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
}

/// Who copies live databases. Called by several workers at once.
pub trait DatabaseCapture: Sync {
    /// Copies one committed state of a database.
    fn capture(&self, database: &LiveDatabase<'_>) -> DatabaseCopy;

    /// Whether databases are stored as the files they consist of.
    fn takes_sets(&self) -> bool {
        false
    }
}

/// A database in a saved tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedDatabase {
    /// Where.
    pub path: EntryPath,
    /// How it is stored.
    pub state: StoredAs,
    /// How long it is.
    pub size: u64,
    /// What it is.
    pub digest: FileDigest,
}

/// Why a database is not consistent whose WAL or journal was not there yet when the tree was looked at: another look helps.
pub const OPENED_MEANWHILE: &str = "it was opened while the tree was read";

/// A database that no consistent copy was made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inconsistent {
    /// Where.
    pub path: EntryPath,
    /// Why, for people.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_sqlite_keeps_beside_a_database_has_an_owner() {
        assert_eq!(owner_name(b"app.db-wal"), Some(&b"app.db"[..]));
        assert_eq!(owner_name(b"app.db-journal"), Some(&b"app.db"[..]));
        assert_eq!(owner_name(b"-wal"), None);
        assert_eq!(owner_name(b"app.db"), None);
        assert!(holds_changes(b"a-wal", 1) && !holds_changes(b"a-wal", 0));
        assert!(!holds_changes(b"a-shm", 32768));
    }
}
