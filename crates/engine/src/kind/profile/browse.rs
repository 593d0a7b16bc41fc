//! Looking into the snapshots of a profile where they lie in the store.

use super::fetch::{another, opened_view};
use super::inventory::Damage as _;
use super::subject::ShaPrefix;
use crate::archive::remote::Remote;
use crate::bridge;
use crate::error::{Error, ProfileError};
use crate::handle::Profiles;
use crate::result::BrowsedSnapshot;
use stasis_disk::form::archive::Archive;
use stasis_model::id::{Lineage, TenantId};
use stasis_store::documents::profiles;
use stasis_store::layout::Key;
use std::path::PathBuf;
use std::sync::Arc;

impl Profiles<'_> {
    /// The lineages of one tenant, or of all.
    pub(crate) async fn browsed_lineages(
        self,
        tenant: Option<&TenantId>,
    ) -> Result<Vec<Lineage>, Error> {
        let all = profiles::lineages(&*self.bucket, tenant).await?;
        Ok(all.into_iter().collect())
    }

    /// The snapshots of a lineage that can be read; one that was deleted, or has lost its archive, is not among them.
    pub(crate) async fn browsed_snapshots(
        self,
        lineage: &Lineage,
    ) -> Result<Vec<BrowsedSnapshot>, Error> {
        let inventory = self.inventory(lineage).await?;
        let active = inventory.active();
        let is_pinned = |archive| {
            let pointer = inventory.pointer.as_ref();
            pointer.is_some_and(|pointer| pointer.is_pinned(archive))
        };
        let all = inventory.stored.snapshots.iter();
        let whole = all
            .filter(|one| one.damage().is_none() && !inventory.is_tombstoned(one.active.archive));
        let rows = whole.map(|one| BrowsedSnapshot {
            id: one.active.archive.to_string(),
            name: None,
            at: one.manifest.captured_at_ms,
            labels: Vec::new(),
            pinned: is_pinned(one.active.archive),
            latest: active == Some(one.active.archive),
        });
        Ok(rows.collect())
    }

    /// The archive of a snapshot, to be read where it lies: its index is read, and that it says it is of the tree that the manifest
    /// says. What is read of it later is checked frame by frame.
    pub(crate) async fn archive_in_store(
        self,
        lineage: &Lineage,
        id: &str,
    ) -> Result<Archive, Error> {
        let inventory = self.inventory(lineage).await?;
        let sha: ShaPrefix = id
            .parse()
            .map_err(|_| ProfileError::NoArchive(id.to_owned()))?;
        let chosen = inventory.choose_whole(&sha)?;
        let (manifest, active) = (chosen.manifest.clone(), chosen.active.clone());
        let key = self.key_to_load(&manifest).await?;
        let place = Key::from_listing(&active.archive_key);
        let place = place.ok_or_else(|| ProfileError::NoArchive(active.archive.prefix()))?;
        let name = PathBuf::from(place.as_str());
        let remote = Remote::new(self.bucket.clone(), place, manifest.archive_size_bytes);
        bridge::blocking(move || {
            let view = opened_view(Arc::new(remote), &name, key.as_deref())?;
            let tree = view.archive.summary().map(|summary| summary.tree_digest);
            let tree = tree.map(|tree| key.as_ref().map_or(tree, |key| key.veil(&tree)));
            if tree == Some(manifest.tree_digest) {
                Ok(view.archive)
            } else {
                Err(another(&active, "that of another tree"))
            }
        })
        .await
    }
}
