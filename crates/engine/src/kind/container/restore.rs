//! Makes a container of a snapshot.
//!
//! 1. *look*: everything that speaks against it is found before anything is made: a missing image or chunk, a name, a port or a volume that
//!    is taken, a network that is not there   2. make its volumes, fill them, compare them   3. make the container   4. start it, if
//!    the one that was saved ran   5. write down that it was made
//!
//! *Always true:* what is there is not touched: the new container has a name and volumes of its own. On an error what was made is removed
//! again; what a crash leaves has our labels, and cleanup removes it.

use super::find::FoundSnapshot;
use super::image::{
    MadeFor, ORIGINAL_ID_LABEL, ORIGINAL_LABEL, POOL_LABEL, RESTORE_LABEL, RESTORED_LABEL,
    image_name,
};
use super::made::MadeBy;
use super::ports::chosen_ports;
use super::restore_request::{
    ContainerRestored, MountChoice, NetworkChoice, RestoreContainer, RestoreMode, VolumeRestored,
};
use super::volumes::{VolumePlace, is_plain};
use super::{ContainerHost, SeenEngine, failure};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use crate::warning::Warning;
use serde_json::Value;
use stasis_model::container::mount::{ContainerMount, ContainerMountKind};
use stasis_model::container::restoration::Restoration;
use stasis_model::format::manifest::{CapturedVolume, Environment};
use stasis_model::id::{ContainerSubject, OpId};
use stasis_quiesce::docker::{ContainerCreation, ContainerFacts, VolumeCreation};
use stasis_store::documents::containers::note_restoration;
use std::collections::BTreeMap;
use std::path::Path;

/// A snapshot that can become a container, and how.
pub(super) struct RestoreLook<'r> {
    pub(super) host: &'r ContainerHost,
    pub(super) seen: &'r SeenEngine,
    pub(super) found: FoundSnapshot,
    pub(super) environment: Environment,
    pub(super) how: &'r RestoreContainer,
    pub(super) op_id: OpId,
    pub(super) pool: OpId,
    /// When it was begun.
    pub(super) stamp: String,
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
        let of = host.name_of(how.container.as_deref()).await;
        let of = of.as_deref();
        let here = Some(seen.digits.as_str());
        let found = self.snapshot(&host.tenant, &how.snapshot, of, here).await?;
        let pool = self.pool(&host.tenant).await?.unwrap_or_default();
        // An image may be loaded: what else is missing is said before.
        found.ensure_chunks().await?;
        Box::pin(found.ensure_image(self, seen, how.dry_run)).await?;
        let environment = found.environment().await?;
        Ok(RestoreLook {
            host,
            seen,
            found,
            environment,
            how,
            op_id: self.rng.op_id(),
            pool,
            stamp: self.clock.now().stamp(),
        })
    }
}

