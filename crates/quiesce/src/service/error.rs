//! Why a service does not do what was asked of it.

use crate::freeze::FreezeError;
use stasis_model::failure::Failure;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a service was not started, stopped or held still, or does not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// No command for it is configured.
    #[error("service `{service}` has no command that starts it")]
    NoCommand {
        /// Which service.
        service: String,
    },
    /// It stands still, or it is unknown what it does or which process it is: the wrong one might be touched, or a second one
    /// started beside it.
    #[error("service `{service}` cannot be {wanted}: {why}")]
    Unclear {
        /// Which service.
        service: String,
        /// What was to be done to it, as in "started".
        wanted: &'static str,
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
    /// It did not run in time.
    #[error("service `{service}` did not run within {timeout:?}")]
    Late {
        /// Which service.
        service: String,
        /// How long we waited.
        timeout: Duration,
    },
    /// Its daemon refused.
    #[error("service `{service}` was not stopped: {why}")]
    Refused {
        /// Which service.
        service: String,
        /// What it said.
        why: String,
    },
    /// It was killed, and has not ended.
    #[error("process {pid} of service `{service}` was killed and has not ended")]
    Stuck {
        /// Which service.
        service: String,
        /// One of those that are left.
        pid: u32,
    },
    /// It does not run, and so does no work.
    #[error("service `{service}` does not run")]
    NotRunning {
        /// Which service.
        service: String,
    },
    /// No try of its health check succeeded in time.
    #[error(
        "service `{service}` was not healthy within {total_timeout:?}, in {attempts} tries: {last}"
    )]
    Unhealthy {
        /// Which service.
        service: String,
        /// How long we tried.
        total_timeout: Duration,
        /// How often.
        attempts: u32,
        /// Why the last try failed.
        last: String,
    },
    /// Another process or user paused it, and may let it run at any moment.
    #[error("service `{service}` was already paused by somebody else")]
    AlreadyPaused {
        /// Which service.
        service: String,
    },
    /// Services could not be held still, or not be released.
    #[error("could not hold the services still and let them run again")]
    Freeze(#[from] FreezeError),
    /// Its processes could not be looked at or signalled, its record not removed, or a program for it not be run.
    #[error(transparent)]
    Failed(#[from] Failure),
}
