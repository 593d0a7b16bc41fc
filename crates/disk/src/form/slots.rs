//! The checkpoints of a workspace: lists over versions of files that share their bytes with it, or over chunks where nothing can be
//! shared; the snapshot of a btrfs subvolume is a directory.
//!
//! `auto_snapshots/<slot>/` in the session directory, and `undo/<number>/` for what takes back a revert or a restore. A list has
//! `workspace.json` and says in `chunks` and `versions` what it needs of `chunks/` and `objects/`, which all checkpoints share; a
//! directory is `workspace/`, and a system that goes with it `system/`. To make one:
//!
//! 1. clone or store what is new of the workspace, under temporary names; a snapshot or a copy goes into the directory of 2
//! 2. make `.SLOT.stasis-tmp-PID` beside, locked as long as its maker lives, and write into it what the checkpoint is; what an unchanged
//!    one would only repeat gets a second name there
//! 3. see that all checkpoints together stay within the budget; the oldest automatic ones that must go are deleted, and a list begins anew
//! 4. `syncfs`, after which chunks and versions get their names; `fsync`; where nothing is new, only the documents are synced
//! 5. rename it to its slot, or exchange it with the automatic checkpoint that is there; `fsync` the directory
//! 6. remove what it was exchanged for, after the versions that nothing else names
//!
//! To delete one: rename it to a temporary name; `fsync` the directory; remove the versions that nothing else names; remove it. Where a
//! full btrfs renames nothing: remove its `metadata.json`, `fsync`, and the rest; a crash meanwhile leaves what is listed as unreadable, and can be deleted again. Nothing is
//! written for it. What must be written to end something, or to free room, may use up the [`Reserve`] of the session.
//!
//! *Always true:* a directory that is called like a slot is a whole checkpoint, and was durable before it was called so. A crash before 5
//! leaves the old one, after 5 the new one, and a temporary directory that [`Pool::open`] removes. Everything of a directory that can
//! fail for want of room has been done before 3 lets anything go; of a list, all that is new was cloned or counted. What is in a published checkpoint does not change any more, but for what is found
//! out about it ([`Pool::record`]). Whatever changes the pool holds its lock; whoever only reads needs none.

mod check;
mod chunks;
mod cost;
mod create;
mod error;
mod extents;
mod heal;
mod held;
mod leftovers;
mod manifest;
mod measure;
mod packed;
mod place;
mod portion;
mod reader;
mod references;
mod restore;
mod staged;
mod undo;
mod versions;
mod view;

pub use crate::tree::stat_cache::StatCache;
pub use check::{CheckedContent, CheckedSlot};
pub use create::Created;
pub use error::SlotError;
pub use held::HeldCheckpoint;
pub use manifest::{
    Manifest, ManifestEntry, ManifestKind, databases_in_snapshot, manifest, manifest_of_clone,
};
pub use measure::{HeldBound, SlotUsage, Usage};
pub use packed::contents_of_list;
pub use portion::{excluded_in, fact, portion, read_file};
pub use reader::CheckpointReader;
pub use restore::{SameContent, WorkspaceRestore, WorkspaceRestored, restore_in_place};
pub use staged::CheckpointSource;
use versions::Versions;
pub use versions::{SetAside, VERSIONS};
pub use view::{Return, View};

pub use crate::fs::staging::OWN_PATTERNS;

use crate::fs::atomic_write::{self, atomic_write};
use crate::fs::free_space::{self, Reserve};
use crate::fs::lock_file::LockFile;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::progress::Progress;
use crate::tree::clone::{CloneSettings, DatabaseMode, Fallback, FileByFile, SourceSurvey};
use crate::tree::walk::WalkSettings;
use chunks::Chunks;
use place::SlotDir;
use stasis_model::digest::ChunkDigest;
use stasis_model::failure::AtPath;
use stasis_model::format::manifest::SnapshotManifest;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{AgentEvent, Budget, CheckpointOrigin, Occupant, Slot, SlotMetadata};
use std::collections::HashSet;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of the slots in that of a session.
pub const DIRECTORY: &str = "auto_snapshots";
/// The directory of what takes changes back.
pub const UNDO_DIRECTORY: &str = "undo";
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

