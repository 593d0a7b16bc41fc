//! Requests that are written down before they are done: work that outlives a connection, and requests with an `Idempotency-Key`.
//!
//! 1. the record is made   2. the work begins in a task of its own, and the record is renewed while it goes on
//! 3. the record has the answer, or the problem   4. whoever waits is answered
//!
//! Whoever hangs up after 1 finds the answer under the same key, or under the id of the operation. If this process dies, others see
//! that nobody renews the record any more.

use super::answer::{Answer, AnswerSchema, Content};
use super::endpoint::{Call, ReadyWork, Reply};
use super::limits::ByTenant;
use super::problem::{Problem, ProblemCode};
use super::work::Work;
use http::StatusCode;
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use schemars::generate::SchemaGenerator;
use serde::Serialize;
use serde_json::Value;
use stasis_engine::metrics::operation;
use stasis_engine::model::format::request::{
    IdempotencyKey, RequestEnd, RequestId, RequestMade, RequestState,
};
use stasis_engine::model::id::TenantId;
use stasis_engine::open::Engine;
use stasis_engine::progress::{Progress, Reached};
use stasis_engine::requests::{BegunRequest, RequestRow, RunningRequest};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

/// How often the record of work that goes on is renewed.
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// How often somebody looks whether a request ended that another one does.
const LOOKED_EVERY: Duration = Duration::from_millis(250);
/// Of how many requests of a tenant one removes old records.
const SWEEP_EVERY: u64 = 16;
/// How many streams of events one tenant has at once.
const STREAMS: usize = 16;

/// Whether whoever asks waits for the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    /// He gets the answer itself.
    AtOnce,
    /// He gets the id of an operation, which he asks for the answer: the work may take longer than anybody waits.
    AsOperation,
}

/// That work has begun, or had begun before under the same key.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Accepted {
    /// What `GET /v1/operations/{id}` takes.
    operation_id: RequestId,
    /// How it stands.
    state: RequestState,
}

impl Accepted {
    fn of(row: &RequestRow) -> Result<Content, Problem> {
        let accepted = Self {
            operation_id: row.operation_id,
            state: row.state,
        };
        Ok(Content {
            status: StatusCode::ACCEPTED,
            location: Some(format!("/v1/operations/{}", row.operation_id)),
            ..accepted.content()?
        })
    }

    /// How it is described.
    pub(super) fn described(generator: &mut SchemaGenerator) -> AnswerSchema {
        AnswerSchema {
            status: StatusCode::ACCEPTED,
            ..<Self as Answer>::described(generator)
        }
    }
}

/// Where the next sweep of a tenant's old records goes on.
#[derive(Clone, Copy, Debug, Default)]
struct Sweep {
    requests: u64,
    after: Option<RequestId>,
}

/// What is written down, and what of it this process does.
#[derive(Debug)]
pub(super) struct Operations {
    engine: Engine,
    running: Mutex<HashMap<RequestId, Arc<Progress>>>,
    sweeps: Mutex<HashMap<TenantId, Sweep>>,
    /// Room for streams of events.
    streams: ByTenant,
    /// Whether the service ends.
    ending: watch::Sender<bool>,
}

/// A request that is to be written down, and everything that it takes to do it.
pub(super) struct Recorded {
    pub(super) key: Option<IdempotencyKey>,
    pub(super) made: RequestMade,
    pub(super) answered: Answered,
    pub(super) ready: ReadyWork,
    pub(super) call: Call,
    /// Held until the work is done.
    pub(super) held: (Option<OwnedSemaphorePermit>, Work),
}

/// What began, here or before.
enum Begun {
    Here(Box<RequestRow>, JoinHandle<Result<Reply<Content>, Problem>>),
    Before(Box<RequestRow>),
}

