//! Tenants' policies: small documents, read often and changed rarely.

use crate::bucket::{Bucket, BucketError, Swap};
use crate::documents::lineages::{ReadError, read};
use crate::layout;
use stasis_model::format::document::{self, Versioned};
use stasis_model::id::{OpId, TenantId};
use stasis_model::policy::tenant::{BadSetting, TenantPolicy};
use std::time::Duration;

/// How long to wait after each attempt to change a policy.
const PAUSES_MS: [u64; 5] = [20, 40, 80, 160, 320];

/// Why a policy was not read, or not known to be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// It cannot be read.
    #[error("could not read the policy of tenant `{tenant}`")]
    Read {
        /// Whose.
        tenant: TenantId,
        /// What went wrong.
        #[source]
        source: ReadError,
    },
    /// The new setting is not one.
    #[error(transparent)]
    Setting(#[from] BadSetting),
    /// It cannot be written.
    #[error("could not write the policy of tenant `{tenant}`")]
    Write {
        /// Whose.
        tenant: TenantId,
        /// What went wrong.
        #[source]
        source: BucketError,
    },
    /// Others changed it at every attempt. It was not changed by us; trying again is safe.
    #[error("the policy of tenant `{tenant}` was changed by others at every attempt")]
    Contended {
        /// Whose.
        tenant: TenantId,
    },
    /// A write had no clear answer, and it could not be found out what became of it.
    #[error("whether operation `{op_id}` changed the policy of tenant `{tenant}` is not known")]
    Unknown {
        /// Whose.
        tenant: TenantId,
        /// What the policy carries if it was applied and nobody changed it since.
        op_id: OpId,
    },
}

/// The tenant's policy; the defaults when none was set.
pub async fn policy(bucket: &dyn Bucket, tenant: &TenantId) -> Result<TenantPolicy, PolicyError> {
    Ok(stored(bucket, tenant)
        .await?
        .map(|found| found.value)
        .unwrap_or_default())
}

async fn stored(
    bucket: &dyn Bucket,
    tenant: &TenantId,
) -> Result<Option<Versioned<TenantPolicy>>, PolicyError> {
    let failed = |source| PolicyError::Read {
        tenant: tenant.clone(),
        source,
    };
    read(bucket, &layout::policy(tenant)).await.map_err(failed)
}

/// What one attempt to change a policy came to.
enum PolicyAttempt {
    /// It is changed.
    Applied(TenantPolicy),
    /// Somebody else was faster.
    Lost,
    /// There was no clear answer.
    Unknown,
}

/// Changes settings of the tenant's policy, keeping every other change that happens at the same time.
///
/// Every error but [`PolicyError::Unknown`] means "not changed". An attempt without a clear answer is settled by
/// reading: the policy carries the operation that wrote it. From then on no failure proves that nothing was written.
pub async fn set(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    settings: &[(String, String)],
    op_id: OpId,
) -> Result<TenantPolicy, PolicyError> {
    let unknown = || PolicyError::Unknown {
        tenant: tenant.clone(),
        op_id,
    };
    let mut in_doubt = false;
    for pause in PAUSES_MS {
        match attempt(bucket, tenant, settings, op_id).await {
            Ok(PolicyAttempt::Applied(policy)) => return Ok(policy),
            Ok(PolicyAttempt::Lost) => {}
            Ok(PolicyAttempt::Unknown) => in_doubt = true,
            Err(error) if in_doubt => {
                tracing::warn!(%tenant, %op_id, %error, "outcome unknown");
                return Err(unknown());
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    match stored(bucket, tenant).await {
        Ok(Some(found)) if found.value.op_id == op_id => Ok(found.value),
        _ if in_doubt => Err(unknown()),
        _ => Err(PolicyError::Contended {
            tenant: tenant.clone(),
        }),
    }
}

async fn attempt(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    settings: &[(String, String)],
    op_id: OpId,
) -> Result<PolicyAttempt, PolicyError> {
    let found = stored(bucket, tenant).await?;
    if let Some(ours) = found.as_ref().filter(|found| found.value.op_id == op_id) {
        return Ok(PolicyAttempt::Applied(ours.value.clone()));
    }
    let now = found.as_ref().map(|found| found.value.clone());
    let next = now
        .unwrap_or_default()
        .successor(op_id)
        .with_all(settings)?;
    let (key, bytes) = (layout::policy(tenant), document::render(&next).into());
    let written = match &found {
        Some(found) => bucket.swap(&key, &found.version, bytes).await,
        None => bucket.create(&key, bytes).await,
    };
    let swap = written.map_err(|source| PolicyError::Write {
        tenant: tenant.clone(),
        source,
    })?;
    Ok(match swap {
        Swap::Won(_) => PolicyAttempt::Applied(next),
        Swap::Lost => PolicyAttempt::Lost,
        Swap::Unknown => PolicyAttempt::Unknown,
    })
}
