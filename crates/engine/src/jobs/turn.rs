//! One turn of a job: is it due, is it ours, is it still due; then run it, and write down what became of it.

use super::background::WorkThreads;
use super::{JobHost, JobPlan};
use crate::error::{Error, ErrorKind, error_chain};
use crate::job_lease::JobLease;
use crate::open::Engine;
use stasis_model::format::job::{JobLane, JobName, JobOutcome, JobRecord, JobRun};
use stasis_model::format::lease::{Holder, Lock};
use stasis_model::id::{Epoch, Label};
use stasis_model::protocol::job::{JobRefusal, is_due, next_due};
use stasis_model::time::Timestamp;
use stasis_store::documents::jobs::{self, JobError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a run that was given up may take to end.
const LAST_MOMENTS: Duration = Duration::from_secs(5);
/// How long the message of a record is at most.
const LONGEST_MESSAGE: usize = 2_000;

/// What a server that ends asks of its jobs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ending {
    /// Nothing.
    Not,
    /// Begin nothing any more.
    Soon,
    /// Give back what is not over.
    Now,
}

/// What a run did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct JobReport {
    /// In numbers.
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// What should be looked at.
    pub(super) problems: Vec<String>,
    /// What was left for the next run, and why. Nothing need be done about it.
    pub(super) skipped: Vec<String>,
}

/// What a turn came to.
#[derive(Debug)]
pub(super) enum JobTurn {
    /// It is not due before that.
    NotDue(Timestamp),
    /// It runs on another host.
    Elsewhere(Box<Lock>),
    /// It was run.
    Ran(Box<JobRecord>, Option<RunningWork>),
}

/// Work that ends with whoever waits for it, but for what must not be left where it stands.
#[derive(Debug)]
pub(super) struct RunningWork {
    task: JoinHandle<Result<JobReport, Error>>,
    job: JobName,
    host: Arc<JobHost>,
}

impl RunningWork {
    /// Waits until nothing of it is left.
    pub(super) async fn ended(&mut self) {
        // One that has ended already was asked for what came of it.
        if !self.task.is_finished() {
            let _ = (&mut self.task).await;
        }
        self.settled().await;
    }

    /// Waits until nothing of it is left that must come to its end.
    pub(super) async fn settled(&self) {
        self.host.settled(self.job).await;
    }
}

impl Drop for RunningWork {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A job as one server runs it.
#[derive(Clone, Debug)]
pub(super) struct JobRunner {
    pub(super) engine: Engine,
    pub(super) lane: JobLane,
    /// At which host or engine, by name, if it is done at each for itself.
    pub(super) place: Option<Label>,
    pub(super) plan: JobPlan,
    pub(super) host: Arc<JobHost>,
    /// What the work runs on.
    pub(super) threads: Arc<WorkThreads>,
    pub(super) ending: watch::Receiver<Ending>,
}

/// Why a run is over.
enum RunEnd {
    Itself(Result<JobReport, Error>),
    GivenUp(JobOutcome, String),
}

impl JobRunner {
    /// Runs it if it is due and nobody else does.
    pub(super) async fn turn<W>(
        &self,
        work: impl FnOnce(Arc<JobLease>) -> W,
    ) -> Result<JobTurn, Error>
    where
        W: Future<Output = Result<JobReport, Error>> + Send + 'static,
    {
        let last = jobs::last(&*self.engine.bucket, self.lane).await?;
        if let Some(next) = self.not_before(last.as_ref()) {
            return Ok(JobTurn::NotDue(next));
        }
        let seen = last.map_or(Epoch(0), |last| last.fence.epoch);
        let holder = self.holder();
        let ttl = self.plan.lease_ttl;
        let lease = match self.engine.take_job(self.lane, (&holder, seen), ttl).await {
            Ok(lease) => Arc::new(lease),
            Err(JobError::Refused(JobRefusal::Held(lock))) => return Ok(JobTurn::Elsewhere(lock)),
            Err(error) => return Err(failed(&error)),
        };
        // Another host may have run it between our look and our lease.
        let last = jobs::last(&*self.engine.bucket, self.lane).await;
        let next = last.as_ref().map(|last| self.not_before(last.as_ref()));
        match next {
            Ok(None) => {}
            Ok(Some(next)) => {
                lease.release().await;
                return Ok(JobTurn::NotDue(next));
            }
            Err(_) => {
                lease.release().await;
                return Err(last.expect_err("it could not be read").into());
            }
        }
        Ok(self.run(&lease, work(lease.clone())).await)
    }

    /// When it is due, if that is not now.
    fn not_before(&self, last: Option<&JobRecord>) -> Option<Timestamp> {
        let (every, now) = (self.plan.every, self.engine.lineages.now());
        next_due(last, every).filter(|_| !is_due(last, every, now))
    }

