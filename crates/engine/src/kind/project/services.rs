//! The programs of a project: started, stopped, looked at; and what they want to be run around saves and restores.

use super::{Declared, Project};
use crate::bridge;
use crate::error::{Error, ProjectError};
use crate::result::{Moment, ServiceHookRun};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::fs::{atomic_write, remove};
use stasis_model::failure::Failure;
use stasis_model::id::ServiceName;
use stasis_model::project::{CommandLine, HealthConfig, ServiceConfig};
use stasis_quiesce::docker::Docker;
use stasis_quiesce::hook::{self, HookCommand, HookExit};
use stasis_quiesce::invocation::{CommandSpec, Invocation};
use stasis_quiesce::service::{Handling, HealthCheck, Probe, Service, Status};
use stasis_quiesce::watchdog::HelperCommand;
use std::ffi::OsString;
use std::time::Duration;

/// How long a program may take to run once it was started.
const STARTED_WITHIN: Duration = Duration::from_secs(30);

stasis_model::display_as_serialized!(Moment);

impl Moment {
    fn command(self, service: &ServiceConfig) -> Option<&CommandLine> {
        match self {
            Self::PreSave => service.hooks.pre_save.as_ref(),
            Self::PostSave => service.hooks.post_save.as_ref(),
            Self::PreRestore => service.hooks.pre_restore.as_ref(),
            Self::PostRestore => service.hooks.post_restore.as_ref(),
        }
    }
}

/// Whether a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum ServiceStatus {
    Running,
    Stopped,
    Paused,
    Unknown,
}

stasis_model::display_as_serialized!(ServiceStatus);

