//! Starting a service.

use super::{Handling, Service, Status, ask};
use crate::invocation::Invocation;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process_group};
use stasis_model::failure::{Context, Failure};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Child;
use tokio::time::{Instant, timeout_at};

/// How often is looked whether it runs.
const TICK: Duration = Duration::from_millis(20);

/// Why a service was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No command for it is configured.
    #[error("service `{service}` has no command that starts it")]
    NoCommand {
        /// Which service.
        service: String,
    },
    /// It stands still, or it is unknown what it does: a second one might be started beside it.
    #[error("service `{service}` cannot be started: {why}")]
    Unclear {
        /// Which service.
        service: String,
        /// What is in the way.
        why: String,
    },
    /// Its program could not be run.
    #[error("could not run `{}` for service `{service}`", .program.to_string_lossy())]
    Run {
        /// Which service.
        service: String,
        /// Which program.
        program: OsString,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Its log could not be opened.
    #[error("could not open the log `{}` of service `{service}`", .path.display())]
    Log {
        /// Which service.
        service: String,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What should start it failed.
    #[error("the command that starts service `{service}` failed: {why}")]
    CommandFailed {
        /// Which service.
        service: String,
        /// How it ended, or what it said.
        why: String,
    },
    /// The client of its daemon could not be run.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// It did not run in time.
    #[error("service `{service}` did not run within {timeout:?}")]
    Late {
        /// Which service.
        service: String,
        /// How long we waited.
        timeout: Duration,
    },
}

impl Service {
    /// Starts it, unless it runs; returns the number of its first process.
    ///
    /// It runs then, and may not be ready for work: that is what a health check is for. One start at a time for one service.
    pub async fn start(&self, timeout: Duration) -> Result<u32, StartError> {
        let deadline = Instant::now() + timeout;
        let service = self.name.clone();
        match self.status().await {
            Status::Running { pid } => return Ok(pid),
            Status::Stopped => {}
            Status::Paused => {
                let why = "it stands still".to_owned();
                return Err(StartError::Unclear { service, why });
            }
            Status::Unknown(why) => return Err(StartError::Unclear { service, why }),
        }
        match &self.handling {
            Handling::Command { start, record, .. } => {
                // It goes on without us; the process that started it waits for it in the background.
                let _service = self.launch(start, record, deadline).await?;
            }
            Handling::PidFile { start, .. } => {
                let start = start.as_ref().ok_or(StartError::NoCommand { service })?;
                self.run_start(start, deadline).await?;
            }
            Handling::Docker { docker, container } => {
                let asked = ask(docker, &["start"], container, timeout).await;
                let asked = asked.context("ask the daemon of service", &service)?;
                if !asked.succeeded() {
                    return Err(self.failed(asked.stderr.text().trim().to_owned()));
                }
            }
        }
        self.wait_running(deadline, timeout).await
    }

    async fn wait_running(&self, deadline: Instant, timeout: Duration) -> Result<u32, StartError> {
        loop {
            let status = self.status().await;
            if let Status::Running { pid } = status {
                return Ok(pid);
            }
            if status == Status::Stopped && !matches!(self.handling, Handling::PidFile { .. }) {
                let log = self.log.display();
                return Err(self.failed(format!("it ended at once; its log is `{log}`")));
            }
            if Instant::now() >= deadline {
                let service = self.name.clone();
                return Err(StartError::Late { service, timeout });
            }
            tokio::time::sleep(TICK).await;
        }
    }

    fn failed(&self, why: String) -> StartError {
        let service = self.name.clone();
        StartError::CommandFailed { service, why }
    }

    /// Runs a command that starts something and returns. What it started goes on.
    async fn run_start(&self, start: &Invocation, deadline: Instant) -> Result<(), StartError> {
        let mut child = self.launch(start, Path::new(""), deadline).await?;
        let group = child.id().and_then(|pid| i32::try_from(pid).ok());
        match timeout_at(deadline, child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => {
                Err(self.failed(format!("{status}; its log is `{}`", self.log.display())))
            }
            Ok(Err(error)) => Err(self.failed(error.to_string())),
            Err(_) => {
                if let Some(group) = group.and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                Err(self.failed("it did not return in time".to_owned()))
            }
        }
    }

    /// Starts a command in a session of its own, and waits until it has begun.
    async fn launch(
        &self,
        call: &Invocation,
        record: &Path,
        deadline: Instant,
    ) -> Result<Child, StartError> {
        let run_failed = |source| StartError::Run {
            service: self.name.clone(),
            program: call.program().to_owned(),
            source,
        };
        let log = self.open_log()?;
        let (heard, says) = io::pipe().map_err(run_failed)?;
        let mut child = self.spawn(call, record, log, says).map_err(run_failed)?;
        let heard = timeout_at(deadline, hear(heard)).await;
        match heard.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => Ok(child),
            Err(error) => {
                // It must not become the service after we said that it did not.
                let _ = child.start_kill();
                Err(run_failed(error))
            }
        }
    }

    fn spawn(
        &self,
        call: &Invocation,
        record: &Path,
        log: File,
        says: PipeWriter,
    ) -> io::Result<Child> {
        // It may run elsewhere.
        let record = if record.as_os_str().is_empty() {
            PathBuf::new()
        } else {
            std::path::absolute(record)?
        };
        let mut words = self.launcher.arguments.clone();
        words.push(record.into());
        words.extend(call.argv());
        let program: &OsStr = self.launcher.program.as_os_str();
        call.prepare(program, &words)
            .stdin(Stdio::from(says))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
    }

    fn open_log(&self) -> Result<File, StartError> {
        let flags = OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY | OFlags::CLOEXEC;
        let opened = open(&self.log, flags, Mode::RUSR | Mode::WUSR);
        let opened = opened.map_err(|error| StartError::Log {
            service: self.name.clone(),
            path: self.log.clone(),
            source: error.into(),
        });
        opened.map(File::from)
    }
}

/// Hears why the launcher failed, or that it became something else.
async fn hear(heard: PipeReader) -> io::Result<()> {
    let mut text = String::new();
    Receiver::from_owned_fd(OwnedFd::from(heard))?
        .read_to_string(&mut text)
        .await?;
    let Some((code, why)) = text.trim().split_once(' ') else {
        return Ok(());
    };
    Err(match code.parse() {
        Ok(code @ 1..) => io::Error::from_raw_os_error(code),
        _ => io::Error::other(why.to_owned()),
    })
}
