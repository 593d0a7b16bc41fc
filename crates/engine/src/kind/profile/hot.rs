//! Captures a profile while its browser runs.
//!
//! 1. flush: the browser writes the cookies that it holds back
//! 2. freeze: its whole tree of processes stands still
//! 3. clone the directory: shared blocks where the filesystem can, else a copy of the state without caches
//! 4. thaw; a freeze that did not hold to the end makes the clone worthless
//! 5. check the databases of the clone; one that is not sound is not captured, and tried again
//! 6. capture the clone like any directory that stands still
//!
//! *Always true:* the browser stands still only from 2 to 4, and runs again whatever happens to us. What is captured is
//! what a kill at that instant would have left, and the flushed cookies; storage that the browser had not written yet
//! is missing. A crash leaves the clone beside the directory, and the next capture removes it.

use super::capture::{BrowserState, Capture, ProfileSaved};
use super::checked::damaged;
use super::directory::{self, users};
use super::scratch::remove_abandoned;
use super::session::SubjectSession;
use crate::bridge;
use crate::error::{Error, ProfileError, error_chain};
use crate::handle::Profiles;
use crate::warning::Warning;
use stasis_disk::check::{self, CheckSettings};
use stasis_disk::fs::remove;
use stasis_disk::fs::root_dir::Mounts;
use stasis_disk::tree::clone::{CloneError, CloneSettings, Fallback, clone};
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::chrome::{CACHES, LEFT_OUT};
use stasis_model::format::manifest::Mode;
use stasis_quiesce::browser;
use stasis_quiesce::freeze::{FreezeSettings, Frozen, Thawed, thaw_abandoned};
use stasis_quiesce::process::Process;
use stasis_quiesce::watchdog::HelperCommand;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How often a capture whose databases are not sound is tried.
const ATTEMPTS: u32 = 3;

/// A clone of a profile that was made while its browser stood still.
struct HotClone {
    dir: PathBuf,
    frozen_for: Duration,
    caches_left_out: bool,
}

impl Drop for HotClone {
    fn drop(&mut self) {
        discard(&self.dir);
    }
}

