//! Makes a container of a snapshot.
//!
//! 1. *look*: everything that speaks against it is found before anything is made: a missing image or chunk, a name, a port or a volume that
//!    is taken, a network that is not there   2. make its volumes, fill them, compare them   3. make the container   4. start it, if
//!    the one that was saved ran   5. write down that it was made
//!
//! *Always true:* what is there is not touched: the new container has a name and volumes of its own. On an error what was made is removed
//! again; what a crash leaves has our labels, and cleanup removes it.

use super::fill::Filling;
use super::find::FoundSnapshot;
use super::image::{MadeFor, ORIGINAL_ID_LABEL, ORIGINAL_LABEL, POOL_LABEL, image_name};
use super::ports::{PortChoice, chosen_ports};
use super::volumes::VolumePlace;
use super::{ContainerHost, SeenEngine, failure};
use crate::bridge;
use crate::catalog::no_entry;
use crate::catalog::reader::SnapshotReader;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::container::mount::{ContainerMount, ContainerMountKind};
use stasis_model::container::restoration::Restoration;
use stasis_model::digest::TreeDigest;
use stasis_model::format::manifest::{CapturedVolume, ENVIRONMENT_FILE, Environment};
use stasis_model::id::{ContainerSubject, OpId, SnapshotId};
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::tree::EntryPath;
use stasis_quiesce::docker::{
    ContainerCreation, ContainerFacts, ContainerHealth, VolumeCreation, VolumeRemoval,
};
use stasis_store::documents::containers::note_restoration;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Which snapshot a container or a volume was made of.
pub(super) const RESTORED_LABEL: &str = "stasis.restored-from";
/// Which restore made it.
pub(super) const RESTORE_LABEL: &str = "stasis.restore";
/// How long a container that is replaced may take to end.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a container is made beside the one that there is, or instead of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RestoreMode {
    /// Beside it, with a name and volumes of its own.
    #[default]
    New,
    /// Instead of it, with its name and its volumes.
    Replace,
}

/// What becomes of mounts that are in no snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MountChoice {
    /// They are mounted as before.
    #[default]
    Keep,
    /// They are left out.
    Drop,
}

/// What becomes of networks that are not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NetworkChoice {
    /// They are named, and nothing is made.
    #[default]
    Refuse,
    /// They are made.
    Make,
}

