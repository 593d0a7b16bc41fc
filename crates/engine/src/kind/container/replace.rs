//! Makes a container of a snapshot instead of the one that there is, with its name and its volumes.
//!
//! 1. save most of it while it runs   2. write down what is about to happen   3. stop it   4. save it: the way back   5. give it another
//!    name   6. make its volumes what they were   7. make the container, start it, see that it works   8. remove the other one
//!
//! *Always true:* until 8 the container that there was is kept, stopped, under another name, and everything of its volumes is in the
//! snapshot of 4: whoever finds what 2 wrote, after an error or a crash, brings it back ([`Containers::take_back`]).

use super::capture::{CaptureRequest, CreateSnapshot};
use super::fill::Filling;
use super::image::MadeFor;
use super::lock::short;
use super::ports::chosen_ports;
use super::restore::{ContainerRestored, RESTORE_LABEL, RestoreLook, STOP_TIMEOUT};
use super::volumes::VolumePlace;
use super::{ContainerHost, SeenEngine, failure};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use serde::{Deserialize, Serialize};
use stasis_disk::fs::atomic_write::{atomic_write, read_bounded, remove_durably};
use stasis_model::container::capture::CaptureWishes;
use stasis_model::container::mount::{ContainerMount, ContainerMountKind};
use stasis_model::container::status::ContainerStatus;
use stasis_model::failure::AtPath as _;
use stasis_model::format::manifest::{CapturedVolume, SaveReason};
use stasis_model::id::{ContainerSubject, OpId, SnapshotId};
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_quiesce::docker::{
    ContainerFacts, ContainerHealth, ListedContainer, VolumeCreation, VolumeRemoval,
};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whether an interrupted replacement is brought to its end if the new container runs and works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Forward {
    /// It is: somebody may use it by now.
    IfItWorks,
    /// The one that there was comes back.
    Never,
}

/// No such record is longer.
const LONGEST: u64 = 1 << 20;

/// What is written down before a container is replaced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct ReplaceJournal {
    /// The restore.
    op_id: OpId,
    /// The container that is replaced.
    container_id: String,
    /// Its name.
    container_name: String,
    /// What it is called meanwhile.
    aside: String,
    /// Whether it ran.
    was_alive: bool,
    /// The snapshot that has everything of it, once there is one.
    safety: Option<SnapshotId>,
    /// Whether its volumes may have been written to.
    #[serde(default)]
    is_filling: bool,
    /// Whether the new one works, and only the old one is left to be removed.
    is_done: bool,
}

impl RestoreLook<'_> {
    /// Makes a container instead of the one that there is.
    pub(super) async fn replace(&self, of: Containers<'_>) -> Result<ContainerRestored, Error> {
        let name = &self.found.container.container_name;
        let _lock = of.lock(self.seen, name, "replaced").await?;
        Box::pin(of.take_back(self.host, self.seen, name, Forward::IfItWorks)).await?;
        let now = self.seen.docker.container(name).await?;
        let Some(now) = now else {
            let said = format!("there is no container `{name}` whose place it could take");
            let hint = format!("`--name {name}` without --mode replace makes it anew");
            return Err(failure(ErrorKind::NotFound, said).with_hint(hint).into());
        };
        if now.host_config["AutoRemove"] == true {
            let said = format!(
                "the container `{name}` goes when it is stopped (--rm), before it could be saved"
            );
            let hint = "restore beside it, without --mode replace";
            return Err(failure(ErrorKind::Invalid, said).with_hint(hint).into());
        }
        let taken = Some(now.id.as_str());
        let ports = chosen_ports(self.seen, &self.found.container, &self.how.ports, taken).await?;
        self.ensure_networks().await?;
        self.ensure_volumes(&now).await?;
        let path = of.journal_path(self.seen, name).await?;
        let journal = ReplaceJournal {
            op_id: self.op_id,
            container_id: now.id.clone(),
            container_name: name.clone(),
            aside: format!("{name}_replaced_{}", short(&now.id)),
            was_alive: now.status.is_alive(),
            safety: None,
            is_filling: false,
            is_done: false,
        };
        let mut swap = Swap {
            look: self,
            now: &now,
            path,
            journal,
        };
        match Box::pin(swap.run(of, ports)).await {
            Ok(restored) => Ok(restored),
            Err(error) => Err(self.went_back(of, name, error).await),
        }
    }

    /// Brings the container back that there was, and says so.
    async fn went_back(&self, of: Containers<'_>, name: &str, error: Error) -> Error {
        let why = error_chain(&error);
        match Box::pin(of.take_back(self.host, self.seen, name, Forward::Never)).await {
            Ok(_) => {
                let said = format!("`{name}` was not replaced, and is what it was: {why}");
                failure(error.kind(), said).into()
            }
            Err(left) => {
                let said = format!(
                    "`{name}` was not replaced ({why}), and could not be brought back: {}",
                    error_chain(&left)
                );
                let hint = format!(
                    "`stasis container cleanup` tries it again; `docker ps --all` shows it as {name}_replaced_…"
                );
                failure(ErrorKind::Failed, said).with_hint(hint).into()
            }
        }
    }
}

