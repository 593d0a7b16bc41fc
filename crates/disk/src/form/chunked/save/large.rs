//! Large files: cut by content, or compared with what they were block by block.

use super::large_file::CutFile;
use super::large_read::LargeRead;
use super::plan::{Rare, ReadFile};
use super::workers::{ATTEMPTS, SaveWorkers, Tools};
use crate::form::chunked::databases::HEADER;
use crate::form::chunked::table::StoredContent;
use crate::form::chunked::{ChunkError, ChunkSource, cut_out, fetch, is_rot};
use crate::tree::walk::WalkSkip;
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::blocks::index::BlockIndex;
use stasis_model::tree::blocks::layout::BlockLayout;
use stasis_model::tree::list::Slice;

impl<'a> SaveWorkers<'a> {
    /// Reads a large file and stores what is new of it.
    pub(super) fn large(&self, at: usize, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        let job = &self.plan.jobs[at];
        if self.version(job, tools)? || self.held_large(job, tools)? {
            return Ok(());
        }
        for attempt in 1..=ATTEMPTS {
            let Some(opened) = self.open(job, tools)? else {
                return Ok(());
            };
            let reading = LargeRead {
                pool: self,
                job,
                opened,
                is_unreadable: None,
            };
            let mut start = [0; 16];
            let read = reading.read_at(&mut start, 0)?;
            if self.is_database(&start[..read], tools) {
                return self.put_aside(job, reading.opened);
            }
            let taken = reading.take(&start[..read], tools)?;
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
    /// Reads the file, comparing it with what it was if that is known.
    pub(super) fn take(&self, start: &[u8], tools: &mut Tools<'a>) -> Result<CutFile, ChunkError> {
        if let Some(before) = &self.job.previous
            && let StoredContent::Many(content) = &before.content
            && !content.pieces.is_empty()
        {
            match indexed(self.pool.parts.source, &content.pieces) {
                Ok(index) => {
                    let was = self.previous_blocks(content, index)?;
                    return self.compare(&was, tools);
                }
                Err(error @ ChunkError::Moving { .. }) if !is_rot(&error) => return Err(error),
                // Without the fingerprints there is nothing to compare with.
                Err(_) => {}
            }
        }
        self.cut(start == HEADER, tools)
    }

    pub(super) fn settle(self, taken: CutFile, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        self.count(1, 0);
        let Self {
            pool, job, opened, ..
        } = self;
        pool.wait_for(&taken.of, tools);
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
            blocks: taken.blocks.filter(|_| is_new),
            database,
        };
        let done = ReadFile::new(content, rare);
        pool.done(job, done, is_new);
        Ok(())
    }
}

/// Fetches the fingerprints of a file as it was: their layout, and the tables it speaks of.
fn indexed(source: &dyn ChunkSource, pieces: &[Slice]) -> Result<BlockIndex, ChunkError> {
    let mut fetched: Option<(ChunkName, Vec<u8>)> = None;
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for slice in pieces {
        // They mostly lie side by side.
        let chunk = match fetched.take() {
            Some((name, chunk)) if name == slice.chunk.name => chunk,
            _ => fetch(source, &slice.chunk.name)?,
        };
        parts.push(cut_out(&chunk, slice)?.to_vec());
        fetched = Some((slice.chunk.name, chunk));
    }
    let tables: Vec<&[u8]> = parts.iter().skip(1).map(Vec::as_slice).collect();
    let layout = BlockLayout::from_bytes(parts.first().map_or(&[][..], Vec::as_slice));
    let index = layout.and_then(|layout| BlockIndex::new(layout, &tables));
    index.map_err(|source| ChunkError::Damaged {
        name: pieces[0].chunk.name,
        source,
    })
}
