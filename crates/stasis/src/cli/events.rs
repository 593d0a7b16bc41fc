//! `stasis events`

use super::CliContext;
use super::output::{printable, table, word};
use crate::report::Exit;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::model::format::event::AuditEvent;
use stasis_engine::model::id::TenantId;

#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    /// Only this tenant's [default: all tenants]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// At most this many, the newest
    #[arg(long, default_value_t = 100, value_name = "N")]
    last: usize,
}

/// What `stasis events` shows.
#[derive(Serialize, JsonSchema)]
pub(super) struct EventList {
    #[serde(rename = "items")]
    events: Vec<TenantEvent>,
    unreadable: Vec<UnreadableEvent>,
}

#[derive(Serialize, JsonSchema)]
struct TenantEvent {
    tenant: TenantId,
    /// When, by the writer's clock.
    at: String,
    #[serde(flatten)]
    event: AuditEvent,
}

#[derive(Serialize, JsonSchema)]
struct UnreadableEvent {
    key: String,
    reason: String,
}

impl EventsArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let log = context
            .engine()
            .await?
            .events()
            .latest(self.tenant.as_ref(), self.last)
            .await?;
        let events = log.events.into_iter();
        let unreadable = log.unreadable.into_iter();
        let log = EventList {
            events: events
                .map(|(tenant, event)| TenantEvent {
                    tenant,
                    at: event.at_ms.to_string(),
                    event,
                })
                .collect(),
            unreadable: unreadable
                .map(|(key, reason)| UnreadableEvent {
                    key: key.to_string(),
                    reason,
                })
                .collect(),
        };
        for bad in &log.unreadable {
            context.output.say(&format!(
                "warning: `{}` cannot be read: {}",
                bad.key,
                printable(&bad.reason)
            ));
        }
        let head = ["AT", "SEVERITY", "EVENT", "SUBJECT", "DETAILS"];
        context
            .output
            .result(&log, |log| table(&head, cells(&log.events)))?;
        Ok(if log.unreadable.is_empty() {
            Exit::Done
        } else {
            Exit::Corrupt
        })
    }
}

fn cells(rows: &[TenantEvent]) -> Vec<Vec<String>> {
    let row = |row: &TenantEvent| {
        let event = &row.event;
        let details = event
            .details
            .iter()
            .map(|(name, value)| format!("{name}={}", printable(&value.to_string())));
        vec![
            row.at.clone(),
            word(&event.severity),
            word(&event.kind),
            event
                .subject
                .as_ref()
                .map_or_else(|| row.tenant.to_string(), ToString::to_string),
            details.collect::<Vec<_>>().join(" "),
        ]
    };
    rows.iter().map(row).collect()
}
