//! `stasis profile`

mod load;
mod run;
mod save;
mod who;

use super::Context;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(super) enum Profile {
    /// Run a browser on its profile: load it, keep the lease, save it in the end
    Run(run::Run),
    /// Save the profile in a directory; its browser is closed first
    Save(save::Save),
    /// Make a directory the profile that was saved last
    Load(load::Load),
}

impl Profile {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self {
            Self::Run(run) => run.run(context).await,
            Self::Save(save) => Ok(save.run(context).await?.into()),
            Self::Load(load) => Ok(load.run(context).await?.into()),
        }
    }
}
