//! What the service counts, for Prometheus.
//!
//! Three sources, each with a place of its own: what this process did (requests, and acts on the store), the log of events, and a count
//! of the store. The first is a registry in memory. The second is read when somebody scrapes, at most every ten seconds and in bounded
//! rounds, for which a scrape waits only so long. The third is expensive: a task makes it at an interval, and a scrape never does.
//!
//! *Always true:* what was not counted is not exported, be it as a zero. Labels are words of closed sets, and whatever names a tenant is
//! shown to that tenant only. A scrape fails neither because the store does not answer nor because nothing was counted yet.

use super::problem::{Problem, ProblemCode};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Method, StatusCode};
use stasis_engine::error::error_chain;
use stasis_engine::events::EventTally;
use stasis_engine::metrics::{MetricsPrefix, ProfileSamples, SampleSink};
use stasis_engine::model::id::{Label, TenantId};
use stasis_engine::model::metrics::{self, MetricsRegistry, Sample, Series, TENANT_LABEL};
use stasis_engine::model::time::{Clock, Timestamp};
use stasis_engine::open::Engine;
use stasis_engine::subjects::SubjectKind;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For how long the log of events is not looked at again.
const EVENTS_REMEMBERED: Duration = Duration::from_secs(10);
/// How long a scrape waits for it.
const EVENTS_WITHIN: Duration = Duration::from_secs(2);
/// A count of the store is followed by a rest so many times as long as it took.
const REST: u32 = 9;

/// What is counted, and under which names.
#[derive(Clone, Debug)]
pub(crate) struct MetricsSettings {
    pub(crate) prefix: MetricsPrefix,
    /// Whether there are series for each profile, for the tenant that it is of.
    pub(crate) per_profile: bool,
    /// What this host is called.
    pub(crate) host: Label,
    /// How often the store is counted.
    pub(crate) scan_interval: Duration,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self {
            prefix: MetricsPrefix::default(),
            per_profile: false,
            host: Label::nobody(),
            scan_interval: Duration::from_mins(5),
        }
    }
}

/// What the service counts.
#[derive(Debug)]
pub(super) struct ServiceMetrics {
    settings: MetricsSettings,
    clock: Arc<dyn Clock>,
    /// What this process did.
    own: Mutex<OwnSamples>,
    /// How many requests are being answered.
    in_flight: AtomicU32,
    /// When a snapshot of each kind was last restored to prove it, whichever server did.
    proofs: Mutex<BTreeMap<SubjectKind, Timestamp>>,
    /// What the last count of the store found.
    scanned: Mutex<Vec<Sample>>,
    /// What is read of the log of events. Whoever reads has it.
    tally: Arc<tokio::sync::Mutex<EventReading>>,
    /// What was found there.
    events: Arc<Mutex<Vec<Sample>>>,
}

/// Samples of this process.
#[derive(Debug, Default)]
struct OwnSamples {
    of_all: MetricsRegistry,
    /// Those with the name of a tenant.
    of_tenants: HashMap<TenantId, MetricsRegistry>,
}

/// How far the log of events is read.
#[derive(Debug)]
struct EventReading {
    tally: EventTally,
    /// When it was read last.
    at: Option<Duration>,
}

/// A request that is being answered, for as long as this lives.
#[derive(Debug)]
pub(super) struct InFlight<'a>(&'a AtomicU32);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ServiceMetrics {
    pub(super) fn new(settings: MetricsSettings, clock: Arc<dyn Clock>) -> Self {
        let tally = EventReading {
            tally: EventTally::new(clock.now()),
            at: None,
        };
        Self {
            settings,
            clock,
            own: Mutex::default(),
            in_flight: AtomicU32::new(0),
            proofs: Mutex::default(),
            scanned: Mutex::default(),
            tally: Arc::new(tokio::sync::Mutex::new(tally)),
            events: Arc::default(),
        }
    }

    /// How acts on profiles are counted.
    pub(super) fn of_profiles(&self) -> ProfileSamples {
        ProfileSamples {
            with_subjects: self.settings.per_profile,
            host: self.settings.host.clone(),
        }
    }

    /// Where the engine adds what it does on its way to something else.
    pub(super) fn sink(self: &Arc<Self>) -> SampleSink {
        let metrics = self.clone();
        SampleSink::new(move |samples| metrics.add(samples))
    }

    /// Adds what this process did.
    pub(super) fn add(&self, samples: Vec<Sample>) {
        let mut own = locked(&self.own);
        for sample in samples {
            let of = sample
                .labels
                .iter()
                .find(|(label, _)| *label == TENANT_LABEL);
            match of.map(|(_, tenant)| tenant.parse::<TenantId>()) {
                None => own.of_all.add(&sample),
                Some(Ok(tenant)) if self.settings.per_profile => {
                    own.of_tenants.entry(tenant).or_default().add(&sample);
                }
                Some(_) => {}
            }
        }
    }

    /// One more request is being answered.
    #[must_use = "it is being answered only for as long as this lives"]
    pub(super) fn begin(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(&self.in_flight)
    }

