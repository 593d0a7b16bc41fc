//! Chunked roots: the documents of one subject, and the pool that its chunks lie in.
//!
//! Only moves bytes; what may be written when is decided by the model's rules and carried out by whoever calls.

use crate::bucket::{Bucket, BucketError, BucketErrorKind, Listed, Swap, objects};
use crate::documents::lineages::{ReadError, read};
use crate::layout::{ChunkRoot, Key, Prefix};
use crate::part::Part;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use stasis_model::chunk_name::to_rows;
use stasis_model::digest::{CondemnedDigest, ManifestDigest};
use stasis_model::failure::{ErrorKind, Kinded};
use stasis_model::format::chunk::{ENCRYPTED_GROWTH, HEADER};
use stasis_model::format::document::{self, BadDocument, Document, Version, Versioned};
use stasis_model::format::manifest::{
    EncryptedManifest, IndexRefusal, REFERENCES_LIMIT, RepoDocument, SnapshotIndex, StoredManifest,
};
use stasis_model::id::{Epoch, OpId, SnapshotId, TenantId};
use stasis_model::protocol::gc::{CONDEMNED_BYTES, ChunkName, GcDocument, GcEpoch, GcState, Names};
use stasis_model::protocol::operation::{OperationFate, UnknownIndexWrite};
use stasis_model::tree::chunking::CHUNK_MAX;
use std::sync::Arc;
use std::time::Duration;

/// How often a change of the index is tried while others change it too.
const ATTEMPTS: u32 = 20;
const FIRST_PAUSE_MS: u64 = 5;
const LONGEST_PAUSE_MS: u64 = 400;
/// No stored chunk is larger: a chunk that does not shrink is stored as it is, encrypted or not.
const STORED_MAX: u64 = (HEADER + CHUNK_MAX + ENCRYPTED_GROWTH) as u64;

/// Why an index was not changed, or is not known to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The rules say no.
    #[error(transparent)]
    Refused(#[from] IndexRefusal),
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] BucketError),
    /// Others changed it at every attempt; not applied.
    #[error("the index was changed by others at every attempt")]
    Contended,
    /// A write had no clear answer, and it could not be found out what became of it.
    #[error("whether operation `{op_id}` changed the index is not known")]
    Unknown {
        /// What the index remembers if it was applied.
        op_id: OpId,
        /// Which writes had no clear answer.
        doubt: UnknownIndexWrite,
    },
}

impl Kinded for ChangeError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(IndexRefusal::Diverged { .. } | IndexRefusal::Moved { .. }) => {
                ErrorKind::Diverged
            }
            Self::Refused(IndexRefusal::Absent(_) | IndexRefusal::Gone(_)) => ErrorKind::NotFound,
            Self::Refused(_) => ErrorKind::Limit,
            Self::Read(error) => error.kind(),
            Self::Write(error) => Kinded::kind(error),
            Self::Contended => ErrorKind::Retry,
            Self::Unknown { .. } => ErrorKind::Unknown,
        }
    }
}

/// A chunked root in a store.
#[derive(Clone, Debug)]
pub struct Root {
    bucket: Arc<dyn Bucket>,
    root: ChunkRoot,
}

impl Root {
    /// The root in this bucket.
    pub fn new(bucket: Arc<dyn Bucket>, root: ChunkRoot) -> Self {
        Self { bucket, root }
    }

    /// Another root in the same store.
    #[must_use = "the root itself is not changed"]
    pub fn beside(&self, root: ChunkRoot) -> Self {
        Self::new(self.bucket.clone(), root)
    }

    /// Where things lie.
    pub fn layout(&self) -> &ChunkRoot {
        &self.root
    }

    /// `repo.json`; `None` when nobody made this root.
    pub async fn repo(&self) -> Result<Option<RepoDocument>, ReadError> {
        let found = read::<RepoDocument>(&*self.bucket, &self.root.repo_json()).await?;
        Ok(found.map(|found| found.value))
    }

