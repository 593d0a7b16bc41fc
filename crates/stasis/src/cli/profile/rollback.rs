//! `stasis profile rollback`

use super::list::marks;
use super::metrics::MetricsArgs;
use crate::cli::CliContext;
use crate::cli::lease::operator;
use crate::report::Exit;
use clap::Args;
use stasis_engine::kind::profile::{self, RolledBack, ShaPrefix};
use stasis_engine::metrics::ProfileSamples;
use stasis_engine::model::id::{Label, ProfileRef};

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileRollbackArgs {
    /// <tenant>/<profile>[@<chrome-major>]; the major is needed when there are several
    subject: ProfileRef,
    /// The beginning of the snapshot's sha256
    #[arg(long, value_name = "PREFIX")]
    sha: ShaPrefix,
    /// Why, for the events log
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: Label,
    /// Really do it
    #[arg(long)]
    confirm: bool,
}

impl ProfileRollbackArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        metrics: &MetricsArgs,
    ) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let cmd = profile::RollbackProfile {
            lineage: engine.profiles().one_lineage(&self.subject).await?,
            sha: self.sha,
            reason: self.reason,
            actor: operator(),
            agreed: None,
        };
        let done = if self.confirm {
            engine.profiles().rollback(&cmd).await?
        } else {
            engine.profiles().plan_rollback(&cmd).await?
        };
        if done.applied && done.evicts.is_some() {
            metrics.add(context, ProfileSamples::forced).await?;
        }
        context.output.warn(&done.warnings);
        context.output.result(&done, rolled_back_text)?;
        if done.applied || done.is_active_already() {
            return Ok(Exit::Done);
        }
        context
            .output
            .insist("nothing was changed: say --confirm to do it");
        Ok(Exit::Failed)
    }
}

pub(super) fn rolled_back_text(done: &RolledBack) -> String {
    let to = done.to_sha256.prefix();
    if done.is_active_already() {
        return format!("{}: {to} is active already", done.subject);
    }
    let from = done.from_sha256.map(|from| from.prefix());
    let from = from.unwrap_or_else(|| "no snapshot".to_owned());
    let verb = if done.applied {
        "went back"
    } else {
        "would go back"
    };
    let captured = done.details.manifest.captured_at_ms;
    let marks = marks(&done.details.marks);
    let evicts = done.evicts.as_ref().filter(|_| !done.applied);
    let evicts = evicts.map(|holder| {
        let (run, host) = (&holder.run_id, &holder.host);
        format!("\nrun `{run}` on `{host}` owns the profile and would be thrown out")
    });
    format!(
        "{}: {verb} from {from} to {to}, captured at {captured} ({marks}){}",
        done.subject,
        evicts.unwrap_or_default()
    )
}
