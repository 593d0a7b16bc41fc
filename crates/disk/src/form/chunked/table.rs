//! Contents of a million files, in as little memory as they need.

use stasis_model::digest::{ChunkDigest, FileDigest};
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::list::{Extent, FileContent, Slice, StoredChunk};
use std::collections::{HashMap, HashSet};

/// The content of a file; most files are one slice of one bundle.
#[derive(Clone, Debug)]
pub(super) enum StoredContent {
    /// Nothing, or one slice that is all of it.
    One {
        digest: FileDigest,
        chunk: u32,
        offset: u32,
    },
    /// All of it, held as one version.
    Version(FileDigest),
    /// Anything else.
    Many(Box<FileContent>),
}

/// The chunks that contents lie in, each kept once.
#[derive(Debug, Default)]
pub(super) struct ChunkTable {
    chunks: Vec<StoredChunk>,
    places: HashMap<StoredChunk, u32>,
    names: HashMap<ChunkDigest, ChunkName>,
}

impl ChunkTable {
    /// The number of a chunk.
    pub(super) fn number(&mut self, chunk: StoredChunk) -> u32 {
        *self.places.entry(chunk).or_insert_with(|| {
            self.chunks.push(chunk);
            u32::try_from(self.chunks.len() - 1).expect("there are fewer chunks than that")
        })
    }

    /// The number of a chunk, if it has one.
    pub(super) fn find(&self, chunk: &StoredChunk) -> Option<u32> {
        self.places.get(chunk).copied()
    }

    /// The chunk with this number.
    pub(super) fn get(&self, number: u32) -> &StoredChunk {
        &self.chunks[number as usize]
    }

    /// The chunks that have one of these names, with their numbers.
    pub(super) fn named(&self, names: &HashSet<ChunkName>) -> Vec<(u32, StoredChunk)> {
        let all = self.chunks.iter().zip(0_u32..);
        let found = all.filter(|(chunk, _)| names.contains(&chunk.name));
        found.map(|(chunk, number)| (number, *chunk)).collect()
    }

    /// How many chunks have numbers.
    pub(super) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Adds what a file of `size` bytes uses of each chunk to `used`.
    pub(super) fn usage(&mut self, content: &StoredContent, size: u64, used: &mut Vec<u64>) {
        let mut add = |number: u32, bytes: u64| {
            let number = number as usize;
            if used.len() <= number {
                used.resize(number + 1, 0);
            }
            used[number] += bytes;
        };
        match content {
            StoredContent::One { chunk, .. } if size > 0 => add(*chunk, size),
            StoredContent::One { .. } | StoredContent::Version(_) => {}
            StoredContent::Many(content) => {
                for extent in &content.extents {
                    if let Extent::Stored(slice) = extent {
                        add(self.number(slice.chunk), slice.length.into());
                    }
                }
                // Fingerprints stay where they are, however little of their chunk is used.
                for slice in &content.pieces {
                    add(self.number(slice.chunk), slice.chunk.plain_len.into());
                }
            }
        }
    }

    /// Remembers a name that a snapshot in the index has.
    pub(super) fn know(&mut self, chunk: StoredChunk) {
        self.names.insert(chunk.name.digest(), chunk.name);
    }

    /// All names that snapshots in the index have.
    pub(super) fn names(&self) -> impl Iterator<Item = ChunkName> {
        self.names.values().copied()
    }

    /// The name that a snapshot in the index has for a chunk.
    pub(super) fn known(&self, digest: &ChunkDigest) -> Option<ChunkName> {
        self.names.get(digest).copied()
    }

    pub(super) fn pack(&mut self, content: FileContent) -> StoredContent {
        let FileContent {
            digest,
            extents,
            pieces,
        } = &content;
        match (&extents[..], &pieces[..]) {
            ([], []) => StoredContent::One {
                digest: *digest,
                chunk: 0,
                offset: 0,
            },
            ([Extent::Version(_)], []) => StoredContent::Version(*digest),
            ([Extent::Stored(slice)], []) => StoredContent::One {
                digest: *digest,
                chunk: self.number(slice.chunk),
                offset: slice.offset,
            },
            _ => {
                for slice in content.slices() {
                    self.number(slice.chunk);
                }
                StoredContent::Many(Box::new(content))
            }
        }
    }

    /// The content of a file of `size` bytes.
    pub(super) fn unpack(&self, content: &StoredContent, size: u64) -> FileContent {
        match content {
            StoredContent::Many(content) => (**content).clone(),
            StoredContent::Version(digest) => FileContent::version(*digest, size),
            StoredContent::One { digest, .. } if size == 0 => FileContent {
                digest: *digest,
                extents: Vec::new(),
                pieces: Vec::new(),
            },
            StoredContent::One {
                digest,
                chunk,
                offset,
            } => FileContent {
                digest: *digest,
                extents: vec![Extent::Stored(Slice {
                    chunk: self.chunks[*chunk as usize],
                    offset: *offset,
                    length: u32::try_from(size).expect("one slice is shorter than a chunk"),
                })],
                pieces: Vec::new(),
            },
        }
    }
}

impl StoredContent {
    pub(super) fn digest(&self) -> &FileDigest {
        match self {
            Self::One { digest, .. } | Self::Version(digest) => digest,
            Self::Many(content) => &content.digest,
        }
    }
}
