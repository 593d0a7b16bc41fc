//! Large files: cut by content, or compared with what they were piece by piece.

use super::compare::{ComparedFile, PreviousBlocks};
use super::plan::{Job, Rare, ReadFile};
use super::workers::{ATTEMPTS, OpenedFile, SaveWorkers, Tools};
use crate::form::chunked::databases::HEADER;
use crate::form::chunked::table::StoredContent;
use crate::form::chunked::{ChunkError, cut_out, fetch};
use crate::fs::metadata;
use crate::tree::walk::{WalkError, WalkSkip};
use crate::worker_pool::lock;
use rustix::io::{Errno, pread};
use stasis_model::digest::FileDigest;
use stasis_model::tree::list::{Extent, FileContent, Slice, StoredChunk, append};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// How much is read at once.
pub(super) const WINDOW: usize = 4 << 20;

/// The chunks of a large file, sealed by whoever has time.
#[derive(Debug, Default)]
pub(super) struct LargeFile {
    chunks: Mutex<(Vec<Option<StoredChunk>>, usize)>,
}

impl LargeFile {
    pub(super) fn put(&self, number: usize, chunk: StoredChunk) {
        let mut chunks = lock(&self.chunks);
        chunks.0[number] = Some(chunk);
        chunks.1 -= 1;
    }

    pub(super) fn is_sealed(&self) -> bool {
        lock(&self.chunks).1 == 0
    }

    /// The number of another chunk, which somebody will seal.
    pub(super) fn expect(&self) -> usize {
        let mut chunks = lock(&self.chunks);
        chunks.0.push(None);
        chunks.1 += 1;
        chunks.0.len() - 1
    }

    fn get(&self, number: usize) -> Option<StoredChunk> {
        lock(&self.chunks).0[number]
    }
}

/// A stretch of a file whose chunk may still have to be sealed.
#[derive(Debug)]
pub(super) enum Part {
    Ready(Extent),
    Fresh {
        number: usize,
        offset: u32,
        length: u32,
    },
}

/// A file that was read.
pub(super) struct CutFile {
    pub(super) size: u64,
    pub(super) digest: FileDigest,
    pub(super) fingerprints: Option<Vec<u8>>,
    pub(super) parts: Vec<Part>,
    pub(super) of: Arc<LargeFile>,
}

/// A large file while it is read.
pub(super) struct LargeRead<'p, 'a> {
    pub(super) pool: &'p SaveWorkers<'a>,
    pub(super) job: &'p Job,
    pub(super) opened: OpenedFile<'a>,
}

impl<'a> SaveWorkers<'a> {
    /// Reads a large file and stores what is new of it.
    pub(super) fn large(&self, at: usize, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        let job = &self.plan.jobs[at];
        for attempt in 1..=ATTEMPTS {
            let Some(opened) = self.open(job, tools)? else {
                return Ok(());
            };
            let reading = LargeRead {
                pool: self,
                job,
                opened,
            };
            let mut start = [0; 16];
            let read = reading.read_at(&mut start, 0)?;
            if self.is_database(&start[..read], tools) {
                return self.put_aside(job, reading.opened);
            }
            let Some(taken) = reading.take(&start[..read], tools)? else {
                continue;
            };
            let is_steady = reading.is_steady() && taken.size == reading.opened.seen.size;
            if is_steady || attempt == ATTEMPTS {
                if !is_steady {
                    self.note(job, WalkSkip::Changed)?;
                }
                return reading.settle(taken, tools);
            }
        }
        self.leave(job, WalkSkip::Changed)
    }
}

impl<'a> LargeRead<'_, 'a> {
    fn is_steady(&self) -> bool {
        let after = metadata::of(&self.opened.file);
        after.is_ok_and(|after| after.is_unchanged_since(&self.opened.seen))
    }

    /// Reads the file; `None` when it changed between being compared and being read.
    fn take(&self, start: &[u8], tools: &mut Tools<'a>) -> Result<Option<CutFile>, ChunkError> {
        let is_sqlite = start == HEADER;
        if let Some(before) = &self.job.previous
            && let StoredContent::Many(content) = &before.content
            && let Some(fingerprints) = &content.pieces
            && (is_sqlite || before.size == self.opened.seen.size)
        {
            let old = fetch(self.pool.parts.source, &fingerprints.chunk.name);
            let old = old.and_then(|chunk| cut_out(&chunk, fingerprints).map(<[u8]>::to_vec));
            let compared = match old {
                Ok(old) => {
                    let was = PreviousBlocks {
                        content,
                        size: before.size,
                        fingerprints: &old,
                    };
                    self.compare(&was, tools)?
                }
                Err(error @ ChunkError::Moving { .. }) => return Err(error),
                // Without the fingerprints there is nothing to compare with.
                Err(_) => ComparedFile::TooDifferent,
            };
            match compared {
                ComparedFile::Taken(taken) => return Ok(Some(taken)),
                ComparedFile::Moved => return Ok(None),
                ComparedFile::TooDifferent => {}
            }
        }
        self.cut(is_sqlite, tools).map(Some)
    }

    fn settle(self, taken: CutFile, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        let Self { pool, job, opened } = self;
        pool.wait_for(&taken.of, tools);
        pool.count(1, 0);
        let attributes = pool.attributes(job, &opened)?;
        let (fresh, database) = (opened.fresh(taken.size), opened.database());
        let again = pool.again(job, &taken.digest, taken.size)?;
        let is_new = again.is_none();
        let fingerprints = taken.fingerprints.filter(|_| is_new);
        let content = match again {
            Some(content) => content,
            None => match joined(&taken.of, &taken.parts, taken.digest) {
                Some(content) => StoredContent::Many(Box::new(content)),
                None => return Ok(()), // somebody failed, and everybody stops
            },
        };
        let rare = Rare {
            attributes,
            fresh,
            fingerprints,
            database,
        };
        let done = ReadFile::new(content, rare);
        pool.done(job, done, is_new);
        Ok(())
    }

    /// Reads until `buffer` is full or the file ends.
    pub(super) fn read_at(&self, buffer: &mut [u8], from: u64) -> Result<usize, ChunkError> {
        let mut read = 0;
        while read < buffer.len() {
            match pread(&self.opened.file, &mut buffer[read..], from + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(read)
    }

    pub(super) fn failed(&self, error: Errno) -> ChunkError {
        let (listing, spotted) = self.opened.path;
        ChunkError::Walk(WalkError::Failed {
            doing: "read",
            path: listing.path_of(spotted),
            source: error.into(),
        })
    }

    pub(super) fn go_on(&self) -> Result<(), ChunkError> {
        if self.pool.settings.walk.cancel.load(Ordering::Relaxed) {
            return Err(WalkError::Cancelled.into());
        }
        Ok(())
    }
}

/// The content of a file whose chunks are all sealed.
fn joined(of: &LargeFile, parts: &[Part], digest: FileDigest) -> Option<FileContent> {
    let mut extents = Vec::new();
    for part in parts {
        let extent = match part {
            Part::Ready(extent) => *extent,
            Part::Fresh {
                number,
                offset,
                length,
            } => Extent::Stored(Slice {
                chunk: of.get(*number)?,
                offset: *offset,
                length: *length,
            }),
        };
        append(&mut extents, extent);
    }
    Some(FileContent {
        digest,
        extents,
        pieces: None,
    })
}
