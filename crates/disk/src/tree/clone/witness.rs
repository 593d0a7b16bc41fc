//! Somebody who is shown what a clone gets, while it is made.

use crate::fs::metadata::Seen;
use crate::fs::root_dir::RootDir;
use stasis_model::tree::{Attribute, EntryPath};

/// Is shown every entry of a tree that is cloned file by file, by several workers at once; nothing of one that is snapshotted.
///
/// The source changes meanwhile: whoever takes long here makes the clone a worse picture of one moment.
pub trait CloneWitness: Sync {
    /// A file is in the clone.
    fn file(&self, path: EntryPath, file: &ClonedFile);

    /// Another name is in the clone, of the file that is called `first` there.
    fn link(&self, path: EntryPath, first: &EntryPath);

    /// A symbolic link is in the clone.
    fn symlink(&self, path: EntryPath, target: &[u8]);

    /// A directory is in the clone, with everything in it, these permissions and attributes; the root is not shown.
    fn directory(&self, path: &EntryPath, mode: u32, attributes: &[Attribute]);

    /// Everything has been shown, and is here; said while the clone is made durable, which may still fail.
    fn finish(&self, clone: &RootDir);
}

/// A file that was cloned.
#[derive(Clone, Copy, Debug)]
pub struct ClonedFile {
    /// What the source was while its bytes were carried over; `None` if it did not hold still.
    pub source: Option<Seen>,
    /// The length of the clone.
    pub size: u64,
    /// The permissions that the clone has.
    pub mode: u32,
}
