//! A large file, fingerprinted block by block.
//!
//! BLAKE3 is a tree: the value of every aligned piece of 16 KiB is a node of it. So one pass over a file gives both the
//! digest of the whole and a fingerprint of each piece, pieces can be hashed in any order by any worker, and comparing two
//! versions of a file needs no more than the fingerprints of the old one.
//!
//! A block that moved is found by its *key*, a weak sum that can be had at every place of a file cheaply ([`index`]), and
//! is believed only for its fingerprint. What a file's fingerprints are of, and where they lie, says its [`layout`].

pub mod index;
pub mod layout;

use crate::digest::FileDigest;
use crate::tree::chunking::PIECE;
use blake3::hazmat::{self, HasherExt, Mode};

/// How many bytes of a block's value are kept as its fingerprint.
///
/// Two blocks with the same fingerprint are taken for the same bytes and nothing else is compared, so that it must be out of
/// anybody's reach to make two that collide: that takes 2⁹⁶ attempts.
pub const FINGERPRINT: usize = 24;

/// How many bytes are stored of a block: its fingerprint, and its key in little endian.
pub const RECORD: usize = FINGERPRINT + 4;

/// No file has more blocks that are compared: those of 8 GiB.
pub const MOST_BLOCKS: usize = 1 << 19;

/// The node of one piece in the tree of its file.
pub type PieceValue = [u8; 32];

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

/// What is stored of a block with this value.
pub fn record(value: &PieceValue, block: &[u8]) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..FINGERPRINT].copy_from_slice(&fingerprint(value));
    record[FINGERPRINT..].copy_from_slice(&index::key(block).to_le_bytes());
    record
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
        let before = values(&bytes);
        bytes[3 * PIECE + 5] = 8;

        let changed: Vec<usize> = (0..before.len())
            .filter(|at| fingerprint(&values(&bytes)[*at]) != fingerprint(&before[*at]))
            .collect();

        assert_eq!(changed, [3]);
    }
}
