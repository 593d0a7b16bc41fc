//! A handle of a process: unlike its number, it never comes to mean another one.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_parent_process_death_signal,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A process that was there when it was opened.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl AsFd for ProcessHandle {
    /// Becomes readable when the process ends.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl ProcessHandle {
    /// Opens the process that has this number now, or `None` when none has.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Self(fd))),
            // The number of a thread that leads no process is refused, by kernels of different age for different reasons.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it has not ended; one that was not waited for has ended too.
    pub fn is_running(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // A descriptor of a process becomes readable at its end.
        !matches!(poll(&mut polled, Some(&now)), Ok(ready) if ready > 0)
    }

    /// Sends a signal; returns whether the process was still there.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Has this process, and the program that it becomes, get a SIGTERM when its parent ends. A parent that has ended already is not noticed.
pub fn end_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
}
