//! Looking into checkpoints, as into snapshots of a store.

use super::Workspace;
use crate::error::{Error, WorkspaceError};
use crate::result::BrowsedSnapshot;
use stasis_disk::form::slots::{CheckpointReader, SlotError};
use stasis_model::time::Timestamp;
use stasis_model::workspace::SlotMetadata;

/// What names a checkpoint and no other one: slots are used again.
fn id_of(one: &SlotMetadata) -> String {
    format!("{}@{}", one.slot, one.epoch_millis)
}

impl Workspace {
    /// Its checkpoints that are lists; one that is the snapshot of a subvolume is a directory already, and is not among them.
    pub(crate) fn browsed_checkpoints(&self) -> Result<Vec<BrowsedSnapshot>, Error> {
        let all = self.newest_first()?.into_iter();
        let lists = all.filter(|one| one.form.is_list());
        let row = |one: SlotMetadata| BrowsedSnapshot {
            id: id_of(&one),
            name: Some(one.slot.to_string()),
            at: Timestamp::from_millis(one.epoch_millis),
            labels: one.name.iter().map(ToString::to_string).collect(),
            pinned: false,
            latest: false,
        };
        Ok(lists.map(row).collect())
    }

    /// One of them, to be read.
    pub(crate) fn checkpoint_reader(&self, id: &str) -> Result<CheckpointReader, Error> {
        let gone = || WorkspaceError::from(SlotError::Document(format!("{id} is gone")));
        let all = self.newest_first()?;
        let one = all.iter().find(|one| id_of(one) == id).ok_or_else(gone)?;
        let reader = self.pool().reader(one).map_err(WorkspaceError::from)?;
        Ok(reader.ok_or_else(gone)?)
    }
}
