//! Who asks for a lease, and for how long.

use super::CliContext;
use super::duration;
use super::wait::WaitArgs;
use clap::Args;
use stasis_engine::lease::{Acquire, LeaseWait};
use stasis_engine::model::format::lease::Holder;
use stasis_engine::model::id::{Label, Lineage};
use stasis_engine::model::invalid::Invalid;
use stasis_engine::open::Engine;
use stasis_engine::subjects::PROFILE_PREFIX;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct ClaimArgs {
    /// <tenant>/<profile>@<chrome-major>
    #[arg(value_parser = lineage)]
    subject: Lineage,
    /// What this run is called [default: the time and 8 random digits]
    #[arg(long, value_name = "ID", value_parser = named)]
    run_id: Option<Label>,
    /// What this host is called [default: `host` in the configuration file, then the host name]
    #[arg(long)]
    host: Option<Label>,
    /// What the host calls this run
    #[arg(long, value_name = "ID")]
    host_run_id: Option<Label>,
    /// How long the lease lasts without a renewal, such as 90s, 5m or 1h30m; at most 7d [default: the tenant's policy]
    #[arg(long, value_parser = duration::positive)]
    ttl: Option<Duration>,
    #[command(flatten)]
    waiting: WaitArgs,
}

impl ClaimArgs {
    /// How long to wait for another holder.
    pub(super) fn wait(&self, context: &CliContext) -> anyhow::Result<Option<LeaseWait>> {
        self.waiting.lease_wait(context, &self.subject)
    }

    pub(super) fn acquire(self, context: &CliContext, engine: &Engine) -> anyhow::Result<Acquire> {
        let host = context.host(self.host.as_ref())?;
        let run_id = match self.run_id {
            Some(run_id) => run_id,
            None => engine.leases().new_run_id(),
        };
        let host_run_id = self.host_run_id.unwrap_or_else(Label::nobody);
        let holder = Holder {
            run_id,
            host,
            host_run_id,
        };
        Ok(Acquire {
            lineage: self.subject,
            holder,
            ttl: self.ttl,
        })
    }
}

/// Parses the lineage of a profile, which may be written as the subject that it is: `profile:acme/alice@131`.
pub(super) fn lineage(text: &str) -> Result<Lineage, Invalid> {
    text.strip_prefix(PROFILE_PREFIX).unwrap_or(text).parse()
}

/// Parses a label that is not empty.
pub(super) fn named(text: &str) -> Result<Label, String> {
    if text.trim().is_empty() {
        return Err("it must not be empty".to_owned());
    }
    text.parse().map_err(|error: Invalid| error.to_string())
}
