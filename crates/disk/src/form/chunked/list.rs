//! Lists of entries on their way into chunks, and out of them.
//!
//! Sections that the parent's list has are used where they lie; the others are gathered into bundles. A bundle of which
//! the new list would use less than half is not used: its sections are fetched and stored again with the new ones.

use super::encoder::{ChunkEncoder, EncodeOutcome};
use super::lately::Lately;
use super::{ChunkError, ChunkSource, cut_out, fetch};
use stasis_model::digest::{ChunkDigest, FileDigest};
use stasis_model::format::manifest::{FileList, INLINE_LIMIT, ListRef};
use stasis_model::invalid::Invalid;
use stasis_model::protocol::gc::{ChunkName, Names};
use stasis_model::tree::EntryPath;
use stasis_model::tree::chunking::BUNDLE_MIN;
use stasis_model::tree::diff::DigestedEntry;
use stasis_model::tree::list::{
    Extent, ListRoot, ListRow, SectionPlace, SectionWriter, Slice, StoredChunk, read_section,
};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// A list whose files lie in more places than this is stored in chunks, however few entries it has.
const INLINE_EXTENTS: usize = 4 * INLINE_LIMIT;

/// Gathers pieces of bytes into bundles; where each lies is known when its bundle is full.
#[derive(Debug, Default)]
pub(super) struct Bundler {
    bundle: Vec<u8>,
    waiting: Vec<(usize, u32, u32)>,
    places: Vec<Option<Slice>>,
    pub(super) stored_bytes: u64,
    pub(super) chunks_new: u64,
}

impl Bundler {
    /// Adds some bytes; the answer is their number.
    pub(super) fn add(
        &mut self,
        bytes: &[u8],
        encoder: &mut ChunkEncoder<'_>,
        known: &dyn Fn(&ChunkDigest) -> Option<ChunkName>,
    ) -> Result<usize, ChunkError> {
        if self.bundle.len() + bytes.len() > 2 * BUNDLE_MIN {
            self.flush(encoder, known)?;
        }
        let short =
            |length: usize| u32::try_from(length).expect("a bundle is no longer than a chunk");
        let number = self.places.len();
        self.waiting
            .push((number, short(self.bundle.len()), short(bytes.len())));
        self.places.push(None);
        self.bundle.extend_from_slice(bytes);
        Ok(number)
    }

    fn flush(
        &mut self,
        encoder: &mut ChunkEncoder<'_>,
        known: &dyn Fn(&ChunkDigest) -> Option<ChunkName>,
    ) -> Result<(), ChunkError> {
        if self.bundle.is_empty() {
            return Ok(());
        }
        let EncodeOutcome {
            chunk,
            stored_bytes,
        } = encoder.encode(&self.bundle, known)?;
        self.stored_bytes += stored_bytes.unwrap_or_default();
        self.chunks_new += u64::from(stored_bytes.is_some());
        for (number, offset, length) in self.waiting.drain(..) {
            self.places[number] = Some(Slice {
                chunk,
                offset,
                length,
            });
        }
        self.bundle.clear();
        Ok(())
    }

    /// Where everything lies, by number.
    pub(super) fn finish(
        &mut self,
        encoder: &mut ChunkEncoder<'_>,
        known: &dyn Fn(&ChunkDigest) -> Option<ChunkName>,
    ) -> Result<Vec<Slice>, ChunkError> {
        self.flush(encoder, known)?;
        let places = std::mem::take(&mut self.places);
        Ok(places
            .into_iter()
            .map(|place| place.expect("everything was flushed"))
            .collect())
    }
}

/// Where a section of the new list is.
#[derive(Debug)]
enum Section {
    /// Where the parent's list has it.
    Old(SectionPlace),
    /// In a bundle of ours.
    New {
        number: usize,
        digest: [u8; 16],
        entries: u32,
    },
}

/// A list in the making.
pub(super) struct ListWriter<'s, 'k> {
    encoder: ChunkEncoder<'s>,
    known: &'k dyn Fn(&ChunkDigest) -> Option<ChunkName>,
    parent: HashMap<[u8; 16], SectionPlace>,
    inline: Option<Vec<ListRow>>,
    extents: usize,
    section: SectionWriter,
    sections: Vec<Section>,
    bundler: Bundler,
    names: HashSet<ChunkName>,
    versions: Vec<(FileDigest, u64)>,
}

