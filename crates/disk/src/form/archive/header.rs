//! One block of a tar header: numbers, names and the checksum.
//!
//! Writing knows one spelling of everything; reading understands what GNU tar and bsdtar write too.

use super::Problem;

/// Everything in a tar is a multiple of this.
pub(crate) const BLOCK: usize = 512;
/// The largest number that eleven octal digits hold, plus one.
pub(super) const OCTAL_SIZE: u64 = 1 << 33;
/// The largest number that seven octal digits hold, plus one.
pub(super) const OCTAL_ID: u32 = 1 << 21;

/// What stands in one header block; of a name or target only the part that fits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) size: u64,
    pub(super) seconds: i64,
    pub(super) kind: u8,
    pub(super) target: Vec<u8>,
}

/// Bytes needed to fill up the last block after `length` bytes.
pub(in crate::form) fn padding(length: u64) -> usize {
    let block = BLOCK as u64;
    usize::try_from((block - length % block) % block).expect("less than a block")
}

/// How a name is divided between the two fields for it; `None` when it fits into neither.
pub(super) fn split_name(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= 100 {
        return Some((b"", name));
    }
    if name.len() > 256 {
        return None;
    }
    // The slash between the two is not stored. The last part must not be empty, so a final slash does not count.
    let until = (name.len() - 1).min(156);
    let slash = name[..until].iter().rposition(|byte| *byte == b'/')?;
    let (prefix, rest) = (&name[..slash], &name[slash + 1..]);
    (!prefix.is_empty() && rest.len() <= 100).then_some((prefix, rest))
}

impl Header {
    /// The block; what does not fit must be said in a pax header, and is written here as 0 or cut off.
    pub(super) fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let (prefix, name) = split_name(&self.name).unwrap_or((b"", &self.name));
        put(&mut block[0..100], name);
        put(&mut block[345..500], prefix);
        put(&mut block[157..257], &self.target);
        put_octal(&mut block[100..108], u64::from(self.mode & 0o7777));
        put_octal(&mut block[108..116], self.uid);
        put_octal(&mut block[116..124], self.gid);
        put_octal(&mut block[124..136], self.size);
        put_octal(
            &mut block[136..148],
            u64::try_from(self.seconds).unwrap_or_default(),
        );
        block[156] = self.kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        put_octal(&mut block[329..337], 0);
        put_octal(&mut block[337..345], 0);
        let (unsigned, _) = sums(&block);
        put_octal(&mut block[148..155], unsigned);
        block[155] = b' ';
        block
    }

    /// Reads a block that is not all zeros.
    pub(super) fn decode(block: &[u8; BLOCK]) -> Result<Self, Problem> {
        let (unsigned, signed) = sums(block);
        let stated = number(&block[148..156], "checksum")?;
        if stated != i128::from(unsigned) && stated != i128::from(signed) {
            return Err(Problem::Checksum);
        }
        let is_posix = &block[257..263] == b"ustar\0";
        let prefix = text(if is_posix { &block[345..500] } else { b"" });
        let mut name = prefix.to_vec();
        if !prefix.is_empty() {
            name.push(b'/');
        }
        name.extend_from_slice(text(&block[0..100]));
        Ok(Self {
            name,
            mode: permissions(&block[100..108])?,
            uid: unsigned_number(&block[108..116], "uid")?,
            gid: unsigned_number(&block[116..124], "gid")?,
            size: unsigned_number(&block[124..136], "size")?,
            seconds: i64::try_from(number(&block[136..148], "mtime")?)
                .map_err(|_| Problem::Number("mtime"))?,
            kind: block[156],
            target: text(&block[157..257]).to_vec(),
        })
    }
}

fn put(field: &mut [u8], bytes: &[u8]) {
    let length = bytes.len().min(field.len());
    field[..length].copy_from_slice(&bytes[..length]);
}

/// Octal digits that fill a field up to its last byte, which stays NUL; 0 when the number is too large.
fn put_octal(field: &mut [u8], number: u64) {
    let digits = field.len() - 1;
    let fits = number.checked_shr(3 * u32::try_from(digits).expect("fields are short"));
    let mut number = if fits.unwrap_or(0) == 0 { number } else { 0 };
    for digit in field[..digits].iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 8).expect("one octal digit");
        number /= 8;
    }
}

/// The sum of all bytes, the checksum's own taken for spaces; some old tars added them as signed.
fn sums(block: &[u8; BLOCK]) -> (u64, i64) {
    const OWN: std::ops::Range<usize> = 148..156;
    // All of them first: loops without a question in them are done many bytes at a time.
    let sum = |bytes: &[u8]| -> u32 { bytes.iter().map(|byte| u32::from(*byte)).sum() };
    let negative = |bytes: &[u8]| -> u32 { bytes.iter().map(|byte| u32::from(byte >> 7)).sum() };
    let spaces = u32::from(b' ') * 8;
    let unsigned = u64::from(sum(block) - sum(&block[OWN]) + spaces);
    let below_zero = i64::from(negative(block) - negative(&block[OWN]));
    (unsigned, unsigned.cast_signed() - 256 * below_zero)
}

