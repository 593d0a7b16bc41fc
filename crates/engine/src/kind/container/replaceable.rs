//! Whether a container may be replaced, what is saved of it before, and what the new one has of it.

use super::create::CreateSnapshot;
use super::restore::RestoreLook;
use super::volumes::VolumePlace;
use super::{SeenEngine, failure};
use crate::error::{Error, ErrorKind};
use stasis_model::container::capture::CaptureWishes;
use stasis_model::container::mount::{ContainerMount, ContainerMountKind};
use stasis_model::format::manifest::CapturedVolume;
use stasis_model::id::SnapshotId;
use stasis_quiesce::docker::{ContainerFacts, ListedContainer};
use std::path::Path;

/// What a swarm gives to its containers.
const SWARM_LABEL: &str = "com.docker.swarm.task.id";

/// Refuses a container that somebody else would remove or make again.
pub(super) fn ensure_replaceable(now: &ContainerFacts) -> Result<(), Error> {
    let name = &now.name;
    let said = if now.host_config["AutoRemove"] == true {
        format!("the container `{name}` goes when it is stopped (--rm), before it could be saved")
    } else if now.config["Labels"][SWARM_LABEL].is_string() {
        format!("the container `{name}` is a task of a swarm, which would start another one")
    } else {
        return Ok(());
    };
    let hint = "restore beside it, without --mode replace";
    Err(failure(ErrorKind::Invalid, said).with_hint(hint).into())
}

impl RestoreLook<'_> {
    /// The snapshot that is made before: of everything that the restore replaces.
    pub(super) fn safety_of(&self, now: &ContainerFacts, id: &SnapshotId) -> CreateSnapshot {
        let volumes = &self.found.container.volumes;
        let of_kind = |kind: ContainerMountKind| {
            let all = volumes.iter().filter(move |one| one.kind == kind);
            all.flat_map(|one| one.destinations.clone())
        };
        let bound = now.mounts.iter();
        let bound = bound.filter(|one| one.kind == ContainerMountKind::Bind);
        let bound: Vec<&String> = bound.map(|one| &one.destination).collect();
        let binds = of_kind(ContainerMountKind::Bind).filter(|one| bound.contains(&one));
        let said = format!("before the restore of {}", self.found.id);
        CreateSnapshot {
            wishes: CaptureWishes {
                binds: binds.collect(),
                anonymous: of_kind(ContainerMountKind::AnonymousVolume)
                    .next()
                    .is_some(),
            },
            description: said.parse().unwrap_or_default(),
            max_freeze: self.how.max_freeze,
            cancel: self.how.cancel.clone(),
            progress: self.how.progress.clone(),
            snapshot_id: Some(id.clone()),
            ..CreateSnapshot::new(&now.id)
        }
    }

    /// A volume of that name with other options is somebody else's; one that is gone is made.
    pub(super) async fn ensure_volumes(&self, now: &ContainerFacts) -> Result<(), Error> {
        for volume in &self.found.container.volumes {
            let is_bind = volume.kind == ContainerMountKind::Bind;
            let is_mounted = |one: &ContainerMount| match one.kind {
                ContainerMountKind::Bind => {
                    let places = &volume.destinations;
                    is_bind && one.source == volume.name && places.contains(&one.destination)
                }
                _ => !is_bind && one.volume.as_ref() == Some(&volume.name),
            };
            let is_mounted = now.mounts.iter().any(is_mounted);
            // What only the engine can write is not written: another volume takes its place.
            if !is_mounted
                && let Some(VolumePlace::Engine(_)) = self.seen.place_if_there(volume).await?
            {
                continue;
            }
            if is_bind {
                if !is_mounted {
                    return Err(not_mounted(&now.name, &volume.name));
                }
                self.ensure_bind_unused(now, &volume.name).await?;
                continue;
            }
            let Some(there) = self.seen.docker.volume(&volume.name).await? else {
                continue;
            };
            if !is_mounted {
                return Err(not_mounted(&now.name, &volume.name));
            }
            let others = self
                .seen
                .docker
                .containers_with_volume(&volume.name)
                .await?;
            let is_other = |one: &&ListedContainer| one.id != now.id && one.status.is_alive();
            if let Some(other) = others.iter().find(is_other) {
                return Err(in_use(&other.name, &volume.name));
            }
            if there.driver != volume.driver || there.options != volume.options {
                let said = format!(
                    "there is a volume `{}` with another driver or other options than the one that was saved",
                    volume.name
                );
                let hint = "nothing was changed; restore beside it, without --mode replace";
                return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
            }
        }
        Ok(())
    }

    /// Refuses to write a directory of the host that another container which runs has bound, or something above or within it.
    async fn ensure_bind_unused(&self, now: &ContainerFacts, source: &str) -> Result<(), Error> {
        let users = users_of_bind(self.seen, source).await?;
        match users.iter().find(|one| one.id != now.id) {
            Some(other) => Err(in_use(&other.name, source)),
            None => Ok(()),
        }
    }

    /// What is mounted in the new container: the volumes of the snapshot, and volumes that nobody named and nobody saved, as they are.
    pub(super) fn mounted_again(
        &self,
        now: &ContainerFacts,
        filled: &[(CapturedVolume, String)],
    ) -> Vec<(String, String)> {
        // A directory of the host is mounted as it was, unless a volume stands in for it.
        let is_volume = |(one, name): &&(CapturedVolume, String)| {
            one.kind != ContainerMountKind::Bind || one.name != *name
        };
        let mut mounted: Vec<(String, String)> = filled
            .iter()
            .filter(is_volume)
            .flat_map(|(one, name)| {
                let places = one.destinations.iter().cloned();
                places.map(|place| (place, name.clone()))
            })
            .collect();
        let wanted: Vec<&String> = self
            .not_captured_mounts()
            .filter(|one| one.kind == ContainerMountKind::AnonymousVolume)
            .map(|one| &one.destination)
            .collect();
        let there = now.mounts.iter();
        let there = there.filter(|one| one.kind == ContainerMountKind::AnonymousVolume);
        for one in there.filter(|one| wanted.contains(&&one.destination)) {
            if let Some(volume) = &one.volume {
                mounted.push((one.destination.clone(), volume.clone()));
            }
        }
        mounted
    }
}

