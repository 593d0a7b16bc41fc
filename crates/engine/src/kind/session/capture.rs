//! Saves the workspace of a session, so that exactly one snapshot of it is published.
//!
//! 1. measure   2. save, beside what is published   3. judge: is everything in it, and did it not shrink?   4. publish, and read that back
//! 5. write it down in `session.json`   6. let go of what it replaces
//!
//! A tree that shrank to less than a tenth of what it was is stored and not published: an unmounted disk must not replace a good snapshot.
//! One of which something is missing is not kept at all.

use super::memory::is_known_here;
use super::register::outside_roots;
use super::{SessionHost, failed, failure, millis, name_of, refused};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::error_kind;
use crate::handle::Sessions;
use crate::save::{RepoSave, RepoSaved};
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::progress::Progress;
use stasis_disk::tree::survey::survey;
use stasis_disk::tree::walk::{WalkError, WalkSettings};
use stasis_model::failure::{AtPath, Failure, OPEN_DIRECTORY};
use stasis_model::format::event::EventKind;
use stasis_model::id::{SessionRef, SnapshotId};
use stasis_model::policy::shrink;
use stasis_model::session::document::{DurableSnapshot, SessionDocument, SessionState};
use stasis_model::session::step::SessionRefusal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How many of the largest directories are named.
const NAMED: usize = 3;
/// How often a workspace that changes while it is read is read again.
const ATTEMPTS: usize = 3;

/// How large a session may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// The length of all files that are saved.
    pub bytes: u64,
    /// How many files, directories and links that are.
    pub entries: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            bytes: 16 << 30,
            entries: 1_000_000,
        }
    }
}

/// How a session is saved.
#[derive(Clone, Debug, Default)]
pub struct SnapshotSession {
    /// Whether it may have become much smaller than it was.
    pub accept_shrink: bool,
    /// How large it may be.
    pub limits: SessionLimits,
    /// Holds its sandbox still while what changed is saved, for so long at most.
    pub freeze: Option<Duration>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

/// A session that was saved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "a session that is not durable must not be ended"]
pub struct SessionCaptured {
    /// Which.
    pub session: SessionRef,
    /// What it is woken from; none if there is nothing to save and never was.
    pub snapshot_id: Option<SnapshotId>,
    /// Whether the snapshot before is this very tree.
    pub unchanged: bool,
    /// Regular files.
    pub files: u64,
    /// The length of all files.
    pub bytes: u64,
    /// Bytes that had to be stored for it.
    pub bytes_stored: u64,
    /// How many snapshots it replaced.
    pub pruned: u64,
    /// Entries that are no files and were not saved: sockets, named pipes, devices.
    pub left_out: u64,
    /// Entries of the workspace that are in no root, where nothing was saved; the first few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_saved: Vec<String>,
    /// For how long its sandbox stood still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen_ms: Option<u64>,
    /// What the caller should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// How long it took.
    pub elapsed_ms: u64,
}

impl Sessions<'_> {
    /// Saves a session that runs here.
    pub async fn snapshot(
        self,
        host: &SessionHost,
        session: &SessionRef,
        how: &SnapshotSession,
    ) -> Result<SessionCaptured, Error> {
        self.store().ensure_trusted().await?;
        let document = self.read(session).await?;
        Self::ensure_here(host, &document, false).await?;
        self.engine.thaw_left().await;
        self.capture(&document, how).await
    }

    /// What lies on another host cannot be saved from here; what the store alone says to lie here is not touched.
    pub(super) async fn ensure_here(
        host: &SessionHost,
        document: &SessionDocument,
        is_trusted: bool,
    ) -> Result<(), Error> {
        let (session, place) = (&document.session, &document.place);
        if place.host != host.name {
            let said = format!("the workspace of `{session}` lies on {}", place.host);
            let hint = format!(
                "run it there, or `stasis session wake {session} --take-over` if that host is gone"
            );
            return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
        }
        if is_trusted || is_known_here(host, document).await {
            return Ok(());
        }
        let said = format!(
            "`{session}` was not registered on this host as the store has it: `{}` is not touched",
            place.dir
        );
        let hint = format!("`stasis session register {session} --dir DIR` says that it is right");
        Err(failure(ErrorKind::Denied, said).with_hint(hint).into())
    }