/// A text field up to its first NUL.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0);
    &field[..end.unwrap_or(field.len())]
}

/// The permissions in a mode; some tars write the type of the entry there too.
fn permissions(field: &[u8]) -> Result<u32, Problem> {
    let bits = unsigned_number(field, "mode")? & 0o7777;
    u32::try_from(bits).map_err(|_| Problem::Number("mode"))
}

fn unsigned_number(field: &[u8], name: &'static str) -> Result<u64, Problem> {
    u64::try_from(number(field, name)?).map_err(|_| Problem::Number(name))
}

/// Octal digits, or a number to the base 256 marked by the highest bit; an empty field is 0.
fn number(field: &[u8], name: &'static str) -> Result<i128, Problem> {
    let bad = Problem::Number(name);
    if field[0] & 0x80 != 0 {
        // Two's complement in all bits but the marking one.
        let first = i128::from(field[0] & 0x7f);
        let first = if first & 0x40 == 0 {
            first
        } else {
            first - 0x80
        };
        return Ok(field[1..]
            .iter()
            .fold(first, |number, byte| number << 8 | i128::from(*byte)));
    }
    let start = field.iter().position(|byte| *byte != b' ');
    let digits = &field[start.unwrap_or(field.len())..];
    let end = digits.iter().position(|byte| matches!(byte, 0 | b' '));
    let (digits, rest) = digits.split_at(end.unwrap_or(digits.len()));
    if rest.iter().any(|byte| !matches!(byte, 0 | b' ')) {
        return Err(bad);
    }
    digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'7' => Ok(number << 3 | i128::from(digit - b'0')),
        _ => Err(bad.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_header() -> Header {
        Header {
            name: b"some/file".to_vec(),
            mode: 0o4755,
            uid: 1000,
            gid: 2_097_151,
            size: OCTAL_SIZE - 1,
            seconds: 1_700_000_000,
            kind: b'0',
            target: Vec::new(),
        }
    }

    #[test]
    fn a_header_comes_back_as_it_was() {
        let names = [
            vec![b'n'; 100],
            [vec![b'd'; 155], vec![b'n'; 100]].join(&b'/'),
            [vec![b'd'; 60], vec![b'e'; 60], b"".to_vec()].join(&b'/'),
        ];
        for name in names {
            let header = Header { name, ..a_header() };
            assert_eq!(Header::decode(&header.encode()).unwrap(), header);
        }
    }

    #[test]
    fn both_sums_take_the_checksum_for_spaces_and_one_of_them_has_negative_bytes() {
        let mut block: [u8; BLOCK] = std::array::from_fn(|at| u8::try_from(at * 7 % 256).unwrap());
        block[148..156].fill(0xff);
        let bytes = block.iter().enumerate();
        let bytes: Vec<u8> = bytes
            .map(|(at, byte)| {
                if (148..156).contains(&at) {
                    b' '
                } else {
                    *byte
                }
            })
            .collect();

        let unsigned = bytes.iter().map(|byte| u64::from(*byte)).sum();
        let signed = bytes.iter().map(|byte| i64::from(byte.cast_signed())).sum();

        assert_eq!(sums(&block), (unsigned, signed));
    }

    #[test]
    fn a_name_is_divided_at_a_slash_or_not_at_all() {
        let long = |parts: &[usize]| {
            let parts: Vec<_> = parts.iter().map(|length| vec![b'n'; *length]).collect();
            parts.join(&b'/')
        };

        assert!(split_name(&long(&[155, 100])).is_some());
        assert!(split_name(&long(&[156, 100])).is_none());
        assert!(split_name(&long(&[155, 101])).is_none());
        assert!(split_name(&long(&[101])).is_none());
        assert!(split_name(&long(&[101, 0])).is_none());
        assert_eq!(split_name(&long(&[100])), Some((&b""[..], &*long(&[100]))));
    }

    #[test]
    fn every_bit_of_a_header_is_under_its_checksum() {
        let block = a_header().encode();

        for bit in 0..BLOCK * 8 {
            let mut flipped = block;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = Header::decode(&flipped);
            // The checksum's own field has more than one spelling.
            let is_harmless = (148..156).contains(&(bit / 8)) && read == Ok(a_header());
            assert!(read.is_err() || is_harmless, "bit {bit}: {read:?}");
        }
    }

    #[test]
    fn numbers_are_read_as_other_tars_write_them() {
        let read = |field: &[u8]| number(field, "size").ok();

        assert_eq!(read(b"0000644\0"), Some(0o644));
        assert_eq!(read(b"   644 \0"), Some(0o644));
        assert_eq!(read(b"\0\0\0\0"), Some(0));
        assert_eq!(read(&[0x80, 0, 0, 2, 0, 0, 0, 0]), Some(2 << 32));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xfe]), Some(-2));
        assert_eq!(read(b"12a\0"), None);
        assert_eq!(read(b"0x12"), None);
        assert_eq!(read(b"-12\0"), None);
        assert_eq!(read(b"12\x0012"), None);
    }
}