/// What one program does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ServiceState {
    /// Which.
    pub service: ServiceName,
    /// Whether it runs.
    pub status: ServiceStatus,
    /// Its first process, if it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Why nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Project {
    /// Starts every program that does not run, and waits until all are well.
    pub async fn start(&self) -> Result<Vec<ServiceState>, Error> {
        let declared = self.home.declared()?;
        let _lock = self.exclusive("start").await?;
        self.start_what_was_left().await?;
        self.start_all(declared).await?;
        let all: Vec<ServiceName> = declared.config.services.keys().cloned().collect();
        self.healthy(declared, &all).await?;
        Ok(self.states(declared).await)
    }

    /// Stops every program that runs.
    pub async fn stop(&self) -> Result<Vec<ServiceState>, Error> {
        let declared = self.home.declared()?;
        let _lock = self.exclusive("stop").await?;
        let all = declared.config.services.keys();
        self.stop_those(declared, all.cloned().collect()).await?;
        Ok(self.states(declared).await)
    }

    /// What every program does.
    pub(super) async fn states(&self, declared: &Declared) -> Vec<ServiceState> {
        let mut all = Vec::new();
        for name in declared.config.services.keys() {
            let found = self.service(declared, name).status().await;
            let (status, pid, detail) = match found {
                Status::Running { pid } => (ServiceStatus::Running, Some(pid), None),
                Status::Stopped => (ServiceStatus::Stopped, None, None),
                Status::Paused => (ServiceStatus::Paused, None, None),
                Status::Unknown(why) => (ServiceStatus::Unknown, None, Some(why)),
            };
            all.push(ServiceState {
                service: name.clone(),
                status,
                pid,
                detail,
            });
        }
        all
    }

    pub(super) async fn start_all(&self, declared: &Declared) -> Result<(), Error> {
        for name in declared.config.services.keys() {
            self.start_one(declared, name).await?;
        }
        Ok(())
    }

    async fn start_one(&self, declared: &Declared, name: &ServiceName) -> Result<(), Error> {
        let service = self.service(declared, name);
        if matches!(service.status().await, Status::Running { .. }) {
            return Ok(());
        }
        let started = service.start(STARTED_WITHIN).await;
        started.map_err(ProjectError::Start)?;
        Ok(())
    }

    /// Stops those that run, the last ones of the file first; says which did.
    pub(super) async fn stop_those(
        &self,
        declared: &Declared,
        names: Vec<ServiceName>,
    ) -> Result<Vec<ServiceName>, Error> {
        let mut stopped = Vec::new();
        for name in names.into_iter().rev() {
            let service = self.service(declared, &name);
            if matches!(service.status().await, Status::Stopped) {
                continue;
            }
            let timeout = declared.config.services[&name].stop_timeout_s;
            let ended = service.stop(Duration::from_secs(timeout)).await;
            if let Err(error) = ended.map_err(ProjectError::Stop) {
                // Whoever was stopped for nothing runs again.
                let _ = self.start_those(declared, &stopped).await;
                return Err(error.into());
            }
            stopped.insert(0, name);
        }
        Ok(stopped)
    }

    /// Writes down durably which programs a restore is about to stop, or that all of them run again.
    pub(super) async fn remember_stopped(
        &self,
        declared: &Declared,
        names: &[ServiceName],
    ) -> Result<(), Error> {
        let path = declared.state.join(".stasis/stopped");
        let words: Vec<&str> = names.iter().map(ServiceName::as_str).collect();
        let words = words.join("\n");
        bridge::blocking(move || {
            if words.is_empty() {
                let _ = remove::file_at(&path);
                return Ok(());
            }
            Ok(atomic_write::atomic_write(&path, words.as_bytes())?)
        })
        .await
    }

    /// Brings to its end what a restore had begun when it died, and starts the programs that it had stopped.
    pub(super) async fn start_what_was_left(&self) -> Result<(), Error> {
        self.recover_restore().await?;
        let Some(declared) = &self.home.declared else {
            return Ok(());
        };
        let path = declared.state.join(".stasis/stopped");
        let words = bridge::blocking(move || std::fs::read_to_string(path)).await;
        let known = &declared.config.services;
        let names: Vec<ServiceName> = words
            .unwrap_or_default()
            .lines()
            .filter_map(|name| name.parse().ok())
            .filter(|name| known.contains_key(name))
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        self.start_those(declared, &names).await?;
        self.remember_stopped(declared, &[]).await
    }

    /// Starts those again, each whatever became of the others; the first failure is told.
    pub(super) async fn start_those(
        &self,
        declared: &Declared,
        names: &[ServiceName],
    ) -> Result<(), Error> {
        let mut first = Ok(());
        for name in names {
            let started = self.start_one(declared, name).await;
            if first.is_ok() {
                first = started;
            }
        }
        first
    }

    /// Which programs run.
    pub(super) async fn running(&self, declared: &Declared) -> Vec<ServiceName> {
        let mut running = Vec::new();
        for name in declared.config.services.keys() {
            if matches!(
                self.service(declared, name).status().await,
                Status::Running { .. }
            ) {
                running.push(name.clone());
            }
        }
        running
    }

    /// Waits until those of the programs are well that say how to see it.
    pub(super) async fn healthy(
        &self,
        declared: &Declared,
        names: &[ServiceName],
    ) -> Result<(), Error> {
        let asked = declared.config.services.iter();
        for (name, config) in asked.filter(|(name, _)| names.contains(name)) {
            let Some(health) = &config.health else {
                continue;
            };
            let mut check = HealthCheck::new(self.probe(health));
            check.total_timeout = Duration::from_secs(health.timeout_s);
            let well = self.service(declared, name).health(&check).await;
            well.map_err(ProjectError::Unhealthy)?;
        }
        Ok(())
    }

    fn probe(&self, health: &HealthConfig) -> Probe {
        match (&health.command, &health.tcp, &health.socket) {
            (Some(command), _, _) => Probe::Command(self.call(command, Vec::new())),
            (_, Some(address), _) => Probe::Tcp(address.clone()),
            (_, _, Some(path)) => Probe::Unix(self.home.dir.join(path)),
            _ => unreachable!("the file was checked: one of the three is said"),
        }
    }

    /// What the project's file says of a program, as something that can be handled.
    pub(super) fn service(&self, declared: &Declared, name: &ServiceName) -> Service {
        let config = &declared.config.services[name];
        let place = declared.state.join(".stasis");
        let (start, stop) = (config.start.as_ref(), config.stop.as_ref());
        let call = |line: &CommandLine| self.call(line, Vec::new());
        let handling = match (&config.container, &config.pid_file, start) {
            (Some(container), _, _) => Handling::Docker {
                docker: Docker::from_variable(self.host.variables.get("DOCKER_HOST")),
                container: container.clone(),
            },
            (None, None, Some(start)) => Handling::Command {
                start: call(start),
                stop: stop.map(call),
                record: place.join(format!("{name}.service")),
            },
            (None, path, start) => Handling::PidFile {
                path: self.home.dir.join(path.as_deref().unwrap_or("".as_ref())),
                start: start.map(call),
                stop: stop.map(call),
            },
        };
        Service {
            name: name.to_string(),
            handling,
            log: place.join(format!("{name}.log")),
            launcher: HelperCommand::this_program(&["internal", "launch"]),
        }
    }

    fn call(&self, line: &CommandLine, environment: Vec<(OsString, OsString)>) -> Invocation {
        let line = match line {
            CommandLine::Words(words) => {
                CommandSpec::Words(words.iter().map(OsString::from).collect())
            }
            CommandLine::Shell(text) => CommandSpec::Shell(text.into()),
        };
        Invocation {
            line,
            directory: Some(self.home.dir.clone()),
            environment,
        }
    }

    /// How long what its programs want to be run after a save may take, all of it.
    pub(super) fn post_save_limit(&self) -> Duration {
        let declared = self.home.declared.iter();
        let services = declared.flat_map(|declared| declared.config.services.values());
        let hooks = services.map(|service| &service.hooks);
        let hooks = hooks.filter(|hooks| hooks.post_save.is_some());
        Duration::from_secs(hooks.fold(0, |all: u64, hooks| all.saturating_add(hooks.timeout_s)))
    }

    /// Runs what every program wants to be run at a moment, in the order of the file; the first that fails ends it.
    pub(super) async fn run_hooks(
        &self,
        declared: &Declared,
        moment: Moment,
        why: &str,
    ) -> Result<Vec<ServiceHookRun>, Error> {
        let mut runs = Vec::new();
        for (name, config) in &declared.config.services {
            let Some(command) = moment.command(config) else {
                continue;
            };
            let variables = [
                ("STASIS_PROJECT", self.home.id.as_str().into()),
                (
                    "STASIS_STATE",
                    declared.state_for_programs().into_os_string(),
                ),
                ("STASIS_HOOK", moment.to_string().into()),
                ("STASIS_REASON", why.into()),
            ];
            let variables = variables.map(|(key, value): (&str, OsString)| (key.into(), value));
            let hook = HookCommand {
                call: self.call(command, variables.to_vec()),
                timeout: Duration::from_secs(config.hooks.timeout_s),
            };
            // What it starts may be a service, which would have the priority of our thread for good.
            let ended = bridge::at_usual_priority(async move { hook::run(&hook).await }).await;
            let run = ran(name, moment, ended);
            let failed = (!run.ok).then(|| run.clone());
            runs.push(run);
            if let Some(run) = failed {
                return Err(ProjectError::Hook(Box::new(run)).into());
            }
        }
        Ok(runs)
    }
}

fn ran(
    service: &ServiceName,
    moment: Moment,
    outcome: Result<hook::HookResult, Failure>,
) -> ServiceHookRun {
    let mut run = ServiceHookRun {
        service: service.clone(),
        moment,
        ending: String::new(),
        ok: false,
        stdout: String::new(),
        stderr: String::new(),
        elapsed_ms: 0,
    };
    match outcome {
        Ok(outcome) => {
            run.ok = outcome.succeeded();
            run.ending = match outcome.ending {
                HookExit::Exited(code) => format!("exited {code}"),
                HookExit::Signalled(signal) => format!("signalled {signal}"),
                HookExit::TimedOut => "timed out".to_owned(),
            };
            run.stdout = outcome.stdout.text();
            run.stderr = outcome.stderr.text();
            run.elapsed_ms = u64::try_from(outcome.elapsed.as_millis()).unwrap_or(u64::MAX);
        }
        Err(error) => run.ending = crate::error::error_chain(&error),
    }
    run
}
