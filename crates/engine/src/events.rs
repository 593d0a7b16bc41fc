//! The log of forced, destructive and degraded acts, and how often each of them was written since a moment.

use crate::error::Error;
use crate::handle::AuditLog;
use crate::warning::Warning;
use stasis_model::format::event::{AuditEvent, EventKind, Severity};
use stasis_model::id::{Label, TenantId};
use stasis_model::metrics::{self, Sample};
use stasis_model::time::Timestamp;
use stasis_store::documents::events;
pub use stasis_store::documents::events::{EventPlace, Latest};
pub(crate) use stasis_store::documents::events::{EventSearch, FoundEvents};
use stasis_store::layout;
pub use stasis_store::layout::Key;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// How many listings one round of a tally may ask for.
const LISTINGS: usize = 256;
/// How many events it may read.
const READS: usize = 512;
/// How many keys a listing asks for.
const PAGE: usize = 1000;
/// In every so many rounds tenants are looked for that have had no events yet.
const DISCOVERY: u32 = 20;
/// How far the clock of a writer may be behind: events of that long ago are still looked for.
const LOOK_BACK: Duration = Duration::from_hours(24);

/// The end of the log of one tenant, or of all.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EventLog {
    /// What happened, and to whom, oldest first.
    pub events: Vec<(TenantId, AuditEvent)>,
    /// Where something lies that is no event we understand; and why, in one line.
    pub unreadable: Vec<(Key, String)>,
}

/// How many events of each kind were written since a moment, by the clocks of their writers.
///
/// A round lists only the days in which something new can be, and reads only what it has not read before. *Always true:* a round asks
/// for a bounded number of things; where that is not enough the next one goes on where it stopped, so that nothing is passed over.
#[derive(Debug)]
pub struct EventTally {
    since: Timestamp,
    counts: HashMap<(EventKind, Severity), u64>,
    unreadable: u64,
    /// Every tenant that is known to have events.
    tenants: BTreeSet<TenantId>,
    rounds: u32,
    discovery: Discovery,
    /// Where the next round goes on that could not be ended: the tenant, and the last key that was dealt with.
    resume: Option<(TenantId, Option<Key>)>,
    /// What was read of the days that are still looked at.
    seen: BTreeSet<Key>,
}

/// How far the search for tenants has come.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Discovery {
    /// All of them are known.
    Ended,
    /// Those after this one are not; without one, none is.
    After(Option<TenantId>),
}

/// What is left for a round.
struct Budget {
    listings: usize,
    reads: usize,
}

impl EventTally {
    /// Nothing was read yet.
    pub fn new(since: Timestamp) -> Self {
        Self {
            since,
            counts: HashMap::new(),
            unreadable: 0,
            tenants: BTreeSet::new(),
            rounds: 0,
            discovery: Discovery::Ended,
            resume: None,
            seen: BTreeSet::new(),
        }
    }

    /// Whether the last round came to its end: everything that was there is counted.
    pub fn is_complete(&self) -> bool {
        self.resume.is_none() && self.discovery == Discovery::Ended
    }

    /// Begins a round; the first day that is looked at.
    fn begin(&mut self, now: Timestamp) -> Timestamp {
        let from = self.since.max(now.minus(LOOK_BACK));
        let day = from.day();
        let is_past = |key: &Key| layout::event_day(key).is_some_and(|of| *of < *day);
        self.seen.retain(|key| !is_past(key));
        if self.rounds.is_multiple_of(DISCOVERY) && self.discovery == Discovery::Ended {
            self.discovery = Discovery::After(None);
        }
        self.rounds = self.rounds.wrapping_add(1);
        from
    }

    /// The tenants of a round, from the one on at which the last round stopped.
    fn round(&self) -> Vec<(TenantId, Option<Key>)> {
        let Some((first, after)) = &self.resume else {
            return self.tenants.iter().map(|one| (one.clone(), None)).collect();
        };
        let others = self.tenants.iter().filter(|one| *one > first);
        let others = others.map(|one| (one.clone(), None));
        let begun = (first.clone(), after.clone());
        std::iter::once(begun).chain(others).collect()
    }

    fn add(&mut self, keys: Vec<Key>, read: &Latest) {
        let new = read.events.iter().filter(|event| event.at_ms >= self.since);
        for event in new {
            *self.counts.entry((event.kind, event.severity)).or_default() += 1;
        }
        self.unreadable += read.unreadable.len() as u64;
        self.seen.extend(keys);
    }

