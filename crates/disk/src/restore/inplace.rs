//! Into a directory that stays: what differs is moved in and out, by a journal.
//!
//! The staging directory holds `tree`, the new one; `trash`, where old entries go; and `journal`, from the moment when
//! there is a way forward only. It lies beside the target, or in it where that is another filesystem.

use super::error::{RestoreError, failed};
use super::journal::Journal;
use super::moves::{Moves, open_in};
use super::open_again;
use super::plan::{Planner, Told};
use super::target::{Target, is_empty};
use crate::beneath::{Beneath, Mounts};
use crate::metadata;
use crate::staging::{self, JOURNAL, Leftover, Staging};
use rustix::fs::{self, AtFlags, FlockOperation, Mode};
use rustix::io::Errno;
use stasis_model::tree::EntryPath;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const TREE: &CStr = c"tree";
const TRASH: &CStr = c"trash";

/// What was done to a live tree. A directory that came or went whole counts once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Entries that were put into the live tree, instead of others or not.
    pub placed: u64,
    /// Entries that are gone.
    pub removed: u64,
    /// Directories that got owner, permissions, time or attributes.
    pub dressed: u64,
    /// Entries that were right, and are the same inodes as before.
    pub untouched: u64,
}

/// Makes the staging directory beside the target, or in it.
pub(super) fn make_staging(target: &Target, old: &Beneath) -> rustix::io::Result<Staging> {
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
pub(super) fn furnish(staging: &Staging) -> rustix::io::Result<OwnedFd> {
    for name in [TREE, TRASH] {
        fs::mkdirat(staging.root(), name, Mode::RWXU)?;
    }
    open_in(staging.root(), TREE)
}

/// All that is needed to make a live tree the staged one.
pub(super) struct Work<'a> {
    pub(super) target: &'a Target,
    pub(super) old: Beneath,
    pub(super) tree: Beneath,
    pub(super) told: Told,
    pub(super) cancel: &'a AtomicBool,
    /// Asked when everything is ready, and nothing is touched yet.
    pub(super) still: &'a dyn Fn() -> bool,
}

impl Work<'_> {
    /// Compares, writes the journal, moves.
    pub(super) fn merge(self, mut staging: Staging) -> Result<Changes, RestoreError> {
        let target = self.target;
        let lock = lock_root(target, &self.old)?;
        finish_leftovers(target, &self.old)?;
        self.check_mounts()?;
        let root = metadata::of(&lock).map_err(failed("look at", &target.path))?;
        let planner = Planner::new(
            (&self.old, &self.tree),
            (&self.told, self.cancel),
            (&target.name, staging.is_inside()),
            root.inode,
        );
        let (journal, changes) = planner.plan().map_err(|error| match error {
            RestoreError::MountInside(path) => RestoreError::MountInside(target.path.join(path)),
            error => error,
        })?;
        if journal.steps().next().is_none() {
            return Ok(changes);
        }
        if !(self.still)() {
            return Err(RestoreError::Changed(target.path.clone()));
        }
        if let Err(error) = journal.commit(staging.root()) {
            let _ = fs::unlinkat(staging.root(), JOURNAL, AtFlags::empty());
            return Err(failed("write the journal for", &target.path)(error));
        }
        staging.let_go();
        let forward = Forward {
            target,
            live: &self.old,
            staging: staging.root(),
            parent: staging.parent(),
            name: staging.name(),
            is_inside: staging.is_inside(),
        };
        forward.run(&journal)?;
        Ok(changes)
    }

    /// What is mounted in the target stays, if the new tree has an empty directory there.
    fn check_mounts(&self) -> Result<(), RestoreError> {
        for mount in self.target.mounts()? {
            let path = EntryPath::parse(mount.as_os_str().as_bytes()).ok();
            let above_and_name = path.as_ref().and_then(EntryPath::split_last);
            let stays = above_and_name.is_some_and(|(above, name)| {
                let above = self.tree.directory(above.as_bytes());
                let name = std::ffi::CString::new(name);
                above.is_ok_and(|above| name.is_ok_and(|name| is_empty(above, &name)))
            });
            if !stays {
                return Err(RestoreError::MountInside(self.target.path.join(mount)));
            }
        }
        Ok(())
    }
}

