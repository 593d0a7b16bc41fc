//! A snapshot's list and its chunks, copied from one pool into another.
//!
//! *Always true:* a chunk is put only after its bytes were checked against its name, and the list that is written is, entry
//! by entry, the one that was read. Chunks get the names that the other pool gives them: whether a name may be used is known only
//! where it lies. Between plain pools they go as they are stored; where one is encrypted they are opened here and closed there.

use super::encoder::ChunkEncoder;
use super::list::{ListWriter, WrittenList};
use super::restore::{each_row, fetch_stored, read_list};
use super::save::OVERTAKEN_ROUNDS;
use super::{ChunkCodec, ChunkError, ChunkSink, ChunkSource, EncodedChunk, PlacedChunk};
use crate::progress::Progress;
use crate::worker_pool::{self, WorkerPool};
use stasis_model::digest::{ChunkDigest, TreeDigest};
use stasis_model::format::chunk::other_payload;
use stasis_model::format::manifest::FileList;
use stasis_model::invalid::Invalid;
use stasis_model::protocol::gc::{ChunkName, Names};
use stasis_model::tree::list::{Extent, ListRoot, ListRow, StoredChunk};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many chunks are read and asked for at once: whoever copies waits for stores more than for processors.
const WORKERS: NonZeroUsize = NonZeroUsize::new(8).expect("it is not zero");

/// What is copied, and where to.
pub struct CopyParts<'c> {
    /// The snapshot's list.
    pub list: &'c FileList,
    /// Where it lies.
    pub from: &'c dyn ChunkSource,
    /// Where it goes.
    pub to: &'c dyn ChunkSink,
    /// What lies there already.
    pub there: &'c dyn ChunkSource,
    /// The names there of chunks here that need not be looked for.
    pub held: &'c (dyn Fn(&ChunkName) -> Option<ChunkName> + Sync),
    /// The name that a snapshot there has for some bytes; what lies under it is looked at.
    pub known: &'c (dyn Fn(&ChunkDigest) -> Option<ChunkName> + Sync),
    /// A list there that may have the same sections.
    pub parent: &'c ListRoot,
    /// The zstd level of what is packed anew.
    pub level: i32,
    /// How far it has come.
    pub progress: &'c Progress,
}

/// A list that was copied, with everything that it leads to.
#[derive(Debug)]
pub struct CopiedList {
    /// The list.
    pub list: FileList,
    /// What its tree is.
    pub digest: TreeDigest,
    /// Every chunk that it leads to.
    pub names: Names,
    /// The chunks of its files, by what they are called where it came from.
    pub moved: HashMap<ChunkName, ChunkName>,
    /// Chunks that were put.
    pub chunks_new: u64,
    /// Bytes of those.
    pub bytes_stored: u64,
}

/// Copies a list, and all chunks that the other pool does not have.
pub fn copy(parts: &CopyParts<'_>) -> Result<CopiedList, ChunkError> {
    let chunks = read_list(parts.from, parts.list)?.chunks;
    let mut copied = CopiedChunks::default();
    let mut parent = parts.parent.clone();
    let mut left: Vec<StoredChunk> = chunks.iter().copied().collect();
    for round in 0.. {
        copied.add(parts, left)?;
        let overtaken = parts.to.overtaken()?;
        let is_last = round == OVERTAKEN_ROUNDS;
        left = copied.among(&chunks, &overtaken);
        if !left.is_empty() && !is_last {
            continue;
        }
        parent
            .sections
            .retain(|place| !overtaken.contains(&place.slice.chunk.name));
        let (written, digest) = copy_list(parts, &parent, &copied.moved)?;
        copied.chunks_new += written.chunks_new;
        copied.bytes_stored += written.stored_bytes;
        let overtaken = parts.to.overtaken()?;
        // Whether it may be published, whoever judges the names decides.
        if is_last || written.names.iter().all(|name| !overtaken.contains(name)) {
            return Ok(CopiedList {
                list: written.list,
                digest,
                names: written.names,
                moved: copied.moved,
                chunks_new: copied.chunks_new,
                bytes_stored: copied.bytes_stored,
            });
        }
        left = copied.among(&chunks, &overtaken);
    }
    unreachable!("it ends after so many rounds")
}

/// The chunks of files that were copied so far.
#[derive(Default)]
struct CopiedChunks {
    moved: HashMap<ChunkName, ChunkName>,
    chunks_new: u64,
    bytes_stored: u64,
}

