//! Takes a restore in place back.
//!
//! The backup is brought near the target, if it is elsewhere; its `undo` becomes a journal; and that goes on as every restore in
//! place does. The same directory is the backup of that. A crash before the journal leaves the backup near the target.

use super::backup::{READ, leaves, read_undo};
use super::changes::RestoreChanges;
use super::error::RestoreError;
use super::forward::{Forward, TREE};
use super::journal::{Dress, Expected, JournalMark, JournalStep, RestoreJournal};
use super::recover::{finish_leftovers, lock_root};
use super::target::RestoreTarget;
use super::{RestoreOrigin, databases, permissions};
use crate::fs::fd::{open_dir, open_dir_in, reopen_dir};
use crate::fs::metadata::{self, Rights};
use crate::fs::root_dir::{self, Mounts, RootDir};
use crate::fs::staging::{self, JOURNAL, UNDO};
use rustix::fs;
use rustix::io::Errno;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::tree::EntryPath;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const OPEN: &str = "open the backup";

/// Takes a restore in place back: what came out comes back, by exchange, and what is there now is kept instead.
///
/// What is excepted stays as it is. What would have come back there is still kept: when this is taken back in turn, the undo of that has it.
///
/// An error means that nothing was changed, but for [`RestoreError::HalfDone`].
pub fn take_back(
    target: &Path,
    backup: &Path,
    origin: &RestoreOrigin,
    label: &str,
    except: &[EntryPath],
) -> Result<RestoreChanges, RestoreError> {
    let target = RestoreTarget::find(target)?;
    let none = || RestoreError::NothingKept(target.path.clone());
    let live = target.open_tree()?.ok_or_else(none)?;
    let lock = lock_root(&target, &live)?;
    finish_leftovers(&target, &live)?;
    let near = NearBackup::bring(&target, &lock, backup)?;
    let fd = open_dir_in(&near.parent, &near.name).at(READ, backup)?;
    if metadata::of(&fd).at(READ, backup)?.device != live.device() {
        return Err(Failure::from_io(Errno::XDEV, READ, backup.display()).into());
    }
    let undo = read_undo(&fd, backup)?;
    let mark = JournalMark {
        at: origin.at,
        from: origin.from.clone(),
        label: label.to_owned(),
    };
    let root = metadata::of(&lock).at(READ, backup)?.inode;
    let mut journal = RestoreJournal::new(root, Rights::of_this_process(), mark);
    let tree = open_dir_in(&fd, TREE).and_then(|fd| RootDir::new(fd, Mounts::Stay));
    let tree = tree.at(READ, backup)?;
    let damaged = || RestoreError::BadJournal(backup.to_owned());
    let expecting = |step| expecting(step, &live, &tree);
    let changes = add_back(&mut journal, &undo, expecting, except).ok_or_else(damaged)?;
    databases::check(&live, &journal)?;
    permissions::check(&live, &journal)?;
    let committed = journal
        .set_room_apart(&fd, UNDO)
        .and_then(|()| journal.commit(&fd, JOURNAL));
    if committed.is_err() {
        let _ = fs::unlinkat(&fd, c"undo.new", fs::AtFlags::empty());
    }
    committed.at("write the journal for", &target.path)?;
    let forward = Forward {
        target: &target,
        live: &live,
        staging: fd.as_fd(),
        parent: near.parent.as_fd(),
        name: &near.name,
        is_inside: near.is_inside,
    };
    Ok(forward.run(&journal)?.complete(changes))
}

