//! Turns the bytes of a tar, fed piece by piece, into entries and stretches of content.
//!
//! Two dialects. *Ours* has one spelling: headers are read, spelled again, and must be the same bytes; entries are
//! sorted, every directory comes before what it holds, hard links lead back to files, and two zero blocks end it
//! exactly. *Any* is what GNU tar and bsdtar write: leading `./`, GNU long names, pax headers, global ones, numbers to
//! the base 256, sparse files as pax 1.0 stores them, any order, zeros after the end. Both refuse names that lead anywhere, devices, and headers that
//! contradict one another. Memory does not grow with the archive, except for 8 bytes or so per file.

use super::Problem;
use super::foreign::{self, Extra, Pending};
use super::header::{BLOCK, Header, padding};
use super::pax;
use super::rules::Rules;
use super::sparse::SparseFile;
use super::spelling;
use stasis_model::tree::{Entry, EntryKind, acl};
use std::ops::Range;

/// Whose archive is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// One that we wrote.
    Ours,
    /// One that another tar wrote.
    Any,
}

/// What an archive may cost whoever reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How many entries.
    pub entries: u64,
    /// How many bytes all files have together, holes included.
    pub bytes: u64,
    /// How many directories lie in one another.
    pub deepest: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 50_000_000,
            bytes: 1 << 42,
            deepest: 1000,
        }
    }
}

/// What was found in the bytes that were fed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// An entry, and where its headers begin in the tar. If it is a file with a size, that much content follows.
    Entry(Entry, u64),
    /// The next bytes of the content, as a part of what was fed.
    Content(Range<usize>),
    /// So many zeros of the content, which are not stored.
    Hole(u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// In a header block.
    Block,
    /// In the body of a header that belongs to another one.
    Body { kind: u8, left: u64, pad: usize },
    /// In the content of a file.
    Content { left: u64, pad: usize },
    /// In the map of a sparse file, or in its data.
    Sparse { left: u64, pad: usize },
    /// In bytes that mean nothing; they must be zeros.
    Padding { left: usize },
    /// After one zero block.
    Ending,
    /// After two.
    Ended,
}

/// A tar that is being read.
#[derive(Debug)]
pub(super) struct Parser {
    dialect: Dialect,
    state: State,
    /// The part of a header block, or of a header's body, that has come so far.
    gathered: Vec<u8>,
    /// All bytes of the headers of the entry that is being read.
    spelled: Vec<u8>,
    pending: Pending,
    rules: Rules,
    position: u64,
    /// Where the headers of the entry that is being read begin.
    began: Option<u64>,
    sparse: Option<SparseFile>,
}

impl Parser {
    pub(super) fn new(dialect: Dialect, limits: Limits) -> Self {
        Self::with_rules(dialect, Rules::new(dialect, limits))
    }

    /// Begins at an entry in the middle: what lies in what is not known.
    pub(super) fn in_the_middle(limits: Limits) -> Self {
        Self::with_rules(Dialect::Ours, Rules::in_the_middle(limits))
    }

    fn with_rules(dialect: Dialect, rules: Rules) -> Self {
        Self {
            dialect,
            state: State::Block,
            gathered: Vec::with_capacity(BLOCK),
            spelled: Vec::new(),
            pending: Pending::default(),
            rules,
            position: 0,
            began: None,
            sparse: None,
        }
    }

    /// How many bytes have been read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Whether all of the next `length` bytes belong to the content of a file.
    pub(super) fn is_in_content(&self, length: u64) -> bool {
        matches!(self.state, State::Content { left, pad } if left + pad as u64 >= length)
    }

    /// Reads further bytes and appends what is found in them.
    pub(super) fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Problem> {
        let mut at = 0;
        while at < bytes.len() {
            let taken = self.step(bytes, at, events)?;
            at += taken;
            self.position += taken as u64;
        }
        Ok(())
    }

    /// Passes over `length` bytes that are all content, without looking at them.
    pub(super) fn skip(&mut self, length: u64) -> Result<(), Problem> {
        let State::Content { left, pad } = self.state else {
            return Err(Problem::IndexDisagrees("a frame should hold content only"));
        };
        let all = left + pad as u64;
        let after = all.checked_sub(length);
        let after = after.ok_or(Problem::IndexDisagrees("a frame should hold content only"))?;
        self.state = match after.checked_sub(pad as u64) {
            Some(left) if left > 0 => State::Content { left, pad },
            _ => Self::after_content(usize::try_from(after).expect("no more than a block")),
        };
        self.position += length;
        Ok(())
    }

    /// Says that no more bytes come.
    pub(super) fn finish(&self) -> Result<(), Problem> {
        match self.state {
            State::Ended if self.gathered.is_empty() => Ok(()),
            _ => Err(Problem::Truncated),
        }
    }

    fn after_content(pad: usize) -> State {
        match pad {
            0 => State::Block,
            left => State::Padding { left },
        }
    }

