//! What a daemon answered, or why it did not, as a failure with what to do.

use bollard::errors::Error as BollardError;
use stasis_model::failure::{ErrorKind, Failure};
use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::time::Duration;

const ABSENT: &str =
    "start it (systemctl start docker), or set DOCKER_HOST to the address it listens at";
const HUNG: &str =
    "it accepts connections and does not answer: see its log (journalctl -u docker), or restart it";
const FORBIDDEN: &str = "run as root, or as a user of the group `docker`";

/// Why a call has no good answer.
#[derive(Debug)]
pub(super) enum CallError {
    /// The daemon or the way to it.
    Client(Box<BollardError>),
    /// Nothing came within this time.
    Silent(Duration),
    /// It is known already what to say.
    Known(Failure),
}

impl From<BollardError> for CallError {
    fn from(error: BollardError) -> Self {
        Self::Client(Box::new(error))
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        Self::Known(failure)
    }
}

/// What was found, or `None` when the daemon does not know what was named.
pub(super) fn present<T>(answer: Result<T, BollardError>) -> Result<Option<T>, CallError> {
    match answer.map_err(CallError::from) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

impl CallError {
    /// The code of the answer, if there is one.
    fn status(&self) -> Option<u16> {
        match self {
            Self::Client(error) => match **error {
                BollardError::DockerResponseServerError { status_code, .. } => Some(status_code),
                _ => None,
            },
            _ => None,
        }
    }

    /// "Could not `op` `target`", by the daemon at `host`.
    pub(super) fn into_failure(
        self,
        op: &'static str,
        target: impl Display,
        host: &OsStr,
    ) -> Failure {
        let unreachable = |kind: ErrorKind, why: io::Error, hint: &'static str| {
            let daemon = Failure::new(kind, "reach the Docker daemon at", host.display());
            (kind, daemon.because(why), hint)
        };
        let (kind, why, hint) = match self {
            Self::Known(failure) => {
                let hint = failure.hint().map(ToOwned::to_owned);
                let outer = Failure::new(failure.kind(), op, target).because(failure);
                return match hint {
                    Some(hint) => outer.with_hint(hint),
                    None => outer,
                };
            }
            Self::Silent(limit) => {
                let text = format!("no answer within {limit:?}");
                let why = io::Error::new(io::ErrorKind::TimedOut, text);
                unreachable(ErrorKind::Unreachable, why, HUNG)
            }
            Self::Client(error) => match *error {
                BollardError::DockerResponseServerError {
                    status_code,
                    message,
                } => {
                    let message = message.trim().to_owned();
                    return Failure::new(kind_of(status_code), op, target).because(message);
                }
                BollardError::DockerStreamError { error } => {
                    return Failure::new(ErrorKind::Failed, op, target).because(error);
                }
                BollardError::JsonDataError { message, .. } => {
                    let why = format!(
                        "what answered at {} is not understood: {message}",
                        host.display()
                    );
                    return Failure::new(ErrorKind::Failed, op, target)
                        .because(why)
                        .with_hint("check that DOCKER_HOST is the address of a Docker daemon");
                }
                BollardError::SocketNotFoundError(_) => {
                    let why = io::ErrorKind::NotFound.into();
                    unreachable(ErrorKind::Unreachable, why, ABSENT)
                }
                error => {
                    let why = system_error(&error);
                    match why.kind() {
                        io::ErrorKind::PermissionDenied => {
                            unreachable(ErrorKind::Denied, why, FORBIDDEN)
                        }
                        _ => unreachable(ErrorKind::Unreachable, why, ABSENT),
                    }
                }
            },
        };
        Failure::new(kind, op, target).because(why).with_hint(hint)
    }
}

fn kind_of(status: u16) -> ErrorKind {
    match status {
        400 => ErrorKind::Invalid,
        401 | 403 => ErrorKind::Denied,
        404 => ErrorKind::NotFound,
        409 => ErrorKind::Conflict,
        503 => ErrorKind::Retry,
        _ => ErrorKind::Failed,
    }
}

/// What the system said, if it is why; else what the client said.
fn system_error(error: &BollardError) -> io::Error {
    let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |&error| {
        error.source()
    });
    let system = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    // One of them says that it is the error inside, and names only what is behind that as its source.
    let system = match error {
        BollardError::IOError { err } => Some(err),
        _ => system.last(),
    };
    match system {
        // An error of the system has no copy: its number or its words say the same.
        Some(system) => match system.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(system.kind(), system.to_string()),
        },
        None => io::Error::other(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_model::failure::error_chain;

    fn said(status_code: u16) -> Failure {
        let error = BollardError::DockerResponseServerError {
            status_code,
            message: "because\n".to_owned(),
        };
        CallError::from(error).into_failure("remove volume", "v", OsStr::new("unix:///x"))
    }

    #[test]
    fn what_a_daemon_refuses_has_the_kind_of_what_to_do() {
        let kinds = [
            (400, ErrorKind::Invalid),
            (403, ErrorKind::Denied),
            (404, ErrorKind::NotFound),
            (409, ErrorKind::Conflict),
            (500, ErrorKind::Failed),
        ];
        for (status, kind) in kinds {
            assert_eq!(said(status).kind(), kind);
        }
        assert_eq!(
            error_chain(&said(409)),
            "could not remove volume `v`: because"
        );
    }

    #[test]
    fn a_socket_that_we_may_not_open_is_denied_and_not_absent() {
        let closed = io::Error::from_raw_os_error(13);
        let error = CallError::from(BollardError::from(closed));

        let failure = error.into_failure("inspect container", "web", OsStr::new("unix:///x"));

        assert_eq!(failure.kind(), ErrorKind::Denied);
        assert!(failure.hint().unwrap().contains("group `docker`"));
        assert!(error_chain(&failure).contains("daemon at `unix:///x`: "));
    }
}
