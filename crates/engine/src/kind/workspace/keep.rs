//! Letting checkpoints go, making one of several, and writing one out.

use super::answers::{CheckpointIdentity, Compacted, DeletedCheckpoint};
use super::commands::{CompactCheckpoints, MaterializeCheckpoint, RunMode};
use super::fork_results::MaterializedCheckpoint;
use super::room_for::RoomFor;
use super::{Actor, Workspace};
use crate::error::{Error, WorkspaceError};
use crate::result::CopyMethod;
use stasis_disk::form::slots::SlotError;
use stasis_disk::fs::free_space;
use stasis_model::workspace::{
    self, CheckpointName, CheckpointOrigin, CheckpointRef, NoSlot, Occupant, SlotForm, SlotMetadata,
};
use std::path::Path;

/// A slot whose checkpoint may go.
struct DeletableSlot {
    seen: CheckpointIdentity,
    name: Option<CheckpointName>,
}

impl Workspace {
    /// Whether a checkpoint may be let go by whoever asks.
    fn may_delete(&self, one: &SlotMetadata) -> Result<(), Error> {
        let is_own = one.made_by.as_deref() == Some(super::Maker::Mcp.word());
        if self.actor() == Actor::Model && !is_own {
            return Err(WorkspaceError::NotYours(one.slot).into());
        }
        Ok(())
    }

    /// Refuses to go on where another checkpoint lies in a slot by now than was shown.
    pub(super) fn ensure_still_now(&self, shown: &[DeletedCheckpoint]) -> Result<(), Error> {
        for one in shown {
            let now = self.delete_now(&CheckpointRef::Slot(one.seen.slot), RunMode::Dry)?;
            if now.seen != one.seen {
                return Err(WorkspaceError::PlanChanged.into());
            }
        }
        Ok(())
    }

    /// Deletes the checkpoint that was shown, and no other one that took its slot since.
    pub(super) fn delete_shown_now(&self, shown: &DeletedCheckpoint) -> Result<(), Error> {
        let _lock = self.lock_to_free("deleting a checkpoint")?;
        let found = self.deletable(&CheckpointRef::Slot(shown.seen.slot))?;
        if found.seen != shown.seen {
            return Err(WorkspaceError::PlanChanged.into());
        }
        self.delete_locked(&found)
    }

    pub(super) fn delete_now(
        &self,
        which: &CheckpointRef,
        run: RunMode,
    ) -> Result<DeletedCheckpoint, Error> {
        let _lock = self.lock_to_free("deleting a checkpoint")?;
        let found = self.deletable(which)?;
        if run == RunMode::Real {
            self.delete_locked(&found)?;
        }
        Ok(DeletedCheckpoint {
            deleted: run == RunMode::Real,
            checkpoint: found.seen.slot.to_string(),
            name: found.name.map(|name| name.to_string()),
            dry_run: run == RunMode::Dry,
            seen: found.seen,
        })
    }

    /// Nothing is written before it is gone, nor has to be afterwards.
    fn delete_locked(&self, found: &DeletableSlot) -> Result<(), Error> {
        self.pool().delete(found.seen.slot)?;
        self.keep_reserve();
        Ok(())
    }

    /// What lies in a slot and may be let go by whoever asks.
    fn deletable(&self, which: &CheckpointRef) -> Result<DeletableSlot, Error> {
        match (self.resolve(which), which) {
            (Ok(one), _) => {
                self.may_delete(&one)?;
                Ok(DeletableSlot {
                    seen: CheckpointIdentity::from(&one),
                    name: one.name,
                })
            }
            // Nobody knows what it is: a person may let it go all the same.
            (Err(Error::Workspace(error)), CheckpointRef::Slot(slot))
                if self.actor() == Actor::Owner
                    && matches!(&*error, WorkspaceError::Slots(error) if matches!(**error, SlotError::Unreadable { .. })) =>
            {
                Ok(DeletableSlot {
                    seen: CheckpointIdentity::unreadable(*slot),
                    name: None,
                })
            }
            (Err(error), _) => Err(error),
        }
    }

