//! A container with a volume: an agent deletes what is in both, and it comes back as it was.
//!
//! What it makes on the Docker engine, an image, a container and a volume, has the demo's own name and is removed again, however it ends.

use super::scene::{DemoCheck, DemoContainerFacts, DemoPart, SceneFacts, SkippedFacts};
use super::stage::DemoStage;
use super::working_tree::{Shown, since};
use crate::bridge;
use crate::error::{Error, error_chain};
use crate::kind::container::{
    ContainerHealth, ContainerHost, CreateSnapshot, RestoreContainer, RestoreMode,
};
use crate::piped::piped_file;
use serde_json::json;
use stasis_disk::fs::atomic_write::make_directory;
use stasis_model::failure::AtPath;
use stasis_model::id::TenantId;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_quiesce::docker::{ContainerCreation, Docker, ImageImport, VolumeRemoval};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// What the container does before anything happens to it.
const WORK: &str = "echo 1204 orders > /data/orders; dd if=/dev/urandom of=/data/pictures bs=65536 count=64; echo v1 > /version";
/// What the agent does.
const ACCIDENT: &str = "rm -rf /data/orders /data/pictures /version";
/// How everything is read back: by the container itself.
const LOOK: &str = "cd / && for f in /data/* /version; do test -e $f && sha256sum $f; done; true";
/// What must end within this does.
const LONGEST: Duration = Duration::from_secs(20);

/// The container of the demo.
struct Stand<'s> {
    stage: &'s DemoStage,
    docker: Docker,
    name: String,
}

pub(super) async fn shown(stage: &Arc<DemoStage>) -> Result<Shown, Error> {
    let docker = stage.settings.docker.clone();
    if docker.engine().await.is_err() {
        return Ok(skipped("no Docker engine answers"));
    }
    let (Some(busybox), Some(tar)) = (stage.program("busybox"), stage.program("tar")) else {
        return Ok(skipped(
            "there is no `busybox`, of which a container could be made",
        ));
    };
    let digits = stage.rng.op_id().to_string();
    let stand = Stand {
        stage,
        docker,
        name: format!("stasis-demo-{}", &digits[..8]),
    };
    let played = Box::pin(stand.play(&busybox, &tar)).await;
    stand.clear().await;
    match played {
        Ok(shown) => Ok(shown),
        // An engine that runs no containers of ours is no fault of what is shown.
        Err(Play::NotStarted(why)) => Ok(skipped(&why)),
        Err(Play::Failed(error)) => Err(error),
    }
}

