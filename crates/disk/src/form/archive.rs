//! One tree in one file: a deterministic `.tar.zst` in frames, with an index.
//!
//! The tar is cut into pieces of about 256 KiB, each an independent zstd frame; the index at the end, in a frame that
//! every zstd passes over, says where they are. So all cores compress and decompress, a frame whose tar bytes are in an
//! older archive is copied instead of compressed, and one file can be read without the others. Any tar that knows zstd
//! reads it. The same tree and the same [`encoder_id`] give the same bytes, whatever the number of threads.
//!
//! **Writing** ([`create`]): 1. make a temporary file beside the target   2. one reader walks the tree in order, cuts,
//! and digests; workers compress or find the frame in the base; one writer appends in order   3. index, fsync
//! 4. rename   5. fsync the directory. *Always true:* the target is what it was before or whole. A failure or a request
//! to stop removes the temporary file; a crash before 4 leaves it. A file that changes while it is read is read again;
//! if it is large, the frames it had already are taken back.
//!
//! **Reading** ([`Archive`]): nothing in the file is believed. Frames must tile it, each is checked against its digest
//! before it is parsed, and headers must be spelled exactly as we spell them. What other tars write is read as well, by
//! the same parser with fewer expectations but the same safety.
//!
//! **Receiving** ([`receive_tar`]): a tar that another system sends, as files of our own and what it says of each.
//!
//! **Encrypting** ([`encrypt`]): each frame for itself, so that all of this holds for encrypted archives too ([`EncryptedArchive`]).

mod assemble;
mod base;
mod bytes;
mod encrypted;
mod extract;
mod foreign;
mod framed;
mod frames;
pub mod fuzz;
mod header;
mod index;
mod listed;
mod names;
mod output;
mod parser;
mod pax;
mod pipeline;
mod plain;
mod problem;
mod reader;
mod reading;
mod received;
mod rules;
mod shared_frames;
mod source;
mod sparse;
mod spelling;
mod stretches;
mod tar_event;
mod unpack;
mod verify;
mod workers;
mod writer;

pub use assemble::{AssembleTarget, Assembled, assemble, assemble_encrypted};
pub use bytes::{CountedBytes, ReadAt};
pub use encrypted::{EncryptReport, EncryptSettings, EncryptedArchive, encrypt, encrypt_nameless};
pub use extract::Root;
pub use frames::encoder_id;
pub use index::Summary;
pub use listed::{files_of_tar, list_tar};
pub use output::nameless;
pub use plain::Compression;
pub use problem::Problem;
pub use reader::{Archive, ReadSettings};
pub use received::{ReceivedTree, receive_entries, receive_tar};
pub use rules::{ArchiveLimits, TarDialect};
pub use stretches::TarStretch;
pub use unpack::{UnpackSettings, UnpackedArchive, unpack, unpack_beside};
pub use verify::{VerifyReport, digest};
pub use writer::{CreateReport, CreateSettings, create, create_nameless};

// What a tar of another form than ours is spelled with.
pub(super) use header::padding as tar_padding;
pub(super) use spelling::{END as TAR_END, headers as tar_headers};

use crate::tree::restore::RestoreError;
use crate::tree::walk::WalkError;
use crate::tree::write::TreeWriteError;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::tree::EntryPath;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// More threads than this are used only when somebody asks for them.
const MOST_WORKERS: NonZeroUsize = NonZeroUsize::new(16).expect("16 is not 0");

/// Why an archive was not written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The source could not be read.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// What nobody branches on: an entry of the source that could not be read, a file of ours.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The bytes of an archive are refused.
    #[error("`{}` is refused{}", .path.display(), place(*.at, .entry.as_ref()))]
    Refused {
        /// Which archive.
        path: PathBuf,
        /// How many bytes of tar had been read.
        at: u64,
        /// The last entry that was read before, or was being read.
        entry: Option<EntryPath>,
        /// What is wrong.
        #[source]
        problem: Problem,
    },
    /// The tree could not be written.
    #[error(transparent)]
    Write(#[from] TreeWriteError),
    /// The tree could not take its place.
    #[error(transparent)]
    Restore(RestoreError),
    /// The base of a new archive has no index.
    #[error("`{}` is no archive of ours, so its frames cannot be used again", .0.display())]
    NotFramed(PathBuf),
    /// The archive has no such entry.
    #[error("there is no `{path}` in `{}`", .archive.display())]
    NoSuchEntry {
        /// Which archive.
        archive: PathBuf,
        /// Which entry.
        path: EntryPath,
    },
    /// The entry has no content.
    #[error("`{0}` is no file")]
    NotAFile(EntryPath),
    /// What reads along did not take it.
    #[error("could not pass on the content of `{path}`")]
    Sink {
        /// Of which entry.
        path: EntryPath,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// The index would be larger than it may be.
    #[error("the tree is too large for one archive")]
    TooLarge,
    /// Somebody asked us to stop.
    #[error("the archive was cancelled")]
    Cancelled,
}

/// All cores, as far as their memory stays small.
fn usual_workers() -> NonZeroUsize {
    let cores = crate::worker_pool::all_processors();
    cores.min(MOST_WORKERS)
}

fn place(at: u64, entry: Option<&EntryPath>) -> String {
    match (at, entry) {
        (_, Some(entry)) => format!(" at or after `{entry}`"),
        (0, None) => String::new(),
        (at, None) => format!(" at byte {at} of its tar"),
    }
}

/// Says of which archive something is wrong.
trait ArchiveContext<T> {
    fn of_archive(self, path: &Path) -> Result<T, ArchiveError>;
}

impl<T> ArchiveContext<T> for Result<T, Problem> {
    fn of_archive(self, path: &Path) -> Result<T, ArchiveError> {
        self.map_err(|problem| ArchiveError::Refused {
            path: path.to_owned(),
            at: 0,
            entry: None,
            problem,
        })
    }
}

impl<T> ArchiveContext<T> for io::Result<T> {
    /// Bytes could not be read; those who decrypt them on the way say themselves what is wrong.
    fn of_archive(self, path: &Path) -> Result<T, ArchiveError> {
        match self {
            Ok(read) => Ok(read),
            Err(error) => match error.downcast() {
                Ok(refused) => Err(refused),
                Err(error) => Ok(Err(error).at("read", path)?),
            },
        }
    }
}

impl From<RestoreError> for ArchiveError {
    /// There is one way to say that somebody asked us to stop, and one that the tree could not be written.
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Cancelled | RestoreError::Write(TreeWriteError::Cancelled) => {
                Self::Cancelled
            }
            RestoreError::Write(error) => Self::Write(error),
            error => Self::Restore(error),
        }
    }
}

#[cfg(test)]
mod tests;
