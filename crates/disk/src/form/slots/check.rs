//! Whether a checkpoint is what it was when it was made: every byte of it is read.
//!
//! 1. read everything, without a lock: what checkpoints share is read once   2. a version or chunk that is lost and that the live tree
//!    still has is taken from there ([`heal`](super::heal)), read, and made durable   3. under the lock: is it the same checkpoint still?
//!    what was taken gets its name; whatever else looked damaged is looked at again, so that nothing that was replaced meanwhile is called so   4. what is proven
//!    to hold other bytes, or cannot be read, is set aside: `damaged-<64 hex digits>`, beside the others
//!
//! *Always true:* what is taken again was read, and has the digest that it is named for. What was set aside is missing from then on, so that
//! nothing is made of it, and the next checkpoint whose tree has it stores it again.

use super::error::SlotError;
use super::heal::Retaken;
use super::{Manifest, Pool, StatCache, manifest, measure, packed};
use crate::form::chunked::list::ListReader;
use crate::form::chunked::restore::fetch_stored;
use crate::form::chunked::{ChunkError, ChunkSource, is_rot, same};
use crate::fs::fd::open_dir;
use crate::fs::metadata::Seen;
use crate::progress::Progress;
use crate::tree::walk::WalkSettings;
use stasis_model::digest::{ChunkDigest, FileDigest};
use stasis_model::failure::AtPath;
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::list::{FileContent, Slice, StoredChunk};
use stasis_model::tree::{EntryKind, EntryPath};
use stasis_model::workspace::{Occupant, Slot, SlotMetadata};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

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
    /// Live files that are not what was lost at their place, as they were seen.
    pub(super) refused: HashMap<(EntryPath, FileDigest), Seen>,
    ahead: ReadAhead,
}

/// What is still to be read, with the bytes that each takes of the disk, and who hears of it.
#[derive(Debug, Default)]
struct ReadAhead {
    versions: HashMap<FileDigest, u64>,
    chunks: HashMap<ChunkDigest, u64>,
    progress: Arc<Progress>,
}

impl ReadAhead {
    /// Says that a version was read, the first time that it was.
    fn has_version(&mut self, digest: &FileDigest) {
        let bytes = self.versions.remove(digest);
        self.is_done(bytes);
    }

    /// The same of a chunk.
    fn has_chunk(&mut self, name: &ChunkName) {
        let bytes = self.chunks.remove(&name.digest());
        self.is_done(bytes);
    }

    fn is_done(&self, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            self.progress.advance(1, bytes);
        }
    }
}

/// What a look at all of a checkpoint found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "what is lost is said only here"]
pub struct CheckedSlot {
    /// The files that cannot be given back as they were.
    pub lost: Vec<EntryPath>,
    /// The files that could not, and can again.
    pub healed: Vec<EntryPath>,
    /// Why lost files could not be taken again, or not be set aside.
    pub problem: Option<String>,
}

/// A file that cannot be given back, or whose fingerprints are damaged.
pub(super) struct LostFile {
    pub(super) path: EntryPath,
    pub(super) size: u64,
    pub(super) content: FileContent,
}

