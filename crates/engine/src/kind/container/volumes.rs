//! Which volumes of a container are saved, and how they are read: where they lie, or through the engine.

use super::SeenEngine;
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::save::{SaveOverlay, VolumeFacts};
use crate::warning::Warning;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_model::container::capture::{CaptureWishes, NotCaptured, judge};
use stasis_model::container::mount::{ContainerMount, ContainerMountKind};
use stasis_model::container::status::ContainerStatus;
use stasis_model::digest::TreeDigest;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::{
    CapturedVolume, Consistency, VolumeManifest, bind_path, volume_path,
};
use stasis_model::tree::EntryPath;
use stasis_quiesce::docker::{ContainerFacts, DockerVolume, VolumeCreation};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A volume that is saved.
#[derive(Clone, Debug)]
pub(super) struct PlannedVolume {
    /// What the snapshot says of it.
    pub(super) manifest: CapturedVolume,
    /// Where it is read.
    pub(super) place: VolumePlace,
}

/// Where the files of a volume are read or written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum VolumePlace {
    /// In a directory of this host.
    Directory(PathBuf),
    /// Through the engine, for the reason that is said.
    Engine(String),
}

/// What of a container is saved besides its own files, and what is not.
#[derive(Clone, Debug, Default)]
pub(super) struct PlannedVolumes {
    pub(super) volumes: Vec<PlannedVolume>,
    pub(super) left: Vec<NotCaptured>,
    pub(super) warnings: Vec<Warning>,
}

impl PlannedVolume {
    /// Where it lies in the tree.
    pub(super) fn at(&self) -> Result<EntryPath, Error> {
        let parsed = self.manifest.path.parse::<EntryPath>();
        Ok(parsed.map_err(|error| Failure::of(ErrorKind::Invalid, error))?)
    }
}

/// Decides what is saved of the mounts of a container.
pub(super) async fn planned(
    seen: &SeenEngine,
    facts: &ContainerFacts,
    wishes: &CaptureWishes,
) -> Result<PlannedVolumes, Error> {
    let mut planned = PlannedVolumes::default();
    for mount in &facts.mounts {
        match judge(mount, wishes) {
            Err(left) => planned.left.push(left),
            Ok(()) => planned.add(seen, facts, mount).await?,
        }
    }
    Ok(planned)
}

impl PlannedVolumes {
    async fn add(
        &mut self,
        seen: &SeenEngine,
        facts: &ContainerFacts,
        mount: &ContainerMount,
    ) -> Result<(), Error> {
        let Some(name) = mount
            .volume
            .as_ref()
            .filter(|_| mount.kind != ContainerMountKind::Bind)
        else {
            ensure_directory(seen, facts, mount).await?;
            let place = place_of_bind(seen, &mount.source).await;
            self.volumes.push(PlannedVolume {
                manifest: CapturedVolume {
                    name: mount.source.clone(),
                    kind: mount.kind,
                    path: bind_path(&mount.destination),
                    driver: String::new(),
                    options: BTreeMap::new(),
                    labels: BTreeMap::new(),
                    destinations: vec![mount.destination.clone()],
                },
                place,
            });
            return Ok(());
        };
        // One volume may be mounted twice.
        let same = |one: &&mut PlannedVolume| one.manifest.name == *name;
        if let Some(known) = self.volumes.iter_mut().find(same) {
            known.manifest.destinations.push(mount.destination.clone());
            return Ok(());
        }
        let volume = seen.volume(name).await?;
        self.warnings.extend(shared(seen, facts, name).await?);
        let place = seen.place_of(&volume).await;
        self.volumes.push(PlannedVolume {
            manifest: CapturedVolume {
                name: volume.name,
                kind: mount.kind,
                path: volume_path(name),
                driver: volume.driver,
                options: volume.options,
                labels: volume.labels,
                destinations: vec![mount.destination.clone()],
            },
            place,
        });
        Ok(())
    }

    /// The directories that stand in for those of the tree.
    pub(super) fn grafts(&self) -> Result<Vec<SaveOverlay>, Error> {
        let mut grafts = Vec::new();
        for one in &self.volumes {
            if let VolumePlace::Directory(directory) = &one.place {
                grafts.push(SaveOverlay {
                    at: one.at()?,
                    directory: directory.clone(),
                });
            }
        }
        Ok(grafts)
    }

    /// What is known of them before they are read.
    pub(super) fn facts(&self) -> Result<BTreeMap<String, VolumeFacts>, Error> {
        let mut facts = BTreeMap::new();
        for one in &self.volumes {
            let known = VolumeFacts {
                at: one.at()?,
                is_copy: false,
                manifest: VolumeManifest {
                    consistency: Consistency::Generic,
                    format: "files".to_owned(),
                    size: 0,
                    digest: TreeDigest::from_document([0; 32]),
                    integrity: "unchecked".to_owned(),
                    details: serde_json::Map::new(),
                },
            };
            facts.insert(one.manifest.path.clone(), known);
        }
        Ok(facts)
    }
}

