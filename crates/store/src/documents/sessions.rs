//! Sessions: the document of each.

use crate::bucket::{Bucket, BucketError, objects};
use crate::documents::changing::{self, ChangingError};
use crate::documents::lineages::{ReadError, read};
use crate::documents::roots::named_in;
use crate::layout::{self, ChunkRoot};
use crate::part::Part;
use futures_util::TryStreamExt;
use stasis_model::digest::StoreDigest;
use stasis_model::format::document::Versioned;
use stasis_model::id::{OpId, SessionRef, TenantId};
use stasis_model::session::document::SessionDocument;
use stasis_model::session::step::SessionRefusal;

/// Why a session was not changed.
pub type SessionError = ChangingError<SessionRefusal>;

/// What is kept of a session; none if nobody registered it.
pub async fn session(
    bucket: &dyn Bucket,
    session: &SessionRef,
) -> Result<Option<Versioned<SessionDocument>>, ReadError> {
    let key = ChunkRoot::session(session).session_json();
    let found = read::<SessionDocument>(bucket, &key).await?;
    match found {
        Some(found) if found.value.session != *session => Err(ReadError::Strays {
            key,
            names: found.value.session.to_string(),
        }),
        found => Ok(found),
    }
}

/// Changes it by a rule.
pub async fn change(
    bucket: &dyn Bucket,
    session: &SessionRef,
    op_id: OpId,
    rule: impl Fn(Option<&SessionDocument>) -> Result<SessionDocument, SessionRefusal>,
) -> Result<SessionDocument, SessionError> {
    let key = ChunkRoot::session(session).session_json();
    changing::change(bucket, &key, op_id, rule).await
}

/// Every session of a tenant, or of all, in order; of a part, in that of the store.
pub async fn all(
    bucket: &dyn Bucket,
    tenant: Option<&TenantId>,
    part: &Part,
) -> Result<Vec<SessionRef>, BucketError> {
    let prefix = tenant.map_or_else(ChunkRoot::subjects, ChunkRoot::sessions);
    let mut all = named_in(bucket, &prefix, part, ChunkRoot::as_session).await?;
    if *part == Part::Whole {
        all.sort();
        all.dedup();
    }
    Ok(all)
}

/// Says that a session is about to run in a sandbox, before its document does.
pub async fn enter_sandbox(
    bucket: &dyn Bucket,
    sandbox: StoreDigest,
    session: &SessionRef,
) -> Result<(), BucketError> {
    let key = layout::sandbox_member(sandbox, session);
    bucket.put(&key, format!("{session}\n").into()).await
}

/// Says that it does not run there any more.
pub async fn leave_sandbox(
    bucket: &dyn Bucket,
    sandbox: StoreDigest,
    session: &SessionRef,
) -> Result<(), BucketError> {
    let key = layout::sandbox_member(sandbox, session);
    bucket.delete(&key).await
}

/// The sessions that said that they are about to run in a sandbox; the document of each says whether it does.
pub async fn in_sandbox(
    bucket: &dyn Bucket,
    sandbox: StoreDigest,
) -> Result<Vec<SessionRef>, BucketError> {
    let prefix = layout::sandbox_members(sandbox);
    let rows = objects(bucket, &prefix);
    let sessions = rows.try_filter_map(async |row| Ok(layout::member_session(&row.key)));
    sessions.try_collect().await
}