impl Pool {
    /// Begins to read all checkpoints, and says how much that is: what they share counts once. Those that cannot say what they need
    /// count nothing.
    pub fn begin_check(&self) -> Result<CheckedContent, SlotError> {
        let progress = self.settings.progress.clone();
        let costs = self.chunks.costs()?;
        let mut ahead = ReadAhead::default();
        for one in self.list()?.iter().filter_map(Occupant::known) {
            let home = self.home_of(one);
            if !one.form.is_list() {
                progress.expect(one.files_count, one.bytes);
                continue;
            }
            for digest in measure::named(&home).unwrap_or_default() {
                let cost = costs.get(&digest).copied().unwrap_or_default();
                ahead.chunks.insert(digest, cost);
            }
            let versions = self.chunks.versions();
            let named = open_dir(&home).ok();
            let named = named.and_then(|slot| versions.named(slot.as_fd(), Some(one.form)));
            if let Some(named) = named {
                ahead.versions.extend(named.rows().iter().copied());
            }
        }
        let all = ahead.versions.values().chain(ahead.chunks.values());
        let bytes = all.clone().fold(0_u64, |sum, one| sum.saturating_add(*one));
        progress.expect(all.count() as u64, bytes);
        ahead.progress = progress;
        Ok(CheckedContent {
            ahead,
            ..CheckedContent::default()
        })
    }

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
            checked.ahead.progress.advance(of.files_count, of.bytes);
            // Whatever was found while it went is not to be believed.
            let _lock = self.lock()?;
            self.still(of)?;
            return Ok(CheckedSlot {
                lost: lost?,
                ..CheckedSlot::default()
            });
        }
        let first = match self.read_all(of, checked) {
            Ok(lost) if lost.is_empty() => {
                self.still(of)?;
                return Ok(CheckedSlot::default());
            }
            first => first.ok(),
        };
        // Cloned and read while others go on.
        let taken = first.as_ref();
        let taken = taken.map(|lost| self.take_again(lost, live, checked));
        let _lock = self.lock()?;
        self.still(of)?;
        checked.forget_damaged();
        let (lost, taken) = if let (Some(lost), Some(taken)) = (first, taken) {
            (lost, taken)
        } else {
            let lost = self.read_again(of, checked)?;
            let taken = self.take_again(&lost, live, checked);
            (lost, taken)
        };
        self.settle(lost, taken, checked)
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

    /// Whether everything is there that a checkpoint is made of; nobody looks at what is in it.
    pub fn has_all(&self, of: &SlotMetadata) -> Result<bool, SlotError> {
        if !of.form.is_list() {
            return Ok(true);
        }
        let home = self.home_of(of);
        if self.problem(of).is_some() || !self.missing_chunks(of)?.is_empty() {
            return Ok(false);
        }
        let slot = open_dir(&home).at("open the checkpoint", &home)?;
        let versions = self.chunks.versions();
        let Some(named) = versions.named(slot.as_fd(), Some(of.form)) else {
            return Ok(false);
        };
        let held: HashSet<FileDigest> = versions.list()?.into_iter().collect();
        let mut named = named.rows().iter();
        Ok(named.all(|(digest, _)| held.contains(digest)))
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
        let document = packed::document(&self.home_of(of), of)?;
        let entries = document.list()?;
        let mut reader = ListReader::new(&self.chunks, &entries)?;
        let mut lost = Vec::new();
        while let Some(row) = reader.next_row()? {
            if let (EntryKind::File { size }, Some(content)) = (row.entry.kind, row.content)
                && !(checked.is_whole(&self.chunks, &content)?
                    & checked.has_fingerprints(&self.chunks, &content))
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

    /// The same under the lock: what is damaged now is damaged.
    fn read_again(
        &self,
        of: &SlotMetadata,
        checked: &mut CheckedContent,
    ) -> Result<Vec<LostFile>, SlotError> {
        let read = self.read_all(of, checked);
        if let Err(SlotError::Chunks(error)) = &read
            && let Some(name) = unreadable_chunk(error)
        {
            // A list that is rotten must not be taken for stored by the next one. That it is rotten is the failure to tell.
            let _ = self.chunks.set_aside(&name);
            let _ = self.chunks.sync_aside();
        }
        read
    }

    /// Gives what was taken again its names, and sets aside what is rotten. Under the lock. What cannot be done is said, and hides
    /// nothing of what is lost.
    fn settle(
        &self,
        lost: Vec<LostFile>,
        mut taken: Retaken<'_>,
        checked: &mut CheckedContent,
    ) -> Result<CheckedSlot, SlotError> {
        let mut result = CheckedSlot::default();
        if let Some(incoming) = taken.incoming.take()
            && !taken.is_empty()
        {
            match incoming.give_names() {
                Ok(()) => {
                    for digest in &taken.versions {
                        self.chunks.versions().remove_aside(digest);
                        checked.versions.insert(*digest, Soundness::Whole);
                    }
                    for chunk in &taken.chunks {
                        self.chunks.remove_aside(&chunk.name);
                        checked.chunks.insert(*chunk, Soundness::Whole);
                    }
                }
                // Some may have theirs: they are read again.
                Err(error) => taken.failed(&error),
            }
        }
        let mut is_any_aside = false;
        for one in lost {
            let is_whole = checked.is_whole(&self.chunks, &one.content)?;
            // A file comes back without its fingerprints, which the next checkpoint stores anew once rotten ones are out of the way.
            let has_fingerprints = checked.has_fingerprints(&self.chunks, &one.content);
            if is_whole && taken.has_part_of(&one.content) {
                result.healed.push(one.path.clone());
            }
            if is_whole && has_fingerprints {
                continue;
            }
            match self.set_aside(&one.content, checked) {
                Ok(is_aside) => is_any_aside |= is_aside,
                Err(error) => taken.failed(&error),
            }
            if !is_whole {
                result.lost.push(one.path);
            }
        }
        if is_any_aside && let Err(error) = self.chunks.sync_aside() {
            taken.failed(&error);
        }
        result.problem = taken.problem.filter(|_| !result.lost.is_empty());
        Ok(result)
    }

    /// Moves what is rotten of a content out of the way, so that nothing is made of it; says whether there was anything.
    fn set_aside(
        &self,
        content: &FileContent,
        checked: &mut CheckedContent,
    ) -> Result<bool, SlotError> {
        if content.is_version() {
            if let Some(found @ Soundness::Rotten) = checked.versions.get_mut(&content.digest) {
                self.chunks.versions().set_aside(&content.digest)?;
                *found = Soundness::Lost;
                return Ok(true);
            }
            return Ok(false);
        }
        let mut is_any = false;
        for slice in content.slices() {
            if let Some(found @ Soundness::Rotten) = checked.chunks.get_mut(&slice.chunk) {
                self.chunks.set_aside(&slice.chunk.name)?;
                *found = Soundness::Lost;
                is_any = true;
            }
        }
        Ok(is_any)
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

/// The chunk that is there and cannot be used.
fn unreadable_chunk(error: &ChunkError) -> Option<ChunkName> {
    match error {
        ChunkError::Damaged { name, .. } => Some(*name),
        ChunkError::Moving { name, source } if is_rot(&**source) => Some(*name),
        _ => None,
    }
}

/// How a version is. What cannot be read is read once more before it is called rotten.
fn look_at_version(source: &dyn ChunkSource, digest: &FileDigest) -> Result<Soundness, ChunkError> {
    let read = || {
        let version = source.version(digest)?;
        Ok::<_, ChunkError>(same::digest(version).map_err(io::Error::from))
    };
    let is_rotten = |read: &Result<io::Result<FileDigest>, ChunkError>| match read {
        Ok(Ok(_)) => false,
        Ok(Err(error)) => is_rot(error),
        Err(error) => is_rot(error),
    };
    let first = read();
    let last = if is_rotten(&first) { read() } else { first };
    if is_rotten(&last) {
        return Ok(Soundness::Rotten);
    }
    match last {
        Ok(Ok(found)) if found == *digest => Ok(Soundness::Whole),
        Ok(Ok(_)) => Ok(Soundness::Rotten),
        Ok(Err(_)) | Err(ChunkError::NoVersion(_)) => Ok(Soundness::Lost),
        Err(error) => Err(error),
    }
}

fn look_at_chunk(source: &dyn ChunkSource, chunk: &StoredChunk) -> Soundness {
    // The second time what cannot be read is rotten.
    let read = fetch_stored(source, chunk).or_else(|_| fetch_stored(source, chunk));
    match read {
        Ok(_) => Soundness::Whole,
        Err(error) if unreadable_chunk(&error).is_some() => Soundness::Rotten,
        Err(_) => Soundness::Lost,
    }
}

impl CheckedContent {
    /// Ends it: what no file lies in, such as the chunks of lists, was read with the lists, or went meanwhile.
    pub fn finish(&mut self) {
        let ReadAhead {
            versions,
            chunks,
            progress,
        } = std::mem::take(&mut self.ahead);
        for bytes in versions.into_values().chain(chunks.into_values()) {
            progress.advance(1, bytes);
        }
    }

    /// Whether everything is there that it takes to give a file back, and is what it should be.
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
            let found = look_at_version(source, &digest)?;
            self.ahead.has_version(&digest);
            self.versions.insert(digest, found);
            return Ok(found == Soundness::Whole);
        }
        Ok(self.are_whole(source, content.stored()))
    }

    /// Whether the fingerprints of a file are there that it may be compared by, and are what they should be.
    fn has_fingerprints(&mut self, source: &dyn ChunkSource, content: &FileContent) -> bool {
        self.are_whole(source, content.pieces.iter())
    }

    /// Looks at all of them.
    fn are_whole<'s>(
        &mut self,
        source: &dyn ChunkSource,
        slices: impl Iterator<Item = &'s Slice>,
    ) -> bool {
        let mut are_whole = true;
        for slice in slices {
            let (known, ahead) = (self.chunks.entry(slice.chunk), &mut self.ahead);
            let found = known.or_insert_with(|| {
                let found = look_at_chunk(source, &slice.chunk);
                ahead.has_chunk(&slice.chunk.name);
                found
            });
            are_whole &= *found == Soundness::Whole;
        }
        are_whole
    }

    /// Whether a chunk was read, and is what it should be.
    pub(super) fn is_whole_chunk(&self, chunk: &StoredChunk) -> bool {
        self.chunks.get(chunk) == Some(&Soundness::Whole)
    }

    /// Has everything read again that was found damaged while others could change it.
    fn forget_damaged(&mut self) {
        self.versions.retain(|_, found| *found == Soundness::Whole);
        self.chunks.retain(|_, found| *found == Soundness::Whole);
    }
}
