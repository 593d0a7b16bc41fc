//! A checkpoint that is a list, read entry by entry and range by range where it is kept.

use super::chunks::Chunks;
use super::{Pool, SlotError};
use crate::form::chunked::{ChunkCodec, ChunkError, ChunkSource};
use stasis_model::digest::FileDigest;
use stasis_model::format::manifest::SnapshotManifest;
use stasis_model::protocol::gc::ChunkName;
use stasis_model::workspace::SlotMetadata;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a checkpoint says of its tree, and where the files of that come from. What goes with the checkpoint meanwhile is missing then.
#[derive(Clone, Debug)]
pub struct CheckpointReader {
    document: Arc<SnapshotManifest>,
    chunks: Arc<Chunks>,
}

impl CheckpointReader {
    /// What it says of its tree.
    pub fn document(&self) -> &SnapshotManifest {
        &self.document
    }
}

impl Pool {
    /// A checkpoint to be read; nothing where it is a directory of its own.
    pub fn reader(&self, of: &SlotMetadata) -> Result<Option<CheckpointReader>, SlotError> {
        if !of.form.is_list() {
            return Ok(None);
        }
        Ok(Some(CheckpointReader {
            document: Arc::new(self.document(of)?),
            chunks: Arc::new(Chunks::open(&self.session)?),
        }))
    }
}

impl ChunkSource for CheckpointReader {
    fn codec(&self) -> &ChunkCodec {
        ChunkSource::codec(&*self.chunks)
    }

    fn fetch(&self, name: &ChunkName) -> Result<Vec<u8>, ChunkError> {
        self.chunks.fetch(name)
    }

    fn version(&self, digest: &FileDigest) -> Result<OwnedFd, ChunkError> {
        self.chunks.version(digest)
    }
}
