//! Where the tar is cut into frames, and how one frame is stored.
//!
//! A cut depends on nothing but what is near it, so that a change moves no cut far away:
//!
//! - before an entry, once a frame has [`LEAST`] bytes, when the hash of the entry's name says so: the more bytes the
//!   entry has, the likelier. On average a frame of small entries has [`PIECE`] bytes; at [`MOST`] it is cut anyway.
//! - before the content of a file larger than [`PIECE`], and in it at multiples of [`PIECE`] of its own offset. What is
//!   left of it shares a frame with what follows.
//! - anywhere at [`LARGEST`], which only huge attributes reach.
//!
//! The headers of a large file, which change with its time, are never in a frame with its first bytes.

use super::Problem;
use stasis_model::tree::EntryPath;
use std::io;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{self, CParameter};

/// What a frame holds on average, and what is cut out of large files.
pub(super) const PIECE: usize = 1 << 20;
/// A frame of small entries has at least this much.
const LEAST: usize = PIECE / 2;
/// A frame of small entries that has this much is cut before the next entry.
const MOST: usize = 2 * PIECE;
/// No frame holds more.
pub(super) const LARGEST: usize = 4 << 20;

/// So much of a BLAKE3 digest is kept of a frame's tar bytes.
pub(super) type FrameDigest = [u8; 16];
/// So much of it is kept of a frame's stored bytes: enough to notice a decayed disk.
pub(super) type StoredDigest = [u8; 8];

/// The digest by which a frame is recognized.
pub(super) fn frame_digest(tar: &[u8]) -> FrameDigest {
    first_bytes(tar)
}

/// The digest by which a stored frame is checked before it is copied.
pub(super) fn stored_digest(stored: &[u8]) -> StoredDigest {
    first_bytes(stored)
}

fn first_bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let digest = blake3::hash(bytes);
    let first = digest.as_bytes().first_chunk();
    *first.expect("a digest has 32 bytes")
}

/// Everything that decides how the same tar becomes stored bytes.
pub fn encoder_id(level: i32) -> String {
    let zstd = zstd_safe::version_string();
    let effort = effort(level);
    format!("stasis-archive-1 zstd-{zstd} level-{level}-as-{effort} piece-{PIECE}")
}

/// The level of zstd that makes frames for a level which means a long stream.
///
/// What levels 8 and 9 add to level 7 is half a percent of the bytes of such short inputs, for a third more time.
fn effort(level: i32) -> i32 {
    match level {
        ..=7 => level,
        8 => 7,
        _ => level - 2,
    }
}

/// The bytes of one frame.
#[derive(Debug)]
pub(super) enum Tar {
    Bytes(Vec<u8>),
    /// A [`PIECE`] of zeros.
    Zeros,
}

impl Tar {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Zeros => zeros(),
        }
    }
}

/// Where in a frame its first entry begins, and which that is.
pub(super) type Start = Option<(u32, EntryPath)>;

/// Gathers tar bytes and cuts them; frames come out of its methods as soon as they are complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Framer {
    bytes: Vec<u8>,
    start: Start,
}

/// Somebody who takes frames.
pub(super) trait FrameSink {
    type Error;
    fn frame(&mut self, tar: Tar, start: Start) -> Result<(), Self::Error>;
}

impl Framer {
    /// Begins an entry of `length` bytes with its headers; of a larger file than [`PIECE`] only the headers count.
    pub(super) fn entry<S: FrameSink>(
        &mut self,
        path: &EntryPath,
        length: u64,
        sink: &mut S,
    ) -> Result<(), S::Error> {
        let has = self.bytes.len();
        if has >= MOST || (has >= LEAST && is_a_cut(path, length)) {
            self.cut(sink)?;
        }
        if self.start.is_none() {
            let at = u32::try_from(self.bytes.len()).expect("frames are small");
            self.start = Some((at, path.clone()));
        }
        Ok(())
    }

    /// Appends bytes of headers, contents and padding.
    pub(super) fn push<S: FrameSink>(
        &mut self,
        mut bytes: &[u8],
        sink: &mut S,
    ) -> Result<(), S::Error> {
        while self.bytes.len() + bytes.len() > LARGEST {
            let (now, later) = bytes.split_at(LARGEST - self.bytes.len());
            self.bytes.extend_from_slice(now);
            self.cut(sink)?;
            bytes = later;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends one whole piece of zeros; only right after a cut.
    pub(super) fn zeros<S: FrameSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        debug_assert!(self.bytes.is_empty(), "pieces begin with a cut");
        sink.frame(Tar::Zeros, None)
    }

    /// Ends the frame here, if it holds anything.
    pub(super) fn cut<S: FrameSink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::replace(&mut self.bytes, Vec::with_capacity(MOST));
        sink.frame(Tar::Bytes(bytes), self.start.take())
    }
}

/// Whether a name is one before which frames are cut; likelier for larger entries.
fn is_a_cut(path: &EntryPath, length: u64) -> bool {
    let hash = u64::from(u32::from_le_bytes(first_bytes(path.as_bytes())));
    let span = (PIECE - LEAST) as u64;
    hash * span < length.min(span) << 32
}

