//! The tree that becomes an archive, read in order.
//!
//! A header says the size and the time before the content comes, so both must belong together: a small file is read
//! whole before anything is said of it; of a large one the frames are taken back when it turns out that it changed. What
//! changed each of three times is archived as it was last read, if it was read to its end, and reported; a large file
//! that each time became shorter than it had been is left out, and reported.

use super::ArchiveError;
use super::frames::{Framer, PIECE, zeros};
use super::header::padding;
use super::pipeline::Feeder;
use super::spelling;
use crate::fs::holes;
use crate::fs::metadata::{self, Seen};
use crate::progress::Progress;
use crate::tree::walk::{InOrder, WalkSkip, WalkedDir, WalkedEntry};
use rustix::io::{Errno, pread, retry_on_intr};
use stasis_model::digest::{FileDigest, FileHasher, TreeDigest};
use stasis_model::failure::AtPath;
use stasis_model::tree::canonical::TreeHasher;
use stasis_model::tree::{Attribute, Entry, EntryKind, EntryPath};
use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// How often a file that changes while it is read is read again.
const MOST_ATTEMPTS: usize = 3;

/// What was read.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceCounts {
    pub(super) entries: u64,
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) symlinks: u64,
    pub(super) hard_links: u64,
    pub(super) fifos: u64,
    pub(super) bytes: u64,
    pub(super) attributes_left_out: u64,
}

/// Reads entries and hands out frames.
pub(super) struct ArchiveSource<'a, 'p> {
    feeder: &'a mut Feeder<'p>,
    framer: Framer,
    tree: TreeHasher,
    counts: SourceCounts,
    /// The first names of files that have several.
    names: HashMap<(u64, u64), EntryPath>,
    buffer: Vec<u8>,
    control: &'a Control,
}

/// What the reader is told from outside.
#[derive(Debug)]
pub(super) struct Control {
    /// The archive itself, by device and inode.
    pub(super) own: Vec<(u64, u64)>,
    pub(super) cancel: std::sync::Arc<AtomicBool>,
    pub(super) progress: std::sync::Arc<Progress>,
}

/// An open file of the source.
struct OpenedSource<'p> {
    place: &'p WalkedDir<'p>,
    name: &'p CStr,
    path: EntryPath,
    file: OwnedFd,
    seen: Seen,
    attributes: Vec<Attribute>,
}

impl<'a, 'p> ArchiveSource<'a, 'p> {
    pub(super) fn new(feeder: &'a mut Feeder<'p>, control: &'a Control) -> Self {
        Self {
            feeder,
            framer: Framer::default(),
            tree: TreeHasher::new(),
            counts: SourceCounts::default(),
            names: HashMap::new(),
            buffer: Vec::new(),
            control,
        }
    }

    /// Ends the tar.
    pub(super) fn finish(mut self) -> Result<(SourceCounts, TreeDigest), ArchiveError> {
        self.framer.push(&spelling::END, self.feeder)?;
        self.framer.cut(self.feeder)?;
        Ok((self.counts, self.tree.finish()))
    }

    fn attributes(
        &mut self,
        fd: impl AsFd,
        path: &EntryPath,
    ) -> Result<Vec<Attribute>, ArchiveError> {
        let read = metadata::attributes(fd);
        let read = read.on("read the attributes of", path)?;
        self.counts.attributes_left_out += read.others;
        Ok(read.user)
    }

    /// Writes the headers of an entry which has `content` bytes in the same frame.
    fn headers(&mut self, entry: &Entry, content: usize) -> Result<(), ArchiveError> {
        let headers = spelling::headers(entry).ok_or(Errno::TOOBIG);
        let headers = headers.on("keep all attributes of", &entry.path)?;
        let length = (headers.len() + content) as u64;
        self.framer.entry(&entry.path, length, self.feeder)?;
        self.framer.push(&headers, self.feeder)
    }

