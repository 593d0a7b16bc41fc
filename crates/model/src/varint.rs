//! Unsigned LEB128, the variable-length integer of our lists and indexes and of LevelDB: seven bits a byte, the least significant
//! first; the eighth bit says that more follow.
//!
//! *Always true:* [`put`] writes the shortest encoding, and [`ByteReader::varint`] accepts no other, so that equal numbers are equal bytes and a digest
//! over them means something. LevelDB does not refuse padding; its bytes are read with [`ByteReader::padded_varint`].

/// Why bytes are not what they should encode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadVarint {
    /// The bytes end too early.
    Short,
    /// The number has a shorter encoding.
    Padded,
    /// More than 64 bits.
    TooLarge,
}

/// Appends a number in its shortest encoding.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Takes numbers and byte strings off the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'b>(&'b [u8]);

impl<'b> ByteReader<'b> {
    /// Starts at the first byte.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// Whether every byte was taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes were not taken yet.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Takes `length` bytes, or none when there are fewer.
    pub fn take(&mut self, length: usize) -> Result<&'b [u8], BadVarint> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(BadVarint::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes `N` bytes, or none when there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BadVarint> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BadVarint::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Takes one byte.
    pub fn byte(&mut self) -> Result<u8, BadVarint> {
        self.array().map(|[byte]| byte)
    }

    /// Takes a number in its shortest encoding.
    pub fn varint(&mut self) -> Result<u64, BadVarint> {
        let before = self.0;
        let number = self.padded_varint()?;
        let taken = before.len() - self.0.len();
        if taken > 1 && before[taken - 1] == 0 {
            return Err(BadVarint::Padded);
        }
        Ok(number)
    }

    /// Takes a number that needless zeros may follow, in ten bytes at most.
    pub fn padded_varint(&mut self) -> Result<u64, BadVarint> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if bits << shift >> shift != bits {
                return Err(BadVarint::TooLarge);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(BadVarint::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_spelling() {
        for number in [
            0,
            1,
            127,
            128,
            16_383,
            16_384,
            u64::from(u32::MAX),
            u64::MAX,
        ] {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            let mut reader = ByteReader::new(&bytes);
            assert_eq!(reader.varint(), Ok(number));
            assert!(reader.is_empty());
        }
        let bad: [(&[u8], BadVarint); 5] = [
            (&[0x80, 0], BadVarint::Padded),
            (&[0x80], BadVarint::Short),
            (&[], BadVarint::Short),
            (&[0xff; 10], BadVarint::TooLarge),
            (
                &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2],
                BadVarint::TooLarge,
            ),
        ];
        for (bytes, why) in bad {
            assert_eq!(ByteReader::new(bytes).varint(), Err(why), "{bytes:?}");
        }
    }

    #[test]
    fn padding_is_read_where_it_is_allowed_and_within_ten_bytes() {
        let padded = |bytes: &[u8]| ByteReader::new(bytes).padded_varint();

        assert_eq!(padded(&[0x85, 0x80, 0]), Ok(5));
        let mut longest = [0x80; 10];
        longest[9] = 0;
        assert_eq!(padded(&longest), Ok(0));
        longest[9] = 1;
        assert_eq!(padded(&longest), Ok(1 << 63));
        assert_eq!(padded(&[0x80; 11]), Err(BadVarint::TooLarge));
        assert_eq!(padded(&[0x80; 9]), Err(BadVarint::Short));
    }

    #[test]
    fn what_is_not_there_is_not_taken() {
        let mut reader = ByteReader::new(b"abc");

        assert_eq!(reader.take(4), Err(BadVarint::Short));
        assert_eq!(reader.array::<4>(), Err(BadVarint::Short));
        assert_eq!(reader.remaining(), 3);
        assert_eq!(reader.take(2), Ok(&b"ab"[..]));
        assert_eq!(reader.byte(), Ok(b'c'));
        assert_eq!(reader.byte(), Err(BadVarint::Short));
    }
}
