//! What one restore made on the engine: found again by its label, so that nothing is left of one that failed, even of what an engine
//! made after nobody waited for it any more.

use super::SeenEngine;
use super::restore::RESTORE_LABEL;
use crate::error::Error;
use stasis_model::id::OpId;
use stasis_quiesce::docker::VolumeRemoval;
use std::time::Duration;

/// Removes it, except for the container that is named.
pub(super) async fn remove_made(
    seen: &SeenEngine,
    op_id: OpId,
    except: Option<&str>,
) -> Result<(), Error> {
    let (docker, label) = (&seen.docker, format!("{RESTORE_LABEL}={op_id}"));
    for one in docker.containers_labelled(&label).await? {
        if Some(one.id.as_str()) == except {
            continue;
        }
        if one.status.is_alive() {
            docker
                .stop_container(&one.id, Duration::from_secs(1))
                .await?;
        }
        let removed = docker.remove_container(&one.id, VolumeRemoval::Anonymous);
        removed.await?;
    }
    for volume in docker.volumes_labelled(&label).await? {
        docker.remove_volume(&volume.name).await?;
    }
    for network in docker.networks_labelled(&label).await? {
        docker.remove_network(&network).await?;
    }
    Ok(())
}
