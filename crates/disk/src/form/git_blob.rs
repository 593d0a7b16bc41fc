//! The content of a file as Git names it, and as Git's patches carry it.

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::fmt::Write as _;
use std::io::Write as _;

/// How many bytes stand in one line of a binary patch.
const LINE: usize = 52;
/// The digits of Git's base 85.
const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// The name of a blob with this content, in hexadecimal digits.
pub fn blob_id(content: &[u8]) -> String {
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(format!("blob {}\0", content.len()).as_bytes());
    digest.update(content);
    let mut text = String::new();
    for byte in digest.finish().as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Content as one half of a binary patch has it: its length, its compressed bytes in base 85, and an empty line.
pub fn binary_literal(content: &[u8]) -> String {
    let mut text = format!("literal {}\n", content.len());
    for line in compressed(content).chunks(LINE) {
        // `A` to `Z` for 1 to 26 bytes, `a` to `z` for 27 to 52.
        let length = u8::try_from(line.len()).expect("a line is short");
        let letter = match length {
            0..=26 => b'A' + length - 1,
            _ => b'a' + length - 27,
        };
        text.push(char::from(letter));
        for four in line.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..four.len()].copy_from_slice(four);
            let mut value = u32::from_be_bytes(bytes);
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = DIGITS[(value % 85) as usize];
                value /= 85;
            }
            text.extend(digits.map(char::from));
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

fn compressed(content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).expect("memory takes all bytes");
    encoder.finish().expect("memory takes all bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_has_the_name_that_git_gives_it() {
        assert_eq!(blob_id(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(
            blob_id(b"hello\n"),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
    }

    #[test]
    fn a_literal_says_its_length_and_that_of_every_line() {
        let empty = binary_literal(b"");
        assert_eq!(empty.lines().next(), Some("literal 0"));
        assert!(empty.ends_with("\n\n"), "{empty:?}");

        let many: Vec<u8> = (0_u32..400).flat_map(u32::to_le_bytes).collect();
        let text = binary_literal(&many);

        let lines: Vec<&str> = text
            .lines()
            .skip(1)
            .filter(|line| !line.is_empty())
            .collect();
        let (last, full) = lines.split_last().unwrap();
        assert!(
            full.iter()
                .all(|line| line.starts_with('z') && line.len() == 66)
        );
        assert_eq!((last.len() - 1) % 5, 0);
    }
}
