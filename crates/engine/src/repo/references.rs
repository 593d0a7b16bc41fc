//! Which chunks the snapshots of a root name.

use super::port::Fetching;
use crate::bridge;
use crate::error::Error;
use stasis_disk::chunked::list::{Unpacked, root_of};
use stasis_disk::chunked::{ChunkError, ChunkSource, cut_out};
use stasis_model::file_list::{FileContent, Slice, section_chunks};
use stasis_model::id::SnapshotId;
use stasis_model::manifest::{FileList, SnapshotManifest};
use stasis_model::sweep::{ChunkName, Names};
use stasis_store::roots::Root;
use std::collections::HashSet;

/// Gathers the names that lists lead to; what two lists share is read once.
#[derive(Debug, Default)]
pub(crate) struct References {
    names: HashSet<ChunkName>,
    sections: HashSet<Slice>,
}

impl References {
    /// Adds everything that a list leads to.
    pub(crate) fn add(
        &mut self,
        source: &dyn ChunkSource,
        list: &FileList,
    ) -> Result<(), ChunkError> {
        match list {
            FileList::Inline(rows) => {
                let contents = rows.iter().filter_map(|row| row.content.as_ref());
                let slices = contents.flat_map(FileContent::slices);
                self.names.extend(slices.map(|slice| slice.chunk.name));
            }
            FileList::Stored(at) => {
                self.names.insert(at.root);
                let mut unpacked = Unpacked::default();
                for section in root_of(source, list)?.sections {
                    let name = section.slice.chunk.name;
                    self.names.insert(name);
                    if !self.sections.insert(section.slice) {
                        continue;
                    }
                    let plain = unpacked.get(source, &name)?;
                    let bytes = cut_out(&plain, &section.slice)?;
                    let chunks = section_chunks(bytes)
                        .map_err(|source| ChunkError::List { name, source })?;
                    self.names.extend(chunks.iter().map(|chunk| chunk.name));
                }
            }
        }
        Ok(())
    }

    /// All names.
    pub(crate) fn names(&self) -> &HashSet<ChunkName> {
        &self.names
    }
}

/// Why it is not known what is named.
pub(crate) enum Unread {
    /// The store failed.
    Store(Error),
    /// A manifest is there and cannot be understood.
    Manifest(SnapshotId, Error),
}

impl Unread {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Store(error) | Self::Manifest(_, error) => error,
        }
    }
}

/// Which of `asked` the manifests name. One that is not there any more names nothing.
pub(crate) async fn named(
    root: &Root,
    manifests: Vec<SnapshotId>,
    asked: &Names,
) -> Result<Names, Unread> {
    let mut references = References::default();
    for id in manifests {
        let manifest = match root.manifest(&id).await {
            Ok(Some((manifest, _))) => manifest,
            Ok(None) => continue,
            Err(stasis_store::lineages::ReadError::Bucket(error)) => {
                return Err(Unread::Store(error.into()));
            }
            Err(error) => return Err(Unread::Manifest(id, error.into())),
        };
        references = add_manifest(root, manifest, references)
            .await
            .map_err(|error| Unread::Manifest(id, error))?;
    }
    Ok(asked
        .iter()
        .filter(|name| references.names.contains(*name))
        .copied()
        .collect())
}

/// Adds what one manifest leads to.
pub(crate) async fn add_manifest(
    root: &Root,
    manifest: SnapshotManifest,
    mut references: References,
) -> Result<References, Error> {
    let list = manifest.list().map_err(|source| Error::UnfitSnapshot {
        snapshot: manifest.snapshot_id.clone(),
        source,
    })?;
    let source = Fetching::new(root.clone());
    let added = bridge::blocking(move || {
        references.add(&source, &list)?;
        Ok::<_, ChunkError>(references)
    });
    Ok(added.await?)
}
