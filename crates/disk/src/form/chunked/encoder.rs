//! Bytes on their way into a chunk.

use super::{ChunkError, ChunkSink, EncodedChunk};
use stasis_model::digest::ChunkDigest;
use stasis_model::format::chunk::{ChunkHeader, Codec, HEADER};
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::list::StoredChunk;
use std::io;
use zstd::bulk::Compressor;

/// How much of a chunk is tried before all of it is compressed.
const SAMPLE: usize = 16 << 10;

/// One worker's tools to make chunks.
pub struct ChunkEncoder<'s> {
    sink: &'s dyn ChunkSink,
    compressor: Compressor<'static>,
    taster: Compressor<'static>,
    buffer: Vec<u8>,
    looks_closely: bool,
}

/// What became of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodeOutcome {
    /// Where they are.
    pub chunk: StoredChunk,
    /// How many bytes were given to the sink; none if it had them.
    pub stored_bytes: Option<u64>,
}

/// One at this level, and a fast one to try with.
fn compressors(level: i32) -> io::Result<(Compressor<'static>, Compressor<'static>)> {
    let mut compressor = Compressor::new(level)?;
    compressor.include_contentsize(true)?;
    Ok((compressor, Compressor::new(1)?))
}

impl<'s> ChunkEncoder<'s> {
    /// Makes chunks for `sink` at this zstd level.
    pub fn new(sink: &'s dyn ChunkSink, level: i32) -> Result<Self, ChunkError> {
        let (compressor, taster) = compressors(level).map_err(ChunkError::Tools)?;
        Ok(Self {
            sink,
            compressor,
            taster,
            buffer: Vec::new(),
            looks_closely: false,
        })
    }

    /// The same tools, which take no chunk for stored before the sink has looked at its bytes: for lists, and for what was lost.
    pub(crate) fn looking_closely(mut self) -> Self {
        self.looks_closely = true;
        self
    }

    /// Stores bytes, unless the sink has them. There must be some, and not too many for a chunk.
    pub fn encode(
        &mut self,
        plain: &[u8],
        known: impl FnOnce(&ChunkDigest) -> Option<ChunkName>,
    ) -> Result<EncodeOutcome, ChunkError> {
        let digest = self.sink.codec().digest(plain);
        let known = known(&digest);
        let placed = if self.looks_closely {
            self.sink.place_list(digest, known)?
        } else {
            self.sink.place(digest, known)?
        };
        let plain_len = u32::try_from(plain.len()).expect("no chunk is longer than its limit");
        let chunk = StoredChunk {
            name: placed.name,
            plain_len,
        };
        if placed.is_stored {
            let stored_bytes = None;
            return Ok(EncodeOutcome {
                chunk,
                stored_bytes,
            });
        }
        let bytes = self.packed(plain, plain_len);
        let bytes = self.sink.codec().close(digest, bytes);
        let stored_bytes = Some(bytes.len() as u64);
        let name = placed.name;
        self.sink.put(EncodedChunk { name, bytes })?;
        Ok(EncodeOutcome {
            chunk,
            stored_bytes,
        })
    }

    fn packed(&mut self, plain: &[u8], plain_len: u32) -> Vec<u8> {
        if self.is_worth_it(plain) {
            self.buffer
                .resize(zstd::zstd_safe::compress_bound(plain.len()), 0);
            let packed = self
                .compressor
                .compress_to_buffer(plain, &mut self.buffer[..]);
            if let Ok(length) = packed
                && length < plain.len()
            {
                return joined(Codec::Zstd, plain_len, &self.buffer[..length]);
            }
        }
        joined(Codec::Raw, plain_len, plain)
    }

    /// Tries three places: what does not shrink there is not worth the time.
    fn is_worth_it(&mut self, plain: &[u8]) -> bool {
        if plain.len() < 8 * SAMPLE {
            return true;
        }
        let places = [
            plain.len() / 8,
            plain.len() / 2,
            plain.len() / 8 * 7 - SAMPLE,
        ];
        let mut buffer = vec![0; SAMPLE + 512];
        places.iter().any(|at| {
            let sample = &plain[*at..*at + SAMPLE];
            let packed = self.taster.compress_to_buffer(sample, &mut buffer[..]);
            packed.is_ok_and(|length| length < SAMPLE / 32 * 31)
        })
    }
}

fn joined(codec: Codec, plain_len: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(&ChunkHeader { codec, plain_len }.to_bytes());
    bytes.extend_from_slice(payload);
    bytes
}