    pub(super) fn compact_now(&self, command: &CompactCheckpoints) -> Result<Compacted, Error> {
        let _lock = self.lock("compacting")?;
        let sources = self.sources(command)?;
        let newest = sources.last().ok_or(WorkspaceError::TooFew)?;
        let occupants = self.pool().list()?;
        let name = self.compacted_name(command, &sources, &occupants)?;
        // A manual one stays where it is, and only gets the name.
        let (slot, instead_of) = match newest.origin {
            CheckpointOrigin::Manual => (newest.slot, None),
            _ => self.compacted_slot(&sources, &occupants)?,
        };
        let mut result = SlotMetadata {
            slot,
            origin: CheckpointOrigin::Manual,
            name: Some(name.clone()),
            made_by: Some(self.maker().word().to_owned()),
            ..newest.clone()
        };
        let gone: Vec<&SlotMetadata> = sources.iter().filter(|one| one.slot != slot).collect();
        if command.run == RunMode::Real {
            // No two ever have one name, not even if this is killed: what goes keeps its own until then.
            let is_held = gone.iter().any(|one| one.name.as_ref() == Some(&name));
            if is_held {
                result.name = Some(self.free_name(&occupants));
            }
            let merged = self.merge(newest, result, instead_of.as_ref());
            result = merged.map_err(|error| self.no_room(error, &RoomFor::Checkpoint))?;
            for one in &gone {
                self.pool().delete(one.slot)?;
            }
            if is_held {
                let named = SlotMetadata {
                    name: Some(name),
                    ..result.clone()
                };
                let renamed = self.pool().rename(&result, &named);
                result = renamed?;
            }
            let written = || self.session().db.checkpoint(&result);
            match self.pool().reserve().lend(written) {
                Err(error) if free_space::is_want_of_room(&error) => {
                    tracing::warn!(%error, checkpoint = %result.slot, "could not write down a compacted checkpoint");
                }
                written => {
                    written?;
                }
            }
            self.keep_reserve();
        }
        let deleted = gone.into_iter().chain(&instead_of);
        Ok(Compacted {
            compacted: command.run == RunMode::Real,
            checkpoint: result.slot.to_string(),
            name: result.name.as_ref().map(ToString::to_string),
            hash: result.hash.map(|hash| hash.to_string()),
            merged_count: sources.len(),
            deleted_checkpoints: deleted.map(|one| one.slot.to_string()).collect(),
            files_count: result.files_count,
            dry_run: command.run == RunMode::Dry,
        })
    }

    /// The checkpoints that become one, the oldest first.
    fn sources(&self, command: &CompactCheckpoints) -> Result<Vec<SlotMetadata>, Error> {
        let mut sources: Vec<SlotMetadata> = Vec::new();
        for which in &command.checkpoints {
            let one = self.resolve(which)?;
            self.may_delete(&one)?;
            if sources.iter().all(|other| other.slot != one.slot) {
                sources.push(one);
            }
        }
        if sources.len() < 2 {
            return Err(WorkspaceError::TooFew.into());
        }
        sources.sort_by_key(SlotMetadata::age_key);
        Ok(sources)
    }

    /// Makes the newest state the result: under its name, or in another slot.
    fn merge(
        &self,
        newest: &SlotMetadata,
        result: SlotMetadata,
        instead_of: Option<&SlotMetadata>,
    ) -> Result<SlotMetadata, Error> {
        if newest.slot == result.slot {
            return Ok(self.pool().rename(newest, &result)?);
        }
        let copied = self.pool().copy(newest, result, instead_of);
        self.recorded_as(newest, copied?.metadata)
    }

    /// The copy of a checkpoint has the contents that the original has.
    fn recorded_as(
        &self,
        newest: &SlotMetadata,
        copied: SlotMetadata,
    ) -> Result<SlotMetadata, Error> {
        if copied.form.is_list() {
            return Ok(copied);
        }
        let contents = self.contents(newest)?;
        Ok(self.pool().record(&copied, &contents)?)
    }

