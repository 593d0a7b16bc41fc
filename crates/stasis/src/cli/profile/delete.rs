//! `stasis profile delete`

use crate::cli::CliContext;
use crate::cli::byte_size::size;
use crate::cli::lease::operator;
use crate::report::Exit;
use clap::Args;
use stasis_engine::kind::profile::{self, Deleted, ShaPrefix};
use stasis_engine::model::id::ProfileRef;

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileDeleteArgs {
    /// <tenant>/<profile>[@<chrome-major>]; the major is needed when there are several
    subject: ProfileRef,
    /// The beginning of the snapshot's sha256
    #[arg(long, value_name = "PREFIX")]
    sha: ShaPrefix,
    /// Really do it
    #[arg(long)]
    confirm: bool,
}

impl ProfileDeleteArgs {
    /// The same, when naming the snapshot is enough.
    pub(super) fn confirmed(self) -> Self {
        Self {
            confirm: true,
            ..self
        }
    }

    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let cmd = profile::DeleteSnapshot {
            lineage: engine.profiles().one_lineage(&self.subject).await?,
            sha: self.sha,
            actor: operator(),
        };
        let done = if self.confirm {
            engine.profiles().delete(&cmd).await?
        } else {
            engine.profiles().plan_delete(&cmd).await?
        };
        context.output.warn(&done.warnings);
        context.output.result(&done, text)?;
        if done.applied {
            return Ok(Exit::Done);
        }
        context
            .output
            .insist("nothing was changed: say --confirm to do it");
        Ok(Exit::Failed)
    }
}

fn text(done: &Deleted) -> String {
    let manifest = &done.details.manifest;
    let (sha, bytes) = (done.sha256.prefix(), size(manifest.archive_size_bytes));
    if done.applied {
        format!(
            "{}: {sha} is deleted; its {bytes} go with the next gc",
            done.subject
        )
    } else {
        let captured = manifest.captured_at_ms;
        format!(
            "{}: would delete {sha}, captured at {captured}, {bytes}",
            done.subject
        )
    }
}
