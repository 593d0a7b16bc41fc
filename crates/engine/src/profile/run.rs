//! Runs a browser on its profile, from the load to the save.
//!
//! lease → load → start → renew every so often → the browser ends → capture → flip → release
//!
//! *Always true:* one lease covers everything, and the snapshot that was active when it began is both what is loaded and
//! what the new one must supersede. A browser is closed the way that keeps its cookies, also when somebody interrupts
//! us. When the lease is lost the browser is stopped and nothing is saved: another run may own the profile by then.
//! A run that began fresh although there was a snapshot cannot supersede it.

use super::capture::{BrowserState, Capture, ProfileSaved, SaveOutcome};
use super::error::ProfileError;
use super::load::{LoadOutcome, ProfileLoad, ProfileLoaded};
use super::save::{close, users};
use crate::error::{Error, ErrorKind, whole};
use crate::hold::LeaseLost;
use crate::lease::Acquire;
use crate::open::Engine;
use crate::warning::Warning;
use serde::Serialize;
use stasis_model::id::Lineage;
use stasis_model::manifest::EndingRecord;
use stasis_quiesce::group::{Ending, Group, Signal};
use stasis_store::leases::Lease;
use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;

/// What stands for the directory in a command.
const DIR: &[u8] = b"{dir}";

/// A browser to run on a profile.
#[derive(Debug)]
pub struct ProfileRun {
    /// What is loaded, and where to.
    pub load: ProfileLoad,
    /// What is said of the snapshot in the end.
    pub capture: Capture,
    /// The command, program first; `{dir}` stands for the directory.
    pub command: Vec<OsString>,
    /// How long closing the browser may take in all.
    pub patience: Duration,
    /// How often a snapshot of the running browser is taken; never when not given.
    pub every: Option<Duration>,
    /// Signals: the first closes the browser, the second stops waiting for it.
    pub signals: mpsc::UnboundedReceiver<Signal>,
}

/// A browser that ran.
#[derive(Clone, Debug, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of the report that scripts look at"
)]
pub struct ProfileRan {
    /// Of what.
    pub subject: Lineage,
    /// The browser's exit code as a shell gives it.
    pub exit_code: i32,
    /// What it began with.
    pub load: ProfileLoaded,
    /// What was saved of it.
    pub save: Option<ProfileSaved>,
    /// One word: `captured`, `deduplicated`, `diverged`, `too_large`, `upload_failed`, `pointer_race`, `lock_lost`,
    /// `skipped`, `unknown`, `failed`.
    pub save_outcome: &'static str,
    /// Why nothing was saved.
    pub save_error: Option<String>,
    /// Whether a snapshot was wanted and there is none: the one before stays.
    pub snapshot_failed: bool,
    /// Whether the lease was lost.
    pub lock_lost: bool,
    /// Whether the snapshot is stored, but another one stays the active one.
    pub diverged: bool,
    /// How many snapshots were taken while it ran.
    pub saved_between: u32,
    /// How many were wanted and failed.
    pub failed_between: u32,
    /// Whether the lease was given back.
    pub released: bool,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
    /// What kind of failure the save was.
    #[serde(skip)]
    pub failure: Option<ErrorKind>,
}

/// Waits for a lease to be lost, through all that happens.
type Keeper<'a> = Pin<&'a mut (dyn Future<Output = LeaseLost> + Send + 'a)>;

/// A browser while it runs.
struct Running<'a> {
    group: Group,
    lease: &'a Lease,
    saved_between: u32,
    failed_between: u32,
}

impl Running<'_> {
    /// The report of a run of which nothing is saved yet.
    fn ran(&self, load: ProfileLoaded, ending: Ending) -> ProfileRan {
        ProfileRan {
            subject: self.lease.lineage.clone(),
            exit_code: ending.code(),
            load,
            save: None,
            save_outcome: "skipped",
            save_error: None,
            snapshot_failed: false,
            lock_lost: false,
            diverged: false,
            saved_between: self.saved_between,
            failed_between: self.failed_between,
            released: false,
            warnings: Vec::new(),
            failure: None,
        }
    }
}

/// How a browser's run ended.
struct Ended {
    ending: Ending,
    browser: BrowserState,
    lost: Option<LeaseLost>,
}

