//! When a job runs, and that it runs on one host at a time: a [`Lock`] without a pointer beside it, and a record of the last run.
//!
//! 1. read the record: is the job due?   2. take the lock   3. read the record again   4. run, renewing   5. write the record   6. give back
//!
//! The lock spares work and keeps order; nothing is safe because of it. What a job does to a subject is decided by that subject's document.
//!
//! *Always true:* whoever runs has looked at the record under its own lock, so that a run that another host has just ended is not repeated; and
//! a record is replaced only by one that was written under the same lock or a later one. A crash before 5 leaves no trace but the lock: the job
//! is due as it was, and begins anew once that has expired.

use crate::failure::{ErrorKind, Kinded};
use crate::format::job::JobRecord;
use crate::format::lease::{Fence, Holder, Lock, LockState};
use crate::id::{Epoch, OpId};
use crate::time::Timestamp;
use std::time::Duration;

/// Why a job does not run, or not any more.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobRefusal {
    /// It runs elsewhere.
    #[error("it runs on {} already, since {}", .0.holder.host, .0.acquired_at)]
    Held(Box<Lock>),
    /// Its lock belongs to another run by now, or to nobody.
    #[error("its lock belongs to another run by now")]
    Lost,
    /// A later run has written down what it did.
    #[error("a later run has ended already, on {}", .0.host)]
    Superseded(Box<JobRecord>),
}

impl Kinded for JobRefusal {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Held(_) => ErrorKind::Conflict,
            Self::Lost | Self::Superseded(_) => ErrorKind::Fenced,
        }
    }
}

/// Whether a run is to begin that is to begin so often.
///
/// A record of a time that has not come yet, by more than an interval, was written by a clock that was wrong, and keeps nobody from it.
pub fn is_due(last: Option<&JobRecord>, every: Duration, now: Timestamp) -> bool {
    next_due(last, every)
        .is_none_or(|next| next <= now || next.since(now) > every.saturating_mul(2))
}

/// When the next run is to begin; nothing if at once.
pub fn next_due(last: Option<&JobRecord>, every: Duration) -> Option<Timestamp> {
    let last = last.filter(|last| last.outcome.is_over());
    last.map(|last| last.began_at_ms.plus(every))
}

/// Whether the run that has the lock takes longer than it may. One that was not heard of any more is as bad, until another one takes it.
pub fn is_stuck(lock: Option<&Lock>, limit: Duration, now: Timestamp) -> bool {
    let held = lock.filter(|lock| lock.state == LockState::Held);
    held.is_some_and(|lock| now.since(lock.acquired_at) > limit)
}

/// Writes down what a run did, unless a later one has done so.
pub fn record(found: Option<&JobRecord>, mut next: JobRecord) -> Result<JobRecord, JobRefusal> {
    match found {
        Some(found) if found.fence.epoch > next.fence.epoch => {
            Err(JobRefusal::Superseded(Box::new(found.clone())))
        }
        found => {
            next.extra = found.map(|found| found.extra.clone()).unwrap_or_default();
            Ok(next)
        }
    }
}

/// Takes the lock for `holder`, under an epoch above that of the lock and above `seen`, that of the last record.
pub fn take(
    found: Option<&Lock>,
    (holder, seen): (&Holder, Epoch),
    op_id: OpId,
    now: Timestamp,
    ttl: Duration,
) -> Result<Lock, JobRefusal> {
    let expires_at = now.plus(ttl);
    let Some(lock) = found else {
        let epoch = seen.next();
        let fence = Fence { epoch, op_id };
        return Ok(Lock::first(holder.clone(), fence, now, expires_at));
    };
    if lock.is_live(now) {
        return Err(JobRefusal::Held(Box::new(lock.clone())));
    }
    let epoch = lock.epoch.max(seen).next();
    let fence = Fence { epoch, op_id };
    Ok(lock.taken_by(holder.clone(), fence, now, expires_at))
}

/// Keeps it.
pub fn renew(
    found: Option<&Lock>,
    fence: Fence,
    op_id: OpId,
    now: Timestamp,
    ttl: Duration,
) -> Result<Lock, JobRefusal> {
    let lock = own(found, fence)?;
    let mut next = lock.successor(op_id);
    next.renewed_at = now;
    next.expires_at = now.plus(ttl);
    next.renewal_count = lock.renewal_count.saturating_add(1);
    Ok(next)
}

/// Gives it back.
pub fn release(
    found: Option<&Lock>,
    fence: Fence,
    op_id: OpId,
    now: Timestamp,
) -> Result<Lock, JobRefusal> {
    let lock = own(found, fence)?;
    let mut next = lock.successor(op_id);
    next.state = LockState::Free;
    next.released = true;
    next.expires_at = lock.expires_at.min(now);
    Ok(next)
}

