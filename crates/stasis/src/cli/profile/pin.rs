//! `stasis profile pin` and `unpin`

use crate::cli::CliContext;
use crate::report::Exit;
use clap::Args;
use stasis_engine::kind::profile::{Pinned, Pinning, ShaPrefix};
use stasis_engine::model::id::ProfileRef;

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfilePinArgs {
    /// <tenant>/<profile>[@<chrome-major>]; the major is needed when there are several
    subject: ProfileRef,
    /// The beginning of the snapshot's sha256
    #[arg(long, value_name = "PREFIX")]
    sha: ShaPrefix,
}

impl ProfilePinArgs {
    pub(super) async fn run(self, context: &CliContext, pinning: Pinning) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let lineage = engine.profiles().one_lineage(&self.subject).await?;
        let done = engine.profiles().pin(&lineage, &self.sha, pinning).await?;
        context.output.warn(&done.warnings);
        context.output.result(&done, pinned_text)?;
        Ok(Exit::Done)
    }
}

pub(super) fn pinned_text(done: &Pinned) -> String {
    let words = if done.pinned {
        "is pinned"
    } else {
        "is not pinned"
    };
    format!("{}: {} {words}", done.subject, done.sha256.prefix())
}