/// The containers that run and have a directory of the host bound, or something above or within it.
pub(super) async fn users_of_bind(
    seen: &SeenEngine,
    source: &str,
) -> Result<Vec<ListedContainer>, Error> {
    let source = Path::new(source);
    let mut users = Vec::new();
    for one in seen.docker.running_containers().await? {
        // One that ended since uses nothing.
        let Some(facts) = seen.docker.container(&one.id).await? else {
            continue;
        };
        let mut binds = facts.mounts.iter();
        let is_same = |one: &ContainerMount| {
            let bound = Path::new(&one.source);
            let is_bind = one.kind == ContainerMountKind::Bind;
            is_bind && (bound.starts_with(source) || source.starts_with(bound))
        };
        if binds.any(is_same) {
            users.push(one);
        }
    }
    Ok(users)
}

/// Refuses to write what somebody reads and writes meanwhile.
fn in_use(container: &str, volume: &str) -> Error {
    let said = format!(
        "the container `{container}` runs and has `{volume}` too: what it has would be replaced under it"
    );
    let hint = "stop it first, or restore beside it, without --mode replace";
    failure(ErrorKind::Conflict, said).with_hint(hint).into()
}

/// Refuses to write what the safety snapshot would not have.
fn not_mounted(container: &str, volume: &str) -> Error {
    let said = format!(
        "`{volume}` is not mounted in `{container}` any more: what is in it would be overwritten, and no snapshot would have it"
    );
    let hint = "restore beside it, without --mode replace";
    failure(ErrorKind::Conflict, said).with_hint(hint).into()
}
