//! Requests of the service: one small document each, found by the name that its key has.

use crate::bucket::{Bucket, BucketError, objects};
use crate::documents::changing::{ChangingError, Recorded, change};
use crate::documents::lineages::{ReadError, read};
use crate::layout::{self, Prefix};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use stasis_model::failure::{ErrorKind, Kinded};
use stasis_model::format::request::{RequestDocument, RequestId, RequestMade};
use stasis_model::id::{OpId, TenantId};
use stasis_model::time::Timestamp;

/// How many documents are read at once.
const READS_IN_FLIGHT: usize = 16;

/// Why a request was not begun, or not changed.
#[derive(Debug, thiserror::Error)]
pub enum RequestRefusal {
    /// There is one of this name.
    #[error("there is a request `{}` already", .0.id)]
    Taken(Box<RequestDocument>),
    /// It is gone, has ended, or was begun again by somebody else.
    #[error("the request `{0}` is not this attempt's any more")]
    Lost(RequestId),
}

impl Kinded for RequestRefusal {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Conflict
    }
}

impl Recorded for RequestDocument {
    fn was_written_by(&self, op_id: OpId) -> bool {
        self.op_id == op_id
    }
}

/// The document of a request, if there is one.
pub async fn find(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    id: RequestId,
) -> Result<Option<RequestDocument>, ReadError> {
    let found = read(bucket, &layout::request(tenant, id)).await?;
    Ok(found.map(|found| found.value))
}

/// Writes that a request begins. One of this name that is there is refused, unless nothing was done of it.
pub async fn begin(
    bucket: &dyn Bucket,
    id: RequestId,
    made: &RequestMade,
    now: Timestamp,
    attempt: OpId,
) -> Result<RequestDocument, ChangingError<RequestRefusal>> {
    let rule = |found: Option<&RequestDocument>| match found {
        Some(found) if !found.may_begin_again(made) => {
            Err(RequestRefusal::Taken(Box::new(found.clone())))
        }
        _ => Ok(RequestDocument::begun(id, made.clone(), now, attempt)),
    };
    change(bucket, &layout::request(&made.tenant, id), attempt, rule).await
}

/// Changes the document of a request that this attempt is at.
pub async fn change_running(
    bucket: &dyn Bucket,
    (tenant, id, attempt): (&TenantId, RequestId, OpId),
    op_id: OpId,
    rule: impl Fn(RequestDocument) -> RequestDocument,
) -> Result<RequestDocument, ChangingError<RequestRefusal>> {
    let rule = |found: Option<&RequestDocument>| match found {
        Some(found) if found.is_run_by(attempt) => Ok(rule(found.clone())),
        _ => Err(RequestRefusal::Lost(id)),
    };
    change(bucket, &layout::request(tenant, id), op_id, rule).await
}

/// The names of a tenant's requests, in their order, at most so many after one of them.
pub async fn names(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    after: Option<RequestId>,
    most: usize,
) -> Result<Vec<RequestId>, BucketError> {
    let after = after.map(|id| layout::request(tenant, id));
    let prefix = Prefix::requests_of(tenant);
    let rows = bucket.list(&prefix, after.as_ref(), most).await?;
    let ids = rows.iter().filter_map(|row| layout::request_id(&row.key));
    Ok(ids.collect())
}

/// The names of all of them, in any order.
pub async fn all_names(
    bucket: &dyn Bucket,
    tenant: &TenantId,
) -> Result<Vec<RequestId>, BucketError> {
    let prefix = Prefix::requests_of(tenant);
    let listed: Vec<_> = objects(bucket, &prefix).try_collect().await?;
    let ids = listed.iter().filter_map(|row| layout::request_id(&row.key));
    Ok(ids.collect())
}

/// Reads those that are there; ones that cannot be understood are told from those that are gone.
pub async fn read_all(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    ids: Vec<RequestId>,
) -> Result<(Vec<RequestDocument>, Vec<RequestId>), BucketError> {
    let reads = ids
        .into_iter()
        .map(|id| async move { (id, find(bucket, tenant, id).await) });
    let mut reads = stream::iter(reads).buffer_unordered(READS_IN_FLIGHT);
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    while let Some((id, read)) = reads.next().await {
        match read {
            Ok(document) => found.extend(document),
            Err(ReadError::Bucket(error)) => return Err(error),
            Err(_) => unreadable.push(id),
        }
    }
    Ok((found, unreadable))
}

/// Removes one.
pub async fn remove(
    bucket: &dyn Bucket,
    tenant: &TenantId,
    id: RequestId,
) -> Result<(), BucketError> {
    bucket.delete(&layout::request(tenant, id)).await
}
