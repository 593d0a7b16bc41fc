//! Cookies and Local Storage of a profile, out to other tools and in from them.
//!
//! *Out* is read from a snapshot; no browser is started. *In* is a run of the browser itself: load, start it headless, set
//! everything through its debugging port, close it, save. The browser alone knows how its databases are written, so what
//! comes of it is a snapshot like any other, under the same lease and the same rules.
//!
//! *Always true:* no value is in a message, a log or a result other than the state itself. A state that could not be set as
//! a whole is not saved.

use super::contents;
use super::logins::{InspectProfile, check_settings};
use super::run::{AfterRun, ProfileRan, ProfileRun};
use super::verify::HEADLESS;
use crate::bridge;
use crate::error::{Error, ProfileError};
use crate::handle::Profiles;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::check::{self, PartlyRead};
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::Lineage;
use stasis_model::storage_state::{StateCookie, StorageState};
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
    /// How many of them end with the browser, so that the snapshot does not have them.
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
        let mut setting = std::pin::pin!(set_when_ready(&dir, &state));
        let mut running = Box::pin(self.run(run));
        let mut outcome: Option<Result<(), BrowserError>> = None;
        let ran = loop {
            tokio::select! {
                ran = &mut running => break ran?,
                set = &mut setting, if outcome.is_none() => {
                    cancel.store(set.is_err(), Ordering::Relaxed);
                    // It closes the browser as its user would.
                    let _ = signal.send(Signal::TERM);
                    outcome = Some(set);
                }
                Some(interrupt) = interrupts.recv() => drop(signal.send(interrupt)),
            }
        };
        match outcome {
            Some(Ok(())) => Ok(imported(&state, ran)),
            Some(Err(error)) => Err(ProfileError::StateNotSet(error).into()),
            None => Err(ProfileError::BrowserEnded(ran.exit_code).into()),
        }
    }
}

fn imported(state: &StorageState, ran: ProfileRan) -> StateImported {
    let of_session = state
        .cookies
        .iter()
        .filter(|one| StateCookie::is_session(one));
    StateImported {
        cookies: state.cookies.len() as u64,
        session_cookies: of_session.count() as u64,
        origins: state.origins.len() as u64,
        ran,
    }
}

/// Sets everything as soon as the browser can be spoken to; whether it ever can, its run knows.
async fn set_when_ready(dir: &Path, state: &StorageState) -> Result<(), BrowserError> {
    while !browser::is_ready(dir).await {
        tokio::time::sleep(PAUSE).await;
    }
    browser::set_storage(dir, state).await
}
