//! Starting a service.

use super::{Handling, Service, ServiceError, Status};
use crate::docker::reason;
use crate::invocation::Invocation;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process_group};
use stasis_model::failure::ErrorKind;
use std::ffi::OsStr;
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

impl Service {
    /// Starts it, unless it runs; returns the number of its first process.
    ///
    /// It runs then, and may not be ready for work: that is what a health check is for. One start at a time for one service.
    pub async fn start(&self, timeout: Duration) -> Result<u32, ServiceError> {
        let deadline = Instant::now() + timeout;
        let service = self.name.clone();
        match self.status().await {
            Status::Running { pid } => return Ok(pid),
            Status::Stopped => {}
            Status::Paused => {
                let why = "it stands still".to_owned();
                return Err(self.unclear("started", why));
            }
            Status::Unknown(why) => return Err(self.unclear("started", why)),
        }
        match &self.handling {
            Handling::Command { start, record, .. } => {
                // It goes on without us; the process that started it waits for it in the background.
                let _service = self.launch(start, record, deadline).await?;
            }
            Handling::PidFile { start, .. } => {
                let start = start.as_ref().ok_or(ServiceError::NoCommand { service })?;
                self.run_start(start, deadline).await?;
            }
            Handling::Docker { docker, container } => {
                let started = tokio::time::timeout(timeout, docker.start_container(container));
                match started.await {
                    Ok(Ok(())) => {}
                    Ok(Err(failure)) if failure.kind() == ErrorKind::Unreachable => {
                        return Err(failure.into());
                    }
                    Ok(Err(failure)) => return Err(self.failed(reason(&failure))),
                    Err(_) => return Err(ServiceError::Late { service, timeout }),
                }
            }
        }
        self.wait_running(deadline, timeout).await
    }

    async fn wait_running(
        &self,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<u32, ServiceError> {
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
                return Err(ServiceError::Late { service, timeout });
            }
            tokio::time::sleep(TICK).await;
        }
    }

    fn failed(&self, why: String) -> ServiceError {
        let service = self.name.clone();
        ServiceError::CommandFailed { service, why }
    }

    /// Runs a command that starts something and returns. What it started goes on.
    async fn run_start(&self, start: &Invocation, deadline: Instant) -> Result<(), ServiceError> {
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
    ) -> Result<Child, ServiceError> {
        let run_failed = |source| ServiceError::Run {
            service: self.name.clone(),
            program: call.program().to_owned(),
            source,
        };
        let log = self.open_log()?;
        let spawned =
            io::pipe().and_then(|(heard, says)| Ok((self.spawn(call, record, log, says)?, heard)));
        let (mut child, heard) = spawned.map_err(run_failed)?;
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

    fn open_log(&self) -> Result<File, ServiceError> {
        let flags = OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY | OFlags::CLOEXEC;
        let opened = open(&self.log, flags, Mode::RUSR | Mode::WUSR);
        let opened = opened.map_err(|error| ServiceError::Log {
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
