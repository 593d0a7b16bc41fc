//! Requests that outlive the connection they came over: what was asked for is written down before anything is done, and what became
//! of it can be asked at any server of the store.
//!
//! Whoever does the work renews its record while it goes on ([`RunningRequest`]), and ends it with the answer or the problem. If he
//! dies, the record says `interrupted` as soon as it is not renewed any more; if he was only stopped, and goes on, he still ends it.

use crate::error::Error;
use crate::handle::Requests;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use stasis_disk::progress::Reached;
use stasis_model::failure::{ErrorKind, Failure, Kinded as _};
use stasis_model::format::request::{
    IdempotencyKey, LONGEST_ANSWER, RequestDocument, RequestEnd, RequestId, RequestMade,
    RequestProgress, RequestState,
};
use stasis_model::format::token::TokenScope;
use stasis_model::id::{Generation, Label, OpId, TenantId};
use stasis_model::time::Timestamp;
use stasis_store::documents::changing::ChangingError;
use stasis_store::documents::requests::{self, RequestRefusal};
use std::time::Duration;

/// How many requests of a tenant are read for a list at most.
const LISTED: usize = 5_000;
/// How many are looked at when one begins and old ones are removed.
const SWEPT: usize = 64;
/// How often the end of a request is written before that is given up.
const END_ATTEMPTS: u32 = 5;

/// A request that this process does.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a request that nobody renews is interrupted"]
pub struct RunningRequest {
    /// Which.
    pub id: RequestId,
    tenant: TenantId,
    attempt: OpId,
}

/// What became of the wish to begin a request.
#[derive(Debug)]
#[must_use = "the request may be somebody else's"]
pub enum BegunRequest {
    /// It is ours to do.
    New(RunningRequest, Box<RequestRow>),
    /// The same request was begun before: nothing is to be done.
    Before(Box<RequestRow>),
    /// Another request has this key.
    Other,
}

/// A request, and how it stands.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RequestRow {
    /// Which.
    pub operation_id: RequestId,
    /// What was asked for, as the service calls it.
    pub route: Label,
    /// How it stands.
    pub state: RequestState,
    /// With which token it was asked for.
    pub by: Label,
    /// When it was begun.
    pub begun_at: String,
    /// The same in milliseconds.
    pub begun_at_ms: Timestamp,
    /// When it was last known to go on.
    pub renewed_at: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// How far it had come when it was renewed.
    pub progress: RequestProgress,
    /// What was answered, where it is done and not too long to be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// The generation of what the answer is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Value>,
    /// What a token must allow to see the answer.
    #[serde(skip)]
    pub scope: TokenScope,
}

/// Requests of a tenant.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RequestList {
    /// The newest first.
    pub items: Vec<RequestRow>,
    /// Those that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<RequestId>,
    /// Whether there are more than are ever listed.
    pub truncated: bool,
}

/// What a sweep of old requests did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the next sweep goes on where this one ended"]
pub struct SweptRequests {
    /// How many were removed.
    pub removed: usize,
    /// Where the next one goes on; none where it begins anew.
    pub next: Option<RequestId>,
}

impl RequestRow {
    fn of(document: RequestDocument, now: Timestamp) -> Self {
        let state = document.state(now);
        let (mut answer, mut generation, mut problem) = (None, None, None);
        match document.end {
            Some(RequestEnd::Done {
                answer: kept,
                generation: at,
            }) => (answer, generation) = (kept, at),
            Some(RequestEnd::Failed { problem: kept, .. }) => problem = Some(kept),
            None => {}
        }
        Self {
            operation_id: document.id,
            route: document.route,
            state,
            by: document.by,
            begun_at: document.begun_at_ms.to_string(),
            begun_at_ms: document.begun_at_ms,
            renewed_at: document.renewed_at_ms.to_string(),
            ended_at: document.ended_at_ms.map(|at| at.to_string()),
            progress: document.progress,
            answer,
            generation,
            problem,
            scope: document.scope,
        }
    }
}