/// A list that was written.
#[derive(Debug)]
pub(super) struct WrittenList {
    pub(super) list: FileList,
    /// Every chunk that the list leads to.
    pub(super) names: Names,
    /// Every version of a file that is held whole, with its size.
    pub(super) versions: BTreeMap<FileDigest, u64>,
    pub(super) stored_bytes: u64,
    pub(super) chunks_new: u64,
}

impl<'s, 'k> ListWriter<'s, 'k> {
    pub(super) fn new(
        encoder: ChunkEncoder<'s>,
        known: &'k dyn Fn(&ChunkDigest) -> Option<ChunkName>,
        parent: &ListRoot,
    ) -> Self {
        let parent = parent.sections.iter().map(|place| (place.digest, *place));
        Self {
            encoder: encoder.looking_closely(),
            known,
            parent: parent.collect(),
            inline: Some(Vec::new()),
            extents: 0,
            section: SectionWriter::default(),
            sections: Vec::new(),
            bundler: Bundler::default(),
            names: HashSet::new(),
            versions: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, row: ListRow) -> Result<(), ChunkError> {
        if let Some(content) = &row.content {
            self.names
                .extend(content.slices().map(|slice| slice.chunk.name));
            self.extents += content.extents.len();
            if let [Extent::Version(size)] = *content.extents {
                self.versions.push((content.digest, size));
            }
        }
        match &mut self.inline {
            Some(rows) if rows.len() < INLINE_LIMIT && self.extents <= INLINE_EXTENTS => {
                rows.push(row);
                Ok(())
            }
            Some(rows) => {
                for row in std::mem::take(rows) {
                    self.push_section(&row)?;
                }
                self.inline = None;
                self.push_section(&row)
            }
            None => self.push_section(&row),
        }
    }

    fn push_section(&mut self, row: &ListRow) -> Result<(), ChunkError> {
        if self.section.push(row) {
            self.end_section()?;
        }
        Ok(())
    }

    fn end_section(&mut self) -> Result<(), ChunkError> {
        let entries = u32::try_from(self.section.entries()).expect("a section is short");
        let bytes = self.section.finish();
        let digest = SectionPlace::digest_of(&bytes);
        self.sections.push(match self.parent.get(&digest) {
            Some(place) => Section::Old(*place),
            None => Section::New {
                number: self.bundler.add(&bytes, &mut self.encoder, self.known)?,
                digest,
                entries,
            },
        });
        Ok(())
    }

    pub(super) fn finish(mut self, source: &dyn ChunkSource) -> Result<WrittenList, ChunkError> {
        let list = match self.inline.take() {
            Some(rows) => FileList::Inline(rows),
            None => FileList::Stored(self.finish_stored(source)?),
        };
        Ok(WrittenList {
            list,
            names: self.names.into_iter().collect(),
            versions: self.versions.into_iter().collect(),
            stored_bytes: self.bundler.stored_bytes,
            chunks_new: self.bundler.chunks_new,
        })
    }

    fn finish_stored(&mut self, source: &dyn ChunkSource) -> Result<ListRef, ChunkError> {
        if self.section.entries() > 0 {
            self.end_section()?;
        }
        self.leave_old_bundles(source)?;
        let slices = self.bundler.finish(&mut self.encoder, self.known)?;
        let place = |section: &Section| match section {
            Section::Old(place) => *place,
            Section::New {
                number,
                digest,
                entries,
            } => SectionPlace {
                slice: slices[*number],
                digest: *digest,
                entries: *entries,
            },
        };
        let root = ListRoot {
            sections: self.sections.iter().map(place).collect(),
        };
        self.names
            .extend(root.sections.iter().map(|place| place.slice.chunk.name));
        let encoded = self.encoder.encode(&root.to_bytes(), self.known)?;
        self.bundler.stored_bytes += encoded.stored_bytes.unwrap_or_default();
        self.bundler.chunks_new += u64::from(encoded.stored_bytes.is_some());
        self.names.insert(encoded.chunk.name);
        Ok(ListRef {
            root: encoded.chunk.name,
            length: encoded.chunk.plain_len,
        })
    }

    /// Takes sections out of bundles that are mostly unused by now.
    fn leave_old_bundles(&mut self, source: &dyn ChunkSource) -> Result<(), ChunkError> {
        let mut used: HashMap<StoredChunk, u64> = HashMap::new();
        for section in &self.sections {
            if let Section::Old(place) = section {
                *used.entry(place.slice.chunk).or_default() += u64::from(place.slice.length);
            }
        }
        used.retain(|chunk, bytes| *bytes * 2 < u64::from(chunk.plain_len));
        let mut unpacked = UnpackedChunks::default();
        for section in &mut self.sections {
            let Section::Old(place) = section else {
                continue;
            };
            if !used.contains_key(&place.slice.chunk) {
                continue;
            }
            let plain = unpacked.get(source, &place.slice.chunk.name)?;
            let bytes = cut_out(&plain, &place.slice)?;
            *section = Section::New {
                number: self.bundler.add(bytes, &mut self.encoder, self.known)?,
                digest: place.digest,
                entries: place.entries,
            };
        }
        Ok(())
    }
}

/// Reads the root of a list; a list that stands in its document has none.
pub fn root_of(source: &dyn ChunkSource, list: &FileList) -> Result<ListRoot, ChunkError> {
    let FileList::Stored(at) = list else {
        return Ok(ListRoot::default());
    };
    let bytes = fetch(source, &at.root)?;
    let bytes = cut_out(&bytes, &at.slice())?;
    ListRoot::from_bytes(bytes).map_err(|source| ChunkError::List {
        name: at.root,
        source,
    })
}

/// Chunks that are unpacked when they are needed, and kept for a while.
#[derive(Debug, Default)]
pub struct UnpackedChunks {
    lately: Lately<Rc<Vec<u8>>>,
}

impl UnpackedChunks {
    /// The plaintext of a chunk.
    pub fn get(
        &mut self,
        source: &dyn ChunkSource,
        name: &ChunkName,
    ) -> Result<Rc<Vec<u8>>, ChunkError> {
        match self.lately.get(name) {
            Some(plain) => Ok(plain),
            None => Ok(self.lately.add(*name, Rc::new(fetch(source, name)?))),
        }
    }
}

/// Reads a list, entry by entry, a section at a time.
pub struct ListReader<'s> {
    source: &'s dyn ChunkSource,
    sections: std::vec::IntoIter<SectionPlace>,
    unpacked: UnpackedChunks,
    rows: VecDeque<ListRow>,
    last: Option<EntryPath>,
}

