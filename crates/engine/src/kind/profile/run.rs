//! Runs a browser on its profile, from the load to the save.
//!
//! lease → load → start → renew every so often → the browser ends → capture → publish → release
//!
//! *Always true:* one lease covers everything, and the snapshot that was active when it began is both what is loaded and
//! what the new one must supersede. A browser is closed the way that keeps its cookies, also when somebody interrupts
//! us. When the lease is lost the browser is stopped and nothing is saved: another run may own the profile by then.
//! A run that began fresh although there was a snapshot cannot supersede it.

mod discarded;
mod shim;
mod unowned;
mod watch;

use super::capture::{BrowserState, Capture, ProfileSaved, SaveOutcome};
use super::directory::{DIR_VARIABLE, nobody_uses};
use super::load::{OnFailure, ProfileLoad, ProfileLoaded};
use super::save::lost_or;
use crate::address::as_typed;
use crate::error::{Error, ErrorKind, ProfileError, error_chain};
use crate::handle::Profiles;
use crate::hold::LeaseLost;
use crate::lease::{Acquire, LeaseWait};
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::id::Lineage;
use stasis_quiesce::browser::{PipedBrowser, StopSettings};
use stasis_quiesce::group::{CommandExit, ProcessGroup, Signal};
use stasis_store::documents::leases::Lease;
use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use watch::Running;

pub use shim::BrowserShim;

/// What stands for the directory in a command.
const DIR: &[u8] = b"{dir}";
/// How long a run may take when nobody says.
const LONGEST: Duration = Duration::from_hours(24);

/// What becomes of the directory when the browser has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AfterRun {
    /// It is saved, under a lease that was held all the time.
    #[default]
    Save,
    /// It is thrown away: it was a private copy, no lease was taken, and nothing is published.
    Discard,
}

/// A browser to run on a profile.
#[derive(Debug)]
pub struct ProfileRun {
    /// What is loaded, and where to; the directory of a run that is discarded is chosen by the run itself.
    pub load: ProfileLoad,
    /// What becomes of it.
    pub after: AfterRun,
    /// How long to wait for another holder; not at all when not given.
    pub wait: Option<LeaseWait>,
    /// What is said of the snapshot in the end.
    pub capture: Capture,
    /// The command, program first; `{dir}` stands for the directory.
    pub command: Vec<OsString>,
    /// Whether a browser framework started us in the place of its browser, which the command then is.
    pub shim: Option<BrowserShim>,
    /// How long closing the browser may take in all.
    pub close_timeout: Duration,
    /// How long the browser may go on after its command has ended; when nothing is said, a short while after a command
    /// that failed, and for good after one that only started it.
    pub linger: Option<Duration>,
    /// How long the whole run may take before the browser is closed and saved.
    pub max_time: Duration,
    /// How often a snapshot of the running browser is taken; never when not given.
    pub every: Option<Duration>,
    /// Signals: the first closes the browser, the second stops waiting for it.
    pub signals: mpsc::UnboundedReceiver<Signal>,
    /// Hears how far it has come: whoever watches need not wait for its end.
    pub steps: Option<mpsc::UnboundedSender<RunStep>>,
    /// Gets the conversation with the browser, which is then started to be spoken to over its debugging pipe.
    pub(super) pipe: Option<oneshot::Sender<PipedBrowser>>,
}

/// How far a run has come.
#[derive(Clone, Debug)]
pub enum RunStep {
    /// It may use the profile, and loads it.
    Loading,
    /// The browser starts on this.
    Loaded(Box<ProfileLoaded>),
    /// The browser has ended, and what it left is saved.
    Saving,
}

/// What became of the save at the end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// It is the active snapshot now.
    Captured,
    /// Nothing changed since the active snapshot.
    Deduplicated,
    /// It is stored, but another snapshot stays the active one.
    Diverged,
    /// It is stored, but databases in it are damaged.
    Damaged,
    /// It is stored, but the browser's migration lost cookies or origins.
    UpgradeIncomplete,
    /// It is stored, but has suspiciously little of what the active snapshot has.
    Shrunk,
    /// The profile is larger than its policy allows.
    TooLarge,
    /// The store did not take it.
    UploadFailed,
    /// Other writers moved the pointer each time it was to be published.
    PointerRace,
    /// The lease belonged to somebody else by then.
    LockLost,
    /// The save was cancelled.
    Skipped,
    /// No save was wanted: what the run changed was thrown away.
    Discarded,
    /// The store did not say whether it was published.
    Unknown,
    /// Anything else.
    Failed,
}

stasis_model::display_as_serialized!(RunOutcome);

