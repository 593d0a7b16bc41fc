//! What is in a repository, for whoever wants to look.

use super::port::ChunkFetcher;
use super::reader::SnapshotReader;
use super::references::{self, References};
use super::{FoundSnapshot, OpenedSnapshot, SnapshotSelector, name_of};
use crate::bridge;
use crate::error::Error;
use crate::handle::DirRepo;
use crate::result::EntryType;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::digest::FileDigest;
use stasis_model::format::manifest::Indexed;
use stasis_model::id::{SnapshotId, SubjectName};
use stasis_model::tree::list::ListRow;
use stasis_model::tree::{Entry, EntryKind, EntryPath};
use std::io::{self, Write};
use std::sync::Arc;

/// One snapshot in a listing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoSnapshotRow {
    /// Its id.
    pub snapshot_id: SnapshotId,
    /// Its name.
    pub name: SubjectName,
    /// When it was made.
    pub timestamp: String,
    /// The same in milliseconds.
    pub timestamp_ms: u64,
    /// How many entries it has.
    pub entries: u64,
    /// The length of all its files.
    pub bytes: u64,
    /// Whether it is the newest of its name.
    pub active: bool,
    /// Whether it is kept whatever a policy says.
    pub pinned: bool,
}

/// One entry in a listing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ListedEntry {
    /// Its path; bytes that are no text are written as `\\xNN`.
    pub path: String,
    /// What it is.
    pub kind: EntryType,
    /// Its permissions.
    pub mode: u32,
    /// Its owner; a checkpoint does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// How long it is, if it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// When it changed: seconds and nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime: Option<(i64, u32)>,
    /// Where it leads, if it is a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// What is in it, if it is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blake3: Option<FileDigest>,
}

impl ListedEntry {
    /// Whether it is `above` itself, or lies in it without another directory between; the top is no entry of its own.
    pub fn is_directly_in(&self, above: &EntryPath) -> bool {
        let path = self.path.as_str();
        let (is_top, above) = (above.is_root(), above.to_string());
        if path == above {
            return !is_top;
        }
        if is_top {
            return !path.contains('/');
        }
        let rest = path.strip_prefix(&above);
        let rest = rest.and_then(|rest| rest.strip_prefix('/'));
        rest.is_some_and(|rest| !rest.contains('/'))
    }
}

impl From<&ListRow> for ListedEntry {
    fn from(row: &ListRow) -> Self {
        Self {
            blake3: row.content.as_ref().map(|content| content.digest),
            ..Self::from(&row.entry)
        }
    }
}

impl From<&Entry> for ListedEntry {
    /// Without what is in it, which only the list of a snapshot says.
    fn from(entry: &Entry) -> Self {
        let (size, target) = match &entry.kind {
            EntryKind::File { size } => (Some(*size), None),
            EntryKind::Symlink { target } => (None, Some(text(target))),
            EntryKind::HardLink { to } => (None, Some(to.to_string())),
            _ => (None, None),
        };
        let metadata = &entry.metadata;
        Self {
            path: entry.path.to_string(),
            kind: (&entry.kind).into(),
            mode: metadata.mode,
            uid: Some(metadata.uid),
            gid: Some(metadata.gid),
            size,
            mtime: Some((metadata.modified.seconds, metadata.modified.nanos)),
            target,
            blake3: None,
        }
    }
}

/// Any bytes as text that can be printed.
fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// How large a repository is, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoStats {
    /// Snapshots that the index leads to.
    pub snapshots: u64,
    /// The length of all files in all of them.
    pub bytes: u64,
    /// Chunks that are stored.
    pub chunks: u64,
    /// Bytes of those.
    pub bytes_stored: u64,
    /// Chunks that no snapshot needs.
    pub chunks_unused: u64,
    /// Bytes of those.
    pub bytes_unused: u64,
    /// Chunks that are known to be damaged.
    pub chunks_damaged: u64,
}

