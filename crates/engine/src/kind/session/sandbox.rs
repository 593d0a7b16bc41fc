//! What runs a session: asked whether it is healthy, ended, started.
//!
//! What we start carries a mark, which it hands on to whatever it starts: nothing of it is left behind, also when it left its session or
//! whoever started it was killed right after (`memory`). Commands end by themselves when whoever runs them is killed.

use super::memory::{self, is_remembered, remember_commands};
use super::sandbox_container::{self, SandboxContainer};
use super::{LEASE_TTL, SessionHost, failure};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::Failure;
use stasis_model::id::{Label, SandboxName, SessionRef};
use stasis_model::session::document::{
    Sandbox, SandboxCommands, SandboxDriver, SessionDocument, SessionPlace,
};
use stasis_model::time::Clock;
use stasis_quiesce::hook::{self, HookCommand, HookExit};
use stasis_quiesce::invocation::Invocation;
use stasis_quiesce::sandbox::{KnownProcess, MARK};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

/// How long a command may take that asks whether a sandbox is healthy.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one may take that starts or ends it.
const ACT_TIMEOUT: Duration = Duration::from_mins(1);
/// How long processes have to end when they are asked to.
const GRACE: Duration = Duration::from_secs(10);
/// How long a sandbox may take to become healthy.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a process that cannot be asked must live to count as started.
const SETTLED: Duration = Duration::from_millis(400);
const TICK: Duration = Duration::from_millis(100);

/// What runs a session, as somebody says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SandboxRequest {
    /// What it is called; sessions that say the same share it.
    pub name: SandboxName,
    /// What it is.
    pub driver: SandboxRequestDriver,
    /// What starts, asks and ends it.
    pub commands: SandboxCommands,
}

/// What a sandbox is, as somebody says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SandboxRequestDriver {
    /// The process of this number; where a command starts it, the process that this starts.
    Process(Option<u32>),
    /// The container of this name, or whose id begins so.
    Docker(String),
    /// Whatever the commands reach.
    Command,
}

/// What is known of a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "health")]
pub enum SandboxHealth {
    /// It answers.
    Healthy,
    /// It does not answer as it should.
    Unreachable {
        /// What it said.
        because: String,
    },
    /// It was started, and its health check has neither succeeded nor failed yet.
    Starting,
    /// It is not there.
    Gone,
    /// There is none.
    None,
    /// It is on another host, or nobody said how it is asked.
    NotKnown,
}

impl SandboxRequest {
    /// The sandbox that is meant, which must be there.
    pub(super) async fn resolve(
        &self,
        host: &SessionHost,
        session: &SessionRef,
    ) -> Result<Sandbox, Error> {
        let driver = match &self.driver {
            SandboxRequestDriver::Docker(name) => {
                sandbox_container::find(&host.docker, name).await?
            }
            SandboxRequestDriver::Command => {
                if self.commands.terminate.is_none() {
                    let said = "a sandbox that commands reach needs one that ends it";
                    let failure = failure(ErrorKind::Invalid, said);
                    return Err(failure.with_hint("say `--terminate-cmd CMD`").into());
                }
                SandboxDriver::Command
            }
            SandboxRequestDriver::Process(Some(pid)) => process(*pid)?,
            SandboxRequestDriver::Process(None) if self.commands.start.is_some() => {
                not_started(self.name.clone()).driver
            }
            SandboxRequestDriver::Process(None) => {
                let said = "which process runs the session is not said";
                let failure = failure(ErrorKind::Invalid, said);
                let hint = "say `--pid PID`, or `--start-cmd CMD` when it is woken";
                return Err(failure.with_hint(hint).into());
            }
        };
        remember_commands(host, session, &self.commands).await?;
        if let Some(container) = SandboxContainer::of(&driver) {
            remember_commands(host, session, &container.as_command()).await?;
        }
        Ok(Sandbox {
            name: self.name.clone(),
            driver,
            commands: self.commands.clone(),
        })
    }
}

/// The process of this number, as it is known again.
fn process(pid: u32) -> Result<SandboxDriver, Error> {
    if pid <= 1 || pid == std::process::id() {
        let said =
            format!("process {pid} cannot be a sandbox: it would be ended when the session sleeps");
        return Err(failure(ErrorKind::Invalid, said).into());
    }
    let known = KnownProcess::find(pid)?.ok_or_else(|| {
        let said = format!("there is no process {pid}");
        failure(ErrorKind::NotFound, said)
    })?;
    driver(&known)
}

