//! The log of forced, destructive and degraded acts: one immutable object each.

use crate::bucket::{Bucket, BucketError};
use crate::layout::{self, Key, Prefix};
use crate::lineages::{ReadError, read};
use bytes::Bytes;
use stasis_model::document;
use stasis_model::event::Event;
use stasis_model::id::TenantId;

/// Writes an event down.
pub async fn record(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    event: &Event,
) -> Result<(), BucketError> {
    let key = layout::event(tenant, event.at_ms, event.id);
    bucket.put(&key, Bytes::from(document::render(event))).await
}

/// The last `most` events of a tenant, oldest first.
pub async fn latest(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    most: usize,
) -> Result<Vec<Event>, ReadError> {
    const PAGE: usize = 1000;
    let mut keys: Vec<Key> = Vec::new();
    loop {
        let page = bucket
            .list(&Prefix::events_of(tenant), keys.last(), PAGE)
            .await?;
        let complete = page.len() < PAGE;
        keys.extend(page.into_iter().map(|row| row.key));
        if complete {
            break;
        }
    }
    // Keys sort by day; within a day only the events themselves know their order.
    let mut events: Vec<Event> = Vec::new();
    let mut days = keys
        .chunk_by(|a, b| layout::event_day(a) == layout::event_day(b))
        .rev();
    while let Some(day) = days.next().filter(|_| events.len() < most) {
        for key in day {
            if let Some(found) = read::<Event>(bucket, key).await? {
                events.push(found.value);
            }
        }
    }
    events.sort_by_key(|event| (event.at_ms, event.id));
    Ok(events.split_off(events.len().saturating_sub(most)))
}

/// Every tenant that has events, in order.
pub async fn tenants(bucket: &dyn Bucket) -> Result<Vec<TenantId>, BucketError> {
    let mut found: Vec<TenantId> = Vec::new();
    let mut after: Option<Key> = None;
    loop {
        let page = bucket.list(&Prefix::events(), after.as_ref(), 1000).await?;
        let complete = page.len() < 1000;
        after = page.last().map(|row| row.key.clone()).or(after);
        found.extend(page.iter().filter_map(|row| layout::event_tenant(&row.key)));
        found.dedup();
        if complete {
            return Ok(found);
        }
    }
}
