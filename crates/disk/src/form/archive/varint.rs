//! Numbers in as few bytes as they need: seven bits each, the least first, the eighth bit says that more follow.

use super::Problem;

const SHORT: Problem = Problem::Index("it ends too early");

/// Appends a number.
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// Reads numbers and runs of bytes, one after the other.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    /// Reads a number, which has exactly one spelling.
    pub(super) fn number(&mut self) -> Result<u64, Problem> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Problem::Index("a number is malformed"))
    }

    /// Reads a number of at most `most`.
    pub(super) fn length(&mut self, most: usize) -> Result<usize, Problem> {
        let length = usize::try_from(self.number()?).ok();
        length
            .filter(|length| *length <= most)
            .ok_or(Problem::Index("a length is too large"))
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Problem> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*taken)
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
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.number(), Ok(number));
            assert!(reader.is_empty());
        }
        let bad: [&[u8]; 4] = [&[0x80, 0], &[0x80], &[], &[0xff; 10]];
        for bytes in bad {
            assert!(Reader::new(bytes).number().is_err(), "{bytes:?}");
        }
    }
}
