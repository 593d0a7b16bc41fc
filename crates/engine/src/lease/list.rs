//! Who holds what: all locks of a tenant, read together.
//!
//! A lock that cannot be read hides no other: it is named beside them.

use crate::address::as_typed;
use crate::error::{Error, error_chain};
use crate::handle::Leases;
use crate::lease::left;
use crate::warning::Warning;
use futures_util::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::lease::{Holder, Lock, LockState};
use stasis_model::id::{Epoch, Generation, Lineage, TenantId};
use stasis_model::time::Timestamp;
use stasis_store::documents::leases;
use stasis_store::documents::lineages::ReadError;

/// How many locks are read at once.
const READS_IN_FLIGHT: usize = 16;

/// One lock, without what its holder needs to renew it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LeaseRow {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// Held, free or forced.
    pub state: LockState,
    /// Whether somebody must be assumed to hold it.
    pub live: bool,
    /// The holder, or the last one.
    #[serde(flatten)]
    pub holder: Holder,
    /// The lease's number.
    pub epoch: Epoch,
    /// How often the lock was written.
    pub generation: Generation,
    /// Milliseconds until it expires; negative when it has.
    pub expires_in_ms: i64,
    /// The last moment at which it is certainly held.
    pub expires_at: String,
    /// When the holder last renewed.
    pub renewed_at: String,
    /// How often the holder renewed.
    pub renewal_count: u64,
}

/// A lock that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UnreadableLease {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// What is wrong with it.
    pub reason: String,
}

/// The locks of a tenant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LeaseList {
    /// Those that somebody holds come first, the one that expires next at the head; then the others by name.
    pub items: Vec<LeaseRow>,
    /// Those that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableLease>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl LeaseRow {
    fn of(subject: Lineage, lock: Lock, now: Timestamp) -> Self {
        Self {
            subject,
            state: lock.state,
            live: lock.is_live(now),
            epoch: lock.epoch,
            generation: lock.generation,
            expires_in_ms: left(lock.expires_at, now),
            expires_at: lock.expires_at.to_string(),
            renewed_at: lock.renewed_at.to_string(),
            renewal_count: lock.renewal_count,
            holder: lock.holder,
        }
    }
}

impl Leases<'_> {
    /// Lists the locks of a tenant.
    pub async fn list(self, tenant: &TenantId) -> Result<LeaseList, Error> {
        let lineages = leases::locked_of(&*self.bucket, tenant).await?;
        let now = self.lineages.now();
        let reads = lineages.into_iter().map(|lineage| async move {
            let lock = self.lineages.lock(&lineage).await;
            (lineage, lock)
        });
        let mut reads = stream::iter(reads).buffer_unordered(READS_IN_FLIGHT);
        let (mut items, mut unreadable) = (Vec::new(), Vec::new());
        while let Some((subject, lock)) = reads.next().await {
            match lock {
                Ok(Some(lock)) => items.push(LeaseRow::of(subject, lock.value, now)),
                Ok(None) => {}
                Err(error @ ReadError::Bucket(_)) => return Err(error.into()),
                Err(error) => unreadable.push(UnreadableLease {
                    subject,
                    reason: error_chain(&error),
                }),
            }
        }
        items.sort_by(|a, b| {
            let key = |row: &LeaseRow| (!row.live, if row.live { row.expires_in_ms } else { 0 });
            key(a).cmp(&key(b)).then_with(|| a.subject.cmp(&b.subject))
        });
        unreadable.sort_by(|a, b| a.subject.cmp(&b.subject));
        Ok(LeaseList {
            items,
            unreadable,
            warnings: self.clock_warnings(),
        })
    }
}
