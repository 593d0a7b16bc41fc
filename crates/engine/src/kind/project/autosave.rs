//! Saves by itself, a while after the last change.
//!
//! The live state is looked at again and again, by names, sizes and times: that works on every filesystem, sees what any
//! program does, and costs a walk. A change is saved when nothing more has changed for the debounce, or at the latest after
//! the longest delay, so that a state that never rests is saved too.
//!
//! What was seen *before* a save is the mark for the next one, also where the save found nothing new: nothing that happened meanwhile is
//! missed. A save itself can touch what it saves (SQLite's log is emptied): that costs one more look. What it touches each time says
//! nothing, and is not looked at: the index of a log, and the times of directories, in which SQLite makes and removes files.

use super::Project;
use super::save::{ProjectSave, ProjectSaved};
use crate::bridge;
use crate::error::{Error, ProjectError};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::{self, WalkSettings};
use stasis_model::digest::{FileDigest, TreeDigest};
use stasis_model::format::manifest::SaveReason;
use stasis_model::project::AutosaveConfig;
use stasis_model::tree::canonical::TreeHasher;
use stasis_model::tree::{Entry, EntryKind, EntryPath, FileTime};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often somebody who wants to stop is heard.
const TICK: Duration = Duration::from_millis(100);

/// How the index of the log of a SQLite database is called, after the database. It is made anew whenever it is missing.
const LOG_INDEX: &[u8] = b"-shm";

/// A state that changed and is not saved.
#[derive(Clone, Copy, Debug)]
struct PendingSave {
    first: Duration,
    last: Duration,
}

impl Project {
    /// Saves after changes until `cancel` is set, or `told` says that it is enough.
    ///
    /// A save that fails is told and tried again after the next debounce: nothing is given up.
    pub async fn autosave(
        &self,
        debounce_s: Option<u64>,
        cancel: Arc<AtomicBool>,
        mut report: impl FnMut(Result<&ProjectSaved, &Error>) -> bool,
    ) -> Result<(), Error> {
        let mut config = self
            .home
            .declared
            .as_ref()
            .map_or_else(AutosaveConfig::default, |one| one.config.autosave);
        config.debounce_s = debounce_s.unwrap_or(config.debounce_s);
        let pause =
            (config.debounce() / 10).clamp(Duration::from_millis(200), Duration::from_secs(3));
        // What happened while nobody watched is a change too: the first save decides whether there was one.
        let now = self.engine.clock.uptime();
        let to_its_end = Arc::default();
        let mut seen = self.fingerprint(&to_its_end).await?;
        let mut pending = Some(PendingSave {
            first: now,
            last: now,
        });
        while !cancel.load(Ordering::Relaxed) {
            rest(pause, &cancel).await;
            let found = self.fingerprint(&to_its_end).await?;
            let now = self.engine.clock.uptime();
            if found != seen {
                let first = pending.map_or(now, |pending| pending.first);
                (seen, pending) = (found, Some(PendingSave { first, last: now }));
            }
            let is_due = pending.is_some_and(|pending| {
                now.saturating_sub(pending.last) >= config.debounce()
                    || now.saturating_sub(pending.first) >= config.max_delay()
            });
            if !is_due {
                continue;
            }
            let saved = Box::pin(self.save(ProjectSave {
                cancel: cancel.clone(),
                ..ProjectSave::new(SaveReason::Autosave)
            }))
            .await;
            pending = match &saved {
                Ok(_) => None,
                Err(_) => Some(PendingSave {
                    first: now,
                    last: now,
                }),
            };
            if !report(saved.as_ref()) {
                break;
            }
        }
        Ok(())
    }

    /// What the live state looks like from outside.
    pub(super) async fn fingerprint(&self, cancel: &Arc<AtomicBool>) -> Result<TreeDigest, Error> {
        let place: PathBuf = match &self.home.declared {
            Some(declared) => declared.current(),
            None => self.home.dir.clone(),
        };
        let (project, cancel) = (self.home.id.clone(), cancel.clone());
        bridge::blocking(move || {
            let no_state = |_| ProjectError::NoState {
                project,
                path: place.clone(),
            };
            let root = RootDir::open(&place, Mounts::Stay).map_err(no_state)?;
            let settings = WalkSettings {
                cancel,
                ..WalkSettings::default()
            };
            let listed = walk::list(&root, &settings);
            let (entries, _) = listed.map_err(stasis_disk::form::chunked::ChunkError::from)?;
            Ok(outside_of(entries))
        })
        .await
    }
}

/// A digest of entries without what is in files, and without what a save touches.
fn outside_of(mut entries: Vec<Entry>) -> TreeDigest {
    let paths: BTreeSet<EntryPath> = entries.iter().map(|one| one.path.clone()).collect();
    let is_index = |path: &EntryPath| {
        let database = path.as_bytes().strip_suffix(LOG_INDEX);
        let database = database.and_then(|path| EntryPath::parse(path).ok());
        database.is_some_and(|path| paths.contains(&path))
    };
    entries.retain(|one| !is_index(&one.path));
    let (mut hasher, nothing) = (TreeHasher::new(), FileDigest::of(b""));
    for entry in &mut entries {
        if entry.kind == EntryKind::Directory {
            entry.metadata.modified = FileTime::default();
        }
        hasher.entry(entry, Some(&nothing));
    }
    hasher.finish()
}

/// Waits, but not for long once somebody wants to stop.
async fn rest(pause: Duration, cancel: &AtomicBool) {
    let mut left = pause;
    while !left.is_zero() && !cancel.load(Ordering::Relaxed) {
        let part = left.min(TICK);
        tokio::time::sleep(part).await;
        left -= part;
    }
}

#[cfg(test)]
mod tests;
