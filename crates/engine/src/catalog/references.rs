//! Which chunks the snapshots of a root name.

use super::pool::other_form;
use super::port::ChunkFetcher;
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use stasis_disk::form::chunked::list::{UnpackedChunks, root_of};
use stasis_disk::form::chunked::{ChunkCodec, ChunkError, ChunkSource, cut_out};
use stasis_disk::progress::Progress;
use stasis_model::format::manifest::{
    FileList, RepoDocument, SnapshotIndex, SnapshotManifest, StoredManifest,
};
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::{ChunkName, Names};
use stasis_model::tree::list::{FileContent, Slice, section_chunks};
use stasis_store::bucket::BucketError;
use stasis_store::documents::lineages::ReadError;
use stasis_store::documents::roots::Root;
use std::collections::{BTreeSet, HashSet};

/// How often all manifests of a subject are looked at again because one of them was removed meanwhile.
const LOOKS: usize = 5;

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
                let mut unpacked = UnpackedChunks::default();
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

    /// Which of `asked` are among them.
    fn among(&self, asked: &Names) -> Names {
        let is_named = |name: &&ChunkName| self.names.contains(*name);
        asked.iter().filter(is_named).copied().collect()
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
    /// Manifests were removed again and again while they were looked at.
    Vanished,
}

impl Unread {
    /// About a snapshot: damage is laid at its door, a store that fails is not.
    pub(crate) fn of(id: &SnapshotId, error: Error) -> Self {
        if is_damage(&error) {
            Self::Manifest(id.clone(), error)
        } else {
            Self::Store(error)
        }
    }
}

impl From<Unread> for Error {
    fn from(error: Unread) -> Self {
        match error {
            Unread::Store(error) => error,
            Unread::Manifest(id, error) => Self::damaged(&id, error),
            Unread::Vanished => Self::SweepGaveUp(
                "snapshots were removed again and again while they were looked at; run it again",
            ),
        }
    }
}

impl From<ReadError> for Unread {
    fn from(error: ReadError) -> Self {
        Self::Store(error.into())
    }
}

impl From<BucketError> for Unread {
    fn from(error: BucketError) -> Self {
        Self::Store(error.into())
    }
}

/// Which of `asked` the manifests of a pool name, of all subjects, published or not, but for those that are `going`.
///
/// A manifest that the index leads to and that is missing, or is not what the index says, is unreadable: what it names
/// is not known. Looking takes time (ADR 55): the index is read after the manifests were listed, because a snapshot may
/// be published and the provisional manifest before it removed in between; and if one that was listed is gone, all of it
/// is looked at again.
pub(crate) async fn named_by_all(
    root: &Root,
    repo: &RepoDocument,
    asked: AskedNames<'_>,
) -> Result<Names, Unread> {
    let mut named = Names::new();
    for root in root.pool_roots().await? {
        named.append(&mut named_by_subject(&root, repo, asked).await?);
    }
    Ok(named)
}

/// Which names are asked for, and of whom.
#[derive(Clone, Copy)]
pub(crate) struct AskedNames<'a> {
    /// The names.
    pub(crate) names: &'a Names,
    /// Snapshots that are not asked: they are about to go.
    pub(crate) going: &'a [SnapshotId],
    /// Where manifests are counted that were read.
    pub(crate) progress: &'a Progress,
}

async fn named_by_subject(
    root: &Root,
    repo: &RepoDocument,
    asked: AskedNames<'_>,
) -> Result<Names, Unread> {
    for _ in 0..LOOKS {
        let listed = root.manifest_ids().await?;
        let index = root.index().await?;
        let index = index.map_or_else(SnapshotIndex::empty, |found| found.value);
        let indexed = index.snapshots.iter().map(|one| one.id.clone());
        let mut ids: BTreeSet<SnapshotId> = listed.into_iter().chain(indexed).collect();
        ids.retain(|id| !asked.going.contains(id));
        asked.progress.expect(ids.len() as u64, 0);
        match named_by(root, repo, &index, &ids, asked.progress).await? {
            Looked::All(named) => return Ok(named.among(asked.names)),
            Looked::Without(_) => {}
        }
    }
    Err(Unread::Vanished)
}

/// What the manifests name that were to be read.
enum Looked {
    All(References),
    /// Some of them were removed meanwhile.
    Without(References),
}

/// Which of `asked` the snapshots of an index name.
pub(crate) async fn named_by_indexed(
    root: &Root,
    repo: &RepoDocument,
    index: &SnapshotIndex,
    asked: &Names,
) -> Result<Names, Unread> {
    let ids = index.snapshots.iter().map(|one| one.id.clone()).collect();
    match named_by(root, repo, index, &ids, &Progress::default()).await? {
        // What is gone proves nothing, and need not.
        Looked::All(named) | Looked::Without(named) => Ok(named.among(asked)),
    }
}

