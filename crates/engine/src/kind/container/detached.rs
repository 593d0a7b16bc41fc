//! Snapshots that a process of their own makes, so that nobody waits for them: what became of one is written down beside the locks.

use super::{failure, tenant_option};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_disk::fs::atomic_write::{
    atomic_write, make_private_directory, read_bounded, remove_durably,
};
use stasis_disk::fs::lock_file::{LockAttempt, LockFile};
use stasis_model::failure::AtPath as _;
use stasis_model::id::{SnapshotId, TenantId};
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::time::Timestamp;
use stasis_store::layout::ChunkRoot;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// No such note is longer.
const LONGEST: u64 = 1 << 20;
/// How long a process may take until it says that it is there.
const STARTING: Duration = Duration::from_secs(30);
/// How long is remembered that one was not made.
const REMEMBERED: Duration = Duration::from_hours(7 * 24);

/// A snapshot that is made by a process of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ContainerSaveBegun {
    /// What it will be called.
    pub snapshot_id: SnapshotId,
    /// Whose it will be.
    #[serde(default)]
    pub tenant: TenantId,
    /// The container, as it was named.
    pub container: String,
    /// When it was begun.
    pub begun_at_ms: u64,
    /// Why there is none; nothing as long as it is being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it is called in the end, where that had to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_as: Option<SnapshotId>,
}

/// The note of one that this process makes.
#[derive(Debug)]
#[must_use = "what becomes of it must be written down"]
pub struct DetachedNote {
    path: PathBuf,
    begun: ContainerSaveBegun,
    lock: LockFile,
}

impl Containers<'_> {
    /// Writes down that somebody else shall save a container; says what the snapshot will be called.
    pub async fn begin_detached(
        self,
        tenant: &TenantId,
        container: &str,
    ) -> Result<ContainerSaveBegun, Error> {
        let begun = ContainerSaveBegun {
            snapshot_id: ChunkRoot::new_id(self.lineages.now(), &*self.rng),
            tenant: tenant.clone(),
            container: container.to_owned(),
            begun_at_ms: self.clock.now().millis(),
            error: None,
            made_as: None,
        };
        let path = self.note_path(&begun.snapshot_id).await?;
        let (now, written) = (self.clock.now(), begun.clone());
        bridge::blocking(move || {
            remove_old(&path, now);
            write(&path, &written)
        })
        .await?;
        Ok(begun)
    }

    /// Takes over what somebody else began.
    pub async fn take_detached(self, id: &SnapshotId) -> Result<DetachedNote, Error> {
        let path = self.note_path(id).await?;
        bridge::blocking(move || {
            let begun = read(&path)?;
            let text = format!("process {}", std::process::id());
            match LockFile::take(&lock_of(&path), &text)? {
                LockAttempt::Taken(lock) => Ok(DetachedNote { path, begun, lock }),
                LockAttempt::Held(holder) => {
                    let said = format!("`{}` is being made by {holder}", begun.snapshot_id);
                    Err(failure(ErrorKind::Conflict, said).into())
                }
            }
        })
        .await
    }

    /// What is known of a snapshot that there is not, because somebody else makes it, or did not.
    pub(super) async fn not_yet(self, wanted: &SnapshotRef) -> Option<Error> {
        let SnapshotRef::Text(text) = wanted else {
            return None;
        };
        let (text, place) = (text.clone(), self.notes().await.ok()?);
        let now = self.clock.now();
        bridge::blocking(move || {
            let notes = std::fs::read_dir(&place).ok()?.flatten();
            let mut notes = notes.map(|note| note.path()).filter(|path| is_note(path));
            let path = notes.find(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                text.len() >= 4 && name.starts_with(&text)
            })?;
            let begun = read(&path).ok()?;
            let holder = LockFile::holder(&lock_of(&path));
            let is_young = now.since(Timestamp::from_millis(begun.begun_at_ms)) < STARTING;
            let holder =
                holder.or(is_young.then(|| "a process that has just been started".to_owned()));
            Some(begun.why_not(holder.as_deref()))
        })
        .await
    }

    async fn notes(self) -> Result<PathBuf, Error> {
        let place = self.own_place().await?.join("detached");
        let made = place.clone();
        bridge::blocking(move || make_private_directory(&made)).await?;
        Ok(place)
    }

    async fn note_path(self, id: &SnapshotId) -> Result<PathBuf, Error> {
        Ok(self.notes().await?.join(format!("{id}.json")))
    }
}

