//! Some entries of a list.

use super::wire::{
    SectionReader, bad_number, disorder, put_bytes, put_chunk, put_number, put_signed, unknown,
};
use super::{Extent, FILE_MAX, FileContent, ListRow, Slice, StoredChunk};
use crate::digest::FileDigest;
use crate::invalid::{Invalid, InvalidPart};
use crate::tree::blocks::layout::MOST_TABLES;
use crate::tree::{Attribute, Entry, EntryKind, EntryPath, FileTime, Metadata, acl};
use std::collections::HashMap;

const FILE: u8 = 0;
const DIRECTORY: u8 = 1;
const SYMLINK: u8 = 2;
const HARD_LINK: u8 = 3;
const FIFO: u8 = 4;
const KIND: u8 = 0x07;
/// Mode, owner and group are those of the entry before.
const SAME: u8 = 0x10;
const ATTRIBUTES: u8 = 0x20;
const PIECES: u8 = 0x40;
/// The file is held as one version, under its digest: no extents follow.
const VERSION: u8 = 0x80;

/// Not fewer entries than this are in a section, unless it is the last.
const FEWEST: usize = 64;
/// Not more either.
const MOST: usize = 512;
/// Not more bytes, but for the last entry.
const LONGEST: usize = 64 << 10;

/// Gathers entries until a section is full.
#[derive(Clone, Debug, Default)]
pub struct SectionWriter {
    table: Vec<StoredChunk>,
    places: HashMap<StoredChunk, usize>,
    entries: usize,
    bytes: Vec<u8>,
    path: Vec<u8>,
    before: Metadata,
}

impl SectionWriter {
    /// Appends an entry, whose path must come after that of the entry before. Says whether the section should end here.
    ///
    /// Where a section ends depends on names, so that a file that changes or appears does not move later sections.
    pub fn push(&mut self, row: &ListRow) -> bool {
        let path = row.entry.path.as_bytes();
        let shared = self
            .path
            .iter()
            .zip(path)
            .take_while(|(a, b)| a == b)
            .count();
        put_number(&mut self.bytes, shared as u64);
        put_bytes(&mut self.bytes, &path[shared..]);
        self.path.truncate(shared);
        self.path.extend_from_slice(&path[shared..]);
        self.metadata(row);
        self.kind(row);
        self.entries += 1;
        self.entries >= MOST
            || self.bytes.len() >= LONGEST
            || self.entries >= FEWEST && drawn(path).is_multiple_of(128)
    }

    /// How many entries are in it.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// The section's bytes; the writer is empty again.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut section = Vec::with_capacity(self.bytes.len() + 40 * self.table.len() + 16);
        put_number(&mut section, self.table.len() as u64);
        for chunk in &self.table {
            put_chunk(&mut section, chunk);
        }
        put_number(&mut section, self.entries as u64);
        section.append(&mut self.bytes);
        *self = Self::default();
        section
    }

    fn metadata(&mut self, row: &ListRow) {
        let Entry {
            kind,
            metadata,
            attributes,
            ..
        } = &row.entry;
        let owned = |of: &Metadata| (of.mode, of.uid, of.gid);
        let is_same = owned(metadata) == owned(&self.before);
        let has_pieces = row
            .content
            .as_ref()
            .is_some_and(|content| !content.pieces.is_empty());
        let kind = match kind {
            EntryKind::File { .. } => FILE,
            EntryKind::Directory => DIRECTORY,
            EntryKind::Symlink { .. } => SYMLINK,
            EntryKind::HardLink { .. } => HARD_LINK,
            EntryKind::Fifo => FIFO,
        };
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = kind
            | flag(is_same, SAME)
            | flag(!attributes.is_empty(), ATTRIBUTES)
            | flag(has_pieces, PIECES)
            | flag(is_version(row), VERSION);
        self.bytes.push(flags);
        if !is_same {
            put_number(&mut self.bytes, metadata.mode.into());
            put_number(&mut self.bytes, metadata.uid.into());
            put_number(&mut self.bytes, metadata.gid.into());
        }
        let since = metadata
            .modified
            .seconds
            .wrapping_sub(self.before.modified.seconds);
        put_signed(&mut self.bytes, since);
        self.bytes
            .extend_from_slice(&metadata.modified.nanos.to_le_bytes());
        self.before = *metadata;
        if !attributes.is_empty() {
            put_number(&mut self.bytes, attributes.len() as u64);
            for Attribute { name, value } in attributes {
                put_bytes(&mut self.bytes, name);
                put_bytes(&mut self.bytes, value);
            }
        }
    }

    fn kind(&mut self, row: &ListRow) {
        match &row.entry.kind {
            EntryKind::File { size } => {
                put_number(&mut self.bytes, *size);
                let content = row.content.as_ref().expect("a file in a list has content");
                self.content(content);
            }
            EntryKind::Symlink { target } => put_bytes(&mut self.bytes, target),
            EntryKind::HardLink { to } => put_bytes(&mut self.bytes, to.as_bytes()),
            EntryKind::Directory | EntryKind::Fifo => {}
        }
    }

    fn content(&mut self, content: &FileContent) {
        self.bytes.extend_from_slice(content.digest.as_bytes());
        if content.is_version() {
            return;
        }
        put_number(&mut self.bytes, content.extents.len() as u64);
        for extent in &content.extents {
            match extent {
                Extent::Version(_) => unreachable!("a version is all of its file"),
                Extent::Hole(length) => {
                    put_number(&mut self.bytes, 0);
                    put_number(&mut self.bytes, *length);
                }
                Extent::Stored(slice) => self.slice(slice),
            }
        }
        if !content.pieces.is_empty() {
            put_number(&mut self.bytes, content.pieces.len() as u64);
            for slice in &content.pieces {
                self.slice(slice);
            }
        }
    }

    fn slice(&mut self, slice: &Slice) {
        let place = match self.table.last() {
            Some(last) if *last == slice.chunk => self.table.len(),
            _ => *self.places.entry(slice.chunk).or_insert_with(|| {
                self.table.push(slice.chunk);
                self.table.len()
            }),
        };
        put_number(&mut self.bytes, place as u64);
        put_number(&mut self.bytes, slice.offset.into());
        put_number(&mut self.bytes, slice.length.into());
    }
}