    /// Reads at least one byte; returns how many.
    fn step(&mut self, bytes: &[u8], at: usize, events: &mut Vec<Event>) -> Result<usize, Problem> {
        let rest = &bytes[at..];
        match self.state {
            State::Content { left, pad } => {
                let take = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                events.push(Event::Content(at..at + take));
                self.state = match left - take as u64 {
                    0 => Self::after_content(pad),
                    left => State::Content { left, pad },
                };
                Ok(take)
            }
            State::Sparse { left, pad } => {
                let take = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                let sparse = self.sparse.as_mut().expect("its header was read");
                let taken = sparse.feed(&rest[..take], at, events)?;
                self.state = match left - taken as u64 {
                    0 => {
                        let sparse = self.sparse.take();
                        sparse.map_or(Ok(()), |sparse| sparse.finish(events))?;
                        Self::after_content(pad)
                    }
                    left => State::Sparse { left, pad },
                };
                Ok(taken)
            }
            State::Padding { left } => {
                let take = left.min(rest.len());
                if self.dialect == Dialect::Ours && rest[..take].iter().any(|byte| *byte != 0) {
                    return Err(Problem::Spelling);
                }
                self.state = Self::after_content(left - take);
                Ok(take)
            }
            State::Body { kind, left, pad } => {
                let take = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                self.gather(&rest[..take]);
                let left = left - take as u64;
                self.state = State::Body { kind, left, pad };
                if left == 0 {
                    self.end_body(kind, pad)?;
                }
                Ok(take)
            }
            State::Block | State::Ending => {
                let take = (BLOCK - self.gathered.len()).min(rest.len());
                self.began.get_or_insert(self.position);
                self.gather(&rest[..take]);
                if let Ok(block) = <&[u8; BLOCK]>::try_from(&*self.gathered) {
                    let block = *block;
                    self.gathered.clear();
                    self.block(&block, events)?;
                }
                Ok(take)
            }
            State::Ended if self.dialect == Dialect::Ours => Err(Problem::Trailing),
            State::Ended if rest.iter().any(|byte| *byte != 0) => Err(Problem::Trailing),
            State::Ended => Ok(rest.len()),
        }
    }

    fn gather(&mut self, bytes: &[u8]) {
        self.gathered.extend_from_slice(bytes);
        if self.dialect == Dialect::Ours {
            self.spelled.extend_from_slice(bytes);
        }
    }

    fn pad_spelling(&mut self, length: usize) {
        if self.dialect == Dialect::Ours {
            self.spelled.resize(self.spelled.len() + length, 0);
        }
    }

    fn block(&mut self, block: &[u8; BLOCK], events: &mut Vec<Event>) -> Result<(), Problem> {
        if block.iter().all(|byte| *byte == 0) {
            if !self.pending.is_empty() {
                return Err(Problem::Stray);
            }
            self.state = match self.state {
                State::Ending => State::Ended,
                _ => State::Ending,
            };
            self.spelled.clear();
            self.began = None;
            return Ok(());
        }
        if self.state == State::Ending {
            return Err(Problem::Trailing);
        }
        let header = Header::decode(block)?;
        if matches!(header.kind, b'x' | b'g' | b'L' | b'K') {
            return self.body(&header);
        }
        let Extra {
            entry,
            size,
            sparse,
        } = foreign::entry(header, &mut self.pending)?;
        let pad = padding(size);
        let began = self.began.take().unwrap_or_default();
        if let Some(entry) = entry {
            self.check(&entry)?;
            events.push(Event::Entry(entry, began));
        }
        self.spelled.clear();
        self.sparse = sparse.map(SparseFile::new);
        self.state = match size {
            0 if sparse.is_some() => return Err(Problem::SparseMap),
            0 => State::Block,
            left if sparse.is_some() => State::Sparse { left, pad },
            left => State::Content { left, pad },
        };
        Ok(())
    }

    /// Begins a header that belongs to another one.
    fn body(&mut self, header: &Header) -> Result<(), Problem> {
        if header.size > pax::LONGEST as u64 {
            return Err(Problem::LongHeader(header.size));
        }
        if self.dialect == Dialect::Ours && header.kind != b'x' {
            return Err(Problem::Spelling);
        }
        let (kind, left, pad) = (header.kind, header.size, padding(header.size));
        self.state = match left {
            0 => {
                self.pending.add(kind, Vec::new())?;
                State::Block
            }
            _ => State::Body { kind, left, pad },
        };
        Ok(())
    }

    /// Keeps a header that belongs to another one.
    fn end_body(&mut self, kind: u8, pad: usize) -> Result<(), Problem> {
        let body = std::mem::take(&mut self.gathered);
        self.pending.add(kind, body)?;
        self.state = Self::after_content(pad);
        // The padding of our own headers is part of their spelling, which is zeros.
        self.pad_spelling(pad);
        Ok(())
    }

    fn check(&mut self, entry: &Entry) -> Result<(), Problem> {
        if self.dialect == Dialect::Ours {
            let is_ours = spelling::headers(entry).is_some_and(|ours| ours == self.spelled);
            let is_kept = entry.attributes.iter().all(|one| acl::is_kept(&one.name));
            let is_spelled =
                is_ours && is_kept && (!entry.path.is_root() || entry.kind == EntryKind::Directory);
            if !is_spelled {
                return Err(Problem::Spelling);
            }
        }
        self.rules.admit(entry)
    }
}
