//! The log of forced, destructive and degraded acts: one immutable object each.
//!
//! *Always true:* an event that cannot be understood hides no other; it is reported next to them.

use crate::bucket::{Bucket, BucketError, objects};
use crate::documents::lineages::{ReadError, read};
use crate::excerpt::excerpt;
use crate::layout::{self, Key, Prefix};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use stasis_model::format::document;
use stasis_model::format::event::AuditEvent;
use stasis_model::id::TenantId;
use stasis_model::time::Timestamp;
use std::collections::BTreeSet;

/// How many events are read at once.
const READS_IN_FLIGHT: usize = 16;
/// How many objects may lie among the events that are none.
const STRANGERS: usize = 1000;
/// How much is said about an event that cannot be read.
const REASON_LENGTH: usize = 300;

/// The end of a tenant's log.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Latest {
    /// What happened, oldest first.
    pub events: Vec<AuditEvent>,
    /// Where something lies, on the days that were read, that is no event we understand; and why, in one line.
    pub unreadable: Vec<(Key, String)>,
}

/// Writes an event down.
pub async fn record(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    event: &AuditEvent,
) -> Result<(), BucketError> {
    let key = layout::event(tenant, event.at_ms, event.id);
    bucket.put(&key, Bytes::from(document::render(event))).await
}

/// The last `most` events of a tenant, and what could not be read among them.
pub async fn latest(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    most: usize,
) -> Result<Latest, BucketError> {
    let rows = bucket
        .list(&Prefix::events_of(tenant), None, usize::MAX)
        .await?;
    let keys: Vec<Key> = rows.into_iter().map(|row| row.key).collect();
    // Keys sort by day; within a day only the events themselves know their order.
    let mut days = keys
        .chunk_by(|a, b| layout::event_day(a) == layout::event_day(b))
        .rev();
    let mut found = Latest::default();
    while let Some(day) = days.next().filter(|_| found.events.len() < most) {
        read_day(bucket, day, &mut found).await?;
    }
    let Latest { events, unreadable } = &mut found;
    events.sort_by_key(|event| (event.at_ms, event.id));
    events.drain(..events.len().saturating_sub(most));
    unreadable.sort();
    Ok(found)
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