impl RestoreLook<'_> {
    /// Makes a container beside the one that was saved.
    async fn restore_new(&self, of: Containers<'_>) -> Result<ContainerRestored, Error> {
        let (name, _lock) = self.free_name(of).await?;
        let ports = chosen_ports(self.seen, &self.found.container, &self.how.ports, None).await?;
        let networks = self.missing_networks().await?;
        let planned = self.new_volumes().await?;
        if self.how.dry_run {
            let ports = made_ports(self, ports.as_ref());
            return Ok(self.restored(("", &name), ports, planned));
        }
        let record = of.begin_restore(self.seen, self.op_id, &name).await?;
        let with = (ports, &self.made_for(of, &name).await?);
        let making = async {
            self.make_networks(&networks).await?;
            Box::pin(self.make_new(&name, &planned, with)).await
        };
        let id = match making.await {
            Ok(id) => id,
            Err(error) => {
                // What an engine was asked for and did not answer may come yet.
                if self.removed_made(&name).await && error.kind() != ErrorKind::Unreachable {
                    record.end().await;
                }
                return Err(error);
            }
        };
        // It is there, and not to be cleaned up.
        record.end().await;
        self.note(of, &id, &name).await;
        let mut restored = self.restored((&id, &name), self.ports_of(&id).await, planned);
        restored.warnings = self.warnings().await;
        Ok(restored)
    }

    /// Removes what was made in vain; says whether all of it is gone. What stays goes with the next cleanup.
    async fn removed_made(&self, name: &str) -> bool {
        let made = MadeBy {
            op_id: self.op_id,
            name,
        };
        let removed = async {
            made.remove_container(self.seen, None).await?;
            let (_, left) = made.remove_rest(self.seen, false).await?;
            Ok::<_, Error>(left)
        };
        let left = removed
            .await
            .unwrap_or_else(|error| vec![error_chain(&error)]);
        for error in &left {
            tracing::warn!(error, "something of ours is left; cleanup removes it");
        }
        left.is_empty()
    }

    /// Makes the volumes and the container.
    async fn make_new(
        &self,
        name: &str,
        planned: &[(CapturedVolume, String)],
        (ports, made_for): (Option<Value>, &MadeFor),
    ) -> Result<String, Error> {
        for (volume, copy) in planned {
            let place = self.make_volume(copy, &beside(&volume.labels)).await?;
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
        if self.starts() {
            self.seen.docker.start_container(&id).await?;
        }
        Ok(id)
    }

    /// Makes an empty volume of the engine's own driver; says where its files are.
    pub(super) async fn make_volume(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<VolumePlace, Error> {
        let creation = VolumeCreation {
            labels: self.labels(labels),
            ..VolumeCreation::new(name)
        };
        let created = self.seen.docker.create_volume(&creation).await?;
        // An engine gives back one that is there already.
        if created.labels.get(RESTORE_LABEL) != Some(&self.op_id.to_string()) {
            let said = format!("somebody else has just made a volume `{name}`");
            let hint = "run it again";
            return Err(failure(ErrorKind::Retry, said).with_hint(hint).into());
        }
        Ok(self.seen.place_of(&created).await)
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
            at: of.clock.now(),
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
            ports: Value::Null,
            mounts: container.mounts.clone(),
            own_files: None,
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
        if self.how.mode == RestoreMode::New {
            self.set_apart(&mut creation);
        }
        if self.how.mounts == MountChoice::Drop {
            let left = self
                .not_captured_mounts()
                .map(|one| one.destination.clone());
            creation.overrides.without_mounts = left.collect();
        }
        creation
    }

    /// Takes away what only one container can have, or what others know the one that was saved by: its addresses and further names,
    /// what makes it part of a project or a swarm, and volumes that are in no snapshot and that nobody named.
    fn set_apart(&self, creation: &mut ContainerCreation) {
        let labels = creation.config["Labels"].as_object();
        let names = labels.into_iter().flat_map(serde_json::Map::keys);
        // The image has them, too: what it says is said otherwise, and not merely left out.
        for name in names.filter(|name| is_of_group(name)) {
            let labels = &mut creation.overrides.labels;
            labels.insert(name.clone(), String::new());
        }
        if let Some(config) = creation.config.as_object_mut() {
            config.remove("MacAddress");
        }
        let networks = creation.networks.as_object_mut();
        for network in networks.into_iter().flat_map(|all| all.values_mut()) {
            for name in ["Aliases", "IPAMConfig", "MacAddress"] {
                network[name] = Value::Null;
            }
        }
        let anonymous = self.not_captured_mounts();
        let anonymous = anonymous.filter(|one| one.kind == ContainerMountKind::AnonymousVolume);
        let places = anonymous.map(|one| one.destination.clone());
        creation.overrides.fresh_volumes = places.collect();
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

    /// Networks that the container was in and that are not there: they are made, if somebody wants that.
    pub(super) async fn missing_networks(&self) -> Result<Vec<String>, Error> {
        let all = self.found.container.networks.as_object();
        let names = all.into_iter().flat_map(|all| all.keys());
        let built_in = ["bridge", "host", "none", "default"];
        let mut missing = Vec::new();
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
            missing.push(name.clone());
        }
        Ok(missing)
    }

    /// Makes networks.
    pub(super) async fn make_networks(&self, names: &[String]) -> Result<(), Error> {
        let labels = self.labels(&BTreeMap::new());
        for name in names {
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

    /// The ports of the host that a container has. It is there, whatever becomes of the question.
    pub(super) async fn ports_of(&self, id: &str) -> BTreeMap<String, Vec<String>> {
        let facts = self.seen.container(id).await;
        facts.map_or_else(|_| BTreeMap::new(), |facts| super::ports::shown(&facts))
    }

    pub(super) fn restored(
        &self,
        (id, name): (&str, &str),
        ports: BTreeMap<String, Vec<String>>,
        volumes: Vec<(CapturedVolume, String)>,
    ) -> ContainerRestored {
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
        ContainerRestored {
            snapshot_id: self.found.id.clone(),
            tenant: self.host.tenant.clone(),
            mode: self.how.mode,
            dry_run: self.how.dry_run,
            container_name: name.to_owned(),
            container_id: id.to_owned(),
            started: self.starts(),
            image: image_name(&self.found.id),
            volumes: volumes.collect(),
            not_restored: left.map(|one| one.destination.clone()).collect(),
            ports,
            safety_snapshot_id: None,
            warnings: Vec::new(),
            elapsed_ms: 0,
        }
    }

    /// What is not as it was: options of volumes, and directories of the host that are mounted again and are not there any more.
    pub(super) async fn warnings(&self) -> Vec<Warning> {
        let volumes = self.found.container.volumes.iter();
        let plain = volumes.filter(|one| !is_plain(&one.driver, &one.options));
        let plain = plain.filter(|one| one.kind != ContainerMountKind::Bind);
        let mut warnings: Vec<Warning> = plain
            .map(|one| Warning::VolumeIsPlain {
                volume: one.name.clone(),
                driver: one.driver.clone(),
            })
            .collect();
        if !self.seen.engine.local || self.how.mounts == MountChoice::Drop {
            return warnings;
        }
        let binds = self.not_captured_mounts();
        let binds = binds.filter(|one| one.kind == ContainerMountKind::Bind);
        let sources: Vec<String> = binds.map(|one| one.source.clone()).collect();
        let is_missing = |source: &String| Path::new(source).symlink_metadata().is_err();
        let missing = bridge::blocking(move || {
            let missing = sources.into_iter().filter(is_missing);
            missing.map(|path| Warning::BindMissing { path }).collect()
        });
        let missing: Vec<Warning> = missing.await;
        warnings.extend(missing);
        warnings
    }
}

/// The ports that a container would ask for.
pub(super) fn made_ports(
    look: &RestoreLook<'_>,
    chosen: Option<&Value>,
) -> BTreeMap<String, Vec<String>> {
    let before = &look.found.container.host_config["PortBindings"];
    super::ports::asked_for(chosen.unwrap_or(before))
}

/// Labels by which tools take a container or a volume for one of a group that they made.
fn is_of_group(label: &str) -> bool {
    let tools = [
        "com.docker.compose.",
        "com.docker.swarm.",
        "com.docker.stack.",
    ];
    tools.iter().any(|tool| label.starts_with(tool))
}

/// The labels of a volume that a copy of it has.
fn beside(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let kept = labels.iter().filter(|(name, _)| !is_of_group(name));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
