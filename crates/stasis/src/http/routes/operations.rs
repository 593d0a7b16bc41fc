//! What became of work that outlives the request that began it.

use crate::http::answer::{Answer, AnswerSchema, ByteStream, Content};
use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::operations::Operations;
use crate::http::parameters::PageSize;
use crate::http::problem::Problem;
use bytes::Bytes;
use http::{Method, StatusCode};
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Serialize};
use stasis_engine::model::format::request::{RequestId, RequestProgress};
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::TenantId;
use stasis_engine::model::time::Timestamp;
use stasis_engine::open::Engine;
use stasis_engine::requests::{RequestRow, progress};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// How often work of this process is looked at, and work of others.
const LOOKED_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// How long a stream is silent at most.
const SILENCE: Duration = Duration::from_secs(15);
/// How long a stream is at most: whoever wants more asks again.
const LONGEST: Duration = Duration::from_mins(10);
/// How many events wait for somebody who takes them slowly.
const WAITING: usize = 4;

/// A request as this caller may see it: the answer only if he could have asked for it himself.
fn visible(call: &Call, mut row: RequestRow) -> RequestRow {
    if let Some(reached) = call.operations.reached(row.operation_id) {
        row.progress = progress(reached);
    }
    if !call.caller.may(row.scope) {
        row.answer = None;
    }
    row
}

async fn shown(call: &Call, tenant: &TenantId, id: RequestId) -> Result<RequestRow, Problem> {
    let found = call.engine.requests().show(tenant, id).await?;
    Ok(visible(call, found.ok_or_else(Problem::nowhere)?))
}

/// `GET /v1/operations/{id}`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ShowOperation {
    id: RequestId,
}

impl Endpoint for ShowOperation {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/operations/{id}";
    const NAME: &'static str = "show_operation";
    const SUMMARY: &'static str = "Say how far an operation has come, or how it ended";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = RequestRow;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<RequestRow>, Problem> {
        Ok(shown(call, &call.tenant()?, self.id).await?.into())
    }
}

/// Where a page ended: the row after which the next one begins.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct OperationCursor(Timestamp, RequestId);

impl OperationCursor {
    fn of(row: &RequestRow) -> String {
        format!("{}.{}", row.begun_at_ms.millis(), row.operation_id)
    }
}

impl TryFrom<String> for OperationCursor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = || "a cursor is the `next_cursor` of a page".to_owned();
        let (at, id) = text.split_once('.').ok_or_else(bad)?;
        let at = at.parse().map_err(|_| bad())?;
        let id = id.parse().map_err(|_| bad())?;
        Ok(Self(Timestamp::from_millis(at), id))
    }
}

impl JsonSchema for OperationCursor {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OperationCursor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        json_schema!({ "type": "string" })
    }
}

/// `GET /v1/operations`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ListOperations {
    /// Where the page before this one ended: its `next_cursor`
    #[serde(default)]
    cursor: Option<OperationCursor>,
    /// How many rows the page has at most
    #[serde(default)]
    limit: PageSize,
}

/// A page of operations.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct OperationPage {
    /// The newest first.
    items: Vec<RequestRow>,
    /// Where the next page begins; there is none where this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// Those that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<RequestId>,
    /// Whether there are more than are ever listed.
    truncated: bool,
}

impl Endpoint for ListOperations {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/operations";
    const NAME: &'static str = "list_operations";
    const SUMMARY: &'static str =
        "List operations and requests with a key of the last day, the newest first";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = OperationPage;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<OperationPage>, Problem> {
        let list = call.engine.requests().list(&call.tenant()?).await?;
        let mut items = list.items;
        if let Some(OperationCursor(at, id)) = self.cursor {
            items.retain(|row| (row.begun_at_ms, row.operation_id) < (at, id));
        }
        let has_more = items.len() > self.limit.rows();
        items.truncate(self.limit.rows());
        let next_cursor = items.last().filter(|_| has_more).map(OperationCursor::of);
        Ok(OperationPage {
            items: items.into_iter().map(|row| visible(call, row)).collect(),
            next_cursor,
            unreadable: list.unreadable,
            truncated: list.truncated,
        }
        .into())
    }
}

