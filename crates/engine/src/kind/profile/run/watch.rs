//! Watches a browser until it has ended with all its processes.
//!
//! *Always true:* the lease is kept alive whatever else happens, a save in between included. A save in between is waited
//! for before the last one, because that must know which snapshot it derives from. A command that ends while its browser
//! goes on was a launcher: the run lasts as long as the browser.

use super::{Keeper, ProfileRun};
use crate::error::{Error, ErrorKind, LineageError, ProfileError, error_chain};
use crate::hold::LeaseLost;
use crate::kind::profile::capture::{BrowserState, ProfileSaved};
use crate::kind::profile::directory::users;
use crate::kind::profile::save::close;
use crate::open::Engine;
use crate::warning::Warning;
use stasis_model::format::manifest::EndingRecord;
use stasis_quiesce::browser::{self, ProcessRole};
use stasis_quiesce::group::{CommandExit, ProcessGroup};
use stasis_store::documents::leases::Lease;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// How long a browser whose command failed, or was killed, goes on when nobody says otherwise.
const LINGER: Duration = Duration::from_secs(10);
/// How often we look whether anything of a browser is left whose command has ended.
const PAUSE: Duration = Duration::from_millis(100);

/// What was saved while the browser ran.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) saved: u32,
    pub(super) failed: u32,
}

/// How a browser's run ended.
pub(super) struct Ended {
    pub(super) ending: CommandExit,
    pub(super) browser: BrowserState,
    pub(super) lost: Option<LeaseLost>,
}

/// A browser while it runs.
pub(super) struct Running<'a> {
    engine: &'a Engine,
    run: &'a mut ProfileRun,
    /// `None` for a run that began without the store.
    lease: Option<&'a Lease>,
    group: ProcessGroup,
    pub(super) counts: Counts,
    /// When the command ended, and how.
    ended: Option<(Instant, CommandExit)>,
    /// How the browser was closed, if we closed it.
    closed: Option<BrowserState>,
    /// When the browser was last seen after its command had ended.
    seen: Option<Instant>,
    /// Why the browser was closed, if nobody asked for it.
    pub(super) overdue: Option<Warning>,
}

type Saving<'a> = Pin<Box<dyn Future<Output = Result<ProfileSaved, Error>> + Send + 'a>>;

enum Happened {
    Lost(LeaseLost),
    Signalled,
    Ended(CommandExit),
    Overdue,
    Look,
    Saved(Box<Result<ProfileSaved, Error>>),
    Due,
}

