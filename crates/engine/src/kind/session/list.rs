//! Where sessions stand.

use super::SessionHost;
use super::sandbox::{LiveSandbox, SandboxHealth};
use crate::error::Error;
use crate::handle::Sessions;
use crate::kind::project::{self, Home, Project, SessionHome};
use crate::open::Engine;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::id::{Label, SandboxName, SessionRef, SnapshotId, TenantId};
use stasis_model::nearest::nearest;
use stasis_model::session::document::{
    Sandbox, SessionAct, SessionClaim, SessionDocument, SessionProblem, SessionState,
    SessionTrouble,
};
use stasis_model::time::Timestamp;
use stasis_store::documents::sessions;
use stasis_store::part::Part;

/// Where a session stands, in one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionDisplayState {
    /// It is being woken.
    Provisioning,
    /// Its sandbox runs, and it was used not long ago.
    Running,
    /// Its sandbox runs, and nobody uses it.
    Idle,
    /// Its sandbox is being ended.
    GoingToSleep,
    /// Its sandbox runs, because it could not be saved.
    SnapshotFailed,
    /// Everything is in its snapshot.
    Sleeping,
    /// Its sandbox is gone, and something is lost.
    Terminated,
    /// It could not be woken.
    Failed,
}

/// One session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionRow {
    /// Which.
    pub session: SessionRef,
    /// Where it stands.
    pub state: SessionDisplayState,
    /// On which host its workspace lies, or lay.
    pub host: Label,
    /// The directory there.
    pub dir: String,
    /// What runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxName>,
    /// When it was last said to be in use.
    pub heartbeat: String,
    /// The same in milliseconds since 1970.
    pub heartbeat_ms: u64,
    /// What it is woken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<SnapshotId>,
    /// When its workspace was last known to be that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<String>,
    /// The same in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_ms: Option<u64>,
    /// How many bytes that has.
    pub bytes: u64,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<SessionProblem>,
}

/// All sessions of a tenant, or of all.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionList {
    /// One row for each.
    pub items: Vec<SessionRow>,
    /// Those whose documents cannot be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// Everything that is known of a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionShown {
    /// In short.
    #[serde(flatten)]
    pub row: SessionRow,
    /// What of its workspace is saved.
    pub roots: Vec<String>,
    /// After how long without a heartbeat it is idle, in milliseconds.
    pub idle_timeout_ms: u64,
    /// How long nobody has said that it is in use, in milliseconds.
    pub idle_for_ms: u64,
    /// How often something was done to it.
    pub attempt: u64,
    /// Who is doing something to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<SessionClaim>,
    /// What runs it, and how that is started and ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_in: Option<Sandbox>,
    /// Whether that answers.
    #[serde(flatten)]
    pub health: SandboxHealth,
    /// The session whose snapshot it began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<SessionRef>,
    /// Where that is kept which its last wake on this host replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl SessionRow {
    fn of(document: &SessionDocument, now: Timestamp) -> Self {
        let snapshot = document.snapshot.as_ref();
        let heartbeat = document.idle_since();
        Self {
            session: document.session.clone(),
            state: SessionDisplayState::of(document, now),
            host: document.place.host.clone(),
            dir: document.place.dir.clone(),
            sandbox: document.sandbox.as_ref().map(|one| one.name.clone()),
            heartbeat: heartbeat.to_string(),
            heartbeat_ms: heartbeat.millis(),
            snapshot_id: snapshot.map(|one| one.snapshot_id.clone()),
            saved: snapshot.map(|one| one.at.to_string()),
            saved_ms: snapshot.map(|one| one.at.millis()),
            bytes: snapshot.map_or(0, |one| one.bytes),
            problem: document.problem.clone(),
        }
    }
}

impl SessionDisplayState {
    fn of(document: &SessionDocument, now: Timestamp) -> Self {
        let trouble = document.problem.as_ref().map(|problem| problem.trouble);
        match document.state {
            SessionState::Provisioning => Self::Provisioning,
            SessionState::Sleeping => Self::Sleeping,
            SessionState::Terminated => Self::Terminated,
            SessionState::Failed => Self::Failed,
            SessionState::Running => match document.claimed(now).map(|claim| claim.act) {
                Some(SessionAct::Sleep) => Self::GoingToSleep,
                _ if trouble == Some(SessionTrouble::SnapshotFailed) => Self::SnapshotFailed,
                _ if document.is_idle(now) => Self::Idle,
                _ => Self::Running,
            },
        }
    }
}

impl Engine {
    /// The snapshots of a session, to be looked at as those of a directory, on a host that is called so.
    pub async fn session_directory(
        &self,
        session: &SessionRef,
        here: &Label,
        host: project::Host,
    ) -> Result<Project, Error> {
        let place = self.sessions().read(session).await?.place;
        let home = Home::of_session(SessionHome {
            session: session.clone(),
            is_here: place.host == *here,
            host: place.host,
            dir: place.dir,
        });
        Ok(Project {
            engine: self.sessions().of(session),
            home,
            host,
        })
    }
}

impl Sessions<'_> {
    /// All sessions of a tenant, or of all.
    pub async fn list(self, tenant: Option<&TenantId>) -> Result<SessionList, Error> {
        let (documents, unreadable) = self.documents(tenant).await?;
        Ok(SessionList {
            items: self.rows(&documents),
            unreadable,
        })
    }

    /// What a list shows of each.
    pub(crate) fn rows(self, documents: &[SessionDocument]) -> Vec<SessionRow> {
        let now = self.now();
        let rows = documents.iter().map(|one| SessionRow::of(one, now));
        rows.collect()
    }

    /// One session, as a list has it.
    pub async fn list_one(self, session: &SessionRef) -> Result<SessionList, Error> {
        let document = self.read(session).await?;
        Ok(SessionList {
            items: vec![SessionRow::of(&document, self.now())],
            unreadable: Vec::new(),
        })
    }

    /// Tenants that have sessions, whose names are near to one that has none.
    pub async fn near_tenants(self, typed: &TenantId) -> Vec<String> {
        // That the store cannot be listed is not what went wrong.
        let all = sessions::all(&*self.bucket, None, &Part::Whole)
            .await
            .unwrap_or_default();
        let names = all.into_iter().map(|one| one.tenant.to_string());
        nearest(typed.as_str(), names.map(|name| (name.clone(), name)))
    }

    /// Everything that is known of one.
    pub async fn show(
        self,
        host: &SessionHost,
        session: &SessionRef,
    ) -> Result<SessionShown, Error> {
        let document = self.read(session).await?;
        let now = self.now();
        let health = LiveSandbox::of(host, &document).health().await?;
        let idle = now.since(document.idle_since());
        let kept = self.kept_of_wake(host, session).await;
        Ok(SessionShown {
            kept,
            row: SessionRow::of(&document, now),
            roots: document.roots.names().to_vec(),
            idle_timeout_ms: document.idle_timeout_ms,
            idle_for_ms: u64::try_from(idle.as_millis()).unwrap_or(u64::MAX),
            attempt: document.attempt,
            claim: document.claim,
            runs_in: document.sandbox,
            health,
            forked_from: document.forked_from,
        })
    }
}
