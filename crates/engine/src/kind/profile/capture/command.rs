//! What is captured, and what became of it.

use crate::address::as_typed;
use crate::check::Spawn;
use crate::kind::profile::contents::UpgradeReport;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::digest::ArchiveDigest;
use stasis_model::format::lease::Holder;
use stasis_model::format::manifest::{CapturedIn, EndingRecord, Mode};
use stasis_model::id::{Lineage, OpId};
use stasis_model::upgrade::Ancestor;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is captured, and what is said of it.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The directory, which nobody writes to now.
    pub dir: PathBuf,
    /// The snapshot that it derives from; `None` after a fresh start.
    pub base: Option<ArchiveDigest>,
    /// The snapshot of an older major that it was carried from, when it has not been published since.
    pub upgraded_from: Option<Ancestor>,
    /// Whether it is stored only: it began fresh for want of a snapshot that there is.
    pub held_back: bool,
    /// Whether caches are left out.
    pub exclude_caches: bool,
    /// Whether it may have become much smaller than the snapshot before.
    pub accept_shrink: bool,
    /// Who captures.
    pub holder: Holder,
    /// Where.
    pub captured_in: CapturedIn,
    /// Words of the caller's.
    pub notes: String,
    /// What was done to the browser.
    pub browser: BrowserState,
    /// How the process that opens databases is started.
    pub spawn: Spawn,
    /// Counts what is done.
    pub progress: Arc<Progress>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
}

/// What was done to the browser before the directory stood still.
#[derive(Clone, Debug, Default)]
pub struct BrowserState {
    /// Whether it was running, and goes on.
    pub mode: Mode,
    /// Whether it ended by itself, with everything written; `None` when nobody saw it.
    pub clean_exit: Option<bool>,
    /// How it was ended.
    pub ending: Option<EndingRecord>,
    /// How long it had been running.
    pub uptime_s: u64,
    /// How long it stood still.
    pub freeze_ms: u64,
}

/// What became of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SaveOutcome {
    /// It is the active snapshot now.
    Captured,
    /// Nothing changed since the active snapshot.
    Deduplicated,
    /// It is stored, but does not derive from the active snapshot, which stays.
    Diverged,
    /// It is stored, but databases in it are damaged: the active snapshot stays.
    Damaged,
    /// It is stored, but has fewer cookies or origins than before the browser migrated it: it is not published.
    UpgradeIncomplete,
    /// It is stored, but has suspiciously little of what the active snapshot has, which stays: few files, or no logins.
    Shrunk,
}

stasis_model::display_as_serialized!(SaveOutcome);

impl SaveOutcome {
    /// Whether the active snapshot is what was captured.
    pub fn is_published(self) -> bool {
        matches!(self, Self::Captured | Self::Deduplicated)
    }
}

/// A profile that was saved.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what diverged is not the active snapshot"]
pub struct ProfileSaved {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// What became of it.
    pub outcome: SaveOutcome,
    /// The snapshot.
    pub sha256: ArchiveDigest,
    /// What it derives from.
    pub predecessor_sha256: Option<ArchiveDigest>,
    /// What is active instead, when it was not published.
    pub active_sha256: Option<ArchiveDigest>,
    /// Whether the run that it is of began fresh for want of a snapshot that there is.
    pub began_fresh: bool,
    /// The databases that are damaged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damaged_databases: Vec<String>,
    /// How many files the snapshot before has, when these are suspiciously few.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shrunk_from: Option<u64>,
    /// The databases of logins that the snapshot before has, and that are gone or empty now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_databases: Vec<String>,
    /// How it came through the migration to a newer Chrome, when it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<UpgradeReport>,
    /// The operation that published it.
    pub op_id: OpId,
    /// Whether the browser was running.
    pub mode: Mode,
    /// Whether it had ended by itself.
    pub clean_exit: Option<bool>,
    /// How it was ended.
    pub ending: Option<EndingRecord>,
    /// How long it stood still.
    pub freeze_ms: u64,
    /// Whether what the browser makes again by itself is not in it.
    pub caches_left_out: bool,
    /// Files in it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many bytes the archive has.
    pub archive_bytes: u64,
    /// How many of them were copied from the base instead of compressed.
    pub bytes_reused: u64,
    /// How many bytes were uploaded.
    pub bytes_uploaded: u64,
    /// How long it took to look and to archive.
    pub capture_ms: u64,
    /// How long it took to upload.
    pub upload_ms: u64,
    /// How long it took to move the pointer.
    pub pointer_flip_ms: u64,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
    /// Whether it is what the active snapshot is, so that nothing was stored.
    #[serde(skip)]
    pub(in crate::kind::profile) is_unchanged: bool,
}