impl Operations {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            running: Mutex::default(),
            sweeps: Mutex::default(),
            streams: ByTenant::new(STREAMS),
            ending: watch::Sender::new(false),
        }
    }

    /// Does what was asked for once, however often it is asked for with one key.
    pub(super) async fn done(
        self: &Arc<Self>,
        recorded: Recorded,
    ) -> Result<Reply<Content>, Problem> {
        let (answered, tenant) = (recorded.answered, recorded.made.tenant.clone());
        let this = self.clone();
        // Whoever hangs up meanwhile leaves no record behind that nobody works on.
        let beginning = async move { this.begin(recorded).await };
        let begun = tokio::spawn(beginning.instrument(Span::current())).await;
        let begun = begun.map_err(|why| Problem::bug(&why))??;
        match (begun, answered) {
            (Begun::Here(row, _) | Begun::Before(row), Answered::AsOperation) => {
                Ok(Accepted::of(&row)?.into())
            }
            (Begun::Here(_, doing), Answered::AtOnce) => {
                doing.await.unwrap_or_else(|why| Err(Problem::bug(&why)))
            }
            (Begun::Before(row), Answered::AtOnce) => self.end_of(&tenant, *row).await,
        }
    }

    async fn begin(self: Arc<Self>, recorded: Recorded) -> Result<Begun, Problem> {
        let Recorded {
            key,
            made,
            answered,
            ready,
            call,
            held,
        } = recorded;
        let (tenant, name) = (made.tenant.clone(), made.route.clone());
        let (metrics, since) = (call.metrics.clone(), Instant::now());
        let begun = self.engine.requests().begin(key.as_ref(), made).await?;
        let (running, row) = match begun {
            BegunRequest::New(running, row) => (running, row),
            BegunRequest::Before(row) => return Ok(Begun::Before(row)),
            BegunRequest::Other => {
                let said = "this Idempotency-Key was used for another request";
                return Err(Problem::new(ProblemCode::KeyReused, said));
            }
        };
        let progress = call.progress.clone();
        self.lock_running().insert(running.id, progress.clone());
        let this = self.clone();
        let doing = async move {
            let reply = this.work(ready, call, (&running, &progress)).await;
            if answered == Answered::AsOperation {
                let outcome = if reply.is_ok() { "done" } else { "failed" };
                metrics.add(operation(name.as_str(), outcome, since.elapsed()));
            }
            this.lock_running().remove(&running.id);
            drop(held);
            reply
        };
        let doing = tokio::spawn(doing.instrument(Span::current()));
        self.sweep_sometimes(tenant);
        Ok(Begun::Here(row, doing))
    }

    /// Does it, says again and again that it goes on, and writes down how it ended.
    async fn work(
        &self,
        ready: ReadyWork,
        call: Call,
        (running, progress): (&RunningRequest, &Progress),
    ) -> Result<Reply<Content>, Problem> {
        let mut serving = tokio::spawn(ready(call).instrument(Span::current()));
        let mut ticks = tokio::time::interval(RENEWED_EVERY);
        ticks.tick().await;
        let requests = self.engine.requests();
        let served = loop {
            tokio::select! {
                served = &mut serving => break served,
                _ = ticks.tick() => {
                    if let Err(error) = requests.renew(running, progress.reached()).await {
                        tracing::warn!(operation = %running.id, %error, "an operation was not renewed");
                    }
                }
            }
        };
        let reply = served.unwrap_or_else(|why| Err(Problem::bug(&why)));
        let (reply, end) = ended(reply).await;
        if let Err(error) = requests.end(running, end, progress.reached()).await {
            tracing::error!(operation = %running.id, %error, "the end of an operation was not written down");
        }
        reply
    }

    /// What the first one with this key was answered, once it is.
    async fn end_of(
        &self,
        tenant: &TenantId,
        mut row: RequestRow,
    ) -> Result<Reply<Content>, Problem> {
        while !row.state.is_over() {
            tokio::time::sleep(LOOKED_EVERY).await;
            let shown = self.engine.requests().show(tenant, row.operation_id);
            row = shown.await?.ok_or_else(Problem::nowhere)?;
        }
        let id = row.operation_id;
        match (row.state, row.answer, row.problem) {
            (RequestState::Done, Some(answer), _) => {
                Ok(Reply::of(answer.content()?, row.generation))
            }
            (RequestState::Done, None, _) => {
                let said = "the request with this key was done; its answer was too long to be kept";
                Err(Problem::new(ProblemCode::Limit, said).with("operation_id", id))
            }
            (RequestState::Failed, _, Some(problem)) => Err(Problem::kept(&problem)),
            _ => {
                let said =
                    "the request with this key was interrupted; whether it was done is not known";
                Err(Problem::new(ProblemCode::Interrupted, said).with("operation_id", id))
            }
        }
    }

    /// How far something has come that this process does.
    pub(super) fn reached(&self, id: RequestId) -> Option<Reached> {
        self.lock_running().get(&id).map(|one| one.reached())
    }

    /// Room for one stream of events.
    pub(super) fn stream_room(&self, tenant: &TenantId) -> Result<OwnedSemaphorePermit, Problem> {
        let said = "too many streams of this tenant are open";
        let full = || Problem::new(ProblemCode::TooManyRequests, said);
        self.streams.room(tenant).ok_or_else(full)
    }

    /// Says when the service ends.
    pub(super) fn ending(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }

    /// Ends all streams: work goes on.
    pub(super) fn end_streams(&self) {
        self.ending.send_replace(true);
    }

    fn lock_running(&self) -> std::sync::MutexGuard<'_, HashMap<RequestId, Arc<Progress>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes some old records now and then; more than are made.
    fn sweep_sometimes(self: &Arc<Self>, tenant: TenantId) {
        let after = {
            let mut sweeps = self.sweeps.lock().unwrap_or_else(PoisonError::into_inner);
            let sweep = sweeps.entry(tenant.clone()).or_default();
            sweep.requests += 1;
            if sweep.requests % SWEEP_EVERY != 1 {
                return;
            }
            sweep.after
        };
        let this = self.clone();
        let sweeping = async move {
            match this.engine.requests().sweep(&tenant, after).await {
                Ok(swept) => {
                    let mut sweeps = this.sweeps.lock().unwrap_or_else(PoisonError::into_inner);
                    sweeps.entry(tenant).or_default().after = swept.next;
                }
                Err(error) => tracing::warn!(%error, "old records of requests were not removed"),
            }
        };
        tokio::spawn(sweeping.instrument(Span::current()));
    }
}

