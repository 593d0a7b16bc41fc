//! Tokens of the service: one small document each, found by the id that the token begins with.

use crate::bucket::{Bucket, BucketError, objects};
use crate::documents::changing::{ChangingError, Recorded, change};
use crate::documents::lineages::{ReadError, read};
use crate::layout::{self, Prefix};
use futures_util::{StreamExt, TryStreamExt, stream};
use stasis_model::failure::{ErrorKind, Failure};
use stasis_model::format::document::Document as _;
use stasis_model::format::token::{TokenDocument, TokenId};
use stasis_model::id::OpId;
use stasis_model::time::Timestamp;

/// How many documents are read at once.
const READS_IN_FLIGHT: usize = 16;

impl Recorded for TokenDocument {
    fn was_written_by(&self, op_id: OpId) -> bool {
        self.op_id == op_id
    }
}

/// The document of a token, if there is one.
pub async fn find(bucket: &dyn Bucket, id: TokenId) -> Result<Option<TokenDocument>, ReadError> {
    let found = read(bucket, &layout::token(id)).await?;
    Ok(found.map(|found| found.value))
}

/// Writes the document of a new token; an id that is taken is refused.
pub async fn create(
    bucket: &dyn Bucket,
    document: &TokenDocument,
) -> Result<(), ChangingError<Failure>> {
    let rule = |found: Option<&TokenDocument>| match found {
        None => Ok(document.clone()),
        Some(_) => Err(Failure::of(
            ErrorKind::Retry,
            format!("there is a token `{}` already", document.id),
        )),
    };
    let key = layout::token(document.id);
    change(bucket, &key, document.op_id, rule).await.map(drop)
}

/// Takes a token back; one that was taken back stays as it was.
pub async fn revoke(
    bucket: &dyn Bucket,
    id: TokenId,
    now: Timestamp,
    op_id: OpId,
) -> Result<TokenDocument, ChangingError<Failure>> {
    let rule = |found: Option<&TokenDocument>| match found {
        Some(found) => Ok(found.clone().revoked(now, op_id)),
        None => Err(
            Failure::of(ErrorKind::NotFound, format!("there is no token `{id}`"))
                .with_hint("`stasis token list` shows the tokens of the store"),
        ),
    };
    change(bucket, &layout::token(id), op_id, rule).await
}

/// Every token of the store; what lies there and is none is said beside them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoredTokens {
    /// In the order of their ids.
    pub tokens: Vec<TokenDocument>,
    /// What cannot be used, and why.
    pub unreadable: Vec<(TokenId, String)>,
}

/// Reads all of them.
pub async fn all(bucket: &dyn Bucket) -> Result<StoredTokens, BucketError> {
    let listed: Vec<_> = objects(bucket, &Prefix::tokens()).try_collect().await?;
    let ids = listed.iter().filter_map(|row| layout::token_id(&row.key));
    let reads = ids.map(|id| async move { (id, find(bucket, id).await) });
    let mut reads = stream::iter(reads).buffered(READS_IN_FLIGHT);
    let mut found = StoredTokens::default();
    while let Some((id, read)) = reads.next().await {
        match read {
            Ok(token) => found.tokens.extend(token),
            Err(ReadError::Bucket(error)) => return Err(error),
            Err(error) => {
                let why = format!("{}: {error}", TokenDocument::NAME);
                found.unreadable.push((id, why));
            }
        }
    }
    found.tokens.sort_by_key(|token| token.id);
    Ok(found)
}
