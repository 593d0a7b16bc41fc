//! A long-running part of an application: looked at, started and stopped.
//!
//! It is one of three things: a command that we start ourselves, a process that writes its number into a file, or a
//! container. One that we start begins in a session of its own, by a launcher ([`launch`]):
//!
//! 1. the launcher begins a session, so that neither our terminal nor our end touches the service
//! 2. it writes down its number and the time of its start, durably
//! 3. it becomes the service, which keeps both
//!
//! *Always true:* a service of ours that runs was written down before it did anything: a crash before 2 leaves nothing that
//! runs, a crash after it leaves a record that names the service or no process. A number that is used again is not taken for the
//! service, because the time of the start differs. The session matters for a pause too: when the parent of a process group in
//! our own session dies while the group stands still, the kernel sends SIGHUP to it.

mod error;
mod health;
mod launch;
mod pid_file;
mod record;
mod start;
mod stop;

use crate::docker::{ContainerInfo, ContainerState, Docker, reason};
use crate::invocation::Invocation;
use crate::process::{Process, ProcessInfo, ProcessState};
use crate::watchdog::HelperCommand;
pub use error::ServiceError;
pub use health::{HealthCheck, Healthy, Probe};
pub use launch::run as launch;
use stasis_model::failure::Failure;
use std::path::PathBuf;
pub use stop::ServiceStopped;

/// How a service is started, found and stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Handling {
    /// We start it, and remember it.
    Command {
        /// What is the service: it runs for as long as this does.
        start: Invocation,
        /// What asks it to end; SIGTERM when there is nothing.
        stop: Option<Invocation>,
        /// Where its number and the time of its start are kept. One file for one service; its directory exists.
        record: PathBuf,
    },
    /// It writes its number into a file.
    PidFile {
        /// That file; the number is its first line.
        path: PathBuf,
        /// What starts it, and returns when that is done.
        start: Option<Invocation>,
        /// What asks it to end; SIGTERM when there is nothing.
        stop: Option<Invocation>,
    },
    /// It is a container.
    Docker {
        /// How its daemon is reached.
        docker: Docker,
        /// Its name or id.
        container: String,
    },
}

/// A long-running part of an application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// The name that users know.
    pub name: String,
    /// How it is started, found and stopped.
    pub handling: Handling,
    /// Where what it says is added, if we start it; its directory exists.
    pub log: PathBuf,
    /// The program, with its words, that calls [`launch`].
    pub launcher: HelperCommand,
}

/// What a service does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// It runs.
    Running {
        /// Its first process; of a container, as its daemon sees it.
        pid: u32,
    },
    /// It does not run.
    Stopped,
    /// It stands still.
    Paused,
    /// Unknown, for this reason.
    Unknown(String),
}

/// What was found of a service.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ServiceLookup {
    /// Its first process, which runs or stands still.
    Process(Process),
    /// Its container.
    Container(ContainerInfo),
    /// Nothing.
    Nothing,
    /// Something that may be it or not.
    Unclear(String),
}

impl Service {
    /// What it does now.
    pub async fn status(&self) -> Status {
        let found = match &self.handling {
            Handling::Docker { docker, container } => of_look(docker.look(container).await),
            _ => self.find(),
        };
        found.status()
    }

    /// Looks for it. Blocks for a moment, if it is a container.
    pub(crate) fn find(&self) -> ServiceLookup {
        let found = match &self.handling {
            Handling::Command { record, .. } => record::find(record),
            Handling::PidFile { path, .. } => pid_file::find(path),
            Handling::Docker { docker, container } => Ok(of_look(docker.look_blocking(container))),
        };
        found.unwrap_or_else(|error| ServiceLookup::Unclear(error.to_string()))
    }

    /// The refusal to do something to it, because of `why`.
    pub(crate) fn unclear(&self, wanted: &'static str, why: String) -> ServiceError {
        let service = self.name.clone();
        ServiceError::Unclear {
            service,
            wanted,
            why,
        }
    }
}

impl ServiceLookup {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Nothing => Status::Stopped,
            Self::Unclear(why) => Status::Unknown(why.clone()),
            Self::Process(process) => match ProcessInfo::read(process.pid()).map(|row| row.state) {
                _ if !process.is_running() => Status::Stopped,
                Some(ProcessState::Stopped) => Status::Paused,
                _ => Status::Running { pid: process.pid() },
            },
            Self::Container(look) => match &look.activity {
                ContainerState::Running(pid) => Status::Running { pid: *pid },
                ContainerState::Paused(_) => Status::Paused,
                ContainerState::Stopped => Status::Stopped,
                ContainerState::Between(state) => {
                    Status::Unknown(format!("the container is {state}"))
                }
            },
        }
    }
}

fn of_look(look: Result<Option<ContainerInfo>, Failure>) -> ServiceLookup {
    match look {
        Ok(Some(look)) => ServiceLookup::Container(look),
        Ok(None) => ServiceLookup::Unclear("there is no such container".to_owned()),
        Err(failure) => ServiceLookup::Unclear(reason(&failure)),
    }
}
