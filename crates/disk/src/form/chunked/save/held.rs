//! Files of which this host holds the content elsewhere: they are not read.
//!
//! A file that looks as it did when it was taken there has the content that was taken. If that is stored already, nothing is read at
//! all; otherwise it is read where it is held.
//!
//! *Always true:* what is stored has the digest that was taken, which is that of the very bytes that were read here. What is not there any
//! more, cannot be read, or is something else by now, is read from the tree.

use super::large_read::LargeRead;
use super::plan::{HeldFile, Job, Rare, ReadFile};
use super::workers::{CopiedFile, OpenedFile, ReadSource, SaveWorkers, Tools};
use crate::form::chunked::table::StoredContent;
use crate::form::chunked::{ChunkError, ChunkSource, cut_out, fetch};
use crate::fs::metadata;
use crate::worker_pool::lock;
use stasis_model::digest::FileDigest;
use stasis_model::tree::list::Extent;
use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What came of a file that may be held elsewhere.
pub(super) enum HeldRead {
    /// It is not, or not any more.
    Nothing,
    /// What is in it is stored already, and it is settled.
    Stored,
    /// It was read.
    Read(Rare),
}

impl<'a> SaveWorkers<'a> {
    /// Reads a small file where it is held.
    pub(super) fn held_small(
        &self,
        job: &Job,
        buffer: &mut Vec<u8>,
        tools: &mut Tools<'a>,
    ) -> Result<HeldRead, ChunkError> {
        let Some((held, source)) = self.held(job, tools) else {
            return Ok(HeldRead::Nothing);
        };
        if self.is_stored(job, held)? {
            return Ok(HeldRead::Stored);
        }
        let size = self.scan.get(job.spot).1.size();
        if !self.read_held(held, size, (source, buffer), tools) {
            return Ok(HeldRead::Nothing);
        }
        lock(&self.report).files_held += 1;
        self.settings.progress.advance(1, size);
        Ok(HeldRead::Read(rare(held)))
    }

    /// Stores a large file from where it is held; says whether it is settled. Only one that is held whole: to put one together is more
    /// work than to read it.
    pub(super) fn held_large(&self, job: &Job, tools: &mut Tools<'a>) -> Result<bool, ChunkError> {
        let Some((held, source)) = self.held(job, tools) else {
            return Ok(false);
        };
        if self.is_stored(job, held)? {
            return Ok(true);
        }
        let StoredContent::Version(digest) = &held.content else {
            return Ok(false);
        };
        let Ok(file) = source.version(digest) else {
            return Ok(false);
        };
        let Some(opened) = self.open_held(job, held, file) else {
            return Ok(false);
        };
        self.store_held(job, (digest, opened), tools)
    }

    /// What is held of a large file, as if it were that file; nothing if it is no such thing any more.
    fn open_held(&self, job: &Job, held: &HeldFile, file: OwnedFd) -> Option<OpenedFile<'a>> {
        let path = self.scan.get(job.spot);
        let seen = metadata::of(&file).ok()?;
        if !seen.file_type().is_file() || seen.size != path.1.size() {
            return None;
        }
        let copied = CopiedFile {
            file: rustix::io::dup(&file).ok()?,
            live: None,
            attributes: held.attributes.clone(),
            database: None,
        };
        Some(OpenedFile {
            file,
            seen,
            path,
            source: Some(ReadSource::Copy(Arc::new(copied))),
        })
    }

    /// Stores what is opened in the place of a large file, if it is what it should be.
    fn store_held(
        &self,
        job: &Job,
        (digest, opened): (&FileDigest, OpenedFile<'a>),
        tools: &mut Tools<'a>,
    ) -> Result<bool, ChunkError> {
        let reading = LargeRead {
            pool: self,
            job,
            opened,
            is_unreadable: Some(Cell::default()),
        };
        let mut start = [0; 16];
        let taken = reading
            .read_at(&mut start, 0)
            .and_then(|read| reading.take(&start[..read], tools));
        let taken = match taken {
            // The chunks that it was cut into so far are whole, and nobody refers to them.
            Err(_) if reading.is_unreadable.as_ref().is_some_and(Cell::get) => return Ok(false),
            taken => taken?,
        };
        if taken.size != self.scan.get(job.spot).1.size() || taken.digest != *digest {
            self.wait_for(&taken.of, tools);
            return Ok(false);
        }
        lock(&self.report).files_held += 1;
        reading.settle(taken, tools)?;
        Ok(true)
    }

    /// What is held of a file that is not copied by other means.
    fn held<'j>(
        &self,
        job: &'j Job,
        tools: &Tools<'a>,
    ) -> Option<(&'j HeldFile, &'a dyn ChunkSource)> {
        let held = job.held.as_deref().filter(|_| tools.source.is_none())?;
        Some((held, self.parts.held?.source))
    }

    /// Settles a file whose content is stored already.
    fn is_stored(&self, job: &Job, held: &HeldFile) -> Result<bool, ChunkError> {
        let (digest, size) = (held.content.digest(), self.scan.get(job.spot).1.size());
        let content = match size {
            0 => Some(StoredContent::One {
                digest: *digest,
                chunk: 0,
                offset: 0,
            }),
            _ => self.again(job, digest, size)?,
        };
        let Some(content) = content else {
            return Ok(false);
        };
        lock(&self.report).files_held += 1;
        self.settings.progress.advance(1, size);
        self.done(job, ReadFile::new(content, rare(held)), false);
        Ok(true)
    }

    /// Reads what is held of a file of `size` bytes; says whether it was what it should be.
    fn read_held(
        &self,
        held: &HeldFile,
        size: u64,
        (source, buffer): (&dyn ChunkSource, &mut Vec<u8>),
        tools: &mut Tools<'a>,
    ) -> bool {
        buffer.clear();
        let content = self.plan.held.unpack(&held.content, size);
        for extent in &content.extents {
            let is_read = match extent {
                Extent::Hole(length) => {
                    let length = usize::try_from(*length).unwrap_or(usize::MAX);
                    buffer.resize(buffer.len().saturating_add(length), 0);
                    true
                }
                Extent::Version(length) => {
                    let file = source.version(&content.digest).map(File::from);
                    file.is_ok_and(|file| file.take(length + 1).read_to_end(buffer).is_ok())
                }
                Extent::Stored(slice) => {
                    let chunk = match tools.held_chunk.take() {
                        Some((name, chunk)) if name == slice.chunk.name => Ok(chunk),
                        _ => fetch(source, &slice.chunk.name),
                    };
                    chunk.is_ok_and(|chunk| {
                        let cut = cut_out(&chunk, slice).map(|cut| buffer.extend_from_slice(cut));
                        let is_cut = cut.is_ok();
                        tools.held_chunk = Some((slice.chunk.name, chunk));
                        is_cut
                    })
                }
            };
            if !is_read {
                return false;
            }
        }
        buffer.len() as u64 == size && FileDigest::of(buffer) == content.digest
    }
}

fn rare(held: &HeldFile) -> Rare {
    Rare {
        attributes: held.attributes.clone(),
        ..Rare::default()
    }
}