fn driver(known: &KnownProcess) -> Result<SandboxDriver, Error> {
    let label = |text: &str| {
        text.parse::<Label>().map_err(|error| {
            let said = format!("`{text}`, by which a process is known, cannot be kept: {error}");
            failure(ErrorKind::Bug, said)
        })
    };
    Ok(SandboxDriver::Process {
        pid: known.pid,
        started: known.started,
        boot: label(&known.boot)?,
        mark: known.mark.as_deref().map(label).transpose()?,
    })
}

/// A process of a session that is about to be started.
pub(super) fn not_started(name: SandboxName) -> Sandbox {
    Sandbox {
        name,
        driver: SandboxDriver::Process {
            pid: 0,
            started: 0,
            boot: Label::nobody(),
            mark: None,
        },
        commands: SandboxCommands::default(),
    }
}

/// A command of a session, which was started with a mark, as its sandbox.
pub(super) fn command(name: SandboxName, pid: u32, mark: &str) -> Result<Sandbox, Error> {
    Ok(Sandbox {
        name,
        driver: driver(&KnownProcess::of_child(pid, mark)?)?,
        commands: SandboxCommands::default(),
    })
}

/// The sandbox of a session on this host.
pub(super) struct LiveSandbox<'s> {
    host: &'s SessionHost,
    session: &'s SessionRef,
    place: &'s SessionPlace,
    sandbox: Option<&'s Sandbox>,
    /// Whether commands are run that nobody typed here.
    trusts_commands: bool,
    /// Until when it is ours to end, on which clock.
    until: Option<(&'s dyn Clock, Duration)>,
}

impl<'s> LiveSandbox<'s> {
    pub(super) fn of(host: &'s SessionHost, document: &'s SessionDocument) -> Self {
        Self {
            host,
            session: &document.session,
            place: &document.place,
            sandbox: document.sandbox.as_ref(),
            trusts_commands: false,
            until: None,
        }
    }

    /// The same, which is not ended any more after a moment of the running time: somebody else may use it by then.
    pub(super) fn until(self, clock: &'s dyn Clock, moment: Duration) -> Self {
        Self {
            until: Some((clock, moment)),
            ..self
        }
    }

    /// How long it is still ours to end; nothing when that is over.
    fn left(&self) -> Option<Duration> {
        match self.until {
            Some((clock, until)) => until.checked_sub(clock.uptime()),
            None => Some(LEASE_TTL),
        }
    }

    /// The same, which runs commands that nobody typed here, if that is wished.
    pub(super) fn trusting(self, trusts_commands: bool) -> Self {
        Self {
            trusts_commands,
            ..self
        }
    }

    fn known(&self) -> Option<KnownProcess> {
        Self::process(self.sandbox?)
    }

    /// The process that a session runs in, if it is one.
    pub(super) fn process_of(document: &SessionDocument) -> Option<KnownProcess> {
        Self::process(document.sandbox.as_ref()?)
    }

    fn process(sandbox: &Sandbox) -> Option<KnownProcess> {
        match &sandbox.driver {
            SandboxDriver::Process {
                pid,
                started,
                boot,
                mark,
            } => Some(KnownProcess {
                boot: boot.to_string(),
                pid: *pid,
                started: *started,
                mark: mark.as_ref().map(ToString::to_string),
            }),
            SandboxDriver::Command | SandboxDriver::Docker { .. } => None,
        }
    }

    fn container(&self) -> Option<SandboxContainer> {
        SandboxContainer::of(&self.sandbox?.driver)
    }

    /// Whether a process that is said to run on another host is one of this machine all the same.
    fn is_same_boot(&self) -> bool {
        let here = stasis_quiesce::sandbox::boot();
        self.known().map(|known| known.boot) == here.ok()
    }

    async fn may_run(&self, commands: &SandboxCommands) -> bool {
        self.trusts_commands || is_remembered(self.host, &(self.session, commands)).await
    }

    /// Whether it answers.
    pub(super) async fn health(&self) -> Result<SandboxHealth, Error> {
        let Some(sandbox) = self.sandbox else {
            return Ok(SandboxHealth::None);
        };
        if self.place.host != self.host.name {
            return Ok(SandboxHealth::NotKnown);
        }
        if let Some(known) = self.known()
            && !known.is_running()?
        {
            return Ok(SandboxHealth::Gone);
        }
        let container = match self.container() {
            Some(container) => Some(container.health().await?),
            None => None,
        };
        if let Some(health) = container
            .clone()
            .filter(|one| *one != SandboxHealth::Healthy)
        {
            return Ok(health);
        }
        let Some(command) = &sandbox.commands.health else {
            let is_process = self.known().is_some() || container.is_some();
            return Ok(if is_process {
                SandboxHealth::Healthy
            } else {
                SandboxHealth::NotKnown
            });
        };
        if !self.may_run(&sandbox.commands).await {
            return Ok(SandboxHealth::NotKnown);
        }
        Ok(match self.run(command, HEALTH_TIMEOUT).await {
            Ok(()) => SandboxHealth::Healthy,
            Err(error) => SandboxHealth::Unreachable {
                because: error.to_string(),
            },
        })
    }

