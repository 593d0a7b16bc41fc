//! The files of a list, in as little memory as a million of them need.

use stasis_model::digest::FileDigest;
use stasis_model::tree::list::{Extent, FileContent, StoredChunk};
use stasis_model::tree::{Attribute, Entry, EntryKind, EntryPath, Metadata};
use std::collections::HashMap;

/// One file.
#[derive(Debug)]
pub(super) struct FileRow {
    directory: u32,
    name: u32,
    name_length: u8,
    pub(super) metadata: Metadata,
    attributes: Box<[Attribute]>,
    pub(super) size: u64,
    pub(super) digest: FileDigest,
    /// In how many places of chunks it lies.
    pub(super) uses: u32,
    /// Whether it is held whole.
    pub(super) is_version: bool,
}

impl FileRow {
    pub(super) fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }
}

/// A stretch of a chunk that is a stretch of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) chunk: u32,
    pub(super) file: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) at: u64,
}

/// All files, and what lies where.
#[derive(Debug, Default)]
pub(super) struct RestoreRows {
    directories: Vec<EntryPath>,
    names: Vec<u8>,
    pub(super) files: Vec<FileRow>,
    pub(super) uses: Vec<Use>,
    pub(super) chunks: Vec<StoredChunk>,
    places: HashMap<StoredChunk, u32>,
    /// The other names of files, where files of an old tree may be left, by the first name of each.
    pub(super) links: HashMap<EntryPath, Vec<Entry>>,
}

fn number(length: usize) -> u32 {
    u32::try_from(length).expect("there are fewer entries than that")
}

impl RestoreRows {
    pub(super) fn push(&mut self, entry: Entry, content: &FileContent) {
        let EntryKind::File { size } = entry.kind else {
            return;
        };
        let Some((directory, name)) = entry.path.split_last() else {
            return;
        };
        if self.directories.last() != Some(&directory) {
            self.directories.push(directory);
        }
        let file = number(self.files.len());
        let start = number(self.names.len());
        self.names.extend_from_slice(name);
        let (mut at, mut uses) = (0, 0);
        for extent in &content.extents {
            if let Extent::Stored(slice) = extent {
                let chunk = self.chunk(slice.chunk);
                self.uses.push(Use {
                    chunk,
                    file,
                    offset: slice.offset,
                    length: slice.length,
                    at,
                });
                uses += 1;
            }
            at += extent.length();
        }
        self.files.push(FileRow {
            directory: number(self.directories.len() - 1),
            name: start,
            name_length: u8::try_from(name.len()).expect("a name is short"),
            metadata: entry.metadata,
            attributes: entry.attributes.into_boxed_slice(),
            size,
            digest: content.digest,
            uses,
            is_version: content.is_version(),
        });
    }

    fn chunk(&mut self, chunk: StoredChunk) -> u32 {
        *self.places.entry(chunk).or_insert_with(|| {
            self.chunks.push(chunk);
            number(self.chunks.len() - 1)
        })
    }

    pub(super) fn path(&self, file: &FileRow) -> EntryPath {
        let start = file.name as usize;
        let name = &self.names[start..start + usize::from(file.name_length)];
        let directory = &self.directories[file.directory as usize];
        directory.child(name).expect("it was split from a path")
    }
}
