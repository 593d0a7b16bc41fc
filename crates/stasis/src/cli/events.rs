//! `stasis events`

use super::Context;
use super::output::{printable, table, word};
use crate::report::Exit;
use clap::Args;
use serde::Serialize;
use stasis_engine::model::event::Event;
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
struct Row {
    tenant: TenantId,
    #[serde(flatten)]
    event: Event,
}

impl Events {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let events = context
            .engine()
            .await?
            .events(self.tenant.as_ref(), self.last)
            .await?;
        let rows: Vec<Row> = events
            .into_iter()
            .map(|(tenant, event)| Row { tenant, event })
            .collect();
        context.output.result(&rows, |rows| {
            table(
                &["AT", "SEVERITY", "EVENT", "SUBJECT", "DETAILS"],
                cells(rows),
            )
        })?;
        Ok(Exit::Done)
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
