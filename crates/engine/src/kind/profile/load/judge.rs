//! What speaks against a snapshot before it is downloaded, and what a failure means for the load.

use super::command::{FallbackReason, OnFailure, ProfileLoad};
use crate::error::{Error, ErrorKind, ProfileError, ReadError};
use crate::warning::Warning;
use stasis_model::format::manifest::{CapturedIn, CookieStore, Mode, ProfileManifest};
use stasis_model::format::pointer::Active;
use stasis_model::id::Label;
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

/// The region that a snapshot was captured in, and the one that it goes to, if they are two.
fn other_region(manifest: &ProfileManifest, here: Option<&Label>) -> Option<(String, String)> {
    let (from, here) = (manifest.captured_in.host_region.as_ref()?, here?);
    (from != here).then(|| (from.to_string(), here.to_string()))
}

/// Whether what is in a snapshot is new enough at a moment for sites to ask where it comes from.
fn does_place_matter(manifest: &ProfileManifest, at: Timestamp) -> bool {
    at.since(manifest.captured_at_ms) < REGION_MATTERS
}

/// What a snapshot says of itself that whoever loads it should know.
pub(in crate::kind::profile) fn known_flaws(manifest: &ProfileManifest) -> Vec<Warning> {
    let mut flaws = Vec::new();
    if manifest.has_crashed() {
        flaws.push(Warning::CrashedBeforeCapture);
    }
    if manifest.cookie_store == CookieStore::Keyring {
        flaws.push(Warning::CookiesInKeyring);
    }
    flaws
}

/// That a snapshot was captured elsewhere than the one that it derives from, by the rule for loads: whoever captured it had loaded that one.
pub(in crate::kind::profile) fn moved_since(
    before: &ProfileManifest,
    manifest: &ProfileManifest,
) -> Option<Warning> {
    let (from, to) = (&before.captured_in, &manifest.captured_in);
    let region = other_region(before, to.host_region.as_ref()).is_some();
    let egress = match (&from.egress_ip_geo, &to.egress_ip_geo) {
        (Some(from), Some(to)) => from != to,
        _ => false,
    };
    let has_moved = (region || egress) && does_place_matter(before, manifest.captured_at_ms);
    has_moved.then(|| Warning::CapturedElsewhere {
        subject: manifest.lineage().to_string(),
        sha256: manifest.archive_sha256.prefix(),
        from: place(from),
        here: place(to),
    })
}

/// Where a snapshot was captured, in words: the host's region, and where the world sees it.
fn place(captured_in: &CapturedIn) -> String {
    let geo = captured_in.egress_ip_geo.as_ref();
    let geo = geo.map(|geo| match geo.region.as_str() {
        "" => format!("seen in {}", geo.country),
        region => format!("seen in {}/{region}", geo.country),
    });
    let region = captured_in.host_region.as_ref().map(ToString::to_string);
    let parts: Vec<String> = region.into_iter().chain(geo).collect();
    parts.join(", ")
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
    if let Some((from, here)) = other_region(&manifest, load.region.as_ref()) {
        if policy.on_region_change == OnRegionChange::Refuse {
            let error = ProfileError::OtherRegion {
                snapshot,
                from,
                here,
            };
            return Err(LoadFailure::new(FallbackReason::RegionRefused, error));
        }
        if does_place_matter(&manifest, now) {
            warnings.push(Warning::RegionChanged { from, here });
        }
    }
    warnings.extend(known_flaws(&manifest));
    Ok(Fit {
        active,
        manifest,
        warnings,
    })
}
