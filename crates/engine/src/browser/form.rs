//! The two forms of a snapshot, for whoever reads ranges of its files: where a file lies, and the blocks that it lies in.
//!
//! *Always true:* a block is handed out only if it has the digest that it is stored under: a chunk that of its name, a frame that of
//! the archive's index, a stretch of a version the one that was taken when the whole version had its digest.

use super::blocks::Block;
use super::lru::WeighedLru;
use super::tree::{SnapshotTree, TreeBuilder};
use crate::catalog::reader::SnapshotReader;
use crate::error::{Error, ErrorKind};
use stasis_disk::form::archive::{Archive, ArchiveError, ReadSettings, TarStretch};
use stasis_disk::form::chunked::{self, ChunkError};
use stasis_model::digest::{FileDigest, FileHasher, TreeDigest};
use stasis_model::failure::Failure;
use stasis_model::invalid::Invalid;
use stasis_model::tree::list::{Extent, FileContent, ListRow};
use stasis_model::tree::{Attribute, EntryPath, Metadata};
use std::fmt::Debug;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

/// How many sections of a list stay decoded: files are read in the order in which they are listed.
const SECTIONS: u64 = 32;
/// How much of a version is read and checked as one.
const PIECE: u32 = 1 << 20;

/// A stretch of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stretch {
    /// Zeros that are stored nowhere.
    Hole(u64),
    /// Bytes of a block.
    Stored {
        block: Block,
        offset: u32,
        length: u32,
    },
}

impl Stretch {
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Hole(length) => *length,
            Self::Stored { length, .. } => (*length).into(),
        }
    }
}

/// A file whose content is wanted.
#[derive(Clone, Debug)]
pub(super) struct WantedFile {
    /// Its place in the order of paths, the root being the first.
    pub(super) number: u32,
    pub(super) path: EntryPath,
    pub(super) size: u64,
}

/// Gives blocks, from the cache or from where they are stored.
pub(super) type GetBlock<'a> = dyn Fn(Block) -> Result<Arc<Vec<u8>>, Error> + 'a;

/// A snapshot, in whatever form. Blocks: for threads that may.
pub(super) trait SnapshotForm: Debug + Send + Sync {
    /// Reads its entries.
    fn tree(&self) -> Result<SnapshotTree, Error>;

    /// Where the content of a file lies, in order.
    fn stretches(&self, file: &WantedFile, get: &GetBlock<'_>) -> Result<Vec<Stretch>, Error>;

    /// Fetches a block and checks it.
    fn fetch(&self, block: Block) -> Result<Vec<u8>, Error>;
}

/// Decoded sections of a list, each with the number of its first row.
type DecodedSections = WeighedLru<usize, (u64, Arc<Vec<ListRow>>)>;

/// A snapshot in chunks, or a checkpoint.
#[derive(Debug)]
pub(super) struct ChunkedForm {
    reader: SnapshotReader,
    root: Metadata,
    root_attributes: Vec<Attribute>,
    digest: TreeDigest,
    sections: Mutex<DecodedSections>,
}

impl ChunkedForm {
    pub(super) fn new(
        reader: SnapshotReader,
        root: Metadata,
        root_attributes: Vec<Attribute>,
        digest: TreeDigest,
    ) -> Self {
        Self {
            reader,
            root,
            root_attributes,
            digest,
            sections: Mutex::new(WeighedLru::new(SECTIONS)),
        }
    }

    fn content(&self, file: &WantedFile, get: &GetBlock<'_>) -> Result<FileContent, Error> {
        // The root is no row.
        let number = u64::from(file.number).saturating_sub(1);
        let section = self.reader.section_of(number)?;
        let lock = || self.sections.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&section);
        let (first, rows) = if let Some(known) = known {
            known
        } else {
            let chunk = |name: &_| get(Block::Chunk(*name));
            let (first, rows) = self.reader.rows_around(number, chunk)?;
            let decoded = (first, Arc::new(rows));
            lock().add(section, decoded.clone(), 1);
            decoded
        };
        let at = usize::try_from(number - first).unwrap_or(usize::MAX);
        let row = rows.get(at).filter(|row| row.entry.path == file.path);
        let content = row.and_then(|row| row.content.clone());
        Ok(content.ok_or_else(|| unfit(&file.path, "the list has another entry there"))?)
    }

