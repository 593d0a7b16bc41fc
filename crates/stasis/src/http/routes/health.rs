//! Whether the service works, and what it can do.

use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::problem::{Problem, ProblemCode};
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stasis_engine::model::time::Clock;
use stasis_engine::open::Engine;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// For how long it counts whether the store answered: whoever asks needs no token, and must not make work.
const REMEMBERED: Duration = Duration::from_secs(1);
/// How long the store may take.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// Whether the store answers. However many ask, it is asked once a second at most.
#[derive(Debug)]
pub(in crate::http) struct Readiness {
    clock: Arc<dyn Clock>,
    /// When it was asked, and what was wrong.
    last: Mutex<Option<(Duration, Option<ProblemCode>)>>,
}

impl Readiness {
    pub(in crate::http) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            last: Mutex::default(),
        }
    }

    async fn ensure(&self, engine: &Engine) -> Result<(), Problem> {
        let mut last = self.last.lock().await;
        let now = self.clock.uptime();
        let wrong = match *last {
            Some((at, wrong)) if now.saturating_sub(at) < REMEMBERED => wrong,
            _ => {
                let wrong = asked(engine).await;
                *last = Some((self.clock.uptime(), wrong));
                wrong
            }
        };
        let said = "the store does not answer as it should; the log of the service says more";
        wrong.map_or(Ok(()), |code| Err(Problem::new(code, said)))
    }
}

/// What is wrong with the store.
async fn asked(engine: &Engine) -> Option<ProblemCode> {
    let reached = tokio::time::timeout(READY_WITHIN, engine.store().reach()).await;
    let Ok(reached) = reached else {
        tracing::error!(seconds = READY_WITHIN.as_secs(), "the store did not answer");
        return Some(ProblemCode::Unreachable);
    };
    Some(Problem::from(reached.err()?).code)
}

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
        call.readiness.ensure(&call.engine).await?;
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