impl CopiedChunks {
    /// Copies some more.
    fn add(&mut self, parts: &CopyParts<'_>, chunks: Vec<StoredChunk>) -> Result<(), ChunkError> {
        let moved = Mutex::new(std::mem::take(&mut self.moved));
        let (chunks_new, bytes_new) = (AtomicU64::new(0), AtomicU64::new(0));
        WorkerPool::<_, ChunkError>::for_each(WORKERS, chunks, |chunk| {
            let (name, put) = copy_chunk(parts, &chunk)?;
            if let Some(bytes) = put {
                chunks_new.fetch_add(1, Ordering::Relaxed);
                bytes_new.fetch_add(bytes, Ordering::Relaxed);
                parts.progress.advance(1, bytes);
            }
            worker_pool::lock(&moved).insert(chunk.name, name);
            Ok(())
        })?;
        self.moved = worker_pool::into_inner(moved);
        self.chunks_new += chunks_new.into_inner();
        self.bytes_stored += bytes_new.into_inner();
        Ok(())
    }

    /// Those that have such a name by now.
    fn among<'c>(
        &self,
        chunks: impl IntoIterator<Item = &'c StoredChunk>,
        names: &HashSet<ChunkName>,
    ) -> Vec<StoredChunk> {
        let is_among = |chunk: &&StoredChunk| {
            let name = self.moved.get(&chunk.name);
            name.is_some_and(|name| names.contains(name))
        };
        chunks.into_iter().filter(is_among).copied().collect()
    }
}

/// Where a chunk lies in the other pool, and how many bytes had to be put for that.
fn copy_chunk(
    parts: &CopyParts<'_>,
    chunk: &StoredChunk,
) -> Result<(ChunkName, Option<u64>), ChunkError> {
    if let Some(name) = (parts.held)(&chunk.name) {
        return Ok((name, None));
    }
    if let (ChunkCodec::Plain, ChunkCodec::Plain) = (parts.from.codec(), parts.to.codec()) {
        return copy_as_it_is(parts, chunk);
    }
    // What it is called there, only its bytes tell.
    let plain = fetch_stored(parts.from, chunk)?;
    let mut encoder = ChunkEncoder::new(parts.to, parts.level)?;
    let done = encoder.encode(&plain, parts.known)?;
    Ok((done.chunk.name, done.stored_bytes))
}

/// The same where a chunk is called after its bytes in both pools, and stored alike.
fn copy_as_it_is(
    parts: &CopyParts<'_>,
    chunk: &StoredChunk,
) -> Result<(ChunkName, Option<u64>), ChunkError> {
    let digest = chunk.name.digest();
    let PlacedChunk { name, is_stored } = parts.to.place(digest, (parts.known)(&digest))?;
    if is_stored {
        return Ok((name, None));
    }
    let bytes = parts.from.fetch(&chunk.name)?;
    let plain = parts.from.codec().open(&chunk.name, &bytes)?;
    if plain.len() != chunk.plain_len as usize {
        return Err(ChunkError::Damaged {
            name: chunk.name,
            source: other_payload(),
        });
    }
    let length = bytes.len() as u64;
    parts.to.put(EncodedChunk { name, bytes })?;
    Ok((name, Some(length)))
}

/// Writes the list anew with the names that its chunks have in the other pool.
fn copy_list(
    parts: &CopyParts<'_>,
    parent: &ListRoot,
    moved: &HashMap<ChunkName, ChunkName>,
) -> Result<(WrittenList, TreeDigest), ChunkError> {
    let encoder = ChunkEncoder::new(parts.to, parts.level)?;
    let mut writer = ListWriter::new(encoder, parts.known, parent);
    let digest = each_row(parts.from, parts.list, |mut row| {
        rename(&mut row, moved)?;
        writer.push(row)
    })?;
    Ok((writer.finish(parts.there)?, digest))
}

fn rename(row: &mut ListRow, moved: &HashMap<ChunkName, ChunkName>) -> Result<(), ChunkError> {
    let Some(content) = &mut row.content else {
        return Ok(());
    };
    if content.is_version() {
        return Err(ChunkError::Unfit {
            path: row.entry.path.clone(),
            source: Invalid::new("its bytes lie in no chunk, but in a session"),
        });
    }
    let extents = content.extents.iter_mut();
    let stored = extents.filter_map(|extent| match extent {
        Extent::Stored(slice) => Some(slice),
        Extent::Hole(_) | Extent::Version(_) => None,
    });
    for slice in stored.chain(&mut content.pieces) {
        let name = &mut slice.chunk.name;
        // A list that says something else when it is read again is none.
        *name = *moved.get(name).ok_or(ChunkError::Absent(*name))?;
    }
    Ok(())
}
