//! What Prometheus scrapes.

use crate::http::answer::{Answer, AnswerSchema, Content};
use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::problem::Problem;
use http::{Method, StatusCode};
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use stasis_engine::model::format::token::TokenScope;

/// The text format of Prometheus.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4";

/// `GET /metrics`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ScrapeMetrics {}

/// Series and their values.
#[derive(Debug)]
pub(in crate::http) struct Exposition(String);

impl Answer for Exposition {
    fn described(_: &mut SchemaGenerator) -> AnswerSchema {
        AnswerSchema {
            status: StatusCode::OK,
            media_type: MEDIA_TYPE,
            schema: json_schema!({ "type": "string" }),
        }
    }

    fn content(self) -> Result<Content, Problem> {
        Ok(Content::whole(MEDIA_TYPE, self.0))
    }
}

impl Endpoint for ScrapeMetrics {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/metrics";
    const NAME: &'static str = "scrape_metrics";
    const SUMMARY: &'static str = "Show what the service counts, as Prometheus reads it";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = Exposition;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<Exposition>, Problem> {
        let tenant = call.tenant()?;
        let text = call.metrics.exposition(&call.engine, &tenant).await;
        Ok(Exposition(text).into())
    }
}
