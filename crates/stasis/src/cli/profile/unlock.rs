//! `stasis profile force-unlock` and `reap`: what `stasis lease` does, for whoever thinks of profiles

use super::metrics::MetricsArgs;
use crate::cli::claim::named;
use crate::cli::lease::{self, operator};
use crate::cli::{CliContext, duration};
use crate::report::Exit;
use clap::Args;
use stasis_engine::lease as engine_lease;
use stasis_engine::metrics::ProfileSamples;
use stasis_engine::model::format::lease::Fence;
use stasis_engine::model::id::{Label, ProfileRef};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileForceUnlockArgs {
    /// <tenant>/<profile>[@<chrome-major>]; the major is needed when there are several
    subject: ProfileRef,
    /// Why, for the events log
    #[arg(long, value_name = "TEXT", value_parser = named)]
    reason: Label,
    /// Really do it
    #[arg(long)]
    confirm: bool,
    /// Only if the lock still belongs to this lease, as `<epoch>.<op_id>` from `lease show --json`
    #[arg(long, value_name = "TOKEN")]
    token: Option<Fence>,
}

impl ProfileForceUnlockArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        metrics: &MetricsArgs,
    ) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let cmd = engine_lease::ForceUnlock {
            lineage: engine.profiles().one_lineage(&self.subject).await?,
            seen: self.token,
            reason: self.reason,
            actor: operator(),
        };
        lease::force_unlock(context, &engine, cmd, self.confirm).await?;
        metrics.add(context, ProfileSamples::forced).await?;
        Ok(Exit::Done)
    }
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileReapArgs {
    /// <tenant>/<profile>[@<chrome-major>]; the major is needed when there are several [default: all]
    subject: Option<ProfileRef>,
    /// How long after its expiry, such as 60s [default: each tenant's policy]
    #[arg(long, value_parser = duration::parse)]
    grace: Option<Duration>,
}

impl ProfileReapArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        metrics: &MetricsArgs,
    ) -> anyhow::Result<ExitCode> {
        let engine = context.engine().await?;
        let lineage = match &self.subject {
            Some(subject) => Some(engine.profiles().one_lineage(subject).await?),
            None => None,
        };
        let reaped = engine.leases().reap(lineage.as_ref(), self.grace).await?;
        metrics.add(context, |file| file.reaped(&reaped)).await?;
        lease::report_reaped(context, &reaped)
    }
}
