//! Makes a container of a snapshot instead of the one that there is, with its name and its volumes.
//!
//! 1. save most of it while it runs   2. write down what is about to happen   3. stop it   4. save it: the way back   5. give it another
//!    name   6. make its volumes what they were   7. make the container, start it, see that it works   8. remove the other one
//!
//! *Always true:* until 8 the container that there was is kept, stopped, under another name, and everything of its volumes is in the
//! snapshot of 4: whoever finds what 2 wrote, after an error or a crash, brings it back ([`Containers::take_back`]).

use super::capture::CaptureRequest;
use super::failure;
use super::image::MadeFor;
use super::lock::short;
use super::ports::chosen_ports;
use super::replace_journal::ReplaceJournal;
use super::replaceable::ensure_replaceable;
use super::restore::{RestoreLook, made_ports};
use super::restore_request::{ContainerRestored, STOP_TIMEOUT};
use super::take_back::{Forward, TakenBack};
use super::volumes::{VolumePlace, is_plain};
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use crate::warning::Warning;
use serde_json::{Value, json};
use stasis_model::container::status::ContainerStatus;
use stasis_model::format::manifest::{CapturedVolume, SaveReason};
use stasis_model::id::SnapshotId;
use stasis_quiesce::docker::ContainerFacts;
use stasis_store::layout::ChunkRoot;
use std::path::PathBuf;
use std::time::Duration;

/// How the name of a container ends while another one takes its place.
fn aside_ending(id: &str) -> String {
    format!("_replaced_{}", short(id))
}

/// Whether another container is taking its place.
pub(super) fn is_aside(facts: &ContainerFacts) -> bool {
    facts.name.ends_with(&aside_ending(&facts.id))
}

