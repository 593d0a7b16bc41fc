//! Rewrites damaged or missing chunks from the files that lie in them.
//!
//! A chunk that can be rebuilt is stored under its old name, so that every snapshot that needs it is whole again. What
//! lies in one that cannot is read and stored like new, so that at least the snapshot being made is whole.

use super::SaveRun;
use super::plan::FileState;
use crate::form::chunked::ChunkError;
use crate::form::chunked::encoder::ChunkEncoder;
use crate::form::chunked::scan::{ScannedKind, Spot};
use crate::form::chunked::table::StoredContent;
use crate::fs::fd::c_name;
use rustix::io::{Errno, pread};
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::list::{Extent, StoredChunk};
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

/// A stretch of a chunk that may be found in a file.
struct Shard {
    spot: Spot,
    at: u64,
    offset: u32,
    length: u32,
}

impl SaveRun<'_> {
    /// Rebuilds what can be rebuilt of `damaged`; everything else is read again.
    pub(super) fn rewrite_damaged(
        &mut self,
        damaged: &HashSet<ChunkName>,
    ) -> Result<(), ChunkError> {
        if damaged.is_empty() {
            return Ok(());
        }
        let rebuilt = self.rebuild(damaged)?;
        self.leave(&damaged.difference(&rebuilt).copied().collect());
        Ok(())
    }

    /// Has everything read again that lies in some chunks.
    pub(super) fn leave(&mut self, chunks: &HashSet<ChunkName>) {
        let (scan, plan) = (&self.scan, &mut self.plan);
        if !chunks.is_empty() {
            plan.number(chunks);
        }
        let named = plan.table().named(chunks);
        plan.lost
            .extend(named.into_iter().map(|(number, _)| number));
        if !plan.lost.is_empty() {
            plan.read_abandoned(scan);
        }
        plan.forget_finished_jobs();
    }

    /// Stores chunks again under their own names, if the files that lie in them are still what they were; says which.
    pub(super) fn rebuild(
        &self,
        damaged: &HashSet<ChunkName>,
    ) -> Result<HashSet<ChunkName>, ChunkError> {
        let mut rewritten = HashSet::new();
        if damaged.is_empty() {
            return Ok(rewritten);
        }
        let mut encoder = ChunkEncoder::new(self.parts.sink, self.settings.level)?;
        let named = self.plan.table().named(damaged);
        for (number, chunk) in named {
            let whole = self.rebuilt(&self.shards(&chunk, number), &chunk);
            if let Some(bytes) = whole {
                let stored = encoder.encode(&bytes, |_| Some(chunk.name))?;
                // A sweep may have taken the old name out of use: then nothing must refer to it.
                if stored.chunk.name == chunk.name {
                    rewritten.insert(chunk.name);
                }
            }
        }
        Ok(rewritten)
    }

    /// Where the bytes of a chunk may be found.
    fn shards(&self, chunk: &StoredChunk, number: u32) -> Vec<Shard> {
        let (scan, plan) = (&self.scan, &self.plan);
        let mut shards = Vec::new();
        let mut add = |spot: Spot, content: &StoredContent, size: u64| match content {
            StoredContent::One { chunk, offset, .. } if *chunk == number && size > 0 => {
                shards.push(Shard {
                    spot,
                    at: 0,
                    offset: *offset,
                    length: u32::try_from(size).unwrap_or(u32::MAX),
                });
            }
            StoredContent::One { .. } | StoredContent::Version(_) => {}
            StoredContent::Many(content) => {
                let mut at = 0;
                for extent in &content.extents {
                    match extent {
                        Extent::Stored(slice) if slice.chunk == *chunk => shards.push(Shard {
                            spot,
                            at,
                            offset: slice.offset,
                            length: slice.length,
                        }),
                        _ => {}
                    }
                    at += extent.length();
                }
            }
        };
        let mut file = 0;
        let _ = scan.for_each(|spot, _, _| {
            let (_, spotted) = scan.get(spot);
            if spotted.what == ScannedKind::File {
                if let Some(FileState::Kept(known) | FileState::Done(known)) =
                    plan.files[file].get()
                {
                    add(spot, &known.content, spotted.size());
                }
                file += 1;
            }
            Ok::<(), ChunkError>(())
        });
        for job in &plan.jobs {
            if let Some(before) = &job.previous {
                add(job.spot, &before.content, before.size);
            }
        }
        shards.sort_by_key(|shard| shard.offset);
        shards
    }

    /// The plaintext of a chunk, if its shards cover it and it is what its name says.
    fn rebuilt(&self, shards: &[Shard], chunk: &StoredChunk) -> Option<Vec<u8>> {
        let mut plain = vec![0; chunk.plain_len as usize];
        let mut covered = 0;
        for shard in shards {
            let (from, until) = (
                shard.offset as usize,
                (shard.offset + shard.length) as usize,
            );
            if from > covered {
                return None;
            }
            if until > covered && self.read_shard(shard, plain.get_mut(from..until)?).is_ok() {
                covered = until;
            }
        }
        let codec = self.parts.sink.codec();
        let is_whole = covered == plain.len() && codec.digest(&plain) == chunk.name.digest();
        is_whole.then_some(plain)
    }

    fn read_shard(&self, shard: &Shard, into: &mut [u8]) -> Result<(), Errno> {
        let (parts, (listing, spotted)) = (self.parts, self.scan.get(shard.spot));
        let directory: OwnedFd = parts.root.directory(listing.path.as_bytes())?;
        let name = c_name(listing.name(spotted))?;
        let file = parts.root.file(directory.as_fd(), &name)?;
        let mut done = 0;
        while done < into.len() {
            match pread(&file, &mut into[done..], shard.at + done as u64) {
                Ok(0) => return Err(Errno::NODATA),
                Ok(more) => done += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