impl From<SaveOutcome> for RunOutcome {
    fn from(outcome: SaveOutcome) -> Self {
        match outcome {
            SaveOutcome::Captured => Self::Captured,
            SaveOutcome::Deduplicated => Self::Deduplicated,
            SaveOutcome::Diverged => Self::Diverged,
            SaveOutcome::Damaged => Self::Damaged,
            SaveOutcome::UpgradeIncomplete => Self::UpgradeIncomplete,
            SaveOutcome::Shrunk => Self::Shrunk,
        }
    }
}

/// A browser that ran.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of the report that scripts look at"
)]
pub struct ProfileRan {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// The browser's exit code as a shell gives it.
    pub exit_code: i32,
    /// What it began with.
    pub load: ProfileLoaded,
    /// What was saved of it.
    pub save: Option<ProfileSaved>,
    /// What became of the save when it ended.
    pub save_outcome: RunOutcome,
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

impl ProfileRun {
    /// A run of a command (program first) in the directory that `load` names, which saves it at the end; whatever else can be
    /// said has its usual value.
    pub fn new(
        load: ProfileLoad,
        capture: Capture,
        command: Vec<OsString>,
        signals: mpsc::UnboundedReceiver<Signal>,
    ) -> Self {
        let dir = load.dir.clone();
        let run = Self {
            load,
            after: AfterRun::Save,
            wait: None,
            capture,
            command,
            shim: None,
            close_timeout: StopSettings::default().timeout,
            linger: None,
            max_time: LONGEST,
            every: None,
            signals,
            steps: None,
            pipe: None,
        };
        run.placed(dir)
    }

    /// The same in another directory.
    #[must_use]
    pub fn placed(mut self, dir: PathBuf) -> Self {
        self.capture.dir.clone_from(&dir);
        self.load.dir = dir;
        self
    }

    /// Tells whoever watches; nobody has to.
    fn tell(&self, step: RunStep) {
        if let Some(steps) = &self.steps {
            let _ = steps.send(step);
        }
    }

    /// The command with the directory in its place; and whether it has a place for it.
    fn words(&self) -> Result<(Vec<OsString>, bool), Error> {
        let dir = &self.load.dir;
        if self.shim.is_none() {
            return with_dir(&self.command, dir);
        }
        Ok((shim::with_own_dir(&self.command, dir).0, true))
    }

    fn acquire(&self, ttl: Option<Duration>) -> Acquire {
        Acquire {
            lineage: self.load.lineage.clone(),
            holder: self.capture.holder.clone(),
            ttl,
        }
    }