    /// Saves a workspace, and lets go of what that replaces.
    pub(super) async fn capture(
        self,
        document: &SessionDocument,
        how: &SnapshotSession,
    ) -> Result<SessionCaptured, Error> {
        let (session, started) = (&document.session, self.clock.uptime());
        if document.state != SessionState::Running {
            return Err(refused(SessionRefusal::NotRunning {
                session: session.clone(),
                state: document.state,
            }));
        }
        ensure_no_links(document).await?;
        let is_empty = !self.has_roots(document).await?;
        if is_empty && document.snapshot.is_none() {
            return Ok(SessionCaptured {
                not_saved: outside_roots(document).await,
                ..SessionCaptured::nothing(session)
            });
        }
        self.measure(document, how).await?;
        let (saved, frozen_for) = match how.freeze {
            Some(longest) => Box::pin(self.save_still(document, how, longest)).await?,
            None => (self.save_whole(document, how).await?, None),
        };
        self.ensure_not_shrunk(document, how, &saved).await?;
        let snapshot = self.publish(session, &saved).await?;
        let noted = self.change(session, |found, op_id| {
            found.note_snapshot(&snapshot, op_id)
        });
        let noted = noted.await.map_err(failed)?;
        let pruned = self.prune_noted(&noted).await;
        let elapsed = self.clock.uptime().saturating_sub(started);
        Ok(SessionCaptured {
            session: session.clone(),
            snapshot_id: Some(snapshot.snapshot_id),
            unchanged: saved.unchanged,
            files: saved.files,
            bytes: saved.bytes,
            bytes_stored: saved.bytes_stored,
            pruned,
            left_out: saved.left_out_entries.len() as u64,
            not_saved: Vec::new(),
            frozen_ms: frozen_for.map(millis),
            warnings: saved.warnings,
            elapsed_ms: millis(elapsed),
        })
    }

