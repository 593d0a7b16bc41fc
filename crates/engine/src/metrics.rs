//! What saves, loads and the service leave for Prometheus: the samples of each act, and a file of the textfile collector that they
//! are added to under a lock.
//!
//! *Always true:* the values of `outcome`, `mode` and `reason` are the contract's and no others, so that its alerts and dashboards see
//! every act. What is more exact is in results and in the log of events.

use crate::bridge;
use crate::error::{Error, LineageError};
use crate::kind::profile::{
    FallbackReason, LoadOutcome, ProfileError, ProfileLoaded, ProfileRan, ProfileSaved, RunOutcome,
    SaveOutcome, outcome_of,
};
use crate::lease::Acquired;
use crate::reap::Reaped;
use crate::subjects::SubjectKind;
use crate::warning::Warning;
use stasis_disk::fs::atomic_write::replace_public;
use stasis_disk::fs::lock_file::LockFile;
use stasis_model::format::manifest::Mode;
use stasis_model::id::Label;
use stasis_model::invalid::Invalid;
use stasis_model::metrics::{self, MetricsRegistry, Sample};
use stasis_model::protocol::step::Refusal;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// What the names of all series begin with: `stasis`, and then an underscore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricsPrefix(String);

impl FromStr for MetricsPrefix {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let name = text.trim_end_matches('_');
        let begins = name.starts_with(|first: char| first.is_ascii_alphabetic());
        let is_word = |one: char| one.is_ascii_alphanumeric() || one == '_';
        if !begins || !name.chars().all(is_word) {
            let said = "a prefix of metrics has letters, digits and `_`, and begins with a letter";
            return Err(Invalid::new(said));
        }
        Ok(Self(format!("{name}_")))
    }
}

impl Default for MetricsPrefix {
    fn default() -> Self {
        Self("stasis_".to_owned())
    }
}

impl MetricsPrefix {
    /// With the underscore.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The file that short processes leave their samples in.
#[derive(Clone, Debug)]
pub struct MetricsFile {
    /// The file; a lock lies beside it.
    pub path: PathBuf,
    /// What every name begins with.
    pub prefix: MetricsPrefix,
}

/// Where a process that serves others counts what the engine does on its way to something else: programs that stood still, holders that a
/// job threw out. Whoever counts by results has none.
#[derive(Clone, Default)]
pub struct SampleSink(Option<Arc<dyn Fn(Vec<Sample>) + Send + Sync>>);

impl fmt::Debug for SampleSink {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_there = self.0.is_some();
        out.debug_tuple("SampleSink").field(&is_there).finish()
    }
}

impl SampleSink {
    /// Samples go there.
    pub fn new(add: impl Fn(Vec<Sample>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(add)))
    }

    pub(crate) fn add(&self, samples: Vec<Sample>) {
        if let Some(add) = self.0.as_deref().filter(|_| !samples.is_empty()) {
            add(samples);
        }
    }

    /// Programs stood still for so long, if they did.
    pub(crate) fn add_frozen(&self, kind: SubjectKind, took: Duration) {
        if !took.is_zero() {
            self.add(vec![frozen(kind, took)]);
        }
    }
}

/// What acts on profiles are as samples.
#[derive(Clone, Debug)]
pub struct ProfileSamples {
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

impl ProfileSamples {
    /// What a save was.
    pub fn saved(&self, saved: &Result<ProfileSaved, Error>) -> Vec<Sample> {
        match saved {
            Ok(saved) => {
                let mut samples = acquired(&saved.warnings);
                samples.extend(self.captured(saved));
                samples
            }
            Err(error) if is_held(error) => vec![lock("conflict_409")],
            Err(error) => vec![self.snapshot(match outcome_of(error) {
                RunOutcome::Skipped => "skipped",
                _ => "failed",
            })],
        }
    }

    fn snapshot(&self, outcome: &str) -> Sample {
        let labels = [("outcome", outcome), ("host", self.host.as_str())];
        Sample::once(metrics::SNAPSHOT_TOTAL, &labels)
    }

    /// What a capture was, whoever owned the profile.
    fn captured(&self, saved: &ProfileSaved) -> Vec<Sample> {
        let mode = match saved.mode {
            Mode::Cold => "cold",
            Mode::Hot => "hot",
        };
        let mut samples = vec![
            self.snapshot(match saved.outcome {
                SaveOutcome::Captured | SaveOutcome::Deduplicated => "success",
                // Stored, and somebody has to choose: nothing failed, and nothing became active. The log of events has it.
                SaveOutcome::Diverged => "skipped",
                SaveOutcome::Damaged | SaveOutcome::UpgradeIncomplete | SaveOutcome::Shrunk => {
                    "failed"
                }
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
                Sample::of(metrics::ARCHIVE_SIZE, &[], bytes(saved.archive_bytes)),
                Sample::of(metrics::UNCOMPRESSED_SIZE, &[], bytes(saved.bytes)),
            ]);
        }
        if saved.outcome == SaveOutcome::Captured {
            let took = seconds(saved.pointer_flip_ms);
            samples.push(Sample::of(metrics::SNAPSHOT_PUBLISH, &[], took));
        }
        if saved.freeze_ms > 0 {
            samples.push(frozen(
                SubjectKind::Profile,
                Duration::from_millis(saved.freeze_ms),
            ));
        }
        if self.with_subjects {
            let (tenant, profile) = (&saved.subject.tenant, &saved.subject.profile);
            let labels = [
                (metrics::TENANT_LABEL, tenant.as_str()),
                ("profile_id", profile.as_str()),
            ];
            let size = bytes(saved.archive_bytes);
            samples.push(Sample::of(metrics::SNAPSHOT_ARCHIVE_SIZE, &labels, size));
        }
        samples
    }

