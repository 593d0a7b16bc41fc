//! `stasis profile fork`

use crate::cli::CliContext;
use crate::cli::byte_size::size;
use crate::report::Exit;
use anyhow::Context as _;
use clap::Args;
use stasis_engine::kind::profile::{self, ShaPrefix};
use stasis_engine::model::format::lease::Holder;
use stasis_engine::model::id::{Label, ProfileRef};

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileForkArgs {
    /// <tenant>/<profile>[@<chrome-major>]; the major is needed when there are several
    #[arg(value_name = "SRC")]
    source: ProfileRef,
    /// <tenant>/<profile>
    #[arg(value_name = "DST")]
    target: ProfileRef,
    /// The beginning of the snapshot's sha256 [default: the active one]
    #[arg(long, value_name = "PREFIX")]
    sha: Option<ShaPrefix>,
}

impl ProfileForkArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let host: Label = match &context.config.host {
            Some(host) => host.parse().context("`host` in the configuration file")?,
            None => rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .parse()?,
        };
        let cmd = profile::ForkProfile {
            source: engine.profiles().one_lineage(&self.source).await?,
            sha: self.sha,
            target: self.target,
            holder: Holder {
                run_id: engine.leases().new_run_id(),
                host,
                host_run_id: Label::nobody(),
            },
        };
        let forked = engine.profiles().fork(&cmd).await?;
        context.output.warn(&forked.warnings);
        context.output.result(&forked, |forked| {
            let (sha, bytes) = (forked.sha256.prefix(), size(forked.bytes));
            let from = &forked.forked_from;
            format!("{}: begins with {sha} of {from}, {bytes}", forked.subject)
        })?;
        Ok(Exit::Done)
    }
}
