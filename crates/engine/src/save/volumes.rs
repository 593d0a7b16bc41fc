//! What the list of a tree says of parts of it.

use super::command::VolumeFacts;
use crate::bridge;
use crate::catalog::ChunkFetcher;
use crate::error::Error;
use stasis_disk::form::chunked::list::ListReader;
use stasis_model::format::manifest::{
    Consistency, DatabaseManifest, FileList, StoredAs, VolumeManifest,
};
use stasis_model::tree::canonical::TreeHasher;
use stasis_model::tree::{EntryKind, EntryPath};
use std::collections::BTreeMap;

/// The volumes with their sizes and digests, as the list has them.
pub(super) async fn measured(
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

/// What is known of volumes whose databases were copied while the tree was read.
pub(super) fn settle(
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
