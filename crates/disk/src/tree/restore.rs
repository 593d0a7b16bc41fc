//! A tree takes the place of another one, whole or not at all.
//!
//! 1. [`RestoreStage::begin`]: look at the target; bring to its end what a dead restore in place began; remove what other dead
//!    ones left; make a staging directory on the target's filesystem
//! 2. the caller writes the new tree through [`RestoreStage::writer`] and verifies it; only then
//! 3. [`RestoreStage::swap`]: one `syncfs`, and by [`Placement`]:
//!
//! *New*: rename it to its name; `fsync` the directory it is in.
//!
//! *Replace*: call the staged tree `.NAME.stasis-kept-N`; write a durable record saying which inode is the old tree;
//! exchange the two; `fsync` the directory. A tree with that name is the kept one only if it is the inode of the record,
//! so a crash between any two of these leaves the old tree, and the tree kept before it, or the new one and the old one.
//! [`undo`] exchanges back, in the same way.
//!
//! *In place*, where the root must stay the same directory: compare the staged tree with the live one; write a durable journal of
//! what to move; move; write down how that is taken back; `syncfs`; remove the journal. An entry that comes is exchanged for what is
//! there, or goes where nothing is; whatever comes out is kept, as the inode that it is, in `.NAME.stasis-backup-N`. So whoever writes
//! to the tree meanwhile finds its bytes in the live tree or in the backup. A step that was done is never done again. A crash
//! before the journal leaves the old tree; after it [`recover()`], or the next restore, does the rest, which leads to the new one.
//! [`take_back()`] exchanges the same inodes again, in the same way, and so can itself be taken back.
//!
//! *Always true:* nothing of the target is touched before 3. A [`RestoreStage`] that is dropped before leaves nothing.

mod backup;
mod changes;
mod contents;
mod databases;
mod error;
mod forward;
mod inplace;
mod journal;
mod kept;
mod moves;
mod permissions;
mod plan;
mod recover;
mod scope;
mod take_back;
mod target;

pub use backup::{
    Backup, OpenBackup, Returned, backups, is_left, moved_backup, place_in, remove_backup,
};
pub use changes::RestoreChanges;
pub use databases::{ensure_none_open, is_in_use, open_databases, open_databases_in};
pub use error::RestoreError;
pub use forward::FinishedRestore;
pub use kept::{KeptBackup, forget, kept, undo};
pub use permissions::Permissions;
pub use recover::{recover, recovered};
pub use take_back::take_back;

use crate::fs::fd::{c_name, reopen_dir};
use crate::fs::metadata::Seen;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::fs::staging::Staging;
use crate::tree::write::{NewFile, TreeWriter, WriteReport, WriteSettings};
use journal::JournalMark;
use rustix::fs::{self, AtFlags};
use rustix::io::Errno;
use scope::RestoreScope;
pub use scope::{KeepIf, KnownEntry, RestoreLimits, is_part_of};
use stasis_model::failure::{AtPath, Failure};
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use target::RestoreTarget;

/// How the new tree takes its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// Where nothing is, or an empty directory.
    #[default]
    New,
    /// Instead of the directory that is there, which is kept beside it. Without one, as [`Placement::New`].
    Replace,
    /// Into the directory that is there, which stays the same one. Without one, as [`Placement::New`].
    InPlace,
}

/// When a tree was restored, and from what; kept with the old tree for whoever wants to undo it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestoreOrigin {
    /// When.
    pub at: Timestamp,
    /// From what, in one line.
    pub from: String,
}

/// What became of a restore.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "what was withheld and what was kept is said only here"]
pub struct RestoredTree {
    /// What was written, and what was not given.
    pub written: WriteReport,
    /// How it took its place.
    pub placed: PlacedTree,
}

impl RestoredTree {
    /// Whether it went into the directory that was there, and all of it did.
    pub fn is_whole_in_place(&self) -> bool {
        matches!(&self.placed, PlacedTree::InPlace(changes) if changes.refused.is_empty())
    }
}

