//! `stasis tenant …`

use super::CliContext;
use super::output::table;
use crate::report::Exit;
use clap::Subcommand;
use serde_json::Value;
use stasis_engine::model::id::{Label, TenantId};
use stasis_engine::model::policy::tenant::TenantPolicy;

#[derive(Debug, Subcommand)]
pub(super) enum TenantCommand {
    /// A tenant's policy: lease times, hot mode, regions, limits, retention, quotas
    #[command(subcommand)]
    Policy(PolicyCommand),
}

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Show all settings
    Show {
        /// Whose
        tenant: TenantId,
    },
    /// Change settings, all or none
    Set {
        /// Whose
        tenant: TenantId,
        /// For example `lease_ttl_s=600` or `retention.enabled=true`
        #[arg(required = true, value_name = "NAME=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
    },
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl TenantCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let Self::Policy(command) = self;
        let engine = match command {
            PolicyCommand::Show { .. } => context.engine().await?,
            PolicyCommand::Set { .. } => context.writable_engine().await?,
        };
        match command {
            PolicyCommand::Show { tenant } => {
                let policy = engine.tenants().stored_policy(&tenant).await?;
                context.output.result(&policy, text)?;
            }
            PolicyCommand::Set { tenant, settings } => {
                let actor: Label = "operator".parse()?;
                let set = engine
                    .tenants()
                    .set_policy(tenant, &settings, &actor)
                    .await?;
                context.output.warn(&set.warnings);
                context.output.result(&set, |set| text(&set.policy))?;
            }
        }
        Ok(Exit::Done)
    }
}

fn text(policy: &TenantPolicy) -> String {
    let tree = serde_json::to_value(policy).unwrap_or_default();
    let row = |name: String| {
        let value = tree
            .pointer(&format!("/{}", name.replace('.', "/")))
            .map(plain)
            .unwrap_or_default();
        vec![name, value]
    };
    table(
        &["SETTING", "VALUE"],
        TenantPolicy::settings().into_iter().map(row).collect(),
    )
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned)
}
