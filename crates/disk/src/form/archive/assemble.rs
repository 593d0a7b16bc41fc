//! Brings an archive here from wherever it is, without what an older archive already has.
//!
//! 1. read the index of the one that is wanted
//! 2. copy the frames that the older one has, checked
//! 3. read the rest, a few large parts at a time
//!
//! *Always true:* what decayed in the older archive is read from afar instead. Nobody has taken the digest of the file
//! yet: the caller does, before anything that is read from it counts. The file is not made durable: it can be brought
//! again.

use super::encrypted::EncryptedArchive;
use super::reader::{Archive, OpenedArchive, go_on};
use super::{ArchiveError, ReadAt};
use crate::worker_pool::WorkerPool;
use stasis_model::failure::AtPath;
use std::collections::HashMap;
use std::fs::File;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// How much is asked for at once.
const PART: u64 = 8 << 20;
/// How many parts are under way at once: together with [`PART`] this is the memory it takes.
const PARTS_AT_ONCE: NonZeroUsize = NonZeroUsize::new(4).unwrap();
/// A gap this small between two parts is read along with them: a request costs more.
const GAP: u64 = 64 << 10;

/// What it took to bring an archive here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assembled {
    /// The length of the file.
    pub stored_bytes: u64,
    /// How many bytes of it were read from afar.
    pub bytes_fetched: u64,
}

/// The file that an archive is assembled in, and its name in messages.
#[derive(Clone, Copy, Debug)]
pub struct AssembleTarget<'a> {
    /// Empty when it begins.
    pub file: &'a File,
    /// What it is called, or where it lies if it has no name.
    pub path: &'a Path,
}

/// The bytes that are wanted, and their name in messages.
#[derive(Clone, Copy)]
struct StoredBytes<'a> {
    bytes: &'a dyn ReadAt,
    name: &'a Path,
}

/// Copies the bytes of `wanted` into `to`, taking from `base` what that has.
pub fn assemble(
    wanted: &Archive,
    base: Option<&Archive>,
    to: AssembleTarget<'_>,
    cancel: &AtomicBool,
) -> Result<Assembled, ArchiveError> {
    let from = StoredBytes {
        bytes: wanted.bytes(),
        name: wanted.path(),
    };
    match (&wanted.0, base.map(|base| &base.0)) {
        (OpenedArchive::Framed(new), Some(OpenedArchive::Framed(base))) => {
            let old = base.index.frames.iter().enumerate();
            let known: HashMap<_, _> = old
                .map(|(at, frame)| ((frame.stored_digest, frame.stored), at))
                .collect();
            let frames = new.index.frames.iter().map(|frame| {
                let here = known.get(&(frame.stored_digest, frame.stored));
                let stored = here.and_then(|here| base.stored(*here).ok());
                (u64::from(frame.stored), stored)
            });
            bring(from, frames, to, cancel)
        }
        _ => bring(from, std::iter::empty(), to, cancel),
    }
}

/// Copies the encrypted bytes of `wanted` into `to`, taking from `base` what that has; nothing is
/// decrypted but to check it.
pub fn assemble_encrypted(
    wanted: &EncryptedArchive,
    base: Option<&EncryptedArchive>,
    to: AssembleTarget<'_>,
    cancel: &AtomicBool,
) -> Result<Assembled, ArchiveError> {
    let known: HashMap<_, _> = base
        .into_iter()
        .flat_map(|base| (0..base.frames()).map(move |at| (base.id(at), (base, at))))
        .collect();
    let frames = (0..wanted.frames()).map(|at| {
        let here = known.get(&wanted.id(at));
        let stored = here.and_then(|(base, at)| base.stored(*at).ok());
        (wanted.stored_range(at).1, stored)
    });
    let from = StoredBytes {
        bytes: wanted.bytes(),
        name: wanted.path(),
    };
    bring(from, frames, to, cancel)
}

/// Copies the bytes of `from` that begin with `frames`: the length of each, and its bytes when they are here.
fn bring(
    from: StoredBytes<'_>,
    frames: impl Iterator<Item = (u64, Option<Vec<u8>>)>,
    to: AssembleTarget<'_>,
    cancel: &AtomicBool,
) -> Result<Assembled, ArchiveError> {
    let (StoredBytes { bytes, name }, AssembleTarget { file, path }) = (from, to);
    let length = bytes.length();
    let length = length.at("read", name)?;
    let missing = take_over(frames, to, length)?;
    let parts = parts(&missing);
    let bytes_fetched = parts.iter().map(|part| part.end - part.start).sum();
    let pool = WorkerPool::<_, ArchiveError>::new(parts);
    pool.run(PARTS_AT_ONCE, |pool| {
        let mut buffer = Vec::new();
        pool.work(|part: Range<u64>| {
            go_on(cancel)?;
            let length = usize::try_from(part.end - part.start).expect("a part is small");
            buffer.resize(length, 0);
            let read = bytes.read_exact_at(&mut buffer, part.start);
            read.at("read", name)?;
            let written = file.write_all_at(&buffer, part.start);
            Ok(written.at("write", path)?)
        });
    })?;
    Ok(Assembled {
        stored_bytes: length,
        bytes_fetched,
    })
}

/// Writes the frames that are here; says what is missing, in order.
fn take_over(
    frames: impl Iterator<Item = (u64, Option<Vec<u8>>)>,
    to: AssembleTarget<'_>,
    length: u64,
) -> Result<Vec<Range<u64>>, ArchiveError> {
    let mut missing: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    for (stored_length, stored) in frames {
        let end = at + stored_length;
        match stored {
            Some(stored) => {
                let written = to.file.write_all_at(&stored, at);
                written.at("write", to.path)?;
            }
            None => add(&mut missing, at..end),
        }
        at = end;
    }
    add(&mut missing, at..length);
    Ok(missing)
}

fn add(missing: &mut Vec<Range<u64>>, range: Range<u64>) {
    match missing.last_mut() {
        Some(last) if range.start - last.end <= GAP => last.end = range.end,
        _ => missing.push(range),
    }
}

/// The same ranges in parts that are not too large.
fn parts(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + PART);
            parts.push(start..end);
            start = end;
        }
    }
    parts
}
