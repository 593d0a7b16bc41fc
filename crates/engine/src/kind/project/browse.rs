//! Looking into the snapshots of a directory: what is in one, one file of it, and what each takes.

use super::{Project, ProjectSnapshot, snapshots};
use crate::bridge;
use crate::catalog::reader::SnapshotReader;
use crate::catalog::{ListedEntry, SnapshotSelector, references};
use crate::error::Error;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::manifest::SnapshotIndex;
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::ChunkName;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::tree::EntryPath;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

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
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
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

    /// The entries of a snapshot that are wanted.
    pub(crate) async fn entries_that(
        &self,
        id: &SnapshotId,
        is_wanted: impl Fn(&ListedEntry, &EntryPath) -> bool + Send + 'static,
    ) -> Result<Vec<ListedEntry>, Error> {
        let (opened, source) = self.opened(id).await?;
        let reader = SnapshotReader::new(opened.list, Arc::new(source));
        bridge::blocking(move || {
            let mut entries = Vec::new();
            reader.rows(|row| {
                let entry = ListedEntry::from(&row);
                if is_wanted(&entry, &row.entry.path) {
                    entries.push(entry);
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
