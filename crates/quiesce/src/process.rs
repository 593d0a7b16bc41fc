//! Processes, by what stays true of them: a number together with the time of their start, and a descriptor.
//!
//! *Always true:* a signal goes to the very process that was looked at, or nowhere. Numbers are used again; a descriptor
//! of a process is not, and a number whose start time differs is another process.

pub(crate) mod namespace;
mod table;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
pub use table::{ProcessInfo, ProcessState, ProcessTable};

/// What fails when the table of processes cannot be read, and where that is.
pub(crate) const LOOK: &str = "look at the running processes in";
pub(crate) const PROC: &str = "/proc";

/// Which process, for as long as the machine runs: no other process has the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessId {
    pid: u32,
    started: u64,
}

impl ProcessId {
    /// The process `pid` that started `started` clock ticks after boot.
    pub fn new(pid: u32, started: u64) -> Self {
        Self { pid, started }
    }

    /// Its number; another process may have it later.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// When it started, in clock ticks after boot.
    pub fn started(self) -> u64 {
        self.started
    }
}

/// A process that was alive when it was opened.
#[derive(Clone, Debug)]
pub struct Process {
    identity: ProcessId,
    fd: Arc<OwnedFd>,
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
        self.fd.as_fd()
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.identity.pid)
    }
}

impl Process {
    /// Opens the process that has this number now, or `None` when none has, or when it has ended and was not waited for.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let fd = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => fd,
            // The number of a thread that leads no process is refused, by kernels of different age for different reasons.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(row) = ProcessInfo::read(pid) else {
            return Ok(None);
        };
        let process = Self {
            identity: row.identity,
            fd: Arc::new(fd),
        };
        // What was read is of this process only if it still lives: its number was not free in between.
        Ok(process.is_running().then_some(process))
    }

    /// Opens the very process that `identity` names, or `None` when it has ended.
    pub fn reopen(identity: ProcessId) -> io::Result<Option<Self>> {
        let opened = Self::open(identity.pid)?;
        Ok(opened.filter(|process| process.identity == identity))
    }

    /// Which process this is.
    pub fn identity(&self) -> ProcessId {
        self.identity
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Whether it has not ended; one that was not waited for has ended too.
    pub fn is_running(&self) -> bool {
        let mut polled = [PollFd::new(&*self.fd, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // A descriptor of a process becomes readable at its end.
        !matches!(poll(&mut polled, Some(&now)), Ok(ready) if ready > 0)
    }

    /// Sends a signal; returns whether the process was still there.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&*self.fd, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// How long it has been running.
    pub fn uptime(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let now = Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default());
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let started = Duration::from_secs(self.identity.started / ticks)
            + Duration::from_secs(self.identity.started % ticks)
                / u32::try_from(ticks).unwrap_or(u32::MAX);
        now.saturating_sub(started)
    }
}

#[cfg(test)]
mod tests;
