//! Why a browser could not be asked over its debugging port.

use stasis_model::failure::Failure;
use std::time::Duration;
use tokio_tungstenite::tungstenite::Error as SocketError;

/// Why a browser could not be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CdpError {
    /// It is not known whether a browser runs.
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
}
