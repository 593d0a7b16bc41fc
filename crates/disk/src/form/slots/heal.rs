//! What a check takes again from the live tree.
//!
//! A version is lost whole, and cloned anew from the file that has it still. A chunk is put together from all the files that lie in it:
//! it is the same chunk when it has the digest that it is named for, whatever became of the files meanwhile.
//!
//! *Always true:* nothing that is taken again has its name yet, and all of it is durable. Whatever it is made from was read.

use super::Pool;
use super::check::{CheckedContent, LostFile};
use super::chunks::{Chunks, Incoming};
use super::error::SlotError;
use super::packed::LEVEL;
use crate::form::chunked::{ChunkCodec, ChunkEncoder, VersionSink, same};
use crate::fs::fd::c_name;
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::{Mounts, RootDir};
use stasis_model::digest::FileDigest;
use stasis_model::failure::AtPath;
use stasis_model::tree::EntryPath;
use stasis_model::tree::list::{Extent, FileContent, StoredChunk};
use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Files up to this size are read whole before a part of them is used.
const ASKED: u64 = 1 << 20;

/// What was taken again, and has no names yet.
#[derive(Default)]
pub(super) struct Retaken<'a> {
    pub(super) incoming: Option<Incoming<'a>>,
    pub(super) versions: HashSet<FileDigest>,
    pub(super) chunks: HashSet<StoredChunk>,
    /// Why not everything could be tried.
    pub(super) problem: Option<String>,
}

/// Where a stretch of a chunk comes from.
struct ChunkPart<'l> {
    lost: &'l LostFile,
    /// Where in the file.
    at: u64,
    /// Where in the chunk.
    offset: u32,
    length: u32,
}

impl Pool {
    /// Takes from the live tree what it still has of what is lost.
    pub(super) fn take_again(
        &self,
        lost: &[LostFile],
        live: &Path,
        checked: &mut CheckedContent,
    ) -> Retaken<'_> {
        let mut taken = Retaken::default();
        let Ok(root) = RootDir::open(live, Mounts::Stay) else {
            return taken;
        };
        taken.take_versions(&self.chunks, &root, lost, checked);
        taken.take_chunks(&self.chunks, &root, lost, checked);
        if let Some(incoming) = &taken.incoming
            && let Err(error) = incoming.sync()
        {
            taken.failed(&error);
            taken.versions.clear();
            taken.chunks.clear();
        }
        taken
    }
}

