//! Which files need not be read again.
//!
//! A file of its own for every tree. It is written beside the old one and renamed, checked by a digest; what is torn or missing
//! reads as nothing, and then everything is only read again.
//!
//! *Always true:* a file counts as unchanged only if device, inode, size, mtime and ctime are those that were remembered, and
//! is remembered only if its mtime and ctime were more than two seconds old then: a younger one could change without
//! looking any different.

use crate::atomic_write::{WriteError, atomic_write};
use crate::metadata::Seen;
use stasis_model::digest::FileDigest;
use stasis_model::time::Timestamp;
use stasis_model::tree::FileTime;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"STSTATS1";
/// A time this close to now may still be given to another content.
const FRESH_MS: u64 = 2_000;
const RECORD: usize = 80;

/// What is remembered of the files of one tree.
#[derive(Debug)]
pub struct StatCache {
    file: PathBuf,
    known: HashMap<(u64, u64), Remembered>,
    fresh_after: FileTime,
    is_saved: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Remembered {
    size: u64,
    modified: FileTime,
    changed: FileTime,
    digest: FileDigest,
}

impl StatCache {
    /// Reads what is remembered in `file`, nothing if there is none; `now` decides what is too young to be remembered.
    pub fn open(file: &Path, now: Timestamp) -> Self {
        let bytes = std::fs::read(file).unwrap_or_default();
        let known = parse(&bytes);
        let millis = now.millis().saturating_sub(FRESH_MS);
        Self {
            file: file.to_owned(),
            is_saved: known.is_some(),
            known: known.unwrap_or_default(),
            fresh_after: FileTime {
                seconds: i64::try_from(millis / 1000).unwrap_or(i64::MAX),
                nanos: u32::try_from(millis % 1000).unwrap_or_default() * 1_000_000,
            },
        }
    }

    /// The digest of a file that looks as it did.
    pub(super) fn digest(&self, seen: &Seen) -> Option<FileDigest> {
        let known = self.known.get(&seen.identity())?;
        let is_same = known.size == seen.size
            && known.modified == seen.modified
            && known.changed == seen.changed;
        is_same.then_some(known.digest)
    }

    /// What will be remembered of a file; nothing when it is too young.
    pub(super) fn memory(&self, seen: &Seen, digest: FileDigest) -> Option<Remembered> {
        let is_old = seen.modified < self.fresh_after && seen.changed < self.fresh_after;
        is_old.then_some(Remembered {
            size: seen.size,
            modified: seen.modified,
            changed: seen.changed,
            digest,
        })
    }

    /// Forgets everything but this.
    pub(super) fn replace(&mut self, known: HashMap<(u64, u64), Remembered>) {
        self.is_saved &= known == self.known;
        self.known = known;
    }

    /// How many files are remembered.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Writes it down, if there is anything new.
    pub fn save(&mut self) -> Result<(), WriteError> {
        if self.is_saved {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(MAGIC.len() + self.known.len() * RECORD + 32);
        bytes.extend_from_slice(MAGIC);
        for ((device, inode), known) in &self.known {
            for number in [*device, *inode, known.size] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            for time in [known.modified, known.changed] {
                bytes.extend_from_slice(&time.seconds.to_le_bytes());
                bytes.extend_from_slice(&time.nanos.to_le_bytes());
            }
            bytes.extend_from_slice(known.digest.as_bytes());
        }
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        atomic_write(&self.file, &bytes)?;
        self.is_saved = true;
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Option<HashMap<(u64, u64), Remembered>> {
    let (body, digest) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    if blake3::hash(body).as_bytes() != digest {
        return None;
    }
    let records = body.strip_prefix(MAGIC)?.as_chunks::<RECORD>().0;
    records.iter().map(record).collect()
}

fn record(bytes: &[u8; RECORD]) -> Option<((u64, u64), Remembered)> {
    let eight = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
    let time = |at: usize| {
        let nanos = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().ok()?);
        let seconds = eight(at)?.cast_signed();
        Some(FileTime { seconds, nanos })
    };
    let digest = FileDigest::from_document(bytes[48..].try_into().ok()?);
    let remembered = Remembered {
        size: eight(16)?,
        modified: time(24)?,
        changed: time(36)?,
        digest,
    };
    Some(((eight(0)?, eight(8)?), remembered))
}
