//! Makes a directory of an archive.

use super::{ReadArchive, millis};
use crate::bridge;
use crate::error::Error;
use crate::result::PlacedAs;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::archive::{self, UnpackSettings};
use stasis_disk::fs::metadata::Rights;
use stasis_disk::tree::restore::{PlacedTree, Placement, RestoreOrigin, RestoredTree};
use stasis_model::time::Clock;
use stasis_model::tree::EntryPath;
use std::path::PathBuf;

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
}

/// What became of a tree that was in an archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was withheld and what was kept is said only here"]
pub struct Extracted {
    /// Where the tree is.
    pub target: String,
    /// How it took its place.
    pub placed: PlacedAs,
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
#[tracing::instrument(skip_all, err(level = "info"), fields(archive = %command.read.archive, target = %command.target.display()))]
pub async fn extract(command: ExtractArchive, clock: &dyn Clock) -> Result<Extracted, Error> {
    let started = clock.uptime();
    let target = command.target.display().to_string();
    let origin = RestoreOrigin {
        at: clock.now(),
        from: command.read.archive.to_string(),
    };
    let read = &command.read;
    let (spool, cancel) = (&read.spool, &read.cancel);
    let archive = read.archive.bring(spool, cancel, &read.progress).await?;
    if let (Some(summary), None) = (archive.summary(), &command.only) {
        read.progress.expect(summary.files, summary.bytes);
    }
    let restored = bridge::blocking(move || {
        let settings = UnpackSettings {
            placement: command.placement,
            only: command.only,
            rights: if command.owners {
                Rights::of_this_process()
            } else {
                Rights::Own
            },
            read: command.read.settings(),
            progress: command.read.progress.clone(),
        };
        archive::unpack(&archive, &command.target, &settings, &origin)
    });
    let RestoredTree { written, placed } = restored.await?;
    let elapsed_ms = millis(clock.uptime().saturating_sub(started));
    tracing::info!(files = written.files, bytes = written.bytes, "extracted");
    let (placed, kept) = match placed {
        PlacedTree::New => (PlacedAs::New, None),
        PlacedTree::Replaced { kept } => (PlacedAs::Replaced, Some(kept.display().to_string())),
        PlacedTree::InPlace(_) => (PlacedAs::InPlace, None),
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