    /// Makes the pool; `Lost` when it is there already.
    ///
    /// Where a subject has it for itself the index comes first: such a pool without one has lost it.
    pub async fn init(&self, repo: &RepoDocument) -> Result<Swap, BucketError> {
        if self.root.is_alone() {
            let begun = SnapshotIndex::empty().begun(repo.op_id);
            let _ = self.swap_index(None, &begun).await?;
            if !self.bucket.exists(&self.root.index()).await? {
                return Ok(Swap::Unknown);
            }
        }
        let body = document::render(repo).into();
        self.bucket.create(&self.root.repo_json(), body).await
    }

    /// Whether anything was ever stored in its pool, be it by another subject.
    pub async fn has_pool(&self) -> Result<bool, BucketError> {
        let some = self.bucket.list(&self.root.chunks(), None, 1).await?;
        Ok(!some.is_empty() || self.bucket.exists(&self.root.gc()).await?)
    }

    /// Every root of which anything is stored and whose chunks lie in the same pool.
    ///
    /// Whoever asks wants to know which chunks are needed. What cannot be understood is an error, therefore: a newer build
    /// may keep snapshots of a kind that this one does not know.
    pub async fn pool_roots(&self) -> Result<Vec<Self>, ReadError> {
        if self.root.is_alone() {
            return Ok(vec![self.clone()]);
        }
        let roots = subjects(&self.bucket, &self.root.pool_subjects()).await?;
        let roots = roots.into_iter();
        Ok(roots.map(|root| self.beside(root)).collect())
    }

    /// `gc.json`, with the names that it condemns.
    pub async fn gc(&self) -> Result<Option<Versioned<GcState>>, ReadError> {
        let key = self.root.gc();
        let mut seen = None;
        loop {
            let Some(found) = read::<GcDocument>(&*self.bucket, &key).await? else {
                return Ok(None);
            };
            let (document, version) = (found.value, found.version);
            let list = match document.condemned_sha256 {
                None => Some(Bytes::new()),
                Some(digest) => self.condemned(document.epoch, digest).await?,
            };
            let Some(list) = list else {
                // Removed by whoever finished the round since then; if not, it is lost.
                if seen.as_ref() == Some(&version) {
                    return damaged::<GcDocument, _>(
                        &key,
                        "the list of names that it condemns is missing",
                    );
                }
                seen = Some(version);
                continue;
            };
            return match GcState::read(document, &list) {
                Ok(value) => Ok(Some(Versioned { value, version })),
                Err(why) => damaged::<GcDocument, _>(&key, &why.to_string()),
            };
        }
    }

    /// A list of condemned names; none when there is none of that digest.
    async fn condemned(
        &self,
        epoch: GcEpoch,
        digest: CondemnedDigest,
    ) -> Result<Option<Bytes>, BucketError> {
        let key = self.root.condemned(epoch, digest);
        let found = self.bucket.get(&key, CONDEMNED_BYTES as u64).await?;
        let found = found.map(|found| found.body);
        Ok(found.filter(|body| CondemnedDigest::of(body) == digest))
    }

    /// Writes `gc.json`: creates it, or replaces exactly the version named. The list that it names is put before it.
    pub async fn write_gc(
        &self,
        expected: Option<&Version>,
        gc: &GcState,
    ) -> Result<Swap, BucketError> {
        let document = gc.document();
        if let Some(digest) = document.condemned_sha256 {
            let key = self.root.condemned(gc.epoch, digest);
            self.bucket.put(&key, gc.list().into()).await?;
        }
        let swap = self.write(&self.root.gc(), expected, &document).await?;
        if matches!(swap, Swap::Won(_)) && !gc.is_collecting() {
            self.remove_lists(gc.epoch).await;
        }
        Ok(swap)
    }

