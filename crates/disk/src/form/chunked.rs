//! A tree as chunks and a list: what is stored once is never stored again.
//!
//! [`save`] reads a tree and gives chunks to a [`ChunkSink`]; [`restore`] takes them from a [`ChunkSource`]. Workers read,
//! hash and compress; sinks and sources only move bytes. Where names come from, and when a list may be published, is not
//! decided here.

mod codec;
pub mod copy;
pub mod databases;
mod encoder;
mod lately;
pub mod list;
pub mod list_cache;
pub mod read_ahead;
pub mod restore;
pub(crate) mod same;
pub mod save;
mod scan;
mod table;
pub mod tar;

pub use codec::ChunkCodec;
pub use encoder::ChunkEncoder;

use crate::tree::walk::WalkError;
use crate::tree::write::TreeWriteError;
use rustix::io::Errno;
use stasis_model::digest::{ChunkDigest, FileDigest};
use stasis_model::failure::Failure;
use stasis_model::format::chunk::other_payload;
use stasis_model::invalid::Invalid;
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::EntryPath;
use stasis_model::tree::list::Slice;
use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Where a chunk is to be used, and whether its bytes are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacedChunk {
    /// The name to use.
    pub name: ChunkName,
    /// Whether the bytes are there already, or on their way.
    pub is_stored: bool,
}

/// How closely a chunk that is to be used again is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkLook {
    /// Whether it is there.
    Exists,
    /// Whether its bytes are what its name says, where they can be read cheaply; elsewhere whether it is there.
    Whole,
}

/// A chunk, ready to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodedChunk {
    /// Under which name.
    pub name: ChunkName,
    /// Header and payload.
    pub bytes: Vec<u8>,
}

/// Where chunks go. Called by several workers at once.
pub trait ChunkSink: Sync {
    /// How chunks are named and stored where they go.
    fn codec(&self) -> &ChunkCodec;

    /// Says where a chunk is to be used; `known` is the name that a snapshot in the index has for it.
    fn place(
        &self,
        digest: ChunkDigest,
        known: Option<ChunkName>,
    ) -> Result<PlacedChunk, ChunkError>;

    /// The same for a chunk of a list, which a sink should not take for stored before it has looked at the bytes: damage
    /// there hurts every entry, and a later save of the same tree would rely on it again.
    fn place_list(
        &self,
        digest: ChunkDigest,
        known: Option<ChunkName>,
    ) -> Result<PlacedChunk, ChunkError> {
        self.place(digest, known)
    }

    /// Whether a chunk that an earlier snapshot refers to can be referred to again. Asked by whoever has just read the bytes
    /// that lie in it, and could store them anew. A sink that does not look trusts what was stored.
    fn holds(&self, _name: &ChunkName, _look: ChunkLook) -> Result<bool, ChunkError> {
        Ok(true)
    }

    /// The chunks that had a name here and must not be used under it any more, all of them since the beginning: gc has
    /// overtaken whoever stores them. Asked when everything was gathered, until it says no more; whoever uses such a name places its bytes once more.
    fn overtaken(&self) -> Result<HashSet<ChunkName>, ChunkError> {
        Ok(HashSet::new())
    }

    /// Takes a chunk. It is durable only when the sink is finished with, which is not our affair.
    fn put(&self, chunk: EncodedChunk) -> Result<(), ChunkError>;
}

/// Where chunks come from. Called by several workers at once.
pub trait ChunkSource: Sync {
    /// How chunks are named and stored where they come from.
    fn codec(&self) -> &ChunkCodec;

    /// The stored bytes of a chunk.
    fn fetch(&self, name: &ChunkName) -> Result<Vec<u8>, ChunkError>;

    /// The version of a file that is held whole, opened to be read. A source of chunks alone has none.
    fn version(&self, digest: &FileDigest) -> Result<OwnedFd, ChunkError> {
        Err(ChunkError::NoVersion(*digest))
    }
}

