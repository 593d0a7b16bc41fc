//! Processes that stand still because the process that stopped them has died.

use super::error::{FreezeError, signal};
use crate::docker::{Container, reason};
use crate::journal::{self, FrozenTarget, JournalState};
use crate::process::{LOOK, PROC, Process, ProcessId, ProcessInfo, ProcessState};
use rustix::process::Signal;
use stasis_model::failure::AtPath;
use std::io;
use std::path::{Path, PathBuf};

/// What was found of engines that died.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use = "a journal that was not understood may name processes that stand still"]
pub struct Abandoned {
    /// The processes that run again.
    pub thawed: Vec<u32>,
    /// The ids of the containers that run again.
    pub unpaused: Vec<String>,
    /// Journals that are not understood here: of another version, or from another process namespace. Or they name a container
    /// whose daemon did not answer.
    pub left: Vec<PathBuf>,
}

/// Lets everything run again that an engine stopped which has died since; to be called at every start.
///
/// An engine that lives keeps what it holds. A process whose number is used again, or that does not stand still, is not
/// touched.
pub fn thaw_abandoned(journal_dir: &Path) -> Result<Abandoned, FreezeError> {
    let journals =
        journal::all(journal_dir).at("find the journal of frozen processes in", journal_dir)?;
    let mut abandoned = Abandoned::default();
    for path in journals {
        let found = journal::read(&path).at("read the journal of frozen processes in", &path)?;
        match found {
            None | Some(JournalState::Live) => {}
            Some(JournalState::Foreign) => abandoned.left.push(path),
            Some(JournalState::Abandoned(stopped, _locked)) => {
                let mut answered = true;
                for held in stopped.into_iter().rev() {
                    match held {
                        FrozenTarget::Process(identity) => {
                            abandoned.thawed.extend(continue_stopped(identity)?);
                        }
                        FrozenTarget::Container(container) => match unpause(&container) {
                            Ok(unpaused) => abandoned.unpaused.extend(unpaused),
                            Err(error) => {
                                tracing::warn!(container = container.id(), %error, "a container may stand still");
                                answered = false;
                            }
                        },
                    }
                }
                if !answered {
                    abandoned.left.push(path);
                    continue;
                }
                rustix::fs::unlink(&path).at("remove the journal of frozen processes in", &path)?;
            }
        }
    }
    if !abandoned.thawed.is_empty() {
        tracing::warn!(pids = ?abandoned.thawed, "processes run again that an engine had left stopped");
    }
    if !abandoned.unpaused.is_empty() {
        tracing::warn!(containers = ?abandoned.unpaused, "containers run again that an engine had left paused");
    }
    Ok(abandoned)
}

fn unpause(container: &Container) -> io::Result<Option<String>> {
    let paused = container.is_paused();
    if !paused.map_err(|failure| io::Error::other(reason(&failure)))? {
        return Ok(None);
    }
    match Container::unpause_all(std::slice::from_ref(container)).pop() {
        Some((_, error)) => Err(error),
        None => Ok(Some(container.id().to_owned())),
    }
}

fn continue_stopped(identity: ProcessId) -> Result<Option<u32>, FreezeError> {
    let pid = identity.pid();
    let process = Process::reopen(identity).at(LOOK, PROC)?;
    let is_stopped = ProcessInfo::read(pid).is_some_and(|row| row.state == ProcessState::Stopped);
    let Some(process) = process.filter(|_| is_stopped) else {
        return Ok(None);
    };
    let is_alive = signal(&process, Signal::CONT, "continue")?;
    Ok(is_alive.then_some(pid))
}