/// Whether the engine keeps the files of such a volume itself.
pub(super) fn is_plain(driver: &str, options: &BTreeMap<String, String>) -> bool {
    driver == "local" && options.is_empty()
}

/// Other containers that run and write the same volume: what they write meanwhile is not of one moment with the rest.
async fn shared(
    seen: &SeenEngine,
    facts: &ContainerFacts,
    volume: &str,
) -> Result<Vec<Warning>, Error> {
    let others = seen.docker.containers_with_volume(volume).await?;
    let others = others
        .into_iter()
        .filter(|one| one.id != facts.id && one.status == ContainerStatus::Running);
    let warnings = others.map(|one| Warning::VolumeShared {
        volume: volume.to_owned(),
        container: one.name,
    });
    Ok(warnings.collect())
}

/// Refuses a bind of one file: nothing of ours could stand in for it in a container that is made of the snapshot.
async fn ensure_directory(
    seen: &SeenEngine,
    facts: &ContainerFacts,
    mount: &ContainerMount,
) -> Result<(), Error> {
    let source = PathBuf::from(&mount.source);
    let is_file =
        bridge::blocking(move || std::fs::metadata(&source).is_ok_and(|found| !found.is_dir()));
    if !seen.engine.local || !is_file.await {
        return Ok(());
    }
    let said = format!(
        "`{}`, which is bound at `{}` in `{}`, is no directory: only directories can be saved",
        mount.source, mount.destination, facts.name
    );
    let hint = format!("leave out --bind {}", mount.destination);
    let failure = Failure::of(ErrorKind::Invalid, said);
    Err(failure.with_hint(hint).into())
}

async fn place_of_bind(seen: &SeenEngine, source: &str) -> VolumePlace {
    if !seen.engine.local {
        return VolumePlace::Engine("the engine is not on this host".to_owned());
    }
    directory(Path::new(source)).await
}

/// A directory of this host, if we may read it.
async fn directory(path: &Path) -> VolumePlace {
    let asked = path.to_owned();
    let opened = bridge::blocking(move || {
        let root = RootDir::open(&asked, Mounts::Stay)?;
        std::fs::read_dir(&asked)?;
        drop(root);
        Ok::<_, std::io::Error>(())
    });
    match opened.await {
        Ok(()) => VolumePlace::Directory(path.to_owned()),
        Err(error) => VolumePlace::Engine(error_chain(&error)),
    }
}

impl SeenEngine {
    /// A volume that must be there.
    pub(super) async fn volume(&self, name: &str) -> Result<DockerVolume, Error> {
        let found = self.docker.volume(name).await?;
        found.ok_or_else(|| {
            let said = format!(
                "the Docker engine at {} has no volume `{name}`",
                self.docker.host().display()
            );
            Failure::of(ErrorKind::NotFound, said).into()
        })
    }

    /// Where the files of a volume are. Only those of the local driver without options are sure to lie where the engine says, whether
    /// a container uses them or not.
    pub(super) async fn place_of(&self, volume: &DockerVolume) -> VolumePlace {
        if !self.engine.local {
            return VolumePlace::Engine("the engine is not on this host".to_owned());
        }
        if !is_plain(&volume.driver, &volume.options) {
            return VolumePlace::Engine("its driver mounts it when it is used".to_owned());
        }
        directory(&volume.mountpoint).await
    }

    /// The same of one that a snapshot has; a volume that is gone is made, with these labels.
    pub(super) async fn place_of_captured(
        &self,
        volume: &CapturedVolume,
        labels: &BTreeMap<String, String>,
    ) -> Result<VolumePlace, Error> {
        if let Some(place) = self.place_if_there(volume).await? {
            return Ok(place);
        }
        let creation = VolumeCreation {
            name: volume.name.clone(),
            driver: volume.driver.clone(),
            options: volume.options.clone(),
            labels: labels.clone(),
        };
        let there = self.docker.create_volume(&creation).await?;
        Ok(self.place_of(&there).await)
    }

    /// The same, where it is there.
    pub(super) async fn place_if_there(
        &self,
        volume: &CapturedVolume,
    ) -> Result<Option<VolumePlace>, Error> {
        if volume.kind == ContainerMountKind::Bind {
            return Ok(Some(place_of_bind(self, &volume.name).await));
        }
        Ok(match self.docker.volume(&volume.name).await? {
            Some(there) => Some(self.place_of(&there).await),
            None => None,
        })
    }
}
