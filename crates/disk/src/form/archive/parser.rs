//! Turns the bytes of a tar, fed piece by piece, into entries and stretches of content.
//!
//! Two dialects. *Ours* has one spelling: headers are read, spelled again, and must be the same bytes; entries are
//! sorted, every directory comes before what it holds, hard links lead back to files, and two zero blocks end it
//! exactly. *Any* is what GNU tar and bsdtar write: leading `./`, GNU long names, pax headers, global ones, numbers to
//! the base 256, sparse files as pax 1.0 stores them, any order, zeros after the end. Both refuse names that lead anywhere, devices (unless whoever
//! reads only wants to hear of them), and headers that contradict one another. Memory does not grow with the archive, except for 8 bytes or so per file.

use super::Problem;
use super::foreign::{self, Extra, PendingHeaders};
use super::header::{BLOCK, Header, padding};
use super::pax;
use super::rules::{ArchiveLimits, Rules, TarDialect};
use super::sparse::SparseFile;
use super::spelling;
use super::tar_event::TarEvent;
use stasis_model::tree::{Entry, EntryKind, EntryPath, acl};

#[derive(Clone, PartialEq, Eq, Debug)]
enum ParserState {
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
    dialect: TarDialect,
    state: ParserState,
    /// The part of a header block, or of a header's body, that has come so far.
    gathered: Vec<u8>,
    /// All bytes of the headers of the entry that is being read.
    spelled: Vec<u8>,
    pending: PendingHeaders,
    rules: Rules,
    position: u64,
    /// Where the headers of the entry that is being read begin.
    began: Option<u64>,
    sparse: Option<SparseFile>,
    /// Devices that were met, if they are passed over instead of refused.
    devices: Option<Vec<EntryPath>>,
}

impl Parser {
    pub(super) fn new(dialect: TarDialect, limits: ArchiveLimits) -> Self {
        Self::with_rules(dialect, Rules::new(dialect, limits))
    }

    /// Begins at an entry in the middle: what lies in what is not known.
    pub(super) fn in_the_middle(limits: ArchiveLimits) -> Self {
        Self::with_rules(TarDialect::Ours, Rules::in_the_middle(limits))
    }

    fn with_rules(dialect: TarDialect, rules: Rules) -> Self {
        Self {
            dialect,
            state: ParserState::Block,
            gathered: Vec::with_capacity(BLOCK),
            spelled: Vec::new(),
            pending: PendingHeaders::default(),
            rules,
            position: 0,
            began: None,
            sparse: None,
            devices: None,
        }
    }

    /// Passes over devices, and names them, instead of refusing them.
    pub(super) fn naming_devices(self) -> Self {
        let devices = Some(Vec::new());
        Self { devices, ..self }
    }

    /// The devices that were passed over.
    pub(super) fn devices(&self) -> &[EntryPath] {
        self.devices.as_deref().unwrap_or_default()
    }

    /// How many bytes have been read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Whether all of the next `length` bytes belong to the content of a file.
    pub(super) fn is_in_content(&self, length: u64) -> bool {
        matches!(self.state, ParserState::Content { left, pad } if left + pad as u64 >= length)
    }

    /// Reads further bytes and appends what is found in them.
    pub(super) fn feed(&mut self, bytes: &[u8], events: &mut Vec<TarEvent>) -> Result<(), Problem> {
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
        let ParserState::Content { left, pad } = self.state else {
            return Err(Problem::IndexDisagrees("a frame should hold content only"));
        };
        let all = left + pad as u64;
        let after = all.checked_sub(length);
        let after = after.ok_or(Problem::IndexDisagrees("a frame should hold content only"))?;
        self.state = match after.checked_sub(pad as u64) {
            Some(left) if left > 0 => ParserState::Content { left, pad },
            _ => Self::after_content(usize::try_from(after).expect("no more than a block")),
        };
        self.position += length;
        Ok(())
    }

    /// Says that no more bytes come.
    pub(super) fn finish(&self) -> Result<(), Problem> {
        match self.state {
            ParserState::Ended if self.gathered.is_empty() => Ok(()),
            _ => Err(Problem::Truncated),
        }
    }

    fn after_content(pad: usize) -> ParserState {
        match pad {
            0 => ParserState::Block,
            left => ParserState::Padding { left },
        }
    }

