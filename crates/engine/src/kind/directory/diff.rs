//! What differs between two snapshots of a directory, wherever they are, or between one and what is there now.

use super::{DirSnapshot, Directory};
use crate::bridge;
use crate::catalog::reader::SnapshotReader;
use crate::diff::TreeDifference;
use crate::error::{Error, OPEN_DIRECTORY, WorkspaceError};
use crate::kind::project::{TableDiff, UncountedDatabase};
use crate::tree_patch::{self, ComparedContent, ContentDiff, PatchTree, ReadFile};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::slots::{StatCache, contents_of_list, manifest};
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::failure::AtPath;
use stasis_model::id::SnapshotId;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::time::Timestamp;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::tree::list::FileContent;
use stasis_model::tree::{EntryKind, EntryPath};
use stasis_model::workspace::CheckpointRef;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// What differs between two snapshots of a directory, or between one and what is there now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DirDiff {
    /// The older side.
    pub before: String,
    /// The newer side; without one, what is there now.
    pub after: Option<String>,
    /// Every entry that differs.
    pub items: Vec<TreeDifference>,
    /// Databases whose tables have other numbers of rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableDiff>,
    /// Databases that could not be counted, or not all of their tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<UncountedDatabase>,
    /// What differs in the contents, as far as that was asked for.
    #[serde(flatten)]
    pub content: ContentDiff,
}

impl Directory {
    /// What it was last known to be: the newest checkpoint, or `latest` if that was saved or restored later. With its time.
    pub async fn newest(&self) -> Result<Option<(DirSnapshot, Timestamp)>, Error> {
        let mut all = Vec::new();
        if let Some(project) = &self.project
            && let Ok(DirSnapshot::Stored(id)) = self.stored(&SnapshotRef::Latest).await
        {
            let rows = project.indexed().await?.into_iter();
            let made = rows.filter(|row| row.id == id).map(|row| row.at_ms).max();
            let record = project.last_restore().await?;
            let restored = record.and_then(|record| record.restored_at(&id));
            let at = made.max(restored).unwrap_or_default();
            all.push((DirSnapshot::Stored(id), at));
        }
        let is_here = |one: &super::Moment| matches!(one.snapshot, DirSnapshot::Checkpoint(_));
        if self.workspace.is_some() {
            let moments = self.moments().await?.into_iter().filter(is_here);
            all.extend(moments.map(|one| (one.snapshot, one.at)));
        }
        Ok(all.into_iter().max_by_key(|(_, at)| *at))
    }

    /// Compares two snapshots, or one with what is there now.
    pub async fn diff(
        &self,
        before: &DirSnapshot,
        after: Option<&DirSnapshot>,
        content: ComparedContent,
    ) -> Result<DirDiff, Error> {
        let within = EntryPath::root();
        self.diff_within(before, after, content, &within).await
    }

    /// The same of one entry and what is in it.
    pub async fn diff_within(
        &self,
        before: &DirSnapshot,
        after: Option<&DirSnapshot>,
        content: ComparedContent,
        within: &EntryPath,
    ) -> Result<DirDiff, Error> {
        let mut diff = self.listed_diff(before, after).await?;
        if !within.is_root() {
            let is_within = |path: &str| {
                let path: Option<EntryPath> = path.parse().ok();
                path.is_some_and(|path| path.is_within(within))
            };
            diff.items.retain(|one| is_within(&one.path));
            diff.tables.retain(|one| is_within(&one.path));
            diff.uncounted.retain(|one| is_within(&one.path));
        }
        if content == ComparedContent::None {
            return Ok(diff);
        }
        let changes = diff.items.iter();
        let changes = changes.filter_map(|one| Some((one.path.parse().ok()?, one.change)));
        let changes: Vec<(EntryPath, ChangeKind)> = changes.collect();
        let paths: BTreeSet<EntryPath> = changes.iter().map(|(path, _)| path.clone()).collect();
        let old = self.patch_tree(before, &paths).await?;
        let new = match after {
            Some(after) => self.patch_tree(after, &paths).await?,
            None => self.live_tree().await?,
        };
        let made = bridge::blocking(move || tree_patch::made(&changes, old, new, content)).await?;
        diff.content = made.into_asked_for();
        Ok(diff)
    }

