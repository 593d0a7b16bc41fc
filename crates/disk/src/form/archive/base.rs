//! An older archive, whose frames are used again.

use super::ArchiveError;
use super::framed::Framed;
use super::frames::{FrameDigest, StoredDigest};
use super::index::Frame;
use super::reader::{Archive, OpenedArchive};
use super::shared_frames::SharedFrames;
use std::collections::HashMap;

/// What a stored frame is known by: its length and digest before it was compressed, and after.
pub(super) type FrameId = (FrameDigest, u32, StoredDigest);

pub(super) fn frame_id(frame: &Frame) -> FrameId {
    (frame.digest, frame.tar, frame.stored_digest)
}

/// The frames of an archive by what they hold.
#[derive(Debug)]
pub(super) struct Base<'a> {
    archive: &'a Framed,
    frames: HashMap<(FrameDigest, u32), u32>,
}

impl<'a> Base<'a> {
    /// Takes an archive; one that another encoder wrote has no frames to offer.
    pub(super) fn of(archive: &'a Archive, encoder_id: &str) -> Result<Self, ArchiveError> {
        let archive = match &archive.0 {
            OpenedArchive::Framed(framed) => framed,
            OpenedArchive::Plain(plain) => return Err(ArchiveError::NotFramed(plain.path.clone())),
        };
        let mut frames = HashMap::new();
        if archive.index.summary.encoder_id == encoder_id {
            for (at, frame) in archive.index.frames.iter().enumerate() {
                let at = u32::try_from(at).expect("an index has a few million frames at most");
                frames.insert((frame.digest, frame.tar), at);
            }
        }
        Ok(Self { archive, frames })
    }

    /// To be compared with the frames of the new archive.
    pub(super) fn shared_frames(&self) -> SharedFrames<FrameId> {
        let frames = self.archive.index.frames.iter();
        SharedFrames::with(frames.map(|frame| (frame_id(frame), u64::from(frame.stored))))
    }

    /// The stored form of tar bytes with this digest and length, if the archive has it undamaged.
    pub(super) fn find(
        &self,
        digest: FrameDigest,
        length: usize,
    ) -> Option<(Vec<u8>, StoredDigest)> {
        let length = u32::try_from(length).ok()?;
        let frame = *self.frames.get(&(digest, length))? as usize;
        let stored = self.archive.stored(frame).ok()?;
        Some((stored, self.archive.index.frames[frame].stored_digest))
    }
}
