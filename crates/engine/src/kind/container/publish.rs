//! Makes a snapshot exist of a container that was read: its image is described, and its tree published.

use super::capture::{Attempt, Capture, StillTree};
use super::create::{ContainerSaved, UnsoundDatabase, VolumeSaved};
use super::failure;
use super::image::described;
use super::still::Released;
use crate::error::{Error, ErrorKind};
use crate::handle::Containers;
use crate::result::SkipReason;
use crate::save::{GatheredTree, RepoSaved};
use stasis_model::container::capture::{NotCaptured, NotCapturedBecause};
use stasis_model::format::manifest::{ContainerManifest, SnapshotImage};
use stasis_model::id::SnapshotId;

impl Capture<'_> {
    /// Makes the snapshot exist.
    pub(super) async fn publish(
        &self,
        of: Containers<'_>,
        id: &SnapshotId,
        manifest: &mut ContainerManifest,
        gathered: StillTree,
    ) -> Result<ContainerSaved, Attempt> {
        let StillTree {
            mut tree,
            image,
            released,
        } = gathered;
        tracing::debug!(image, "committed");
        let specials = self.specials(&tree);
        if let Some(device) = self.refused_special(&specials) {
            tree.give_up().await;
            return Err(Attempt::Over(device));
        }
        // Before what no container takes along.
        let at = self.planned.left.len();
        manifest.not_captured.splice(at..at, specials);
        let original = &manifest.original_image_id;
        let described = described(self.seen, self.facts, original, &self.made_for(id)).await;
        let stored = match described {
            Ok(image) if self.how.portable => self.store_layers(of, id, image).await,
            described => described,
        };
        manifest.image = match stored {
            Ok(image) => image,
            Err(error) => {
                tree.give_up().await;
                return Err(error.into());
            }
        };
        if self.adds_nothing(&tree, manifest).await? {
            tree.give_up().await;
            return Err(Attempt::Unchanged);
        }
        let how = self.how;
        manifest.trigger = how.trigger;
        manifest.description = how.description.clone();
        manifest.run_id.clone_from(&how.run_id);
        manifest.action_context.clone_from(&how.action_context);
        tree.is_of(manifest.clone());
        let dirs = self.engine.dirs();
        let ready = dirs.save_describe(tree).await?;
        let volumes = ready.volumes().clone();
        let saved = dirs.save_publish(ready).await?;
        let rows = manifest.volumes.iter().filter_map(|one| {
            let measured = volumes.get(&one.path)?;
            Some(VolumeSaved::new(one, measured))
        });
        let volumes = rows.collect();
        Ok(self.saved(saved, manifest, volumes, released))
    }

    /// Sockets and devices in volumes, by the container's own paths.
    fn specials(&self, tree: &GatheredTree) -> Vec<NotCaptured> {
        let place = |path: &str| {
            let mut volumes = self.planned.volumes.iter().map(|one| &one.manifest);
            volumes.find_map(|one| {
                let rest = path.strip_prefix(&one.path)?.strip_prefix('/')?;
                Some(format!("{}/{rest}", one.destinations.first()?))
            })
        };
        let all = tree.specials().into_iter().map(|one| {
            let because = match one.reason {
                SkipReason::Device => NotCapturedBecause::Device,
                _ => NotCapturedBecause::Socket,
            };
            NotCaptured::entry(place(&one.path).unwrap_or(one.path), because)
        });
        all.collect()
    }

    /// Why a strict save does not go on. What listens at a socket makes it anew; nobody makes a device.
    fn refused_special(&self, specials: &[NotCaptured]) -> Option<Error> {
        let is_device = |one: &&NotCaptured| one.because == NotCapturedBecause::Device;
        let device = specials
            .iter()
            .filter(|_| self.how.strict)
            .find(is_device)?;
        let name = &self.facts.name;
        let said = format!(
            "the device `{}` of `{name}` would not be saved (--strict)",
            device.what
        );
        let failure = failure(ErrorKind::Invalid, said);
        Some(
            failure
                .with_hint("leave out --strict to save the rest")
                .into(),
        )
    }

    /// Stores the layers of the image.
    async fn store_layers(
        &self,
        of: Containers<'_>,
        id: &SnapshotId,
        image: SnapshotImage,
    ) -> Result<SnapshotImage, Error> {
        of.store_image(
            &self.tenant,
            &self.made_for(id),
            &self.seen.docker,
            &self.how.cancel,
        )
        .await?;
        Ok(SnapshotImage {
            is_portable: true,
            ..image
        })
    }

    fn saved(
        &self,
        saved: RepoSaved,
        manifest: &ContainerManifest,
        volumes: Vec<VolumeSaved>,
        released: Released,
    ) -> ContainerSaved {
        let image = &manifest.image;
        let unsound = saved.not_consistent.into_iter();
        let bytes = volumes.iter().map(|one| one.bytes).sum();
        let frozen_ms = released.paused_for.as_millis();
        ContainerSaved {
            snapshot_id: saved.snapshot_id,
            subject: super::find::typed(&self.subject),
            tenant: self.tenant.clone(),
            container_name: self.facts.name.clone(),
            container_id: self.facts.id.clone(),
            trigger: self.how.trigger,
            image: image.name.clone(),
            image_bytes: image.own_bytes,
            portable: image.is_portable,
            // One is the file of the environment.
            files: saved.files.saturating_sub(1),
            bytes,
            bytes_stored: saved.bytes_stored,
            frozen_ms: u64::try_from(frozen_ms).unwrap_or(u64::MAX),
            volumes,
            databases: saved.databases,
            unsound_databases: unsound
                .map(|one| UnsoundDatabase {
                    path: one.path,
                    reason: one.reason,
                })
                .collect(),
            not_captured: manifest.not_captured.clone(),
            removed: Vec::new(),
            warnings: [&self.planned.warnings[..], &saved.warnings].concat(),
            elapsed_ms: 0,
        }
    }
}