    /// Counts an entry that is written completely.
    fn written(&mut self, entry: &Entry, content: Option<&FileDigest>) {
        self.tree.entry(entry, content);
        self.counts.entries += 1;
        let (counter, bytes) = match &entry.kind {
            EntryKind::File { size } => (&mut self.counts.files, *size),
            EntryKind::Directory => (&mut self.counts.directories, 0),
            EntryKind::Symlink { .. } => (&mut self.counts.symlinks, 0),
            EntryKind::HardLink { .. } => (&mut self.counts.hard_links, 0),
            _ => (&mut self.counts.fifos, 0),
        };
        *counter += 1;
        self.counts.bytes = self.counts.bytes.saturating_add(bytes);
        if content.is_some() {
            self.control.progress.advance(1, bytes);
        }
    }

    fn plain(&mut self, path: EntryPath, kind: EntryKind, seen: &Seen) -> Result<(), ArchiveError> {
        let entry = Entry {
            path,
            kind,
            metadata: seen.metadata(),
            attributes: Vec::new(),
        };
        self.headers(&entry, 0)?;
        self.written(&entry, None);
        Ok(())
    }

    fn file(&mut self, place: &WalkedDir<'_>, name: &CStr) -> Result<(), ArchiveError> {
        for attempt in 1..=MOST_ATTEMPTS {
            let Some((file, seen)) = place.open_file(name)? else {
                return Ok(());
            };
            let path = place.child(name)?;
            if self.control.own.contains(&seen.identity()) {
                return Ok(place.skip(name, WalkSkip::OwnTarget)?);
            }
            if let Some(to) = self.names.get(&seen.identity()).cloned() {
                return self.plain(path, EntryKind::HardLink { to }, &seen);
            }
            let opened = OpenedSource {
                place,
                name,
                attributes: self.attributes(&file, &path)?,
                path,
                file,
                seen,
            };
            let is_last = attempt == MOST_ATTEMPTS;
            let is_done = if seen.size <= PIECE as u64 {
                self.small(&opened, is_last)?
            } else {
                self.large(&opened, is_last)?
            };
            if is_done {
                break;
            }
        }
        Ok(())
    }

    /// Reads a file whole, then writes it; `false` when it must be read again.
    fn small(&mut self, opened: &OpenedSource<'_>, is_last: bool) -> Result<bool, ArchiveError> {
        let mut content = std::mem::take(&mut self.buffer);
        let size = usize::try_from(opened.seen.size).expect("no more than a piece");
        content.resize(size, 0);
        #[cfg(test)]
        disturbance::strike(&opened.path);
        let read = opened.read(0, &mut content)?;
        let is_right = read == size && opened.is_unchanged()?;
        let mut is_done = false;
        if is_right || is_last {
            if !is_right {
                opened.place.skip(opened.name, WalkSkip::Changed)?;
            }
            content.truncate(read);
            let entry = opened.entry(read as u64);
            self.headers(&entry, read)?;
            self.framer.push(&content, self.feeder)?;
            let pad = &zeros()[..padding(read as u64)];
            self.framer.push(pad, self.feeder)?;
            self.file_written(opened, &entry, &FileDigest::of(&content));
            is_done = true;
        }
        self.buffer = content;
        Ok(is_done)
    }

    /// Writes a file while it is read; `false` when it must be read again, and nothing of it was kept.
    fn large(&mut self, opened: &OpenedSource<'_>, is_last: bool) -> Result<bool, ArchiveError> {
        let before = self.framer.clone();
        self.feeder.mark()?;
        let entry = opened.entry(opened.seen.size);
        self.headers(&entry, 0)?;
        self.framer.cut(self.feeder)?;
        let digest = self.pieces(opened)?;
        let is_right = digest.is_some() && opened.is_unchanged()?;
        if !is_right && is_last {
            opened.place.skip(opened.name, WalkSkip::Changed)?;
        }
        let Some(digest) = digest.filter(|_| is_right || is_last) else {
            self.feeder.return_to_mark()?;
            self.framer = before;
            return Ok(is_last);
        };
        self.file_written(opened, &entry, &digest);
        Ok(true)
    }

