//! What differs: between two snapshots, or between a snapshot and what is there now.

use super::capture::ProjectCapture;
use super::row_counts::{ComparedRows, RowComparison, TableDiff, UncountedDatabase};
use super::same_databases::StoredDatabases;
use super::save::ProjectSave;
use super::{Declared, Project};
use crate::bridge;
use crate::catalog::SnapshotSelector;
use crate::diff::TreeDifference;
use crate::error::{Error, OPEN_DIRECTORY};
use crate::restore::RepoRestore;
use crate::save::matcher;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::form::chunked::ChunkError;
use stasis_disk::form::chunked::databases::{holds_changes, owner_name};
use stasis_disk::form::chunked::list::ListReader;
use stasis_disk::fs::metadata;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::{self, WalkSettings};
use stasis_model::failure::AtPath;
use stasis_model::format::manifest::{SaveReason, SnapshotManifest};
use stasis_model::id::SnapshotId;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use std::ffi::CString;
use std::os::fd::AsFd;

/// What differs, and between what.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProjectDiff {
    /// The older side.
    pub before: SnapshotId,
    /// The newer side; without one, what is there now.
    pub after: Option<SnapshotId>,
    /// Every entry that differs.
    pub items: Vec<TreeDifference>,
    /// Databases whose tables have other numbers of rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableDiff>,
    /// Databases that could not be counted, or not all of their tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<UncountedDatabase>,
}

impl Project {
    /// Compares two snapshots, or one with what is there now.
    pub async fn diff(
        &self,
        before: &SnapshotRef,
        after: Option<&SnapshotRef>,
    ) -> Result<ProjectDiff, Error> {
        let index = self.index().await?;
        let before = self.resolve(&index, before)?;
        let Some(after) = after else {
            let compared = self.compared_with_now(&before).await?.into_iter();
            let entries = compared.map(|(path, change)| difference(&path, change));
            return Ok(ProjectDiff {
                before,
                after: None,
                items: entries.collect(),
                tables: Vec::new(),
                uncounted: Vec::new(),
            });
        };
        let after = self.resolve(&index, after)?;
        let (old, new) = (self.wanted(&before), self.wanted(&after));
        let entries = self.engine.dirs().diff(&old, &new).await?;
        let rows = self.rows(&before, &after, &entries).await?;
        Ok(ProjectDiff {
            before,
            after: Some(after),
            items: entries,
            tables: rows.tables,
            uncounted: rows.uncounted,
        })
    }

    pub(super) fn wanted(&self, id: &SnapshotId) -> SnapshotSelector {
        SnapshotSelector {
            snapshot: SnapshotRef::Text(id.to_string()),
            name: Some(self.name()),
        }
    }

    /// What differs between a snapshot and what a save would find now, in the order of paths.
    pub(super) async fn compared_with_now(
        &self,
        id: &SnapshotId,
    ) -> Result<Vec<(EntryPath, ChangeKind)>, Error> {
        self.compared_as(self.home.declared.as_ref(), id, &[]).await
    }

    /// The same, with only some of the volumes captured in their own way.
    pub(super) async fn compared_as(
        &self,
        declared: Option<&Declared>,
        id: &SnapshotId,
        named: &[EntryPath],
    ) -> Result<Vec<(EntryPath, ChangeKind)>, Error> {
        let Some(declared) = declared.filter(|declared| declared.current().is_dir()) else {
            return self.compared(id, None, named).await;
        };
        let command = ProjectSave::new(SaveReason::Manual);
        let capture = ProjectCapture::begin(self, declared).await?;
        let capture = self.databases(declared, &command, capture).await?;
        let capture = self.clones(declared, &command, capture).await?;
        self.compared(id, Some(capture), named).await
    }

