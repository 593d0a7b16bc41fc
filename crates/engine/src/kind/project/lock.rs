//! The lock of a project: one save, restore, start or stop at a time, on its host.
//!
//! A save that nobody asked for may take as long as its line does, and gives way to whoever asks for something:
//!
//! 1. it has `unasked.lock` besides, so that others see what it is   2. whoever finds it there takes `wanted.lock`, and waits
//! 3. it sees that, gives up, and ends what its hooks began   4. the lock is free, and the other one takes it
//!
//! *Always true:* it gives way only where `wanted.lock` is held at that moment: whoever was killed while he waited wants nothing any more.
//! Of several who want it one waits, and the others are refused as ever.

use super::{LAST_MOMENTS, Project, TICK};
use crate::bridge;
use crate::error::{Error, ProjectError};
use stasis_disk::fs::lock_file::{LockAttempt, LockFile};
use stasis_model::failure::Failure;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Who is at a project, in its place.
const LOCK: &str = "project.lock";
/// Whether that is a save that nobody asked for.
const UNASKED: &str = "unasked.lock";
/// Who waits for that to give way.
const WANTED: &str = "wanted.lock";
/// How often whoever waits looks again.
const AGAIN: Duration = Duration::from_millis(20);
/// How long a save that nobody asked for may take to give way, besides what its hooks take: it looks at a clone, or a dump, to its end.
const GIVES_WAY: Duration = Duration::from_secs(30);

/// The lock of a save that nobody asked for.
#[derive(Debug)]
#[must_use = "dropped, the lock is released"]
pub(super) struct UnaskedLock {
    // The order counts: whoever waits finds the lock free before he finds nobody to wait for.
    _lock: Option<LockFile>,
    _unasked: Option<LockFile>,
}

impl Project {
    /// Makes the project ours alone, or says who is there. A save that nobody asked for is asked to give way.
    pub(crate) async fn exclusive(&self, doing: &'static str) -> Result<Option<LockFile>, Error> {
        let Some((place, words)) = self.lock_words(doing)? else {
            return Ok(None);
        };
        let until = self.engine.clock.uptime() + self.gives_way_within();
        let clock = self.engine.clock.clone();
        let attempt = bridge::blocking(move || {
            let attempt = LockFile::take(&place.join(LOCK), &words)?;
            let is_unasked = || LockFile::holder(&place.join(UNASKED)).is_some();
            if matches!(attempt, LockAttempt::Taken(_)) || !is_unasked() {
                return Ok(attempt);
            }
            let LockAttempt::Taken(_wanted) = LockFile::take(&place.join(WANTED), &words)? else {
                return Ok(attempt);
            };
            let is_over = || clock.uptime() >= until;
            LockFile::take_within(&place.join(LOCK), &words, AGAIN, is_over)
        });
        self.ours(attempt.await.map_err(ProjectError::Lock)?)
    }

    /// The same for a save that nobody asked for, which gives way to others and asks nobody to.
    pub(super) async fn exclusive_unasked(&self) -> Result<UnaskedLock, Error> {
        let Some((place, words)) = self.lock_words("autosave")? else {
            return Ok(UnaskedLock {
                _lock: None,
                _unasked: None,
            });
        };
        let attempts = bridge::blocking(move || {
            let lock = LockFile::take(&place.join(LOCK), &words)?;
            // Only then, or others would wait for whoever has the lock already.
            let unasked = match &lock {
                LockAttempt::Taken(_) => LockFile::take(&place.join(UNASKED), &words)?,
                LockAttempt::Held(holder) => LockAttempt::Held(holder.clone()),
            };
            Ok::<_, Failure>((lock, unasked))
        });
        let (lock, unasked) = attempts.await.map_err(ProjectError::Lock)?;
        Ok(UnaskedLock {
            _lock: self.ours(lock)?,
            _unasked: self.ours(unasked)?,
        })
    }

    /// Does what nobody asked for, which ends when `cancel` is set; that is set when somebody wants the project. Says whether it was.
    pub(super) async fn giving_way<T>(
        &self,
        cancel: &AtomicBool,
        work: impl Future<Output = T>,
    ) -> (T, bool) {
        let wanted = self.own_place().map(|place| place.join(WANTED));
        let mut is_wanted = false;
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return (done, is_wanted),
                () = tokio::time::sleep(TICK) => {}
            }
            if !is_wanted && is_held(wanted.as_deref()).await {
                is_wanted = true;
                cancel.store(true, Ordering::Relaxed);
            }
        }
    }

    /// How long a save that was asked to give up may take to end, with what is run after it.
    pub(crate) fn gives_way_within(&self) -> Duration {
        let hooks = self.post_save_limit();
        hooks.saturating_add(GIVES_WAY).saturating_add(LAST_MOMENTS)
    }

    /// Where the lock is, and what others read in it; none where nothing of ours is on this host.
    fn lock_words(&self, doing: &'static str) -> Result<Option<(PathBuf, String)>, Error> {
        self.home.place()?;
        let now = self.engine.clock.now();
        let words = format!("{doing} by process {} since {now}", std::process::id());
        Ok(self.own_place().map(|place| (place, words)))
    }

    fn ours(&self, attempt: LockAttempt) -> Result<Option<LockFile>, Error> {
        match attempt {
            LockAttempt::Taken(lock) => Ok(Some(lock)),
            LockAttempt::Held(holder) => {
                let project = self.home.id.clone();
                Err(ProjectError::InProgress { project, holder }.into())
            }
        }
    }
}

async fn is_held(wanted: Option<&Path>) -> bool {
    let Some(wanted) = wanted.map(Path::to_owned) else {
        return false;
    };
    bridge::blocking(move || LockFile::holder(&wanted).is_some()).await
}