async fn named_by(
    root: &Root,
    repo: &RepoDocument,
    index: &SnapshotIndex,
    ids: &BTreeSet<SnapshotId>,
    progress: &Progress,
) -> Result<Looked, Unread> {
    let mut references = References::default();
    let mut has_vanished = false;
    for id in ids {
        let _counted = CountedManifest(progress);
        let indexed = index.find(id).map(|one| one.manifest_sha256);
        let found = root.manifest(id).await;
        let found = found.map_err(|error| Unread::of(id, error.into()))?;
        let is_it = match (&found, indexed) {
            (None, None) => {
                has_vanished = true;
                continue;
            }
            (Some((_, digest)), Some(indexed)) => *digest == indexed,
            (found, _) => found.is_some(),
        };
        let Some((manifest, _)) = found.filter(|_| is_it) else {
            if still_leads_to(root, id).await? {
                let lost = Error::LostManifest(id.clone());
                return Err(Unread::Manifest(id.clone(), lost));
            }
            has_vanished = true;
            continue;
        };
        ensure_form(root, repo, &manifest).map_err(|error| Unread::of(id, error))?;
        if indexed.is_some() && matches!(manifest, StoredManifest::Provisional(_)) {
            // No index leads to one: whoever wrote that wants the rest of a snapshot to be taken for garbage.
            let lost = Error::LostManifest(id.clone());
            return Err(Unread::Manifest(id.clone(), lost));
        }
        if let StoredManifest::Encrypted(manifest) = &manifest {
            let names = root.references(manifest).await;
            match names.map_err(|error| Unread::of(id, error.into()))? {
                Some(names) => references.names.extend(names),
                // It is put before its manifest, and goes after it: beside one that is still there, it is lost.
                None if is_there(root, id).await? => {
                    let lost = Error::LostReferences(id.clone());
                    return Err(Unread::Manifest(id.clone(), lost));
                }
                None => has_vanished = true,
            }
            continue;
        }
        references = add_manifest(root, manifest, references)
            .await
            .map_err(|error| Unread::of(id, error))?;
    }
    Ok(if has_vanished {
        Looked::Without(references)
    } else {
        Looked::All(references)
    })
}

/// Counts a manifest when it was looked at, whatever became of it.
struct CountedManifest<'a>(&'a Progress);

impl Drop for CountedManifest<'_> {
    fn drop(&mut self) {
        self.0.advance(1, 0);
    }
}

/// Refuses a manifest that only a later build understands, or that is not of its pool's form: whoever put it there may want others
/// to be taken for garbage.
pub(crate) fn ensure_form(
    root: &Root,
    repo: &RepoDocument,
    manifest: &StoredManifest,
) -> Result<(), Error> {
    manifest.check().map_err(|source| Error::UnfitSnapshot {
        snapshot: manifest.snapshot_id().clone(),
        source,
    })?;
    match manifest {
        StoredManifest::Provisional(_) => Ok(()),
        StoredManifest::Plain(_) if !repo.is_encrypted() => Ok(()),
        StoredManifest::Encrypted(_) if repo.is_encrypted() => Ok(()),
        StoredManifest::Plain(_) | StoredManifest::Encrypted(_) => Err(other_form(root, manifest)),
    }
}

/// Whether a manifest is there now.
async fn is_there(root: &Root, id: &SnapshotId) -> Result<bool, Unread> {
    Ok(root.manifest_digest(id).await?.is_some())
}

/// Whether the index leads to a snapshot now: one that was forgotten and tombstoned meanwhile is not missed.
async fn still_leads_to(root: &Root, id: &SnapshotId) -> Result<bool, Unread> {
    let index = root.index().await?;
    Ok(index.is_some_and(|index| index.value.find(id).is_some()))
}

/// Adds what one manifest leads to.
pub(crate) async fn add_manifest(
    root: &Root,
    manifest: StoredManifest,
    mut references: References,
) -> Result<References, Error> {
    let manifest = match manifest {
        StoredManifest::Plain(manifest) => manifest,
        StoredManifest::Provisional(manifest) => {
            let names = manifest.names().map_err(|source| Error::UnfitSnapshot {
                snapshot: manifest.snapshot_id.clone(),
                source,
            })?;
            references.names.extend(names);
            return Ok(references);
        }
        StoredManifest::Encrypted(manifest) => {
            let id = &manifest.snapshot_id;
            let names = root.references(&manifest).await?;
            let names = names.ok_or_else(|| Error::LostReferences(id.clone()))?;
            references.names.extend(names);
            return Ok(references);
        }
    };
    let list = list_of(&manifest)?;
    // In an encrypted pool nothing plain can be read, so that such a manifest names nothing there.
    let source = ChunkFetcher::new(root.clone(), ChunkCodec::Plain);
    let added = bridge::blocking(move || {
        references.add(&source, &list)?;
        Ok::<_, ChunkError>(references)
    });
    Ok(added.await?)
}

/// The list of a snapshot, as its metadata has it or leads to it.
pub(crate) fn list_of(manifest: &SnapshotManifest) -> Result<FileList, Error> {
    manifest.list().map_err(|source| Error::UnfitSnapshot {
        snapshot: manifest.snapshot_id.clone(),
        source,
    })
}

/// Whether what could not be read is wrong in itself: a store that does not answer says nothing about it.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Limit)
}

/// What a document is, or why it must be made anew; a store that does not answer, and what another build wrote, are errors.
pub(crate) fn damage<D>(
    read: Result<Option<D>, ReadError>,
) -> Result<Result<Option<D>, String>, Error> {
    match read {
        Ok(found) => Ok(Ok(found)),
        Err(error) if error.is_of_another_build() => Err(error.into()),
        Err(error) => {
            let error = Error::from(error);
            if is_damage(&error) {
                Ok(Err(error_chain(&error)))
            } else {
                Err(error)
            }
        }
    }
}