/// Keeps others from changing the live tree by a journal until it is dropped.
fn lock_root(target: &Target, live: &Beneath) -> Result<OwnedFd, RestoreError> {
    let root = live.directory(b"").map_err(failed("open", &target.path))?;
    let is_locked = fs::flock(&root, FlockOperation::NonBlockingLockExclusive);
    let is_there = staging::is_called(&target.parent, &target.name, &root);
    if is_locked == Err(Errno::WOULDBLOCK) || is_there != Ok(true) {
        return Err(RestoreError::Busy(target.path.clone()));
    }
    Ok(root)
}

/// The way from a journal to its end.
struct Forward<'a> {
    target: &'a Target,
    live: &'a Beneath,
    staging: BorrowedFd<'a>,
    parent: BorrowedFd<'a>,
    name: &'a CStr,
    is_inside: bool,
}

impl Forward<'_> {
    fn run(&self, journal: &Journal) -> Result<(), RestoreError> {
        // What failed once may have been somebody in our way: every step can be done twice.
        let done = self.steps(journal).or_else(|_| self.steps(journal));
        done.and_then(|()| self.end())
            .map_err(|error| RestoreError::HalfDone {
                path: self.target.path.clone(),
                source: Box::new(error),
            })?;
        // As long as the journal could come back, what it speaks of must be there too: the next restore clears up.
        if fs::fsync(self.staging).is_ok() {
            let remove = || crate::remove::tree(self.parent, self.name);
            let _ = match open_again(self.parent) {
                Ok(root) if self.is_inside => staging::keeping_time(&root, remove),
                _ => remove(),
            };
        }
        Ok(())
    }

    fn steps(&self, journal: &Journal) -> Result<(), RestoreError> {
        let failed = || failed("open what is staged for", &self.target.path);
        let tree = open_in(self.staging, TREE).and_then(|fd| Beneath::new(fd, Mounts::Stay));
        let moves = Moves {
            live: self.live,
            staged: &tree.map_err(failed())?,
            trash: &open_in(self.staging, TRASH).map_err(failed())?,
        };
        let damaged = || RestoreError::BadJournal(self.target.beside(self.name));
        moves.run(journal)?.ok_or_else(damaged)
    }

    /// Makes everything durable, and only then forgets how to get there.
    fn end(&self) -> Result<(), RestoreError> {
        let synced = fs::syncfs(self.staging)
            .and_then(|()| fs::unlinkat(self.staging, JOURNAL, AtFlags::empty()));
        synced.map_err(failed("make durable", &self.target.path))
    }
}

/// Brings to its end what an interrupted restore in place of `target` began; `false` when nothing was.
pub fn recover(target: &Path) -> Result<bool, RestoreError> {
    finish_what_was_begun(&Target::find(target)?)
}

pub(super) fn finish_what_was_begun(target: &Target) -> Result<bool, RestoreError> {
    let Some(live) = target.open_tree()? else {
        return Ok(false);
    };
    let root = live.directory(b"").map_err(failed("open", &target.path))?;
    let journalled = |parent: BorrowedFd<'_>| {
        let left = staging::leftovers(parent, &target.name).unwrap_or_default();
        left.iter().any(Leftover::is_journalled)
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
    Ok(false)
}

/// The same, by somebody who has locked the root.
fn finish_leftovers(target: &Target, live: &Beneath) -> Result<bool, RestoreError> {
    let root = live.directory(b"").map_err(failed("open", &target.path))?;
    let inode = metadata::of(&root).map_err(failed("look at", &target.path))?;
    let mut was_begun = false;
    for (parent, is_inside) in [(&target.parent, false), (&root, true)] {
        for left in staging::leftovers(parent, &target.name).unwrap_or_default() {
            if !left.is_journalled() {
                continue;
            }
            let journal = Journal::read(&left.fd);
            let journal = journal.map_err(failed("read the journal for", &target.path))?;
            let damaged = || RestoreError::BadJournal(target.beside(&left.name));
            let journal = journal.ok_or_else(damaged)?;
            if journal.root() != inode.inode {
                // It was for a directory that is no longer here: nobody waits for its end.
                let _ = left.remove(parent);
                continue;
            }
            let forward = Forward {
                target,
                live,
                staging: left.fd.as_fd(),
                parent: parent.as_fd(),
                name: &left.name,
                is_inside,
            };
            forward.run(&journal)?;
            was_begun = true;
        }
    }
    Ok(was_begun)
}
