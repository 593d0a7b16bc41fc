//! Why a freeze failed.

use crate::process::Process;
use rustix::process::Signal;
use stasis_model::failure::Failure;
use std::io;
use std::time::Duration;

/// Why processes were not held still, or may not run again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FreezeError {
    /// No process was given.
    #[error("there is no process to hold still")]
    NoProcess,
    /// It has ended.
    #[error("process {pid} has ended")]
    Ended {
        /// Which process.
        pid: u32,
    },
    /// Another process stopped it, and may let it run at any moment.
    #[error("process {pid} was already stopped by somebody else")]
    AlreadyStopped {
        /// Which process.
        pid: u32,
    },
    /// This process belongs to the tree, and would stop itself.
    #[error("process {pid} started this one, which cannot hold itself still")]
    Ourselves {
        /// The root of the tree.
        pid: u32,
    },
    /// The watchdog did not start, or has ended.
    #[error("could not {doing} the watchdog")]
    Watchdog {
        /// What we were doing to it.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The thread that ends the freeze in time did not start.
    #[error("could not start the timer of a freeze")]
    Timer(#[source] io::Error),
    /// It may not be signalled, say because it belongs to another user.
    #[error("could not {doing} process {pid}")]
    Signal {
        /// What we were doing to it.
        doing: &'static str,
        /// Which process.
        pid: u32,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The daemon did not pause it, or did not let it run again.
    #[error("could not {doing} container `{id}`")]
    Container {
        /// What we were doing to it.
        doing: &'static str,
        /// Which container.
        id: String,
        /// What the daemon or the system said.
        #[source]
        source: io::Error,
    },
    /// Another process or user paused it, and may let it run at any moment.
    #[error("container `{id}` was already paused by somebody else")]
    AlreadyPaused {
        /// Which container.
        id: String,
    },
    /// It did not stand still in time; everything runs again.
    #[error("process {pid} did not stand still within {waited:?}")]
    Restless {
        /// One of those that moved.
        pid: u32,
        /// How long we waited.
        waited: Duration,
    },
    /// Its journal or the table of processes could not be read or written.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The time was over before all stood still; everything runs again.
    #[error("the processes did not stand still within the {max:?} that they may be held")]
    Expired {
        /// The longest time for which anything may stand still.
        max: Duration,
    },
}

/// Sends a signal; `doing` says what it is for.
pub(super) fn signal(
    process: &Process,
    signal: Signal,
    doing: &'static str,
) -> Result<bool, FreezeError> {
    process
        .signal(signal)
        .map_err(|source| FreezeError::Signal {
            doing,
            pid: process.pid(),
            source,
        })
}

pub(super) fn watchdog_failed(doing: &'static str) -> impl FnOnce(io::Error) -> FreezeError {
    move |source| FreezeError::Watchdog { doing, source }
}