/// How a container is made of a snapshot.
#[derive(Clone, Debug)]
pub struct RestoreContainer {
    /// Which snapshot.
    pub snapshot: SnapshotRef,
    /// Of which container, where that is not clear.
    pub container: Option<String>,
    /// Beside the container, or instead of it.
    pub mode: RestoreMode,
    /// What it is called.
    pub name: Option<String>,
    /// Variables that are added or replaced.
    pub environment: BTreeMap<String, String>,
    /// Ports.
    pub ports: PortChoice,
    /// Mounts that are in no snapshot.
    pub mounts: MountChoice,
    /// Networks that are not there.
    pub networks: NetworkChoice,
    /// Whether it is not started though the one that was saved ran.
    pub no_start: bool,
    /// When it is said to work, where it takes the place of another one.
    pub health: ContainerHealth,
    /// How long the other one may take to end.
    pub stop_timeout: Duration,
    /// For how long the other one may stand still.
    pub max_freeze: Duration,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

impl RestoreContainer {
    /// A new container of a snapshot with nothing special about it.
    pub fn new(snapshot: SnapshotRef) -> Self {
        Self {
            snapshot,
            container: None,
            mode: RestoreMode::New,
            name: None,
            environment: BTreeMap::new(),
            ports: PortChoice::AsBefore,
            mounts: MountChoice::Keep,
            networks: NetworkChoice::Refuse,
            no_start: false,
            health: ContainerHealth::default(),
            stop_timeout: STOP_TIMEOUT,
            max_freeze: super::MAX_FREEZE,
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }

    pub(super) fn filling(&self) -> Filling {
        Filling {
            cancel: self.cancel.clone(),
            progress: self.progress.clone(),
        }
    }
}

/// A container that was made of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was not restored is said only here"]
pub struct ContainerRestored {
    /// Of which snapshot.
    pub snapshot_id: SnapshotId,
    /// Beside the container that was saved, or instead of it.
    pub mode: RestoreMode,
    /// What it is called.
    pub container_name: String,
    /// Its whole id.
    pub container_id: String,
    /// Whether it runs.
    pub started: bool,
    /// Its image.
    pub image: String,
    /// Its volumes.
    pub volumes: Vec<VolumeRestored>,
    /// What was mounted when it was saved and is not what it was then: it is in no snapshot.
    pub not_restored: Vec<String>,
    /// The ports of the host that it has, by its own.
    pub ports: BTreeMap<String, Vec<String>>,
    /// The snapshot of what was replaced: the way back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safety_snapshot_id: Option<SnapshotId>,
    /// What the caller should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// A volume that is what it was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct VolumeRestored {
    /// What it is called.
    pub name: String,
    /// What the one that was saved was called.
    pub from: String,
    /// Where it is mounted.
    pub mount_paths: Vec<String>,
    /// The length of its files.
    pub bytes: u64,
    /// What its tree is: it was compared after it was written.
    pub digest: TreeDigest,
}

/// A snapshot that can become a container, and how.
pub(super) struct RestoreLook<'r> {
    pub(super) host: &'r ContainerHost,
    pub(super) seen: &'r SeenEngine,
    pub(super) found: FoundSnapshot,
    pub(super) environment: Environment,
    pub(super) how: &'r RestoreContainer,
    pub(super) op_id: OpId,
    pub(super) pool: OpId,
}

impl Containers<'_> {
    /// Makes a container of a snapshot.
    #[tracing::instrument(skip_all, err(level = "info"), fields(snapshot = %how.snapshot))]
    pub async fn restore(
        self,
        host: &ContainerHost,
        how: &RestoreContainer,
    ) -> Result<ContainerRestored, Error> {
        let started = self.clock.uptime();
        self.store().ensure_trusted().await?;
        let seen = host.look().await?;
        let look = self.look(host, &seen, how).await?;
        let restored = match how.mode {
            RestoreMode::New => look.restore_new(self).await?,
            RestoreMode::Replace => Box::pin(look.replace(self)).await?,
        };
        Ok(ContainerRestored {
            elapsed_ms: self.engine.dirs().elapsed_ms(started),
            ..restored
        })
    }

    /// Finds everything that a restore needs of the snapshot, and that it is there.
    async fn look<'r>(
        self,
        host: &'r ContainerHost,
        seen: &'r SeenEngine,
        how: &'r RestoreContainer,
    ) -> Result<RestoreLook<'r>, Error> {
        let of = how.container.as_deref();
        let here = Some(seen.digits.as_str());
        let found = self.snapshot(&host.tenant, &how.snapshot, of, here).await?;
        let pool = self.pool(&host.tenant).await?.unwrap_or_default();
        Box::pin(found.ensure_image(self, seen)).await?;
        found.ensure_chunks().await?;
        let environment = found.environment().await?;
        Ok(RestoreLook {
            host,
            seen,
            found,
            environment,
            how,
            op_id: self.rng.op_id(),
            pool,
        })
    }
}

