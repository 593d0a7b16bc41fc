//! A large file, fingerprinted piece by piece.
//!
//! BLAKE3 is a tree: the value of every aligned piece of 16 KiB is a node of it. So one pass over a file gives both the
//! digest of the whole and a fingerprint of each piece, pieces can be hashed in any order by any worker, and comparing two
//! versions of a file needs no more than the fingerprints of the old one.

use crate::digest::FileDigest;
use crate::tree::chunking::PIECE;
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

/// The digest of a file in the making, from the values of its pieces in order.
#[derive(Clone, Debug, Default)]
pub struct PieceTree {
    /// Subtrees that are complete, each with its number of pieces, which shrinks from left to right.
    subtrees: Vec<(PieceValue, u64)>,
}

impl PieceTree {
    /// Adds the value of the next piece.
    pub fn push(&mut self, value: PieceValue) {
        // Two subtrees become one only when something follows them: the last two may be the halves of the root.
        while let [.., (left, size), (right, same)] = self.subtrees[..]
            && size == same
        {
            self.subtrees.truncate(self.subtrees.len() - 2);
            let merged = hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash);
            self.subtrees.push((merged, 2 * size));
        }
        self.subtrees.push((value, 1));
    }

    /// The digest of the file; `None` if it has fewer than two pieces, whose values are not nodes of a tree.
    pub fn finish(mut self) -> Option<FileDigest> {
        let (mut right, _) = self.subtrees.pop()?;
        while let Some((left, _)) = self.subtrees.pop() {
            if self.subtrees.is_empty() {
                let root = hazmat::merge_subtrees_root(&left, &right, Mode::Hash);
                return Some(FileDigest::from_document(*root.as_bytes()));
            }
            right = hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash);
        }
        None
    }
}

/// What is kept of a piece's value.
pub fn fingerprint(value: &PieceValue) -> [u8; FINGERPRINT] {
    *value
        .first_chunk()
        .expect("a value is longer than its fingerprint")
}

/// Whether a piece has the fingerprint that stands at its place in `stored`.
pub fn is_same(stored: &[u8], number: u64, value: &PieceValue) -> bool {
    let at = usize::try_from(number)
        .ok()
        .and_then(|number| number.checked_mul(FINGERPRINT));
    let found = at.and_then(|at| stored.get(at..at + FINGERPRINT));
    found == Some(&fingerprint(value)[..])
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

            let mut tree = PieceTree::default();
            for value in values(&bytes) {
                tree.push(value);
            }
            prop_assert_eq!(tree.finish(), Some(FileDigest::of(&bytes)));
            prop_assert_eq!(values(&bytes).len() as u64, count(length as u64));
        }
    }

    #[test]
    fn a_single_piece_has_no_tree() {
        let mut tree = PieceTree::default();
        tree.push(value(0, b"short"));
        assert_eq!(tree.finish(), None);
        assert_eq!(PieceTree::default().finish(), None);
    }

    #[test]
    fn one_changed_byte_changes_one_fingerprint() {
        let mut bytes = vec![7; 10 * PIECE + 3];
        let stored: Vec<u8> = values(&bytes).iter().flat_map(fingerprint).collect();
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
