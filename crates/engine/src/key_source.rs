//! Where a tenant's key comes from, and what an engine knows of the pools that it met.

use stasis_disk::crypt::TenantKey;
use stasis_disk::form::chunked::ChunkCodec;
use stasis_model::failure::Failure;
use stasis_model::format::key::PoolId;
use stasis_model::format::manifest::RepoDocument;
use stasis_model::id::OpId;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Reads a tenant's key.
type ReadKey = dyn Fn() -> Result<TenantKey, Failure> + Send + Sync;

/// A tenant's key that is read when it is first needed.
pub(crate) struct KeySource {
    read: Box<ReadKey>,
    key: OnceLock<Arc<TenantKey>>,
}

impl KeySource {
    /// A key that `read` gives.
    pub(crate) fn new(
        read: impl Fn() -> Result<TenantKey, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            read: Box::new(read),
            key: OnceLock::new(),
        }
    }

    /// A key that is there already.
    pub(crate) fn given(key: TenantKey) -> Self {
        let source = Self::new(|| unreachable!("the key is there already"));
        let _ = source.key.set(Arc::new(key));
        source
    }

    pub(crate) fn get(&self) -> Result<Arc<TenantKey>, Failure> {
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

/// The pools that an engine met: by whom each was made, and how its chunks are named and stored, once that is known.
///
/// *Always true:* what is known of a pool is forgotten when its `repo.json` is another one.
#[derive(Debug, Default)]
pub(crate) struct KnownPools {
    pools: Mutex<HashMap<PoolId, KnownPool>>,
}

#[derive(Debug)]
struct KnownPool {
    repo: OpId,
    is_encrypted: bool,
    codec: Option<ChunkCodec>,
}

impl KnownPools {
    /// Notes which `repo.json` a pool has; says whether it was noted before.
    pub(crate) fn met(&self, pool: PoolId, repo: &RepoDocument) -> bool {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &KnownPool| {
            known.repo == repo.op_id && known.is_encrypted == repo.is_encrypted()
        };
        let is_known = pools.get(&pool).is_some_and(is_it);
        if !is_known {
            let known = KnownPool {
                repo: repo.op_id,
                is_encrypted: repo.is_encrypted(),
                codec: None,
            };
            pools.insert(pool, known);
        }
        is_known
    }

    /// How the chunks of a pool are named and stored, if that was noted.
    pub(crate) fn codec(&self, pool: &PoolId) -> Option<ChunkCodec> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.get(pool)?.codec.clone()
    }

    /// Notes how the chunks of a pool with this `repo.json` are named and stored.
    pub(crate) fn know(&self, pool: &PoolId, repo: &RepoDocument, codec: &ChunkCodec) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pools.get_mut(pool).filter(|known| known.repo == repo.op_id) {
            known.codec = Some(codec.clone());
        }
    }
}