    /// Reads a version once, which must be what it is named for, and notes what each part of it is.
    fn version(&self, file: &WantedFile, digest: FileDigest) -> Result<Vec<Stretch>, Error> {
        let unread = |error: std::io::Error| {
            let said = format!("could not read `{}`", file.path);
            Error::from(Failure::of(ErrorKind::Corrupt, said).because(error))
        };
        let mut version = File::from(self.reader.source().version(&digest)?);
        let (mut whole, mut stretches) = (FileHasher::default(), Vec::new());
        let (mut left, mut piece) = (file.size, Vec::with_capacity(PIECE as usize));
        for number in 0.. {
            piece.clear();
            let part = Read::by_ref(&mut version).take(PIECE.into());
            { part }.read_to_end(&mut piece).map_err(unread)?;
            if piece.is_empty() {
                break;
            }
            whole.update(&piece);
            let length = u32::try_from(piece.len()).expect("no more than a piece");
            left = left.wrapping_sub(length.into());
            let block = Block::Version {
                file: digest,
                number,
                length,
                digest: FileDigest::of(&piece),
            };
            stretches.push(Stretch::Stored {
                block,
                offset: 0,
                length,
            });
        }
        if left != 0 || whole.finish() != digest {
            return Err(unfit(&file.path, "the version does not hold what it is named for").into());
        }
        Ok(stretches)
    }
}

fn unfit(path: &EntryPath, why: &'static str) -> ChunkError {
    ChunkError::Unfit {
        path: path.clone(),
        source: Invalid::new(why),
    }
}

impl SnapshotForm for ChunkedForm {
    fn tree(&self) -> Result<SnapshotTree, Error> {
        let mut builder = TreeBuilder::new(self.root, self.root_attributes.clone());
        let digest = self.reader.tree_rows(|row| {
            let path = row.entry.path.clone();
            let added = builder.add(row.entry);
            added.map_err(|source| ChunkError::Unfit { path, source })
        })?;
        if digest != self.digest {
            let said = "its entries are not those that were saved";
            return Err(Failure::of(ErrorKind::Corrupt, said).into());
        }
        let path = EntryPath::root();
        Ok(builder
            .finish()
            .map_err(|source| ChunkError::Unfit { path, source })?)
    }

    fn stretches(&self, file: &WantedFile, get: &GetBlock<'_>) -> Result<Vec<Stretch>, Error> {
        let content = self.content(file, get)?;
        if content.is_version() {
            return self.version(file, content.digest);
        }
        let stretch = |extent: &Extent| match extent {
            Extent::Hole(length) => Ok(Stretch::Hole(*length)),
            Extent::Stored(slice) => Ok(Stretch::Stored {
                block: Block::Chunk(slice.chunk.name),
                offset: slice.offset,
                length: slice.length,
            }),
            Extent::Version(_) => Err(unfit(&file.path, "it is held whole only in part").into()),
        };
        content.extents.iter().map(stretch).collect()
    }

    fn fetch(&self, block: Block) -> Result<Vec<u8>, Error> {
        match block {
            Block::Chunk(name) => Ok(chunked::fetch(self.reader.source(), &name)?),
            Block::Version {
                file,
                number,
                length,
                digest,
            } => {
                let version = File::from(self.reader.source().version(&file)?);
                let mut piece = vec![0; length as usize];
                let at = u64::from(number) * u64::from(PIECE);
                let read = version.read_exact_at(&mut piece, at);
                if read.is_err() || FileDigest::of(&piece) != digest {
                    return Err(ChunkError::NoVersion(file).into());
                }
                Ok(piece)
            }
            Block::Frame(_) => unreachable!("chunks are in no frame"),
        }
    }
}

/// A snapshot that is one archive.
#[derive(Debug)]
pub(super) struct ArchiveForm {
    archive: Archive,
}

impl ArchiveForm {
    pub(super) fn new(archive: Archive) -> Self {
        Self { archive }
    }
}

impl SnapshotForm for ArchiveForm {
    fn tree(&self) -> Result<SnapshotTree, Error> {
        let mut builder = TreeBuilder::new(Metadata::default(), Vec::new());
        let refused = |source: Invalid| Failure::of(ErrorKind::Corrupt, source);
        self.archive.list(&ReadSettings::default(), |entry| {
            let added = builder.add(entry.clone());
            added.map_err(|source| ArchiveError::from(refused(source)))
        })?;
        Ok(builder.finish().map_err(refused)?)
    }

    fn stretches(&self, file: &WantedFile, _: &GetBlock<'_>) -> Result<Vec<Stretch>, Error> {
        let all = self.archive.stretches(&file.path, &ReadSettings::default());
        let stretch = |stretch: TarStretch| match stretch {
            TarStretch::Hole(length) => Stretch::Hole(length),
            TarStretch::Stored {
                frame,
                offset,
                length,
            } => Stretch::Stored {
                block: Block::Frame(frame),
                offset,
                length,
            },
        };
        Ok(all?.into_iter().map(stretch).collect())
    }

    fn fetch(&self, block: Block) -> Result<Vec<u8>, Error> {
        match block {
            Block::Frame(frame) => Ok(self.archive.frame(frame)?),
            Block::Chunk(_) | Block::Version { .. } => unreachable!("frames are no chunks"),
        }
    }
}