impl<'a> Retaken<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.chunks.is_empty()
    }

    /// Whether something that a file lies in is among it.
    pub(super) fn has_part_of(&self, content: &FileContent) -> bool {
        self.versions.contains(&content.digest)
            || content
                .slices()
                .any(|slice| self.chunks.contains(&slice.chunk))
    }

    /// Remembers the first failure.
    pub(super) fn failed(&mut self, error: &SlotError) {
        let causes = std::iter::successors(Some(error as &dyn Error), |error| (*error).source());
        let causes: Vec<String> = causes.map(ToString::to_string).collect();
        self.problem.get_or_insert_with(|| causes.join(": "));
    }

    fn take_versions(
        &mut self,
        chunks: &'a Chunks,
        root: &RootDir,
        lost: &[LostFile],
        checked: &mut CheckedContent,
    ) {
        for one in lost.iter().filter(|one| one.content.is_version()) {
            if self.versions.contains(&one.content.digest) {
                continue;
            }
            let Some((file, seen)) = open_live(root, &one.path) else {
                continue;
            };
            let key = (one.path.clone(), one.content.digest);
            if seen.size != one.size || checked.refused.get(&key) == Some(&seen) {
                continue;
            }
            match self.take_version(chunks, &file, one) {
                Ok(true) => {}
                Ok(false) => {
                    checked.refused.insert(key, seen);
                }
                Err(error) => self.failed(&error),
            }
        }
    }

    /// Clones a live file, and holds the clone if it is the version that was lost; says whether it is.
    fn take_version(
        &mut self,
        chunks: &'a Chunks,
        file: &OwnedFd,
        lost: &LostFile,
    ) -> Result<bool, SlotError> {
        let incoming = self.incoming(chunks)?;
        let cloned = incoming.clone_file(file.as_fd(), lost.size);
        let Some(cloned) = cloned.on("clone again", &lost.path)? else {
            return Ok(false);
        };
        let digest = lost.content.digest;
        // What is not it goes with all that was on its way in.
        if !same::holds(&cloned.file, &digest) {
            return Ok(false);
        }
        incoming.hold(cloned, &digest).on("keep", &lost.path)?;
        self.versions.insert(digest);
        Ok(true)
    }

    fn take_chunks(
        &mut self,
        chunks: &'a Chunks,
        root: &RootDir,
        lost: &[LostFile],
        checked: &CheckedContent,
    ) {
        let mut wanted: BTreeMap<StoredChunk, Vec<ChunkPart<'_>>> = BTreeMap::new();
        for one in lost {
            let mut at = 0;
            for extent in &one.content.extents {
                if let Extent::Stored(slice) = extent
                    && !checked.is_whole_chunk(&slice.chunk)
                {
                    wanted.entry(slice.chunk).or_default().push(ChunkPart {
                        lost: one,
                        at,
                        offset: slice.offset,
                        length: slice.length,
                    });
                }
                at += extent.length();
            }
        }
        for (chunk, mut parts) in wanted {
            parts.sort_by_key(|part| part.offset);
            let Some(plain) = put_together(root, &chunk, &parts) else {
                continue;
            };
            match self.take_chunk(chunks, &plain) {
                Ok(()) => {
                    self.chunks.insert(chunk);
                }
                Err(error) => self.failed(&error),
            }
        }
    }

    fn take_chunk(&mut self, chunks: &'a Chunks, plain: &[u8]) -> Result<(), SlotError> {
        let incoming = self.incoming(chunks)?;
        // One that is there and holds something else is not taken for stored.
        let mut encoder = ChunkEncoder::new(incoming, LEVEL)?.looking_closely();
        encoder.encode(plain, |_| None)?;
        Ok(())
    }

    fn incoming(&mut self, chunks: &'a Chunks) -> Result<&Incoming<'a>, SlotError> {
        Ok(match &mut self.incoming {
            Some(incoming) => incoming,
            none => none.insert(chunks.healing()?),
        })
    }
}

/// The plaintext of a chunk, if the live files that lie in it cover all of it and are what they were. Sorted by where they lie in it.
fn put_together(root: &RootDir, chunk: &StoredChunk, parts: &[ChunkPart<'_>]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(chunk.plain_len as usize);
    for part in parts {
        let have = u32::try_from(plain.len()).ok()?;
        let end = part.offset.checked_add(part.length)?;
        if part.offset > have || end > chunk.plain_len {
            return None;
        }
        if end <= have {
            continue;
        }
        let mut bytes = vec![0; (end - have) as usize];
        let from = part.at + u64::from(have - part.offset);
        // Another file may lie there too, and be what it was.
        let is_read = open_live(root, &part.lost.path).is_some_and(|(file, _)| {
            is_worth_reading(&file, part.lost)
                && File::from(file).read_exact_at(&mut bytes, from).is_ok()
        });
        if is_read {
            plain.extend_from_slice(&bytes);
        }
    }
    (ChunkCodec::Plain.digest(&plain) == chunk.name.digest()).then_some(plain)
}

/// Whether a file may still have what it had: a small one is asked, a large one may have it in part.
fn is_worth_reading(file: &OwnedFd, lost: &LostFile) -> bool {
    lost.size > ASKED || same::holds(file, &lost.content.digest)
}

/// The file of the live tree at the place of a lost one.
fn open_live(root: &RootDir, path: &EntryPath) -> Option<(OwnedFd, Seen)> {
    let (directory, name) = path.split_last()?;
    let directory = root.directory(directory.as_bytes()).ok()?;
    let file = root.file(directory.as_fd(), &c_name(name).ok()?).ok()?;
    let seen = metadata::of(&file).ok()?;
    seen.file_type().is_file().then_some((file, seen))
}
