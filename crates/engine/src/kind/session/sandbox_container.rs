//! A container as what runs a session: looked at, started, stopped and held still through its engine.

use super::sandbox::SandboxHealth;
use super::{SessionHost, failure};
use crate::error::{Error, ErrorKind};
use crate::kind::container::{ContainerLock, lock_in};
use stasis_model::container::status::ContainerStatus;
use stasis_model::session::document::{SandboxCommands, SandboxDriver};
use stasis_quiesce::docker::{Docker, OwnHealth};
use stasis_quiesce::service::{Handling, Service};
use stasis_quiesce::watchdog::HelperCommand;
use std::path::PathBuf;
use std::time::Duration;

/// The container that somebody means, by its whole id.
pub(super) async fn find(docker: &Docker, wanted: &str) -> Result<SandboxDriver, Error> {
    let Some(facts) = docker.container(wanted).await? else {
        let host = docker.host().display();
        let said = format!("the Docker engine at {host} has no container `{wanted}`");
        let hint = "`docker ps --all` lists those that there are";
        return Err(failure(ErrorKind::NotFound, said).with_hint(hint).into());
    };
    if facts.host_config["AutoRemove"] == true {
        let said = format!(
            "the container `{}` goes when it is stopped (--rm): it could not be woken",
            facts.name
        );
        let hint = "make it without --rm";
        return Err(failure(ErrorKind::Invalid, said).with_hint(hint).into());
    }
    if facts.host_config["RestartPolicy"]["Name"] == "always" {
        let name = &facts.name;
        let said = format!(
            "the container `{name}` is started whenever its engine is (--restart always): it would run while the session sleeps"
        );
        let hint = format!("`docker update --restart unless-stopped {name}`");
        return Err(failure(ErrorKind::Invalid, said).with_hint(hint).into());
    }
    Ok(SandboxDriver::Docker {
        engine: docker.host().to_string_lossy().into_owned(),
        container: facts.id,
        name: facts.name,
    })
}

/// A container that runs a session.
#[derive(Clone, Debug)]
pub(super) struct SandboxContainer {
    docker: Docker,
    id: String,
    name: String,
}

impl SandboxContainer {
    /// The container that a sandbox is, if it is one.
    pub(super) fn of(driver: &SandboxDriver) -> Option<Self> {
        match driver {
            SandboxDriver::Docker {
                engine,
                container,
                name,
            } => Some(Self {
                docker: Docker::from_variable(Some(engine)),
                id: container.clone(),
                name: name.clone(),
            }),
            _ => None,
        }
    }

    /// What must have been named on this host before it is started or stopped here: the store alone does not say so.
    pub(super) fn as_command(&self) -> SandboxCommands {
        let engine = self.docker.host().to_string_lossy();
        SandboxCommands {
            start: Some(format!("docker start {} at {engine}", self.id)),
            ..SandboxCommands::default()
        }
    }

    /// What the engine says of it, and its own health check.
    pub(super) async fn health(&self) -> Result<SandboxHealth, Error> {
        let facts = match self.docker.container(&self.id).await {
            Ok(facts) => facts,
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                let because = error.to_string();
                return Ok(SandboxHealth::Unreachable { because });
            }
            Err(error) => return Err(error.into()),
        };
        let Some(facts) = facts else {
            // One that took its place is not known to run the session.
            let other = self.docker.container(&self.name).await?;
            return Ok(other.map_or(SandboxHealth::Gone, |_| SandboxHealth::NotKnown));
        };
        if !facts.status.is_alive() {
            return Ok(SandboxHealth::Gone);
        }
        if facts.status == ContainerStatus::Paused {
            return Ok(SandboxHealth::NotKnown);
        }
        Ok(match self.docker.health_of(&self.id).await? {
            OwnHealth::Works => SandboxHealth::Healthy,
            OwnHealth::Starting => SandboxHealth::Starting,
            OwnHealth::Fails(because) => SandboxHealth::Unreachable { because },
        })
    }

    /// Makes it ours alone, as whoever saves or replaces it does. A host that keeps nothing has nobody who does.
    pub(super) async fn lock(
        &self,
        host: &SessionHost,
        doing: &str,
    ) -> Result<Option<ContainerLock>, Error> {
        let Some(state) = host.state.clone() else {
            return Ok(None);
        };
        // It is the name that it has now which others lock.
        let facts = self.docker.container(&self.id).await?;
        let name = facts.map_or_else(|| self.name.clone(), |facts| facts.name);
        let lock = lock_in(state, &self.docker, (&name, doing)).await?;
        Ok(Some(lock))
    }

    /// Starts it, as it was.
    pub(super) async fn start(&self) -> Result<(), Error> {
        if self.docker.container(&self.id).await?.is_none() {
            let name = &self.name;
            let said = format!("the container `{name}` that ran the session is gone");
            let hint = format!(
                "wake it in another one: `stasis session wake … --container NAME`; `stasis container restore latest {name} --name {name}` makes it again, if it was saved"
            );
            return Err(failure(ErrorKind::NotFound, said).with_hint(hint).into());
        }
        Ok(self.docker.start_container(&self.id).await?)
    }

    /// Stops it; one that is gone has ended. It gets the time that it says it needs, or `grace`. One that may need more than
    /// `longest` is not stopped at all: after that somebody else may start it.
    pub(super) async fn stop(&self, grace: Duration, longest: Duration) -> Result<(), Error> {
        let Some(facts) = self.docker.container(&self.id).await? else {
            if self.docker.container(&self.name).await?.is_none() {
                return Ok(());
            }
            let name = &self.name;
            let said = format!(
                "another container is called `{name}` since the session was registered: whether it runs the session is not known"
            );
            let hint = format!("say what runs it: `stasis session register … --container {name}`");
            return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
        };
        let grace = facts.stop_timeout().unwrap_or(grace.min(longest));
        if grace > longest && facts.status.is_alive() {
            let (name, own, ours) = (&self.name, grace.as_secs(), longest.as_secs());
            let said = format!(
                "the container `{name}` may take {own} s to end, as it says itself, and there are {ours} s for that: then somebody else may start it"
            );
            let hint = format!("`docker stop {name}`, then put the session to sleep once more");
            return Err(failure(ErrorKind::Limit, said).with_hint(hint).into());
        }
        if facts.status == ContainerStatus::Paused {
            self.docker.unpause_container(&self.id).await?;
        }
        Ok(self.docker.stop_container(&self.id, grace).await?)
    }

    /// The same as something that can be held still.
    pub(super) fn service(&self) -> Service {
        Service {
            name: self.name.clone(),
            handling: Handling::Docker {
                docker: self.docker.clone(),
                container: self.id.clone(),
            },
            // Nobody starts it here.
            log: PathBuf::new(),
            launcher: HelperCommand::this_program(&[]),
        }
    }
}