    /// What the result is called: as somebody says, else `compacted_` and the time. One of those that go may have had the name.
    fn compacted_name(
        &self,
        command: &CompactCheckpoints,
        sources: &[SlotMetadata],
        occupants: &[Occupant],
    ) -> Result<CheckpointName, Error> {
        let Some(name) = &command.name else {
            return Ok(self.free_name(occupants));
        };
        match workspace::named(occupants, name) {
            Some(other) if sources.iter().all(|one| one.slot != other.slot) => {
                let (name, slot) = (name.clone(), other.slot);
                Err(WorkspaceError::from(NoSlot::NameTaken { name, slot }).into())
            }
            _ => Ok(name.clone()),
        }
    }

    /// `compacted_` and the time, or a little later if that is taken.
    fn free_name(&self, occupants: &[Occupant]) -> CheckpointName {
        let base = self.clock().now().millis() / 1000;
        let mut names = (base..).map(|seconds| {
            let name = format!("compacted_{seconds}");
            name.parse::<CheckpointName>()
                .expect("letters and digits are a name")
        });
        let free = names.find(|name| workspace::named(occupants, name).is_none());
        free.expect("there are more numbers than checkpoints")
    }

    /// Where the result goes: a free slot, else that of a manual one that goes.
    fn compacted_slot(
        &self,
        sources: &[SlotMetadata],
        occupants: &[Occupant],
    ) -> Result<(workspace::Slot, Option<SlotMetadata>), Error> {
        match workspace::next_manual(self.settings(), occupants, None) {
            Ok(slot) => Ok((slot, None)),
            Err(full) => {
                let manual = sources
                    .iter()
                    .find(|one| one.origin == CheckpointOrigin::Manual);
                let manual = manual.ok_or(WorkspaceError::from(full))?;
                Ok((manual.slot, Some(manual.clone())))
            }
        }
    }

    pub(super) fn materialize_now(
        &self,
        command: &MaterializeCheckpoint,
    ) -> Result<MaterializedCheckpoint, Error> {
        let started = self.clock().uptime();
        let target = &command.directory;
        self.check_target(target)?;
        let from = self.resolve(&command.checkpoint)?;
        let mut method = fork_method(&from);
        if command.run == RunMode::Real {
            let report = self.pool().materialize(&from, target)?;
            if from.form != SlotForm::Chunked {
                method = report.method.into();
            }
        }
        Ok(MaterializedCheckpoint {
            materialized: command.run == RunMode::Real,
            checkpoint: from.slot.to_string(),
            directory: target.display().to_string(),
            method,
            files: from.files_count,
            bytes: from.bytes,
            dry_run: command.run == RunMode::Dry,
            elapsed_ms: self.elapsed(started),
        })
    }

    /// Refuses a new directory that cannot be where somebody wants it.
    pub(super) fn check_target(&self, target: &Path) -> Result<(), Error> {
        let why = match self.fault_of_target(target) {
            Ok(()) => return Ok(()),
            Err(why) => why.to_owned(),
        };
        let directory = target.to_owned();
        Err(WorkspaceError::BadFork { directory, why }.into())
    }

    fn fault_of_target(&self, target: &Path) -> Result<(), &'static str> {
        if target.symlink_metadata().is_ok() {
            return Err("something is there already");
        }
        let parent = target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        let Ok(parent) = parent.canonicalize() else {
            return Err("the directory that would hold it is not there");
        };
        if parent.starts_with(self.directory()) {
            return Err("it would be in the workspace");
        }
        if parent.starts_with(&self.session().path) {
            return Err("it would be in the session directory");
        }
        Ok(())
    }
}

/// How the bytes of a checkpoint come to a new directory.
pub(super) fn fork_method(from: &SlotMetadata) -> CopyMethod {
    if from.form == SlotForm::Chunked {
        CopyMethod::Chunks
    } else {
        CopyMethod::Reflink
    }
}
