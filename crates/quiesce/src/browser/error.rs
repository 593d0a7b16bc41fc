//! Why a browser could not be asked or stopped, or which one it is stays unknown.

use stasis_model::failure::Failure;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio_tungstenite::tungstenite::Error as SocketError;

/// Why a browser could not be asked or stopped, or which one it is stays unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowserError {
    /// It is not known who uses the directory.
    #[error("could not find the browser")]
    Users(#[from] Failure),
    /// No browser runs in the directory.
    #[error("no browser is running in the directory")]
    NotRunning,
    /// It has no debugging port, or did not write it down.
    #[error("the browser has no debugging port")]
    NoPort,
    /// The port that was written down is not this browser's.
    #[error(
        "port {port} is written down as the debugging port, but the browser does not listen there"
    )]
    NotItsPort {
        /// Which port.
        port: u16,
    },
    /// It did not accept the connection, or broke it.
    #[error("could not speak to the browser over its debugging port")]
    Connection(#[source] Box<SocketError>),
    /// What it says over its debugging pipe could not be read, or nothing written there.
    #[error("could not speak to the browser over its debugging pipe")]
    Pipe(#[source] io::Error),
    /// It hung up.
    #[error("the browser hung up before it answered `{method}`")]
    HungUp {
        /// What it was asked.
        method: &'static str,
    },
    /// It said no.
    #[error("the browser refused `{method}`: {message}")]
    Refused {
        /// What it was asked.
        method: &'static str,
        /// Its words, cut short.
        message: String,
    },
    /// Its answer lacks what was asked for.
    #[error("the browser's answer to `{method}` was not understood")]
    NotUnderstood {
        /// What it was asked.
        method: &'static str,
    },
    /// It took too long.
    #[error("the browser did not answer within {limit:?}")]
    Silent {
        /// How long we waited.
        limit: Duration,
    },
    /// The process that was named works elsewhere.
    #[error("process {pid} does not work in `{}`", .directory.display())]
    NotItsBrowser {
        /// Which process.
        pid: u32,
        /// In which directory it should work.
        directory: PathBuf,
    },
    /// It may not be signalled, say because it belongs to another user.
    #[error("could not signal process {pid}")]
    Signal {
        /// Which process.
        pid: u32,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Some processes are there even after SIGKILL, say because a disk does not answer.
    #[error("process {pid} of the browser was killed and has not ended")]
    Survived {
        /// The first of them.
        pid: u32,
    },
    /// Asked for its version, it could not be started, failed, or said nothing in time.
    #[error("`{} --version` gave no answer", .program.display())]
    NoVersion {
        /// Which program.
        program: PathBuf,
    },
    /// Asked for its version, it said something without one in it.
    #[error("`{} --version` answered `{answer}`, which names no version", .program.display())]
    UnknownVersion {
        /// Which program.
        program: PathBuf,
        /// What it said, cut short.
        answer: String,
    },
}

impl From<SocketError> for BrowserError {
    fn from(error: SocketError) -> Self {
        Self::Connection(Box::new(error))
    }
}
