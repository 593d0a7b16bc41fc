//! One pass over the entries of an archive, in the order of its tar.

use super::framed::Framed;
use super::index::Summary;
use super::parser::Parser;
use super::rules::{ArchiveLimits, TarDialect};
use super::tar_event::TarEvent;
use super::{ArchiveError, Problem};
use stasis_model::tree::{Entry, EntryKind, EntryPath};
use std::path::{Path, PathBuf};

/// The parser, and what must agree with what it finds.
#[derive(Debug)]
pub(super) struct ArchiveReading<'a> {
    parser: Parser,
    path: PathBuf,
    /// The entry that was read last.
    last: Option<EntryPath>,
    hints: Option<Hints<'a>>,
    events: Vec<TarEvent>,
}

/// What the index says of the tar, compared with it from the first frame on.
#[derive(Debug)]
struct Hints<'a> {
    archive: &'a Framed,
    /// The frame in which we look for the next entry that is the first to begin in one, and where it begins.
    frame: usize,
    begins: u64,
    entries: u64,
    files: u64,
    bytes: u64,
}

impl<'a> ArchiveReading<'a> {
    /// Reads an archive of ours from its beginning.
    pub(super) fn framed(archive: &'a Framed, limits: ArchiveLimits) -> Self {
        let hints = Hints {
            archive,
            frame: 0,
            begins: 0,
            entries: 0,
            files: 0,
            bytes: 0,
        };
        let parser = Parser::new(TarDialect::Ours, limits);
        Self::new(parser, &archive.path, Some(hints))
    }

    /// Reads an archive of ours from some entry on.
    pub(super) fn in_the_middle(archive: &'a Framed, limits: ArchiveLimits) -> Self {
        Self::new(Parser::in_the_middle(limits), &archive.path, None)
    }

    /// Reads what another tar wrote.
    pub(super) fn plain(path: &Path, limits: ArchiveLimits) -> Self {
        Self::new(Parser::new(TarDialect::Any, limits), path, None)
    }

    /// The same, but devices are passed over and named.
    pub(super) fn naming_devices(path: &Path, limits: ArchiveLimits) -> Self {
        let parser = Parser::new(TarDialect::Any, limits);
        Self::new(parser.naming_devices(), path, None)
    }

    fn new(parser: Parser, path: &Path, hints: Option<Hints<'a>>) -> Self {
        Self {
            parser,
            path: path.to_owned(),
            last: None,
            hints,
            events: Vec::new(),
        }
    }

    /// Reads the next bytes.
    pub(super) fn feed(
        &mut self,
        tar: &[u8],
    ) -> Result<std::vec::Drain<'_, TarEvent>, ArchiveError> {
        self.events.clear();
        let fed = self.parser.feed(tar, &mut self.events);
        let mut agrees = Ok(());
        for event in &self.events {
            if let TarEvent::Entry(entry, began) = event {
                self.last = Some(entry.path.clone());
                let compared = self
                    .hints
                    .as_mut()
                    .map(|hints| hints.compare(entry, *began));
                agrees = agrees.and(compared.unwrap_or(Ok(())));
            }
        }
        fed.and(agrees).map_err(|problem| self.refused(problem))?;
        Ok(self.events.drain(..))
    }

    /// The devices that were passed over so far.
    pub(super) fn devices(&self) -> &[EntryPath] {
        self.parser.devices()
    }

    /// Whether the next frame can be passed over: nothing but content is in it.
    pub(super) fn can_skip(&self, length: u32) -> bool {
        self.parser.is_in_content(u64::from(length))
    }

    /// Passes over a frame that holds content only.
    pub(super) fn skip(&mut self, length: u32) -> Result<(), ArchiveError> {
        let skipped = self.parser.skip(u64::from(length));
        skipped.map_err(|problem| self.refused(problem))
    }

    /// Says that no more bytes come, and that everything was read.
    pub(super) fn finish(&self) -> Result<(), ArchiveError> {
        let agrees = self.hints.as_ref().map_or(Ok(()), Hints::finish);
        let finished = self.parser.finish().and(agrees);
        finished.map_err(|problem| self.refused(problem))
    }

    /// Says where something was found to be wrong.
    pub(super) fn refused(&self, problem: Problem) -> ArchiveError {
        ArchiveError::Refused {
            path: self.path.clone(),
            at: self.parser.position(),
            entry: self.last.clone(),
            problem,
        }
    }
}

impl Hints<'_> {
    fn compare(&mut self, entry: &Entry, began: u64) -> Result<(), Problem> {
        self.entries += 1;
        if let EntryKind::File { size } = entry.kind {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(size);
        }
        let frames = &self.archive.index.frames;
        let wrong = Problem::IndexDisagrees("where entries begin");
        while let Some(frame) = frames.get(self.frame) {
            if began < self.begins {
                return Ok(()); // not the first in its frame
            }
            let end = self.begins + u64::from(frame.tar);
            let begins_here = began < end;
            let stated = frame.start.as_ref();
            let is_stated = stated.is_some_and(|(at, path)| {
                self.begins + u64::from(*at) == began && *path == entry.path
            });
            if begins_here != stated.is_some() || (begins_here && !is_stated) {
                return Err(wrong);
            }
            (self.frame, self.begins) = (self.frame + 1, end);
        }
        if began < self.begins {
            return Ok(());
        }
        Err(wrong)
    }

    fn finish(&self) -> Result<(), Problem> {
        let Summary {
            entries,
            files,
            bytes,
            ..
        } = &self.archive.index.summary;
        if (self.entries, self.files, self.bytes) != (*entries, *files, *bytes) {
            return Err(Problem::IndexDisagrees("how much there is"));
        }
        let rest = &self.archive.index.frames[self.frame..];
        if rest.iter().any(|frame| frame.start.is_some()) {
            return Err(Problem::IndexDisagrees("where entries begin"));
        }
        Ok(())
    }
}
