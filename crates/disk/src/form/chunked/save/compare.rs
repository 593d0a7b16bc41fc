//! A large file that was there before: only the pieces that changed are stored.

use super::large_file::{CutFile, LargeFile, Part};
use super::large_read::{LargeRead, WINDOW};
use super::stream::PieceStream;
use super::workers::{Offered, Tools};
use crate::form::chunked::{ChunkError, ChunkLook};
use stasis_model::protocol::gc::ChunkName;
use stasis_model::tree::blocks;
use stasis_model::tree::chunking::{PIECE, PIECES_CUT};
use stasis_model::tree::list::{Extent, FileContent};
use std::collections::HashSet;
use std::sync::Arc;

/// What a comparison came to.
pub(super) enum ComparedFile {
    Taken(CutFile),
    /// The file changed meanwhile.
    Moved,
    /// So much is new that it is better cut afresh.
    TooDifferent,
}

/// What a large file was when it was stored last.
pub(super) struct PreviousBlocks<'b> {
    pub(super) content: &'b FileContent,
    pub(super) size: u64,
    /// Of each of its blocks.
    pub(super) fingerprints: &'b [u8],
}

/// Changed pieces on their way into chunks.
#[derive(Default)]
struct Gathering {
    bundle: Vec<u8>,
    /// Parts that lie in the bundle.
    waiting: Vec<usize>,
}

impl<'a> LargeRead<'_, 'a> {
    /// Compares the file with the fingerprints of what it was.
    pub(super) fn compare(
        &self,
        was: &PreviousBlocks<'_>,
        tools: &mut Tools<'a>,
    ) -> Result<ComparedFile, ChunkError> {
        let content = was.content;
        let mut stream = PieceStream::new();
        let mut buffer = vec![0; WINDOW];
        let (mut at, end) = (0, self.opened.seen.size);
        while at < end {
            self.go_on()?;
            let wanted = usize::try_from((end - at).min(WINDOW as u64)).unwrap_or(WINDOW);
            let read = self.read_at(&mut buffer[..wanted], at)?;
            if read == 0 {
                return Ok(ComparedFile::Moved);
            }
            stream.update(&buffer[..read]);
            self.pool.count(0, read as u64);
            at += read as u64;
        }
        let (size, digest, fingerprints) = stream.finish();
        let Some(new) = fingerprints else {
            return Ok(ComparedFile::TooDifferent);
        };
        let count = blocks::count(size);
        let gone = self.gone(content)?;
        let stays = |extent: &Extent| match extent {
            Extent::Stored(slice) => !gone.contains(&slice.chunk.name),
            Extent::Hole(_) => true,
        };
        let is_kept = |number: &u64| {
            self.is_kept(was, &new, *number, size)
                && (gone.is_empty()
                    || content
                        .stretch(number * PIECE as u64, PIECE as u64)
                        .iter()
                        .all(stays))
        };
        let changed: Vec<u64> = (0..count).filter(|number| !is_kept(number)).collect();
        if changed.len() as u64 * 2 > count {
            return Ok(ComparedFile::TooDifferent);
        }
        let taken = CutFile {
            size,
            digest,
            fingerprints: Some(new),
            parts: Vec::new(),
            of: Arc::new(LargeFile::default()),
        };
        self.take_pieces(content, &changed, taken, tools)
    }

    /// The chunks of a file that are not there any more: pieces in them cannot stay.
    fn gone(&self, content: &FileContent) -> Result<HashSet<ChunkName>, ChunkError> {
        let names: HashSet<ChunkName> = content.slices().map(|slice| slice.chunk.name).collect();
        let mut gone = HashSet::new();
        for name in names {
            if !self.pool.holds(&name, ChunkLook::Exists)? {
                gone.insert(name);
            }
        }
        Ok(gone)
    }

    /// Whether a piece is what it was, and may stay where it is.
    fn is_kept(&self, was: &PreviousBlocks<'_>, new: &[u8], number: u64, size: u64) -> bool {
        let plan = self.pool.plan;
        let at = usize::try_from(number)
            .unwrap_or(usize::MAX)
            .saturating_mul(blocks::FINGERPRINT);
        let both = [was.fingerprints, new].map(|table| table.get(at..at + blocks::FINGERPRINT));
        let from = number * PIECE as u64;
        let stays = |extent: &Extent| !plan.lies_abandoned(extent);
        let is_whole = from + PIECE as u64 <= was.size || was.size == size;
        both[0].is_some()
            && both[0] == both[1]
            && is_whole
            && (plan.leaves_nothing() || was.content.stretch(from, PIECE as u64).iter().all(stays))
    }

    /// Reads the pieces that changed; the others stay where they are.
    fn take_pieces(
        &self,
        content: &FileContent,
        changed: &[u64],
        mut taken: CutFile,
        tools: &mut Tools<'a>,
    ) -> Result<ComparedFile, ChunkError> {
        let new = taken.fingerprints.take().unwrap_or_default();
        let (mut at, mut gathering) = (0_u64, Gathering::default());
        for number in changed {
            let start = number * PIECE as u64;
            let kept = content.stretch(at, start - at);
            taken.parts.extend(kept.into_iter().map(Part::Ready));
            let length = usize::try_from((taken.size - start).min(PIECE as u64)).unwrap_or(PIECE);
            let offset = gathering.bundle.len();
            gathering.bundle.resize(offset + length, 0);
            let piece = &mut gathering.bundle[offset..];
            let read = self.read_at(piece, start)?;
            let value = blocks::value(*number, piece);
            if read != length || !blocks::is_same(&new, *number, &value) {
                return Ok(ComparedFile::Moved);
            }
            gathering.waiting.push(taken.parts.len());
            taken.parts.push(Part::Fresh {
                number: usize::MAX,
                offset: u32::try_from(offset).expect("a bundle is no longer than a chunk"),
                length: u32::try_from(length).expect("a piece is short"),
            });
            at = start + length as u64;
            if gathering.bundle.len() as u64 >= PIECES_CUT {
                self.end_pieces(&mut taken, &mut gathering, tools)?;
            }
        }
        let kept = content.stretch(at, taken.size - at);
        taken.parts.extend(kept.into_iter().map(Part::Ready));
        self.end_pieces(&mut taken, &mut gathering, tools)?;
        taken.fingerprints = Some(new);
        Ok(ComparedFile::Taken(taken))
    }

    fn end_pieces(
        &self,
        taken: &mut CutFile,
        gathering: &mut Gathering,
        tools: &mut Tools<'a>,
    ) -> Result<(), ChunkError> {
        if gathering.bundle.is_empty() {
            return Ok(());
        }
        let encoded = taken.of.expect();
        for part in gathering.waiting.drain(..) {
            if let Part::Fresh { number, .. } = &mut taken.parts[part] {
                *number = encoded;
            }
        }
        let offered = Offered {
            bytes: std::mem::take(&mut gathering.bundle),
            number: encoded,
            of: taken.of.clone(),
        };
        self.pool.offer(offered, tools)
    }
}
