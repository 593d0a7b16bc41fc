//! Proves that a snapshot comes back: restores it to a place of its own, checks it, and starts a browser on it.
//!
//! *Always true:* no snapshot of the lineage changes, the profile's own directory is not touched, and the place is
//! removed. What was found is recorded in the pointer, where gc looks for it.

use super::load::{OnFailure, ProfileLoad, ProfileLoaded, UpgradeWish};
use super::save::close;
use super::scratch::VERIFIED;
use super::subject::ShaPrefix;
use crate::address::as_typed;
use crate::check::Spawn;
use crate::error::{Error, ProfileError};
use crate::handle::Profiles;
use crate::open::Engine;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_disk::tree::restore::Placement;
use stasis_model::digest::ArchiveDigest;
use stasis_model::id::{Label, Lineage, ProfileRef};
use stasis_quiesce::browser::{BrowserError, PIPE_FLAG, PipedBrowser};
use stasis_quiesce::group::ProcessGroup;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What lets a browser be asked by us alone, whatever machine it runs on.
pub(super) const HEADLESS: [&str; 6] = [
    "--headless=new",
    "--no-first-run",
    "--disable-gpu",
    "--disable-background-networking",
    "--password-store=basic",
    PIPE_FLAG,
];
/// How long a browser may take to start and to be closed.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a browser that hung up may take to end, before we stop waiting to hear how.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Which snapshot is proved, and with what.
#[derive(Clone, Debug)]
pub struct ProfileVerify {
    /// Of what.
    pub subject: ProfileRef,
    /// Which; the active one when nothing is said.
    pub sha: Option<ShaPrefix>,
    /// A browser to start on it, with its own flags.
    pub browser: Vec<OsString>,
    /// How the process that opens databases is started.
    pub spawn: Spawn,
    /// Counts what is done.
    pub progress: Arc<Progress>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
}

/// A snapshot that comes back.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "a snapshot may come back and still have no cookies"]
pub struct ProfileVerified {
    /// Of what.
    #[serde(serialize_with = "as_typed")]
    #[schemars(with = "String")]
    pub subject: Lineage,
    /// Which.
    pub sha256: ArchiveDigest,
    /// Files in it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Databases that were checked and found sound.
    pub databases: u64,
    /// How many cookies a browser reads there, by site; `None` without a browser.
    pub cookies: Option<BTreeMap<String, u64>>,
    /// How long it took.
    pub elapsed_ms: u64,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl Profiles<'_> {
    /// The snapshots of a lineage that can be restored, by what lies there: the active one first, then the newest.
    pub(crate) async fn restorable(self, lineage: &Lineage) -> Result<Vec<ArchiveDigest>, Error> {
        let inventory = self.inventory(lineage).await?;
        let (mut all, active) = (inventory.choices(), inventory.active());
        all.reverse();
        all.sort_by_key(|one| Some(*one) != active);
        Ok(all)
    }

    /// Restores a snapshot to a place of its own and proves that it works there.
    #[tracing::instrument(skip_all, err(level = "info"), fields(subject = %verify.subject))]
    pub async fn verify(self, verify: ProfileVerify) -> Result<ProfileVerified, Error> {
        let started = self.clock.uptime();
        let lineage = self.one_lineage(&verify.subject).await?;
        let inventory = self.inventory(&lineage).await?;
        let chosen = match &verify.sha {
            Some(sha) => inventory.choose_whole(sha)?,
            None => inventory.active_whole()?,
        };
        let scratch = self.scratch_profile(VERIFIED).await?;
        let load = ProfileLoad {
            lineage: lineage.clone(),
            dir: scratch.path().to_owned(),
            placement: Placement::Replace,
            exactly: None,
            on_failure: Some(OnFailure::Refuse),
            upgrade: UpgradeWish::Stay,
            cold_only: false,
            region: None,
            actor: Label::nobody(),
            spawn: verify.spawn.clone(),
            progress: verify.progress.clone(),
            cancel: verify.cancel.clone(),
        };
        let active = Some(chosen.active.clone());
        // What this host keeps of an archive says nothing of what the store has.
        let uncached = self.without_cache();
        let from_store = uncached.as_ref().map_or(self, Engine::profiles);
        let loaded: ProfileLoaded = from_store.load_exactly(&load, active).await?;
        self.record_check(&lineage, chosen.active.archive, true)
            .await;
        let cookies = if verify.browser.is_empty() {
            None
        } else {
            Some(count_cookies(&verify.browser, scratch.path()).await?)
        };
        Ok(ProfileVerified {
            subject: lineage,
            sha256: chosen.active.archive,
            files: loaded.files,
            bytes: loaded.bytes,
            databases: loaded.databases,
            cookies,
            elapsed_ms: super::millis(self.clock.uptime().saturating_sub(started)),
            warnings: loaded.warnings,
        })
    }
}

/// Starts a browser on a directory, asks it, closes it.
async fn count_cookies(command: &[OsString], dir: &Path) -> Result<BTreeMap<String, u64>, Error> {
    let mut words = command.to_vec();
    words.extend(HEADLESS.map(OsString::from));
    let mut data_dir = OsString::from("--user-data-dir=");
    data_dir.push(dir);
    words.extend([data_dir, "about:blank".into()]);
    let (mut group, pipe) = ProcessGroup::start_piped(&words, &[])?;
    let mut browser = PipedBrowser::new(pipe);
    let mut counted = tokio::select! {
        counted = count(&mut browser) => Ok(counted),
        code = failure(&mut group) => Err(code),
    };
    if matches!(counted, Ok(Err(BrowserError::HungUp { .. })))
        && let Ok(code) = tokio::time::timeout(LAST_WORDS, failure(&mut group)).await
    {
        counted = Err(code);
    }
    let closed = close(dir, STOP_TIMEOUT).await;
    let _ = group.stop(Duration::from_secs(1)).await;
    let counted = counted.map_err(ProfileError::BrowserEnded)?;
    let counted = counted.map_err(ProfileError::Asked)?;
    closed?;
    Ok(counted)
}

/// Asks a browser as soon as it can be spoken to.
async fn count(browser: &mut PipedBrowser) -> Result<BTreeMap<String, u64>, BrowserError> {
    let limit = STOP_TIMEOUT;
    let ready = tokio::time::timeout(limit, browser.ready()).await;
    ready.unwrap_or(Err(BrowserError::Silent { limit }))?;
    browser.count_cookies().await
}

/// The exit code of a browser that fails; one that ends well has left its work to another process.
async fn failure(group: &mut ProcessGroup) -> i32 {
    match group.wait().await {
        Ok(ending) if ending.code() != 0 => ending.code(),
        _ => std::future::pending().await,
    }
}
