//! Tenants' policies: small documents, read often and changed rarely.

use crate::bucket::{Bucket, Swap};
use crate::documents::lineages::read;
use crate::layout;
use stasis_model::failure::{Context, ErrorKind, Failure};
use stasis_model::format::document::{self, Versioned};
use stasis_model::id::{OpId, TenantId};
use stasis_model::policy::tenant::TenantPolicy;
use std::time::Duration;

/// How long to wait after each attempt to change a policy.
const PAUSES_MS: [u64; 5] = [20, 40, 80, 160, 320];

/// The tenant's policy; the defaults when none was set.
pub async fn policy(bucket: &dyn Bucket, tenant: &TenantId) -> Result<TenantPolicy, Failure> {
    Ok(stored(bucket, tenant)
        .await?
        .map(|found| found.value)
        .unwrap_or_default())
}

async fn stored(
    bucket: &dyn Bucket,
    tenant: &TenantId,
) -> Result<Option<Versioned<TenantPolicy>>, Failure> {
    let found = read(bucket, &layout::policy(tenant)).await;
    found.context("read the policy of tenant", tenant)
}

/// Copies a tenant's policy into another store that has none of it; says whether it did.
pub async fn copy(from: &dyn Bucket, to: &dyn Bucket, tenant: &TenantId) -> Result<bool, Failure> {
    let Some(found) = stored(from, tenant).await? else {
        return Ok(false);
    };
    let (key, bytes) = (
        layout::policy(tenant),
        document::render(&found.value).into(),
    );
    let written = to.create(&key, bytes).await;
    let swap = written.context("write the policy of tenant", tenant)?;
    if let Swap::Unknown = swap
        && stored(to, tenant).await?.is_none()
    {
        let said = format!("the policy of tenant `{tenant}` could not be written");
        return Err(Failure::of(ErrorKind::Retry, said));
    }
    Ok(matches!(swap, Swap::Won(_)))
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
/// Every failure but one of [`ErrorKind::Unknown`] means "not changed". An attempt without a clear answer is settled by
/// reading: the policy carries the operation that wrote it. From then on no failure proves that nothing was written.
pub async fn set(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    settings: &[(String, String)],
    op_id: OpId,
) -> Result<TenantPolicy, Failure> {
    let unknown = || {
        let said = format!(
            "whether operation `{op_id}` changed the policy of tenant `{tenant}` is not known"
        );
        Failure::of(ErrorKind::Unknown, said)
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
        _ => {
            let said =
                format!("the policy of tenant `{tenant}` was changed by others at every attempt");
            Err(Failure::of(ErrorKind::Retry, said))
        }
    }
}

async fn attempt(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    settings: &[(String, String)],
    op_id: OpId,
) -> Result<PolicyAttempt, Failure> {
    let found = stored(bucket, tenant).await?;
    if let Some(ours) = found.as_ref().filter(|found| found.value.op_id == op_id) {
        return Ok(PolicyAttempt::Applied(ours.value.clone()));
    }
    let now = found.as_ref().map(|found| found.value.clone());
    let next = now
        .unwrap_or_default()
        .successor(op_id)
        .with_all(settings)
        .map_err(|refused| Failure::of(ErrorKind::Invalid, refused))?;
    let (key, bytes) = (layout::policy(tenant), document::render(&next).into());
    let written = match &found {
        Some(found) => bucket.swap(&key, &found.version, bytes).await,
        None => bucket.create(&key, bytes).await,
    };
    let swap = written.context("write the policy of tenant", tenant);
    Ok(match swap? {
        Swap::Won(_) => PolicyAttempt::Applied(next),
        Swap::Lost => PolicyAttempt::Lost,
        Swap::Unknown => PolicyAttempt::Unknown,
    })
}
