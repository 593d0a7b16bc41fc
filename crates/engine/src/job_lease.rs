//! The lease of a job: what makes it run on one server at a time.
//!
//! Whoever has it renews it while the work goes on. *Always true:* a lease that could not be renewed is over for its holder before it is over for
//! others: the holder counts its time from the moment at which it sent the last renewal that was acknowledged, on a clock that counts sleep.

use crate::error::{Error, ErrorKind, error_chain};
use crate::open::Engine;
use stasis_model::failure::Failure;
use stasis_model::format::job::{JobLane, JobRecord};
use stasis_model::format::lease::{Fence, Holder};
use stasis_model::id::Epoch;
use stasis_model::protocol::job::JobRefusal;
use stasis_store::documents::jobs::{self, JobError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// For how long others leave a job alone whose holder is not heard of any more.
pub(crate) const JOB_LEASE_TTL: Duration = Duration::from_mins(2);

/// A job that is ours.
#[derive(Debug)]
#[must_use = "a lease that is not given back keeps others from the job until it expires"]
pub(crate) struct JobLease {
    engine: Engine,
    lane: JobLane,
    fence: Fence,
    ttl: Duration,
    /// Until when it is ours whatever others do, in milliseconds of uptime.
    ours_until: AtomicU64,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Engine {
    /// Takes a job, under an epoch above `seen`, that of its last record.
    pub(crate) async fn take_job(
        &self,
        lane: JobLane,
        (holder, seen): (&Holder, Epoch),
        ttl: Duration,
    ) -> Result<JobLease, JobError> {
        let (op_id, now, sent) = (self.rng.op_id(), self.lineages.now(), self.clock.uptime());
        let taken = jobs::take(&*self.bucket, lane, (holder, seen), op_id, (now, ttl)).await?;
        Ok(JobLease {
            engine: self.clone(),
            lane,
            fence: taken.fence(),
            ttl,
            ours_until: AtomicU64::new(millis(sent + ttl)),
        })
    }
}

impl JobLease {
    /// Which lease it is.
    pub(crate) fn fence(&self) -> Fence {
        self.fence
    }

    /// Refuses what somebody else may be doing by now. Asks nobody.
    pub(crate) fn ensure_held(&self) -> Result<(), Error> {
        if self.left().is_zero() {
            return Err(lost().into());
        }
        Ok(())
    }

    /// How long it is ours whatever others do.
    fn left(&self) -> Duration {
        let until = Duration::from_millis(self.ours_until.load(Ordering::Relaxed));
        until.saturating_sub(self.engine.clock.uptime())
    }

    /// Does something for as long as the lease is ours. If it is lost, the work is dropped where it stands, and there is no result.
    pub(crate) async fn keep_while<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.until_lost() => None,
        }
    }

    /// Renews it, until it is lost.
    async fn until_lost(&self) {
        loop {
            tokio::time::sleep(self.ttl / 4).await;
            let engine = &self.engine;
            let (op_id, now) = (engine.rng.op_id(), engine.lineages.now());
            let sent = engine.clock.uptime();
            let renewal = (now, self.ttl);
            let renewing = jobs::renew(&*engine.bucket, self.lane, self.fence, op_id, renewal);
            match tokio::time::timeout(self.left(), renewing).await {
                Ok(Ok(_)) => {
                    let until = millis(sent + self.ttl);
                    self.ours_until.store(until, Ordering::Relaxed);
                }
                Ok(Err(JobError::Refused(_))) => break,
                // The next renewal may be heard.
                Ok(Err(error)) => {
                    let job = self.lane.name;
                    tracing::info!(%job, error = error_chain(&error), "the lease of a job was not renewed");
                }
                Err(_) => {}
            }
            if self.left().is_zero() {
                break;
            }
        }
        self.ours_until.store(0, Ordering::Relaxed);
    }

    /// Writes down what a run did under it, unless a later run has done so.
    pub(crate) async fn record(&self, record: &JobRecord) -> Result<(), JobError> {
        let recorded = jobs::record(&*self.engine.bucket, self.lane, record).await;
        recorded.map(drop)
    }

    /// Gives it back. If that fails it expires.
    pub(crate) async fn release(&self) {
        let engine = &self.engine;
        let (op_id, now) = (engine.rng.op_id(), engine.lineages.now());
        let released = jobs::release(&*engine.bucket, self.lane, self.fence, op_id, now);
        let said = match tokio::time::timeout(self.ttl, released).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error_chain(&error),
            Err(_) => "the store did not answer".to_owned(),
        };
        let job = self.lane.name;
        tracing::info!(%job, said, "the lease of a job was not given back; it expires");
    }
}

/// Says that somebody else has the job by now.
pub(crate) fn lost() -> Failure {
    Failure::of(ErrorKind::Fenced, JobRefusal::Lost)
}
