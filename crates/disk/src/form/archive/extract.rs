//! From an archive to a tree.
//!
//! Workers open frames, one thread parses them in order, and the workers write what came of it: the order of the tar
//! decides what an entry is, never when it is written. Nothing here makes an entry: that is the [`TreeWriter`]'s, which
//! works where nobody looks yet, so that an archive that is refused in its last block leaves nothing.

use super::framed::Framed;
use super::frames::Tar;
use super::reader::{Archive, OpenedArchive, ReadSettings, read_plain};
use super::reading::ArchiveReading;
use super::tar_event::TarEvent;
use super::workers::{self, FrameTask, FrameWorkers};
use super::{ArchiveContext, ArchiveError, Problem};
use crate::tree::write::{NewFile, TreeWriter};
use stasis_model::tree::{Entry, EntryKind, EntryPath, Metadata};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Zeros of this length at a multiple of it become a hole.
const HOLE: usize = 32 << 10;

/// What an archive says of the root of its tree; `None` when it says nothing.
pub type Root = Option<Metadata>;

impl Archive {
    /// Gives every entry to `writer`. Nothing of it counts before the whole archive was read without an error.
    pub fn extract(
        &self,
        writer: &TreeWriter,
        settings: &ReadSettings,
    ) -> Result<Root, ArchiveError> {
        let workers = FrameWorkers::new(settings.workers, settings.cancel.clone());
        let mut sorter = Sorter::new(writer, WantedEntries::All);
        match &self.0 {
            OpenedArchive::Framed(archive) => {
                let mut reading = ArchiveReading::framed(archive, settings.limits);
                let frames = 0..archive.index.frames.len();
                workers::work(&workers, archive, frames, |_, tar| {
                    let events = reading.feed(tar.bytes())?;
                    sorter
                        .sort(events, 0)
                        .map(|steps| ExtractBatch::of(writer, tar, steps))
                })?;
                reading.finish()?;
            }
            OpenedArchive::Plain(plain) => {
                let (mut reading, mut stream) = (
                    ArchiveReading::plain(&plain.path, settings.limits),
                    plain.stream()?,
                );
                workers::perform(&workers, || {
                    loop {
                        let tar = stream.next()?;
                        if tar.is_empty() {
                            return Ok(None);
                        }
                        let events = reading.feed(&tar)?;
                        let steps = sorter.sort(events, 0)?;
                        if let Some(batch) = ExtractBatch::of(writer, Tar::Bytes(tar), steps) {
                            return Ok(Some(batch));
                        }
                    }
                })?;
                reading.finish()?;
            }
        }
        sorter.finish(self.path())
    }

    /// Gives the entry `path`, what lies in it, and the directories it lies in to `writer`.
    ///
    /// Of an archive with an index only what is needed is read. A hard link whose file lies elsewhere is refused when
    /// the writer finishes.
    pub fn extract_one(
        &self,
        path: &EntryPath,
        writer: &TreeWriter,
        settings: &ReadSettings,
    ) -> Result<Root, ArchiveError> {
        let workers = FrameWorkers::new(settings.workers, settings.cancel.clone());
        let only = path.clone();
        let mut sorter;
        match &self.0 {
            OpenedArchive::Framed(archive) => {
                sorter = Sorter::new(writer, WantedEntries::Below(only));
                self.directories_above(path, &mut sorter, settings)?;
                let (frames, mut skip) = part(archive, path);
                let mut reading = ArchiveReading::in_the_middle(archive, settings.limits);
                workers::work(&workers, archive, frames, |_, tar| {
                    let from = std::mem::take(&mut skip);
                    let rest = tar.bytes().get(from..).unwrap_or_default();
                    let steps = sorter.sort(reading.feed(rest)?, from)?;
                    Ok(ExtractBatch::of(writer, tar, steps))
                })?;
            }
            OpenedArchive::Plain(plain) => {
                sorter = Sorter::new(writer, WantedEntries::BelowAndAbove(only));
                read_plain(plain, settings, |reading, tar| {
                    let events = reading.feed(&tar)?.collect::<Vec<_>>();
                    sorter.write(events, tar)
                })?;
            }
        }
        if !sorter.is_found {
            let (archive, path) = (self.path().to_owned(), path.clone());
            return Err(ArchiveError::NoSuchEntry { archive, path });
        }
        sorter.finish(self.path())
    }