/// Adds the steps of an undo to a journal; `None` when it has bytes that are no step.
fn add_back(
    journal: &mut RestoreJournal,
    undo: &RestoreJournal,
    expecting: impl Fn(JournalStep) -> JournalStep,
    except: &[EntryPath],
) -> Option<RestoreChanges> {
    let mut changes = RestoreChanges::default();
    for step in undo.steps() {
        let step = match step? {
            JournalStep::Kept(step) => JournalStep::Again(step),
            step if leaves(&step, except) => JournalStep::Kept(Box::new(step)),
            step => expecting(step),
        };
        match &step {
            JournalStep::Place(..) => changes.placed += 1,
            JournalStep::Remove(..) | JournalStep::Unmake(_) => changes.removed += 1,
            JournalStep::Dress(..) | JournalStep::Make(_) => changes.dressed += 1,
            JournalStep::Kept(step) | JournalStep::Again(step) => {
                if let JournalStep::Place(path, ..) = &**step {
                    changes.waiting.push(path.clone());
                }
            }
        }
        journal.add(&step);
    }
    Some(changes)
}

/// Says what is there now, where a step will find it. What is to come back may be other inodes than it was, if whoever keeps
/// backups has copied this one.
fn expecting(step: JournalStep, live: &RootDir, tree: &RootDir) -> JournalStep {
    let find = |root: &RootDir, path: &EntryPath| {
        let (above, name) = path.split_last()?;
        let above = root.directory(above.as_bytes()).ok()?;
        root_dir::find(above, &CString::new(name).ok()?).ok()?
    };
    let look = |path: &EntryPath| find(live, path).as_ref().map(Expected::from);
    match step {
        JournalStep::Remove(path, _) => {
            let expected = look(&path);
            JournalStep::Remove(path, expected)
        }
        JournalStep::Place(path, inode, _) => {
            let expected = look(&path);
            let inode = find(tree, &path).map_or(inode, |kept| kept.inode);
            JournalStep::Place(path, inode, expected)
        }
        JournalStep::Dress(path, mut both) => {
            if let Ok(directory) = live.directory(path.as_bytes())
                && let (Ok(seen), Ok(user)) =
                    (metadata::of(&directory), metadata::attributes(&directory))
            {
                both[1] = Dress {
                    metadata: seen.metadata(),
                    attributes: Some(user.user),
                };
            }
            JournalStep::Dress(path, both)
        }
        step => step,
    }
}

/// Where a backup is that can be exchanged with its target.
struct NearBackup {
    parent: OwnedFd,
    name: CString,
    is_inside: bool,
}

impl NearBackup {
    /// Brings a backup beside the target, or into it, where journals are looked for.
    fn bring(target: &RestoreTarget, root: &OwnedFd, backup: &Path) -> Result<Self, RestoreError> {
        let refused = |error| Failure::from_io(error, OPEN, backup.display());
        let (above, name) = (backup.parent(), backup.file_name());
        let name = name.and_then(|name| CString::new(name.as_bytes()).ok());
        let (Some(above), Some(name)) = (above, name) else {
            return Err(refused(Errno::INVAL).into());
        };
        let from = open_dir(above).at(OPEN, backup)?;
        let identity = |fd: &OwnedFd| metadata::of(fd).map(|seen| seen.identity());
        let here = identity(&from).at(OPEN, backup)?;
        let places = [(&target.parent, false), (root, true)];
        let is_own = staging::is_own_for(&target.name, name.to_bytes());
        for (parent, is_inside) in places {
            let parent = reopen_dir(parent).at(OPEN, backup)?;
            if is_own && identity(&parent) == Ok(here) {
                return Ok(Self {
                    parent,
                    name,
                    is_inside,
                });
            }
        }
        let is_mount = target.seen.is_some_and(|seen| seen.is_mount);
        for (parent, is_inside) in places.into_iter().skip(usize::from(is_mount)) {
            let parent = reopen_dir(parent).at(OPEN, backup)?;
            let to = parent.as_fd();
            match staging::rename_to_backup(from.as_fd(), &name, to, &target.name) {
                Err(Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::ROFS) => {}
                named => {
                    return Ok(Self {
                        name: named.at(OPEN, backup)?,
                        parent,
                        is_inside,
                    });
                }
            }
        }
        Err(refused(Errno::XDEV).into())
    }
}
