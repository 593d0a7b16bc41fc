//! Small files on their way into bundles.

use super::bundle::{Bundle, PendingFile};
use super::held::HeldRead;
use super::plan::{Job, Rare, ReadFile};
use super::workers::{ATTEMPTS, OpenedFile, SaveWorkers, Tools};
use crate::form::chunked::ChunkError;
use crate::form::chunked::table::StoredContent;
use crate::fs::metadata;
use crate::tree::walk::WalkSkip;
use rustix::io::{Errno, pread};
use stasis_model::digest::FileDigest;
use stasis_model::tree::chunking::{BUNDLE_MAX, LARGE};
use std::ops::Range;

impl<'a> SaveWorkers<'a> {
    /// Reads a run of small files and stores what is new of them.
    pub(super) fn small(
        &self,
        range: Range<usize>,
        tools: &mut Tools<'a>,
    ) -> Result<(), ChunkError> {
        let mut bundle = Bundle::default();
        let mut buffer = Vec::new();
        for at in range {
            if self.has_failed() {
                return Ok(());
            }
            self.small_file(at, &mut bundle, &mut buffer, tools)?;
        }
        self.end_bundle(&mut bundle, tools)
    }

    fn small_file(
        &self,
        at: usize,
        bundle: &mut Bundle,
        buffer: &mut Vec<u8>,
        tools: &mut Tools<'a>,
    ) -> Result<(), ChunkError> {
        let job = &self.plan.jobs[at];
        if self.version(job, tools)? {
            return Ok(());
        }
        let rare = match self.held_small(job, buffer, tools)? {
            HeldRead::Stored => return Ok(()),
            HeldRead::Read(rare) => rare,
            HeldRead::Nothing => {
                let Some(opened) = self.read_small(job, buffer, tools)? else {
                    return Ok(());
                };
                if self.is_database(buffer, tools) {
                    return self.put_aside(job, opened);
                }
                self.count(1, buffer.len() as u64);
                self.rare(job, &opened, buffer.len() as u64)?
            }
        };
        self.keep_small((at, rare), bundle, buffer, tools)
    }

    /// What few files have, of one that was read.
    fn rare(&self, job: &Job, opened: &OpenedFile<'_>, size: u64) -> Result<Rare, ChunkError> {
        Ok(Rare {
            attributes: self.attributes(job, opened)?,
            fresh: opened.fresh(size),
            blocks: None,
            database: opened.database(),
        })
    }

    /// Stores what was read of a file, unless it is stored already.
    fn keep_small(
        &self,
        (at, rare): (usize, Rare),
        bundle: &mut Bundle,
        buffer: &[u8],
        tools: &mut Tools<'a>,
    ) -> Result<(), ChunkError> {
        let job = &self.plan.jobs[at];
        let size = buffer.len() as u64;
        let digest = FileDigest::of(buffer);
        let content = StoredContent::One {
            digest,
            chunk: 0,
            offset: 0,
        };
        let mut done = ReadFile::new(content, rare);
        if size == 0 {
            self.done(job, done, false);
            return Ok(());
        }
        if let Some(content) = self.again(job, &digest, size)? {
            done.content = content;
            self.done(job, done, false);
            return Ok(());
        }
        if bundle.len() + buffer.len() > BUNDLE_MAX {
            self.end_bundle(bundle, tools)?;
        }
        let offset = bundle.add(&digest, buffer);
        bundle.pending.push(PendingFile {
            job: at,
            digest,
            offset,
            done,
        });
        if bundle.is_full(&digest, buffer.len()) {
            self.end_bundle(bundle, tools)?;
        }
        Ok(())
    }

    fn end_bundle(&self, bundle: &mut Bundle, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        if bundle.len() == 0 {
            return Ok(());
        }
        let chunk = self.encode_bytes(bundle.bytes(), &mut tools.bundles)?;
        let number = self.plan.table_mut().number(chunk);
        for pending in bundle.pending.drain(..) {
            let mut done = pending.done;
            done.content = StoredContent::One {
                digest: pending.digest,
                chunk: number,
                offset: pending.offset,
            };
            self.done(&self.plan.jobs[pending.job], done, true);
        }
        bundle.clear();
        Ok(())
    }

    /// Reads a file into `buffer`, again while it changes.
    fn read_small(
        &self,
        job: &Job,
        buffer: &mut Vec<u8>,
        tools: &mut Tools<'a>,
    ) -> Result<Option<OpenedFile<'a>>, ChunkError> {
        for attempt in 1.. {
            let Some(opened) = self.open(job, tools)? else {
                return Ok(None);
            };
            let read = read_whole(&opened, buffer);
            let after = read.and_then(|()| metadata::of(&opened.file));
            let after = match after {
                Ok(after) => after,
                Err(error) => return self.could_not(job, "read", error).map(|()| None),
            };
            let is_steady =
                after.is_unchanged_since(&opened.seen) && buffer.len() as u64 == after.size;
            // A database need not hold still: it is copied by other means.
            if is_steady || self.is_database(buffer, tools) {
                return Ok(Some(opened));
            }
            if attempt == ATTEMPTS {
                self.note(job, WalkSkip::Changed)?;
                return Ok(Some(opened));
            }
        }
        Ok(None)
    }
}

/// Reads what the file holds now. One that grew beyond small is cut there: it changed, and will be read again.
fn read_whole(opened: &OpenedFile<'_>, buffer: &mut Vec<u8>) -> Result<(), Errno> {
    let limit = usize::try_from(LARGE * 2).unwrap_or(usize::MAX);
    let size = usize::try_from(opened.seen.size)
        .unwrap_or(limit)
        .min(limit);
    buffer.clear();
    buffer.resize(size + 1, 0);
    let mut at = 0;
    while at < buffer.len() {
        match pread(&opened.file, &mut buffer[at..], at as u64) {
            Ok(0) => break,
            Ok(read) => at += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(at);
    Ok(())
}
