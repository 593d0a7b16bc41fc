//! The log of forced, destructive and degraded acts: one immutable object each.
//!
//! *Always true:* an event that cannot be understood hides no other; it is reported next to them.

use crate::bucket::{Bucket, BucketError, objects};
use crate::documents::lineages::{ReadError, read};
use crate::excerpt::excerpt;
use crate::layout::{self, EventTag, Key, Prefix};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use stasis_model::format::document;
use stasis_model::format::event::AuditEvent;
use stasis_model::id::{OpId, TenantId};
use stasis_model::time::Timestamp;
use std::collections::BTreeSet;

/// How many events are read at once.
const READS_IN_FLIGHT: usize = 16;
/// How many objects may lie among the events that are none.
const STRANGERS: usize = 1000;
/// How much is said about an event that cannot be read.
const REASON_LENGTH: usize = 300;

/// How many events a search for those of one subject may read: those that are about the subject by their names, and those whose names do not say what they are about.
const SEARCH_READS: usize = 500;

/// The end of a tenant's log.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Latest {
    /// What happened, oldest first.
    pub events: Vec<AuditEvent>,
    /// Where something lies, on the days that were read, that is no event we understand; and why, in one line.
    pub unreadable: Vec<(Key, String)>,
}

/// Where an event stands in the log of its tenant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventPlace {
    /// When it happened, by the writer's clock.
    pub at_ms: Timestamp,
    /// Which of those of that moment it is.
    pub id: OpId,
}

impl From<&AuditEvent> for EventPlace {
    fn from(event: &AuditEvent) -> Self {
        let (at_ms, id) = (event.at_ms, event.id);
        Self { at_ms, id }
    }
}

/// Which events of a tenant are looked for.
#[derive(Clone, Copy)]
pub struct EventSearch<'a> {
    /// The subject that they are about, as it is typed: see [`AuditEvent::happened_to`].
    pub subject: &'a str,
    /// Which of those.
    pub is_wanted: &'a (dyn Fn(&AuditEvent) -> bool + Send + Sync),
    /// How many at most: the newest.
    pub most: usize,
}

/// What a search found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FoundEvents {
    /// The newest ones, oldest first.
    pub events: Vec<AuditEvent>,
    /// Where something lies that is about the subject by its name, and is no event we understand; and why, in one line.
    pub unreadable: Vec<(Key, String)>,
    /// The day on which the search ended: of it and of those before not all events were looked at, and there may be more. Nothing, if the
    /// whole log was.
    pub ended_on: Option<String>,
}

/// Writes an event down.
pub async fn record(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    event: &AuditEvent,
) -> Result<(), BucketError> {
    let tag = EventTag::of(&event.happened_to().unwrap_or_default());
    let key = layout::event(tenant, event.at_ms, event.id, &tag);
    bucket.put(&key, Bytes::from(document::render(event))).await
}

/// The last `most` events of a tenant, and what could not be read among them.
pub async fn latest(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    most: usize,
) -> Result<Latest, BucketError> {
    latest_before(bucket, tenant, None, most).await
}

/// The same of those that come before a place in the log.
pub async fn latest_before(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    before: Option<EventPlace>,
    most: usize,
) -> Result<Latest, BucketError> {
    let last_day = before.map(|place| place.at_ms.day());
    let is_before = |event: &AuditEvent| before.is_none_or(|place| EventPlace::from(event) < place);
    let rows = bucket
        .list(&Prefix::events_of(tenant), None, usize::MAX)
        .await?;
    let mut keys: Vec<Key> = rows.into_iter().map(|row| row.key).collect();
    keys.retain(|key| match (&last_day, layout::event_day(key)) {
        (Some(last), Some(day)) => day <= last.as_str(),
        _ => true,
    });
    // Keys sort by day; within a day only the events themselves know their order.
    let mut days = keys
        .chunk_by(|a, b| layout::event_day(a) == layout::event_day(b))
        .rev();
    let mut found = Latest::default();
    while let Some(day) = days.next().filter(|_| found.events.len() < most) {
        read_day(bucket, day, &mut found).await?;
        found.events.retain(is_before);
    }
    let Latest { events, unreadable } = &mut found;
    events.sort_by_key(|event| EventPlace::from(event));
    events.drain(..events.len().saturating_sub(most));
    unreadable.sort();
    Ok(found)
}

/// The last events of a tenant that are about one subject, however busy the tenant is: of others the names alone are looked at.
///
/// The names are listed once, the search goes back from the newest day and reads a bounded number of events; where it ends is said.
pub async fn latest_about(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    search: &EventSearch<'_>,
) -> Result<FoundEvents, BucketError> {
    let (mut found, mut reads) = (FoundEvents::default(), SEARCH_READS);
    let rows = bucket
        .list(&Prefix::events_of(tenant), None, usize::MAX)
        .await?;
    let keys: Vec<Key> = rows.into_iter().map(|row| row.key).collect();
    let days = keys.chunk_by(|a, b| layout::event_day(a) == layout::event_day(b));
    let mut days = days.rev().peekable();
    while let Some(day) = days.next() {
        let name = day.first().and_then(layout::event_day).map(str::to_owned);
        let is_whole = read_about(bucket, search, day.to_vec(), &mut reads, &mut found).await?;
        if !is_whole || found.events.len() >= search.most {
            let is_rest = !is_whole || found.events.len() > search.most;
            found.ended_on = name.filter(|_| is_rest || days.peek().is_some());
            break;
        }
    }
    Ok(found.newest(search.most))
}

