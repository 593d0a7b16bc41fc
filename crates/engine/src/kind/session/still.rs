//! Saves a session while its sandbox stands still, so that its files are of one moment.
//!
//! 1. save while it runs: most of it is then in the store   2. freeze every process of the sandbox   3. save what changed since   4. thaw
//!
//! *Always true:* what was frozen runs again within the time that was asked for, whatever happens to us ([`stasis_quiesce::freeze`]). What
//! was saved while something ran, because the time was over, is not kept.
//!
//! A sandbox that is put to sleep needs none of this: it is saved once more when it has ended.

use super::capture::SnapshotSession;
use super::failure;
use super::sandbox::LiveSandbox;
use super::sandbox_container::SandboxContainer;
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Sessions;
use crate::save::RepoSaved;
use crate::subjects::SubjectKind;
use stasis_model::id::SessionRef;
use stasis_model::session::document::{SandboxDriver, SessionDocument};
use stasis_quiesce::freeze::{FreezeSettings, Frozen};
use stasis_quiesce::pause::Paused;
use stasis_quiesce::watchdog::HelperCommand;
use std::time::Duration;

/// How often is tried again when a freeze did not hold.
const ATTEMPTS: usize = 3;

impl Sessions<'_> {
    /// Saves a workspace while nothing of its sandbox moves; says for how long that stood still, if there is one.
    pub(super) async fn save_still(
        self,
        document: &SessionDocument,
        how: &SnapshotSession,
        longest: Duration,
    ) -> Result<(RepoSaved, Option<Duration>), Error> {
        let session = &document.session;
        let driver = document.sandbox.as_ref().map(|sandbox| &sandbox.driver);
        if let Some(SandboxDriver::Command) = driver {
            let said = format!(
                "the sandbox of `{session}` is reached by commands, and cannot be held still"
            );
            let hint = "leave out --freeze, or register it with --pid or --container";
            return Err(failure(ErrorKind::Invalid, said).with_hint(hint).into());
        }
        let saved = self.save_whole(document, how).await?;
        for _ in 0..ATTEMPTS {
            let Some(frozen) = self.freeze(document, longest).await? else {
                return Ok((saved, None));
            };
            let saved = self.save_whole(document, how).await;
            let (held, stood_still) = frozen.release(session).await?;
            let counted = &self.engine.counted;
            counted.add_frozen(SubjectKind::Session, stood_still);
            let saved = saved?;
            if held {
                return Ok((saved, Some(stood_still)));
            }
            if saved.published {
                self.discard(session, &saved.snapshot_id).await;
            }
        }
        let said = format!(
            "the sandbox of `{session}` may stand still for {} ms, in which what had changed could not be saved",
            longest.as_millis()
        );
        let hint = "allow more with --max-freeze, or leave out --freeze";
        Err(failure(ErrorKind::Limit, said).with_hint(hint).into())
    }

    /// Freezes everything that runs in its sandbox; nothing where nothing does.
    async fn freeze(
        self,
        document: &SessionDocument,
        longest: Duration,
    ) -> Result<Option<HeldSandbox>, Error> {
        let session = document.session.clone();
        let settings = FreezeSettings {
            max: longest,
            ..FreezeSettings::new(
                self.engine.freezes(),
                HelperCommand::this_program(&["internal", "watchdog"]),
            )
        };
        let driver = document.sandbox.as_ref().map(|sandbox| &sandbox.driver);
        if let Some(container) = driver.and_then(SandboxContainer::of) {
            let paused = bridge::blocking(move || {
                let paused = Paused::hold(&[&container.service()], &settings);
                paused.map_err(|error| not_held(&session, &error))
            });
            return Ok(Some(HeldSandbox::Container(paused.await?)));
        }
        let Some(known) = LiveSandbox::process_of(document) else {
            return Ok(None);
        };
        let frozen = bridge::blocking(move || {
            let all = known.family()?;
            if all.is_empty() {
                return Ok(None);
            }
            let frozen = Frozen::freeze(&all, &settings);
            let frozen = frozen.map_err(|error| not_held(&session, &error))?;
            Ok(Some(HeldSandbox::Processes(frozen)))
        });
        frozen.await
    }
}

/// A sandbox that stands still; dropped, it runs again.
enum HeldSandbox {
    Processes(Frozen),
    Container(Paused),
}

impl HeldSandbox {
    /// Lets it run again; says whether it stood still all the time, and for how long.
    async fn release(self, session: &SessionRef) -> Result<(bool, Duration), Error> {
        match self {
            Self::Processes(frozen) => {
                let thawed = bridge::blocking(move || frozen.thaw()).await;
                let thawed = thawed.map_err(|error| not_held(session, &error))?;
                Ok((thawed.held(), thawed.frozen_for))
            }
            Self::Container(paused) => {
                let resumed = bridge::blocking(move || paused.resume()).await;
                let resumed = resumed.map_err(|error| not_held(session, &error))?;
                Ok((resumed.held(), resumed.paused_for))
            }
        }
    }
}

fn not_held(session: &SessionRef, error: &(dyn std::error::Error + 'static)) -> Error {
    let said = format!(
        "the sandbox of `{session}` could not be held still: {}",
        error_chain(error)
    );
    failure(ErrorKind::Failed, said).into()
}
