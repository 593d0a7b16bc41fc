//! What makes two trees the same tree: a digest of the canonical list of their entries.
//!
//! SHA-256 over `stasis tree 1` and a newline, then every entry in order, then `end` and the number of entries. All
//! numbers are little-endian; every run of bytes is preceded by its length, so no two lists are written alike.
//!
//! ```text
//! entry      = kind:1  path:bytes  facts
//! facts      = metadata attributes size:8 content:32     kind `f`: a file, content is BLAKE3 of all its bytes
//!            | metadata attributes                       kind `d`: a directory;  kind `p`: a named pipe
//!            | metadata target:bytes                     kind `l`: a symbolic link; its mode counts as 0
//!            | target:bytes                              kind `h`: another name of the file `target`, which has the facts
//! metadata   = mode:4 uid:4 gid:4 seconds:8 nanos:4
//! attributes = count:4 (name:bytes value:bytes)*         sorted by name
//! bytes      = length:4 byte*
//! ```
//!
//! Where a file has holes does not matter: they are read as zeros. Whether the root is an entry is up to whoever lists
//! the tree; it comes first then, with the empty path.

use super::{Attribute, Entry, EntryKind, EntryPath, Metadata};
use crate::digest::{FileDigest, TreeDigest};
use sha2::{Digest, Sha256};

/// A [`TreeDigest`] in the making.
#[derive(Clone, Debug)]
#[must_use = "only a finished hasher says what the tree is"]
pub struct TreeHasher {
    hasher: Sha256,
    /// What is about to be hashed, to hash it in one go.
    line: Vec<u8>,
    entries: u64,
    last: Option<EntryPath>,
}

impl Default for TreeHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl TreeHasher {
    /// Begins a list.
    pub fn new() -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"stasis tree 1\n");
        Self {
            hasher,
            line: Vec::new(),
            entries: 0,
            last: None,
        }
    }

    /// Adds an entry, which must come after all others in order.
    ///
    /// `content` is the digest of a file's content, and given for files only.
    ///
    /// # Panics
    ///
    /// When entries come out of order, or a file comes without its digest: the digest would say nothing.
    pub fn entry(&mut self, entry: &Entry, content: Option<&FileDigest>) {
        let is_in_order = self.last.as_ref().is_none_or(|last| *last < entry.path);
        assert!(is_in_order, "a tree is digested in order");
        self.line.clear();
        match &entry.kind {
            EntryKind::File { size } => {
                let content = content.expect("a file is digested with its content");
                self.head(b'f', &entry.path);
                self.metadata(&entry.metadata);
                self.attributes(&entry.attributes);
                self.line.extend_from_slice(&size.to_le_bytes());
                self.line.extend_from_slice(content.as_bytes());
            }
            EntryKind::Directory | EntryKind::Fifo => {
                let is_directory = entry.kind == EntryKind::Directory;
                self.head(if is_directory { b'd' } else { b'p' }, &entry.path);
                self.metadata(&entry.metadata);
                self.attributes(&entry.attributes);
            }
            EntryKind::Symlink { target } => {
                self.head(b'l', &entry.path);
                let mode = 0;
                self.metadata(&Metadata {
                    mode,
                    ..entry.metadata
                });
                self.bytes(target);
            }
            EntryKind::HardLink { to } => {
                self.head(b'h', &entry.path);
                self.bytes(to.as_bytes());
            }
        }
        self.hasher.update(&self.line);
        self.entries += 1;
        self.last = Some(entry.path.clone());
    }

    /// The digest of the list, which is complete.
    pub fn finish(mut self) -> TreeDigest {
        self.hasher.update(b"end");
        self.hasher.update(self.entries.to_le_bytes());
        TreeDigest::finish(self.hasher)
    }

    fn head(&mut self, kind: u8, path: &EntryPath) {
        self.line.push(kind);
        self.bytes(path.as_bytes());
    }

    fn metadata(&mut self, metadata: &Metadata) {
        let Metadata {
            mode,
            uid,
            gid,
            modified,
        } = metadata;
        for number in [mode, uid, gid] {
            self.line.extend_from_slice(&number.to_le_bytes());
        }
        self.line.extend_from_slice(&modified.seconds.to_le_bytes());
        self.line.extend_from_slice(&modified.nanos.to_le_bytes());
    }

    fn attributes(&mut self, attributes: &[Attribute]) {
        debug_assert!(attributes.is_sorted_by_key(|attribute| &attribute.name));
        self.length(attributes.len());
        for Attribute { name, value } in attributes {
            self.bytes(name);
            self.bytes(value);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.line.extend_from_slice(bytes);
    }

    fn length(&mut self, length: usize) {
        let length = u32::try_from(length).expect("names, targets and attributes are short");
        self.line.extend_from_slice(&length.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
