//! Which blocks of a file have fingerprints, and where those lie.
//!
//! Fingerprints lie in tables, one record after the other. A file whose bytes moved keeps the tables that it had: its blocks
//! begin elsewhere, but they are still the blocks that were fingerprinted. So the layout of a file is a sequence of *runs*,
//! each some bytes of the file that were fingerprinted one block after the other, and the records of those.
//!
//! *Always true of what was read:* runs ascend and do not overlap; only the last block of a run is shorter than a piece.

use crate::invalid::Invalid;
use crate::tree::chunking::PIECE;
use crate::tree::list::FILE_MAX;
use crate::varint::{ByteReader, put};

/// No table has more records: those of 1 GiB.
pub const TABLE_RECORDS: usize = 1 << 16;

/// No file's fingerprints lie in more tables: one that would have more gets new ones.
pub const MOST_TABLES: usize = 16;

/// Blocks of a file that follow each other, whose records follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRun {
    /// Where the first begins.
    pub at: u64,
    /// How many bytes they have together. All but the last have those of a piece.
    pub length: u64,
    /// The number under which the first was hashed; those of the others follow.
    pub number: u64,
    /// Which table.
    pub table: u32,
    /// The record of the first in it.
    pub record: u32,
}

impl BlockRun {
    /// How many blocks it has.
    pub fn blocks(&self) -> u64 {
        self.length.div_ceil(PIECE as u64)
    }

    /// Whether `next` goes on where this one ends, in the file and in the table.
    fn is_continued_by(&self, next: &Self) -> bool {
        self.length.is_multiple_of(PIECE as u64)
            && next.at == self.at + self.length
            && next.number == self.number + self.blocks()
            && next.table == self.table
            && u64::from(next.record) == u64::from(self.record) + self.blocks()
    }
}

/// All runs of a file, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockLayout {
    /// In the order of the file.
    pub runs: Vec<BlockRun>,
}

impl BlockLayout {
    /// Appends a run, which must begin where the last one ends or later.
    pub fn push(&mut self, run: BlockRun) {
        match self.runs.last_mut() {
            Some(last) if last.is_continued_by(&run) => last.length += run.length,
            _ => self.runs.push(run),
        }
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(BlockRun::blocks).sum()
    }

    /// Its stored form: of each run the bytes between it and the one before, and its other numbers.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (mut bytes, mut end) = (Vec::new(), 0);
        put(&mut bytes, self.runs.len() as u64);
        for run in &self.runs {
            put(&mut bytes, run.at - end);
            put(&mut bytes, run.length);
            put(&mut bytes, run.number);
            put(&mut bytes, run.table.into());
            put(&mut bytes, run.record.into());
            end = run.at + run.length;
        }
        bytes
    }

    /// Reads what [`BlockLayout::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Invalid> {
        let mut reader = ByteReader::new(bytes);
        let mut number = || reader.varint().map_err(|_| not_a_layout());
        let count = number()?;
        let (mut layout, mut end) = (Self::default(), 0_u64);
        for _ in 0..count {
            let (gap, length, first) = (number()?, number()?, number()?);
            let (table, record) = (number()?, number()?);
            // Each of these is below 2⁴⁴ before any of them is added up.
            if gap > FILE_MAX || length > FILE_MAX || first > FILE_MAX || length == 0 {
                return Err(not_a_layout());
            }
            let run = BlockRun {
                at: end + gap,
                length,
                number: first,
                table: u32::try_from(table).map_err(|_| not_a_layout())?,
                record: u32::try_from(record).map_err(|_| not_a_layout())?,
            };
            end = run.at + run.length;
            if end > FILE_MAX {
                return Err(not_a_layout());
            }
            layout.runs.push(run);
        }
        if reader.is_empty() {
            Ok(layout)
        } else {
            Err(not_a_layout())
        }
    }
}

/// The refusal of bytes that are no layout, or of one that its tables do not fit.
pub(super) fn not_a_layout() -> Invalid {
    Invalid::new("the layout of a file's fingerprints is not one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout() -> impl Strategy<Value = BlockLayout> {
        let run = (
            0..100_000_u64,
            1..100_000_u64,
            0..999_u64,
            0..3_u32,
            0..999_u32,
        );
        prop::collection::vec(run, 0..20).prop_map(|runs| {
            let (mut layout, mut end) = (BlockLayout::default(), 0);
            for (gap, length, number, table, record) in runs {
                let at = end + gap;
                layout.push(BlockRun {
                    at,
                    length,
                    number,
                    table,
                    record,
                });
                end = at + length;
            }
            layout
        })
    }

    proptest! {
        #[test]
        fn a_layout_is_read_as_it_was_written(layout in layout()) {
            prop_assert_eq!(BlockLayout::from_bytes(&layout.to_bytes()), Ok(layout));
        }

        #[test]
        fn what_is_cut_off_or_goes_on_is_refused(layout in layout(), more: u8) {
            let mut bytes = layout.to_bytes();
            prop_assert!(BlockLayout::from_bytes(&bytes[..bytes.len() - 1]).is_err());
            bytes.push(more);
            prop_assert!(BlockLayout::from_bytes(&bytes).is_err());
        }
    }

    #[test]
    fn runs_that_go_on_in_file_and_table_are_one() {
        let piece = PIECE as u64;
        let block = |number: u64| BlockRun {
            at: 7 + number * piece,
            length: piece,
            number: 3 + number,
            table: 1,
            record: 10 + u32::try_from(number).unwrap(),
        };
        let mut layout = BlockLayout::default();
        layout.push(block(0));
        layout.push(block(1));
        layout.push(BlockRun {
            length: 5,
            ..block(2)
        });
        layout.push(BlockRun {
            at: 7 + 2 * piece + 5,
            ..block(3)
        });

        assert_eq!((layout.runs.len(), layout.blocks()), (2, 4));
        assert_eq!(layout.runs[0].length, 2 * piece + 5);
    }
}
