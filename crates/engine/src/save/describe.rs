//! What a snapshot says of itself, and what it lacks: the manifest of a [save](super).

use super::command::{LostDatabase, LostHow, RepoSave, VolumeFacts};
use super::gather::{SaveBasis, matcher};
use crate::bridge;
use crate::catalog::ChunkFetcher;
use crate::error::Error;
use crate::handle::DirRepo;
use stasis_disk::form::chunked::databases::SavedDatabase;
use stasis_disk::form::chunked::list::ListReader;
use stasis_disk::form::chunked::save::Saved;
use stasis_model::digest::TreeDigest;
use stasis_model::format::manifest::{
    Consistency, DatabaseManifest, FileList, SnapshotManifest, StoredAs, VolumeManifest,
};
use stasis_model::policy::shrink;
use stasis_model::time::Timestamp;
use stasis_model::tree::canonical::TreeHasher;
use stasis_model::tree::{EntryKind, EntryPath};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// How far ahead of the clock the last snapshot of a chain may be and still be followed: a week, after which the clock has
/// caught up.
const FOLLOWED: Duration = Duration::from_hours(7 * 24);

impl DirRepo<'_> {
    pub(super) fn manifest(
        self,
        command: &RepoSave,
        began: &SaveBasis,
        saved: &Saved,
    ) -> SnapshotManifest {
        let (op_id, mut now) = (self.rng.op_id(), self.lineages.now());
        let id = began.snapshot.clone();
        let index = &began.index;
        if let Some(last) = index.snapshots.last() {
            now = after(last.at_ms, now);
        }
        let mut manifest = SnapshotManifest::new(command.name.clone(), id, op_id, now);
        manifest.parent_snapshot_id.clone_from(&index.active);
        manifest.incarnation = index.incarnation;
        manifest.lease_epoch = index.fence.epoch;
        manifest.reason = command.reason;
        manifest.labels = command.labels.clone();
        manifest.excludes.clone_from(&began.excludes);
        manifest.ignores.clone_from(&began.ignores);
        manifest.is_part = command.is_part;
        manifest.app_version.clone_from(&command.app_version);
        manifest.container.clone_from(&command.container);
        manifest.state_digest = saved.digest;
        manifest.totals = saved.totals;
        manifest.set_root(&saved.root, &saved.root_attributes);
        manifest.set_list(&saved.list);
        manifest.set_databases(databases_of(began, saved), now);
        manifest
    }
}

/// When a snapshot was made that follows another one of its chain.
///
/// Clocks go back a little, and a store's is known to a second only: within a chain time goes on all the same. A last
/// snapshot that lies far in the future was made by a clock that was wrong: it is not followed, or one such save would make
/// every later one as wrong. The order of a chain is that of its index, not of its times.
fn after(last: Timestamp, now: Timestamp) -> Timestamp {
    if last > now.plus(FOLLOWED) {
        return now;
    }
    now.max(last.plus(Duration::from_millis(1)))
}

/// The databases of a saved tree, by their paths.
pub(super) fn databases_of(began: &SaveBasis, saved: &Saved) -> BTreeMap<String, DatabaseManifest> {
    if saved.is_same {
        return began.parent_databases.clone();
    }
    let described = |one: &SavedDatabase| {
        let described = DatabaseManifest {
            state: one.state,
            size: one.size,
            digest: one.digest,
        };
        (one.path.to_string(), described)
    };
    saved.databases.iter().map(described).collect()
}

/// A tree that has become suspiciously little is not saved unless that was meant.
pub(super) fn check_shrink(
    command: &RepoSave,
    began: &SaveBasis,
    saved: &Saved,
) -> Result<(), Error> {
    let before = began.index.latest().map(|one| one.entries);
    let (before, entries) = (before.unwrap_or_default(), saved.totals.entries());
    if command.allow_shrink || !shrink::is_suspicious(before, entries) {
        return Ok(());
    }
    Err(Error::Shrunk {
        path: command.source.clone(),
        entries,
        before,
    })
}

