//! Makes an archive of a directory.

use super::ArchiveError;
use super::base::Base;
use super::frames::encoder_id;
use super::index::Summary;
use super::output::ArchiveOutput;
use super::pipeline::{self, Works};
use super::reader::Archive;
use super::shared_frames::SharedFrames;
use super::source::{ArchiveSource, Control, SourceCounts};
use crate::fs::root_dir::{Mounts, RootDir};
use crate::progress::Progress;
use crate::tree::walk::{WalkError, WalkReport, WalkSettings, walk_in_order};
use stasis_model::digest::{ArchiveDigest, TreeDigest};
use stasis_model::failure::AtPath;
use stasis_model::shared_range::SharedRanges;
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// The level that is worth its time for archives that are kept.
const LEVEL: i32 = 9;

/// How an archive is made.
#[derive(Clone, Debug)]
pub struct CreateSettings {
    /// How hard zstd tries: 1 to 19. Part of the encoder's identity.
    pub level: i32,
    /// An older archive whose frames are copied where the tar bytes are the same.
    pub base: Option<Arc<Archive>>,
    /// How many threads compress; each costs some 8 MiB.
    pub workers: NonZeroUsize,
    /// Whether other filesystems in the directory are archived too.
    pub mounts: Mounts,
    /// How the directory is walked.
    pub walk: WalkSettings,
    /// Where files and bytes are counted while they are read.
    pub progress: Arc<Progress>,
}

impl Default for CreateSettings {
    fn default() -> Self {
        Self {
            level: LEVEL,
            base: None,
            workers: super::usual_workers(),
            mounts: Mounts::default(),
            walk: WalkSettings::default(),
            progress: Arc::default(),
        }
    }
}

/// What became of an archive.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "what was left out is said only here"]
pub struct CreateReport {
    /// SHA-256 of the stored bytes.
    pub archive_sha256: ArchiveDigest,
    /// Which tree is in it.
    pub tree_digest: TreeDigest,
    /// What made the stored bytes of the tar bytes.
    pub encoder_id: String,
    /// Entries of any kind, the root among them.
    pub entries: u64,
    /// Regular files, each counted once.
    pub files: u64,
    /// Directories, the root among them.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Named pipes.
    pub fifos: u64,
    /// The length of all files, holes included.
    pub bytes: u64,
    /// The length of the tar.
    pub tar_bytes: u64,
    /// The length of the archive.
    pub stored_bytes: u64,
    /// Frames in it.
    pub frames: u64,
    /// Those of them that were copied from the base.
    pub frames_reused: u64,
    /// Their stored length.
    pub bytes_reused: u64,
    /// Which bytes of the archive the base has too, and where; empty without a base.
    pub shared: SharedRanges,
    /// Attributes that are not the user's: access lists, capabilities, labels.
    pub attributes_left_out: u64,
    /// What was met in the source, and left out.
    pub walk: WalkReport,
}

/// Archives the directory `source` as the file `target`, which is replaced when it is there.
pub fn create(
    source: &Path,
    target: &Path,
    settings: &CreateSettings,
) -> Result<CreateReport, ArchiveError> {
    let output = ArchiveOutput::create(target)?;
    Ok(write(source, output, settings)?.0)
}

/// Archives the directory `source` into a file in `spool` that has no name and is gone when it is closed.
pub fn create_nameless(
    source: &Path,
    spool: &Path,
    settings: &CreateSettings,
) -> Result<(CreateReport, File), ArchiveError> {
    let output = ArchiveOutput::nameless(spool)?;
    write(source, output, settings)
}

fn write(
    source: &Path,
    mut output: ArchiveOutput,
    settings: &CreateSettings,
) -> Result<(CreateReport, File), ArchiveError> {
    // Without a trailing slash, which would follow a symbolic link.
    let source = source.components();
    let source = source.as_path();
    let root = RootDir::open(source, settings.mounts);
    let root = root.at("open the directory", source)?;
    let encoder_id = encoder_id(settings.level);
    let base = settings.base.as_deref();
    let base = base.map(|base| Base::of(base, &encoder_id)).transpose()?;
    let control = Control {
        own: output.identities()?,
        cancel: settings.walk.cancel.clone(),
        progress: settings.progress.clone(),
    };
    let works = Works {
        workers: settings.workers,
        level: settings.level,
        base: base.as_ref(),
    };
    let ((walk, counts, tree_digest), stored) = pipeline::run(&works, &mut output, |feeder| {
        let mut source = ArchiveSource::new(feeder, &control);
        let walk = walk_in_order(&root, &mut source, &settings.walk)?;
        let (counts, tree_digest) = source.finish()?;
        Ok((walk, counts, tree_digest))
    })
    .map_err(cancelled)?;
    let read = ReadTree {
        walk,
        counts,
        tree_digest,
        encoder_id,
    };
    read.publish(stored, output)
}

/// One way to say that somebody wanted us to stop.
fn cancelled(error: ArchiveError) -> ArchiveError {
    match error {
        ArchiveError::Walk(WalkError::Cancelled) => ArchiveError::Cancelled,
        error => error,
    }
}

/// A tree that was read to its end.
struct ReadTree {
    walk: WalkReport,
    counts: SourceCounts,
    tree_digest: TreeDigest,
    encoder_id: String,
}

impl ReadTree {
    fn publish(
        self,
        stored: pipeline::StoredFrame,
        mut output: ArchiveOutput,
    ) -> Result<(CreateReport, File), ArchiveError> {
        let Self {
            walk,
            counts,
            tree_digest,
            encoder_id,
        } = self;
        let pipeline::StoredFrame {
            index,
            mut hasher,
            mut length,
            tar_bytes,
            frames_reused,
            bytes_reused,
            shared,
        } = stored;
        let frames = index.frames();
        let summary = Summary {
            encoder_id,
            tree_digest,
            entries: counts.entries,
            files: counts.files,
            bytes: counts.bytes,
        };
        let index = match index.finish(&summary) {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Err(ArchiveError::TooLarge);
            }
            index => index.at("write the index of", &output.path)?,
        };
        let written = output.file.write_all(&index);
        written.at("write", &output.path)?;
        hasher.update(&index);
        length += index.len() as u64;
        let file = output.publish()?;
        let report = CreateReport {
            archive_sha256: hasher.finish(),
            tree_digest,
            encoder_id: summary.encoder_id,
            entries: counts.entries,
            files: counts.files,
            directories: counts.directories,
            symlinks: counts.symlinks,
            hard_links: counts.hard_links,
            fifos: counts.fifos,
            bytes: counts.bytes,
            tar_bytes,
            stored_bytes: length,
            frames,
            frames_reused,
            bytes_reused,
            shared: shared.map(SharedFrames::finish).unwrap_or_default(),
            attributes_left_out: counts.attributes_left_out,
            walk,
        };
        Ok((report, file))
    }
}