impl Engine {
    /// Loads, runs, saves.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %run.load.lineage, dir = %run.load.dir.display()))]
    pub async fn profile_run(&self, mut run: ProfileRun) -> Result<ProfileRan, Error> {
        let lineage = run.load.lineage.clone();
        let dir = run.load.dir.clone();
        self.thaw_what_was_left().await;
        if run.every.is_some() && !self.policy(&lineage.tenant).await?.allow_hot {
            return Err(ProfileError::HotNotAllowed(lineage).into());
        }
        if let Some(user) = in_use(&dir).await? {
            let pid = user;
            return Err(ProfileError::InUse { dir, pid }.into());
        }
        let (command, names_dir) = with_dir(&run.command, &dir)?;
        let acquired = tokio::select! {
            acquired = self.acquire(Acquire {
                lineage: lineage.clone(),
                holder: run.capture.holder.clone(),
                ttl: None,
            }) => acquired?,
            Some(_) = run.signals.recv() => return Err(Error::Interrupted(lineage)),
        };
        let lease = acquired.lease;
        let mut warnings = acquired.warnings;
        if !names_dir {
            warnings.push(Warning::DirNotInCommand);
        }
        let renew_every = self.policy(&lineage.tenant).await?.renew_every();
        let renew_every = renew_every.min(lease.ttl / 3);
        let mut keeper = std::pin::pin!(self.keep_alive(&lease, renew_every));
        let ran = self
            .run_leased(&mut run, &lease, &command, keeper.as_mut())
            .await;
        let released = match &ran {
            Ok(ran) if ran.lock_lost => false,
            _ => self.release(&lineage, lease.fence).await.is_ok(),
        };
        let mut ran = ran?;
        ran.released = released;
        ran.warnings.extend(warnings);
        if !released && !ran.lock_lost {
            ran.warnings.push(Warning::LeaseNotReleased);
        }
        Ok(ran)
    }

    async fn run_leased(
        &self,
        run: &mut ProfileRun,
        lease: &Lease,
        command: &[OsString],
        mut keeper: Keeper<'_>,
    ) -> Result<ProfileRan, Error> {
        let lineage = &lease.lineage;
        let loading = self.profile_load_leased(&run.load, lease.base.clone());
        let loaded = tokio::select! {
            biased;
            loaded = loading => loaded?,
            lost = &mut keeper => {
                run.load.cancel.store(true, Ordering::Relaxed);
                return Err(lost_error(lineage, &lost));
            }
            Some(_) = run.signals.recv() => {
                run.load.cancel.store(true, Ordering::Relaxed);
                return Err(Error::Interrupted(lineage.clone()));
            }
        };
        run.capture.base = loaded.sha256;
        let variables = [
            ("STASIS_PROFILE", lineage.to_string()),
            ("STASIS_PROFILE_DIR", run.load.dir.display().to_string()),
            ("STASIS_PROFILE_LOAD", loaded.outcome.word().to_owned()),
        ];
        let mut running = Running {
            group: Group::start(command, &variables)?,
            lease,
            saved_between: 0,
            failed_between: 0,
        };
        let ended = self
            .watch_browser(run, &mut running, keeper.as_mut())
            .await?;
        let ran = running.ran(loaded, ended.ending);
        if let Some(lost) = &ended.lost {
            let detail = lost.detail().to_owned();
            self.record_lost(lineage, lease.fence, &detail).await;
            return Ok(without_save(ran, "lock_lost", &lost_error(lineage, lost)));
        }
        run.capture.browser = ended.browser;
        let saving = self.capture(&run.capture, lease);
        let saved = tokio::select! {
            biased;
            saved = saving => saved,
            lost = &mut keeper => {
                run.capture.cancel.store(true, Ordering::Relaxed);
                Err(lost_error(lineage, &lost))
            }
        };
        Ok(self.told(ran, saved, &run.load.dir).await)
    }

    /// Adds to a report what became of the save.
    async fn told(
        &self,
        mut ran: ProfileRan,
        saved: Result<ProfileSaved, Error>,
        dir: &Path,
    ) -> ProfileRan {
        match saved {
            Ok(saved) => {
                let noted = self.note_save(dir, &saved).await;
                if let Err(error) = noted {
                    tracing::warn!(%error, "the record beside the directory was not written");
                }
                ran.diverged = saved.outcome == SaveOutcome::Diverged;
                ran.save_outcome = saved.outcome.word();
                ran.save = Some(saved);
                ran
            }
            Err(error) => without_save(ran, outcome_of(&error), &error),
        }
    }

