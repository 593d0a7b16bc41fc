//! Saves the workspace of a session, so that exactly one snapshot of it is published.
//!
//! 1. measure   2. save and publish   3. read back what was published   4. write it down in `session.json`   5. let go of what it replaces
//!
//! A tree that shrank to less than a tenth of what it was is stored and not published: an unmounted disk must not replace a good snapshot.

use super::{SessionHost, failed, failure, name_of};
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
use stasis_model::format::manifest::SaveReason;
use stasis_model::id::{SessionRef, SnapshotId};
use stasis_model::session::document::{DurableSnapshot, SessionDocument};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How many of the largest directories are named.
const NAMED: usize = 3;
/// How often a workspace that changes while it is read is read again.
const ATTEMPTS: usize = 3;

/// How large a session may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// The length of all files that are saved.
    pub bytes: u64,
    /// How many files that are.
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
    /// Entries that are no files and were not saved: sockets, devices.
    pub left_out: u64,
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
        Self::ensure_here(host, &document)?;
        self.capture(&document, how).await
    }

    /// What lies on another host cannot be saved from here.
    pub(super) fn ensure_here(host: &SessionHost, document: &SessionDocument) -> Result<(), Error> {
        let place = &document.place;
        if place.host == host.name {
            return Ok(());
        }
        let session = &document.session;
        let said = format!("the workspace of `{session}` lies on {}", place.host);
        let hint = format!(
            "run it there, or `stasis session wake {session} --take-over` if that host is gone"
        );
        let failure = failure(ErrorKind::Conflict, said).with_hint(hint);
        Err(failure.into())
    }

    /// Saves a workspace, and lets go of what that replaces.
    pub(super) async fn capture(
        self,
        document: &SessionDocument,
        how: &SnapshotSession,
    ) -> Result<SessionCaptured, Error> {
        let (session, started) = (&document.session, self.clock.uptime());
        let dir = Path::new(&document.place.dir);
        let is_empty = !self.has_roots(document).await?;
        if is_empty && document.snapshot.is_none() {
            return Ok(SessionCaptured::nothing(session));
        }
        self.measure(document, how).await?;
        let engine = self.of(session);
        engine.dirs().ensure_pool().await?;
        let mut command = RepoSave::new(dir, name_of(session));
        command.excludes = document.roots.patterns();
        command.across_filesystems = true;
        command.skip_unchanged = true;
        command.allow_shrink = how.accept_shrink;
        command.cancel = how.cancel.clone();
        command.progress = how.progress.clone();
        let saved = match engine.dirs().save(command.clone()).await {
            Err(Error::Shrunk {
                entries, before, ..
            }) => {
                return Err(self
                    .store_shrunk(session, command, (entries, before))
                    .await?);
            }
            saved => saved?,
        };
        let saved = self.until_still(saved, &command, session).await?;
        let snapshot = self.read_back(session, &saved).await?;
        let noted = self.change(session, |found| {
            found.note_snapshot(&snapshot, self.rng.op_id())
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
            warnings: saved.warnings,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
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
            let noted = self.change(session, |found| {
                found.pruned(&kept.snapshot_id, self.rng.op_id())
            });
            if let Err(error) = noted.await {
                tracing::info!(%session, %error, "that nothing is left to be removed was not written down");
            }
        }
        gone.len() as u64
    }

    /// Whether anything is there that could be saved.
    async fn has_roots(self, document: &SessionDocument) -> Result<bool, Error> {
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
        if found.bytes <= limits.bytes && found.files <= limits.entries {
            return Ok(());
        }
        let largest = found.directories.iter().take(NAMED);
        let largest: Vec<String> = largest
            .map(|(path, bytes)| format!("{path} ({bytes} bytes)"))
            .collect();
        let said = format!(
            "the session `{}` has {} files of {} bytes; {} files and {} bytes are allowed. The largest directories: {}",
            document.session,
            found.files,
            found.bytes,
            limits.entries,
            limits.bytes,
            largest.join(", ")
        );
        let hint = "`--max-bytes` and `--max-entries` allow more";
        Err(failure(ErrorKind::Limit, said).with_hint(hint).into())
    }

    /// Stores what shrank beside the good snapshot, and says that it is not published.
    async fn store_shrunk(
        self,
        session: &SessionRef,
        command: RepoSave,
        (entries, before): (u64, u64),
    ) -> Result<Error, Error> {
        let command = RepoSave {
            allow_shrink: true,
            activates: false,
            reason: SaveReason::Autosave,
            ..command
        };
        let stored = self.of(session).dirs().save(command).await?;
        let id = stored.snapshot_id;
        let said = format!(
            "the session `{session}` has {entries} entries, where its snapshot has {before}: what is there now is stored as {id} and not published"
        );
        self.note_event(EventKind::NotPublished, session, &said)
            .await;
        let hint = "if that is what it should be, say --accept-shrink; otherwise look whether its disk is mounted";
        Ok(failure(ErrorKind::Limit, said).with_hint(hint).into())
    }

    /// What could not be read, or changed while it was, is read again; a snapshot without it would pass for everything there is.
    async fn until_still(
        self,
        mut saved: RepoSaved,
        command: &RepoSave,
        session: &SessionRef,
    ) -> Result<RepoSaved, Error> {
        for _ in 1..ATTEMPTS {
            if missing(&saved).is_none() {
                break;
            }
            saved = self.of(session).dirs().save(command.clone()).await?;
        }
        match missing(&saved) {
            None => Ok(saved),
            Some(missing) => {
                let said =
                    format!("not everything of the session `{session}` could be saved: {missing}");
                Err(failure(ErrorKind::Failed, said).into())
            }
        }
    }

    /// Reads what was published as whoever wakes the session will.
    async fn read_back(
        self,
        session: &SessionRef,
        saved: &RepoSaved,
    ) -> Result<DurableSnapshot, Error> {
        let root = self.of(session).dirs().root();
        let id = &saved.snapshot_id;
        let index = root.index().await?;
        let row = index.as_ref().and_then(|index| {
            let is_published = index.value.is_active(id);
            index.value.find(id).filter(|_| is_published)
        });
        let stored = root.manifest(id).await?;
        let (Some(row), Some((_, digest))) = (row, stored) else {
            return Err(Error::LostManifest(id.clone()));
        };
        if row.manifest_sha256 != digest {
            return Err(Error::LostManifest(id.clone()));
        }
        Ok(DurableSnapshot {
            snapshot_id: id.clone(),
            state_digest: saved.state_digest,
            bytes: row.bytes,
            entries: row.entries,
            at: self.now(),
        })
    }
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
            warnings: Vec::new(),
            elapsed_ms: 0,
        }
    }
}
