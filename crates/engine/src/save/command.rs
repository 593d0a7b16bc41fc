//! What is asked of a save, and what it answers.

use super::gather::SaveBasis;
use crate::clone::LeftOut;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::chunked::save::SaveReport;
use stasis_disk::progress::Progress;
use stasis_disk::tree::stated::{StatedEntry, StatedMetadata};
use stasis_model::digest::TreeDigest;
use stasis_model::format::manifest::{
    ContainerManifest, SaveReason, SnapshotManifest, StoredAs, VolumeManifest,
};
use stasis_model::id::{Label, SnapshotId, SubjectName};
use stasis_model::tree::EntryPath;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is saved, and how.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct RepoSave {
    /// The directory.
    pub source: PathBuf,
    /// Under which name.
    pub name: SubjectName,
    /// What made somebody save.
    pub reason: SaveReason,
    /// Words of the user's.
    pub labels: BTreeMap<String, Label>,
    /// Gitignore-style patterns of what is left out.
    pub excludes: Vec<String>,
    /// Whether what earlier saves of the name left out is left out too, and so on for later ones.
    pub inherits_excludes: bool,
    /// Whether anything that cannot be read, or changes meanwhile, is an error.
    pub strict: bool,
    /// Whether other filesystems in the source belong to it.
    pub across_filesystems: bool,
    /// Leaves named pipes out, and says which: whoever is at their other end is not saved either.
    pub skip_fifos: bool,
    /// Whether the snapshot becomes `latest` although databases are gone.
    pub force: bool,
    /// Whether a tree may have become much smaller than it was.
    pub allow_shrink: bool,
    /// Whether a tree that is the one of the snapshot before makes no new one.
    pub skip_unchanged: bool,
    /// Whether an explicit save becomes what `latest` means. A snapshot for another reason never does.
    pub activates: bool,
    /// Whether the patterns leave out, for this once, what belongs to the state.
    pub is_part: bool,
    /// Directories that stand in for some of the source.
    pub grafts: Vec<SaveOverlay>,
    /// The directory under whose name this host remembers the tree, if it is not the source.
    pub remembered_as: Option<PathBuf>,
    /// The version of the application that wrote it.
    pub app_version: Option<Label>,
    /// What is known of parts of the tree that were held still.
    pub volumes: BTreeMap<String, VolumeFacts>,
    /// Whether whoever writes to the tree is held still meanwhile: a lock that somebody has is not waited for.
    pub is_still: bool,
    /// What is said elsewhere of entries that are copies which could not be given their owners.
    pub stated: Option<StatedBy>,
    /// The container that it is of, if it is of one.
    pub container: Option<Box<ContainerManifest>>,
    /// What the snapshot is called, if somebody had to know that before; never used twice.
    pub snapshot_id: Option<SnapshotId>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

/// Who says what the owners, permissions, times and attributes of entries are, whatever those of the files are that are read.
#[derive(Clone)]
pub struct StatedBy(Arc<StatedMetadata<'static>>);

impl StatedBy {
    /// What a function says; it says nothing of entries that are as they should be.
    pub fn new(stated: impl Fn(&EntryPath) -> Option<StatedEntry> + Send + Sync + 'static) -> Self {
        Self(Arc::new(stated))
    }

    pub(super) fn metadata(&self) -> &StatedMetadata<'static> {
        &*self.0
    }
}

impl fmt::Debug for StatedBy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("StatedBy").finish_non_exhaustive()
    }
}

/// A directory that is saved in the place of one that is in the source.
#[derive(Clone, Debug)]
pub struct SaveOverlay {
    /// Where in the source.
    pub at: EntryPath,
    /// The directory.
    pub directory: PathBuf,
}

/// What is known of a part of the tree before it is saved.
#[derive(Clone, Debug)]
pub struct VolumeFacts {
    /// Where in the tree.
    pub at: EntryPath,
    /// Whether what is read there is a copy already; databases in it are not copied again then.
    pub is_copy: bool,
    /// Everything but its size and its digest.
    pub manifest: VolumeManifest,
}

impl RepoSave {
    /// A save of a directory under a name, with nothing special about it.
    pub fn new(source: impl Into<PathBuf>, name: SubjectName) -> Self {
        Self {
            source: source.into(),
            name,
            reason: SaveReason::Manual,
            labels: BTreeMap::new(),
            excludes: Vec::new(),
            inherits_excludes: false,
            strict: false,
            across_filesystems: false,
            skip_fifos: false,
            force: false,
            allow_shrink: false,
            skip_unchanged: false,
            activates: true,
            is_part: false,
            grafts: Vec::new(),
            remembered_as: None,
            app_version: None,
            volumes: BTreeMap::new(),
            is_still: false,
            stated: None,
            container: None,
            snapshot_id: None,
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }
}

/// A live database that no consistent copy was made of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct NotConsistent {
    /// Where in the tree.
    pub path: String,
    /// How it is stored all the same: always `crash_consistent`.
    pub stored_as: StoredAs,
    /// Why there is no copy.
    pub reason: String,
}

