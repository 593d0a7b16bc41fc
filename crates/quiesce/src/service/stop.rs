//! Stopping a service.
//!
//! 1. its own command, if it has one; else SIGTERM to its first process and to all of the group that this leads
//! 2. wait until everything it started has ended
//! 3. when the timeout is over, SIGKILL to whatever is left
//!
//! Every signal goes by descriptor to a process that was found in the family of the first: never to a number.

use super::{Handling, Service, ServiceError, ServiceLookup, Status, record};
use crate::docker::reason;
use crate::hook::{self, HookCommand};
use crate::invocation::Invocation;
use crate::process::{Process, ProcessId, ProcessInfo, ProcessTable};
use rustix::process::Signal;
use stasis_model::failure::{AtPath, Context, ErrorKind};
use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// How often is looked whether all have ended.
const TICK: Duration = Duration::from_millis(10);
/// How long what was killed may take to end.
const KILLED: Duration = Duration::from_secs(2);

/// How a service ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceStopped {
    /// It did not run.
    NotRunning,
    /// It ended when it was asked.
    Asked,
    /// It was killed, at least a part of it. A container's daemon does not tell; see its exit code.
    Killed,
}

impl Service {
    /// Stops it and everything it started: asks, and after `timeout` does not ask any more.
    pub async fn stop(&self, timeout: Duration) -> Result<ServiceStopped, ServiceError> {
        match &self.handling {
            Handling::Docker { docker, container } => {
                let service = self.name.clone();
                match self.status().await {
                    Status::Stopped => return Ok(ServiceStopped::NotRunning),
                    Status::Unknown(why) => return Err(self.unclear("stopped", why)),
                    Status::Running { .. } | Status::Paused => {}
                }
                match docker.stop_container(container, timeout).await {
                    Ok(()) => Ok(ServiceStopped::Asked),
                    Err(failure) if failure.kind() == ErrorKind::Unreachable => Err(failure.into()),
                    Err(failure) => {
                        let why = reason(&failure);
                        Err(ServiceError::Refused { service, why })
                    }
                }
            }
            Handling::Command { stop, record, .. } => {
                let stopped = self.stop_processes(stop.as_ref(), timeout).await?;
                let forgotten = record::forget(record);
                forgotten.at("forget service", &self.name)?;
                Ok(stopped)
            }
            Handling::PidFile { stop, .. } => self.stop_processes(stop.as_ref(), timeout).await,
        }
    }

    async fn stop_processes(
        &self,
        stop: Option<&Invocation>,
        timeout: Duration,
    ) -> Result<ServiceStopped, ServiceError> {
        let deadline = Instant::now() + timeout;
        let service = self.name.clone();
        let first = match self.find() {
            ServiceLookup::Process(first) => first,
            ServiceLookup::Unclear(why) => return Err(self.unclear("stopped", why)),
            ServiceLookup::Nothing | ServiceLookup::Container(_) => {
                return Ok(ServiceStopped::NotRunning);
            }
        };
        if is_above_us(&first).at("look at service", &self.name)? {
            let why = format!("process {first} started this one");
            return Err(self.unclear("stopped", why));
        }
        let mut family = ProcessFamily::of(&first).at("look at service", &self.name)?;
        match stop {
            Some(stop) => {
                let hook = HookCommand {
                    call: stop.clone(),
                    timeout,
                };
                let asked = hook::run(&hook).await;
                let asked = asked.context("run what stops service", &service)?;
                tracing::debug!(service = self.name, ending = ?asked.ending, "asked by its own command");
            }
            None => family.ask().at("signal service", &self.name)?,
        }
        loop {
            if family.has_ended().at("look at service", &self.name)? {
                return Ok(ServiceStopped::Asked);
            }
            if Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(TICK).await;
        }
        self.kill(family).await?;
        Ok(ServiceStopped::Killed)
    }

    async fn kill(&self, mut family: ProcessFamily) -> Result<(), ServiceError> {
        let deadline = Instant::now() + KILLED;
        // What is started meanwhile is found in the next round.
        while !family.has_ended().at("look at service", &self.name)? {
            if Instant::now() >= deadline {
                let service = self.name.clone();
                let pid = family.living.first().map_or(0, Process::pid);
                return Err(ServiceError::Stuck { service, pid });
            }
            for process in &family.living {
                let killed = process.signal(Signal::KILL);
                killed.at("kill service", &self.name)?;
            }
            tokio::time::sleep(TICK).await;
        }
        Ok(())
    }
}

/// Whether we would end ourselves with it.
fn is_above_us(process: &Process) -> io::Result<bool> {
    let us = std::process::id();
    let above = ProcessTable::read()?.ancestors(us);
    Ok(process.pid() == us || above.contains(&process.pid()))
}

/// A process and everything it started, also what outlives it.
struct ProcessFamily {
    first: Process,
    known: Vec<ProcessId>,
    living: Vec<Process>,
}

impl ProcessFamily {
    fn of(first: &Process) -> io::Result<Self> {
        let mut family = Self {
            first: first.clone(),
            known: vec![first.identity()],
            living: Vec::new(),
        };
        family.has_ended()?;
        Ok(family)
    }

    /// Looks again.
    fn has_ended(&mut self) -> io::Result<bool> {
        let rows = ProcessTable::read()?.family(&self.known);
        let mut living = Vec::new();
        for row in rows {
            living.extend(Process::reopen(row.identity)?);
            if !self.known.contains(&row.identity) {
                self.known.push(row.identity);
            }
        }
        self.living = living;
        Ok(self.living.is_empty())
    }

    /// SIGTERM to the first and to its group, if it leads that one.
    fn ask(&self) -> io::Result<()> {
        let first = self.first.pid();
        for process in &self.living {
            let group = ProcessInfo::read(process.pid()).map(|row| row.group);
            if process == &self.first || group == Some(first) {
                process.signal(Signal::TERM)?;
                // One that stands still would never receive it.
                process.signal(Signal::CONT)?;
            }
        }
        Ok(())
    }
}
