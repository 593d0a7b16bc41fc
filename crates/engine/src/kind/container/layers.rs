//! The layers of a snapshot's image in the store, so that any engine can run it.

use super::find::FoundSnapshot;
use super::{SeenEngine, failure};
use crate::error::{Error, ErrorKind};
use crate::handle::Containers;
use stasis_model::id::{OpId, SnapshotId, TenantId};
use stasis_model::protocol::operation::IndexOperation;
use stasis_store::layout::ChunkRoot;

impl Containers<'_> {
    /// Loads the image of a snapshot into an engine.
    pub(super) async fn load_image(
        self,
        found: &FoundSnapshot,
        _seen: &SeenEngine,
        _pool: OpId,
    ) -> Result<(), Error> {
        let said = format!("the image of `{}` cannot be loaded yet", found.id);
        Err(failure(ErrorKind::Bug, said).into())
    }

    /// Lets go of the layers of a snapshot's image.
    pub(super) async fn remove_layers(
        self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<(), Error> {
        let engine = self.engine.rooted(ChunkRoot::image(tenant, id));
        let root = engine.dirs().root();
        if root.index().await?.is_none() {
            return Ok(());
        }
        let (op_id, now) = (self.rng.op_id(), self.lineages.now());
        let changed = root.change(op_id, |index| index.delete(now, op_id)).await;
        let operations = engine.operations();
        operations
            .known(IndexOperation::Forget, &root, changed)
            .await?;
        Ok(())
    }
}
