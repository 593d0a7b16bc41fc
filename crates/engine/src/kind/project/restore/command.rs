//! What is asked of a restore, and what it answers.

use super::record::LatestMove;
use crate::diff::{DifferenceCount, TreeDifference};
use crate::restore::InPlaceChanges;
use crate::result::ServiceHookRun;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::id::{ProjectId, ServiceName, SnapshotId, VolumeName};
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::tree::EntryPath;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a project becomes, and how.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a choice of its own that a user makes"
)]
pub struct ProjectRestore {
    /// `latest`, an id or the beginning of one, or a label.
    pub wanted: SnapshotRef,
    /// Whether what is there now is saved first.
    pub safety: bool,
    /// Only these volumes.
    pub volumes: Vec<VolumeName>,
    /// Only these entries, as they are called in the snapshot.
    pub paths: Vec<EntryPath>,
    /// Entries that are left as they are, with everything in them; a database with its journals.
    pub except: Vec<EntryPath>,
    /// The same for what nobody named: entries that a restore which is taken back did not touch.
    pub untouched: Vec<EntryPath>,
    /// To another directory, which must not be there; nothing else is touched.
    pub to: Option<PathBuf>,
    /// Whether what is written to another directory has its owners, setuid and setgid, where this process may give them.
    pub owner: bool,
    /// Only say what would change.
    pub dry_run: bool,
    /// Whether the safety snapshot comes back when a program is not well.
    pub auto_undo: bool,
    /// Whether `latest` means the snapshot afterwards, if everything was restored. A restore that takes back what another
    /// one did does not choose anything.
    pub becomes_latest: bool,
    /// Whether it takes back what another one did: an entry that the snapshot does not have is removed.
    pub takes_back: bool,
    /// What was shown and agreed to; where something else would change, nothing does.
    pub agreed: Option<Vec<TreeDifference>>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

impl ProjectRestore {
    /// A restore of everything, with a safety snapshot.
    pub fn new(wanted: impl Into<SnapshotRef>) -> Self {
        Self {
            wanted: wanted.into(),
            safety: true,
            volumes: Vec::new(),
            paths: Vec::new(),
            except: Vec::new(),
            untouched: Vec::new(),
            to: None,
            owner: true,
            dry_run: false,
            auto_undo: false,
            becomes_latest: true,
            takes_back: false,
            agreed: None,
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }

    /// Whether nothing of the project is touched: it is written elsewhere, or only shown.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.dry_run || self.to.is_some()
    }
}

impl ProjectRestored {
    /// Whether everything was as it should be already.
    pub fn is_unchanged(&self) -> bool {
        let in_place = self.in_place.as_ref();
        let is_still = in_place.is_some_and(InPlaceChanges::is_nothing);
        is_still && !self.has_servers && !self.undone
    }

    /// Whether `latest` meant another snapshot before, and this one now.
    pub fn is_latest_now(&self) -> bool {
        self.moved_latest && self.seen.as_ref() != Some(&self.snapshot_id)
    }
}

/// An entry that a restore replaced, and that the safety snapshot does not have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SetAsideEntry {
    /// Where it was in the project's state.
    pub path: String,
    /// Where it is now.
    pub kept_at: String,
    /// Why it could not be saved.
    pub reason: String,
}

/// A database that a restore left on its server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct KeptDatabase {
    /// Of which volume.
    pub volume: VolumeName,
    /// Its name on the server.
    pub database: String,
    /// When the restore began that left it.
    pub since: String,
    /// The same in milliseconds.
    pub since_ms: u64,
    /// Whether it was old enough, and is gone now.
    pub removed: bool,
}

/// A project that was restored, or would be.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an answer of its own"
)]
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
    /// Whether that is a directory of its own, and the live one was not touched.
    #[serde(skip)]
    pub is_elsewhere: bool,
    /// Regular files that were written to another directory, and their length.
    #[serde(skip)]
    pub written: Option<(u64, u64)>,
    /// Whether only some entries were wanted.
    pub is_part: bool,
    /// The entries that were asked for, if that were not all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Those of them that were not there before: whoever takes the restore back removes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub new_paths: Vec<String>,
    /// What was there of the others, or was no directory and in their way: whoever takes the restore back restores that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undo_paths: Vec<String>,
    /// The subject that was written to another directory and lies nowhere on this host: that directory is a copy of it, until it
    /// is linked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<String>,
    /// Entries that were left as they are because that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Entries that were changed since the restore which was taken back, and not by it: they stay as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_since: Vec<String>,
    /// Whether `undo` takes it back.
    #[serde(skip)]
    pub can_be_undone: bool,
    /// Whether databases in servers were exchanged.
    #[serde(skip)]
    pub(super) has_servers: bool,
    /// What `latest` meant when the restore began.
    #[serde(skip)]
    pub(super) seen: Option<SnapshotId>,
    /// Whether it means what was restored since.
    #[serde(skip)]
    pub(super) moved_latest: bool,
    /// What an undo made of it.
    #[serde(skip)]
    pub(super) latest_move: Option<LatestMove>,
    /// The entries that whoever takes it back restores or removes, if not all.
    #[serde(skip)]
    pub(super) record_paths: Vec<String>,
    /// What was done to the files of the live directory; none when it was made anew, or nothing was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlaceChanges>,
    /// How many entries differ between what was there before and what was restored; not known without a snapshot of what was there.
    #[serde(skip)]
    pub counted: Option<DifferenceCount>,
    /// What would change, or be written to another directory; nothing if it was done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<TreeDifference>,
    /// What was there before: the way back. None if nothing had to be changed.
    pub safety_snapshot_id: Option<SnapshotId>,
    /// Whether this restore made that snapshot.
    #[serde(skip)]
    pub(super) is_safety_new: bool,
    /// What was there before and could not be saved: it was moved, and is where this says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<SetAsideEntry>,
    /// Entries that the safety snapshot does not have, and why.
    #[serde(skip)]
    pub(super) not_saved: Vec<(EntryPath, String)>,
    /// Databases on servers that this restore and earlier ones left beside those in use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub databases_kept: Vec<KeptDatabase>,
    /// Whether that came back, because a program was not well.
    pub undone: bool,
    /// Programs that were stopped and started again.
    pub restarted: Vec<ServiceName>,
    /// What was run before and after.
    pub hooks: Vec<ServiceHookRun>,
    /// How many databases were checked and found sound.
    pub databases: u64,
    /// How long it took.
    pub elapsed_ms: u64,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}