/// What goes when there are too many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Eviction {
    /// Automatic checkpoints: of the timer and of agents' commands before those of prompts, the oldest first.
    #[default]
    Oldest,
    /// Nothing: there is no new one then.
    Nothing,
}

/// How a pool makes checkpoints.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// What all checkpoints hold together at most.
    pub budget: Budget,
    /// What to do where nothing can be shared: copy, or else keep it in chunks.
    pub fallback: Fallback,
    /// What goes when there are too many bytes.
    pub eviction: Eviction,
    /// How the workspace is walked.
    pub walk: WalkSettings,
    /// Who is told how far a checkpoint has come that is made, restored, forked or read.
    pub progress: Arc<Progress>,
}

impl PoolSettings {
    /// Within that budget, shared or in chunks.
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            fallback: Fallback::Refuse,
            eviction: Eviction::default(),
            walk: WalkSettings::default(),
            progress: Arc::default(),
        }
    }

    fn cloning(&self, survey: SourceSurvey) -> CloneSettings {
        CloneSettings {
            fallback: self.fallback,
            mounts: Mounts::Stay,
            survey,
            databases: DatabaseMode::AreSets,
            file_by_file: FileByFile::Clone,
            walk: self.walk.clone(),
            progress: self.progress.clone(),
        }
    }
}

/// The checkpoints of one session directory.
#[derive(Debug)]
pub struct Pool {
    session: PathBuf,
    slots: SlotDir,
    undo: SlotDir,
    chunks: Chunks,
    reserve: Reserve,
    settings: PoolSettings,
}

/// The lock of a pool, and what was read of the slots while it is held.
#[derive(Debug)]
struct PoolLock<'a> {
    versions: &'a Versions,
    _file: LockFile,
}

impl Drop for PoolLock<'_> {
    fn drop(&mut self) {
        self.versions.forget_names();
    }
}

impl Pool {
    /// Opens the pool of a session directory, makes it if there is none, and removes what the dead left in it.
    pub fn open(session: &Path, settings: PoolSettings) -> Result<Self, SlotError> {
        let pool = Self::attach(session, settings)?;
        // Whoever changes something now clears up as well.
        match LockFile::try_take(&pool.path().join(LOCK)) {
            Ok(Some(_lock)) => {
                leftovers::collect(session);
                let release = |left: BorrowedFd<'_>| pool.release(left);
                pool.slots.collect(&release);
                pool.undo.collect(&release);
                pool.chunks.versions().forget_names();
            }
            // Whoever only reads needs no lock, and there may be no room to make one.
            Err(error) if !free_space::is_want_of_room(&error) => return Err(error.into()),
            _ => {}
        }
        Ok(pool)
    }

    fn attach(session: &Path, settings: PoolSettings) -> Result<Self, SlotError> {
        let [slots, undo] = [DIRECTORY, UNDO_DIRECTORY].map(|name| session.join(name));
        for path in [&slots, &undo] {
            atomic_write::make_directory(path)?;
        }
        Ok(Self {
            session: session.to_owned(),
            slots: SlotDir::open(slots)?,
            undo: SlotDir::open(undo)?,
            chunks: Chunks::open(session)?,
            reserve: Reserve::of(session),
            settings,
        })
    }

    /// What is there to be let go when something must be written and there is no room.
    pub fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// The same pool under other rules.
    pub fn again(&self, settings: PoolSettings) -> Result<Self, SlotError> {
        Self::attach(&self.session, settings)
    }

    /// By which rules it works.
    pub fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// Where the slots are.
    pub fn path(&self) -> &Path {
        self.slots.path()
    }

