//! The index: which frames an archive has, and where entries begin.
//!
//! It is the last thing in the file, in a skippable frame that every zstd passes over:
//!
//! ```text
//! frame*  skippable   skippable = magic:4 length:4 body footer      (the length counts body and footer)
//! body    = zstd of: version:varint encoder:bytes tree digest:32 entries files bytes frames (varints), then per frame
//!           stored length, tar length (varints), digest of the tar bytes:16, digest of the stored bytes:8,
//!           0 | 1 + offset of the first entry that begins in it (varint), how many bytes its path shares with the one
//!           before, how many follow (varints), those
//! footer  = body length as stored:4 and as decompressed:4, BLAKE3 of the stored body:32, `STASIS\x00\x01`:8
//! ```
//!
//! *Always true of an index that was read:* the frames tile the file from its first byte to the skippable frame, none
//! is empty or larger than a frame may be, and names are sorted. The names only say where to look: what an entry is
//! called is said by its header.

use super::Problem;
use super::frames::{FrameDigest, LARGEST, Start, StoredDigest};
use stasis_model::digest::TreeDigest;
use stasis_model::tree::EntryPath;
use stasis_model::varint::{self, ByteReader};
use std::io;

/// One of the sixteen magic numbers of skippable frames.
const SKIPPABLE: u32 = 0x184D_2A57;
const VERSION: u64 = 1;
const MAGIC: &[u8; 8] = b"STASIS\x00\x01";
pub(super) const FOOTER: usize = 48;
/// Magic and length of the skippable frame.
pub(super) const HEAD: usize = 8;
/// No index is larger, stored or decompressed: some two million frames, which are half a tebibyte of tar.
pub(super) const LARGEST_INDEX: usize = 80 << 20;
/// The index is not worth more than this.
const LEVEL: i32 = 9;
const LONGEST_ENCODER: usize = 200;

/// One frame as the index knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) stored: u32,
    pub(super) tar: u32,
    pub(super) digest: FrameDigest,
    pub(super) stored_digest: StoredDigest,
    pub(super) start: Start,
}

/// What the whole archive holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// What made the stored bytes of the tar bytes.
    pub encoder_id: String,
    /// Which tree it is.
    pub tree_digest: TreeDigest,
    /// How many entries, the root among them.
    pub entries: u64,
    /// How many regular files.
    pub files: u64,
    /// The length of all files, holes included.
    pub bytes: u64,
}

/// An index that grows while frames are written.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexWriter {
    body: Vec<u8>,
    frames: u64,
    last: Vec<u8>,
}

/// How far an index has grown.
#[derive(Clone, Debug)]
pub(super) struct IndexMark(usize, u64, Vec<u8>);

impl IndexWriter {
    pub(super) fn add(&mut self, frame: &Frame) {
        varint::put(&mut self.body, frame.stored.into());
        varint::put(&mut self.body, frame.tar.into());
        self.body.extend_from_slice(&frame.digest);
        self.body.extend_from_slice(&frame.stored_digest);
        match &frame.start {
            None => varint::put(&mut self.body, 0),
            Some((offset, path)) => {
                let path = path.as_bytes();
                let shared = path.iter().zip(&self.last).take_while(|(a, b)| a == b);
                let shared = shared.count();
                varint::put(&mut self.body, u64::from(*offset) + 1);
                varint::put(&mut self.body, shared as u64);
                varint::put(&mut self.body, (path.len() - shared) as u64);
                self.body.extend_from_slice(&path[shared..]);
                self.last = path.to_vec();
            }
        }
        self.frames += 1;
    }

    /// How many frames there are.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Whether an index with what is in it can be written.
    pub(super) fn fits(&self) -> bool {
        self.body.len() < LARGEST_INDEX - 4096
    }

    pub(super) fn mark(&self) -> IndexMark {
        IndexMark(self.body.len(), self.frames, self.last.clone())
    }

