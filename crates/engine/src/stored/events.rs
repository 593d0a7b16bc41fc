//! The last events that happened to a subject.

use super::{Of, StoredSubject};
use crate::address::PROFILE_PREFIX;
use crate::error::Error;
use crate::events::EventSearch;
use stasis_model::format::event::AuditEvent;
use stasis_model::id::ChromeMajor;

/// The last forced, destructive and degraded acts on a subject.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SubjectEvents {
    /// The newest first.
    pub events: Vec<AuditEvent>,
    /// How many events about it cannot be understood, of those that were looked at.
    pub unreadable: u64,
    /// The day on which the search ended: of it and of those before not all events were looked at, and there may be more. Nothing, if the
    /// whole log was.
    pub ended_on: Option<String>,
}

impl StoredSubject {
    /// Its last events, at most `most`.
    pub async fn events(&self, most: usize) -> Result<SubjectEvents, Error> {
        let (subject, major): (_, Option<ChromeMajor>) = match &self.of {
            Of::Chunks(directory) => match directory.project()?.address() {
                Some(address) => (address.subject, None),
                None => return Ok(SubjectEvents::default()),
            },
            Of::Profile(profile) => {
                let (tenant, name) = (&profile.tenant, &profile.profile);
                (format!("{PROFILE_PREFIX}{tenant}/{name}"), profile.major)
            }
        };
        let is_wanted = |event: &AuditEvent| match (major, &event.subject) {
            (Some(major), Some(lineage)) => lineage.major == major,
            _ => true,
        };
        let search = EventSearch {
            subject: &subject,
            is_wanted: &is_wanted,
            most,
        };
        let found = self.engine.events().about(&self.tenant, &search).await?;
        Ok(SubjectEvents {
            events: found.events.into_iter().rev().collect(),
            unreadable: found.unreadable.len() as u64,
            ended_on: found.ended_on,
        })
    }
}
