//! Numbers and strings as LevelDB writes them, taken from the front of some bytes.

use stasis_model::varint::ByteReader;

/// Bytes that are read from front to back; every answer is `None` when there are not enough of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(ByteReader<'a>);

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(ByteReader::new(bytes))
    }

    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        self.0.take(length).ok()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.0.byte().ok()
    }

    /// LevelDB reads numbers with needless zeros behind them.
    pub(super) fn varint64(&mut self) -> Option<u64> {
        self.0.padded_varint().ok()
    }

    pub(super) fn varint32(&mut self) -> Option<u32> {
        self.varint64()?.try_into().ok()
    }

    /// A length and so many bytes.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.varint32()?;
        self.take(usize::try_from(length).ok()?)
    }

    pub(super) fn fixed32(&mut self) -> Option<u32> {
        self.0.array().ok().map(u32::from_le_bytes)
    }

    pub(super) fn fixed64(&mut self) -> Option<u64> {
        self.0.array().ok().map(u64::from_le_bytes)
    }
}

/// The checksum as it is stored: turned and shifted, because checksums of checksums are weak.
pub(super) fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}
