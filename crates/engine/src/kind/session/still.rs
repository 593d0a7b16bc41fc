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
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Sessions;
use crate::save::RepoSaved;
use stasis_model::id::SessionRef;
use stasis_model::session::document::{SandboxDriver, SessionDocument};
use stasis_quiesce::freeze::{FreezeError, FreezeSettings, Frozen};
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
            let hint = "leave out --freeze, or register it with --pid";
            return Err(failure(ErrorKind::Invalid, said).with_hint(hint).into());
        }
        let saved = self.save_whole(document, how).await?;
        for _ in 0..ATTEMPTS {
            let Some(frozen) = self.freeze(document, longest).await? else {
                return Ok((saved, None));
            };
            let saved = self.save_whole(document, how).await;
            let thawed = bridge::blocking(move || frozen.thaw()).await;
            let thawed = thawed.map_err(|error| not_held(session, &error))?;
            let saved = saved?;
            if thawed.held() {
                return Ok((saved, Some(thawed.frozen_for)));
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
    ) -> Result<Option<Frozen>, Error> {
        let Some(known) = LiveSandbox::process_of(document) else {
            return Ok(None);
        };
        let settings = FreezeSettings {
            max: longest,
            ..FreezeSettings::new(
                self.engine.freezes(),
                HelperCommand::this_program(&["internal", "watchdog"]),
            )
        };
        let session = document.session.clone();
        let frozen = bridge::blocking(move || {
            let all = known.family()?;
            if all.is_empty() {
                return Ok(None);
            }
            let frozen = Frozen::freeze(&all, &settings);
            frozen.map(Some).map_err(|error| not_held(&session, &error))
        });
        frozen.await
    }
}

fn not_held(session: &SessionRef, error: &FreezeError) -> Error {
    let said = format!(
        "the sandbox of `{session}` could not be held still: {}",
        error_chain(error)
    );
    failure(ErrorKind::Failed, said).into()
}