    /// Reads at least one byte; returns how many.
    fn step(
        &mut self,
        bytes: &[u8],
        at: usize,
        events: &mut Vec<TarEvent>,
    ) -> Result<usize, Problem> {
        let rest = &bytes[at..];
        match self.state {
            ParserState::Content { left, pad } => {
                let take = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                events.push(TarEvent::Content(at..at + take));
                self.state = match left - take as u64 {
                    0 => Self::after_content(pad),
                    left => ParserState::Content { left, pad },
                };
                Ok(take)
            }
            ParserState::Sparse { .. } => self.step_sparse(bytes, at, events),
            ParserState::Padding { left } => {
                let take = left.min(rest.len());
                if self.dialect == TarDialect::Ours && rest[..take].iter().any(|byte| *byte != 0) {
                    return Err(Problem::Spelling);
                }
                self.state = Self::after_content(left - take);
                Ok(take)
            }
            ParserState::Body { kind, left, pad } => {
                let take = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                self.gather(&rest[..take]);
                let left = left - take as u64;
                self.state = ParserState::Body { kind, left, pad };
                if left == 0 {
                    self.end_body(kind, pad)?;
                }
                Ok(take)
            }
            ParserState::Block | ParserState::Ending => {
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
            ParserState::Ended if self.dialect == TarDialect::Ours => Err(Problem::Trailing),
            ParserState::Ended if rest.iter().any(|byte| *byte != 0) => Err(Problem::Trailing),
            ParserState::Ended => Ok(rest.len()),
        }
    }

    /// Reads at least one byte of the map of a sparse file, or of its data; returns how many.
    fn step_sparse(
        &mut self,
        bytes: &[u8],
        at: usize,
        events: &mut Vec<TarEvent>,
    ) -> Result<usize, Problem> {
        let ParserState::Sparse { left, pad } = self.state else {
            return Ok(0);
        };
        let rest = &bytes[at..];
        let take = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
        let sparse = self.sparse.as_mut().expect("its header was read");
        let taken = sparse.feed(&rest[..take], at, events)?;
        self.state = match left - taken as u64 {
            0 => {
                let sparse = self.sparse.take();
                sparse.map_or(Ok(()), |sparse| sparse.finish(events))?;
                Self::after_content(pad)
            }
            left => ParserState::Sparse { left, pad },
        };
        Ok(taken)
    }

    fn gather(&mut self, bytes: &[u8]) {
        self.gathered.extend_from_slice(bytes);
        if self.dialect == TarDialect::Ours {
            self.spelled.extend_from_slice(bytes);
        }
    }

    fn pad_spelling(&mut self, length: usize) {
        if self.dialect == TarDialect::Ours {
            self.spelled.resize(self.spelled.len() + length, 0);
        }
    }

    fn block(&mut self, block: &[u8; BLOCK], events: &mut Vec<TarEvent>) -> Result<(), Problem> {
        if block.iter().all(|byte| *byte == 0) {
            if !self.pending.is_empty() {
                return Err(Problem::Stray);
            }
            self.state = match self.state {
                ParserState::Ending => ParserState::Ended,
                _ => ParserState::Ending,
            };
            self.spelled.clear();
            self.began = None;
            return Ok(());
        }
        if self.state == ParserState::Ending {
            return Err(Problem::Trailing);
        }
        let mut header = Header::decode(block)?;
        let is_device = matches!(header.kind, b'3' | b'4') && self.devices.is_some();
        if is_device {
            // The headers of both say the same, but for numbers that nobody needs.
            header.kind = b'6';
        }
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
            match &mut self.devices {
                Some(devices) if is_device => devices.push(entry.path),
                _ => events.push(TarEvent::Entry(entry, began)),
            }
        }
        self.spelled.clear();
        self.sparse = sparse.map(SparseFile::new);
        self.state = match size {
            0 if sparse.is_some() => return Err(Problem::SparseMap),
            0 => ParserState::Block,
            left if sparse.is_some() => ParserState::Sparse { left, pad },
            left => ParserState::Content { left, pad },
        };
        Ok(())
    }

    /// Begins a header that belongs to another one.
    fn body(&mut self, header: &Header) -> Result<(), Problem> {
        if header.size > pax::LONGEST as u64 {
            return Err(Problem::LongHeader(header.size));
        }
        if self.dialect == TarDialect::Ours && header.kind != b'x' {
            return Err(Problem::Spelling);
        }
        let (kind, left, pad) = (header.kind, header.size, padding(header.size));
        self.state = match left {
            0 => {
                self.pending.add(kind, Vec::new())?;
                ParserState::Block
            }
            _ => ParserState::Body { kind, left, pad },
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
        if self.dialect == TarDialect::Ours {
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