/// A snapshot that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was left out is said only here"]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct RepoSaved {
    /// Its id.
    pub snapshot_id: SnapshotId,
    /// Its name.
    pub name: SubjectName,
    /// What it derives from.
    pub parent_snapshot_id: Option<SnapshotId>,
    /// What the tree is.
    pub state_digest: TreeDigest,
    /// Whether the tree is the one of the snapshot before.
    pub unchanged: bool,
    /// Whether a snapshot was made; otherwise the one before, which is named here, is all that is needed.
    pub published: bool,
    /// Regular files.
    pub files: u64,
    /// Directories, without the root.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Named pipes.
    pub fifos: u64,
    /// The length of all files, holes included.
    pub bytes: u64,
    /// Entries that could not be read, or changed while they were.
    pub left_out: u64,
    /// Attributes that are not the user's, of entries that were looked at: they are not saved.
    pub attributes_left_out: u64,
    /// Files that were read.
    pub files_read: u64,
    /// Bytes of those.
    pub bytes_read: u64,
    /// Files that were taken from the newest checkpoint of the workspace that the directory is, and not read there.
    pub files_held: u64,
    /// Files whose content is new.
    pub files_new: u64,
    /// Chunks that were stored.
    pub chunks_new: u64,
    /// Bytes of those, as they are stored.
    pub bytes_stored: u64,
    /// Chunks that were damaged or missing and were stored again, so that earlier snapshots are whole too.
    pub chunks_healed: u64,
    /// Chunks of earlier snapshots that were found damaged or missing and could not be stored again. This snapshot does not
    /// refer to them; they are entered in the quarantine.
    pub chunks_damaged: u64,
    /// Entries that a pattern excluded.
    pub excluded: u64,
    /// Places in the tree that are Stasis's own, such as a store, and were left out.
    pub own_places: Vec<String>,
    /// Whether it is stored encrypted.
    pub encrypted: bool,
    /// The first thousand entries that were left out, by name.
    pub left_out_entries: Vec<LeftOut>,
    /// SQLite databases in the tree that are stored as one committed state, checked.
    pub databases: u64,
    /// Whether `latest` means it.
    pub is_latest: bool,
    /// Databases of the snapshot before, or of declared volumes, that are not in it.
    pub lost_databases: Vec<LostDatabase>,
    /// SQLite databases that are not.
    pub not_consistent: Vec<NotConsistent>,
    /// How long it took.
    pub elapsed_ms: u64,
    /// What the caller should know although it was saved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

impl RepoSaved {
    /// What is told of a snapshot whose parent is the tree `parent`.
    pub(super) fn new(
        manifest: &SnapshotManifest,
        parent: Option<TreeDigest>,
        report: &SaveReport,
        elapsed_ms: u64,
    ) -> Self {
        let totals = &manifest.totals;
        Self {
            snapshot_id: manifest.snapshot_id.clone(),
            name: manifest.name.clone(),
            parent_snapshot_id: manifest.parent_snapshot_id.clone(),
            state_digest: manifest.state_digest,
            unchanged: parent == Some(manifest.state_digest),
            published: true,
            files: totals.files,
            directories: totals.directories,
            symlinks: totals.symlinks,
            hard_links: totals.hard_links,
            fifos: totals.fifos,
            bytes: totals.bytes,
            left_out: totals.left_out,
            attributes_left_out: report.attributes_left_out,
            files_read: report.files_read,
            bytes_read: report.bytes_read,
            files_held: report.files_held,
            files_new: report.files_new,
            chunks_new: report.chunks_new,
            bytes_stored: report.bytes_stored,
            chunks_healed: 0,
            chunks_damaged: 0,
            excluded: report.walk.excluded,
            own_places: Vec::new(),
            encrypted: false,
            left_out_entries: LeftOut::of(&report.walk),
            is_latest: true,
            lost_databases: Vec::new(),
            databases: manifest.consistent_databases(),
            not_consistent: report
                .inconsistent
                .iter()
                .map(|one| NotConsistent {
                    path: one.path.to_string(),
                    stored_as: StoredAs::CrashConsistent,
                    reason: one.why.clone(),
                })
                .collect(),
            elapsed_ms,
            warnings: Vec::new(),
        }
    }

    /// What is told of where it is stored, and of what a save knew before it read the tree.
    pub(super) fn is_stored_in(&mut self, began: &SaveBasis) {
        self.encrypted = began.repo.is_encrypted();
        self.own_places = began.own.iter().map(ToString::to_string).collect();
    }
}

/// What became of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LostHow {
    /// There is no such file any more.
    Deleted,
    /// There is nothing in the file.
    Emptied,
    /// The file is something else.
    Overwritten,
    /// SQLite finds damage in it.
    Damaged,
}

impl LostHow {
    /// The same for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Deleted => "it is gone",
            Self::Emptied => "it is empty",
            Self::Overwritten => "it is no SQLite database any more",
            Self::Damaged => "it is damaged, and was not",
        }
    }
}

/// A database that should be there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LostDatabase {
    /// Where.
    pub path: String,
    /// What is there instead.
    pub how: LostHow,
}
