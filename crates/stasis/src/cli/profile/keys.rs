//! `stasis profile rekey`

use crate::cli::CliContext;
use crate::cli::key::from_file;
use crate::report::Exit;
use clap::Args;
use stasis_engine::model::id::{Label, ProfileRef};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileRekeyArgs {
    /// <tenant>/<profile>[@<chrome-major>]
    subject: ProfileRef,
    /// A file with the key that shall wrap it from now on
    #[arg(long, value_name = "PATH")]
    new_key_file: PathBuf,
}

impl ProfileRekeyArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let lineage = engine.profiles().one_lineage(&self.subject).await?;
        let new = from_file(&self.new_key_file)?;
        let actor: Label = "operator".parse()?;
        let rekeyed = engine.rotate_key(&lineage.into(), &new, &actor).await?;
        context.output.result(&rekeyed, |rekeyed| {
            format!(
                "{} is wrapped by key {} now",
                rekeyed.subject, rekeyed.key_id
            )
        })?;
        Ok(Exit::Done)
    }
}
