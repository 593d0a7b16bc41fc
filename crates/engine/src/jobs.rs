//! Jobs: work that servers do without being asked, each with a lease, a clock and a command of the engine (ADR 89).
//!
//! Each job has a task of its own on every server (`scheduler`). Whoever finds it due takes its lease, finds it still due, and runs it (`turn`);
//! the order is that of [`stasis_model::protocol::job`]. So three servers on one store do the work once.
//!
//! *Always true:* one job never waits for another; a run that is not over after its limit is given up and shown as stuck; and every job may
//! be run twice at the same time, or stop anywhere, without harm. Why that is so, of each:
//!
//! - `lock_reap`: each lock is freed by a conditional write that is allowed only of an expired one; a second reaper finds it free.
//! - `session_reap`: what is done to a session is decided by its own document, which only one claims at a time (ADR 84).
//! - `container_cleanup`: whoever removes something of a container has the lock of that container on its engine's host; what is gone already
//!   is passed over.
//! - `container_snapshot`: a snapshot is made under the lock of its container, and none where the last one of that very container has it all.
//! - `gc`: a profile's sweep removes only what its pointer says is deleted, a pool's goes round by round in `gc.json`, which two sweeps cannot
//!   both move on. Both ask before each lineage or pool whether the lease is still ours, to spare the work.
//! - `proof`: restores into a place of its own, and writes down when. It asks before each snapshot.
//! - `workspace_checkpoint`: a checkpoint is made under the lock of its session, and none where the last one has it all.
//! - `project_autosave`: a save is made under the lock of its project, and none where nothing changed. One that is given up ends what its hooks
//!   began, in a task of its own; its server waits for that.
//!
//! The work runs on threads that leave the host to others, over a line that may be limited (`background`).

mod background;
mod containers;
mod list;
mod order;
mod projects;
mod proof;
mod scheduler;
#[cfg(test)]
mod tests;
mod turn;
mod work;
mod workspaces;

pub use background::JobThreads;
pub use list::{JobList, JobRow, RunningJob};
pub use order::TurnOrder;
pub use scheduler::RunningJobs;

use crate::check::Spawn;
use crate::job_lease::JOB_LEASE_TTL;
use crate::kind::container::AutosavedContainer;
use crate::kind::project::AutosavedProject;
use crate::kind::session::SessionHost;
use crate::kind::workspace::HostEnv;
use stasis_model::format::job::JobName;
use stasis_quiesce::docker::Docker;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

/// How often a job begins, and how long it may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobPlan {
    /// How often it begins.
    pub every: Duration,
    /// How long it takes at most.
    pub limit: Duration,
    /// For how long others leave it alone when its server is not heard of any more.
    pub lease_ttl: Duration,
}

impl JobPlan {
    /// What is usual for a job.
    pub fn usual(job: JobName) -> Self {
        Self {
            every: job.usual_interval(),
            limit: job.usual_limit(),
            lease_ttl: JOB_LEASE_TTL,
        }
    }
}

/// Which jobs run, and how often.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobSettings {
    /// Those that are not off.
    pub plans: BTreeMap<JobName, JobPlan>,
    /// How many bytes of content all of them together move in a second; without, as many as the line has.
    pub bandwidth: Option<NonZeroU64>,
    /// Which threads they run on.
    pub threads: JobThreads,
}

impl Default for JobSettings {
    fn default() -> Self {
        let plans = JobName::ALL.map(|job| (job, JobPlan::usual(job)));
        Self {
            plans: plans.into(),
            bandwidth: None,
            threads: JobThreads::default(),
        }
    }
}

/// What jobs need to know of the host that they run on.
#[derive(Clone, Debug)]
pub struct JobHost {
    /// What it is called, and who acts there.
    pub sessions: SessionHost,
    /// The Docker engine whose containers are looked after; none where there is none.
    pub docker: Option<Docker>,
    /// How the process that opens databases is started.
    pub check: Spawn,
    /// Where its workspaces are registered; none where nobody knows of any.
    pub workspaces: Option<HostEnv>,
    /// The projects that are saved without being asked.
    pub projects: Vec<AutosavedProject>,
    /// Which of its workspaces and projects had a turn when.
    pub tried: TurnOrder,
    /// The containers of that engine of which snapshots are made without being asked.
    pub containers: Vec<AutosavedContainer>,
}

impl JobHost {
    /// Whether there is anything here that a job looks after.
    fn has(&self, job: JobName) -> bool {
        match job {
            JobName::ContainerCleanup => self.docker.is_some(),
            JobName::ContainerSnapshot => self.docker.is_some() && !self.containers.is_empty(),
            JobName::WorkspaceCheckpoint => self.workspaces.is_some(),
            JobName::ProjectAutosave => !self.projects.is_empty(),
            JobName::LockReap | JobName::SessionReap | JobName::Gc | JobName::Proof => true,
        }
    }

    /// Waits for what a job began and must not leave where it stands, however the job ended: the hooks after a save. It waits for as long as
    /// those may take, and no longer.
    async fn settled(&self, job: JobName) {
        if job == JobName::ProjectAutosave {
            let all = self.projects.iter().map(AutosavedProject::settled);
            futures_util::future::join_all(all).await;
        }
    }
}
