//! Runs a browser on a private copy of a snapshot, and throws the copy away.
//!
//! load → start → the browser ends → remove
//!
//! *Always true:* no lease is taken and nothing is published, so any number of such runs go on beside each other and
//! beside one that saves. The directory belongs to this run alone. When the run was killed it stays for as long as anybody works in
//! it, and goes with a later command ([`scratch`](crate::kind::profile::scratch)).

use super::{ProfileRan, ProfileRun, RunOutcome, RunStep};
use crate::error::Error;
use crate::handle::Profiles;
use crate::kind::profile::load::ProfileLoaded;
use crate::kind::profile::scratch::DISCARDED;
use crate::warning::Warning;
use std::sync::atomic::Ordering;

impl Profiles<'_> {
    /// Loads, runs, forgets.
    pub(super) async fn run_discarded(self, mut run: ProfileRun) -> Result<ProfileRan, Error> {
        self.recover().await;
        let scratch = self.scratch_profile(DISCARDED).await?;
        run = run.placed(scratch.path().to_owned());
        let (command, names_dir) = run.words()?;
        let loaded = self.load_until_signalled(&mut run).await?;
        let (mut ran, _) = self.run_unleased(&mut run, loaded, &command).await?;
        ran.save_outcome = RunOutcome::Discarded;
        if !names_dir {
            ran.warnings.push(Warning::DirNotInCommand);
        }
        Ok(ran)
    }

    /// Loads; a signal ends that, and nothing goes on working in the directory.
    async fn load_until_signalled(self, run: &mut ProfileRun) -> Result<ProfileLoaded, Error> {
        run.tell(RunStep::Loading);
        let mut loading = std::pin::pin!(self.load(run.load.clone()));
        tokio::select! {
            biased;
            loaded = &mut loading => loaded,
            Some(_) = run.signals.recv() => {
                run.load.cancel.store(true, Ordering::Relaxed);
                let _ = loading.await;
                Err(Error::interrupted(&run.load.lineage))
            }
        }
    }
}
