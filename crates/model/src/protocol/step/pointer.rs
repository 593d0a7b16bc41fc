//! The rules of `latest.json`: fence, publish, rollback, force-unlock, delete, pin, check, forget.

use super::{
    CHECK_LIMIT, DocumentChange, Documents, Lost, MARK_LIMIT, Op, ROLLBACK_MEMORY, Refusal,
    TOMBSTONE_FRESH,
};
use crate::digest::ArchiveDigest;
use crate::format::lease::{Fence, LockState};
use crate::format::pointer::{Active, CheckFinding, Pointer, PointerAct, PointerMark};
use crate::id::{Generation, OpId};
use crate::time::Timestamp;

pub(super) fn write_fence(
    found: &Documents,
    fence: Fence,
    now: Timestamp,
) -> Result<DocumentChange, Refusal> {
    let pointer = found.pointer.clone().unwrap_or_else(Pointer::empty);
    if pointer.fence == fence {
        return Ok(DocumentChange::Already);
    }
    if pointer.fence.epoch >= fence.epoch {
        return Err(Refusal::Outrun { by: pointer.fence });
    }
    let active = pointer.active_archive();
    let mut next = pointer.successor(fence.op_id, PointerAct::Acquire, active, now);
    next.fence = fence;
    Ok(DocumentChange::Pointer(next))
}

pub(super) fn move_pointer(
    found: &Documents,
    op: &Op,
    op_id: OpId,
    now: Timestamp,
) -> Result<DocumentChange, Refusal> {
    let forced = Fence {
        epoch: found.next_epoch(),
        op_id,
    };
    let pointer = match (&found.pointer, op) {
        (Some(pointer), _) => pointer.clone(),
        (None, Op::ForceUnlock { .. }) => Pointer::empty(),
        (None, _) => return Err(Refusal::NoPointer),
    };
    if pointer.remembers(op_id) {
        return Ok(DocumentChange::Already);
    }
    let by = WriteStamp { op_id, now };
    match op {
        Op::Publish { fence, base, to } => publish(&pointer, *fence, *base, to, by),
        Op::Rollback { to, seen } => rollback(&pointer, to, *seen, forced, now),
        Op::ForceUnlock { seen } => force_unlock(found, &pointer, *seen, forced, now),
        Op::Delete { target, known } => tombstone(&pointer, *target, known, by),
        Op::Pin { target, pinned } => pin(&pointer, *target, *pinned, by),
        Op::Check { target, sound } => Ok(record_check(&pointer, *target, *sound, by)),
        Op::Forget { gone } => forget(found, &pointer, gone, forced, now),
        _ => unreachable!("the other operations are the lock's, or the fence's"),
    }
}

/// Which operation writes, and when.
#[derive(Clone, Copy)]
struct WriteStamp {
    op_id: OpId,
    now: Timestamp,
}

fn publish(
    pointer: &Pointer,
    fence: Fence,
    base: Option<ArchiveDigest>,
    to: &Active,
    by: WriteStamp,
) -> Result<DocumentChange, Refusal> {
    let WriteStamp { op_id, now } = by;
    if pointer.fence != fence {
        return Err(Refusal::LockLost(Lost::Fenced(pointer.fence)));
    }
    let active = pointer.active_archive();
    if active != base {
        return Err(Refusal::Diverged { base, active });
    }
    if pointer.is_tombstoned(to.archive) {
        return Err(Refusal::Tombstoned(to.archive));
    }
    let mut next = pointer.successor(op_id, PointerAct::Publish, Some(to.archive), now);
    next.point_at(to.clone(), now);
    Ok(DocumentChange::Pointer(next))
}

fn rollback(
    pointer: &Pointer,
    to: &Active,
    seen: Option<Generation>,
    fence: Fence,
    now: Timestamp,
) -> Result<DocumentChange, Refusal> {
    let found = pointer.generation;
    if let Some(seen) = seen.filter(|seen| *seen != found) {
        return Err(Refusal::PointerMoved { seen, found });
    }
    if pointer.is_tombstoned(to.archive) {
        return Err(Refusal::Tombstoned(to.archive));
    }
    let mut next = pointer.successor(fence.op_id, PointerAct::Rollback, Some(to.archive), now);
    next.fence = fence;
    next.point_at(to.clone(), now);
    next.rollbacks
        .retain(|mark| mark.at_ms >= now.minus(ROLLBACK_MEMORY));
    next.rollbacks.push(PointerMark {
        sha256: to.archive,
        at_ms: now,
    });
    let surplus = next.rollbacks.len().saturating_sub(MARK_LIMIT);
    next.rollbacks.drain(..surplus);
    Ok(DocumentChange::Pointer(next))
}

