//! The log of forced, destructive and degraded acts.

use crate::error::Error;
use crate::open::Engine;
use crate::warning::Warning;
use stasis_model::event::{Event, EventKind, Severity};
use stasis_model::id::{Label, TenantId};
use stasis_store::events;

impl Engine {
    /// A new event of now.
    pub(crate) fn event(&self, kind: EventKind, severity: Severity, actor: &Label) -> Event {
        Event::new(
            self.lineages.op_id(),
            kind,
            severity,
            self.lineages.now(),
            actor.clone(),
        )
    }

    /// Writes an event down; that it could not be is a warning, because the act itself was applied.
    pub(crate) async fn record(&self, tenant: &TenantId, event: Event) -> Option<Warning> {
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

    /// The last `most` events of one tenant, or of all, oldest first.
    pub async fn events(
        &self,
        tenant: Option<&TenantId>,
        most: usize,
    ) -> Result<Vec<(TenantId, Event)>, Error> {
        let tenants = match tenant {
            Some(tenant) => vec![tenant.clone()],
            None => events::tenants(&*self.bucket).await?,
        };
        let mut found = Vec::new();
        for tenant in tenants {
            let latest = events::latest(&*self.bucket, &tenant, most).await?;
            found.extend(latest.into_iter().map(|event| (tenant.clone(), event)));
        }
        found.sort_by_key(|(_, event)| (event.at_ms, event.id));
        Ok(found.split_off(found.len().saturating_sub(most)))
    }
}