/// Where versions of files are held whole, each as a clone that does not change any more. Called by several workers at once.
pub trait VersionSink: Sync {
    /// Clones an open file; nothing where it cannot be cloned to where versions are held.
    fn clone_file(&self, file: BorrowedFd<'_>, size: u64) -> io::Result<Option<ClonedVersion>>;

    /// Whether a version of that length is held already; nobody looks at what is in it.
    fn holds(&self, digest: &FileDigest, size: u64) -> bool;

    /// All versions that are held already.
    fn held(&self) -> Result<HashSet<FileDigest>, ChunkError>;

    /// Holds a clone under the digest of its content, in the place of one that is held already.
    fn hold(&self, cloned: ClonedVersion, digest: &FileDigest) -> io::Result<()>;
}

/// What is wrong with a version of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VersionDamage {
    /// It is not there.
    Missing,
    /// It is longer or shorter than it was.
    Size,
    /// It holds other bytes.
    Content,
}

impl fmt::Display for VersionDamage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Missing => "is missing",
            Self::Size => "does not have its length",
            Self::Content => "does not hold what it is named for",
        })
    }
}

/// A clone of a file that has no name of its own yet.
#[derive(Debug)]
pub struct ClonedVersion {
    /// The clone, to be read.
    pub file: OwnedFd,
    /// How long it is.
    pub size: u64,
    /// Which of the clones of its sink it is.
    pub number: u64,
}

/// Why a tree was not stored in chunks, or not read from them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// It should be there.
    #[error("chunk `{0}` is missing")]
    Absent(ChunkName),
    /// It should be there, whole.
    #[error("the version of a file with the digest `{0}` is missing")]
    NoVersion(FileDigest),
    /// A file that is held whole cannot be given back as it was.
    #[error("`{path}` cannot be given back: its version `{digest}` {damage}")]
    LostVersion {
        /// The file.
        path: EntryPath,
        /// What it held.
        digest: FileDigest,
        /// What is wrong with what is held of it.
        damage: VersionDamage,
    },
    /// It is not what its name says.
    #[error("chunk `{name}` is damaged")]
    Damaged {
        /// Which.
        name: ChunkName,
        /// How.
        #[source]
        source: Invalid,
    },
    /// A list in it is not one.
    #[error("chunk `{name}` holds a list that cannot be used")]
    List {
        /// Which.
        name: ChunkName,
        /// Why not.
        #[source]
        source: Invalid,
    },
    /// Whoever moves bytes could not.
    #[error("could not move chunk `{name}`")]
    Moving {
        /// Which.
        name: ChunkName,
        /// Why not.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The tree could not be read.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// The system has no means to compress.
    #[error("could not prepare the compression of chunks")]
    Tools(#[source] io::Error),
    /// The tree could not be written.
    #[error(transparent)]
    Write(#[from] TreeWriteError),
    /// The entries of the snapshot are not a tree.
    #[error("the snapshot's entry `{path}` cannot be written")]
    Unfit {
        /// Which entry.
        path: EntryPath,
        /// Why not.
        #[source]
        source: Invalid,
    },
    /// Nothing of that name is in the snapshot.
    #[error("there is no `{0}` in the snapshot")]
    NoSuchEntry(EntryPath),
}

impl From<Failure> for ChunkError {
    /// What the system refuses is a file of the tree.
    fn from(failure: Failure) -> Self {
        Self::Walk(failure.into())
    }
}

/// The plaintext of a chunk, checked against its name.
pub fn fetch(source: &dyn ChunkSource, name: &ChunkName) -> Result<Vec<u8>, ChunkError> {
    let stored = source.fetch(name)?;
    source.codec().open(name, &stored)
}

/// The bytes of a slice, of a chunk that was checked against its name.
pub fn cut_out<'c>(chunk: &'c [u8], slice: &Slice) -> Result<&'c [u8], ChunkError> {
    let (from, length) = (slice.offset as usize, slice.length as usize);
    let lies = chunk.len() == slice.chunk.plain_len as usize;
    let bytes = chunk.get(from..from + length).filter(|_| lies);
    bytes.ok_or_else(|| ChunkError::Damaged {
        name: slice.chunk.name,
        source: other_payload(),
    })
}

/// Whether the filesystem says that it cannot read what is stored: that is rot, where bytes have checksums.
pub(crate) fn is_rot(error: &(dyn Error + 'static)) -> bool {
    let rot = [Errno::IO, Errno::UCLEAN, Errno::BADMSG];
    let mut causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.any(|cause| {
        let code = cause.downcast_ref::<io::Error>();
        let code = code.and_then(Errno::from_io_error);
        let code = code.or_else(|| cause.downcast_ref::<Errno>().copied());
        code.is_some_and(|code| rot.contains(&code))
    })
}

#[cfg(test)]
mod tests;