    /// Gives the directories in which an entry lies to the writer, the root first.
    fn directories_above(
        &self,
        path: &EntryPath,
        sorter: &mut Sorter<'_>,
        settings: &ReadSettings,
    ) -> Result<(), ArchiveError> {
        let mut above = Vec::new();
        let mut next = path.split_last().map(|(parent, _)| parent);
        while let Some(directory) = next {
            next = directory.split_last().map(|(parent, _)| parent);
            above.push(directory);
        }
        for directory in above.iter().rev() {
            let found = self.entry(directory, settings)?;
            if let Some(entry) = found.filter(|entry| entry.kind == EntryKind::Directory) {
                sorter.writer.entry(&entry)?;
                if entry.path.is_root() {
                    sorter.root = Some(entry.metadata);
                }
            }
        }
        Ok(())
    }
}

/// Which entries are wanted.
pub(super) enum WantedEntries {
    All,
    /// One, and what lies in it.
    Below(EntryPath),
    /// The same, and the directories it lies in.
    BelowAndAbove(EntryPath),
}

impl WantedEntries {
    fn has(&self, entry: &Entry) -> bool {
        match self {
            Self::All => true,
            Self::Below(path) => entry.path.is_within(path),
            Self::BelowAndAbove(path) => {
                let is_above = || path.is_within(&entry.path);
                entry.path.is_within(path) || (entry.kind == EntryKind::Directory && is_above())
            }
        }
    }

    fn is_it(&self, entry: &Entry) -> bool {
        match self {
            Self::All => true,
            Self::Below(path) | Self::BelowAndAbove(path) => entry.path.is_within(path),
        }
    }
}

/// The frames in which an entry and what lies in it can be, and where in the first of them an entry begins.
fn part(archive: &Framed, path: &EntryPath) -> (Range<usize>, usize) {
    let frames = &archive.index.frames;
    let Some(first) = archive.index.frame_of(path) else {
        return (0..0, 0);
    };
    let is_past = |at: &usize| {
        let start = frames[*at].start.as_ref();
        start.is_some_and(|(_, name)| name > path && !name.is_within(path))
    };
    // What begins in the frame before may end in the one in which something else begins.
    let end = (first + 1..frames.len()).find(is_past);
    let end = end.map_or(frames.len(), |end| end + 1);
    let skip = frames[first]
        .start
        .as_ref()
        .map_or(0, |(at, _)| *at as usize);
    (first..end, skip)
}

/// Puts together what comes in pieces.
pub(super) struct Sorter<'w> {
    writer: &'w TreeWriter,
    wanted: WantedEntries,
    root: Root,
    is_found: bool,
    /// A file whose content has not begun, or has not ended.
    open: Option<OpenExtract<'w>>,
}

enum OpenExtract<'w> {
    /// Nothing of its content has come.
    Announced(Entry, u64),
    /// Some of it has; so much is left.
    Begun(Arc<Large<'w>>, u64),
    /// Nobody wants it.
    Passed,
}

/// A file whose content comes in several pieces.
struct Large<'w> {
    file: NewFile<'w>,
    entry: Entry,
    size: u64,
}

impl Large<'_> {
    /// Ends the file, if this was the last piece that somebody had in hands.
    fn release(this: Arc<Self>) -> Result<(), ArchiveError> {
        if let Some(Self { file, entry, .. }) = Arc::into_inner(this) {
            file.finish(&entry.metadata, &entry.attributes)?;
        }
        Ok(())
    }
}

/// What a worker does with a part of the tar.
enum ExtractStep<'w> {
    Entry(Entry),
    File(Entry, Range<usize>),
    Piece(Arc<Large<'w>>, u64, Range<usize>),
}

impl<'w> Sorter<'w> {
    pub(super) fn new(writer: &'w TreeWriter, wanted: WantedEntries) -> Self {
        Self {
            writer,
            wanted,
            root: None,
            is_found: false,
            open: None,
        }
    }

    /// Writes what was found in some bytes, at once.
    pub(super) fn write(
        &mut self,
        events: impl IntoIterator<Item = TarEvent>,
        tar: Vec<u8>,
    ) -> Result<(), ArchiveError> {
        let steps = self.sort(events, 0)?;
        match ExtractBatch::of(self.writer, Tar::Bytes(tar), steps) {
            Some(batch) => batch.perform(),
            None => Ok(()),
        }
    }

