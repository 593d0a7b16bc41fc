//! The blocks of a file that was stored before, found at any place of the file as it is now.
//!
//! The *key* of a block is a sum over every thirty-first byte of it. There are 31 such sums that a window of a block's length
//! can be at, and each is had from the one 31 bytes before by taking one byte out and another in. So keys at every place of a
//! file cost two multiplications a byte, and the key of one block looks at 528 bytes of it. The distance is a prime, so that records of
//! the same length do not show the same byte of each.

use super::layout::{BlockLayout, BlockRun, TABLE_RECORDS, not_a_layout};
use super::{FINGERPRINT, MOST_BLOCKS, RECORD, fingerprint, value};
use crate::invalid::Invalid;
use crate::tree::chunking::PIECE;

/// So far apart are the bytes that a key is made of.
const STRIDE: usize = 31;
/// So many there are.
const SAMPLES: usize = PIECE / STRIDE;
/// From the first byte of a key to the one that comes in when the first goes out.
const SPAN: usize = SAMPLES * STRIDE;
/// Odd, so that no byte's share is lost.
const BASE: u32 = 0x9e37_79b1;
/// What the first byte of a key was multiplied with.
#[expect(clippy::cast_possible_truncation, reason = "they are some hundred")]
const FIRST: u32 = BASE.wrapping_pow(SAMPLES as u32 - 1);
/// Blocks that have the same key are tried up to here.
const CANDIDATES: usize = 8;

/// The key of a whole block; a shorter one has none, and is found only where it is expected.
pub fn key(block: &[u8]) -> u32 {
    if block.len() != PIECE {
        return 0;
    }
    let samples = block.iter().step_by(STRIDE).take(SAMPLES);
    samples.fold(0, |sum: u32, byte| {
        sum.wrapping_mul(BASE).wrapping_add(u32::from(*byte))
    })
}

/// One block of the file as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexedBlock {
    /// Where it was, how long it is, and its record: a run of one.
    pub run: BlockRun,
    /// How many bytes it has.
    pub length: usize,
}

/// How much a search may try in vain: bytes that look alike everywhere must not cost a digest each.
#[derive(Clone, Copy, Debug)]
pub struct SearchBudget(usize);

/// What one attempt in vain costs, in bytes that were looked at: it hashes as many.
const ATTEMPT: usize = PIECE;
/// No more can be saved up.
const SAVINGS: usize = 64 * ATTEMPT;

impl Default for SearchBudget {
    fn default() -> Self {
        Self(SAVINGS)
    }
}

impl SearchBudget {
    fn earn(&mut self, bytes: usize) {
        self.0 = (self.0 + bytes).min(SAVINGS);
    }
}

/// The blocks of a file as it was.
#[derive(Clone, Debug, Default)]
pub struct BlockIndex {
    runs: Vec<BlockRun>,
    /// The number of the first block of each run.
    firsts: Vec<u32>,
    /// Of all blocks, in order.
    records: Vec<u8>,
    /// Which beginnings of keys occur.
    filter: Vec<u64>,
    /// How far keys are shifted for that.
    filter_shift: u32,
    /// Whole blocks in the order of their keys, those with the same key as they come in the file.
    by_key: Vec<u32>,
    /// Those keys, close together: nearly every look at them is in vain.
    keys: Vec<u32>,
    /// Where in it each beginning of keys begins.
    starts: Vec<u32>,
    starts_shift: u32,
}

impl BlockIndex {
    /// Makes an index of a file's blocks from its layout and its tables.
    pub fn new(layout: BlockLayout, tables: &[&[u8]]) -> Result<Self, Invalid> {
        if layout.blocks() > MOST_BLOCKS as u64 {
            return Err(not_a_layout());
        }
        let mut index = Self::default();
        for run in &layout.runs {
            let table = tables.get(run.table as usize).ok_or_else(not_a_layout)?;
            let blocks = usize::try_from(run.blocks()).map_err(|_| not_a_layout())?;
            let from = run.record as usize * RECORD;
            let records = table.get(from..from + blocks * RECORD);
            let first = u32::try_from(index.len()).map_err(|_| not_a_layout())?;
            index.firsts.push(first);
            index
                .records
                .extend_from_slice(records.ok_or_else(not_a_layout)?);
        }
        index.runs = layout.runs;
        index.sort();
        Ok(index)
    }

