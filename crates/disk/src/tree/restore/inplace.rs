//! Into a directory that stays: what differs is moved in and out, by a journal.
//!
//! The staging directory holds `tree`, the new one; `aside`; and `journal`, from the moment when there is a way forward only. It
//! lies beside the target, or in it where that is another filesystem. When all steps are done, `tree` has what came out of the
//! live tree, and the directory becomes a backup:
//!
//! 1. write `undo`: how the steps are taken back   2. `syncfs`   3. remove `journal`   4. name it `.NAME.stasis-backup-N`
//!
//! A crash before 3 leaves a journal, whose steps are all done and not done again. A crash before 4 leaves a directory that is known
//! by its `undo`, and gets its name from whoever comes next.

use super::error::RestoreError;
use super::journal::{JournalMark, RestoreJournal};
use super::moves::{Moves, RefusedMove, SettledMoves, open_in};
use super::open_again;
use super::plan::{PlanInput, Planner};
use super::scope::RestoreScope;
use super::target::{RestoreTarget, is_empty};
use super::{backup, databases, permissions};
use crate::fs::lock_file::try_lock_if_supported;
use crate::fs::metadata;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::fs::staging::{self, JOURNAL, Leftover, Staging, UNDO};
use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use stasis_model::tree::EntryPath;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

pub(super) const TREE: &CStr = c"tree";
const ASIDE: &CStr = c"aside";

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
    open_in(staging.root(), TREE)
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
        let ran = forward.run(&journal)?;
        Ok(RestoreChanges {
            changed_meanwhile: [changes.changed_meanwhile, ran.changed].concat(),
            refused: ran.not_permitted.clone(),
            waiting: [changes.waiting, ran.not_permitted.clone()].concat(),
            not_permitted: [changes.not_permitted, ran.not_permitted].concat(),
            backup: Some(ran.kept),
            ..changes
        })
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

/// What became of the steps of a journal.
pub(super) struct Ran {
    /// What was not as expected.
    pub(super) changed: Vec<EntryPath>,
    /// What this user may not change.
    pub(super) not_permitted: Vec<EntryPath>,
    /// Where what came out is kept.
    pub(super) kept: PathBuf,
}

/// The way from a journal to its end.
pub(super) struct Forward<'a> {
    pub(super) target: &'a RestoreTarget,
    pub(super) live: &'a RootDir,
    pub(super) staging: BorrowedFd<'a>,
    pub(super) parent: BorrowedFd<'a>,
    pub(super) name: &'a CStr,
    pub(super) is_inside: bool,
}

impl Forward<'_> {
    /// Does the steps; says what was not as expected, and where what came out is kept.
    pub(super) fn run(&self, journal: &RestoreJournal) -> Result<Ran, RestoreError> {
        // What failed once may have been somebody in our way: every step can be done twice.
        let done = self.steps(journal, RefusedMove::Ends);
        let done = done.or_else(|_| self.steps(journal, RefusedMove::Ends));
        let done = done.or_else(|error| self.give_up(journal, error));
        // There is a way forward only: what this user may not move stays, and everything else does not wait for it.
        let done = done.or_else(|error| match error {
            error @ RestoreError::HalfDone { .. } => {
                self.steps(journal, RefusedMove::Stays).map_err(|_| error)
            }
            error => Err(error),
        });
        let half_done = |error| RestoreError::HalfDone {
            path: self.target.path.clone(),
            source: Box::new(error),
        };
        let settled = done?;
        self.end(&settled).map_err(half_done)?;
        // Without its name it is known by what is in it: whoever comes next gives it one.
        let name = self.name_it().unwrap_or_else(|_| self.name.to_owned());
        let kept = if self.is_inside {
            self.target.path.join(crate::tree::restore::shown(&name))
        } else {
            self.target.beside(&name)
        };
        Ok(Ran {
            changed: settled.changed,
            not_permitted: settled.not_permitted,
            kept,
        })
    }

    fn steps(
        &self,
        journal: &RestoreJournal,
        refused: RefusedMove,
    ) -> Result<SettledMoves, RestoreError> {
        let (tree, aside) = self.parts()?;
        let moves = Moves {
            live: self.live,
            staged: &tree,
            aside: &aside,
            is_limited: journal.is_limited,
            refused,
        };
        let damaged = || RestoreError::BadJournal(self.target.beside(self.name));
        let stayed = moves.run(journal)?.ok_or_else(damaged)?;
        moves.settle(journal, &stayed)?.ok_or_else(damaged)
    }

    fn parts(&self) -> Result<(RootDir, OwnedFd), RestoreError> {
        let (opening, path) = ("open what is staged for", &self.target.path);
        let tree = open_in(self.staging, TREE).and_then(|fd| RootDir::new(fd, Mounts::Stay));
        let aside = open_in(self.staging, ASIDE).at(opening, path)?;
        Ok((tree.at(opening, path)?, aside))
    }

    /// What failed before anything was moved was never begun: the journal goes. Everything else is half done.
    fn give_up(
        &self,
        journal: &RestoreJournal,
        error: RestoreError,
    ) -> Result<SettledMoves, RestoreError> {
        let is_given_up = self.parts().is_ok_and(|(tree, aside)| {
            let moves = Moves {
                live: self.live,
                staged: &tree,
                aside: &aside,
                is_limited: journal.is_limited,
                refused: RefusedMove::Ends,
            };
            moves.give_up(journal)
        });
        if is_given_up && fs::unlinkat(self.staging, JOURNAL, AtFlags::empty()).is_ok() {
            if let Ok(None) = crate::fs::root_dir::find(self.staging, UNDO) {
                let _ = crate::fs::remove::tree(self.parent, self.name);
            }
            return Err(error);
        }
        Err(RestoreError::HalfDone {
            path: self.target.path.clone(),
            source: Box::new(error),
        })
    }

    /// Makes everything durable, and only then forgets how to get there.
    fn end(&self, settled: &SettledMoves) -> Result<(), RestoreError> {
        let ended = settled
            .undo
            .commit(self.staging, UNDO)
            .and_then(|()| fs::syncfs(self.staging))
            .and_then(|()| fs::unlinkat(self.staging, JOURNAL, AtFlags::empty()));
        ended.at("make durable", &self.target.path)?;
        // A journal that comes back after a power cut finds everything done.
        let _ = fs::fsync(self.staging);
        Ok(())
    }

    /// Makes it a backup, if it is none.
    fn name_it(&self) -> Result<CString, RestoreError> {
        let is_backup = !staging::is_temporary_for(&self.target.name, self.name.to_bytes());
        if is_backup {
            return Ok(self.name.to_owned());
        }
        let (parent, name) = (self.parent, &self.target.name);
        let rename = || staging::rename_to_backup(parent, self.name, parent, name);
        let named = match open_again(self.parent) {
            Ok(root) if self.is_inside => staging::keeping_time(&root, rename),
            _ => rename(),
        };
        // One that loses its name by a power cut gets it again.
        let _ = fs::fsync(self.parent);
        Ok(named.at("name what is kept of", &self.target.path)?)
    }
}