impl<'a> Running<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        run: &'a mut ProfileRun,
        lease: Option<&'a Lease>,
        group: ProcessGroup,
    ) -> Self {
        Self {
            engine,
            run,
            lease,
            group,
            counts: Counts::default(),
            ended: None,
            closed: None,
            seen: None,
            overdue: None,
        }
    }

    /// Watches to the end. When that itself fails, nothing goes on running: the lease is about to be given back.
    pub(super) async fn watch(&mut self, keeper: Keeper<'_>) -> Result<Ended, Error> {
        let watched = self.watch_on(keeper).await;
        if watched.is_err() {
            let _ = close(&self.run.load.dir, self.run.close_timeout).await;
            let _ = self.group.stop(self.run.close_timeout).await;
        }
        watched
    }

    async fn watch_on(&mut self, mut keeper: Keeper<'_>) -> Result<Ended, Error> {
        let mut tick = self.run.every.map(interval);
        if let Some(tick) = &mut tick {
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            tick.tick().await;
        }
        let mut saving: Option<Saving<'a>> = None;
        let mut overdue = std::pin::pin!(tokio::time::sleep(self.run.max_time));
        loop {
            let (has_ended, is_saving) = (self.ended.is_some(), saving.is_some());
            let is_closed = self.closed.is_some();
            let happened = tokio::select! {
                biased;
                lost = &mut keeper => Happened::Lost(lost),
                Some(_) = self.run.signals.recv() => Happened::Signalled,
                saved = finish(&mut saving), if is_saving => Happened::Saved(Box::new(saved)),
                ending = self.group.wait(), if !has_ended => Happened::Ended(ending?),
                () = &mut overdue, if !is_closed && self.overdue.is_none() => Happened::Overdue,
                () = tokio::time::sleep(PAUSE), if has_ended => Happened::Look,
                () = due(&mut tick), if !is_saving && !is_closed => Happened::Due,
            };
            match happened {
                Happened::Lost(lost) => return self.lost(lost).await,
                Happened::Signalled => self.signalled().await?,
                Happened::Ended(ending) => self.ended = Some((Instant::now(), ending)),
                Happened::Saved(saved) => {
                    saving = None;
                    self.saved(*saved).await;
                }
                // It is still starting, or has just ended: there is nothing to be saved while it runs.
                Happened::Due if users(&self.run.load.dir).await?.is_empty() => {}
                Happened::Due => saving = self.save_between(),
                Happened::Overdue => {
                    let after_s = self.run.max_time.as_secs();
                    self.overdue = Some(Warning::ClosedAfterMaxTime { after_s });
                    self.signalled().await?;
                }
                Happened::Look => {}
            }
            let Some((since, ending)) = self.ended else {
                continue;
            };
            if saving.is_none()
                && let Some(browser) = self.left(since).await?
            {
                return Ok(Ended {
                    ending,
                    browser,
                    lost: None,
                });
            }
        }
    }

    /// Begins to save while the browser runs; without a lease there is nothing to save to.
    fn save_between(&self) -> Option<Saving<'a>> {
        let (engine, mut capture) = (self.engine, self.run.capture.clone());
        // What is shown is the save at the end.
        capture.progress = Arc::default();
        self.lease.map(|lease| -> Saving<'a> {
            Box::pin(async move {
                let session = engine.profiles().session_under(lease).await?;
                engine.profiles().capture_hot(&capture, &session).await
            })
        })
    }

    /// Stops everything: somebody else may own the profile by now.
    async fn lost(&mut self, lost: LeaseLost) -> Result<Ended, Error> {
        tracing::error!(?lost, "lease lost; stopping the browser");
        self.run.capture.cancel.store(true, Ordering::Relaxed);
        let browser = close(&self.run.load.dir, self.run.close_timeout).await;
        let ending = self.group.stop(self.run.close_timeout).await?;
        Ok(Ended {
            ending,
            browser: browser.unwrap_or_default(),
            lost: Some(lost),
        })
    }

    /// The first signal closes the browser as its user would; another one means that nothing is to be saved.
    async fn signalled(&mut self) -> Result<(), Error> {
        if self.closed.is_some() {
            self.run.capture.cancel.store(true, Ordering::Relaxed);
            return Ok(());
        }
        let closed = close(&self.run.load.dir, self.run.close_timeout).await;
        let ending = self.group.stop(self.run.close_timeout).await?;
        self.closed = Some(closed.unwrap_or_else(|error| {
            // A browser that is still there is met again before anything is published.
            tracing::warn!(error = %error_chain(&error), "the browser was not closed");
            BrowserState::default()
        }));
        self.ended = Some((Instant::now(), ending));
        Ok(())
    }

    /// A save in between that failed is counted, and the run goes on.
    async fn saved(&mut self, saved: Result<ProfileSaved, Error>) {
        match saved {
            Ok(saved) if !saved.outcome.is_published() => self.counts.failed += 1,
            Ok(saved) => {
                self.counts.saved += 1;
                self.run.capture.base = Some(saved.sha256);
                // It came through the migration; from now on the base says what it was carried from.
                self.run.capture.upgraded_from = None;
                tracing::info!(sha256 = %saved.sha256.prefix(), "saved while running");
            }
            Err(error) => {
                // We closed the browser under it ourselves, and save what that left next: nobody misses this one.
                if self.closed.is_none() || !moved_under_it(&error) {
                    self.counts.failed += 1;
                }
                tracing::warn!(error = %error_chain(&error), "not saved while running");
                self.settle(&error).await;
            }
        }
    }

    /// An outcome that was unknown may be known by now: then the next save derives from it.
    async fn settle(&mut self, error: &Error) {
        let Error::Lineage(error) = error else {
            return;
        };
        let LineageError::Unknown(record) = &**error else {
            return;
        };
        let Some(lease) = self.lease else {
            return;
        };
        let pointer = self.engine.lineages.pointer(&lease.lineage).await;
        if let Ok(Some(pointer)) = pointer
            && pointer.value.fence == lease.fence
            && pointer.value.remembers(record.op_id)
        {
            self.run.capture.base = pointer.value.active_archive();
        }
    }

    /// How long the browser may go on without its command.
    fn linger(&self) -> Duration {
        let has_failed = self.ended.is_some_and(|(_, ending)| ending.code() != 0);
        let usual = if has_failed { LINGER } else { Duration::MAX };
        self.run.linger.unwrap_or(usual)
    }

    /// How the browser ended, once nothing of it is left.
    ///
    /// A command that ended may have been a launcher whose browser is only coming: what it started is given a while, and
    /// is stopped after that. Children of a browser outlive it for a moment.
    async fn left(&mut self, since: Instant) -> Result<Option<BrowserState>, Error> {
        let dir = self.run.load.dir.clone();
        let first = users(&dir).await?.first().map(|user| user.role);
        let is_given_up = self.run.capture.cancel.load(Ordering::Relaxed);
        if first == Some(ProcessRole::Browser) {
            self.seen = Some(Instant::now());
            if self.closed.is_none() && since.elapsed() >= self.linger() {
                let after_s = since.elapsed().as_secs();
                self.overdue = Some(Warning::ClosedAfterLinger { after_s });
                self.closed = Some(close(&dir, self.run.close_timeout).await?);
                let _ = self.group.stop(self.run.close_timeout).await?;
            }
            // Somebody said twice that they do not want to wait: nothing is saved then, and the browser is not ours.
            return Ok(self.closed.take_if(|_| is_given_up));
        }
        if first.is_some() || self.group.is_running() {
            let quiet = self.seen.unwrap_or(since).elapsed();
            if self.closed.is_none() && quiet < self.run.close_timeout {
                return Ok(None);
            }
            if first.is_some() {
                self.closed = Some(close(&dir, self.run.close_timeout).await?);
            }
            let _ = self.group.stop(self.run.close_timeout).await?;
        }
        if let Some(closed) = self.closed.take() {
            return Ok(Some(closed));
        }
        let was_killed = self.was_killed();
        Ok(Some(BrowserState {
            // Without such evidence, what the browser wrote down knows better than the exit code of whatever started it.
            clean_exit: was_killed.then_some(false),
            ending: Some(EndingRecord {
                how: if was_killed { "killed" } else { "exited" }.to_owned(),
                waited_ms: crate::kind::profile::millis(since.elapsed()),
            }),
            ..BrowserState::default()
        }))
    }
}