impl RestoreLook<'_> {
    /// Makes a container instead of the one that there is.
    pub(super) async fn replace(&self, of: Containers<'_>) -> Result<ContainerRestored, Error> {
        let name = &self.found.container.container_name;
        let _lock = of.lock(self.seen, name, "replaced").await?;
        if self.how.dry_run {
            of.ensure_not_interrupted(self.seen, name).await?;
        } else {
            let back = of.take_back(self.host, self.seen, name, Forward::IfItWorks);
            // What is written down of one replacement must not be written over by another one.
            if let TakenBack::Forward(Some(left)) = Box::pin(back).await? {
                let hint = "`stasis container cleanup` tries it again";
                return Err(failure(ErrorKind::Conflict, left).with_hint(hint).into());
            }
        }
        let now = self.seen.docker.container(name).await?;
        let Some(now) = now else {
            let said = format!("there is no container `{name}` whose place it could take");
            let hint = format!("`--name {name}` without --mode replace makes it anew");
            return Err(failure(ErrorKind::NotFound, said).with_hint(hint).into());
        };
        ensure_replaceable(&now)?;
        let taken = Some(now.id.as_str());
        let ports = chosen_ports(self.seen, &self.found.container, &self.how.ports, taken).await?;
        self.ensure_volumes(&now).await?;
        let networks = self.missing_networks().await?;
        if self.how.dry_run {
            let volumes = self.found.container.volumes.iter();
            let volumes = volumes.map(|one| (one.clone(), one.name.clone())).collect();
            return Ok(self.restored(("", name), made_ports(self, ports.as_ref()), volumes));
        }
        let path = of.journal_path(self.seen, name).await?;
        let mut swap = Swap {
            look: self,
            now: &now,
            path,
            journal: ReplaceJournal {
                op_id: self.op_id,
                container_id: now.id.clone(),
                container_name: name.clone(),
                aside: format!("{name}{}", aside_ending(&now.id)),
                started: now.started.clone(),
                was: was(&now),
                restart_policy: now.host_config["RestartPolicy"].clone(),
                health: (&self.how.health).into(),
                store: of.location.to_string(),
                tenant: self.host.tenant.clone(),
                safety: ChunkRoot::new_id(of.lineages.now(), &*of.rng),
                is_filling: false,
                is_done: false,
                copies: Vec::new(),
            },
        };
        match Box::pin(swap.run(of, ports, &networks)).await {
            Ok(restored) => Ok(restored),
            Err(error) => Err(self.went_back(of, name, error).await),
        }
    }

    /// Brings the container back that there was, and says so.
    async fn went_back(&self, of: Containers<'_>, name: &str, error: Error) -> Error {
        let why = error_chain(&error);
        let back = of.take_back(self.host, self.seen, name, Forward::Never);
        match Box::pin(back).await {
            Ok(TakenBack::Gone(safety, tenant)) => {
                let gone = TakenBack::gone(name, safety.as_ref(), &tenant);
                let said = format!("{gone}; it failed: {why}");
                failure(error.kind(), said).into()
            }
            Ok(TakenBack::Forward(_)) => {
                let said = format!("`{name}` was replaced, and works; after that it failed: {why}");
                failure(error.kind(), said).into()
            }
            Ok(TakenBack::Nothing | TakenBack::Back) => {
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

    /// How long a container may take to end: as somebody says, as it says itself, or as engines have it.
    fn stop_timeout(&self, now: &ContainerFacts) -> Duration {
        let own = now.stop_timeout().unwrap_or(STOP_TIMEOUT);
        self.how.stop_timeout.unwrap_or(own)
    }
}

/// What a container does: one that ends and is started again and again is one that runs.
fn was(now: &ContainerFacts) -> ContainerStatus {
    match &now.status {
        ContainerStatus::Other(state) if state == "restarting" => ContainerStatus::Running,
        status => status.clone(),
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
        ports: Option<Value>,
        networks: &[String],
    ) -> Result<ContainerRestored, Error> {
        let safety = self.save_before(of).await?;
        let (look, docker) = (self.look, &self.look.seen.docker);
        let name = self.journal.container_name.clone();
        look.make_networks(networks).await?;
        docker
            .rename_container(&self.now.id, &self.journal.aside)
            .await?;
        let mut volumes = Vec::new();
        let made_for = look.made_for(of, &name).await?;
        // Somebody may have come meanwhile.
        look.ensure_volumes(self.now).await?;
        self.journal.is_filling = true;
        self.journal.write(&self.path).await?;
        for volume in &look.found.container.volumes {
            let filled = self.fill(volume, &made_for).await?;
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
        self.journal.write(&self.path).await?;
        // From here on it is done, whatever fails.
        look.note(of, &id, &name).await;
        let ports = look.ports_of(&id).await;
        let mut restored = look.restored((&id, &name), ports, volumes);
        restored.warnings = look.warnings().await;
        let finished = of.finish(look.seen, &self.path, &self.journal);
        if let Err(error) = finished.await {
            restored.warnings.push(Warning::ReplacedIsLeft {
                container: self.journal.aside.clone(),
                reason: error_chain(&error),
            });
        }
        Ok(ContainerRestored {
            safety_snapshot_id: Some(safety),
            ..restored
        })
    }

    /// Makes a volume what it was; one that only the engine can write is another one from now on, and the one that there was stays as it
    /// is. Says what it is called.
    async fn fill(&self, volume: &CapturedVolume, made_for: &MadeFor) -> Result<String, Error> {
        let look = self.look;
        let there = look.seen.place_if_there(volume).await?;
        if let Some(place @ VolumePlace::Directory(_)) = &there {
            look.fill(volume, &volume.name, place, made_for).await?;
            return Ok(volume.name.clone());
        }
        // One that is gone is made again. What the options of one name is not ours to write.
        let name = if there.is_none() && is_plain(&volume.driver, &volume.options) {
            volume.name.clone()
        } else {
            look.new_volume(volume).await?
        };
        let place = look.make_volume(&name, &volume.labels).await?;
        look.fill(volume, &name, &place, made_for).await?;
        Ok(name)
    }

    /// Stops the container, and saves all of it.
    async fn save_before(&mut self, of: Containers<'_>) -> Result<SnapshotId, Error> {
        let (look, now) = (self.look, self.now);
        let how = look.safety_of(now, &self.journal.safety);
        let request = CaptureRequest {
            host: look.host,
            seen: look.seen,
            facts: now,
            how: &how,
            reason: SaveReason::BeforeRestore,
            was: &self.journal.was,
            first: None,
        };
        let first = match now.status {
            ContainerStatus::Running => Some(of.warm(request).await?),
            _ => None,
        };
        self.journal.write(&self.path).await?;
        let docker = &look.seen.docker;
        // An engine that is started again meanwhile does not start it.
        let never = json!({"Name": "no", "MaximumRetryCount": 0});
        docker.set_restart_policy(&now.id, &never).await?;
        if now.status == ContainerStatus::Paused {
            docker.unpause_container(&now.id).await?;
        }
        if self.journal.was.is_alive() {
            let longest = look.stop_timeout(now);
            docker.stop_container(&now.id, longest).await?;
        }
        let mut stopped = look.seen.container(&now.id).await?;
        self.journal.started.clone_from(&stopped.started);
        stopped.host_config["RestartPolicy"] = now.host_config["RestartPolicy"].clone();
        let saved = of.capture(CaptureRequest {
            facts: &stopped,
            first: first.as_ref(),
            ..request
        });
        let saved = Box::pin(saved).await?.snapshot_id;
        if saved != self.journal.safety {
            self.journal.safety = saved.clone();
            self.journal.write(&self.path).await?;
        }
        Ok(saved)
    }
}
