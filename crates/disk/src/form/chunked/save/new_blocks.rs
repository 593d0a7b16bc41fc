//! The fingerprints of a large file, in tables that are stored already and in new ones.

use stasis_model::tree::blocks::index::table_of;
use stasis_model::tree::blocks::layout::{BlockLayout, BlockRun, MOST_TABLES, TABLE_RECORDS};
use stasis_model::tree::blocks::{MOST_BLOCKS, RECORD};
use stasis_model::tree::list::Slice;

/// The fingerprints of a file, before they are stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct NewBlocks {
    pub(super) layout: BlockLayout,
    /// Tables that are stored already; they come first.
    pub(super) kept: Vec<Slice>,
    /// The records of all other tables.
    pub(super) records: Vec<u8>,
}

impl NewBlocks {
    /// Adds the record of a block that begins at `at` and was hashed as `number`.
    pub(super) fn push(&mut self, at: u64, length: u64, number: u64, record: &[u8; RECORD]) {
        let (table, place) = table_of(self.records.len() / RECORD, self.kept.len());
        self.records.extend_from_slice(record);
        self.layout.push(BlockRun {
            at,
            length,
            number,
            table,
            record: place,
        });
    }

    /// Leaves out tables that no run lies in.
    pub(super) fn without_unused(mut self) -> Self {
        let stored = self.kept.len();
        let mut is_used = vec![false; stored];
        for run in &self.layout.runs {
            if let Some(used) = is_used.get_mut(run.table as usize) {
                *used = true;
            }
        }
        let mut left = 0;
        let places = is_used.iter().map(|used| {
            let place = left;
            left += u32::from(*used);
            place
        });
        let places: Vec<u32> = places.collect();
        for run in &mut self.layout.runs {
            run.table = match places.get(run.table as usize) {
                Some(place) => *place,
                None => run.table - u32::try_from(stored).unwrap_or(u32::MAX) + left,
            };
        }
        let mut used = is_used.into_iter();
        self.kept.retain(|_| used.next() == Some(true));
        self
    }

    /// Whether fingerprints that use what is stored are worth it: they cost less than half of new ones, do not lie in too many
    /// places, and so little is stored of the file that new ones would count. Records are stored once, a layout at every save.
    pub(super) fn is_better_than(&self, own: &Self, new_bytes: u64, size: u64) -> bool {
        let layout = self.layout.to_bytes().len();
        (self.records.len() + layout) * 2 <= own.records.len()
            && layout * 8 <= own.records.len()
            && self.layout.blocks() <= MOST_BLOCKS as u64
            && self.kept.len() + self.records.len().div_ceil(RECORD * TABLE_RECORDS) <= MOST_TABLES
            && self.layout.blocks() <= own.layout.blocks() * 5 / 4
            && new_bytes * 8 < size
    }
}