    /// A request was answered.
    pub(super) fn answered(
        &self,
        (route, method): (&'static str, &Method),
        status: StatusCode,
        took: Duration,
    ) {
        let of = ("route", route);
        let labels = [
            of,
            ("method", method_word(method)),
            ("status", status.as_str()),
        ];
        self.add(vec![
            Sample::once(metrics::HTTP_REQUESTS, &labels),
            Sample::of(metrics::HTTP_REQUEST_SECONDS, &[of], took.as_secs_f64()),
        ]);
    }

    /// A request was refused; counts those that have no token that counts.
    pub(super) fn refused(&self, problem: &Problem, shows_token: bool) {
        if problem.code == ProblemCode::Unauthorized {
            let reason = if shows_token { "refused" } else { "missing" };
            let labels = [("reason", reason)];
            self.add(vec![Sample::once(metrics::HTTP_REFUSED_LOGINS, &labels)]);
        }
    }

    /// Everything for one who asks for this tenant.
    pub(super) async fn exposition(&self, engine: &Engine, tenant: &TenantId) -> String {
        self.read_events(engine).await;
        let mut all = {
            let own = locked(&self.own);
            let mut all = own.of_all.clone();
            let of_tenant = own.of_tenants.get(tenant);
            all.absorb(of_tenant.cloned().unwrap_or_default());
            all
        };
        let is_for = |sample: &&Sample| {
            let mut labels = sample.labels.iter();
            let named = labels.find(|(label, _)| *label == TENANT_LABEL);
            named.is_none_or(|(_, name)| name == tenant.as_str())
        };
        for sample in locked(&self.scanned).iter().filter(is_for) {
            all.add(sample);
        }
        for sample in locked(&self.events).iter() {
            all.add(sample);
        }
        for sample in self.present() {
            all.add(&sample);
        }
        all.render(self.settings.prefix.as_str())
    }

    /// What is so at this moment.
    fn present(&self) -> Vec<Sample> {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let in_flight = f64::from(self.in_flight.load(Ordering::Relaxed));
        let mut samples = vec![
            Sample::of(metrics::BUILD_INFO, &version, 1.0),
            Sample::of(metrics::HTTP_IN_FLIGHT, &[], in_flight),
        ];
        let now = self.clock.now();
        for (kind, at) in locked(&self.proofs).iter() {
            let (kind, age) = (kind.to_string(), now.since(*at));
            let labels = [("kind", kind.as_str())];
            samples.push(Sample::of(metrics::PROOF_AGE, &labels, age.as_secs_f64()));
        }
        samples
    }

    /// Reads what is new in the log of events. Where that takes longer than a scrape should, it goes on by itself.
    async fn read_events(&self, engine: &Engine) {
        // Whoever reads it now reads it for us, too.
        let Ok(mut reading) = self.tally.clone().try_lock_owned() else {
            return;
        };
        let now = self.clock.uptime();
        let is_new = |at: Duration| now.saturating_sub(at) < EVENTS_REMEMBERED;
        if reading.at.is_some_and(is_new) {
            return;
        }
        reading.at = Some(now);
        let (engine, clock) = (engine.clone(), self.clock.clone());
        let events = self.events.clone();
        let task = tokio::spawn(async move {
            let read = engine.events().tally(&mut reading.tally).await;
            let is_complete = reading.tally.is_complete();
            let mut samples = reading.tally.samples();
            if let Err(error) = read {
                let error = error_chain(&error);
                tracing::warn!(%error, "the log of events was not read for the metrics");
            } else if is_complete {
                samples.push(moment(metrics::EVENTS_READ, clock.now()));
            }
            let mut found = locked(&events);
            // That it was read once stays true.
            if !samples.iter().any(is_of_reading) {
                samples.extend(found.iter().filter(|one| is_of_reading(one)).cloned());
            }
            *found = samples;
        });
        let _ = tokio::time::timeout(EVENTS_WITHIN, task).await;
    }

    /// Counts the store again and again, until whoever waits for it ends it.
    pub(super) async fn scan_for_ever(&self, engine: &Engine) {
        loop {
            let took = self.scan(engine).await;
            let pause = self.settings.scan_interval.max(took * REST);
            tokio::time::sleep(pause).await;
        }
    }

    /// Counts the store once; for how long that took.
    pub(super) async fn scan(&self, engine: &Engine) -> Duration {
        let began = self.clock.uptime();
        let stats = engine.store_stats(None).await;
        let took = self.clock.uptime().saturating_sub(began);
        let stats = match stats {
            Ok(stats) => stats,
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(%error, "the store was not counted for the metrics");
                self.add(vec![Sample::once(metrics::STORE_SCAN_FAILURES, &[])]);
                return took;
            }
        };
        let proven = stats.kinds.iter();
        let proven = proven.filter_map(|(kind, of)| Some((*kind, of.proofs.restored_at_ms?)));
        *locked(&self.proofs) = proven.collect();
        let mut samples = stats.samples();
        if self.settings.per_profile {
            samples.extend(stats.profile_samples());
        }
        samples.push(moment(metrics::STORE_SCANNED, self.clock.now()));
        let seconds = took.as_secs_f64();
        samples.push(Sample::of(metrics::STORE_SCAN, &[], seconds));
        *locked(&self.scanned) = samples;
        took
    }
}

