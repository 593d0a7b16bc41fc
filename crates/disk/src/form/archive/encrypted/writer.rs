//! Encrypts an archive.

use super::super::framed::Framed;
use super::super::index;
use super::super::output::ArchiveOutput;
use super::super::reader::{Archive, OpenedArchive};
use super::super::shared_frames::SharedFrames;
use super::super::verify::digest;
use super::super::workers::{self, FrameTask, FrameWorkers};
use super::super::{ArchiveContext, ArchiveError, Problem};
use super::frame_table::{Behind, Closing, FrameTable};
use super::layout::{EncryptedFooter, EncryptedFrames};
use super::view::EncryptedArchive;
use crate::crypt::{DataKey, Kind, Pieces};
use stasis_model::digest::ArchiveDigest;
use stasis_model::failure::AtPath;
use stasis_model::shared_range::SharedRanges;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How an archive is encrypted.
#[derive(Clone, Debug)]
pub struct EncryptSettings {
    /// How many threads encrypt; each costs a frame, which is 2 MiB at most.
    pub workers: NonZeroUsize,
    /// Set by anybody at any time to end it soon.
    pub cancel: Arc<AtomicBool>,
    /// An older archive under the same data key, to be compared with.
    pub base: Option<Arc<EncryptedArchive>>,
}

impl Default for EncryptSettings {
    fn default() -> Self {
        Self {
            workers: super::super::usual_workers(),
            cancel: Arc::default(),
            base: None,
        }
    }
}

/// What became of an archive that was encrypted.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "the digest is what the encrypted archive is called"]
pub struct EncryptReport {
    /// SHA-256 of the encrypted bytes.
    pub archive_sha256: ArchiveDigest,
    /// How many they are.
    pub stored_bytes: u64,
    /// How many there were before.
    pub plain_bytes: u64,
    /// Frames in it.
    pub frames: u64,
    /// Which encrypted bytes the base has too, and where; empty without a base.
    pub shared: SharedRanges,
}

/// Encrypts `plain`, which has an index, as the file `target`, which is replaced when it is there.
pub fn encrypt(
    plain: &Archive,
    key: &DataKey,
    target: &Path,
    settings: &EncryptSettings,
) -> Result<EncryptReport, ArchiveError> {
    let output = ArchiveOutput::create(target)?;
    Ok(write(plain, key, output, settings)?.0)
}

/// Encrypts `plain`, which has an index, into a file in `spool` that has no name and is gone when it is closed.
pub fn encrypt_nameless(
    plain: &Archive,
    key: &DataKey,
    spool: &Path,
    settings: &EncryptSettings,
) -> Result<(EncryptReport, File), ArchiveError> {
    let output = ArchiveOutput::nameless(spool)?;
    write(plain, key, output, settings)
}

fn write(
    plain: &Archive,
    key: &DataKey,
    output: ArchiveOutput,
    settings: &EncryptSettings,
) -> Result<(EncryptReport, File), ArchiveError> {
    let plain = match &plain.0 {
        OpenedArchive::Framed(framed) => framed,
        OpenedArchive::Plain(plain) => return Err(ArchiveError::NotFramed(plain.path.clone())),
    };
    let encryption = Encryption {
        plain,
        pieces: key.pieces(),
        output: &output,
        frame_table: FrameTable::new(plain.index.frames.iter().map(|frame| frame.stored)),
    };
    let (plain_bytes, (archive_sha256, stored_bytes)) = encryption.run(settings)?;
    let base = settings.base.as_deref();
    let shared = base.map(|base| encryption.shared_with(base));
    let shared = shared.unwrap_or_default();
    let file = output.publish()?;
    let report = EncryptReport {
        archive_sha256,
        stored_bytes,
        plain_bytes,
        frames: plain.index.frames.len() as u64,
        shared,
    };
    Ok((report, file))
}

/// An archive on its way from one file to the other.
struct Encryption<'a> {
    plain: &'a Framed,
    pieces: Pieces,
    output: &'a ArchiveOutput,
    frame_table: FrameTable,
}

struct EncryptFrame<'a> {
    encryption: &'a Encryption<'a>,
    frame: usize,
}

