//! What a restore in place did.

use stasis_model::tree::EntryPath;
use std::path::PathBuf;

/// What was done to a live tree. A directory that came or went whole counts once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RestoreChanges {
    /// Entries that were put into the live tree, instead of others or not.
    pub placed: u64,
    /// Entries that are gone.
    pub removed: u64,
    /// Directories that got owner, permissions, time or attributes.
    pub dressed: u64,
    /// Entries that were right, and are the same inodes as before.
    pub untouched: u64,
    /// Entries that were not what the plan was made for when their turn came: they are in the backup as they were. Entries that
    /// were right when they were looked at, and were changed since: they are in the live tree as they are.
    pub changed_meanwhile: Vec<EntryPath>,
    /// Entries that are in the backup since earlier, because an undo left them out.
    pub waiting: Vec<EntryPath>,
    /// Entries that stayed as they are because somebody said so, and are not what the new tree has.
    pub left_alone: Vec<EntryPath>,
    /// Entries that stayed as they are because this user may not read or change them; of directories, perhaps only their
    /// permissions and times.
    pub not_permitted: Vec<EntryPath>,
    /// Those of them that the system refused to move, though nobody could know that when the plan was made.
    pub refused: Vec<EntryPath>,
    /// Where everything is kept that came out of the live tree; nothing where nothing was changed.
    pub backup: Option<PathBuf>,
}
