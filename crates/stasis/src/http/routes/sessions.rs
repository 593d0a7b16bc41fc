//! Sessions of agents: that one is in use.

use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::{SessionId, SessionRef};
use stasis_engine::model::session::document::SessionState;

/// `POST /v1/sessions/{id}/heartbeat`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct BeatSession {
    id: SessionId,
}

/// A session that is in use.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct SessionBeaten {
    session: SessionRef,
    state: SessionState,
    /// When it is idle, unless somebody says again that it is in use.
    idle_at: String,
    /// The same in milliseconds.
    idle_at_ms: u64,
}

impl Endpoint for BeatSession {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/sessions/{id}/heartbeat";
    const NAME: &'static str = "beat_session";
    const SUMMARY: &'static str = "Say that a session is in use; a 409 says that it has to be woken";
    const ACCESS: Access = Access::Token(TokenScope::Write);
    type Body = NoBody;
    type Answer = SessionBeaten;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<SessionBeaten>, Problem> {
        let session = SessionRef {
            tenant: call.tenant()?,
            session: self.id,
        };
        // Whoever runs it says so, and that need not be this host.
        let beaten = call.engine.sessions().beat(&session).await?;
        // Where its workspace lies on some host is not told.
        Ok(SessionBeaten {
            session: beaten.session,
            state: beaten.state,
            idle_at: beaten.idle_at,
            idle_at_ms: beaten.idle_at_ms,
        }
        .into())
    }
}
