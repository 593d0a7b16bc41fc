//! Numbers and stretches of bytes, as lists are made of them.

use super::StoredChunk;
use crate::digest::ChunkDigest;
use crate::protocol::gc::{ChunkName, GcEpoch};
use crate::tree::BadPath;
use crate::varint::{BadVarint, ByteReader};

/// Why bytes are not a list.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadList {
    /// They end in the middle of something.
    #[error("the list ends in the middle of an entry")]
    Short,
    /// They go on after the end.
    #[error("something follows the end of the list")]
    Long,
    /// A number that no build writes.
    #[error("the list says {0}, which cannot be")]
    Number(&'static str),
    /// Something that a later build wrote, or that is damaged.
    #[error("the list holds {0}, which this build does not know")]
    Unknown(&'static str),
    /// A path that is not one.
    #[error("the list holds a path that is not one")]
    Path(#[source] BadPath),
    /// Paths do not ascend.
    #[error("the list is not in order")]
    Disorder,
}

impl From<BadVarint> for BadList {
    fn from(bad: BadVarint) -> Self {
        match bad {
            BadVarint::Short => Self::Short,
            BadVarint::Padded => Self::Number("a number with needless digits"),
            BadVarint::TooLarge => Self::Number("a number beyond all numbers"),
        }
    }
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
pub(super) struct ListReader<'b>(ByteReader<'b>);

impl<'b> ListReader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self(ByteReader::new(bytes))
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'b [u8], BadList> {
        Ok(self.0.take(length)?)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], BadList> {
        Ok(self.0.array()?)
    }

    pub(super) fn byte(&mut self) -> Result<u8, BadList> {
        Ok(self.0.byte()?)
    }

    pub(super) fn number(&mut self) -> Result<u64, BadList> {
        Ok(self.0.varint()?)
    }

    pub(super) fn signed(&mut self) -> Result<i64, BadList> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(super) fn small(&mut self, what: &'static str) -> Result<u32, BadList> {
        u32::try_from(self.number()?).map_err(|_| BadList::Number(what))
    }

    /// How many things follow, each at least `least` bytes long: a lie is found before memory is set aside for it.
    pub(super) fn count(&mut self, least: usize) -> Result<usize, BadList> {
        let count = usize::try_from(self.number()?).map_err(|_| BadList::Short)?;
        if count
            .checked_mul(least)
            .is_none_or(|bytes| bytes > self.0.remaining())
        {
            return Err(BadList::Short);
        }
        Ok(count)
    }

    pub(super) fn bytes(&mut self) -> Result<&'b [u8], BadList> {
        let length = self.count(1)?;
        self.take(length)
    }

    pub(super) fn chunk(&mut self) -> Result<StoredChunk, BadList> {
        let digest = ChunkDigest::from_document(self.array()?);
        let born = GcEpoch::from_number(self.small("an epoch too large")?);
        let plain_len = self.small("a chunk too long")?;
        let name = ChunkName::new(digest, born);
        Ok(StoredChunk { name, plain_len })
    }

    pub(super) fn chunks(&mut self) -> Result<Vec<StoredChunk>, BadList> {
        let count = self.count(34)?;
        (0..count).map(|_| self.chunk()).collect()
    }

    pub(super) fn end(&self) -> Result<(), BadList> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(BadList::Long)
        }
    }
}
