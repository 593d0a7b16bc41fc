//! A large file that was there before: what it has in common with what it was stays where it is stored.
//!
//! The file is read once. At each place it is asked, in this order: does the block that followed the last one follow here;
//! was only that block overwritten, so that the one after it follows; does any block of the old file begin here, or at the
//! next byte, and so on. What lies between blocks that were found is new.
//!
//! *Always true:* bytes are referred to where they lie only if they have the fingerprint of what lies there, and only in
//! chunks that are there; a file never has more parts than [`allowance`] says.

use super::large_file::{CutFile, LargeFile, Part, append_ready};
use super::large_read::{LargeRead, WINDOW};
use super::new_blocks::NewBlocks;
use super::stream::PieceStream;
use super::workers::{Offered, Tools};
use crate::form::chunked::{ChunkError, ChunkLook};
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::blocks::index::{BlockIndex, SearchBudget};
use stasis_model::tree::blocks::layout::BlockRun;
use stasis_model::tree::blocks::{self, FINGERPRINT, MOST_BLOCKS, RECORD};
use stasis_model::tree::chunking::{PIECE, PIECES_CUT};
use stasis_model::tree::list::{Extent, FileContent, Slice, Stretches};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// So much must lie ahead, unless the data ends: a block, and the one after it.
const AHEAD: usize = 2 * PIECE;
/// After so much in which nothing was found, not every place is searched any more: what a search costs is three times what
/// reading and hashing cost.
const LONGEST_IN_VAIN: u64 = 8 << 20;
/// So far apart are the places that are searched then. What moved is found at the next one: a search over two pieces comes by
/// the beginning of a block wherever two blocks lie side by side.
const LEAP: usize = 512 << 10;

/// A chunk shorter than this is small.
const SMALL_CHUNK: u32 = 256 << 10;
/// A file lies in no more small chunks: when it has more, what is in the smallest of them is stored again together.
const MOST_SMALL: usize = 16;
/// So much of it at once: a file of many short stretches with holes between them has small chunks only.
const MOST_GATHERED: u64 = 8 << 20;

/// How many parts a file may have up to this place. Beyond, what is found is stored again rather than referred to, until
/// there is room: a file in a thousand places is slow to read, and its entry is long.
fn allowance(at: u64) -> usize {
    let blocks = usize::try_from(at / PIECE as u64).unwrap_or(usize::MAX / 8);
    1024 + blocks + blocks / 4
}

/// What a large file was when it was stored last.
pub(super) struct PreviousBlocks<'b> {
    index: BlockIndex,
    /// Where its fingerprints lie, unless they cannot stay there.
    tables: Option<&'b [Slice]>,
    stretches: Stretches<'b>,
    /// Chunks that nothing may stay in.
    gone: HashSet<ChunkName>,
}

impl PreviousBlocks<'_> {
    /// Where a stretch of the old file lies; nothing if it cannot stay there.
    fn stretch(&self, run: &BlockRun) -> Option<Vec<Extent>> {
        let stretch = self.stretches.get(run.at, run.length);
        let stays = |extent: &Extent| match extent {
            Extent::Stored(slice) => !self.gone.contains(&slice.chunk.name),
            Extent::Hole(_) | Extent::Version(_) => true,
        };
        let length: u64 = stretch.iter().map(Extent::length).sum();
        let stays = length == run.length && (self.gone.is_empty() || stretch.iter().all(stays));
        stays.then_some(stretch)
    }
}

/// The small chunks whose bytes are stored again together, because the file lies in too many of them.
fn gathered(content: &FileContent) -> HashSet<ChunkName> {
    let chunks = content.extents.iter().filter_map(|extent| match extent {
        Extent::Stored(slice) => Some(slice.chunk),
        Extent::Hole(_) | Extent::Version(_) => None,
    });
    let small = chunks.filter(|chunk| chunk.plain_len < SMALL_CHUNK);
    let mut small: Vec<_> = small.map(|chunk| (chunk.plain_len, chunk.name)).collect();
    small.sort_unstable();
    small.dedup();
    if small.len() <= MOST_SMALL {
        return HashSet::new();
    }
    let mut left = MOST_GATHERED;
    let fits = |(length, _): &(u32, ChunkName)| {
        let fits = u64::from(*length) <= left;
        left = left.saturating_sub(u64::from(*length));
        fits
    };
    small
        .into_iter()
        .take_while(fits)
        .map(|(_, name)| name)
        .collect()
}