    /// Removes lists of epochs that are over: nobody asks for them again. What cannot be removed, the next round removes.
    async fn remove_lists(&self, epoch: GcEpoch) {
        let lists = self.root.condemned_lists();
        let rows = match self.bucket.list(&lists, None, usize::MAX).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::info!(%error, "lists of condemned names were not removed");
                return;
            }
        };
        for row in rows {
            let is_over = ChunkRoot::condemned_epoch(&row.key).is_some_and(|one| one < epoch);
            if is_over && let Err(error) = self.bucket.delete(&row.key).await {
                tracing::info!(%error, "a list of condemned names was not removed");
            }
        }
    }

    /// `index.json`.
    pub async fn index(&self) -> Result<Option<Versioned<SnapshotIndex>>, ReadError> {
        read(&*self.bucket, &self.root.index()).await
    }

    async fn write<D: Document>(
        &self,
        key: &Key,
        expected: Option<&Version>,
        value: &D,
    ) -> Result<Swap, BucketError> {
        let body = Bytes::from(document::render(value));
        if body.len() > D::LIMIT {
            // Nobody could read it any more.
            return Err(BucketError::new(BucketErrorKind::TooLarge, "write", key));
        }
        match expected {
            Some(version) => self.bucket.swap(key, version, body).await,
            None => self.bucket.create(key, body).await,
        }
    }

    /// Replaces exactly one version of the index.
    pub async fn swap_index(
        &self,
        expected: Option<&Version>,
        index: &SnapshotIndex,
    ) -> Result<Swap, BucketError> {
        self.write(&self.root.index(), expected, index).await
    }

    /// Changes the index by a rule, again and again while others change it too.
    ///
    /// `change` is asked anew with every version found. A lost answer is settled by finding `op_id` in the index, or by its
    /// absence from as far back as the doubt goes.
    pub async fn change(
        &self,
        op_id: OpId,
        change: impl Fn(&SnapshotIndex) -> Result<SnapshotIndex, IndexRefusal>,
    ) -> Result<SnapshotIndex, ChangeError> {
        let mut doubt: Option<UnknownIndexWrite> = None;
        // As long as the outcome of a write is unknown, nothing else that goes wrong is the answer.
        let ends = |doubt: Option<UnknownIndexWrite>, error: ChangeError| match doubt {
            Some(doubt) => ChangeError::Unknown { op_id, doubt },
            None => error,
        };
        for attempt in 0..ATTEMPTS {
            let found = self.index().await;
            let found = found.map_err(|error| ends(doubt, error.into()))?;
            let (index, version) = match found {
                Some(found) => (found.value, Some(found.version)),
                None => (SnapshotIndex::empty(), None),
            };
            if index.remembers(op_id) {
                return Ok(index);
            }
            // A write that has not landed by now can only land on the very version we see.
            doubt =
                doubt.filter(|doubt| doubt.settle(op_id, Some(&index)) == OperationFate::Unknown);
            let next = change(&index).map_err(|refusal| ends(doubt, refusal.into()))?;
            match self.swap_index(version.as_ref(), &next).await {
                Ok(Swap::Won(_)) => return Ok(next),
                Ok(Swap::Lost) => {}
                Ok(Swap::Unknown) => {
                    let generation = next.generation;
                    let since = doubt.map_or(generation, |doubt| doubt.since);
                    doubt = Some(UnknownIndexWrite { generation, since });
                }
                Err(error) => return Err(ends(doubt, error.into())),
            }
            pause(op_id, attempt).await;
        }
        match self.index().await {
            Ok(Some(found)) if found.value.remembers(op_id) => Ok(found.value),
            _ => Err(ends(doubt, ChangeError::Contended)),
        }
    }

    /// Writes a manifest under its own name, which must never have been used; before it the names of the chunks that it needs, if they
    /// lie beside it.
    pub async fn put_manifest(
        &self,
        manifest: &StoredManifest,
        names: &Names,
    ) -> Result<ManifestDigest, ChangeError> {
        let key = self.root.manifest(manifest.snapshot_id());
        let body = Bytes::from(manifest.render());
        if body.len() > StoredManifest::LIMIT {
            return Err(BucketError::new(BucketErrorKind::TooLarge, "write", &key).into());
        }
        if let StoredManifest::Encrypted(manifest) = manifest
            && manifest.references.is_beside()
        {
            let rows = Bytes::from(to_rows(names));
            let list = self.references_key(manifest);
            if rows.len() > REFERENCES_LIMIT {
                return Err(BucketError::new(BucketErrorKind::TooLarge, "write", &list).into());
            }
            self.bucket.put(&list, rows).await?;
        }
        let digest = ManifestDigest::of(&body);
        for attempt in 0..3 {
            match self.bucket.create(&key, body.clone()).await? {
                Swap::Won(_) => return Ok(digest),
                // A name that is there is ours, from an attempt whose answer was lost; nobody else knows it.
                Swap::Lost | Swap::Unknown => {
                    let there = self.bucket.get(&key, StoredManifest::LIMIT as u64).await?;
                    if there.is_some_and(|found| found.body == body) {
                        return Ok(digest);
                    }
                }
            }
            pause(manifest.op_id(), attempt).await;
        }
        // Whether it is there or not: nothing leads to it, so that nothing was saved.
        Err(BucketError::new(BucketErrorKind::Unreachable, "write", &key).into())
    }

    /// A snapshot's manifest, and what its bytes are.
    pub async fn manifest(
        &self,
        id: &SnapshotId,
    ) -> Result<Option<(StoredManifest, ManifestDigest)>, ReadError> {
        let key = self.root.manifest(id);
        let limit = StoredManifest::LIMIT as u64;
        let Some(found) = self.bucket.get(&key, limit).await? else {
            return Ok(None);
        };
        let digest = ManifestDigest::of(&found.body);
        let parsed = StoredManifest::parse(&found.body);
        let manifest = ReadError::of_document(&key, parsed)?;
        if manifest.snapshot_id() != id {
            let names = manifest.snapshot_id().to_string();
            return Err(ReadError::Strays { key, names });
        }
        Ok(Some((manifest, digest)))
    }

    fn references_key(&self, manifest: &EncryptedManifest) -> Key {
        let (id, lease) = (&manifest.snapshot_id, manifest.lease_epoch);
        self.root.references(id, lease, manifest.references.sha256)
    }

    /// The chunks that a snapshot of an encrypted pool needs; `None` when their list lies beside the manifest and is not there.
    pub async fn references(
        &self,
        manifest: &EncryptedManifest,
    ) -> Result<Option<Vec<ChunkName>>, ReadError> {
        let key = self.references_key(manifest);
        let read = if manifest.references.is_beside() {
            let found = self.bucket.get(&key, REFERENCES_LIMIT as u64).await?;
            let Some(found) = found else {
                return Ok(None);
            };
            manifest.references.read(&found.body)
        } else {
            manifest.references.inline()
        };
        match manifest.check().and(read) {
            Ok(names) => Ok(Some(names)),
            Err(why) => damaged::<EncryptedManifest, _>(&key, &why.to_string()),
        }
    }

    /// Every list of references that lies beside a manifest: of which snapshot, and under which fence it was saved.
    pub async fn reference_lists(&self) -> Result<Vec<(Key, SnapshotId, Epoch)>, BucketError> {
        let prefix = self.root.all_references();
        let listed = self.bucket.list(&prefix, None, usize::MAX).await?;
        let row = |row: Listed| {
            let (id, lease) = self.root.references_of(&row.key)?;
            Some((row.key, id, lease))
        };
        Ok(listed.into_iter().filter_map(row).collect())
    }

    /// Removes a list of references that no manifest has.
    pub async fn remove_references(&self, list: &Key) -> Result<(), BucketError> {
        self.bucket.delete(list).await
    }

    /// What the bytes of a manifest are, be they a manifest or not.
    pub async fn manifest_digest(
        &self,
        id: &SnapshotId,
    ) -> Result<Option<ManifestDigest>, BucketError> {
        let limit = StoredManifest::LIMIT as u64;
        let found = self.bucket.get(&self.root.manifest(id), limit).await?;
        Ok(found.map(|found| ManifestDigest::of(&found.body)))
    }

    /// All manifests that are there, published or not.
    pub async fn manifest_ids(&self) -> Result<Vec<SnapshotId>, BucketError> {
        let listed = self
            .bucket
            .list(&self.root.manifests(), None, usize::MAX)
            .await?;
        Ok(listed
            .iter()
            .filter_map(|row| self.root.manifest_id(&row.key))
            .collect())
    }

    /// Removes a manifest, which must be tombstoned.
    pub async fn remove_manifest(&self, id: &SnapshotId) -> Result<(), BucketError> {
        self.bucket.delete(&self.root.manifest(id)).await
    }

    /// Whether a chunk is there.
    pub async fn has_chunk(&self, name: &ChunkName) -> Result<bool, BucketError> {
        self.bucket.exists(&self.root.chunk(name)).await
    }

    /// The stored bytes of a chunk.
    pub async fn chunk(&self, name: &ChunkName) -> Result<Option<Bytes>, BucketError> {
        // Not `get`: a version of the object is not needed, and can cost a digest.
        self.bucket
            .get_range(&self.root.chunk(name), 0..STORED_MAX + 1)
            .await
    }

    /// Gives a chunk to a batch.
    pub async fn stage_chunk(
        &self,
        batch: OpId,
        name: &ChunkName,
        body: Bytes,
    ) -> Result<(), BucketError> {
        self.bucket.stage(batch, &self.root.chunk(name), body).await
    }

    /// Makes a batch durable.
    pub async fn commit(&self, batch: OpId) -> Result<(), BucketError> {
        self.bucket.commit(batch).await
    }

    /// Makes durable what others have put in place.
    pub async fn sync(&self) -> Result<(), BucketError> {
        self.bucket.sync().await
    }

    /// Drops a batch.
    pub async fn abandon(&self, batch: OpId) {
        self.bucket.abandon(batch).await;
    }

    /// The names of all stored chunks, with their sizes.
    pub async fn chunks(&self) -> Result<Vec<(ChunkName, u64)>, BucketError> {
        let prefix = self.root.chunks();
        let listed = objects(&*self.bucket, &prefix);
        let named = async |row: Listed| {
            let name = self.root.chunk_name(&row.key);
            Ok(name.map(|name| (name, row.size)))
        };
        let mut chunks: Vec<(ChunkName, u64)> = listed.try_filter_map(named).try_collect().await?;
        chunks.sort_unstable();
        Ok(chunks)
    }

    /// How many chunks there are, and how many bytes they have: nothing of them is kept in memory.
    pub async fn chunk_totals(&self) -> Result<(u64, u64), BucketError> {
        let prefix = self.root.chunks();
        let listed = objects(&*self.bucket, &prefix);
        let listed = listed.try_filter(|row| {
            let is_chunk = self.root.chunk_name(&row.key).is_some();
            std::future::ready(is_chunk)
        });
        let add = async |(count, bytes), row: Listed| Ok((count + 1, bytes + row.size));
        listed.try_fold((0, 0), add).await
    }

    /// Removes chunks, which must be condemned.
    pub async fn remove_chunks(
        &self,
        names: &Names,
        gone: impl Fn(&ChunkName) + Send,
    ) -> Result<(), BucketError> {
        for name in names {
            self.bucket.delete(&self.root.chunk(name)).await?;
            gone(name);
        }
        Ok(())
    }

    /// Keeps the damaged bytes of a chunk aside, for whoever wants to look.
    pub async fn quarantine(&self, name: &ChunkName, body: Bytes) -> Result<(), BucketError> {
        self.bucket.put(&self.root.quarantined(name), body).await
    }

    /// The chunks that were found damaged and not rewritten since.
    pub async fn quarantined(&self) -> Result<Vec<ChunkName>, BucketError> {
        let listed = self
            .bucket
            .list(&self.root.quarantine(), None, usize::MAX)
            .await?;
        Ok(listed
            .iter()
            .filter_map(|row| row.key.file_name().parse().ok())
            .collect())
    }

    /// Takes a chunk out of quarantine.
    pub async fn release(&self, name: &ChunkName) -> Result<(), BucketError> {
        self.bucket.delete(&self.root.quarantined(name)).await
    }
}