    pub(super) fn return_to(&mut self, mark: IndexMark) {
        let IndexMark(length, frames, last) = mark;
        self.body.truncate(length);
        (self.frames, self.last) = (frames, last);
    }

    /// The skippable frame that ends the file.
    pub(super) fn finish(self, summary: &Summary) -> io::Result<Vec<u8>> {
        let mut body = Vec::with_capacity(self.body.len() + 256);
        varint::put(&mut body, VERSION);
        varint::put(&mut body, summary.encoder_id.len() as u64);
        body.extend_from_slice(summary.encoder_id.as_bytes());
        body.extend_from_slice(summary.tree_digest.as_bytes());
        for number in [summary.entries, summary.files, summary.bytes, self.frames] {
            varint::put(&mut body, number);
        }
        body.extend_from_slice(&self.body);
        drop(self);
        let stored = zstd::bulk::compress(&body, LEVEL)?;
        let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
        let number = |length: usize| u32::try_from(length).map_err(|_| too_large());
        if body.len().max(stored.len()) > LARGEST_INDEX {
            return Err(too_large());
        }
        let mut frame = Vec::with_capacity(HEAD + stored.len() + FOOTER);
        frame.extend_from_slice(&SKIPPABLE.to_le_bytes());
        frame.extend_from_slice(&number(stored.len() + FOOTER)?.to_le_bytes());
        frame.extend_from_slice(&stored);
        frame.extend_from_slice(&number(stored.len())?.to_le_bytes());
        frame.extend_from_slice(&number(body.len())?.to_le_bytes());
        frame.extend_from_slice(blake3::hash(&stored).as_bytes());
        frame.extend_from_slice(MAGIC);
        Ok(frame)
    }
}

/// Reads a number of at most `most`.
pub(super) fn bounded(body: &mut ByteReader<'_>, most: usize) -> Result<usize, Problem> {
    let length = usize::try_from(body.varint()?).ok();
    length
        .filter(|length| *length <= most)
        .ok_or(Problem::Index("a length is too large"))
}

/// The end of a file that is an archive of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IndexFooter {
    /// How long the body is as stored.
    pub(super) stored: usize,
    length: usize,
    digest: [u8; 32],
}

impl IndexFooter {
    /// Reads the last bytes of a file; `None` when it has no index.
    pub(super) fn read(bytes: &[u8; FOOTER]) -> Result<Option<Self>, Problem> {
        if &bytes[40..] != MAGIC {
            return Ok(None);
        }
        let number = |at: usize| {
            let bytes = bytes[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes) as usize
        };
        let footer = Self {
            stored: number(0),
            length: number(4),
            digest: bytes[8..40].try_into().expect("32 bytes"),
        };
        if footer.stored.max(footer.length) > LARGEST_INDEX {
            return Err(Problem::Index("it is too large"));
        }
        Ok(Some(footer))
    }

    /// Reads the index: `bytes` is the skippable frame without its footer, `before` what comes before it in the file.
    pub(super) fn index(&self, bytes: &[u8], before: u64) -> Result<Index, Problem> {
        let (head, stored) = bytes.split_at_checked(HEAD).ok_or(Problem::Truncated)?;
        let length = u32::try_from(stored.len() + FOOTER).unwrap_or_default();
        if head[..4] != SKIPPABLE.to_le_bytes() || head[4..] != length.to_le_bytes() {
            return Err(Problem::Index("it does not begin where its end says"));
        }
        if *blake3::hash(stored).as_bytes() != self.digest {
            return Err(Problem::Index("its digest is wrong"));
        }
        let damaged = |_| Problem::Index("its bytes are damaged");
        let content = zstd::zstd_safe::get_frame_content_size(stored);
        if content.ok().flatten() != Some(self.length as u64) {
            return Err(Problem::Index("it is longer or shorter than its end says"));
        }
        let body = zstd::bulk::decompress(stored, self.length).map_err(damaged)?;
        Index::parse(&body, before)
    }
}

