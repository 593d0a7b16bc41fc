//! What was started for a session and nobody knows of, because whoever started it was killed, gave up, or was refused: ended, unless others
//! run in it.
//!
//! What is started is noted on the host before it is. A process is found by its mark; whatever commands reach is ended by the command that
//! ends it, which does no harm once more, but would to others: they are asked for first, and whoever starts one holds its lock.

use super::memory::{self, HostLock, LockWait, StartedNote};
use super::sandbox::{LiveSandbox, end_marked};
use super::{SessionHost, failure};
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Sessions;
use stasis_model::format::event::EventKind;
use stasis_model::id::{SandboxName, SessionRef, TenantId};
use stasis_model::session::document::{SessionDocument, SessionState};

/// A host, and whether commands are run that nobody typed on it.
pub(super) type TrustingHost<'h> = (&'h SessionHost, bool);

impl Sessions<'_> {
    /// Ends what runs on this host for sessions that do not: somebody who woke them was killed and never said that it was started, or they
    /// were taken over by another host. What somebody is just starting is left to them.
    pub(super) async fn end_left_overs(self, on: TrustingHost<'_>, asleep: &[SessionRef]) {
        for session in asleep {
            if let Err(error) = self.end_left_over_alone(on, session).await {
                let error = error_chain(&error);
                tracing::warn!(%session, error, "what was started for it and left was not ended");
            }
        }
    }

    async fn end_left_over_alone(
        self,
        on: TrustingHost<'_>,
        session: &SessionRef,
    ) -> Result<(), Error> {
        let host = on.0;
        let Some(left) = memory::started(host, session).await else {
            return Ok(());
        };
        let wait = LockWait::not_at_all();
        let Some(_lock) = memory::try_lock(host, session, wait).await? else {
            return Ok(());
        };
        let sandbox = (&session.tenant, &left.sandbox.name);
        let Some(_sandbox_lock) = memory::try_lock_sandbox(host, sandbox, wait).await? else {
            return Ok(());
        };
        self.end_left_over(on, session, Some(&left.sandbox.name))
            .await
    }

    /// The same for one session, whose lock the caller holds, and that of the sandbox of this name.
    pub(super) async fn end_left_over(
        self,
        on: TrustingHost<'_>,
        session: &SessionRef,
        held: Option<&SandboxName>,
    ) -> Result<(), Error> {
        let host = on.0;
        let Some(left) = memory::started(host, session).await else {
            return Ok(());
        };
        // Looked at after the note was read: whoever begins to wake it now waits for the lock.
        let now = self.read(session).await?;
        let is_here = now.place.host == host.name;
        let is_claimed = now
            .claimed(self.now())
            .is_some_and(|claim| claim.by != host.by);
        if now.state == SessionState::Running && is_here || is_claimed {
            return Ok(());
        }
        self.end_noted(on, &now, (left, held), || false).await?;
        Ok(())
    }

    /// Ends what runs on this host for a session and is not the sandbox that the store knows: whoever started it was killed before it said
    /// so. Whether there was any. The caller holds the lock of the sandbox of this name.
    pub(super) async fn end_unknown(
        self,
        on: TrustingHost<'_>,
        (document, held): (&SessionDocument, Option<&SandboxName>),
        is_over: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let Some(left) = memory::started(on.0, &document.session).await else {
            return Ok(false);
        };
        let known = LiveSandbox::process_of(document).and_then(|known| known.mark);
        let was = document.running_in(Some(left.sandbox.clone()));
        let is_command = left.sandbox.driver.is_lasting();
        let is_known = known.as_deref() == Some(&left.mark)
            || is_command && was.sandbox_identity() == document.sandbox_identity();
        if is_known {
            return Ok(false);
        }
        self.end_noted(on, document, (left, held), is_over).await
    }

    /// Ends what an attempt has begun to start: it was given up, or is not to be. What cannot be ended stays noted, for the next one.
    pub(super) async fn end_begun(
        self,
        on: TrustingHost<'_>,
        document: &SessionDocument,
        mark: &str,
    ) {
        let (host, session) = (on.0, &document.session);
        let held = document.sandbox.as_ref().map(|sandbox| &sandbox.name);
        let left = memory::started(host, session).await;
        let left = left.filter(|left| left.sandbox.driver.is_lasting());
        let ended = match left {
            Some(left) => {
                let left = (left, held);
                self.end_noted(on, document, left, || false).await
            }
            // Nobody else can have joined it, and the store need not be asked.
            None => end_marked(host, session, mark, || false).await,
        };
        if let Err(error) = ended {
            let error = error_chain(&error);
            tracing::warn!(%session, error, "a sandbox that was started in vain could not be ended");
        }
    }

    async fn end_noted(
        self,
        (host, trusts_commands): TrustingHost<'_>,
        now: &SessionDocument,
        (left, held): (StartedNote, Option<&SandboxName>),
        is_over: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let (session, mark) = (&now.session, &left.mark);
        let is_command = left.sandbox.driver.is_lasting();
        let name = left.sandbox.name.clone();
        let _lock = if is_command && held != Some(&name) {
            Some(lock_of(host, (&session.tenant, &name)).await?)
        } else {
            None
        };
        let mut at_home = now.running_in(Some(left.sandbox));
        at_home.place.host = host.name.clone();
        // Others that it was started with may still use it; then it is theirs.
        let has_mark = |other: &SessionDocument| {
            let known = LiveSandbox::process_of(other).and_then(|known| known.mark);
            known.as_deref() == Some(mark)
        };
        let named = self.others_named(host, &at_home, &name).await?;
        if named.iter().any(has_mark) || !self.sharing(&at_home).await?.is_empty() {
            memory::forget_started(host, session, mark).await?;
            return Ok(false);
        }
        let live = LiveSandbox::of(host, &at_home).trusting(trusts_commands);
        if is_command {
            if is_over() {
                let said = "the time was over before everything had ended: nothing more is ended";
                return Err(failure(ErrorKind::Retry, said).into());
            }
            if let Err(error) = live.terminate().await {
                // It may never have been started.
                let error = error_chain(&error);
                tracing::warn!(%session, error, "what commands may have started for it could not be ended");
            }
            return Ok(true);
        }
        let was_running = end_marked(host, session, mark, is_over).await?;
        if was_running {
            let said = "what was started for it on this host, and was left, has been ended";
            self.note_event(EventKind::SessionLost, session, said).await;
        }
        Ok(was_running)
    }
}

/// The lock of a sandbox that is not being started.
async fn lock_of(
    host: &SessionHost,
    sandbox: (&TenantId, &SandboxName),
) -> Result<HostLock, Error> {
    let locked = memory::try_lock_sandbox(host, sandbox, LockWait::not_at_all()).await?;
    locked.ok_or_else(|| {
        let name = sandbox.1;
        let said = format!("another process starts or ends the sandbox `{name}` on this host");
        failure(ErrorKind::Conflict, said).into()
    })
}
