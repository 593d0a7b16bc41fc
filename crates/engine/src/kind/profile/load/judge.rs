//! What speaks against a snapshot before it is downloaded, and what a failure means for the load.

use super::command::{FallbackReason, OnFailure, ProfileLoad};
use crate::error::{Error, ErrorKind, ProfileError, ReadError};
use crate::warning::Warning;
use stasis_model::format::manifest::{CookieStore, Mode, ProfileManifest};
use stasis_model::format::pointer::Active;
use stasis_model::policy::tenant::{OnRegionChange, TenantPolicy};
use stasis_model::time::Timestamp;
use std::time::Duration;

/// Snapshots older than this carry cookies that are stale anyway: a change of region is not worth a word.
const REGION_MATTERS: Duration = Duration::from_hours(24);

/// A snapshot that was found fit to be loaded, before any byte of it was asked for.
pub(super) struct Fit {
    pub(super) active: Active,
    pub(super) manifest: ProfileManifest,
    pub(super) warnings: Vec<Warning>,
}

/// Why it was not loaded, and whether an outage hid it.
pub(in crate::kind::profile) struct LoadFailure {
    pub(super) reason: FallbackReason,
    pub(super) error: Box<Error>,
    pub(super) usually: OnFailure,
}

impl LoadFailure {
    pub(in crate::kind::profile) fn new(reason: FallbackReason, error: impl Into<Error>) -> Self {
        Self {
            reason,
            error: Box::new(error.into()),
            usually: OnFailure::Fresh,
        }
    }

    /// Without the right key nothing is known to be wrong with the snapshot: a fresh start is nobody's wish.
    pub(super) fn locked(error: impl Into<Error>) -> Self {
        Self {
            usually: OnFailure::Refuse,
            ..Self::new(FallbackReason::KeyRefused, error)
        }
    }

    /// Somebody asked for exactly this: a fresh start is nobody's wish.
    pub(in crate::kind::profile) fn insists(self) -> Self {
        Self {
            usually: OnFailure::Refuse,
            ..self
        }
    }

    /// Before we know what there is, an outage must not look like a fresh start.
    pub(in crate::kind::profile) fn unreachable(error: impl Into<Error>) -> Self {
        Self {
            usually: OnFailure::Refuse,
            ..Self::new(FallbackReason::BucketUnreachable, error)
        }
    }
}

pub(in crate::kind::profile) fn pointer_failure(error: Error) -> LoadFailure {
    if matches!(error, Error::Read(ReadError::PointerLost { .. })) {
        return LoadFailure::new(FallbackReason::PointerLost, error).insists();
    }
    match error.kind() {
        ErrorKind::Corrupt => LoadFailure::new(FallbackReason::ManifestInvalid, error),
        _ => LoadFailure::unreachable(error),
    }
}

pub(super) fn manifest_failure(error: ReadError) -> LoadFailure {
    use stasis_model::format::document::BadDocument;
    let reason = match &error {
        ReadError::Bucket(_) => return LoadFailure::unreachable(ProfileError::from(error)),
        ReadError::NoManifest(_) => FallbackReason::NoManifest,
        ReadError::BadManifest {
            source: BadDocument::Version { .. },
            ..
        } => FallbackReason::ManifestVersionMismatch,
        _ => FallbackReason::ManifestInvalid,
    };
    LoadFailure::new(reason, ProfileError::from(error))
}

pub(super) fn fetch_failure(error: Error) -> LoadFailure {
    let reason = match &error {
        // The wrapped key: before it is read, nobody knows what there is.
        Error::Read(_) => return LoadFailure::unreachable(error),
        Error::Encryption(_) => return LoadFailure::locked(error),
        Error::Profile(profile) => match &**profile {
            ProfileError::NoArchive(_) => FallbackReason::NoArchive,
            ProfileError::Sha { .. } => FallbackReason::ShaMismatch,
            _ => return LoadFailure::locked(error),
        },
        error => match error.kind() {
            ErrorKind::Unreachable | ErrorKind::Denied | ErrorKind::Retry => {
                FallbackReason::BucketUnreachable
            }
            _ => FallbackReason::ExtractFailed,
        },
    };
    LoadFailure::new(reason, error)
}

/// Everything that can be said against a snapshot before it is downloaded.
pub(super) fn fit(
    load: &ProfileLoad,
    active: Active,
    manifest: ProfileManifest,
    policy: &TenantPolicy,
    now: Timestamp,
) -> Result<Fit, LoadFailure> {
    let snapshot = active.archive.prefix();
    let (bytes, limit) = (manifest.uncompressed_size_bytes, policy.max_profile_bytes);
    if bytes > limit {
        let error = ProfileError::SnapshotTooLarge {
            snapshot,
            bytes,
            limit,
        };
        return Err(LoadFailure::new(FallbackReason::TooLarge, error));
    }
    if manifest.mode == Mode::Hot && (load.cold_only || !policy.accept_hot) {
        let error = ProfileError::HotRefused(snapshot);
        return Err(LoadFailure::new(FallbackReason::HotRefused, error));
    }
    let mut warnings = Vec::new();
    let from = manifest.captured_in.host_region.as_ref();
    let is_recent = now.since(manifest.captured_at_ms) < REGION_MATTERS;
    if let (Some(from), Some(here)) = (from, &load.region)
        && from != here
    {
        let (from, here) = (from.to_string(), here.to_string());
        if policy.on_region_change == OnRegionChange::Refuse {
            let error = ProfileError::OtherRegion {
                snapshot,
                from,
                here,
            };
            return Err(LoadFailure::new(FallbackReason::RegionRefused, error));
        }
        if is_recent {
            warnings.push(Warning::RegionChanged { from, here });
        }
    }
    if manifest.has_crashed() {
        warnings.push(Warning::CrashedBeforeCapture);
    }
    if manifest.cookie_store == CookieStore::Keyring {
        warnings.push(Warning::CookiesInKeyring);
    }
    Ok(Fit {
        active,
        manifest,
        warnings,
    })
}
