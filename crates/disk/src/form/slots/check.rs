//! Whether a checkpoint is what it was when it was made: every byte of it is read.
//!
//! 1. read everything, without a lock: what checkpoints share is read once   2. what looks damaged is looked at again under the lock, so
//!    that nothing that was replaced or removed meanwhile is called damaged   3. a version that the live tree still has is cloned anew
//!    from there   4. what is proven to hold other bytes is set aside: `damaged-<64 hex digits>`, beside the others
//!
//! *Always true:* what is cloned anew was read, and has the digest that it is named for. What was set aside is missing from then on, so that
//! nothing is made of it, and the next checkpoint whose tree has it stores it again.

use super::chunks::Incoming;
use super::error::SlotError;
use super::{Manifest, Pool, StatCache, manifest, packed};
use crate::form::chunked::list::ListReader;
use crate::form::chunked::restore::fetch_stored;
use crate::form::chunked::{ChunkError, ChunkSource, VersionSink, same};
use crate::fs::fd::c_name;
use crate::fs::metadata;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::tree::walk::WalkSettings;
use stasis_model::digest::FileDigest;
use stasis_model::failure::AtPath;
use stasis_model::tree::list::{FileContent, StoredChunk};
use stasis_model::tree::{EntryKind, EntryPath};
use stasis_model::workspace::{Occupant, Slot, SlotMetadata};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// How something is that a file lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Soundness {
    Whole,
    /// It is missing, or cannot be read.
    Lost,
    /// It was read, and holds something else.
    Rotten,
}

/// What was read already: what checkpoints share is read once.
#[derive(Debug, Default)]
pub struct CheckedContent {
    versions: HashMap<FileDigest, Soundness>,
    chunks: HashMap<StoredChunk, Soundness>,
}

/// What a look at all of a checkpoint found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "what is lost is said only here"]
pub struct CheckedSlot {
    /// The files that cannot be given back as they were.
    pub lost: Vec<EntryPath>,
    /// The files that could not, and can again.
    pub healed: Vec<EntryPath>,
}

/// A file that cannot be given back.
struct LostFile {
    path: EntryPath,
    size: u64,
    content: FileContent,
}

impl Pool {
    /// The files of a checkpoint that cannot be given back as they were, and those that the live tree gave back to it; an error if not
    /// even its list can be read, or if it is not there any more.
    pub fn check(
        &self,
        of: &SlotMetadata,
        live: &Path,
        checked: &mut CheckedContent,
    ) -> Result<CheckedSlot, SlotError> {
        if !of.form.is_list() {
            let lost = self.check_tree(of);
            // Whatever was found while it went is not to be believed.
            let _lock = self.lock()?;
            self.still(of)?;
            return Ok(CheckedSlot {
                lost: lost?,
                healed: Vec::new(),
            });
        }
        if let Ok(lost) = self.read_all(of, checked)
            && lost.is_empty()
        {
            self.still(of)?;
            return Ok(CheckedSlot::default());
        }
        let _lock = self.lock()?;
        self.still(of)?;
        checked.forget_damaged();
        match self.read_all(of, checked) {
            Err(SlotError::Chunks(ChunkError::Damaged { name, source })) => {
                // A list that is rotten must not be taken for stored by the next one.
                self.chunks.set_aside(&name)?;
                Err(SlotError::Chunks(ChunkError::Damaged { name, source }))
            }
            lost => self.heal(lost?, live, checked),
        }
    }

    /// What is in a slot while nobody changes it: what was listed without the lock may have been on its way out.
    pub fn occupant(&self, slot: Slot) -> Result<Option<Occupant>, SlotError> {
        let _lock = self.lock()?;
        Ok(self.slots.occupant(slot)?)
    }

    /// What is wrong with what says what is in a checkpoint; nothing where that is as it was.
    pub fn problem(&self, of: &SlotMetadata) -> Option<String> {
        if !of.form.is_list() {
            return None;
        }
        packed::problem(&self.home_of(of), of, self.chunks.versions())
    }

    /// Reads everything that a list leads to.
    fn read_all(
        &self,
        of: &SlotMetadata,
        checked: &mut CheckedContent,
    ) -> Result<Vec<LostFile>, SlotError> {
        if let Some(problem) = self.problem(of) {
            return Err(SlotError::Document(problem));
        }
        let document = packed::document(&self.home_of(of))?;
        let entries = document.list()?;
        let mut reader = ListReader::new(&self.chunks, &entries)?;
        let mut lost = Vec::new();
        while let Some(row) = reader.next_row()? {
            if let (EntryKind::File { size }, Some(content)) = (row.entry.kind, row.content)
                && !checked.is_whole(&self.chunks, &content)?
            {
                let path = row.entry.path;
                lost.push(LostFile {
                    path,
                    size,
                    content,
                });
            }
        }
        Ok(lost)
    }

