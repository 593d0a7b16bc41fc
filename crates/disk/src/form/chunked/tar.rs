//! A directory of a snapshot as a plain tar, as `docker cp` and every tar take it.
//!
//! Entries come in the order of the list, spelled as in our archives ([`spelling`](crate::form::archive)); sparse files are
//! written dense. Contents are fetched ahead, those of many small files together, and only bytes whose chunk has the digest it
//! is named for are written. Memory is bounded by the chunks that are fetched ahead, not by files or their number, but for
//! files outside the directory that have names in it: the first of those names becomes the file.
//!
//! A tar that was begun cannot be taken back: after an error, what was written has no end mark, and whoever reads it refuses it.

use super::read_ahead::{ReadAheadError, write_content};
use super::restore::{Borrowed, borrowed, each_row_as};
use super::{ChunkError, ChunkSource, VersionDamage};
use crate::form::archive::{TAR_END, tar_headers, tar_padding};
use stasis_model::digest::FileHasher;
use stasis_model::format::manifest::FileList;
use stasis_model::invalid::Invalid;
use stasis_model::tree::list::{Extent, FileContent, ListRow};
use stasis_model::tree::{Attribute, Entry, EntryKind, EntryPath, Metadata};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

/// Contents in more places than this are not fetched ahead together.
const BATCH_EXTENTS: usize = 4096;
/// Headers of more bytes than this are not held back.
const BATCH_HEADERS: usize = 1 << 20;
/// How much is read at once of a file that is held whole.
const BUFFER: usize = 256 << 10;

/// What a tar is made of.
pub struct TarParts<'s> {
    /// Where chunks come from.
    pub source: &'s dyn ChunkSource,
    /// The entries of the snapshot.
    pub list: &'s FileList,
    /// Its root directory, which the list does not have.
    pub root: Metadata,
    /// The attributes of that.
    pub root_attributes: &'s [Attribute],
    /// Which directory of the snapshot is written; it is the first entry.
    pub directory: &'s EntryPath,
    /// What the directory is called in the tar; the root is `./`.
    pub name: &'s EntryPath,
    /// How many chunks are fetched at once.
    pub workers: NonZeroUsize,
    /// Set by anybody at any time to end the writing soon.
    pub cancel: &'s AtomicBool,
}

/// What a tar holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TarReport {
    /// Regular files, each counted once.
    pub files: u64,
    /// Directories, the one that was asked for among them.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Named pipes.
    pub fifos: u64,
    /// The length of all files, holes included.
    pub bytes: u64,
}

/// Why a directory of a snapshot was not written as a tar.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TarError {
    /// The snapshot could not be read.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// Something else than a directory was asked for.
    #[error("`{0}` is not a directory of the snapshot, and only directories are written as a tar")]
    NotADirectory(EntryPath),
    /// No header holds that much.
    #[error("`{0}` has more attributes than the header of a tar can hold")]
    Attributes(EntryPath),
    /// Whoever takes the tar takes no more.
    #[error("could not pass on the tar")]
    Output(#[source] io::Error),
    /// Somebody asked us to stop.
    #[error("the writing of the tar was cancelled")]
    Cancelled,
}

/// Writes a directory of a snapshot, and everything in it, as a tar.
pub fn write_tar(parts: &TarParts<'_>, out: impl Write) -> Result<TarReport, TarError> {
    let TarParts {
        source,
        list,
        directory,
        ..
    } = *parts;
    // Nothing lies outside of the root.
    let only = std::slice::from_ref(directory);
    let only = if directory.is_root() { &[] } else { only };
    let outside = borrowed(source, list, only)?;
    let mut tar = TarOutput {
        parts,
        out,
        outside,
        taken: HashMap::new(),
        batch: TarBatch::default(),
        report: TarReport::default(),
    };
    if directory.is_root() {
        let root = Entry {
            path: EntryPath::root(),
            kind: EntryKind::Directory,
            metadata: parts.root,
            attributes: parts.root_attributes.to_vec(),
        };
        tar.entry(&root, None)?;
    }
    each_row_as(source, list, |row: ListRow| {
        go_on(parts.cancel)?;
        if row.entry.path.is_within(directory) {
            tar.row(row)?;
        }
        Ok::<(), TarError>(())
    })?;
    if tar.report.directories == 0 {
        return Err(ChunkError::NoSuchEntry(directory.clone()).into());
    }
    tar.finish()
}

