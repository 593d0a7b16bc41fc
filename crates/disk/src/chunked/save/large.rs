//! Large files: cut by content, or compared with what they were piece by piece.

use super::SaveError;
use super::plan::{Before, Done, Job, few};
use super::pool::{ATTEMPTS, Offered, Opened, Pool, Tools, lock};
use super::stream::PieceStream;
use crate::chunked::table::Content;
use crate::chunked::{cut_out, fetch};
use crate::holes;
use crate::metadata;
use crate::walk::{Reason, WalkError};
use rustix::io::{Errno, pread};
use stasis_model::chunking::{PIECE, PIECES_CUT};
use stasis_model::digest::FileDigest;
use stasis_model::file_list::{Extent, FileContent, Slice, StoredChunk, append};
use stasis_model::pieces;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// How much is read at once.
const WINDOW: usize = 4 << 20;
const SQLITE: &[u8; 16] = b"SQLite format 3\0";

/// The chunks of a large file, sealed by whoever has time.
#[derive(Debug, Default)]
pub(super) struct LargeFile {
    chunks: Mutex<(Vec<Option<StoredChunk>>, usize)>,
}

impl LargeFile {
    pub(super) fn put(&self, number: usize, chunk: StoredChunk) {
        let mut chunks = lock(&self.chunks);
        chunks.0[number] = Some(chunk);
        chunks.1 -= 1;
    }

    pub(super) fn is_sealed(&self) -> bool {
        lock(&self.chunks).1 == 0
    }

    fn expect(&self) -> usize {
        let mut chunks = lock(&self.chunks);
        chunks.0.push(None);
        chunks.1 += 1;
        chunks.0.len() - 1
    }

    fn get(&self, number: usize) -> Option<StoredChunk> {
        lock(&self.chunks).0[number]
    }
}

/// A stretch of a file whose chunk may still have to be sealed.
#[derive(Debug)]
enum Part {
    Ready(Extent),
    Fresh {
        number: usize,
        offset: u32,
        length: u32,
    },
}

/// A file that was read.
struct Taken {
    size: u64,
    digest: FileDigest,
    fingerprints: Option<Vec<u8>>,
    parts: Vec<Part>,
    of: Arc<LargeFile>,
}

impl<'a> Pool<'a> {
    /// Reads a large file and stores what is new of it.
    pub(super) fn large(&self, at: usize, tools: &mut Tools<'a>) -> Result<(), SaveError> {
        let job = &self.plan.jobs[at];
        for attempt in 1..=ATTEMPTS {
            let Some(opened) = self.open(job, tools)? else {
                return Ok(());
            };
            let taken = match self.take_large(job, &opened, tools) {
                Err(SaveError::Walk(WalkError::Failed { source, .. })) if is_gone(&source) => {
                    return self.leave(job, Reason::Vanished);
                }
                taken => taken?,
            };
            let after = metadata::of(&opened.file).ok();
            let is_steady = after.is_some_and(|after| after.is_unchanged_since(&opened.seen))
                && taken
                    .as_ref()
                    .is_some_and(|taken| taken.size == opened.seen.size);
            if let Some(taken) = taken
                && (is_steady || attempt == ATTEMPTS)
            {
                if !is_steady {
                    self.note(job, Reason::Changed)?;
                }
                return self.settle(job, &opened, taken, tools);
            }
        }
        self.leave(job, Reason::Changed)
    }