impl Profiles<'_> {
    /// Lets run what an engine that died had stopped, and removes the copies that it left.
    pub(super) async fn recover(self) {
        let (journals, spool) = (self.freezes(), self.spool().await.ok());
        let thawed = bridge::blocking(move || {
            if let Some(spool) = spool {
                check::collect(&spool);
                remove_abandoned(&spool);
            }
            thaw_abandoned(&journals)
        });
        let thawed = thawed.await;
        if let Err(error) = thawed {
            tracing::warn!(error = %error_chain(&error), "could not look for processes that were left standing still");
        }
    }

    /// Captures a directory whose browser goes on; without a browser, like any other.
    pub(super) async fn capture_hot(
        self,
        capture: &Capture,
        session: &SubjectSession,
    ) -> Result<ProfileSaved, Error> {
        let dir = capture.dir.clone();
        if users(&dir).await?.is_empty() {
            return self.capture(capture, session).await;
        }
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let mut warnings = Vec::new();
            if let Err(error) = browser::flush_cookies(&dir).await {
                let reason = error_chain(&error);
                warnings.push(Warning::CookiesNotFlushed { reason });
            }
            let users = users(&dir).await?;
            let Some(uptime) = users.first().map(|user| user.process.uptime()) else {
                return self.capture(capture, session).await;
            };
            let processes = users.into_iter().map(|user| user.process).collect();
            let taken = self.take(&dir, processes, capture).await?;
            match self.unsound(&taken, capture).await? {
                unsound if unsound.is_empty() => {
                    let mut hot = capture.clone();
                    hot.dir.clone_from(&taken.dir);
                    hot.exclude_caches |= taken.caches_left_out;
                    hot.browser = BrowserState {
                        mode: Mode::Hot,
                        uptime_s: uptime.as_secs(),
                        freeze_ms: super::millis(taken.frozen_for),
                        ..BrowserState::default()
                    };
                    let mut saved = self.capture(&hot, session).await?;
                    saved.warnings.extend(warnings);
                    return Ok(saved);
                }
                unsound => last = Some(unsound),
            }
        }
        Err(ProfileError::Integrity {
            snapshot: "of the running browser".to_owned(),
            databases: last.unwrap_or_default(),
        }
        .into())
    }

    /// Freezes, clones, thaws.
    async fn take(
        self,
        dir: &Path,
        processes: Vec<Process>,
        capture: &Capture,
    ) -> Result<HotClone, Error> {
        let settings = FreezeSettings::new(
            self.freezes(),
            HelperCommand::this_program(&["internal", "watchdog"]),
        );
        let (dir, cancel) = (dir.to_owned(), capture.cancel.clone());
        let exclude_caches = capture.exclude_caches;
        let taken = bridge::blocking(move || {
            let target = beside(&dir);
            discard(&target);
            let failed = |source| ProfileError::Freeze {
                dir: dir.clone(),
                source,
            };
            let frozen = Frozen::freeze(&processes, &settings).map_err(failed)?;
            let cloned = clone_still(&dir, &target, exclude_caches, &cancel);
            // From here on the clone is removed whatever happens.
            let mut clone = HotClone {
                dir: target,
                frozen_for: Duration::ZERO,
                caches_left_out: false,
            };
            let thawed: Thawed = frozen.thaw().map_err(failed)?;
            clone.frozen_for = thawed.frozen_for;
            clone.caches_left_out = cloned?;
            if thawed.held() {
                return Ok(clone);
            }
            Err(Error::from(ProfileError::FreezeBudget {
                dir: dir.clone(),
                frozen_for: thawed.frozen_for,
            }))
        });
        taken.await
    }

    /// The databases of a clone that are not sound.
    async fn unsound(self, taken: &HotClone, capture: &Capture) -> Result<Vec<String>, Error> {
        let (dir, scratch) = (taken.dir.clone(), self.spool().await?);
        let (cancel, spawn) = (capture.cancel.clone(), capture.spawn.clone());
        let checked = bridge::blocking(move || {
            let root = directory::open(&dir)?;
            let settings = CheckSettings {
                cancel,
                ..CheckSettings::new(scratch)
            };
            let files = directory::database_files(&root, &dir)?;
            let report = check::tree(&root, &settings, &spawn)?;
            Ok::<_, Error>(damaged(&report, &files))
        });
        checked.await
    }
}

/// Clones what stands still; says whether caches were left out.
fn clone_still(
    dir: &Path,
    target: &Path,
    exclude_caches: bool,
    cancel: &Arc<AtomicBool>,
) -> Result<bool, Error> {
    let settings = |fallback, caches: &[&str]| CloneSettings {
        fallback,
        mounts: Mounts::Stay,
        walk: WalkSettings {
            excludes: LEFT_OUT
                .iter()
                .chain(caches)
                .map(ToString::to_string)
                .collect(),
            strict: true,
            cancel: cancel.clone(),
            ..WalkSettings::default()
        },
        ..CloneSettings::default()
    };
    let all: &[&str] = if exclude_caches { &CACHES } else { &[] };
    match clone(dir, target, &settings(Fallback::Refuse, all)) {
        Err(CloneError::CannotShare { .. }) => {
            let _ = clone(dir, target, &settings(Fallback::Copy, &CACHES))?;
            Ok(true)
        }
        cloned => {
            let _ = cloned?;
            Ok(exclude_caches)
        }
    }
}

/// Where the clone of a directory is made: on its filesystem, under a name of its own. What dead processes left goes.
fn beside(dir: &Path) -> PathBuf {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let stem = format!(".{name}.stasis-hot-");
    if let Some(parent) = dir.parent() {
        remove::left_by_the_dead(parent, &stem);
    }
    dir.with_file_name(format!("{stem}{}", std::process::id()))
}

/// Removes a clone; one that stays is removed by the next capture.
fn discard(clone: &Path) {
    if let Err(error) = remove::tree_at(clone) {
        tracing::debug!(%error, clone = %clone.display(), "the clone was not removed");
    }
}
