//! A large file as it passes by: its digest and its fingerprints.

use stasis_model::digest::FileDigest;
use stasis_model::tree::blocks::{self, FINGERPRINT, PieceTree};
use stasis_model::tree::chunking::{CHUNK_MAX, PIECE};

const ZEROS: [u8; PIECE] = [0; PIECE];

/// Hashes bytes in order, in aligned pieces.
#[derive(Debug, Default)]
pub(super) struct PieceStream {
    tree: PieceTree,
    number: u64,
    partial: Vec<u8>,
    /// Until they would be too many for a chunk.
    fingerprints: Option<Vec<u8>>,
    total: u64,
}

impl PieceStream {
    pub(super) fn new() -> Self {
        Self {
            fingerprints: Some(Vec::new()),
            ..Self::default()
        }
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.partial.len() == PIECE {
                let piece = std::mem::take(&mut self.partial);
                self.piece(&piece);
                self.partial = piece;
                self.partial.clear();
            }
            // A whole piece that something follows need not be copied.
            if self.partial.is_empty() && bytes.len() > PIECE {
                let (piece, rest) = bytes.split_at(PIECE);
                self.piece(piece);
                bytes = rest;
                continue;
            }
            let (taken, rest) = bytes.split_at(bytes.len().min(PIECE - self.partial.len()));
            self.partial.extend_from_slice(taken);
            bytes = rest;
        }
    }

    pub(super) fn zeros(&mut self, mut length: u64) {
        while length > 0 {
            let now = length.min(PIECE as u64);
            self.update(&ZEROS[..usize::try_from(now).unwrap_or(PIECE)]);
            length -= now;
        }
    }

    fn piece(&mut self, bytes: &[u8]) {
        let value = blocks::value(self.number, bytes);
        self.tree.push(value);
        self.number += 1;
        if let Some(kept) = &mut self.fingerprints {
            kept.extend_from_slice(&blocks::fingerprint(&value));
            if kept.len() > CHUNK_MAX - FINGERPRINT {
                self.fingerprints = None;
            }
        }
    }

    /// How many bytes passed, their digest, and their fingerprints if there are not too many.
    pub(super) fn finish(mut self) -> (u64, FileDigest, Option<Vec<u8>>) {
        if self.number == 0 {
            return (self.total, FileDigest::of(&self.partial), None);
        }
        let last = std::mem::take(&mut self.partial);
        self.piece(&last);
        let digest = self.tree.finish().expect("there is more than one piece");
        (self.total, digest, self.fingerprints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_any_portions_give_the_digest_of_the_whole() {
        let bytes: Vec<u8> = (0..PIECE * 5 + 77)
            .map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1])
            .collect();
        for portion in [1000, PIECE, PIECE + 1, 3 * PIECE, bytes.len()] {
            for end in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, bytes.len()] {
                let mut stream = PieceStream::new();
                bytes[..end]
                    .chunks(portion)
                    .for_each(|portion| stream.update(portion));

                let (total, digest, fingerprints) = stream.finish();

                assert_eq!((total, digest), (end as u64, FileDigest::of(&bytes[..end])));
                let count = if end <= PIECE { 0 } else { end.div_ceil(PIECE) };
                assert_eq!(fingerprints.unwrap_or_default().len(), count * FINGERPRINT);
            }
        }
    }

    #[test]
    fn a_hole_counts_as_zeros() {
        let mut bytes = vec![7; 100];
        bytes.resize(100 + 5 * PIECE + 3, 0);
        let mut stream = PieceStream::new();
        stream.update(&bytes[..100]);
        stream.zeros(5 * PIECE as u64 + 3);

        assert_eq!(stream.finish().1, FileDigest::of(&bytes));
    }
}