    fn load(&self, outcome: &str) -> Sample {
        let labels = [("outcome", outcome), ("host", self.host.as_str())];
        Sample::once(metrics::LOAD_TOTAL, &labels)
    }

    /// What a load was.
    pub fn loaded(&self, loaded: &Result<ProfileLoaded, Error>) -> Vec<Sample> {
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return vec![self.load(refused_as(error).unwrap_or("fresh_fallback"))],
        };
        match (loaded.outcome, loaded.reason) {
            (LoadOutcome::Success | LoadOutcome::Upgraded, _) => vec![
                self.load("success"),
                Sample::of(metrics::LOAD_DOWNLOAD, &[], seconds(loaded.download_ms)),
                Sample::of(metrics::LOAD_EXTRACT, &[], seconds(loaded.extract_ms)),
            ],
            (LoadOutcome::NoSnapshot, _) => vec![self.load("fresh_fallback")],
            // An older one that was loaded does not hide what is wrong with the active one.
            (LoadOutcome::FreshFallback | LoadOutcome::Predecessor, reason) => {
                vec![self.load(match reason {
                    Some(FallbackReason::IntegrityFailed) => "integrity_failed",
                    Some(FallbackReason::ShaMismatch) => "sha_mismatch",
                    Some(FallbackReason::VersionMismatch) => "version_mismatch",
                    Some(FallbackReason::TooLarge) => "too_large",
                    _ => "fresh_fallback",
                })]
            }
        }
    }

    /// What a run was, from its load to its save.
    pub fn ran(&self, ran: &Result<ProfileRan, Error>) -> Vec<Sample> {
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) if is_held(error) => return vec![lock("conflict_409")],
            // A run that ended before its browser started may have ended at its load.
            Err(error) => {
                return refused_as(error)
                    .map(|word| self.load(word))
                    .into_iter()
                    .collect();
            }
        };
        let mut samples = self.loaded(&Ok(ran.load.clone()));
        if ran.save_outcome == RunOutcome::Discarded {
            return samples;
        }
        samples.extend(acquired(&ran.warnings));
        match &ran.save {
            Some(saved) => samples.extend(self.captured(saved)),
            None if ran.save_outcome == RunOutcome::Skipped => {
                samples.push(self.snapshot("skipped"));
            }
            None => samples.push(self.snapshot("failed")),
        }
        samples
    }

    /// A lease that somebody asked for.
    pub fn leased(&self, asked: &Result<Acquired, Error>) -> Vec<Sample> {
        match asked {
            Ok(lease) => acquired(&lease.warnings),
            Err(error) if is_held(error) => vec![lock("conflict_409")],
            Err(_) => Vec::new(),
        }
    }

    /// Holders whose locks the reaper freed.
    pub fn reaped(&self, reaped: &Reaped) -> Vec<Sample> {
        reaped
            .evicted
            .iter()
            .map(|_| evicted("ttl_expired"))
            .collect()
    }

    /// A holder that an operator threw out.
    pub fn forced(&self) -> Vec<Sample> {
        vec![evicted("operator_force")]
    }
}

/// For how long programs were held still for a snapshot.
pub fn frozen(kind: SubjectKind, took: Duration) -> Sample {
    let kind = kind.to_string();
    Sample::of(metrics::FREEZE, &[("kind", &kind)], took.as_secs_f64())
}

/// An operation of the service that ended. Both words are of closed sets: what was done, and how it ended.
pub fn operation(operation: &str, outcome: &str, took: Duration) -> Vec<Sample> {
    let of = ("operation", operation);
    vec![
        Sample::once(metrics::OPERATIONS, &[of, ("outcome", outcome)]),
        Sample::of(metrics::OPERATION_SECONDS, &[of], took.as_secs_f64()),
    ]
}

impl MetricsFile {
    /// Adds what happened to the file.
    pub async fn add(&self, samples: Vec<Sample>) -> Result<(), Error> {
        let (path, prefix) = (self.path.clone(), self.prefix.clone());
        let written = bridge::blocking(move || {
            let _lock = LockFile::wait(&path.with_extension("lock"))?;
            let before = std::fs::read_to_string(&path).unwrap_or_default();
            let mut all = MetricsRegistry::parse(&before, prefix.as_str());
            for sample in &samples {
                all.add(sample);
            }
            replace_public(&path, all.render(prefix.as_str()).as_bytes())
        });
        Ok(written.await?)
    }
}