/// How a tree took its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlacedTree {
    /// Nothing was there.
    New,
    /// It took the place of a tree.
    Replaced {
        /// Where that one is kept.
        kept: PathBuf,
    },
    /// It was merged into the directory that was there.
    InPlace(RestoreChanges),
}

/// A new tree that nobody sees yet. Dropped, it is removed.
#[derive(Debug)]
#[must_use = "a tree that is not swapped in is removed"]
pub struct RestoreStage {
    target: RestoreTarget,
    placement: Placement,
    staging: Staging,
    tree: RootDir,
    old: Option<RootDir>,
    scope: RestoreScope,
    cancel: Arc<AtomicBool>,
}

impl RestoreStage {
    /// Prepares a restore to `target`; `cancel` ends it, at the latest before anything of the target is touched.
    pub fn begin(
        target: &Path,
        placement: Placement,
        cancel: Arc<AtomicBool>,
    ) -> Result<Self, RestoreError> {
        let target = RestoreTarget::find(target)?;
        recover::recover_interrupted(&target)?;
        kept::collect(&target);
        let placement = target.check(placement)?;
        let old = target.open_tree()?;
        let making = "make a temporary directory for";
        let staging = match (&old, placement) {
            (Some(old), Placement::InPlace) => inplace::make_staging(&target, old),
            _ => target
                .parent_again()
                .and_then(|parent| Staging::make(parent, &target.name)),
        };
        let staging = staging.at(making, &target.path)?;
        let tree = match placement {
            Placement::InPlace => inplace::init_staging(&staging),
            _ => reopen_dir(staging.root()),
        };
        let tree = tree.and_then(|root| RootDir::new(root, Mounts::Stay));
        Ok(Self {
            tree: tree.at(making, &target.path)?,
            target,
            placement,
            staging,
            old,
            scope: RestoreScope::default(),
            cancel,
        })
    }

    /// Begins to write the new tree. There is one writer for each stage.
    pub fn writer(&self, settings: WriteSettings) -> Result<TreeWriter, RestoreError> {
        let root = self.tree.directory(b"");
        let root = root.at("open the temporary", &self.target.path)?;
        Ok(TreeWriter::new(root, settings)?)
    }

    /// The new tree, to look at what was written.
    pub fn tree(&self) -> &RootDir {
        &self.tree
    }

    /// Takes a file out of the new tree, if it is there.
    pub fn remove(&self, path: &EntryPath) -> Result<(), RestoreError> {
        let Some((above, name)) = path.split_last() else {
            return Ok(());
        };
        let removed = self.tree.directory(above.as_bytes()).and_then(|above| {
            let name = c_name(name)?;
            fs::unlinkat(above, &name, AtFlags::empty())
        });
        match removed {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            removed => Ok(removed.at("remove a file of the temporary", &self.target.path)?),
        }
    }

    /// The tree that is at the target now.
    pub fn old(&self) -> Option<&RootDir> {
        self.old.as_ref()
    }

    /// How the tree will take its place: what was asked for, or [`Placement::New`] where nothing is.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Fills a new file from the old tree's file `path`, if that holds what it should by its BLAKE3 digest.
    ///
    /// After `false` the caller writes the bytes.
    pub fn reuse(
        &self,
        file: &NewFile<'_>,
        path: &EntryPath,
        wanted: &blake3::Hash,
    ) -> Result<bool, RestoreError> {
        let (Some(old), Some((above, name))) = (&self.old, path.split_last()) else {
            return Ok(false);
        };
        let Ok(name) = CString::new(name) else {
            return Ok(false);
        };
        let opened = old.directory(above.as_bytes());
        // Whatever is in the way of the old file, the bytes come from elsewhere then.
        let Ok(source) = opened.and_then(|above| old.file(above.as_fd(), &name)) else {
            return Ok(false);
        };
        Ok(file.reuse(source.as_fd(), wanted)?)
    }

    /// Says that the entry `path` of the old tree is right as it is and was not staged; heard only in place.
    ///
    /// Directories are always staged. So are all names of a file that has several, unless all of them are right.
    pub fn leave(&self, path: &EntryPath) {
        self.scope.leave(path, None);
    }