impl<'a> LargeRead<'_, 'a> {
    /// What is known of a file from before, to compare it with.
    pub(super) fn previous_blocks<'b>(
        &self,
        content: &'b FileContent,
        index: BlockIndex,
    ) -> Result<PreviousBlocks<'b>, ChunkError> {
        let tables = content.pieces.get(1..).unwrap_or_default();
        let mut are_held = true;
        for table in tables {
            are_held &= self.pool.holds(&table.chunk.name, ChunkLook::Exists)?;
        }
        Ok(PreviousBlocks {
            index,
            tables: are_held.then_some(tables),
            stretches: content.stretches(),
            gone: self.gone(content)?,
        })
    }

    /// The chunks of a file that are not there any more, or are to be left: blocks in them cannot stay.
    fn gone(&self, content: &FileContent) -> Result<HashSet<ChunkName>, ChunkError> {
        let plan = self.pool.plan;
        let (mut asked, mut gone) = (HashSet::new(), HashSet::new());
        let gathered = gathered(content);
        for extent in &content.extents {
            let Extent::Stored(slice) = extent else {
                continue;
            };
            let name = slice.chunk.name;
            if !asked.insert(name) {
                continue;
            }
            let is_left = !plan.leaves_nothing() && plan.lies_abandoned(extent);
            if is_left || gathered.contains(&name) || !self.pool.holds(&name, ChunkLook::Exists)? {
                gone.insert(name);
            }
        }
        Ok(gone)
    }

    /// Reads the file; what it has in common with what it was is not stored again.
    pub(super) fn compare(
        &self,
        was: &PreviousBlocks<'_>,
        tools: &mut Tools<'a>,
    ) -> Result<CutFile, ChunkError> {
        let mut comparing = Comparing::new(self, was);
        let (mut at, end) = (0, self.opened.seen.size);
        while at < end {
            let data = self.next_blocks(at, end)?;
            comparing.hole(data.start - at);
            if !comparing.data(data.clone(), tools)? {
                break; // the file ends before it should: it changed
            }
            at = data.end;
        }
        comparing.finish(tools)
    }

    /// The next stretch of data in whole pieces, with holes in it that no whole piece lies in: those stay holes.
    fn next_blocks(&self, at: u64, end: u64) -> Result<Range<u64>, ChunkError> {
        let piece = PIECE as u64;
        let Some(data) = self.next_data(at, end)? else {
            return Ok(end..end);
        };
        let start = (data.start / piece * piece).max(at);
        let until = |place: u64| place.next_multiple_of(piece).min(end);
        let mut stop = until(data.end);
        while stop < end
            && let Some(next) = self.next_data(stop, end)?
            && next.start / piece * piece <= stop
        {
            stop = until(next.end);
        }
        Ok(start..stop)
    }
}

/// What lies ahead.
enum Step {
    /// A block of the old file, and where it lies.
    Known(usize, Vec<Extent>),
    /// So many new bytes.
    New(usize),
}

/// New bytes, and short stretches of them on their way into chunks.
#[derive(Default)]
struct NewBytes {
    /// Not yet cut.
    bytes: Vec<u8>,
    /// Where those end in the file, and from where on they are not fingerprinted yet.
    end: u64,
    unrecorded: u64,
    /// Short stretches, which share a chunk.
    bundle: Vec<u8>,
    /// The parts that lie in it.
    waiting: Vec<usize>,
    total: u64,
}

