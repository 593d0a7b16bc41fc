//! What a walk met, and what it left out.

use super::WalkError;
use crate::worker_pool::{into_inner, lock};
use stasis_model::tree::{EntryKind, EntryPath};
use std::fmt;
use std::sync::{Mutex, MutexGuard};

/// How many left-out entries are listed by name; the others are only counted.
pub const LONGEST_LIST: usize = 1000;

/// Why an entry was left out, or is not to be trusted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WalkSkip {
    /// It was there when its directory was listed, and then it was not.
    Vanished,
    /// It became something else while we looked.
    Replaced,
    /// It changed each time it was read; its content may belong to no single moment.
    Changed,
    /// We may not read it.
    Unreadable,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device.
    Device,
    /// It lies on another filesystem.
    OtherFilesystem,
    /// It is what we are writing.
    OwnTarget,
    /// It is a live database that no consistent copy could be made of.
    Inconsistent,
    /// It is larger than any file that can be restored everywhere.
    TooLarge,
}

impl WalkSkip {
    /// Whether a walk that must be complete fails on it.
    fn is_a_gap(self) -> bool {
        matches!(
            self,
            Self::Vanished
                | Self::Replaced
                | Self::Changed
                | Self::Unreadable
                | Self::TooLarge
                | Self::Inconsistent
        )
    }

    /// Whether it means that something is missing which is there, and belongs to the tree.
    pub fn is_missing(self) -> bool {
        matches!(self, Self::Replaced | Self::Unreadable | Self::TooLarge)
    }

    /// The word for it in results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Vanished => "vanished",
            Self::Replaced => "replaced",
            Self::Changed => "changed",
            Self::Unreadable => "unreadable",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Device => "device",
            Self::OtherFilesystem => "other_filesystem",
            Self::OwnTarget => "own_target",
            Self::Inconsistent => "inconsistent",
            Self::TooLarge => "too_large",
        }
    }
}

impl fmt::Display for WalkSkip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vanished => "vanished while the tree was read",
            Self::Replaced => "became something else while the tree was read",
            Self::Changed => "changed each time it was read",
            Self::Unreadable => "permission denied",
            Self::Fifo => "named pipe",
            Self::Socket => "socket",
            Self::Device => "device",
            Self::OtherFilesystem => "on another filesystem",
            Self::OwnTarget => "the destination itself",
            Self::Inconsistent => "live database, no consistent copy could be made",
            Self::TooLarge => "larger than 16 TiB",
        })
    }
}

/// An entry that was left out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SkippedEntry {
    /// Which.
    pub path: EntryPath,
    /// Why.
    pub reason: WalkSkip,
}

/// What a walk met.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "what was left out is said only here"]
pub struct WalkReport {
    /// Regular files, each counted once.
    pub files: u64,
    /// Directories, without the root.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files that were counted already.
    pub hard_links: u64,
    /// The length of all files, holes included.
    pub bytes: u64,
    /// Entries that a pattern excluded; what is in an excluded directory is not looked at.
    pub excluded: u64,
    /// How many entries vanished.
    pub vanished_count: u64,
    /// Those that vanished, sorted; no more than [`LONGEST_LIST`].
    pub vanished: Vec<EntryPath>,
    /// How many entries were left out for other reasons.
    pub skipped_count: u64,
    /// Those, sorted; no more than [`LONGEST_LIST`].
    pub skipped: Vec<SkippedEntry>,
}

impl WalkReport {
    /// How many entries the tree has.
    pub fn entries(&self) -> u64 {
        self.files + self.directories + self.symlinks + self.hard_links
    }

    /// Adds an entry that was left out.
    pub(crate) fn note(&mut self, path: EntryPath, reason: WalkSkip) {
        if reason == WalkSkip::Vanished {
            self.vanished_count += 1;
            if self.vanished.len() < LONGEST_LIST {
                self.vanished.push(path);
            }
        } else {
            self.skipped_count += 1;
            if self.skipped.len() < LONGEST_LIST {
                self.skipped.push(SkippedEntry { path, reason });
            }
        }
    }

    /// How many entries are missing that belong to the tree, because they vanished, changed, or could not be read; sockets and the
    /// like are in no tree. Of those that are not listed any more the worst is believed.
    pub fn gaps(&self) -> u64 {
        let listed = self
            .skipped
            .iter()
            .filter(|one| one.reason.is_a_gap())
            .count() as u64;
        self.vanished_count + listed + self.unlisted()
    }

    /// The entries that we may not read, as far as they are listed.
    pub fn unreadable(&self) -> impl Iterator<Item = &EntryPath> {
        let unreadable = self.skipped.iter();
        let unreadable = unreadable.filter(|one| one.reason == WalkSkip::Unreadable);
        unreadable.map(|one| &one.path)
    }

    /// The entries that are there and missing in what was made of the tree, as far as they are listed.
    pub fn missing(&self) -> impl Iterator<Item = &EntryPath> {
        let missing = self.skipped.iter().filter(|one| one.reason.is_missing());
        missing.map(|one| &one.path)
    }

    /// How many entries were left out and are not listed.
    pub fn unlisted(&self) -> u64 {
        self.skipped_count.saturating_sub(self.skipped.len() as u64)
    }

    /// Adds what another part of the same walk met.
    pub(crate) fn merge(&mut self, other: Self) {
        let vanished = self.vanished_count + other.vanished_count;
        let skipped = self.skipped_count + other.skipped_count;
        let mut merged = other;
        merged.vanished.append(&mut self.vanished);
        merged.skipped.append(&mut self.skipped);
        (merged.vanished_count, merged.skipped_count) = (vanished, skipped);
        merged.vanished.sort();
        merged.skipped.sort();
        merged.vanished.truncate(LONGEST_LIST);
        merged.skipped.truncate(LONGEST_LIST);
        *self = merged;
    }
}

/// The report while it is written by several workers.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<WalkReport>);

impl Notes {
    fn open(&self) -> MutexGuard<'_, WalkReport> {
        lock(&self.0)
    }

    pub(super) fn skip(
        &self,
        path: EntryPath,
        reason: WalkSkip,
        strict: bool,
    ) -> Result<(), WalkError> {
        if strict && reason.is_a_gap() {
            return Err(WalkError::Incomplete { path, reason });
        }
        self.open().note(path, reason);
        Ok(())
    }

    pub(super) fn exclude(&self) {
        self.open().excluded += 1;
    }

    pub(super) fn count<'a>(&self, kinds: impl Iterator<Item = &'a EntryKind>) {
        let mut report = self.open();
        for kind in kinds {
            match kind {
                EntryKind::File { size } => {
                    report.files += 1;
                    report.bytes = report.bytes.saturating_add(*size);
                }
                EntryKind::Directory => report.directories += 1,
                EntryKind::Symlink { .. } => report.symlinks += 1,
                EntryKind::HardLink { .. } => report.hard_links += 1,
                _ => {}
            }
        }
    }

    pub(super) fn close(self) -> WalkReport {
        let mut report = into_inner(self.0);
        report.vanished.sort();
        report.skipped.sort();
        report
    }
}
