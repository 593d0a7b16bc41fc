//! Why a tree was not restored.

use crate::tree::write::TreeWriteError;
use stasis_model::failure::Failure;
use stasis_model::tree::EntryPath;
use std::io;
use std::path::PathBuf;

/// Why a tree was not restored. The old tree is as it was, but for [`RestoreError::HalfDone`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The new tree could not be written.
    #[error(transparent)]
    Write(#[from] TreeWriteError),
    /// Something around the target, or an entry of it, could not be looked at, compared or moved.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A restore in place was interrupted between its journal and its end. [`recover`](fn@super::recover), or the next
    /// restore to this target, brings it to its end.
    #[error("the restore of `{}` in place was interrupted; the next one brings it to its end", .path.display())]
    HalfDone {
        /// The target.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: Box<RestoreError>,
    },
    /// A program has a database open that would be exchanged under it.
    #[error(
        "the SQLite database `{path}` is open in {by}: stop that program first; a restore or rewind of everything else leaves it as it is with --except {path}"
    )]
    DatabaseOpen {
        /// Which database.
        path: EntryPath,
        /// Who has it open, as far as that is known.
        by: String,
    },
    /// These are somebody else's, or lie in directories that are: nothing is begun that could not be brought to its end.
    #[error(
        "`{}` cannot be moved: it, or the directory that it is in, belongs to another user and may not be written",
        .0.first().unwrap_or(&EntryPath::root())
    )]
    NotOurs(Vec<EntryPath>),
    /// Something above the entry that is restored is no directory any more.
    #[error("`{0}` is in the way: it is not a directory any more; revert it first")]
    InTheWay(EntryPath),
    /// The journal of an interrupted restore in place is not one.
    #[error("the journal in `{}` is damaged", .0.display())]
    BadJournal(PathBuf),
    /// The target is the root of the whole system.
    #[error("the root of the system is not replaced; name a directory in it")]
    TargetIsEverything,
    /// The target is a symbolic link.
    #[error("`{}` is a symbolic link; name the directory it leads to", .0.display())]
    TargetIsSymlink(PathBuf),
    /// The target is something else than a directory.
    #[error("`{}` is no directory", .0.display())]
    NotDirectory(PathBuf),
    /// The target has content, and replacing it was not asked for.
    #[error("`{}` exists and is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// The target is where a filesystem is mounted: it cannot be swapped, only restored in place.
    #[error("`{}` is a mount point; it can only be restored in place", .0.display())]
    TargetIsMount(PathBuf),
    /// A filesystem is mounted inside the target, or lies in it as a btrfs subvolume.
    #[error("`{}` inside the target is another filesystem", .0.display())]
    MountInside(PathBuf),
    /// The filesystem does not exchange two directories: the target can only be restored in place.
    #[error("the filesystem cannot exchange `{}` for another directory; it can be restored in place", .path.display())]
    CannotExchange {
        /// The target.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No old tree is kept for the target.
    #[error("nothing is kept of what was at `{}` before", .0.display())]
    NothingKept(PathBuf),
    /// Another restore to the same target is under way.
    #[error("another restore to `{}` is under way", .0.display())]
    Busy(PathBuf),
    /// Somebody asked us to stop.
    #[error("the restore was cancelled")]
    Cancelled,
}