/// A file while it is compared.
struct Comparing<'c, 'p, 'a> {
    file: &'c LargeRead<'p, 'a>,
    was: &'c PreviousBlocks<'c>,
    stream: PieceStream,
    parts: Vec<Part>,
    of: Arc<LargeFile>,
    new: NewBytes,
    /// The fingerprints of the file, if those that are stored are used again.
    blocks: Option<NewBlocks>,
    /// The block that should come next.
    expected: Option<usize>,
    budget: SearchBudget,
    /// How many bytes were new since a block was found.
    in_vain: u64,
}

impl<'c, 'p, 'a> Comparing<'c, 'p, 'a> {
    fn new(file: &'c LargeRead<'p, 'a>, was: &'c PreviousBlocks<'c>) -> Self {
        Self {
            file,
            was,
            stream: PieceStream::new(),
            parts: Vec::new(),
            of: Arc::new(LargeFile::default()),
            new: NewBytes::default(),
            blocks: was.tables.map(|tables| NewBlocks {
                kept: tables.to_vec(),
                ..NewBlocks::default()
            }),
            expected: None,
            budget: SearchBudget::default(),
            in_vain: 0,
        }
    }

    fn hole(&mut self, length: u64) {
        if length > 0 {
            self.stream.zeros(length);
            append_ready(&mut self.parts, Extent::Hole(length));
            self.file.count(0, length);
        }
    }

    /// Reads a stretch of data; says whether all of it was there.
    fn data(&mut self, data: Range<u64>, tools: &mut Tools<'a>) -> Result<bool, ChunkError> {
        let mut buffer: Vec<u8> = Vec::new();
        // Where the buffer begins, where in it everything is settled, and how far the file was read.
        let (mut begin, mut settled, mut read) = (data.start, 0, data.start);
        self.expected = self.was.index.beginning_at(data.start);
        (self.new.end, self.new.unrecorded) = (data.start, data.start);
        let mut end = data.end;
        loop {
            if buffer.len() - settled < AHEAD && read < end {
                self.file.go_on()?;
                buffer.drain(..settled);
                begin += settled as u64;
                settled = 0;
                let more = self.read(&mut buffer, read, end)?;
                read += more;
                if more == 0 {
                    end = read;
                }
                continue;
            }
            let ahead = &buffer[settled..];
            if ahead.is_empty() {
                break;
            }
            let at = begin + settled as u64;
            match self.next(ahead, at, read == end) {
                Step::Known(number, stretch) => {
                    settled += self.keep(number, at, stretch, tools)?;
                }
                Step::New(length) => {
                    self.add(&ahead[..length], tools)?;
                    settled += length;
                }
            }
        }
        self.end_new(tools)?;
        Ok(end == data.end)
    }

    /// Reads on, and has what was read hashed.
    fn read(&mut self, buffer: &mut Vec<u8>, at: u64, end: u64) -> Result<u64, ChunkError> {
        let from = buffer.len();
        let wanted = usize::try_from((end - at).min(WINDOW as u64)).unwrap_or(WINDOW);
        buffer.resize(from + wanted, 0);
        let read = self.file.read_at(&mut buffer[from..], at)?;
        buffer.truncate(from + read);
        self.stream.update(&buffer[from..]);
        self.file.count(0, read as u64);
        Ok(read as u64)
    }

    /// What comes next; `is_end` if nothing follows these bytes.
    fn next(&mut self, ahead: &[u8], at: u64, is_end: bool) -> Step {
        let index = &self.was.index;
        if let Some(expected) = self.expected.filter(|number| *number < index.len()) {
            if let Some(stretch) = self.fits(expected, ahead, at) {
                return Step::Known(expected, stretch);
            }
            let length = index.block(expected).length;
            if length < ahead.len()
                && expected + 1 < index.len()
                && let after = at + length as u64
                && self.fits(expected + 1, &ahead[length..], after).is_some()
            {
                self.expected = Some(expected + 1);
                return Step::New(length);
            }
        }
        let reach = match self.in_vain {
            ..LONGEST_IN_VAIN => ahead.len(),
            _ => ahead.len().min(AHEAD),
        };
        let mut budget = self.budget;
        let found = index.find(&ahead[..reach], 0, &mut budget, |place, number| {
            self.may_stay(number, at + place as u64).is_some()
        });
        self.budget = budget;
        match found {
            Some((0, number)) => match self.may_stay(number, at) {
                Some(stretch) => Step::Known(number, stretch),
                None => Step::New(PIECE),
            },
            Some((place, number)) => {
                self.expected = Some(number);
                Step::New(place)
            }
            None if reach < ahead.len() => self.leap(ahead.len(), at),
            None => {
                self.expected = None;
                let searched = ahead.len().saturating_sub(PIECE - 1);
                Step::New(if is_end { ahead.len() } else { searched })
            }
        }
    }

