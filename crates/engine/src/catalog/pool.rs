//! The pool of a root: whether it is encrypted, and how its chunks are named and stored.
//!
//! A pool is plain or encrypted from its first `repo.json` on, and never becomes the other. *Always true:* a pool that has a
//! data key and says that it is plain is refused by everybody (R9); whoever gave a key neither reads nor writes a plain pool; a
//! host that saw its key does not believe it without one;
//! whoever gave none adds nothing to an encrypted one.

use super::OpenedSnapshot;
use super::references::{self, damage};
use crate::error::{EncryptionError, Error, NotOfKey};
use crate::handle::DirRepo;
use crate::key_source::KeyFit;
use crate::keys::{FoundKey, key_needed};
use stasis_disk::crypt::{DataKey, PoolCipher};
use stasis_disk::form::chunked::ChunkCodec;
use stasis_model::format::chunk::{is_encrypted, is_plain};
use stasis_model::format::key::KeyOwner;
use stasis_model::format::manifest::{RepoDocument, SnapshotManifest, StoredManifest};
use stasis_model::invalid::Invalid;
use stasis_model::protocol::gc::{ChunkName, Names};
use stasis_store::bucket::{BucketError, BucketErrorKind, Swap};
use stasis_store::documents::lineages::ReadError;
use stasis_store::documents::roots::Root;
use stasis_store::layout::{self, Key};
use std::sync::Arc;

/// What became of making a pool.
pub(crate) enum NewPool {
    /// It was made.
    Made(Box<RepoDocument>),
    /// Somebody else was first.
    There,
}

/// How many chunks are looked at to find out whether a pool is encrypted.
const LOOKED_AT: usize = 16;

/// What lies in a pool that lost its `repo.json`, as far as somebody looked; by where it lies.
#[derive(Default)]
pub(crate) struct PoolEvidence {
    /// Something in it is encrypted.
    pub(crate) is_encrypted: bool,
    /// Something that the data key opens which was tried.
    opens: Option<String>,
    /// Something that is not of that key.
    other: Option<NotOfKey>,
    /// Something in it was written by another build, and says nothing to this one.
    pub(crate) stranger: Option<ReadError>,
}

/// A manifest, where it lies, and whether it is the one that its index leads to, or that no index knows.
struct FoundManifest<'m> {
    root: &'m Root,
    key: Key,
    manifest: &'m StoredManifest,
    is_genuine: bool,
}

impl PoolEvidence {
    /// Whether the key that was tried is the one of this pool. Where nothing was found, it is as good as any.
    pub(crate) fn fit(self) -> KeyFit {
        match self {
            Self {
                opens,
                other: Some(other),
                ..
            } if opens.is_some() || matches!(other, NotOfKey::Plain(_)) => {
                KeyFit::Mixed { opens, other }
            }
            Self {
                is_encrypted: true,
                opens: None,
                ..
            } => KeyFit::OpensNothing,
            _ => KeyFit::Opens,
        }
    }

    /// Whether nothing else that lies there makes a difference to whether the key fits.
    fn is_mixed(&self) -> bool {
        self.opens.is_some() && self.other.is_some()
    }

    fn note_manifest(&mut self, found: &FoundManifest<'_>, key: Option<&PoolCipher>) {
        let place = || found.key.to_string();
        match found.manifest {
            StoredManifest::Encrypted(manifest) => {
                self.is_encrypted = true;
                let name = found.root.layout().name();
                match key.map(|key| key.open_manifest(name, manifest)) {
                    Some(Ok(_)) => {
                        self.opens.get_or_insert_with(place);
                    }
                    // One that was damaged says nothing about keys.
                    Some(Err(_)) if found.is_genuine => {
                        self.other.get_or_insert_with(|| NotOfKey::Closed(place()));
                    }
                    _ => {}
                }
            }
            StoredManifest::Plain(_) => self.note_plain(place()),
            StoredManifest::Provisional(_) => {}
        }
    }

    fn note_plain(&mut self, place: String) {
        // What is plain is so beyond doubt.
        if !matches!(self.other, Some(NotOfKey::Plain(_))) {
            self.other = Some(NotOfKey::Plain(place));
        }
    }

    fn note_chunk(
        &mut self,
        root: &Root,
        name: &ChunkName,
        bytes: &[u8],
        key: Option<&PoolCipher>,
    ) {
        let place = || root.layout().chunk(name).to_string();
        if is_encrypted(bytes) {
            self.is_encrypted = true;
            if key.is_some_and(|key| key.open_chunk(name.digest(), bytes).is_ok()) {
                self.opens.get_or_insert_with(place);
            }
        } else if is_plain(bytes) {
            self.note_plain(place());
        }
    }
}