impl DirRepo<'_> {
    /// All snapshots, the oldest first.
    pub async fn snapshots(
        self,
        name: Option<&SubjectName>,
    ) -> Result<Vec<RepoSnapshotRow>, Error> {
        let mut rows = Vec::new();
        for (root, index) in self.subjects_here(name).await? {
            let row = |one: &Indexed| RepoSnapshotRow {
                snapshot_id: one.id.clone(),
                name: name_of(&root),
                timestamp: one.at_ms.to_string(),
                timestamp_ms: one.at_ms.millis(),
                entries: one.entries,
                bytes: one.bytes,
                active: index.is_active(&one.id),
                pinned: one.pinned,
            };
            rows.extend(index.snapshots.iter().map(row));
        }
        rows.sort_by_key(|row| row.timestamp_ms);
        Ok(rows)
    }

    /// The snapshot that is meant, to be looked into.
    async fn read_wanted(
        self,
        wanted: &SnapshotSelector,
    ) -> Result<(SnapshotId, SnapshotReader), Error> {
        let (opened, source) = self.open_wanted(wanted).await?;
        let id = opened.manifest.snapshot_id.clone();
        Ok((id, SnapshotReader::new(opened.list, Arc::new(source))))
    }

    pub(crate) async fn open_wanted(
        self,
        wanted: &SnapshotSelector,
    ) -> Result<(OpenedSnapshot, ChunkFetcher), Error> {
        let FoundSnapshot { root, index, id } = self.find(wanted).await?;
        let opened = self.open_snapshot(&root, &index, &id).await?;
        let source = opened.fetcher(&root);
        Ok((opened, source))
    }

    /// The entries of a snapshot beneath `path`, in order.
    pub async fn ls(
        self,
        wanted: &SnapshotSelector,
        path: &EntryPath,
    ) -> Result<Vec<ListedEntry>, Error> {
        let (snapshot, reader) = self.read_wanted(wanted).await?;
        let path = path.clone();
        bridge::blocking(move || {
            let mut entries = Vec::new();
            reader.rows(|row| {
                if row.entry.path.is_within(&path) {
                    entries.push(ListedEntry::from(&row));
                }
            })?;
            if entries.is_empty() && !path.is_root() {
                return Err(no_entry("entry", &path, &snapshot));
            }
            Ok(entries)
        })
        .await
    }

    /// Writes the content of one file of a snapshot.
    pub async fn cat(
        self,
        wanted: &SnapshotSelector,
        path: &EntryPath,
        out: impl Write + Send + 'static,
    ) -> Result<io::Result<u64>, Error> {
        let workers = self.restore_workers();
        let (snapshot, reader) = self.read_wanted(wanted).await?;
        let path = path.clone();
        bridge::blocking(move || match reader.content(&path)? {
            Some(content) => reader.write(&content, workers, out),
            None => Err(no_entry("file", &path, &snapshot)),
        })
        .await
    }

    /// How large the repository is, and why.
    pub async fn stats(self) -> Result<RepoStats, Error> {
        let root = self.root();
        self.settings(&root).await?;
        let mut used = References::default();
        let (mut snapshots, mut bytes) = (0, 0);
        for root in root.pool_roots().await? {
            let index = self.index(&root).await?;
            snapshots += index.snapshots.len() as u64;
            bytes += index.snapshots.iter().map(|one| one.bytes).sum::<u64>();
            for id in root.manifest_ids().await? {
                if index.tombstones.contains_key(&id) {
                    continue;
                }
                if let Some((manifest, _)) = root.manifest(&id).await? {
                    used = references::add_manifest(&root, manifest, used).await?;
                }
            }
        }
        let chunks = root.chunks().await?;
        let unused = chunks
            .iter()
            .filter(|(name, _)| !used.names().contains(name));
        let size = |total: (u64, u64), (_, bytes): &(_, u64)| (total.0 + 1, total.1 + bytes);
        let (chunks_unused, bytes_unused) = unused.fold((0, 0), size);
        let (count, bytes_stored) = chunks.iter().fold((0, 0), size);
        Ok(RepoStats {
            snapshots,
            bytes,
            chunks: count,
            bytes_stored,
            chunks_unused,
            bytes_unused,
            chunks_damaged: root.quarantined().await?.len() as u64,
        })
    }
}

pub(crate) fn no_entry(what: &'static str, path: &EntryPath, snapshot: &SnapshotId) -> Error {
    Error::NoSuchEntry {
        what,
        path: path.to_string(),
        snapshot: snapshot.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_model::tree::Metadata;

    #[test]
    fn one_level_of_a_listing_is_what_lies_directly_in_a_directory() {
        let is_in = |path: &str, above: &str| {
            let entry = Entry {
                path: path.parse().unwrap(),
                kind: EntryKind::Directory,
                metadata: Metadata::default(),
                attributes: Vec::new(),
            };
            ListedEntry::from(&entry).is_directly_in(&above.parse().unwrap())
        };

        assert!(is_in("src", ""));
        assert!(!is_in("src/main.rs", ""));
        assert!(is_in("src", "src"));
        assert!(is_in("src/main.rs", "src"));
        assert!(!is_in("src/cli/mod.rs", "src"));
        assert!(!is_in("srcs", "src"));
        assert!(!is_in("", ""));
    }
}
