//! The layers of a snapshot's image in the store, so that any engine can run it.
//!
//! They lie there as the files that `docker save` writes, one for each layer: one that two images have is stored once.

use super::find::FoundSnapshot;
use super::image::{MadeFor, image_name};
use super::{SeenEngine, failure};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use crate::open::Engine;
use crate::piped::{StreamReader, piped};
use crate::save::RepoSave;
use bytes::Bytes;
use futures_util::Stream;
use stasis_disk::form::archive::{ReadSettings, receive_entries};
use stasis_disk::form::chunked::tar::{TarError, TarParts, write_tar};
use stasis_disk::fs::atomic_write::make_directory;
use stasis_model::id::{SnapshotId, TenantId};
use stasis_model::protocol::operation::IndexOperation;
use stasis_model::tree::EntryPath;
use stasis_model::tree::list::StoredChunk;
use stasis_quiesce::docker::Docker;
use stasis_store::layout::ChunkRoot;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The directory of their tree in which they lie.
const IMAGE: &str = "image";

impl Containers<'_> {
    fn of_image(self, tenant: &TenantId, id: &SnapshotId) -> Engine {
        self.engine.rooted(ChunkRoot::image(tenant, id))
    }

    /// Stores the layers of a snapshot's image.
    pub(super) async fn store_image(
        self,
        tenant: &TenantId,
        made_for: &MadeFor,
        docker: &Docker,
        cancel: &Arc<AtomicBool>,
    ) -> Result<(), Error> {
        let stream = docker.save_image(&image_name(&made_for.snapshot)).await?;
        self.store_tar(tenant, made_for, stream, cancel).await
    }

    /// Stores a tar that `docker save` wrote as the image of a snapshot.
    pub(super) async fn store_tar(
        self,
        tenant: &TenantId,
        made_for: &MadeFor,
        tar: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        cancel: &Arc<AtomicBool>,
    ) -> Result<(), Error> {
        let id = &made_for.snapshot;
        let engine = self.of_image(tenant, id);
        let view = engine.scratch().await?;
        let (target, reader) = (view.root().join(IMAGE), StreamReader::new(tar));
        let settings = ReadSettings {
            cancel: cancel.clone(),
            ..ReadSettings::default()
        };
        let called = image_name(id);
        let received = bridge::blocking(move || {
            make_directory(&target)?;
            let received = receive_entries(reader, Path::new(&called), &target, &settings)?;
            drop(received);
            Ok::<_, Error>(())
        });
        received.await?;
        let name = id.as_str().parse();
        let name = name.expect("the names of snapshots and of subjects follow one rule");
        let saved = engine.dirs().save(RepoSave {
            allow_shrink: true,
            strict: true,
            labels: made_for.layer_labels(),
            cancel: cancel.clone(),
            ..RepoSave::new(view.root(), name)
        });
        let _ = Box::pin(saved).await?;
        Ok(())
    }

    /// Whether the store has the layers of a snapshot's image.
    pub(super) async fn ensure_layers(
        self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<(), Error> {
        let engine = self.of_image(tenant, id);
        match engine.dirs().index_to_look().await?.latest() {
            Some(_) => Ok(()),
            None => Err(no_layers(id)),
        }
    }

    /// By whom, when and under whose lock the layers of an image were stored.
    pub(super) async fn labels_of_layers(
        self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<BTreeMap<String, String>, Error> {
        let engine = self.of_image(tenant, id);
        let index = engine.dirs().index_to_look().await?;
        let labels = index.latest().map(|row| row.labels.clone());
        let labels = labels.unwrap_or_default().into_iter();
        Ok(labels
            .map(|(name, value)| (name, value.as_str().to_owned()))
            .collect())
    }

    /// The chunks of the layers of a snapshot's image.
    pub(super) async fn chunks_of_layers(
        self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<BTreeSet<StoredChunk>, Error> {
        let engine = self.of_image(tenant, id);
        let (dirs, root) = (engine.dirs(), engine.dirs().root());
        let index = dirs.index_to_look().await?;
        let row = index.latest().ok_or_else(|| no_layers(id))?;
        let opened = dirs.open_snapshot(&root, &index, &row.id).await?;
        dirs.read_as_restore(&root, opened).await
    }

    /// Loads the image of a snapshot into an engine.
    pub(super) async fn load_image(
        self,
        found: &FoundSnapshot,
        seen: &SeenEngine,
    ) -> Result<(), Error> {
        let (reading, stream) = self.image_stream(&found.of.tenant, &found.id).await?;
        let loading = seen.docker.load_image(stream);
        let (read, loaded) = tokio::join!(reading, loading);
        // What could not be read is why the engine got no image.
        read?;
        let loaded = loaded?;
        let wanted = &found.container.image;
        let image = seen.docker.image(&wanted.name).await?;
        if image.is_some_and(|image| image.layers == wanted.layers) {
            return Ok(());
        }
        let said = format!(
            "the engine loaded {}, and that is not the image of snapshot `{}`",
            loaded.join(", "),
            found.id
        );
        Err(failure(ErrorKind::Failed, said).into())
    }

    /// The tar of a snapshot's image, and the work that reads it.
    pub(super) async fn image_stream(
        self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<
        (
            impl Future<Output = Result<(), Error>> + use<>,
            impl Stream<Item = io::Result<Bytes>> + Send + use<>,
        ),
        Error,
    > {
        let engine = self.of_image(tenant, id);
        let (dirs, root) = (engine.dirs(), engine.dirs().root());
        let index = dirs.index_to_look().await?;
        let Some(row) = index.latest() else {
            return Err(no_layers(id));
        };
        let opened = dirs.open_snapshot(&root, &index, &row.id).await?;
        let part = EntryPath::parse(IMAGE.as_bytes());
        let part = part.map_err(|error| failure(ErrorKind::Bug, error.to_string()))?;
        let (source, workers) = (opened.fetcher(&root), dirs.restore_workers());
        let (mut writer, stream) = piped();
        let reading = bridge::blocking(move || {
            let parts = TarParts {
                source: &source,
                list: &opened.list,
                root: opened.manifest.root(),
                root_attributes: &[],
                directory: &part,
                name: &EntryPath::root(),
                workers,
                cancel: &AtomicBool::new(false),
            };
            let written = write_tar(&parts, &mut writer);
            let error = written.as_ref().err();
            let ended = writer.end(error.map(|error| error as &(dyn std::error::Error + 'static)));
            // That nobody reads on is said by whoever did.
            drop(ended);
            match written {
                Ok(_) | Err(TarError::Output(_)) => Ok(()),
                Err(TarError::Chunk(error)) => Err(error.into()),
                Err(error) => Err(failure(ErrorKind::Failed, error_chain(&error)).into()),
            }
        });
        Ok((reading, stream))
    }

    /// The same of one that there will not be. What stays goes with the next cleanup.
    pub(super) async fn discard_layers(self, tenant: &TenantId, id: &SnapshotId) {
        if let Err(error) = self.remove_layers(tenant, id).await {
            let error = error_chain(&error);
            tracing::warn!(%id, error, "the layers of its image were not removed yet");
        }
    }

    /// Lets go of the layers of a snapshot's image.
    pub(super) async fn remove_layers(
        self,
        tenant: &TenantId,
        id: &SnapshotId,
    ) -> Result<(), Error> {
        let engine = self.of_image(tenant, id);
        let root = engine.dirs().root();
        let is_there = root
            .index()
            .await?
            .is_some_and(|found| found.value.is_alive());
        if !is_there {
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

fn no_layers(id: &SnapshotId) -> Error {
    let said = format!("the store has not the layers of the image of snapshot `{id}`");
    failure(ErrorKind::NotFound, said).into()
}
