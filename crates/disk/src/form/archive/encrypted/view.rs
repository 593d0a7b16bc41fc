//! An encrypted archive that is read as if it were not encrypted.

use super::super::problem::Problem;
use super::super::verify::digest;
use super::super::{ArchiveContext, ArchiveError, ReadAt};
use super::layout::{EncryptedFooter, EncryptedFrames, FOOTER};
use crate::crypt::{DataKey, Kind, PieceId, Pieces};
use crate::worker_pool::lock;
use stasis_model::digest::ArchiveDigest;
use stasis_model::failure::AtPath;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// So many frames are kept decrypted for those who read them in small parts.
const KEPT: usize = 4;

/// An encrypted archive whose index was opened. As [`ReadAt`] it is the archive before it was encrypted, for
/// [`Archive::over`](super::super::Archive::over): a frame is decrypted when it is read.
#[derive(Debug)]
pub struct EncryptedArchive {
    path: PathBuf,
    bytes: Arc<dyn ReadAt>,
    pieces: Pieces,
    table: EncryptedFrames,
    /// What follows the frames in the archive.
    tail: Vec<u8>,
    kept: Mutex<VecDeque<(usize, Arc<Vec<u8>>)>>,
}

impl EncryptedArchive {
    /// Takes encrypted bytes that are wherever they are, known as `name`, and opens their index.
    pub fn open(bytes: Arc<dyn ReadAt>, name: &Path, key: &DataKey) -> Result<Self, ArchiveError> {
        let length = bytes.length().at("read", name)?;
        let before_footer = length.checked_sub(FOOTER as u64);
        let before_footer = before_footer
            .ok_or_else(Problem::not_encrypted)
            .of_archive(name)?;
        let mut footer = [0; FOOTER];
        let read = bytes.read_exact_at(&mut footer, before_footer);
        read.at("read", name)?;
        let footer = EncryptedFooter::read(&footer).of_archive(name)?;
        let before = before_footer.checked_sub(footer.stored as u64);
        let before = before.ok_or_else(Problem::closed_index).of_archive(name)?;
        let mut index = vec![0; footer.stored];
        let read = bytes.read_exact_at(&mut index, before);
        read.at("read", name)?;
        let pieces = key.pieces();
        let opened = pieces.open(Kind::Index, None, &footer.id, &mut index);
        opened.or(Err(Problem::closed_index())).of_archive(name)?;
        let (table, tail) = EncryptedFrames::parse(&index, before).of_archive(name)?;
        Ok(Self {
            path: name.to_owned(),
            tail: tail.to_vec(),
            bytes,
            pieces,
            table,
            kept: Mutex::default(),
        })
    }

    /// Digests the encrypted bytes, which are what an encrypted archive is called after; says how many they are.
    pub fn digest(&self, cancel: &AtomicBool) -> Result<(ArchiveDigest, u64), ArchiveError> {
        digest(&*self.bytes, &self.path, cancel)
    }

    /// The encrypted bytes.
    pub(in super::super) fn bytes(&self) -> &dyn ReadAt {
        &*self.bytes
    }

    pub(in super::super) fn path(&self) -> &Path {
        &self.path
    }

    pub(in super::super) fn frames(&self) -> usize {
        self.table.len()
    }

    pub(in super::super) fn id(&self, frame: usize) -> PieceId {
        self.table.id(frame)
    }

    /// Where a frame begins in the encrypted bytes, and its length there.
    pub(in super::super) fn stored_range(&self, frame: usize) -> (u64, u64) {
        self.table.stored(frame)
    }

    /// Reads a frame as it is stored, and checks that it still is what was written.
    pub(in super::super) fn stored(&self, frame: usize) -> io::Result<Vec<u8>> {
        let stored = self.read(frame)?;
        self.decrypt(frame, stored.clone())?;
        Ok(stored)
    }

    fn read(&self, frame: usize) -> io::Result<Vec<u8>> {
        let (start, length) = self.table.stored(frame);
        let length = usize::try_from(length).expect("frames are small");
        let mut stored = vec![0; length];
        self.bytes.read_exact_at(&mut stored, start)?;
        Ok(stored)
    }

    fn decrypt(&self, frame: usize, mut stored: Vec<u8>) -> io::Result<Vec<u8>> {
        let opened = self
            .pieces
            .open(Kind::Frame, None, &self.table.id(frame), &mut stored);
        let at = self.table.stored(frame).0;
        let what = "it does not decrypt";
        let opened = opened.or(Err(Problem::Frame { frame, at, what }));
        match opened.of_archive(&self.path) {
            Ok(()) => Ok(stored),
            Err(refused) => Err(io::Error::new(io::ErrorKind::InvalidData, refused)),
        }
    }

    /// A frame of which only a part is wanted; others of its parts may be wanted soon.
    fn kept(&self, frame: usize) -> io::Result<Arc<Vec<u8>>> {
        let lock = || lock(&self.kept);
        let found = lock().iter().find(|(at, _)| *at == frame).cloned();
        if let Some((_, plain)) = found {
            return Ok(plain);
        }
        let plain = Arc::new(self.decrypt(frame, self.read(frame)?)?);
        let mut kept = lock();
        kept.truncate(KEPT - 1);
        kept.push_front((frame, plain.clone()));
        Ok(plain)
    }
}

impl ReadAt for EncryptedArchive {
    fn length(&self) -> io::Result<u64> {
        Ok(self.table.end() + self.tail.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(at) = offset.checked_sub(self.table.end()) {
            return Ok(copy(&self.tail, at, buffer));
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        let frame = self.table.frame_at(offset);
        let (start, length) = self.table.plain(frame);
        if offset == start && buffer.len() as u64 >= length {
            let plain = self.decrypt(frame, self.read(frame)?)?;
            return Ok(copy(&plain, 0, buffer));
        }
        Ok(copy(&self.kept(frame)?, offset - start, buffer))
    }
}

/// Copies what `from` has from `at` on and `buffer` can take; says how much that is.
fn copy(from: &[u8], at: u64, buffer: &mut [u8]) -> usize {
    let at = usize::try_from(at).ok();
    let from = at.and_then(|at| from.get(at..)).unwrap_or_default();
    let length = from.len().min(buffer.len());
    buffer[..length].copy_from_slice(&from[..length]);
    length
}
