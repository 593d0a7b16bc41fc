//! What a restore was about to make: written down before, so that whoever finds it after a crash knows what nobody needs.

use super::cleanup::{CleanupContainers, ContainersCleaned, remove_image};
use super::image::image_name;
use super::made::MadeBy;
use super::{SeenEngine, failure};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use serde::{Deserialize, Serialize};
use stasis_disk::fs::atomic_write::{atomic_write, read_bounded, remove_durably};
use stasis_model::container::status::ContainerStatus;
use stasis_model::failure::AtPath as _;
use stasis_model::id::{ContainerSubject, OpId, SnapshotId, TenantId};
use stasis_quiesce::docker::VolumeRemoval;
use std::path::PathBuf;

/// No such record is longer.
const LONGEST: u64 = 64 << 10;

/// A restore that was begun.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct BegunRestore {
    op_id: OpId,
    /// What the container is to be called.
    container_name: String,
    /// The snapshot that is imported, if it is an import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    import: Option<BegunImport>,
}

/// An import that was begun.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct BegunImport {
    /// The store that gets it: no other one knows whether it is there.
    #[serde(default)]
    store: String,
    tenant: TenantId,
    subject: ContainerSubject,
    snapshot_id: SnapshotId,
    /// What the image is called until it has a name of its own, if the engine did not have it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loaded: Option<String>,
}

/// The record of a restore that is going on.
#[derive(Debug)]
pub(super) struct RestoreRecord(PathBuf);

impl RestoreRecord {
    /// The restore has ended, one way or the other.
    pub(super) async fn end(self) {
        let removed = bridge::blocking(move || remove_durably(&self.0)).await;
        if let Err(error) = removed {
            let error = error_chain(&error);
            tracing::warn!(error, "that a restore has ended was not written down");
        }
    }
}

impl Containers<'_> {
    /// Writes down that a restore begins.
    pub(super) async fn begin_restore(
        self,
        seen: &SeenEngine,
        op_id: OpId,
        container_name: &str,
    ) -> Result<RestoreRecord, Error> {
        let begun = BegunRestore {
            op_id,
            container_name: container_name.to_owned(),
            import: None,
        };
        self.write_begun(seen, &begun).await
    }

    /// Writes down that an import begins.
    pub(super) async fn begin_import(
        self,
        seen: &SeenEngine,
        subject: &ContainerSubject,
        (tenant, id): (&TenantId, &SnapshotId),
        loaded: Option<String>,
    ) -> Result<RestoreRecord, Error> {
        let begun = BegunRestore {
            op_id: self.rng.op_id(),
            container_name: subject.container().to_owned(),
            import: Some(BegunImport {
                store: self.location.to_string(),
                tenant: tenant.clone(),
                subject: subject.clone(),
                snapshot_id: id.clone(),
                loaded,
            }),
        };
        self.write_begun(seen, &begun).await
    }

    async fn write_begun(
        self,
        seen: &SeenEngine,
        begun: &BegunRestore,
    ) -> Result<RestoreRecord, Error> {
        let file = format!("{}.{}.restore.json", begun.op_id, seen.digits);
        let path = self.own_place().await?.join(file);
        let text = serde_json::to_vec_pretty(begun);
        let text = text.map_err(|error| failure(ErrorKind::Bug, error.to_string()))?;
        let written = path.clone();
        bridge::blocking(move || atomic_write(&written, &text)).await?;
        Ok(RestoreRecord(path))
    }

    /// Removes what restores left that were interrupted: volumes, and a container that was never started. One that runs is done.
    pub(super) async fn clean_restores(
        self,
        seen: &SeenEngine,
        how: &CleanupContainers,
        cleaned: &mut ContainersCleaned,
    ) -> Result<(), Error> {
        let here = self.location.to_string();
        for (path, begun) in self.begun(seen).await? {
            if begun.import.as_ref().is_some_and(|one| one.store != here) {
                continue;
            }
            let locked = self.lock(seen, &begun.container_name, "cleaned up").await;
            let _lock = match locked {
                Ok(lock) => lock,
                // Somebody is at it.
                Err(error) if error.kind() == ErrorKind::Conflict => continue,
                Err(error) => return Err(error),
            };
            let ended = self.clean_restore(seen, &begun, how.dry_run, cleaned).await;
            match ended {
                Ok(true) if !how.dry_run => RestoreRecord(path).end().await,
                Ok(_) => {}
                Err(error) => {
                    let said = format!("{}: {}", begun.container_name, error_chain(&error));
                    cleaned.left.push(said);
                }
            }
        }
        Ok(())
    }

    /// Says whether nothing of it is left to be removed.
    async fn clean_restore(
        self,
        seen: &SeenEngine,
        begun: &BegunRestore,
        dry_run: bool,
        cleaned: &mut ContainersCleaned,
    ) -> Result<bool, Error> {
        let docker = &seen.docker;
        let made = MadeBy {
            op_id: begun.op_id,
            name: &begun.container_name,
        };
        if let Some(one) = made.container(seen).await? {
            // One that was ever started is somebody's by now, whether it runs or not.
            if one.status != ContainerStatus::Created {
                return Ok(true);
            }
            if !dry_run {
                let removed = docker.remove_container(&one.id, VolumeRemoval::Anonymous);
                if let Err(error) = removed.await {
                    // An engine that was asked to start it may do so after whoever asked is gone.
                    let now = docker.container(&one.id).await?;
                    if now.is_some_and(|now| now.status != ContainerStatus::Created) {
                        return Ok(true);
                    }
                    return Err(error.into());
                }
            }
            cleaned.containers.push(one.name);
        }
        let (gone, left) = made.remove_rest(seen, dry_run).await?;
        cleaned.volumes.extend(gone);
        if let Some(why) = left.first() {
            return Err(failure(ErrorKind::Failed, why.clone()).into());
        }
        match &begun.import {
            Some(import) => self.clean_import(seen, import, dry_run, cleaned).await,
            None => Ok(true),
        }
    }

    /// Removes the image of a snapshot that was not imported in the end, or is gone; says whether it is.
    async fn clean_import(
        self,
        seen: &SeenEngine,
        import: &BegunImport,
        dry_run: bool,
        cleaned: &mut ContainersCleaned,
    ) -> Result<bool, Error> {
        let engine = self.of(&import.tenant, &import.subject);
        let index = engine.dirs().root().index().await?;
        let id = &import.snapshot_id;
        let is_known = index.is_some_and(|index| index.value.find(id).is_some());
        let own = Some(image_name(id)).filter(|_| !is_known);
        let mut is_gone = true;
        for name in import.loaded.clone().into_iter().chain(own) {
            if seen.docker.image(&name).await?.is_none() {
                continue;
            }
            is_gone &= remove_image(seen, &name, dry_run, cleaned).await;
        }
        Ok(is_gone)
    }

    /// The restores of an engine that were begun and have not ended.
    async fn begun(self, seen: &SeenEngine) -> Result<Vec<(PathBuf, BegunRestore)>, Error> {
        let place = self.own_place().await?;
        let ending = format!(".{}.restore.json", seen.digits);
        bridge::blocking(move || {
            let mut all = Vec::new();
            for entry in std::fs::read_dir(&place).at("list", &place)? {
                let entry = entry.at("list", &place)?;
                if !entry.file_name().to_string_lossy().ends_with(&ending) {
                    continue;
                }
                let path = entry.path();
                let text = read_bounded(&path, LONGEST).at("read", &path)?;
                let Ok(begun) = serde_json::from_slice(&text) else {
                    continue;
                };
                all.push((path, begun));
            }
            Ok(all)
        })
        .await
    }
}
