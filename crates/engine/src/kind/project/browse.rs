//! Looking into the snapshots of a directory: what is in one, one file of it, a name through all of them, and what each takes.

use super::{Project, ProjectSnapshot, snapshots};
use crate::bridge;
use crate::catalog::reader::SnapshotReader;
use crate::catalog::{ListedEntry, SnapshotSelector, references};
use crate::error::{Error, ErrorKind, error_chain};
use crate::result::EntryType;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::tree::restore::KeepIf;
use stasis_disk::tree::walk;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::{Indexed, SnapshotIndex};
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::ChunkName;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::tree::EntryPath;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::Arc;

/// One version of an entry, and which snapshots have it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FoundVersion {
    /// The entry, as the first of them has it.
    #[serde(flatten)]
    pub entry: ListedEntry,
    /// The first snapshot that has it so.
    pub first: SnapshotId,
    /// When that was made.
    pub first_at: String,
    /// The last one.
    pub last: SnapshotId,
    /// When that was made.
    pub last_at: String,
    /// How many have it so, one after the other.
    pub snapshots: u64,
}

/// Everything that a name or a pattern fits, in all snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FoundVersions {
    /// By path, the oldest version first.
    pub items: Vec<FoundVersion>,
    /// How many snapshots were looked into.
    pub snapshots: u64,
    /// Snapshots that could not be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableSnapshot>,
}

/// A snapshot that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UnreadableSnapshot {
    /// Which.
    pub snapshot_id: SnapshotId,
    /// Why.
    pub why: String,
}

/// What one snapshot takes of the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SnapshotUse {
    /// Which.
    #[serde(flatten)]
    pub snapshot: ProjectSnapshot,
    /// The stored bytes of everything that it needs.
    pub bytes_stored: u64,
    /// Those that nothing else needs: what `forget` of this one, and gc, would free.
    pub bytes_freed: u64,
}

/// What a directory takes of the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SubjectUse {
    /// Its snapshots, the oldest first.
    pub items: Vec<SnapshotUse>,
    /// The stored bytes of everything that they need together.
    pub bytes_stored: u64,
    /// Those that no other subject needs.
    pub bytes_own: u64,
}

/// Who needs a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChunkNeed {
    /// The snapshot at this place in the index, and nobody else.
    One(usize),
    /// Several snapshots of this subject.
    Own,
    /// Others too.
    Others,
}

impl ChunkNeed {
    /// The same, when somebody needs it too: a snapshot of this subject, or another subject.
    fn and(self, who: Option<usize>) -> Self {
        match (self, who) {
            (Self::One(one), Some(who)) if one == who => self,
            (Self::One(_) | Self::Own, Some(_)) => Self::Own,
            _ => Self::Others,
        }
    }
}

impl Project {
    fn selected(&self, id: &SnapshotId) -> SnapshotSelector {
        SnapshotSelector {
            snapshot: SnapshotRef::Text(id.to_string()),
            name: Some(self.name()),
        }
    }

    /// The entries of a snapshot in `path`, in order.
    pub async fn ls(
        &self,
        wanted: &SnapshotRef,
        path: &EntryPath,
    ) -> Result<Vec<ListedEntry>, Error> {
        let id = self.find(&self.index().await?, wanted).await?;
        self.engine.dirs().ls(&self.selected(&id), path).await
    }

    /// Writes the content of one file of a snapshot.
    pub async fn cat(
        &self,
        wanted: &SnapshotRef,
        path: &EntryPath,
        out: impl Write + Send + 'static,
    ) -> Result<io::Result<u64>, Error> {
        let id = self.find(&self.index().await?, wanted).await?;
        self.engine.dirs().cat(&self.selected(&id), path, out).await
    }

    /// Every version of the entries that a name or a pattern fits, as in a `.gitignore`. Of a directory that fits, what is in it is not
    /// named.
    pub async fn find_all(&self, pattern: &str) -> Result<FoundVersions, Error> {
        let fits = walk::matcher(&[pattern.to_owned()]).map_err(|error| {
            let said = format!("`{pattern}` is no pattern: {}", error_chain(&error));
            Failure::of(ErrorKind::Invalid, said)
                .with_hint("a name, or a pattern as in a .gitignore: `*.rs`, `src/*.rs`, `/README`")
        })?;
        let fits: Arc<KeepIf> = Arc::new(Box::new(fits));
        let index = self.index().await?;
        let mut rows: Vec<&Indexed> = index.snapshots.iter().collect();
        rows.sort_by_key(|row| row.at_ms);
        let mut found: BTreeMap<String, Vec<FoundVersion>> = BTreeMap::new();
        let mut unreadable = Vec::new();
        let mut previous: Option<&SnapshotId> = None;
        for row in rows {
            let entries = match self.fitting(&index, row, Arc::clone(&fits)).await {
                Ok(entries) => entries,
                Err(error) if references::is_damage(&error) => {
                    unreadable.push(UnreadableSnapshot {
                        snapshot_id: row.id.clone(),
                        why: error_chain(&error),
                    });
                    continue;
                }
                Err(error) => return Err(error),
            };
            for entry in entries {
                let versions = found.entry(entry.path.clone()).or_default();
                match versions.last_mut() {
                    Some(last) if Some(&last.last) == previous && is_same(&last.entry, &entry) => {
                        last.last = row.id.clone();
                        last.last_at = row.at_ms.to_string();
                        last.snapshots += 1;
                    }
                    _ => versions.push(FoundVersion {
                        entry,
                        first: row.id.clone(),
                        first_at: row.at_ms.to_string(),
                        last: row.id.clone(),
                        last_at: row.at_ms.to_string(),
                        snapshots: 1,
                    }),
                }
            }
            previous = Some(&row.id);
        }
        Ok(FoundVersions {
            items: found.into_values().flatten().collect(),
            snapshots: index.snapshots.len() as u64,
            unreadable,
        })
    }

