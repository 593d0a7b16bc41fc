//! The lock of a job that runs on one host at a time, such as putting idle sessions to sleep: [`Lock`] without a pointer beside it.
//!
//! It spares work and keeps order; nothing is safe because of it. What the job does to a subject is decided by that subject's document.

use crate::format::lease::{Fence, Holder, Lock, LockState};
use crate::id::OpId;
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
}

/// Takes the lock for `holder`.
pub fn take(
    found: Option<&Lock>,
    holder: &Holder,
    op_id: OpId,
    now: Timestamp,
    ttl: Duration,
) -> Result<Lock, JobRefusal> {
    let expires_at = now.plus(ttl);
    let Some(lock) = found else {
        let epoch = crate::id::Epoch(1);
        let fence = Fence { epoch, op_id };
        return Ok(Lock::first(holder.clone(), fence, now, expires_at));
    };
    if lock.is_live(now) {
        return Err(JobRefusal::Held(Box::new(lock.clone())));
    }
    let epoch = lock.epoch.next();
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
        let one = take(None, &holder("one"), op(1), at(0), TTL).unwrap();

        let held = take(Some(&one), &holder("two"), op(2), at(60), TTL).unwrap_err();
        assert!(held.to_string().contains("on one already"), "{held}");
        let renewed = renew(Some(&one), one.fence(), op(3), at(50), TTL).unwrap();
        assert!(take(Some(&renewed), &holder("two"), op(4), at(100), TTL).is_err());
        let two = take(Some(&renewed), &holder("two"), op(5), at(111), TTL).unwrap();

        assert!(two.epoch > one.epoch);
        for late in [
            renew(Some(&two), one.fence(), op(6), at(112), TTL),
            release(Some(&two), one.fence(), op(6), at(112)),
        ] {
            assert_eq!(late, Err(JobRefusal::Lost));
        }
        let free = release(Some(&two), two.fence(), op(7), at(113)).unwrap();
        assert!(take(Some(&free), &holder("one"), op(8), at(113), TTL).is_ok());
        assert_eq!(
            renew(Some(&free), two.fence(), op(9), at(114), TTL),
            Err(JobRefusal::Lost)
        );
    }
}