fn own(found: Option<&Lock>, fence: Fence) -> Result<&Lock, JobRefusal> {
    let is_own = |lock: &&Lock| lock.fence() == fence && lock.state == LockState::Held;
    found.filter(is_own).ok_or(JobRefusal::Lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::job::{JobName, JobOutcome, JobRun};
    use std::collections::BTreeMap;

    const EVERY: Duration = Duration::from_mins(5);
    const TTL: Duration = Duration::from_mins(1);

    fn holder(host: &str) -> Holder {
        Holder {
            run_id: "reap".parse().unwrap(),
            host: host.parse().unwrap(),
            host_run_id: "1".parse().unwrap(),
        }
    }

    fn op(number: u8) -> OpId {
        OpId::from_random([number; 16])
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn one_run_has_it_until_it_gives_it_back_or_is_not_heard_of_any_more() {
        let one = take(None, (&holder("one"), Epoch(0)), op(1), at(0), TTL).unwrap();

        let held = take(Some(&one), (&holder("two"), Epoch(0)), op(2), at(60), TTL).unwrap_err();
        assert!(held.to_string().contains("on one already"), "{held}");
        let renewed = renew(Some(&one), one.fence(), op(3), at(50), TTL).unwrap();
        assert!(
            take(
                Some(&renewed),
                (&holder("two"), Epoch(0)),
                op(4),
                at(100),
                TTL
            )
            .is_err()
        );
        let two = take(
            Some(&renewed),
            (&holder("two"), Epoch(0)),
            op(5),
            at(111),
            TTL,
        )
        .unwrap();

        assert!(two.epoch > one.epoch);
        for late in [
            renew(Some(&two), one.fence(), op(6), at(112), TTL),
            release(Some(&two), one.fence(), op(6), at(112)),
        ] {
            assert_eq!(late, Err(JobRefusal::Lost));
        }
        let free = release(Some(&two), two.fence(), op(7), at(113)).unwrap();
        assert!(take(Some(&free), (&holder("one"), Epoch(0)), op(8), at(113), TTL).is_ok());
        assert_eq!(
            renew(Some(&free), two.fence(), op(9), at(114), TTL),
            Err(JobRefusal::Lost)
        );
    }

    fn ran(began: u64, outcome: JobOutcome, epoch: u64) -> JobRecord {
        let run = JobRun {
            place: None,
            host: "one".parse().unwrap(),
            began_and_ended: (at(began), at(began + 1)),
            took: Duration::from_secs(1),
            every: EVERY,
            outcome,
            counts: BTreeMap::new(),
            message: None,
        };
        let epoch = Epoch(epoch);
        let fence = Fence {
            epoch,
            op_id: op(1),
        };
        JobRecord::new(JobName::Gc, run, fence, op(2))
    }

    #[test]
    fn a_job_is_due_an_interval_after_its_last_run_began() {
        let done = ran(1_000, JobOutcome::Done, 1);

        assert!(is_due(None, EVERY, at(0)));
        assert!(!is_due(Some(&done), EVERY, at(1_299)));
        assert!(is_due(Some(&done), EVERY, at(1_300)));
        // A run that failed or hung is not begun again at once, and one that somebody else must finish is.
        for outcome in [
            JobOutcome::Failed,
            JobOutcome::Stuck,
            JobOutcome::Incomplete,
        ] {
            assert!(!is_due(Some(&ran(1_000, outcome, 1)), EVERY, at(1_010)));
        }
        for outcome in [JobOutcome::HandedBack, JobOutcome::LeaseLost] {
            assert!(is_due(Some(&ran(1_000, outcome, 1)), EVERY, at(1_010)));
        }
        // A clock that was a day ahead does not stop it for a day.
        assert!(is_due(
            Some(&ran(87_400, JobOutcome::Done, 1)),
            EVERY,
            at(1_000)
        ));
    }

    #[test]
    fn a_run_is_stuck_when_its_time_is_over_and_nobody_gave_the_lock_back() {
        let lock = take(None, (&holder("one"), Epoch(0)), op(1), at(0), TTL).unwrap();
        let renewed = renew(Some(&lock), lock.fence(), op(2), at(50), TTL).unwrap();
        let free = release(Some(&renewed), lock.fence(), op(3), at(60)).unwrap();

        assert!(!is_stuck(None, EVERY, at(1_000)));
        assert!(!is_stuck(Some(&renewed), EVERY, at(300)));
        assert!(is_stuck(Some(&renewed), EVERY, at(301)));
        assert!(!is_stuck(Some(&free), EVERY, at(301)));
    }

    #[test]
    fn a_record_is_replaced_only_by_the_same_run_or_a_later_one_even_if_the_lock_was_lost() {
        let later = ran(2_000, JobOutcome::Done, 7);
        let late = ran(1_000, JobOutcome::Done, 6);

        let refused = record(Some(&later), late).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Fenced);
        assert!(record(Some(&later), ran(2_000, JobOutcome::Failed, 7)).is_ok());
        let anew = take(
            None,
            (&holder("two"), later.fence.epoch),
            op(3),
            at(3_000),
            TTL,
        )
        .unwrap();
        assert!(record(Some(&later), ran(3_000, JobOutcome::Done, anew.epoch.0)).is_ok());
    }
}
