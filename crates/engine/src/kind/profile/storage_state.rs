//! Cookies and Local Storage of a profile, out to other tools and in from them.
//!
//! *Out* is read from a snapshot; no browser is started. *In* is a run of the browser itself: load, start it headless, set
//! everything through its debugging port, close it, save. The browser alone knows how its databases are written, so what
//! comes of it is a snapshot like any other, under the same lease and the same rules.
//!
//! *Always true:* no value is in a message, a log or a result other than the state itself. A state that could not be set as
//! a whole is not saved, however the run ends; only single cookies may be missing that the browser does not take, and those
//! are counted.

use super::contents;
use super::logins::{InspectProfile, check_settings};
use super::run::{AfterRun, ProfileRan, ProfileRun, RunOutcome};
use super::verify::HEADLESS;
use crate::bridge;
use crate::error::{Error, ErrorKind, ProfileError};
use crate::handle::Profiles;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::check::{self, PartlyRead};
use stasis_model::digest::ArchiveDigest;
use stasis_model::failure::Failure;
use stasis_model::id::Lineage;
use stasis_model::storage_state::{StateCookie, StorageState};
use stasis_model::time::Timestamp;
use stasis_quiesce::browser::{self, BrowserError};
use stasis_quiesce::group::Signal;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often we ask whether the browser is ready.
const PAUSE: Duration = Duration::from_millis(100);

/// The storage state of a snapshot.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StateExported {
    /// Of what.
    pub subject: Lineage,
    /// Which snapshot.
    pub sha256: ArchiveDigest,
    /// Cookies and Local Storage.
    pub state: StorageState,
    /// What could not be read, and why.
    pub unread: Vec<String>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// A storage state that a profile has now.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StateImported {
    /// How many cookies were set.
    pub cookies: u64,
    /// How many were not, because they had expired.
    pub expired_cookies: u64,
    /// How many the browser did not take for another reason, such as `SameSite=None` without `Secure`.
    pub refused_cookies: u64,
    /// How many of those that were set end with the browser, so that the snapshot does not have them.
    pub session_cookies: u64,
    /// How many origins got Local Storage.
    pub origins: u64,
    /// The run that set them.
    #[serde(flatten)]
    pub ran: ProfileRan,
}

impl Profiles<'_> {
    /// Reads the storage state of a snapshot.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %cmd.subject))]
    pub async fn export_storage_state(self, cmd: &InspectProfile) -> Result<StateExported, Error> {
        let snapshot = self.inspected(cmd).await?;
        let (settings, spawn) = (check_settings(cmd), cmd.spawn.clone());
        let archive = snapshot.archive;
        let read = bridge::blocking(move || -> Result<_, Error> {
            let entries = contents::entries(&archive, &settings)?;
            Ok(check::storage_state(&archive, &entries, &settings, &spawn)?)
        });
        let PartlyRead { found, unread } = read.await?;
        Ok(StateExported {
            subject: snapshot.lineage,
            sha256: snapshot.sha256,
            state: found,
            unread,
            warnings: self.clock_warnings(),
        })
    }

    /// Runs a browser that gets a storage state and is closed again; `run.command` is the browser with its own flags.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %run.load.lineage))]
    pub async fn import_storage_state(
        self,
        mut run: ProfileRun,
        state: StorageState,
    ) -> Result<StateImported, Error> {
        let (signal, signals) = mpsc::unbounded_channel();
        let mut interrupts = std::mem::replace(&mut run.signals, signals);
        run.after = AfterRun::Save;
        run.command.extend(HEADLESS.map(OsString::from));
        let rest = ["--user-data-dir={dir}", "about:blank"];
        run.command.extend(rest.map(OsString::from));
        let (dir, cancel) = (run.load.dir.clone(), run.capture.cancel.clone());
        // However the run ends, nothing is saved before everything was set.
        cancel.store(true, Ordering::Relaxed);
        let (said, mut heard) = mpsc::unbounded_channel();
        let listener = run.loaded.replace(said);
        let mut setting = std::pin::pin!(async {
            // Until then another run's browser may work in the directory.
            let Some(loaded) = heard.recv().await else {
                return std::future::pending().await;
            };
            if let Some(listener) = &listener {
                // Nobody has to listen.
                let _ = listener.send(loaded);
            }
            set_when_ready(&dir, &state).await
        });
        let mut running = Box::pin(self.run(run));
        let (mut outcome, mut is_interrupted) = (None, false);
        let ran = loop {
            tokio::select! {
                ran = &mut running => break ran?,
                set = &mut setting, if outcome.is_none() && !is_interrupted => {
                    cancel.store(set.is_err(), Ordering::Relaxed);
                    // It closes the browser as its user would.
                    let _ = signal.send(Signal::TERM);
                    outcome = Some(set);
                }
                Some(interrupt) = interrupts.recv() => {
                    is_interrupted = true;
                    let _ = signal.send(interrupt);
                }
            }
        };
        match outcome {
            Some(Err(error)) => Err(ProfileError::StateNotSet(error).into()),
            Some(Ok(_)) if is_interrupted && ran.save_outcome == RunOutcome::Skipped => {
                Err(interrupted(&ran.subject))
            }
            Some(Ok(untaken)) => Ok(imported(&state, &untaken, self.lineages.now(), ran)),
            None if is_interrupted => Err(interrupted(&ran.subject)),
            None => Err(ProfileError::BrowserEnded(ran.exit_code).into()),
        }
    }
}

fn interrupted(lineage: &Lineage) -> Error {
    let said = format!("interrupted; nothing was saved of `{lineage}`");
    Failure::of(ErrorKind::Cancelled, said).into()
}

/// What became of a state of which the browser has everything but some cookies.
fn imported(
    state: &StorageState,
    untaken: &[&StateCookie],
    now: Timestamp,
    ran: ProfileRan,
) -> StateImported {
    #[expect(clippy::cast_precision_loss, reason = "seconds of this age fit")]
    let now = now.millis() as f64 / 1000.0;
    let has_expired = |one: &&&StateCookie| !one.is_session() && one.expires <= now;
    let expired = untaken.iter().filter(has_expired).count();
    let of_session = |all: usize, one: &StateCookie| all + usize::from(one.is_session());
    let given = state.cookies.iter().fold(0, of_session);
    let missing = untaken.iter().copied().fold(0, of_session);
    StateImported {
        cookies: state.cookies.len().saturating_sub(untaken.len()) as u64,
        expired_cookies: expired as u64,
        refused_cookies: untaken.len().saturating_sub(expired) as u64,
        session_cookies: given.saturating_sub(missing) as u64,
        origins: state.origins.len() as u64,
        ran,
    }
}

/// Sets everything as soon as the browser can be spoken to, and returns the cookies that it did not take; whether it ever
/// can be spoken to, its run knows.
async fn set_when_ready<'a>(
    dir: &Path,
    state: &'a StorageState,
) -> Result<Vec<&'a StateCookie>, BrowserError> {
    while !browser::is_ready(dir).await {
        tokio::time::sleep(PAUSE).await;
    }
    browser::set_storage(dir, state).await
}