/// Brings to its end what an interrupted restore in place of `target` began; `false` when nothing was.
pub fn recover(target: &Path) -> Result<bool, RestoreError> {
    Ok(!recovered(target)?.is_empty())
}

/// The same; says what became of each restore that was begun.
pub fn recovered(target: &Path) -> Result<Vec<RecoveredRestore>, RestoreError> {
    recover_interrupted(&RestoreTarget::find(target)?)
}

/// A restore, or an undo of one, that somebody began and this process brought to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveredRestore {
    /// Entries that were changed since its plan was made.
    pub changed: Vec<EntryPath>,
    /// Entries that stayed as they were because this user may not change them.
    pub not_permitted: Vec<EntryPath>,
    /// Where they, and what it replaced, are kept.
    pub kept: PathBuf,
}

pub(super) fn recover_interrupted(
    target: &RestoreTarget,
) -> Result<Vec<RecoveredRestore>, RestoreError> {
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
        return finish_leftovers(target, &live);
    }
    if !staging::leftovers(&root, &target.name)
        .unwrap_or_default()
        .is_empty()
    {
        let _ = staging::keeping_time(&root, || {
            staging::collect(&root, &target.name);
            Ok(())
        });
    }
    Ok(Vec::new())
}

/// The same, by somebody who has locked the root.
pub(super) fn finish_leftovers(
    target: &RestoreTarget,
    live: &RootDir,
) -> Result<Vec<RecoveredRestore>, RestoreError> {
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

impl Forward<'_> {
    /// Goes on where somebody stopped; `None` for what is only a backup, or that of another directory.
    fn finish(&self, root: u64) -> Result<Option<RecoveredRestore>, RestoreError> {
        let target = self.target;
        let journal = match RestoreJournal::read(self.staging, JOURNAL) {
            Err(Errno::NOENT) => {
                self.name_it()?;
                return Ok(None);
            }
            journal => journal.at("read the journal for", &target.path)?,
        };
        let damaged = || RestoreError::BadJournal(target.beside(self.name));
        let journal = journal.ok_or_else(damaged)?;
        if journal.root != root {
            // It was for a directory that is no longer here. Nobody waits for its end, but what it took may be needed.
            let nothing = RestoreJournal::new(journal.root, journal.rights, journal.mark);
            let was = nothing.commit(self.staging, UNDO);
            was.and_then(|()| fs::unlinkat(self.staging, JOURNAL, AtFlags::empty()))
                .at("set aside the journal for", &target.path)?;
            self.name_it()?;
            return Ok(None);
        }
        let ran = self.run(&journal)?;
        Ok(Some(RecoveredRestore {
            changed: ran.changed,
            not_permitted: ran.not_permitted,
            kept: ran.kept,
        }))
    }
}
