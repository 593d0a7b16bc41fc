//! Databases that were in the last snapshot and are not in this one.
//!
//! *Always true:* a snapshot in which a database is missing or damaged that `latest` has whole never becomes `latest` without a word. It is stored:
//! what is there now may be needed too.

use super::command::{LostDatabase, LostHow, RepoSave, VolumeFacts};
use super::gather::{SaveBasis, matcher};
use crate::error::Error;
use stasis_disk::form::chunked::save::Saved;
use stasis_model::format::manifest::{Consistency, DatabaseManifest, SnapshotManifest, StoredAs};
use stasis_model::tree::EntryPath;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The databases that the parent has, or that a volume names, and that the new snapshot has not.
pub(super) fn databases(
    command: &RepoSave,
    began: &SaveBasis,
    saved: &Saved,
    manifest: &SnapshotManifest,
    damaged: &BTreeSet<String>,
) -> Result<Vec<LostDatabase>, Error> {
    if saved.is_same {
        return Ok(Vec::new());
    }
    let now = &manifest.databases;
    let is_left_out = matcher(&manifest.patterns())?;
    // One that was moved as it was is not lost.
    let is_moved = |before: &DatabaseManifest| {
        let mut new = now.iter();
        new.any(|(path, one)| {
            one.digest == before.digest && !began.parent_databases.contains_key(path)
        })
    };
    let known = began.parent_databases.iter();
    let known = known
        .filter(|(_, before)| before.state == StoredAs::Consistent && !is_moved(before))
        .map(|(path, _)| path.clone());
    let is_named =
        |facts: &&VolumeFacts| !facts.is_copy && facts.manifest.consistency == Consistency::Sqlite;
    let holds_any = |at: &EntryPath| {
        let mut paths = now.keys().filter_map(|path| path.parse::<EntryPath>().ok());
        paths.any(|path| path.is_within(at))
    };
    let named = command.volumes.values().filter(is_named);
    let named = named
        .filter(|facts| !holds_any(&facts.at))
        .map(|facts| facts.at.to_string());
    let mut lost: Vec<String> = known
        .chain(named)
        .filter(|path| !now.contains_key(path) || damaged.contains(path))
        .collect();
    lost.sort();
    lost.dedup();
    let is_expected = |path: &EntryPath| !is_left_out(path, false);
    let paths = lost
        .iter()
        .filter_map(|path| path.parse::<EntryPath>().ok());
    let rows = paths.filter(is_expected).map(|path| LostDatabase {
        how: if damaged.contains(&path.to_string()) {
            LostHow::Damaged
        } else {
            how(command, &path)
        },
        path: path.to_string(),
    });
    Ok(rows.collect())
}

/// What is there in the place of a database.
fn how(command: &RepoSave, path: &EntryPath) -> LostHow {
    let grafts = command.grafts.iter();
    let within = |above: &EntryPath| path.as_bytes().strip_prefix(above.as_bytes());
    let mut graft =
        grafts.filter_map(|one| Some((&one.directory, within(&one.at)?.strip_prefix(b"/")?)));
    let (root, rest) = graft
        .next_back()
        .unwrap_or((&command.source, path.as_bytes()));
    match root.join(OsStr::from_bytes(rest)).symlink_metadata() {
        Err(_) => LostHow::Deleted,
        Ok(seen) if seen.is_file() && seen.len() == 0 => LostHow::Emptied,
        Ok(_) => LostHow::Overwritten,
    }
}
