//! Whether everything of a snapshot is there: its image, its chunks, the values of its environment.

use super::find::FoundSnapshot;
use super::{SeenEngine, failure};
use crate::bridge;
use crate::catalog::no_entry;
use crate::catalog::reader::SnapshotReader;
use crate::error::{Error, ErrorKind};
use crate::handle::Containers;
use futures_util::{StreamExt as _, stream};
use stasis_model::format::manifest::{ENVIRONMENT_FILE, Environment};
use stasis_model::tree::EntryPath;
use std::sync::Arc;

/// How many chunks are asked for at once.
const AT_ONCE: usize = 16;

impl FoundSnapshot {
    /// Its image is on the engine, and is the one that was made; or it can be, if nothing is to be done yet.
    pub(super) async fn ensure_image(
        &self,
        of: Containers<'_>,
        seen: &SeenEngine,
        dry_run: bool,
    ) -> Result<(), Error> {
        let image = &self.container.image;
        let there = seen.docker.image(&image.name).await?;
        // An engine that loaded it may have given it another id.
        if there.is_some_and(|there| there.id == image.id || there.layers == image.layers) {
            return Ok(());
        }
        if seen.docker.image(&image.id).await?.is_some() {
            if dry_run {
                return Ok(());
            }
            let (repository, tag) = image
                .name
                .split_once(':')
                .unwrap_or((&image.name, "latest"));
            seen.docker.tag_image(&image.id, repository, tag).await?;
            return Ok(());
        }
        if image.is_portable {
            if dry_run {
                return of.ensure_layers(&self.of.tenant, &self.id).await;
            }
            return of.load_image(self, seen).await;
        }
        let (id, engine) = (&self.id, &self.container.engine);
        let said = if *engine == seen.digits {
            format!(
                "the image of snapshot `{id}` is gone from the engine, and the store has not its layers"
            )
        } else {
            format!(
                "the image of snapshot `{id}` is on another engine ({engine}), and the store has not its layers"
            )
        };
        let hint = format!(
            "its volumes are there: `stasis restore container:{} {id} --to DIR` writes them; `create --portable` stores the layers of later ones too",
            self.of.subject.container()
        );
        Err(failure(ErrorKind::NotFound, said).with_hint(hint).into())
    }

    /// Every chunk that it needs is in the store.
    pub(super) async fn ensure_chunks(&self) -> Result<(), Error> {
        let (dirs, root) = (self.of.engine.dirs(), self.of.root());
        let chunks = dirs.read_as_restore(&root, self.opened.clone()).await?;
        let names = stream::iter(chunks.into_iter().map(|chunk| chunk.name));
        let root = &root;
        let asked = names.map(|name| async move {
            let is_there = root.has_chunk(&name).await?;
            Ok::<_, Error>((name, is_there))
        });
        let mut asked = std::pin::pin!(asked.buffer_unordered(AT_ONCE));
        while let Some(answer) = asked.next().await {
            let (name, is_there) = answer?;
            if !is_there {
                let said = format!(
                    "snapshot `{}` cannot be restored: the chunk {} is missing in `{}`",
                    self.id,
                    name,
                    self.of.engine.location()
                );
                let hint = format!(
                    "`stasis check container:{}` says what is damaged, and what helps",
                    self.of.subject
                );
                return Err(failure(ErrorKind::Corrupt, said).with_hint(hint).into());
            }
        }
        Ok(())
    }

    /// The values of its environment.
    pub(super) async fn environment(&self) -> Result<Environment, Error> {
        let path = EntryPath::parse(ENVIRONMENT_FILE.as_bytes());
        let path = path.map_err(|error| failure(ErrorKind::Bug, error.to_string()))?;
        let (root, id) = (self.of.root(), self.id.clone());
        let source = Arc::new(self.opened.fetcher(&root));
        let reader = SnapshotReader::new(self.opened.list.clone(), source);
        let workers = self.of.engine.dirs().restore_workers();
        let read = bridge::blocking(move || {
            let content = reader.content(&path)?;
            let content = content.ok_or_else(|| no_entry("file", &path, &id))?;
            let mut text = Vec::new();
            let written = reader.write(&content, workers, &mut text)?;
            written.map_err(|error| failure(ErrorKind::Failed, error.to_string()))?;
            Ok::<_, Error>(text)
        });
        let text = read.await?;
        serde_json::from_slice(&text).map_err(|error| {
            let said = format!(
                "{ENVIRONMENT_FILE} of snapshot `{}` is damaged: {error}",
                self.id
            );
            failure(ErrorKind::Corrupt, said).into()
        })
    }
}