/// A replacement that goes on.
struct Swap<'s> {
    look: &'s RestoreLook<'s>,
    /// The container that there is.
    now: &'s ContainerFacts,
    path: PathBuf,
    journal: ReplaceJournal,
}

impl Swap<'_> {
    async fn run(
        &mut self,
        of: Containers<'_>,
        ports: Option<serde_json::Value>,
    ) -> Result<ContainerRestored, Error> {
        let safety = self.save_before(of).await?;
        let (look, docker) = (self.look, &self.look.seen.docker);
        let name = self.journal.container_name.clone();
        docker
            .rename_container(&self.now.id, &self.journal.aside)
            .await?;
        let mut volumes = Vec::new();
        let made_for = look.made_for(of, &name).await?;
        self.journal.is_filling = true;
        write(&self.path, &self.journal).await?;
        for volume in &look.found.container.volumes {
            let filled = self.fill(of, volume, &made_for).await?;
            volumes.push((volume.clone(), filled));
        }
        let mut creation = look.creation(&name);
        for (place, volume) in look.mounted_again(self.now, &volumes) {
            creation.overrides.volumes.insert(place, volume);
        }
        creation.overrides.ports = ports;
        let id = docker.create_container(&creation).await?;
        if look.starts() {
            docker.start_container(&id).await?;
            docker.wait_healthy(&id, &look.how.health).await?;
        }
        self.journal.is_done = true;
        write(&self.path, &self.journal).await?;
        look.note(of, &id, &name).await;
        let restored = look.restored(&id, &name, volumes).await?;
        of.finish(look.seen, &self.path, &self.journal).await;
        Ok(ContainerRestored {
            safety_snapshot_id: Some(safety),
            ..restored
        })
    }

    /// Makes a volume what it was; one that only the engine can write is another one from now on, and the one that there was stays as it
    /// is. Says what it is called.
    async fn fill(
        &self,
        of: Containers<'_>,
        volume: &CapturedVolume,
        made_for: &MadeFor,
    ) -> Result<String, Error> {
        let look = self.look;
        let place = look.seen.place_of_captured(volume).await?;
        if matches!(place, VolumePlace::Directory(_)) {
            look.fill(volume, &volume.name, &place, made_for).await?;
            return Ok(volume.name.clone());
        }
        let name = look.new_volume(volume, &of.clock.now().stamp()).await?;
        let creation = VolumeCreation {
            labels: look.labels(&volume.labels),
            ..VolumeCreation::new(&name)
        };
        look.seen.docker.create_volume(&creation).await?;
        look.fill(volume, &name, &place, made_for).await?;
        Ok(name)
    }

    /// Stops the container, and saves all of it.
    async fn save_before(&mut self, of: Containers<'_>) -> Result<SnapshotId, Error> {
        let (look, now) = (self.look, self.now);
        let how = look.safety_of(now);
        let request = CaptureRequest {
            host: look.host,
            seen: look.seen,
            facts: now,
            how: &how,
            reason: SaveReason::BeforeRestore,
            was: &now.status,
            first: None,
        };
        let first = match now.status {
            ContainerStatus::Running => Some(of.warm(request).await?),
            _ => None,
        };
        write(&self.path, &self.journal).await?;
        let docker = &look.seen.docker;
        if now.status == ContainerStatus::Paused {
            docker.unpause_container(&now.id).await?;
        }
        if now.status.is_alive() {
            docker
                .stop_container(&now.id, look.how.stop_timeout)
                .await?;
        }
        let stopped = look.seen.container(&now.id).await?;
        let saved = of.capture(CaptureRequest {
            facts: &stopped,
            first: first.as_ref(),
            ..request
        });
        let saved = Box::pin(saved).await?;
        self.journal.safety = Some(saved.snapshot_id.clone());
        write(&self.path, &self.journal).await?;
        Ok(saved.snapshot_id)
    }
}