/// The databases that the parent has, or that a volume names, and that the new snapshot has not.
///
/// *Always true:* a snapshot in which a database is missing or damaged that `latest` has whole never becomes `latest` without a
/// word. It is stored: what is there now may be needed too.
pub(super) fn lost_databases(
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

/// The volumes with their sizes and digests, as the list has them.
pub(super) async fn measured_volumes(
    volumes: &BTreeMap<String, VolumeFacts>,
    list: &FileList,
    source: ChunkFetcher,
) -> Result<BTreeMap<String, VolumeManifest>, Error> {
    if volumes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (volumes, list) = (volumes.clone(), list.clone());
    bridge::blocking(move || {
        let mut measures: Vec<_> = volumes
            .into_iter()
            .map(|(name, facts)| (name, facts, 0_u64, TreeHasher::new()))
            .collect();
        let mut reader = ListReader::new(&source, &list)?;
        while let Some(row) = reader.next_row()? {
            for (_, facts, size, hasher) in &mut measures {
                let Some(path) = within(&row.entry.path, &facts.at) else {
                    continue;
                };
                // The directory of a volume is not in it; a volume that is one file is that file.
                if row.entry.path == facts.at && row.content.is_none() {
                    continue;
                }
                let mut entry = row.entry.clone();
                entry.path = path;
                if let EntryKind::File { size: length } = entry.kind {
                    *size += length;
                }
                let content = row.content.as_ref().map(|content| content.digest);
                hasher.entry(&entry, content.as_ref());
            }
        }
        let rows = measures.into_iter().map(|(name, facts, size, hasher)| {
            let mut manifest = facts.manifest;
            (manifest.size, manifest.digest) = (size, hasher.finish());
            (name, manifest)
        });
        Ok(rows.collect())
    })
    .await
}

/// What is at some places of a tree, those places themselves among it.
pub(super) fn digest_at(
    source: &ChunkFetcher,
    list: &FileList,
    places: &[EntryPath],
) -> Result<TreeDigest, Error> {
    let mut hasher = TreeHasher::new();
    let mut reader = ListReader::new(source, list)?;
    while let Some(row) = reader.next_row()? {
        if places.iter().any(|place| row.entry.path.is_within(place)) {
            let content = row.content.as_ref().map(|content| content.digest);
            hasher.entry(&row.entry, content.as_ref());
        }
    }
    Ok(hasher.finish())
}

/// What is known of volumes whose databases were copied while the tree was read.
pub(super) fn settle_volumes(
    volumes: &BTreeMap<String, VolumeFacts>,
    databases: &BTreeMap<String, DatabaseManifest>,
    manifests: &mut BTreeMap<String, VolumeManifest>,
) {
    let live = volumes
        .iter()
        .filter(|(_, facts)| !facts.is_copy && facts.manifest.consistency == Consistency::Sqlite);
    for (name, facts) in live {
        let Some(manifest) = manifests.get_mut(name) else {
            continue;
        };
        let own: Vec<_> = databases
            .iter()
            .filter(|(path, _)| {
                let path = path.parse::<EntryPath>();
                path.is_ok_and(|path| within(&path, &facts.at).is_some())
            })
            .collect();
        let is_whole = |(_, one): &(&String, &DatabaseManifest)| one.state == StoredAs::Consistent;
        let integrity = match own.len() {
            0 => "no_database",
            _ if own.iter().all(is_whole) => "ok",
            _ => "crash_consistent",
        };
        integrity.clone_into(&mut manifest.integrity);
        let rows = own.iter().map(|(path, one)| {
            let described = serde_json::json!({ "bytes": one.size });
            ((*path).clone(), described)
        });
        let rows: serde_json::Map<_, _> = rows.collect();
        manifest.details.insert("databases".to_owned(), rows.into());
    }
}

/// The path as seen from `above`, if it is beneath it; a volume that is one file is seen from its directory.
fn within(path: &EntryPath, above: &EntryPath) -> Option<EntryPath> {
    if path == above {
        let (_, name) = path.split_last()?;
        return EntryPath::parse(name).ok();
    }
    let rest = path.as_bytes().strip_prefix(above.as_bytes())?;
    EntryPath::parse(rest.strip_prefix(b"/")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_within_a_chain_and_a_clock_that_was_far_ahead_is_not_followed() {
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1000);
        let (now, year) = (at(1_800_000_000), 365 * 24 * 3600);

        assert_eq!(after(at(1_700_000_000), now), now);
        let back = after(at(1_800_000_060), now);
        assert_eq!(back, Timestamp::from_millis(1_800_000_060_001));
        assert_eq!(after(at(1_800_000_000 + 9 * year), now), now);
    }
}
