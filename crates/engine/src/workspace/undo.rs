//! What takes changes back: kept before an act, used by `undo`, cleared up after the dead.

use super::act::Act;
use super::answers::Undone;
use super::commands::{Run, Undo};
use super::error::WorkspaceError;
use super::show::called;
use super::{Actor, Workspace};
use crate::error::Error;
use stasis_disk::beneath::Beneath;
use stasis_disk::slots::{self, Manifest, SlotError, fact, remove_if_empty};
use stasis_model::tree::{BadPath, EntryPath};
use stasis_model::workspace::{Origin, Slot, SlotMetadata, UndoNote};

/// How many undo checkpoints are kept of what people do.
const UNDOS: usize = 10;
/// How many there are at most before a model changes nothing more.
const MOST_UNDOS: usize = 200;
/// Where the number of the last undo checkpoint is kept.
const LAST_UNDO: &str = "last_undo";

impl Workspace {
    pub(super) fn undo_now(&self, command: &Undo) -> Result<Undone, Error> {
        let _lock = self.lock("undoing")?;
        let undos = self.undos_newest_first()?;
        let from = match command.which {
            None => undos
                .into_iter()
                .next()
                .ok_or(WorkspaceError::NothingToUndo)?,
            Some(number) => {
                let found = undos.into_iter().find(|one| one.slot.index() == number);
                found.ok_or(WorkspaceError::NoUndo(number))?
            }
        };
        let note = from.undo.clone().ok_or(WorkspaceError::NothingToUndo)?;
        let path = note.path.as_deref().map(entry).transpose()?;
        let act = match &path {
            None => self.whole("undo", &from)?,
            Some(path) => Act {
                word: "undo",
                from: &from,
                path: Some(path),
                is: Manifest::of(self.now(path)?),
                becomes: Manifest::of(self.then(&from, path)?),
            },
        };
        let plan = self.plan(&act);
        let is_same = act.is == act.becomes;
        let mut told = Undone {
            undone: false,
            undo: called(&from),
            act: note.act.clone(),
            path: note.path.clone(),
            redo: None,
            plan,
            dry_run: command.run == Run::Dry,
        };
        if command.run == Run::Real {
            if !is_same {
                self.confirm(&told.plan, command.confirm.as_deref())?;
                told.redo = Some(self.carry_out(&act)?);
                told.undone = true;
                self.unmake(&note)?;
            }
            // What it kept is live again. As the oldest of all, it may have gone already.
            match self.pool().delete_undo(from.slot.index()) {
                Err(SlotError::Empty(_)) => {}
                deleted => deleted.map_err(WorkspaceError::from)?,
            }
        }
        Ok(told)
    }

    /// Removes directories that were made for an entry that is gone again, as far as nothing else is in them.
    fn unmake(&self, note: &UndoNote) -> Result<(), Error> {
        let root = self.root()?;
        for path in note.made.iter().rev() {
            if !remove_if_empty(&root, &entry(path)?) {
                break;
            }
        }
        Ok(())
    }

    /// Whether there is room for another undo checkpoint: those of models go only when a person lets them.
    pub(super) fn check_undos(&self) -> Result<(), Error> {
        if self.actor() == Actor::Model && self.undos_newest_first()?.len() >= MOST_UNDOS {
            return Err(WorkspaceError::UndosFull { max: MOST_UNDOS }.into());
        }
        Ok(())
    }

    /// Lets go of everything that could be undone; says how many.
    pub(super) fn forget_undos_now(&self) -> Result<u64, Error> {
        let _lock = self.lock("forgetting what could be undone")?;
        let undos = self.pool().undos().map_err(WorkspaceError::from)?;
        for one in &undos {
            let deleted = self.pool().delete_undo(one.slot().index());
            deleted.map_err(WorkspaceError::from)?;
        }
        Ok(undos.len() as u64)
    }