    /// Ends it. Once more does no harm.
    pub(super) async fn terminate(&self) -> Result<(), Error> {
        let left = self.left().unwrap_or_default();
        if let Some(sandbox) = self.sandbox {
            let is_here = self.place.host == self.host.name || self.is_same_boot();
            if sandbox.driver != SandboxDriver::Command && !is_here {
                let said = format!(
                    "the sandbox of `{}` runs on {}",
                    self.session, self.place.host
                );
                return Err(failure(ErrorKind::Conflict, said).into());
            }
            let container = self.container();
            let _lock = match &container {
                Some(container) => {
                    self.ensure_known(container).await?;
                    container
                        .lock(self.host, "stopped with its session")
                        .await?
                }
                None => None,
            };
            if let Some(command) = &sandbox.commands.terminate {
                if !self.may_run(&sandbox.commands).await {
                    return Err(self.not_typed_here());
                }
                self.run(command, ACT_TIMEOUT.min(left / 2)).await?;
            }
            if let Some(container) = container {
                container.stop(GRACE, left / 2).await?;
            }
        }
        let is_over = || self.left().is_none();
        let Some(known) = self.known() else {
            return match self.sandbox {
                Some(ended) => memory::forget_ended(self.host, self.session, ended).await,
                None => Ok(()),
            };
        };
        known.terminate(GRACE.min(left / 4), is_over).await?;
        match &known.mark {
            Some(mark) => memory::forget_started(self.host, self.session, mark).await,
            None => Ok(()),
        }
    }

    /// Whether nothing stands against starting it on this host.
    pub(super) async fn ensure_may_start(&self) -> Result<(), Error> {
        if let Some(container) = self.container() {
            self.ensure_known(&container).await?;
        }
        let commands = self.sandbox.map(|sandbox| &sandbox.commands);
        let Some(commands) = commands.filter(|commands| commands.start.is_some()) else {
            return Ok(());
        };
        if self.may_run(commands).await {
            return Ok(());
        }
        Err(self.not_typed_here())
    }

    /// A container that only the store names is not touched.
    async fn ensure_known(&self, container: &SandboxContainer) -> Result<(), Error> {
        if self.may_run(&container.as_command()).await {
            return Ok(());
        }
        let said = format!(
            "that a container runs `{}` was not said on this host: it is not touched",
            self.session
        );
        let hint =
            "say so with `--container CONTAINER`, or trust the store with `--trust-commands`";
        Err(failure(ErrorKind::Denied, said).with_hint(hint).into())
    }

    fn not_typed_here(&self) -> Error {
        let said = format!(
            "the commands of the sandbox of `{}` were not typed on this host, and are not run",
            self.session
        );
        let hint = "look at them with `stasis session show`; `--trust-commands` runs them";
        failure(ErrorKind::Denied, said).with_hint(hint).into()
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let name = self.sandbox.map(|sandbox| sandbox.name.to_string());
        let pid = self.known().map(|known| known.pid.to_string());
        let variables = [
            ("STASIS_TENANT", self.session.tenant.to_string()),
            ("STASIS_SESSION", self.session.session.to_string()),
            ("STASIS_SESSION_DIR", self.place.dir.clone()),
            ("STASIS_SANDBOX", name.unwrap_or_default()),
            ("STASIS_SANDBOX_PID", pid.unwrap_or_default()),
        ];
        let owned = |(name, value): (&str, String)| (name.into(), value.into());
        variables.map(owned).to_vec()
    }

    async fn run(&self, command: &str, timeout: Duration) -> Result<(), Failure> {
        // It ends in time also when we are killed.
        let seconds = timeout.as_secs().saturating_add(1).to_string();
        let words = ["timeout", "-s", "KILL", &seconds, "sh", "-c", command];
        let mut call = Invocation::words(words);
        let dir = PathBuf::from(&self.place.dir);
        call.directory = Some(dir).filter(|dir| dir.is_dir());
        call.environment = self.environment();
        let hook = HookCommand { call, timeout };
        let ended = bridge::at_usual_priority(async move { hook::run(&hook).await });
        let result = ended.await?;
        let said = match result.ending {
            HookExit::Exited(0) => return Ok(()),
            HookExit::Exited(code) => format!("`{command}` ended with {code}"),
            HookExit::Signalled(signal) => format!("`{command}` was ended by signal {signal}"),
            HookExit::TimedOut => {
                format!(
                    "`{command}` did not end within {} s: a command must return, with what it starts in the background",
                    timeout.as_secs()
                )
            }
        };
        let complaint = result.stderr.text();
        let last = complaint.lines().last().unwrap_or_default().trim();
        let said = match last {
            "" => said,
            last => format!("{said}: {last}"),
        };
        Err(failure(ErrorKind::Failed, said))
    }

