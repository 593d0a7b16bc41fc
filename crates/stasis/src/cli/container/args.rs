//! What several commands of containers take.

use crate::cli::{CliContext, byte_size, duration};
use anyhow::Context as _;
use clap::Args;
use stasis_engine::kind::container::{AgeCountBytes, CaptureWishes, ContainerHost, Docker};
use stasis_engine::model::id::TenantId;
use stasis_engine::open::Engine;
use std::time::Duration;

/// What is saved that is not by itself.
#[derive(Debug, Args)]
pub(super) struct WishesArgs {
    /// A bind mount that shall be saved, too, by its place in the container; may be given more than once
    #[arg(long = "bind", value_name = "PATH")]
    binds: Vec<String>,
    /// Save volumes that nobody named, too
    #[arg(long)]
    anonymous: bool,
    /// Refuse if anything that is mounted would not be saved
    #[arg(long)]
    pub(super) strict: bool,
}

impl WishesArgs {
    pub(super) fn wishes(&self) -> CaptureWishes {
        CaptureWishes {
            binds: self.binds.iter().cloned().collect(),
            anonymous: self.anonymous,
        }
    }
}

/// How many snapshots there may be, how old, and how large.
#[derive(Debug, Default, Args)]
#[expect(clippy::struct_field_names, reason = "they are options by these names")]
pub(super) struct LimitArgs {
    /// How many snapshots one container may have [default: STASIS_CONTAINER_MAX_PER_CONTAINER, then the tenant's policy, then 10]
    #[arg(long, value_name = "N")]
    max_per_container: Option<u64>,
    /// How many there may be in all [default: STASIS_CONTAINER_MAX_SNAPSHOTS, then the policy, then 100]
    #[arg(long, value_name = "N")]
    max_snapshots: Option<u64>,
    /// How many bytes they may take, such as 5GB [default: STASIS_CONTAINER_MAX_BYTES, then the policy, then 10GB]
    #[arg(long, value_name = "SIZE", value_parser = byte_size::positive)]
    max_bytes: Option<u64>,
    /// How old one may be, such as 36h [default: STASIS_CONTAINER_MAX_AGE, then the policy, then 7d]
    #[arg(long, value_name = "TIME", value_parser = duration::positive)]
    max_age: Option<Duration>,
}

impl LimitArgs {
    /// What somebody said, then what the environment says, then the policy.
    pub(super) async fn limits(
        &self,
        context: &CliContext,
        engine: &Engine,
        tenant: &TenantId,
    ) -> anyhow::Result<AgeCountBytes> {
        let policy = engine.tenants().policy(tenant).await?.containers.limits();
        let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
        Ok(AgeCountBytes {
            per_group: match self.max_per_container {
                Some(said) => said,
                None => said(context, "STASIS_CONTAINER_MAX_PER_CONTAINER", number)?
                    .unwrap_or(policy.per_group),
            },
            in_all: match self.max_snapshots {
                Some(said) => said,
                None => said(context, "STASIS_CONTAINER_MAX_SNAPSHOTS", number)?
                    .unwrap_or(policy.in_all),
            },
            max_bytes: match self.max_bytes {
                Some(said) => said,
                None => said(context, "STASIS_CONTAINER_MAX_BYTES", byte_size::positive)?
                    .unwrap_or(policy.max_bytes),
            },
            max_age: match self.max_age {
                Some(said) => said,
                None => said(context, "STASIS_CONTAINER_MAX_AGE", duration::positive)?
                    .unwrap_or(policy.max_age),
            },
        })
    }
}

/// What a variable of the environment says; an empty one says nothing.
fn said<T>(
    context: &CliContext,
    name: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> anyhow::Result<Option<T>> {
    let text = context.environment.variables.get(name);
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let parsed = parse(text).map_err(anyhow::Error::msg);
    parsed
        .map(Some)
        .with_context(|| format!("{name} is `{text}`"))
}

/// The engine that is meant, and whose snapshots.
pub(in crate::cli) fn container_host(context: &CliContext, tenant: &TenantId) -> ContainerHost {
    let host = context.environment.variables.get("DOCKER_HOST");
    ContainerHost {
        docker: Docker::from_variable(host),
        tenant: tenant.clone(),
    }
}
