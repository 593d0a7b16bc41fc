//! Whether the service works, and what it can do.

use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `GET /healthz`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Healthz {}

/// That the service runs.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct Health {
    /// `ok`
    status: HealthWord,
    /// The version of the program.
    version: &'static str,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum HealthWord {
    Ok,
}

impl Endpoint for Healthz {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/healthz";
    const NAME: &'static str = "healthz";
    const SUMMARY: &'static str = "Say that the service runs; the store is not asked";
    const ACCESS: Access = Access::Anybody;
    type Body = NoBody;
    type Answer = Health;

    async fn serve(self, _: NoBody, _: &Call) -> Result<Reply<Health>, Problem> {
        Ok(health().into())
    }
}

fn health() -> Health {
    Health {
        status: HealthWord::Ok,
        version: env!("CARGO_PKG_VERSION"),
    }
}

/// `GET /readyz`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Readyz {}

impl Endpoint for Readyz {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/readyz";
    const NAME: &'static str = "readyz";
    const SUMMARY: &'static str = "Say whether the store answers";
    const ACCESS: Access = Access::Anybody;
    type Body = NoBody;
    type Answer = Health;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<Health>, Problem> {
        call.engine.store().reach().await?;
        Ok(health().into())
    }
}

/// `GET /v1/openapi.json`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct OpenApiDocument {}

impl Endpoint for OpenApiDocument {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/openapi.json";
    const NAME: &'static str = "openapi";
    const SUMMARY: &'static str = "Describe the service in OpenAPI 3.1";
    const ACCESS: Access = Access::Anybody;
    type Body = NoBody;
    type Answer = Value;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<Value>, Problem> {
        Ok(Value::clone(&call.document).into())
    }
}
