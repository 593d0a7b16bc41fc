//! `metadata.json`: one snapshot. Written once, under a name that was never used.

use super::container::ContainerManifest;
use super::database::{DatabaseManifest, StoredAs};
use super::inline::{InlineAttribute, InlineEntry};
use super::volume::VolumeManifest;
use crate::chunk_name::ChunkName;
use crate::digest::TreeDigest;
use crate::format::document::Document;
use crate::id::{Epoch, Incarnation, Label, OpId, SnapshotId, SubjectName};
use crate::invalid::Invalid;
use crate::time::Timestamp;
use crate::tree::list::{ListRow, Slice, StoredChunk};
use crate::tree::{Attribute, FileTime, Metadata};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A document names so many databases at most.
const MOST_DATABASES: usize = 4096;

/// Lists of up to this many entries stand in the document itself.
pub const INLINE_LIMIT: usize = 32;

/// The document `metadata.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotManifest {
    version: u64,
    /// Features without which it cannot be understood: an unknown one means "refuse".
    #[serde(default)]
    pub incompat: Vec<String>,
    /// Which snapshot.
    pub snapshot_id: SnapshotId,
    /// Of which chain.
    pub name: SubjectName,
    /// When it was made, for users.
    pub timestamp: String,
    /// When it was made.
    pub timestamp_ms: Timestamp,
    /// The state it derives from.
    pub parent_snapshot_id: Option<SnapshotId>,
    /// The snapshot of another store that it is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_from: Option<CopiedFrom>,
    /// What the save was made for.
    pub reason: SaveReason,
    /// Words of the user's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Label>,
    /// Patterns of what was left out: it is no part of the tree, and a restore leaves it alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excludes: Vec<String>,
    /// The same, as the ignore file in the tree said them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignores: Vec<String>,
    /// Whether it lacks on purpose what a save would have taken: volumes that a restore of a part did not touch, or that could not be
    /// captured before a restore. It is something to go back to, and never what `latest` means.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_part: bool,
    /// Whether it was stored and is not what `latest` means, because databases are missing from it that the one before has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_held_back: bool,
    /// The version of the application that wrote the state, where it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_version: Option<Label>,
    /// The parts of the state that were held still in their own way, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_manifests: BTreeMap<String, VolumeManifest>,
    /// The container that it is of, if it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Box<ContainerManifest>>,
    /// The SQLite databases in the tree, by their paths; the first `MOST_DATABASES`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub databases: BTreeMap<String, DatabaseManifest>,
    /// When every database in it was found whole. None for a tree without, or with one that could not be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at_ms: Option<Timestamp>,
    /// What the tree is.
    pub state_digest: TreeDigest,
    /// The life of its subject in which it was made.
    pub incarnation: Incarnation,
    /// The fence's epoch as the save found it.
    pub lease_epoch: Epoch,
    /// The save.
    pub op_id: OpId,
    root: RootMetadata,
    /// How much it is.
    pub totals: Totals,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files: Option<Vec<InlineEntry>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file_list: Option<ListRef>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Document for SnapshotManifest {
    const NAME: &'static str = "metadata.json";
    const LIMIT: usize = 4 << 20;
}

/// What a snapshot is a copy of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CopiedFrom {
    /// Which snapshot of the other store.
    pub snapshot_id: SnapshotId,
    /// The life of its subject there in which it was copied.
    pub incarnation: Incarnation,
}

/// What the save was made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SaveReason {
    /// A user asked for it.
    #[default]
    Manual,
    /// It was time.
    Autosave,
    /// The application is about to change.
    BeforeUpgrade,
    /// The state is about to be replaced.
    BeforeRestore,
    /// Most of a state that is about to be held still: no snapshot of anything, and gone when that is saved.
    FirstPass,
}

impl SaveReason {
    /// Whether a user asked for this save. Only such a snapshot becomes what `latest` means; automatic and safety
    /// snapshots are listed beside it.
    pub fn is_explicit(self) -> bool {
        self == Self::Manual
    }
}

/// How much a snapshot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Totals {
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
    /// Entries of the source that could not be read, or changed while they were.
    pub left_out: u64,
}

impl Totals {
    /// All entries.
    pub fn entries(&self) -> u64 {
        self.files + self.directories + self.symlinks + self.hard_links + self.fifos
    }
}

/// A list that lies in chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListRef {
    /// The chunk that is its root.
    pub root: ChunkName,
    /// The length of that chunk.
    pub length: u32,
}

impl ListRef {
    /// The root as a slice.
    pub fn slice(&self) -> Slice {
        Slice::whole(StoredChunk {
            name: self.root,
            plain_len: self.length,
        })
    }
}

/// Where a snapshot's entries are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileList {
    /// Here.
    Inline(Vec<ListRow>),
    /// In chunks.
    Stored(ListRef),
}

/// What is known of the root directory itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RootMetadata {
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: (i64, u32),
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<InlineAttribute>,
}