    /// Whether the caller would rather have a fresh browser than none while the store cannot be reached.
    fn starts_without_a_store(&self, error: &Error) -> bool {
        let is_fresh = self.load.on_failure == Some(OnFailure::Fresh);
        is_fresh && error.kind() == ErrorKind::Unreachable
    }
}

/// Waits for a lease to be lost, through all that happens.
type Keeper<'a> = Pin<&'a mut (dyn Future<Output = LeaseLost> + Send + 'a)>;

impl Profiles<'_> {
    /// Loads, runs, saves.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %run.load.lineage, dir = %run.load.dir.display()))]
    pub async fn run(self, mut run: ProfileRun) -> Result<ProfileRan, Error> {
        if run.after == AfterRun::Discard {
            return Box::pin(self.run_discarded(run)).await;
        }
        let lineage = run.load.lineage.clone();
        self.recover().await;
        let (command, names_dir) = run.words()?;
        let policy = match self.tenants().policy(&lineage.tenant).await {
            Err(error) if run.starts_without_a_store(&error) => {
                return Box::pin(self.run_unowned(run, &command, error)).await;
            }
            policy => policy?,
        };
        if run.every.is_some() && !policy.allow_hot {
            return Err(ProfileError::HotNotAllowed(lineage).into());
        }
        let acquire = run.acquire(Some(policy.lease_ttl()));
        let acquired = tokio::select! {
            acquired = self.leases().acquire_within(acquire, run.wait.as_ref()) => acquired,
            Some(_) = run.signals.recv() => return Err(Error::interrupted(&lineage)),
        };
        let acquired = match acquired {
            Err(error) if run.starts_without_a_store(&error) => {
                return Box::pin(self.run_unowned(run, &command, error)).await;
            }
            acquired => acquired?,
        };
        let lease = acquired.lease;
        let mut warnings = acquired.warnings;
        if !names_dir {
            warnings.push(Warning::DirNotInCommand);
        }
        let renew_every = policy.renew_every().min(lease.ttl / 3);
        let mut keeper = std::pin::pin!(self.leases().keep_alive(&lease, renew_every));
        let ran = self
            .run_leased(&mut run, &lease, &command, keeper.as_mut())
            .await;
        let released = match &ran {
            Ok(ran) if ran.lock_lost => false,
            _ => self.leases().release_lease(&lease).await.is_ok(),
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
        self,
        run: &mut ProfileRun,
        lease: &Lease,
        command: &[OsString],
        mut keeper: Keeper<'_>,
    ) -> Result<ProfileRan, Error> {
        let lineage = &lease.lineage;
        // Not before the lease is ours: the browser of the run that we waited for works in the same directory.
        nobody_uses(&run.load.dir).await?;
        let loaded = self.load_kept(run, lease, keeper.as_mut()).await?;
        let group = self.start_browser(run, &loaded, command).await?;
        let mut running = Running::new(self.engine, run, Some(lease), group);
        let ended = running.watch(keeper.as_mut()).await?;
        let ran = ran(lineage, loaded, ended.ending, &mut running);
        if let Some(lost) = &ended.lost {
            let detail = lost.detail().to_owned();
            self.leases()
                .record_lost(lineage, lease.fence, &detail)
                .await;
            return Ok(without_save(
                ran,
                RunOutcome::LockLost,
                &lost_error(lineage, lost),
            ));
        }
        run.capture.browser = ended.browser;
        run.tell(RunStep::Saving);
        let saved = self.capture_kept(&run.capture, lease, keeper).await;
        Ok(self.with_save(ran, saved, &run.load.dir).await)
    }

    /// Starts the command on what was loaded; one that does not start has left nothing behind.
    async fn start_browser(
        self,
        run: &mut ProfileRun,
        loaded: &ProfileLoaded,
        command: &[OsString],
    ) -> Result<ProcessGroup, Error> {
        nobody_uses(&run.load.dir).await?;
        self.note_running(&run.load, loaded).await?;
        run.capture.base = loaded.base_sha256;
        run.capture.upgraded_from = loaded.carried_from();
        run.capture.held_back = loaded.is_held_back();
        run.tell(RunStep::Loaded(Box::new(loaded.clone())));
        let variables = [
            ("STASIS_PROFILE", run.load.lineage.to_string()),
            (DIR_VARIABLE, run.load.dir.display().to_string()),
            ("STASIS_PROFILE_LOAD", loaded.outcome.to_string()),
        ];
        if run.shim.is_some()
            && let (_, Some(named)) = shim::with_own_dir(&run.command, &run.load.dir)
        {
            shim::link_port(&named, &run.load.dir);
        }
        let words = run.bound(command);
        let started = match run.pipe.take() {
            None => ProcessGroup::start(&words, &variables),
            Some(wanted) => ProcessGroup::start_piped(&words, &variables).map(|(group, pipe)| {
                // Who does not wait for it any more has it closed, and the browser with it.
                let _ = wanted.send(PipedBrowser::new(pipe));
                group
            }),
        };
        match started {
            Ok(group) => Ok(group),
            Err(error) => {
                self.note_load(&run.load, loaded).await?;
                Err(error.into())
            }
        }
    }

    /// Starts the command on what was loaded, and watches it to its end without a lease: nothing can be saved in between.
    async fn run_unleased(
        self,
        run: &mut ProfileRun,
        loaded: ProfileLoaded,
        command: &[OsString],
    ) -> Result<(ProfileRan, BrowserState), Error> {
        run.every = None;
        let group = self.start_browser(run, &loaded, command).await?;
        let lineage = run.load.lineage.clone();
        let mut running = Running::new(self.engine, run, None, group);
        let never = std::pin::pin!(std::future::pending());
        let ended = running.watch(never).await?;
        let ran = ran(&lineage, loaded, ended.ending, &mut running);
        Ok((ran, ended.browser))
    }

    /// Captures while the lease is kept alive.
    async fn capture_kept(
        self,
        capture: &Capture,
        lease: &Lease,
        mut keeper: Keeper<'_>,
    ) -> Result<ProfileSaved, Error> {
        let mut saving = std::pin::pin!(async {
            let session = self.session_under(lease).await?;
            self.capture(capture, &session).await
        });
        tokio::select! {
            biased;
            saved = &mut saving => saved,
            lost = &mut keeper => {
                // What was sent may have been applied: the work itself says how it ended.
                capture.cancel.store(true, Ordering::Relaxed);
                saving.await.map_err(|error| lost_or(error, &lease.lineage, lost.detail()))
            }
        }
    }

    /// Loads while the lease is kept alive; nothing goes on working in the directory when that ends early.
    async fn load_kept(
        self,
        run: &mut ProfileRun,
        lease: &Lease,
        mut keeper: Keeper<'_>,
    ) -> Result<ProfileLoaded, Error> {
        let lineage = &lease.lineage;
        run.tell(RunStep::Loading);
        let loading = self.load_leased(&run.load, lease.base.clone());
        let mut loading = std::pin::pin!(loading);
        tokio::select! {
            biased;
            loaded = &mut loading => loaded,
            lost = &mut keeper => {
                // Nothing goes on working in the directory after us.
                run.load.cancel.store(true, Ordering::Relaxed);
                let _ = loading.await;
                Err(lost_error(lineage, &lost))
            }
            Some(_) = run.signals.recv() => {
                run.load.cancel.store(true, Ordering::Relaxed);
                let _ = loading.await;
                Err(Error::interrupted(lineage))
            }
        }
    }

    /// Adds to a report what became of the save.
    async fn with_save(
        self,
        mut ran: ProfileRan,
        saved: Result<ProfileSaved, Error>,
        dir: &Path,
    ) -> ProfileRan {
        match saved {
            Ok(mut saved) => {
                self.note_save(dir, &mut saved).await;
                ran.diverged = saved.outcome == SaveOutcome::Diverged;
                let held_back = [
                    SaveOutcome::Damaged,
                    SaveOutcome::UpgradeIncomplete,
                    SaveOutcome::Shrunk,
                ];
                ran.snapshot_failed = held_back.contains(&saved.outcome);
                ran.save_outcome = saved.outcome.into();
                ran.save = Some(saved);
                ran
            }
            Err(error) => without_save(ran, outcome_of(&error), &error),
        }
    }
}

/// The report of a run of which nothing is saved yet.
fn ran(
    lineage: &Lineage,
    load: ProfileLoaded,
    ending: CommandExit,
    running: &mut Running<'_>,
) -> ProfileRan {
    let counts = running.counts;
    ProfileRan {
        subject: lineage.clone(),
        exit_code: ending.code(),
        load,
        save: None,
        save_outcome: RunOutcome::Skipped,
        save_error: None,
        snapshot_failed: false,
        lock_lost: false,
        diverged: false,
        saved_between: counts.saved,
        failed_between: counts.failed,
        released: false,
        warnings: running.overdue.take().into_iter().collect(),
        failure: None,
    }
}

fn lost_error(lineage: &Lineage, lost: &LeaseLost) -> Error {
    ProfileError::LeaseLost {
        lineage: lineage.clone(),
        detail: lost.detail().to_owned(),
    }
    .into()
}

fn without_save(ran: ProfileRan, outcome: RunOutcome, error: &Error) -> ProfileRan {
    let kind = error.kind();
    ProfileRan {
        save_outcome: outcome,
        save_error: Some(error_chain(error)),
        snapshot_failed: true,
        lock_lost: kind == ErrorKind::Fenced,
        failure: Some(kind),
        ..ran
    }
}

/// What became of a save that failed.
pub fn outcome_of(error: &Error) -> RunOutcome {
    match (error, error.kind()) {
        (_, ErrorKind::Fenced) => RunOutcome::LockLost,
        (_, ErrorKind::Diverged) => RunOutcome::Diverged,
        (_, ErrorKind::Unknown) => RunOutcome::Unknown,
        (_, ErrorKind::Cancelled) => RunOutcome::Skipped,
        (Error::Lineage(_), ErrorKind::Retry) => RunOutcome::PointerRace,
        (Error::Bucket(_) | Error::Lineage(_), _) => RunOutcome::UploadFailed,
        (Error::Profile(error), _) => match **error {
            ProfileError::TooLarge { .. } => RunOutcome::TooLarge,
            ProfileError::NotListed(_) | ProfileError::Manifest(_) => RunOutcome::UploadFailed,
            _ => RunOutcome::Failed,
        },
        _ => RunOutcome::Failed,
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
    let mut rest = word.as_bytes();
    let mut whole = Vec::new();
    // What was put in is not looked at again: the directory itself may be called so.
    while let Some(at) = rest.windows(DIR.len()).position(|part| part == DIR) {
        whole.extend_from_slice(&rest[..at]);
        whole.extend_from_slice(dir.as_bytes());
        rest = &rest[at + DIR.len()..];
    }
    let has_place = rest.len() < word.len();
    whole.extend_from_slice(rest);
    has_place.then(|| OsString::from_vec(whole))
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
        let script = [
            "sh",
            "-c",
            "ls {dir}; chromium --user-data-dir={dir}/x{dir}",
        ]
        .map(OsString::from);
        let (words, _) = with_dir(&script, Path::new("/{dir}")).unwrap();
        assert_eq!(
            words[2], "ls /{dir}; chromium --user-data-dir=/{dir}/x/{dir}",
            "everywhere, once"
        );
        let (_, has_place) = with_dir(&command[..1], Path::new("/p")).unwrap();
        assert!(!has_place);
        assert!(with_dir(&[], Path::new("/p")).is_err());
    }
}