/// Compresses frames, always in the same way.
pub(super) struct FrameEncoder(Compressor<'static>);

impl FrameEncoder {
    pub(super) fn new(level: i32) -> io::Result<Self> {
        let mut compressor = Compressor::new(effort(level))?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        Ok(Self(compressor))
    }

    pub(super) fn encode(&mut self, tar: &[u8]) -> io::Result<Vec<u8>> {
        self.0.compress(tar)
    }
}

/// Decompresses frames, and trusts nothing that they say of themselves.
pub(super) struct Opener(Decompressor<'static>);

impl Opener {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Decompressor::new()?))
    }

    /// Makes `tar` the `length` bytes of the one frame that `stored` is; says what is wrong with it.
    pub(super) fn open(
        &mut self,
        stored: &[u8],
        length: usize,
        tar: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        if !stored.starts_with(&zstd_safe::MAGICNUMBER.to_le_bytes()) {
            return Err("it is no frame");
        }
        if zstd_safe::find_frame_compressed_size(stored) != Ok(stored.len()) {
            return Err("it does not end where the index says");
        }
        let content = zstd_safe::get_frame_content_size(stored).ok().flatten();
        if content != Some(length as u64) || length > LARGEST {
            return Err("it holds more or less than the index says");
        }
        tar.clear();
        tar.reserve_exact(length);
        match self.0.decompress_to_buffer(stored, tar) {
            Ok(got) if got == length => Ok(()),
            _ => Err("its bytes are damaged"),
        }
    }
}

/// A whole number of pieces of zeros in a row is cheap: one stored frame serves for all of them.
pub(super) fn zeros() -> &'static [u8] {
    static ZEROS: [u8; PIECE] = [0; PIECE];
    &ZEROS
}

/// A frame that is not what the index says.
pub(super) fn damaged(frame: usize, at: u64, what: &'static str) -> Problem {
    Problem::Frame { frame, at, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Frames(Vec<(usize, Start)>);

    impl FrameSink for Frames {
        type Error = std::convert::Infallible;

        fn frame(&mut self, tar: Tar, start: Start) -> Result<(), Self::Error> {
            self.0.push((tar.bytes().len(), start));
            Ok(())
        }
    }

    /// Frames of many entries of the same length.
    fn cut(entries: impl Iterator<Item = usize>, length: usize) -> Frames {
        let (mut framer, mut sink) = (Framer::default(), Frames::default());
        let bytes = vec![0; length];
        for entry in entries {
            let path = EntryPath::parse(format!("entry-{entry:06}").as_bytes()).unwrap();
            let Ok(()) = framer.entry(&path, length as u64, &mut sink);
            let Ok(()) = framer.push(&bytes, &mut sink);
        }
        let Ok(()) = framer.cut(&mut sink);
        sink
    }

    #[test]
    fn frames_of_small_entries_have_about_the_length_of_a_piece() {
        for length in [1024, 4096, 30_000, 100_000] {
            let frames = cut(0..60_000_000 / length, length).0;
            let frames = &frames[..frames.len() - 1];
            let average = frames.iter().map(|(length, _)| length).sum::<usize>() / frames.len();
            let is_near = (PIECE * 3 / 5..PIECE * 6 / 5).contains(&average);
            assert!(is_near, "{length}: {average}");
            assert!(
                frames
                    .iter()
                    .all(|(length, _)| (LEAST..=MOST + 100_000).contains(length))
            );
        }
    }

    #[test]
    fn an_inserted_entry_moves_no_cut_far_away() {
        let before = cut(0..20_000, 4096).0;
        let after = cut((0..7000).chain([999_999]).chain(7000..20_000), 4096).0;

        let starts = |frames: &[(usize, Start)]| -> Vec<EntryPath> {
            let starts = frames.iter().filter_map(|(_, start)| start.clone());
            starts.map(|(_, path)| path).collect()
        };
        let (before, after) = (starts(&before), starts(&after));
        let moved = after.iter().filter(|path| !before.contains(path)).count();
        assert!(moved <= 2, "{moved} of {} cuts moved", after.len());
    }

    #[test]
    fn nothing_is_larger_than_a_frame_may_be() {
        let (mut framer, mut sink) = (Framer::default(), Frames::default());

        let Ok(()) = framer.push(&vec![1; 5 * LARGEST / 2], &mut sink);
        let Ok(()) = framer.cut(&mut sink);

        let lengths: Vec<usize> = sink.0.iter().map(|(length, _)| *length).collect();
        assert_eq!(lengths, [LARGEST, LARGEST, LARGEST / 2]);
    }

    #[test]
    fn an_encoded_frame_opens_to_the_same_bytes_and_to_no_other_length() {
        let (mut encoder, mut opener) = (FrameEncoder::new(9).unwrap(), Opener::new().unwrap());
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let (first, again) = (
            encoder.encode(&bytes).unwrap(),
            encoder.encode(&bytes).unwrap(),
        );
        assert_eq!(first, again, "a compressor has no memory");
        let mut tar = Vec::new();

        opener.open(&first, bytes.len(), &mut tar).unwrap();

        assert_eq!(tar, bytes);
        assert!(opener.open(&first, bytes.len() - 1, &mut tar).is_err());
        assert!(opener.open(&first[1..], bytes.len(), &mut tar).is_err());
        assert!(
            opener
                .open(&[&*first, &*first].concat(), bytes.len(), &mut tar)
                .is_err()
        );
    }
}