impl SnapshotManifest {
    /// A manifest of `list`, made by `op_id`, with everything else to be filled in.
    pub fn new(
        name: SubjectName,
        snapshot_id: SnapshotId,
        op_id: OpId,
        timestamp_ms: Timestamp,
    ) -> Self {
        Self {
            version: Self::VERSION,
            incompat: Vec::new(),
            snapshot_id,
            name,
            timestamp: timestamp_ms.to_string(),
            timestamp_ms,
            parent_snapshot_id: None,
            copied_from: None,
            reason: SaveReason::default(),
            labels: BTreeMap::new(),
            excludes: Vec::new(),
            ignores: Vec::new(),
            is_part: false,
            is_held_back: false,
            app_version: None,
            volume_manifests: BTreeMap::new(),
            container: None,
            databases: BTreeMap::new(),
            checked_at_ms: None,
            state_digest: TreeDigest::from_document([0; 32]),
            incarnation: Incarnation::default(),
            lease_epoch: Epoch::default(),
            op_id,
            root: RootMetadata::from(&Metadata::default()),
            totals: Totals::default(),
            files: Some(Vec::new()),
            file_list: None,
            extra: Map::new(),
        }
    }

    /// The same snapshot in another store, where its tree is `list`, from a subject that lives its life `incarnation`;
    /// what it is there is to be filled in. It gets an id of its
    /// own: ids are used once.
    #[must_use = "the manifest is not changed in place"]
    pub fn copied(
        &self,
        snapshot_id: SnapshotId,
        op_id: OpId,
        list: &FileList,
        incarnation: Incarnation,
    ) -> Self {
        let mut copy = Self {
            copied_from: Some(CopiedFrom {
                snapshot_id: self.snapshot_id.clone(),
                incarnation,
            }),
            snapshot_id,
            op_id,
            parent_snapshot_id: None,
            ..self.clone()
        };
        copy.set_list(list);
        copy
    }

    /// Whether a user asked for it and nothing is missing from it, so that `latest` may mean it.
    pub fn may_be_latest(&self) -> bool {
        self.reason.is_explicit() && !self.is_part && !self.is_held_back
    }

    /// All patterns of what was left out, in the order in which they count.
    pub fn patterns(&self) -> Vec<String> {
        [&self.ignores[..], &self.excludes].concat()
    }

    /// Says which databases are in the tree, as a save at `now` found them.
    pub fn set_databases(&mut self, databases: BTreeMap<String, DatabaseManifest>, now: Timestamp) {
        let is_checked = |one: &DatabaseManifest| one.state == StoredAs::Consistent;
        let is_all = !databases.is_empty() && databases.values().all(is_checked);
        self.checked_at_ms = is_all.then_some(now);
        self.databases = databases.into_iter().take(MOST_DATABASES).collect();
    }

    /// How many databases are stored as one committed state.
    pub fn consistent_databases(&self) -> u64 {
        let is_consistent = |one: &&DatabaseManifest| one.state == StoredAs::Consistent;
        self.databases.values().filter(is_consistent).count() as u64
    }

    /// What is known of the root directory itself.
    pub fn root(&self) -> Metadata {
        let RootMetadata {
            mode,
            uid,
            gid,
            mtime: (seconds, nanos),
            ..
        } = self.root;
        let modified = FileTime { seconds, nanos };
        Metadata {
            mode,
            uid,
            gid,
            modified,
        }
    }

    /// The user's attributes of the root directory.
    pub fn root_attributes(&self) -> Result<Vec<Attribute>, Invalid> {
        self.root
            .xattrs
            .iter()
            .map(InlineAttribute::attribute)
            .collect()
    }

    /// Says what is known of the root directory itself.
    pub fn set_root(&mut self, root: &Metadata, attributes: &[Attribute]) {
        self.root = RootMetadata::from(root);
        self.root.xattrs = attributes.iter().map(InlineAttribute::from).collect();
    }

    /// Says where the entries are.
    pub fn set_list(&mut self, list: &FileList) {
        (self.files, self.file_list) = match list {
            FileList::Inline(rows) => (Some(rows.iter().map(InlineEntry::from).collect()), None),
            FileList::Stored(at) => (None, Some(*at)),
        };
    }

    /// Refuses what only a later build understands.
    pub fn check(&self) -> Result<(), Invalid> {
        match self.incompat.first() {
            None => Ok(()),
            Some(feature) => Err(Invalid::new(format!(
                "the snapshot needs `{feature}`, which this build does not know"
            ))),
        }
    }

    /// Where the entries are.
    pub fn list(&self) -> Result<FileList, Invalid> {
        self.check()?;
        match (&self.files, &self.file_list) {
            (Some(files), None) => super::inline::rows(files).map(FileList::Inline),
            (None, Some(at)) => Ok(FileList::Stored(*at)),
            _ => Err(Invalid::new(
                "the snapshot does not say where its entries are",
            )),
        }
    }
}

impl From<&Metadata> for RootMetadata {
    fn from(metadata: &Metadata) -> Self {
        Self {
            mode: metadata.mode,
            uid: metadata.uid,
            gid: metadata.gid,
            mtime: (metadata.modified.seconds, metadata.modified.nanos),
            xattrs: Vec::new(),
        }
    }
}
