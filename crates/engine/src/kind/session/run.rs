//! The whole life of a session in one command: wake it or begin it, keep it awake while a command runs, save it and put it to sleep.

use super::SessionHost;
use super::register::RegisterSession;
use super::sleep::{SessionSlept, SleepSession};
use super::wake::{SessionWoken, WakeSession};
use crate::error::{Error, error_chain};
use crate::handle::Sessions;
use crate::hold::STOP_TIMEOUT;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::AtPath;
use stasis_model::session::document::SessionDocument;
use stasis_quiesce::group::{ProcessGroup, Signal};
use stasis_store::documents::sessions;
use std::ffi::OsString;
use std::time::Duration;
use tokio::sync::mpsc;

/// The longest and the shortest time between two heartbeats.
const HEARTBEATS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_mins(1));

/// Runs a command in a session.
#[derive(Debug)]
pub struct RunSession {
    /// What is woken.
    pub wake: WakeSession,
    /// What is registered where nobody did: its workspace must be named then.
    pub register: RegisterSession,
    /// How it is put to sleep at the end.
    pub sleep: SleepSession,
    /// The command, program first.
    pub command: Vec<OsString>,
    /// Signals to pass on to it.
    pub signals: mpsc::UnboundedReceiver<Signal>,
}

/// A command that ran in a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was not saved is said only here"]
pub struct SessionRan {
    /// How it woke up; none where it began here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub woken: Option<SessionWoken>,
    /// The command's exit code as a shell gives it.
    pub exit_code: i32,
    /// What became of it in the end.
    pub slept: SessionSlept,
}

impl Sessions<'_> {
    /// Wakes or begins a session, runs a command in its workspace, saves it and puts it to sleep.
    pub async fn run(self, host: &SessionHost, run: RunSession) -> Result<SessionRan, Error> {
        let session = run.wake.session.clone();
        let known = sessions::session(&*self.bucket, &session).await?;
        let known = known.map(|found| found.value);
        let woken = if known.is_some_and(|known: SessionDocument| known.is_alive()) {
            Some(Box::pin(self.wake(host, &run.wake)).await?)
        } else {
            let dir = &run.register.dir;
            std::fs::create_dir_all(dir).at("make the directory", dir)?;
            self.register(host, run.register.clone()).await?;
            None
        };
        let document = self.read(&session).await?;
        let exit_code = self.run_in(&document, run.command, run.signals).await?;
        let slept = Box::pin(self.sleep(host, &session, &run.sleep)).await?;
        Ok(SessionRan {
            woken,
            exit_code,
            slept,
        })
    }

    /// Runs a command in the workspace, and says every so often that it is in use.
    async fn run_in(
        self,
        document: &SessionDocument,
        command: Vec<OsString>,
        mut signals: mpsc::UnboundedReceiver<Signal>,
    ) -> Result<i32, Error> {
        let session = &document.session;
        let variables = [
            ("STASIS_TENANT", session.tenant.to_string()),
            ("STASIS_SESSION", session.session.to_string()),
            ("STASIS_SESSION_DIR", document.place.dir.clone()),
        ];
        let mut group =
            ProcessGroup::start_in(&command, &variables, Some(document.place.dir.as_ref()))?;
        let every = Duration::from_millis(document.idle_timeout_ms / 4);
        let every = every.clamp(HEARTBEATS.0, HEARTBEATS.1);
        let mut asked = false;
        loop {
            tokio::select! {
                ended = group.wait() => {
                    let code = ended?.code();
                    // What it left running would go on writing while it is saved.
                    group.stop(STOP_TIMEOUT).await?;
                    return Ok(code);
                }
                () = tokio::time::sleep(every) => {
                    if let Err(error) = self.heartbeat(session).await {
                        let error = error_chain(&error);
                        tracing::warn!(%session, error, "a heartbeat was not heard");
                    }
                }
                Some(signal) = signals.recv() => {
                    if asked {
                        let ended = group.stop(STOP_TIMEOUT).await?;
                        return Ok(ended.code());
                    }
                    group.signal(signal);
                    asked = true;
                }
            }
        }
    }
}
