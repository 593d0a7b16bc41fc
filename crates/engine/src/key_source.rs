//! Where a tenant's key comes from, and what an engine knows of the pools that it met.

use crate::bridge;
use crate::error::{EncryptionError, NotOfKey};
use stasis_disk::crypt::TenantKey;
use stasis_disk::form::chunked::ChunkCodec;
use stasis_model::failure::Failure;
use stasis_model::format::key::{KeyDocument, KeyOwner, PoolId};
use stasis_model::format::manifest::{PoolEncryption, RepoDocument};
use stasis_model::id::OpId;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Reads a tenant's key.
type ReadKey = dyn Fn() -> Result<TenantKey, Failure> + Send + Sync;

/// A tenant's key that is read when it is first needed, and once: a command that prints it may ask somebody.
pub(crate) struct KeySource {
    read: Box<ReadKey>,
    key: OnceLock<Arc<TenantKey>>,
    reading: Mutex<()>,
}

impl KeySource {
    /// A key that `read` gives.
    pub(crate) fn new(
        read: impl Fn() -> Result<TenantKey, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            read: Box::new(read),
            key: OnceLock::new(),
            reading: Mutex::default(),
        }
    }

    /// A key that is there already.
    pub(crate) fn given(key: TenantKey) -> Self {
        let source = Self::new(|| unreachable!("the key is there already"));
        let _ = source.key.set(Arc::new(key));
        source
    }

    /// The key. Reading it takes as long as the command that prints it, off the threads of the runtime.
    pub(crate) async fn get(self: &Arc<Self>) -> Result<Arc<TenantKey>, Failure> {
        if let Some(key) = self.key.get() {
            return Ok(key.clone());
        }
        let source = self.clone();
        bridge::blocking(move || source.read()).await
    }

    fn read(&self) -> Result<Arc<TenantKey>, Failure> {
        let _one_at_a_time = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = self.key.get() {
            return Ok(key.clone());
        }
        let key = Arc::new((self.read)()?);
        Ok(self.key.get_or_init(|| key).clone())
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeySource({:?})", self.key.get())
    }
}

/// The pools that an engine met and found to be in order: which `repo.json` each has, and how its chunks are named and stored, once
/// that is known.
///
/// *Always true:* what is known of a pool holds for this very `repo.json` only.
#[derive(Debug, Default)]
pub(crate) struct KnownPools {
    pools: Mutex<HashMap<PoolId, KnownPool>>,
    /// Of pools without a `repo.json`, into which nobody writes: whether this key is theirs, which takes a look at all that is there.
    fits: Mutex<HashMap<PoolId, (KeyDocument, KeyFit)>>,
}

/// Whether a key is that of a pool which does not say so itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KeyFit {
    /// It opens what is there.
    Opens,
    /// What is there is encrypted, and it opens nothing of it.
    OpensNothing,
    /// Something is there that is not of this key, with something that is, if anything is.
    Mixed {
        /// What it opens.
        opens: Option<String>,
        /// What is not of it.
        other: NotOfKey,
    },
}

impl KeyFit {
    /// Refuses a key that is not that of everything in a pool.
    pub(crate) fn ensure(self, owner: KeyOwner) -> Result<(), EncryptionError> {
        match self {
            Self::Opens => Ok(()),
            Self::OpensNothing => Err(EncryptionError::OpensNothing(owner)),
            Self::Mixed { opens, other } => Err(EncryptionError::Mixed {
                owner,
                opens,
                other,
            }),
        }
    }
}

#[derive(Debug)]
struct KnownPool {
    repo: PoolIdentity,
    codec: Option<ChunkCodec>,
}

/// What tells one `repo.json` from another.
type PoolIdentity = (OpId, Option<PoolEncryption>);

fn identity(repo: &RepoDocument) -> PoolIdentity {
    (repo.op_id, repo.encryption.clone())
}

impl KnownPools {
    fn lock(&self) -> MutexGuard<'_, HashMap<PoolId, KnownPool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a pool was found to be in order with this `repo.json`.
    pub(crate) fn has(&self, pool: &PoolId, repo: &RepoDocument) -> bool {
        let pools = self.lock();
        pools
            .get(pool)
            .is_some_and(|known| known.repo == identity(repo))
    }

    /// Whether this key is that of a pool without a `repo.json`, if that was noted.
    pub(crate) fn fit(&self, pool: &PoolId, key: &KeyDocument) -> Option<KeyFit> {
        let fits = self.fits.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, fit) = fits.get(pool).filter(|(noted, _)| noted == key)?;
        Some(fit.clone())
    }

    /// Notes that.
    pub(crate) fn note_fit(&self, pool: PoolId, key: KeyDocument, fit: KeyFit) {
        let mut fits = self.fits.lock().unwrap_or_else(PoisonError::into_inner);
        fits.insert(pool, (key, fit));
    }

    /// Whether a pool was met that was encrypted.
    pub(crate) fn was_encrypted(&self, pool: &PoolId) -> bool {
        let pools = self.lock();
        pools.get(pool).is_some_and(|known| known.repo.1.is_some())
    }

    /// Notes that a pool is in order with this `repo.json`.
    pub(crate) fn note(&self, pool: PoolId, repo: &RepoDocument) {
        let (repo, codec) = (identity(repo), None);
        self.lock().insert(pool, KnownPool { repo, codec });
    }

    /// How the chunks of a pool are named and stored, if that was noted.
    pub(crate) fn codec(&self, pool: &PoolId) -> Option<ChunkCodec> {
        self.lock().get(pool)?.codec.clone()
    }

    /// Notes how the chunks of a pool with this `repo.json` are named and stored.
    pub(crate) fn know(&self, pool: &PoolId, repo: &RepoDocument, codec: &ChunkCodec) {
        let mut pools = self.lock();
        let known = pools.get_mut(pool);
        if let Some(known) = known.filter(|known| known.repo == identity(repo)) {
            known.codec = Some(codec.clone());
        }
    }
}
