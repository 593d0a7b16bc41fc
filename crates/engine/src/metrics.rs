//! What saves and loads leave for Prometheus: a file of the textfile collector, merged under a lock.

use crate::bridge;
use crate::error::{Error, ErrorKind};
use crate::profile::{
    FallbackReason, LoadOutcome, ProfileLoaded, ProfileRan, ProfileSaved, outcome_of,
};
use crate::warning::Warning;
use stasis_disk::atomic_write::{lock_file, replace_public};
use stasis_model::id::Label;
use stasis_model::manifest::Mode;
use stasis_model::metrics::{self, Metrics, Sample};
use std::path::PathBuf;

/// Where metrics go, and what they say.
#[derive(Clone, Debug)]
pub struct MetricsFile {
    /// The file; a lock lies beside it.
    pub path: PathBuf,
    /// What every name begins with.
    pub prefix: String,
    /// Whether tenants and profiles are labels: many series, and names that not everybody should see.
    pub with_subjects: bool,
    /// What this host is called.
    pub host: Label,
}

#[expect(clippy::cast_precision_loss, reason = "a metric is a measure")]
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "a metric is a measure")]
fn bytes(bytes: u64) -> f64 {
    bytes as f64
}

impl MetricsFile {
    /// What a save was.
    pub fn saved(&self, saved: &Result<ProfileSaved, Error>) -> Vec<Sample> {
        let host = self.host.as_str();
        let total = |outcome: &str| {
            Sample::once(
                metrics::SNAPSHOT_TOTAL,
                &[("outcome", outcome), ("host", host)],
            )
        };
        let saved = match saved {
            Ok(saved) => saved,
            Err(error) => {
                let mut samples = acquired(error.kind());
                samples.push(total(match outcome_of(error) {
                    "skipped" => "skipped",
                    _ => "failed",
                }));
                return samples;
            }
        };
        let mode = match saved.mode {
            Mode::Cold => "cold",
            Mode::Hot => "hot",
        };
        let took_over = saved
            .warnings
            .iter()
            .any(|warning| matches!(warning, Warning::TookOver { .. }));
        let mut samples = vec![
            total(match saved.bytes_uploaded {
                0 => "skipped",
                _ => "success",
            }),
            lock(if took_over {
                "forced_expired"
            } else {
                "acquired"
            }),
            Sample::of(
                metrics::SNAPSHOT_CAPTURE,
                &[("mode", mode)],
                seconds(saved.capture_ms),
            ),
        ];
        if saved.bytes_uploaded > 0 {
            samples.extend([
                Sample::of(metrics::SNAPSHOT_UPLOAD, &[], seconds(saved.upload_ms)),
                Sample::of(metrics::SNAPSHOT_FLIP, &[], seconds(saved.pointer_flip_ms)),
                Sample::of(metrics::ARCHIVE_SIZE, &[], bytes(saved.archive_bytes)),
                Sample::of(metrics::UNCOMPRESSED_SIZE, &[], bytes(saved.bytes)),
            ]);
        }
        if self.with_subjects {
            let (tenant, profile) = (&saved.subject.tenant, &saved.subject.profile);
            let labels = [
                ("tenant_id", tenant.as_str()),
                ("profile_id", profile.as_str()),
            ];
            let size = bytes(saved.archive_bytes);
            samples.push(Sample::of(metrics::SNAPSHOT_ARCHIVE_SIZE, &labels, size));
        }
        samples
    }

    /// What a load was.
    pub fn loaded(&self, loaded: &Result<ProfileLoaded, Error>) -> Vec<Sample> {
        let host = self.host.as_str();
        let total = |outcome: &str| {
            Sample::once(metrics::LOAD_TOTAL, &[("outcome", outcome), ("host", host)])
        };
        let Ok(loaded) = loaded else {
            return vec![total("refused")];
        };
        match (loaded.outcome, loaded.reason) {
            (LoadOutcome::Success | LoadOutcome::Upgraded, _) => vec![
                total("success"),
                Sample::of(metrics::LOAD_DOWNLOAD, &[], seconds(loaded.download_ms)),
                Sample::of(metrics::LOAD_EXTRACT, &[], seconds(loaded.extract_ms)),
            ],
            (LoadOutcome::NoSnapshot, _) => vec![total("no_snapshot")],
            // An older one that was loaded does not hide what is wrong with the active one.
            (LoadOutcome::FreshFallback | LoadOutcome::Predecessor, reason) => vec![total(match reason {
                Some(FallbackReason::IntegrityFailed) => "integrity_failed",
                Some(FallbackReason::ShaMismatch) => "sha_mismatch",
                Some(FallbackReason::VersionMismatch) => "version_mismatch",
                Some(FallbackReason::TooLarge) => "too_large",
                _ => "fresh_fallback",
            })],
        }
    }

    /// What a run was, from its load to its save.
    pub fn ran(&self, ran: &Result<ProfileRan, Error>) -> Vec<Sample> {
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) => return acquired(error.kind()),
        };
        let mut samples = self.loaded(&Ok(ran.load.clone()));
        let host = self.host.as_str();
        if let Some(saved) = &ran.save {
            samples.extend(self.saved(&Ok(saved.clone())));
        } else {
            let labels = [("outcome", "failed"), ("host", host)];
            samples.push(Sample::once(metrics::SNAPSHOT_TOTAL, &labels));
        }
        if ran.lock_lost {
            samples.push(evicted("ttl_expired"));
        }
        samples
    }

    /// Adds what happened to the file.
    pub async fn add(&self, samples: Vec<Sample>) -> Result<(), Error> {
        let (path, prefix) = (self.path.clone(), self.prefix.clone());
        let written = bridge::blocking(move || {
            let _lock = lock_file(&path.with_extension("lock"))?;
            let before = std::fs::read_to_string(&path).unwrap_or_default();
            let mut all = Metrics::parse(&before, &prefix);
            for sample in &samples {
                all.add(sample);
            }
            replace_public(&path, all.render(&prefix).as_bytes())
        });
        Ok(written.await?)
    }
}

fn lock(outcome: &str) -> Sample {
    Sample::once(metrics::LOCK_ACQUIRE, &[("outcome", outcome)])
}

/// What a failure says of the lease that was asked for.
fn acquired(kind: ErrorKind) -> Vec<Sample> {
    match kind {
        ErrorKind::Conflict => vec![lock("conflict_409")],
        _ => Vec::new(),
    }
}

/// A holder lost its lease.
pub fn evicted(reason: &str) -> Sample {
    Sample::once(metrics::LOCK_EVICT, &[("reason", reason)])
}