fn go_on(cancel: &AtomicBool) -> Result<(), TarError> {
    if cancel.load(Ordering::Relaxed) {
        return Err(TarError::Cancelled);
    }
    Ok(())
}

struct TarOutput<'p, W> {
    parts: &'p TarParts<'p>,
    out: W,
    /// Files outside the directory that have names in it.
    outside: Borrowed,
    /// The name in the tar that each of them got.
    taken: HashMap<EntryPath, EntryPath>,
    batch: TarBatch,
    report: TarReport,
}

/// Entries whose contents are fetched ahead together.
#[derive(Default)]
struct TarBatch {
    extents: Vec<Extent>,
    /// Headers and padding, each after so many bytes of contents.
    between: VecDeque<(u64, Vec<u8>)>,
    contents: u64,
    headers: usize,
}

impl TarBatch {
    fn push(&mut self, bytes: &[u8]) {
        self.headers += bytes.len();
        match self.between.back_mut() {
            Some((after, last)) if *after == self.contents => last.extend_from_slice(bytes),
            _ => self.between.push_back((self.contents, bytes.to_vec())),
        }
    }

    fn is_full(&self) -> bool {
        self.extents.len() >= BATCH_EXTENTS || self.headers >= BATCH_HEADERS
    }
}

impl<W: Write> TarOutput<'_, W> {
    /// Takes an entry of the directory, or the directory itself, which comes first.
    fn row(&mut self, row: ListRow) -> Result<(), TarError> {
        let ListRow { mut entry, content } = row;
        if entry.path == *self.parts.directory && entry.kind != EntryKind::Directory {
            return Err(TarError::NotADirectory(entry.path));
        }
        let EntryKind::HardLink { to } = &entry.kind else {
            return self.entry(&entry, content.as_ref());
        };
        if let Some(first) = self.taken.get(to) {
            entry.kind = EntryKind::HardLink { to: first.clone() };
            return self.entry(&entry, None);
        }
        let Some(file) = self.outside.remove(to) else {
            return self.entry(&entry, None);
        };
        self.taken.insert(to.clone(), entry.path.clone());
        entry.kind = file.entry.kind;
        entry.attributes = file.entry.attributes;
        self.entry(&entry, file.content.as_ref())
    }

    fn entry(&mut self, entry: &Entry, content: Option<&FileContent>) -> Result<(), TarError> {
        let report = &mut self.report;
        match &entry.kind {
            EntryKind::File { size } => {
                report.files += 1;
                report.bytes += size;
            }
            EntryKind::Directory => report.directories += 1,
            EntryKind::Symlink { .. } => report.symlinks += 1,
            EntryKind::HardLink { .. } => report.hard_links += 1,
            _ => report.fifos += 1,
        }
        let named = self.named(entry)?;
        let headers = tar_headers(&named);
        let headers = headers.ok_or_else(|| TarError::Attributes(entry.path.clone()))?;
        self.batch.push(&headers);
        if let EntryKind::File { size } = entry.kind {
            self.content(&entry.path, size, content)?;
        }
        if self.batch.is_full() {
            self.flush()?;
        }
        Ok(())
    }

    /// The entry as the tar names it.
    fn named(&self, entry: &Entry) -> Result<Entry, TarError> {
        let kind = match &entry.kind {
            EntryKind::HardLink { to } => EntryKind::HardLink {
                to: self.name_of(to)?,
            },
            kind => kind.clone(),
        };
        Ok(Entry {
            path: self.name_of(&entry.path)?,
            kind,
            ..entry.clone()
        })
    }

    fn name_of(&self, path: &EntryPath) -> Result<EntryPath, TarError> {
        let above = self.parts.directory.components().count();
        let mut below = path.components().skip(above);
        let name = below.try_fold(self.parts.name.clone(), |name, next| name.child(next));
        let unfit = |source| ChunkError::Unfit {
            path: path.clone(),
            source,
        };
        Ok(name.map_err(unfit)?)
    }

    fn content(
        &mut self,
        path: &EntryPath,
        size: u64,
        content: Option<&FileContent>,
    ) -> Result<(), TarError> {
        let extents = content.map_or(&[][..], |content| &content.extents);
        let lengths = extents.iter().map(Extent::length);
        if lengths.fold(0, u64::saturating_add) != size {
            let why = "its content is longer or shorter than the file";
            return Err(TarError::Chunk(ChunkError::Unfit {
                path: path.clone(),
                source: Invalid::new(why),
            }));
        }
        if let Some(version) = content.filter(|content| content.is_version()) {
            self.flush()?;
            self.version(path, size, version)?;
        } else {
            self.batch.extents.extend_from_slice(extents);
            self.batch.contents += size;
        }
        self.batch.push(&[0; 512][..tar_padding(size)]);
        Ok(())
    }

    /// Writes a file that is held whole, which must still hold what it is named for.
    fn version(
        &mut self,
        path: &EntryPath,
        size: u64,
        content: &FileContent,
    ) -> Result<(), TarError> {
        let digest = content.digest;
        let lost = |damage| ChunkError::LostVersion {
            path: path.clone(),
            digest,
            damage,
        };
        let version = match self.parts.source.version(&digest) {
            Err(ChunkError::NoVersion(_)) => return Err(lost(VersionDamage::Missing).into()),
            version => File::from(version?),
        };
        let (mut version, mut hasher) = (version.take(size), FileHasher::default());
        let (mut buffer, mut left) = (vec![0; BUFFER], size);
        while left > 0 {
            go_on(self.parts.cancel)?;
            let read = match version.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(0) => return Err(lost(VersionDamage::Size).into()),
                read => read.map_err(|_| lost(VersionDamage::Content))?,
            };
            hasher.update(&buffer[..read]);
            left -= read as u64;
            let written = self.out.write_all(&buffer[..read]);
            written.map_err(TarError::Output)?;
        }
        if hasher.finish() != digest {
            return Err(lost(VersionDamage::Content).into());
        }
        Ok(())
    }

    /// Writes what was gathered.
    fn flush(&mut self) -> Result<(), TarError> {
        let batch = std::mem::take(&mut self.batch);
        let TarParts {
            source,
            workers,
            cancel,
            ..
        } = *self.parts;
        let mut woven = Woven {
            out: &mut self.out,
            between: batch.between,
            written: 0,
            cancel,
        };
        let written = write_content(source, &batch.extents, workers, &mut woven);
        let written = written.and_then(|_| Ok(woven.insert()?));
        written.map_err(|error| match error {
            _ if cancel.load(Ordering::Relaxed) => TarError::Cancelled,
            ReadAheadError::Chunk(error) => TarError::Chunk(error),
            ReadAheadError::Out(error) => TarError::Output(error),
        })
    }

    fn finish(mut self) -> Result<TarReport, TarError> {
        self.flush()?;
        let ended = self.out.write_all(&TAR_END);
        let ended = ended.and_then(|()| self.out.flush());
        ended.map_err(TarError::Output)?;
        Ok(self.report)
    }
}

/// Puts headers and padding between contents that come as one.
struct Woven<'o, W> {
    out: &'o mut W,
    between: VecDeque<(u64, Vec<u8>)>,
    /// How many bytes of contents were written.
    written: u64,
    cancel: &'o AtomicBool,
}

impl<W: Write> Woven<'_, W> {
    /// Writes what comes before the next byte of contents.
    fn insert(&mut self) -> io::Result<()> {
        while let Some((_, bytes)) = self
            .between
            .pop_front_if(|(after, _)| *after <= self.written)
        {
            self.out.write_all(&bytes)?;
        }
        Ok(())
    }
}

impl<W: Write> Write for Woven<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(io::Error::other("cancelled"));
        }
        self.insert()?;
        let next = self.between.front().map(|(after, _)| after - self.written);
        let most = next.and_then(|next| usize::try_from(next).ok());
        let most = most.map_or(bytes.len(), |most| most.min(bytes.len()));
        let written = self.out.write(&bytes[..most])?;
        self.written += written as u64;
        Ok(written)
    }

    /// Nobody waits for a part of a tar.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