impl ContainerSaveBegun {
    fn why_not(&self, holder: Option<&str>) -> Error {
        let (id, container) = (&self.snapshot_id, &self.container);
        if let Some(made) = &self.made_as {
            let said = format!("snapshot `{id}` of `{container}` was made as `{made}`");
            return failure(ErrorKind::NotFound, said).into();
        }
        if let Some(why) = &self.error {
            let said = format!("snapshot `{id}` of `{container}` was not made: {why}");
            return failure(ErrorKind::Failed, said).into();
        }
        if let Some(holder) = holder {
            let since = Timestamp::from_millis(self.begun_at_ms);
            let said =
                format!("snapshot `{id}` of `{container}` is being made by {holder} since {since}");
            let hint = "look again in a moment";
            return failure(ErrorKind::Conflict, said).with_hint(hint).into();
        }
        let said = format!(
            "snapshot `{id}` of `{container}` was not made: whoever made it ended before it was done"
        );
        let hint = format!(
            "`stasis container create {container}{}` makes another one",
            tenant_option(&self.tenant)
        );
        failure(ErrorKind::Failed, said).with_hint(hint).into()
    }
}

impl DetachedNote {
    /// Writes down what became of it. One that is there says so itself.
    pub async fn end(self, made: Result<&SnapshotId, &Error>) {
        let mut begun = self.begun;
        match made {
            Ok(made) if *made != begun.snapshot_id => begun.made_as = Some(made.clone()),
            Ok(_) => {}
            Err(error) => begun.error = Some(error_chain(error)),
        }
        let (path, lock) = (self.path, self.lock);
        let is_there = begun.error.is_none() && begun.made_as.is_none();
        let ended = bridge::blocking(move || {
            let ended = if is_there {
                remove_durably(&path).map_err(Error::from)
            } else {
                write(&path, &begun)
            };
            let _ = remove_durably(&lock_of(&path));
            drop(lock);
            ended
        });
        if let Err(error) = ended.await {
            let error = error_chain(&error);
            tracing::warn!(error, "what became of a snapshot was not written down");
        }
    }
}

fn lock_of(note: &Path) -> PathBuf {
    note.with_extension("lock")
}

fn is_note(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "json")
}

fn write(path: &Path, begun: &ContainerSaveBegun) -> Result<(), Error> {
    let text = serde_json::to_vec_pretty(begun);
    let text = text.map_err(|error| failure(ErrorKind::Bug, error.to_string()))?;
    Ok(atomic_write(path, &text)?)
}

fn read(path: &Path) -> Result<ContainerSaveBegun, Error> {
    let text = read_bounded(path, LONGEST).at("read", path)?;
    serde_json::from_slice(&text).map_err(|error| {
        let said = format!("`{}` is damaged: {error}", path.display());
        failure(ErrorKind::Corrupt, said).into()
    })
}

/// Forgets what nobody asks for any more.
fn remove_old(note: &Path, now: Timestamp) {
    let place = note.parent().unwrap_or(Path::new(""));
    for one in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let path = one.path();
        let begun = Some(&path)
            .filter(|path| is_note(path))
            .and_then(|path| read(path).ok());
        let is_old = begun
            .is_some_and(|begun| now.since(Timestamp::from_millis(begun.begun_at_ms)) > REMEMBERED);
        if is_old && LockFile::holder(&lock_of(&path)).is_none() {
            let _ = remove_durably(&path);
        }
    }
}
