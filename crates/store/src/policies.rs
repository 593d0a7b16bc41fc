//! Tenants' policies: small documents, read often and changed rarely.

use crate::bucket::{Bucket, BucketError, Swap};
use crate::layout;
use crate::lineages::{ReadError, read};
use bytes::Bytes;
use stasis_model::document::{self, Versioned};
use stasis_model::id::{OpId, TenantId};
use stasis_model::policy::{BadSetting, Policy};

/// Why a policy was not changed.
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
    /// Others changed it at every attempt, or the store never answered.
    #[error("whether the policy of tenant `{tenant}` was changed is not known")]
    Unknown {
        /// Whose.
        tenant: TenantId,
    },
}

/// The tenant's policy; the defaults when none was set.
pub async fn policy(bucket: &dyn Bucket, tenant: &TenantId) -> Result<Policy, PolicyError> {
    Ok(stored(bucket, tenant)
        .await?
        .map(|found| found.value)
        .unwrap_or_default())
}

async fn stored(
    bucket: &dyn Bucket,
    tenant: &TenantId,
) -> Result<Option<Versioned<Policy>>, PolicyError> {
    let failed = |source| PolicyError::Read {
        tenant: tenant.clone(),
        source,
    };
    read(bucket, &layout::policy(tenant)).await.map_err(failed)
}

/// Changes settings of the tenant's policy, keeping every other change that happens at the same time.
pub async fn set(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    settings: &[(String, String)],
    op_id: OpId,
) -> Result<Policy, PolicyError> {
    let key = layout::policy(tenant);
    for _ in 0..5 {
        let found = stored(bucket, tenant).await?;
        if let Some(ours) = found.as_ref().filter(|found| found.value.op_id == op_id) {
            return Ok(ours.value.clone());
        }
        let next = found
            .as_ref()
            .map(|found| found.value.clone())
            .unwrap_or_default()
            .successor(op_id)
            .with_all(settings)?;
        let bytes = Bytes::from(document::render(&next));
        let written = match &found {
            Some(found) => bucket.swap(&key, &found.version, bytes).await,
            None => bucket.create(&key, bytes).await,
        };
        match written.map_err(|source| PolicyError::Write {
            tenant: tenant.clone(),
            source,
        })? {
            Swap::Won(_) => return Ok(next),
            Swap::Lost | Swap::Unknown => {}
        }
    }
    Err(PolicyError::Unknown {
        tenant: tenant.clone(),
    })
}