impl<'s> ListReader<'s> {
    /// Begins to read a list.
    pub fn new(source: &'s dyn ChunkSource, list: &FileList) -> Result<Self, ChunkError> {
        let sections = root_of(source, list)?.sections.into_iter();
        let rows = match list {
            FileList::Inline(rows) => rows.iter().cloned().collect(),
            FileList::Stored(_) => VecDeque::new(),
        };
        Ok(Self {
            source,
            sections,
            unpacked: UnpackedChunks::default(),
            rows,
            last: None,
        })
    }

    /// The next entry in the order of paths.
    pub fn next_row(&mut self) -> Result<Option<ListRow>, ChunkError> {
        loop {
            if let Some(row) = self.rows.pop_front() {
                return Ok(Some(row));
            }
            let Some(place) = self.sections.next() else {
                return Ok(None);
            };
            self.read(&place)?;
        }
    }

    /// All entries that are still to come, for a diff.
    pub fn entries(mut self) -> impl Iterator<Item = Result<DigestedEntry, ChunkError>> + use<'s> {
        // Rows that stand in the manifest itself are here already, and nobody checked their order.
        let rows = self.rows.make_contiguous();
        rows.sort_by(|one, other| one.entry.path.cmp(&other.entry.path));
        let mut last = None;
        self.rows
            .retain(|row| last.replace(row.entry.path.clone()).as_ref() != Some(&row.entry.path));
        let next = move || self.next_row().transpose();
        std::iter::from_fn(next).map(|row| {
            row.map(|ListRow { entry, content }| DigestedEntry {
                entry,
                digest: content.map(|content| content.digest),
            })
        })
    }

    fn read(&mut self, place: &SectionPlace) -> Result<(), ChunkError> {
        let plain = self.unpacked.get(self.source, &place.slice.chunk.name)?;
        self.rows = section_rows(&plain, place, self.last.as_ref())?.into();
        if let Some(last) = self.rows.back() {
            self.last = Some(last.entry.path.clone());
        }
        Ok(())
    }
}

/// The entries of one section, out of the plaintext of the chunk that it lies in; all of them come after `after`.
pub fn section_rows(
    plain: &[u8],
    place: &SectionPlace,
    after: Option<&EntryPath>,
) -> Result<Vec<ListRow>, ChunkError> {
    let name = place.slice.chunk.name;
    let bytes = cut_out(plain, &place.slice)?;
    let mut rows = Vec::new();
    let read = read_section(bytes, after, |row| {
        rows.push(row);
        Ok::<(), Invalid>(())
    });
    read.map_err(|source| ChunkError::List { name, source })?;
    Ok(rows)
}
