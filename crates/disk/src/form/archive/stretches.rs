//! Where the content of a file lies in an archive with an index, so that any part of it can be read alone.

use super::reader::{OpenedArchive, ReadSettings, go_on, opener};
use super::reading::ArchiveReading;
use super::tar_event::TarEvent;
use super::{Archive, ArchiveContext as _, ArchiveError, Problem};
use stasis_model::tree::{EntryKind, EntryPath};

/// A stretch of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TarStretch {
    /// Bytes that are all zero and stored nowhere.
    Hole(u64),
    /// Bytes of a frame.
    Stored {
        /// Which frame.
        frame: u32,
        /// Where in its tar bytes.
        offset: u32,
        /// How many bytes.
        length: u32,
    },
}

impl TarStretch {
    fn length(self) -> u64 {
        match self {
            Self::Hole(length) => length,
            Self::Stored { length, .. } => length.into(),
        }
    }
}

fn short(length: usize) -> u32 {
    u32::try_from(length).expect("a frame is small")
}

impl Archive {
    fn framed(&self) -> Result<&super::framed::Framed, ArchiveError> {
        match &self.0 {
            OpenedArchive::Framed(framed) => Ok(framed),
            OpenedArchive::Plain(_) => Err(ArchiveError::NotFramed(self.path().to_owned())),
        }
    }

    /// The tar bytes of a frame, checked against the index.
    pub fn frame(&self, frame: u32) -> Result<Vec<u8>, ArchiveError> {
        let framed = self.framed()?;
        let tar = framed.tar(frame as usize, &mut opener(&framed.path)?)?;
        Ok(tar.bytes().to_vec())
    }

    /// Where the content of a file lies, in order. Frames that hold nothing else are not read for it.
    pub fn stretches(
        &self,
        path: &EntryPath,
        settings: &ReadSettings,
    ) -> Result<Vec<TarStretch>, ArchiveError> {
        let framed = self.framed()?;
        let none = || ArchiveError::NoSuchEntry {
            archive: self.path().to_owned(),
            path: path.clone(),
        };
        let index = &framed.index;
        let first = index.frame_of(path).ok_or_else(none)?;
        let mut opener = opener(&framed.path)?;
        let mut reading = ArchiveReading::in_the_middle(framed, settings.limits);
        let start = index.frames[first].start.as_ref();
        let mut skip = start.map_or(0, |(at, _)| *at as usize);
        let mut gathered = Gathered::new(path);
        for (at, frame) in index.frames.iter().enumerate().skip(first) {
            go_on(&settings.cancel)?;
            if gathered.is_inside() && reading.can_skip(frame.tar) {
                gathered.stored(at, 0, frame.tar as usize);
                reading.skip(frame.tar)?;
            } else {
                let tar = framed.tar(at, &mut opener)?;
                let tar = tar.bytes().get(skip..).unwrap_or_default();
                gathered.take(reading.feed(tar)?, at, skip)?;
                skip = 0;
            }
            if gathered.is_complete {
                break;
            }
        }
        match gathered.left {
            Some(0) => Ok(gathered.stretches),
            Some(_) => Err(Problem::Truncated).of_archive(self.path()),
            None => Err(none()),
        }
    }
}

/// The stretches of one file as far as they are known.
struct Gathered<'a> {
    path: &'a EntryPath,
    /// How many bytes are still to come, once the file was found.
    left: Option<u64>,
    is_complete: bool,
    stretches: Vec<TarStretch>,
}

impl<'a> Gathered<'a> {
    fn new(path: &'a EntryPath) -> Self {
        Self {
            path,
            left: None,
            is_complete: false,
            stretches: Vec::new(),
        }
    }

    fn is_inside(&self) -> bool {
        self.left.is_some_and(|left| left > 0)
    }

    fn push(&mut self, stretch: TarStretch) {
        self.left = self.left.map(|left| left - stretch.length());
        self.stretches.push(stretch);
        self.is_complete = self.left == Some(0);
    }

    /// So many bytes of a frame, as far as the file reaches.
    fn stored(&mut self, frame: usize, offset: usize, length: usize) {
        let left = self.left.unwrap_or_default();
        let length = usize::try_from(left).map_or(length, |left| left.min(length));
        self.push(TarStretch::Stored {
            frame: short(frame),
            offset: short(offset),
            length: short(length),
        });
    }

    /// Takes what was found in a frame, of which the first `skipped` bytes were not fed.
    fn take(
        &mut self,
        events: std::vec::Drain<'_, TarEvent>,
        frame: usize,
        skipped: usize,
    ) -> Result<(), ArchiveError> {
        for event in events {
            match event {
                TarEvent::Entry(entry, _) if entry.path == *self.path => {
                    let EntryKind::File { size } = entry.kind else {
                        return Err(ArchiveError::NotAFile(entry.path));
                    };
                    self.left = Some(size);
                    self.is_complete = size == 0;
                }
                // Names are sorted: what comes later is not it.
                TarEvent::Entry(entry, _) if entry.path > *self.path => self.is_complete = true,
                TarEvent::Content(range) if self.is_inside() => {
                    self.stored(frame, skipped + range.start, range.len());
                }
                TarEvent::Hole(length) if self.is_inside() => self.push(TarStretch::Hole(length)),
                TarEvent::Entry(..) | TarEvent::Content(_) | TarEvent::Hole(_) => {}
            }
            if self.is_complete {
                break;
            }
        }
        Ok(())
    }
}
