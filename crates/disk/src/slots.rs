//! The checkpoints of a workspace as directories that share their bytes with it.
//!
//! `auto_snapshots/<slot>/{workspace,system,metadata.json}` in the session directory. To make one:
//!
//! 1. make `.SLOT.stasis-tmp-PID` beside, locked as long as its maker lives
//! 2. clone the workspace into it, and the system if there is one; `syncfs`
//! 3. write `metadata.json` into it; `fsync`
//! 4. see that all checkpoints together stay within the budget; the oldest automatic ones that must go are deleted
//! 5. rename it to its slot, or exchange it with the automatic checkpoint that is there; `fsync` the directory
//! 6. remove what it was exchanged for
//!
//! To delete one: rename it to a temporary name; `fsync` the directory; remove it.
//!
//! *Always true:* a directory that is called like a slot is a whole checkpoint, and was durable before it was called so. A crash before 5
//! leaves the old one, after 5 the new one, and a temporary directory that [`Pool::open`] removes. Everything that can fail for want
//! of room has been done before 4 lets anything go. What is in a published checkpoint does not change any more, but for what is found
//! out about it ([`Pool::record`]). Whatever changes the pool holds its lock; whoever only reads needs none.

mod cache;
mod error;
mod extents;
mod manifest;
mod measure;
mod place;
mod put_back;
mod revert;
mod staged;

pub use cache::StatCache;
pub use error::SlotError;
pub use manifest::{Listed, Manifest, What, manifest, manifest_of_clone};
pub use measure::{SlotUsage, Usage};
pub use put_back::{PutBack, PutBackError, WasPutBack, put_back};
pub use revert::{RevertError, Reverted, revert};

use crate::atomic_write::{self, atomic_write};
use crate::beneath::{Beneath, Mounts};
use crate::clone::{CloneReport, CloneSettings, Fallback};
use crate::walk::WalkSettings;
use error::failed;
use place::Place;
use staged::Staged;
use stasis_model::workspace::{Budget, Occupant, Slot, SlotMetadata};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The directory of the slots in that of a session.
pub const DIRECTORY: &str = "auto_snapshots";
/// The clone of the workspace in a slot.
pub const WORKSPACE: &str = "workspace";
/// The clone of the system in a slot.
pub const SYSTEM: &str = "system";
/// What is known of a checkpoint, in its slot.
pub const METADATA: &str = "metadata.json";
/// The contents of a checkpoint, when they have been recorded.
const MANIFEST: &str = "manifest";
/// Whoever changes the pool holds it.
const LOCK: &str = ".lock";

/// How a pool makes checkpoints.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// What all checkpoints hold together at most.
    pub budget: Budget,
    /// What to do where nothing can be shared; a refusal is [`SlotError::Unsupported`].
    pub fallback: Fallback,
    /// How the workspace is walked.
    pub walk: WalkSettings,
}

impl PoolSettings {
    /// Within that budget, and only by sharing.
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            fallback: Fallback::Refuse,
            walk: WalkSettings::default(),
        }
    }

    fn cloning(&self) -> CloneSettings {
        CloneSettings {
            fallback: self.fallback,
            mounts: Mounts::Stay,
            walk: self.walk.clone(),
            ..CloneSettings::default()
        }
    }
}

/// What became of a checkpoint that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "what was left out, and what had to go, is said only here"]
pub struct Created {
    /// As it was written.
    pub metadata: SlotMetadata,
    /// How the workspace was cloned, and what was left out.
    pub workspace: CloneReport,
    /// How the system was cloned, if it was a directory.
    pub system: Option<CloneReport>,
    /// The automatic checkpoints that went because of the budget, the oldest first.
    pub evicted: Vec<Slot>,
    /// Whether it took the place of an older one.
    pub replaced: Option<SlotMetadata>,
}

/// The slots of one session directory.
#[derive(Debug)]
pub struct Pool {
    place: Place,
    settings: PoolSettings,
}

impl Pool {
    /// Opens the pool of a session directory, makes it if there is none, and removes what the dead left in it.
    pub fn open(session: &Path, settings: PoolSettings) -> Result<Self, SlotError> {
        let path = session.join(DIRECTORY);
        atomic_write::make_directory(&path)?;
        let pool = Self {
            place: Place::open(path)?,
            settings,
        };
        let _lock = pool.lock()?;
        pool.place.collect();
        Ok(pool)
    }

