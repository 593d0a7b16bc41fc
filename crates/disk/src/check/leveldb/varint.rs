//! Numbers and strings as LevelDB writes them, taken from the front of some bytes.

/// Bytes that are read from front to back; every answer is `None` when there are not enough of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Seven bits a byte, the lowest first; at most 64 in all.
    pub(super) fn varint64(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
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
        let bytes = self.take(4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    pub(super) fn fixed64(&mut self) -> Option<u64> {
        let bytes = self.take(8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// The checksum as it is stored: turned and shifted, because checksums of checksums are weak.
pub(super) fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}
