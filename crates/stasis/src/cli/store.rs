//! `stasis store …`

use super::CliContext;
use super::output::{table, word};
use crate::config;
use crate::report::Exit;
use clap::Subcommand;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::probe::{ProbeReport, summary, trustworthy};

/// What a probe found.
#[derive(Serialize, JsonSchema)]
pub(super) struct Probed {
    /// When the probe began.
    checked_at: String,
    #[serde(flatten)]
    report: ProbeReport,
}

#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Find out whether a store honours conditional writes
    ///
    /// Exits with 1 when it does not: then it must not be shared by more than one writer.
    Probe {
        /// The store [default: --store]
        url: Option<String>,
    },
}

impl StoreCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        match self {
            Self::Probe { url } => probe(url, context).await,
        }
    }
}

async fn probe(url: Option<String>, context: &CliContext) -> anyhow::Result<Exit> {
    let location = match url {
        Some(url) => config::store_named(&url)?,
        None => context.location()?,
    };
    let engine = context.engine_at(location, true).await?;
    context
        .output
        .say(&format!("probing {}", engine.location()));
    let report = engine.store().probe().await?;
    let probed = Probed {
        checked_at: report.checked_at_ms.to_string(),
        report,
    };
    context
        .output
        .result(&probed, |probed| text(&probed.report))?;
    Ok(if trustworthy(&probed.report) {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn text(report: &ProbeReport) -> String {
    let rows = report.checks.iter().map(|check| {
        let needed = if check.required {
            "required"
        } else {
            "for information"
        };
        vec![
            word(&check.name),
            word(&check.verdict),
            needed.to_owned(),
            check.detail.clone(),
        ]
    });
    let table = table(&["CHECK", "VERDICT", "", "DETAIL"], rows.collect());
    format!("{table}\n{}", summary(report))
}