    /// Where the slots are.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    fn lock(&self) -> Result<File, SlotError> {
        Ok(atomic_write::lock_file(&self.path().join(LOCK))?)
    }

    /// What is in the slots now, in their order.
    pub fn list(&self) -> Result<Vec<Occupant>, SlotError> {
        self.place.list()
    }

    /// The checkpoint in a slot.
    pub fn metadata(&self, slot: Slot) -> Result<SlotMetadata, SlotError> {
        match self.place.occupant(slot)? {
            None => Err(SlotError::Empty(slot)),
            Some(Occupant::Known(metadata)) => Ok(metadata),
            Some(Occupant::Unreadable { slot, why }) => Err(SlotError::Unreadable { slot, why }),
        }
    }

    /// The tree of a checkpoint. Whoever holds it still reads it when it is deleted meanwhile, as far as it has not gone.
    pub fn tree(&self, slot: Slot) -> Result<Beneath, SlotError> {
        self.metadata(slot)?;
        let path = self.path_of(slot);
        Beneath::open(&path, Mounts::Stay).map_err(failed("open", &path))
    }

    /// Where the tree of a checkpoint is.
    pub fn path_of(&self, slot: Slot) -> PathBuf {
        self.place.slot(slot).join(WORKSPACE)
    }

    /// Makes a checkpoint in the slot that its metadata says; an automatic one that is there is replaced.
    pub fn create(
        &self,
        workspace: &Path,
        system: Option<&Path>,
        metadata: SlotMetadata,
    ) -> Result<Created, SlotError> {
        let _lock = self.lock()?;
        let slot = metadata.slot;
        let occupants = self.list()?;
        let replaced = may_take(&occupants, &metadata)?;
        let mut evicted = Vec::new();
        let may_copy = self.settings.fallback == Fallback::Copy;
        if may_copy && !measure::is_shared(workspace, self.path()) {
            // What is copied is on the disk before it can be measured.
            let expected = measure::expected(workspace, system, &self.settings.walk)?;
            evicted = self.make_room(&occupants, slot, measure::New::Expected(expected))?;
        }
        let cloning = self.settings.cloning();
        let staged = Staged::build(&self.place, slot, &cloning);
        let mut staged = staged.and_then(|staged| staged.fill(workspace, system, metadata))?;
        let left: Vec<Occupant> = match &*evicted {
            [] => occupants,
            _ => self.list()?,
        };
        evicted.extend(self.make_room(&left, slot, measure::New::Staged(&staged))?);
        staged.publish(replaced.is_some())?;
        let (metadata, workspace, system) = staged.told();
        Ok(Created {
            metadata,
            workspace,
            system,
            evicted,
            replaced,
        })
    }

    /// Lets the oldest automatic checkpoints go until a new one fits in, or says that it never does.
    fn make_room(
        &self,
        occupants: &[Occupant],
        target: Slot,
        new: measure::New<'_>,
    ) -> Result<Vec<Slot>, SlotError> {
        let mut accounts = measure::Accounts::new(&self.place, occupants, new);
        let budget = self.settings.budget;
        let gone = budget.make_room(occupants, target, |gone| {
            accounts.held(&[gone, &[target]].concat(), budget.bytes())
        })?;
        for slot in &gone {
            self.place.remove(*slot)?;
        }
        Ok(gone)
    }

    /// Deletes a checkpoint; whatever is in the slot, if nobody knows what it is.
    pub fn delete(&self, slot: Slot) -> Result<(), SlotError> {
        let _lock = self.lock()?;
        if self.place.occupant(slot)?.is_none() {
            return Err(SlotError::Empty(slot));
        }
        self.place.remove(slot)
    }

    /// How many bytes the checkpoints hold, together and each; reads where the blocks of every file are the first time.
    pub fn usage(&self) -> Result<Usage, SlotError> {
        let _lock = self.lock()?;
        measure::usage(&self.place, &self.list()?)
    }

    /// Writes down what a checkpoint contains, and its hash, if it is still the same checkpoint.
    pub fn record(
        &self,
        of: &SlotMetadata,
        manifest: &Manifest,
    ) -> Result<SlotMetadata, SlotError> {
        let _lock = self.lock()?;
        let now = self.metadata(of.slot)?;
        if !now.is_same_checkpoint(of) {
            return Err(SlotError::Replaced(of.slot));
        }
        let directory = self.place.slot(of.slot);
        atomic_write(&directory.join(MANIFEST), &manifest.to_bytes())?;
        let hash = Some(manifest.hash());
        let metadata = SlotMetadata { hash, ..now };
        atomic_write(&directory.join(METADATA), &metadata.to_json())?;
        Ok(metadata)
    }

    /// What a checkpoint contains, when that was recorded and is still what its hash says.
    pub fn recorded(&self, of: &SlotMetadata) -> Option<Manifest> {
        let bytes = std::fs::read(self.place.slot(of.slot).join(MANIFEST)).ok()?;
        let manifest = Manifest::from_bytes(&bytes)?;
        (Some(manifest.hash()) == of.hash).then_some(manifest)
    }
}

/// Whether a checkpoint may be put where its metadata says; what it would replace.
fn may_take(occupants: &[Occupant], new: &SlotMetadata) -> Result<Option<SlotMetadata>, SlotError> {
    match occupants.iter().find(|one| one.slot() == new.slot) {
        None => Ok(None),
        Some(Occupant::Known(old)) if old.may_go() && new.may_go() => Ok(Some(old.clone())),
        Some(Occupant::Known(old)) => Err(SlotError::Occupied(old.slot)),
        Some(Occupant::Unreadable { slot, why }) => Err(SlotError::Unreadable {
            slot: *slot,
            why: why.clone(),
        }),
    }
}

#[cfg(test)]
mod tests;