    /// Goes on without a search, up to a block that did not move.
    fn leap(&mut self, ahead: usize, at: u64) -> Step {
        let (index, piece) = (&self.was.index, PIECE as u64);
        let most = (ahead - (PIECE - 1)).min(LEAP);
        let places = (at + 1).next_multiple_of(piece)..at + most as u64;
        let mut places = places.step_by(PIECE);
        let unmoved = places.find_map(|place| {
            let number = index.beginning_at(place)?;
            let record = self.stream.record(place / piece)?;
            let is_same = record[..FINGERPRINT] == *index.fingerprint_of(number)
                && index.block(number).run.number == place / piece;
            is_same.then_some((place, number))
        });
        let Some((place, number)) = unmoved else {
            self.expected = index.beginning_at(at + most as u64);
            return Step::New(most);
        };
        self.expected = Some(number);
        Step::New(usize::try_from(place - at).unwrap_or(most))
    }

    /// Where a block lies, if it begins here and may stay there.
    fn fits(&self, number: usize, ahead: &[u8], at: u64) -> Option<Vec<Extent>> {
        let index = &self.was.index;
        let run = index.block(number).run;
        let piece = PIECE as u64;
        let is_in_place = run.length == piece && run.number * piece == at;
        // The digest of the file needs the value of this piece anyway, under the same number.
        let begins = match self.stream.record(run.number).filter(|_| is_in_place) {
            Some(record) => record[..FINGERPRINT] == *index.fingerprint_of(number),
            None => index.begins(number, ahead),
        };
        begins.then(|| self.may_stay(number, at))?
    }

    /// Where a block that was found at `at` lies, unless it cannot stay or the file is in too many places.
    fn may_stay(&self, number: usize, at: u64) -> Option<Vec<Extent>> {
        let stretch = self.was.stretch(&self.was.index.block(number).run)?;
        let has_room = self.parts.len() + stretch.len() < allowance(at);
        let continues = || match (self.parts.last(), &stretch[..]) {
            (Some(Part::Ready(Extent::Stored(last))), [Extent::Stored(next)]) => {
                self.new.bytes.is_empty()
                    && last.chunk == next.chunk
                    && last.offset + last.length == next.offset
            }
            _ => false,
        };
        (has_room || continues()).then_some(stretch)
    }

    /// Keeps a block where it lies; says how long it is.
    fn keep(
        &mut self,
        number: usize,
        at: u64,
        stretch: Vec<Extent>,
        tools: &mut Tools<'a>,
    ) -> Result<usize, ChunkError> {
        self.end_new(tools)?;
        let block = self.was.index.block(number);
        for extent in stretch {
            append_ready(&mut self.parts, extent);
        }
        if let Some(blocks) = &mut self.blocks {
            blocks.layout.push(BlockRun { at, ..block.run });
        }
        self.new.end = at + block.run.length;
        self.new.unrecorded = self.new.end;
        self.expected = Some(number + 1);
        self.in_vain = 0;
        Ok(block.length)
    }

    /// Adds bytes that are new.
    fn add(&mut self, bytes: &[u8], tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        self.new.bytes.extend_from_slice(bytes);
        self.new.end += bytes.len() as u64;
        self.new.total += bytes.len() as u64;
        self.in_vain += bytes.len() as u64;
        let piece = PIECE as u64;
        while (self.new.unrecorded + 1).next_multiple_of(piece) <= self.new.end {
            self.record((self.new.unrecorded + 1).next_multiple_of(piece));
        }
        // What is not fingerprinted yet stays.
        while self.new.bytes.len() >= self.file.pool.cutter.reach() + PIECE {
            self.cut_new(tools)?;
        }
        Ok(())
    }