/// `GET /v1/operations/{id}/events`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct WatchOperation {
    id: RequestId,
}

/// Server-sent events: `progress` whenever it has changed, and `end` with the operation as `GET /v1/operations/{id}` has it.
pub(in crate::http) struct EventStream(ByteStream);

impl Answer for EventStream {
    fn described(_: &mut SchemaGenerator) -> AnswerSchema {
        AnswerSchema {
            status: StatusCode::OK,
            media_type: "text/event-stream",
            schema: json_schema!({ "type": "string" }),
        }
    }

    fn content(self) -> Result<Content, Problem> {
        Ok(Content {
            status: StatusCode::OK,
            media_type: "text/event-stream",
            location: None,
            headers: &[],
            body: self.0.boxed(),
        })
    }
}

impl Endpoint for WatchOperation {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/operations/{id}/events";
    const NAME: &'static str = "watch_operation";
    const SUMMARY: &'static str =
        "Follow an operation to its end, for ten minutes at most, as server-sent events";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = EventStream;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<EventStream>, Problem> {
        let tenant = call.tenant()?;
        let row = shown(call, &tenant, self.id).await?;
        let room = call.operations.stream_room(&tenant)?;
        let (sender, stream) = ByteStream::channel(WAITING);
        let watch = Watch {
            engine: call.engine.clone(),
            operations: call.operations.clone(),
            tenant,
            shows_answer: call.caller.may(row.scope),
            sender,
            spoke: Instant::now(),
        };
        let mut ending = call.operations.ending();
        tokio::spawn(async move {
            // Nobody waits for the end of the service because of a stream.
            tokio::select! {
                _ = timeout(LONGEST, watch.follow(row)) => {}
                _ = ending.wait_for(|ends| *ends) => {}
            }
            drop(room);
        });
        Ok(EventStream(stream).into())
    }
}

/// Whoever left does not take any more.
struct Left;

/// Somebody who follows an operation.
struct Watch {
    engine: Engine,
    operations: Arc<Operations>,
    tenant: TenantId,
    shows_answer: bool,
    sender: mpsc::Sender<io::Result<Bytes>>,
    /// When something was sent last.
    spoke: Instant,
}

impl Watch {
    /// Sends what changes until the end, or until nobody takes it.
    async fn follow(mut self, mut row: RequestRow) -> Result<(), Left> {
        let mut sent = None;
        while !row.state.is_over() {
            if sent != Some(row.progress) {
                let event = OperationProgress {
                    state: row.state,
                    progress: row.progress,
                };
                self.send("progress", &event).await?;
                sent = Some(row.progress);
            }
            if self.spoke.elapsed() >= SILENCE {
                self.write(": still there\n\n".to_owned()).await?;
            }
            row = self.next(row).await;
        }
        if !self.shows_answer {
            row.answer = None;
        }
        self.send("end", &row).await
    }

    /// How it stands a little later.
    async fn next(&self, mut row: RequestRow) -> RequestRow {
        let (ours, others) = LOOKED_EVERY;
        let id = row.operation_id;
        let is_ours = self.operations.reached(id).is_some();
        tokio::time::sleep(if is_ours { ours } else { others }).await;
        if let Some(reached) = self.operations.reached(id) {
            row.progress = progress(reached);
            return row;
        }
        match self.engine.requests().show(&self.tenant, id).await {
            Ok(Some(found)) => found,
            // A store that does not answer now may do so the next time.
            Ok(None) | Err(_) => row,
        }
    }

    async fn send(&mut self, event: &str, data: &impl Serialize) -> Result<(), Left> {
        let data = serde_json::to_string(data).map_err(|_| Left)?;
        self.write(format!("event: {event}\ndata: {data}\n\n"))
            .await
    }

    async fn write(&mut self, text: String) -> Result<(), Left> {
        self.spoke = Instant::now();
        self.sender.send(Ok(text.into())).await.map_err(|_| Left)
    }
}

/// What an event of progress has.
#[derive(Serialize)]
struct OperationProgress {
    state: stasis_engine::model::format::request::RequestState,
    #[serde(flatten)]
    progress: RequestProgress,
}