/// An index that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Index {
    pub(super) summary: Summary,
    pub(super) frames: Vec<Frame>,
}

impl Index {
    /// Reads a decompressed index of frames that fill the first `before` bytes of a file.
    pub(super) fn parse(body: &[u8], before: u64) -> Result<Self, Problem> {
        let mut body = ByteReader::new(body);
        if body.varint()? != VERSION {
            return Err(Problem::Index("its version is not known"));
        }
        let length = bounded(&mut body, LONGEST_ENCODER)?;
        let encoder_id = String::from_utf8(body.take(length)?.to_vec());
        let encoder_id = encoder_id.map_err(|_| Problem::Index("its encoder is no text"))?;
        let tree_digest = TreeDigest::from_document(body.array()?);
        let (entries, files, bytes) = (body.varint()?, body.varint()?, body.varint()?);
        let count = body.varint()?;
        let mut frames = Vec::new();
        let (mut end, mut last) = (0_u64, Vec::new());
        for _ in 0..count {
            let frame = Self::frame(&mut body, &mut last)?;
            end += u64::from(frame.stored);
            frames.push(frame);
        }
        if !body.is_empty() {
            return Err(Problem::Index("something follows its last frame"));
        }
        if end != before || frames.is_empty() {
            return Err(Problem::Index("its frames do not fill the file"));
        }
        let is_first = frames[0].start.as_ref().is_some_and(|(at, _)| *at == 0);
        if !is_first {
            return Err(Problem::Index("no entry begins the archive"));
        }
        let summary = Summary {
            encoder_id,
            tree_digest,
            entries,
            files,
            bytes,
        };
        Ok(Self { summary, frames })
    }

    fn frame(body: &mut ByteReader<'_>, last: &mut Vec<u8>) -> Result<Frame, Problem> {
        let (stored, tar) = (bounded(body, 2 * LARGEST)?, bounded(body, LARGEST)?);
        if stored == 0 || tar == 0 {
            return Err(Problem::Index("a frame is empty"));
        }
        let (digest, stored_digest) = (body.array()?, body.array()?);
        let start = match bounded(body, tar)? {
            0 => None,
            offset => {
                let shared = bounded(body, last.len())?;
                let remaining = body.remaining();
                let rest = bounded(body, remaining)?;
                let mut path = last[..shared].to_vec();
                path.extend_from_slice(body.take(rest)?);
                let entry = EntryPath::parse(&path)?;
                let before = EntryPath::parse(last)?;
                if !last.is_empty() && entry <= before {
                    return Err(Problem::Index("its names are not sorted"));
                }
                *last = path;
                Some((u32::try_from(offset - 1).expect("less than a frame"), entry))
            }
        };
        Ok(Frame {
            stored: u32::try_from(stored).expect("less than two frames"),
            tar: u32::try_from(tar).expect("less than a frame"),
            digest,
            stored_digest,
            start,
        })
    }

    /// Where each frame begins in the file.
    pub(super) fn offsets(&self) -> impl Iterator<Item = u64> {
        let lengths = self.frames.iter().map(|frame| u64::from(frame.stored));
        lengths.scan(0, |at, length| {
            let here = *at;
            *at += length;
            Some(here)
        })
    }

    /// The last frame in which an entry begins that comes before `path` or is called so.
    pub(super) fn frame_of(&self, path: &EntryPath) -> Option<usize> {
        // Frames in which nothing begins have no name, so that the named ones must be found among them.
        let (mut low, mut high, mut found) = (0, self.frames.len(), None);
        while low < high {
            let middle = usize::midpoint(low, high);
            let named = (middle..high).find(|at| self.frames[*at].start.is_some());
            match named.map(|at| (at, self.frames[at].start.as_ref())) {
                Some((at, Some((_, first)))) if first <= path => (found, low) = (Some(at), at + 1),
                _ => high = middle,
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
