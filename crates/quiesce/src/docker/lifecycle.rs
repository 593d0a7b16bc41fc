//! Containers are started, stopped, renamed, removed, and waited for.

use super::client::Docker;
use super::error::{CallError, present};
use super::pausing::check_container_name;
use bollard::models::{
    ContainerState, ContainerStateStatusEnum as Status, ContainerUpdateBody, HealthStatusEnum,
};
use bollard::query_parameters::{
    RemoveContainerOptionsBuilder, RenameContainerOptionsBuilder, StopContainerOptionsBuilder,
};
use serde_json::Value;
use stasis_model::failure::{ErrorKind, Failure};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How much longer than its timeout a stop may take.
const STOP_MARGIN: Duration = Duration::from_secs(20);

/// What happens to the volumes of a container that is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeRemoval {
    /// All stay.
    Keep,
    /// Those that the engine named go, unless another container uses them.
    Anonymous,
}

/// How a container shows that it works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerHealth {
    /// A command of the shell in the container that must succeed, too.
    pub command: Option<String>,
    /// How long a container without a health check of its own must run.
    pub running_for: Duration,
    /// How long it may take to be healthy, by its own health check.
    pub total_timeout: Duration,
    /// How long is waited between two looks.
    pub interval: Duration,
}

impl Default for ContainerHealth {
    /// Runs after three seconds, or is healthy within a minute.
    fn default() -> Self {
        Self {
            command: None,
            running_for: Duration::from_secs(3),
            total_timeout: Duration::from_mins(1),
            interval: Duration::from_millis(250),
        }
    }
}

/// What a container says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnHealth {
    /// It works.
    Works,
    /// Its health check has neither succeeded nor failed yet.
    Starting,
    /// It does not, and why.
    Fails(String),
}

/// What one look at a container says.
enum Look {
    Healthy,
    /// It has no health check.
    Runs,
    NotYet,
    Failed(String),
}

impl Docker {
    /// Starts a container; one that runs already is fine.
    pub async fn start_container(&self, container: &str) -> Result<(), Failure> {
        self.work("start container", container, async |client| {
            check_container_name(container)?;
            Ok(client.start_container(container, None).await?)
        })
        .await
    }

    /// Has a container stand still.
    pub async fn pause_container(&self, container: &str) -> Result<(), Failure> {
        self.ask("pause container", container, async |client| {
            check_container_name(container)?;
            Ok(client.pause_container(container).await?)
        })
        .await
    }

    /// Says when the engine starts a container again by itself: `RestartPolicy`, as in `HostConfig`.
    pub async fn set_restart_policy(&self, container: &str, policy: &Value) -> Result<(), Failure> {
        self.ask(
            "change the restart policy of container",
            container,
            async |client| {
                check_container_name(container)?;
                let strange = |error| {
                    let op = "understand the restart policy of container";
                    Failure::new(ErrorKind::Invalid, op, container).because(Box::new(error))
                };
                let policy = serde_json::from_value(policy.clone()).map_err(strange)?;
                let body = ContainerUpdateBody {
                    restart_policy: Some(policy),
                    ..ContainerUpdateBody::default()
                };
                Ok(client.update_container(container, body).await?)
            },
        )
        .await
    }

    /// Lets a container run that stands still.
    pub async fn unpause_container(&self, container: &str) -> Result<(), Failure> {
        self.ask("unpause container", container, async |client| {
            check_container_name(container)?;
            Ok(client.unpause_container(container).await?)
        })
        .await
    }

    /// Stops a container: asks it, and after `timeout` (whole seconds, at least one) kills it. One that does not run is fine.
    pub async fn stop_container(&self, container: &str, timeout: Duration) -> Result<(), Failure> {
        let seconds = i32::try_from(timeout.as_secs().max(1)).unwrap_or(i32::MAX);
        let limit = timeout + STOP_MARGIN;
        self.work("stop container", container, async |client| {
            check_container_name(container)?;
            let options = StopContainerOptionsBuilder::new().t(seconds).build();
            let stop = client.stop_container(container, Some(options));
            let stopped = tokio::time::timeout(limit, stop).await;
            Ok(stopped.map_err(|_| CallError::Silent(limit))??)
        })
        .await
    }

    /// Gives a container another name. A name that another one has is a conflict.
    pub async fn rename_container(&self, container: &str, name: &str) -> Result<(), Failure> {
        self.ask("rename container", container, async |client| {
            check_container_name(container)?;
            check_container_name(name)?;
            let options = RenameContainerOptionsBuilder::new().name(name).build();
            Ok(client.rename_container(container, options).await?)
        })
        .await
    }