    /// `None` when the file changed between being compared and being read.
    fn take_large(
        &self,
        job: &Job,
        opened: &Opened<'a>,
        tools: &mut Tools<'a>,
    ) -> Result<Option<Taken>, SaveError> {
        let mut start = [0; 16];
        let read = self.read_at(job, &opened.file, &mut start, 0)?;
        let is_sqlite = read == 16 && start == *SQLITE;
        if let Some(before) = &job.previous
            && let Content::Many(content) = &before.content
            && let Some(fingerprints) = &content.pieces
            && (is_sqlite || before.size == opened.seen.size)
        {
            let chunk = fetch(self.parts.source, &fingerprints.chunk.name)?;
            let old = cut_out(&chunk, fingerprints)?;
            match self.compare(job, opened, (content, before, old), tools)? {
                Compared::Taken(taken) => return Ok(Some(taken)),
                Compared::Moved => return Ok(None),
                Compared::TooDifferent => {}
            }
        }
        self.cut(job, opened, is_sqlite, tools).map(Some)
    }

    fn settle(
        &self,
        job: &Job,
        opened: &Opened<'a>,
        taken: Taken,
        tools: &mut Tools<'a>,
    ) -> Result<(), SaveError> {
        self.wait_for(&taken.of, tools)?;
        self.count(1, 0);
        let attributes = few(self.attributes(job, &opened.file)?);
        let fresh = opened.fresh(taken.size);
        let again = self.again(job, &taken.digest, taken.size);
        let is_new = again.is_none();
        let mut fingerprints = taken.fingerprints.map(Box::new);
        let content = match again {
            Some(content) => {
                fingerprints = None;
                content
            }
            None => {
                let Some(content) = joined(&taken.of, &taken.parts, taken.digest) else {
                    return Ok(()); // somebody failed, and everybody stops
                };
                Content::Many(Box::new(content))
            }
        };
        let done = Done {
            content,
            attributes,
            fresh,
            fingerprints,
        };
        self.done(job, done, is_new);
        Ok(())
    }

    /// Cuts a file into chunks: by content, or, a database, at fixed places.
    fn cut(
        &self,
        job: &Job,
        opened: &Opened<'a>,
        is_sqlite: bool,
        tools: &mut Tools<'a>,
    ) -> Result<Taken, SaveError> {
        let (of, mut stream, mut parts) = (
            Arc::new(LargeFile::default()),
            PieceStream::new(),
            Vec::new(),
        );
        let (mut at, end) = (0, opened.seen.size);
        while at < end {
            let data =
                holes::next_data(&opened.file, at, end).map_err(|error| self.failed(job, error))?;
            let data = data.unwrap_or(end..end);
            if data.start > at {
                stream.zeros(data.start - at);
                parts.push(Part::Ready(Extent::Hole(data.start - at)));
                self.count(0, data.start - at);
            }
            let mut stretch = Stretch {
                buffer: Vec::new(),
                at: data.start,
                end: data.end,
                is_sqlite,
            };
            while let Some(bytes) = self.next_chunk(job, opened, &mut stretch, &mut stream)? {
                let number = of.expect();
                let length = u32::try_from(bytes.len()).expect("a chunk is short");
                parts.push(Part::Fresh {
                    number,
                    offset: 0,
                    length,
                });
                let offered = Offered {
                    bytes,
                    number,
                    of: of.clone(),
                };
                self.offer(offered, tools)?;
            }
            at = data.end;
            if stretch.is_short() {
                break; // the file ends before it should: it changed
            }
        }
        let (size, digest, fingerprints) = stream.finish();
        Ok(Taken {
            size,
            digest,
            fingerprints,
            parts,
            of,
        })
    }