/// Whether a row is that of a file that is held as one version.
fn is_version(row: &ListRow) -> bool {
    row.content.as_ref().is_some_and(FileContent::is_version)
}

/// A number drawn from a name.
fn drawn(path: &[u8]) -> u64 {
    let hash = path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed >> 32
}

/// Reads a section, showing each entry to `show`. `after` is the last path of the section before.
pub fn read_section<E: From<Invalid>>(
    bytes: &[u8],
    after: Option<&EntryPath>,
    mut show: impl FnMut(ListRow) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = SectionReader::new(bytes);
    let table = reader.chunks()?;
    let entries = reader.count(8)?;
    let mut rows = SectionRows {
        reader,
        table,
        path: Vec::new(),
        last: after.cloned(),
        before: Metadata::default(),
    };
    for _ in 0..entries {
        show(rows.next()?)?;
    }
    rows.reader.end()?;
    Ok(())
}

/// The chunks that a section's entries lie in.
pub fn section_chunks(bytes: &[u8]) -> Result<Vec<StoredChunk>, Invalid> {
    SectionReader::new(bytes).chunks()
}

struct SectionRows<'b> {
    reader: SectionReader<'b>,
    table: Vec<StoredChunk>,
    path: Vec<u8>,
    last: Option<EntryPath>,
    before: Metadata,
}

