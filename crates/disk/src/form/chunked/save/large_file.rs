//! A large file on its way into chunks, which several workers encode.

use super::new_blocks::NewBlocks;
use crate::worker_pool::lock;
use stasis_model::digest::FileDigest;
use stasis_model::tree::list::{Extent, FileContent, Slice, StoredChunk, append};
use std::sync::{Arc, Mutex};

/// The chunks of a large file, encoded by whoever has time.
#[derive(Debug, Default)]
pub(super) struct LargeFile {
    chunks: Mutex<(Vec<Option<StoredChunk>>, usize)>,
}

impl LargeFile {
    pub(super) fn put(&self, number: usize, chunk: StoredChunk) {
        let mut chunks = lock(&self.chunks);
        chunks.0[number] = Some(chunk);
        chunks.1 -= 1;
    }

    pub(super) fn is_encoded(&self) -> bool {
        lock(&self.chunks).1 == 0
    }

    /// The number of another chunk, which somebody will encode.
    pub(super) fn expect(&self) -> usize {
        let mut chunks = lock(&self.chunks);
        chunks.0.push(None);
        chunks.1 += 1;
        chunks.0.len() - 1
    }

    fn get(&self, number: usize) -> Option<StoredChunk> {
        lock(&self.chunks).0[number]
    }
}

/// A stretch of a file whose chunk may still have to be encoded.
#[derive(Debug)]
pub(super) enum Part {
    Ready(Extent),
    Fresh {
        number: usize,
        offset: u32,
        length: u32,
    },
}

/// Appends an extent that lies where it lay; one that continues the last part is joined with it.
pub(super) fn append_ready(parts: &mut Vec<Part>, extent: Extent) {
    if let Some(Part::Ready(last)) = parts.last_mut() {
        let mut joined = vec![*last];
        append(&mut joined, extent);
        if let [one] = joined[..] {
            *last = one;
            return;
        }
    }
    parts.push(Part::Ready(extent));
}

/// A file that was read.
pub(super) struct CutFile {
    pub(super) size: u64,
    pub(super) digest: FileDigest,
    pub(super) blocks: Option<NewBlocks>,
    pub(super) parts: Vec<Part>,
    pub(super) of: Arc<LargeFile>,
}

impl CutFile {
    /// What it contains; `None` when one of its chunks was not encoded.
    pub(super) fn content(&self) -> Option<FileContent> {
        let mut extents = Vec::new();
        for part in &self.parts {
            let extent = match part {
                Part::Ready(extent) => *extent,
                Part::Fresh {
                    number,
                    offset,
                    length,
                } => Extent::Stored(Slice {
                    chunk: self.of.get(*number)?,
                    offset: *offset,
                    length: *length,
                }),
            };
            append(&mut extents, extent);
        }
        Some(FileContent {
            digest: self.digest,
            extents,
            pieces: Vec::new(),
        })
    }
}
