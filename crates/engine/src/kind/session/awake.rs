//! A wake of a session that is said to run: it does, or its sandbox is started again, or it is given up and woken from its snapshot.

use super::memory;
use super::sandbox::{LiveSandbox, SandboxHealth, SandboxRequest, SandboxRequestDriver};
use super::wake::{SessionWoken, WakeOutcome, WakeSession, absolute};
use super::{SessionHost, failed, failure, refused};
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Sessions;
use stasis_model::format::event::EventKind;
use stasis_model::session::document::{
    Sandbox, SandboxDriver, SessionDocument, SessionProblem, SessionState, SessionTrouble,
};
use stasis_model::session::step::{SessionRefusal, SleepEnding, SleepReason};

impl Sessions<'_> {
    /// A session that runs here and whose workspace is there needs nothing, but perhaps its sandbox.
    pub(super) async fn present(
        self,
        host: &SessionHost,
        command: &WakeSession,
        document: &SessionDocument,
    ) -> Result<Option<SessionWoken>, Error> {
        let place = &document.place;
        if place.host != host.name {
            return Ok(None);
        }
        let wanted = match &command.dir {
            Some(dir) => Some(absolute(dir)?),
            None => None,
        };
        if wanted.is_some_and(|wanted| wanted != place.dir) {
            let session = document.session.clone();
            let place = place.clone();
            return Err(refused(SessionRefusal::Running { session, place }));
        }
        if !self.is_its_workspace(host, document).await? {
            return Ok(None);
        }
        if let Some(request) = &command.sandbox {
            ensure_runs_so(request, document)?;
        }
        // It is in use from now on, unless it is just being put to sleep.
        let beaten = self.change(&document.session, |found, op_id| {
            found.heartbeat(self.now(), op_id)
        });
        beaten.await.map_err(failed)?;
        let sandbox = document.sandbox.as_ref();
        if sandbox.is_some_and(Sandbox::starts) {
            self.start_again(host, command).await?;
        }
        Ok(Some(SessionWoken::at(document, WakeOutcome::Present)))
    }

    /// Starts the sandbox of a session that runs and has none any more. What is in its workspace is newer than any snapshot, and stays.
    async fn start_again(self, host: &SessionHost, command: &WakeSession) -> Result<(), Error> {
        // Two that come at once start one.
        let _lock = memory::lock(host, &command.session, command.lock_wait()).await?;
        let document = self.read(&command.session).await?;
        let live = LiveSandbox::of(host, &document).trusting(command.trust_commands);
        let is_running = document.state == SessionState::Running;
        if !is_running || live.health().await? != SandboxHealth::Gone {
            return Ok(());
        }
        let on = (host, command.trust_commands);
        let _sandbox_lock = self.lock_sandbox(host, command, &document).await?;
        let held = document.sandbox.as_ref().map(|sandbox| &sandbox.name);
        self.end_unknown(on, (&document, held), || false).await?;
        let started = self.join_or_start(host, command, &document).await?;
        let was = document.sandbox.as_ref();
        let noted = self.change(&document.session, |found, op_id| {
            found.runs_in(started.sandbox(), was, self.now(), op_id)
        });
        let runs = self
            .runs_from_now_on(on, (&document, &started), noted)
            .await?;
        if document.sandbox_identity() != runs.sandbox_identity() {
            self.leave_process(&document).await;
        }
        Ok(())
    }

    /// A session whose workspace is gone, or lies on a host that is, is said to be lost before it is woken from its snapshot.
    pub(super) async fn give_up_sandbox(
        self,
        host: &SessionHost,
        command: &WakeSession,
        document: &SessionDocument,
    ) -> Result<SessionDocument, Error> {
        let (session, place) = (&document.session, &document.place);
        let is_here = place.host == host.name;
        let live = LiveSandbox::of(host, document).trusting(command.trust_commands);
        ensure_may_give_up(&live, (is_here, command.take_over), document).await?;
        let said = if is_here {
            format!(
                "its workspace `{}` is gone, or another directory",
                place.dir
            )
        } else {
            format!("it was taken over from {}", place.host)
        };
        let who = self.who(host, command);
        let claimed = self.change(session, |found, op_id| {
            // Another one may have woken it since: that was not looked at.
            if found.attempt != document.attempt || !found.runs_as(document) {
                return Err(SessionRefusal::Running {
                    session: session.clone(),
                    place: found.place.clone(),
                });
            }
            found.claim_sleep(&who, SleepReason::Asked, op_id)
        });
        let claimed = claimed.await.map_err(failed)?;
        let live = LiveSandbox::of(host, &claimed).trusting(command.trust_commands);
        if is_here && let Err(error) = self.end_unshared(&live, &claimed).await {
            let given_up = self.change(session, |found, op_id| {
                found.sleep_given_up(claimed.attempt, None, op_id)
            });
            if let Err(error) = given_up.await {
                tracing::info!(%session, %error, "a claim was not given back; it expires");
            }
            return Err(error);
        }
        let problem = SessionProblem::new(SessionTrouble::Unreachable, &said, self.now());
        let lost = self.change(session, |found, op_id| {
            let ending = SleepEnding::Lost(problem.clone());
            found.slept(claimed.attempt, &ending, op_id)
        });
        let lost = lost.await.map_err(failed)?;
        self.leave_process(&claimed).await;
        self.note_event(EventKind::SessionLost, session, &said)
            .await;
        Ok(lost)
    }

    /// Ends a sandbox; one that others use, too, goes on for them.
    async fn end_unshared(
        self,
        live: &LiveSandbox<'_>,
        document: &SessionDocument,
    ) -> Result<(), Error> {
        if self.sharing(document).await?.is_empty() {
            live.terminate().await?;
        }
        Ok(())
    }
}