    /// The same of one that was seen before it was read: if somebody changes it before the swap, it stays as they left it, and is
    /// among what was [changed meanwhile](RestoreChanges::changed_meanwhile).
    pub fn leave_as_seen(&self, path: &EntryPath, seen: &Seen) {
        self.scope.leave(path, Some(seen));
    }

    /// Says what is left alone; heard only in place.
    pub fn limit(&mut self, limits: RestoreLimits) {
        self.scope.limits = limits;
    }

    /// Puts the new tree in its place. An error means that the old one is still there, but for
    /// [`RestoreError::HalfDone`].
    pub fn swap(
        self,
        written: WriteReport,
        origin: &RestoreOrigin,
    ) -> Result<RestoredTree, RestoreError> {
        let durable = self.staging.sync();
        durable.at("make durable", &self.target.path)?;
        if self.cancel.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(RestoreError::Cancelled);
        }
        let Self {
            target,
            staging,
            tree,
            old,
            scope,
            cancel,
            ..
        } = self;
        let placed = match (self.placement, old) {
            (Placement::Replace, Some(_)) => kept::replace(&target, staging, origin)?,
            (Placement::InPlace, Some(old)) => {
                let work = inplace::Work {
                    target: &target,
                    old: &old,
                    tree: &tree,
                    scope: &scope,
                    cancel: &cancel,
                    mark: JournalMark {
                        at: origin.at,
                        from: origin.from.clone(),
                        label: scope.limits.label.clone(),
                    },
                };
                PlacedTree::InPlace(work.merge(staging)?)
            }
            (_, old) => {
                publish(&target, staging, old.is_some())?;
                PlacedTree::New
            }
        };
        Ok(RestoredTree { written, placed })
    }
}

/// Gives a tree another name beside itself, where nothing has it.
pub fn rename(from: &Path, to: &Path) -> Result<(), RestoreError> {
    let renamed = fs::renameat_with(fs::CWD, from, fs::CWD, to, fs::RenameFlags::NOREPLACE);
    Ok(renamed.at("rename", from)?)
}

/// Refuses a place where no new tree can be put: something else is there.
pub fn ensure_free(target: &Path) -> Result<(), RestoreError> {
    RestoreTarget::find(target)?.check(Placement::New).map(drop)
}

/// Where something is mounted in a directory, relative to it; nothing when nobody tells.
pub fn mounts_in(directory: &Path) -> Result<Vec<PathBuf>, RestoreError> {
    RestoreTarget::find(directory)?.mounts()
}

/// Gives the staged tree a name that nothing has, or an empty directory.
fn publish(
    target: &RestoreTarget,
    mut staging: Staging,
    is_there: bool,
) -> Result<(), RestoreError> {
    if is_there {
        return take_over(target, &staging);
    }
    let path = &target.path;
    match staging.publish(&target.name) {
        Err(Errno::EXIST) => return Err(RestoreError::NotEmpty(path.clone())),
        published => published.at("rename into place", path)?,
    }
    let durable = staging.sync_name();
    if durable.is_err() {
        // Not durable is not done: what is there now would be gone after a power cut.
        let _ = crate::fs::remove::tree(&target.parent, &target.name);
    }
    Ok(durable.at("make durable the name of", path)?)
}

/// Exchanges the staged tree for an empty directory, and removes that.
fn take_over(target: &RestoreTarget, staging: &Staging) -> Result<(), RestoreError> {
    let (path, parent) = (&target.path, &target.parent);
    let exchange = || target::exchange(parent, staging.name(), &target.name, path);
    exchange()?;
    let durable = staging.sync_name();
    let removed = durable.and_then(|()| fs::unlinkat(parent, staging.name(), AtFlags::REMOVEDIR));
    let Err(error) = removed else {
        return Ok(());
    };
    exchange()?;
    Err(match error {
        // Somebody put something into it meanwhile.
        Errno::NOTEMPTY | Errno::EXIST => RestoreError::NotEmpty(path.clone()),
        error => Failure::from_io(error, "make durable the name of", path.display()).into(),
    })
}

fn shown(name: &std::ffi::CStr) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes())
}
