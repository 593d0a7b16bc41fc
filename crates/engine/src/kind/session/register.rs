//! Registers sessions, hears that they are in use, and lets them go.

use super::memory;
use super::sandbox::SandboxRequest;
use super::{SessionHost, failed, failure, refused};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Sessions;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::{AtPath, OPEN_DIRECTORY};
use stasis_model::format::event::EventKind;
use stasis_model::format::manifest::{IndexRefusal, SnapshotIndex};
use stasis_model::id::{OpId, SessionRef, SnapshotId};
use stasis_model::protocol::operation::IndexOperation;
use stasis_model::session::document::{Sandbox, SessionDocument, SessionPlace, SessionState};
use stasis_model::session::roots::SessionRoots;
use stasis_model::session::step::{Registration, SessionRefusal};
use stasis_store::documents::sessions;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A session that runs from now on.
#[derive(Clone, Debug)]
pub struct RegisterSession {
    /// Which.
    pub session: SessionRef,
    /// Its workspace.
    pub dir: PathBuf,
    /// What of that is saved; as it was, or the usual ones, when not said.
    pub roots: Option<SessionRoots>,
    /// What runs it; what ran it before, when not said.
    pub sandbox: Option<SandboxRequest>,
    /// After how long without a heartbeat it is idle; as it was, or an hour, when not said.
    pub idle_timeout: Option<Duration>,
}

/// A session that was registered, or beat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionRegistered {
    /// Which.
    pub session: SessionRef,
    /// Where it stands.
    pub state: SessionState,
    /// Its workspace.
    pub dir: String,
    /// What of that is saved.
    pub roots: Vec<String>,
    /// Entries of the workspace that are in no root, and are not saved; the first few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_saved: Vec<String>,
    /// When it is idle unless it beats before.
    pub idle_at: String,
    /// The same in milliseconds since 1970.
    pub idle_at_ms: u64,
}

/// A session that was deleted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SessionDeleted {
    /// Which.
    pub session: SessionRef,
    /// Whether it was there.
    pub was_there: bool,
    /// How many snapshots went with it.
    pub snapshots: u64,
}

/// A session that has no snapshot any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SnapshotDeleted {
    /// Which.
    pub session: SessionRef,
    /// The snapshots that went; none if there was none.
    pub deleted: Vec<SnapshotId>,
}

impl SessionRegistered {
    fn of(document: &SessionDocument) -> Self {
        let timeout = Duration::from_millis(document.idle_timeout_ms);
        let idle_at = document.idle_since().plus(timeout);
        Self {
            session: document.session.clone(),
            state: document.state,
            dir: document.place.dir.clone(),
            roots: document.roots.names().to_vec(),
            not_saved: Vec::new(),
            idle_at: idle_at.to_string(),
            idle_at_ms: idle_at.millis(),
        }
    }
}

