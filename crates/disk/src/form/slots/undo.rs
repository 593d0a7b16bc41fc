//! What takes a change back: `undo/<number>/`, and in it or elsewhere the backup that the change left.
//!
//! The backup is `workspace/backup` in the directory of the undo checkpoint if that is on the workspace's filesystem; otherwise
//! it stays where the restore left it, and a file `backup` says where. Which backup belongs to which undo checkpoint is said by
//! the backup's label, so that an undo checkpoint without one takes nothing back.

use super::error::SlotError;
use super::{Pool, WORKSPACE, measure};
use crate::fs::atomic_write::atomic_write;
use crate::tree::restore::{self, RestoreError};
use stasis_model::failure::AtPath;
use stasis_model::workspace::{CheckpointOrigin, Slot, SlotMetadata};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a backup is that is not in the undo checkpoint.
pub(super) const ELSEWHERE: &str = "backup";
const BACKUP: &str = "backup";

/// Where the backup is that lies elsewhere, as the directory of an undo checkpoint says.
pub(super) fn elsewhere(slot: &Path) -> Option<PathBuf> {
    let bytes = std::fs::read(slot.join(ELSEWHERE)).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(&bytes)))
}

impl Pool {
    /// What the labels of the backups of this session begin with.
    pub fn label(&self) -> String {
        let digest = blake3::hash(self.session.as_os_str().as_bytes()).to_hex();
        format!("workspace {} ", &digest.as_str()[..12])
    }

    /// The label of the backup of one undo checkpoint.
    pub fn label_of(&self, undo: &SlotMetadata) -> String {
        format!(
            "{}{}-{}",
            self.label(),
            undo.slot.index(),
            undo.epoch_millis
        )
    }

    /// The backup of an undo checkpoint; nothing when the change was never begun, or was taken back.
    pub fn backup_of(&self, undo: &SlotMetadata) -> Option<PathBuf> {
        let slot = self.undo.slot(undo.slot);
        let has_undo = |path: &PathBuf| path.join("undo").exists();
        let own = Some(slot.join(WORKSPACE).join(BACKUP)).filter(has_undo);
        own.or_else(|| elsewhere(&slot).filter(has_undo))
    }

    /// Gives an undo checkpoint its backup, and writes down that the change was made.
    pub fn adopt(&self, undo: &SlotMetadata, backup: &Path) -> Result<(), SlotError> {
        {
            let _lock = self.lock()?;
            let slot = self.undo.slot(undo.slot);
            let own = slot.join(WORKSPACE);
            let own_backup = own.join(BACKUP);
            let moved = || restore::moved_backup(backup, &own_backup);
            if self.reserve.lend(moved)? {
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
                let opened = rustix::fs::open(&own, flags, rustix::fs::Mode::empty());
                let synced = opened.and_then(rustix::fs::fsync);
                synced.at("make durable", &own)?;
            } else {
                let bytes = backup.as_os_str().as_bytes();
                let path = slot.join(ELSEWHERE);
                self.reserve.lend(|| atomic_write(&path, bytes))?;
            }
        }
        self.was_done(undo)?;
        // Counted now, so that nobody has to read it who only asks how much is held; but not before it is known that it was done.
        let _lock = self.lock()?;
        let _ = measure::measure(&self.undo.slot(undo.slot));
        Ok(())
    }

    /// Whether a change of the tree by the backup of an undo checkpoint was begun and not ended, or nobody can tell.
    pub fn is_needed(&self, undo: &SlotMetadata) -> bool {
        let backup = self.backup_of(undo);
        backup.is_none_or(|backup| backup.join("journal").exists())
    }

    /// Deletes what takes a change back, with its backup.
    pub fn delete_undo(&self, number: u32) -> Result<(), SlotError> {
        let _lock = self.lock()?;
        let slot = Slot::new(number);
        let elsewhere = elsewhere(&self.undo.slot(slot));
        self.remove(&self.undo, slot)?;
        if let Some(path) = elsewhere {
            // One that stays has no undo checkpoint any more, and is removed by whoever comes by.
            let _ = restore::remove_backup(&path);
        }
        self.chunks.collect();
        self.sweep(&std::collections::HashSet::new())
    }

    /// Finds the backups that changes of a workspace left, gives each to its undo checkpoint, and removes what belongs to none;
    /// an undo checkpoint without a backup goes.
    pub fn settle_undos(&self, workspace: &Path) -> Result<(), SlotError> {
        let undos = self.undos()?;
        let undos: Vec<&SlotMetadata> = undos.iter().filter_map(|one| one.known()).collect();
        let prefix = self.label();
        let found = match restore::backups(workspace) {
            // A workspace that is not there has none.
            Err(RestoreError::Failed(_)) => return Ok(()),
            found => found?,
        };
        for backup in found.iter().filter(|one| one.label.starts_with(&prefix)) {
            let own = undos.iter().find(|one| self.label_of(one) == backup.label);
            match own {
                Some(undo) if self.backup_of(undo).is_none() => self.adopt(undo, &backup.path)?,
                Some(_) => {}
                None => restore::remove_backup(&backup.path)?,
            }
        }
        for undo in undos {
            let is_pending = undo.undo.as_ref().is_some_and(|note| note.pending);
            match self.backup_of(undo) {
                None if undo.origin == CheckpointOrigin::Undo => {
                    self.delete_undo(undo.slot.index())?;
                }
                Some(_) if is_pending => self.was_done(undo)?,
                _ => {}
            }
        }
        Ok(())
    }
}