impl SectionRows<'_> {
    fn next(&mut self) -> Result<ListRow, Invalid> {
        let shared = self.reader.small("a path too long")? as usize;
        if shared > self.path.len() {
            return Err(bad_number("a path that shares more than there is"));
        }
        self.path.truncate(shared);
        self.path.extend_from_slice(self.reader.bytes()?);
        let path = EntryPath::parse(&self.path).invalid("the list holds a path that is not one")?;
        let comes_after = self.last.as_ref().is_none_or(|last| *last < path);
        if !comes_after || path.is_root() {
            return Err(disorder());
        }
        self.last = Some(path.clone());
        let flags = self.reader.byte()?;
        let metadata = self.metadata(flags)?;
        let attributes = self.attributes(flags)?;
        let (kind, content) = self.kind(flags)?;
        let entry = Entry {
            path,
            kind,
            metadata,
            attributes,
        };
        Ok(ListRow { entry, content })
    }

    fn metadata(&mut self, flags: u8) -> Result<Metadata, Invalid> {
        let mut metadata = self.before;
        if flags & SAME == 0 {
            metadata.mode = self.reader.small("a mode")?;
            metadata.uid = self.reader.small("an owner")?;
            metadata.gid = self.reader.small("a group")?;
        }
        let since = self.reader.signed()?;
        metadata.modified = FileTime {
            seconds: metadata.modified.seconds.wrapping_add(since),
            nanos: u32::from_le_bytes(self.reader.array()?),
        };
        if metadata.mode > 0o7777 || metadata.modified.nanos > 999_999_999 {
            return Err(bad_number("a mode or a time"));
        }
        self.before = metadata;
        Ok(metadata)
    }

    fn attributes(&mut self, flags: u8) -> Result<Vec<Attribute>, Invalid> {
        if flags & ATTRIBUTES == 0 {
            return Ok(Vec::new());
        }
        let count = self.reader.count(2)?;
        let attribute = |_| {
            Ok(Attribute {
                name: self.reader.bytes()?.into(),
                value: self.reader.bytes()?.into(),
            })
        };
        let attributes: Vec<Attribute> =
            (0..count).map(attribute).collect::<Result<_, Invalid>>()?;
        let ascend = attributes
            .windows(2)
            .all(|pair| pair[0].name < pair[1].name);
        let ours = attributes.iter().all(|one| acl::is_kept(&one.name));
        if count == 0 || !ascend || !ours {
            return Err(bad_number("attributes"));
        }
        Ok(attributes)
    }

    fn kind(&mut self, flags: u8) -> Result<(EntryKind, Option<FileContent>), Invalid> {
        if flags & !(KIND | SAME | ATTRIBUTES | PIECES | VERSION) != 0
            || flags & (PIECES | VERSION) != 0 && flags & KIND != FILE
            || flags & (PIECES | VERSION) == PIECES | VERSION
        {
            return Err(unknown("an entry with other flags"));
        }
        let kind = match flags & KIND {
            FILE => {
                let size = self.reader.number()?;
                if flags & VERSION != 0 {
                    let content = self.version(size)?;
                    return Ok((EntryKind::File { size }, Some(content)));
                }
                let content = self.content(size, flags & PIECES != 0)?;
                return Ok((EntryKind::File { size }, Some(content)));
            }
            DIRECTORY => EntryKind::Directory,
            SYMLINK => EntryKind::Symlink {
                target: self.reader.bytes()?.into(),
            },
            HARD_LINK => {
                let to = EntryPath::parse(self.reader.bytes()?)
                    .invalid("the list holds a path that is not one")?;
                EntryKind::HardLink { to }
            }
            FIFO => EntryKind::Fifo,
            _ => return Err(unknown("an entry of another kind")),
        };
        Ok((kind, None))
    }

    fn content(&mut self, size: u64, has_pieces: bool) -> Result<FileContent, Invalid> {
        let digest = FileDigest::from_document(self.reader.array()?);
        let count = self.reader.count(2)?;
        let (mut extents, mut total) = (Vec::with_capacity(count), 0_u64);
        for _ in 0..count {
            let place = self.reader.number()?;
            let extent = match place {
                0 => Extent::Hole(self.reader.number()?),
                place => Extent::Stored(self.slice(place)?),
            };
            let length = extent.length();
            total = total
                .checked_add(length)
                .ok_or_else(|| bad_number("a size"))?;
            if length == 0 {
                return Err(bad_number("an extent without bytes"));
            }
            extents.push(extent);
        }
        if size > FILE_MAX {
            return Err(bad_number("a file larger than any that can be written"));
        }
        if total != size {
            return Err(bad_number("a size that its extents do not have"));
        }
        let pieces = if has_pieces {
            self.pieces()?
        } else {
            Vec::new()
        };
        Ok(FileContent {
            digest,
            extents,
            pieces,
        })
    }

    fn version(&mut self, size: u64) -> Result<FileContent, Invalid> {
        let digest = FileDigest::from_document(self.reader.array()?);
        if size == 0 || size > FILE_MAX {
            return Err(bad_number("a version of a size that none has"));
        }
        Ok(FileContent::version(digest, size))
    }

    fn pieces(&mut self) -> Result<Vec<Slice>, Invalid> {
        let count = self.reader.count(3)?;
        if count == 0 {
            return Err(bad_number("fingerprints that lie nowhere"));
        }
        // Whoever compares the file has all of them in memory.
        if count > 1 + MOST_TABLES {
            return Err(bad_number("fingerprints in too many tables"));
        }
        let slice = |_| {
            let place = self.reader.number()?;
            self.slice(place)
        };
        (0..count).map(slice).collect()
    }

    fn slice(&mut self, place: u64) -> Result<Slice, Invalid> {
        let index = place
            .checked_sub(1)
            .and_then(|index| usize::try_from(index).ok());
        let chunk = index.and_then(|index| self.table.get(index));
        let chunk = *chunk.ok_or_else(|| bad_number("a chunk that is not in its table"))?;
        let offset = self.reader.small("an offset")?;
        let length = self.reader.small("a length")?;
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > chunk.plain_len) {
            return Err(bad_number("a slice beyond its chunk"));
        }
        Ok(Slice {
            chunk,
            offset,
            length,
        })
    }
}