fn damaged<D: Document, T>(key: &Key, why: &str) -> Result<T, ReadError> {
    use serde::de::Error as _;
    let source = BadDocument::Invalid {
        name: D::NAME,
        source: serde_json::Error::custom(why),
    };
    ReadError::of_document(key, Err(source))
}

/// Every root of a store: a directory's own state, if it is one, and those of subjects.
pub async fn all(bucket: &Arc<dyn Bucket>) -> Result<Vec<ChunkRoot>, ReadError> {
    let mut roots = Vec::new();
    let own = ChunkRoot::state();
    if bucket.exists(&own.repo_json()).await? || bucket.exists(&own.index()).await? {
        roots.push(own);
    }
    roots.extend(subjects(bucket, &ChunkRoot::subjects()).await?);
    Ok(roots)
}

/// The roots of the directories of a tenant, or of all; subjects of other kinds are passed over.
pub async fn directories(
    bucket: &Arc<dyn Bucket>,
    tenant: Option<&TenantId>,
    part: &Part,
) -> Result<Vec<ChunkRoot>, BucketError> {
    let prefix = tenant.map_or_else(ChunkRoot::subjects, ChunkRoot::directories);
    let own = |root: &ChunkRoot| root.directory().map(|_| root.clone());
    named_in(&**bucket, &prefix, part, own).await
}

