//! Whether the databases in a tree are sound.
//!
//! 1. walk the tree and look at the first bytes of every file   2. check each database that was found, several at once
//! 3. report every one of them with its verdict
//!
//! Databases are found by what they hold, not by their names: SQLite files by their header, or by the header of a
//! journal or log beside them; LevelDB directories by `CURRENT` and `MANIFEST-…`.
//!
//! *Always true:* nothing in the tree is changed, nor is it opened for writing. SQLite runs only in another process, and
//! only on a copy but where nobody else enters the tree ([`sqlite`]); LevelDB is read by our own code, which writes nothing ([`leveldb`]). A database whose
//! verdict is not known is in the report with the reason; none is called damaged because we lack what its program has.
//!
//! Somebody who writes into the tree meanwhile can make a sound database look damaged: check a clone, or hold still
//! what writes.

mod find;
mod identity;
pub mod leveldb;
mod message;
mod pool;
mod scratch;
pub mod sqlite;
mod storage_state;

pub(crate) use find::is_sqlite;
pub use identity::{ProfileIdentity, identity};
pub use message::Messages;
pub use storage_state::{PartlyRead, cookie_facts, storage_state};

use crate::form::archive::ArchiveError;
use crate::fs::remove;
use crate::fs::root_dir::RootDir;
use crate::tree::walk::{WalkError, WalkReport, WalkSettings};
use stasis_model::failure::Failure;
use stasis_model::tree::EntryPath;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How thoroughly a database is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Depth {
    /// SQLite: every page, but not whether indexes agree with tables. LevelDB: all but the data blocks.
    #[default]
    Quick,
    /// Everything that can be checked.
    Full,
}

/// Which files SQLite opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SqliteAccess {
    /// Copies.
    #[default]
    Copy,
    /// The files themselves, for reading, unless something has to be recovered first: then copies too.
    ///
    /// Only for a tree that nobody else enters: SQLite takes no locks and believes that nothing changes.
    InPlace,
}

/// How databases are checked, and within which limits.
#[derive(Clone, Debug)]
pub struct CheckSettings {
    /// A directory for copies, best on the filesystem of the tree: each gets a private directory, removed afterwards.
    pub scratch: PathBuf,
    /// Whether SQLite databases are copied before they are opened.
    pub access: SqliteAccess,
    /// How thoroughly.
    pub depth: Depth,
    /// How many databases are checked at once; each costs a thread, and up to `memory` in another process.
    pub workers: NonZeroUsize,
    /// How long one SQLite database may take.
    pub time: Duration,
    /// How much address space the process that checks a SQLite database has.
    pub memory: u64,
    /// The largest SQLite database that is copied, with its journals; a larger one is reported and not checked.
    pub largest: u64,
    /// How many messages are kept of one database.
    pub messages: usize,
    /// How the tree is walked.
    pub walk: WalkSettings,
    /// Set by anybody at any time to end soon.
    pub cancel: Arc<AtomicBool>,
}

impl CheckSettings {
    /// Settings with copies in `scratch`.
    pub fn new(scratch: impl Into<PathBuf>) -> Self {
        let walk = WalkSettings::default();
        Self {
            scratch: scratch.into(),
            access: SqliteAccess::default(),
            depth: Depth::default(),
            workers: NonZeroUsize::new(2).expect("two is not zero"),
            time: Duration::from_mins(1),
            memory: 512 << 20,
            largest: 16 << 30,
            messages: 20,
            cancel: walk.cancel.clone(),
            walk,
        }
    }
}

/// How the process that opens SQLite databases is started: our own program, and the words that make it call
/// [`sqlite::child`] with all arguments after them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spawn {
    /// The program.
    pub program: PathBuf,
    /// The words before ours.
    pub arguments: Vec<OsString>,
}

/// What kind of database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum DatabaseKind {
    /// One file, perhaps with a journal or a log beside it.
    Sqlite,
    /// A directory.
    LevelDb,
}

/// What was made good in order to read the database, as its own program would.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Recovered {
    /// Nothing had to be.
    #[default]
    Nothing,
    /// An unfinished transaction was rolled back from the journal.
    Journal,
    /// There was a log that the database had not taken in yet.
    Wal,
    /// The newest log ended in the middle of a record.
    TornTail,
}

/// What is known of a database after its check.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a check that nobody reads is no check"]
pub enum Verdict {
    /// Nothing wrong was found.
    Sound {
        /// Pages of a SQLite database, files of a LevelDB that its manifest names.
        pages: u64,
        /// What was made good first.
        recovered: Recovered,
        /// Tables that need a collation, a function or a module that we lack, and that were not looked into.
        unchecked: Messages,
    },
    /// Something is wrong.
    Damaged {
        /// What, as far as it was kept.
        messages: Messages,
    },
    /// It has no header of a database.
    NotADatabase,
    /// The check took too long.
    TimedOut,
    /// The check, or the copy for it, would have been larger than allowed.
    Limit {
        /// Which limit.
        what: String,
    },
    /// It changed while it was copied.
    Changed,
    /// It could not be checked, which says nothing about it.
    Unable {
        /// Why.
        why: String,
    },
}

impl Verdict {
    /// Whether nothing wrong was found.
    pub fn is_sound(&self) -> bool {
        matches!(self, Self::Sound { .. })
    }

    /// Whether something wrong was found.
    pub fn is_damaged(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    /// The word for it in results.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Sound { .. } => "sound",
            Self::Damaged { .. } => "damaged",
            Self::NotADatabase => "not_a_database",
            Self::TimedOut => "timed_out",
            Self::Limit { .. } => "limit",
            Self::Changed => "changed",
            Self::Unable { .. } => "unable",
        }
    }
}

/// One database and its verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// Which file or directory.
    pub path: EntryPath,
    /// What kind.
    pub kind: DatabaseKind,
    /// What is known of it.
    pub verdict: Verdict,
}

/// What was found in a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a check that nobody reads is no check"]
pub struct CheckReport {
    /// Every database, sorted by path.
    pub databases: Vec<Checked>,
    /// What the walk met, and what it could not read.
    pub walk: WalkReport,
}

impl CheckReport {
    /// Whether all databases were checked and found sound, and nothing in the tree was left out.
    pub fn is_all_sound(&self) -> bool {
        let unread = self.walk.vanished_count + self.walk.skipped_count;
        unread == 0 && self.databases.iter().all(|one| one.verdict.is_sound())
    }
}

/// Why a tree, or a profile in an archive, was not checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The tree could not be read.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// The archive could not be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// More databases than anybody has.
    #[error("more than {limit} databases are in the tree")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// What nobody branches on: a copy could not be made.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// Somebody asked us to stop.
    #[error("the check was cancelled")]
    Cancelled,
}

/// Removes the copies that processes left in `scratch` which died while they checked.
pub fn collect(scratch: &std::path::Path) {
    remove::left_by_the_dead(scratch, ".stasis-check-");
}

/// Finds and checks every database beneath `root`.
pub fn tree(
    root: &RootDir,
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<CheckReport, CheckError> {
    let (found, walk) = find::databases(root, settings)?;
    let databases = pool::check_all(found, settings, |find::Database { path, kind, .. }| {
        let verdict = match kind {
            DatabaseKind::Sqlite => sqlite::check(root, &path, settings, spawn)?,
            DatabaseKind::LevelDb => leveldb::check(root, &path, settings)?,
        };
        Ok(Checked {
            path,
            kind,
            verdict,
        })
    })?;
    Ok(CheckReport { databases, walk })
}
