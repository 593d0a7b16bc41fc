//! Processes, by what stays true of them: a number together with the time of their start, and a descriptor.
//!
//! *Always true:* a signal goes to the very process that was looked at, or nowhere. Numbers are used again; a descriptor
//! of a process is not, and a number whose start time differs is another process.

mod table;

use rustix::process::Signal;
use stasis_sys::clock;
use stasis_sys::process_handle::ProcessHandle;
pub use stasis_sys::processes::{ProcessId, ProcessInfo, ProcessState};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
pub use table::ProcessTable;

/// What fails when the table of processes cannot be read, and where that is.
pub(crate) const LOOK: &str = "look at the running processes in";
pub(crate) const PROC: &str = stasis_sys::processes::TABLE;

/// A process that was alive when it was opened.
#[derive(Clone, Debug)]
pub struct Process {
    identity: ProcessId,
    handle: Arc<ProcessHandle>,
}

impl PartialEq for Process {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for Process {}

impl AsFd for Process {
    /// Becomes readable when the process ends.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.identity.pid())
    }
}

impl Process {
    /// Opens the process that has this number now, or `None` when none has, or when it has ended and was not waited for.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        let Some(handle) = ProcessHandle::open(pid)? else {
            return Ok(None);
        };
        let Some(row) = ProcessInfo::read(pid) else {
            return Ok(None);
        };
        let process = Self {
            identity: row.identity,
            handle: Arc::new(handle),
        };
        // What was read is of this process only if it still lives: its number was not free in between.
        Ok(process.is_running().then_some(process))
    }

    /// Opens the very process that `identity` names, or `None` when it has ended.
    pub fn reopen(identity: ProcessId) -> io::Result<Option<Self>> {
        let opened = Self::open(identity.pid())?;
        Ok(opened.filter(|process| process.identity == identity))
    }

    /// Which process this is.
    pub fn identity(&self) -> ProcessId {
        self.identity
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.identity.pid()
    }

    /// Whether it has not ended; one that was not waited for has ended too.
    pub fn is_running(&self) -> bool {
        self.handle.is_running()
    }

    /// Sends a signal; returns whether the process was still there.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        self.handle.signal(signal)
    }

    /// How long it has been running.
    pub fn uptime(&self) -> Duration {
        clock::uptime().saturating_sub(self.identity.after_boot())
    }
}

#[cfg(test)]
mod tests;
