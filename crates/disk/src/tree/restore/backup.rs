//! What a restore in place replaced, as the very inodes that came out.
//!
//! `.NAME.stasis-backup-N` beside the target, or in it, holds `tree`, in which every entry that came out is at its own path;
//! `aside`, for what found no room there; and `undo`, how the restore is taken back. Whoever has a better place on the same
//! filesystem may move the directory ([`moved_backup`]). A backup with a label belongs to whoever gave it; one without goes after a week.
//!
//! To take a restore back: bring the backup near the target, if it is elsewhere; make a journal of `undo`; and go on as every restore in
//! place does. The same directory is the backup of that. A crash before the journal leaves the backup near the target.

use super::error::RestoreError;
use super::inplace::{self, Forward, RestoreChanges, TREE};
use super::journal::{Dress, Expected, JournalMark, JournalStep, RestoreJournal};
use super::moves::open_in;
use super::scope::is_part_of;
use super::target::RestoreTarget;
use super::{RestoreOrigin, open_again, shown};
use crate::fs::metadata::{self, Rights};
use crate::fs::root_dir::{self, Mounts, RootDir};
use crate::fs::staging::{self, JOURNAL, UNDO};
use rustix::fs;
use rustix::io::Errno;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::time::Timestamp;
use stasis_model::tree::{Attribute, EntryPath, Metadata};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const READ: &str = "read the backup";
const OPEN: &str = "open the backup";
/// How long a backup is kept that nobody has labelled.
const KEPT: Duration = Duration::from_hours(7 * 24);

/// What a restore in place replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backup {
    /// Where it is.
    pub path: PathBuf,
    /// What whoever restored called it.
    pub label: String,
    /// When.
    pub at: Timestamp,
    /// From what the target was restored.
    pub from: String,
}

/// One thing that taking a restore back does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Returned {
    /// The entry of the backup comes back, instead of what is there.
    Back(EntryPath),
    /// What is there goes: nothing was there before.
    Away(EntryPath),
    /// A directory that was made goes, if nothing is in it.
    Unmade(EntryPath),
    /// A directory that stays gets back what it had of its own.
    Dressed(EntryPath, Metadata, Option<Vec<Attribute>>),
}

impl Returned {
    /// Whether it is not done where these are excepted.
    pub fn is_left(&self, except: &[EntryPath]) -> bool {
        match self {
            Self::Back(path) | Self::Away(path) => is_left(path, true, except),
            Self::Unmade(path) | Self::Dressed(path, ..) => is_left(path, false, except),
        }
    }
}

/// The backups of a target beside it and in it, the oldest first.
pub fn backups(target: &Path) -> Result<Vec<Backup>, RestoreError> {
    let target = RestoreTarget::find(target)?;
    let mut all = Vec::new();
    let inside = target.open().ok();
    let parents = [(Some(&target.parent), false), (inside.as_ref(), true)];
    for (parent, is_inside) in parents {
        let Some(parent) = parent else { continue };
        for (_, name) in staging::backups(parent, &target.name).unwrap_or_default() {
            let undo = open_in(parent, &name).and_then(|fd| RestoreJournal::read(fd, UNDO));
            if let Ok(Some(undo)) = undo {
                let path = if is_inside {
                    target.path.join(shown(&name))
                } else {
                    target.beside(&name)
                };
                all.push(backup(path, undo.mark));
            }
        }
    }
    all.sort_by_key(|one| one.at);
    Ok(all)
}

fn backup(path: PathBuf, mark: JournalMark) -> Backup {
    Backup {
        path,
        label: mark.label,
        at: mark.at,
        from: mark.from,
    }
}

/// What taking back would do, in no order; and the tree that it comes from.
pub fn returned(backup: &Path) -> Result<(Vec<Returned>, RootDir), RestoreError> {
    let fd = open(backup).at(READ, backup)?;
    let undo = read_undo(&fd, backup)?;
    let damaged = || RestoreError::BadJournal(backup.to_owned());
    let mut all = Vec::new();
    for step in undo.steps() {
        match step.ok_or_else(damaged)? {
            JournalStep::Remove(path, _) => all.push(Returned::Away(path)),
            JournalStep::Place(path, ..) => all.push(Returned::Back(path)),
            JournalStep::Unmake(path) => all.push(Returned::Unmade(path)),
            JournalStep::Dress(path, both) => {
                let [back, _] = *both;
                all.push(Returned::Dressed(path, back.metadata, back.attributes));
            }
            JournalStep::Make(_) | JournalStep::Kept(_) | JournalStep::Again(_) => {}
        }
    }
    let tree = open_in(&fd, TREE).and_then(|fd| RootDir::new(fd, Mounts::Stay));
    Ok((all, tree.at(READ, backup)?))
}

fn open(directory: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = fs::OFlags::RDONLY | fs::OFlags::DIRECTORY | fs::OFlags::CLOEXEC;
    fs::open(directory, flags, fs::Mode::empty())
}

/// How the restore that left a backup is taken back.
fn read_undo(fd: &OwnedFd, backup: &Path) -> Result<RestoreJournal, RestoreError> {
    let undo = RestoreJournal::read(fd, UNDO).at(READ, backup)?;
    undo.ok_or_else(|| RestoreError::BadJournal(backup.to_owned()))
}

