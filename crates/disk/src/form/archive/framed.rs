//! A file that is an archive of ours: its index, and its frames one by one.

use super::frames::{Opener, PIECE, Tar, damaged, frame_digest, stored_digest};
use super::index::{FOOTER, HEAD, Index, IndexFooter};
use super::{ArchiveContext, ArchiveError, Problem, ReadAt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// An open archive whose index was read and makes sense.
#[derive(Debug)]
pub(super) struct Framed {
    pub(super) path: PathBuf,
    pub(super) index: Index,
    pub(super) bytes: Arc<dyn ReadAt>,
    offsets: Vec<u64>,
    /// A stored frame that was opened and is a piece of zeros: another one with the same bytes need not be opened.
    zeros: OnceLock<Vec<u8>>,
}

impl Framed {
    /// Reads the index; `None` when there is none.
    pub(super) fn open(bytes: &Arc<dyn ReadAt>, path: &Path) -> Result<Option<Self>, ArchiveError> {
        let length = bytes.length().of_archive(path)?;
        let Some(before_footer) = length.checked_sub(FOOTER as u64) else {
            return Ok(None);
        };
        let mut footer = [0; FOOTER];
        let read = bytes.read_exact_at(&mut footer, before_footer);
        read.of_archive(path)?;
        let Some(footer) = IndexFooter::read(&footer).of_archive(path)? else {
            return Ok(None);
        };
        let head = (footer.stored + HEAD) as u64;
        let before = before_footer.checked_sub(head);
        let before = before.ok_or(Problem::Truncated).of_archive(path)?;
        let mut stored = vec![0; footer.stored + HEAD];
        let read = bytes.read_exact_at(&mut stored, before);
        read.of_archive(path)?;
        let index = footer.index(&stored, before).of_archive(path)?;
        let offsets = index.offsets().collect();
        let path = path.to_owned();
        Ok(Some(Self {
            path,
            index,
            bytes: bytes.clone(),
            offsets,
            zeros: OnceLock::new(),
        }))
    }

    fn read(&self, frame: usize) -> Result<Vec<u8>, ArchiveError> {
        let mut stored = vec![0; self.index.frames[frame].stored as usize];
        let read = self.bytes.read_exact_at(&mut stored, self.offsets[frame]);
        read.of_archive(&self.path)?;
        Ok(stored)
    }

    /// Reads a frame as it is stored, and checks that it still is what was written.
    pub(super) fn stored(&self, frame: usize) -> Result<Vec<u8>, ArchiveError> {
        let stored = self.read(frame)?;
        if stored_digest(&stored) != self.index.frames[frame].stored_digest {
            return self.damaged(frame, "its stored bytes have changed");
        }
        Ok(stored)
    }

    /// The tar bytes of a frame, checked.
    pub(super) fn tar(&self, frame: usize, opener: &mut Opener) -> Result<Tar, ArchiveError> {
        let stored = self.read(frame)?;
        let known = &self.index.frames[frame];
        if self.zeros.get() == Some(&stored) && known.tar as usize == PIECE {
            return Ok(Tar::Zeros);
        }
        let mut tar = Vec::new();
        let open = opener.open(&stored, known.tar as usize, &mut tar);
        if let Err(what) = open {
            return self.damaged(frame, what);
        }
        if frame_digest(&tar) != known.digest {
            return self.damaged(frame, "its digest is another one");
        }
        if tar.len() == PIECE && tar == super::frames::zeros() {
            let _ = self.zeros.set(stored);
            return Ok(Tar::Zeros);
        }
        Ok(Tar::Bytes(tar))
    }

    fn damaged<T>(&self, frame: usize, what: &'static str) -> Result<T, ArchiveError> {
        Err(damaged(frame, self.offsets[frame], what)).of_archive(&self.path)
    }
}
