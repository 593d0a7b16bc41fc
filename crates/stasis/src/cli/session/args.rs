//! What several commands of sessions take.

use crate::cli::progress::cancel_on_signals;
use crate::cli::{byte_size, duration};
use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use stasis_engine::kind::session::{
    LEASE_TTL, MAX_FREEZE, RegisterSession, SandboxRequest, SandboxRequestDriver, SessionLimits,
    SleepSession, SnapshotSession,
};
use stasis_engine::model::id::{SandboxName, SessionRef, TenantId};
use stasis_engine::model::invalid::Invalid;
use stasis_engine::model::session::document::SandboxCommands;
use stasis_engine::model::session::roots::SessionRoots;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DriverArg {
    /// A process with everything it started
    Process,
    /// A container of the Docker engine
    Docker,
    /// Whatever the commands reach
    Command,
}

/// Sessions that somebody names.
#[derive(Clone, Debug)]
pub(super) enum NamedSessions {
    /// All of a tenant.
    Of(TenantId),
    /// One.
    One(SessionRef),
}

impl FromStr for NamedSessions {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.contains('/') {
            return Ok(Self::One(text.parse()?));
        }
        Ok(Self::Of(text.parse()?))
    }
}

impl NamedSessions {
    pub(super) fn tenant(self) -> Option<TenantId> {
        match self {
            Self::Of(tenant) => Some(tenant),
            Self::One(_) => None,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct SandboxArgs {
    /// What the sandbox is called; sessions that say the same share it [default: the session's id]
    #[arg(long, value_name = "NAME")]
    sandbox: Option<SandboxName>,
    /// What the sandbox is
    #[arg(long, value_name = "KIND")]
    driver: Option<DriverArg>,
    /// The process that runs it
    #[arg(long, conflicts_with = "container")]
    pid: Option<u32>,
    /// The container that runs it: it is stopped when the session sleeps, and started when it is woken
    #[arg(long, value_name = "CONTAINER")]
    container: Option<String>,
    /// What starts it when it is woken, in its workspace
    #[arg(long, value_name = "CMD")]
    start_cmd: Option<String>,
    /// What ends with 0 if it is healthy
    #[arg(long, value_name = "CMD")]
    health_cmd: Option<String>,
    /// What ends it; once more must do no harm
    #[arg(long, value_name = "CMD")]
    terminate_cmd: Option<String>,
}

impl SandboxArgs {
    pub(super) fn request(self, session: &SessionRef) -> anyhow::Result<Option<SandboxRequest>> {
        let commands = SandboxCommands {
            start: self.start_cmd,
            health: self.health_cmd,
            terminate: self.terminate_cmd,
        };
        let is_container = self.container.is_some();
        let driver = match (self.driver, self.pid) {
            (None | Some(DriverArg::Docker), None) if is_container => {
                ensure!(
                    commands.start.is_none() && commands.terminate.is_none(),
                    "a container is started and stopped by its engine: leave out --start-cmd and --terminate-cmd"
                );
                SandboxRequestDriver::Docker(self.container.unwrap_or_default())
            }
            (Some(DriverArg::Docker), _) => bail!("say which container: --container CONTAINER"),
            (Some(_), _) if is_container => bail!("--container is of --driver docker"),
            (Some(DriverArg::Command), pid) => {
                ensure!(pid.is_none(), "--pid is of --driver process");
                SandboxRequestDriver::Command
            }
            (Some(DriverArg::Process), pid) => SandboxRequestDriver::Process(pid),
            (None, Some(pid)) => SandboxRequestDriver::Process(Some(pid)),
            (None, None) if commands.terminate.is_some() => SandboxRequestDriver::Command,
            (None, None) if commands.start.is_some() => SandboxRequestDriver::Process(None),
            (None, None) => {
                let is_said = self.sandbox.is_some() || !commands.is_empty();
                ensure!(
                    !is_said,
                    "say what the sandbox is: --pid PID, --container CONTAINER, or --terminate-cmd CMD"
                );
                return Ok(None);
            }
        };
        let name = match self.sandbox {
            Some(name) => name,
            None => session.session.as_str().parse()?,
        };
        Ok(Some(SandboxRequest {
            name,
            driver,
            commands,
        }))
    }
}

#[derive(Debug, Args)]
pub(super) struct WorkspaceArgs {
    /// What of the workspace is saved; may be given more than once [default: as before, else outputs, attachments and .opencode-data]
    #[arg(long = "root", value_name = "PATH")]
    roots: Vec<String>,
    /// After how long without a heartbeat it is idle, such as 15m [default: as before, else 1h]
    #[arg(long, value_name = "TIME", value_parser = duration::positive)]
    idle_timeout: Option<Duration>,
}

impl WorkspaceArgs {
    pub(super) fn registration(
        self,
        session: SessionRef,
        dir: PathBuf,
        sandbox: Option<SandboxRequest>,
    ) -> anyhow::Result<RegisterSession> {
        Ok(RegisterSession {
            session,
            dir,
            roots: if self.roots.is_empty() {
                None
            } else {
                Some(SessionRoots::try_from(self.roots)?)
            },
            sandbox,
            idle_timeout: self.idle_timeout,
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct SnapshotArgs {
    /// Publish it although it is less than a tenth of what it was
    #[arg(long)]
    accept_shrink: bool,
    /// Refuse to save more than this, such as 16GiB
    #[arg(long, value_name = "SIZE", value_parser = byte_size::positive)]
    max_bytes: Option<u64>,
    /// Refuse to save more entries than this: files, directories and links
    #[arg(long, value_name = "N")]
    max_entries: Option<u64>,
}

impl SnapshotArgs {
    pub(super) fn how(&self) -> anyhow::Result<SnapshotSession> {
        let usual = SessionLimits::default();
        Ok(SnapshotSession {
            accept_shrink: self.accept_shrink,
            limits: SessionLimits {
                bytes: self.max_bytes.unwrap_or(usual.bytes),
                entries: self.max_entries.unwrap_or(usual.entries),
            },
            cancel: cancel_on_signals()?,
            ..SnapshotSession::default()
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct SleepArgs {
    #[command(flatten)]
    pub(super) snapshot: SnapshotArgs,
    /// Act on what the store says to lie here, though nobody registered it on this host: for those who alone write to the store
    #[arg(long, alias = "trust-store")]
    pub(super) trust_commands: bool,
    #[command(flatten)]
    pub(super) lease: LeaseArgs,
}

#[derive(Debug, Args)]
pub(super) struct LeaseArgs {
    /// For how long others leave alone what this one does when it is not heard of any more, such as 5m [default: 2m]
    #[arg(long, value_name = "TIME", value_parser = duration::positive)]
    lease_ttl: Option<Duration>,
}

impl LeaseArgs {
    pub(super) fn ttl(&self) -> Duration {
        self.lease_ttl.unwrap_or(LEASE_TTL)
    }
}

impl SleepArgs {
    pub(super) fn how(&self) -> anyhow::Result<SleepSession> {
        Ok(SleepSession {
            snapshot: self.snapshot.how()?,
            trust_commands: self.trust_commands,
            with_others: false,
            lease_ttl: self.lease.ttl(),
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct FreezeArgs {
    /// Hold its processes still while what changed is saved, so that all files are of one moment
    #[arg(long)]
    freeze: bool,
    /// For how long at most [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::positive, requires = "freeze")]
    max_freeze: Option<Duration>,
}

impl FreezeArgs {
    pub(super) fn longest(&self) -> Option<Duration> {
        let longest = self.max_freeze.unwrap_or(MAX_FREEZE);
        self.freeze.then_some(longest)
    }
}
