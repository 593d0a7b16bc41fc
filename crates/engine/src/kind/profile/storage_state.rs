//! Cookies and Local Storage of a profile, out to other tools and in from them.
//!
//! *Out* is read from a snapshot; no browser is started. *In* is a run of the browser itself: load, start it headless, set
//! everything through its debugging pipe, close it, save. The browser alone knows how its databases are written, so what
//! comes of it is a snapshot like any other, under the same lease and the same rules.
//!
//! *Always true:* no value is in a message, a log or a result other than the state itself. A state that could not be set as
//! a whole is not saved, however the run ends; only single cookies may be missing that the browser does not take, and those
//! are counted, as are origins that the format has no place for. The browser works in a private directory, so whatever
//! becomes of an import, the profile's own directory is what it was, and nothing in it is taken for unsaved work. The pipe
//! is nobody else's: no other user of the host can speak to the browser meanwhile.

use super::contents;
use super::logins::{InspectProfile, check_settings};
use super::run::{AfterRun, ProfileRan, ProfileRun, RunOutcome};
use super::scratch::IMPORTED;
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
use stasis_model::storage_state::{StateCookie, StateOrigin, StorageState};
use stasis_model::time::Timestamp;
use stasis_quiesce::browser::{BrowserError, PipedBrowser};
use stasis_quiesce::group::Signal;
use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long a browser that hung up may take to end, before we stop waiting to hear how.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Why an origin is not in a storage state.
const NO_SITE: &str = "a storage state has a place for origins of http and https alone";

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
    /// Origins that have Local Storage and are not in the state.
    pub passed_over: Vec<PassedOver>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// An origin whose Local Storage was left out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PassedOver {
    /// Such as `file://`.
    pub origin: String,
    /// How many entries it has.
    pub entries: u64,
    /// Why.
    pub reason: String,
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
    /// Origins of the file that did not get theirs.
    pub passed_over: Vec<PassedOver>,
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
        let PartlyRead { mut found, unread } = read.await?;
        let passed_over = keep_sites(&mut found);
        Ok(StateExported {
            subject: snapshot.lineage,
            sha256: snapshot.sha256,
            state: found,
            passed_over,
            unread,
            warnings: self.clock_warnings(),
        })
    }

    /// Runs a browser that gets a storage state and is closed again; `run.command` is the browser with its own flags. Where it
    /// runs is chosen here.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %run.load.lineage))]
    pub async fn import_storage_state(
        self,
        mut run: ProfileRun,
        mut state: StorageState,
    ) -> Result<StateImported, Error> {
        let passed_over = keep_sites(&mut state);
        let scratch = self.scratch_profile(IMPORTED).await?;
        run = run.placed(scratch.path().to_owned());
        let (signal, signals) = mpsc::unbounded_channel();
        let mut interrupts = std::mem::replace(&mut run.signals, signals);
        run.after = AfterRun::Save;
        run.command.extend(HEADLESS.map(OsString::from));
        let rest = ["--user-data-dir={dir}", "about:blank"];
        run.command.extend(rest.map(OsString::from));
        // However the run ends, nothing is saved before everything was set.
        let cancel = run.capture.cancel.clone();
        cancel.store(true, Ordering::Relaxed);
        let (sender, started) = oneshot::channel();
        run.pipe = Some(sender);
        let mut setting = std::pin::pin!(set_when_started(started, &state));
        let mut running = Box::pin(self.run(run));
        let (mut outcome, mut is_interrupted) = (None, false);
        let ran = loop {
            tokio::select! {
                ran = &mut running => break ran?,
                set = &mut setting, if outcome.is_none() && !is_interrupted => {
                    cancel.store(set.1.is_err(), Ordering::Relaxed);
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
        match outcome.map(|(_, set)| set) {
            Some(Err(error)) => Err(ProfileError::StateNotSet(error).into()),
            Some(Ok(_)) if is_interrupted && ran.save_outcome == RunOutcome::Skipped => {
                Err(interrupted(&ran.subject))
            }
            Some(Ok(untaken)) => {
                let mut imported = imported(&state, &untaken, self.lineages.now(), ran);
                imported.passed_over = passed_over;
                Ok(imported)
            }
            None if is_interrupted => Err(interrupted(&ran.subject)),
            None => Err(ProfileError::BrowserEnded(ran.exit_code).into()),
        }
    }
}

/// Takes the origins out of a state that it has no place for.
fn keep_sites(state: &mut StorageState) -> Vec<PassedOver> {
    let all = std::mem::take(&mut state.origins);
    let (sites, others) = all.into_iter().partition(StateOrigin::is_site);
    state.origins = sites;
    let others: Vec<StateOrigin> = others;
    let passed_over = others.into_iter().map(|other| PassedOver {
        origin: other.origin,
        entries: other.local_storage.len() as u64,
        reason: NO_SITE.to_owned(),
    });
    passed_over.collect()
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
        passed_over: Vec::new(),
        ran,
    }
}

/// Sets everything as soon as the browser is started and can be spoken to, and returns the cookies that it did not take. The
/// conversation comes along: a browser closes itself when it ends.
async fn set_when_started(
    started: oneshot::Receiver<PipedBrowser>,
    state: &StorageState,
) -> (PipedBrowser, Result<Vec<&StateCookie>, BrowserError>) {
    let Ok(mut browser) = started.await else {
        // It was not started; why, its run knows.
        return std::future::pending().await;
    };
    let set = match browser.ready().await {
        Ok(()) => browser.set_storage(state).await,
        Err(error) => {
            // One that ended says more with its exit code, which its run knows.
            tokio::time::sleep(LAST_WORDS).await;
            Err(error)
        }
    };
    (browser, set)
}
