//! Holds a container still while it is saved.
//!
//! *Always true:* a container that ran runs again within the time that was asked for, whatever happens to us
//! ([`stasis_quiesce::pause`]); one that somebody else had paused stays so.

use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::open::Engine;
use stasis_model::container::status::ContainerStatus;
use stasis_model::failure::Failure;
use stasis_quiesce::docker::{ContainerFacts, Docker};
use stasis_quiesce::freeze::FreezeError;
use stasis_quiesce::pause::{PauseSettings, Paused};
use stasis_quiesce::service::{Handling, Service, ServiceError};
use stasis_quiesce::watchdog::HelperCommand;
use std::path::PathBuf;
use std::time::Duration;

/// A container that does not move.
#[must_use = "dropped, it runs again"]
pub(super) enum Still {
    /// We paused it, or it does not run.
    Ours(Paused),
    /// Somebody else had.
    Others { since: String },
}

/// What became of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Released {
    /// For how long it stood still because of us.
    pub(super) paused_for: Duration,
    /// Whether it did not move at all: only then is what was read of one moment.
    pub(super) held: bool,
}

impl Still {
    /// Holds a container still, for so long at most.
    pub(super) async fn hold(
        engine: &Engine,
        docker: &Docker,
        facts: &ContainerFacts,
        longest: Duration,
    ) -> Result<Self, Error> {
        if facts.status == ContainerStatus::Paused {
            return Ok(Self::Others {
                since: facts.started.clone(),
            });
        }
        let service = service(docker, facts);
        let watchdog = HelperCommand::this_program(&["internal", "watchdog"]);
        let mut settings = PauseSettings::new(engine.freezes(), watchdog);
        settings.max = longest;
        let name = facts.name.clone();
        let held = bridge::blocking(move || Paused::hold(&[&service], &settings)).await;
        Ok(Self::Ours(held.map_err(|error| not_held(&name, &error))?))
    }

    /// Lets it run again, if we hold it.
    pub(super) async fn release(
        self,
        docker: &Docker,
        facts: &ContainerFacts,
    ) -> Result<Released, Error> {
        let paused = match self {
            Self::Ours(paused) => paused,
            Self::Others { since } => {
                let now = docker.container(&facts.id).await?;
                let is_still = |now: &ContainerFacts| {
                    now.status == ContainerStatus::Paused && now.started == since
                };
                return Ok(Released {
                    paused_for: Duration::ZERO,
                    held: now.as_ref().is_some_and(is_still),
                });
            }
        };
        let resumed = bridge::blocking(move || paused.resume()).await;
        let resumed = resumed.map_err(|error| not_released(&facts.name, &error))?;
        Ok(Released {
            paused_for: resumed.paused_for,
            held: resumed.held(),
        })
    }
}

fn service(docker: &Docker, facts: &ContainerFacts) -> Service {
    Service {
        name: facts.name.clone(),
        handling: Handling::Docker {
            docker: docker.clone(),
            container: facts.id.clone(),
        },
        // Nobody starts it here.
        log: PathBuf::new(),
        launcher: HelperCommand::this_program(&[]),
    }
}

fn not_released(container: &str, error: &ServiceError) -> Error {
    let said = format!(
        "the container `{container}` could not be let run again, and is paused: {}",
        error_chain(error)
    );
    let hint = format!(
        "that is tried again for ten minutes; then `stasis container cleanup`, or `docker unpause {container}`, does it"
    );
    Failure::of(ErrorKind::Unreachable, said)
        .with_hint(hint)
        .into()
}

fn not_held(container: &str, error: &ServiceError) -> Error {
    if let ServiceError::Freeze(FreezeError::Expired { max }) = error {
        let longest = max.as_millis();
        let said = format!(
            "the container `{container}` may stand still for {longest} ms, in which it could not even be paused"
        );
        let failure = Failure::of(ErrorKind::Limit, said);
        return failure.with_hint("allow more with --max-freeze").into();
    }
    let said = format!(
        "the container `{container}` could not be held still: {}",
        error_chain(error)
    );
    Failure::of(ErrorKind::Failed, said).into()
}