    async fn compared(
        &self,
        id: &SnapshotId,
        capture: Option<ProjectCapture>,
        named: &[EntryPath],
    ) -> Result<Vec<(EntryPath, ChangeKind)>, Error> {
        let index = self.index().await?;
        let root = self.engine.dirs().root();
        let opened = self.engine.dirs().open_snapshot(&root, &index, id).await?;
        let dir = match &self.home.declared {
            Some(declared) => declared.current(),
            None => self.home.place_to_compare()?,
        };
        let left_alone = if named.is_empty() {
            self.engine.dirs().patterns_now(&root, &index, &dir).await?
        } else {
            // Whoever names an entry wants it, whatever saves do.
            Vec::new()
        };
        let settings = WalkSettings {
            // What the snapshot never had, a restore leaves alone.
            excludes: opened.manifest.patterns(),
            ..WalkSettings::default()
        };
        let source = opened.fetcher(&root);
        let spool = self.engine.captures();
        bridge::blocking(move || {
            let listed = ListReader::new(&source, &opened.list)?.entries();
            if !dir.exists() {
                let gone = listed.map(|one| Ok((one?.entry.path, ChangeKind::Removed)));
                return gone.collect();
            }
            let place = capture.as_ref().map_or(&*dir, |one| &*one.root);
            let mut live = RootDir::open(place, Mounts::Stay).at(OPEN_DIRECTORY, place)?;
            for graft in capture.iter().flat_map(|one| &one.grafts) {
                let opened = RootDir::open(&graft.directory, Mounts::Stay);
                let opened = opened.and_then(|opened| opened.directory(b""));
                let grafted = opened.and_then(|opened| live.with_overlay(graft.at.clone(), opened));
                live = grafted.at(OPEN_DIRECTORY, &graft.directory)?;
            }
            let (entries, _) = walk::list(&live, &settings).map_err(ChunkError::from)?;
            let databases = StoredDatabases::of(&opened.manifest);
            let mut found = databases.compare(&live, entries, listed, &spool)?;
            let is_shown = shown(&opened.manifest, &left_alone, &live)?;
            found.retain(|(path, change)| is_shown(path, *change));
            Ok(found)
        })
        .await
    }

    /// Counts the rows of databases that differ.
    async fn rows(
        &self,
        before: &SnapshotId,
        after: &SnapshotId,
        entries: &[TreeDifference],
    ) -> Result<ComparedRows, Error> {
        let changed = entries
            .iter()
            .filter(|entry| entry.change == ChangeKind::Content);
        let paths: Vec<EntryPath> = changed
            .filter(|entry| is_like_a_database(&entry.path))
            .filter_map(|entry| EntryPath::parse(entry.path.as_bytes()).ok())
            .collect();
        if paths.is_empty() {
            return Ok(ComparedRows::default());
        }
        let scratch = self.engine.scratch().await?;
        let sides = ["before", "after"];
        for (id, side) in [before, after].into_iter().zip(sides) {
            let target = scratch.root().join(side);
            let restore = RepoRestore {
                only: paths.clone(),
                ..RepoRestore::new(self.wanted(id), target)
            };
            let _ = self.engine.dirs().restore(restore).await?;
        }
        let spawn = self.host.check.clone();
        bridge::blocking(move || {
            let copies = scratch.root();
            let [before, after] = sides.map(|side| copies.join(side));
            let comparison = RowComparison::open(&before, &after, copies, &spawn)?;
            Ok(comparison.compare(&paths))
        })
        .await
    }
}

/// A change as it is reported.
pub(super) fn difference(path: &EntryPath, change: ChangeKind) -> TreeDifference {
    TreeDifference {
        path: path.to_string(),
        change,
    }
}

/// Says of a difference whether it is one that a restore would undo.
///
/// What saves leave out by now is left alone by a restore. What SQLite keeps beside a database is no part of the tree, unless
/// something in it has not reached the database: a restore takes that away.
fn shown<'a>(
    manifest: &'a SnapshotManifest,
    left_alone: &[String],
    live: &'a RootDir,
) -> Result<impl Fn(&EntryPath, ChangeKind) -> bool + use<'a>, Error> {
    let is_left_alone = matcher(left_alone)?;
    let is_owner_left = matcher(left_alone)?;
    let is_left_with_owner = move |path: &EntryPath| {
        let owner = path
            .split_last()
            .and_then(|(above, name)| above.child(owner_name(name)?).ok());
        owner.is_some_and(|owner| is_owner_left(&owner, false))
    };
    Ok(move |path: &EntryPath, change: ChangeKind| {
        let is_directory = live.directory(path.as_bytes()).is_ok();
        // What saves leave out by now comes back if it is gone, and stays as it is otherwise.
        if change != ChangeKind::Removed
            && (is_left_alone(path, is_directory) || is_left_with_owner(path))
        {
            return false;
        }
        if change != ChangeKind::Added {
            return true;
        }
        let is_of_database = || {
            let (above, name) = path.split_last()?;
            let owner = above.child(owner_name(name)?).ok()?;
            let is_known = manifest.databases.contains_key(&owner.to_string());
            let directory = live.directory(above.as_bytes()).ok()?;
            let seen = metadata::look(directory.as_fd(), &CString::new(name).ok()?).ok()?;
            Some(is_known && !holds_changes(name, seen.size))
        };
        !is_of_database().unwrap_or(false)
    })
}

/// Whether a file is worth a look: what it is, is seen when it is opened.
fn is_like_a_database(path: &str) -> bool {
    let end = path.rsplit('.').next().unwrap_or_default();
    path.starts_with("volumes/") || ["db", "sqlite", "sqlite3"].contains(&end)
}

#[cfg(test)]
mod tests;