    /// Removes a container that does not run; says whether there was one. One that runs is a conflict.
    pub async fn remove_container(
        &self,
        container: &str,
        volumes: VolumeRemoval,
    ) -> Result<bool, Failure> {
        self.work("remove container", container, async |client| {
            check_container_name(container)?;
            let options = RemoveContainerOptionsBuilder::new()
                .force(false)
                .v(volumes == VolumeRemoval::Anonymous);
            let removed = client.remove_container(container, Some(options.build()));
            Ok(present(removed.await)?.is_some())
        })
        .await
    }

    /// Waits until a container works: by its health check, if it has one; else until it has run for a while; and until a command
    /// succeeds in it, if there is one.
    ///
    /// One that ends, is started again, or is unhealthy fails at once, with what its health check said last.
    pub async fn wait_healthy(
        &self,
        container: &str,
        health: &ContainerHealth,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        self.wait_running(container, health, began).await?;
        let Some(command) = &health.command else {
            return Ok(());
        };
        loop {
            let ran = self
                .run_in(container, command, health.total_timeout)
                .await?;
            if ran.code == 0 {
                return Ok(());
            }
            if let Look::Failed(why) = look(&self.state(container).await?) {
                return Err(not_healthy(container, why));
            }
            if began.elapsed() >= health.total_timeout {
                let why = format!(
                    "`{command}` did not succeed in it within {:?}: exit code {}: {}",
                    health.total_timeout,
                    ran.code,
                    ran.output.trim()
                );
                return Err(not_healthy(container, why));
            }
            sleep(health.interval).await;
        }
    }

    /// What a container says of itself, by its own health check; one without works as long as it runs.
    pub async fn health_of(&self, container: &str) -> Result<OwnHealth, Failure> {
        Ok(match look(&self.state(container).await?) {
            Look::Healthy | Look::Runs => OwnHealth::Works,
            Look::NotYet => OwnHealth::Starting,
            Look::Failed(why) => OwnHealth::Fails(why),
        })
    }

    async fn wait_running(
        &self,
        container: &str,
        health: &ContainerHealth,
        began: Instant,
    ) -> Result<(), Failure> {
        let mut first_start = None;
        loop {
            let state = self.state(container).await?;
            let started = state.started_at.clone();
            let restarted = first_start.as_ref().is_some_and(|first| *first != started);
            first_start.get_or_insert(started);
            let why = match look(&state) {
                _ if restarted => "it ended and was started again".to_owned(),
                Look::Healthy => return Ok(()),
                Look::Runs if began.elapsed() >= health.running_for => return Ok(()),
                Look::NotYet if began.elapsed() >= health.total_timeout => {
                    let limit = health.total_timeout;
                    format!("its health check did not succeed within {limit:?}")
                }
                Look::Runs | Look::NotYet => {
                    sleep(health.interval).await;
                    continue;
                }
                Look::Failed(why) => why,
            };
            return Err(not_healthy(container, why));
        }
    }

    async fn state(&self, container: &str) -> Result<ContainerState, Failure> {
        self.ask("inspect container", container, async |client| {
            check_container_name(container)?;
            let found = client.inspect_container(container, None).await?;
            Ok(found.state.unwrap_or_default())
        })
        .await
    }
}

fn not_healthy(container: &str, why: String) -> Failure {
    let op = "see a healthy container in";
    Failure::new(ErrorKind::Failed, op, container)
        .because(why)
        .with_hint(format!("see its log: docker logs {container}"))
}

fn look(state: &ContainerState) -> Look {
    if state.status != Some(Status::RUNNING) {
        let status = state.status.map(|status| status.to_string());
        let code = state.exit_code.unwrap_or_default();
        let status = status.unwrap_or_default();
        return Look::Failed(format!("it does not run: {status}, exit code {code}"));
    }
    let health = state.health.as_ref();
    match health.and_then(|health| health.status) {
        Some(HealthStatusEnum::HEALTHY) => Look::Healthy,
        Some(HealthStatusEnum::STARTING) => Look::NotYet,
        Some(HealthStatusEnum::UNHEALTHY) => {
            let results = health.and_then(|health| health.log.as_ref());
            let last = results.and_then(|results| results.last());
            let said = last.and_then(|result| result.output.clone());
            Look::Failed(format!(
                "its health check failed: {}",
                said.unwrap_or_default().trim()
            ))
        }
        Some(HealthStatusEnum::EMPTY | HealthStatusEnum::NONE) | None => Look::Runs,
    }
}