impl FoundEvents {
    fn newest(mut self, most: usize) -> Self {
        self.events.sort_by_key(|event| EventPlace::from(event));
        let older = self.events.len().saturating_sub(most);
        self.events.drain(..older);
        self.unreadable.sort();
        self
    }
}

/// Reads what is about the subject among the events of a day, as far as their names say that; whether all of that was read.
async fn read_about(
    bucket: &dyn Bucket,
    search: &EventSearch<'_>,
    mut keys: Vec<Key>,
    reads: &mut usize,
    found: &mut FoundEvents,
) -> Result<bool, BucketError> {
    let wanted = EventTag::of(search.subject);
    keys.retain(|key| layout::event_tag(key).is_none_or(|tag| tag == wanted));
    // Those of older builds last: they may be about anything.
    keys.sort_by_key(|key| layout::event_tag(key).is_none());
    let is_whole = keys.len() <= *reads;
    keys.truncate(*reads);
    *reads -= keys.len();
    let read = read_all(bucket, &keys).await?;
    let is_about = |event: &AuditEvent| event.happened_to().as_deref() == Some(search.subject);
    let events = read.events.into_iter();
    let events = events.filter(|event| is_about(event) && (search.is_wanted)(event));
    found.events.extend(events);
    let unreadable = read.unreadable.into_iter();
    let unreadable = unreadable.filter(|(key, _)| layout::event_tag(key).is_some());
    found.unreadable.extend(unreadable);
    Ok(is_whole)
}

/// At most `most` events of a tenant whose keys come after `after`, or, where nothing is named, those from the day of `from` on.
///
/// Keys are in order of days; within a day they are in no order of time.
pub async fn keys_since(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    from: Timestamp,
    after: Option<&Key>,
    most: usize,
) -> Result<Vec<Key>, BucketError> {
    let from = layout::events_from(tenant, from);
    let after = after.unwrap_or(&from);
    let prefix = Prefix::events_of(tenant);
    let rows = bucket.list(&prefix, Some(after), most).await?;
    Ok(rows.into_iter().map(|row| row.key).collect())
}

/// Reads these events, in no order.
pub async fn read_all(bucket: &dyn Bucket, keys: &[Key]) -> Result<Latest, BucketError> {
    let mut found = Latest::default();
    read_day(bucket, keys, &mut found).await?;
    Ok(found)
}

/// The first tenant that has events and whose events lie after those of `after`: a row is listed, however many events there are.
pub async fn next_tenant(
    bucket: &dyn Bucket,
    after: Option<&TenantId>,
) -> Result<Option<TenantId>, BucketError> {
    let (prefix, end) = (Prefix::events(), after.map(layout::events_end));
    let rows = bucket.list(&prefix, end.as_ref(), 1).await?;
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    if let Some(tenant) = layout::event_tenant(&first.key) {
        return Ok(Some(tenant));
    }
    // What is not ours hides nobody, unless there is very much of it.
    let rows = bucket.list(&prefix, Some(&first.key), STRANGERS).await?;
    let mut rows = rows.iter();
    Ok(rows.find_map(|row| layout::event_tenant(&row.key)))
}

async fn read_day(bucket: &dyn Bucket, day: &[Key], found: &mut Latest) -> Result<(), BucketError> {
    let reads = day.iter().cloned().map(|key| read_one(bucket, key));
    let mut reads = stream::iter(reads).buffer_unordered(READS_IN_FLIGHT);
    while let Some((key, event)) = reads.try_next().await? {
        match event {
            Ok(event) => found.events.extend(event),
            Err(reason) => found.unreadable.push((key, reason)),
        }
    }
    Ok(())
}

/// Reads one event, or why it is none; `None` when it is gone.
async fn read_one(
    bucket: &dyn Bucket,
    key: Key,
) -> Result<(Key, Result<Option<AuditEvent>, String>), BucketError> {
    let event = match read::<AuditEvent>(bucket, &key).await {
        Ok(found) => Ok(found.map(|found| found.value)),
        Err(ReadError::Bucket(error)) => return Err(error),
        Err(ReadError::Document { source, .. }) => Err(reason(&source)),
        Err(other) => Err(reason(&other)),
    };
    Ok((key, event))
}

/// An error with all its causes, in one line.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    excerpt(&texts.join(": "), REASON_LENGTH)
}

/// Every tenant that has events, in order.
pub async fn tenants(bucket: &dyn Bucket) -> Result<Vec<TenantId>, BucketError> {
    let prefix = Prefix::events();
    let listed = objects(bucket, &prefix);
    let tenants = listed.try_filter_map(async |row| Ok(layout::event_tenant(&row.key)));
    let tenants: BTreeSet<TenantId> = tenants.try_collect().await?;
    Ok(tenants.into_iter().collect())
}
