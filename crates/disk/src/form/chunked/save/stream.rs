//! A large file as it passes by: its digest and its fingerprints.

use super::new_blocks::NewBlocks;
use stasis_model::digest::FileDigest;
use stasis_model::tree::blocks::{self, MOST_BLOCKS, PieceTree, RECORD};
use stasis_model::tree::chunking::PIECE;

const ZEROS: [u8; PIECE] = [0; PIECE];

/// Hashes bytes in order, in aligned pieces.
#[derive(Debug, Default)]
pub(super) struct PieceStream {
    tree: PieceTree,
    number: u64,
    partial: Vec<u8>,
    /// Whether anything in the partial piece is not of a hole.
    has_data: bool,
    /// Of every piece that is not all hole, until they are too many.
    blocks: Option<NewBlocks>,
    total: u64,
}

impl PieceStream {
    pub(super) fn new() -> Self {
        Self {
            blocks: Some(NewBlocks::default()),
            ..Self::default()
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.feed(bytes, true);
    }

    pub(super) fn zeros(&mut self, mut length: u64) {
        while length > 0 {
            let now = length.min(PIECE as u64);
            self.feed(&ZEROS[..usize::try_from(now).unwrap_or(PIECE)], false);
            length -= now;
        }
    }

    fn feed(&mut self, mut bytes: &[u8], is_data: bool) {
        self.total += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.partial.len() == PIECE {
                self.end_partial();
            }
            // A whole piece that something follows need not be copied.
            if self.partial.is_empty() && bytes.len() > PIECE {
                let (piece, rest) = bytes.split_at(PIECE);
                self.piece(piece, is_data);
                bytes = rest;
                continue;
            }
            let (taken, rest) = bytes.split_at(bytes.len().min(PIECE - self.partial.len()));
            self.partial.extend_from_slice(taken);
            self.has_data |= is_data;
            bytes = rest;
        }
    }

    fn end_partial(&mut self) {
        let piece = std::mem::take(&mut self.partial);
        self.piece(&piece, self.has_data);
        self.has_data = false;
        self.partial = piece;
        self.partial.clear();
    }

    fn piece(&mut self, bytes: &[u8], is_data: bool) {
        let value = blocks::value(self.number, bytes);
        self.tree.push(value);
        if let Some(known) = self.blocks.as_mut().filter(|_| is_data) {
            let (at, length) = (self.number * PIECE as u64, bytes.len() as u64);
            known.push(at, length, self.number, &blocks::record(&value, bytes));
            if known.records.len() > MOST_BLOCKS * RECORD {
                self.blocks = None;
            }
        }
        self.number += 1;
    }

    /// The record of a whole aligned piece, if it has passed and is not all hole.
    pub(super) fn record(&self, number: u64) -> Option<&[u8; RECORD]> {
        let known = self.blocks.as_ref()?;
        let runs = &known.layout.runs;
        let run = runs[..runs.partition_point(|run| run.number <= number)].last()?;
        let skipped = number - run.number;
        if (skipped + 1) * PIECE as u64 > run.length {
            return None;
        }
        // Its own tables are filled in order, so that the place in them all is that of the run's first record and on.
        let first = (run.table as usize) * blocks::layout::TABLE_RECORDS + run.record as usize;
        let from = (first + usize::try_from(skipped).ok()?) * RECORD;
        known.records.get(from..)?.first_chunk()
    }

    /// How many bytes passed, their digest, and their fingerprints if there are not too many.
    pub(super) fn finish(mut self) -> (u64, FileDigest, Option<NewBlocks>) {
        if self.number == 0 {
            return (self.total, FileDigest::of(&self.partial), None);
        }
        self.end_partial();
        let digest = self.tree.finish().expect("there is more than one piece");
        (self.total, digest, self.blocks)
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

                let (total, digest, known) = stream.finish();

                assert_eq!((total, digest), (end as u64, FileDigest::of(&bytes[..end])));
                let count = if end <= PIECE { 0 } else { end.div_ceil(PIECE) };
                assert_eq!(known.unwrap_or_default().records.len(), count * RECORD);
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

        let (_, digest, known) = stream.finish();

        assert_eq!(digest, FileDigest::of(&bytes));
        assert_eq!(
            known.unwrap_or_default().layout.blocks(),
            1,
            "pieces that are all hole have no fingerprints"
        );
    }
}