/// The subjects of a kind in a part of a listing, in its order.
pub(super) async fn named_in<T: PartialEq + Clone + Send>(
    bucket: &dyn Bucket,
    prefix: &Prefix,
    part: &Part,
    name: impl Fn(&ChunkRoot) -> Option<T> + Send + Sync,
) -> Result<Vec<T>, BucketError> {
    let of_key = |key: &Key| ChunkRoot::subject_of(key).and_then(|root| name(&root));
    let mut listed = part.objects(bucket, prefix, of_key);
    let mut found = Vec::new();
    while let Some((named, _)) = listed.try_next().await? {
        // Those of one subject follow one another.
        if found.last() != Some(&named) {
            found.push(named);
        }
    }
    Ok(found)
}

/// Those of a tenant whose id is a name, or begins with it and a dash, as far as so many objects lead to them: for whoever must not
/// wait for more. Nothing else is listed, however much of it there is.
pub async fn directories_called(
    bucket: &Arc<dyn Bucket>,
    tenant: &TenantId,
    name: &str,
    most_objects: usize,
) -> Result<Vec<ChunkRoot>, BucketError> {
    let all = ChunkRoot::directories(tenant);
    let mut roots = Vec::new();
    for (beginning, most) in [(format!("{name}/"), 1), (format!("{name}-"), most_objects)] {
        let prefix = all.starting(&beginning);
        roots.extend(directories_in(objects(&**bucket, &prefix).take(most)).await?);
    }
    Ok(roots)
}

