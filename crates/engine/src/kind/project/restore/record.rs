//! What the last restore did to the live directory of a project, so that one word takes it back.
//!
//! *Always true:* the record is of the last restore that changed the directory. It is removed before one touches anything and written when it is
//! over, so that what was interrupted is never taken for what was before it.

use super::{ProjectRestore, ProjectRestored};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use crate::kind::project::Project;
use serde::{Deserialize, Serialize};
use stasis_disk::fs::atomic_write::{atomic_write, remove_durably};
use stasis_model::failure::{AtPath, Failure};
use stasis_model::id::SnapshotId;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const FILE: &str = "last_restore.json";

/// The last restore that changed a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RestoreRecord {
    version: u32,
    /// When it was over, in milliseconds since 1970.
    pub at_ms: u64,
    /// What the directory became.
    pub snapshot_id: SnapshotId,
    /// What it was before.
    pub safety_snapshot_id: SnapshotId,
    /// The entries that were asked for, as paths are displayed; none if that were all.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Those that were left as they are.
    #[serde(default)]
    pub except: Vec<String>,
    /// What `latest` meant before, if that changed.
    latest_before: Option<SnapshotId>,
}

/// What is undone, and how.
#[derive(Clone, Debug, Default)]
pub struct UndoRestore {
    /// Only say what would change.
    pub dry_run: bool,
    /// Entries that are left as they are.
    pub except: Vec<EntryPath>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<stasis_disk::progress::Progress>,
}

impl RestoreRecord {
    const VERSION: u32 = 1;

    fn of(restored: &ProjectRestored, at: Timestamp) -> Option<Self> {
        let safety = restored.safety_snapshot_id.clone()?;
        let asked = [&*restored.new_paths, &*restored.undo_paths].concat();
        Some(Self {
            version: Self::VERSION,
            at_ms: at.millis(),
            snapshot_id: restored.snapshot_id.clone(),
            safety_snapshot_id: safety,
            paths: if restored.paths.is_empty() {
                Vec::new()
            } else {
                asked
            },
            except: restored.except.clone(),
            latest_before: restored.seen.clone(),
        })
    }

    fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.at("read", path)?,
        };
        let record = serde_json::from_slice::<Self>(&bytes).ok();
        // What cannot be read says nothing: the safety snapshots are in the log all the same.
        Ok(record.filter(|record| record.version == Self::VERSION))
    }
}

impl Project {
    fn record_file(&self) -> Option<PathBuf> {
        Some(self.own_place()?.join(FILE))
    }

    /// The last restore that changed the directory, if it can be taken back.
    pub(crate) async fn last_restore(&self) -> Result<Option<RestoreRecord>, Error> {
        let Some(path) = self.record_file() else {
            return Ok(None);
        };
        Ok(bridge::blocking(move || RestoreRecord::read(&path)).await?)
    }

    /// The directory is about to change: what was recorded of another restore is over.
    pub(super) async fn remove_record(&self) -> Result<(), Error> {
        let Some(path) = self.record_file() else {
            return Ok(());
        };
        let removed = bridge::blocking(move || {
            if path.exists() {
                remove_durably(&path)
            } else {
                Ok(())
            }
        });
        Ok(removed.await?)
    }

    /// Writes down what a restore did. The state is what it should be, whatever becomes of that.
    pub(super) async fn record(&self, restored: &ProjectRestored) {
        let now = self.engine.clock.now();
        let record = RestoreRecord::of(restored, now).filter(|_| !restored.undone);
        let (Some(path), Some(record)) = (self.record_file(), record) else {
            return;
        };
        let bytes = serde_json::to_vec_pretty(&record).expect("plain fields are always JSON");
        let written = bridge::blocking(move || atomic_write(&path, &bytes)).await;
        if let Err(error) = written {
            let error = crate::error::error_chain(&error);
            tracing::warn!(error, "could not note how the restore is taken back");
        }
    }

    /// Takes back the last restore that changed the directory: what was there before it is there again, and `latest` means what it
    /// meant. That can be taken back too.
    pub async fn undo_restore(&self, command: UndoRestore) -> Result<ProjectRestored, Error> {
        let record = self.last_restore().await?.ok_or_else(|| {
            let said = "no restore is known that could be taken back";
            let failure = Failure::of(ErrorKind::NotFound, said);
            failure.with_hint("`stasis log` lists what was saved before restores; `stasis restore SNAPSHOT` brings it back")
        })?;
        let paths = |all: &[String]| {
            let all = all.iter().map(|path| path.parse::<EntryPath>());
            all.collect::<Result<Vec<_>, _>>()
        };
        let bad = |error| {
            Failure::of(
                ErrorKind::Corrupt,
                format!("the record of the last restore: {error}"),
            )
        };
        let mut except = paths(&record.except).map_err(bad)?;
        except.extend(command.except);
        let restore = ProjectRestore {
            paths: paths(&record.paths).map_err(bad)?,
            except,
            dry_run: command.dry_run,
            takes_back: true,
            becomes_latest: false,
            cancel: command.cancel,
            progress: command.progress,
            ..ProjectRestore::new(SnapshotRef::Text(record.safety_snapshot_id.to_string()))
        };
        let mut restored = self.restore(restore).await?;
        if !command.dry_run && record.paths.is_empty() && record.except.is_empty() {
            let seen = restored.seen.clone();
            self.adopt(record.latest_before.as_ref(), seen.as_ref(), &mut restored)
                .await;
        }
        Ok(restored)
    }
}
