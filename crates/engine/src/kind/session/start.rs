//! Starts what runs a session, or joins what runs for others, and says so in the store.

use super::left_over::TrustingHost;
use super::memory::{self, HostLock, LockWait};
use super::sandbox::LiveSandbox;
use super::wake::WakeSession;
use super::{SessionHost, failed, failure};
use crate::error::{Error, ErrorKind};
use crate::handle::Sessions;
use stasis_model::session::document::{Sandbox, SessionDocument};
use stasis_store::documents::sessions::SessionError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often it is looked at whether somebody gives up.
const LOOK: Duration = Duration::from_millis(100);

/// How long whoever starts a sandbox may hold its lock: the claim is renewed meanwhile.
const LONGEST_START: Duration = Duration::from_mins(2);

/// What runs a session from now on.
pub(super) struct Started {
    sandbox: Option<Sandbox>,
    /// The mark of what was started for it; none of what others had started, or somebody names.
    mark: Option<String>,
    /// Whether others run in it, and it was healthy.
    is_joined: bool,
}

impl Started {
    /// What others have started, or nothing.
    pub(super) fn elsewhere(sandbox: Option<Sandbox>) -> Self {
        Self {
            is_joined: sandbox.is_some(),
            sandbox,
            mark: None,
        }
    }

    /// The sandbox.
    pub(super) fn sandbox(&self) -> Option<&Sandbox> {
        self.sandbox.as_ref()
    }
}

impl WakeSession {
    /// For how long it waits for what another one does on this host.
    pub(super) fn lock_wait(&self) -> LockWait<'_> {
        LockWait {
            longest: self.lease_ttl.max(LONGEST_START),
            cancel: Some(&self.cancel),
        }
    }
}

impl Sessions<'_> {
    /// Holds the lock of the sandbox that a session is to run in: of several that share it and are woken at once, one starts it.
    pub(super) async fn lock_sandbox(
        self,
        host: &SessionHost,
        command: &WakeSession,
        document: &SessionDocument,
    ) -> Result<Option<HostLock>, Error> {
        let name = document.sandbox.as_ref().map(|sandbox| &sandbox.name);
        let Some(name) = name.filter(|_| !command.without_sandbox) else {
            return Ok(None);
        };
        let (sandbox, wait) = ((&document.session.tenant, name), command.lock_wait());
        let locked = memory::try_lock_sandbox(host, sandbox, wait).await?;
        locked.map(Some).ok_or_else(|| {
            let said = format!("another process starts the sandbox `{name}` on this host");
            wait.refusal(said).into()
        })
    }

    /// Joins the sandbox that runs for others under the same name, or starts it. The caller holds its lock.
    pub(super) async fn join_or_start(
        self,
        host: &SessionHost,
        command: &WakeSession,
        document: &SessionDocument,
    ) -> Result<Started, Error> {
        let on: TrustingHost<'_> = (host, command.trust_commands);
        if let Some(running) = self.sandbox_of_others(on, document).await? {
            return Ok(Started::elsewhere(Some(running)));
        }
        let is_command = |one: &Sandbox| one.driver.is_lasting();
        if document.sandbox.as_ref().is_some_and(is_command) {
            self.ensure_one_sandbox(host, document).await?;
        }
        let starts = document.sandbox.as_ref();
        let starts = starts.is_some_and(Sandbox::starts);
        let live = LiveSandbox::of(host, document).trusting(command.trust_commands);
        let mark = self.rng.op_id().to_string();
        let started = tokio::select! {
            started = live.start(&mark) => started,
            () = given_up(&command.cancel) => {
                let said = "it was given up while its sandbox was being started";
                Err(failure(ErrorKind::Cancelled, said).into())
            }
        };
        match started {
            Ok(sandbox) => Ok(Started {
                sandbox,
                mark: starts.then_some(mark),
                is_joined: false,
            }),
            Err(error) => {
                if starts {
                    self.end_begun(on, document, &mark).await;
                }
                Err(error)
            }
        }
    }

    /// Says that a session runs in this from now on; what was started for it in vain is ended.
    pub(super) async fn runs_from_now_on(
        self,
        on: TrustingHost<'_>,
        (document, started): (&SessionDocument, &Started),
        write: impl Future<Output = Result<SessionDocument, SessionError>>,
    ) -> Result<SessionDocument, Error> {
        let will_be = document.running_in(started.sandbox.clone());
        let written = match self.announce(on.0, &will_be).await {
            Ok(()) => write.await.map_err(failed),
            Err(error) => Err(error),
        };
        match (written, &started.mark) {
            (Ok(runs), mark) if may_be_ended(runs.sandbox.as_ref(), mark.as_ref()) => {
                self.ensure_goes_on(on, (&runs, started.is_joined)).await?;
                Ok(runs)
            }
            (Err(error), Some(mark)) => {
                self.end_begun(on, &will_be, mark).await;
                Err(error)
            }
            (written, _) => written,
        }
    }
}

/// Whether somebody else may just be ending it: what others had started, or what commands reach under the same name.
fn may_be_ended(sandbox: Option<&Sandbox>, mark: Option<&String>) -> bool {
    let is_command = |one: &Sandbox| one.driver.is_lasting();
    sandbox.is_some_and(|one| mark.is_none() || is_command(one))
}

/// Waits until somebody gives up.
async fn given_up(cancel: &AtomicBool) {
    while !cancel.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
    }
}