fn is_of_reading(sample: &Sample) -> bool {
    sample.series == metrics::EVENTS_READ
}

/// A moment as Prometheus has it: in seconds.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of our time fit")]
fn moment(series: Series, at: Timestamp) -> Sample {
    Sample::of(series, &[], at.millis() as f64 / 1000.0)
}

/// A method as a label: what clients invent is one word.
fn method_word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Whether a request shows a token, be it none of ours.
pub(super) fn shows_token(head: &Parts) -> bool {
    head.headers.contains_key(AUTHORIZATION)
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::{SystemClock, SystemRng};
    use stasis_engine::open::{AwsSettings, LocalDirs, Open, StoreLocation};

    async fn engine() -> Engine {
        let open = Open {
            location: StoreLocation::Memory,
            create: true,
            aws: AwsSettings::default(),
            local_dirs: LocalDirs {
                cache: None,
                state: None,
            },
        };
        let system = (Arc::new(SystemClock), Arc::new(SystemRng));
        Engine::open(open, system.0, system.1).await.unwrap()
    }

    fn metrics(per_profile: bool) -> ServiceMetrics {
        let settings = MetricsSettings {
            prefix: "mantis".parse().unwrap(),
            per_profile,
            ..MetricsSettings::default()
        };
        ServiceMetrics::new(settings, Arc::new(SystemClock))
    }

    fn size_of(tenant: &str) -> Sample {
        let labels = [(TENANT_LABEL, tenant), ("profile_id", "alice")];
        Sample::of(metrics::SNAPSHOT_ARCHIVE_SIZE, &labels, 7.0)
    }

    #[tokio::test]
    async fn whatever_names_a_tenant_is_shown_to_it_alone_and_only_where_it_was_asked_for() {
        let (engine, acme) = (engine().await, "acme".parse().unwrap());
        for (per_profile, expected) in [(true, 1), (false, 0)] {
            let metrics = metrics(per_profile);
            metrics.add(vec![size_of("acme"), size_of("other")]);

            let text = metrics.exposition(&engine, &acme).await;

            assert_eq!(text.matches("tenant_id=\"acme\"").count(), expected);
            assert!(!text.contains("other"), "{text}");
        }
    }

    #[tokio::test]
    async fn the_age_of_a_proof_grows_and_of_what_was_never_proven_there_is_none() {
        let (engine, acme) = (engine().await, "acme".parse().unwrap());
        let service = metrics(false);
        let hour = Duration::from_hours(1);
        let proven = service.clock.now().minus(hour);
        locked(&service.proofs).insert(SubjectKind::Dir, proven);
        let labels = [("kind", "dir")];
        let broken = Sample::of(metrics::PROOF_BROKEN, &labels, 2.0);
        locked(&service.scanned).push(broken);

        let text = service.exposition(&engine, &acme).await;

        let value = |sample: &str| -> Option<f64> {
            let mut lines = text.lines();
            let rest = lines.find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
            rest.parse().ok()
        };
        let age = value("mantis_proof_age_seconds{kind=\"dir\"}").unwrap();
        assert!((3600.0..3700.0).contains(&age), "{age}");
        assert_eq!(value("mantis_proof_age_seconds{kind=\"profile\"}"), None);
        let broken = value("mantis_proof_broken_snapshots{kind=\"dir\"}");
        assert_eq!(broken, Some(2.0));
        // The store is counted anew: what it says of proofs is what counts.
        service.scan(&engine).await;
        let text = service.exposition(&engine, &acme).await;
        assert!(!text.contains("mantis_proof_"), "{text}");
    }

    #[tokio::test]
    async fn the_store_and_the_proofs_are_there_once_they_were_counted() {
        let (engine, acme) = (engine().await, "acme".parse().unwrap());
        let metrics = metrics(false);
        metrics.add(metrics.of_profiles().forced());
        let before = metrics.exposition(&engine, &acme).await;
        assert!(!before.contains("mantis_store_"), "{before}");

        metrics.scan(&engine).await;

        let text = metrics.exposition(&engine, &acme).await;
        for line in [
            "mantis_profile_lock_evict_total{reason=\"operator_force\"} 1",
            "mantis_store_subjects{kind=\"container\"} 0",
            "mantis_leases_held 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
        // Nothing was restored yet: neither came something back, nor did it not.
        assert!(!text.contains("mantis_proof_"), "{text}");
        assert!(text.contains("mantis_store_scan_timestamp_seconds "));
        // Nothing is stored, so that no ratio is known; nor are the files in archives.
        assert!(!text.contains("mantis_store_dedup_ratio "), "{text}");
        assert!(!text.contains("mantis_store_logical_bytes{kind=\"profile\"}"));
    }
}
