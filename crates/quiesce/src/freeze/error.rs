//! Why a freeze failed.

use std::io;
use std::path::{Path, PathBuf};
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
    /// The journal could not be written or read.
    #[error("could not {doing} the journal of frozen processes in `{}`", .path.display())]
    FreezeJournal {
        /// What we were doing to it.
        doing: &'static str,
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
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
    /// The processes could not be looked at.
    #[error("could not look at the running processes")]
    Processes(#[source] io::Error),
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
    /// The time was over before all stood still; everything runs again.
    #[error("the processes did not stand still within the {max:?} that they may be held")]
    Expired {
        /// The longest time for which anything may stand still.
        max: Duration,
    },
}

pub(super) fn journal_failed(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> FreezeError {
    let path = path.to_owned();
    move |source| FreezeError::FreezeJournal {
        doing,
        path,
        source,
    }
}

pub(super) fn watchdog_failed(doing: &'static str) -> impl FnOnce(io::Error) -> FreezeError {
    move |source| FreezeError::Watchdog { doing, source }
}
