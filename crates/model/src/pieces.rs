//! A large file, fingerprinted piece by piece.
//!
//! BLAKE3 is a tree: the value of every aligned piece of 16 KiB is a node of it. So one pass over a file gives both the
//! digest of the whole and a fingerprint of each piece, pieces can be hashed in any order by any worker, and comparing two
//! versions of a file needs no more than the fingerprints of the old one.

use crate::chunking::PIECE;
use crate::digest::FileDigest;
use blake3::hazmat::{self, HasherExt, Mode};

/// How many bytes of a piece's value are kept as its fingerprint.
pub const FINGERPRINT: usize = 16;

/// The node of one piece in the tree of its file.
pub type PieceValue = [u8; 32];

/// How many pieces a file of `size` bytes has; the last may be short.
pub fn count(size: u64) -> u64 {
    size.div_ceil(PIECE as u64)
}

/// The value of the piece with this number, in a file that has more than one.
pub fn value(number: u64, bytes: &[u8]) -> PieceValue {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(number * PIECE as u64);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// The digest of a file, from the values of its pieces in order; there must be two or more.
pub fn digest(values: &[PieceValue]) -> FileDigest {
    let (left, right) = halves(values);
    let digest = hazmat::merge_subtrees_root(&merged(left), &merged(right), Mode::Hash);
    FileDigest::from_document(*digest.as_bytes())
}

fn merged(values: &[PieceValue]) -> PieceValue {
    if let [value] = values {
        return *value;
    }
    let (left, right) = halves(values);
    hazmat::merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
}

/// The left half is the largest power of two that leaves something for the right.
fn halves(values: &[PieceValue]) -> (&[PieceValue], &[PieceValue]) {
    values.split_at(values.len().next_power_of_two() / 2)
}

/// The fingerprints of a file, as they are stored.
pub fn fingerprints(values: &[PieceValue]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value[..FINGERPRINT].to_vec())
        .collect()
}

/// Whether a piece has the fingerprint that stands at its place in `stored`.
pub fn is_same(stored: &[u8], number: u64, value: &PieceValue) -> bool {
    let at = usize::try_from(number)
        .ok()
        .and_then(|number| number.checked_mul(FINGERPRINT));
    let found = at.and_then(|at| stored.get(at..at + FINGERPRINT));
    found == Some(&value[..FINGERPRINT])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(bytes: &[u8]) -> Vec<PieceValue> {
        bytes
            .chunks(PIECE)
            .zip(0..)
            .map(|(piece, number)| value(number, piece))
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn the_pieces_give_the_digest_of_the_whole(length in PIECE + 1..40 * PIECE, seed: u8) {
            let bytes: Vec<u8> = (0..length).map(|at| seed.wrapping_mul(at.to_le_bytes()[1]).wrapping_add(at.to_le_bytes()[0])).collect();

            prop_assert_eq!(digest(&values(&bytes)), FileDigest::of(&bytes));
            prop_assert_eq!(values(&bytes).len() as u64, count(length as u64));
        }
    }

    #[test]
    fn one_changed_byte_changes_one_fingerprint() {
        let mut bytes = vec![7; 10 * PIECE + 3];
        let stored = fingerprints(&values(&bytes));
        bytes[3 * PIECE + 5] = 8;

        let changed: Vec<u64> = values(&bytes)
            .iter()
            .zip(0..)
            .filter(|(value, number)| !is_same(&stored, *number, value))
            .map(|(_, number)| number)
            .collect();

        assert_eq!(changed, [3]);
        assert!(!is_same(&stored, 11, &[0; 32]));
    }
}