    /// Removes what the snapshot of a session replaced, and what saves left that were never published; says how many were let go. What
    /// cannot be removed goes the next time: the session says so until then.
    pub(super) async fn prune_noted(self, document: &SessionDocument) -> u64 {
        let session = &document.session;
        let Some(kept) = document.snapshot.as_ref().filter(|_| document.to_prune) else {
            return 0;
        };
        let engine = self.of(session);
        let pruned = async {
            let (dirs, root) = (engine.dirs(), engine.dirs().root());
            let repo = dirs.settings(&root).await?;
            dirs.tombstone_unpublished(&root, &repo).await?;
            self.prune(session, &kept.snapshot_id).await
        };
        let (gone, is_all) = match pruned.await {
            Ok(pruned) => pruned,
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(%session, error, "what its snapshot replaced was not removed yet");
                return 0;
            }
        };
        if is_all {
            let noted = self.change(session, |found, op_id| {
                found.pruned(&kept.snapshot_id, op_id)
            });
            if let Err(error) = noted.await {
                tracing::info!(%session, %error, "that nothing is left to be removed was not written down");
            }
        }
        gone.len() as u64
    }

    /// Whether anything is there that could be saved.
    pub(super) async fn has_roots(self, document: &SessionDocument) -> Result<bool, Error> {
        let dir = Path::new(&document.place.dir).to_owned();
        let roots = document.roots.clone();
        let looked = bridge::blocking(move || {
            dir.symlink_metadata().at(OPEN_DIRECTORY, &dir)?;
            let mut names = roots.names().iter();
            Ok::<_, Error>(names.any(|root| dir.join(root).symlink_metadata().is_ok()))
        });
        looked.await
    }

    /// Refuses what is too large before anything is stored.
    async fn measure(self, document: &SessionDocument, how: &SnapshotSession) -> Result<(), Error> {
        let dir = Path::new(&document.place.dir).to_owned();
        let (patterns, limits) = (document.roots.patterns(), how.limits);
        let cancel = how.cancel.clone();
        let measured = bridge::blocking(move || {
            let root = RootDir::open(&dir, Mounts::Cross).at(OPEN_DIRECTORY, &dir)?;
            let settings = WalkSettings {
                excludes: patterns,
                cancel,
                ..WalkSettings::default()
            };
            survey(&root, &settings, &Progress::default()).map_err(unreadable)
        });
        let found = measured.await?;
        let entries = found.walk.entries();
        if found.bytes <= limits.bytes && entries <= limits.entries {
            return Ok(());
        }
        let largest = found.directories.iter().take(NAMED);
        let largest: Vec<String> = largest
            .map(|(path, bytes)| format!("{path} ({bytes} bytes)"))
            .collect();
        let said = format!(
            "the session `{}` is too large: it has {entries} entries, {} bytes (at most: {}, {} bytes). The largest directories: {}",
            document.session,
            found.bytes,
            limits.entries,
            limits.bytes,
            largest.join(", ")
        );
        let hint = "`--max-bytes` and `--max-entries` allow more";
        Err(failure(ErrorKind::Limit, said).with_hint(hint).into())
    }

    /// Saves everything beside what is published. What could not be read, or changed while it was, is read again; a snapshot without it
    /// would pass for everything there is, and is not kept.
    pub(super) async fn save_whole(
        self,
        document: &SessionDocument,
        how: &SnapshotSession,
    ) -> Result<RepoSaved, Error> {
        let session = &document.session;
        let engine = self.of(session);
        engine.dirs().ensure_pool().await?;
        let mut command = RepoSave::new(&document.place.dir, name_of(session));
        command.excludes = document.roots.patterns();
        command.across_filesystems = true;
        command.skip_fifos = true;
        command.skip_unchanged = true;
        command.allow_shrink = true;
        command.activates = false;
        command.cancel = how.cancel.clone();
        command.progress = how.progress.clone();
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let saved = engine.dirs().save(command.clone()).await?;
            let Some(missing) = missing(&saved) else {
                return Ok(saved);
            };
            if saved.published {
                self.discard(session, &saved.snapshot_id).await;
            }
            last = Some(missing);
        }
        let missing = last.unwrap_or_default();
        let said = format!("not everything of the session `{session}` could be saved: {missing}");
        Err(failure(ErrorKind::Failed, said).into())
    }

    /// Leaves what shrank stored beside the good snapshot, and says that it is not published.
    async fn ensure_not_shrunk(
        self,
        document: &SessionDocument,
        how: &SnapshotSession,
        saved: &RepoSaved,
    ) -> Result<(), Error> {
        let Some(before) = document.snapshot.as_ref().filter(|_| !how.accept_shrink) else {
            return Ok(());
        };
        let entries = saved.files + saved.directories + saved.symlinks + saved.hard_links;
        let is_less = shrink::is_suspicious(before.entries, entries)
            || shrink::is_much_less(before.bytes, saved.bytes);
        if !is_less {
            return Ok(());
        }
        let (session, id) = (&document.session, &saved.snapshot_id);
        let said = format!(
            "the session `{session}` has {entries} entries of {} bytes, where its snapshot has {} of {}: what is there now is stored as {id} and not published",
            saved.bytes, before.entries, before.bytes
        );
        if saved.published {
            self.note_event(EventKind::NotPublished, session, &said)
                .await;
            self.discard_unpublished(session, id).await;
        }
        let hint = "if that is what it should be, say --accept-shrink; otherwise look whether its disk is mounted";
        Err(failure(ErrorKind::Limit, said).with_hint(hint).into())
    }

    /// Lets go of what was stored before and not published, but for one: each attempt to save what shrank would leave another one.
    async fn discard_unpublished(self, session: &SessionRef, kept: &SnapshotId) {
        let root = self.of(session).dirs().root();
        let Ok(Some(index)) = root.index().await else {
            return;
        };
        let index = index.value;
        let published = index
            .snapshots
            .iter()
            .position(|one| index.is_active(&one.id));
        let since = index.snapshots.iter().skip(published.unwrap_or_default());
        for one in since.filter(|one| one.id != *kept && !index.is_active(&one.id)) {
            self.discard(session, &one.id).await;
        }
    }

    /// Makes a snapshot the published one, and reads that as whoever wakes the session will.
    async fn publish(
        self,
        session: &SessionRef,
        saved: &RepoSaved,
    ) -> Result<DurableSnapshot, Error> {
        let engine = self.of(session);
        let (dirs, root) = (engine.dirs(), engine.dirs().root());
        let id = &saved.snapshot_id;
        let lost = || Error::LostManifest(id.clone());
        let mut index = root.index().await?.ok_or_else(lost)?.value;
        if !index.is_active(id) {
            dirs.adopt(&root, Some(id), index.active.as_ref()).await?;
            index = root.index().await?.ok_or_else(lost)?.value;
        }
        let row = index.find(id).filter(|_| index.is_active(id));
        let (_, digest) = root.manifest(id).await?.ok_or_else(lost)?;
        let row = row
            .filter(|row| row.manifest_sha256 == digest)
            .ok_or_else(lost)?;
        Ok(DurableSnapshot {
            snapshot_id: id.clone(),
            state_digest: saved.state_digest,
            bytes: row.bytes,
            entries: row.entries,
            at: self.now(),
        })
    }
}