    /// Fingerprints new bytes up to a place.
    fn record(&mut self, until: u64) {
        let (from, length) = (self.new.unrecorded, until - self.new.unrecorded);
        self.new.unrecorded = until;
        // Fingerprints that would be mostly new are not worth the old ones.
        let most = MOST_BLOCKS.min(self.was.index.len().max(64)) / 2 * RECORD;
        let blocks = self.blocks.take();
        let Some(mut blocks) = blocks.filter(|blocks| blocks.records.len() < most) else {
            return;
        };
        let back = usize::try_from(self.new.end - from).unwrap_or(usize::MAX);
        let bytes = &self.new.bytes[self.new.bytes.len() - back..];
        let bytes = &bytes[..usize::try_from(length).unwrap_or(bytes.len())];
        let number = from / PIECE as u64;
        let known = self.stream.record(number);
        let known = known.filter(|_| length == PIECE as u64).copied();
        let record = known.unwrap_or_else(|| blocks::record(&blocks::value(number, bytes), bytes));
        blocks.push(from, length, number, &record);
        self.blocks = Some(blocks);
    }

    /// Ends a stretch of new bytes: a long one is cut by content, what is left of it shares a chunk with others.
    fn end_new(&mut self, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        if self.new.unrecorded < self.new.end {
            self.record(self.new.end);
        }
        while self.new.bytes.len() as u64 >= PIECES_CUT {
            self.cut_new(tools)?;
        }
        if self.new.bytes.is_empty() {
            return Ok(());
        }
        let short =
            |length: usize| u32::try_from(length).expect("a bundle is no longer than a chunk");
        self.new.waiting.push(self.parts.len());
        self.parts.push(Part::Fresh {
            number: usize::MAX,
            offset: short(self.new.bundle.len()),
            length: short(self.new.bytes.len()),
        });
        self.new.bundle.append(&mut self.new.bytes);
        if self.new.bundle.len() as u64 >= PIECES_CUT {
            self.end_bundle(tools)?;
        }
        Ok(())
    }

    /// Cuts a chunk off the new bytes.
    fn cut_new(&mut self, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        let cut = self.file.pool.cutter.cut(&self.new.bytes);
        let rest = self.new.bytes.split_off(cut);
        let bytes = std::mem::replace(&mut self.new.bytes, rest);
        let number = self.of.expect();
        self.parts.push(Part::Fresh {
            number,
            offset: 0,
            length: u32::try_from(cut).expect("a chunk is short"),
        });
        let of = self.of.clone();
        self.file.pool.offer(Offered { bytes, number, of }, tools)
    }

    fn end_bundle(&mut self, tools: &mut Tools<'a>) -> Result<(), ChunkError> {
        if self.new.bundle.is_empty() {
            return Ok(());
        }
        let encoded = self.of.expect();
        for part in self.new.waiting.drain(..) {
            if let Part::Fresh { number, .. } = &mut self.parts[part] {
                *number = encoded;
            }
        }
        let offered = Offered {
            bytes: std::mem::take(&mut self.new.bundle),
            number: encoded,
            of: self.of.clone(),
        };
        self.file.pool.offer(offered, tools)
    }

    fn finish(mut self, tools: &mut Tools<'a>) -> Result<CutFile, ChunkError> {
        self.end_bundle(tools)?;
        let (size, digest, own) = self.stream.finish();
        let kept = self.blocks.map(NewBlocks::without_unused);
        let blocks = match (own, kept) {
            (Some(own), Some(kept)) if kept.is_better_than(&own, self.new.total, size) => {
                Some(kept)
            }
            (own, _) => own,
        };
        Ok(CutFile {
            size,
            digest,
            blocks,
            parts: self.parts,
            of: self.of,
        })
    }
}
