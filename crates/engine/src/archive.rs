//! A directory as one file, and back.

mod contents;

pub use contents::{Listed, Shown, Verified, cat, list, verify};

use crate::bridge;
use crate::clone::LeftOut;
use crate::error::Error;
use serde::Serialize;
use stasis_disk::archive::{
    self, Archive, CreateReport, CreateSettings, Limits, ReadSettings, UnpackSettings,
};
pub use stasis_disk::archive::{ArchiveError, Problem};
use stasis_disk::beneath::Mounts;
use stasis_disk::metadata::Rights;
use stasis_disk::progress::Progress;
use stasis_disk::restore::{Origin, Placed, Restored};
pub use stasis_disk::restore::{Placement, RestoreError};
use stasis_disk::walk::WalkSettings;
use stasis_model::digest::{ArchiveDigest, TreeDigest};
use stasis_model::time::Clock;
use stasis_model::tree::EntryPath;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What is archived, and how.
#[derive(Clone, Debug)]
pub struct CreateArchive {
    /// The directory.
    pub source: PathBuf,
    /// The file, which is replaced when it is there.
    pub target: PathBuf,
    /// How hard zstd tries: 1 to 19.
    pub level: i32,
    /// An older archive whose frames are copied where nothing changed.
    pub base: Option<PathBuf>,
    /// How many threads compress; all cores when nothing is said.
    pub threads: Option<NonZeroUsize>,
    /// Gitignore-style patterns of what is left out.
    pub excludes: Vec<String>,
    /// Whether anything that cannot be read, or changes meanwhile, is an error.
    pub strict: bool,
    /// Whether other filesystems in the source are archived too.
    pub across_filesystems: bool,
    /// Counts what is done.
    pub progress: Arc<Progress>,
    /// Set by anybody at any time to give up and leave nothing.
    pub cancel: Arc<AtomicBool>,
}

