//! The log of forced, destructive and degraded acts.

use crate::error::Error;
use crate::handle::AuditLog;
use crate::warning::Warning;
use stasis_model::format::event::{AuditEvent, EventKind, Severity};
use stasis_model::id::{Label, TenantId};
use stasis_store::documents::events;
pub use stasis_store::layout::Key;

/// The end of the log of one tenant, or of all.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EventLog {
    /// What happened, and to whom, oldest first.
    pub events: Vec<(TenantId, AuditEvent)>,
    /// Where something lies that is no event we understand; and why, in one line.
    pub unreadable: Vec<(Key, String)>,
}

impl AuditLog<'_> {
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