/// Whether taking a restore back would leave something out that the backup keeps, and whether it keeps something that was left out
/// before.
pub fn keeps_back(backup: &Path, except: &[EntryPath]) -> Result<(bool, bool), RestoreError> {
    let undo = read_undo(&open(backup).at(READ, backup)?, backup)?;
    let damaged = || RestoreError::BadJournal(backup.to_owned());
    let (mut is_left, mut is_kept) = (false, false);
    for step in undo.steps() {
        match step.ok_or_else(damaged)? {
            JournalStep::Kept(_) => is_kept = true,
            step => is_left |= leaves(&step, except),
        }
    }
    Ok((is_left, is_kept))
}

/// Where an entry is that came out of a target, in the backup of it.
pub fn place_in(backup: &Path, path: &EntryPath) -> PathBuf {
    let tree = backup.join(super::shown(TREE));
    tree.join(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

/// Moves a backup to where nothing, or an empty directory, is on the same filesystem; `false` where that cannot be.
pub fn moved_backup(from: &Path, to: &Path) -> Result<bool, RestoreError> {
    match fs::rename(from, to) {
        Err(Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::DQUOT) => Ok(false),
        moved => {
            moved.at("move the backup", from)?;
            Ok(true)
        }
    }
}

/// Removes a backup.
pub fn remove_backup(path: &Path) -> Result<(), RestoreError> {
    Ok(crate::fs::remove::tree_at(path).at("remove the backup", path)?)
}

/// Removes backups that nobody has labelled, a week later.
pub(super) fn collect(target: &RestoreTarget, now: Timestamp) {
    let old = backups(&target.path).unwrap_or_default().into_iter();
    let is_old = |one: &Backup| one.label.is_empty() && one.at.plus(KEPT) < now;
    for one in old.filter(is_old) {
        let _ = remove_backup(&one.path);
    }
}

/// Whether taking back was begun and not ended.
pub(super) fn has_journal(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    let names = staging::backups(parent, name).unwrap_or_default();
    names.iter().any(|(_, name)| {
        let opened = open_in(parent, name);
        opened.is_ok_and(|fd| root_dir::find(fd, JOURNAL) != Ok(None))
    })
}

/// The backups with which that was begun.
pub(super) fn journalled(parent: BorrowedFd<'_>, name: &CStr) -> Vec<(CString, OwnedFd)> {
    let names = staging::backups(parent, name).unwrap_or_default();
    let opened = names.into_iter().filter_map(|(_, name)| {
        let fd = open_in(parent, &name).ok()?;
        (root_dir::find(&fd, JOURNAL) != Ok(None)).then_some((name, fd))
    });
    opened.collect()
}

/// Whether taking something back leaves an entry alone, because of what is excepted: that, what is in it, and a directory that would be
/// moved with it.
pub fn is_left(path: &EntryPath, is_moved: bool, except: &[EntryPath]) -> bool {
    let is_left = |one: &EntryPath| is_part_of(path, one) || (is_moved && is_part_of(one, path));
    except.iter().any(is_left)
}

/// The same, of a step.
fn leaves(step: &JournalStep, except: &[EntryPath]) -> bool {
    match step {
        JournalStep::Remove(path, _) | JournalStep::Place(path, ..) => is_left(path, true, except),
        JournalStep::Make(path) | JournalStep::Unmake(path) | JournalStep::Dress(path, _) => {
            is_left(path, false, except)
        }
        JournalStep::Kept(_) | JournalStep::Again(_) => false,
    }
}

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
    let lock = inplace::lock_root(&target, &live)?;
    inplace::finish_leftovers(&target, &live)?;
    let near = Near::bring(&target, &lock, backup)?;
    let fd = open_in(&near.parent, &near.name).at(READ, backup)?;
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
    let tree = open_in(&fd, TREE).and_then(|fd| RootDir::new(fd, Mounts::Stay));
    let tree = tree.at(READ, backup)?;
    let damaged = || RestoreError::BadJournal(backup.to_owned());
    let expecting = |step| expecting(step, &live, &tree);
    let changes = add_back(&mut journal, &undo, expecting, except).ok_or_else(damaged)?;
    super::databases::check(&live, &journal)?;
    super::permissions::check(&live, &journal)?;
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
    let ran = forward.run(&journal)?;
    Ok(RestoreChanges {
        changed_meanwhile: ran.changed,
        refused: ran.not_permitted.clone(),
        waiting: [changes.waiting, ran.not_permitted.clone()].concat(),
        not_permitted: ran.not_permitted,
        backup: Some(ran.kept),
        ..changes
    })
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
struct Near {
    parent: OwnedFd,
    name: CString,
    is_inside: bool,
}

impl Near {
    /// Brings a backup beside the target, or into it, where journals are looked for.
    fn bring(target: &RestoreTarget, root: &OwnedFd, backup: &Path) -> Result<Self, RestoreError> {
        let refused = |error| Failure::from_io(error, OPEN, backup.display());
        let (above, name) = (backup.parent(), backup.file_name());
        let name = name.and_then(|name| CString::new(name.as_bytes()).ok());
        let (Some(above), Some(name)) = (above, name) else {
            return Err(refused(Errno::INVAL).into());
        };
        let from = open(above).at(OPEN, backup)?;
        let identity = |fd: &OwnedFd| metadata::of(fd).map(|seen| seen.identity());
        let here = identity(&from).at(OPEN, backup)?;
        let places = [(&target.parent, false), (root, true)];
        let is_own = staging::is_own_for(&target.name, name.to_bytes());
        for (parent, is_inside) in places {
            let parent = open_again(parent).at(OPEN, backup)?;
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
            let parent = open_again(parent).at(OPEN, backup)?;
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
