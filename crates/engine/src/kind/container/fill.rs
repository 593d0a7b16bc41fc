//! Writes volumes of a snapshot to where they lie, and compares them with the snapshot.

use super::failure;
use super::find::{FoundSnapshot, subject_name};
use crate::bridge;
use crate::catalog::SnapshotSelector;
use crate::error::{Error, ErrorKind, OPEN_DIRECTORY, error_chain};
use crate::kind::project::same_databases::StoredDatabases;
use crate::restore::{Placement, RepoRestore};
use stasis_disk::form::chunked::list::ListReader;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::progress::Progress;
use stasis_disk::tree::restore::remove_backup;
use stasis_disk::tree::walk::{self, WalkSettings};
use stasis_model::failure::{AtPath as _, Failure};
use stasis_model::format::manifest::CapturedVolume;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::tree::diff::{ChangeKind, DigestedEntry};
use stasis_model::tree::{EntryKind, EntryPath};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How a volume is filled.
#[derive(Clone, Debug, Default)]
pub(super) struct Filling {
    pub(super) cancel: Arc<AtomicBool>,
    pub(super) progress: Arc<Progress>,
}

/// The part of a tree in which a volume lies.
pub(super) fn part_of(volume: &CapturedVolume) -> Result<EntryPath, Error> {
    let parsed = volume.path.parse::<EntryPath>();
    Ok(parsed.map_err(|error| Failure::of(ErrorKind::Corrupt, error))?)
}

impl FoundSnapshot {
    /// Makes a directory what a volume of the snapshot is, whatever is in it; what it replaces is not kept.
    pub(super) async fn fill(
        &self,
        volume: &CapturedVolume,
        directory: &Path,
        how: &Filling,
    ) -> Result<(), Error> {
        let part = part_of(volume)?;
        let wanted = SnapshotSelector {
            snapshot: SnapshotRef::Text(self.id.to_string()),
            name: Some(subject_name(&self.of.subject)),
        };
        let restore = RepoRestore {
            part: Some(part.clone()),
            placement: Placement::InPlace,
            owner: true,
            cancel: how.cancel.clone(),
            progress: how.progress.clone(),
            ..RepoRestore::new(wanted, directory)
        };
        let restored = self.of.engine.dirs().restore(restore).await?;
        if let Some(backup) = restored.changes.and_then(|changes| changes.backup) {
            bridge::blocking(move || remove_backup(Path::new(&backup))).await?;
        }
        let differing = self.differing(&part, directory).await?;
        if let Some((path, change)) = differing.first() {
            let said = format!(
                "the volume `{}` is not what the snapshot has: `{path}` differs ({change})",
                volume.name
            );
            return Err(failure(ErrorKind::Failed, said).into());
        }
        Ok(())
    }

    /// What differs between a volume of the snapshot and what is in a directory; contents are compared by their digests.
    pub(super) async fn differing(
        &self,
        part: &EntryPath,
        directory: &Path,
    ) -> Result<Vec<(EntryPath, ChangeKind)>, Error> {
        let (part, directory) = (part.clone(), directory.to_owned());
        let (manifest, list) = (self.opened.manifest.clone(), self.opened.list.clone());
        let source = self.opened.fetcher(&self.of.root());
        let spool = self.of.engine.captures();
        bridge::blocking(move || {
            let root = RootDir::open(&directory, Mounts::Stay).at(OPEN_DIRECTORY, &directory)?;
            let (live, _) = walk::list(&root, &WalkSettings::default()).map_err(|error| {
                let said = format!(
                    "`{}` could not be read: {}",
                    directory.display(),
                    error_chain(&error)
                );
                failure(ErrorKind::Failed, said)
            })?;
            let borrowed = borrowed(|| Ok(ListReader::new(&source, &list)?), &part)?;
            let listed = ListReader::new(&source, &list)?.entries();
            let listed = listed.filter_map(|row| match row {
                Ok(row) => seen_from(as_file(row, &borrowed), &part).map(Ok),
                Err(error) => Some(Err(error)),
            });
            let databases = StoredDatabases::of_part(&manifest, &part);
            Ok(databases.compare(&root, live, listed, &spool)?)
        })
        .await
    }
}

/// The files in other volumes that also have a name in this one: there they are files of their own.
fn borrowed<'s>(
    open: impl Fn() -> Result<ListReader<'s>, Error>,
    part: &EntryPath,
) -> Result<HashMap<EntryPath, DigestedEntry>, Error> {
    let mut wanted = HashSet::new();
    for row in open()?.entries() {
        let row = row?;
        if let EntryKind::HardLink { to } = row.entry.kind
            && row.entry.path.is_within(part)
            && !to.is_within(part)
        {
            wanted.insert(to);
        }
    }
    let mut found = HashMap::new();
    if wanted.is_empty() {
        return Ok(found);
    }
    for row in open()?.entries() {
        let row = row?;
        if wanted.contains(&row.entry.path) {
            found.insert(row.entry.path.clone(), row);
        }
    }
    Ok(found)
}

/// A further name of such a file becomes that file.
fn as_file(row: DigestedEntry, borrowed: &HashMap<EntryPath, DigestedEntry>) -> DigestedEntry {
    match &row.entry.kind {
        EntryKind::HardLink { to } if let Some(file) = borrowed.get(to) => {
            let mut file = file.clone();
            file.entry.path = row.entry.path;
            file
        }
        _ => row,
    }
}

/// An entry as it is seen from the volume that it is in.
fn seen_from(mut row: DigestedEntry, part: &EntryPath) -> Option<DigestedEntry> {
    row.entry.path = row.entry.path.seen_from(part)?;
    if let EntryKind::HardLink { to } = &mut row.entry.kind {
        *to = to.seen_from(part)?;
    }
    Some(row)
}
