//! Into a directory that stays: what differs is moved in and out, by a journal.
//!
//! The staging directory lies beside the target, or in it where that is another filesystem; what becomes of it is said in `forward`.

use super::changes::RestoreChanges;
use super::error::RestoreError;
use super::forward::{ASIDE, Forward, TREE};
use super::journal::{JournalMark, RestoreJournal};
use super::plan::{PlanInput, Planner};
use super::recover::{finish_leftovers, lock_root};
use super::scope::RestoreScope;
use super::target::{RestoreTarget, is_empty};
use super::{backup, databases, permissions};
use crate::fs::fd::open_dir_in;
use crate::fs::metadata;
use crate::fs::root_dir::RootDir;
use crate::fs::staging::{JOURNAL, Staging, UNDO};
use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use stasis_model::tree::EntryPath;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::AtomicBool;

/// Makes the staging directory beside the target, or in it.
pub(super) fn make_staging(target: &RestoreTarget, old: &RootDir) -> rustix::io::Result<Staging> {
    let is_mount = target.seen.is_some_and(|seen| seen.is_mount);
    if !is_mount && metadata::of(&target.parent)?.device == old.device() {
        match Staging::make_for_moves(target.parent_again()?, &target.name) {
            // Somebody else's directory, though what is in it is ours.
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {}
            made => return made,
        }
    }
    Staging::make_inside(old.directory(b"")?, &target.name)
}

/// Makes what is in a staging directory; returns where the new tree will grow.
pub(super) fn init_staging(staging: &Staging) -> rustix::io::Result<OwnedFd> {
    for name in [TREE, ASIDE] {
        fs::mkdirat(staging.root(), name, Mode::RWXU)?;
    }
    open_dir_in(staging.root(), TREE)
}

/// All that is needed to make a live tree the staged one.
pub(super) struct Work<'a> {
    pub(super) target: &'a RestoreTarget,
    pub(super) old: &'a RootDir,
    pub(super) tree: &'a RootDir,
    pub(super) scope: &'a RestoreScope,
    pub(super) cancel: &'a AtomicBool,
    pub(super) mark: JournalMark,
}

impl Work<'_> {
    /// Compares, writes the journal, moves.
    pub(super) fn merge(&self, mut staging: Staging) -> Result<RestoreChanges, RestoreError> {
        let target = self.target;
        let _lock = lock_root(target, self.old)?;
        finish_leftovers(target, self.old)?;
        let (journal, changes) = self.plan(&staging)?;
        backup::collect(target, self.mark.at);
        if journal.is_empty() {
            return Ok(changes);
        }
        // There is a way forward only once it is committed: what is needed at its end is taken before.
        let committed = journal
            .set_room_apart(staging.root(), UNDO)
            .and_then(|()| journal.commit(staging.root(), JOURNAL));
        if committed.is_err() {
            let _ = fs::unlinkat(staging.root(), JOURNAL, AtFlags::empty());
        }
        committed.at("write the journal for", &target.path)?;
        staging.disarm();
        let forward = Forward {
            target,
            live: self.old,
            staging: staging.root(),
            parent: staging.parent(),
            name: staging.name(),
            is_inside: staging.is_inside(),
        };
        Ok(forward.run(&journal)?.complete(changes))
    }

    /// What has to be done; refused where that is not possible, before anything is.
    pub(super) fn plan(
        &self,
        staging: &Staging,
    ) -> Result<(RestoreJournal, RestoreChanges), RestoreError> {
        let target = self.target;
        self.check_mounts()?;
        let root = self.old.directory(b"").and_then(|root| metadata::of(&root));
        let root = root.at("look at", &target.path)?;
        let input = PlanInput {
            live: self.old,
            staged: self.tree,
            scope: self.scope,
            cancel: self.cancel,
            own: &target.name,
            is_inside: staging.is_inside(),
        };
        let planner = Planner::new(input, root.inode, self.mark.clone());
        let (journal, changes) = planner.plan().map_err(|error| match error {
            RestoreError::MountInside(path) => RestoreError::MountInside(target.path.join(path)),
            error => error,
        })?;
        databases::check(self.old, &journal)?;
        permissions::check(self.old, &journal)?;
        Ok((journal, changes))
    }

    /// What is mounted in the target stays, if the new tree has an empty directory there.
    fn check_mounts(&self) -> Result<(), RestoreError> {
        for mount in self.target.mounts()? {
            let path = EntryPath::parse(mount.as_os_str().as_bytes()).ok();
            let is_outside = path
                .as_ref()
                .is_some_and(|path| self.scope.is_outside(path));
            let above_and_name = path.as_ref().and_then(EntryPath::split_last);
            let stays = above_and_name.is_some_and(|(above, name)| {
                let above = self.tree.directory(above.as_bytes());
                let name = CString::new(name);
                above.is_ok_and(|above| name.is_ok_and(|name| is_empty(above, &name)))
            });
            if !stays && !is_outside {
                return Err(RestoreError::MountInside(self.target.path.join(mount)));
            }
        }
        Ok(())
    }
}
