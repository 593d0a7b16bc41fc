//! What differs in the files of a container that are in no volume: those of its image, and what it wrote itself.

use super::SeenEngine;
use super::diff::ImageDifference;
use super::find::FoundSnapshot;
use super::image::{MadeFor, helper, remove_helper};
use crate::bridge;
use crate::error::Error;
use crate::handle::Containers;
use crate::piped::StreamReader;
use stasis_disk::form::archive::{ReadSettings, list_tar};
use stasis_model::id::ContainerSubject;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::DigestedEntry;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The files of a container, by where they are.
pub(super) struct OwnFiles(BTreeMap<EntryPath, DigestedEntry>);

impl OwnFiles {
    /// Those of a container, which may run: what it writes meanwhile may or may not be among them.
    pub(super) async fn of(seen: &SeenEngine, container: &str) -> Result<Self, Error> {
        let stream = seen.docker.export_container(container).await?;
        let (reader, name) = (StreamReader::new(stream), PathBuf::from(container));
        let settings = ReadSettings::default();
        let listed = bridge::blocking(move || list_tar(reader, &name, &settings));
        Ok(Self(listed.await?))
    }

    /// What differs in newer ones, by content: times are not compared.
    pub(super) fn compare(&self, new: &Self) -> Vec<ImageDifference> {
        let row = |path: &EntryPath, change: &str| ImageDifference {
            path: format!("/{path}"),
            change: change.to_owned(),
        };
        let mut found = BTreeMap::new();
        for (path, before) in &self.0 {
            match new.0.get(path) {
                None => {
                    found.insert(path, row(path, "deleted"));
                }
                Some(after) if !is_same(before, after) => {
                    found.insert(path, row(path, "modified"));
                }
                Some(_) => {}
            }
        }
        let added = new.0.keys().filter(|path| !self.0.contains_key(path));
        found.extend(added.map(|path| (path, row(path, "added"))));
        found.into_values().collect()
    }
}

fn is_same(before: &DigestedEntry, after: &DigestedEntry) -> bool {
    let known = |one: &DigestedEntry| {
        let metadata = &one.entry.metadata;
        (metadata.mode, metadata.uid, metadata.gid, one.digest)
    };
    before.entry.kind == after.entry.kind && known(before) == known(after)
}

impl FoundSnapshot {
    /// The files of its image; nothing if the engine does not have it.
    pub(super) async fn own_files(
        &self,
        of: Containers<'_>,
        seen: &SeenEngine,
    ) -> Result<Option<OwnFiles>, Error> {
        let image = &self.container.image;
        let there = seen.docker.image(&image.name).await?;
        let there = there.filter(|there| there.layers == image.layers);
        let there = match there {
            Some(there) => Some(there),
            None => seen.docker.image(&image.id).await?,
        };
        let Some(there) = there else {
            return Ok(None);
        };
        // Whoever cleans up sees that it is used.
        let op_id = of.rng.op_id().to_string();
        let name = format!("{}_compared_{}", self.of.subject.container(), &op_id[..8]);
        let lock = of.lock(seen, &name, "compared").await?;
        let made_for = MadeFor {
            snapshot: self.id.clone(),
            pool: of.pool(&self.of.tenant).await?.unwrap_or_default(),
            subject: ContainerSubject::new(&name, &seen.digits),
            by: of.by().await?,
            at: of.clock.now(),
        };
        let helper = helper(&seen.docker, &there.id, &made_for, &[]).await?;
        let files = OwnFiles::of(seen, &helper).await;
        remove_helper(&seen.docker, &helper).await;
        lock.forget().await;
        files.map(Some)
    }
}