async fn directories_in(
    listed: impl Stream<Item = Result<Listed, BucketError>>,
) -> Result<Vec<ChunkRoot>, BucketError> {
    let mut listed = std::pin::pin!(listed);
    let mut roots = Vec::new();
    while let Some(row) = listed.try_next().await? {
        let root = ChunkRoot::subject_of(&row.key);
        let directory = root.filter(|root| root.directory().is_some());
        let new = directory.filter(|root| roots.last() != Some(root));
        roots.extend(new);
    }
    Ok(roots)
}

/// The roots of all subjects of which anything lies there.
async fn subjects(bucket: &Arc<dyn Bucket>, all: &Prefix) -> Result<Vec<ChunkRoot>, ReadError> {
    let listed = objects(&**bucket, all);
    let mut listed = std::pin::pin!(listed);
    let mut roots = Vec::new();
    while let Some(row) = listed.try_next().await? {
        let Some(root) = ChunkRoot::subject_of(&row.key) else {
            return Err(ReadError::Foreign(row.key));
        };
        // In the order of keys, so that those of one subject follow one another.
        if roots.last() != Some(&root) {
            roots.push(root);
        }
    }
    Ok(roots)
}

/// Waits a little longer at each attempt, and not as long as others do.
async fn pause(op_id: OpId, attempt: u32) {
    let longest = (FIRST_PAUSE_MS << attempt.min(10)).min(LONGEST_PAUSE_MS);
    let drawn = op_id
        .to_string()
        .bytes()
        .fold(u64::from(attempt), |sum, byte| {
            sum.wrapping_mul(31) + u64::from(byte)
        });
    tokio::time::sleep(Duration::from_millis(
        longest / 2 + drawn % (longest / 2 + 1),
    ))
    .await;
}
