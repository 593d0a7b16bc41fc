//! Runs a browser while the store cannot be reached.
//!
//! fresh → start → the browser ends → lease → capture → publish → release
//!
//! *Always true:* nobody owns the profile meanwhile, and nobody knows whether it has a snapshot. So what comes of it is
//! published only if the lineage turns out to have none, and no other Chrome has one either; else it is stored, and
//! diverged. A store that is still away in the end leaves the directory as it is, unsaved.

use super::{ProfileRan, ProfileRun, RunStep, outcome_of, without_save};
use crate::error::Error;
use crate::handle::Profiles;
use crate::kind::profile::directory::nobody_uses;
use crate::kind::profile::load::judge::LoadFailure;
use std::ffi::OsString;

impl Profiles<'_> {
    /// Loads nothing, runs, and saves if the store is back.
    pub(super) async fn run_unowned(
        self,
        mut run: ProfileRun,
        command: &[OsString],
        why: Error,
    ) -> Result<ProfileRan, Error> {
        nobody_uses(&run.load.dir).await?;
        let loaded = self
            .fresh(&run.load, Some(LoadFailure::unreachable(why)))
            .await?;
        let (mut ran, browser) = self.run_unleased(&mut run, loaded, command).await?;
        run.capture.browser = browser;
        run.tell(RunStep::Saving);
        let acquired = match self.leases().acquire(run.acquire(None)).await {
            Ok(acquired) => acquired,
            Err(error) => return Ok(without_save(ran, outcome_of(&error), &error)),
        };
        ran.warnings.extend(acquired.warnings);
        let lease = acquired.lease;
        // Where there turns out to be a snapshot, the pointer's own rule refuses what has no base.
        let is_first = lease.base.is_none() && self.has_no_other_major(&lease.lineage).await;
        run.capture.held_back = !is_first;
        let renew_every = lease.ttl / 3;
        let keeper = std::pin::pin!(self.leases().keep_alive(&lease, renew_every));
        let saved = self.capture_kept(&run.capture, &lease, keeper).await;
        ran.released = self.leases().release_lease(&lease).await.is_ok();
        Ok(self.with_save(ran, saved, &run.load.dir).await)
    }
}