impl RestoreLook<'_> {
    /// The snapshot that is made before: of everything that the restore replaces.
    fn safety_of(&self, now: &ContainerFacts) -> CreateSnapshot {
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
            ..CreateSnapshot::new(&now.id)
        }
    }

    /// A volume of that name with other options is somebody else's; one that is gone is made.
    async fn ensure_volumes(&self, now: &ContainerFacts) -> Result<(), Error> {
        for volume in &self.found.container.volumes {
            let is_bind = volume.kind == ContainerMountKind::Bind;
            let is_mounted = |one: &ContainerMount| match one.kind {
                ContainerMountKind::Bind => is_bind && one.source == volume.name,
                _ => !is_bind && one.volume.as_ref() == Some(&volume.name),
            };
            let is_mounted = now.mounts.iter().any(is_mounted);
            if is_bind && is_mounted {
                continue;
            }
            let there = if is_bind {
                None
            } else {
                self.seen.docker.volume(&volume.name).await?
            };
            if !is_mounted && (is_bind || there.is_some()) {
                return Err(not_mounted(&now.name, &volume.name));
            }
            let Some(there) = there else {
                continue;
            };
            let others = self
                .seen
                .docker
                .containers_with_volume(&volume.name)
                .await?;
            let is_other = |one: &&ListedContainer| {
                one.name != self.found.container.container_name && one.status.is_alive()
            };
            if let Some(other) = others.iter().find(is_other) {
                let said = format!(
                    "the container `{}` runs and has the volume `{}` too: what it has would be replaced under it",
                    other.name, volume.name
                );
                let hint = "stop it first, or restore beside it, without --mode replace";
                return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
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

    /// What is mounted in the new container: the volumes of the snapshot, and volumes that nobody named and nobody saved, as they are.
    fn mounted_again(
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

impl Containers<'_> {
    /// Where is written down that a container is being replaced.
    async fn journal_path(self, seen: &SeenEngine, name: &str) -> Result<PathBuf, Error> {
        let subject = ContainerSubject::new(name, &seen.digits);
        Ok(self
            .own_place()
            .await?
            .join(format!("{subject}.replace.json")))
    }

    /// Brings a container back whose replacement failed or was interrupted; ends one that only lacked its last step. Says whether there
    /// was any. Whoever calls it has the container for himself.
    pub(super) async fn take_back(
        self,
        host: &ContainerHost,
        seen: &SeenEngine,
        name: &str,
        forward: Forward,
    ) -> Result<bool, Error> {
        let path = self.journal_path(seen, name).await?;
        let Some(mut journal) = read(&path).await? else {
            return Ok(false);
        };
        if forward == Forward::IfItWorks && self.works(seen, &journal).await? {
            journal.is_done = true;
            write(&path, &journal).await?;
        }
        if journal.is_done {
            self.finish(seen, &path, &journal).await;
            return Ok(true);
        }
        let docker = &seen.docker;
        if journal.is_filling {
            self.ensure_nobody_uses(seen, &journal).await?;
        }
        self.remove_new(seen, &journal).await?;
        let mut old = seen.container(&journal.container_id).await?;
        if old.status.is_alive() {
            // An engine that was asked to stop it does so, though nobody waits for that any more.
            docker.stop_container(&old.id, STOP_TIMEOUT).await?;
            old = seen.container(&old.id).await?;
        }
        if let Some(safety) = &journal.safety
            && journal.is_filling
        {
            Box::pin(self.fill_back(host, seen, name, safety)).await?;
        }
        if old.name == journal.aside {
            docker
                .rename_container(&old.id, &journal.container_name)
                .await?;
        }
        if journal.was_alive && !old.status.is_alive() {
            docker.start_container(&old.id).await?;
        }
        bridge::blocking(move || remove_durably(&path)).await?;
        if let Some(safety) = &journal.safety {
            self.forget_safety(host, seen, name, safety).await;
        }
        Ok(true)
    }

    /// Lets go of the snapshot of what is back: an undo would take it for something that was replaced.
    async fn forget_safety(
        self,
        host: &ContainerHost,
        seen: &SeenEngine,
        name: &str,
        safety: &SnapshotId,
    ) {
        let here = Some(seen.digits.as_str());
        let forgotten = async {
            let found = self.called(&host.tenant, name, here).await?;
            self.remove(&found, std::slice::from_ref(safety), Some(seen))
                .await
        };
        if let Err(error) = forgotten.await {
            let error = error_chain(&error);
            tracing::info!(%safety, error, "a snapshot that nobody needs is left to a cleanup");
        }
    }

    /// Brings back a container that is not there under its name because its replacement was interrupted.
    pub(super) async fn take_back_named(
        self,
        host: &ContainerHost,
        seen: &SeenEngine,
        name: &str,
    ) -> Result<bool, Error> {
        if !self.interrupted(seen).await?.iter().any(|one| one == name) {
            return Ok(false);
        }
        let _lock = self.lock(seen, name, "brought back").await?;
        Box::pin(self.take_back(host, seen, name, Forward::IfItWorks)).await
    }

    /// Whether the container that was made runs under its name and works: then somebody may use it by now.
    async fn works(self, seen: &SeenEngine, journal: &ReplaceJournal) -> Result<bool, Error> {
        let label = format!("{RESTORE_LABEL}={}", journal.op_id);
        let all = seen.docker.containers_labelled(&label).await?;
        let is_new = |one: &&ListedContainer| {
            one.id != journal.container_id
                && one.name == journal.container_name
                && one.status == ContainerStatus::Running
        };
        let Some(new) = all.iter().find(is_new) else {
            return Ok(false);
        };
        let health = ContainerHealth::default();
        Ok(seen.docker.wait_healthy(&new.id, &health).await.is_ok())
    }

    /// Refuses to write volumes that somebody else uses by now, or to take a name that is somebody else's.
    async fn ensure_nobody_uses(
        self,
        seen: &SeenEngine,
        journal: &ReplaceJournal,
    ) -> Result<(), Error> {
        let ours = |one: &str, labels: &BTreeMap<String, String>| {
            let op_id = labels.get(RESTORE_LABEL);
            one == journal.container_id || op_id == Some(&journal.op_id.to_string())
        };
        let old = seen.container(&journal.container_id).await?;
        let volumes = old.mounts.iter().filter_map(|one| one.volume.as_ref());
        for volume in volumes {
            let users = seen.docker.containers_with_volume(volume).await?;
            let mut others = users.iter().filter(|one| one.status.is_alive());
            if let Some(other) = others.find(|one| !ours(&one.id, &one.labels)) {
                let said = format!(
                    "the replacement of `{}` was interrupted while its volumes were written, and `{}` runs with the volume `{volume}` by now: nothing was changed",
                    journal.container_name, other.name
                );
                let hint = match &journal.safety {
                    Some(safety) => format!(
                        "stop it, and run `stasis container cleanup`; what there was is in the snapshot {safety}"
                    ),
                    None => "stop it, and run `stasis container cleanup`".to_owned(),
                };
                return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
            }
        }
        Ok(())
    }

    /// Removes the container that was made in vain.
    async fn remove_new(self, seen: &SeenEngine, journal: &ReplaceJournal) -> Result<(), Error> {
        let label = format!("{RESTORE_LABEL}={}", journal.op_id);
        for new in seen.docker.containers_labelled(&label).await? {
            if new.id == journal.container_id {
                continue;
            }
            let stopped = seen.docker.stop_container(&new.id, Duration::from_secs(1));
            stopped.await?;
            let removed = seen.docker.remove_container(&new.id, VolumeRemoval::Keep);
            removed.await?;
        }
        // Those that were made because only the engine could write them.
        for volume in seen.docker.volumes_labelled(&label).await? {
            seen.docker.remove_volume(&volume.name).await?;
        }
        Ok(())
    }

    /// Makes volumes what they were before.
    async fn fill_back(
        self,
        host: &ContainerHost,
        seen: &SeenEngine,
        name: &str,
        safety: &SnapshotId,
    ) -> Result<(), Error> {
        let wanted = SnapshotRef::Text(safety.to_string());
        let here = Some(seen.digits.as_str());
        let found = self
            .snapshot(&host.tenant, &wanted, Some(name), here)
            .await?;
        for volume in &found.container.volumes {
            // What only the engine can write was not written.
            if let VolumePlace::Directory(directory) = seen.place_of_captured(volume).await? {
                found.fill(volume, &directory, &Filling::default()).await?;
            }
        }
        Ok(())
    }

    /// Removes the container that was replaced. What stays goes with the next cleanup.
    async fn finish(self, seen: &SeenEngine, path: &Path, journal: &ReplaceJournal) {
        let old = &journal.container_id;
        let removed = seen.docker.remove_container(old, VolumeRemoval::Keep);
        let ended = async {
            removed.await?;
            let path = path.to_owned();
            bridge::blocking(move || remove_durably(&path)).await?;
            Ok::<_, Error>(())
        };
        if let Err(error) = ended.await {
            let error = error_chain(&error);
            tracing::warn!(
                container = old,
                error,
                "what was replaced is left; cleanup removes it"
            );
        }
    }

    /// The containers of an engine whose replacement was begun and did not end.
    pub(super) async fn interrupted(self, seen: &SeenEngine) -> Result<Vec<String>, Error> {
        let place = self.own_place().await?;
        let ending = format!(".{}.replace.json", seen.digits);
        let listed = bridge::blocking(move || {
            let mut paths = Vec::new();
            for entry in std::fs::read_dir(&place).at("list", &place)? {
                let entry = entry.at("list", &place)?;
                if entry.file_name().to_string_lossy().ends_with(&ending) {
                    paths.push(entry.path());
                }
            }
            Ok::<_, Error>(paths)
        });
        let mut names = Vec::new();
        for path in listed.await? {
            names.extend(read(&path).await?.map(|one| one.container_name));
        }
        Ok(names)
    }
}

/// Refuses to write what the safety snapshot would not have.
fn not_mounted(container: &str, volume: &str) -> Error {
    let said = format!(
        "`{volume}` is not mounted in `{container}` any more: what is in it would be overwritten, and no snapshot would have it"
    );
    let hint = "restore beside it, without --mode replace";
    failure(ErrorKind::Conflict, said).with_hint(hint).into()
}

async fn write(path: &Path, journal: &ReplaceJournal) -> Result<(), Error> {
    let text = serde_json::to_vec_pretty(journal);
    let text = text.map_err(|error| failure(ErrorKind::Bug, error.to_string()))?;
    let path = path.to_owned();
    Ok(bridge::blocking(move || atomic_write(&path, &text)).await?)
}

async fn read(path: &Path) -> Result<Option<ReplaceJournal>, Error> {
    let asked = path.to_owned();
    let text = bridge::blocking(move || match read_bounded(&asked, LONGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.at("read", &asked).map(Some),
    });
    let Some(text) = text.await? else {
        return Ok(None);
    };
    let parsed = serde_json::from_slice(&text);
    parsed.map(Some).map_err(|error| {
        let said = format!("`{}` is damaged: {error}", path.display());
        failure(ErrorKind::Corrupt, said).into()
    })
}