    /// Takes from the live tree what it still has of lost versions, and sets aside what is rotten. Under the lock.
    fn heal(
        &self,
        lost: Vec<LostFile>,
        live: &Path,
        checked: &mut CheckedContent,
    ) -> Result<CheckedSlot, SlotError> {
        let mut result = CheckedSlot::default();
        if lost.is_empty() {
            return Ok(result);
        }
        let incoming = self.chunks.incoming(&|| u64::MAX)?;
        let root = RootDir::open(live, Mounts::Stay).ok();
        let mut again: HashSet<FileDigest> = HashSet::new();
        for one in lost.iter().filter(|one| one.content.is_version()) {
            let digest = &one.content.digest;
            if !again.contains(digest)
                && let Some(file) = root.as_ref().and_then(|root| open_live(root, one))
                && hold_again(&incoming, &file, one).at("clone again", live)?
            {
                again.insert(*digest);
            }
        }
        if !again.is_empty() {
            incoming.keep()?;
        }
        for digest in &again {
            checked.versions.insert(*digest, Soundness::Whole);
        }
        for one in lost {
            if one.content.is_version() && again.contains(&one.content.digest) {
                result.healed.push(one.path);
                continue;
            }
            self.set_aside(&one.content, checked)?;
            result.lost.push(one.path);
        }
        Ok(result)
    }

    /// Moves what is rotten of a content out of the way, so that nothing is made of it.
    fn set_aside(
        &self,
        content: &FileContent,
        checked: &mut CheckedContent,
    ) -> Result<(), SlotError> {
        if content.is_version() {
            if let Some(found @ Soundness::Rotten) = checked.versions.get_mut(&content.digest) {
                self.chunks.versions().set_aside(&content.digest)?;
                *found = Soundness::Lost;
            }
            return Ok(());
        }
        for slice in content.slices() {
            if let Some(found @ Soundness::Rotten) = checked.chunks.get_mut(&slice.chunk) {
                self.chunks.set_aside(&slice.chunk.name)?;
                *found = Soundness::Lost;
            }
        }
        Ok(())
    }

    /// The entries of a directory that are not what was recorded of them.
    fn check_tree(&self, of: &SlotMetadata) -> Result<Vec<EntryPath>, SlotError> {
        let Some(recorded) = self.recorded(of) else {
            return Ok(Vec::new());
        };
        let view = self.view(of, &[])?;
        let mut nothing = StatCache::open(Path::new(""), stasis_model::time::Timestamp::default());
        let found = manifest(view.tree(), &mut nothing, &WalkSettings::default())?;
        let found: &Manifest = &found.0;
        Ok(recorded
            .diff(found)
            .into_iter()
            .map(|(path, _)| path)
            .collect())
    }
}

/// The file of the live tree at the place of a lost one, if it is as long.
fn open_live(root: &RootDir, lost: &LostFile) -> Option<OwnedFd> {
    let (directory, name) = lost.path.split_last()?;
    let directory = root.directory(directory.as_bytes()).ok()?;
    let file = root.file(directory.as_fd(), &c_name(name).ok()?).ok()?;
    let seen = metadata::of(&file).ok()?;
    (seen.file_type().is_file() && seen.size == lost.size).then_some(file)
}

/// Clones a live file, and holds the clone if it is the version that was lost; says whether it is.
fn hold_again(
    incoming: &Incoming<'_>,
    file: &OwnedFd,
    lost: &LostFile,
) -> Result<bool, std::io::Error> {
    let Some(cloned) = incoming.clone_file(file.as_fd(), lost.size)? else {
        return Ok(false);
    };
    let digest = lost.content.digest;
    // What is not it goes with all that was on its way in.
    let is_it = same::holds(&cloned.file, &digest);
    if is_it {
        incoming.hold(cloned, &digest)?;
    }
    Ok(is_it)
}

impl CheckedContent {
    /// Whether everything that a file lies in is there, and what it should be.
    fn is_whole(
        &mut self,
        source: &dyn ChunkSource,
        content: &FileContent,
    ) -> Result<bool, ChunkError> {
        if content.is_version() {
            let digest = content.digest;
            if let Some(known) = self.versions.get(&digest) {
                return Ok(*known == Soundness::Whole);
            }
            let found = match source.version(&digest) {
                Ok(version) => match same::digest(version) {
                    Ok(found) if found == digest => Soundness::Whole,
                    Ok(_) => Soundness::Rotten,
                    Err(_) => Soundness::Lost,
                },
                Err(ChunkError::NoVersion(_)) => Soundness::Lost,
                Err(error) => return Err(error),
            };
            self.versions.insert(digest, found);
            return Ok(found == Soundness::Whole);
        }
        let mut is_whole = true;
        for slice in content.slices() {
            let known = self.chunks.entry(slice.chunk);
            let found = known.or_insert_with(|| match fetch_stored(source, &slice.chunk) {
                Ok(_) => Soundness::Whole,
                Err(ChunkError::Damaged { .. }) => Soundness::Rotten,
                Err(_) => Soundness::Lost,
            });
            is_whole &= *found == Soundness::Whole;
        }
        Ok(is_whole)
    }

    /// Has everything read again that was found damaged while others could change it.
    fn forget_damaged(&mut self) {
        self.versions.retain(|_, found| *found == Soundness::Whole);
        self.chunks.retain(|_, found| *found == Soundness::Whole);
    }
}
