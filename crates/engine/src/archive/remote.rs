//! An object in a bucket, read part by part by code that blocks.

use crate::bridge::Crossing;
use bytes::Bytes;
use stasis_disk::form::archive::ReadAt;
use stasis_store::bucket::Bucket;
use stasis_store::layout::Key;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// What is asked for at once when somebody wants a little.
const BLOCK: u64 = 1 << 20;
/// How many blocks are remembered.
const REMEMBERED: usize = 8;

/// An object. Small reads are rounded to blocks, a few of which are remembered; large ones are passed on as they are.
#[derive(Debug)]
pub(crate) struct Remote {
    bucket: Arc<dyn Bucket>,
    key: Key,
    length: u64,
    crossing: Crossing,
    blocks: Mutex<VecDeque<(u64, Bytes)>>,
}

impl Remote {
    /// Made where there is an async world; read where blocking is allowed.
    pub(crate) fn new(bucket: Arc<dyn Bucket>, key: Key, length: u64) -> Self {
        Self {
            bucket,
            key,
            length,
            crossing: Crossing::here(),
            blocks: Mutex::default(),
        }
    }

    fn fetch(&self, range: Range<u64>) -> io::Result<Bytes> {
        let wanted = range.end - range.start;
        let read = self.crossing.wait(self.bucket.get_range(&self.key, range));
        let bytes = read.map_err(io::Error::other)?;
        let bytes = bytes.ok_or(io::ErrorKind::NotFound)?;
        if bytes.len() as u64 == wanted {
            Ok(bytes)
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn block(&self, number: u64) -> io::Result<Bytes> {
        let known = |blocks: &VecDeque<(u64, Bytes)>| {
            let known = blocks.iter().find(|(known, _)| *known == number);
            known.map(|(_, bytes)| bytes.clone())
        };
        let lock = || self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known(&lock()) {
            return Ok(bytes);
        }
        let start = number * BLOCK;
        let bytes = self.fetch(start..self.length.min(start + BLOCK))?;
        let mut blocks = lock();
        if blocks.len() == REMEMBERED {
            blocks.pop_front();
        }
        blocks.push_back((number, bytes.clone()));
        Ok(bytes)
    }
}

impl ReadAt for Remote {
    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.length.saturating_sub(offset);
        let wanted = left.min(buffer.len() as u64);
        if wanted == 0 {
            return Ok(0);
        }
        let bytes = if wanted >= BLOCK {
            self.fetch(offset..offset + wanted)?
        } else {
            let skipped = usize::try_from(offset % BLOCK).expect("a block is small");
            self.block(offset / BLOCK)?.slice(skipped..)
        };
        let read = bytes.len().min(buffer.len());
        buffer[..read].copy_from_slice(&bytes[..read]);
        Ok(read)
    }
}