impl DirRepo<'_> {
    /// Looks at what lies in a pool, one thing after the other, until that is enough: its manifests, those of this root first, and
    /// some of its chunks.
    pub(crate) async fn evidence(
        self,
        root: &Root,
        key: Option<&PoolCipher>,
        is_enough: impl Fn(&PoolEvidence) -> bool,
    ) -> Result<PoolEvidence, Error> {
        let mut found = PoolEvidence::default();
        let mut roots = root.pool_roots().await?;
        roots.sort_by_key(|one| one.layout().name() != root.layout().name());
        for root in roots {
            let index = damage(root.index().await)
                .ok()
                .and_then(Result::ok)
                .flatten();
            for id in root.manifest_ids().await? {
                // What cannot be read says nothing, and names of chunks look alike in both kinds of pools.
                match root.manifest(&id).await {
                    Err(error) if error.is_of_another_build() => found.stranger = Some(error),
                    read => {
                        if let Ok(Some((manifest, digest))) = damage(read)? {
                            let row = index.as_ref().and_then(|index| index.value.find(&id));
                            let manifest = FoundManifest {
                                root: &root,
                                key: root.layout().manifest(&id),
                                manifest: &manifest,
                                is_genuine: row.is_none_or(|row| row.manifest_sha256 == digest),
                            };
                            found.note_manifest(&manifest, key);
                        }
                    }
                }
                if is_enough(&found) {
                    return Ok(found);
                }
            }
        }
        let chunks = root.chunks().await?;
        let step = chunks.len().div_ceil(LOOKED_AT).max(1);
        for (name, _) in chunks.iter().step_by(step) {
            if let Some(bytes) = root.chunk(name).await? {
                found.note_chunk(root, name, &bytes, key);
            }
            if is_enough(&found) {
                break;
            }
        }
        Ok(found)
    }

    /// What the repository says of itself, if this build may read it.
    pub(crate) async fn settings(self, root: &Root) -> Result<RepoDocument, Error> {
        let Some(repo) = root.repo().await? else {
            return Err(self.missing(root).await?);
        };
        repo.check_readable().map_err(Error::UnfitRepo)?;
        let pool = root.layout().pool_id();
        if self.pools.has(&pool, &repo) {
            return Ok(repo);
        }
        if !repo.is_encrypted() {
            let owner = KeyOwner::from(pool.clone());
            let was_encrypted = self.pools.was_encrypted(&pool);
            if was_encrypted || self.key_document(&owner).await?.is_some() {
                return Err(EncryptionError::Downgraded(owner).into());
            }
        }
        if repo.is_encrypted() {
            self.note_key(&KeyOwner::from(pool.clone())).await;
        }
        self.pools.note(pool, &repo);
        Ok(repo)
    }

    /// How the chunks of a root are named and stored. Asked for only by who reads or writes contents: it needs the key of an
    /// encrypted pool.
    pub(crate) async fn codec(self, root: &Root) -> Result<ChunkCodec, Error> {
        if let Some(codec) = self.pools.codec(&root.layout().pool_id()) {
            return Ok(codec);
        }
        match self.settings(root).await {
            Ok(repo) => self.codec_of(root, &repo).await,
            Err(error) => Box::pin(self.codec_without_repo(root, error)).await,
        }
    }

    /// The same where `repo.json` is lost or damaged: whoever looks at what is left reads it as it was written. Nothing is written
    /// without that document.
    async fn codec_without_repo(self, root: &Root, error: Error) -> Result<ChunkCodec, Error> {
        let is_lost = matches!(error, Error::LostRepo(_) | Error::Read(_));
        if !is_lost || !references::is_damage(&error) {
            return Err(error);
        }
        let pool = root.layout().pool_id();
        let owner = KeyOwner::from(pool.clone());
        match self.key_document(&owner).await? {
            Some(document) => {
                let document = document.value;
                let key = self.unwrapped(&owner, Some(document.clone())).await?;
                let cipher = key.pool();
                // Where nothing says which key belongs here, one that opens nothing would make everything look damaged.
                let fit = if let Some(fit) = self.pools.fit(&pool, &document) {
                    fit
                } else {
                    // One thing that opens is not enough: somebody may have put it there with its key.
                    let found = self.evidence(root, Some(&cipher), PoolEvidence::is_mixed);
                    let fit = found.await?.fit();
                    self.pools.note_fit(pool, document, fit.clone());
                    fit
                };
                fit.ensure(owner)?;
                Ok(ChunkCodec::Encrypted(Arc::new(cipher)))
            }
            None if self.has_tenant_key() => Err(error),
            None => Ok(ChunkCodec::Plain),
        }
    }

    /// The same for a root whose `repo.json` was just read.
    pub(crate) async fn codec_of(
        self,
        root: &Root,
        repo: &RepoDocument,
    ) -> Result<ChunkCodec, Error> {
        let pool = root.layout().pool_id();
        let owner = KeyOwner::from(pool.clone());
        let codec = match &repo.encryption {
            None if self.has_tenant_key() => return Err(EncryptionError::Plain(owner).into()),
            None => ChunkCodec::Plain,
            Some(encryption) => {
                let cipher = self.data_key(&owner).await?.pool();
                if cipher.check(repo.op_id) != encryption.check {
                    return Err(EncryptionError::OtherKey(owner).into());
                }
                ChunkCodec::Encrypted(Arc::new(cipher))
            }
        };
        self.pools.know(&pool, repo, &codec);
        Ok(codec)
    }

    /// Makes a pool where none is: encrypted if a key was given. Somebody else may be first; what lies there then counts.
    pub(crate) async fn make_pool(self, root: &Root) -> Result<NewPool, Error> {
        let pool = root.layout().pool_id();
        let owner = KeyOwner::from(pool.clone());
        let settings = RepoDocument::new(self.lineages.now(), self.rng.op_id());
        let (settings, is_new) = if let Some(tenant) = self.tenant_key().await? {
            let FoundKey { is_new, .. } = self.new_data_key(&tenant, &owner).await?;
            // What lies there is what every later reader has: it must open before anything depends on it.
            let key = self.data_key(&owner).await?;
            (encrypted(settings, &key), is_new)
        } else {
            if let Some(found) = self.key_document(&owner).await? {
                return Err(key_needed(&owner, Some(&found.value)).into());
            }
            self.ensure_may_be_plain(&pool).await?;
            (settings, false)
        };
        let swap = root.init(&settings).await?;
        if matches!(swap, Swap::Won(_)) {
            return Ok(NewPool::Made(Box::new(settings)));
        }
        // Somebody was first, perhaps we ourselves; or our request was lost, and then there is none because nobody made it yet.
        let found = root.repo().await?;
        let place = root.layout().repo_json();
        let unanswered = || BucketError::new(BucketErrorKind::Unreachable, "create", &place);
        let found = found.ok_or_else(unanswered)?;
        if found.op_id == settings.op_id {
            return Ok(NewPool::Made(Box::new(settings)));
        }
        if is_new && !found.is_encrypted() {
            // A plain pool was made meanwhile. Our key encrypts nothing, and beside that pool it would look like a downgrade.
            self.bucket.delete(&layout::data_key(&owner)).await?;
            self.accept(&layout::data_key(&owner), None).await?;
        }
        Ok(NewPool::There)
    }

    /// Reads what is stored of a snapshot.
    pub(crate) async fn understand(
        self,
        root: &Root,
        stored: StoredManifest,
    ) -> Result<OpenedSnapshot, Error> {
        let codec = self.codec(root).await?;
        let snapshot = stored.snapshot_id().clone();
        let unfit = |source| Error::UnfitSnapshot { snapshot, source };
        let manifest = match (stored, &codec) {
            (StoredManifest::Plain(manifest), ChunkCodec::Plain) => *manifest,
            (StoredManifest::Encrypted(stored), ChunkCodec::Encrypted(cipher)) => {
                let opened = cipher.open_manifest(root.layout().name(), &stored);
                let names = if stored.references.is_beside() {
                    Ok(Vec::new())
                } else {
                    stored.references.inline()
                };
                names.and(opened).map_err(unfit)?
            }
            (StoredManifest::Provisional(_), _) => {
                let why = "it is what a save had stored before it was over, and no snapshot";
                return Err(unfit(Invalid::new(why)));
            }
            (stored, _) => return Err(other_form(root, &stored)),
        };
        let list = references::list_of(&manifest)?;
        Ok(OpenedSnapshot {
            manifest,
            list,
            codec,
        })
    }
}

/// A snapshot's manifest that is not of its pool's form.
pub(crate) fn other_form(root: &Root, manifest: &StoredManifest) -> Error {
    let owner = root.layout().pool_id().into();
    let error = match manifest {
        StoredManifest::Encrypted(_) => EncryptionError::EncryptedInPlain(owner),
        StoredManifest::Plain(_) | StoredManifest::Provisional(_) => {
            EncryptionError::PlainInEncrypted(owner)
        }
    };
    error.into()
}

/// What a new pool says whose data key this is.
pub(crate) fn encrypted(settings: RepoDocument, key: &DataKey) -> RepoDocument {
    let check = key.pool().check(settings.op_id);
    settings.encrypted(check)
}

/// What is stored of a snapshot that needs these chunks.
pub(crate) fn closed(
    root: &Root,
    codec: &ChunkCodec,
    manifest: &SnapshotManifest,
    names: &Names,
) -> StoredManifest {
    match codec {
        ChunkCodec::Plain => StoredManifest::Plain(Box::new(manifest.clone())),
        ChunkCodec::Encrypted(cipher) => {
            let closed = cipher.close_manifest(root.layout().name(), manifest, names);
            StoredManifest::Encrypted(Box::new(closed))
        }
    }
}
