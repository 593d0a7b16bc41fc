//! What the list of a tree says of parts of it.

use super::VolumeFacts;
use crate::bridge;
use crate::error::Error;
use crate::repo::port::Fetching;
use stasis_disk::chunked::list::ListReader;
use stasis_model::manifest::{FileList, VolumeManifest};
use stasis_model::tree::canonical::TreeHasher;
use stasis_model::tree::{EntryKind, EntryPath};
use std::collections::BTreeMap;

/// The volumes with their sizes and digests, as the list has them.
pub(super) async fn measured(
    volumes: &BTreeMap<String, VolumeFacts>,
    list: &FileList,
    source: Fetching,
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
                let mut entry = row.entry.clone();
                entry.path = path;
                if let EntryKind::File { size: length } = entry.kind {
                    *size += length;
                }
                let content = row.content.as_ref().map(|content| content.digest);
                hasher.entry(&entry, content.as_ref());
            }
        }
        let told = measures.into_iter().map(|(name, facts, size, hasher)| {
            let mut manifest = facts.manifest;
            (manifest.size, manifest.digest) = (size, hasher.finish());
            (name, manifest)
        });
        Ok(told.collect())
    })
    .await
}

/// The path as seen from `above`, if it is beneath it.
fn within(path: &EntryPath, above: &EntryPath) -> Option<EntryPath> {
    let rest = path.as_bytes().strip_prefix(above.as_bytes())?;
    EntryPath::parse(rest.strip_prefix(b"/")?).ok()
}
