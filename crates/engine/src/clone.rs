//! A directory that shares its bytes with another one.

use crate::bridge;
use crate::error::Error;
use crate::result::{CopyMethod, SkipReason};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::progress::Progress;
use stasis_disk::tree::clone::{self, CloneSettings};
pub use stasis_disk::tree::clone::{CloneError, CloneReport, Fallback};
use stasis_disk::tree::survey;
use stasis_disk::tree::walk::{WalkReport, WalkSettings, WalkSkip};
use stasis_model::time::Clock;
use stasis_model::tree::EntryPath;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is cloned, and how.
#[derive(Clone, Debug)]
pub struct CloneTree {
    /// The directory to clone.
    pub source: PathBuf,
    /// Where the clone will be; nothing may be there.
    pub target: PathBuf,
    /// What to do where bytes cannot be shared.
    pub fallback: Fallback,
    /// Gitignore-style patterns of what is left out.
    pub excludes: Vec<String>,
    /// Whether anything that cannot be read, or changes meanwhile, is an error.
    pub strict: bool,
    /// Whether other filesystems in the source are cloned too.
    pub across_filesystems: bool,
    /// Whether the tree is counted first, for somebody who wants to know how long it will take.
    pub is_watched: bool,
    /// Counts what is done.
    pub progress: Arc<Progress>,
    /// Set by anybody at any time to give up and leave nothing.
    pub cancel: Arc<AtomicBool>,
}

/// An entry that was left out, or is not to be trusted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LeftOut {
    /// Which; bytes that are no text are written as `\xNN`, a backslash is doubled.
    pub path: String,
    /// What kept it out.
    pub reason: SkipReason,
    /// The same as half a sentence.
    #[serde(skip)]
    pub words: String,
}

impl LeftOut {
    /// Whether a user could expect it: it is there, and is missing.
    pub fn is_missing(&self) -> bool {
        matches!(
            self.reason,
            SkipReason::Unreadable | SkipReason::Replaced | SkipReason::TooLarge
        )
    }

    /// What a walk left out, as far as it is listed by name.
    pub(crate) fn of(report: &WalkReport) -> Vec<Self> {
        let left_out = |path: &EntryPath, reason: WalkSkip| Self {
            path: path.to_string(),
            reason: reason.into(),
            words: reason.to_string(),
        };
        let vanished = report.vanished.iter();
        let vanished = vanished.map(|path| left_out(path, WalkSkip::Vanished));
        let skipped = report.skipped.iter();
        let skipped = skipped.map(|skipped| left_out(&skipped.path, skipped.reason));
        vanished.chain(skipped).collect()
    }
}

/// What became of a clone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was left out is said only here"]
pub struct Cloned {
    /// Where the clone is.
    pub target: String,
    /// How its bytes came.
    pub method: CopyMethod,
    /// Regular files, each counted once.
    pub files: u64,
    /// Directories, without the root.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// The length of all files, holes included.
    pub bytes: u64,
    /// Bytes of files that share their blocks with the source.
    pub bytes_shared: u64,
    /// Bytes that were copied.
    pub bytes_copied: u64,
    /// Entries that a pattern excluded.
    pub excluded: u64,
    /// Entries whose owner could not be kept.
    pub owners_not_kept: u64,
    /// Entries whose setuid or setgid was dropped.
    pub privileges_not_kept: u64,
    /// Attributes that are not the user's and were left out.
    pub attributes_left_out: u64,
    /// How many entries vanished while the source was read.
    pub vanished: u64,
    /// How many entries were left out for another reason.
    pub skipped: u64,
    /// The first thousand of either, by name.
    pub left_out: Vec<LeftOut>,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// Clones a directory; needs no store.
#[tracing::instrument(skip_all, err(level = "info"), fields(source = %command.source.display(), target = %command.target.display()))]
pub async fn clone_tree(command: CloneTree, clock: &dyn Clock) -> Result<Cloned, Error> {
    let started = clock.uptime();
    let target = command.target.display().to_string();
    if command.is_watched {
        let CloneSettings {
            mounts,
            walk,
            progress,
            ..
        } = settings(&command);
        count_beside(&command.source, mounts, walk, progress);
    }
    let report = bridge::blocking(move || {
        let settings = settings(&command);
        clone::clone(&command.source, &command.target, &settings)
    });
    let report = report.await?;
    let elapsed = clock.uptime().saturating_sub(started);
    let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(files = report.files, bytes = report.bytes, "cloned");
    Ok(cloned(&report, target, elapsed_ms))
}

/// Counts what there is in a tree beside the work on it; whatever hinders that will hinder the work as well, and is told there.
pub(crate) fn count_beside(
    source: &Path,
    mounts: Mounts,
    walk: WalkSettings,
    progress: Arc<Progress>,
) {
    let source = source.to_owned();
    let counted = bridge::Crossing::here().start(bridge::blocking(move || {
        let root = RootDir::open(&source, mounts).ok()?;
        survey::survey(&root, &walk, &progress).ok()
    }));
    drop(counted);
}

fn settings(command: &CloneTree) -> CloneSettings {
    let mounts = if command.across_filesystems {
        Mounts::Cross
    } else {
        Mounts::Stay
    };
    CloneSettings {
        fallback: command.fallback,
        mounts,
        walk: WalkSettings {
            strict: command.strict,
            excludes: command.excludes.clone(),
            cancel: command.cancel.clone(),
            ..WalkSettings::default()
        },
        progress: command.progress.clone(),
        ..CloneSettings::default()
    }
}

fn cloned(report: &CloneReport, target: String, elapsed_ms: u64) -> Cloned {
    Cloned {
        target,
        method: report.method.into(),
        files: report.files,
        directories: report.directories,
        symlinks: report.symlinks,
        hard_links: report.hard_links,
        bytes: report.bytes,
        bytes_shared: report.bytes_shared,
        bytes_copied: report.bytes_copied,
        excluded: report.walk.excluded,
        owners_not_kept: report.owners_not_kept,
        privileges_not_kept: report.privileges_not_kept,
        attributes_left_out: report.attributes_left_out,
        vanished: report.walk.vanished_count,
        skipped: report.walk.skipped_count,
        left_out: LeftOut::of(&report.walk),
        elapsed_ms,
    }
}
