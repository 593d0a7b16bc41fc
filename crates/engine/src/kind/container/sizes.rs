//! How many bytes the snapshots of containers take: those of their images, and those of chunks, each counted once.

use super::find::FoundContainer;
use crate::error::Error;
use crate::handle::Containers;
use stasis_model::format::manifest::Indexed;
use stasis_model::id::SnapshotId;
use stasis_model::protocol::gc::ChunkName;
use stasis_store::layout::ChunkRoot;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What one snapshot takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SnapshotSize {
    /// Bytes of its image that the container's own image does not have.
    pub(super) image: u64,
    /// Stored bytes of chunks, of its volumes and of layers in the store, that no newer snapshot has: what goes with it if the oldest go
    /// first.
    pub(super) chunks: u64,
}

impl SnapshotSize {
    pub(super) fn bytes(self) -> u64 {
        self.image + self.chunks
    }
}

/// A snapshot with what is needed to measure it.
struct Measured<'f> {
    of: &'f FoundContainer,
    indexed: &'f Indexed,
    image: u64,
    /// The bytes of all layers of its image, if the store has those.
    layers: Option<u64>,
}

impl Measured<'_> {
    /// What it cannot exceed, shared with nothing.
    fn most(&self) -> u64 {
        let layers = self.layers.unwrap_or_default();
        self.indexed.bytes.saturating_add(layers)
    }
}

impl Containers<'_> {
    /// What each snapshot takes. If they cannot exceed `enough` even without sharing anything, that is not looked at more closely.
    pub(super) async fn sizes(
        self,
        all: &[&FoundContainer],
        enough: u64,
    ) -> Result<BTreeMap<SnapshotId, SnapshotSize>, Error> {
        let mut measured = Vec::new();
        for of in all {
            for indexed in of.index.finished() {
                // One that cannot be read is no reason to measure none.
                let image = of.open(&indexed.id).await.ok();
                let image = image.and_then(|one| one.manifest.container);
                let image = image.map(|one| one.image);
                let layers = image.as_ref().filter(|image| image.is_portable);
                measured.push(Measured {
                    of,
                    indexed,
                    layers: layers.map(|image| image.size_bytes),
                    image: image.map_or(0, |image| image.own_bytes),
                });
            }
        }
        let most: u64 = measured
            .iter()
            .map(|one| one.image.saturating_add(one.most()))
            .fold(0, u64::saturating_add);
        if most <= enough {
            let sizes = measured.iter().map(|one| {
                let (image, chunks) = (one.image, one.most());
                (one.indexed.id.clone(), SnapshotSize { image, chunks })
            });
            return Ok(sizes.collect());
        }
        self.shared_once(measured).await
    }

    /// The same, with every chunk counted for the newest snapshot that has it.
    async fn shared_once(
        self,
        mut all: Vec<Measured<'_>>,
    ) -> Result<BTreeMap<SnapshotId, SnapshotSize>, Error> {
        all.sort_by_key(|one| std::cmp::Reverse((one.indexed.at_ms, one.indexed.id.clone())));
        let mut stored: HashMap<ChunkRoot, HashMap<ChunkName, u64>> = HashMap::new();
        let mut counted: HashSet<ChunkName> = HashSet::new();
        let mut sizes = BTreeMap::new();
        for one in all {
            let (root, dirs) = (one.of.root(), one.of.engine.dirs());
            let pool = ChunkRoot::pool(&one.of.tenant);
            if !stored.contains_key(&pool) {
                let chunks = root.chunks().await?.into_iter().collect();
                stored.insert(pool.clone(), chunks);
            }
            let own = match one.of.open(&one.indexed.id).await {
                Ok(opened) => dirs.read_as_restore(&root, opened).await.ok(),
                Err(_) => None,
            };
            let mut chunks = own.unwrap_or_default();
            if one.layers.is_some() {
                let layers = self.chunks_of_layers(&one.of.tenant, &one.indexed.id);
                chunks.extend(layers.await.unwrap_or_default());
            }
            let mut bytes = 0;
            for chunk in chunks {
                if counted.insert(chunk.name) {
                    let size = stored.get(&pool).and_then(|all| all.get(&chunk.name));
                    bytes += size.copied().unwrap_or_default();
                }
            }
            let size = SnapshotSize {
                image: one.image,
                chunks: bytes,
            };
            sizes.insert(one.indexed.id.clone(), size);
        }
        Ok(sizes)
    }
}
