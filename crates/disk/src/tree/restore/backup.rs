//! What a restore in place replaced, as the very inodes that came out.
//!
//! `.NAME.stasis-backup-N` beside the target, or in it, holds `tree`, in which every entry that came out is at its own path;
//! `aside`, for what found no room there; and `undo`, how the restore is taken back. Whoever has a better place on the same
//! filesystem may move the directory ([`moved_backup`]). A backup with a label belongs to whoever gave it; one without goes after a week.

use super::error::RestoreError;
use super::forward::{ASIDE, TREE};
use super::journal::{JournalMark, JournalStep, RestoreJournal};
use super::scope::is_part_of;
use super::shown;
use super::target::{RestoreTarget, is_empty};
use crate::fs::fd::{open_dir, open_dir_in};
use crate::fs::remove;
use crate::fs::root_dir::{self, Mounts, RootDir};
use crate::fs::staging::{self, JOURNAL, UNDO};
use rustix::fs;
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use stasis_model::time::Timestamp;
use stasis_model::tree::{Attribute, EntryPath, Metadata};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const READ: &str = "read the backup";
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
            let undo = open_dir_in(parent, &name).and_then(|fd| RestoreJournal::read(fd, UNDO));
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

/// A backup that was opened, to see what taking it back would do.
#[derive(Debug)]
pub struct OpenBackup {
    steps: Vec<JournalStep>,
    tree: RootDir,
    has_aside: bool,
}

impl OpenBackup {
    /// Opens the backup at a path.
    pub fn open(backup: &Path) -> Result<Self, RestoreError> {
        let fd = open_dir(backup).at(READ, backup)?;
        let steps = read_undo(&fd, backup)?.steps().collect::<Option<_>>();
        let steps = steps.ok_or_else(|| RestoreError::BadJournal(backup.to_owned()))?;
        let tree = open_dir_in(&fd, TREE).and_then(|fd| RootDir::new(fd, Mounts::Stay));
        let tree = tree.at(READ, backup)?;
        let has_aside = !is_empty(&fd, ASIDE);
        Ok(Self {
            steps,
            tree,
            has_aside,
        })
    }

    /// Whether something found no room in the tree, and lies beside it.
    pub fn has_aside(&self) -> bool {
        self.has_aside
    }

    /// What came out of the target, each entry at its own path.
    pub fn tree(&self) -> &RootDir {
        &self.tree
    }

    /// What taking back would do, in no order.
    pub fn returned(&self) -> impl Iterator<Item = Returned> {
        self.steps.iter().filter_map(|step| match step {
            JournalStep::Remove(path, _) => Some(Returned::Away(path.clone())),
            JournalStep::Place(path, ..) => Some(Returned::Back(path.clone())),
            JournalStep::Unmake(path) => Some(Returned::Unmade(path.clone())),
            JournalStep::Dress(path, both) => {
                let [back, _] = &**both;
                let attributes = back.attributes.clone();
                Some(Returned::Dressed(path.clone(), back.metadata, attributes))
            }
            JournalStep::Make(_) | JournalStep::Kept(_) | JournalStep::Again(_) => None,
        })
    }

    /// Whether taking back would leave something out, because of what is excepted.
    pub fn leaves_out(&self, except: &[EntryPath]) -> bool {
        self.steps.iter().any(|step| leaves(step, except))
    }

    /// Whether it has something that was left out before.
    pub fn has_left_out(&self) -> bool {
        let is_kept = |step: &JournalStep| matches!(step, JournalStep::Kept(_));
        self.steps.iter().any(is_kept)
    }
}

/// How the restore that left a backup is taken back.
pub(super) fn read_undo(fd: &OwnedFd, backup: &Path) -> Result<RestoreJournal, RestoreError> {
    let undo = RestoreJournal::read(fd, UNDO).at(READ, backup)?;
    undo.ok_or_else(|| RestoreError::BadJournal(backup.to_owned()))
}

/// Where an entry is that came out of a target, in the backup of it.
pub fn place_in(backup: &Path, path: &EntryPath) -> PathBuf {
    let tree = backup.join(shown(TREE));
    tree.join(OsStr::from_bytes(path.as_bytes()))
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
    Ok(remove::tree_at(path).at("remove the backup", path)?)
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
        let opened = open_dir_in(parent, name);
        opened.is_ok_and(|fd| root_dir::find(fd, JOURNAL) != Ok(None))
    })
}

/// The backups with which that was begun.
pub(super) fn journalled(parent: BorrowedFd<'_>, name: &CStr) -> Vec<(CString, OwnedFd)> {
    let names = staging::backups(parent, name).unwrap_or_default();
    let opened = names.into_iter().filter_map(|(_, name)| {
        let fd = open_dir_in(parent, &name).ok()?;
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
pub(super) fn leaves(step: &JournalStep, except: &[EntryPath]) -> bool {
    match step {
        JournalStep::Remove(path, _) | JournalStep::Place(path, ..) => is_left(path, true, except),
        JournalStep::Make(path) | JournalStep::Unmake(path) | JournalStep::Dress(path, _) => {
            is_left(path, false, except)
        }
        JournalStep::Kept(_) | JournalStep::Again(_) => false,
    }
}
