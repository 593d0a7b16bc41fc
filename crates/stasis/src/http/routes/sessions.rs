//! Sessions of agents: that one is in use, and, on the server's own host, that one sleeps or wakes.

use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::operations::Answered;
use crate::http::private::scrubbed;
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::kind::session::{
    SessionSlept, SleepSession, SnapshotSession, WakeOutcome, WakeSession,
};
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::{SessionId, SessionRef, SnapshotId};
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
    const SUMMARY: &'static str =
        "Say that a session is in use; a 409 says that it has to be woken";
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

/// `POST /v1/sessions/{id}/wake`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct WakeSessionHere {
    id: SessionId,
}

/// A session that is awake on the server's host.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct SessionAwake {
    session: SessionRef,
    /// What it woke up to.
    outcome: WakeOutcome,
    /// What was restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot_id: Option<SnapshotId>,
    /// Regular files.
    files: u64,
    /// The length of all files.
    bytes: u64,
    /// Bytes that were on the host already.
    bytes_reused: u64,
    /// What was lost with the sandbox that it had before.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<String>,
    /// How long it took.
    elapsed_ms: u64,
}

impl Endpoint for WakeSessionHere {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/sessions/{id}/wake";
    const NAME: &'static str = "wake_session";
    const SUMMARY: &'static str =
        "Bring a session back where it lay on the server's host, and start its sandbox";
    const ACCESS: Access = Access::HostToken(TokenScope::Write);
    const ANSWERED: Answered = Answered::AsOperation;
    type Body = NoBody;
    type Answer = SessionAwake;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<SessionAwake>, Problem> {
        let session = SessionRef {
            tenant: call.tenant()?,
            session: self.id,
        };
        let cmd = WakeSession {
            progress: call.progress.clone(),
            ..WakeSession::new(session)
        };
        let woken = Box::pin(call.engine.sessions().wake(call.host()?, &cmd)).await?;
        Ok(SessionAwake {
            session: woken.session,
            outcome: woken.outcome,
            snapshot_id: woken.snapshot_id,
            files: woken.files,
            bytes: woken.bytes,
            bytes_reused: woken.bytes_reused,
            lost: woken.lost.as_deref().map(scrubbed),
            elapsed_ms: woken.elapsed_ms,
        }
        .into())
    }
}

/// `POST /v1/sessions/{id}/sleep`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct SleepSessionHere {
    id: SessionId,
}

/// How it is put to sleep.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct SleepBody {
    /// Puts the other sessions of its sandbox to sleep, too
    #[serde(default)]
    with_others: bool,
}

impl Endpoint for SleepSessionHere {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/sessions/{id}/sleep";
    const NAME: &'static str = "sleep_session";
    const SUMMARY: &'static str =
        "Save a session of the server's host and end its sandbox; `state` says what became of it";
    const ACCESS: Access = Access::HostToken(TokenScope::Write);
    const ANSWERED: Answered = Answered::AsOperation;
    type Body = SleepBody;
    type Answer = SessionSlept;

    async fn serve(self, body: SleepBody, call: &Call) -> Result<Reply<SessionSlept>, Problem> {
        let session = SessionRef {
            tenant: call.tenant()?,
            session: self.id,
        };
        let how = SleepSession {
            snapshot: SnapshotSession {
                progress: call.progress.clone(),
                ..SnapshotSession::default()
            },
            with_others: body.with_others,
            ..SleepSession::default()
        };
        let slept = call.engine.sessions().sleep(call.host()?, &session, &how);
        let mut slept = Box::pin(slept).await?;
        slept.problem = slept.problem.as_deref().map(scrubbed);
        Ok(slept.into())
    }
}