impl Sessions<'_> {
    /// Registers a session, or tells a running one anew what runs it.
    pub async fn register(
        self,
        host: &SessionHost,
        command: RegisterSession,
    ) -> Result<SessionRegistered, Error> {
        self.store().ensure_trusted().await?;
        let dir = whole(&command.dir).await?;
        self.ensure_free(host, &dir, &command.session).await?;
        let found = sessions::session(&*self.bucket, &command.session).await?;
        let found = found.map(|found| found.value);
        if let Some(found) = &found {
            self.ensure_its_workspace(host, found, &dir).await?;
        }
        let sandbox = match &command.sandbox {
            Some(request) => Some(request.resolve(host, &command.session).await?),
            None => None,
        };
        let new = Registration {
            session: command.session.clone(),
            place: SessionPlace {
                host: host.name.clone(),
                dir,
            },
            roots: command.roots,
            sandbox,
            idle_timeout: command.idle_timeout,
        };
        let (now, op_id) = (self.now(), self.rng.op_id());
        let rule =
            |found: Option<&SessionDocument>| SessionDocument::register(found, &new, now, op_id);
        let will_be = rule(found.as_ref()).map_err(refused)?;
        self.ensure_one_sandbox(host, &will_be).await?;
        self.announce(host, &will_be).await?;
        let registered = sessions::change(&*self.bucket, &new.session, op_id, rule).await;
        let registered = registered.map_err(failed)?;
        if !registered.runs_as(&will_be) {
            // It was another one meanwhile.
            self.announce(host, &registered).await?;
        }
        let was = found.filter(|was| was.sandbox_identity() != registered.sandbox_identity());
        if let Some(was) = &was {
            self.leave_process(was).await;
        }
        // One that is only started when it is woken has not ended.
        let is_started = |sandbox: &Sandbox| !sandbox.is_not_started();
        if new.sandbox.as_ref().is_some_and(is_started) {
            self.ensure_goes_on((host, false), (&registered, false))
                .await?;
        }
        Ok(SessionRegistered {
            not_saved: outside_roots(&registered).await,
            ..SessionRegistered::of(&registered)
        })
    }

    /// Refuses a directory that is the workspace of another session: each would save, and replace, what is the other's.
    pub(super) async fn ensure_free(
        self,
        host: &SessionHost,
        dir: &str,
        session: &SessionRef,
    ) -> Result<(), Error> {
        for known in memory::workspaces_at(host, dir).await {
            let other = &known.session;
            if other == session {
                continue;
            }
            let found = sessions::session(&*self.bucket, other).await?;
            let found = found.map(|found| found.value);
            let is_there = found.is_some_and(|found| {
                let is_being_woken = found.state == SessionState::Provisioning;
                // Whatever this host was called then.
                let is_here = found.place.host.as_str() == known.host;
                let lies_there = is_here && found.place.dir == known.dir;
                found.is_alive()
                    && (lies_there || is_being_woken && found.claimed(self.now()).is_some())
            });
            if is_there {
                return Err(memory::is_of_another(dir, &known.dir, other));
            }
        }
        Ok(())
    }

    /// Whether what lies in the place of a session's workspace is that workspace, and not another directory that is called the same: a disk
    /// that is not mounted, a machine that was made anew.
    pub(super) async fn is_its_workspace(
        self,
        host: &SessionHost,
        document: &SessionDocument,
    ) -> Result<bool, Error> {
        let (session, dir) = (&document.session, &document.place.dir);
        let path = PathBuf::from(dir);
        if !bridge::blocking(move || path.is_dir()).await {
            return Ok(false);
        }
        if memory::is_same_workspace(host, session, dir).await == Some(true) {
            return Ok(true);
        }
        let saved = document.snapshot.as_ref().map_or(0, |one| one.entries);
        Ok(saved == 0 || self.has_roots(document).await?)
    }

    /// Refuses to go on with a running session in a directory that is not its workspace any more.
    async fn ensure_its_workspace(
        self,
        host: &SessionHost,
        found: &SessionDocument,
        dir: &str,
    ) -> Result<(), Error> {
        let session = &found.session;
        let runs_there = found.is_alive()
            && found.state == SessionState::Running
            && found.place.host == host.name
            && found.place.dir == dir;
        if !runs_there || self.is_its_workspace(host, found).await? {
            return Ok(());
        }
        let said = format!("`{dir}` holds nothing of `{session}`, which has a snapshot");
        let hint = format!(
            "is its disk mounted? `stasis session wake {session}` brings back what its snapshot has"
        );
        Err(failure(ErrorKind::Conflict, said).with_hint(hint).into())
    }

    /// Hears that a session is in use.
    ///
    /// From a host that had it, and of which it was taken over since, it is refused: that one's work is saved by nobody.
    pub async fn heartbeat(
        self,
        host: &SessionHost,
        session: &SessionRef,
    ) -> Result<SessionRegistered, Error> {
        if memory::had(host, session).await {
            let document = self.read(session).await?;
            let place = document.place.clone();
            if document.state == SessionState::Running && place.host != host.name {
                let session = session.clone();
                return Err(refused(SessionRefusal::Running { session, place }));
            }
        }
        self.beat(session).await
    }

    /// Hears it from whoever runs it, wherever that is.
    pub async fn beat(self, session: &SessionRef) -> Result<SessionRegistered, Error> {
        let beaten = self
            .change(session, |found, op_id| found.heartbeat(self.now(), op_id))
            .await;
        Ok(SessionRegistered::of(&beaten.map_err(failed)?))
    }

    /// Deletes a session with its snapshot; a second time does nothing. Its sandbox and its workspace stay.
    pub async fn delete(self, session: &SessionRef) -> Result<SessionDeleted, Error> {
        self.store().ensure_trusted().await?;
        let found = sessions::session(&*self.bucket, session).await?;
        let was_there = found.as_ref().is_some_and(|found| found.value.is_alive());
        if let Some(found) = found.filter(|_| was_there) {
            let deleted = self.change(session, |found, op_id| found.delete(self.now(), op_id));
            deleted.await.map_err(failed)?;
            self.leave_sandbox(&found.value).await;
        }
        let snapshots = self.let_go_of_all(session).await?.len() as u64;
        if was_there {
            let said = format!("{snapshots} snapshots went with it");
            self.note_event(EventKind::SessionDeleted, session, &said)
                .await;
        }
        Ok(SessionDeleted {
            session: session.clone(),
            was_there,
            snapshots,
        })
    }

    /// Deletes the snapshot of a session; a second time does nothing.
    pub async fn delete_snapshot(self, session: &SessionRef) -> Result<SnapshotDeleted, Error> {
        self.store().ensure_trusted().await?;
        let document = self.read(session).await?;
        if document.snapshot.is_some() {
            let changed = self.change(session, |found, op_id| {
                found.without_snapshot(self.now(), op_id)
            });
            changed.await.map_err(failed)?;
        }
        let deleted = self.let_go_of_all(session).await?;
        if !deleted.is_empty() {
            let said = "its snapshot was deleted on request";
            self.note_event(EventKind::Delete, session, said).await;
        }
        Ok(SnapshotDeleted {
            session: session.clone(),
            deleted,
        })
    }

    /// Lets every snapshot of a session go that was published before `kept`, and finishes what was begun before; says which, and whether
    /// nothing of them is left.
    pub(super) async fn prune(
        self,
        session: &SessionRef,
        kept: &SnapshotId,
    ) -> Result<(Vec<SnapshotId>, bool), Error> {
        let root = self.of(session).dirs().root();
        let Some(index) = root.index().await? else {
            return Ok((Vec::new(), true));
        };
        let index = index.value;
        // Oldest first. A newer one, of somebody who was faster, is not ours to judge.
        let rows = index.snapshots.iter().take_while(|one| one.id != *kept);
        let rows = rows.filter(|one| !index.is_active(&one.id));
        let going: Vec<SnapshotId> = rows.map(|one| one.id.clone()).collect();
        let (op_id, now) = (self.rng.op_id(), self.now());
        let forget = |index: &SnapshotIndex| index.forget(&going, now, op_id);
        let is_all = self.bury(session, &index, &going, (op_id, forget)).await?;
        Ok((going, is_all))
    }

    /// Lets a snapshot go that was made just now and is not published. What cannot be removed goes with the next prune.
    pub(super) async fn discard(self, session: &SessionRef, id: &SnapshotId) {
        let root = self.of(session).dirs().root();
        let discarded = async {
            let Some(index) = root.index().await? else {
                return Ok(true);
            };
            let (op_id, now, going) = (self.rng.op_id(), self.now(), [id.clone()]);
            let forget = |index: &SnapshotIndex| index.forget(&going, now, op_id);
            self.bury(session, &index.value, &going, (op_id, forget))
                .await
        };
        if let Err(error) = discarded.await {
            let error: Error = error;
            let error = error_chain(&error);
            tracing::warn!(%session, snapshot = %id, error, "a snapshot without everything was not removed yet");
        }
    }

    /// Lets all snapshots of a session go.
    async fn let_go_of_all(self, session: &SessionRef) -> Result<Vec<SnapshotId>, Error> {
        let root = self.of(session).dirs().root();
        let Some(index) = root.index().await? else {
            return Ok(Vec::new());
        };
        let index = index.value;
        let going: Vec<SnapshotId> = index.snapshots.iter().map(|one| one.id.clone()).collect();
        let (op_id, now) = (self.rng.op_id(), self.now());
        let delete = |index: &SnapshotIndex| index.delete(now, op_id);
        self.bury(session, &index, &going, (op_id, delete)).await?;
        Ok(going)
    }

    /// Removes snapshots: tombstone, then the manifest, then the tombstone. A manifest that is missing counts as removed; where one could
    /// not be, its tombstone stays, and whoever comes next goes on: says whether all are gone. Chunks go with the next gc of the tenant.
    async fn bury(
        self,
        session: &SessionRef,
        index: &SnapshotIndex,
        going: &[SnapshotId],
        (op_id, rule): (
            OpId,
            impl Fn(&SnapshotIndex) -> Result<SnapshotIndex, IndexRefusal>,
        ),
    ) -> Result<bool, Error> {
        let engine = self.of(session);
        let (root, operations) = (engine.dirs().root(), engine.operations());
        let mut tombstones: BTreeSet<SnapshotId> = index.tombstones.keys().cloned().collect();
        if !going.is_empty() {
            let changed = root.change(op_id, rule).await;
            operations
                .known(IndexOperation::Forget, &root, changed)
                .await?;
            tombstones.extend(going.iter().cloned());
        }
        let mut left = BTreeSet::new();
        for id in &tombstones {
            if let Err(error) = root.remove_manifest(id).await {
                tracing::warn!(%session, snapshot = %id, %error, "a snapshot that was let go could not be removed yet");
                left.insert(id.clone());
            }
        }
        if left.len() == tombstones.len() {
            return Ok(left.is_empty());
        }
        // A tombstone of somebody who came since is not ours.
        let (op_id, since) = (self.rng.op_id(), self.now().plus(Duration::from_millis(1)));
        let drop = |index: &SnapshotIndex| {
            let others = index
                .tombstones
                .keys()
                .filter(|id| !tombstones.contains(id));
            let kept = left.iter().chain(others).cloned().collect();
            Ok(index.without_tombstones(since, &kept, op_id))
        };
        let changed = root.change(op_id, drop).await;
        operations.known(IndexOperation::Gc, &root, changed).await?;
        Ok(left.is_empty())
    }
}