    fn next_chunk(
        &self,
        job: &Job,
        opened: &Opened<'a>,
        stretch: &mut Stretch,
        stream: &mut PieceStream,
    ) -> Result<Option<Vec<u8>>, SaveError> {
        self.go_on()?;
        while stretch.buffer.len() < self.cutter.reach() && stretch.at < stretch.end {
            let from = stretch.buffer.len();
            let wanted = (stretch.end - stretch.at).min(WINDOW as u64);
            stretch
                .buffer
                .resize(from + usize::try_from(wanted).unwrap_or(WINDOW), 0);
            let read = self.read_at(job, &opened.file, &mut stretch.buffer[from..], stretch.at)?;
            stretch.buffer.truncate(from + read);
            stream.update(&stretch.buffer[from..]);
            self.count(0, read as u64);
            if read == 0 {
                break;
            }
            stretch.at += read as u64;
        }
        if stretch.buffer.is_empty() {
            return Ok(None);
        }
        let cut = match stretch.is_sqlite {
            // Where a database is cut depends on where the chunk begins, so that pieces never straddle two.
            true => {
                let position = stretch.at - stretch.buffer.len() as u64;
                let fixed = PIECES_CUT - position % PIECES_CUT;
                stretch
                    .buffer
                    .len()
                    .min(usize::try_from(fixed).unwrap_or(usize::MAX))
            }
            false => self.cutter.cut(&stretch.buffer),
        };
        let rest = stretch.buffer.split_off(cut);
        Ok(Some(std::mem::replace(&mut stretch.buffer, rest)))
    }

    /// Compares a file with what it was; stores only pieces that changed.
    fn compare(
        &self,
        job: &Job,
        opened: &Opened<'a>,
        (content, before, old): (&FileContent, &Before, &[u8]),
        tools: &mut Tools<'a>,
    ) -> Result<Compared, SaveError> {
        let (mut stream, mut changed) = (PieceStream::new(), Vec::new());
        let mut buffer = vec![0; WINDOW];
        let (mut at, end) = (0, opened.seen.size);
        while at < end {
            self.go_on()?;
            let wanted = usize::try_from((end - at).min(WINDOW as u64)).unwrap_or(WINDOW);
            let read = self.read_at(job, &opened.file, &mut buffer[..wanted], at)?;
            if read == 0 {
                return Ok(Compared::Moved);
            }
            stream.update(&buffer[..read]);
            self.count(0, read as u64);
            at += read as u64;
        }
        let (size, digest, fingerprints) = stream.finish();
        let Some(new) = fingerprints else {
            return Ok(Compared::TooDifferent);
        };
        for number in 0..pieces::count(size) {
            if !self.is_kept((content, before), (old, &new), (number, size)) {
                changed.push(number);
            }
        }
        if changed.len() as u64 * 2 > pieces::count(size) {
            return Ok(Compared::TooDifferent);
        }
        let taken = Taken {
            size,
            digest,
            fingerprints: Some(new),
            parts: Vec::new(),
            of: Arc::new(LargeFile::default()),
        };
        self.take_pieces(job, opened, (content, &changed), taken, tools)
    }

    /// Whether a piece is what it was, and may stay where it is.
    fn is_kept(
        &self,
        (content, before): (&FileContent, &Before),
        (old, new): (&[u8], &[u8]),
        (number, size): (u64, u64),
    ) -> bool {
        let at = usize::try_from(number)
            .unwrap_or(usize::MAX)
            .saturating_mul(pieces::FINGERPRINT);
        let both = [old, new].map(|table| table.get(at..at + pieces::FINGERPRINT));
        let from = number * PIECE as u64;
        let stays = |extent: &Extent| !self.plan.lies_abandoned(extent);
        let is_whole = from + PIECE as u64 <= before.size || before.size == size;
        both[0].is_some()
            && both[0] == both[1]
            && is_whole
            && (self.plan.abandoned.is_empty()
                || content.stretch(from, PIECE as u64).iter().all(stays))
    }

