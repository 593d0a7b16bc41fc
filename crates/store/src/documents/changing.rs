//! Changes a small document by a rule, through other writers and lost answers.

use crate::bucket::{Bucket, BucketError, BucketErrorKind, Swap};
use crate::documents::lineages::{ReadError, read};
use crate::layout::Key;
use bytes::Bytes;
use stasis_model::failure::{ErrorKind, Kinded};
use stasis_model::format::document::{self, Document};
use stasis_model::format::lease::Lock;
use stasis_model::id::OpId;
use stasis_model::session::document::SessionDocument;
use std::error::Error;
use std::time::Duration;

/// How often a change is tried while others change the document too.
const ATTEMPTS: u32 = 20;
const FIRST_PAUSE_MS: u64 = 5;
const LONGEST_PAUSE_MS: u64 = 400;

/// A document that says which operations wrote it.
pub trait Recorded: Document + Clone {
    /// Whether this one did.
    fn was_written_by(&self, op_id: OpId) -> bool;
}

impl Recorded for SessionDocument {
    fn was_written_by(&self, op_id: OpId) -> bool {
        self.remembers(op_id)
    }
}

impl Recorded for Lock {
    fn was_written_by(&self, op_id: OpId) -> bool {
        self.write_id == op_id
    }
}

/// Why a document was not changed, or is not known to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangingError<R: Error + 'static> {
    /// The rule says no.
    #[error(transparent)]
    Refused(R),
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] BucketError),
    /// Others changed it at every attempt; not applied.
    #[error("`{0}` was changed by others at every attempt")]
    Contended(Key),
    /// A write had no clear answer, and it could not be found out what became of it.
    #[error("whether operation `{op_id}` changed `{key}` is not known")]
    Unknown {
        /// Which document.
        key: Key,
        /// What it remembers if it was applied.
        op_id: OpId,
    },
}

impl<R: Kinded + 'static> Kinded for ChangingError<R> {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(refusal) => refusal.kind(),
            Self::Read(error) => error.kind(),
            Self::Write(error) => Kinded::kind(error),
            Self::Contended(_) => ErrorKind::Retry,
            Self::Unknown { .. } => ErrorKind::Unknown,
        }
    }
}

/// Changes a document by a rule, again and again while others change it too.
///
/// `rule` is asked anew with every version found. A lost answer is settled by finding `op_id` in the document. As long as the outcome of
/// a write is unknown, nothing else that goes wrong is the answer.
pub async fn change<D: Recorded, R: Error + 'static>(
    bucket: &dyn Bucket,
    key: &Key,
    op_id: OpId,
    rule: impl Fn(Option<&D>) -> Result<D, R>,
) -> Result<D, ChangingError<R>> {
    let mut is_unknown = false;
    let unknown = || ChangingError::Unknown {
        key: key.clone(),
        op_id,
    };
    for attempt in 0..ATTEMPTS {
        let found = match read::<D>(bucket, key).await {
            Err(error) if !is_unknown => return Err(error.into()),
            Err(_) => {
                pause(attempt).await;
                continue;
            }
            Ok(found) => found,
        };
        if let Some(found) = &found
            && found.value.was_written_by(op_id)
        {
            return Ok(found.value.clone());
        }
        let next = match rule(found.as_ref().map(|found| &found.value)) {
            Ok(next) => next,
            Err(_) if is_unknown => return Err(unknown()),
            Err(refusal) => return Err(ChangingError::Refused(refusal)),
        };
        let body = Bytes::from(document::render(&next));
        if body.len() > D::LIMIT {
            return Err(BucketError::new(BucketErrorKind::TooLarge, "write", key).into());
        }
        let swap = match &found {
            Some(found) => bucket.swap(key, &found.version, body).await,
            None => bucket.create(key, body).await,
        };
        match swap {
            Ok(Swap::Won(_)) => return Ok(next),
            Ok(Swap::Unknown) => is_unknown = true,
            Err(error) if !is_unknown => return Err(error.into()),
            Ok(Swap::Lost) | Err(_) => {}
        }
        pause(attempt).await;
    }
    match read::<D>(bucket, key).await {
        Ok(Some(found)) if found.value.was_written_by(op_id) => Ok(found.value),
        _ if is_unknown => Err(unknown()),
        _ => Err(ChangingError::Contended(key.clone())),
    }
}

/// Waits a little longer at each attempt.
async fn pause(attempt: u32) {
    let longest = (FIRST_PAUSE_MS << attempt.min(10)).min(LONGEST_PAUSE_MS);
    tokio::time::sleep(Duration::from_millis(longest)).await;
}
