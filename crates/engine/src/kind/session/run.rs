//! The whole life of a session in one command: wake it or begin it, keep it awake while a command runs, save it and put it to sleep.

use super::memory;
use super::register::RegisterSession;
use super::sandbox::{self, LiveSandbox, SandboxHealth};
use super::sleep::{SessionSlept, SleepSession};
use super::wake::{SessionWoken, WakeSession};
use super::{SessionHost, failed, failure, refused};
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Sessions;
use crate::hold::STOP_TIMEOUT;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::AtPath;
use stasis_model::id::{SandboxName, SessionRef};
use stasis_model::session::document::{SessionDocument, SessionState};
use stasis_model::session::step::SessionRefusal;
use stasis_quiesce::group::{ProcessGroup, Signal};
use stasis_quiesce::sandbox::{KnownProcess, MARK};
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
        let known = known.filter(SessionDocument::is_alive);
        let woken = if let Some(known) = known {
            self.ensure_not_run(host, &known).await?;
            let wake = WakeSession {
                without_sandbox: true,
                ..run.wake.clone()
            };
            Some(Box::pin(self.wake(host, &wake)).await?)
        } else {
            let dir = &run.register.dir;
            std::fs::create_dir_all(dir).at("make the directory", dir)?;
            self.register(host, run.register.clone()).await?;
            None
        };
        let document = self.read(&session).await?;
        let mark = self.rng.op_id().to_string();
        let ran = self
            .run_in(host, (&document, &mark), run.command, run.signals)
            .await;
        let now = self.read(&session).await?;
        let is_ours = |known: KnownProcess| known.mark.as_deref() == Some(&mark);
        let runs_other = LiveSandbox::process_of(&now).is_some_and(|known| !is_ours(known));
        if ran.is_err() && runs_other {
            // Another one was faster: it is not ours to put to sleep.
            return Err(ran.expect_err("it is one"));
        }
        if ran.is_ok() && now.state != SessionState::Running {
            let said = format!(
                "`{session}` was put to sleep by another one while its command ran: what that wrote since is in `{}`, and in no snapshot",
                document.place.dir
            );
            return Err(failure(ErrorKind::Fenced, said).into());
        }
        let slept = Box::pin(self.sleep(host, &session, &run.sleep)).await;
        let (exit_code, slept) = (ran?, slept?);
        Ok(SessionRan {
            woken,
            exit_code,
            slept,
        })
    }

    /// One command at a time: another one that lives is left alone. What a run left that was killed is taken up where it is.
    async fn ensure_not_run(
        self,
        host: &SessionHost,
        known: &SessionDocument,
    ) -> Result<(), Error> {
        let sandbox = known.sandbox.as_ref();
        if sandbox.is_some_and(|sandbox| !sandbox.commands.is_empty()) {
            let session = &known.session;
            let said = format!("`{session}` has a sandbox that commands start or end");
            let hint = format!(
                "`stasis session wake {session}` starts it; to run a command in its files, fork it: `stasis session fork {session} NAME`"
            );
            return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
        }
        // One that was killed before it said so may have left its command.
        if let Some(left) = memory::started(host, &known.session).await
            && KnownProcess::marked(&left.mark)?.is_running()?
        {
            return Err(refused(SessionRefusal::Running {
                session: known.session.clone(),
                place: known.place.clone(),
            }));
        }
        let is_here = known.state == SessionState::Running && known.place.host == host.name;
        let health = LiveSandbox::of(host, known).health().await?;
        if is_here && !matches!(health, SandboxHealth::Gone | SandboxHealth::None) {
            return Err(refused(SessionRefusal::Running {
                session: known.session.clone(),
                place: known.place.clone(),
            }));
        }
        Ok(())
    }

    /// Writes down which process runs the session: whoever comes while it lives is refused, also after we were killed.
    async fn note_command(
        self,
        host: &SessionHost,
        document: &SessionDocument,
        (pid, mark): (u32, &str),
    ) -> Result<(), Error> {
        let session = &document.session;
        let sandbox = sandbox::command(sandbox_name(session), pid, mark)?;
        let will_be = document.running_in(Some(sandbox.clone()));
        // Others that are registered in it are known by what it is.
        memory::remember_started(host, session, (mark, &sandbox)).await?;
        self.announce(host, &will_be).await?;
        let before = document.sandbox.as_ref();
        let noted = self.change(session, |found, op_id| {
            found.runs_in(Some(&sandbox), before, self.now(), op_id)
        });
        noted.await.map_err(failed)?;
        Ok(())
    }

    /// Runs a command in the workspace, and says every so often that it is in use.
    async fn run_in(
        self,
        host: &SessionHost,
        (document, mark): (&SessionDocument, &str),
        command: Vec<OsString>,
        mut signals: mpsc::UnboundedReceiver<Signal>,
    ) -> Result<i32, Error> {
        let session = &document.session;
        let variables = [
            (MARK, mark.to_owned()),
            ("STASIS_TENANT", session.tenant.to_string()),
            ("STASIS_SESSION", session.session.to_string()),
            ("STASIS_SESSION_DIR", document.place.dir.clone()),
        ];
        // Before it runs: whoever is killed leaves nothing that this host does not know.
        let about = sandbox::not_started(sandbox_name(session));
        memory::remember_started(host, session, (mark, &about)).await?;
        let mut group =
            ProcessGroup::start_in(&command, &variables, Some(document.place.dir.as_ref()))?;
        if let Err(error) = self.note_command(host, document, (group.pid(), mark)).await {
            group.stop(STOP_TIMEOUT).await?;
            return Err(error);
        }
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
                    if let Err(error) = self.beat(session).await {
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

/// What the sandbox of a session is called that nobody named.
fn sandbox_name(session: &SessionRef) -> SandboxName {
    let name = session.session.as_str().parse();
    name.expect("the names of sessions and of sandboxes follow one rule")
}