impl FrameTask for EncryptFrame<'_> {
    fn perform(self) -> Result<(), ArchiveError> {
        let mut piece = self.encryption.plain.stored(self.frame)?;
        let id = self.encryption.pieces.close(Kind::Frame, None, &mut piece);
        let at = self.encryption.frame_table.start(self.frame);
        self.encryption.put(&piece, at)?;
        self.encryption.frame_table.note(self.frame, id);
        Ok(())
    }
}

impl Encryption<'_> {
    /// Encrypts everything, and digests it behind those who write; says how long the archive was.
    fn run(&self, settings: &EncryptSettings) -> Result<(u64, (ArchiveDigest, u64)), ArchiveError> {
        let ArchiveOutput { file, path, .. } = self.output;
        let workers = FrameWorkers::new(settings.workers, settings.cancel.clone());
        std::thread::scope(|scope| {
            let follower = scope.spawn(|| {
                let behind = Behind(file, &self.frame_table);
                digest(&behind, path, &settings.cancel)
            });
            let closing = Closing(&self.frame_table);
            let mut frames = 0..self.plain.index.frames.len();
            workers::perform(&workers, || {
                let encryption = self;
                Ok(frames
                    .next()
                    .map(|frame| EncryptFrame { encryption, frame }))
            })?;
            let plain_bytes = self.finish()?;
            drop(closing);
            let digested = follower.join();
            let digested = digested.unwrap_or_else(|gone| std::panic::resume_unwind(gone))?;
            Ok((plain_bytes, digested))
        })
    }

    /// What the older archive has too: a frame of one id has the same encrypted bytes wherever it lies.
    fn shared_with(&self, base: &EncryptedArchive) -> SharedRanges {
        let older = (0..base.frames()).map(|frame| (base.id(frame), base.stored_range(frame).1));
        let mut shared = SharedFrames::with(older);
        for (frame, id) in self.frame_table.ids().iter().enumerate() {
            shared.add(id, self.frame_table.length(frame));
        }
        shared.finish()
    }

    fn put(&self, bytes: &[u8], at: u64) -> Result<(), ArchiveError> {
        let written = self.output.file.write_all_at(bytes, at);
        Ok(written.at("write", &self.output.path)?)
    }

    /// Appends the index and the footer; says how long the archive was.
    fn finish(&self) -> Result<u64, ArchiveError> {
        let tail = self.tail()?;
        let frames = self.plain.index.frames.iter();
        let lengths = frames.map(|frame| frame.stored);
        let table = EncryptedFrames::new(lengths.zip(self.frame_table.ids()));
        let mut index = table.spell(&tail).ok_or(ArchiveError::TooLarge)?;
        let id = self.pieces.close(Kind::Index, None, &mut index);
        let stored = index.len();
        index.extend_from_slice(&EncryptedFooter { id, stored }.spell());
        self.put(&index, table.stored_end())?;
        self.frame_table
            .finish(table.stored_end() + index.len() as u64);
        Ok(table.end() + tail.len() as u64)
    }

    /// What follows the frames in the archive, and still is what was read when it was opened.
    fn tail(&self) -> Result<Vec<u8>, ArchiveError> {
        let path = &self.plain.path;
        let start = self.plain.index.frames.iter();
        let start: u64 = start.map(|frame| u64::from(frame.stored)).sum();
        let length = self.plain.bytes.length().of_archive(path)?;
        let length = usize::try_from(length.saturating_sub(start)).unwrap_or(usize::MAX);
        if length > index::LARGEST_INDEX + index::HEAD + index::FOOTER {
            return Err(Problem::Trailing).of_archive(path);
        }
        let mut tail = vec![0; length];
        let read = self.plain.bytes.read_exact_at(&mut tail, start);
        read.of_archive(path)?;
        let parts = tail.split_last_chunk().ok_or(Problem::Truncated);
        let (body, footer) = parts.of_archive(path)?;
        let footer = index::IndexFooter::read(footer).of_archive(path)?;
        let footer = footer.ok_or(Problem::Truncated).of_archive(path)?;
        if footer.index(body, start).of_archive(path)? != self.plain.index {
            return Err(Problem::Index("it changed while it was read")).of_archive(path);
        }
        Ok(tail)
    }
}