impl Running<'_> {
    /// Whether the browser that ended by itself did not do so as its user would: the directory had no lock when it
    /// started, and it removes its own when it is closed; and a browser that we started says it with its status.
    fn was_killed(&self) -> bool {
        let program = self.run.command.first().map(Path::new);
        let is_browser = program.is_some_and(browser::is_browser_name);
        let ending = self.ended.map(|(_, ending)| ending);
        let was_signalled = ending.is_some_and(|ending| ending.was_signalled());
        browser::has_stale_lock(&self.run.load.dir) || (is_browser && was_signalled)
    }
}

/// Whether a save failed because the browser, or what it writes, did not stand still: no fault of the store's or of ours.
fn moved_under_it(error: &Error) -> bool {
    match error {
        Error::Profile(error) => matches!(
            **error,
            ProfileError::Freeze { .. }
                | ProfileError::FreezeBudget { .. }
                | ProfileError::InUse { .. }
                | ProfileError::Integrity { .. }
        ),
        Error::Clone(_) | Error::Archive(_) | Error::Check(_) => error.kind() == ErrorKind::Retry,
        _ => false,
    }
}

async fn finish(saving: &mut Option<Saving<'_>>) -> Result<ProfileSaved, Error> {
    match saving {
        Some(saving) => saving.await,
        None => std::future::pending().await,
    }
}

async fn due(tick: &mut Option<Interval>) {
    match tick {
        Some(tick) => {
            tick.tick().await;
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{BucketError, BucketErrorKind};

    #[test]
    fn only_what_the_closed_browser_did_is_not_counted_as_a_failed_save() {
        let dir = || "p".into();
        let thawed = ProfileError::FreezeBudget {
            dir: dir(),
            frozen_for: Duration::ZERO,
        };
        let in_use = ProfileError::InUse { dir: dir(), pid: 7 };
        for error in [thawed, in_use] {
            assert!(moved_under_it(&error.into()));
        }

        let unlisted: Error = ProfileError::NotListed("a/b@150".parse().unwrap()).into();
        let outage = BucketError::new(BucketErrorKind::Unreachable, "store", "k");
        for error in [unlisted, outage.into()] {
            assert!(!moved_under_it(&error), "{error}");
        }
    }
}
