//! One regular file of a tree that is being written.

use super::{TreeWriteError, TreeWriter};
use crate::fs::metadata::{self, Has};
use crate::tree::content::{self, CarryError, CarryLimit, Fallback, Filled};
use rustix::fs;
use rustix::io::{self, Errno};
use stasis_model::failure::{AtPath, Failure};
use stasis_model::tree::{Attribute, EntryPath, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// What is read back at once.
const BUFFER: usize = 128 << 10;

/// A new file that is being filled, by several workers at once if they like.
///
/// Dropped before [`NewFile::finish`] it stays half made, and the tree cannot be finished.
#[derive(Debug)]
#[must_use = "a file that is not finished spoils the tree"]
pub struct NewFile<'a> {
    pub(super) writer: &'a TreeWriter,
    pub(super) path: EntryPath,
    pub(super) size: u64,
    pub(super) fd: OwnedFd,
    /// Where the last byte written so far ends.
    pub(super) end: AtomicU64,
    /// Bytes that progress knows of.
    pub(super) reported: AtomicU64,
}

impl NewFile<'_> {
    /// Writes bytes at their place; what is never written is a hole.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), TreeWriteError> {
        self.writer.go_on()?;
        let end = self.end_of(offset, bytes.len() as u64)?;
        self.write_all(offset, bytes)?;
        self.has_grown(end, bytes.len() as u64);
        Ok(())
    }

    /// Makes the file begin with the first `length` bytes of another one: shared if the filesystem can, else copied.
    ///
    /// Whoever calls knows that the source does not change, or checks what arrived.
    pub fn fill_from(&self, source: BorrowedFd<'_>, length: u64) -> Result<Filled, TreeWriteError> {
        self.writer.go_on()?;
        let end = self.end_of(0, length)?;
        let seen = metadata::of(source).on("look at the source of", &self.path)?;
        if seen.size < length {
            return Err(self.failed("read enough for", Errno::NODATA));
        }
        let filled = self.carry(source, length, Fallback::Copy);
        let filled = filled.map_err(|trouble| self.trouble(trouble))?;
        if matches!(filled, Filled::Shared(_)) && seen.size != length {
            let cut = fs::ftruncate(&self.fd, length);
            cut.on("cut to its length", &self.path)?;
        }
        if let Filled::Copied(bytes) = filled {
            // Progress has heard of these while they were copied.
            self.reported.fetch_add(bytes, Ordering::Relaxed);
            self.has_grown(end, length.saturating_sub(bytes));
        } else {
            self.has_grown(end, length);
        }
        self.writer.counts.bytes_reused.add(length);
        Ok(filled)
    }

    /// Makes the file hold what another one holds, if that is what it should be by its BLAKE3 digest.
    ///
    /// The bytes that are judged are the ones that arrived: a source that somebody changes meanwhile brings nothing
    /// else in. After `false` the file is as empty as it was.
    pub fn reuse(
        &self,
        source: BorrowedFd<'_>,
        wanted: &blake3::Hash,
    ) -> Result<bool, TreeWriteError> {
        let seen = metadata::of(source).on("look at the source of", &self.path)?;
        if !seen.file_type().is_file() || seen.size != self.size {
            return Ok(false);
        }
        let arrived = match self.carry(source, self.size, Fallback::Refuse) {
            Ok(_) => self.digest()?,
            Err(CarryError::CannotShare(_)) => self.copy_hashing(source)?,
            Err(trouble) => return Err(self.trouble(trouble)),
        };
        if arrived == *wanted {
            self.has_grown(self.size, self.size);
            self.writer.counts.bytes_reused.add(self.size);
            return Ok(true);
        }
        let emptied = fs::ftruncate(&self.fd, 0);
        emptied.on("empty", &self.path)?;
        Ok(false)
    }

    fn carry(
        &self,
        source: BorrowedFd<'_>,
        length: u64,
        fallback: Fallback,
    ) -> Result<Filled, CarryError> {
        let stop = CarryLimit {
            cancel: &self.writer.settings.cancel,
            deadline: None,
            progress: Some(&self.writer.settings.progress),
        };
        content::carry_until(source, self.fd.as_fd(), length, fallback, stop)
    }

    /// Reads back what the file holds.
    fn digest(&self) -> Result<blake3::Hash, TreeWriteError> {
        self.hash(self.fd.as_fd(), |_, _| Ok(()))
    }

    /// Copies a file, but for its zeros, and tells what was copied.
    fn copy_hashing(&self, source: BorrowedFd<'_>) -> Result<blake3::Hash, TreeWriteError> {
        let copied = self.hash(source, |at, bytes| {
            if bytes.iter().all(|byte| *byte == 0) {
                return Ok(());
            }
            self.write_all(at, bytes)
        })?;
        let whole = fs::ftruncate(&self.fd, self.size);
        whole.on("give its length to", &self.path)?;
        Ok(copied)
    }

    /// Hashes as many bytes as this file has, showing them to `see`.
    fn hash(
        &self,
        source: BorrowedFd<'_>,
        see: impl Fn(u64, &[u8]) -> Result<(), TreeWriteError>,
    ) -> Result<blake3::Hash, TreeWriteError> {
        let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
        let mut buffer = vec![0; most(self.size)];
        while at < self.size {
            self.writer.go_on()?;
            let piece = &mut buffer[..most(self.size - at)];
            let read = io::retry_on_intr(|| io::pread(source, &mut *piece, at));
            match read.on("read the bytes of", &self.path)? {
                0 => break,
                read => {
                    hasher.update(&piece[..read]);
                    see(at, &piece[..read])?;
                    at += read as u64;
                }
            }
        }
        Ok(hasher.finalize())
    }

    fn write_all(&self, offset: u64, bytes: &[u8]) -> Result<(), TreeWriteError> {
        let (mut rest, mut at) = (bytes, offset);
        while !rest.is_empty() {
            let written = io::retry_on_intr(|| io::pwrite(&self.fd, rest, at));
            match written.on("write", &self.path)? {
                0 => return Err(self.failed("write", Errno::IO)),
                written => (rest, at) = (&rest[written..], at + written as u64),
            }
        }
        Ok(())
    }

    /// Gives the file its length, attributes, owner, permissions and time.
    pub fn finish(
        self,
        metadata: &Metadata,
        attributes: &[Attribute],
    ) -> Result<(), TreeWriteError> {
        let writer = self.writer;
        if self.end.load(Ordering::Relaxed) < self.size {
            let grown = fs::ftruncate(&self.fd, self.size);
            grown.on("give its length to", &self.path)?;
        }
        if !attributes.is_empty() {
            // Before the permissions, which may forbid it.
            let refused = metadata::give_user_attributes(&self.fd, attributes);
            let refused = refused.on("set the attributes of", &self.path)?;
            writer.counts.attributes_not_kept.add(refused);
        }
        let has = Has {
            mode: writer.made.mode(super::FILE_MODE),
            ..writer.made.owner
        };
        let rights = writer.settings.rights;
        let plain = metadata::before_access(metadata, attributes);
        let given = metadata::give_to(&self.fd, has, &plain, rights);
        let given = given.on("set owner, mode and time of", &self.path)?;
        writer.counts.withhold(given);
        let refused = metadata::give_access(&self.fd, attributes, rights);
        let refused = refused.on("set the access list of", &self.path)?;
        writer.counts.attributes_not_kept.add(refused);
        writer.counts.files.add(1);
        writer.counts.bytes.add(self.size);
        let unreported = self
            .size
            .saturating_sub(self.reported.load(Ordering::Relaxed));
        writer.settings.progress.advance(1, unreported);
        Ok(())
    }

    fn end_of(&self, offset: u64, length: u64) -> Result<u64, TreeWriteError> {
        let end = offset.checked_add(length).filter(|end| *end <= self.size);
        end.ok_or_else(|| TreeWriteError::BeyondEnd {
            path: self.path.clone(),
            size: self.size,
        })
    }

    fn has_grown(&self, end: u64, bytes: u64) {
        self.end.fetch_max(end, Ordering::Relaxed);
        self.reported.fetch_add(bytes, Ordering::Relaxed);
        self.writer.settings.progress.advance(0, bytes);
    }

    fn failed(&self, op: &'static str, error: Errno) -> TreeWriteError {
        Failure::from_io(error, op, &self.path).into()
    }

    fn trouble(&self, trouble: CarryError) -> TreeWriteError {
        match trouble {
            CarryError::Cancelled => TreeWriteError::Cancelled,
            CarryError::CannotShare(error) | CarryError::Failed(error) => {
                self.failed("fill", error)
            }
            CarryError::Late => self.failed("fill", Errno::TIMEDOUT),
        }
    }
}

/// How much of `left` is read at once.
fn most(left: u64) -> usize {
    usize::try_from(left).map_or(BUFFER, |left| left.min(BUFFER))
}
