//! An archive that is looked at: what is in it, one file of it, whether it is whole.

use super::framed::Framed;
use super::frames::Opener;
use super::plain::{Compression, Plain, Stream};
use super::reading::ArchiveReading;
use super::rules::ArchiveLimits;
use super::tar_event::TarEvent;
use super::{ArchiveContext, ArchiveError, Problem, ReadAt, Summary};
use crate::progress::Progress;
use stasis_model::failure::AtPath;
use stasis_model::tree::{Entry, EntryKind, EntryPath};
use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many hard links `cat` follows: one is all there can be.
const FOLLOWED: usize = 1;

/// An open archive.
#[derive(Debug)]
pub struct Archive(pub(super) OpenedArchive);

#[derive(Debug)]
pub(super) enum OpenedArchive {
    Framed(Framed),
    Plain(Plain),
}

/// How an archive is read.
#[derive(Clone, Debug)]
pub struct ReadSettings {
    /// What it may cost.
    pub limits: ArchiveLimits,
    /// How many threads decompress.
    pub workers: NonZeroUsize,
    /// Set by anybody at any time to end the reading soon.
    pub cancel: Arc<AtomicBool>,
    /// Where the stored bytes are counted that a verification has read.
    pub progress: Arc<Progress>,
}

impl Default for ReadSettings {
    fn default() -> Self {
        Self {
            limits: ArchiveLimits::default(),
            workers: super::usual_workers(),
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }
}

impl Archive {
    /// Opens a file, and reads its index if it has one.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let file = File::open(path).at("open", path)?;
        let seen = file.metadata();
        let seen = seen.at("look at", path)?;
        if !seen.is_file() {
            return Ok(Err(io::ErrorKind::InvalidInput).at("read as a file", path)?);
        }
        Self::over(Arc::new(file), path)
    }

    /// Takes bytes that are wherever they are, known as `name`, and reads their index if they have one.
    pub fn over(bytes: Arc<dyn ReadAt>, name: &Path) -> Result<Self, ArchiveError> {
        Ok(Self(match Framed::open(&bytes, name)? {
            Some(framed) => OpenedArchive::Framed(framed),
            None => OpenedArchive::Plain(Plain::open(bytes, name)?),
        }))
    }

    /// What the index says of the whole; `None` when there is no index.
    pub fn summary(&self) -> Option<&Summary> {
        match &self.0 {
            OpenedArchive::Framed(framed) => Some(&framed.index.summary),
            OpenedArchive::Plain(_) => None,
        }
    }

    /// How a tar without an index is compressed.
    pub fn compression(&self) -> Compression {
        match &self.0 {
            OpenedArchive::Framed(_) => Compression::Zstd,
            OpenedArchive::Plain(plain) => plain.compression,
        }
    }

    pub(super) fn bytes(&self) -> &dyn ReadAt {
        match &self.0 {
            OpenedArchive::Framed(framed) => &*framed.bytes,
            OpenedArchive::Plain(plain) => &*plain.bytes,
        }
    }

    pub(super) fn path(&self) -> &Path {
        match &self.0 {
            OpenedArchive::Framed(framed) => &framed.path,
            OpenedArchive::Plain(plain) => &plain.path,
        }
    }

    /// Shows every entry in the order of the archive; frames that hold only content are not read.
    pub fn list<E: From<ArchiveError>>(
        &self,
        settings: &ReadSettings,
        mut each: impl FnMut(&Entry) -> Result<(), E>,
    ) -> Result<(), E> {
        let go_on = || go_on(&settings.cancel);
        let mut show = |events: std::vec::Drain<'_, TarEvent>| {
            for event in events {
                if let TarEvent::Entry(entry, _) = event {
                    each(&entry)?;
                }
            }
            Ok::<_, E>(())
        };
        match &self.0 {
            OpenedArchive::Framed(framed) => {
                let mut opener = opener(&framed.path)?;
                let mut reading = ArchiveReading::framed(framed, settings.limits);
                for (at, frame) in framed.index.frames.iter().enumerate() {
                    go_on()?;
                    if frame.start.is_none() && reading.can_skip(frame.tar) {
                        reading.skip(frame.tar)?;
                    } else {
                        let tar = framed.tar(at, &mut opener)?;
                        show(reading.feed(tar.bytes())?)?;
                    }
                }
                Ok(reading.finish()?)
            }
            OpenedArchive::Plain(plain) => {
                read_plain(plain, settings, |reading, tar| show(reading.feed(&tar)?))
            }
        }
    }

    /// Writes the content of the file `path` to `sink`; of an archive with an index only what is needed is read.
    pub fn cat(
        &self,
        path: &EntryPath,
        sink: &mut dyn Write,
        settings: &ReadSettings,
    ) -> Result<u64, ArchiveError> {
        let mut path = path.clone();
        for _ in 0..=FOLLOWED {
            let mut one = One::new(&path, Some(&mut *sink));
            self.find(&mut one, settings)?;
            match one.found.map(|entry| entry.kind) {
                Some(EntryKind::File { size }) if one.left == 0 => return Ok(size),
                Some(EntryKind::HardLink { to }) => path = to,
                Some(EntryKind::File { .. }) => {
                    return Err(Problem::Truncated).of_archive(self.path());
                }
                Some(_) => return Err(ArchiveError::NotAFile(path)),
                None => {
                    let archive = self.path().to_owned();
                    return Err(ArchiveError::NoSuchEntry { archive, path });
                }
            }
        }
        Err(ArchiveError::NotAFile(path))
    }

    /// What the archive says of one entry; `None` when it has none of that name.
    pub fn entry(
        &self,
        path: &EntryPath,
        settings: &ReadSettings,
    ) -> Result<Option<Entry>, ArchiveError> {
        let mut one = One::new(path, None);
        self.find(&mut one, settings)?;
        Ok(one.found)
    }

    fn find(&self, one: &mut One<'_>, settings: &ReadSettings) -> Result<(), ArchiveError> {
        match &self.0 {
            OpenedArchive::Framed(framed) => {
                let Some(first) = framed.index.frame_of(one.path) else {
                    return Ok(());
                };
                let mut opener = opener(&framed.path)?;
                let mut reading = ArchiveReading::in_the_middle(framed, settings.limits);
                let start = framed.index.frames[first].start.as_ref();
                let mut skip = start.map_or(0, |(at, _)| *at as usize);
                for frame in first..framed.index.frames.len() {
                    go_on(&settings.cancel)?;
                    let tar = framed.tar(frame, &mut opener)?;
                    let tar = tar.bytes().get(skip..).unwrap_or_default();
                    skip = 0;
                    if one.read(reading.feed(tar)?, tar, true)? {
                        break;
                    }
                }
                Ok(())
            }
            OpenedArchive::Plain(plain) => read_plain(plain, settings, |reading, tar| {
                one.read(reading.feed(&tar)?, &tar, false)?;
                Ok(())
            }),
        }
    }
}