    /// Starts it by its command, in the workspace and with a mark of its own; waits until it is healthy. Without a command there is none.
    /// What has begun when this fails is the caller's to end.
    pub(super) async fn start(&self, mark: &str) -> Result<Option<Sandbox>, Error> {
        let Some(sandbox) = self.sandbox else {
            return Ok(None);
        };
        if !sandbox.starts() {
            return Ok(Some(sandbox.clone()));
        }
        let command = sandbox.commands.start.as_deref().unwrap_or_default();
        self.ensure_may_start().await?;
        let started = match sandbox.driver {
            SandboxDriver::Command | SandboxDriver::Docker { .. } => {
                let (started, container) = ((mark, sandbox), self.container());
                // Before anything says that it was started: what was not is not ended, either.
                let _lock = match &container {
                    Some(container) => {
                        container
                            .lock(self.host, "started with its session")
                            .await?
                    }
                    None => None,
                };
                memory::remember_started(self.host, self.session, started).await?;
                match container {
                    Some(container) => container.start().await?,
                    None => self.run(command, ACT_TIMEOUT).await?,
                }
                sandbox.clone()
            }
            SandboxDriver::Process { .. } => {
                let about = Sandbox {
                    driver: not_started(sandbox.name.clone()).driver,
                    ..sandbox.clone()
                };
                memory::remember_started(self.host, self.session, (mark, &about)).await?;
                let pid = self.spawn(command, mark)?;
                let started = Sandbox {
                    driver: driver(&KnownProcess::of_child(pid, mark)?)?,
                    ..sandbox.clone()
                };
                // Others that are registered in it are known by what it is.
                memory::remember_started(self.host, self.session, (mark, &started)).await?;
                started
            }
        };
        let live = LiveSandbox {
            sandbox: Some(&started),
            ..*self
        };
        live.wait_until_healthy().await?;
        Ok(Some(started))
    }

    /// Starts a process that goes on without us.
    fn spawn(&self, command: &str, mark: &str) -> Result<u32, Error> {
        let mut words = std::process::Command::new("setsid");
        words
            .args(["sh", "-c", command])
            .envs(self.environment())
            .env(MARK, mark)
            .current_dir(&self.place.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let started = words.spawn().map_err(|error| {
            let said = format!("could not start `{command}`: {error}");
            failure(ErrorKind::Failed, said)
        });
        Ok(started?.id())
    }

    async fn wait_until_healthy(&self) -> Result<(), Error> {
        let mut waited = Duration::ZERO;
        let is_asked = self
            .sandbox
            .is_some_and(|one| one.commands.health.is_some());
        loop {
            match self.health().await? {
                // A process that nobody can ask may end as soon as it has begun.
                SandboxHealth::Healthy if !is_asked && waited < SETTLED => {}
                // One that goes into the background is not seen for a moment.
                SandboxHealth::Gone if waited < SETTLED => {}
                SandboxHealth::Healthy | SandboxHealth::NotKnown | SandboxHealth::None => {
                    return Ok(());
                }
                SandboxHealth::Gone => {
                    let said = "the sandbox ended as soon as it was started";
                    return Err(failure(ErrorKind::Failed, said).into());
                }
                SandboxHealth::Starting if waited >= START_TIMEOUT => {
                    let said = "the sandbox was started, and its health check has not succeeded";
                    return Err(failure(ErrorKind::Failed, said).into());
                }
                SandboxHealth::Unreachable { because } if waited >= START_TIMEOUT => {
                    let said = format!("the sandbox was started and is not healthy: {because}");
                    return Err(failure(ErrorKind::Failed, said).into());
                }
                SandboxHealth::Starting | SandboxHealth::Unreachable { .. } => {}
            }
            tokio::time::sleep(TICK).await;
            waited += TICK;
        }
    }
}

/// Ends what runs with a mark that was started for a session on this host, and was left.
pub(super) async fn end_marked(
    host: &SessionHost,
    session: &SessionRef,
    mark: &str,
    is_over: impl Fn() -> bool,
) -> Result<bool, Error> {
    let left = KnownProcess::marked(mark)?;
    let was_running = left.is_running()?;
    if was_running {
        tracing::warn!(%session, "what an attempt to wake it started and left is ended");
        left.terminate(GRACE, is_over).await?;
    }
    memory::forget_started(host, session, mark).await?;
    Ok(was_running)
}