    /// Hands out the content of a file piece by piece; `None` when it ended too early.
    fn pieces(&mut self, opened: &OpenedSource<'_>) -> Result<Option<FileDigest>, ArchiveError> {
        let (mut hasher, mut at, size) = (FileHasher::default(), 0, opened.seen.size);
        let mut data = 0..0;
        #[cfg(test)]
        disturbance::strike(&opened.path);
        while at < size {
            if self.control.cancel.load(Ordering::Relaxed) {
                return Err(ArchiveError::Cancelled);
            }
            let length = (size - at).min(PIECE as u64);
            if data.end <= at {
                let next = holes::next_data(&opened.file, at, size);
                let next = next.on("find the holes of", &opened.path)?;
                data = next.unwrap_or(size..size);
            }
            let length = usize::try_from(length).expect("no more than a piece");
            if length == PIECE && data.start >= at + length as u64 {
                hasher.update(zeros());
                self.framer.zeros(self.feeder)?;
            } else {
                let mut piece = std::mem::take(&mut self.buffer);
                piece.resize(length, 0);
                let read = opened.read(at, &mut piece)?;
                hasher.update(&piece);
                self.framer.push(&piece, self.feeder)?;
                self.buffer = piece;
                if read < length {
                    return Ok(None);
                }
                if length == PIECE {
                    self.framer.cut(self.feeder)?;
                }
            }
            at += length as u64;
        }
        self.framer.push(&zeros()[..padding(size)], self.feeder)?;
        Ok(Some(hasher.finish()))
    }

    fn file_written(&mut self, opened: &OpenedSource<'_>, entry: &Entry, content: &FileDigest) {
        if opened.seen.links > 1 {
            let path = opened.path.clone();
            self.names.insert(opened.seen.identity(), path);
        }
        self.written(entry, Some(content));
    }
}

impl OpenedSource<'_> {
    fn entry(&self, size: u64) -> Entry {
        Entry {
            path: self.path.clone(),
            kind: EntryKind::File { size },
            metadata: self.seen.metadata(),
            attributes: self.attributes.clone(),
        }
    }

    /// Fills `bytes` from the file; fewer when it ends.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<usize, ArchiveError> {
        let mut filled = 0;
        while filled < bytes.len() {
            let from = at + filled as u64;
            let read = retry_on_intr(|| pread(&self.file, &mut bytes[filled..], from));
            match read.on("read", &self.path)? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }

    fn is_unchanged(&self) -> Result<bool, ArchiveError> {
        let now = metadata::of(&self.file);
        let now = now.on("look at", &self.path)?;
        Ok(now.is_unchanged_since(&self.seen))
    }
}

impl InOrder for ArchiveSource<'_, '_> {
    type Error = ArchiveError;

    fn directory(
        &mut self,
        path: &EntryPath,
        fd: BorrowedFd<'_>,
        seen: &Seen,
    ) -> Result<(), ArchiveError> {
        let entry = Entry {
            path: path.clone(),
            kind: EntryKind::Directory,
            metadata: seen.metadata(),
            attributes: self.attributes(fd, path)?,
        };
        self.headers(&entry, 0)?;
        self.written(&entry, None);
        Ok(())
    }

    fn entry(
        &mut self,
        place: &WalkedDir<'_>,
        found: &WalkedEntry<'_>,
    ) -> Result<(), ArchiveError> {
        match &found.kind {
            EntryKind::File { .. } => self.file(place, found.name),
            kind => {
                let path = place.child(found.name)?;
                self.plain(path, kind.clone(), &found.seen)
            }
        }
    }
}

/// What somebody else does to a file after it was opened and before it is read.
#[cfg(test)]
pub(super) mod disturbance {
    use stasis_model::tree::EntryPath;
    use std::cell::RefCell;

    type Act = Box<dyn FnMut(&EntryPath)>;

    thread_local! {
        static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
    }

    pub(crate) fn expect(act: impl FnMut(&EntryPath) + 'static) {
        ACT.set(Some(Box::new(act)));
    }

    pub(super) fn strike(path: &EntryPath) {
        ACT.with_borrow_mut(|act| act.iter_mut().for_each(|act| act(path)));
    }
}
