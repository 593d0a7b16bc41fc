//! The tools of the MCP server over HTTP, in workspaces of the server's host that the operator named.

use crate::http::answer::{Answer, AnswerSchema, Content};
use crate::http::endpoint::{Access, Call, Endpoint, Reply};
use crate::http::problem::{Problem, ProblemCode};
use crate::mcp::OverHttp;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::{Label, TenantId};
use std::collections::BTreeMap;
use std::io;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// The workspaces of this host that models may work in over HTTP, by the tenant whose tokens open them and by name.
#[derive(Debug, Default)]
pub(crate) struct Workspaces(pub(crate) BTreeMap<(TenantId, Label), OverHttp>);

/// `POST /mcp/{workspace}`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct CallTools {
    workspace: Label,
}

/// A message of the protocol.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(in crate::http) struct McpMessage(Map<String, Value>);

impl JsonSchema for McpMessage {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "McpMessage".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        json_schema!({
            "type": "object",
            "description": "A message of the Model Context Protocol, in JSON-RPC 2.0",
        })
    }
}

/// What the protocol answers.
#[derive(Debug)]
pub(in crate::http) struct McpReply(Content);

impl Answer for McpReply {
    fn described(generator: &mut SchemaGenerator) -> AnswerSchema {
        AnswerSchema {
            status: StatusCode::OK,
            media_type: JSON,
            schema: generator.subschema_for::<McpMessage>(),
        }
    }

    fn content(self) -> Result<Content, Problem> {
        Ok(self.0)
    }
}

/// What a client says of the protocol in the head of a request.
pub(in crate::http) fn protocol_headers(all: &HeaderMap) -> HeaderMap {
    let of_protocol = |name: &&http::HeaderName| name.as_str().starts_with("mcp-");
    let names = all.keys().filter(of_protocol);
    let said = names.filter_map(|name| Some((name.clone(), all.get(name)?.clone())));
    said.collect()
}

impl Endpoint for CallTools {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/mcp/{workspace}";
    const NAME: &'static str = "call_tools";
    const SUMMARY: &'static str =
        "Speak the Model Context Protocol with the checkpoints of a workspace";
    const ACCESS: Access = Access::HostToken(TokenScope::Write);
    type Body = McpMessage;
    type Answer = McpReply;

    async fn serve(self, body: McpMessage, call: &Call) -> Result<Reply<McpReply>, Problem> {
        let named = (call.tenant()?, self.workspace);
        let workspace = call.workspaces.0.get(&named);
        let workspace = workspace.ok_or_else(Problem::nowhere)?;
        let text = serde_json::to_vec(&body.0).map_err(|why| Problem::bug(&why))?;
        let mut request = Request::new(Full::new(Bytes::from(text)));
        *request.method_mut() = Method::POST;
        request.headers_mut().extend(call.protocol.clone());
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        request.headers_mut().insert(ACCEPT, accept);
        let json = HeaderValue::from_static(JSON);
        request.headers_mut().insert(CONTENT_TYPE, json);
        // Which names we are called by was looked at before.
        let host = HeaderValue::from_static("localhost");
        request.headers_mut().insert(HOST, host);
        let client = call.actor();
        let answer = workspace.answer(client.as_str(), request).await;
        Ok(McpReply(content(answer).await?).into())
    }
}

type Answered =
    http::Response<http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>>;

async fn content(answer: Answered) -> Result<Content, Problem> {
    let (head, body) = answer.into_parts();
    let media_type = head.headers.get(CONTENT_TYPE);
    let media_type = media_type
        .and_then(|one| one.to_str().ok())
        .unwrap_or_default();
    let media_type = if media_type.starts_with(EVENTS) {
        EVENTS
    } else if media_type.starts_with(JSON) || head.status == StatusCode::ACCEPTED {
        JSON
    } else {
        // What is no answer of the protocol is a refusal in words.
        let Ok(said) = body.collect().await;
        let said = String::from_utf8_lossy(&said.to_bytes()).into_owned();
        return Err(Problem::new(ProblemCode::InvalidRequest, said));
    };
    Ok(Content {
        status: head.status,
        media_type,
        location: None,
        headers: &[],
        body: body
            .map_err(|never| -> io::Error { match never {} })
            .boxed(),
    })
}
