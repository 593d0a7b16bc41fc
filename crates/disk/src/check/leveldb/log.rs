//! A log: blocks of 32 KiB, in them records with checksums, a long one in several pieces.
//!
//! What cannot be read is a torn tail if nothing right follows it, and it runs past the end of the file or into zeros,
//! as when the program or the machine died while it wrote. Everything else is damage.

use super::cursor::{Cursor, masked};
use super::{End, LevelDbTrouble, ReadFileAt, damage};

/// Every block but the last has this size.
pub(super) const BLOCK: usize = 32 << 10;
/// The longest record that is put together; of a longer one the pieces are checked and dropped.
pub(super) const LONGEST: usize = 16 << 20;
/// Checksum, length, type.
pub(super) const HEADER: usize = 7;
/// So many zeros at the end of a record are taken for bytes that were never written.
const UNWRITTEN: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Piece {
    Full,
    First,
    Middle,
    Last,
}

/// What stands at one place of a block.
enum FoundRecord<'a> {
    Piece(Piece, &'a [u8]),
    /// Nothing more in this block.
    End,
    /// It would go on after the end of the file, or was never written.
    Torn(&'static str),
    Wrong(&'static str),
}

/// A record whose pieces all match their checksums.
#[derive(Debug)]
pub(super) enum LogRecord {
    Whole(Vec<u8>),
    TooLong,
}

impl LogRecord {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn and(self, more: &[u8]) -> Self {
        match self {
            Self::Whole(mut bytes) if bytes.len() + more.len() <= LONGEST => {
                bytes.extend_from_slice(more);
                Self::Whole(bytes)
            }
            _ => Self::TooLong,
        }
    }
}

/// The records of a log, one after the other.
pub(super) struct Records<'a> {
    file: &'a dyn ReadFileAt,
    name: &'a str,
    block: Vec<u8>,
    at: usize,
    next_block: u64,
    is_torn: bool,
}

impl<'a> Records<'a> {
    pub(super) fn new(file: &'a dyn ReadFileAt, name: &'a str) -> Self {
        Self {
            file,
            name,
            block: Vec::new(),
            at: 0,
            next_block: 0,
            is_torn: false,
        }
    }

    /// Whether it ended in the middle of a record; known at the end.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// The next record; `None` at the end, torn or not.
    pub(super) fn next(&mut self) -> Result<Option<LogRecord>, LevelDbTrouble> {
        let mut record: Option<LogRecord> = None;
        loop {
            if self.at >= self.block.len() && !self.read_block()? {
                self.is_torn |= record.is_some();
                return Ok(None);
            }
            let place = self.place();
            let torn = match self.here() {
                FoundRecord::End => {
                    self.at = self.block.len();
                    continue;
                }
                FoundRecord::Wrong(what) => return damage(format!("{what} at byte {place}")),
                FoundRecord::Torn(what) => Err(what),
                FoundRecord::Piece(piece, bytes) => Ok((piece, bytes.to_vec())),
            };
            let (piece, bytes) = match torn {
                Ok(found) => found,
                Err(what) if self.anything_follows()? => {
                    return damage(format!("{what} at byte {place}"));
                }
                Err(_) => {
                    self.is_torn = true;
                    return Ok(None);
                }
            };
            self.at += HEADER + bytes.len();
            record = match (piece, record.take()) {
                (Piece::Full, None) => return Ok(Some(LogRecord::Whole(bytes))),
                (Piece::First, None) => Some(LogRecord::Whole(bytes)),
                // Old writers left an empty beginning at the end of a block.
                (Piece::Full, Some(begun)) if begun.is_empty() => {
                    return Ok(Some(LogRecord::Whole(bytes)));
                }
                (Piece::First, Some(begun)) if begun.is_empty() => Some(LogRecord::Whole(bytes)),
                (Piece::Middle, Some(begun)) => Some(begun.and(&bytes)),
                (Piece::Last, Some(begun)) => return Ok(Some(begun.and(&bytes))),
                (Piece::Full | Piece::First, Some(_)) => {
                    return damage(format!("a record without an end before byte {place}"));
                }
                (Piece::Middle | Piece::Last, None) => {
                    return damage(format!("a record without a beginning at byte {place}"));
                }
            };
        }
    }

    fn place(&self) -> u64 {
        (self.next_block - 1) * BLOCK as u64 + self.at as u64
    }

    /// Reads the next block; `false` when there is none.
    fn read_block(&mut self) -> Result<bool, End> {
        let offset = self.next_block * BLOCK as u64;
        let left = self.file.size().saturating_sub(offset);
        let length = usize::try_from(left).map_or(BLOCK, |left| left.min(BLOCK));
        self.block.resize(length, 0);
        self.at = 0;
        if length == 0 {
            return Ok(false);
        }
        let read = self.file.read_at(&mut self.block, offset);
        read.map_err(|error| End::unreadable(self.name, &error))?;
        self.next_block += 1;
        Ok(true)
    }

    fn here(&self) -> FoundRecord<'_> {
        piece_at(&self.block[self.at..], self.block.len() == BLOCK)
    }

    /// Whether anything that matches its checksum stands after what cannot be read here.
    ///
    /// The length that stands here may be what is wrong: in this block every byte could begin a record, in the others
    /// the first one does.
    fn anything_follows(&mut self) -> Result<bool, End> {
        let is_piece = |from: usize| {
            // Cheap first: the other kinds are none.
            if !matches!(self.block.get(from + 6), Some(1..=4)) {
                return false;
            }
            let found = piece_at(&self.block[from..], self.block.len() == BLOCK);
            matches!(found, FoundRecord::Piece(..))
        };
        if (self.at + 1..self.block.len()).any(is_piece) {
            return Ok(true);
        }
        while self.read_block()? {
            if matches!(self.here(), FoundRecord::Piece(..)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What stands at the beginning of `rest`, which goes to the end of a block.
fn piece_at(rest: &[u8], is_whole_block: bool) -> FoundRecord<'_> {
    if rest.len() < HEADER {
        let is_padding = rest.iter().all(|byte| *byte == 0);
        return match (is_whole_block, is_padding) {
            (true, true) => FoundRecord::End,
            (true, false) => FoundRecord::Wrong("bytes in the padding of a block"),
            (false, _) => FoundRecord::Torn("a torn header"),
        };
    }
    let mut header = Cursor::new(rest);
    let stored = header.fixed32().unwrap_or_default();
    let length = header
        .take(2)
        .map_or(0, |b| usize::from(b[0]) | usize::from(b[1]) << 8);
    let kind = header.byte().unwrap_or_default();
    if kind == 0 && length == 0 && rest.iter().all(|byte| *byte == 0) {
        return FoundRecord::Torn("room that was never written");
    }
    let Some(checked) = rest.get(HEADER - 1..HEADER + length) else {
        return if is_whole_block {
            FoundRecord::Wrong("a record that is longer than its block")
        } else {
            FoundRecord::Torn("a torn record")
        };
    };
    if masked(crc32c::crc32c(checked)) != stored {
        let end = HEADER + length;
        let unwritten = &rest[end - UNWRITTEN.min(end)..];
        return if unwritten.iter().all(|byte| *byte == 0) {
            FoundRecord::Torn("a record that was never written")
        } else {
            FoundRecord::Wrong("a record that does not match its checksum")
        };
    }
    let piece = match kind {
        1 => Piece::Full,
        2 => Piece::First,
        3 => Piece::Middle,
        4 => Piece::Last,
        _ => return FoundRecord::Wrong("a record of an unknown kind"),
    };
    FoundRecord::Piece(piece, &checked[1..])
}