    /// Which entries differ.
    async fn listed_diff(
        &self,
        before: &DirSnapshot,
        after: Option<&DirSnapshot>,
    ) -> Result<DirDiff, Error> {
        let is_stored = |one: &DirSnapshot| matches!(one, DirSnapshot::Stored(_));
        let (items, tables, uncounted) = if is_stored(before) && after.is_none_or(is_stored) {
            let newer = after.cloned().map(SnapshotRef::from);
            let older = SnapshotRef::from(before.clone());
            let diff = self.project()?.diff(&older, newer.as_ref()).await?;
            (diff.items, diff.tables, diff.uncounted)
        } else {
            let was = self.contents(before).await?;
            let is = match after {
                Some(after) => self.contents(after).await?,
                None => self.workspace()?.contents_now().await?,
            };
            let differing = was.diff(&is).into_iter();
            let items = differing.map(|(path, change)| TreeDifference {
                path: path.to_string(),
                change,
            });
            (items.collect(), Vec::new(), Vec::new())
        };
        Ok(DirDiff {
            before: before.to_string(),
            after: after.map(ToString::to_string),
            items,
            tables,
            uncounted,
            content: ContentDiff::default(),
        })
    }

    /// A snapshot, of which these files may be read.
    async fn patch_tree(
        &self,
        of: &DirSnapshot,
        paths: &BTreeSet<EntryPath>,
    ) -> Result<PatchTree, Error> {
        match of {
            DirSnapshot::Checkpoint(slot) => {
                let which = CheckpointRef::Slot(*slot);
                self.workspace()?.checkpoint_tree(which).await
            }
            DirSnapshot::Stored(id) => self.stored_tree(id, paths.clone()).await,
        }
    }

    async fn stored_tree(
        &self,
        id: &SnapshotId,
        paths: BTreeSet<EntryPath>,
    ) -> Result<PatchTree, Error> {
        let (opened, source) = self.project()?.opened(id).await?;
        bridge::blocking(move || {
            let contents = contents_of_list(&source, &opened.list).map_err(WorkspaceError::from)?;
            let reader = SnapshotReader::new(opened.list, Arc::new(source));
            let held = contents_of(&reader, paths)?;
            let read: ReadFile = Box::new(move |path, _| {
                let Some(content) = held.get(path) else {
                    return Ok(None);
                };
                let mut bytes = Vec::new();
                let written = reader.write(content, NonZeroUsize::MIN, &mut bytes)?;
                written.at("read", Path::new(&path.to_string()))?;
                Ok(Some(bytes))
            });
            Ok(PatchTree {
                contents,
                read: Ok(read),
            })
        })
        .await
    }

    /// What is there now.
    async fn live_tree(&self) -> Result<PatchTree, Error> {
        if let Some(workspace) = &self.workspace {
            let contents = workspace.contents_now().await?;
            return PatchTree::live(contents, workspace.directory());
        }
        let project = self.project()?;
        let live = match &project.home().session {
            Some(_) => project.home().place_to_compare()?,
            None => project.live(),
        };
        bridge::blocking(move || {
            let root = RootDir::open(&live, Mounts::Stay).at(OPEN_DIRECTORY, &live)?;
            // Nothing of it is remembered.
            let mut nothing = StatCache::open(Path::new(""), Timestamp::default());
            let listed = manifest(&root, &mut nothing, &WalkSettings::default());
            let (contents, _) = listed.map_err(WorkspaceError::from)?;
            PatchTree::live(contents, &live)
        })
        .await
    }
}

/// Where the content of these files lies, whichever of its names a file is asked for by.
fn contents_of(
    reader: &SnapshotReader,
    mut wanted: BTreeSet<EntryPath>,
) -> Result<BTreeMap<EntryPath, FileContent>, Error> {
    let (mut held, mut links) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..2 {
        reader.rows(|row| {
            if !wanted.contains(&row.entry.path) {
                return;
            }
            match (row.entry.kind, row.content) {
                (EntryKind::HardLink { to }, _) => {
                    links.insert(row.entry.path, to);
                }
                (_, Some(content)) => {
                    held.insert(row.entry.path, content);
                }
                _ => {}
            }
        })?;
        let first = links.values().filter(|to| !held.contains_key(*to));
        wanted = first.cloned().collect();
        if wanted.is_empty() {
            break;
        }
    }
    for (path, to) in links {
        if let Some(content) = held.get(&to).cloned() {
            held.insert(path, content);
        }
    }
    Ok(held)
}
