//! What a restore replaced, once it is over (ADR 85).
//!
//! It came out of the directory as the inodes that it was. It is removed if the safety snapshot has all of it and nobody can write to it
//! any more. What was written after that snapshot was made, what it could not have, and what a program still has open stays for a week.

use crate::bridge;
use crate::error::Error;
use crate::kind::project::Project;
use crate::kind::project::same_databases::StoredDatabases;
use stasis_disk::form::chunked::ChunkError;
use stasis_disk::form::chunked::databases::{holds_changes, owner_name};
use stasis_disk::form::chunked::list::ListReader;
use stasis_disk::tree::restore::{self, OpenBackup};
use stasis_disk::tree::walk::{self, WalkSettings};
use stasis_model::id::SnapshotId;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::tree::{EntryKind, EntryPath};
use std::collections::BTreeMap;
use std::path::Path;

/// Removes a backup if a snapshot has everything that is in it; says whether it did.
pub(super) async fn drop_if_saved(
    project: &Project,
    backup: &Path,
    safety: &SnapshotId,
) -> Result<bool, Error> {
    let (opened, source) = project.opened(safety).await?;
    let spool = project.engine.captures();
    let backup = backup.to_owned();
    bridge::blocking(move || {
        let kept = OpenBackup::open(&backup)?;
        let (entries, report) =
            walk::list(kept.tree(), &WalkSettings::default()).map_err(ChunkError::from)?;
        let left_out = report.skipped_count + report.vanished_count;
        if kept.has_aside() || left_out > 0 || restore::is_in_use(&backup) {
            return Ok(false);
        }
        let kinds: BTreeMap<EntryPath, EntryKind> = entries
            .iter()
            .map(|entry| (entry.path.clone(), entry.kind.clone()))
            .collect();
        let listed = ListReader::new(&source, &opened.list)?.entries();
        let listed = listed.filter(|one| {
            let path = one.as_ref().map(|one| &one.entry.path);
            path.map_or(true, |path| kinds.contains_key(path))
        });
        let databases = StoredDatabases::of(&opened.manifest);
        let found = databases.compare(kept.tree(), entries, listed, &spool)?;
        let is_saved = |(path, change): &(EntryPath, ChangeKind)| match kinds.get(path) {
            // The directories that entries lie in are ours.
            Some(EntryKind::Directory) => *change == ChangeKind::Metadata,
            Some(EntryKind::File { size }) => is_empty_companion(path, *size),
            _ => false,
        };
        if !found.iter().all(is_saved) {
            return Ok(false);
        }
        restore::remove_backup(&backup)?;
        Ok(true)
    })
    .await
}

/// Whether a file is one that SQLite keeps beside a database, and has nothing that the database does not.
fn is_empty_companion(path: &EntryPath, size: u64) -> bool {
    let name = path.split_last().map(|(_, name)| name);
    name.is_some_and(|name| owner_name(name).is_some() && !holds_changes(name, size))
}
