//! Large files: cut by content, or compared with what they were piece by piece.

use super::compare::{ComparedFile, PreviousBlocks};
use super::large_file::CutFile;
use super::large_read::LargeRead;
use super::plan::{Rare, ReadFile};
use super::workers::{ATTEMPTS, SaveWorkers, Tools};
use crate::form::chunked::databases::HEADER;
use crate::form::chunked::table::StoredContent;
use crate::form::chunked::{ChunkError, cut_out, fetch};
use crate::tree::walk::WalkSkip;

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
        let content = match again {
            Some(content) => content,
            None => match taken.content() {
                Some(content) => StoredContent::Many(Box::new(content)),
                None => return Ok(()), // somebody failed, and everybody stops
            },
        };
        let rare = Rare {
            attributes,
            fresh,
            fingerprints: taken.fingerprints.filter(|_| is_new),
            database,
        };
        let done = ReadFile::new(content, rare);
        pool.done(job, done, is_new);
        Ok(())
    }
}
