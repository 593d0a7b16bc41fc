//! Tenants' policies.

use crate::error::Error;
use crate::handle::TenantPolicies;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::id::{Label, TenantId};
use stasis_model::policy::tenant::TenantPolicy;
use stasis_store::documents::policies;

/// A policy after it was changed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PolicySet {
    /// Whose.
    pub tenant: TenantId,
    /// What it says now.
    pub policy: TenantPolicy,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl TenantPolicies<'_> {
    /// The tenant's policy, which fits together; the defaults when none was set.
    pub async fn policy(self, tenant: &TenantId) -> Result<TenantPolicy, Error> {
        let policy = self.stored_policy(tenant).await?;
        let unfit = |source| Error::UnfitPolicy {
            tenant: tenant.clone(),
            source,
        };
        policy.check().map_err(unfit)?;
        Ok(policy)
    }

    /// The tenant's policy as it is stored, to be looked at even if it cannot be used.
    pub async fn stored_policy(self, tenant: &TenantId) -> Result<TenantPolicy, Error> {
        Ok(policies::policy(&*self.bucket, tenant).await?)
    }

    /// Changes settings of the tenant's policy, all or none.
    #[tracing::instrument(skip_all, err(level = "info"), fields(%tenant))]
    pub async fn set_policy(
        self,
        tenant: TenantId,
        settings: &[(String, String)],
        actor: &Label,
    ) -> Result<PolicySet, Error> {
        self.store().ensure_trusted().await?;
        let policy = policies::set(&*self.bucket, &tenant, settings, self.lineages.op_id()).await?;
        let mut event = self
            .events()
            .event(EventKind::PolicyChanged, Severity::Info, actor);
        for (name, value) in settings {
            event = event.with(name, value.as_str());
        }
        let mut warnings = self.clock_warnings();
        warnings.extend(self.events().record(&tenant, event).await);
        Ok(PolicySet {
            tenant,
            policy,
            warnings,
        })
    }
}