/// Refuses a root that is a link out of what is saved: only the link would be, and pass for everything.
async fn ensure_no_links(document: &SessionDocument) -> Result<(), Error> {
    let (dir, roots) = (PathBuf::from(&document.place.dir), document.roots.clone());
    let session = document.session.clone();
    let looked = bridge::blocking(move || {
        for name in roots.names() {
            let path = dir.join(name);
            let is_link = path.symlink_metadata().is_ok_and(|seen| seen.is_symlink());
            let Ok(target) = path.canonicalize() else {
                continue;
            };
            let all = dir.canonicalize().unwrap_or_else(|_| dir.clone());
            let mut saved = roots.names().iter().map(|root| all.join(root));
            if is_link && !saved.any(|root| target.starts_with(&root)) {
                let said = format!(
                    "the root `{name}` of `{session}` is a link to `{}`: what is there would not be saved",
                    target.display()
                );
                let hint = "make it a directory of the workspace, or register the directory that it leads to";
                return Err(failure(ErrorKind::Invalid, said).with_hint(hint));
            }
        }
        Ok(())
    });
    Ok(looked.await?)
}

/// A workspace that could not be walked.
pub(super) fn unreadable(error: WalkError) -> Error {
    Failure::of(error_kind::walk(&error), error).into()
}

/// What a user could expect in a snapshot and does not find there.
fn missing(saved: &RepoSaved) -> Option<String> {
    if let Some(one) = saved
        .left_out_entries
        .iter()
        .find(|one| one.is_missing() || matches!(one.reason, crate::result::SkipReason::Changed))
    {
        return Some(format!("`{}` {}", one.path, one.words));
    }
    let one = saved.not_consistent.first()?;
    Some(format!("the database `{}`: {}", one.path, one.reason))
}

impl SessionCaptured {
    /// Nothing is there, and never was.
    fn nothing(session: &SessionRef) -> Self {
        Self {
            session: session.clone(),
            snapshot_id: None,
            unchanged: true,
            files: 0,
            bytes: 0,
            bytes_stored: 0,
            pruned: 0,
            left_out: 0,
            not_saved: Vec::new(),
            frozen_ms: None,
            warnings: Vec::new(),
            elapsed_ms: 0,
        }
    }
}