    /// The number of the next undo checkpoint: none is ever used again.
    fn next_undo(&self) -> Result<u32, Error> {
        let ledger = &self.session().ledger;
        let kept = ledger.kept(LAST_UNDO).map_err(WorkspaceError::from)?;
        let kept = kept.and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)));
        let all = self.pool().undos().map_err(WorkspaceError::from)?;
        let last = all.iter().map(|one| one.slot().index()).chain(kept).max();
        let next = last.unwrap_or_default().saturating_add(1);
        ledger
            .keep(LAST_UNDO, &next.to_le_bytes())
            .map_err(WorkspaceError::from)?;
        Ok(next)
    }

    /// Keeps what will change in an undo checkpoint.
    pub(super) fn keep(&self, act: &Act<'_>) -> Result<SlotMetadata, Error> {
        let (slot, now) = (Slot::new(self.next_undo()?), self.clock().now());
        let mut metadata = SlotMetadata::new(slot, Origin::Undo, now, self.next_sequence()?);
        let root = self.root()?;
        let made = act
            .path
            .map(|path| missing_above(&root, path))
            .unwrap_or_default();
        metadata.made_by = Some(self.maker().word().to_owned());
        metadata.undo = Some(UndoNote {
            act: act.word.to_owned(),
            path: act.path.map(ToString::to_string),
            made: made.iter().map(ToString::to_string).collect(),
            from: called(act.from),
            pending: true,
        });
        let stats = self.stats();
        let whole = slots::Source {
            workspace: self.directory(),
            system: None,
            stats: Some(&stats),
        };
        let kept = match act.path {
            Some(path) => self.pool().keep_entry(&root, path, metadata),
            None => self.pool().create(&whole, metadata),
        };
        let kept = kept.map_err(WorkspaceError::from)?;
        if let Some(path) = kept.workspace.walk.unreadable() {
            let _ = self.pool().delete_undo(kept.metadata.slot.index());
            return Err(WorkspaceError::Unreadable(path.clone()).into());
        }
        Ok(kept.metadata)
    }

    /// Clears up after the last act, if its process was killed: what a revert left beside its entry, and what would take back a change
    /// that was never made. While anything differs from what was kept, it is kept.
    pub(super) fn clear_up(&self) -> Result<(), Error> {
        let Some(last) = self.undos_newest_first()?.into_iter().next() else {
            return Ok(());
        };
        let Some(note) = last.undo.as_ref().filter(|note| note.pending) else {
            return Ok(());
        };
        let is_same = match &note.path {
            Some(path) => {
                let path = entry(path)?;
                slots::clear_up(&self.root()?, &path);
                // What is excluded by now is not known to be the same.
                match self.now(&path) {
                    Err(error) if is_bad_path(&error) => false,
                    now => now? == self.then(&last, &path)?,
                }
            }
            None => self.live()?.0 == self.contents(&last)?,
        };
        let cleared = if is_same {
            self.pool().delete_undo(last.slot.index())
        } else {
            self.pool().was_done(&last)
        };
        Ok(cleared.map_err(WorkspaceError::from)?)
    }

    pub(super) fn forget_old_undos(&self) -> Result<(), Error> {
        if self.actor() == Actor::Model {
            // What a model replaced may be all that is left of somebody's work.
            return Ok(());
        }
        // Nobody pushes out what takes back the act of another.
        let own = Some(self.maker().word());
        let undos = self.undos_newest_first()?;
        let own = undos.iter().filter(|one| one.made_by.as_deref() == own);
        for old in own.skip(UNDOS) {
            let deleted = self.pool().delete_undo(old.slot.index());
            deleted.map_err(WorkspaceError::from)?;
        }
        Ok(())
    }
}

fn is_bad_path(error: &Error) -> bool {
    matches!(error, Error::Workspace(error) if matches!(**error, WorkspaceError::BadPath { .. }))
}

/// A path that we wrote down as it is displayed.
fn entry(shown: &str) -> Result<EntryPath, WorkspaceError> {
    shown
        .parse()
        .map_err(|error: BadPath| WorkspaceError::BadPath {
            path: shown.to_owned(),
            why: error.to_string(),
        })
}

/// The directories above an entry that are not there, the topmost first.
fn missing_above(root: &Beneath, path: &EntryPath) -> Vec<EntryPath> {
    let mut missing = Vec::new();
    let mut at = path.split_last().map(|(above, _)| above);
    while let Some(above) = at.filter(|above| !above.is_root()) {
        if fact(root, &above).is_some() {
            break;
        }
        at = above.split_last().map(|(next, _)| next);
        missing.push(above);
    }
    missing.reverse();
    missing
}