    /// The entries of one snapshot that fit.
    async fn fitting(
        &self,
        index: &SnapshotIndex,
        row: &Indexed,
        fits: Arc<KeepIf>,
    ) -> Result<Vec<ListedEntry>, Error> {
        let (dirs, root) = (self.engine.dirs(), self.engine.dirs().root());
        let opened = dirs.open_snapshot(&root, index, &row.id).await?;
        let source = Arc::new(opened.fetcher(&root));
        let reader = SnapshotReader::new(opened.list, source);
        bridge::blocking(move || {
            let mut entries = Vec::new();
            reader.rows(|row| {
                let path = &row.entry.path;
                let is_directory = EntryType::from(&row.entry.kind) == EntryType::Directory;
                let above = path.split_last().map(|(above, _)| above);
                let is_in_one = above.is_some_and(|above| !above.is_root() && fits(&above, true));
                if !path.is_root() && fits(path, is_directory) && !is_in_one {
                    entries.push(ListedEntry::from(&row));
                }
            })?;
            Ok(entries)
        })
        .await
    }

    /// What each of its snapshots takes of the store, and what would be free without it.
    pub async fn du(&self) -> Result<SubjectUse, Error> {
        let index = self.index().await?;
        let needed = self.needed_chunks(&index).await?;
        let sizes = self.engine.dirs().root().chunks().await?;
        let mut items: Vec<SnapshotUse> = snapshots::rows(&index)
            .map(|snapshot| SnapshotUse {
                snapshot,
                bytes_stored: 0,
                bytes_freed: 0,
            })
            .collect();
        let (mut bytes_stored, mut bytes_own) = (0, 0);
        for (name, size) in sizes {
            let Some((need, by)) = needed.get(&name) else {
                continue;
            };
            for at in by {
                items[*at].bytes_stored += size;
            }
            bytes_stored += if by.is_empty() { 0 } else { size };
            if let ChunkNeed::One(at) = need {
                items[*at].bytes_freed += size;
            }
            bytes_own += if *need == ChunkNeed::Others { 0 } else { size };
        }
        Ok(SubjectUse {
            items,
            bytes_stored,
            bytes_own,
        })
    }

    /// Who needs the chunks of the pool: for each, and which snapshots of this subject.
    async fn needed_chunks(
        &self,
        index: &SnapshotIndex,
    ) -> Result<HashMap<ChunkName, (ChunkNeed, Vec<usize>)>, Error> {
        let dirs = self.engine.dirs();
        let own = dirs.root();
        let mut needed: HashMap<ChunkName, (ChunkNeed, Vec<usize>)> = HashMap::new();
        for root in own.pool_roots().await? {
            let is_own = root.layout() == own.layout();
            let there = dirs.index(&root).await?;
            for id in root.manifest_ids().await? {
                if there.tombstones.contains_key(&id) {
                    continue;
                }
                let Some((manifest, _)) = root.manifest(&id).await? else {
                    continue;
                };
                let at = index.snapshots.iter().position(|row| row.id == id);
                let at = at.filter(|_| is_own);
                let all = references::References::default();
                let all = references::add_manifest(&root, manifest, all).await?;
                for name in all.names() {
                    let first = at.map_or(ChunkNeed::Others, ChunkNeed::One);
                    let (need, by) = needed.entry(*name).or_insert((first, Vec::new()));
                    *need = need.and(at);
                    by.extend(at);
                }
            }
        }
        Ok(needed)
    }
}

/// Whether two entries of one path are the same to somebody who looks for a version.
fn is_same(one: &ListedEntry, other: &ListedEntry) -> bool {
    let key = |entry: &ListedEntry| (entry.kind, entry.mode, entry.blake3, entry.target.clone());
    key(one) == key(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_free_without_a_snapshot_only_if_nobody_else_needs_it() {
        assert_eq!(ChunkNeed::One(1).and(Some(1)), ChunkNeed::One(1));
        assert_eq!(ChunkNeed::One(1).and(Some(2)), ChunkNeed::Own);
        assert_eq!(ChunkNeed::Own.and(Some(1)), ChunkNeed::Own);
        assert_eq!(ChunkNeed::One(1).and(None), ChunkNeed::Others);
        assert_eq!(ChunkNeed::Own.and(None), ChunkNeed::Others);
        assert_eq!(ChunkNeed::Others.and(Some(1)), ChunkNeed::Others);
    }
}
