//! Brings to its end what somebody who was interrupted began.

use super::backup;
use super::error::RestoreError;
use super::forward::{FinishedRestore, Forward};
use super::target::RestoreTarget;
use crate::fs::lock_file::try_lock_if_supported;
use crate::fs::metadata;
use crate::fs::root_dir::RootDir;
use crate::fs::staging::{self, Leftover};
use stasis_model::failure::AtPath;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Keeps others from changing the live tree by a journal until it is dropped.
pub(super) fn lock_root(target: &RestoreTarget, live: &RootDir) -> Result<OwnedFd, RestoreError> {
    let root = live.directory(b"").at("open", &target.path)?;
    let is_locked = try_lock_if_supported(&root);
    let is_there = staging::is_called(&target.parent, &target.name, &root);
    if !is_locked || is_there != Ok(true) {
        return Err(RestoreError::Busy(target.path.clone()));
    }
    Ok(root)
}

/// Brings to its end what an interrupted restore in place of `target` began; `false` when nothing was.
pub fn recover(target: &Path) -> Result<bool, RestoreError> {
    Ok(!recovered(target)?.is_empty())
}

/// The same; says what became of each restore that was begun.
pub fn recovered(target: &Path) -> Result<Vec<FinishedRestore>, RestoreError> {
    recover_interrupted(&RestoreTarget::find(target)?)
}

pub(super) fn recover_interrupted(
    target: &RestoreTarget,
) -> Result<Vec<FinishedRestore>, RestoreError> {
    let Some(live) = target.open_tree()? else {
        return Ok(Vec::new());
    };
    let root = live.directory(b"").at("open", &target.path)?;
    let journalled = |parent: BorrowedFd<'_>| {
        let left = staging::leftovers(parent, &target.name).unwrap_or_default();
        left.iter().any(Leftover::is_journalled) || backup::has_journal(parent, &target.name)
    };
    if journalled(target.parent.as_fd()) || journalled(root.as_fd()) {
        let _lock = lock_root(target, &live)?;
        let finished = finish_leftovers(target, &live)?;
        collect(target, &root);
        return Ok(finished);
    }
    collect(target, &root);
    Ok(Vec::new())
}

/// Removes what restores left that were killed before they had begun to change anything: beside the tree, and in it.
fn collect(target: &RestoreTarget, root: &OwnedFd) {
    staging::collect(&target.parent, &target.name);
    let inside = staging::leftovers(root, &target.name).unwrap_or_default();
    if !inside.is_empty() {
        drop(inside);
        let _ = staging::keeping_time(root, || {
            staging::collect(root, &target.name);
            Ok(())
        });
    }
}

/// The same, by somebody who has locked the root.
pub(super) fn finish_leftovers(
    target: &RestoreTarget,
    live: &RootDir,
) -> Result<Vec<FinishedRestore>, RestoreError> {
    let root = live.directory(b"").at("open", &target.path)?;
    let inode = metadata::of(&root).at("look at", &target.path)?;
    let mut finished = Vec::new();
    for (parent, is_inside) in [(&target.parent, false), (&root, true)] {
        let left = staging::leftovers(parent, &target.name).unwrap_or_default();
        let left = left.into_iter().filter(Leftover::is_journalled);
        let left = left.map(|left| (left.name, left.fd));
        let backups = backup::journalled(parent.as_fd(), &target.name);
        for (name, fd) in left.chain(backups) {
            let forward = Forward {
                target,
                live,
                staging: fd.as_fd(),
                parent: parent.as_fd(),
                name: &name,
                is_inside,
            };
            finished.extend(forward.finish(inode.inode)?);
        }
    }
    Ok(finished)
}
