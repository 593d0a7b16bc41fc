//! The list of a snapshot's entries: binary, sorted by path, in sections.
//!
//! A section holds some two hundred entries, front-coded, and a table of the chunks they lie in, so that its bytes depend
//! on nothing but its entries: an unchanged stretch of a tree gives the same section in every snapshot. Sections are
//! stored like small files, as slices of bundles; the *root* says where each lies. A walk can be joined with a list in
//! constant memory, one section at a time.
//!
//! *Always true of what was read:* paths ascend strictly, across sections too; the extents of a file add up to its size
//! and lie within their chunks; nothing follows the last entry.

mod root;
mod section;
mod wire;

pub use root::{ListRoot, SectionPlace};
pub use section::{SectionWriter, read_section, section_chunks};
pub(crate) use wire::bad_number;

use crate::chunk_name::ChunkName;
use crate::digest::FileDigest;
use crate::tree::diff::{ContentChange, EntryDifference, TreeItem};
use crate::tree::{Entry, EntryPath};

/// A chunk as a list refers to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StoredChunk {
    /// Where it lies.
    pub name: ChunkName,
    /// How long its plaintext is.
    pub plain_len: u32,
}

/// A stretch of a chunk's plaintext.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// Which chunk.
    pub chunk: StoredChunk,
    /// Where in it.
    pub offset: u32,
    /// How many bytes.
    pub length: u32,
}

impl Slice {
    /// The whole chunk.
    pub fn whole(chunk: StoredChunk) -> Self {
        let length = chunk.plain_len;
        Self {
            chunk,
            offset: 0,
            length,
        }
    }
}

/// No file is larger: what every filesystem that trees are restored to can hold (ext4 with blocks of 4 KiB).
pub const FILE_MAX: u64 = (1 << 44) - (1 << 12);

/// A stretch of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extent {
    /// Bytes that are all zero and stored nowhere.
    Hole(u64),
    /// Bytes that lie in a chunk.
    Stored(Slice),
    /// All bytes of the file: a version of it that is held whole, under the file's digest. Only the checkpoints of a workspace have
    /// such files; a store holds none.
    Version(u64),
}

impl Extent {
    /// How many bytes of the file it is.
    pub fn length(&self) -> u64 {
        match self {
            Self::Hole(length) | Self::Version(length) => *length,
            Self::Stored(slice) => slice.length.into(),
        }
    }
}

/// What is in a file, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileContent {
    /// What it is.
    pub digest: FileDigest,
    /// Where it lies, in order.
    pub extents: Vec<Extent>,
    /// The fingerprints of its blocks, for a file that may be compared block by block: their layout, then their tables.
    pub pieces: Vec<Slice>,
}

impl FileContent {
    /// All slices, those of the fingerprints last.
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.stored().chain(&self.pieces)
    }

    /// The slices that it takes to give the file back.
    pub fn stored(&self) -> impl Iterator<Item = &Slice> {
        self.extents.iter().filter_map(|extent| match extent {
            Extent::Stored(slice) => Some(slice),
            Extent::Hole(_) | Extent::Version(_) => None,
        })
    }

    /// A file of `size` bytes that is held whole, under its digest.
    pub fn version(digest: FileDigest, size: u64) -> Self {
        Self {
            digest,
            extents: vec![Extent::Version(size)],
            pieces: Vec::new(),
        }
    }

    /// Whether the file is held whole, under its digest.
    pub fn is_version(&self) -> bool {
        matches!(*self.extents, [Extent::Version(_)])
    }

    /// Its extents, to be looked up by where they lie in the file.
    pub fn stretches(&self) -> Stretches<'_> {
        let starts = self.extents.iter().scan(0, |at, extent| {
            let start = *at;
            *at += extent.length();
            Some(start)
        });
        Stretches {
            extents: &self.extents,
            starts: starts.collect(),
        }
    }
}

/// The extents of a file with the places where they begin.
#[derive(Clone, Debug)]
pub struct Stretches<'c> {
    extents: &'c [Extent],
    starts: Vec<u64>,
}

impl Stretches<'_> {
    /// The extents of a stretch of the file; beyond its end there is nothing.
    pub fn get(&self, from: u64, length: u64) -> Vec<Extent> {
        let until = from.saturating_add(length);
        let first = self.starts.partition_point(|start| *start <= from);
        let first = first.saturating_sub(1);
        let mut stretch = Vec::new();
        for (extent, start) in self.extents[first..].iter().zip(&self.starts[first..]) {
            let (from, until) = (from.max(*start), until.min(start + extent.length()));
            if *start >= until {
                break;
            }
            if from >= until {
                continue;
            }
            let clipped = until - from;
            stretch.push(match extent {
                Extent::Hole(_) => Extent::Hole(clipped),
                Extent::Version(_) => Extent::Version(clipped),
                Extent::Stored(slice) => Extent::Stored(Slice {
                    chunk: slice.chunk,
                    offset: slice.offset + u32::try_from(from - start).unwrap_or(u32::MAX),
                    length: u32::try_from(clipped).unwrap_or(u32::MAX),
                }),
            });
        }
        stretch
    }
}

/// Appends an extent; one that continues the last is joined with it.
pub fn append(extents: &mut Vec<Extent>, more: Extent) {
    match (extents.last_mut(), more) {
        (_, more) if more.length() == 0 => {}
        (Some(Extent::Hole(length)), Extent::Hole(more)) => *length += more,
        (Some(Extent::Stored(last)), Extent::Stored(next))
            if last.chunk == next.chunk && last.offset + last.length == next.offset =>
        {
            last.length += next.length;
        }
        (_, more) => extents.push(more),
    }
}

/// One entry of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListRow {
    /// What it is.
    pub entry: Entry,
    /// What is in it; only files have content.
    pub content: Option<FileContent>,
}

impl TreeItem for ListRow {
    fn path(&self) -> &EntryPath {
        &self.entry.path
    }
}

impl ListRow {
    /// In what a newer entry of the same path differs.
    pub fn difference(&self, newer: &Self) -> Option<EntryDifference> {
        let digest = |row: &Self| row.content.as_ref().map(|content| content.digest);
        EntryDifference::between(&self.entry, &newer.entry, || {
            if digest(self) == digest(newer) {
                ContentChange::Same
            } else {
                ContentChange::Changed
            }
        })
    }
}

#[cfg(test)]
mod tests;
