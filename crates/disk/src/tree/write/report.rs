//! What became of a tree that was written, and why one was not.

use crate::fs::metadata::Withheld;
use stasis_model::failure::Failure;
use stasis_model::tree::EntryPath;
use std::sync::atomic::{AtomicU64, Ordering};

/// What was written, and what was not given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
#[must_use = "what was withheld is said only here"]
pub struct WriteReport {
    /// Regular files, each counted once.
    pub files: u64,
    /// Directories, without the root.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Named pipes.
    pub fifos: u64,
    /// The length of all files, holes included.
    pub bytes: u64,
    /// Bytes that came from files that were here already.
    pub bytes_reused: u64,
    /// Entries with another owner or group than they should have.
    pub owners_not_kept: u64,
    /// Entries without the setuid or setgid that they should have.
    pub privileges_not_kept: u64,
    /// Attributes that the filesystem does not take, or that are not the user's.
    pub attributes_not_kept: u64,
    /// Directories, among the others, of which nobody said whose they are: ours, and closed to others.
    pub directories_unannounced: u64,
}

/// Why a tree was not written. What was written so far is for the caller to remove.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeWriteError {
    /// The system refused something.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A path was announced twice.
    #[error("`{0}` is in the tree twice")]
    Duplicate(EntryPath),
    /// Something lies in an entry that is no directory.
    #[error("`{0}` is no directory, and something lies in it")]
    NotDirectory(EntryPath),
    /// A hard link leads to something that is no regular file of this tree.
    #[error("`{path}` is a hard link to `{to}`, which is no regular file of this tree")]
    BadLink {
        /// The link.
        path: EntryPath,
        /// What it should be another name of.
        to: EntryPath,
    },
    /// Bytes were to be written behind the end of a file.
    #[error("`{path}` was announced with {size} bytes, and more were to be written")]
    BeyondEnd {
        /// The file.
        path: EntryPath,
        /// Its length.
        size: u64,
    },
    /// A file was begun and not finished.
    #[error("{0} files of the tree were begun and not finished")]
    Unfinished(u64),
    /// More entries than allowed.
    #[error("the tree has more than {0} entries")]
    TooManyEntries(u64),
    /// Longer files than allowed.
    #[error("the files of the tree are longer than {0} bytes")]
    TooManyBytes(u64),
    /// The filesystem has less room than the tree needs.
    #[error("{needed} bytes are to be written, and the filesystem has room for {free}")]
    NoRoom {
        /// Bytes that are still to be written.
        needed: u64,
        /// Bytes that are free for us.
        free: u64,
    },
    /// Directories lie deeper in one another than allowed.
    #[error("more than {limit} directories lie inside one another, beginning with `{top}`")]
    TooDeep {
        /// The limit.
        limit: usize,
        /// The outermost of them.
        top: EntryPath,
    },
    /// Somebody asked us to stop.
    #[error("the writing was cancelled")]
    Cancelled,
}

/// A number that several workers raise.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        if more > 0 {
            self.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Adds one; returns how many there are by then.
    pub(super) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The report while it grows.
#[derive(Debug, Default)]
pub(super) struct WriteCounts {
    pub(super) entries: Count,
    pub(super) files_begun: Count,
    pub(super) files: Count,
    pub(super) bytes_announced: AtomicU64,
    pub(super) bytes: Count,
    pub(super) bytes_reused: Count,
    pub(super) owners_not_kept: Count,
    pub(super) privileges_not_kept: Count,
    pub(super) attributes_not_kept: Count,
}

impl WriteCounts {
    pub(super) fn withhold(&self, withheld: Withheld) {
        self.owners_not_kept.add(withheld.owner.into());
        self.privileges_not_kept.add(withheld.privileges.into());
    }

    pub(super) fn report(&self) -> WriteReport {
        WriteReport {
            files: self.files.get(),
            bytes: self.bytes.get(),
            bytes_reused: self.bytes_reused.get(),
            owners_not_kept: self.owners_not_kept.get(),
            privileges_not_kept: self.privileges_not_kept.get(),
            attributes_not_kept: self.attributes_not_kept.get(),
            ..WriteReport::default()
        }
    }
}