    fn holder(&self) -> Holder {
        let job = self.lane.name.key_part();
        Holder {
            run_id: job.parse().expect("the words for jobs are labels"),
            host: self.host.sessions.name.clone(),
            host_run_id: self.host.sessions.by.clone(),
        }
    }

    /// Runs it in a task of its own, so that work that does not come back to us cannot keep us.
    async fn run<W>(&self, lease: &JobLease, work: W) -> JobTurn
    where
        W: Future<Output = Result<JobReport, Error>> + Send + 'static,
    {
        let (began, started) = (self.engine.lineages.now(), self.engine.clock.uptime());
        let job = self.lane.name;
        tracing::debug!(%job, "job begun");
        let mut work = RunningWork {
            task: self.threads.spawn(work),
            job,
            host: self.host.clone(),
        };
        let end = self.end(lease, &mut work.task).await;
        let mut left = None;
        if let RunEnd::GivenUp(..) = end {
            work.task.abort();
            let ended = tokio::time::timeout(LAST_MOMENTS, work.ended()).await;
            left = ended.is_err().then_some(work);
        }
        let (outcome, counts, message) = said(end);
        let run = JobRun {
            place: self.place.clone(),
            host: self.host.sessions.name.clone(),
            began_and_ended: (began, self.engine.lineages.now()),
            took: self.engine.clock.uptime().saturating_sub(started),
            every: self.plan.every,
            outcome,
            counts,
            message,
        };
        let op_id = self.engine.rng.op_id();
        let record = JobRecord::new(job, run, lease.fence(), op_id);
        self.write_down(lease, &record).await;
        lease.release().await;
        JobTurn::Ran(Box::new(record), left)
    }

    /// Waits until the work is over, or has to be.
    async fn end(
        &self,
        lease: &JobLease,
        task: &mut JoinHandle<Result<JobReport, Error>>,
    ) -> RunEnd {
        let mut ending = self.ending.clone();
        let limit = self.plan.limit;
        tokio::select! {
            done = lease.keep_while(task) => match done {
                Some(Ok(done)) => RunEnd::Itself(done),
                Some(Err(error)) => {
                    let bug = stasis_model::failure::Failure::of(ErrorKind::Bug, error);
                    RunEnd::Itself(Err(bug.into()))
                }
                None => RunEnd::GivenUp(
                    JobOutcome::LeaseLost,
                    "its lease was over before the work was".to_owned(),
                ),
            },
            () = tokio::time::sleep(limit) => RunEnd::GivenUp(
                JobOutcome::Stuck,
                format!("it was not over after {} s, and was given up", limit.as_secs()),
            ),
            // A sender that is gone asks for nothing.
            Ok(_) = ending.wait_for(|ending| *ending == Ending::Now) => RunEnd::GivenUp(
                JobOutcome::HandedBack,
                "its server was asked to end".to_owned(),
            ),
        }
    }

    async fn write_down(&self, lease: &JobLease, record: &JobRecord) {
        let (job, outcome) = (record.job, record.outcome);
        let message = record.message.as_deref().unwrap_or_default();
        match outcome {
            JobOutcome::Done => {
                tracing::info!(%job, took_ms = record.took_ms, counts = ?record.counts, "job done");
            }
            outcome => tracing::warn!(%job, %outcome, message, "job not done"),
        }
        let recording = lease.record(record);
        let said = match tokio::time::timeout(self.plan.lease_ttl, recording).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error_chain(&error),
            Err(_) => "the store did not answer".to_owned(),
        };
        tracing::warn!(%job, said, "what a job did was not written down");
    }
}

fn said(end: RunEnd) -> (JobOutcome, BTreeMap<String, u64>, Option<String>) {
    let shortened = |text: String| -> String { text.chars().take(LONGEST_MESSAGE).collect() };
    match end {
        RunEnd::GivenUp(outcome, why) => (outcome, BTreeMap::new(), Some(why)),
        RunEnd::Itself(Ok(report)) => {
            let counts = report.counts.into_iter();
            let counts = counts.map(|(name, count)| (name.to_owned(), count));
            let outcome = if report.problems.is_empty() {
                JobOutcome::Done
            } else {
                JobOutcome::Incomplete
            };
            let said = [report.problems, report.skipped].concat();
            let message = Some(said.join("; ")).filter(|message| !message.is_empty());
            (outcome, counts.collect(), message.map(shortened))
        }
        RunEnd::Itself(Err(error)) => {
            let outcome = match error.kind() {
                ErrorKind::Fenced => JobOutcome::LeaseLost,
                _ => JobOutcome::Failed,
            };
            let message = shortened(error_chain(&error));
            (outcome, BTreeMap::new(), Some(message))
        }
    }
}

fn failed(error: &JobError) -> Error {
    let kind = stasis_model::failure::Kinded::kind(error);
    stasis_model::failure::Failure::of(kind, error_chain(error)).into()
}
