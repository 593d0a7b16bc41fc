//! What one restore made on the engine: found again by its label, so that nothing is left of one that failed, even of what an engine
//! made after nobody waited for it any more.
//!
//! A label alone makes no container ours: whoever commits a container of ours, and runs that image, has its labels. The name must be
//! the one that was to be given, too.

use super::SeenEngine;
use super::image::RESTORE_LABEL;
use crate::error::{Error, ErrorKind, error_chain};
use stasis_model::container::status::ContainerStatus;
use stasis_model::id::OpId;
use stasis_quiesce::docker::{ListedContainer, VolumeRemoval};
use std::time::Duration;

/// How often the removal of a container is tried that is started again meanwhile, and how long is waited in between.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// A restore, and what its container is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct MadeBy<'m> {
    pub(super) op_id: OpId,
    pub(super) name: &'m str,
}

impl MadeBy<'_> {
    fn label(&self) -> String {
        format!("{RESTORE_LABEL}={}", self.op_id)
    }

    /// The container that it made, if it did.
    pub(super) async fn container(
        &self,
        seen: &SeenEngine,
    ) -> Result<Option<ListedContainer>, Error> {
        let all = seen.docker.containers_labelled(&self.label()).await?;
        Ok(all.into_iter().find(|one| one.name == self.name))
    }

    /// Removes its container, even one that runs, except for the one that is named.
    pub(super) async fn remove_container(
        &self,
        seen: &SeenEngine,
        except: Option<&str>,
    ) -> Result<(), Error> {
        let docker = &seen.docker;
        let mut attempts = 0;
        loop {
            let found = self.container(seen).await?;
            let Some(one) = found.filter(|one| Some(one.id.as_str()) != except) else {
                return Ok(());
            };
            let is_still = matches!(
                one.status,
                ContainerStatus::Created | ContainerStatus::Exited
            );
            if !is_still || attempts > 0 {
                // One that is started again and again does not run, and must be stopped all the same.
                let soon = Duration::from_secs(1);
                let stopped = docker.stop_container(&one.id, soon).await;
                if one.status.is_alive() {
                    stopped?;
                }
            }
            let removed = docker.remove_container(&one.id, VolumeRemoval::Anonymous);
            match removed.await {
                Ok(_) => return Ok(()),
                // An engine that was asked to start it does so, though whoever asked is gone.
                Err(error) if error.kind() == ErrorKind::Conflict && attempts < ATTEMPTS => {
                    attempts += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Removes its volumes and networks; says what went, and what could not go, and why.
    pub(super) async fn remove_rest(
        &self,
        seen: &SeenEngine,
        dry_run: bool,
    ) -> Result<(Vec<String>, Vec<String>), Error> {
        let (docker, label) = (&seen.docker, self.label());
        let (mut gone, mut left) = (Vec::new(), Vec::new());
        for volume in docker.volumes_labelled(&label).await? {
            let removed = if dry_run {
                Ok(true)
            } else {
                docker.remove_volume(&volume.name).await
            };
            match removed {
                Ok(_) => gone.push(volume.name),
                Err(error) => left.push(error_chain(&error)),
            }
        }
        for network in docker.networks_labelled(&label).await? {
            if dry_run {
                continue;
            }
            if let Err(error) = docker.remove_network(&network).await {
                left.push(error_chain(&error));
            }
        }
        Ok((gone, left))
    }
}
