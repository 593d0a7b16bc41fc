//! A sparse file as pax stores it since version 1.0, which bsdtar does by default and GNU tar when asked.
//!
//! Its content is a map, filled up to whole blocks, and the data of its parts one after the other. The map is decimal
//! numbers, a line each: how many parts, then where each begins and how long it is. What lies between them is a hole.
//!
//! *Always true:* parts are in order, do not overlap, lie in the file, and are as long together as the data.

use super::Problem;
use super::header::BLOCK;
use super::pax;
use super::tar_event::TarEvent;
use std::collections::VecDeque;
use std::ops::Range;

/// More parts than this no file has that somebody wants to read.
const MOST: u64 = 200_000;
/// A line of the map is shorter.
const LONGEST_LINE: usize = 20;

/// A sparse file that is being read.
#[derive(Debug)]
pub(super) struct SparseFile {
    size: u64,
    /// Where in the file we are.
    at: u64,
    map: SparseMap,
    parts: VecDeque<Range<u64>>,
}

/// The map while it is read.
#[derive(Debug, Default)]
struct SparseMap {
    line: Vec<u8>,
    /// How many numbers are to come; nobody knows before the first.
    left: Option<u64>,
    begin: Option<u64>,
    read: usize,
    is_complete: bool,
}

impl SparseFile {
    pub(super) fn new(size: u64) -> Self {
        Self {
            size,
            at: 0,
            map: SparseMap::default(),
            parts: VecDeque::new(),
        }
    }

    /// Reads some of the stored bytes, which begin at `from` in what was fed; returns how many.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        from: usize,
        events: &mut Vec<TarEvent>,
    ) -> Result<usize, Problem> {
        if !self.map.is_complete {
            return self.feed_map(bytes);
        }
        let part = self.parts.front_mut().ok_or(Problem::SparseMap)?;
        if part.start > self.at {
            events.push(TarEvent::Hole(part.start - self.at));
            self.at = part.start;
        }
        let left = part.end - part.start;
        let take = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        events.push(TarEvent::Content(from..from + take));
        self.at += take as u64;
        part.start = self.at;
        if part.is_empty() {
            self.parts.pop_front();
        }
        Ok(take)
    }

    /// Says that all stored bytes have come.
    pub(super) fn finish(self, events: &mut Vec<TarEvent>) -> Result<(), Problem> {
        if !self.map.is_complete || !self.parts.is_empty() {
            return Err(Problem::SparseMap);
        }
        if self.size > self.at {
            events.push(TarEvent::Hole(self.size - self.at));
        }
        Ok(())
    }

    fn feed_map(&mut self, bytes: &[u8]) -> Result<usize, Problem> {
        for (at, byte) in bytes.iter().enumerate() {
            let is_block = (self.map.read + 1).is_multiple_of(BLOCK);
            self.map.read += 1;
            if self.map.left == Some(0) {
                // What fills the last block.
                if *byte != 0 {
                    return Err(Problem::SparseMap);
                }
            } else if *byte == b'\n' {
                let line = std::mem::take(&mut self.map.line);
                self.number(pax::decimal(&line).ok_or(Problem::SparseMap)?)?;
            } else if self.map.line.len() == LONGEST_LINE {
                return Err(Problem::SparseMap);
            } else {
                self.map.line.push(*byte);
            }
            if is_block && self.map.left == Some(0) {
                self.map.is_complete = true;
                return Ok(at + 1);
            }
        }
        Ok(bytes.len())
    }

    fn number(&mut self, number: u64) -> Result<(), Problem> {
        let Some(left) = self.map.left else {
            self.map.left = Some(2 * number);
            return if number > MOST {
                Err(Problem::SparseMap)
            } else {
                Ok(())
            };
        };
        self.map.left = Some(left - 1);
        let Some(begin) = self.map.begin.take() else {
            self.map.begin = Some(number);
            return Ok(());
        };
        let end = begin.checked_add(number).filter(|end| *end <= self.size);
        let end = end.ok_or(Problem::SparseMap)?;
        let before = self.parts.back().map_or(0, |part| part.end);
        if begin < before {
            return Err(Problem::SparseMap);
        }
        if begin < end {
            self.parts.push_back(begin..end);
        }
        Ok(())
    }
}
