//! Sessions: an agent's workspace in a sandbox that is put to sleep when nobody uses it, and woken where it left off (ADR 84).
//!
//! **Sleep** (`sleep`, for one sandbox; `reap`, for all that are idle): snapshot each session → publish → read back → prune what it
//! replaces → claim each → terminate the sandbox → write down that they sleep.
//! **Wake**: claim → restore → start the sandbox → write down that it runs.
//!
//! Everything is in the store: `session.json` says where a session stands and is changed by the rules of
//! [`stasis_model::session::step`] alone; its snapshots are those of any subject, of which exactly one is published.
//!
//! *Always true:* a session that has a snapshot has one at every moment; a sandbox is terminated only after everything in it is durable, or
//! because it does not answer and is said to be lost; and no heartbeat that was acknowledged is followed by the end of its sandbox.

mod awake;
mod capture;
mod export;
mod fork;
mod left_over;
mod list;
mod memory;
mod reap;
mod register;
mod run;
mod sandbox;
mod sandbox_container;
mod sharing;
mod sleep;
mod start;
mod still;
#[cfg(test)]
mod tests;
mod undo;
mod wake;

pub use capture::{SessionCaptured, SessionLimits, SnapshotSession};
pub use export::SessionExported;
pub use fork::{ForkSession, SessionForked};
pub use list::{SessionDisplayState, SessionList, SessionRow, SessionShown};
pub use reap::{LeftBecause, ReapSessions, ReapedSession, ReapedSessions, SessionFate};
pub use register::{RegisterSession, SessionDeleted, SessionRegistered, SnapshotDeleted};
pub use run::{RunSession, SessionRan};
pub use sandbox::{SandboxHealth, SandboxRequest, SandboxRequestDriver};
pub use sleep::{SessionSlept, SleepSession, SleptState};
pub use stasis_model::session::document::IDLE_TIMEOUT;
pub use stasis_quiesce::freeze::MAX_FREEZE;
pub use undo::WakeUndone;
pub use wake::{SessionWoken, WakeOutcome, WakeSession};

use crate::error::{Error, ErrorKind};
use crate::handle::Sessions;
use crate::open::Engine;
use stasis_model::failure::{Failure, Kinded as _};
use stasis_model::format::event::{AuditEvent, EventKind, Severity};
use stasis_model::id::{Label, OpId, SessionRef, SubjectName};
use stasis_model::session::document::SessionDocument;
use stasis_model::session::step::SessionRefusal;
use stasis_model::time::Timestamp;
use stasis_quiesce::docker::Docker;
use stasis_store::documents::sessions::{self, SessionError};
use stasis_store::layout::ChunkRoot;
use std::path::PathBuf;
use std::time::Duration;

/// For how long others leave alone what somebody does to a session who is not heard of any more.
pub const LEASE_TTL: Duration = Duration::from_mins(2);

/// What a session needs to know of this host.
#[derive(Clone, Debug)]
pub struct SessionHost {
    /// What it is called: sessions whose workspaces lie here say so.
    pub name: Label,
    /// Who acts: the host and the process.
    pub by: Label,
    /// Where it keeps what it knows, such as which commands were typed here.
    pub state: Option<PathBuf>,
    /// The Docker engine that it works with.
    pub docker: Docker,
}

impl Sessions<'_> {
    /// The engine of one session's snapshots.
    fn of(self, session: &SessionRef) -> Engine {
        self.engine.rooted(ChunkRoot::session(session))
    }

    /// What time the store says it is.
    fn now(self) -> Timestamp {
        self.lineages.now()
    }

    /// What is kept of a session.
    async fn read(self, session: &SessionRef) -> Result<SessionDocument, Error> {
        let found = sessions::session(&*self.bucket, session).await?;
        let found = found.map(|found| found.value);
        let alive = found.filter(SessionDocument::is_alive);
        alive.ok_or_else(|| refused(SessionRefusal::Absent(session.clone())))
    }

    /// Changes what is kept of it.
    async fn change(
        self,
        session: &SessionRef,
        rule: impl Fn(&SessionDocument, OpId) -> Result<SessionDocument, SessionRefusal>,
    ) -> Result<SessionDocument, SessionError> {
        // The document remembers it, so that an answer that was lost is found again.
        let op_id = self.rng.op_id();
        let absent = || SessionRefusal::Absent(session.clone());
        let rule = |found: Option<&SessionDocument>| rule(found.ok_or_else(absent)?, op_id);
        sessions::change(&*self.bucket, session, op_id, rule).await
    }

    /// Writes down what an operator should know. What was done is done, whatever becomes of the record.
    async fn note_event(self, kind: EventKind, session: &SessionRef, said: &str) {
        let nobody = Label::nobody();
        let event = self.events().event(kind, Severity::Warning, &nobody);
        let event: AuditEvent = event
            .with("session", session.to_string())
            .with("detail", said);
        let _ = self.events().record(&session.tenant, event).await;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What a session is called among the subjects of its tenant.
fn name_of(session: &SessionRef) -> SubjectName {
    let name = session.session.as_str().parse();
    name.expect("the names of sessions and of subjects follow one rule")
}

/// Says of a change that was refused what to do now.
fn refused(refusal: SessionRefusal) -> Error {
    failed(SessionError::Refused(refusal))
}

/// The same of any change that failed.
fn failed(error: SessionError) -> Error {
    let hint = match &error {
        SessionError::Refused(refusal) => hint_for(refusal),
        _ => None,
    };
    let failure = Failure::of(error.kind(), error);
    match hint {
        Some(hint) => failure.with_hint(hint).into(),
        None => failure.into(),
    }
}

fn hint_for(refusal: &SessionRefusal) -> Option<String> {
    Some(match refusal {
        SessionRefusal::Absent(_) => "`stasis session list` lists those that there are".to_owned(),
        SessionRefusal::Deleted(session) => {
            format!("`stasis session register {session} --dir DIR` begins it anew")
        }
        SessionRefusal::NotRunning { session, .. }
        | SessionRefusal::HasSnapshot { session, .. } => {
            format!("`stasis session wake {session}` brings it back")
        }
        SessionRefusal::Running { session, .. } => {
            format!("`stasis session show {session}` says what runs it")
        }
        SessionRefusal::Claimed { claim, .. } => {
            format!(
                "wait until that is over, at the latest at {}",
                claim.expires_at
            )
        }
        _ => return None,
    })
}

/// Says that nothing of a session was saved.
fn no_snapshot(session: &SessionRef) -> Error {
    let said = format!("the session `{session}` has no snapshot");
    let hint = format!("`stasis session snapshot {session}` makes one");
    failure(ErrorKind::NotFound, said).with_hint(hint).into()
}

/// A failure of something that only this kind does.
fn failure(kind: ErrorKind, said: impl Into<String>) -> Failure {
    Failure::of(kind, said.into())
}
