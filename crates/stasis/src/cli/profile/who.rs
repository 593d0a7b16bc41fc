//! Who saves or loads, where, and with what.

use crate::cli::CliContext;
use anyhow::Context as _;
use clap::Args;
use stasis_engine::check::Spawn;
use stasis_engine::model::format::lease::Holder;
use stasis_engine::model::format::manifest::{CapturedIn, Geo};
use stasis_engine::model::id::Label;
use stasis_engine::open::Engine;

/// Who does it.
#[derive(Clone, Debug, Args)]
pub(super) struct ProfileOwnerArgs {
    /// What this run is called [default: the time and 8 random digits]
    #[arg(long, value_name = "ID")]
    run_id: Option<Label>,
    /// What this host is called [default: `host` in the configuration file, then the host name]
    #[arg(long)]
    host: Option<Label>,
    /// What the host calls this run
    #[arg(long, value_name = "ID")]
    host_run_id: Option<Label>,
    /// The region this host is in, such as us-east-1
    #[arg(long)]
    pub(super) region: Option<Label>,
    /// Where the world sees this host, such as US/NY
    #[arg(long, value_name = "COUNTRY/REGION", value_parser = geo)]
    egress_geo: Option<Geo>,
}

impl ProfileOwnerArgs {
    pub(super) fn holder(&self, context: &CliContext, engine: &Engine) -> anyhow::Result<Holder> {
        Ok(Holder {
            run_id: self
                .run_id
                .clone()
                .unwrap_or_else(|| engine.leases().new_run_id()),
            host: context.host(self.host.as_ref())?,
            host_run_id: self.host_run_id.clone().unwrap_or_default(),
        })
    }

    pub(super) fn place(&self) -> CapturedIn {
        CapturedIn {
            host_region: self.region.clone(),
            egress_ip_geo: self.egress_geo.clone(),
        }
    }
}

fn geo(text: &str) -> Result<Geo, String> {
    let (country, region) = text.split_once('/').unwrap_or((text, ""));
    if country.is_empty() {
        return Err("write it as COUNTRY or COUNTRY/REGION, such as US/NY".to_owned());
    }
    let label = |text: &str| text.parse::<Label>().map_err(|error| error.to_string());
    Ok(Geo {
        country: label(country)?,
        region: label(region)?,
    })
}

/// How this program starts itself to look into databases.
pub(in crate::cli) fn spawn() -> anyhow::Result<Spawn> {
    let program = std::env::current_exe().context("could not find out which program this is")?;
    Ok(Spawn {
        program,
        arguments: ["internal", "check-sqlite"].map(Into::into).to_vec(),
    })
}
