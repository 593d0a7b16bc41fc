//! Where the metrics of a save, a load or a run go.

use crate::cli::CliContext;
use clap::Args;
use stasis_engine::error::error_chain;
use stasis_engine::metrics::{MetricsFile, MetricsPrefix, ProfileSamples};
use stasis_engine::model::metrics::Sample;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct MetricsArgs {
    /// Add counts and times to this file, for the textfile collector of Prometheus' node exporter
    #[arg(long = "metrics-file", global = true, value_name = "PATH")]
    file: Option<PathBuf>,
    /// What the names of metrics begin with
    #[arg(
        long = "metrics-prefix",
        global = true,
        value_name = "PREFIX",
        default_value = "stasis"
    )]
    prefix: MetricsPrefix,
    /// Also report sizes by tenant and profile: one series each
    #[arg(
        long = "metrics-per-profile",
        alias = "metrics-subjects",
        global = true
    )]
    per_profile: bool,
}

impl MetricsArgs {
    /// Nobody wants any.
    pub(super) fn none() -> Self {
        Self {
            file: None,
            prefix: MetricsPrefix::default(),
            per_profile: false,
        }
    }

    /// Adds what happened; that it could not be written down changes nothing of what happened.
    pub(super) async fn add(
        &self,
        context: &CliContext,
        what: impl FnOnce(&ProfileSamples) -> Vec<Sample>,
    ) -> anyhow::Result<()> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let file = MetricsFile {
            path: path.clone(),
            prefix: self.prefix.clone(),
        };
        let samples = ProfileSamples {
            with_subjects: self.per_profile,
            host: context.host(None)?,
        };
        if let Err(error) = file.add(what(&samples)).await {
            let reason = error_chain(&error);
            context
                .output
                .say(&format!("warning: the metrics were not written: {reason}"));
        }
        Ok(())
    }
}
