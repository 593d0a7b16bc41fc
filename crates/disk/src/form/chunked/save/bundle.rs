//! Small files side by side, until they are a chunk.

use super::plan::ReadFile;
use stasis_model::digest::FileDigest;
use stasis_model::tree::chunking::ends_bundle;
use std::collections::HashMap;

/// A file whose place in the bundle is known, but not yet the bundle's.
pub(super) struct PendingFile {
    pub(super) job: usize,
    pub(super) digest: FileDigest,
    pub(super) offset: u32,
    pub(super) done: ReadFile,
}

/// A bundle that is being filled.
#[derive(Default)]
pub(super) struct Bundle {
    bytes: Vec<u8>,
    offsets: HashMap<FileDigest, u32>,
    pub(super) pending: Vec<PendingFile>,
}

impl Bundle {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a file and says where it is; a content that is in already is not added again.
    pub(super) fn add(&mut self, digest: &FileDigest, bytes: &[u8]) -> u32 {
        *self.offsets.entry(*digest).or_insert_with(|| {
            let offset =
                u32::try_from(self.bytes.len()).expect("a bundle is no longer than a chunk");
            self.bytes.extend_from_slice(bytes);
            offset
        })
    }

    /// Whether it ends after a file that was just added.
    pub(super) fn is_full(&self, digest: &FileDigest, length: usize) -> bool {
        ends_bundle(self.bytes.len(), length, digest.as_bytes())
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.offsets.clear();
    }
}