/// Entries at the top of a workspace that no root has; the first few, and none where it cannot be read.
pub(super) async fn outside_roots(document: &SessionDocument) -> Vec<String> {
    const NAMED: usize = 5;
    let (dir, roots) = (PathBuf::from(&document.place.dir), document.roots.clone());
    bridge::blocking(move || {
        let entries = dir.read_dir().into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let is_in_root = |name: &String| {
            let mut roots = roots.names().iter();
            roots.any(|root| root.split('/').next() == Some(name))
        };
        let mut left: Vec<String> = names.filter(|name| !is_in_root(name)).collect();
        if roots.is_everything() {
            left.clear();
        }
        left.sort();
        left.truncate(NAMED);
        left
    })
    .await
}

/// A directory by its full name, which must be text.
pub(super) async fn whole(dir: &Path) -> Result<String, Error> {
    let dir = dir.to_owned();
    let found = bridge::blocking(move || {
        let whole = dir.canonicalize().at(OPEN_DIRECTORY, &dir)?;
        if !whole.is_dir() {
            let said = format!("`{}` is not a directory", dir.display());
            return Err(failure(ErrorKind::Invalid, said));
        }
        Ok(whole)
    });
    let found = found.await?;
    let text = found.to_str().map(str::to_owned);
    let not_text = || {
        let said = format!("the name of `{}` is not UTF-8", found.display());
        Error::from(failure(ErrorKind::Invalid, said))
    };
    text.ok_or_else(not_text)
}
