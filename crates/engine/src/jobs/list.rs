//! What is known of the jobs of a store, from any host.

use super::{JobPlan, JobSettings};
use crate::error::Error;
use crate::handle::Jobs;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::job::{JobLane, JobName, JobOutcome, JobRecord};
use stasis_model::format::lease::Lock;
use stasis_model::id::Label;
use stasis_model::protocol::job::{is_due, is_stuck, next_due};
use stasis_model::time::Timestamp;
use stasis_store::documents::jobs;
use std::collections::BTreeMap;
use std::time::Duration;

/// Who runs a job just now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RunningJob {
    /// The host.
    pub host: Label,
    /// The server there.
    pub by: Label,
    /// Since when.
    pub since: String,
    /// The same in milliseconds.
    pub since_ms: Timestamp,
    /// Until when others leave it alone, unless it renews.
    pub expires_at: String,
    /// The same in milliseconds.
    pub expires_at_ms: Timestamp,
}

/// A job, at one place if it is done at several.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct JobRow {
    /// Which.
    pub name: JobName,
    /// At which host or Docker engine, if it is done at each for itself and was run there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Label>,
    /// How often it begins: as whoever ran it last has it, else as the configuration here has it.
    pub every_ms: u64,
    /// When the last run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_began_at: Option<String>,
    /// The same in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_began_at_ms: Option<Timestamp>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_took_ms: Option<u64>,
    /// The host that ran it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_host: Option<Label>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<JobOutcome>,
    /// What it did, in numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// What should be looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it is due next; at once, if this is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_due_at: Option<String>,
    /// The same in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_due_at_ms: Option<Timestamp>,
    /// Who runs it just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningJob>,
    /// Whether it takes, or took, longer than it may.
    pub stuck: bool,
}

/// The jobs of a store.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct JobList {
    /// One row for each job, and for each place where it was run.
    pub items: Vec<JobRow>,
}

impl JobList {
    /// The same for whoever may not see everything that the store has: what went wrong names subjects of all tenants.
    #[must_use = "the list is not changed in place"]
    pub fn without_messages(mut self) -> Self {
        for row in &mut self.items {
            row.message = None;
        }
        self
    }
}

impl Jobs<'_> {
    /// Lists what is known of every job. Asks the store, and no server.
    pub async fn list(self, settings: &JobSettings) -> Result<JobList, Error> {
        let mut lanes = jobs::lanes(&*self.bucket).await?;
        for name in JobName::ALL {
            if !lanes.iter().any(|lane| lane.name == name) {
                lanes.insert(JobLane::of_store(name));
            }
        }
        let mut items = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let last = jobs::last(&*self.bucket, lane).await?;
            let lock = jobs::lock(&*self.bucket, lane).await?;
            let plan = settings.plans.get(&lane.name).copied();
            let plan = plan.unwrap_or_else(|| JobPlan::usual(lane.name));
            items.push(self.row(lane.name, plan, last, lock.as_ref()));
        }
        Ok(JobList { items })
    }

    fn row(
        self,
        name: JobName,
        plan: JobPlan,
        last: Option<JobRecord>,
        lock: Option<&Lock>,
    ) -> JobRow {
        let now = self.lineages.now();
        let every_ms = u64::try_from(plan.every.as_millis()).unwrap_or(u64::MAX);
        let every_ms = last.as_ref().map_or(every_ms, |last| last.every_ms);
        let every = Duration::from_millis(every_ms);
        let next = next_due(last.as_ref(), every).filter(|_| !is_due(last.as_ref(), every, now));
        let was_stuck = last
            .as_ref()
            .is_some_and(|last| last.outcome == JobOutcome::Stuck);
        let running = lock
            .filter(|lock| lock.is_live(now))
            .map(|lock| RunningJob {
                host: lock.holder.host.clone(),
                by: lock.holder.host_run_id.clone(),
                since: lock.acquired_at.to_string(),
                since_ms: lock.acquired_at,
                expires_at: lock.expires_at.to_string(),
                expires_at_ms: lock.expires_at,
            });
        let row = JobRow {
            name,
            place: None,
            every_ms,
            last_began_at: None,
            last_began_at_ms: None,
            last_took_ms: None,
            last_host: None,
            outcome: None,
            counts: BTreeMap::new(),
            message: None,
            next_due_at: next.map(|at| at.to_string()),
            next_due_at_ms: next,
            running,
            stuck: was_stuck || is_stuck(lock, plan.limit, now),
        };
        let Some(last) = last else { return row };
        JobRow {
            place: last.place,
            last_began_at: Some(last.began_at_ms.to_string()),
            last_began_at_ms: Some(last.began_at_ms),
            last_took_ms: Some(last.took_ms),
            last_host: Some(last.host),
            outcome: Some(last.outcome),
            counts: last.counts,
            message: last.message,
            ..row
        }
    }
}