/// What became of an archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[must_use = "what was left out is said only here"]
pub struct Archived {
    /// Where it is.
    pub archive: String,
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
    /// Entries that a pattern excluded.
    pub excluded: u64,
    /// Attributes that are not the user's and were left out.
    pub attributes_left_out: u64,
    /// How many entries vanished while the source was read.
    pub vanished: u64,
    /// How many entries were left out, or are not to be trusted, for another reason.
    pub skipped: u64,
    /// The first thousand of either, by name.
    pub left_out: Vec<LeftOut>,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// Archives a directory; needs no store.
#[tracing::instrument(skip_all, err(level = "info"), fields(source = %command.source.display(), target = %command.target.display()))]
pub async fn create(command: CreateArchive, clock: &dyn Clock) -> Result<Archived, Error> {
    let started = clock.uptime();
    let archive = command.target.display().to_string();
    let report = bridge::blocking(move || {
        let settings = settings(&command);
        archive::create(&command.source, &command.target, &settings)
    });
    let report = report.await?;
    let elapsed_ms = millis(clock.uptime().saturating_sub(started));
    tracing::info!(
        files = report.files,
        bytes = report.stored_bytes,
        "archived"
    );
    Ok(told(report, archive, elapsed_ms))
}

fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

fn settings(command: &CreateArchive) -> CreateSettings {
    let usual = CreateSettings::default();
    CreateSettings {
        level: command.level,
        base: command.base.clone(),
        workers: command.threads.unwrap_or(usual.workers),
        mounts: if command.across_filesystems {
            Mounts::Cross
        } else {
            Mounts::Stay
        },
        walk: WalkSettings {
            strict: command.strict,
            excludes: command.excludes.clone(),
            cancel: command.cancel.clone(),
            ..WalkSettings::default()
        },
        progress: command.progress.clone(),
    }
}

fn told(report: CreateReport, archive: String, elapsed_ms: u64) -> Archived {
    let left_out = LeftOut::of(&report.walk);
    Archived {
        archive,
        archive_sha256: report.archive_sha256,
        tree_digest: report.tree_digest,
        encoder_id: report.encoder_id,
        entries: report.entries,
        files: report.files,
        directories: report.directories,
        symlinks: report.symlinks,
        hard_links: report.hard_links,
        fifos: report.fifos,
        bytes: report.bytes,
        tar_bytes: report.tar_bytes,
        stored_bytes: report.stored_bytes,
        frames: report.frames,
        frames_reused: report.frames_reused,
        bytes_reused: report.bytes_reused,
        excluded: report.walk.excluded,
        attributes_left_out: report.attributes_left_out,
        vanished: report.walk.vanished_count,
        skipped: report.walk.skipped_count,
        left_out,
        elapsed_ms,
    }
}

/// What every command that reads an archive needs.
#[derive(Clone, Debug)]
pub struct ReadArchive {
    /// The file.
    pub archive: PathBuf,
    /// More bytes in all files together are refused.
    pub largest: Option<u64>,
    /// How many threads decompress; all cores when nothing is said.
    pub threads: Option<NonZeroUsize>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
}

impl ReadArchive {
    fn settings(&self) -> ReadSettings {
        let usual = ReadSettings::default();
        ReadSettings {
            limits: Limits {
                bytes: self.largest.unwrap_or(usual.limits.bytes),
                ..usual.limits
            },
            workers: self.threads.unwrap_or(usual.workers),
            cancel: self.cancel.clone(),
        }
    }
}

/// Where the tree of an archive goes, and how.
#[derive(Clone, Debug)]
pub struct ExtractArchive {
    /// The archive.
    pub read: ReadArchive,
    /// The directory that the tree becomes.
    pub target: PathBuf,
    /// How it takes its place.
    pub placement: Placement,
    /// One entry, with what lies in it, instead of all.
    pub only: Option<EntryPath>,
    /// Whether owners, setuid and setgid are given, if we may.
    pub owners: bool,
    /// Counts what is done.
    pub progress: Arc<Progress>,
}

/// What became of a tree that was in an archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[must_use = "what was withheld and what was kept is said only here"]
pub struct Extracted {
    /// Where the tree is.
    pub target: String,
    /// How it took its place: `new`, `replaced` or `in_place`.
    pub placed: &'static str,
    /// Where the tree that was there before is kept.
    pub kept: Option<String>,
    /// Regular files, each counted once.
    pub files: u64,
    /// Directories, without the root.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Named pipes.
    pub fifos: u64,
    /// The length of all files, holes included.
    pub bytes: u64,
    /// Entries that have another owner or group than in the archive.
    pub owners_not_kept: u64,
    /// Entries without the setuid or setgid that they have in the archive.
    pub privileges_not_kept: u64,
    /// Attributes that the filesystem does not take.
    pub attributes_not_kept: u64,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// Makes a directory of an archive: whole, or not at all.
#[tracing::instrument(skip_all, err(level = "info"), fields(archive = %command.read.archive.display(), target = %command.target.display()))]
pub async fn extract(command: ExtractArchive, clock: &dyn Clock) -> Result<Extracted, Error> {
    let started = clock.uptime();
    let target = command.target.display().to_string();
    let origin = Origin {
        at: clock.now(),
        from: command.read.archive.display().to_string(),
    };
    let restored = bridge::blocking(move || {
        let archive = Archive::open(&command.read.archive)?;
        let settings = UnpackSettings {
            placement: command.placement,
            only: command.only,
            rights: if command.owners {
                Rights::of_this_process()
            } else {
                Rights::Own
            },
            read: command.read.settings(),
            progress: command.progress,
        };
        archive::unpack(&archive, &command.target, &settings, &origin)
    });
    let Restored { written, placed } = restored.await?;
    let elapsed_ms = millis(clock.uptime().saturating_sub(started));
    tracing::info!(files = written.files, bytes = written.bytes, "extracted");
    let (placed, kept) = match placed {
        Placed::New => ("new", None),
        Placed::Replaced { kept } => ("replaced", Some(kept.display().to_string())),
        Placed::InPlace(_) => ("in_place", None),
    };
    Ok(Extracted {
        target,
        placed,
        kept,
        files: written.files,
        directories: written.directories,
        symlinks: written.symlinks,
        hard_links: written.hard_links,
        fifos: written.fifos,
        bytes: written.bytes,
        owners_not_kept: written.owners_not_kept,
        privileges_not_kept: written.privileges_not_kept,
        attributes_not_kept: written.attributes_not_kept,
        elapsed_ms,
    })
}
