//! A snapshot in chunks that somebody looks into: `ls`, `cat`, `find` and whoever reads ranges of its files.

use crate::error::Error;
use stasis_disk::form::chunked::list::{ListReader, root_of, section_rows};
use stasis_disk::form::chunked::read_ahead::{ReadAheadError, write_content};
use stasis_disk::form::chunked::restore::each_row;
use stasis_disk::form::chunked::{ChunkError, ChunkSource};
use stasis_model::digest::TreeDigest;
use stasis_model::format::manifest::FileList;
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::list::{FileContent, ListRow, SectionPlace};
use stasis_model::tree::{EntryKind, EntryPath};
use std::fmt;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

/// Reads the list of a snapshot, and what it leads to. Blocks: for threads that may.
pub(crate) struct SnapshotReader {
    list: FileList,
    source: Arc<dyn ChunkSource + Send + Sync>,
    /// Where the sections of the list lie, each with the number of its first row.
    sections: OnceLock<Vec<(u64, SectionPlace)>>,
}

impl fmt::Debug for SnapshotReader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SnapshotReader").finish_non_exhaustive()
    }
}

impl SnapshotReader {
    pub(crate) fn new(list: FileList, source: Arc<dyn ChunkSource + Send + Sync>) -> Self {
        Self {
            list,
            source,
            sections: OnceLock::new(),
        }
    }

    /// Where its chunks come from.
    pub(crate) fn source(&self) -> &(dyn ChunkSource + Send + Sync) {
        &*self.source
    }

    /// Shows every row in the order of the list.
    pub(crate) fn rows(&self, mut show: impl FnMut(ListRow)) -> Result<(), Error> {
        let mut reader = ListReader::new(&*self.source, &self.list)?;
        while let Some(row) = reader.next_row()? {
            show(row);
        }
        Ok(())
    }

    /// The same of a list that must be a tree; says which tree it is.
    pub(crate) fn tree_rows(
        &self,
        show: impl FnMut(ListRow) -> Result<(), ChunkError>,
    ) -> Result<TreeDigest, Error> {
        Ok(each_row(&*self.source, &self.list, show)?)
    }

    /// What is in a file, whichever of its names is asked for; nothing where there is no such file.
    pub(crate) fn content(&self, path: &EntryPath) -> Result<Option<FileContent>, Error> {
        let mut wanted = path.clone();
        let mut reader = ListReader::new(&*self.source, &self.list)?;
        while let Some(row) = reader.next_row()? {
            if row.entry.path != wanted {
                continue;
            }
            let EntryKind::HardLink { to } = row.entry.kind else {
                return Ok(row.content);
            };
            wanted = to;
            reader = ListReader::new(&*self.source, &self.list)?;
        }
        Ok(None)
    }

    /// Writes the content of a file from its beginning to its end; what `out` says is told apart from what chunks say.
    pub(crate) fn write(
        &self,
        content: &FileContent,
        workers: NonZeroUsize,
        out: impl Write,
    ) -> Result<io::Result<u64>, Error> {
        match write_content(&*self.source, &content.extents, workers, out) {
            Ok(written) => Ok(Ok(written)),
            Err(ReadAheadError::Out(error)) => Ok(Err(error)),
            Err(ReadAheadError::Chunk(error)) => Err(error.into()),
        }
    }

    /// The rows that stand together with row `number`, and the number of the first of them. `chunk` gives the plaintext of a chunk.
    pub(crate) fn rows_around(
        &self,
        number: u64,
        chunk: impl FnOnce(&ChunkName) -> Result<Arc<Vec<u8>>, Error>,
    ) -> Result<(u64, Vec<ListRow>), Error> {
        if let FileList::Inline(rows) = &self.list {
            return Ok((0, rows.clone()));
        }
        let sections = self.sections()?;
        let at = sections.partition_point(|(first, _)| *first <= number);
        let Some((first, place)) = at.checked_sub(1).and_then(|at| sections.get(at)) else {
            return Ok((0, Vec::new()));
        };
        let plain = chunk(&place.slice.chunk.name)?;
        Ok((*first, section_rows(&plain, place, None)?))
    }

    /// The section that row `number` stands in; all rows of an inline list stand in one.
    pub(crate) fn section_of(&self, number: u64) -> Result<usize, Error> {
        let sections = self.sections()?;
        Ok(sections.partition_point(|(first, _)| *first <= number))
    }

    fn sections(&self) -> Result<&[(u64, SectionPlace)], Error> {
        if let Some(known) = self.sections.get() {
            return Ok(known);
        }
        let root = root_of(&*self.source, &self.list)?;
        let places = root.sections.into_iter().scan(0, |next, place| {
            let first = *next;
            *next += u64::from(place.entries);
            Some((first, place))
        });
        Ok(self.sections.get_or_init(|| places.collect()))
    }
}