    /// Turns what was found in some bytes, of which the first `before` were not looked at, into steps.
    fn sort(
        &mut self,
        events: impl IntoIterator<Item = TarEvent>,
        before: usize,
    ) -> Result<Vec<ExtractStep<'w>>, ArchiveError> {
        let mut steps = Vec::new();
        for event in events {
            match event {
                TarEvent::Entry(entry, _) => self.entry(entry, &mut steps),
                TarEvent::Content(range) => {
                    let range = range.start + before..range.end + before;
                    self.content(range.len() as u64, Some(range), &mut steps)?;
                }
                TarEvent::Hole(length) => self.content(length, None, &mut steps)?,
            }
        }
        Ok(steps)
    }

    fn entry(&mut self, entry: Entry, steps: &mut Vec<ExtractStep<'w>>) {
        if !self.wanted.has(&entry) {
            self.open = Some(OpenExtract::Passed);
            return;
        }
        self.is_found |= self.wanted.is_it(&entry);
        if entry.path.is_root() {
            self.root = Some(entry.metadata);
        }
        match entry.kind {
            EntryKind::File { size: 0 } => steps.push(ExtractStep::File(entry, 0..0)),
            EntryKind::File { size } => self.open = Some(OpenExtract::Announced(entry, size)),
            _ => steps.push(ExtractStep::Entry(entry)),
        }
    }

    /// Takes the next bytes of a file, or, without a range, of a hole in it.
    fn content(
        &mut self,
        length: u64,
        range: Option<Range<usize>>,
        steps: &mut Vec<ExtractStep<'w>>,
    ) -> Result<(), ArchiveError> {
        let (large, left) = match self.open.take() {
            Some(OpenExtract::Announced(entry, size)) => {
                if let Some(range) = range.clone().filter(|_| size == length) {
                    steps.push(ExtractStep::File(entry, range));
                    return Ok(());
                }
                let file = self.writer.file(&entry.path, size)?;
                (Arc::new(Large { file, entry, size }), size)
            }
            Some(OpenExtract::Begun(large, left)) => (large, left),
            Some(OpenExtract::Passed) => {
                self.open = Some(OpenExtract::Passed);
                return Ok(());
            }
            None => return Ok(()),
        };
        if let Some(range) = range {
            let offset = large.size - left;
            steps.push(ExtractStep::Piece(large.clone(), offset, range));
        }
        if left > length {
            self.open = Some(OpenExtract::Begun(large, left - length));
            return Ok(());
        }
        Large::release(large)
    }

    pub(super) fn finish(self, archive: &Path) -> Result<Root, ArchiveError> {
        match self.open {
            Some(OpenExtract::Announced(..) | OpenExtract::Begun(..)) => {
                Err(Problem::Truncated).of_archive(archive)
            }
            _ => Ok(self.root),
        }
    }
}

/// Some bytes of the tar, and what is to be done with them.
struct ExtractBatch<'w> {
    writer: &'w TreeWriter,
    tar: Tar,
    steps: Vec<ExtractStep<'w>>,
}

impl<'w> ExtractBatch<'w> {
    fn of(writer: &'w TreeWriter, tar: Tar, steps: Vec<ExtractStep<'w>>) -> Option<Self> {
        (!steps.is_empty()).then_some(Self { writer, tar, steps })
    }
}

impl FrameTask for ExtractBatch<'_> {
    fn perform(self) -> Result<(), ArchiveError> {
        let Self { writer, tar, steps } = self;
        for step in steps {
            match step {
                ExtractStep::Entry(entry) => writer.entry(&entry)?,
                ExtractStep::File(entry, range) => {
                    let bytes = &tar.bytes()[range];
                    let file = writer.file(&entry.path, bytes.len() as u64)?;
                    write(&file, 0, bytes)?;
                    file.finish(&entry.metadata, &entry.attributes)?;
                }
                ExtractStep::Piece(large, offset, range) => {
                    if let Tar::Bytes(bytes) = &tar {
                        write(&large.file, offset, &bytes[range])?;
                    }
                    Large::release(large)?;
                }
            }
        }
        Ok(())
    }
}

/// Writes bytes at their place, leaving out stretches of zeros.
fn write(file: &NewFile<'_>, offset: u64, bytes: &[u8]) -> Result<(), ArchiveError> {
    let is_hole = |block: &[u8]| block.len() == HOLE && block.iter().all(|byte| *byte == 0);
    let (mut start, mut at) = (0, 0);
    for block in bytes.chunks(HOLE) {
        let end = at + block.len();
        if is_hole(block) {
            if start < at {
                file.write_at(offset + start as u64, &bytes[start..at])?;
            }
            start = end;
        }
        at = end;
    }
    if start < at {
        file.write_at(offset + start as u64, &bytes[start..at])?;
    }
    Ok(())
}
