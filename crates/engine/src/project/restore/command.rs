//! What is asked of a restore, and what it answers.

use crate::project::services::HookRun;
use crate::repo::Difference;
use crate::warning::Warning;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::id::{ProjectId, ServiceName, SnapshotId, VolumeName};
use stasis_model::tree::EntryPath;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a project becomes, and how.
#[derive(Clone, Debug)]
pub struct ProjectRestore {
    /// `latest`, an id or the beginning of one, or a label.
    pub wanted: String,
    /// Whether what is there now is saved first.
    pub safety: bool,
    /// Only these volumes.
    pub volumes: Vec<VolumeName>,
    /// Only these entries, as they are called in the snapshot.
    pub paths: Vec<EntryPath>,
    /// To another directory, which must not be there; nothing else is touched.
    pub to: Option<PathBuf>,
    /// Only say what would change.
    pub dry_run: bool,
    /// Whether the safety snapshot comes back when a program is not well.
    pub auto_undo: bool,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

impl ProjectRestore {
    /// A restore of everything, with a safety snapshot.
    pub fn new(wanted: impl Into<String>) -> Self {
        Self {
            wanted: wanted.into(),
            safety: true,
            volumes: Vec::new(),
            paths: Vec::new(),
            to: None,
            dry_run: false,
            auto_undo: false,
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }

    /// The entries that are wanted; none when everything is.
    pub(super) fn only(&self) -> Vec<EntryPath> {
        let volumes = self.volumes.iter();
        let volumes = volumes.map(|name| {
            let at = format!("volumes/{name}");
            EntryPath::parse(at.as_bytes()).expect("it is made of names")
        });
        volumes.chain(self.paths.iter().cloned()).collect()
    }
}

/// A project that was restored, or would be.
#[derive(Clone, Debug, Serialize)]
#[must_use = "whether it is well is said only here"]
pub struct ProjectRestored {
    /// Which project.
    pub project: ProjectId,
    /// What it is now.
    pub snapshot_id: SnapshotId,
    /// Where it is.
    pub target: String,
    /// Whether nothing was really done.
    pub dry_run: bool,
    /// Whether only some entries were wanted.
    pub is_part: bool,
    /// What the state derived from when the restore began.
    #[serde(skip)]
    pub(super) seen: Option<SnapshotId>,
    /// What would change, or nothing if it was done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Difference>,
    /// What was there before: the way back.
    pub safety_snapshot_id: Option<SnapshotId>,
    /// Whether that came back, because a program was not well.
    pub undone: bool,
    /// Programs that were stopped and started again.
    pub restarted: Vec<ServiceName>,
    /// What was run before and after.
    pub hooks: Vec<HookRun>,
    /// How many databases were checked and found sound.
    pub databases: u64,
    /// How long it took.
    pub elapsed_ms: u64,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}