impl Requests<'_> {
    /// Writes down that a request begins, before anything is done. Of two that race with one key, one is new.
    #[tracing::instrument(skip_all, err(level = "info"), fields(route = %made.route))]
    pub async fn begin(
        self,
        key: Option<&IdempotencyKey>,
        made: RequestMade,
    ) -> Result<BegunRequest, Error> {
        self.store().ensure_trusted().await?;
        let id = match key {
            Some(key) => RequestId::of_key(&made.tenant, key),
            None => RequestId::new(self.rng.op_id()),
        };
        let (now, attempt) = (self.lineages.now(), self.rng.op_id());
        match requests::begin(&*self.bucket, id, &made, now, attempt).await {
            Ok(document) => {
                let running = RunningRequest {
                    id,
                    tenant: made.tenant,
                    attempt,
                };
                let row = Box::new(RequestRow::of(document, now));
                Ok(BegunRequest::New(running, row))
            }
            Err(ChangingError::Refused(RequestRefusal::Taken(found))) => {
                if found.request_sha256 != made.request_sha256 {
                    return Ok(BegunRequest::Other);
                }
                let row = RequestRow::of(*found, self.lineages.now());
                Ok(BegunRequest::Before(Box::new(row)))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Says that a request goes on, and how far it has come.
    pub async fn renew(self, running: &RunningRequest, reached: Reached) -> Result<(), Error> {
        let (now, op_id) = (self.lineages.now(), self.rng.op_id());
        let progress = progress(reached);
        let renewed = |found: RequestDocument| found.renewed(progress, now, op_id);
        self.change(running, op_id, renewed).await.map(drop)
    }

    /// Says how a request ended. An answer that is too long is not kept.
    ///
    /// A store that is busy or out of reach is asked more than once: what was done is done, and should not count as interrupted.
    pub async fn end(
        self,
        running: &RunningRequest,
        end: RequestEnd,
        reached: Reached,
    ) -> Result<(), Error> {
        let (end, progress) = (kept(end), progress(reached));
        let op_id = self.rng.op_id();
        let ended = |found: RequestDocument| {
            let now = self.lineages.now();
            let renewed = found.renewed(progress, now, op_id);
            renewed.ended(end.clone(), now, op_id)
        };
        let mut pause = Duration::from_millis(200);
        for _ in 1..END_ATTEMPTS {
            match self.change(running, op_id, &ended).await {
                Err(error) if is_passing(&error) => {
                    tracing::debug!(%error, "the end of a request is written again");
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                settled => return settled.map(drop),
            }
        }
        self.change(running, op_id, &ended).await.map(drop)
    }

    async fn change(
        self,
        running: &RunningRequest,
        op_id: OpId,
        rule: impl Fn(RequestDocument) -> RequestDocument,
    ) -> Result<RequestDocument, Error> {
        let which = (&running.tenant, running.id, running.attempt);
        let changed = requests::change_running(&*self.bucket, which, op_id, rule);
        changed.await.map_err(failed)
    }

    /// How a request stands; none where there is none of this tenant.
    pub async fn show(self, tenant: &TenantId, id: RequestId) -> Result<Option<RequestRow>, Error> {
        let found = requests::find(&*self.bucket, tenant, id).await?;
        let now = self.lineages.now();
        Ok(found.map(|found| RequestRow::of(found, now)))
    }

    /// The requests of a tenant, the newest first. Of very many not all are read.
    pub async fn list(self, tenant: &TenantId) -> Result<RequestList, Error> {
        let mut ids = requests::all_names(&*self.bucket, tenant).await?;
        let truncated = ids.len() > LISTED;
        ids.truncate(LISTED);
        let (found, mut unreadable) = requests::read_all(&*self.bucket, tenant, ids).await?;
        let now = self.lineages.now();
        let mut items: Vec<RequestRow> = found
            .into_iter()
            .map(|found| RequestRow::of(found, now))
            .collect();
        items.sort_by_key(|row| std::cmp::Reverse((row.begun_at_ms, row.operation_id)));
        unreadable.sort_unstable();
        Ok(RequestList {
            items,
            unreadable,
            truncated,
        })
    }

    /// Removes some requests that ended more than a day ago: as many as are looked at go on where the last sweep ended.
    ///
    /// One that is looked at is named, and found in its place, by everybody with its key until it is removed; it is never replaced.
    pub async fn sweep(
        self,
        tenant: &TenantId,
        after: Option<RequestId>,
    ) -> Result<SweptRequests, Error> {
        let ids = requests::names(&*self.bucket, tenant, after, SWEPT).await?;
        let next = ids.last().copied().filter(|_| ids.len() == SWEPT);
        let (found, _) = requests::read_all(&*self.bucket, tenant, ids).await?;
        let now = self.lineages.now();
        let mut removed = 0;
        for request in found.iter().filter(|request| request.is_outdated(now)) {
            requests::remove(&*self.bucket, tenant, request.id).await?;
            removed += 1;
        }
        Ok(SweptRequests { removed, next })
    }
}

/// How far work has come, as it is kept.
pub fn progress(reached: Reached) -> RequestProgress {
    RequestProgress {
        files: reached.files,
        bytes: reached.bytes,
        files_expected: reached.files_expected,
        bytes_expected: reached.bytes_expected,
    }
}

/// The end as it is kept: of an answer that is too long, that there was one.
fn kept(end: RequestEnd) -> RequestEnd {
    match end {
        RequestEnd::Done {
            answer: Some(answer),
            generation,
        } => {
            let is_short = answer.to_string().len() <= LONGEST_ANSWER;
            RequestEnd::Done {
                answer: Some(answer).filter(|_| is_short),
                generation,
            }
        }
        end => end,
    }
}

fn is_passing(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Retry | ErrorKind::Unreachable | ErrorKind::Unknown
    )
}

fn failed(error: ChangingError<RequestRefusal>) -> Error {
    match error {
        ChangingError::Read(error) => error.into(),
        ChangingError::Write(error) => error.into(),
        other => Failure::of(other.kind(), other).into(),
    }
}

#[cfg(test)]
mod tests;
