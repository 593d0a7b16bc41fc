//! Who saves or loads, where, and with what.

use crate::cli::CliContext;
use crate::profile_settings::ProfileSetting;
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
    /// The region this host is in, such as us-east-1 [default: $STASIS_REGION, then `profile.region` in the configuration
    /// file]
    #[arg(long)]
    region: Option<Label>,
    /// Where the world sees this host, such as US/NY [default: $STASIS_EGRESS_GEO, then `profile.egress_geo` in the
    /// configuration file]
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

    pub(super) fn region(&self, context: &CliContext) -> anyhow::Result<Option<Label>> {
        let parse = |text: &str| text.parse::<Label>().map_err(|error| error.to_string());
        context.profile_setting(ProfileSetting::Region, self.region.clone(), parse)
    }

    pub(super) fn place(&self, context: &CliContext) -> anyhow::Result<CapturedIn> {
        let seen = self.egress_geo.clone();
        Ok(CapturedIn {
            host_region: self.region(context)?,
            egress_ip_geo: context.profile_setting(ProfileSetting::EgressGeo, seen, geo)?,
        })
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
