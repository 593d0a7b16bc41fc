//! What a load is asked, and what became of it.

use crate::address::as_typed;
use crate::check::Spawn;
use crate::kind::profile::locate::Wanted;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_disk::tree::restore::Placement;
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::{Label, Lineage};
use stasis_model::time::Timestamp;
use stasis_model::upgrade::Ancestor;
pub use stasis_model::upgrade::UpgradeWish;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What to do when a profile cannot be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFailure {
    /// Go on with a fresh profile, and say so.
    Fresh,
    /// Fail, and touch nothing.
    Refuse,
}

/// Which profile is loaded, and where to.
#[derive(Clone, Debug)]
pub struct ProfileLoad {
    /// Of what.
    pub lineage: Lineage,
    /// The user data directory that it becomes.
    pub dir: PathBuf,
    /// Whether what is there is replaced, and kept beside it, or nothing may be there. A fresh profile replaces.
    pub placement: Placement,
    /// The snapshot that is wanted, and no other: not the active one, whatever happens, and never a fresh profile. A run that
    /// saves takes the one that its lease began with all the same.
    pub exactly: Option<Wanted>,
    /// What to do when it cannot be loaded. When nothing is said: an older snapshot when this one is damaged, else fresh,
    /// but refuse while the store cannot be reached.
    pub on_failure: Option<OnFailure>,
    /// Whether a snapshot of an older major may be taken.
    pub upgrade: UpgradeWish,
    /// Whether snapshots of a running browser are refused, whatever the tenant's policy says.
    pub cold_only: bool,
    /// The region we are in, if somebody knows.
    pub region: Option<Label>,
    /// Who loads, for the log.
    pub actor: Label,
    /// How the process that opens databases is started.
    pub spawn: Spawn,
    /// Counts what is done.
    pub progress: Arc<Progress>,
    /// Set by anybody at any time to give up and leave the directory as it was.
    pub cancel: Arc<AtomicBool>,
}

/// What became of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadOutcome {
    /// The directory is the snapshot.
    Success,
    /// The directory is the snapshot of an older Chrome, for this one to migrate.
    Upgraded,
    /// The active snapshot is damaged; the directory is an older one.
    Predecessor,
    /// There never was one; the directory is empty.
    NoSnapshot,
    /// There is one, but it was not loaded; the directory is empty.
    FreshFallback,
}

stasis_model::display_as_serialized!(LoadOutcome);

/// Why a snapshot was not loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words say what they mean")]
pub enum FallbackReason {
    BucketUnreachable,
    PointerLost,
    NoManifest,
    NoArchive,
    ManifestInvalid,
    ManifestVersionMismatch,
    ShaMismatch,
    VersionMismatch,
    ExtractFailed,
    IntegrityFailed,
    TooLarge,
    HotRefused,
    RegionRefused,
    KeyRefused,
}

impl FallbackReason {
    /// Whether something is wrong with the snapshot itself, for good: neither with us, nor with the way to it.
    pub(super) fn is_damage(self) -> bool {
        matches!(
            self,
            Self::NoManifest
                | Self::NoArchive
                | Self::ManifestInvalid
                | Self::ShaMismatch
                | Self::IntegrityFailed
        )
    }
}

/// A profile that was loaded, or is fresh.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "a fresh profile must never pass for a restored one"]
pub struct ProfileLoaded {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// What became of it.
    pub outcome: LoadOutcome,
    /// Why it is fresh, or an older one, although there is an active snapshot.
    pub reason: Option<FallbackReason>,
    /// The same in words.
    pub detail: Option<String>,
    /// Which snapshot the directory is.
    pub sha256: Option<ArchiveDigest>,
    /// What a save of the directory supersedes.
    pub base_sha256: Option<ArchiveDigest>,
    /// What is active instead, when another snapshot was asked for: a save of the directory diverges from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_sha256: Option<ArchiveDigest>,
    /// The snapshot of an older major that the profile was carried from, now or before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgraded_from: Option<Ancestor>,
    /// When that was captured.
    pub captured_at: Option<String>,
    /// The same in milliseconds.
    pub captured_at_ms: Option<Timestamp>,
    /// The directory.
    pub dir: String,
    /// Where what was there before is kept.
    pub kept: Option<String>,
    /// Whether the snapshot has nothing in it.
    pub empty: bool,
    /// Files that were written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many bytes the archive has.
    pub archive_bytes: u64,
    /// How many of them were fetched; the rest was here.
    pub bytes_fetched: u64,
    /// How many databases were checked and found sound.
    pub databases: u64,
    /// How long the archive took to come.
    pub download_ms: u64,
    /// How long it took to extract, check and swap.
    pub extract_ms: u64,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl ProfileLoaded {
    /// What it was carried from just now: a save of it is compared with that.
    pub(in crate::kind::profile) fn carried_from(&self) -> Option<Ancestor> {
        let is_own = self.base_sha256.is_some() && self.base_sha256 == self.sha256;
        self.upgraded_from.filter(|_| !is_own)
    }

    /// Whether what comes of it is never published by itself: it began fresh for want of a snapshot that there is. One
    /// that began fresh because nobody wanted another major's snapshot is.
    pub(in crate::kind::profile) fn is_held_back(&self) -> bool {
        let is_wanted = self.reason == Some(FallbackReason::VersionMismatch);
        self.outcome == LoadOutcome::FreshFallback && !is_wanted
    }
}
