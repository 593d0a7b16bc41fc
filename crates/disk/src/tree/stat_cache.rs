//! Which files need not be read again: the rule, and the cache of a tree's contents.
//!
//! The list cache of a chunked save ([`list_cache`](crate::form::chunked::list_cache)) keeps the same rule.
//!
//! A file of its own for every tree. It is written beside the old one and renamed, checked by a digest; what is torn or missing
//! reads as nothing, and then everything is only read again.
//!
//! *Always true:* a file counts as unchanged only if device, inode, size, mtime and ctime are those that were cached, and
//! is cached only if its mtime and ctime were more than two seconds old then: a younger one could change without
//! looking any different. Of a file with several names one is cached.
//!
//! What is not seen: a program that keeps a file mapped may store into a page again after that was read, and the file looks different only
//! when the kernel has written the page out and the program stores once more. A clone makes the kernel do that; a look at the live tree does not.

use crate::fs::atomic_write::atomic_write;
use crate::fs::metadata::Seen;
use stasis_model::digest::FileDigest;
use stasis_model::failure::Failure;
use stasis_model::time::Timestamp;
use stasis_model::tree::attributes::AttributesDigest;
use stasis_model::tree::{EntryPath, FileTime};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"STSTATS3";
/// A time this close to now may still be given to another content: git calls such a file *racy*.
const RACY_MS: u64 = 2_000;
/// Within this time the kernel has as a rule written out a page that was stored into through a mapping; until then it takes more stores
/// without a new time.
const MAPPED_MS: u64 = 60_000;
const RECORD: usize = 96 + AttributesDigest::LENGTH;
/// What is kept of a path: the beginning of its digest.
type PathDigest = [u8; 16];

/// What decides whether a file is still the one that was seen before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileStat {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: FileTime,
    pub(crate) changed: FileTime,
}

impl From<&Seen> for FileStat {
    fn from(seen: &Seen) -> Self {
        Self {
            device: seen.device,
            inode: seen.inode,
            size: seen.size,
            modified: seen.modified,
            changed: seen.changed,
        }
    }
}

/// From when on times are racy: a file with one could change without looking any different.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RacyLimit(FileTime);

impl RacyLimit {
    /// That of a look at `now`.
    pub(crate) fn at(now: Timestamp) -> Self {
        Self::before(now, RACY_MS)
    }

    /// That of a look at `now` for whoever cannot do with less: also a page that is mapped has been written out since.
    pub(crate) fn of_mappings(now: Timestamp) -> Self {
        Self::before(now, MAPPED_MS)
    }

    fn before(now: Timestamp, age: u64) -> Self {
        let millis = now.millis().saturating_sub(age);
        Self(FileTime {
            seconds: i64::try_from(millis / 1000).unwrap_or(i64::MAX),
            nanos: u32::try_from(millis % 1000).unwrap_or_default() * 1_000_000,
        })
    }

    /// Whether a time is.
    pub(crate) fn is_racy(self, time: FileTime) -> bool {
        time >= self.0
    }

    /// Whether neither time of a file is.
    pub(crate) fn is_settled(self, stat: &FileStat) -> bool {
        !self.is_racy(stat.modified) && !self.is_racy(stat.changed)
    }
}

/// What a file holds: its content, and what its user wrote beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeldContent {
    pub(crate) digest: FileDigest,
    pub(crate) attributes: Option<AttributesDigest>,
}

/// By device and inode.
pub(crate) type CachedFiles = HashMap<(u64, u64), CachedFile>;

/// What is cached of the files of one tree.
#[derive(Debug)]
pub struct StatCache {
    file: PathBuf,
    known: CachedFiles,
    racy: RacyLimit,
    is_saved: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CachedFile {
    stat: FileStat,
    path: PathDigest,
    held: HeldContent,
}

impl CachedFile {
    /// What will be cached of a file.
    pub(crate) fn new(path: &EntryPath, seen: &Seen, held: HeldContent) -> Self {
        Self {
            stat: FileStat::from(seen),
            path: digest_of(path),
            held,
        }
    }

    /// Whether this was the place of the file when it was cached.
    pub(crate) fn was_at(&self, path: &EntryPath) -> bool {
        self.path == digest_of(path)
    }

    pub(crate) fn held(&self) -> HeldContent {
        self.held
    }
}

fn digest_of(path: &EntryPath) -> PathDigest {
    let digest = blake3::hash(path.as_bytes());
    *digest.as_bytes().first_chunk().expect("it has 32 bytes")
}

impl StatCache {
    /// Reads what is cached in `file`, nothing if there is none; `now` decides what is too young to be cached.
    pub fn open(file: &Path, now: Timestamp) -> Self {
        let bytes = std::fs::read(file).unwrap_or_default();
        let known = parse(&bytes);
        Self {
            file: file.to_owned(),
            is_saved: known.is_some(),
            known: known.unwrap_or_default(),
            racy: RacyLimit::at(now),
        }
    }

    /// What is cached of a file that looks as it did.
    pub(crate) fn find(&self, seen: &Seen) -> Option<&CachedFile> {
        let known = self.known.get(&seen.identity())?;
        (known.stat == FileStat::from(seen)).then_some(known)
    }

    /// Whether a file is old enough to be cached.
    pub(crate) fn is_settled(&self, seen: &Seen) -> bool {
        self.racy.is_settled(&FileStat::from(seen))
    }

    /// Replaces everything that is cached.
    pub(crate) fn replace(&mut self, known: CachedFiles) {
        self.is_saved &= known == self.known;
        self.known = known;
    }

    /// What is cached, with another content.
    #[cfg(test)]
    pub(crate) fn with_digest(&self, digest: FileDigest) -> CachedFiles {
        let known = self.known.iter().map(|(file, known)| {
            let held = HeldContent {
                digest,
                ..known.held
            };
            (*file, CachedFile { held, ..*known })
        });
        known.collect()
    }

    /// How many files are cached.
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
            for number in [*device, *inode, known.stat.size] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            for time in [known.stat.modified, known.stat.changed] {
                bytes.extend_from_slice(&time.seconds.to_le_bytes());
                bytes.extend_from_slice(&time.nanos.to_le_bytes());
            }
            bytes.extend_from_slice(known.held.digest.as_bytes());
            bytes.extend_from_slice(&known.path);
            bytes.extend_from_slice(&AttributesDigest::to_cached(known.held.attributes));
        }
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        atomic_write(&self.file, &bytes)?;
        self.is_saved = true;
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Option<CachedFiles> {
    let (body, digest) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    if blake3::hash(body).as_bytes() != digest {
        return None;
    }
    let records = body.strip_prefix(MAGIC)?.as_chunks::<RECORD>().0;
    records.iter().map(record).collect()
}

fn record(bytes: &[u8; RECORD]) -> Option<((u64, u64), CachedFile)> {
    let eight = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
    let time = |at: usize| {
        let nanos = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().ok()?);
        let seconds = eight(at)?.cast_signed();
        Some(FileTime { seconds, nanos })
    };
    let digest = FileDigest::from_document(bytes[48..80].try_into().ok()?);
    let attributes = AttributesDigest::from_cached(bytes[96..].try_into().ok()?);
    let cached = CachedFile {
        stat: FileStat {
            device: eight(0)?,
            inode: eight(8)?,
            size: eight(16)?,
            modified: time(24)?,
            changed: time(36)?,
        },
        path: bytes[80..96].try_into().ok()?,
        held: HeldContent { digest, attributes },
    };
    Some(((cached.stat.device, cached.stat.inode), cached))
}
