//! Numbers and stretches of bytes, as lists are made of them.

use super::StoredChunk;
use crate::chunk_name::{ChunkName, GcEpoch};
use crate::digest::ChunkDigest;
use crate::invalid::Invalid;
use crate::varint::{BadVarint, ByteReader};

/// The refusal of a list that ends in the middle of something.
fn too_short() -> Invalid {
    Invalid::new("the list ends in the middle of an entry")
}

/// The refusal of a number that no build writes.
pub(crate) fn bad_number(what: &str) -> Invalid {
    Invalid::new(format!("the list says {what}, which cannot be"))
}

/// The refusal of something that a later build wrote, or that is damaged.
pub(super) fn unknown(what: &str) -> Invalid {
    Invalid::new(format!(
        "the list holds {what}, which this build does not know"
    ))
}

/// The refusal of paths that do not ascend.
pub(super) fn disorder() -> Invalid {
    Invalid::new("the list is not in order")
}

/// Says of a number what is wrong with the list that holds it.
fn of_list<T>(read: Result<T, BadVarint>) -> Result<T, Invalid> {
    read.map_err(|bad| match bad {
        BadVarint::Short => too_short(),
        BadVarint::Padded => bad_number("a number with needless digits"),
        BadVarint::TooLarge => bad_number("a number beyond all numbers"),
    })
}

pub(super) use crate::varint::put as put_number;

/// Small numbers of either sign stay short.
pub(super) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_number(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn put_chunk(out: &mut Vec<u8>, chunk: &StoredChunk) {
    out.extend_from_slice(chunk.name.digest().as_bytes());
    put_number(out, chunk.name.born().number().into());
    put_number(out, chunk.plain_len.into());
}

/// Reads the parts of a list from the front of some bytes.
#[derive(Debug)]
pub(super) struct SectionReader<'b>(ByteReader<'b>);

impl<'b> SectionReader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self(ByteReader::new(bytes))
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'b [u8], Invalid> {
        of_list(self.0.take(length))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Invalid> {
        of_list(self.0.array())
    }

    pub(super) fn byte(&mut self) -> Result<u8, Invalid> {
        of_list(self.0.byte())
    }

    pub(super) fn number(&mut self) -> Result<u64, Invalid> {
        of_list(self.0.varint())
    }

    pub(super) fn signed(&mut self) -> Result<i64, Invalid> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(super) fn small(&mut self, what: &str) -> Result<u32, Invalid> {
        let number = self.number()?;
        u32::try_from(number).ok().ok_or_else(|| bad_number(what))
    }

    /// How many things follow, each at least `least` bytes long: a lie is found before memory is set aside for it.
    pub(super) fn count(&mut self, least: usize) -> Result<usize, Invalid> {
        let count = usize::try_from(self.number()?).ok().ok_or_else(too_short)?;
        if count
            .checked_mul(least)
            .is_none_or(|bytes| bytes > self.0.remaining())
        {
            return Err(too_short());
        }
        Ok(count)
    }

    pub(super) fn bytes(&mut self) -> Result<&'b [u8], Invalid> {
        let length = self.count(1)?;
        self.take(length)
    }

    pub(super) fn chunk(&mut self) -> Result<StoredChunk, Invalid> {
        let digest = ChunkDigest::from_document(self.array()?);
        let born = GcEpoch::from_number(self.small("an epoch too large")?);
        let plain_len = self.small("a chunk too long")?;
        let name = ChunkName::new(digest, born);
        Ok(StoredChunk { name, plain_len })
    }

    pub(super) fn chunks(&mut self) -> Result<Vec<StoredChunk>, Invalid> {
        let count = self.count(34)?;
        (0..count).map(|_| self.chunk()).collect()
    }

    pub(super) fn end(&self) -> Result<(), Invalid> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Invalid::new("something follows the end of the list"))
        }
    }
}