/// Reads what another tar wrote from its beginning to its end; `take` gets the bytes, and what parses them.
pub(super) fn read_plain<E: From<ArchiveError>>(
    plain: &Plain,
    settings: &ReadSettings,
    take: impl FnMut(&mut ArchiveReading<'_>, Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let mut reading = ArchiveReading::plain(&plain.path, settings.limits);
    read_stream(plain.stream()?, &mut reading, &settings.cancel, take)
}

/// Reads a stream to its end; `take` gets the bytes, and what parses them.
pub(super) fn read_stream<E: From<ArchiveError>>(
    mut stream: Stream<'_>,
    reading: &mut ArchiveReading<'_>,
    cancel: &AtomicBool,
    mut take: impl FnMut(&mut ArchiveReading<'_>, Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    loop {
        go_on(cancel)?;
        let tar = stream.next()?;
        if tar.is_empty() {
            return Ok(reading.finish()?);
        }
        take(reading, tar)?;
    }
}

pub(super) fn opener(path: &Path) -> Result<Opener, ArchiveError> {
    Ok(Opener::new().at("prepare to read", path)?)
}

pub(super) fn go_on(cancel: &AtomicBool) -> Result<(), ArchiveError> {
    if cancel.load(Ordering::Relaxed) {
        return Err(ArchiveError::Cancelled);
    }
    Ok(())
}

/// One file that is looked for, and its content when it was found.
struct One<'a> {
    path: &'a EntryPath,
    /// Where its content goes; without one nobody waits for it.
    sink: Option<&'a mut dyn Write>,
    found: Option<Entry>,
    is_inside: bool,
    left: u64,
}

impl<'a> One<'a> {
    fn new(path: &'a EntryPath, sink: Option<&'a mut dyn Write>) -> Self {
        Self {
            path,
            sink,
            found: None,
            is_inside: false,
            left: 0,
        }
    }

    /// Whether everything is known; of an archive that is sorted also when the name has been passed.
    fn read(
        &mut self,
        events: std::vec::Drain<'_, TarEvent>,
        tar: &[u8],
        is_sorted: bool,
    ) -> Result<bool, ArchiveError> {
        for event in events {
            match event {
                TarEvent::Entry(entry, _) => {
                    self.is_inside = entry.path == *self.path;
                    if self.is_inside {
                        if let EntryKind::File { size } = entry.kind {
                            self.left = size;
                        }
                        self.found = Some(entry);
                    } else if is_sorted && entry.path > *self.path {
                        return Ok(true);
                    }
                }
                TarEvent::Content(range) if self.is_inside => {
                    self.left -= range.len() as u64;
                    if let Some(sink) = &mut self.sink {
                        let path = self.path.clone();
                        let written = sink.write_all(&tar[range]);
                        written.map_err(|source| ArchiveError::Sink { path, source })?;
                    }
                }
                TarEvent::Hole(length) if self.is_inside => {
                    self.left -= length;
                    self.zeros(length)?;
                }
                TarEvent::Content(_) | TarEvent::Hole(_) => {}
            }
        }
        let is_complete = self.left == 0 || self.sink.is_none();
        Ok(is_sorted && self.found.is_some() && is_complete)
    }
}

impl One<'_> {
    fn zeros(&mut self, length: u64) -> Result<(), ArchiveError> {
        if let Some(sink) = &mut self.sink {
            let written = io::copy(&mut io::repeat(0).take(length), sink);
            let path = self.path.clone();
            written.map_err(|source| ArchiveError::Sink { path, source })?;
        }
        Ok(())
    }
}