fn force_unlock(
    found: &Documents,
    pointer: &Pointer,
    seen: Fence,
    fence: Fence,
    now: Timestamp,
) -> Result<DocumentChange, Refusal> {
    let lock = found.lock.as_ref().ok_or(Refusal::NotHeld)?;
    if lock.state != LockState::Held {
        return Err(Refusal::NotHeld);
    }
    if lock.fence() != seen {
        return Err(Refusal::HolderChanged {
            seen,
            found: lock.fence(),
        });
    }
    let active = pointer.active_archive();
    let mut next = pointer.successor(fence.op_id, PointerAct::ForceUnlock, active, now);
    next.fence = fence;
    Ok(DocumentChange::Pointer(next))
}

fn tombstone(
    pointer: &Pointer,
    target: ArchiveDigest,
    known: &[ArchiveDigest],
    by: WriteStamp,
) -> Result<DocumentChange, Refusal> {
    let WriteStamp { op_id, now } = by;
    let of_it = |mark: &&PointerMark| mark.sha256 == target;
    if let Some(mark) = pointer.tombstones.iter().find(of_it) {
        if now.since(mark.at_ms) < TOMBSTONE_FRESH {
            return Ok(DocumentChange::Already);
        }
        let mut next = pointer.successor(op_id, PointerAct::Delete, Some(target), now);
        next.tombstones.retain(|mark| mark.sha256 != target);
        add_mark(&mut next.tombstones, target, now, "tombstones")?;
        return Ok(DocumentChange::Pointer(next));
    }
    if !known.contains(&target) {
        return Err(Refusal::NoSuchSnapshot(target));
    }
    if pointer.active_archive() == Some(target) {
        return Err(Refusal::IsActive(target));
    }
    if pointer.is_pinned(target) {
        return Err(Refusal::IsPinned(target));
    }
    let remains = |other: &&ArchiveDigest| **other != target && !pointer.is_tombstoned(**other);
    if known.iter().find(remains).is_none() {
        return Err(Refusal::IsLast(target));
    }
    let mut next = pointer.successor(op_id, PointerAct::Delete, Some(target), now);
    add_mark(&mut next.tombstones, target, now, "tombstones")?;
    Ok(DocumentChange::Pointer(next))
}

fn pin(
    pointer: &Pointer,
    target: ArchiveDigest,
    pinned: bool,
    by: WriteStamp,
) -> Result<DocumentChange, Refusal> {
    let WriteStamp { op_id, now } = by;
    if pinned == pointer.is_pinned(target) {
        return Ok(DocumentChange::Already);
    }
    if pinned && pointer.is_tombstoned(target) {
        return Err(Refusal::Tombstoned(target));
    }
    let kind = if pinned {
        PointerAct::Pin
    } else {
        PointerAct::Unpin
    };
    let mut next = pointer.successor(op_id, kind, Some(target), now);
    if pinned {
        add_mark(&mut next.pins, target, now, "pins")?;
    } else {
        next.pins.retain(|mark| mark.sha256 != target);
    }
    Ok(DocumentChange::Pointer(next))
}

fn record_check(
    pointer: &Pointer,
    target: ArchiveDigest,
    sound: bool,
    by: WriteStamp,
) -> DocumentChange {
    let WriteStamp { op_id, now } = by;
    let said = pointer.finding(target).map(|finding| finding.sound);
    if said == Some(sound) {
        return DocumentChange::Already;
    }
    let mut next = pointer.successor(op_id, PointerAct::Check, Some(target), now);
    next.checks.retain(|finding| finding.sha256 != target);
    next.checks.push(CheckFinding {
        sha256: target,
        sound,
        at_ms: now,
    });
    let surplus = next.checks.len().saturating_sub(CHECK_LIMIT);
    next.checks.drain(..surplus);
    DocumentChange::Pointer(next)
}

fn forget(
    found: &Documents,
    pointer: &Pointer,
    gone: &[PointerMark],
    fence: Fence,
    now: Timestamp,
) -> Result<DocumentChange, Refusal> {
    if let Some(lock) = found.lock.as_ref().filter(|lock| !lock.is_given_up()) {
        return Err(Refusal::Held(Box::new(lock.clone())));
    }
    if !gone.iter().any(|mark| pointer.tombstones.contains(mark)) {
        return Ok(DocumentChange::Already);
    }
    let active = pointer.active_archive();
    let mut next = pointer.successor(fence.op_id, PointerAct::Forget, active, now);
    next.fence = fence;
    next.tombstones.retain(|mark| !gone.contains(mark));
    let is_gone = |finding: &CheckFinding| gone.iter().any(|mark| mark.sha256 == finding.sha256);
    next.checks.retain(|finding| !is_gone(finding));
    Ok(DocumentChange::Pointer(next))
}

fn add_mark(
    marks: &mut Vec<PointerMark>,
    sha256: ArchiveDigest,
    at_ms: Timestamp,
    what: &'static str,
) -> Result<(), Refusal> {
    if marks.len() >= MARK_LIMIT {
        return Err(Refusal::Full { what });
    }
    marks.push(PointerMark { sha256, at_ms });
    Ok(())
}