impl FoundSnapshot {
    /// Its image is on the engine, and is the one that was made.
    async fn ensure_image(&self, of: Containers<'_>, seen: &SeenEngine) -> Result<(), Error> {
        let image = &self.container.image;
        let there = seen.docker.image(&image.name).await?;
        // An engine that loaded it may have given it another id.
        if there.is_some_and(|there| there.id == image.id || there.layers == image.layers) {
            return Ok(());
        }
        if seen.docker.image(&image.id).await?.is_some() {
            let (repository, tag) = image
                .name
                .split_once(':')
                .unwrap_or((&image.name, "latest"));
            seen.docker.tag_image(&image.id, repository, tag).await?;
            return Ok(());
        }
        if image.is_portable {
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
    async fn ensure_chunks(&self) -> Result<(), Error> {
        let (dirs, root) = (self.of.engine.dirs(), self.of.root());
        let chunks = dirs.read_as_restore(&root, self.opened.clone()).await?;
        for chunk in chunks {
            if !root.has_chunk(&chunk.name).await? {
                let said = format!(
                    "snapshot `{}` cannot be restored: the chunk {} is missing in `{}`",
                    self.id,
                    chunk.name,
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

impl RestoreLook<'_> {
    /// Makes a container beside the one that was saved.
    async fn restore_new(&self, of: Containers<'_>) -> Result<ContainerRestored, Error> {
        let stamp = of.clock.now().stamp();
        let name = self.free_name(&stamp).await?;
        let _lock = of.lock(self.seen, &name, "restored").await?;
        let ports = chosen_ports(self.seen, &self.found.container, &self.how.ports, None).await?;
        self.ensure_networks().await?;
        let planned = self.new_volumes(&stamp).await?;
        let record = of.begin_restore(self.seen, self.op_id, &name).await?;
        let mut made = Vec::new();
        let with = (ports, &self.made_for(of, &name).await?);
        let ended = Box::pin(self.make_new(&name, &planned, &mut made, with)).await;
        match ended {
            Ok(id) => {
                // It is there, and not to be cleaned up.
                record.end().await;
                self.note(of, &id, &name).await;
                self.restored(&id, &name, planned).await
            }
            Err(error) => {
                if self.remove_made(&made).await {
                    record.end().await;
                }
                Err(error)
            }
        }
    }

    /// Makes the volumes and the container; what was made is named even if it fails.
    async fn make_new(
        &self,
        name: &str,
        planned: &[(CapturedVolume, String)],
        made: &mut Vec<Made>,
        (ports, made_for): (Option<serde_json::Value>, &MadeFor),
    ) -> Result<String, Error> {
        for (volume, copy) in planned {
            let creation = VolumeCreation {
                labels: self.labels(&volume.labels),
                ..VolumeCreation::new(copy)
            };
            let created = self.seen.docker.create_volume(&creation).await?;
            // An engine gives back one that is there already.
            if created.labels.get(RESTORE_LABEL) != Some(&self.op_id.to_string()) {
                let said = format!("another restore has just made a volume `{copy}`");
                let hint = "run it again";
                return Err(failure(ErrorKind::Retry, said).with_hint(hint).into());
            }
            made.push(Made::Volume(copy.clone()));
            let place = self.seen.place_of(&created).await;
            self.fill(volume, copy, &place, made_for).await?;
        }
        let mut creation = self.creation(name);
        for (volume, copy) in planned {
            let places = volume.destinations.iter();
            let mounted = places.map(|place| (place.clone(), copy.clone()));
            creation.overrides.volumes.extend(mounted);
        }
        creation.overrides.ports = ports;
        let id = self.seen.docker.create_container(&creation).await?;
        made.push(Made::Container(id.clone()));
        if self.starts() {
            self.seen.docker.start_container(&id).await?;
        }
        Ok(id)
    }

    /// Makes a volume what it was: where it lies, or through the engine, if it is a new one.
    pub(super) async fn fill(
        &self,
        volume: &CapturedVolume,
        name: &str,
        place: &VolumePlace,
        made_for: &MadeFor,
    ) -> Result<(), Error> {
        match place {
            VolumePlace::Directory(directory) => {
                let how = self.how.filling();
                self.found.fill(volume, directory, &how).await
            }
            VolumePlace::Engine(_) => {
                let docker = &self.seen.docker;
                let filled = self.found.fill_through(docker, volume, name, made_for);
                Box::pin(filled).await
            }
        }
    }

    /// What is made on the engine for this restore, under the lock of a container's name.
    pub(super) async fn made_for(&self, of: Containers<'_>, name: &str) -> Result<MadeFor, Error> {
        Ok(MadeFor {
            snapshot: self.found.id.clone(),
            pool: self.pool,
            subject: ContainerSubject::new(name, &self.seen.digits),
            by: of.by().await?,
        })
    }

    /// Whether the container is started.
    pub(super) fn starts(&self) -> bool {
        self.found.container.container_status.is_alive() && !self.how.no_start
    }

    /// The container that is made, but for its volumes and ports.
    pub(super) fn creation(&self, name: &str) -> ContainerCreation {
        let container = &self.found.container;
        let saved = ContainerFacts {
            id: container.container_id.clone(),
            name: container.container_name.clone(),
            status: container.container_status.clone(),
            created: String::new(),
            started: String::new(),
            pid: None,
            exit_code: None,
            image_id: container.image.id.clone(),
            image: container.image.name.clone(),
            config: container.whole_config(&self.environment),
            host_config: container.host_config.clone(),
            networks: container.networks.clone(),
            mounts: container.mounts.clone(),
        };
        let mut creation = ContainerCreation::like(&saved, name);
        creation.overrides.image = Some(image_name(&self.found.id));
        creation
            .overrides
            .environment
            .clone_from(&self.how.environment);
        creation.overrides.labels = self.labels(&BTreeMap::from([
            (ORIGINAL_LABEL.to_owned(), container.original_image.clone()),
            (
                ORIGINAL_ID_LABEL.to_owned(),
                container.original_image_id.clone(),
            ),
        ]));
        if self.how.mounts == MountChoice::Drop {
            let left = self
                .not_captured_mounts()
                .map(|one| one.destination.clone());
            creation.overrides.without_mounts = left.collect();
        }
        creation
    }

    /// What was mounted and is in no snapshot.
    pub(super) fn not_captured_mounts(&self) -> impl Iterator<Item = &ContainerMount> {
        let container = &self.found.container;
        let is_captured = |mount: &ContainerMount| {
            let mut volumes = container.volumes.iter();
            volumes.any(|one| one.destinations.contains(&mount.destination))
        };
        let mounts = container.mounts.iter();
        mounts.filter(move |mount| !is_captured(mount))
    }

    pub(super) fn labels(&self, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut labels = own.clone();
        let ours = [
            (RESTORED_LABEL, self.found.id.to_string()),
            (RESTORE_LABEL, self.op_id.to_string()),
            (POOL_LABEL, self.pool.to_string()),
        ];
        labels.extend(ours.map(|(name, value)| (name.to_owned(), value)));
        labels
    }

    /// A name that no container has.
    async fn free_name(&self, stamp: &str) -> Result<String, Error> {
        if let Some(name) = &self.how.name {
            if self.seen.docker.container(name).await?.is_some() {
                let said = format!("there is a container `{name}` already");
                let hint = "choose another name, or take its place with --mode replace";
                return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
            }
            return Ok(name.clone());
        }
        let base = format!("{}_restored_{stamp}", self.found.container.container_name);
        let mut name = base.clone();
        let mut number = 2;
        while self.seen.docker.container(&name).await?.is_some() {
            name = format!("{base}_{number}");
            number += 1;
        }
        Ok(name)
    }

    /// The volumes with the names of their copies, which nobody has.
    async fn new_volumes(&self, stamp: &str) -> Result<Vec<(CapturedVolume, String)>, Error> {
        let mut planned = Vec::new();
        for volume in &self.found.container.volumes {
            planned.push((volume.clone(), self.new_volume(volume, stamp).await?));
        }
        Ok(planned)
    }

    /// A name for the copy of a volume, which nobody has.
    pub(super) async fn new_volume(
        &self,
        volume: &CapturedVolume,
        stamp: &str,
    ) -> Result<String, Error> {
        let stem = if volume.kind == ContainerMountKind::NamedVolume {
            volume.name.clone()
        } else {
            let place = volume.destinations.first().cloned().unwrap_or_default();
            let odd = |c: char| !c.is_ascii_alphanumeric();
            let place = place.trim_matches('/').replace(odd, "-");
            format!("{}_{place}", self.found.container.container_name)
        };
        let base = format!("{stem}_restored_{stamp}");
        let (mut name, mut number) = (base.clone(), 2);
        while self.seen.docker.volume(&name).await?.is_some() {
            name = format!("{base}_{number}");
            number += 1;
        }
        Ok(name)
    }

    /// Every network that the container was in is there, or is made.
    pub(super) async fn ensure_networks(&self) -> Result<(), Error> {
        let all = self.found.container.networks.as_object();
        let names = all.into_iter().flat_map(|all| all.keys());
        let built_in = ["bridge", "host", "none", "default"];
        for name in names.filter(|name| !built_in.contains(&name.as_str())) {
            if self.seen.docker.has_network(name).await? {
                continue;
            }
            if self.how.networks == NetworkChoice::Refuse {
                let said = format!(
                    "the container was in the network `{name}`, which the engine does not have"
                );
                let hint =
                    format!("`docker network create {name}` makes it, and so does --make-networks");
                return Err(failure(ErrorKind::NotFound, said).with_hint(hint).into());
            }
            let labels = self.labels(&BTreeMap::new());
            self.seen.docker.create_network(name, &labels).await?;
        }
        Ok(())
    }

    /// Writes down that a container was made. It is there, whatever becomes of the record.
    pub(super) async fn note(&self, of: Containers<'_>, id: &str, name: &str) {
        let restoration = Restoration::new(self.op_id, id, name, of.lineages.now());
        let root = self.found.of.root();
        let noted = note_restoration(&*of.bucket, root.layout(), &self.found.id, &restoration);
        if let Err(error) = noted.await {
            let error = error_chain(&error);
            tracing::warn!(error, "that the snapshot was restored was not written down");
        }
    }

    pub(super) async fn restored(
        &self,
        id: &str,
        name: &str,
        volumes: Vec<(CapturedVolume, String)>,
    ) -> Result<ContainerRestored, Error> {
        let facts = self.seen.container(id).await?;
        let manifest = &self.found.opened.manifest;
        let volumes = volumes.into_iter().filter_map(|(from, name)| {
            let measured = manifest.volume_manifests.get(&from.path)?;
            Some(VolumeRestored {
                name,
                from: from.name,
                mount_paths: from.destinations,
                bytes: measured.size,
                digest: measured.digest,
            })
        });
        let left = self.not_captured_mounts();
        Ok(ContainerRestored {
            snapshot_id: self.found.id.clone(),
            mode: self.how.mode,
            container_name: name.to_owned(),
            container_id: id.to_owned(),
            started: facts.status.is_alive(),
            image: facts.image.clone(),
            volumes: volumes.collect(),
            not_restored: left.map(|one| one.destination.clone()).collect(),
            ports: super::ports::shown(&facts.host_config),
            safety_snapshot_id: None,
            warnings: self.missing_binds().await,
            elapsed_ms: 0,
        })
    }

    /// Directories of the host that are mounted again, and are not there any more.
    async fn missing_binds(&self) -> Vec<Warning> {
        if !self.seen.engine.local || self.how.mounts == MountChoice::Drop {
            return Vec::new();
        }
        let binds = self.not_captured_mounts();
        let binds = binds.filter(|one| one.kind == ContainerMountKind::Bind);
        let sources: Vec<String> = binds.map(|one| one.source.clone()).collect();
        let is_missing = |source: &String| Path::new(source).symlink_metadata().is_err();
        bridge::blocking(move || {
            let missing = sources.into_iter().filter(is_missing);
            missing.map(|path| Warning::BindMissing { path }).collect()
        })
        .await
    }

    /// Removes what was made in vain; says whether all of it is gone. What stays goes with the next cleanup.
    async fn remove_made(&self, made: &[Made]) -> bool {
        let docker = &self.seen.docker;
        let mut is_all = true;
        for one in made.iter().rev() {
            let removed = match one {
                Made::Container(id) => {
                    let _ = docker.stop_container(id, Duration::from_secs(1)).await;
                    docker.remove_container(id, VolumeRemoval::Keep).await
                }
                Made::Volume(name) => docker.remove_volume(name).await,
            };
            if let Err(error) = removed {
                let error = error_chain(&error);
                tracing::warn!(error, "something of ours is left; cleanup removes it");
                is_all = false;
            }
        }
        is_all
    }
}

/// Something that was made on the engine.
#[derive(Clone, Debug)]
enum Made {
    Container(String),
    Volume(String),
}
