//! What was started for a session and nobody knows of, because whoever started it was killed, gave up, or was refused: ended, unless others
//! run in it.
//!
//! What is started is noted on the host before it is. A process is found by its mark; whatever commands reach is ended by the command that
//! ends it, which does no harm once more, but would to others: they are asked for first, and whoever starts one holds its lock.

use super::SessionHost;
use super::memory::{self, LockWait, StartedNote};
use super::sandbox::{LiveSandbox, end_marked};
use crate::error::{Error, error_chain};
use crate::handle::Sessions;
use stasis_model::format::event::EventKind;
use stasis_model::id::SessionRef;
use stasis_model::session::document::{SandboxDriver, SessionDocument, SessionState};

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
        self.end_left_over(on, session).await
    }

    /// The same for one session, of which the caller holds both locks.
    pub(super) async fn end_left_over(
        self,
        on: TrustingHost<'_>,
        session: &SessionRef,
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
        self.end_noted(on, &now, left, || false).await?;
        Ok(())
    }

    /// Ends what runs on this host for a session and is not the sandbox that the store knows: whoever started it was killed before it said
    /// so. Whether there was any.
    pub(super) async fn end_unknown(
        self,
        on: TrustingHost<'_>,
        document: &SessionDocument,
        is_over: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let Some(left) = memory::started(on.0, &document.session).await else {
            return Ok(false);
        };
        let known = LiveSandbox::process_of(document).and_then(|known| known.mark);
        let was = document.running_in(Some(left.sandbox.clone()));
        let is_command = left.sandbox.driver == SandboxDriver::Command;
        let is_known = known.as_deref() == Some(&left.mark)
            || is_command && was.sandbox_identity() == document.sandbox_identity();
        if is_known {
            return Ok(false);
        }
        self.end_noted(on, document, left, is_over).await
    }

    /// Ends what an attempt has begun to start, and forgets it: it was given up, or is not to be.
    pub(super) async fn end_begun(
        self,
        on: TrustingHost<'_>,
        document: &SessionDocument,
        mark: &str,
    ) {
        let (host, session) = (on.0, &document.session);
        let left = memory::started(host, session).await;
        let left = left.filter(|left| left.mark == mark);
        let ended = match left {
            Some(left) => self.end_noted(on, document, left, || false).await,
            None => end_marked(host, session, mark, || false).await,
        };
        let forgotten = memory::forget_started(host, session, mark).await;
        if let Err(error) = ended.and(forgotten) {
            let error = error_chain(&error);
            tracing::warn!(%session, error, "a sandbox that was started in vain could not be ended");
        }
    }

    async fn end_noted(
        self,
        (host, trusts_commands): TrustingHost<'_>,
        now: &SessionDocument,
        left: StartedNote,
        is_over: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let (session, mark) = (&now.session, &left.mark);
        let is_command = left.sandbox.driver == SandboxDriver::Command;
        let name = left.sandbox.name.clone();
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
