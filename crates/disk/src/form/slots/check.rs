//! Whether a checkpoint is what it was when it was made: every byte of it is read.

use super::error::SlotError;
use super::{Manifest, Pool, StatCache, manifest, packed};
use crate::form::chunked::list::ListReader;
use crate::form::chunked::restore::fetch_stored;
use crate::form::chunked::{ChunkError, ChunkSource, same};
use crate::tree::walk::WalkSettings;
use stasis_model::digest::FileDigest;
use stasis_model::tree::list::{FileContent, StoredChunk};
use stasis_model::tree::{EntryKind, EntryPath};
use stasis_model::workspace::SlotMetadata;
use std::collections::HashMap;
use std::path::Path;

/// What was read already: what checkpoints share is read once.
#[derive(Debug, Default)]
pub struct CheckedContent {
    versions: HashMap<FileDigest, bool>,
    chunks: HashMap<StoredChunk, bool>,
}

impl Pool {
    /// The files of a checkpoint that cannot be given back as they were; an error if not even its list can be read.
    pub fn check(
        &self,
        of: &SlotMetadata,
        checked: &mut CheckedContent,
    ) -> Result<Vec<EntryPath>, SlotError> {
        if !of.form.is_list() {
            return self.check_tree(of);
        }
        let document = packed::document(&self.home_of(of))?;
        let list = document.list()?;
        let mut reader = ListReader::new(&self.chunks, &list)?;
        let mut damaged = Vec::new();
        while let Some(row) = reader.next_row()? {
            if let (EntryKind::File { .. }, Some(content)) = (&row.entry.kind, &row.content)
                && !checked.is_whole(&self.chunks, content)?
            {
                damaged.push(row.entry.path);
            }
        }
        self.still(of)?;
        Ok(damaged)
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
                return Ok(*known);
            }
            let is_whole = match source.version(&digest) {
                Ok(version) => same::holds(version, &digest),
                Err(ChunkError::NoVersion(_)) => false,
                Err(error) => return Err(error),
            };
            self.versions.insert(digest, is_whole);
            return Ok(is_whole);
        }
        let mut is_whole = true;
        for slice in content.slices() {
            let known = self.chunks.entry(slice.chunk);
            is_whole &= *known.or_insert_with(|| fetch_stored(source, &slice.chunk).is_ok());
        }
        Ok(is_whole)
    }
}
