//! Which files need not be read again.
//!
//! A file of its own for every tree. It is written beside the old one and renamed, checked by a digest; what is torn or missing
//! reads as nothing, and then everything is only read again.
//!
//! *Always true:* a file counts as unchanged only if device, inode, size, mtime and ctime are those that were remembered, and
//! is remembered only if its mtime and ctime were more than two seconds old then: a younger one could change without
//! looking any different. Of a file with several names one is remembered.
//!
//! What is not seen: a program that keeps a file mapped may store into a page again after that was read, and the file looks different only
//! when the kernel has written the page out and the program stores once more. A clone makes the kernel do that; a look at the live tree does not.

use super::manifest::{ATTRIBUTES, AttributesDigest, Held};
use crate::fs::atomic_write::atomic_write;
use crate::fs::metadata::Seen;
use stasis_model::digest::FileDigest;
use stasis_model::failure::Failure;
use stasis_model::time::Timestamp;
use stasis_model::tree::{EntryPath, FileTime};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"STSTATS3";
/// A time this close to now may still be given to another content.
const FRESH_MS: u64 = 2_000;
const RECORD: usize = 96 + ATTRIBUTES;
/// What is kept of a path: the beginning of its digest.
type Where = [u8; 16];

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
    path: Where,
    held: Held,
}

/// A time that something must be older than, not to change any more without looking different at `now`.
pub(super) fn settled_before(now: Timestamp) -> FileTime {
    let millis = now.millis().saturating_sub(FRESH_MS);
    FileTime {
        seconds: i64::try_from(millis / 1000).unwrap_or(i64::MAX),
        nanos: u32::try_from(millis % 1000).unwrap_or_default() * 1_000_000,
    }
}

impl Remembered {
    /// What will be remembered of a file.
    pub(super) fn new(path: &EntryPath, seen: &Seen, held: Held) -> Self {
        Self {
            size: seen.size,
            modified: seen.modified,
            changed: seen.changed,
            path: place_of(path),
            held,
        }
    }

    /// Whether this was the place of the file when it was remembered.
    pub(super) fn was_at(&self, path: &EntryPath) -> bool {
        self.path == place_of(path)
    }

    pub(super) fn held(&self) -> Held {
        self.held
    }
}

fn place_of(path: &EntryPath) -> Where {
    let digest = blake3::hash(path.as_bytes());
    *digest.as_bytes().first_chunk().expect("it has 32 bytes")
}

impl StatCache {
    /// Reads what is remembered in `file`, nothing if there is none; `now` decides what is too young to be remembered.
    pub fn open(file: &Path, now: Timestamp) -> Self {
        let bytes = std::fs::read(file).unwrap_or_default();
        let known = parse(&bytes);
        Self {
            file: file.to_owned(),
            is_saved: known.is_some(),
            known: known.unwrap_or_default(),
            fresh_after: settled_before(now),
        }
    }

    /// What is remembered of a file that looks as it did.
    pub(super) fn find(&self, seen: &Seen) -> Option<&Remembered> {
        let known = self.known.get(&seen.identity())?;
        let is_same = known.size == seen.size
            && known.modified == seen.modified
            && known.changed == seen.changed;
        is_same.then_some(known)
    }

    /// Whether a file is old enough to be remembered.
    pub(super) fn is_settled(&self, seen: &Seen) -> bool {
        seen.modified < self.fresh_after && seen.changed < self.fresh_after
    }

    /// Forgets everything but this.
    pub(super) fn replace(&mut self, known: HashMap<(u64, u64), Remembered>) {
        self.is_saved &= known == self.known;
        self.known = known;
    }

    /// What is remembered, with another content.
    #[cfg(test)]
    pub(super) fn with_digest(&self, digest: FileDigest) -> HashMap<(u64, u64), Remembered> {
        let known = self.known.iter().map(|(file, known)| {
            let held = Held {
                digest,
                ..known.held
            };
            (*file, Remembered { held, ..*known })
        });
        known.collect()
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
    pub fn save(&mut self) -> Result<(), Failure> {
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
            bytes.extend_from_slice(known.held.digest.as_bytes());
            bytes.extend_from_slice(&known.path);
            bytes.extend_from_slice(&AttributesDigest::to_bytes(known.held.attributes));
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
    let digest = FileDigest::from_document(bytes[48..80].try_into().ok()?);
    let attributes = AttributesDigest::from_bytes(bytes[96..].try_into().ok()?);
    let remembered = Remembered {
        size: eight(16)?,
        modified: time(24)?,
        changed: time(36)?,
        path: bytes[80..96].try_into().ok()?,
        held: Held { digest, attributes },
    };
    Some(((eight(0)?, eight(8)?), remembered))
}
