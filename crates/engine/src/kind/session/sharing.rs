//! Which sessions share a sandbox: nobody ends one for a session that another one runs in.
//!
//! What a sandbox *is* decides, whatever it is called and whoever asks (`SessionDocument::sandbox_identity`). The store knows who runs in
//! it: a session says that it is about to before its document does, and looks afterwards whether somebody has begun to end it; whoever ends
//! it claims every session that it knows and looks afterwards whether there are others. One of two that come at once sees the other.
//!
//! By its *name* a sandbox is found that a session may join; of that this host remembers a hint.

use super::left_over::TrustingHost;
use super::memory;
use super::sandbox::{LiveSandbox, SandboxHealth};
use super::{SessionHost, failure};
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Sessions;
use stasis_model::digest::StoreDigest;
use stasis_model::id::SandboxName;
use stasis_model::session::document::{Sandbox, SessionDocument, SessionState};
use stasis_store::documents::sessions;

fn key_of(document: &SessionDocument) -> Option<StoreDigest> {
    let sandbox = document.sandbox.as_ref()?;
    // What was not started has nobody in it.
    if sandbox.is_not_started() {
        return None;
    }
    let identity = document.sandbox_identity()?;
    Some(StoreDigest::of(identity.as_bytes()))
}

impl Sessions<'_> {
    /// Says that a session is about to be this on this host, before its document does: whoever is killed in between leaves nothing that
    /// nobody knows.
    pub(super) async fn announce(
        self,
        host: &SessionHost,
        will_be: &SessionDocument,
    ) -> Result<(), Error> {
        memory::remember_session(host, will_be).await?;
        if let Some(sandbox) = key_of(will_be) {
            sessions::enter_sandbox(&*self.bucket, sandbox, &will_be.session).await?;
        }
        Ok(())
    }

    /// A session does not run any more in the process that it had. Whatever commands reach may run it again at any time: of that its
    /// document alone says whether it does.
    pub(super) async fn leave_process(self, was: &SessionDocument) {
        let sandbox = was.sandbox.as_ref();
        if sandbox.is_some_and(|sandbox| !sandbox.driver.is_lasting()) {
            self.leave_sandbox(was).await;
        }
    }

    /// A session is no more: it does not run in the sandbox that it had.
    pub(super) async fn leave_sandbox(self, was: &SessionDocument) {
        let Some(sandbox) = key_of(was) else {
            return;
        };
        let session = &was.session;
        let left = sessions::leave_sandbox(&*self.bucket, sandbox, session).await;
        if let Err(error) = left {
            let error = error_chain(&error);
            tracing::info!(%session, error, "it is still said to be in a sandbox that has ended");
        }
        // Somebody may have begun to run it there again meanwhile.
        let now = sessions::session(&*self.bucket, session).await;
        let runs = now.ok().flatten().map(|now| now.value);
        let runs = runs.filter(|now| now.is_alive() && now.state.has_sandbox());
        if runs.is_some_and(|now| key_of(&now) == Some(sandbox))
            && let Err(error) = sessions::enter_sandbox(&*self.bucket, sandbox, session).await
        {
            let error = error_chain(&error);
            tracing::warn!(%session, error, "that it runs in a sandbox again was not written down");
        }
    }

    /// The other sessions that run in the same sandbox, as the store says.
    pub(super) async fn sharing(
        self,
        document: &SessionDocument,
    ) -> Result<Vec<SessionDocument>, Error> {
        let Some(sandbox) = key_of(document) else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for member in sessions::in_sandbox(&*self.bucket, sandbox).await? {
            if member == document.session {
                continue;
            }
            let found = sessions::session(&*self.bucket, &member).await?;
            let found = found.map(|found| found.value);
            all.extend(found.filter(|found| found.is_run_beside(document)));
        }
        Ok(all)
    }

    /// The other sessions whose sandbox is called as that of this one, as far as this host knows.
    pub(super) async fn others_in(
        self,
        host: &SessionHost,
        document: &SessionDocument,
    ) -> Result<Vec<SessionDocument>, Error> {
        let Some(sandbox) = &document.sandbox else {
            return Ok(Vec::new());
        };
        self.others_named(host, document, &sandbox.name).await
    }

    /// The other sessions whose sandbox is called so.
    pub(super) async fn others_named(
        self,
        host: &SessionHost,
        document: &SessionDocument,
        sandbox: &SandboxName,
    ) -> Result<Vec<SessionDocument>, Error> {
        let members = memory::members(host, document, sandbox).await;
        let mut all = Vec::new();
        for member in members {
            let found = sessions::session(&*self.bucket, &member).await?;
            let found = found.map(|found| found.value);
            let is_used = |found: &SessionDocument| {
                let has_sandbox = found.state.has_sandbox();
                found.is_alive() && (has_sandbox || found.claimed(self.now()).is_some())
            };
            if !found.as_ref().is_some_and(is_used) {
                memory::forget_member(host, document, (sandbox, &member)).await;
            }
            all.extend(found);
        }
        let is_in = |other: &SessionDocument| {
            let name = other.sandbox.as_ref().map(|one| &one.name);
            let is_here = other.place.host == document.place.host;
            other.session != document.session
                && other.is_alive()
                && other.state.has_sandbox()
                && is_here
                && name == Some(sandbox)
        };
        Ok(all.into_iter().filter(is_in).collect())
    }

    /// Refuses a process that is the sandbox of others under another name, and a name under which others run in something else.
    pub(super) async fn ensure_one_sandbox(
        self,
        host: &SessionHost,
        will_be: &SessionDocument,
    ) -> Result<(), Error> {
        let sandbox = will_be.sandbox.as_ref();
        let Some(sandbox) = sandbox.filter(|sandbox| !sandbox.is_not_started()) else {
            return Ok(());
        };
        for other in self.sharing(will_be).await? {
            let theirs = other.sandbox.as_ref().map(|theirs| &theirs.name);
            let Some(theirs) = theirs.filter(|theirs| **theirs != sandbox.name) else {
                continue;
            };
            let said = format!("this is the sandbox `{theirs}` of `{}`", other.session);
            let hint = format!("sessions share one if they say so: --sandbox {theirs}");
            return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
        }
        for other in self.others_in(host, will_be).await? {
            let is_this = other.sandbox_identity() == will_be.sandbox_identity();
            if is_this || LiveSandbox::of(host, &other).health().await? == SandboxHealth::Gone {
                continue;
            }
            let said = format!(
                "the sandbox `{}` is something else for `{}`",
                sandbox.name, other.session
            );
            let hint = format!(
                "`stasis session show {}` says what; say the same, or give this one another name with --sandbox",
                other.session
            );
            return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
        }
        Ok(())
    }

    /// Makes sure that the sandbox in which a session has just begun to run goes on: whoever ended it meanwhile did not know of this one.
    pub(super) async fn ensure_goes_on(
        self,
        (host, trusts_commands): TrustingHost<'_>,
        (document, was_healthy): (&SessionDocument, bool),
    ) -> Result<(), Error> {
        let session = &document.session;
        let now = self.now();
        let others = self.sharing(document).await?;
        let ends = others.iter().find(|other| other.claimed(now).is_some());
        let said = if let Some(other) = ends {
            let other = &other.session;
            format!("the sandbox of `{session}` is just being ended with `{other}`")
        } else {
            let live = LiveSandbox::of(host, document).trusting(trusts_commands);
            match live.health().await? {
                SandboxHealth::Gone => {}
                SandboxHealth::Unreachable { .. } if was_healthy => {}
                _ => return Ok(()),
            }
            format!("the sandbox of `{session}` has ended in the meantime: nothing runs it")
        };
        let starts = document.sandbox.as_ref();
        let starts = starts.is_some_and(|sandbox| {
            sandbox.commands.start.is_some() && !sandbox.driver.is_lasting()
        });
        let hint = if starts {
            format!("once it has ended, `stasis session wake {session}` starts it again")
        } else {
            format!("`stasis session sleep {session}` saves it; then wake it with what runs it")
        };
        Err(failure(ErrorKind::Conflict, said).with_hint(hint).into())
    }

    /// The sandbox that a session shares with others, if it runs for them here: it is not started once more.
    pub(super) async fn sandbox_of_others(
        self,
        (host, trusts_commands): TrustingHost<'_>,
        document: &SessionDocument,
    ) -> Result<Option<Sandbox>, Error> {
        let Some(shared) = &document.sandbox else {
            return Ok(None);
        };
        let now = self.now();
        for other in self.others_in(host, document).await? {
            let is_command = shared.driver.is_lasting();
            let is_this = other.sandbox_identity() == document.sandbox_identity();
            let is_used = other.state == SessionState::Running && other.claimed(now).is_none();
            let is_used = is_used && (is_this || !is_command);
            let Some(sandbox) = other.sandbox.as_ref().filter(|_| is_used) else {
                continue;
            };
            let live = LiveSandbox::of(host, &other).trusting(trusts_commands);
            if live.health().await? == SandboxHealth::Healthy {
                return Ok(Some(Sandbox {
                    driver: sandbox.driver.clone(),
                    ..shared.clone()
                }));
            }
        }
        Ok(None)
    }
}