/// Why a scene was not played.
enum Play {
    NotStarted(String),
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Play {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Stand<'_> {
    async fn play(&self, busybox: &Path, tar: &Path) -> Result<Shown, Play> {
        if let Err(error) = self.start(busybox, tar).await {
            let why = format!("a container could not be started: {}", error_chain(&error));
            return Err(Play::NotStarted(why));
        }
        let (stage, host) = (self.stage, self.host());
        self.docker.run_in(&self.name, WORK, LONGEST).await?;
        let before = self.look().await?;
        let engine = stage.engine("host").await?;
        let started = stage.clock.uptime();
        let saved = engine.containers();
        let saved = Box::pin(saved.create(&host, &CreateSnapshot::new(&self.name))).await?;
        let save_us = since(stage, started);
        self.docker.run_in(&self.name, ACCIDENT, LONGEST).await?;
        let left = self.look().await?;
        let restore = RestoreContainer {
            mode: RestoreMode::Replace,
            stop_timeout: Some(Duration::from_secs(1)),
            health: ContainerHealth {
                running_for: Duration::from_millis(200),
                ..ContainerHealth::default()
            },
            ..RestoreContainer::new(SnapshotRef::Text(saved.snapshot_id.to_string()))
        };
        let started = stage.clock.uptime();
        let restored = Box::pin(engine.containers().restore(&host, &restore)).await?;
        let restore_us = since(stage, started);
        let after = self.look().await?;
        let checks = vec![
            DemoCheck::new("files before", 3, before.lines().count()),
            DemoCheck::new("files after the accident", 0, left.lines().count()),
            DemoCheck::new("all of them are back", true, before == after),
            DemoCheck::new("it runs", true, restored.started),
        ];
        let facts = DemoContainerFacts {
            bytes: saved.bytes,
            frozen_ms: saved.frozen_ms,
            save_us,
            restore_us,
        };
        Ok((SceneFacts::Container(facts), checks))
    }

    fn host(&self) -> ContainerHost {
        let tenant = TenantId::default();
        ContainerHost {
            docker: self.docker.clone(),
            tenant,
        }
    }

    /// What the container has, by content.
    async fn look(&self) -> Result<String, Error> {
        let ran = self.docker.run_in(&self.name, LOOK, LONGEST).await?;
        Ok(ran.output)
    }

    /// Makes an image with nothing but a shell, and a container of it.
    async fn start(&self, busybox: &Path, tar: &Path) -> Result<(), Error> {
        let (place, archive) = (self.stage.at("image"), self.stage.at("image.tar"));
        let (busybox, tar, written) = (busybox.to_owned(), tar.to_owned(), archive.clone());
        bridge::blocking(move || pack(&busybox, &tar, &place, &written)).await?;
        let import = ImageImport {
            name: self.image(),
            labels: BTreeMap::new(),
            comment: "the demo's container".to_owned(),
        };
        let (reading, stream) = piped_file(archive);
        let importing = self.docker.import_image(&import, stream);
        let (read, imported) = tokio::join!(reading, importing);
        imported?;
        read?;
        let mut creation = ContainerCreation::from_image(&self.name, &self.image());
        creation.config["Cmd"] = json!(["/bin/sleep", "600"]);
        let volume = format!("{}:/data", self.name);
        creation.host_config = json!({"NetworkMode": "none", "Binds": [volume]});
        let id = self.docker.create_container(&creation).await?;
        self.docker.start_container(&id).await?;
        self.docker.run_in(&self.name, "true", LONGEST).await?;
        Ok(())
    }

    fn image(&self) -> String {
        format!("{}:latest", self.name)
    }

    /// Removes everything of it; what cannot be removed is said.
    async fn clear(&self) {
        let cleared = async {
            let docker = &self.docker;
            docker
                .stop_container(&self.name, Duration::from_secs(1))
                .await
                .ok();
            docker
                .remove_container(&self.name, VolumeRemoval::Anonymous)
                .await?;
            docker.remove_volume(&self.name).await?;
            let engine = self.stage.engine("host").await?;
            let host = self.host();
            let listed = engine.containers().list(&host, Some(&self.name)).await;
            for one in listed.map(|all| all.items).unwrap_or_default() {
                docker.remove_image(&one.image).await?;
            }
            docker.remove_image(&self.image()).await?;
            Ok::<_, Error>(())
        };
        if let Err(error) = cleared.await {
            let (error, name) = (error_chain(&error), &self.name);
            tracing::warn!(
                name,
                error,
                "something of the demo is left on the Docker engine"
            );
        }
    }
}

/// A tar of a file system with nothing but a shell.
fn pack(busybox: &Path, tar: &Path, place: &Path, archive: &PathBuf) -> Result<(), Error> {
    let bin = place.join("bin");
    make_directory(&bin)?;
    std::fs::copy(busybox, bin.join("busybox")).at("copy", busybox)?;
    for name in ["sh", "sleep", "dd", "rm", "sha256sum", "test", "true"] {
        symlink("busybox", bin.join(name)).at("link", &bin)?;
    }
    let mut command = Command::new(tar);
    command
        .arg("-C")
        .arg(place)
        .arg("-cf")
        .arg(archive)
        .arg(".");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.at("run", tar)?;
    if !status.success() {
        let said = format!("tar ended with {status}");
        return Err(
            stasis_model::failure::Failure::of(crate::error::ErrorKind::Failed, said).into(),
        );
    }
    Ok(())
}

fn skipped(why: &str) -> Shown {
    let (part, why) = (DemoPart::Container, why.to_owned());
    (SceneFacts::Skipped(SkippedFacts { part, why }), Vec::new())
}
