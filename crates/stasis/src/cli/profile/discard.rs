//! `stasis profile discard`

use crate::cli::CliContext;
use crate::cli::output::printable;
use crate::report::Exit;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::kind::profile::discard_unsaved;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ProfileDiscardArgs {
    /// The copy, as `stasis profile list --local` names it
    path: PathBuf,
}

/// A copy that was removed.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct Discarded {
    path: String,
}

impl ProfileDiscardArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let path = std::path::absolute(self.path)?;
        let discarded = Discarded {
            path: path.display().to_string(),
        };
        discard_unsaved(path).await?;
        let words = |one: &Discarded| format!("removed `{}`", printable(&one.path));
        context.output.result(&discarded, words)?;
        Ok(Exit::Done)
    }
}