/// Refuses to give up a sandbox that may go on: one of another host, or one that runs here.
async fn ensure_may_give_up(
    live: &LiveSandbox<'_>,
    (is_here, take_over): (bool, bool),
    document: &SessionDocument,
) -> Result<(), Error> {
    let (session, place) = (&document.session, &document.place);
    if !is_here && !take_over {
        let running = refused(SessionRefusal::Running {
            session: session.clone(),
            place: place.clone(),
        });
        let said = error_chain(&running);
        let hint = format!(
            "if {} is gone, `stasis session wake {session} --take-over` wakes it here from its last snapshot",
            place.host
        );
        return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
    }
    let health = live.health().await?;
    let is_ended = matches!(health, SandboxHealth::Gone | SandboxHealth::None);
    if is_here && !is_ended && !take_over {
        let said = format!(
            "the workspace `{}` of `{session}` is gone, or another directory, and its sandbox runs",
            place.dir
        );
        let hint = format!(
            "is its disk mounted? `stasis session wake {session} --take-over` gives up what is not in its snapshot"
        );
        return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
    }
    Ok(())
}

/// Refuses to say that a session that runs does so in a sandbox in which it does not.
fn ensure_runs_so(request: &SandboxRequest, document: &SessionDocument) -> Result<(), Error> {
    let session = &document.session;
    let is_so = document.sandbox.as_ref().is_some_and(|sandbox| {
        let is_named =
            request.name == sandbox.name || request.name.to_string() == session.session.to_string();
        let is_driven = match (&request.driver, &sandbox.driver) {
            (SandboxRequestDriver::Process(None), SandboxDriver::Process { .. })
            | (SandboxRequestDriver::Command, SandboxDriver::Command) => true,
            (SandboxRequestDriver::Process(Some(wanted)), SandboxDriver::Process { pid, .. }) => {
                wanted == pid
            }
            (
                SandboxRequestDriver::Docker(wanted),
                SandboxDriver::Docker {
                    container, name, ..
                },
            ) => wanted == name || container.starts_with(wanted.as_str()),
            _ => false,
        };
        is_named && is_driven && request.commands == sandbox.commands
    });
    if is_so {
        return Ok(());
    }
    let said = format!("`{session}` is awake, and not said to run in what is asked for");
    let hint = format!(
        "`stasis session sleep {session}` first, or `stasis session register {session} --dir DIR` with what runs it now"
    );
    Err(failure(ErrorKind::Conflict, said).with_hint(hint).into())
}