/// A reply as it is sent, and as it is written down.
async fn ended(
    reply: Result<Reply<Content>, Problem>,
) -> (Result<Reply<Content>, Problem>, RequestEnd) {
    let problem = match whole(reply).await {
        Ok((reply, answer)) => {
            let generation = reply.generation;
            let end = RequestEnd::Done {
                answer: Some(answer),
                generation,
            };
            return (Ok(reply), end);
        }
        Err(problem) => problem,
    };
    let end = RequestEnd::Failed {
        problem: serde_json::to_value(&problem).unwrap_or_default(),
        // Nothing was done, and the next one may find things otherwise.
        may_begin_again: problem.is_passing(),
    };
    (Err(problem), end)
}

/// The reply with all its bytes, and the document that they are.
async fn whole(reply: Result<Reply<Content>, Problem>) -> Result<(Reply<Content>, Value), Problem> {
    let Reply { answer, generation } = reply?;
    let bytes = answer.body.collect().await;
    let bytes = bytes.map_err(|why| Problem::bug(&why))?.to_bytes();
    let document = serde_json::from_slice(&bytes).map_err(|why| Problem::bug(&why))?;
    let answer = Content {
        body: super::answer::whole(bytes),
        ..answer
    };
    Ok((Reply::of(answer, generation), document))
}
