//! A large file while it is read.

use super::plan::Job;
use super::workers::{OpenedFile, SaveWorkers};
use crate::form::chunked::ChunkError;
use crate::fs::{holes, metadata};
use crate::tree::walk::WalkError;
use rustix::io::{Errno, pread};
use stasis_model::failure::AtPath;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// How much is read at once.
pub(super) const WINDOW: usize = 4 << 20;

/// A large file while it is read.
pub(super) struct LargeRead<'p, 'a> {
    pub(super) pool: &'p SaveWorkers<'a>,
    pub(super) job: &'p Job,
    pub(super) opened: OpenedFile<'a>,
    /// Set when what is read in the place of the file cannot be; nothing for the file itself, without which the save ends.
    pub(super) is_unreadable: Option<Cell<bool>>,
}

impl LargeRead<'_, '_> {
    /// Whether the file is still what it was when it was opened.
    pub(super) fn is_steady(&self) -> bool {
        let after = metadata::of(&self.opened.file);
        after.is_ok_and(|after| after.is_unchanged_since(&self.opened.seen))
    }

    /// Counts what was read, of the file or in its place.
    pub(super) fn count(&self, files: u64, bytes: u64) {
        match self.is_unreadable {
            None => self.pool.count(files, bytes),
            Some(_) => self.pool.settings.progress.advance(files, bytes),
        }
    }

    /// Reads until `buffer` is full or the file ends.
    pub(super) fn read_at(&self, buffer: &mut [u8], from: u64) -> Result<usize, ChunkError> {
        let mut read = 0;
        while read < buffer.len() {
            match pread(&self.opened.file, &mut buffer[read..], from + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(Errno::INTR) => {}
                Err(error) => return self.failed(error),
            }
        }
        Ok(read)
    }

    fn failed<T>(&self, error: Errno) -> Result<T, ChunkError> {
        if let Some(is_unreadable) = &self.is_unreadable {
            is_unreadable.set(true);
        }
        let (listing, spotted) = self.opened.path;
        Ok(Err(error).on("read", listing.path_of(spotted))?)
    }

    /// The next stretch of data at or after `at`.
    pub(super) fn next_data(&self, at: u64, end: u64) -> Result<Option<Range<u64>>, ChunkError> {
        holes::next_data(&self.opened.file, at, end).or_else(|error| self.failed(error))
    }

    pub(super) fn go_on(&self) -> Result<(), ChunkError> {
        if self.pool.settings.walk.cancel.load(Ordering::Relaxed) {
            return Err(WalkError::Cancelled.into());
        }
        Ok(())
    }
}
