//! `stasis profile`

mod load;
mod metrics;
mod run;
mod save;
mod who;

use super::Context;
use clap::{Args, Subcommand};
use metrics::Metrics;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct Profile {
    #[command(flatten)]
    metrics: Metrics,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a browser on its profile: load it, keep the lease, save it in the end
    Run(run::Run),
    /// Save the profile in a directory; its browser is closed first
    Save(save::Save),
    /// Make a directory the profile that was saved last
    Load(load::Load),
}

impl Profile {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let metrics = &self.metrics;
        match self.verb {
            Verb::Run(run) => run.run(context, metrics).await,
            Verb::Save(save) => Ok(save.run(context, metrics).await?.into()),
            Verb::Load(load) => Ok(load.run(context, metrics).await?.into()),
        }
    }
}