    fn sort(&mut self) {
        let whole = |run: &BlockRun| usize::try_from(run.length / PIECE as u64).unwrap_or(0);
        let runs = self.runs.iter().zip(&self.firsts);
        let blocks = runs.flat_map(|(run, first)| (*first..).take(whole(run)));
        let mut by_key: Vec<u32> = blocks.collect();
        by_key.sort_unstable_by_key(|block| (self.key_of(*block as usize), *block));
        let keys = by_key.iter().map(|block| self.key_of(*block as usize));
        self.keys = keys.collect();
        let bits = usize::BITS - by_key.len().leading_zeros() + 1;
        self.starts_shift = 32 - bits;
        self.filter_shift = 32 - (bits + 3);
        self.starts = vec![0; (1 << bits) + 1];
        self.filter = vec![0; 1 << (bits + 3).saturating_sub(6)];
        for key in &self.keys {
            self.starts[(key >> self.starts_shift) as usize + 1] += 1;
            let bit = key >> self.filter_shift;
            self.filter[bit as usize / 64] |= 1 << (bit % 64);
        }
        for at in 1..self.starts.len() {
            self.starts[at] += self.starts[at - 1];
        }
        self.by_key = by_key;
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.records.len() / RECORD
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The block with this number, which must be less than there are.
    pub fn block(&self, number: usize) -> IndexedBlock {
        let after = self
            .firsts
            .partition_point(|first| *first as usize <= number);
        let run = self.runs[after - 1];
        let skipped = number - self.firsts[after - 1] as usize;
        let before = (skipped * PIECE) as u64;
        let length = (run.length - before).min(PIECE as u64);
        IndexedBlock {
            run: BlockRun {
                at: run.at + before,
                length,
                number: run.number + skipped as u64,
                table: run.table,
                record: run.record + u32::try_from(skipped).expect("a table is short"),
            },
            length: usize::try_from(length).expect("a block is short"),
        }
    }

    /// The block that began at this place of the file as it was.
    pub fn beginning_at(&self, at: u64) -> Option<usize> {
        let after = self.runs.partition_point(|run| run.at <= at);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let into = at - run.at;
        let is_beginning = into < run.length && into.is_multiple_of(PIECE as u64);
        let skipped = usize::try_from(into / PIECE as u64).ok()?;
        is_beginning.then(|| self.firsts[after - 1] as usize + skipped)
    }

    /// Its fingerprint.
    pub fn fingerprint_of(&self, number: usize) -> &[u8] {
        &self.records[number * RECORD..number * RECORD + FINGERPRINT]
    }

    fn key_of(&self, number: usize) -> u32 {
        let record = &self.records[number * RECORD..(number + 1) * RECORD];
        let key = record[FINGERPRINT..].first_chunk();
        u32::from_le_bytes(*key.expect("a key has four bytes"))
    }

    /// Whether `bytes` begin with the block with this number. A key that differs saves the digest.
    pub fn begins(&self, number: usize, bytes: &[u8]) -> bool {
        let block = self.block(number);
        let Some(bytes) = bytes.get(..block.length) else {
            return false;
        };
        key(bytes) == self.key_of(number) && self.is_digest(number, &block, bytes)
    }

    fn is_digest(&self, number: usize, block: &IndexedBlock, bytes: &[u8]) -> bool {
        fingerprint(&value(block.run.number, bytes)) == self.fingerprint_of(number)
    }

    /// The first place at or after `from` at which a whole block begins that `accepts` takes, and which.
    pub fn find(
        &self,
        bytes: &[u8],
        from: usize,
        budget: &mut SearchBudget,
        mut accepts: impl FnMut(usize, usize) -> bool,
    ) -> Option<(usize, usize)> {
        let last = bytes.len().checked_sub(PIECE)?;
        if self.by_key.is_empty() {
            return None;
        }
        let window = |place: usize| &bytes[place..place + PIECE];
        let mut keys = [0; STRIDE];
        // Each is looked up as soon as it is summed up: of blocks in another order, one begins right here.
        for (place, sum) in (from..=last).zip(&mut keys) {
            *sum = key(window(place));
            let found = self.found(*sum, window(place), budget, |number| accepts(place, number));
            if let Some(number) = found {
                return Some((place, number));
            }
        }
        let mut at = from;
        while at + STRIDE <= last {
            budget.earn(STRIDE);
            let here = STRIDE.min(last + 1 - (at + STRIDE));
            let (out, into) = (&bytes[at..at + here], &bytes[at + SPAN..at + SPAN + here]);
            for ((sum, out), into) in keys.iter_mut().zip(out).zip(into) {
                let rest = sum.wrapping_sub(u32::from(*out).wrapping_mul(FIRST));
                *sum = rest.wrapping_mul(BASE).wrapping_add(u32::from(*into));
            }
            at += STRIDE;
            for (place, sum) in (at..).zip(&keys[..here]) {
                if self.may_have(*sum)
                    && let Some(number) =
                        self.found(*sum, window(place), budget, |number| accepts(place, number))
                {
                    return Some((place, number));
                }
            }
        }
        None
    }

    fn may_have(&self, key: u32) -> bool {
        let bit = key >> self.filter_shift;
        self.filter[bit as usize / 64] & (1 << (bit % 64)) != 0
    }

    /// A block with this key that is these bytes.
    fn found(
        &self,
        key: u32,
        bytes: &[u8],
        budget: &mut SearchBudget,
        mut accepts: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let beginning = (key >> self.starts_shift) as usize;
        let [from, until] = [beginning, beginning + 1].map(|at| self.starts[at] as usize);
        // There may be as many of one key as the file has blocks, such as those of zeros.
        let first = from + self.keys[from..until].partition_point(|other| *other < key);
        let same = self.keys[first..until]
            .iter()
            .zip(&self.by_key[first..until]);
        let same = same.take_while(|(other, _)| **other == key);
        for (_, number) in same.take(CANDIDATES) {
            let number = *number as usize;
            if budget.0 < ATTEMPT {
                return None;
            }
            if self.is_digest(number, &self.block(number), bytes) && accepts(number) {
                return Some(number);
            }
            budget.0 -= ATTEMPT;
        }
        None
    }
}

/// Where the record with this number lies, among tables of which the first has the number `table`.
pub fn table_of(record: usize, table: usize) -> (u32, u32) {
    let short =
        |number: usize| u32::try_from(number).expect("there are few tables, and short ones");
    (
        short(table + record / TABLE_RECORDS),
        short(record % TABLE_RECORDS),
    )
}

#[cfg(test)]
mod tests;