fn lock(outcome: &str) -> Sample {
    Sample::once(metrics::LOCK_ACQUIRE, &[("outcome", outcome)])
}

/// How a lease was come by. Whoever takes an expired one over evicts its holder, as the reaper does.
fn acquired(warnings: &[Warning]) -> Vec<Sample> {
    let took_over = |warning: &Warning| matches!(warning, Warning::TookOver { .. });
    if warnings.iter().any(took_over) {
        vec![lock("forced_expired"), evicted("ttl_expired")]
    } else {
        vec![lock("acquired")]
    }
}

/// Whether somebody else owns the lineage.
fn is_held(error: &Error) -> bool {
    let Error::Lineage(error) = error else {
        return false;
    };
    let LineageError::Refused { refusal, .. } = &**error else {
        return false;
    };
    matches!(refusal, Refusal::Held(_))
}

/// What was wrong with a snapshot that a load refused.
fn refused_as(error: &Error) -> Option<&'static str> {
    let Error::Profile(error) = error else {
        return None;
    };
    match &**error {
        ProfileError::Sha { .. } => Some("sha_mismatch"),
        ProfileError::Integrity { .. } => Some("integrity_failed"),
        ProfileError::OnlyOtherMajors { .. } => Some("version_mismatch"),
        ProfileError::SnapshotTooLarge { .. } => Some("too_large"),
        _ => None,
    }
}

/// A holder lost its lease.
fn evicted(reason: &str) -> Sample {
    Sample::once(metrics::LOCK_EVICT, &[("reason", reason)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use stasis_model::failure::Failure;

    #[test]
    fn a_prefix_is_written_with_or_without_its_underscore() {
        let prefix = |text: &str| text.parse::<MetricsPrefix>().ok();

        assert_eq!(prefix("mantis").unwrap().as_str(), "mantis_");
        assert_eq!(prefix("mantis_").unwrap().as_str(), "mantis_");
        assert_eq!(prefix("stasis"), Some(MetricsPrefix::default()));
        for bad in ["", "_", "7up", "a-b", "a b", "a{"] {
            assert_eq!(prefix(bad), None, "{bad}");
        }
    }

    fn samples() -> ProfileSamples {
        ProfileSamples {
            with_subjects: false,
            host: Label::nobody(),
        }
    }

    /// A load that came to nothing, for a reason.
    fn fallback(reason: FallbackReason) -> ProfileLoaded {
        ProfileLoaded {
            subject: "acme/alice@131".parse().unwrap(),
            outcome: LoadOutcome::FreshFallback,
            reason: Some(reason),
            detail: None,
            sha256: None,
            base_sha256: None,
            active_sha256: None,
            upgraded_from: None,
            captured_at: None,
            captured_at_ms: None,
            dir: String::new(),
            kept: None,
            empty: false,
            files: 0,
            bytes: 0,
            archive_bytes: 0,
            bytes_fetched: 0,
            databases: 0,
            download_ms: 0,
            extract_ms: 0,
            warnings: Vec::new(),
        }
    }

    /// The one sample that there is, as it is written.
    fn written(samples: &[Sample]) -> String {
        let [sample] = samples else {
            panic!("one sample, not {samples:?}");
        };
        let mut all = MetricsRegistry::default();
        all.add(sample);
        let text = all.render("");
        text.lines().last().unwrap().to_owned()
    }

    #[test]
    fn a_load_is_counted_by_what_was_wrong_whether_it_was_refused_or_began_empty() {
        let snapshot = || "abc".to_owned();
        let refused = |error: ProfileError| Err(error.into());
        let too_large = ProfileError::SnapshotTooLarge {
            snapshot: snapshot(),
            bytes: 9,
            limit: 1,
        };
        let damaged = ProfileError::Integrity {
            snapshot: snapshot(),
            databases: vec!["Default/Cookies".to_owned()],
        };
        for (word, loads) in [
            (
                "too_large",
                [Ok(fallback(FallbackReason::TooLarge)), refused(too_large)],
            ),
            (
                "integrity_failed",
                [
                    Ok(fallback(FallbackReason::IntegrityFailed)),
                    refused(damaged),
                ],
            ),
        ] {
            for load in loads {
                let counted = written(&samples().loaded(&load));
                let wanted = format!("profile_load_total{{outcome=\"{word}\",host=\"\"}} 1");
                assert_eq!(counted, wanted);
            }
        }
    }

    #[test]
    fn a_save_that_fails_is_counted_and_one_that_somebody_gave_up_is_skipped() {
        for (kind, word) in [
            (ErrorKind::Unreachable, "failed"),
            (ErrorKind::Cancelled, "skipped"),
        ] {
            let error = Failure::of(kind, "the archive was not stored");
            let counted = written(&samples().saved(&Err(error.into())));
            let wanted = format!("profile_snapshot_total{{outcome=\"{word}\",host=\"\"}} 1");
            assert_eq!(counted, wanted);
        }
    }
}
