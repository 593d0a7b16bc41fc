//! From a journal to its end.
//!
//! The staging directory holds `tree`, the new one; `aside`; and `journal`, from the moment when there is a way forward only. When
//! all steps are done, `tree` has what came out of the live tree, and the directory becomes a backup:
//!
//! 1. write `undo`: how the steps are taken back   2. `syncfs`   3. remove `journal`   4. name it `.NAME.stasis-backup-N`
//!
//! A crash before 3 leaves a journal, whose steps are all done and not done again. A crash before 4 leaves a directory that is known
//! by its `undo`, and gets its name from whoever comes next.

use super::changes::RestoreChanges;
use super::error::RestoreError;
use super::journal::RestoreJournal;
use super::moves::{Moves, RefusedMove, SettledMoves};
use super::shown;
use super::target::RestoreTarget;
use crate::fs::fd::{open_dir_in, reopen_dir};
use crate::fs::remove;
use crate::fs::root_dir::{self, Mounts, RootDir};
use crate::fs::staging::{self, JOURNAL, UNDO};
use crate::fs::sys::sync;
use rustix::fs::{self, AtFlags};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use stasis_model::tree::EntryPath;
use std::ffi::{CStr, CString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The new tree in a staging directory, and what came out in a backup.
pub(super) const TREE: &CStr = c"tree";
/// What found no room in that tree.
pub(super) const ASIDE: &CStr = c"aside";

/// A restore, or an undo of one, that this process brought to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FinishedRestore {
    /// Entries that were changed since its plan was made.
    pub changed: Vec<EntryPath>,
    /// Entries that stayed as they were because this user may not change them.
    pub not_permitted: Vec<EntryPath>,
    /// Where they, and what it replaced, are kept.
    pub kept: PathBuf,
}

impl FinishedRestore {
    /// Adds it to what the plan said.
    pub(super) fn complete(self, planned: RestoreChanges) -> RestoreChanges {
        RestoreChanges {
            changed_meanwhile: [planned.changed_meanwhile, self.changed].concat(),
            refused: self.not_permitted.clone(),
            waiting: [planned.waiting, self.not_permitted.clone()].concat(),
            not_permitted: [planned.not_permitted, self.not_permitted].concat(),
            backup: Some(self.kept),
            ..planned
        }
    }
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
    pub(super) fn run(&self, journal: &RestoreJournal) -> Result<FinishedRestore, RestoreError> {
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
            self.target.path.join(shown(&name))
        } else {
            self.target.beside(&name)
        };
        Ok(FinishedRestore {
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
        let tree = open_dir_in(self.staging, TREE).and_then(|fd| RootDir::new(fd, Mounts::Stay));
        let aside = open_dir_in(self.staging, ASIDE).at(opening, path)?;
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
            if let Ok(None) = root_dir::find(self.staging, UNDO) {
                let _ = remove::tree(self.parent, self.name);
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
            .and_then(|()| sync::filesystem(self.staging))
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
        let named = match reopen_dir(self.parent) {
            Ok(root) if self.is_inside => staging::keeping_time(&root, rename),
            _ => rename(),
        };
        // One that loses its name by a power cut gets it again.
        let _ = fs::fsync(self.parent);
        Ok(named.at("name what is kept of", &self.target.path)?)
    }

    /// Goes on where somebody stopped; `None` for what is only a backup, or that of another directory.
    pub(super) fn finish(&self, root: u64) -> Result<Option<FinishedRestore>, RestoreError> {
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
        self.run(&journal).map(Some)
    }
}