    fn lock(&self) -> Result<PoolLock<'_>, SlotError> {
        let file = LockFile::wait(&self.path().join(LOCK))?;
        Ok(PoolLock {
            versions: self.chunks.versions(),
            _file: file,
        })
    }

    /// Where checkpoints of an origin are.
    fn place(&self, origin: CheckpointOrigin) -> &SlotDir {
        match origin {
            CheckpointOrigin::Auto
            | CheckpointOrigin::Manual
            | CheckpointOrigin::Prompt
            | CheckpointOrigin::Command => &self.slots,
            CheckpointOrigin::Undo => &self.undo,
        }
    }

    /// The directory of a checkpoint.
    fn home_of(&self, of: &SlotMetadata) -> PathBuf {
        self.place(of.origin).slot(of.slot)
    }

    /// What is in the slots now, in their order.
    pub fn list(&self) -> Result<Vec<Occupant>, SlotError> {
        Ok(self.slots.list()?)
    }

    /// What takes changes back, in order.
    pub fn undos(&self) -> Result<Vec<Occupant>, SlotError> {
        Ok(self.undo.list()?)
    }

    /// The checkpoint in a slot.
    pub fn metadata(&self, slot: Slot) -> Result<SlotMetadata, SlotError> {
        known(&self.slots, slot)
    }

    /// What takes a change back, by its number.
    pub fn undo(&self, number: u32) -> Result<SlotMetadata, SlotError> {
        known(&self.undo, Slot::new(number))
    }

    /// What a checkpoint is by now; an error if there is another one in its place.
    fn still(&self, of: &SlotMetadata) -> Result<SlotMetadata, SlotError> {
        let now = known(self.place(of.origin), of.slot)?;
        if !now.is_same_checkpoint(of) {
            return Err(SlotError::Replaced(of.slot));
        }
        Ok(now)
    }

    /// Says what the tree of a checkpoint is that is a list.
    fn document(&self, of: &SlotMetadata) -> Result<SnapshotManifest, SlotError> {
        let document = packed::document(&self.home_of(of), of);
        // Asked afterwards: what was read is of this checkpoint only if the slot has it still.
        self.still(of)?;
        document
    }

    /// The tree of a checkpoint that is a directory. Whoever holds it still reads it when it is deleted meanwhile, as far as it
    /// has not gone.
    pub fn tree(&self, slot: Slot) -> Result<RootDir, SlotError> {
        self.metadata(slot)?;
        let path = self.path_of(slot);
        Ok(RootDir::open(&path, Mounts::Stay).at("open", &path)?)
    }

    /// Where the tree of a checkpoint is, if it is a directory.
    pub fn path_of(&self, slot: Slot) -> PathBuf {
        self.slots.slot(slot).join(WORKSPACE)
    }

    /// Deletes a checkpoint; whatever is in the slot, if nobody knows what it is.
    pub fn delete(&self, slot: Slot) -> Result<(), SlotError> {
        let _lock = self.lock()?;
        self.remove(&self.slots, slot)?;
        self.chunks.collect();
        self.sweep(&HashSet::new())?;
        self.sweep_versions()
    }

    /// Deletes several checkpoints; one that is gone already is passed over.
    pub fn forget(&self, slots: &[Slot]) -> Result<(), SlotError> {
        let _lock = self.lock()?;
        for slot in slots {
            match self.remove(&self.slots, *slot) {
                Err(SlotError::Empty(_)) => {}
                removed => removed?,
            }
        }
        self.sweep(&HashSet::new())
    }

    /// Writes down with a checkpoint what an agent was about to do while the tree was what the checkpoint holds.
    pub fn note(&self, of: &SlotMetadata, event: AgentEvent) -> Result<SlotMetadata, SlotError> {
        self.amend(of, |metadata| {
            metadata.note(event);
        })
    }

    /// Changes what is written down of a checkpoint; its contents stay what they are.
    pub fn amend(
        &self,
        of: &SlotMetadata,
        change: impl FnOnce(&mut SlotMetadata),
    ) -> Result<SlotMetadata, SlotError> {
        let _lock = self.lock()?;
        let before = self.still(of)?;
        let mut metadata = before.clone();
        change(&mut metadata);
        if metadata != before {
            atomic_write(&self.home_of(of).join(METADATA), &metadata.to_json())?;
        }
        Ok(metadata)
    }

    fn remove(&self, place: &SlotDir, slot: Slot) -> Result<(), SlotError> {
        if place.occupant(slot)?.is_none() {
            return Err(SlotError::Empty(slot));
        }
        Ok(place.remove(slot, &|left| self.release(left))?)
    }

    /// Removes chunks that no checkpoint needs, and that are not among `kept`; none at all while somebody's needs are unknown.
    fn sweep(&self, kept: &HashSet<ChunkDigest>) -> Result<(), SlotError> {
        match self.needed_chunks()? {
            Some(mut needed) => {
                needed.extend(kept);
                self.chunks.sweep(&needed)?;
                self.chunks.sweep_aside(&needed)
            }
            None => Ok(()),
        }
    }

    /// The chunks that all checkpoints need; nothing while one of them cannot say what it needs.
    fn needed_chunks(&self) -> Result<Option<HashSet<ChunkDigest>>, SlotError> {
        let mut needed = HashSet::new();
        for (place, occupants) in [(&self.slots, self.list()?), (&self.undo, self.undos()?)] {
            for one in occupants {
                match measure::named(&place.slot(one.slot())) {
                    Some(names) => needed.extend(names),
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(needed))
    }

    /// How many bytes the checkpoints hold, together and each; reads where the blocks of every file are the first time.
    pub fn usage(&self) -> Result<Usage, SlotError> {
        let _lock = self.lock()?;
        let (slots, undos) = (self.list()?, self.undos()?);
        let pools = [(&self.slots, &*slots), (&self.undo, &*undos)];
        measure::usage(&self.chunks, pools, None)
    }

    /// What they hold at most, together: read from what is written down of them, without a look at any tree.
    pub fn held_at_most(&self) -> Result<HeldBound, SlotError> {
        let (slots, undos) = (self.list()?, self.undos()?);
        let pools = [(&self.slots, &*slots), (&self.undo, &*undos)];
        let bound = measure::Accounts::glance(&self.chunks, pools)?.bound();
        self.chunks.versions().forget_names();
        bound
    }

    /// What checks set aside because it holds other bytes than its name says; it goes with the last checkpoint that names it.
    pub fn damaged_aside(&self) -> Result<Vec<SetAside>, SlotError> {
        self.chunks.aside()
    }

    /// The same, but what a live tree refers to as well counts for no checkpoint: what each of them would free if it were deleted.
    pub fn freed(&self, workspace: &Path) -> Result<Usage, SlotError> {
        let _lock = self.lock()?;
        let (slots, undos) = (self.list()?, self.undos()?);
        let pools = [(&self.slots, &*slots), (&self.undo, &*undos)];
        let live = measure::live(workspace, &WalkSettings::default())?;
        measure::usage(&self.chunks, pools, Some(&live))
    }

    /// Writes down that what an undo checkpoint takes back was done.
    pub fn was_done(&self, undo: &SlotMetadata) -> Result<(), SlotError> {
        let _lock = self.lock()?;
        let mut metadata = self.still(undo)?;
        if let Some(note) = &mut metadata.undo {
            note.pending = false;
        }
        let path = self.home_of(undo).join(METADATA);
        let written = self
            .reserve
            .lend(|| atomic_write(&path, &metadata.to_json()));
        Ok(written?)
    }

    /// Gives a checkpoint the name and the maker that `to` has.
    pub fn rename(&self, of: &SlotMetadata, to: &SlotMetadata) -> Result<SlotMetadata, SlotError> {
        let _lock = self.lock()?;
        let metadata = SlotMetadata {
            name: to.name.clone(),
            made_by: to.made_by.clone(),
            ..self.still(of)?
        };
        let path = self.home_of(of).join(METADATA);
        self.reserve
            .lend(|| atomic_write(&path, &metadata.to_json()))?;
        Ok(metadata)
    }

    /// Writes down what a checkpoint contains, and its hash, if it is still the same checkpoint.
    pub fn record(
        &self,
        of: &SlotMetadata,
        manifest: &Manifest,
    ) -> Result<SlotMetadata, SlotError> {
        let _lock = self.lock()?;
        let now = self.still(of)?;
        let directory = self.home_of(of);
        atomic_write(&directory.join(MANIFEST), &manifest.to_bytes())?;
        let hash = Some(manifest.hash());
        let counted = counted(now, manifest, &directory);
        let metadata = SlotMetadata { hash, ..counted };
        atomic_write(&directory.join(METADATA), &metadata.to_json())?;
        Ok(metadata)
    }

    /// What a checkpoint contains, when that was recorded and is still what its hash says.
    pub fn recorded(&self, of: &SlotMetadata) -> Option<Manifest> {
        let bytes = std::fs::read(self.home_of(of).join(MANIFEST)).ok()?;
        let manifest = Manifest::from_bytes(&bytes)?;
        (Some(manifest.hash()) == of.hash).then_some(manifest)
    }

    /// The first bytes of a regular file of a checkpoint, and no more than `most` of them; `None` when it is none. Nothing is written,
    /// whatever the form of the checkpoint.
    pub fn file(
        &self,
        of: &SlotMetadata,
        path: &EntryPath,
        most: u64,
    ) -> Result<Option<Vec<u8>>, SlotError> {
        if of.form.is_list() {
            let document = self.document(of)?;
            return packed::file(&self.chunks, &document, path, most);
        }
        let view = self.view(of, &[])?;
        let bytes = read_file(view.tree(), path, most);
        Ok(bytes.at("read a file of", self.home_of(of))?)
    }

    /// Writes a regular file of a checkpoint; `None` when it is none. The inner error is that of `out`.
    pub fn copy_file(
        &self,
        of: &SlotMetadata,
        path: &EntryPath,
        out: &mut dyn Write,
    ) -> Result<Option<io::Result<u64>>, SlotError> {
        if of.form.is_list() {
            let document = self.document(of)?;
            return packed::copy_file(&self.chunks, &document, path, out);
        }
        let view = self.view(of, &[])?;
        let file = portion::open_file(view.tree(), path);
        let Some(mut file) = file.at("read a file of", self.home_of(of))? else {
            return Ok(None);
        };
        let mut written = 0;
        let mut write = |piece: &[u8]| {
            written += piece.len() as u64;
            out.write_all(piece)
        };
        let copied = packed::copied(&mut file, &mut write);
        let copied = copied.at("read a file of", self.home_of(of))?;
        Ok(Some(copied.map(|()| written)))
    }

    /// What a checkpoint contains: as it was recorded, or as it is found by reading it.
    pub fn contents(&self, of: &SlotMetadata) -> Result<Manifest, SlotError> {
        if let Some(recorded) = self.recorded(of) {
            return Ok(recorded);
        }
        if of.form.is_list() {
            let document = self.document(of)?;
            return packed::contents(&self.chunks, &document);
        }
        let view = self.view(of, &[])?;
        let mut nothing = StatCache::open(Path::new(""), stasis_model::time::Timestamp::default());
        let walk = WalkSettings {
            excludes: OWN_PATTERNS.map(str::to_owned).to_vec(),
            ..WalkSettings::default()
        };
        let (manifest, _) = manifest(view.tree(), &mut nothing, &walk)?;
        Ok(manifest)
    }
}

/// Fills in what was not counted when the checkpoint was made.
fn counted(now: SlotMetadata, manifest: &Manifest, directory: &Path) -> SlotMetadata {
    if now.files_count > 0 || now.bytes > 0 {
        return now;
    }
    let sizes = manifest.entries().iter().filter_map(|one| match one.what {
        ManifestKind::File { size, .. } => Some(size),
        _ => None,
    });
    let bytes = sizes.clone().fold(0, u64::saturating_add);
    let entries = manifest.entries().len() as u64;
    // Of a system nobody knows more than before.
    let at_most = (!directory.join(SYSTEM).exists()).then(|| cost::whole(entries, bytes));
    SlotMetadata {
        files_count: sizes.count() as u64,
        bytes,
        bytes_at_most: at_most.or(now.bytes_at_most),
        ..now
    }
}

fn known(place: &SlotDir, slot: Slot) -> Result<SlotMetadata, SlotError> {
    match place.occupant(slot)? {
        None => Err(SlotError::Empty(slot)),
        Some(Occupant::Known(metadata)) => Ok(metadata),
        Some(Occupant::Unreadable { slot, why }) => Err(SlotError::Unreadable { slot, why }),
    }
}

#[cfg(test)]
mod tests;