    fn take_pieces(
        &self,
        job: &Job,
        opened: &Opened<'a>,
        (content, changed): (&FileContent, &[u64]),
        mut taken: Taken,
        tools: &mut Tools<'a>,
    ) -> Result<Compared, SaveError> {
        let new = taken.fingerprints.take().unwrap_or_default();
        let (mut at, mut bundle, mut waiting) = (0_u64, Vec::new(), Vec::new());
        for number in changed.iter().copied().chain([u64::MAX]) {
            let until = number.saturating_mul(PIECE as u64).min(taken.size);
            if at < until {
                let kept = content.stretch(at, until - at);
                taken.parts.extend(kept.into_iter().map(Part::Ready));
            }
            if number == u64::MAX {
                break;
            }
            let length = usize::try_from((taken.size - until).min(PIECE as u64)).unwrap_or(PIECE);
            let offset = bundle.len();
            bundle.resize(offset + length, 0);
            let read = self.read_at(job, &opened.file, &mut bundle[offset..], until)?;
            let value = pieces::value(number, &bundle[offset..]);
            if read != length || !pieces::is_same(&new, number, &value) {
                return Ok(Compared::Moved);
            }
            waiting.push(taken.parts.len());
            let offset = u32::try_from(offset).expect("a bundle is no longer than a chunk");
            let length = u32::try_from(length).expect("a piece is short");
            taken.parts.push(Part::Fresh {
                number: usize::MAX,
                offset,
                length,
            });
            at = until + u64::from(length);
            if bundle.len() as u64 >= PIECES_CUT {
                self.end_pieces(&mut taken, &mut bundle, &mut waiting, tools)?;
            }
        }
        self.end_pieces(&mut taken, &mut bundle, &mut waiting, tools)?;
        taken.fingerprints = Some(new);
        Ok(Compared::Taken(taken))
    }

    fn end_pieces(
        &self,
        taken: &mut Taken,
        bundle: &mut Vec<u8>,
        waiting: &mut Vec<usize>,
        tools: &mut Tools<'a>,
    ) -> Result<(), SaveError> {
        if bundle.is_empty() {
            return Ok(());
        }
        let sealed = taken.of.expect();
        for part in waiting.drain(..) {
            if let Part::Fresh { number, .. } = &mut taken.parts[part] {
                *number = sealed;
            }
        }
        let offered = Offered {
            bytes: std::mem::take(bundle),
            number: sealed,
            of: taken.of.clone(),
        };
        self.offer(offered, tools)
    }

    fn read_at(
        &self,
        job: &Job,
        file: &OwnedFd,
        buffer: &mut [u8],
        from: u64,
    ) -> Result<usize, SaveError> {
        let mut read = 0;
        while read < buffer.len() {
            match pread(file, &mut buffer[read..], from + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed(job, error)),
            }
        }
        Ok(read)
    }

    fn failed(&self, job: &Job, error: Errno) -> SaveError {
        let (listing, spotted) = self.scan.get(job.spot);
        SaveError::Walk(WalkError::Failed {
            doing: "read",
            path: listing.path_of(spotted),
            source: error.into(),
        })
    }

    fn go_on(&self) -> Result<(), SaveError> {
        if self.settings.walk.cancel.load(Ordering::Relaxed) {
            return Err(WalkError::Cancelled.into());
        }
        Ok(())
    }
}

/// What a comparison came to.
enum Compared {
    Taken(Taken),
    /// The file changed meanwhile.
    Moved,
    /// So much is new that it is better cut afresh.
    TooDifferent,
}

/// A stretch of data that is being cut.
struct Stretch {
    buffer: Vec<u8>,
    at: u64,
    end: u64,
    is_sqlite: bool,
}

impl Stretch {
    fn is_short(&self) -> bool {
        self.at < self.end
    }
}

/// The content of a file whose chunks are all sealed.
fn joined(of: &LargeFile, parts: &[Part], digest: FileDigest) -> Option<FileContent> {
    let mut extents = Vec::new();
    for part in parts {
        let extent = match part {
            Part::Ready(extent) => *extent,
            Part::Fresh {
                number,
                offset,
                length,
            } => Extent::Stored(Slice {
                chunk: of.get(*number)?,
                offset: *offset,
                length: *length,
            }),
        };
        append(&mut extents, extent);
    }
    Some(FileContent {
        digest,
        extents,
        pieces: None,
    })
}

fn is_gone(error: &std::io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::STALE)
}
