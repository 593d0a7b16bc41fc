//! The rules of `lock.json`: take, renew, release, reap, and the mark of a forced act.

use super::{DocumentChange, Documents, Lost, OPERATOR, Refusal};
use crate::format::lease::{Fence, Holder, Lock, LockState};
use crate::id::{Label, OpId};
use crate::time::Timestamp;
use std::time::Duration;

pub(super) fn take(
    found: &Documents,
    holder: &Holder,
    op_id: OpId,
    now: Timestamp,
    ttl: Duration,
) -> Result<DocumentChange, Refusal> {
    let fence = Fence {
        epoch: found.next_epoch(),
        op_id,
    };
    let expires_at = now.plus(ttl);
    if let (None, Some(lock)) = (&found.pointer, &found.lock)
        && lock.proves_a_pointer()
    {
        return Err(Refusal::PointerLost(lock.epoch));
    }
    let Some(lock) = &found.lock else {
        return Ok(DocumentChange::Lock(Lock::first(
            holder.clone(),
            fence,
            now,
            expires_at,
        )));
    };
    if lock.op_id == op_id && lock.state == LockState::Held {
        // Ours already, through a lost answer; worth something only while no later owner has passed it.
        let ahead = lock.epoch > found.fence().epoch || lock.fence() == found.fence();
        let again = || DocumentChange::Lock(lock.taken_by(holder.clone(), fence, now, expires_at));
        return Ok(if ahead {
            DocumentChange::Already
        } else {
            again()
        });
    }
    if lock.is_live(now) {
        return Err(Refusal::Held(Box::new(lock.clone())));
    }
    Ok(DocumentChange::Lock(lock.taken_by(
        holder.clone(),
        fence,
        now,
        expires_at,
    )))
}

pub(super) fn renew(
    found: &Documents,
    fence: Fence,
    op_id: OpId,
    now: Timestamp,
    ttl: Duration,
) -> Result<DocumentChange, Refusal> {
    let lock = found.lock.as_ref().ok_or(Refusal::LockLost(Lost::NoLock))?;
    if lock.fence() != fence || lock.state == LockState::Forced {
        return Err(Refusal::LockLost(Lost::TakenOver(lock.fence())));
    }
    if lock.state == LockState::Free && lock.released {
        return Err(Refusal::LockLost(Lost::GivenBack));
    }
    if found.fence() != fence {
        return Err(Refusal::LockLost(Lost::Fenced(found.fence())));
    }
    if lock.write_id == op_id {
        return Ok(DocumentChange::Already);
    }
    // A lock that the reaper freed while no other process took it comes back to its holder.
    let mut next = lock.successor(op_id);
    next.state = LockState::Held;
    next.renewed_at = now;
    next.expires_at = now.plus(ttl);
    next.renewal_count = lock.renewal_count.saturating_add(1);
    Ok(DocumentChange::Lock(next))
}

pub(super) fn release(
    found: &Documents,
    fence: Fence,
    op_id: OpId,
    now: Timestamp,
) -> Result<DocumentChange, Refusal> {
    let lock = found.lock.as_ref().ok_or(Refusal::LockLost(Lost::NoLock))?;
    if lock.fence() != fence || lock.state == LockState::Forced {
        return Err(Refusal::LockLost(Lost::TakenOver(lock.fence())));
    }
    if lock.state == LockState::Free {
        return Ok(DocumentChange::Already);
    }
    let mut next = freed(lock, op_id, now);
    next.released = true;
    Ok(DocumentChange::Lock(next))
}

pub(super) fn reap(
    found: &Documents,
    op_id: OpId,
    now: Timestamp,
    grace: Duration,
) -> Result<DocumentChange, Refusal> {
    let lock = found.lock.as_ref().ok_or(Refusal::NotHeld)?;
    if lock.write_id == op_id {
        return Ok(DocumentChange::Already);
    }
    if lock.state != LockState::Held {
        return Err(Refusal::NotHeld);
    }
    if lock.expires_at >= now.minus(grace) {
        return Err(Refusal::NotExpired);
    }
    Ok(DocumentChange::Lock(freed(lock, op_id, now)))
}

/// Free, under the same epoch; readers of the plain contract see it as expired.
pub(super) fn freed(lock: &Lock, op_id: OpId, now: Timestamp) -> Lock {
    let mut next = lock.successor(op_id);
    next.state = LockState::Free;
    next.expires_at = lock.expires_at.min(now);
    next
}

pub(super) fn mark_forced(
    found: &Documents,
    fence: Fence,
    reason: &Label,
    expires_at: Timestamp,
) -> DocumentChange {
    let Some(lock) = &found.lock else {
        return DocumentChange::Already;
    };
    // A holder at this epoch or above has seen the act, or meets it when it writes its own fence.
    if lock.state != LockState::Held || lock.epoch >= fence.epoch {
        return DocumentChange::Already;
    }
    let mut next = lock.successor(fence.op_id);
    next.holder.run_id = OPERATOR.parse().expect("a constant that is a label");
    next.epoch = fence.epoch;
    next.op_id = fence.op_id;
    next.state = LockState::Forced;
    next.expires_at = lock.expires_at.min(expires_at);
    next.reason = reason.clone();
    DocumentChange::Lock(next)
}
