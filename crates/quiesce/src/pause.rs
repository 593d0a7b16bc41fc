//! Holds the services of an application still, all together, for a short time that ends whatever happens.
//!
//! 1. look at each: one that does not run is left alone, one that another process paused is refused
//! 2. freeze the trees of the processes and pause the containers, with one journal, one watchdog and one deadline: see
//!    [`freeze`](crate::freeze), which also says what happens at each crash
//! 3. the caller does its work
//! 4. look whether each is still the one it was; let all run again
//!
//! *Always true:* what is read in 3 is consistent only if [`Resumed::held`] says so. A service that ended or began in between
//! makes it worthless: something may have started it again, and written.

use crate::docker::{Container, ContainerState};
pub use crate::freeze::FreezeSettings as PauseSettings;
use crate::freeze::Frozen;
use crate::process::Process;
use crate::service::{Service, ServiceError, ServiceLookup, Status};
use std::time::Duration;

/// Services run again.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "what was read during a pause that did not hold is worthless"]
pub struct Resumed {
    /// For how long they stood still.
    pub paused_for: Duration,
    /// The time was over before.
    pub expired: bool,
    /// Another process made one of them run.
    pub disturbed: bool,
    /// Those that ended or began meanwhile.
    pub changed: Vec<String>,
}

impl Resumed {
    /// Whether all stood still for the whole time: only then is what was read in it consistent.
    pub fn held(&self) -> bool {
        !self.expired && !self.disturbed && self.changed.is_empty()
    }
}

/// Services that stand still; they run again when this is dropped.
#[derive(Debug)]
#[must_use = "services run again when the guard is dropped"]
pub struct Paused {
    /// Nothing, when none of them runs.
    frozen: Option<Frozen>,
    members: Vec<PausedService>,
}

/// A service as it was before the pause.
#[derive(Debug)]
struct PausedService {
    service: Service,
    found: ServiceLookup,
}

impl PausedService {
    fn look(service: &Service) -> Result<Self, ServiceError> {
        let found = service.find();
        match found.status() {
            Status::Running { .. } | Status::Stopped => {}
            Status::Paused => {
                let service = service.name.clone();
                return Err(ServiceError::AlreadyPaused { service });
            }
            Status::Unknown(why) => return Err(service.unclear("held still", why)),
        }
        let service = service.clone();
        Ok(Self { service, found })
    }

    fn process(&self) -> Option<Process> {
        match &self.found {
            ServiceLookup::Process(process) if process.is_running() => Some(process.clone()),
            _ => None,
        }
    }

    fn container(&self) -> Option<Container> {
        match &self.found {
            ServiceLookup::Container(look)
                if matches!(look.activity, ContainerState::Running(_)) =>
            {
                Some(look.container.clone())
            }
            _ => None,
        }
    }

    /// Whether it is not the one any more that it was, or runs since.
    fn has_changed(&self) -> bool {
        match (&self.found, self.service.find()) {
            (ServiceLookup::Container(before), ServiceLookup::Container(now)) => {
                let stopped = |activity: &ContainerState| *activity == ContainerState::Stopped;
                let same = before.container == now.container && before.started == now.started;
                !same || stopped(&before.activity) != stopped(&now.activity)
            }
            (ServiceLookup::Process(before), ServiceLookup::Process(now)) => *before != now,
            (ServiceLookup::Nothing, ServiceLookup::Nothing) => false,
            _ => true,
        }
    }
}

impl Paused {
    /// Holds all of them still, with everything they started. Blocks for as long as that takes.
    ///
    /// A service that does not run is left alone, and watched: it must not begin meanwhile.
    pub fn hold(services: &[&Service], settings: &PauseSettings) -> Result<Self, ServiceError> {
        let members: Result<Vec<PausedService>, ServiceError> = services
            .iter()
            .map(|service| PausedService::look(service))
            .collect();
        let members = members?;
        let processes: Vec<Process> = members.iter().filter_map(PausedService::process).collect();
        let containers: Vec<Container> = members
            .iter()
            .filter_map(PausedService::container)
            .collect();
        let frozen = if processes.is_empty() && containers.is_empty() {
            None
        } else {
            let frozen = Frozen::freeze_with(&containers, &processes, settings);
            Some(frozen?)
        };
        Ok(Self { frozen, members })
    }

    /// Whether the time is over: what is read from now on is worthless.
    pub fn has_expired(&self) -> bool {
        self.frozen.as_ref().is_some_and(Frozen::has_expired)
    }

    /// The processes that stand still because of us; those of containers are not among them.
    pub fn pids(&self) -> Vec<u32> {
        self.frozen.as_ref().map_or_else(Vec::new, Frozen::pids)
    }

    /// Lets all run again, and says whether they stood still for the whole time.
    pub fn resume(self) -> Result<Resumed, ServiceError> {
        let changed = self.members.iter().filter(|member| member.has_changed());
        let changed = changed.map(|member| member.service.name.clone()).collect();
        let thawed = self.frozen.map(Frozen::thaw).transpose()?;
        Ok(Resumed {
            paused_for: thawed.map_or(Duration::ZERO, |thawed| thawed.frozen_for),
            expired: thawed.is_some_and(|thawed| thawed.expired),
            disturbed: thawed.is_some_and(|thawed| thawed.disturbed),
            changed,
        })
    }
}
