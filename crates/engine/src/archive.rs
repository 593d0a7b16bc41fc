//! A directory as one file, and back.

mod contents;
mod extract;
mod place;
pub(crate) mod remote;

pub use contents::{ListedArchive, Shown, VerifiedArchive, cat, list, verify};
pub use extract::{ExtractArchive, Extracted, extract};
pub use place::{ArchiveAddress, ArchivePlace};

use crate::bridge;
use crate::clone::{LeftOut, count_beside};
use crate::error::Error;
use crate::upload::upload;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::archive::{
    self, Archive, ArchiveLimits, CreateReport, CreateSettings, ReadSettings,
};
pub use stasis_disk::form::archive::{ArchiveError, Problem};
use stasis_disk::fs::root_dir::Mounts;
use stasis_disk::progress::Progress;
pub use stasis_disk::tree::restore::{Placement, RestoreError};
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::digest::{ArchiveDigest, TreeDigest};
use stasis_model::time::Clock;
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
    /// The file or object, which is replaced when it is there.
    pub target: ArchivePlace,
    /// How hard zstd tries: 1 to 19.
    pub level: i32,
    /// An older archive whose frames are copied where nothing changed.
    pub base: Option<ArchivePlace>,
    /// How many threads compress; all cores when nothing is said.
    pub threads: Option<NonZeroUsize>,
    /// Gitignore-style patterns of what is left out.
    pub excludes: Vec<String>,
    /// Whether anything that cannot be read, or changes meanwhile, is an error.
    pub strict: bool,
    /// Whether other filesystems in the source are archived too.
    pub across_filesystems: bool,
    /// Where bytes wait that are to be uploaded.
    pub spool: PathBuf,
    /// Whether the tree is counted first, for somebody who wants to know how long it will take.
    pub is_watched: bool,
    /// Counts what is done.
    pub progress: Arc<Progress>,
    /// Set by anybody at any time to give up and leave nothing.
    pub cancel: Arc<AtomicBool>,
}

/// What became of an archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
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

/// Archives a directory; needs no store, unless the archive goes into one.
#[tracing::instrument(skip_all, err(level = "info"), fields(source = %command.source.display(), target = %command.target))]
pub async fn create(command: CreateArchive, clock: &dyn Clock) -> Result<Archived, Error> {
    let started = clock.uptime();
    let archive = command.target.to_string();
    let base = match &command.base {
        Some(base) => Some(Arc::new(base.open().await?)),
        None => None,
    };
    let settings = settings(&command, base);
    if command.is_watched {
        let CreateSettings {
            mounts,
            walk,
            progress,
            ..
        } = settings.clone();
        count_beside(&command.source, mounts, walk, progress);
    }
    let report = match command.target {
        ArchivePlace::File(target) => {
            let create = move || archive::create(&command.source, &target, &settings);
            bridge::blocking(create).await?
        }
        ArchivePlace::Object { engine, key } => {
            let create =
                move || archive::create_nameless(&command.source, &command.spool, &settings);
            let (report, file) = bridge::blocking(create).await?;
            let stored = upload(&*engine.bucket, &key, &Arc::new(file)).await?;
            tracing::debug!(%key, stored, "uploaded");
            report
        }
    };
    let elapsed_ms = millis(clock.uptime().saturating_sub(started));
    tracing::info!(
        files = report.files,
        bytes = report.stored_bytes,
        "archived"
    );
    Ok(archived(report, archive, elapsed_ms))
}

fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

fn settings(command: &CreateArchive, base: Option<Arc<Archive>>) -> CreateSettings {
    let usual = CreateSettings::default();
    CreateSettings {
        level: command.level,
        base,
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

fn archived(report: CreateReport, archive: String, elapsed_ms: u64) -> Archived {
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
    /// The file or object.
    pub archive: ArchivePlace,
    /// Where the bytes of an object wait that are read more than once.
    pub spool: PathBuf,
    /// More bytes in all files together are refused.
    pub largest: Option<u64>,
    /// How many threads decompress; all cores when nothing is said.
    pub threads: Option<NonZeroUsize>,
    /// Counts what was extracted, or read to verify it, and what was brought here for that.
    pub progress: Arc<Progress>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
}

impl ReadArchive {
    fn settings(&self) -> ReadSettings {
        let usual = ReadSettings::default();
        ReadSettings {
            limits: ArchiveLimits {
                bytes: self.largest.unwrap_or(usual.limits.bytes),
                ..usual.limits
            },
            workers: self.threads.unwrap_or(usual.workers),
            cancel: self.cancel.clone(),
            progress: self.progress.clone(),
        }
    }
}
