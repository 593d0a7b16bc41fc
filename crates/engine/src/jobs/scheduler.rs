//! The clock of each job on one server.

use super::background::WorkThreads;
use super::turn::{Ending, JobRunner, JobTurn};
use super::work;
use super::{JobHost, JobPlan, JobSettings};
use crate::error::{Error, error_chain};
use crate::handle::Jobs;
use crate::kind::project::Project;
use crate::open::Engine;
use stasis_model::format::job::{JobLane, JobName};
use stasis_model::id::Label;
use stasis_store::paced::Bandwidth;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long after a failure of the store, or of Docker, a job is looked at again.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// How long after a run at the soonest.
const BREATH: Duration = Duration::from_secs(1);
/// How long a server that ends waits for its jobs to give back their leases.
const HANDING_BACK: Duration = Duration::from_secs(8);

/// The jobs of one server. Whoever drops it stops them where they stand, as a killed server does.
#[derive(Debug)]
#[must_use = "jobs run only for as long as this lives"]
pub struct RunningJobs {
    ending: watch::Sender<Ending>,
    clocks: JoinSet<()>,
    host: Arc<JobHost>,
}

impl RunningJobs {
    /// Begins nothing any more, and waits for what runs: for so long, and then its leases are given back. A save that is given up then still
    /// runs what its hooks want to be run, for as long as those may take.
    pub async fn end(mut self, grace: Duration) {
        self.ending.send_replace(Ending::Soon);
        if tokio::time::timeout(grace, all_over(&mut self.clocks))
            .await
            .is_ok()
        {
            return;
        }
        self.ending.send_replace(Ending::Now);
        let over = tokio::time::timeout(HANDING_BACK, all_over(&mut self.clocks));
        if over.await.is_ok() {
            return;
        }
        self.host.settled(JobName::ProjectAutosave).await;
        let over = tokio::time::timeout(BREATH, all_over(&mut self.clocks));
        if over.await.is_err() {
            tracing::warn!("some jobs were not over before the end; their leases expire");
        }
    }
}

async fn all_over(clocks: &mut JoinSet<()>) {
    while clocks.join_next().await.is_some() {}
}

impl Jobs<'_> {
    /// Begins to run jobs whenever they are due and no other server does.
    pub fn start(self, mut host: JobHost, settings: &JobSettings) -> RunningJobs {
        let ending = watch::Sender::new(Ending::Not);
        let mut working = self.engine.clone();
        if let Some(bandwidth) = settings.bandwidth {
            let line = Arc::new(Bandwidth::new(bandwidth));
            working = working.paced(&line);
            for one in &mut host.projects {
                let engine = one.project.engine.paced(&line);
                let project = one.project.clone();
                *one = one.with_project(Project { engine, ..project });
            }
        }
        // Each has a store of its own, and all count in one place.
        for one in &mut host.projects {
            let project = one.project.clone();
            let engine = project.engine.clone().with_samples(self.counted.clone());
            *one = one.with_project(Project { engine, ..project });
        }
        let (host, threads) = (
            Arc::new(host),
            Arc::new(WorkThreads::start(settings.threads)),
        );
        let mut clocks = JoinSet::new();
        for (name, plan) in &settings.plans {
            if !host.has(*name) {
                continue;
            }
            let clock = JobClock {
                engine: self.engine.clone(),
                working: working.clone(),
                threads: threads.clone(),
                name: *name,
                plan: *plan,
                host: host.clone(),
                ending: ending.subscribe(),
            };
            clocks.spawn(clock.run());
        }
        RunningJobs {
            ending,
            clocks,
            host,
        }
    }
}

/// When one job is looked at.
struct JobClock {
    engine: Engine,
    /// The same for the work itself, which may have to wait for its turn.
    working: Engine,
    threads: Arc<WorkThreads>,
    name: JobName,
    plan: JobPlan,
    host: Arc<JobHost>,
    ending: watch::Receiver<Ending>,
}

impl JobClock {
    async fn run(mut self) {
        loop {
            let ending = self.ending.clone();
            if *ending.borrow() != Ending::Not {
                return;
            }
            let pause = match self.turn().await {
                Ok(pause) => pause,
                Err(error) => {
                    let job = self.name;
                    tracing::warn!(%job, error = error_chain(&error), "whether a job is due is not known");
                    AFTER_FAILURE.min(self.plan.every)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(self.scattered(pause)) => {}
                _ = self.ending.wait_for(|ending| *ending != Ending::Not) => return,
            }
        }
    }

    /// Servers that were started together do not all ask at the same moment.
    fn scattered(&self, pause: Duration) -> Duration {
        let most = u64::try_from(pause.as_millis() / 20).unwrap_or(u64::MAX);
        let more = self.engine.rng.below(most.clamp(1, 10_000));
        pause + Duration::from_millis(more)
    }

    /// One turn; says when to look again.
    async fn turn(&self) -> Result<Duration, Error> {
        let (lane, place) = self.lane().await?;
        let runner = JobRunner {
            engine: self.engine.clone(),
            lane,
            place,
            plan: self.plan,
            host: self.host.clone(),
            threads: self.threads.clone(),
            ending: self.ending.clone(),
        };
        let (engine, host, name) = (self.working.clone(), self.host.clone(), self.name);
        let work = move |lease| work::work(name, engine, host, lease);
        let (every, now) = (self.plan.every, || self.engine.lineages.now());
        let within = |pause: Duration| pause.clamp(BREATH.min(every), every);
        Ok(match runner.turn(work).await? {
            JobTurn::NotDue(next) => within(next.since(now())),
            JobTurn::Elsewhere(lock) => within(lock.expires_at.since(now())),
            JobTurn::Ran(record, left) => {
                // Another server may go on; here it does not begin anew beside what is left of it.
                if let Some(mut left) = left {
                    let job = self.name;
                    tracing::warn!(%job, "a job that was given up does not end");
                    let mut ending = self.ending.clone();
                    let is_ending = tokio::select! {
                        () = left.ended() => false,
                        _ = ending.wait_for(|ending| *ending != Ending::Not) => true,
                    };
                    if is_ending {
                        // Not even a server that ends leaves this where it stands.
                        left.settled().await;
                    }
                }
                if record.outcome.is_over() {
                    within(BREATH)
                } else {
                    within(AFTER_FAILURE)
                }
            }
        })
    }

    /// What runs on one server at a time, and what its place is called.
    async fn lane(&self) -> Result<(JobLane, Option<Label>), Error> {
        let place = match (self.name, &self.host.docker) {
            (JobName::ContainerCleanup | JobName::ContainerSnapshot, Some(docker)) => {
                docker.engine().await?.id
            }
            (name, _) if name.is_of_a_place() => self.host.sessions.name.to_string(),
            (name, _) => return Ok((JobLane::of_store(name), None)),
        };
        // The id of an engine that is no label is not shown, and tells it from others all the same.
        Ok((JobLane::at(self.name, &place), place.parse().ok()))
    }
}