    /// Until the browser has ended, with all its processes.
    async fn watch_browser(
        &self,
        run: &mut ProfileRun,
        running: &mut Running<'_>,
        mut keeper: Keeper<'_>,
    ) -> Result<Ended, Error> {
        let dir = run.load.dir.clone();
        let mut tick = run.every.map(tokio::time::interval);
        if let Some(tick) = &mut tick {
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            tick.tick().await;
        }
        loop {
            let next = async {
                match &mut tick {
                    Some(tick) => {
                        tick.tick().await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                lost = &mut keeper => {
                    tracing::error!(?lost, "lease lost; stopping the browser");
                    let browser = close(&dir, run.patience).await;
                    let ending = running.group.stop(run.patience).await?;
                    let browser = browser.unwrap_or_default();
                    return Ok(Ended { ending, browser, lost: Some(lost) });
                }
                ending = running.group.wait() => {
                    let ending = ending?;
                    return Ok(Ended { ending, browser: left(&dir, ending, run.patience).await?, lost: None });
                }
                Some(_) = run.signals.recv() => {
                    return interrupted(run, running, &dir).await;
                }
                () = next => self.save_between(run, running).await,
            }
        }
    }

    /// Saves while the browser runs; that it failed is counted, and the run goes on.
    async fn save_between(&self, run: &mut ProfileRun, running: &mut Running<'_>) {
        match self.capture_hot(&run.capture, running.lease).await {
            Ok(saved) if saved.outcome == SaveOutcome::Diverged => running.failed_between += 1,
            Ok(saved) => {
                running.saved_between += 1;
                run.capture.base = Some(saved.sha256);
                tracing::info!(sha256 = %saved.sha256.prefix(), "saved while running");
            }
            Err(error) => {
                running.failed_between += 1;
                tracing::warn!(error = %whole(&error), "not saved while running");
            }
        }
    }
}

/// Closes the browser as its user would; a second signal ends the patience.
async fn interrupted(
    run: &mut ProfileRun,
    running: &mut Running<'_>,
    dir: &Path,
) -> Result<Ended, Error> {
    let browser = tokio::select! {
        browser = close(dir, run.patience) => browser?,
        Some(_) = run.signals.recv() => BrowserState::default(),
    };
    let ending = running.group.stop(run.patience).await?;
    let lost = None;
    Ok(Ended {
        ending,
        browser,
        lost,
    })
}

/// A browser that ended by itself may leave children for a moment.
async fn left(dir: &Path, ending: Ending, patience: Duration) -> Result<BrowserState, Error> {
    let rest = close(dir, patience).await?;
    let was_alone = rest
        .ending
        .as_ref()
        .is_some_and(|ending| ending.how == "not_running");
    if !was_alone {
        // A launcher ended, and the browser went on: it was closed just now.
        return Ok(rest);
    }
    Ok(BrowserState {
        clean_exit: Some(ending.code() == 0),
        ending: Some(EndingRecord {
            how: "exited".to_owned(),
            waited_ms: 0,
        }),
        ..BrowserState::default()
    })
}

async fn in_use(dir: &Path) -> Result<Option<u32>, Error> {
    if !dir.exists() {
        return Ok(None);
    }
    Ok(users(dir).await?.first().map(|user| user.process.pid()))
}

fn lost_error(lineage: &Lineage, lost: &LeaseLost) -> Error {
    ProfileError::LeaseLost {
        lineage: lineage.clone(),
        detail: lost.detail().to_owned(),
    }
    .into()
}

fn without_save(ran: ProfileRan, outcome: &'static str, error: &Error) -> ProfileRan {
    let kind = error.kind();
    ProfileRan {
        save_outcome: outcome,
        save_error: Some(whole(error)),
        snapshot_failed: true,
        lock_lost: kind == ErrorKind::Fenced,
        failure: Some(kind),
        ..ran
    }
}

/// The word for a save that failed.
pub fn outcome_of(error: &Error) -> &'static str {
    if let Error::Profile(error) = error
        && matches!(**error, ProfileError::TooLarge { .. })
    {
        return "too_large";
    }
    match error.kind() {
        ErrorKind::Fenced => "lock_lost",
        ErrorKind::Diverged => "diverged",
        ErrorKind::Unknown => "unknown",
        ErrorKind::Retry => "pointer_race",
        ErrorKind::Unreachable | ErrorKind::Denied => "upload_failed",
        ErrorKind::Cancelled => "skipped",
        _ => "failed",
    }
}

/// Whether a run that began like this could not have been meant to supersede anything.
impl ProfileRan {
    /// Whether it began fresh although there was a snapshot.
    pub fn began_fresh(&self) -> bool {
        self.load.outcome == LoadOutcome::FreshFallback
    }
}

/// The command with the directory in its place; and whether it has a place for it.
fn with_dir(command: &[OsString], dir: &Path) -> Result<(Vec<OsString>, bool), Error> {
    if command.is_empty() {
        return Err(ProfileError::NoCommand.into());
    }
    let mut has_place = false;
    let words = command.iter().map(|word| {
        let replaced = replace(word, dir.as_os_str());
        has_place |= replaced.is_some();
        replaced.unwrap_or_else(|| word.clone())
    });
    Ok((words.collect(), has_place))
}

fn replace(word: &OsStr, dir: &OsStr) -> Option<OsString> {
    let bytes = word.as_bytes();
    let at = bytes.windows(DIR.len()).position(|part| part == DIR)?;
    let mut whole = bytes[..at].to_vec();
    whole.extend_from_slice(dir.as_bytes());
    whole.extend_from_slice(&bytes[at + DIR.len()..]);
    Some(OsString::from_vec(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_takes_its_place_in_the_command() {
        let command = ["chromium", "--user-data-dir={dir}", "about:blank"].map(OsString::from);
        let (words, has_place) = with_dir(&command, Path::new("/p/a b")).unwrap();
        assert!(has_place);
        assert_eq!(words[1], "--user-data-dir=/p/a b");
        let (_, has_place) = with_dir(&command[..1], Path::new("/p")).unwrap();
        assert!(!has_place);
        assert!(with_dir(&[], Path::new("/p")).is_err());
    }
}
