//! Series for Prometheus in its text form, added up over many short processes.
//!
//! A process reads the samples that others left, adds its own, and writes all of them again; who does so at a time is
//! not decided here. *Always true:* what is not one of ours, or not a number, is dropped, so that a damaged file is repaired.

use std::collections::BTreeMap;
use std::fmt::Write;

/// What a series means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeriesShape {
    /// It only grows.
    Counter,
    /// It is what was seen last.
    Gauge,
    /// How often a value was at most so large, for seconds.
    Seconds,
    /// The same for bytes.
    Bytes,
}

/// One series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Series {
    /// Its name, without the prefix.
    name: &'static str,
    /// What it counts.
    help: &'static str,
    /// What it means.
    shape: SeriesShape,
}

const SECONDS: [f64; 11] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
const BYTES: [f64; 8] = [1e6, 1e7, 5e7, 1e8, 5e8, 1e9, 4e9, 8e9];

macro_rules! series {
    ($($id:ident = $name:literal, $shape:ident, $help:literal;)*) => {
        $(#[doc = $help] pub const $id: Series = Series { name: $name, help: $help, shape: SeriesShape::$shape };)*
        /// All series.
        pub const ALL: &[Series] = &[$($id),*];
    };
}

series! {
    SNAPSHOT_TOTAL = "profile_snapshot_total", Counter, "Snapshots of profiles, by outcome.";
    SNAPSHOT_ARCHIVE_SIZE = "profile_snapshot_archive_size_bytes", Gauge, "Bytes of a profile's newest archive.";
    SNAPSHOT_CAPTURE = "profile_snapshot_capture_seconds", Seconds, "Time to look at a profile and to archive it.";
    SNAPSHOT_UPLOAD = "profile_snapshot_upload_seconds", Seconds, "Time to upload a snapshot.";
    SNAPSHOT_PUBLISH = "profile_snapshot_pointer_flip_seconds", Seconds, "Time to move the pointer to a snapshot.";
    LOAD_TOTAL = "profile_load_total", Counter, "Loads of profiles, by outcome.";
    LOAD_DOWNLOAD = "profile_load_download_seconds", Seconds, "Time to fetch an archive.";
    LOAD_EXTRACT = "profile_load_extract_seconds", Seconds, "Time to extract and check an archive.";
    LOCK_ACQUIRE = "profile_lock_acquire_total", Counter, "Leases asked for, by outcome.";
    LOCK_EVICT = "profile_lock_evict_total", Counter, "Holders that lost their lease, by reason.";
    ARCHIVE_SIZE = "profile_archive_size_bytes_histogram", Bytes, "Bytes of archives.";
    UNCOMPRESSED_SIZE = "profile_uncompressed_size_bytes_histogram", Bytes, "Bytes of profiles.";

    // The rest are the service's own names, but for the freeze, which runs on other hosts count as well.
    FREEZE = "freeze_seconds", Seconds, "Time for which programs were held still for a snapshot, by kind.";
    OPERATIONS = "operations_total", Counter, "Operations of the service that ended, by what was done and how it ended.";
    OPERATION_SECONDS = "operation_seconds", Seconds, "Time that operations of the service took, by what was done.";
    PROOF_AGE = "proof_age_seconds", Gauge, "Time since a snapshot of this kind was last restored and found right.";
    PROOF_UNPROVED = "proof_unproved_snapshots", Gauge, "Snapshots that were not restored yet to prove them, by kind.";
    PROOF_BROKEN = "proof_broken_snapshots", Gauge, "Snapshots that did not come back when they were last restored to prove them, by kind.";
    BUILD_INFO = "build_info", Gauge, "1, with the version of the program.";
    HTTP_REQUESTS = "http_requests_total", Counter, "Requests that were answered, by route, method and status.";
    HTTP_REQUEST_SECONDS = "http_request_seconds", Seconds, "Time from the head of a request to the beginning of its answer, by route.";
    HTTP_IN_FLIGHT = "http_requests_in_flight", Gauge, "Requests that are being answered.";
    HTTP_REFUSED_LOGINS = "http_refused_logins_total", Counter, "Requests without a token that counts, by what was wrong.";
    EVENTS = "events_total", Counter, "Events of all tenants that were written since the service started, by kind and severity.";
    EVENTS_UNREADABLE = "events_unreadable_total", Counter, "Events of all tenants that could not be understood.";
    EVENTS_READ = "events_read_timestamp_seconds", Gauge, "When the log of events was last read to its end.";
    STORE_SUBJECTS = "store_subjects", Gauge, "Subjects in the store, by kind.";
    STORE_UNREADABLE = "store_unreadable_subjects", Gauge, "Subjects whose documents cannot be read, by kind.";
    STORE_SNAPSHOTS = "store_snapshots", Gauge, "Snapshots in the store, by kind.";
    STORE_LOGICAL = "store_logical_bytes", Gauge, "Bytes of all files of all snapshots, by kind.";
    STORE_STORED = "store_stored_bytes", Gauge, "Bytes that archives and chunks take in the store, by form.";
    STORE_CHUNKS = "store_chunks", Gauge, "Chunks in the store.";
    STORE_DEDUP = "store_dedup_ratio", Gauge, "Bytes of all files of all chunked snapshots, divided by the bytes of their chunks.";
    STORE_PROFILE_SNAPSHOTS = "store_profile_snapshots", Gauge, "Snapshots of one profile.";
    STORE_PROFILE_STORED = "store_profile_stored_bytes", Gauge, "Bytes of the archives of one profile.";
    STORE_SCANNED = "store_scan_timestamp_seconds", Gauge, "When the store was last counted to the end.";
    STORE_SCAN = "store_scan_seconds", Gauge, "Time that the last count of the store took.";
    STORE_SCAN_FAILURES = "store_scan_failures_total", Counter, "Counts of the store that failed.";
    LEASES_HELD = "leases_held", Gauge, "Leases of profiles that somebody holds.";
    LEASES_EXPIRED = "leases_expired", Gauge, "Leases of profiles whose holder did not renew in time, and that nobody freed.";
}

/// The label that says whose a sample is: whoever has it is for that tenant only.
pub const TENANT_LABEL: &str = "tenant_id";

/// One thing that happened.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// In which series.
    pub series: Series,
    /// Labels and their values.
    pub labels: Vec<(&'static str, String)>,
    /// One for a counter; otherwise what was seen.
    pub value: f64,
}

impl Sample {
    /// Something that happened once.
    pub fn once(series: Series, labels: &[(&'static str, &str)]) -> Self {
        Self::of(series, labels, 1.0)
    }

    /// Something that was seen.
    pub fn of(series: Series, labels: &[(&'static str, &str)], value: f64) -> Self {
        let labels = labels
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        Self {
            series,
            labels: labels.collect(),
            value,
        }
    }
}

/// All samples, by name and labels as they are written.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MetricsRegistry(BTreeMap<(&'static str, String), f64>);

impl MetricsRegistry {
    /// Reads what was written under `prefix`; what makes no sense is left out.
    pub fn parse(text: &str, prefix: &str) -> Self {
        let mut metrics = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let known = ALL.iter().find_map(|series| {
                let rest = line.strip_prefix(prefix)?.strip_prefix(series.name)?;
                let ends = ["_bucket{", "_sum{", "_count{", "_sum ", "_count ", "{", " "];
                let end = ends.iter().find(|end| rest.starts_with(**end))?;
                let is_own = matches!(series.shape, SeriesShape::Counter | SeriesShape::Gauge)
                    != end.starts_with('_');
                let (sample, value) = rest.rsplit_once(' ')?;
                let value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite())?;
                is_own.then(|| ((series.name, sample.to_owned()), value))
            });
            metrics.extend(known);
        }
        Self(metrics)
    }

    /// Adds one thing that happened.
    pub fn add(&mut self, sample: &Sample) {
        let name = sample.series.name;
        let labels: Vec<String> = sample
            .labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let with = |more: Option<String>| {
            let all: Vec<String> = labels.iter().cloned().chain(more).collect();
            if all.is_empty() {
                String::new()
            } else {
                format!("{{{}}}", all.join(","))
            }
        };
        let bounds: &[f64] = match sample.series.shape {
            SeriesShape::Counter => {
                *self.0.entry((name, with(None))).or_default() += sample.value;
                return;
            }
            SeriesShape::Gauge => {
                self.0.insert((name, with(None)), sample.value);
                return;
            }
            SeriesShape::Seconds => &SECONDS,
            SeriesShape::Bytes => &BYTES,
        };
        for bound in bounds.iter().chain(&[f64::INFINITY]) {
            let spelled = if bound.is_finite() {
                bound.to_string()
            } else {
                "+Inf".to_owned()
            };
            let key = format!("_bucket{}", with(Some(format!("le=\"{spelled}\""))));
            let bucket = self.0.entry((name, key)).or_default();
            if sample.value <= *bound {
                *bucket += 1.0;
            }
        }
        *self
            .0
            .entry((name, format!("_sum{}", with(None))))
            .or_default() += sample.value;
        *self
            .0
            .entry((name, format!("_count{}", with(None))))
            .or_default() += 1.0;
    }

    /// Takes the samples of another registry in; of what both have, the other one's stay.
    pub fn absorb(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Writes everything down, each series with its meaning.
    pub fn render(&self, prefix: &str) -> String {
        let mut text = String::new();
        for series in ALL {
            let samples = self.0.iter().filter(|((name, _), _)| *name == series.name);
            let mut samples = samples.peekable();
            if samples.peek().is_none() {
                continue;
            }
            let kind = match series.shape {
                SeriesShape::Counter => "counter",
                SeriesShape::Gauge => "gauge",
                SeriesShape::Seconds | SeriesShape::Bytes => "histogram",
            };
            let (name, help) = (series.name, series.help);
            let _ = writeln!(
                text,
                "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}"
            );
            for ((_, sample), value) in samples {
                let _ = writeln!(text, "{prefix}{name}{sample} {value}");
            }
        }
        text
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_processes_saw_adds_up() {
        let success = [("outcome", "success"), ("host", "a\"b")];
        let mut text = String::new();
        for seconds in [0.3, 7.0] {
            let mut metrics = MetricsRegistry::parse(&text, "stasis_");
            metrics.add(&Sample::once(SNAPSHOT_TOTAL, &success));
            metrics.add(&Sample::of(SNAPSHOT_CAPTURE, &[("mode", "cold")], seconds));
            metrics.add(&Sample::of(SNAPSHOT_UPLOAD, &[], seconds));
            text = metrics.render("stasis_");
        }

        for line in [
            "# TYPE stasis_profile_snapshot_total counter",
            "stasis_profile_snapshot_total{outcome=\"success\",host=\"a\\\"b\"} 2",
            "stasis_profile_snapshot_capture_seconds_bucket{mode=\"cold\",le=\"0.5\"} 1",
            "stasis_profile_snapshot_capture_seconds_bucket{mode=\"cold\",le=\"+Inf\"} 2",
            "stasis_profile_snapshot_capture_seconds_count{mode=\"cold\"} 2",
            "stasis_profile_snapshot_upload_seconds_sum 7.3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn rubbish_is_dropped_and_series_with_a_common_beginning_are_told_apart() {
        let text = "stasis_profile_load_total{outcome=\"success\"} 3\nstasis_profile_load_total 4 5 x\nother 1\n\
                    stasis_profile_load_totally 9\nstasis_profile_load_total{} NaN\n";
        let metrics = MetricsRegistry::parse(text, "stasis_");
        assert_eq!(metrics.0.len(), 1);
        let again = MetricsRegistry::parse(&metrics.render("stasis_"), "stasis_");
        assert_eq!(again, metrics);
        assert_eq!(
            MetricsRegistry::parse(&metrics.render("stasis_"), "mantis_"),
            MetricsRegistry::default()
        );
    }
}
