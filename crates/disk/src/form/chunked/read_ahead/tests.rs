use super::*;
use crate::form::chunked::ChunkCodec;
use crate::worker_pool::lock;
use stasis_model::digest::ChunkDigest;
use stasis_model::format::chunk::{ChunkHeader, Codec};
use stasis_model::protocol::gc::GcEpoch;
use stasis_model::tree::list::{Slice, StoredChunk};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

const CHUNK: u32 = 1000;

/// A source that notes what was fetched, and how far ahead of the writer.
#[derive(Default)]
struct Noted {
    stored: HashMap<ChunkName, Vec<u8>>,
    fetched: Mutex<Vec<ChunkName>>,
    written: AtomicUsize,
    furthest: AtomicUsize,
}

impl Noted {
    fn add(&mut self, byte: u8) -> StoredChunk {
        let plain = vec![byte; CHUNK as usize];
        let name = ChunkName::new(ChunkDigest::of(&plain), GcEpoch::FIRST);
        let header = ChunkHeader {
            codec: Codec::Raw,
            plain_len: CHUNK,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend_from_slice(&plain);
        self.stored.insert(name, bytes);
        StoredChunk {
            name,
            plain_len: CHUNK,
        }
    }
}

impl ChunkSource for Noted {
    fn codec(&self) -> &ChunkCodec {
        &ChunkCodec::Plain
    }

    fn fetch(&self, name: &ChunkName) -> Result<Vec<u8>, ChunkError> {
        let mut fetched = lock(&self.fetched);
        fetched.push(*name);
        let ahead = fetched.len() - self.written.load(Ordering::SeqCst);
        self.furthest.fetch_max(ahead, Ordering::SeqCst);
        drop(fetched);
        // Chunks with an even digest come late, so that their successors are there first.
        if name.digest().as_bytes()[0].is_multiple_of(2) {
            sleep(Duration::from_millis(2));
        }
        let stored = self.stored.get(name).cloned();
        stored.ok_or(ChunkError::Absent(*name))
    }
}

/// Counts the chunks that were written, and takes so many.
struct Out<'s> {
    source: &'s Noted,
    bytes: Vec<u8>,
    most: usize,
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() >= self.most {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.bytes.extend_from_slice(bytes);
        self.source.written.fetch_add(1, Ordering::SeqCst);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn slice(chunk: StoredChunk, offset: u32, length: u32) -> Extent {
    Extent::Stored(Slice {
        chunk,
        offset,
        length,
    })
}

fn two() -> NonZeroUsize {
    NonZeroUsize::new(2).unwrap()
}

fn write(
    source: &Noted,
    extents: &[Extent],
    most: usize,
) -> (Vec<u8>, Result<u64, ReadAheadError>) {
    let bytes = Vec::new();
    let mut out = Out {
        source,
        bytes,
        most,
    };
    let written = write_content(source, extents, two(), &mut out);
    (out.bytes, written)
}

#[test]
fn what_comes_early_waits_for_its_turn_and_no_worker_runs_far_ahead() {
    let mut source = Noted::default();
    let chunks: Vec<_> = (0..100).map(|byte| source.add(byte)).collect();
    let extents: Vec<_> = chunks.iter().map(|one| slice(*one, 0, CHUNK)).collect();
    let (bytes, written) = write(&source, &extents, usize::MAX);
    assert_eq!(written.unwrap(), 100 * u64::from(CHUNK));
    let expected: Vec<u8> = (0..100).flat_map(|byte| [byte; CHUNK as usize]).collect();
    assert!(bytes == expected, "in the order of the extents");
    let furthest = source.furthest.into_inner();
    assert!(furthest <= 2 * AHEAD + 1, "{furthest} chunks ahead");
}

#[test]
fn a_chunk_that_many_stretches_lie_in_is_fetched_once_while_it_is_kept() {
    let mut source = Noted::default();
    let (one, other) = (source.add(1), source.add(2));
    let mut extents = Vec::new();
    for at in 0..50 {
        extents.extend([slice(one, at, 3), Extent::Hole(2), slice(other, at, 1)]);
    }
    let (bytes, written) = write(&source, &extents, usize::MAX);
    assert_eq!(written.unwrap(), 300);
    assert_eq!(bytes, [1, 1, 1, 0, 0, 2].repeat(50));
    assert_eq!(source.fetched.into_inner().unwrap().len(), 2);
}

#[test]
fn a_chunk_that_was_dropped_meanwhile_is_fetched_again() {
    let mut source = Noted::default();
    let chunks: Vec<_> = (0..40).map(|byte| source.add(byte)).collect();
    let twice = chunks.iter().chain(&chunks);
    let extents: Vec<_> = twice.map(|one| slice(*one, 7, 5)).collect();
    let (bytes, written) = write(&source, &extents, usize::MAX);
    assert_eq!(written.unwrap(), 400);
    let expected: Vec<u8> = (0..40).chain(0..40).flat_map(|byte| [byte; 5]).collect();
    assert_eq!(bytes, expected);
    assert_eq!(source.fetched.into_inner().unwrap().len(), 80);
}

#[test]
fn a_chunk_that_is_missing_ends_it_after_what_lies_before() {
    let mut source = Noted::default();
    let chunks: Vec<_> = (0..30).map(|byte| source.add(byte)).collect();
    source.stored.remove(&chunks[10].name);
    let extents: Vec<_> = chunks.iter().map(|one| slice(*one, 0, CHUNK)).collect();
    let (bytes, written) = write(&source, &extents, usize::MAX);
    assert!(
        matches!(written, Err(ReadAheadError::Chunk(ChunkError::Absent(name))) if name == chunks[10].name)
    );
    assert_eq!(bytes.len(), 10 * CHUNK as usize);
}

#[test]
fn a_reader_that_goes_away_ends_the_fetching() {
    let mut source = Noted::default();
    let chunks: Vec<_> = (0..100).map(|byte| source.add(byte)).collect();
    let extents: Vec<_> = chunks.iter().map(|one| slice(*one, 0, CHUNK)).collect();
    let (_, written) = write(&source, &extents, 5 * CHUNK as usize);
    let Err(ReadAheadError::Out(error)) = written else {
        panic!("{written:?}");
    };
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    let fetched = source.fetched.into_inner().unwrap().len();
    assert!(fetched <= 6 + 2 * AHEAD, "{fetched} chunks were fetched");
}

#[test]
fn a_file_without_chunks_needs_no_worker() {
    let source = Noted::default();
    let (bytes, written) = write(&source, &[Extent::Hole(10)], usize::MAX);
    assert_eq!((bytes, written.unwrap()), (vec![0; 10], 10));
}
