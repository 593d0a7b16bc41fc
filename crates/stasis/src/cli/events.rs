//! `stasis events`

use super::Context;
use super::output::{printable, table, word};
use crate::report::Exit;
use clap::Args;
use serde::Serialize;
use stasis_engine::events::Key;
use stasis_engine::model::format::event::AuditEvent;
use stasis_engine::model::id::TenantId;

#[derive(Debug, Args)]
pub(super) struct Events {
    /// Only this tenant's [default: all tenants]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// At most this many, the newest
    #[arg(long, default_value_t = 100, value_name = "N")]
    last: usize,
}

#[derive(Serialize)]
struct Log {
    events: Vec<Row>,
    unreadable: Vec<Unreadable>,
}

#[derive(Serialize)]
struct Row {
    tenant: TenantId,
    #[serde(flatten)]
    event: AuditEvent,
}

#[derive(Serialize)]
struct Unreadable {
    key: String,
    reason: String,
}

impl Events {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let log = context
            .engine()
            .await?
            .events()
            .latest(self.tenant.as_ref(), self.last)
            .await?;
        let row = |(tenant, event)| Row { tenant, event };
        let unreadable = |(key, reason): (Key, String)| Unreadable {
            key: key.to_string(),
            reason,
        };
        let log = Log {
            events: log.events.into_iter().map(row).collect(),
            unreadable: log.unreadable.into_iter().map(unreadable).collect(),
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

fn cells(rows: &[Row]) -> Vec<Vec<String>> {
    let row = |row: &Row| {
        let event = &row.event;
        let details = event
            .details
            .iter()
            .map(|(name, value)| format!("{name}={}", printable(&value.to_string())));
        vec![
            event.at_ms.to_string(),
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