    /// The same for Prometheus; of what never happened there is nothing.
    pub fn samples(&self) -> Vec<Sample> {
        let counted = self.counts.iter().map(|((kind, severity), count)| {
            let (kind, severity) = (kind.to_string(), severity.to_string().to_lowercase());
            let labels = [("kind", kind.as_str()), ("severity", &severity)];
            Sample::of(metrics::EVENTS, &labels, number(*count))
        });
        let unreadable = Some(self.unreadable).filter(|count| *count > 0);
        let unreadable =
            unreadable.map(|count| Sample::of(metrics::EVENTS_UNREADABLE, &[], number(count)));
        counted.chain(unreadable).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric is a measure")]
fn number(count: u64) -> f64 {
    count as f64
}

impl AuditLog<'_> {
    /// Counts what was written since the last round.
    pub async fn tally(self, tally: &mut EventTally) -> Result<(), Error> {
        let from = tally.begin(self.lineages.now());
        let mut budget = Budget {
            listings: LISTINGS,
            reads: READS,
        };
        while let Discovery::After(after) = &tally.discovery
            && budget.listings > 0
        {
            budget.listings -= 1;
            let next = events::next_tenant(&*self.bucket, after.as_ref()).await?;
            tally.discovery = next
                .clone()
                .map_or(Discovery::Ended, |one| Discovery::After(Some(one)));
            tally.tenants.extend(next);
        }
        for (tenant, after) in tally.round() {
            tally.resume = self
                .tally_one(tally, &mut budget, (&tenant, from), after)
                .await?;
            if tally.resume.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Counts the events of one tenant; where to go on, if there was not enough left to end it.
    async fn tally_one(
        self,
        tally: &mut EventTally,
        budget: &mut Budget,
        (tenant, from): (&TenantId, Timestamp),
        mut after: Option<Key>,
    ) -> Result<Option<(TenantId, Option<Key>)>, Error> {
        loop {
            if budget.listings == 0 || budget.reads == 0 {
                return Ok(Some((tenant.clone(), after)));
            }
            budget.listings -= 1;
            let listed = events::keys_since(&*self.bucket, tenant, from, after.as_ref(), PAGE);
            let listed = listed.await?;
            let (count, last) = (listed.len(), listed.last().cloned());
            let new = listed.into_iter().filter(|key| !tally.seen.contains(key));
            let mut new: Vec<Key> = new.collect();
            let is_cut = new.len() > budget.reads;
            new.truncate(budget.reads);
            budget.reads -= new.len();
            let read = events::read_all(&*self.bucket, &new).await?;
            tally.add(new, &read);
            if is_cut {
                return Ok(Some((tenant.clone(), after)));
            }
            if count < PAGE {
                return Ok(None);
            }
            after = last;
        }
    }

    /// A new event of now.
    pub(crate) fn event(self, kind: EventKind, severity: Severity, actor: &Label) -> AuditEvent {
        AuditEvent::new(
            self.lineages.op_id(),
            kind,
            severity,
            self.lineages.now(),
            actor.clone(),
        )
    }

    /// Writes an event down; that it could not be is a warning, because the act itself was applied.
    pub(crate) async fn record(self, tenant: &TenantId, event: AuditEvent) -> Option<Warning> {
        match events::record(&*self.bucket, tenant, &event).await {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(kind = ?event.kind, %error, "event not recorded");
                Some(Warning::EventNotRecorded {
                    reason: error.to_string(),
                })
            }
        }
    }

    /// The last events of a tenant that come before a place in its log, at most `most`, and what could not be read among them.
    pub async fn before(
        self,
        tenant: &TenantId,
        place: Option<EventPlace>,
        most: usize,
    ) -> Result<Latest, Error> {
        Ok(events::latest_before(&*self.bucket, tenant, place, most).await?)
    }

    /// The last events that happened to one subject of a tenant.
    pub(crate) async fn about(
        self,
        tenant: &TenantId,
        search: &EventSearch<'_>,
    ) -> Result<FoundEvents, Error> {
        Ok(events::latest_about(&*self.bucket, tenant, search).await?)
    }

    /// The last `most` events of one tenant, or of all, and what could not be read among them.
    pub async fn latest(self, tenant: Option<&TenantId>, most: usize) -> Result<EventLog, Error> {
        let tenants = match tenant {
            Some(tenant) => vec![tenant.clone()],
            None => events::tenants(&*self.bucket).await?,
        };
        let mut log = EventLog::default();
        for tenant in tenants {
            let latest = events::latest(&*self.bucket, &tenant, most).await?;
            let events = latest.events.into_iter();
            log.events
                .extend(events.map(|event| (tenant.clone(), event)));
            log.unreadable.extend(latest.unreadable);
        }
        log.events.sort_by_key(|(_, event)| (event.at_ms, event.id));
        let older = log.events.len().saturating_sub(most);
        log.events.drain(..older);
        Ok(log)
    }
}

#[cfg(test)]
mod tests;
